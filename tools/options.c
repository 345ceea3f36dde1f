/* SPDX-License-Identifier: Apache-2.0 */
/* options.c: values of options that several verbs take. */
#include "options.h"

#include "dtype.h"
#include "verbs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int option_step(const char *text, int64_t *out)
{
    char *end;
    errno = 0;
    const long long step = strtoll(text, &end, 10);
    if (*end || end == text || errno || step < 0)
        return usage_error("--step needs a number of updates from 0 on, not \"%s\"", text);
    *out = step;
    return EXIT_DONE;
}

int option_dtype(const char *text, zoff_dtype *out)
{
    *out = dtype_of(text);
    return *out ? EXIT_DONE : usage_error("--dtype must be bf16, fp16 or fp32, not \"%s\"", text);
}

int option_dtype_or_keep(const char *text, zoff_dtype *out)
{
    *out = dtype_of(text);
    return *out || strcmp(text, "keep") == 0 ? EXIT_DONE
                                             : usage_error("--dtype must be bf16, fp16, fp32 or keep, not \"%s\"", text);
}

int option_stack(char *text, char **stacks, size_t *count)
{
    const char *equals = strchr(text, '='), *place = equals ? strstr(equals, "{}") : NULL;
    if (equals == text || !place || strstr(place + 2, "{}"))
        return usage_error("--stack needs NAME=PATTERN with {} once in the pattern, not \"%s\"", text);
    stacks[(*count)++] = text;
    return EXIT_DONE;
}
