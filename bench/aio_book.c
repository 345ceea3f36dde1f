/* aio_book.c: races of transfers: who takes part, and what follows from the samples. */
#include "aio_bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

volatile int bench_stopped;

int bench_over(double deadline)
{
    return bench_stopped || bench_stopwatch_now() >= deadline;
}

const char *bench_way_name(bench_way way)
{
    static const char *const NAMES[WAYS] = {"read", "write", "mix"};
    return NAMES[way];
}

bench_match *bench_book_open(bench_book *book, const char *part, bench_way way, uint64_t bytes)
{
    bench_match *match = book->count < MOST_RACES ? calloc(1, sizeof *match) : NULL;
    if (!match) {
        fprintf(stderr, "aio: no memory for the results of %s\n", part);
        return NULL;
    }
    match->r.part = part;
    snprintf(match->r.label, sizeof match->r.label, "%s", bench_way_name(way));
    match->way = way;
    match->bytes = bytes;
    return book->races[book->count++] = match;
}

const bench_match *bench_book_find(const bench_book *book, const char *part, bench_way way)
{
    for (unsigned i = 0; i < book->count; i++) {
        if (strcmp(book->races[i]->r.part, part) == 0 && book->races[i]->way == way)
            return book->races[i];
    }
    return NULL;
}

void bench_book_free(bench_book *book)
{
    for (unsigned i = 0; i < book->count; i++)
        free(book->races[i]);
    book->count = 0;
}

static void size_text(char *out, size_t bytes, uint64_t size)
{
    const int mib = size % MIB == 0;
    snprintf(out, bytes, "%llu%s", (unsigned long long)(mib ? size / MIB : size / KIB), mib ? "m" : "k");
}

/* "fio libaio 1m x8", "zoff 16m by 2m x32", "zoff 16m" with the library's defaults. */
static void make_name(const bench_match *match, bench_line *line)
{
    char block[24] = "", request[24], depth[16] = "";
    if (line->block)
        size_text(block, sizeof block, line->block);
    if (line->depth)
        snprintf(depth, sizeof depth, " x%u", line->depth);
    size_text(request, sizeof request, line->request ? line->request : match->bytes);
    snprintf(line->name, sizeof line->name, "%s %s%s%s%s%s", line->engine ? "fio" : "zoff",
             line->engine ? line->engine : request,
             line->engine  ? " "
             : line->block ? " by "
                           : "",
             block, depth, line->small_pages ? " 4k pages" : "");
}

int bench_match_add(bench_match *match, bench_line line)
{
    if (match->r.count == RACE_ENTRIES)
        abort(); /* a mistake of the caller's */
    bench_line *own = &match->lines[match->r.count];
    *own = line;
    make_name(match, own);
    return race_add(&match->r, (race_entry){.name = own->name,
                                            .what = line.engine    ? "fio"
                                                    : line.request ? "four requests a wait"
                                                                   : "one request",
                                            .elements = (double)match->bytes,
                                            .bytes = 1,
                                            .yardstick = -1,
                                            .calls = 1});
}

double bench_match_rate(const bench_match *match, int index)
{
    unsigned count = 0;
    return index < 0 ? NAN : (double)match->bytes / race_spread(&match->r, index, &count).median;
}

double bench_match_cpu(const bench_match *match, int index)
{
    double values[RACE_ROUNDS];
    unsigned count = 0;
    for (unsigned k = 0; index >= 0 && k < match->r.rounds; k++) {
        if (!isnan(match->cpu[index][k]))
            values[count++] = match->cpu[index][k] / (1e-9 * (double)match->bytes);
    }
    return count ? bench_stopwatch_spread(values, count).median : NAN;
}

int bench_match_best_fio(const bench_match *match)
{
    int best = -1;
    for (unsigned i = 0; i < match->r.count; i++) {
        const bench_line *line = &match->lines[i];
        const double rate = bench_match_rate(match, (int)i);
        if (line->engine && !line->small_pages && !isnan(rate) && (best < 0 || rate > bench_match_rate(match, best)))
            best = (int)i;
    }
    return best;
}

race_ratio bench_match_compare(const bench_match *match, int a, int b, unsigned enough, int *busy)
{
    double ratios[RACE_ROUNDS];
    *busy = 0;
    for (int pass = 0;; pass++) {
        unsigned pairs = 0, left_out = 0;
        for (unsigned k = 0; a >= 0 && b >= 0 && k < match->r.rounds; k++) {
            const double ratio = match->r.entries[b].seconds[k] / match->r.entries[a].seconds[k];
            const int disturbed = match->busy[a][k] || match->busy[b][k];
            if (isnan(ratio))
                continue;
            *busy = *busy || (disturbed && pass);
            if (disturbed && !pass)
                left_out++;
            else
                ratios[pairs++] = ratio;
        }
        if (pairs >= enough || !left_out)
            return (race_ratio){pairs ? bench_stopwatch_spread(ratios, pairs).median : NAN, pairs};
    }
}
