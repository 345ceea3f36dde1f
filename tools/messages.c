/* messages.c: errors and the end of output, which all verbs of the zoff command share. */
#include "verbs.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <zoff/zoff.h>

int usage_error(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "zoff: ");
    vfprintf(stderr, format, args);
    fprintf(stderr, "; see `zoff help`\n");
    va_end(args);
    return EXIT_USAGE;
}

int failed(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "error: ");
    vfprintf(stderr, format, args);
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
    if (fflush(stdout) == 0 && !ferror(stdout))
        return EXIT_DONE;
    fprintf(stderr, "zoff: cannot write the output: %s\n", strerror(errno));
    return EXIT_FAILED;
}
