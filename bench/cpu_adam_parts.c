/* cpu_adam_parts.c: many small tensors: one list call against a call for each tensor, by zoff and by the plain loop, and
 * against one large tensor. Then the layout of arrays: streams at equal power-of-two distances compete for the same cache sets.
 * So sizes of 2^k bytes, and a little more, show the effect of a layout. */
#include "cpu_adam_bench.h"

#include <omp.h>
#include <stdlib.h>

/* Four arrays of a step. */
typedef struct tensors {
    bench_streams mapping;
    nomath_streams arenas;
    size_t count, elements, pitch; /* number of tensors, elements of each, elements from one to the next */
    unsigned threads;
    zoff_optimizer_hyper hyper;
    zoff_optimizer_tensor *list, whole; /* `whole` is one tensor of all elements in the same memory */
    nomath_way nomath;
} tensors;

/* --- lists --- */

enum { LIST, CALLS, SERIAL_CALLS, ONE };

static int zoff(void *ctx, int which)
{
    const tensors *t = ctx;
    zoff_status status = ZOFF_OK;
    if (which == LIST)
        status = zoff_optimizer_step_list(&t->hyper, 0, BENCH_T, 1, t->list, sizeof *t->list, t->count);
    else if (which == ONE)
        status = zoff_optimizer_step(&t->hyper, BENCH_T, 1, &t->whole);
    for (size_t i = 0; which == CALLS && status == ZOFF_OK && i < t->count; i++)
        status = zoff_optimizer_step(&t->hyper, BENCH_T, 1, &t->list[i]);
    return bench_told(status);
}

static int plain(void *ctx, int which)
{
    const tensors *t = ctx;
    for (const zoff_optimizer_tensor *one = t->list; one < t->list + t->count; one++) {
        if (which == SERIAL_CALLS)
            plain_adam_serial(t->elements, one->master, one->m, one->v, one->grad, &t->hyper, BENCH_T);
        else
            plain_adam(t->elements, one->master, one->m, one->v, one->grad, &t->hyper, BENCH_T, t->threads);
    }
    return 0;
}

/* One region for all tensors, or one for each, divided as in the plain loop. */
static int nomath(void *ctx, int which)
{
    const tensors *t = ctx;
    for (size_t k = 0; k < (which == LIST ? 1 : t->count); k++) {
#pragma omp parallel num_threads((int)t->threads)
        {
            const size_t threads = (size_t)omp_get_num_threads(), thread = (size_t)omp_get_thread_num();
            const size_t cut = which == LIST ? t->count : t->elements;
            const size_t begin = cut * thread / threads, end = cut * (thread + 1) / threads;
            if (which != LIST)
                t->nomath.run(NOMATH_FP32, &t->arenas, k * t->pitch + begin, k * t->pitch + end);
            for (size_t i = begin; which == LIST && i < end; i++)
                t->nomath.run(NOMATH_FP32, &t->arenas, i * t->pitch, i * t->pitch + t->elements);
        }
    }
    return 0;
}

/* Lay p, m, v and g out as one tensor of this many elements. Each is an array of its own, or they lie `pitch` bytes apart in
 * one. */
static int open_arrays(tensors *t, size_t count, size_t pitch)
{
    enum { ARRAYS = 4 };
    const size_t bytes = count * sizeof(float);
    float *arrays[ARRAYS];
    if (bench_streams_open(ARRAYS * (pitch ? pitch : bytes), pitch ? 1 : ARRAYS, true, &t->mapping) != 0)
        return -1;
    float *base = pitch ? bench_streams_take(&t->mapping, ARRAYS * pitch) : NULL;
    for (unsigned i = 0; i < ARRAYS; i++) {
        arrays[i] = base ? base + i * pitch / sizeof *base : bench_streams_take(&t->mapping, bytes);
        bench_fill_float(arrays[i], count, i == 3, i == 0 ? 0.02f : i == 3 ? 0.01f : 0.0f);
    }
    t->arenas = (nomath_streams){.p = arrays[0], .m = arrays[1], .v = arrays[2], .g = arrays[3]};
    t->whole = (zoff_optimizer_tensor){.struct_size = sizeof t->whole, .count = count, .grad = arrays[3]};
    t->whole.master = arrays[0];
    t->whole.m = arrays[1];
    t->whole.v = arrays[2];
    bench_hyper_adam(&t->hyper);
    return 0;
}

