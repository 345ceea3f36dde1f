/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_adam_compare.c: zoff's step in every type and optimizer beside its rivals and yardsticks, on arrays of one size. Three
 * races: the step itself; the unfused chain of passes; the others. Then a sweep from one element to tens of millions. */
#include "cpu_adam_bench.h"

#include <math.h>
#include <string.h>

enum { STEP_FP32, STEP_BF16, STEP_F16, KEEP_BF16, KEEP_F16, ADAGRAD, LION, MOMENTUM, SGD, STEPS };

typedef struct setting {
    size_t count;
    unsigned threads;
    nomath_way best[NOMATH_KINDS];
    zoff_optimizer_hyper hypers[STEPS];
    double sum; /* sum of the norms, so that the compiler cannot drop them */
} setting;

/* Fill the arrays. The bits of these bf16 numbers are ordinary numbers as fp16, too. */
void bench_arrays_open(size_t count)
{
    enum { FLOATS = 8, HALVES = 7, CODES = 4 };
    nomath_streams *s = &arrays.s, *moved = &arrays.moved, *apart = &arrays.apart;
    float **const floats[FLOATS] = {&s->p, &s->m, &s->v, &s->g, &s->wide, &apart->p, &apart->m, &apart->v};
    uint16_t **const halves[HALVES] = {&s->g16, &s->w16, &arrays.g_f16, &arrays.w_f16, &s->m16, &s->v16, &s->low};
    arrays.count = count;
    for (unsigned i = 0; i < FLOATS; i++) {
        *floats[i] = bench_array(count * sizeof(float), true);
        bench_fill_float(*floats[i], count, i >= 3, i == 0 ? 0.02f : i >= 3 ? 0.01f : 0.0f);
    }
    apart->w16 = (uint16_t *)(void *)apart->p;
    apart->low = apart->w16 + count;
    for (unsigned i = 0; i < HALVES; i++) {
        *halves[i] = bench_array(count * sizeof(uint16_t), true);
        bench_fill_bf16(*halves[i], count, i % 2 == 0, i % 2 ? 0.02f : 0.01f);
    }
    for (size_t i = 0; i < count; i++)
        s->v16[i] &= 0x7fff; /* a second moment is not negative, because weights would become NaN */
    *moved = *s;
    uint8_t **const codes[CODES] = {&s->m8, &s->v8, &moved->m8, &moved->v8};
    for (unsigned i = 0; i < CODES; i++) {
        *codes[i] = bench_array(bench_codes_bytes(count), true);
        memset(*codes[i], 0, bench_codes_bytes(count));
    }
}

void bench_hyper_adam(zoff_optimizer_hyper *out)
{
    zoff_optimizer_hyper_init(out, ZOFF_OPTIMIZER_ADAM);
    out->weight_decay = 0.01;
}

static void set_up(setting *s, size_t count)
{
    *s = (setting){.count = count, .threads = (unsigned)adam.threads};
    for (unsigned i = 0; i < ADAGRAD; i++)
        bench_hyper_adam(&s->hypers[i]);
    zoff_optimizer_hyper_init(&s->hypers[ADAGRAD], ZOFF_OPTIMIZER_ADAGRAD);
    zoff_optimizer_hyper_init(&s->hypers[LION], ZOFF_OPTIMIZER_LION);
    zoff_optimizer_hyper_init(&s->hypers[MOMENTUM], ZOFF_OPTIMIZER_SGD);
    zoff_optimizer_hyper_init(&s->hypers[SGD], ZOFF_OPTIMIZER_SGD);
    s->hypers[LION].weight_decay = 0.01;
    s->hypers[MOMENTUM].momentum = 0.9;
}

/* --- the contestants --- */

static void zoff(void *ctx, int which)
{
    const setting *s = ctx;
    const nomath_streams *a = &arrays.s;
    zoff_optimizer_tensor t = {.struct_size = sizeof t, .count = s->count, .master = a->p, .m = a->m, .v = a->v, .grad = a->g};
    if (which >= STEP_BF16 && which <= KEEP_F16) {
        const bool f16 = which == STEP_F16 || which == KEEP_F16, keeps = which >= KEEP_BF16;
        const zoff_dtype dtype = f16 ? ZOFF_F16 : ZOFF_BF16;
        uint16_t *const weights = f16 ? arrays.w_f16 : a->w16;
        t.grad = f16 ? arrays.g_f16 : a->g16;
        t.grad_dtype = t.copy_dtype = dtype;
        t.master = keeps ? (void *)weights : a->p;
        t.master_dtype = keeps ? dtype : ZOFF_F32;
        t.copy_out = keeps ? NULL : weights;
    }
    if (which == ADAGRAD || which == SGD)
        t.m = NULL;
    if (which >= LION)
        t.v = NULL;
    bench_must(zoff_optimizer_step(&s->hypers[which], BENCH_T, 0.5, &t));
}

