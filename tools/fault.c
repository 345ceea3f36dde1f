/* SPDX-License-Identifier: Apache-2.0 */
/* fault.c: the message of a call that failed. */
#include "fault.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void fault_write(fault *f, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(f->text, sizeof f->text, format, args);
    va_end(args);
}

void fault_prefix(fault *f, const char *where)
{
    char words[sizeof f->text];
    memcpy(words, f->text, sizeof words);
    fault_write(f, "%s: %s", where, words);
}
