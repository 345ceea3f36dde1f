/* check.c: `zoff check FILE`: prints the effective configuration, or the error in it. */
#include "verbs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zoff/zoff.h>

/* Remove the lines of keys that have their default value. */
static void drop_defaults(char *text)
{
    static const char END[] = " # default";
    char *to = text;
    for (char *line = text, *next; *line; line = next) {
        const size_t bytes = strcspn(line, "\n");
        next = line + bytes + (line[bytes] == '\n');
        const bool is_default = bytes >= sizeof END - 1 && memcmp(line + bytes - (sizeof END - 1), END, sizeof END - 1) == 0;
        if (is_default)
            continue;
        memmove(to, line, (size_t)(next - line));
        to += next - line;
    }
    *to = 0;
}

static int print_effective(zoff_config *config, bool changed)
{
    size_t bytes, fitted;
    if (zoff_config_dump(config, NULL, 0, &bytes) < 0)
        return library_error();
    char *text = malloc(bytes + 1);
    if (!text)
        return failed("out of memory for %zu bytes of text", bytes);
    int result = zoff_config_dump(config, text, bytes + 1, &fitted) < 0 ? library_error() : EXIT_DONE;
    if (result == EXIT_DONE) {
        if (changed)
            drop_defaults(text);
        print_lines(text);
        result = finish_output();
    }
    free(text);
    return result;
}

static int check(const char *path, unsigned ranks, bool changed, char **sets, int set_count)
{
    zoff_config *config;
    int result = open_config(path, sets, set_count, &config);
    if (result != EXIT_DONE)
        return result;
    result = zoff_config_resolve(config, ranks) < 0 ? library_error() : print_effective(config, changed);
    zoff_config_close(config);
    return result;
}

int verb_check(int argc, char **argv)
{
    const char *path = NULL;
    unsigned ranks = 1;
    int set_count = 0, result;
    bool changed = false;
    for (int i = 0; i < argc; i++) {
        bool takes_value = strcmp(argv[i], "--ranks") == 0 || strcmp(argv[i], "--set") == 0;
        if (takes_value && i + 1 == argc)
            return usage_error("%s needs a value", argv[i]);
        if (strcmp(argv[i], "--ranks") == 0) {
            if ((result = read_ranks(argv[++i], &ranks)) != EXIT_DONE)
                return result;
        } else if (strcmp(argv[i], "--changed") == 0) {
            changed = true;
        } else if (takes_value) {
            argv[set_count++] = argv[++i]; /* collect the values at the front of argv, which has been read already */
        } else if (argv[i][0] == '-' && argv[i][1]) {
            return usage_error("check: there is no option \"%s\"", argv[i]);
        } else if (path) {
            return usage_error("check takes one file, not both \"%s\" and \"%s\"", path, argv[i]);
        } else {
            path = argv[i];
        }
    }
    return path ? check(path, ranks, changed, argv, set_count) : usage_error("check needs a file");
}
