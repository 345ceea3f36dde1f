/* race.c: rounds, and what follows from them. */
#include "race.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What finishes in microseconds is repeated until a sample lasts; noise of a clock must not be seen. */
static const double SAMPLE_SECONDS = 0.004;

int race_add(race *r, race_entry entry)
{
    const int known = race_find(r, entry.name);
    if (known >= 0) {
        r->entries[known].ctx = entry.ctx;
        return known;
    }
    if (r->count == RACE_ENTRIES)
        abort();
    r->entries[r->count] = entry;
    return (int)r->count++;
}

int race_find(const race *r, const char *name)
{
    for (unsigned i = 0; i < r->count; i++) {
        if (strcmp(r->entries[i].name, name) == 0)
            return (int)i;
    }
    return -1;
}

static void run_round(race *r, unsigned threads, double deadline)
{
    enum { TRIES = 4, MOST_CALLS = 1 << 24 };
    const unsigned round = r->rounds;
    unsigned clean = 0;
    for (unsigned k = 0; k < r->count; k++) {
        const unsigned turn = r->neighbours ? k : (k + round / 2 * 3) % r->count;
        race_entry *e = &r->entries[round % 2 ? r->count - 1 - turn : turn];
        if (e->before)
            e->before(e->ctx);
        bench_sample sample = bench_stopwatch_sample(e->work, e->ctx, e->calls, threads, TRIES, deadline);
        /* A busy moment may have hidden how short a call is. */
        while (!e->fixed && sample.clean && sample.seconds * e->calls < SAMPLE_SECONDS / 2 && e->calls < MOST_CALLS) {
            e->calls *= 2;
            sample = bench_stopwatch_sample(e->work, e->ctx, e->calls, threads, TRIES, deadline);
        }
        e->seconds[round] = sample.clean ? sample.seconds : NAN;
        clean += sample.clean;
        r->retried_samples += sample.retries;
    }
    r->rounds++;
    r->clean_rounds += clean == r->count;
}

void race_run(race *r, unsigned wanted, unsigned threads, double deadline)
{
    for (unsigned i = 0; i < r->count && r->clean_rounds < wanted; i++) {
        if (!r->entries[i].calls && bench_stopwatch_now() < deadline)
            r->entries[i].calls = bench_stopwatch_calls(r->entries[i].work, r->entries[i].ctx, SAMPLE_SECONDS);
    }
    while (r->clean_rounds < wanted && r->rounds < RACE_ROUNDS && bench_stopwatch_now() < deadline)
        run_round(r, threads, deadline);
}

race_ratio race_compare(const race *r, int a, int b)
{
    double ratios[RACE_ROUNDS];
    unsigned pairs = 0;
    for (unsigned k = 0; a >= 0 && b >= 0 && k < r->rounds; k++) {
        const double ratio = r->entries[a].seconds[k] / r->entries[b].seconds[k];
        if (!isnan(ratio))
            ratios[pairs++] = ratio;
    }
    return (race_ratio){pairs ? bench_stopwatch_spread(ratios, pairs).median : NAN, pairs};
}

bench_spread race_spread(const race *r, int entry, unsigned *count)
{
    double seconds[RACE_ROUNDS];
    *count = 0;
    for (unsigned k = 0; k < r->rounds; k++) {
        if (!isnan(r->entries[entry].seconds[k]))
            seconds[(*count)++] = r->entries[entry].seconds[k];
    }
    return *count ? bench_stopwatch_spread(seconds, *count) : (bench_spread){NAN, NAN, NAN};
}

double race_share(const race *r, int entry)
{
    if (entry < 0 || r->entries[entry].yardstick < 0)
        return NAN;
    const race_entry *e = &r->entries[entry], *y = &r->entries[e->yardstick];
    return race_compare(r, e->yardstick, entry).median * (e->bytes * e->elements) / (y->bytes * y->elements);
}
