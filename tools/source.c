/* SPDX-License-Identifier: Apache-2.0 */
/* source.c: opens the configuration of a verb: --set values, then a file or standard input. */
#include "verbs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zoff/zoff.h>

/* Most bytes from standard input. The library's limit is lower, so the library reports a text that is too large. */
enum { STDIN_MAX = 32 << 20 };

static int read_stdin(zoff_config *config)
{
    char *text = malloc(STDIN_MAX);
    if (!text)
        return failed("out of memory for standard input");
    const size_t bytes = fread(text, 1, STDIN_MAX, stdin);
    int result = EXIT_DONE;
    if (ferror(stdin)) {
        result = failed("cannot read standard input: %s", strerror(errno));
    } else if (zoff_config_read_text(config, text, bytes, "stdin") < 0) {
        result = library_error();
    }
    free(text);
    return result;
}

/* Apply one --set KEY=VALUE. Cuts the argument at its "=". */
static int set_key(zoff_config *config, char *argument)
{
    char *equals = strchr(argument, '=');
    if (!equals || equals == argument)
        return usage_error("--set needs KEY=VALUE, not \"%s\"", argument);
    *equals = 0;
    return zoff_config_set(config, argument, equals + 1) < 0 ? library_error() : EXIT_DONE;
}

int open_config(const char *path, char **sets, int set_count, zoff_config **out)
{
    zoff_config *config;
    if (zoff_config_open(NULL, &config) < 0)
        return library_error();
    int result = EXIT_DONE;
    for (int i = 0; i < set_count && result == EXIT_DONE; i++)
        result = set_key(config, sets[i]);
    if (result == EXIT_DONE && strcmp(path, "-") == 0)
        result = read_stdin(config);
    else if (result == EXIT_DONE && zoff_config_read(config, path) < 0)
        result = library_error();
    if (result == EXIT_DONE)
        *out = config;
    else
        zoff_config_close(config);
    return result;
}

int read_ranks(const char *text, unsigned *out)
{
    char *end;
    errno = 0;
    unsigned long ranks = strtoul(text, &end, 10);
    if (*end || end == text || text[0] == '-' || errno || ranks == 0 || ranks > 1000000)
        return usage_error("--ranks needs a number from 1 to 1000000, not \"%s\"", text);
    *out = (unsigned)ranks;
    return EXIT_DONE;
}
