/* SPDX-License-Identifier: Apache-2.0 */
/* options.h: values of options that several verbs take. Each function returns the exit status, after an error that names the
 * option. */
#ifndef ZOFF_TOOL_OPTIONS_H
#define ZOFF_TOOL_OPTIONS_H

#include <stddef.h>
#include <stdint.h>
#include <zoff/types.h>

/* Read --step: a number of updates. */
int option_step(const char *text, int64_t *out);

/* Read --dtype: the name of a type. "keep", which only some verbs take, is ZOFF_DTYPE_DEFAULT. */
int option_dtype(const char *text, zoff_dtype *out);
int option_dtype_or_keep(const char *text, zoff_dtype *out);

/* Read --stack, a text NAME=PATTERN with {} once in the pattern, and add it to `stacks`, which has room. */
int option_stack(char *text, char **stacks, size_t *count);

#endif
