/* cpu_adam_yardstick.c: which no-math kernel is the roofline. A slow one would flatter everybody, so all that this CPU can run
 * race on the contestants' own arrays, and the fastest is the one. */
#include "cpu_adam_bench.h"

#include <math.h>

/* Names in the book. */
static const char *const KINDS[NOMATH_KINDS] = {
    [NOMATH_FP32] = "p m v rw, g r",
    [NOMATH_HALF_OUT] = "p m v rw, g16 r, w16 w",
    [NOMATH_HALF_KEEP] = "w16 m v rw, g16 r",
    [NOMATH_ONE_STATE] = "p m rw, g r",
    [NOMATH_NO_STATE] = "p rw, g r",
    [NOMATH_WIDEN] = "wide w, g16 r",
    [NOMATH_READ32] = "wide r",
    [NOMATH_READ16] = "g16 r",
    [NOMATH_TOUCH] = "wide rw",
    [NOMATH_NARROW] = "w16 w, p r",
    [NOMATH_TRIAD] = "wide w, g p r",
    [NOMATH_COPY] = "wide w, g r",
};
static const double BYTES[NOMATH_KINDS] = {
    [NOMATH_FP32] = 28,     [NOMATH_HALF_OUT] = 28, [NOMATH_HALF_KEEP] = 22, [NOMATH_ONE_STATE] = 20,
    [NOMATH_NO_STATE] = 12, [NOMATH_WIDEN] = 6,     [NOMATH_READ32] = 4,     [NOMATH_READ16] = 2,
    [NOMATH_TOUCH] = 8,     [NOMATH_NARROW] = 6,    [NOMATH_TRIAD] = 12,     [NOMATH_COPY] = 8,
};

typedef struct heat {
    nomath_fn fn;
    const nomath_streams *streams;
    size_t count;
    unsigned threads;
} heat;

static void run(void *ctx)
{
    const heat *h = ctx;
    nomath_run(h->fn, h->streams, h->count, h->threads);
}

bench_yardstick bench_yardstick_find(const bench_options *options, const nomath_streams *s, size_t count, nomath_kind kind,
                                     int streaming, double deadline, bench_book *book)
{
    enum { ROUNDS = 5 };
    const nomath_table *tables[NOMATH_TABLES];
    const unsigned table_count = nomath_tables(tables);
    heat heats[2 * NOMATH_TABLES];
    unsigned used = 0;
    char label[64];
    snprintf(label, sizeof label, "%s, %zu elements%s", KINDS[kind], count, streaming ? ", any stores" : "");
    bench_yardstick best = {tables[table_count - 1]->plain[kind], tables[table_count - 1]->name};
    race *r = bench_book_open(book, "yardstick", label);
    if (!r)
        return best;
    for (unsigned t = 0; t < 2 * table_count; t++) {
        const nomath_table *table = tables[t / 2];
        const nomath_fn fn = t % 2 ? table->streaming[kind] : table->plain[kind];
        if (!fn || (t % 2 && !streaming))
            continue;
        heats[used] = (heat){fn, s, count, options->threads};
        race_add(r, (race_entry){.name = t % 2 ? table->streaming_name : table->name,
                                 .what = "a way to write a yardstick",
                                 .elements = (double)count,
                                 .bytes = BYTES[kind],
                                 .yardstick = -1,
                                 .work = run,
                                 .ctx = &heats[used++]});
    }
    race_run(r, options->run.rounds < ROUNDS ? options->run.rounds : ROUNDS, options->threads, deadline);
    double fastest = INFINITY;
    for (unsigned i = 0; i < r->count; i++) {
        unsigned clean;
        const bench_spread spread = race_spread(r, (int)i, &clean);
        if (clean && spread.min < fastest) { /* noise only ever adds */
            fastest = spread.min;
            best = (bench_yardstick){heats[i].fn, r->entries[i].name};
        }
    }
    return best;
}
