/* SPDX-License-Identifier: Apache-2.0 */
/* tune.c: `zoff tune FOLDER`: measures how fast a folder is, and prints the best "aio" section for it. */
#include "verbs.h"

#include <stdio.h>
#include <string.h>
#include <zoff/zoff.h>

static int print_json(const zoff_aio_tune_result *result)
{
    char text[2048];
    size_t bytes;
    if (zoff_aio_tune_print(result, text, sizeof text, &bytes) < 0 || bytes >= sizeof text) {
        return library_error();
    }
    fputs(text, stdout);
    return finish_output();
}

static int print_table(const char *folder, const zoff_aio_tune_result *result)
{
    print_line(stdout, "%-12s %s (%s)", "folder", folder, result->file_system);
    printf("%-12s %s, %s, memory %s\n", "measured by", result->backend, result->direct ? "O_DIRECT" : "through the page cache",
           result->registered ? "registered" : "not registered");
    printf("%-12s %.2f GB/s\n", "reading", result->read_rate * 1e-9);
    printf("%-12s %.2f GB/s\n", "writing", result->write_rate * 1e-9);
    printf("%-12s %.2f GB/s together\n", "both", result->mixed_rate * 1e-9);
    printf("\"aio\": {\"block_size\": %zu, \"queue_depth\": %u}\n", result->block_bytes, result->depth);
    return finish_output();
}

/* Measure anew always (`fresh`). The result is stored in the folder, where "aio": "auto" finds it. */
int verb_tune(int argc, char **argv)
{
    const char *folder = NULL;
    bool json = false;
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            json = true;
        else if (argv[i][0] == '-' && argv[i][1])
            return usage_error("tune: there is no option \"%s\"", argv[i]);
        else if (folder)
            return usage_error("tune takes one folder, not both \"%s\" and \"%s\"", folder, argv[i]);
        else
            folder = argv[i];
    }
    if (!folder)
        return usage_error("tune needs a folder");
    zoff_aio_tune_opts opts = {.struct_size = sizeof opts, .fresh = true};
    zoff_aio_tune_result result = {.struct_size = sizeof result};
    if (zoff_aio_tune(folder, &opts, &result) < 0) {
        return library_error();
    }
    return json ? print_json(&result) : print_table(folder, &result);
}
