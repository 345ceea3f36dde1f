/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_adam_parts.c: many small tensors: one list call against a call for each tensor, by zoff and by the plain loop, and
 * against one large tensor. Then the layout of arrays: streams at equal power-of-two distances compete for the same cache sets.
 * So sizes of 2^k bytes, and a little more, show the effect of a layout. */
#include "cpu_adam_bench.h"

#include <omp.h>

/* Four arrays of a step. */
typedef struct tensors {
    nomath_streams arenas;
    size_t count, elements, pitch; /* number of tensors, elements of each, elements from one to the next */
    unsigned threads;
    zoff_optimizer_hyper hyper;
    zoff_optimizer_tensor *list, whole; /* `whole` is one tensor of all elements in the same memory */
    nomath_way nomath;
} tensors;

/* --- lists --- */

enum { LIST, CALLS, SERIAL_CALLS, ONE };

static void zoff(void *ctx, int which)
{
    const tensors *t = ctx;
    if (which == LIST)
        bench_must(zoff_optimizer_step_list(&t->hyper, 0, BENCH_T, 1, t->list, sizeof *t->list, t->count));
    else if (which == ONE)
        bench_must(zoff_optimizer_step(&t->hyper, BENCH_T, 1, &t->whole));
    for (size_t i = 0; which == CALLS && i < t->count; i++)
        bench_must(zoff_optimizer_step(&t->hyper, BENCH_T, 1, &t->list[i]));
}

static void plain(void *ctx, int which)
{
    const tensors *t = ctx;
    for (const zoff_optimizer_tensor *one = t->list; one < t->list + t->count; one++) {
        if (which == SERIAL_CALLS)
            plain_adam_serial(t->elements, one->master, one->m, one->v, one->grad, &t->hyper, BENCH_T);
        else
            plain_adam(t->elements, one->master, one->m, one->v, one->grad, &t->hyper, BENCH_T, t->threads);
    }
}

/* One region for all tensors, or one for each, divided as in the plain loop. */
static void nomath(void *ctx, int which)
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
}

/* `count` elements of p, m, v and g from this one on. */
static zoff_optimizer_tensor tensor_at(const tensors *t, size_t first, size_t count)
{
    const nomath_streams *s = &t->arenas;
    return (zoff_optimizer_tensor){.struct_size = sizeof(zoff_optimizer_tensor),
                                   .count = count,
                                   .master = s->p + first,
                                   .m = s->m + first,
                                   .v = s->v + first,
                                   .grad = s->g + first};
}

/* Lay p, m, v and g out as one tensor of this many elements. Each is an array of its own, or they lie `pitch` bytes apart in
 * one. */
static void open_arrays(tensors *t, size_t count, size_t pitch)
{
    float **const arrays_of[] = {&t->arenas.p, &t->arenas.m, &t->arenas.v, &t->arenas.g};
    char *base = pitch ? bench_array(BENCH_COUNT(arrays_of) * pitch, true) : NULL;
    for (unsigned i = 0; i < BENCH_COUNT(arrays_of); i++) {
        *arrays_of[i] = base ? (void *)(base + i * pitch) : bench_array(count * sizeof(float), true);
        bench_fill_float(*arrays_of[i], count, i == 3, i == 0 ? 0.02f : i == 3 ? 0.01f : 0.0f);
    }
    t->whole = tensor_at(t, 0, count);
    bench_hyper_adam(&t->hyper);
}