/* A format, and where its new states go. */
enum { APART = 8, CACHED = 16 };
static void format(void *ctx, int which)
{
    const setting *s = ctx;
    bench_step((bench_format)(which % APART), (bench_place)(which / APART), &arrays.s, &arrays.apart, s->count, s->threads,
               &s->hypers[STEP_BF16]);
}

enum { PLAIN, PLAIN_IF_LARGE, PLAIN_SERIAL };
static void plain(void *ctx, int which)
{
    const setting *s = ctx;
    const nomath_streams *a = &arrays.s;
    const unsigned threads = which == PLAIN_IF_LARGE && s->count < SHARED_FROM ? 1 : s->threads;
    if (which == PLAIN_SERIAL)
        plain_adam_serial(s->count, a->p, a->m, a->v, a->g, &s->hypers[STEP_FP32], BENCH_T);
    else
        plain_adam(s->count, a->p, a->m, a->v, a->g, &s->hypers[STEP_FP32], BENCH_T, threads);
}

static void nomath(void *ctx, int kind)
{
    const setting *s = ctx;
    nomath_run(&s->best[kind], (nomath_kind)kind, &arrays.moved, s->count, s->threads);
}

/* Run on one thread while the others spin in their region, as they do elsewhere: nested regions have one thread. */
static void alone(void *ctx, int which)
{
    const setting *s = ctx;
#pragma omp parallel num_threads((int)s->threads)
    {
#pragma omp master
        if (which < 0)
            nomath_run(&s->best[NOMATH_FP32], NOMATH_FP32, &arrays.s, s->count, 1);
        else
            zoff(ctx, which);
    }
}

enum { WIDEN, NORM, SCALE, ADAM, ROUND, PASSES, NORM_BF16 };
static void pass(void *ctx, int which)
{
    setting *s = ctx;
    const nomath_streams *a = &arrays.s;
    if (which == WIDEN)
        plain_widen(s->count, a->wide, a->g16, s->threads);
    else if (which == NORM)
        s->sum += plain_norm(s->count, a->wide, NULL, s->threads);
    else if (which == SCALE) /* the factor is above 1: a shrinking one would end in subnormals when repeated */
        plain_scale(s->count, a->wide, 1.0f, s->threads);
    else if (which == ADAM)
        plain_adam(s->count, a->p, a->m, a->v, a->wide, &s->hypers[STEP_FP32], BENCH_T, s->threads);
    else if (which == ROUND)
        plain_round(s->count, a->w16, a->p, s->threads);
    else
        s->sum += plain_norm(s->count, NULL, a->g16, s->threads);
    if (!isfinite(s->sum))
        bench_die("a norm is not finite: the arrays were spoilt");
}

static void chain(void *ctx, int which)
{
    for (which = WIDEN; which < PASSES; which++)
        pass(ctx, which);
}

static void nomath_chain(void *ctx, int which)
{
    static const nomath_kind KINDS[] = {NOMATH_WIDEN, NOMATH_READ32, NOMATH_TOUCH, NOMATH_FP32, NOMATH_NARROW};
    for (which = 0; which < PASSES; which++)
        nomath(ctx, (int)KINDS[which]);
}

/* A norm, then a step in a format, or another one. */
enum { AS_FORMAT = 32 };
static void norm_step(void *ctx, int which)
{
    pass(ctx, NORM_BF16);
    (which >= AS_FORMAT ? format : zoff)(ctx, which % AS_FORMAT);
}

static void nomath_norm_step(void *ctx, int which)
{
    nomath(ctx, NOMATH_READ16);
    nomath(ctx, which);
}

/* --- the tables: contestants that are compared stand together; tags are types --- */

