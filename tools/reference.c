/* SPDX-License-Identifier: Apache-2.0 */
/* reference.c: `zoff reference` prints the text of docs/CONFIG.md, and `zoff schema` the same table as a JSON Schema. */
#include "verbs.h"

#include <stdio.h>
#include <stdlib.h>
#include <zoff/zoff.h>

static int print_table(const char *verb, zoff_status (*write)(char *, size_t, size_t *), int argc, char **argv)
{
    if (argc > 0)
        return usage_error("%s takes no arguments, but was given \"%s\"", verb, argv[0]);
    size_t bytes, fitted;
    char *text = NULL;
    if (write(NULL, 0, &bytes) < 0 || !(text = malloc(bytes + 1)) || write(text, bytes + 1, &fitted) < 0) {
        failed("%s", text ? zoff_last_error() : "out of memory for the table of keys");
        free(text);
        return EXIT_FAILED;
    }
    fputs(text, stdout);
    free(text);
    return finish_output();
}

int verb_reference(int argc, char **argv)
{
    return print_table("reference", zoff_config_reference, argc, argv);
}

int verb_schema(int argc, char **argv)
{
    return print_table("schema", zoff_config_schema, argc, argv);
}
