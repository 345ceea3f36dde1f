/* SPDX-License-Identifier: Apache-2.0 */
/* messages.c: text, errors and the end of output, which all verbs of the zoff command share. */
#include "names.h"
#include "verbs.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <zoff/zoff.h>

/* Print text whose control characters are escaped. U+0080 to U+009F are escaped, too, because terminals take U+009B as the
 * begin of a command. */
static void put_printable(FILE *to, const char *text, bool has_lines)
{
    while (*text) {
        const unsigned char *at = (const unsigned char *)text;
        const size_t bytes = name_character(text);
        const bool is_control = *at < 32 || *at == 127 || (bytes == 2 && at[0] == 0xc2 && at[1] < 0xa0);
        if (bytes > 0 && (!is_control || (has_lines && *at == '\n'))) {
            fwrite(text, 1, bytes, to);
            text += bytes;
        } else {
            fprintf(to, "\\x%02x", *at);
            text++;
        }
    }
}

static void put_arguments(FILE *to, const char *format, va_list args)
{
    char *text = NULL;
    if (vasprintf(&text, format, args) >= 0) {
        put_printable(to, text, false);
        free(text);
    } else {
        fputs("out of memory for a message", to);
    }
}

void print_text(FILE *to, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    put_arguments(to, format, args);
    va_end(args);
}

void print_line(FILE *to, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    put_arguments(to, format, args);
    va_end(args);
    putc('\n', to);
}

void print_lines(const char *text)
{
    put_printable(stdout, text, true);
}

void print_json_text(const char *text)
{
    char *bytes = malloc(strlen(text) + 1), *to = bytes;
    for (const unsigned char *c = (const unsigned char *)text; bytes && *c; c++) {
        const bool is_pair = (*c == 0xc2 || *c == 0xc3) && c[1];
        *to++ = (char)(is_pair ? (*c & 3) << 6 | (c[1] & 0x3f) : *c);
        c += is_pair;
    }
    if (bytes)
        *to = 0;
    print_text(stdout, "%s", bytes ? bytes : text);
    free(bytes);
}

int usage_error(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "zoff: ");
    put_arguments(stderr, format, args);
    fprintf(stderr, "; see `zoff help`\n");
    va_end(args);
    return EXIT_USAGE;
}

int failed(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "error: ");
    put_arguments(stderr, format, args);
    fprintf(stderr, "\n");
    va_end(args);
    return EXIT_FAILED;
}

int library_error(void)
{
    return failed("%s", zoff_last_error());
}

int finish_output(void)
{
    const int of_earlier = errno; /* a write that failed has lost its bytes, so fflush() may find none to write */
    const bool works = fflush(stdout) == 0;
    if (works && !ferror(stdout))
        return EXIT_DONE;
    fprintf(stderr, "zoff: cannot write the output: %s\n", strerror(works ? of_earlier : errno));
    return EXIT_FAILED;
}