enum { TAG_ALONE = DTYPE_ANY + 1 }; /* the contestant needs fp32, and several threads */

/* clang-format off */
static const race_line STEP_TABLE[] = {
    {"plain_fp32", "plain C loop with OpenMP, fp32 in place", 28, plain, PLAIN, DTYPE_FP32, "nomath_fp32"},
    {"nomath_fp32", "streams of an fp32 step, no math", 28, nomath, NOMATH_FP32, DTYPE_ANY},
    {"zoff_fp32", "zoff_optimizer_step, fp32 in place", 28, zoff, STEP_FP32, DTYPE_ANY, "nomath_fp32"},
    {"zoff_bf16", "zoff_optimizer_step, bf16 gradient and copy-out", 28, zoff, STEP_BF16, DTYPE_BF16, "nomath_bf16"},
    {"apart", "zoff_bf16, but new states go to another place", 28, format, APART + FORMAT_COPY, DTYPE_BF16, "nomath_bf16"},
    {"nomath_bf16", "streams of a bf16 step, no math", 28, nomath, NOMATH_HALF_OUT, DTYPE_BF16},
    {"nomath_keep", "streams of 16-bit weights in place, no math", 22, nomath, NOMATH_HALF_KEEP, DTYPE_BF16},
    {"zoff_bf16_keep", "zoff_optimizer_step, bf16 weights in place, no master", 22, zoff, KEEP_BF16, DTYPE_BF16, "nomath_keep"},
    {"nomath_moments", "streams of a bf16 step with bf16 moments, no math", 20, nomath, NOMATH_MOMENTS, DTYPE_BF16},
    {"zoff_bf16_moments", "zoff's step, bf16 gradient, copy-out and moments", 20, format, FORMAT_MOMENTS, DTYPE_BF16, "nomath_moments"},
    {"nomath_split", "streams of a bf16 step with split masters, no math", 26, nomath, NOMATH_SPLIT, DTYPE_BF16},
    {"zoff_split", "zoff's step, bf16 gradient, split masters", 26, format, FORMAT_SPLIT, DTYPE_BF16, "nomath_split"},
    {"apart_split", "zoff_split, but new states go to another place", 26, format, APART + FORMAT_SPLIT, DTYPE_BF16, "nomath_split"},
    {"nomath_split_bf16", "streams of that with bf16 moments, no math", 18, nomath, NOMATH_SPLIT_MOMENTS, DTYPE_BF16},
    {"zoff_split_bf16", "zoff's step, bf16 gradient and moments, split masters", 18, format, FORMAT_SPLIT_MOMENTS, DTYPE_BF16, "nomath_split_bf16"},
    {"nomath_split_m8v16", "streams of that with m in 8 bits, no math", 16, nomath, NOMATH_SPLIT_M8V16, DTYPE_BF16},
    {"zoff_split_m8v16", "zoff's step, bf16 gradient, m in 8 bits, split masters", 16, format, FORMAT_SPLIT_M8V16, DTYPE_BF16, "nomath_split_m8v16"},
    {"nomath_split_q8", "streams of that with both moments in 8 bits, no math", 14, nomath, NOMATH_SPLIT_Q8, DTYPE_BF16},
    {"zoff_split_q8", "zoff's step, bf16 gradient, moments in 8 bits, split masters", 14, format, FORMAT_SPLIT_Q8, DTYPE_BF16, "nomath_split_q8"},
    {"zoff_split_bf16_l1", "zoff_split_bf16 on data in the first cache", 18, format, CACHED + FORMAT_SPLIT_MOMENTS, DTYPE_BF16},
    {"zoff_split_m8v16_l1", "zoff_split_m8v16 on data in the first cache", 16, format, CACHED + FORMAT_SPLIT_M8V16, DTYPE_BF16},
    {"zoff_split_q8_l1", "zoff_split_q8 on data in the first cache", 14, format, CACHED + FORMAT_SPLIT_Q8, DTYPE_BF16},
    {"nomath_fp32_alone", "nomath_fp32 on one thread", 28, alone, -1, TAG_ALONE},
    {"zoff_fp32_alone", "zoff_fp32 on one thread", 28, alone, STEP_FP32, TAG_ALONE, "nomath_fp32_alone"},
    {NULL}};