/* Each state has an arena of its own. A tensor begins at the next cache line but one, as after an allocator's header. */
static int open_tensors(tensors *t, unsigned threads, size_t count, size_t elements)
{
    enum { LINE = 16 };
    *t = (tensors){.count = count, .elements = elements, .threads = threads, .nomath = nomath_widest()};
    t->pitch = (elements + 2 * LINE - 1) / LINE * LINE;
    t->list = calloc(count, sizeof *t->list);
    if (!t->list || open_arrays(t, count * t->pitch, 0) != 0)
        return -1;
    for (size_t i = 0; i < count; i++) {
        const size_t at = i * t->pitch;
        t->list[i] = (zoff_optimizer_tensor){.struct_size = sizeof t->whole, .count = elements, .grad = t->arenas.g + at};
        t->list[i].master = t->arenas.p + at;
        t->list[i].m = t->arenas.m + at;
        t->list[i].v = t->arenas.v + at;
    }
    t->whole.count = count * elements;
    return 0;
}

enum { BESIDE_RIVALS = 1, BESIDE_ONE = 2, BESIDE_ANY = 3 };
static const race_line LIST_TABLE[] = {
    {"nomath_list", "the streams alone, one region", 28, nomath, LIST, BESIDE_ANY},
    {"zoff_list", "one zoff_optimizer_step_list", 28, zoff, LIST, BESIDE_ANY, "nomath_list"},
    {"zoff_calls", "zoff_optimizer_step for each tensor", 28, zoff, CALLS, BESIDE_RIVALS, "nomath_list"},
    {"plain_calls_serial", "plain loop for each, without OpenMP", 28, plain, SERIAL_CALLS, BESIDE_RIVALS, "nomath_list"},
    {"nomath_calls", "the streams alone, a region for each tensor", 28, nomath, CALLS, BESIDE_RIVALS},
    {"plain_calls", "plain loop for each, a region each", 28, plain, CALLS, BESIDE_RIVALS, "nomath_calls"},
    {"zoff_one", "zoff_optimizer_step on one tensor of all elements", 28, zoff, ONE, BESIDE_ONE, "nomath_list"},
    {NULL}};

static int run_list(const bench_options *options, size_t count, size_t elements, unsigned beside, double deadline,
                    race_book *book)
{
    tensors t = {.count = 0};
    /* fewer only if the user asked for small sizes; then the ratios are void */
    const size_t most = options->largest / elements;
    count = most < count ? (most < 8 ? 8 : most) : count;
    race *r = race_open(book, beside == BESIDE_RIVALS ? "lists" : "list_and_one", "%zu x %zu", count, elements);
    if (bench_now() > deadline)
        return 0;
    int ret = open_tensors(&t, (unsigned)options->threads, count, elements);
    race_add_lines(r, LIST_TABLE, beside, (double)(count * elements), &t, 0);
    if (ret == 0)
        ret = race_run(r, (unsigned)options->run.rounds, deadline);
    bench_streams_close(&t.mapping);
    free(t.list);
    return ret;
}

int bench_lists(const bench_options *options, double deadline, race_book *book)
{
    const double now = bench_now(), left = deadline - now;
    int ret = run_list(options, 2000, 1024, BESIDE_RIVALS, now + left * 0.4, book);
    if (ret == 0)
        ret = run_list(options, 2000, 256, BESIDE_RIVALS, now + left * 0.6, book);
    return ret == 0 ? run_list(options, 10000, 1000, BESIDE_ONE, deadline, book) : ret;
}

/* --- layout --- */

typedef struct partition {
    zoff_engine *engine;
    zoff_step_args args;
} partition;

static int engine_step(void *ctx, int which)
{
    const partition *p = ctx;
    return bench_told(zoff_step(p->engine, &p->args, NULL));
}

/* Put everything into one chunk, whose streams are measured. */
static int open_partition(partition *p, unsigned threads, size_t count, uint16_t *value, uint16_t *grad,
                          const zoff_optimizer_hyper *hyper)
{
    const zoff_engine_opts opts = {.state_tier = ZOFF_TIER_HOST, .chunk_elements = count + 4096, .threads = threads};
    const zoff_param_desc param = bench_param(value, grad, count, 1, ZOFF_BF16);
    zoff_plan_info plan = {.struct_size = sizeof plan};
    p->args = (zoff_step_args){
        .struct_size = sizeof p->args, .hyper = hyper, .hyper_stride = sizeof *hyper, .hyper_count = 1, .clip_norm = -1};
    if (bench_engine_open(NULL, opts, &param, 1, &p->engine) != 0 || bench_told(zoff_engine_plan(p->engine, &plan)) != 0)
        return -1;
    return plan.chunk_count == 1 ? 0 : bench_fail("layout: several chunks, so streams are not 2^k bytes");
}

