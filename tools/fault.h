/* SPDX-License-Identifier: Apache-2.0 */
/* fault.h: the message of a call that failed, for files that leave the printing to their caller. */
#ifndef ZOFF_TOOL_FAULT_H
#define ZOFF_TOOL_FAULT_H

#include <stdbool.h>

typedef struct fault {
    char text[1024];
} fault;

/* Set the message. */
void fault_write(fault *f, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Put "WHERE: " before the message. */
void fault_prefix(fault *f, const char *where);

/* The same functions as expressions that are false, so that a function can return them, and the compiler sees that. */
#define fault_set(...) (fault_write(__VA_ARGS__), false)
#define fault_at(f, where) (fault_prefix((f), (where)), false)

#endif
