/* check.c: `zoff check FILE`: what a configuration comes to, or what is wrong with it. */
#include "verbs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zoff/zoff.h>

static int print_effective(zoff_config *config)
{
    size_t bytes, fitted;
    if (zoff_config_dump(config, NULL, 0, &bytes) < 0)
        return library_error();
    char *text = malloc(bytes + 1);
    if (!text) {
        fprintf(stderr, "error: out of memory for %zu bytes of text\n", bytes);
        return EXIT_FAILED;
    }
    int result = zoff_config_dump(config, text, bytes + 1, &fitted) < 0 ? library_error() : EXIT_DONE;
    if (result == EXIT_DONE) {
        fputs(text, stdout);
        result = finish_output();
    }
    free(text);
    return result;
}

/* The sets must come after the file is read, wherever they stand. */
static int check(const char *path, unsigned ranks, char **sets, int set_count)
{
    zoff_config *config;
    if (zoff_config_open(path, &config) < 0)
        return library_error();
    int result = EXIT_DONE;
    for (int i = 0; i < set_count && result == EXIT_DONE; i++)
        result = set_key(config, sets[i]);
    if (result == EXIT_DONE)
        result = zoff_config_resolve(config, ranks) < 0 ? library_error() : print_effective(config);
    zoff_config_close(config);
    return result;
}

int verb_check(int argc, char **argv)
{
    const char *path = NULL;
    unsigned long ranks = 1;
    int set_count = 0;
    for (int i = 0; i < argc; i++) {
        bool takes_value = strcmp(argv[i], "--ranks") == 0 || strcmp(argv[i], "--set") == 0;
        if (takes_value && i + 1 == argc)
            return usage_error("%s needs a value", argv[i]);
        if (strcmp(argv[i], "--ranks") == 0) {
            char *end;
            errno = 0;
            ranks = strtoul(argv[++i], &end, 10);
            if (*end || end == argv[i] || argv[i][0] == '-' || errno || ranks == 0 || ranks > 1000000)
                return usage_error("--ranks needs a number from 1 to 1000000, not \"%s\"", argv[i]);
        } else if (takes_value) {
            argv[set_count++] = argv[++i]; /* gathered at the front, which has been read */
        } else if (argv[i][0] == '-' && argv[i][1]) {
            return usage_error("check: there is no option \"%s\"", argv[i]);
        } else if (path) {
            return usage_error("check: one file at a time: \"%s\" or \"%s\"", path, argv[i]);
        } else {
            path = argv[i];
        }
    }
    return path ? check(path, (unsigned)ranks, argv, set_count) : usage_error("check: which file?");
}
