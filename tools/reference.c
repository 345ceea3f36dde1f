/* reference.c: `zoff reference`: prints the text of docs/CONFIG.md. */
#include "verbs.h"

#include <stdio.h>
#include <stdlib.h>
#include <zoff/zoff.h>

int verb_reference(int argc, char **argv)
{
    if (argc > 0)
        return usage_error("reference takes no arguments, but was given \"%s\"", argv[0]);
    size_t bytes, fitted;
    char *text = NULL;
    if (zoff_config_reference(NULL, 0, &bytes) < 0 || !(text = malloc(bytes + 1)) ||
        zoff_config_reference(text, bytes + 1, &fitted) < 0) {
        failed("%s", text ? zoff_last_error() : "out of memory for the reference");
        free(text);
        return EXIT_FAILED;
    }
    fputs(text, stdout);
    free(text);
    return finish_output();
}