static const race_line CHAIN_TABLE[] = {
    {"nomath_widen", "streams of an upcast, no math", 6, nomath, NOMATH_WIDEN, DTYPE_BF16},
    {"chain_upcast", "first pass: bf16 gradients to fp32", 6, pass, WIDEN, DTYPE_BF16, "nomath_widen"},
    {"nomath_read", "read fp32, no math", 4, nomath, NOMATH_READ32, DTYPE_BF16},
    {"chain_norm", "second pass: square sum", 4, pass, NORM, DTYPE_BF16, "nomath_read"},
    {"nomath_touch", "read and write fp32, no math", 8, nomath, NOMATH_TOUCH, DTYPE_BF16},
    {"chain_scale", "third pass: times a factor", 8, pass, SCALE, DTYPE_BF16, "nomath_touch"},
    {"nomath_adam", "streams of an fp32 step, no math", 28, nomath, NOMATH_FP32, DTYPE_BF16},
    {"chain_adam", "fourth pass: plain C loop", 28, pass, ADAM, DTYPE_BF16, "nomath_adam"},
    {"nomath_narrow", "streams of a copy-out, no math", 6, nomath, NOMATH_NARROW, DTYPE_BF16},
    {"chain_cast", "last pass: weights to bf16", 6, pass, ROUND, DTYPE_BF16, "nomath_narrow"},
    {"nomath_chain", "the five without math", 52, nomath_chain, 0, DTYPE_BF16},
    {"chain", "upcast, norm, scale, Adam, copy-out: five passes", 52, chain, 0, DTYPE_BF16, "nomath_chain"},
    {"norm_zoff_bf16", "norm of the bf16 gradient, then zoff_bf16", 30, norm_step, STEP_BF16, DTYPE_BF16, "nomath_norm_step"},
    {"nomath_norm_step", "streams of a norm and a bf16 step, no math", 30, nomath_norm_step, NOMATH_HALF_OUT, DTYPE_BF16},
    {"norm_zoff_bf16_moments", "norm of the bf16 gradient, then zoff_bf16_moments", 22, norm_step, AS_FORMAT + FORMAT_MOMENTS, DTYPE_BF16, "nomath_norm_moments"},
    {"nomath_norm_moments", "streams of a norm and that step, no math", 22, nomath_norm_step, NOMATH_MOMENTS, DTYPE_BF16},
    {"norm_zoff_split", "norm of the bf16 gradient, then zoff_split", 28, norm_step, AS_FORMAT + FORMAT_SPLIT, DTYPE_BF16, "nomath_norm_split"},
    {"nomath_norm_split", "streams of a norm and that step, no math", 28, nomath_norm_step, NOMATH_SPLIT, DTYPE_BF16},
    {"norm_zoff_split_bf16", "norm of the bf16 gradient, then zoff_split_bf16", 20, norm_step, AS_FORMAT + FORMAT_SPLIT_MOMENTS, DTYPE_BF16, "nomath_norm_split_bf16"},
    {"nomath_norm_split_bf16", "streams of a norm and that step, no math", 20, nomath_norm_step, NOMATH_SPLIT_MOMENTS, DTYPE_BF16},
    {"norm_zoff_split_m8v16", "norm of the bf16 gradient, then zoff_split_m8v16", 18, norm_step, AS_FORMAT + FORMAT_SPLIT_M8V16, DTYPE_BF16, "nomath_norm_split_m8v16"},
    {"nomath_norm_split_m8v16", "streams of a norm and that step, no math", 18, nomath_norm_step, NOMATH_SPLIT_M8V16, DTYPE_BF16},
    {"norm_zoff_split_q8", "norm of the bf16 gradient, then zoff_split_q8", 16, norm_step, AS_FORMAT + FORMAT_SPLIT_Q8, DTYPE_BF16, "nomath_norm_split_q8"},
    {"nomath_norm_split_q8", "streams of a norm and that step, no math", 16, nomath_norm_step, NOMATH_SPLIT_Q8, DTYPE_BF16},
    {NULL}};

