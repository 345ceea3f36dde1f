/* cpu_adam_lists.c: many small tensors. One list call against a call for each tensor, by zoff and by the plain loop; and
 * against one large tensor of as many elements. */
#include "cpu_adam_bench.h"
#include "cpu_adam_plain.h"

#include <errno.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

typedef struct tensors {
    bench_streams mapping;
    nomath_streams arenas;
    float *g;
    size_t count, elements, pitch; /* tensors, elements of each, elements from one to the next */
    unsigned threads;
    zoff_adam_hyper hyper;
    plain_hyper plain;
    zoff_adam_tensor *list;
    zoff_adam_tensor whole; /* one tensor of all elements, on the same memory */
    nomath_fn nomath;
    int failed;
} tensors;

static void list_call(void *ctx)
{
    tensors *t = ctx;
    if (zoff_adam_step_list(&t->hyper, 0, BENCH_T, 1, t->list, sizeof *t->list, t->count) != ZOFF_OK)
        t->failed = 1;
}

static void step_calls(void *ctx)
{
    tensors *t = ctx;
    for (size_t i = 0; i < t->count; i++) {
        if (zoff_adam_step(&t->hyper, BENCH_T, 1, &t->list[i]) != ZOFF_OK)
            t->failed = 1;
    }
}

static void one_call(void *ctx)
{
    tensors *t = ctx;
    if (zoff_adam_step(&t->hyper, BENCH_T, 1, &t->whole) != ZOFF_OK)
        t->failed = 1;
}

static void plain_calls(void *ctx)
{
    const tensors *t = ctx;
    for (size_t i = 0; i < t->count; i++)
        plain_adam(t->elements, t->list[i].master, t->list[i].m, t->list[i].v, t->list[i].grad, &t->plain, BENCH_T, t->threads);
}

static void plain_calls_serial(void *ctx)
{
    const tensors *t = ctx;
    for (size_t i = 0; i < t->count; i++)
        plain_adam_serial(t->elements, t->list[i].master, t->list[i].m, t->list[i].v, t->list[i].grad, &t->plain, BENCH_T);
}

static void nomath_list(void *ctx)
{
    const tensors *t = ctx;
#pragma omp parallel num_threads((int)t->threads)
    {
        const size_t threads = (size_t)omp_get_num_threads(), thread = (size_t)omp_get_thread_num();
        for (size_t i = t->count * thread / threads; i < t->count * (thread + 1) / threads; i++)
            t->nomath(&t->arenas, i * t->pitch, i * t->pitch + t->elements);
    }
}

/* A region for each tensor, cut as the plain loop is. */
static void nomath_calls(void *ctx)
{
    const tensors *t = ctx;
    for (size_t i = 0; i < t->count; i++) {
#pragma omp parallel num_threads((int)t->threads)
        {
            const size_t threads = (size_t)omp_get_num_threads(), thread = (size_t)omp_get_thread_num();
            const size_t first = i * t->pitch;
            t->nomath(&t->arenas, first + t->elements * thread / threads, first + t->elements * (thread + 1) / threads);
        }
    }
}

static void close_tensors(tensors *t)
{
    bench_streams_close(&t->mapping);
    free(t->list);
    t->list = NULL;
}

/* Each state lies in an arena of its own; a tensor begins at the next cache line but one, as an allocator with a header has it.
 */
