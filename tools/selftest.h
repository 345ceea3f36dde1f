/* SPDX-License-Identifier: Apache-2.0 */
/* selftest.h: the halves of `zoff selftest`. */
#ifndef ZOFF_TOOL_SELFTEST_H
#define ZOFF_TOOL_SELFTEST_H

#include <stdbool.h>
#include <stddef.h>

enum { SELFTEST_WORDS = 1024 };

/* The result of a row of the table. */
typedef struct selftest_result {
    bool agrees, absent;        /* absent: this CPU does not have it */
    char words[SELFTEST_WORDS]; /* number of cases, or the first difference */
} selftest_result;

/* The instruction sets that libzoff may have kernels for; NULL ends the list. */
extern const char *const SELFTEST_ISAS[];

/* Compare zoff_optimizer_step() with textbook loops in the kernels of an instruction set, to the bit. Runs in a process of its
 * own, because libzoff chooses its kernels once: call it before any other function of libzoff. */
void selftest_kernels(const char *isa, selftest_result *out);

/* Number of ways to train that are compared, and the name of one. */
size_t selftest_ways(void);
const char *selftest_way_name(size_t way);

/* Train in one way, with its files in `folder`, and compare weights and states with a constant, to the bit. */
void selftest_way(size_t way, const char *folder, selftest_result *out);

#endif