static const race_line OTHERS_TABLE[] = {
    {"nomath_f16", "streams of an fp16 step, no math", 28, nomath, NOMATH_HALF_OUT, DTYPE_FP16},
    {"zoff_f16", "zoff_optimizer_step, fp16 gradient and copy-out", 28, zoff, STEP_F16, DTYPE_FP16, "nomath_f16"},
    {"nomath_f16_keep", "streams of 16-bit weights in place, no math", 22, nomath, NOMATH_HALF_KEEP, DTYPE_FP16},
    {"zoff_f16_keep", "zoff_optimizer_step, fp16 weights in place, no master", 22, zoff, KEEP_F16, DTYPE_FP16, "nomath_f16_keep"},
    {"nomath_one_state", "streams with one state, no math", 20, nomath, NOMATH_ONE_STATE, DTYPE_FP32},
    {"zoff_adagrad", "Adagrad, fp32", 20, zoff, ADAGRAD, DTYPE_FP32, "nomath_one_state"},
    {"zoff_lion", "Lion, fp32", 20, zoff, LION, DTYPE_FP32, "nomath_one_state"},
    {"zoff_sgd_momentum", "SGD with momentum, fp32", 20, zoff, MOMENTUM, DTYPE_FP32, "nomath_one_state"},
    {"nomath_no_state", "streams without states, no math", 12, nomath, NOMATH_NO_STATE, DTYPE_FP32},
    {"zoff_sgd", "SGD without momentum, fp32", 12, zoff, SGD, DTYPE_FP32, "nomath_no_state"},
    {"triad", "a = b + s * c", 12, nomath, NOMATH_TRIAD, DTYPE_ANY},
    {"memcpy", "libc's memcpy", 8, nomath, NOMATH_COPY, DTYPE_ANY},
    {NULL}};
/* clang-format on */

/* --- races --- */

typedef struct heat {
    const setting *s;
    nomath_way way;
} heat;

static void run_heat(void *ctx, int kind)
{
    const heat *h = ctx;
    nomath_run(&h->way, (nomath_kind)kind, &arrays.moved, h->s->count, h->s->threads);
}

/* Find the no-math kernel that is the roofline. A slow one would flatter every contestant. So all that this CPU can run race on
 * the contestants' own arrays, and the fastest one counts. */
static void find_yardstick(setting *s, nomath_kind kind, double bytes, double deadline)
{
    enum { ROUNDS = 5 };
    /* clang-format off */
    static const char *const KINDS[NOMATH_KINDS] = {
        "p m v rw, g r", "p m v rw, g16 r, w16 w", "p m16 v16 rw, g16 r, w16 w", "w16 low m v rw, g16 r", "w16 low m16 v16 rw, g16 r", "w16 low m8 v16 rw, g16 r",
        "w16 low m8 v8 rw, g16 r", "w16 m v rw, g16 r", "p m rw, g r", "p rw, g r", "wide w, g16 r", "wide r",
        "g16 r", "wide rw", "w16 w, p r", "wide w, g p r", "wide w, g r"};
    /* clang-format on */
    nomath_way ways[NOMATH_WAYS];
    heat heats[NOMATH_WAYS];
    const unsigned count = nomath_ways(kind, ways);
    double fastest = INFINITY;
    s->best[kind] = ways[count - 1];
    race *r = race_open("yardstick", bench_text("%s, %zu elements", KINDS[kind], s->count));
    r->brief = true;
    for (unsigned i = 0; i < count; i++) {
        const race_line line = {ways[i].name, "a way to write a yardstick", bytes, run_heat, (int)kind};
        heats[i] = (heat){s, ways[i]};
        race_add(r, &line, (double)s->count, &heats[i], 0);
    }
    race_run(r, ROUNDS, deadline);
    for (unsigned i = 0; i < count; i++) {
        const double least = bench_spread_of(r->entries[i].seconds, r->rounds).min; /* noise only adds time */
        if (least < fastest) {
            fastest = least;
            s->best[kind] = ways[i];
        }
    }
}