/* Run engines: their arena is laid out by the library. */
static int run_engines(const bench_options *options, size_t stream_bytes, double deadline, race_book *book)
{
    static const struct {
        unsigned bytes; /* bytes of a stream beyond 2^k */
        const char *name;
        bool quick;
    } EXTRA[] = {{0, "+0", true},       {64, "+64", true},      {256, "+256", false},   {512, "+512", true},
                 {1024, "+1024", true}, {1536, "+1536", false}, {2048, "+2048", true},  {3072, "+3072", false},
                 {4096, "+4096", true}, {4160, "+4160", true},  {5120, "+5120", false}, {6144, "+6144", true},
                 {8192, "+8192", true}};
    enum { EXTRAS = sizeof EXTRA / sizeof EXTRA[0] };
    static const char WHAT[] = "zoff_step of an engine, streams of 2^k bytes and so many";
    partition partitions[EXTRAS] = {{.engine = NULL}};
    bench_streams mapping;
    zoff_optimizer_hyper hyper;
    const size_t most = stream_bytes / sizeof(float) + 2048;
    bench_hyper_adam(&hyper);
    race *r = race_open(book, "layout", "%zu", stream_bytes);
    int ret = bench_streams_open(most * 2 * sizeof(uint16_t), 2, true, &mapping);
    if (ret != 0)
        return ret;
    uint16_t *value = bench_streams_take(&mapping, most * sizeof *value);
    uint16_t *grad = bench_streams_take(&mapping, most * sizeof *grad);
    bench_fill_bf16(value, most, 0, 0.02f);
    bench_fill_bf16(grad, most, 1, 0.01f);
    for (unsigned i = 0; ret == 0 && i < EXTRAS && bench_now() <= deadline; i++) {
        const size_t count = (stream_bytes + EXTRA[i].bytes) / sizeof(float);
        if (options->run.quick && !EXTRA[i].quick)
            continue;
        ret = open_partition(&partitions[i], (unsigned)options->threads, count, value, grad, &hyper);
        const race_line line = {EXTRA[i].name, WHAT, 28, engine_step};
        race_add(r, &line, (double)count, &partitions[i], 0);
    }
    if (ret == 0)
        ret = race_run(r, (unsigned)options->run.rounds, deadline);
    for (unsigned i = 0; i < EXTRAS; i++)
        zoff_engine_destroy(partitions[i].engine);
    bench_streams_close(&mapping);
    return ret;
}

/* Run four plain arrays in one mapping of huge pages: back to back, as anybody would lay them, or apart. */
static int run_arrays(const bench_options *options, size_t bytes, double deadline, race_book *book)
{
    enum { APART = 4096 };
    static const race_line LINES[] = {{"naive", "zoff_optimizer_step, arrays of 2^k bytes back to back", 28, zoff, ONE, 0},
                                      {"staggered", "the same, 4 KiB between them", 28, zoff, ONE, 0}};
    const size_t count = bytes / sizeof(float);
    tensors spaced[2] = {{.count = 0}};
    race *r = race_open(book, "spacing", "%zu", bytes);
    int ret = 0;
    for (unsigned i = 0; i < 2 && ret == 0 && bench_now() <= deadline; i++) {
        ret = open_arrays(&spaced[i], count, bytes + i * APART);
        race_add(r, &LINES[i], (double)count, &spaced[i], 0);
    }
    if (ret == 0)
        ret = race_run(r, (unsigned)options->run.rounds, deadline);
    bench_streams_close(&spaced[0].mapping);
    bench_streams_close(&spaced[1].mapping);
    return ret;
}

int bench_layout(const bench_options *options, double deadline, race_book *book)
{
    const double now = bench_now();
    size_t bytes = (size_t)1 << 26;
    while (bytes > (size_t)1 << 14 && bytes > options->largest * sizeof(float))
        bytes /= 2;
    const int ret = run_arrays(options, bytes, now + (deadline - now) * 0.3, book);
    return ret == 0 ? run_engines(options, bytes, deadline, book) : ret;
}
