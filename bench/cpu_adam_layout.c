/* cpu_adam_layout.c: where arrays lie. Streams at equal power-of-two spacing fight for the same sets of the caches, so sizes of
 * 2^k bytes and a little more are where a layout shows: through an engine, whose arena is the library's own; and with plain
 * arrays laid back to back, as anybody would, and laid apart. */
#include "cpu_adam_bench.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef struct partition {
    zoff_engine *engine;
    zoff_step_args args;
    int failed;
} partition;

static void engine_step(void *ctx)
{
    partition *p = ctx;
    if (zoff_step(p->engine, &p->args, NULL) != ZOFF_OK)
        p->failed = 1;
}

/* What a stream has beyond 2^k bytes. */
static const struct {
    unsigned bytes;
    const char *name;
    int quick;
} EXTRA[] = {
    {0, "+0", 1},       {64, "+64", 1},     {256, "+256", 0},   {512, "+512", 1},   {1024, "+1024", 1},
    {1536, "+1536", 0}, {2048, "+2048", 1}, {3072, "+3072", 0}, {4096, "+4096", 1}, {4160, "+4160", 1},
    {5120, "+5120", 0}, {6144, "+6144", 1}, {8192, "+8192", 1},
};
enum { EXTRAS = sizeof EXTRA / sizeof EXTRA[0] };

static int open_partition(partition *p, const bench_options *options, size_t count, uint16_t *value, uint16_t *grad,
                          const zoff_adam_hyper *hyper)
{
    const zoff_engine_opts opts = {
        .struct_size = sizeof opts,
        .state_tier = ZOFF_TIER_HOST,
        .chunk_elements = count + 4096, /* all of it in one chunk: its streams are what is measured */
        .threads = options->threads,
    };
    const zoff_param_desc param = {
        .struct_size = sizeof param, .value = value, .grad = grad, .count = count, .dtype = ZOFF_BF16};
    zoff_plan_info plan = {.struct_size = sizeof plan};
    p->args = (zoff_step_args){
        .struct_size = sizeof p->args, .hyper = hyper, .hyper_stride = sizeof *hyper, .hyper_count = 1, .clip_norm = -1};
    if (zoff_engine_create(&opts, &p->engine) != ZOFF_OK || zoff_engine_add_param(p->engine, &param, NULL) != ZOFF_OK ||
        zoff_engine_plan(p->engine, &plan) != ZOFF_OK || zoff_engine_seal(p->engine) != ZOFF_OK) {
        fprintf(stderr, "cpu_adam: layout: %s\n", zoff_last_error());
        return -1;
    }
    if (plan.chunk_count != 1) {
        fprintf(stderr, "cpu_adam: layout: the engine cut %zu elements into %llu chunks, so streams are not 2^k bytes\n", count,
                (unsigned long long)plan.chunk_count);
        return -1;
    }
    return 0;
}

static int run_engines(const bench_options *options, size_t stream_bytes, double deadline, bench_book *book)
{
    partition partitions[EXTRAS] = {0};
    bench_streams mapping;
    char label[64];
    zoff_adam_hyper hyper;
    const size_t most = stream_bytes / sizeof(float) + 2048;
    int ret = -1;
    bench_hyper_adam(&hyper);
    snprintf(label, sizeof label, "%zu", stream_bytes);
    race *r = bench_book_open(book, "layout", label);
    if (!r)
        return -1;
    if (bench_streams_open(most * 2 * sizeof(uint16_t), 2, &mapping) != 0) {
        fprintf(stderr, "cpu_adam: layout: no memory: %s\n", strerror(errno));
        return -1;
    }
    uint16_t *value = bench_streams_take(&mapping, most * sizeof *value);
    uint16_t *grad = bench_streams_take(&mapping, most * sizeof *grad);
    for (size_t i = 0; i < most; i++) {
        value[i] = bench_arrays_bf16(bench_arrays_value(i, 0.02f));
        grad[i] = bench_arrays_bf16(bench_arrays_value(i + 1, 0.01f));
    }
    for (unsigned i = 0; i < EXTRAS; i++) {
        if (bench_stopwatch_now() > deadline) { /* nothing could be measured any more */
            ret = 0;
            goto out;
        }
        if (options->run.quick && !EXTRA[i].quick)
            continue;
        partition *p = &partitions[i];
        const size_t count = (stream_bytes + EXTRA[i].bytes) / sizeof(float);
        if (open_partition(p, options, count, value, grad, &hyper) != 0)
            goto out;
        race_add(r, (race_entry){.name = EXTRA[i].name,
                                 .what = "zoff_step of an engine, streams of 2^k bytes and so many",
                                 .elements = (double)count,
                                 .bytes = 28,
                                 .yardstick = -1,
                                 .work = engine_step,
                                 .ctx = p});
    }
    race_run(r, options->run.rounds, options->threads, deadline);
    ret = 0;
out:
    for (unsigned i = 0; i < EXTRAS; i++) {
        if (partitions[i].failed && ret == 0) {
            fprintf(stderr, "cpu_adam: layout: %s\n", zoff_last_error());
            ret = -1;
        }
        zoff_engine_destroy(partitions[i].engine);
    }
    for (unsigned i = 0; i < r->count; i++)
        r->entries[i].ctx = NULL;
    bench_streams_close(&mapping);
    return ret;
}