static int open_tensors(tensors *t, unsigned threads, size_t count, size_t elements)
{
    enum { LINE = 16, STREAMS = 4 };
    const nomath_table *tables[NOMATH_TABLES];
    *t = (tensors){.count = count, .elements = elements, .threads = threads, .pitch = (elements + 2 * LINE - 1) / LINE * LINE};
    const size_t total = count * t->pitch;
    t->nomath = tables[nomath_tables(tables) - 1]->plain[NOMATH_FP32];
    t->list = calloc(count, sizeof *t->list);
    if (!t->list || bench_streams_open(total * STREAMS * sizeof(float), STREAMS, &t->mapping) != 0) {
        fprintf(stderr, "cpu_adam: no memory for %zu tensors of %zu elements: %s\n", count, elements, strerror(errno));
        close_tensors(t);
        return -1;
    }
    nomath_streams *a = &t->arenas;
    a->p = bench_streams_take(&t->mapping, total * sizeof(float));
    a->m = bench_streams_take(&t->mapping, total * sizeof(float));
    a->v = bench_streams_take(&t->mapping, total * sizeof(float));
    a->g = t->g = bench_streams_take(&t->mapping, total * sizeof(float));
    if (!a->p || !a->m || !a->v || !t->g) {
        fprintf(stderr, "cpu_adam: %zu tensors do not fit into what was mapped for them\n", count);
        close_tensors(t);
        return -1;
    }
#pragma omp parallel num_threads((int)threads)
    {
        size_t begin, end;
        nomath_share(total, &begin, &end);
        for (size_t i = begin; i < end; i++) {
            a->p[i] = bench_arrays_value(i, 0.02f);
            a->m[i] = a->v[i] = 0;
            t->g[i] = bench_arrays_value(i + 1, 0.01f);
        }
    }
    t->whole = (zoff_adam_tensor){.struct_size = sizeof t->whole, .master = a->p, .m = a->m, .v = a->v, .grad = t->g};
    for (size_t i = 0; i < count; i++) {
        const size_t at = i * t->pitch;
        t->list[i] = t->whole;
        t->list[i].count = elements;
        t->list[i].master = a->p + at;
        t->list[i].m = a->m + at;
        t->list[i].v = a->v + at;
        t->list[i].grad = t->g + at;
    }
    t->whole.count = count * elements;
    bench_hyper_adam(&t->hyper);
    const zoff_adam_hyper *h = &t->hyper;
    t->plain = (plain_hyper){(float)h->lr, (float)h->beta1, (float)h->beta2, (float)h->eps, (float)h->weight_decay};
    return 0;
}

static int run_list(const bench_options *options, size_t count, size_t elements, int rivals, double deadline, bench_book *book)
{
    tensors t;
    char label[64];
    /* fewer only where the user asked for small sizes: the ratios are void then */
    const size_t most = options->sizes[options->size_count - 1] / elements;
    count = most < count ? (most < 8 ? 8 : most) : count;
    snprintf(label, sizeof label, "%zu x %zu", count, elements);
    race *r = bench_book_open(book, rivals ? "lists" : "list_and_one", label);
    if (r && bench_stopwatch_now() > deadline)
        return 0;
    if (!r || open_tensors(&t, options->threads, count, elements) != 0)
        return -1;
    race_entry e = {.elements = (double)(count * elements), .bytes = 28, .yardstick = -1, .ctx = &t};
    e.name = "nomath_list", e.what = "the streams alone, one region", e.work = nomath_list;
    const int nomath = race_add(r, e);
    e.yardstick = nomath;
    e.name = "zoff_list", e.what = "one zoff_adam_step_list", e.work = list_call;
    race_add(r, e);
    if (rivals) {
        e.name = "zoff_calls", e.what = "zoff_adam_step for each tensor", e.work = step_calls;
        race_add(r, e);
        e.name = "plain_calls_serial", e.what = "plain loop for each, without OpenMP", e.work = plain_calls_serial;
        race_add(r, e);
        e.name = "nomath_calls", e.what = "the streams alone, a region for each tensor", e.work = nomath_calls,
        e.yardstick = -1;
        const int calls = race_add(r, e);
        e.name = "plain_calls", e.what = "plain loop for each, a region each", e.work = plain_calls, e.yardstick = calls;
        race_add(r, e);
    } else {
        e.name = "zoff_one", e.what = "zoff_adam_step on one tensor of all elements", e.work = one_call;
        race_add(r, e);
    }
    race_run(r, options->run.rounds, options->threads, deadline);
    for (unsigned i = 0; i < r->count; i++)
        r->entries[i].ctx = NULL;
    if (t.failed)
        fprintf(stderr, "cpu_adam: %s\n", zoff_last_error());
    close_tensors(&t);
    return t.failed ? -1 : 0;
}

int bench_lists(const bench_options *options, double deadline, bench_book *book)
{
    const double now = bench_stopwatch_now(), left = deadline - now;
    return run_list(options, 2000, 1024, 1, now + left * 0.4, book) != 0 ||
                   run_list(options, 2000, 256, 1, now + left * 0.6, book) != 0 ||
                   run_list(options, 10000, 1000, 0, deadline, book) != 0
               ? -1
               : 0;
}
