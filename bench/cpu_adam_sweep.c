/* cpu_adam_sweep.c: from one element to tens of millions: zoff's step against the plain loop, on the same arrays. */
#include "cpu_adam_bench.h"
#include "cpu_adam_plain.h"

#include <math.h>
#include <stdlib.h>

typedef struct sweep_size {
    const bench_arrays *a;
    size_t count;
    unsigned threads;
    zoff_adam_hyper hyper;
    plain_hyper plain;
    nomath_fn nomath;
    nomath_streams streams;
    race *race;
    int failed;
} sweep_size;

static void zoff(void *ctx)
{
    sweep_size *s = ctx;
    const zoff_adam_tensor t = {
        .struct_size = sizeof t, .count = s->count, .master = s->a->p, .m = s->a->m, .v = s->a->v, .grad = s->a->g};
    if (zoff_adam_step(&s->hyper, BENCH_T, 1, &t) != ZOFF_OK)
        s->failed = 1;
}

static void plain(void *ctx)
{
    const sweep_size *s = ctx;
    plain_adam(s->count, s->a->p, s->a->m, s->a->v, s->a->g, &s->plain, BENCH_T, s->threads);
}

static void plain_if_large(void *ctx)
{
    const sweep_size *s = ctx;
    plain_adam_if_large(s->count, s->a->p, s->a->m, s->a->v, s->a->g, &s->plain, BENCH_T, s->threads);
}

static void plain_serial(void *ctx)
{
    const sweep_size *s = ctx;
    plain_adam_serial(s->count, s->a->p, s->a->m, s->a->v, s->a->g, &s->plain, BENCH_T);
}

static void nomath(void *ctx)
{
    const sweep_size *s = ctx;
    nomath_run(s->nomath, &s->streams, s->count, s->count < PLAIN_SHARED_FROM ? 1 : s->threads);
}

static int compare(const void *a, const void *b)
{
    const size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return (x > y) - (x < y);
}

/* Powers of two, or of four, up to `last`, and a few that are neither. */
static unsigned list_sizes(size_t last, int quick, size_t sizes[64])
{
    static const size_t ODD[] = {3, 100, 1000, 10000, 40000, 100000, 1000003};
    unsigned count = 0;
    for (size_t n = 1; n <= last && count < 48; n *= quick ? 4 : 2)
        sizes[count++] = n;
    for (unsigned i = 0; i < sizeof ODD / sizeof ODD[0]; i++) {
        if (ODD[i] <= last && (!quick || i % 2 == 0))
            sizes[count++] = ODD[i];
    }
    if (sizes[count - 1] != last)
        sizes[count++] = last;
    qsort(sizes, count, sizeof *sizes, compare);
    unsigned kept = 0;
    for (unsigned i = 0; i < count; i++) {
        if (!kept || sizes[kept - 1] != sizes[i])
            sizes[kept++] = sizes[i];
    }
    return kept;
}

static int open_race(sweep_size *s, bench_book *book)
{
    char label[64];
    snprintf(label, sizeof label, "%zu", s->count);
    s->race = bench_book_open(book, "sweep", label);
    if (!s->race)
        return -1;
    const race_entry common = {.elements = (double)s->count, .bytes = 28, .yardstick = 2, .ctx = s};
    race_entry e = common;
    e.name = "zoff", e.what = "zoff_adam_step", e.work = zoff;
    race_add(s->race, e);
    e.name = "plain", e.what = "plain loop, a parallel region for every size", e.work = plain;
    race_add(s->race, e);
    e.name = "nomath", e.what = "the streams alone, on one thread below 32768 elements", e.work = nomath, e.yardstick = -1;
    race_add(s->race, e);
    if (s->count < PLAIN_SHARED_FROM) { /* from there on the two loops are one, and the faster of two noisy ones too fast */
        e.name = "plain_if", e.what = "plain loop, a parallel region from 32768 elements on", e.work = plain_if_large;
        e.yardstick = 2;
        race_add(s->race, e);
        /* told, not judged: with more elements nobody would write it so */
        e.name = "plain_serial", e.what = "plain loop without OpenMP", e.work = plain_serial;
        race_add(s->race, e);
    }
    return 0;
}

/* In a short run small sizes, where the rivals are far apart, leave their time to the large ones, which are near to each other.
 */
static unsigned wanted_rounds(const bench_options *options, size_t count)
{
    return options->run.quick && count < PLAIN_SHARED_FROM && options->run.rounds > ENOUGH_ROUNDS ? ENOUGH_ROUNDS
                                                                                                  : options->run.rounds;
}

int bench_sweep(const bench_options *options, const bench_arrays *a, double deadline, bench_book *book)
{
    size_t sizes[64];
    const unsigned count = list_sizes(a->count, options->run.quick, sizes);
    const nomath_table *tables[NOMATH_TABLES];
    const nomath_table *widest = tables[nomath_tables(tables) - 1];
    sweep_size *all = calloc(count, sizeof *all);
    int failed = !all;
    for (unsigned i = 0; i < count && !failed; i++) {
        sweep_size *s = &all[i];
        *s = (sweep_size){.a = a,
                          .count = sizes[i],
                          .threads = options->threads,
                          .nomath = widest->plain[NOMATH_FP32],
                          .streams = {.p = a->p, .m = a->m, .v = a->v, .g = a->g}};
        bench_hyper_adam(&s->hyper);
        s->plain = (plain_hyper){(float)s->hyper.lr, (float)s->hyper.beta1, (float)s->hyper.beta2, (float)s->hyper.eps,
                                 (float)s->hyper.weight_decay};
        if (open_race(s, book) != 0) {
            failed = 1;
            break;
        }
        const double now = bench_stopwatch_now(); /* time that a size does not need is left to the others */
        race_run(s->race, wanted_rounds(options, s->count), s->threads, now + (deadline - now) / (count - i));
        if (s->failed) {
            fprintf(stderr, "cpu_adam: %s\n", zoff_last_error());
            failed = 1;
        }
    }
    /* The smallest of many noisy ratios is too small. Where zoff seems to lose, more rounds decide, with the first ones. */
    for (unsigned i = 0; i < count && !failed; i++) {
        if (race_compare(all[i].race, 1, 0).median < 1)
            race_run(all[i].race, 3 * options->run.rounds, options->threads, deadline);
    }
    for (unsigned i = 0; i < count && all; i++) {
        for (unsigned k = 0; all[i].race && k < all[i].race->count; k++)
            all[i].race->entries[k].ctx = NULL;
    }
    free(all);
    return failed ? -1 : 0;
}