typedef struct arrays {
    zoff_adam_tensor tensor;
    const zoff_adam_hyper *hyper;
    int failed;
} arrays;

static void array_step(void *ctx)
{
    arrays *a = ctx;
    if (zoff_adam_step(a->hyper, BENCH_T, 1, &a->tensor) != ZOFF_OK)
        a->failed = 1;
}

/* Four arrays in one mapping of huge pages, `pitch` bytes from one to the next. */
static int open_arrays(arrays *a, bench_streams *mapping, size_t bytes, size_t pitch, unsigned threads)
{
    if (bench_streams_open(4 * pitch, 1, mapping) != 0) {
        fprintf(stderr, "cpu_adam: layout: no memory: %s\n", strerror(errno));
        return -1;
    }
    char *base = bench_streams_take(mapping, 4 * pitch);
    const size_t count = bytes / sizeof(float);
    float *const p = (float *)(void *)base, *const m = (float *)(void *)(base + pitch);
    float *const v = (float *)(void *)(base + 2 * pitch), *const g = (float *)(void *)(base + 3 * pitch);
    a->tensor = (zoff_adam_tensor){.struct_size = sizeof a->tensor, .count = count, .master = p, .m = m, .v = v, .grad = g};
#pragma omp parallel num_threads((int)threads)
    {
        size_t begin, end;
        nomath_share(count, &begin, &end);
        for (size_t i = begin; i < end; i++) {
            p[i] = bench_arrays_value(i, 0.02f);
            m[i] = v[i] = 0;
            g[i] = bench_arrays_value(i + 1, 0.01f);
        }
    }
    return 0;
}

static int run_arrays(const bench_options *options, size_t bytes, double deadline, bench_book *book)
{
    enum { APART = 4096 };
    zoff_adam_hyper hyper;
    bench_hyper_adam(&hyper);
    arrays naive = {.hyper = &hyper}, staggered = {.hyper = &hyper};
    bench_streams mappings[2] = {{0}};
    char label[64];
    snprintf(label, sizeof label, "%zu", bytes);
    race *r = bench_book_open(book, "spacing", label);
    if (r && bench_stopwatch_now() > deadline)
        return 0;
    if (!r || open_arrays(&naive, &mappings[0], bytes, bytes, options->threads) != 0 ||
        open_arrays(&staggered, &mappings[1], bytes, bytes + APART, options->threads) != 0) {
        bench_streams_close(&mappings[0]);
        return -1;
    }
    race_entry e = {.elements = (double)(bytes / sizeof(float)), .bytes = 28, .yardstick = -1, .work = array_step};
    e.name = "naive", e.what = "zoff_adam_step, arrays of 2^k bytes back to back", e.ctx = &naive;
    race_add(r, e);
    e.name = "staggered", e.what = "the same, 4 KiB between them", e.ctx = &staggered;
    race_add(r, e);
    race_run(r, options->run.rounds, options->threads, deadline);
    for (unsigned i = 0; i < r->count; i++)
        r->entries[i].ctx = NULL;
    if (naive.failed || staggered.failed)
        fprintf(stderr, "cpu_adam: layout: %s\n", zoff_last_error());
    bench_streams_close(&mappings[0]);
    bench_streams_close(&mappings[1]);
    return naive.failed || staggered.failed ? -1 : 0;
}

int bench_layout(const bench_options *options, double deadline, bench_book *book)
{
    size_t bytes = (size_t)1 << 26;
    while (bytes > (size_t)1 << 14 && bytes > options->sizes[options->size_count - 1] * sizeof(float))
        bytes /= 2;
    const double now = bench_stopwatch_now();
    return run_arrays(options, bytes, now + (deadline - now) * 0.3, book) != 0 ||
                   run_engines(options, bytes, deadline, book) != 0
               ? -1
               : 0;
}
