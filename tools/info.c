/* info.c: `zoff info`: what a bug report or a benchmark should say about library and machine. */
#include "verbs.h"

#include <stdio.h>
#include <unistd.h>
#include <zoff/zoff.h>

static void print_gib(const char *what, long pages)
{
    long page_bytes = sysconf(_SC_PAGESIZE);
    if (pages > 0 && page_bytes > 0)
        printf("%-16s %.1f GiB\n", what, (double)pages * (double)page_bytes / 0x1p30);
}

int verb_info(int argc, char **argv)
{
    if (argc > 0)
        return usage_error("info takes no arguments, such as \"%s\"", argv[0]);
    printf("%-16s %u.%u.%u\n", "zoff", zoff_version() / 10000, zoff_version() / 100 % 100, zoff_version() % 100);
    printf("%-16s %s\n", "instruction set", zoff_isa());
    printf("%-16s %ld online\n", "CPUs", sysconf(_SC_NPROCESSORS_ONLN));
    print_gib("memory", sysconf(_SC_PHYS_PAGES));
    print_gib("memory free", sysconf(_SC_AVPHYS_PAGES));
    return finish_output();
}
