/* fault.c: the message of a call that failed. */
#include "fault.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Names out of a foreign file may contain anything; a terminal must not see it. */
static void make_printable(char *text)
{
    for (; *text; text++) {
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            *text = '?';
    }
}

void fault_write(fault *f, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(f->text, sizeof f->text, format, args);
    va_end(args);
    make_printable(f->text);
}

void fault_prefix(fault *f, const char *where)
{
    char words[sizeof f->text];
    memcpy(words, f->text, sizeof words);
    fault_write(f, "%s: %s", where, words);
}
