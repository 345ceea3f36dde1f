/* SPDX-License-Identifier: Apache-2.0 */
/* selftest.c: `zoff selftest`: the table of what has the same bits on this machine. */
#include "selftest.h"
#include "verbs.h"

#include <stdlib.h>
#include <time.h>
#include <zoff/zoff.h>

typedef struct tally {
    unsigned rows, wrong;
} tally;

static void print_row(tally *to, const char *part, const char *name, const selftest_result *result)
{
    print_line(stdout, "%-8s %-41s %-7s %s", part, name,
               result->absent   ? "-"
               : result->agrees ? "same"
                                : "DIFFERS",
               result->words);
    (void)fflush(stdout); /* a row that takes long shows what it is about by the rows before it */
    to->rows += !result->absent;
    to->wrong += !result->absent && !result->agrees;
}

int verb_selftest(int argc, char **argv)
{
    selftest_result result;
    tally all = {0};
    struct timespec from, to;
    char folder[SCRATCH_BYTES];
    if (argc > 1 || (argc == 1 && argv[0][0] == '-'))
        return usage_error("selftest takes one folder at most, but was given \"%s\"", argv[argc - 1]);
    int status = make_scratch(argc ? argv[0] : NULL, folder);
    if (status != EXIT_DONE)
        return status;
    clock_gettime(CLOCK_MONOTONIC, &from);
    set_log(false);
    for (size_t i = 0; SELFTEST_ISAS[i]; i++) {
        selftest_kernels(SELFTEST_ISAS[i], &result);
        print_row(&all, "kernels", SELFTEST_ISAS[i], &result);
    }
    for (size_t way = 0; way < selftest_ways(); way++) {
        selftest_way(way, folder, &result);
        print_row(&all, "engine", selftest_way_name(way), &result);
    }
    set_log(true);
    remove_scratch(folder);
    clock_gettime(CLOCK_MONOTONIC, &to);
    print_line(stdout, "%u rows in %.1f s: %s", all.rows,
               (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) * 1e-9,
               all.wrong ? "NOT all agree" : "all agree");
    status = finish_output();
    return all.wrong ? failed("%u of %u rows differ from the reference: do not train with this build on this machine",
                              all.wrong, all.rows)
                     : status;
}
