/* SPDX-License-Identifier: Apache-2.0 */
/* info.c: `zoff info`: version, machine and features, for a bug report or beside a benchmark. */
#include "verbs.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <zoff/zoff.h>

static void print_gib(const char *what, long pages)
{
    long page_bytes = sysconf(_SC_PAGESIZE);
    if (pages > 0 && page_bytes > 0)
        printf("%-14s %.1f GiB\n", what, (double)pages * (double)page_bytes / 0x1p30);
}

/* Print one line for each feature of the library. */
static int print_features(void)
{
    size_t bytes = 0;
    if (zoff_features(NULL, 0, &bytes) < 0)
        return library_error();
    char *text = malloc(bytes + 1);
    if (!text || zoff_features(text, bytes + 1, &bytes) < 0) {
        free(text);
        return library_error();
    }
    fputs(text, stdout);
    free(text);
    return finish_output();
}

int verb_info(int argc, char **argv)
{
    if (argc > 0)
        return usage_error("info takes no arguments, but was given \"%s\"", argv[0]);
    printf("%-14s %u.%u.%u\n", "zoff", zoff_version() / 10000, zoff_version() / 100 % 100, zoff_version() % 100);
    printf("%-14s %s\n", "kernels", zoff_isa());
    printf("%-14s %ld online\n", "CPUs", sysconf(_SC_NPROCESSORS_ONLN));
    print_gib("memory", sysconf(_SC_PHYS_PAGES));
    print_gib("memory free", sysconf(_SC_AVPHYS_PAGES));
    return print_features();
}