/* Each state has an arena of its own. A tensor begins at the next cache line but one, as after an allocator's header. */
static void open_tensors(tensors *t, size_t count, size_t elements)
{
    enum { LINE = 16 };
    *t = (tensors){.count = count, .elements = elements, .threads = (unsigned)adam.threads, .nomath = nomath_widest()};
    t->pitch = (elements + 2 * LINE - 1) / LINE * LINE;
    t->list = bench_array(count * sizeof *t->list, true);
    open_arrays(t, count * t->pitch, 0);
    for (size_t i = 0; i < count; i++)
        t->list[i] = tensor_at(t, i * t->pitch, elements);
    t->whole.count = count * elements;
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

static void run_list(size_t count, size_t elements, unsigned beside, double deadline)
{
    tensors t;
    /* there are fewer only if the user asked for small sizes; then the ratios are void */
    const size_t most = adam.largest / elements, mark = bench_opened();
    count = most < count ? (most < 8 ? 8 : most) : count;
    race *r = race_open(beside == BESIDE_RIVALS ? "lists" : "list_and_one", bench_text("%zu x %zu", count, elements));
    if (bench_now() > deadline)
        return;
    open_tensors(&t, count, elements);
    race_add_lines(r, LIST_TABLE, beside, (double)(count * elements), &t, 0);
    race_run(r, (unsigned)bench.rounds, deadline);
    bench_close(mark);
}

void bench_lists(double deadline)
{
    const double now = bench_now(), left = deadline - now;
    run_list(2000, 1024, BESIDE_RIVALS, now + left * 0.4);
    run_list(2000, 256, BESIDE_RIVALS, now + left * 0.6);
    run_list(10000, 1000, BESIDE_ONE, deadline);
}

/* --- layout --- */

typedef struct partition {
    zoff_engine *engine;
    zoff_step_args args;
} partition;

static void engine_step(void *ctx, int which)
{
    const partition *p = ctx;
    bench_must(zoff_step(p->engine, &p->args, NULL));
}

/* Put everything into one chunk, whose streams are measured. */
static void open_partition(partition *p, size_t count, uint16_t *value, uint16_t *grad, const zoff_optimizer_hyper *hyper)
{
    const zoff_engine_opts opts = {
        .state_tier = ZOFF_TIER_HOST, .chunk_elements = count + 4096, .threads = (unsigned)adam.threads};
    const zoff_param_desc param = bench_param(value, grad, count, 1, ZOFF_BF16);
    zoff_plan_info plan = {.struct_size = sizeof plan};
    p->args = (zoff_step_args){
        .struct_size = sizeof p->args, .hyper = hyper, .hyper_stride = sizeof *hyper, .hyper_count = 1, .clip_norm = -1};
    p->engine = bench_engine(NULL, opts, &param, 1);
    bench_must(zoff_engine_plan(p->engine, &plan));
    if (plan.chunk_count != 1)
        bench_die("layout: several chunks, so streams are not 2^k bytes");
}

/* Run engines: their arena is laid out by the library. */
static void run_engines(size_t stream_bytes, double deadline)
{
    static const struct {
        unsigned bytes; /* bytes of a stream beyond 2^k */
        bool quick;
    } EXTRA[] = {{0, true},     {64, true},   {256, false}, {512, true},   {1024, true}, {1536, false}, {2048, true},
                 {3072, false}, {4096, true}, {4160, true}, {5120, false}, {6144, true}, {8192, true}};
    static partition partitions[BENCH_COUNT(EXTRA)];
    zoff_optimizer_hyper hyper;
    const size_t most = stream_bytes / sizeof(float) + 2048, mark = bench_opened();
    uint16_t *value = bench_array(most * sizeof *value, true), *grad = bench_array(most * sizeof *grad, true);
    race *r = race_open("layout", bench_text("%zu", stream_bytes));
    bench_hyper_adam(&hyper);
    bench_fill_bf16(value, most, 0, 0.02f);
    bench_fill_bf16(grad, most, 1, 0.01f);
    for (unsigned i = 0; i < BENCH_COUNT(EXTRA) && bench_now() <= deadline; i++) {
        const size_t count = (stream_bytes + EXTRA[i].bytes) / sizeof(float);
        if (bench.quick && !EXTRA[i].quick)
            continue;
        open_partition(&partitions[i], count, value, grad, &hyper);
        const race_line line = {bench_text("+%u", EXTRA[i].bytes), "zoff_step of an engine, streams of 2^k bytes and so many",
                                28, engine_step};
        race_add(r, &line, (double)count, &partitions[i], 0);
    }
    race_run(r, (unsigned)bench.rounds, deadline);
    bench_close(mark);
}

/* Run four plain arrays in one mapping of huge pages: back to back, as anybody would lay them, or apart. */
static void run_arrays(size_t bytes, double deadline)
{
    enum { APART = 4096 };
    static const race_line LINES[] = {{"naive", "zoff_optimizer_step, arrays of 2^k bytes back to back", 28, zoff, ONE, 0},
                                      {"staggered", "the same, 4 KiB between them", 28, zoff, ONE, 0}};
    const size_t count = bytes / sizeof(float), mark = bench_opened();
    tensors spaced[2];
    race *r = race_open("spacing", bench_text("%zu", bytes));
    for (unsigned i = 0; i < 2 && bench_now() <= deadline; i++) {
        open_arrays(&spaced[i], count, bytes + i * APART);
        race_add(r, &LINES[i], (double)count, &spaced[i], 0);
    }
    race_run(r, (unsigned)bench.rounds, deadline);
    bench_close(mark);
}

void bench_layout(double deadline)
{
    const double now = bench_now();
    size_t bytes = (size_t)1 << 26;
    while (bytes > (size_t)1 << 14 && bytes > adam.largest * sizeof(float))
        bytes /= 2;
    run_arrays(bytes, now + (deadline - now) * 0.3);
    run_engines(bytes, deadline);
}