void bench_compare(bench_table table, size_t count, double deadline)
{
    static const race_line *const TABLES[] = {STEP_TABLE, CHAIN_TABLE, OTHERS_TABLE};
    static const char *const NAMES[] = {"step", "chain", "others"};
    const double now = bench_now(), heats_end = now + (deadline - now) / 3;
    const unsigned tags = adam.dtypes | (adam.dtypes & DTYPE_FP32 && adam.threads > 1 ? TAG_ALONE : 0);
    setting s;
    if (table == TABLE_CHAIN && !(adam.dtypes & DTYPE_BF16))
        return;
    set_up(&s, count);
    for (const race_line *c = TABLES[table]; c->name; c++) { /* start with the yardsticks that the contestants name */
        if (c->tags & tags && (c->run == nomath || c->run == nomath_norm_step) && !s.best[c->which].run)
            find_yardstick(&s, (nomath_kind)c->which, c->bytes, heats_end);
        if (c->tags & tags && c->run == nomath_norm_step)
            find_yardstick(&s, NOMATH_READ16, 2, heats_end);
    }
    race *r = race_open(NAMES[table], bench_text("%zu", count));
    race_add_lines(r, TABLES[table], tags, (double)count, &s, 0);
    for (race_entry *e = r->entries; e < r->entries + r->count; e++) /* libc has one memcpy */
        e->kernel = e->work.run == nomath && e->work.which != NOMATH_COPY ? s.best[e->work.which].name : NULL;
    race_run(r, (unsigned)bench.rounds, deadline);
}

/* --- the sweep --- */

static void nomath_if_large(void *ctx, int kind)
{
    const setting *s = ctx;
    nomath_run(&s->best[kind], (nomath_kind)kind, &arrays.moved, s->count, s->count < SHARED_FROM ? 1 : s->threads);
}

/* Sizes of the sweep: powers of two, or of four in a short run, and a few that are neither. All are below `last`, except the
 * last. */
static unsigned list_sizes(size_t last, bool quick, size_t sizes[64])
{
    static const size_t ODD[] = {3, 100, 1000, 10000, 40000, 100000, 1000003};
    unsigned count = 0, odd = 0;
    for (size_t n = 1; n < last && count < 60; n *= quick ? 4 : 2) {
        for (; odd < 7 && ODD[odd] < n; odd += quick ? 2 : 1)
            sizes[count++] = ODD[odd];
        sizes[count++] = n;
    }
    sizes[count++] = last;
    return count;
}

enum { ANY_SIZE = 1, SMALL_SIZE = 2 };
static const race_line SWEEP_TABLE[] = {
    {"zoff", "zoff_optimizer_step", 28, zoff, STEP_FP32, ANY_SIZE, "nomath"},
    {"plain", "plain loop, a parallel region for every size", 28, plain, PLAIN, ANY_SIZE, "nomath"},
    {"nomath", "the streams alone, on one thread below 32768 elements", 28, nomath_if_large, NOMATH_FP32, ANY_SIZE},
    /* From this size on the two loops are the same, and the faster of two noisy ones would be too fast. */
    {"plain_if", "plain loop, a parallel region from 32768 elements on", 28, plain, PLAIN_IF_LARGE, SMALL_SIZE, "nomath"},
    /* Reported without a limit: nobody writes a serial loop for more elements. */
    {"plain_serial", "plain loop without OpenMP", 28, plain, PLAIN_SERIAL, SMALL_SIZE, "nomath"},
    {NULL}};

void bench_sweep(double deadline)
{
    enum { MOST = 64 };
    static setting all[MOST];
    race *races[MOST];
    size_t sizes[MOST];
    const unsigned count = list_sizes(arrays.count, bench.quick, sizes), rounds = (unsigned)bench.rounds;
    for (unsigned i = 0; i < count; i++) {
        set_up(&all[i], sizes[i]);
        all[i].best[NOMATH_FP32] = nomath_widest();
        races[i] = race_open("sweep", bench_text("%zu", sizes[i]));
        races[i]->brief = true;
        race_add_lines(races[i], SWEEP_TABLE, sizes[i] < SHARED_FROM ? ANY_SIZE | SMALL_SIZE : ANY_SIZE, (double)sizes[i],
                       &all[i], 0);
        /* A short run gives less time to small sizes, at which the rivals are far apart. */
        const bool fewer = bench.quick && sizes[i] < SHARED_FROM && rounds > ENOUGH_ROUNDS;
        const double now = bench_now(); /* time that a size does not need goes to the next ones */
        race_run(races[i], fewer ? ENOUGH_ROUNDS : rounds, now + (deadline - now) / (count - i));
    }
    /* The smallest of many noisy ratios is too small. If zoff seems to lose, more rounds decide, together with the first ones.
     */
    for (unsigned i = 0; i < count; i++) {
        if (race_values(races[i], "plain / zoff", false).median < 1)
            race_run(races[i], 3 * rounds, deadline);
    }
}
