/* cpu_adam_compare.c: zoff's step in every type and optimizer beside its rivals and yardsticks, on arrays of one size. Three
 * races: the step itself; the unfused chain of passes; the others. Then a sweep from one element to tens of millions. */
#include "cpu_adam_bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STEP_FP32, STEP_BF16, STEP_F16, KEEP_BF16, KEEP_F16, ADAGRAD, LION, MOMENTUM, SGD, STEPS };

typedef struct setting {
    const bench_arrays *a;
    const nomath_streams *s; /* of these arrays */
    size_t count;
    unsigned threads;
    nomath_way best[NOMATH_KINDS];
    zoff_optimizer_hyper hypers[STEPS];
    double sum; /* sum of the norms, so that the compiler cannot drop them */
} setting;

/* --- memory --- */

/* Fill the arrays. The bits of these bf16 numbers are ordinary numbers as fp16, too. */
int bench_arrays_open(bench_arrays *a, size_t count)
{
    enum { FLOATS = 8, HALVES = 7, CODES = 4 };
    *a = (bench_arrays){.count = count};
    const size_t bytes = count * (FLOATS * sizeof(float) + HALVES * sizeof(uint16_t)) + CODES * bench_codes_bytes(count);
    if (bench_streams_open(bytes, FLOATS + HALVES + CODES, true, &a->mapping) != 0)
        return -1;
    float **const floats[FLOATS] = {&a->s.p, &a->s.m, &a->s.v, &a->s.g, &a->s.wide, &a->apart.p, &a->apart.m, &a->apart.v};
    uint16_t **const halves[HALVES] = {&a->s.g16, &a->s.w16, &a->g_f16, &a->w_f16, &a->s.m16, &a->s.v16, &a->s.low};
    for (unsigned i = 0; i < FLOATS; i++) {
        *floats[i] = bench_streams_take(&a->mapping, count * sizeof(float));
        bench_fill_float(*floats[i], count, i >= 3, i == 0 ? 0.02f : i >= 3 ? 0.01f : 0.0f);
    }
    a->apart.w16 = (uint16_t *)(void *)a->apart.p;
    a->apart.low = a->apart.w16 + count;
    for (unsigned i = 0; i < HALVES; i++) {
        *halves[i] = bench_streams_take(&a->mapping, count * sizeof(uint16_t));
        bench_fill_bf16(*halves[i], count, i % 2 == 0, i % 2 ? 0.02f : 0.01f);
    }
    for (size_t i = 0; i < count; i++)
        a->s.v16[i] &= 0x7fff; /* a second moment is not negative: weights would become NaN */
    nomath_streams *moved = &a->moved;
    uint8_t **const codes[CODES] = {&a->s.m8, &a->s.v8, &moved->m8, &moved->v8};
    for (unsigned i = 0; i < CODES; i++) {
        *codes[i] = bench_streams_take(&a->mapping, bench_codes_bytes(count));
        memset(*codes[i], 0, bench_codes_bytes(count));
    }
    const nomath_streams own = *moved;
    *moved = a->s;
    moved->m8 = own.m8;
    moved->v8 = own.v8;
    return 0;
}

void bench_hyper_adam(zoff_optimizer_hyper *out)
{
    zoff_optimizer_hyper_init(out, ZOFF_OPTIMIZER_ADAM);
    out->weight_decay = 0.01;
}

static void set_up(setting *s, const bench_options *options, const bench_arrays *a, size_t count)
{
    *s = (setting){.a = a, .s = &a->s, .count = count, .threads = (unsigned)options->threads};
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

static int zoff(void *ctx, int which)
{
    const setting *s = ctx;
    const nomath_streams *a = s->s;
    zoff_optimizer_tensor t = {.struct_size = sizeof t, .count = s->count, .master = a->p, .m = a->m, .v = a->v, .grad = a->g};
    if (which >= STEP_BF16 && which <= KEEP_F16) {
        const bool f16 = which == STEP_F16 || which == KEEP_F16, keeps = which >= KEEP_BF16;
        const zoff_dtype dtype = f16 ? ZOFF_F16 : ZOFF_BF16;
        uint16_t *const weights = f16 ? s->a->w_f16 : a->w16;
        t.grad = f16 ? s->a->g_f16 : a->g16;
        t.grad_dtype = t.copy_dtype = dtype;
        t.master = keeps ? (void *)weights : a->p;
        t.master_dtype = keeps ? dtype : ZOFF_F32;
        t.copy_out = keeps ? NULL : weights;
    }
    if (which == ADAGRAD || which == SGD)
        t.m = NULL;
    if (which >= LION)
        t.v = NULL;
    return bench_told(zoff_optimizer_step(&s->hypers[which], BENCH_T, 0.5, &t));
}

static int step_in(const setting *s, int which, bench_place place)
{
    bench_step((bench_format)which, place, s->s, &s->a->apart, s->count, s->threads, &s->hypers[STEP_BF16]);
    return 0;
}

static int format(void *ctx, int which)
{
    return step_in(ctx, which, PLACE_SAME);
}

static int apart(void *ctx, int which)
{
    return step_in(ctx, which, PLACE_APART);
}

static int cached(void *ctx, int which)
{
    return step_in(ctx, which, PLACE_CACHED);
}

enum { PLAIN, PLAIN_IF_LARGE, PLAIN_SERIAL };
static int plain(void *ctx, int which)
{
    const setting *s = ctx;
    const nomath_streams *a = s->s;
    const unsigned threads = which == PLAIN_IF_LARGE && s->count < SHARED_FROM ? 1 : s->threads;
    if (which == PLAIN_SERIAL)
        plain_adam_serial(s->count, a->p, a->m, a->v, a->g, &s->hypers[STEP_FP32], BENCH_T);
    else
        plain_adam(s->count, a->p, a->m, a->v, a->g, &s->hypers[STEP_FP32], BENCH_T, threads);
    return 0;
}

static int nomath(void *ctx, int kind)
{
    const setting *s = ctx;
    nomath_run(&s->best[kind], (nomath_kind)kind, &s->a->moved, s->count, s->threads);
    return 0;
}

/* Run on one thread while the others spin in their region, as they do elsewhere: nested regions have one thread. */
static int alone(void *ctx, int which)
{
    const setting *s = ctx;
    int ret = 0;
#pragma omp parallel num_threads((int)s->threads)
    {
#pragma omp master
        if (which < 0)
            nomath_run(&s->best[NOMATH_FP32], NOMATH_FP32, s->s, s->count, 1);
        else
            ret = zoff(ctx, which);
    }
    return ret;
}

enum { WIDEN, NORM, SCALE, ADAM, ROUND, PASSES, NORM_BF16 };
static int pass(void *ctx, int which)
{
    setting *s = ctx;
    const nomath_streams *a = s->s;
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
    return isfinite(s->sum) ? 0 : bench_fail("a norm is not finite: the arrays were spoilt");
}

static int chain(void *ctx, int which)
{
    int ret = 0;
    for (which = WIDEN; ret == 0 && which < PASSES; which++)
        ret = pass(ctx, which);
    return ret;
}

static int nomath_chain(void *ctx, int which)
{
    static const nomath_kind KINDS[] = {NOMATH_WIDEN, NOMATH_READ32, NOMATH_TOUCH, NOMATH_FP32, NOMATH_NARROW};
    for (which = 0; which < PASSES; which++)
        nomath(ctx, (int)KINDS[which]);
    return 0;
}

static int norm_step(void *ctx, int which)
{
    return pass(ctx, NORM_BF16) == 0 ? zoff(ctx, which) : -1;
}

static int norm_format(void *ctx, int which)
{
    return pass(ctx, NORM_BF16) == 0 ? format(ctx, which) : -1;
}

static int nomath_norm_step(void *ctx, int which)
{
    nomath(ctx, NOMATH_READ16);
    return nomath(ctx, which);
}

/* --- the tables: contestants that are compared stand together; tags are types --- */

enum { TAG_ALONE = DTYPE_ANY + 1 }; /* needs fp32, and several threads */

/* clang-format off */
static const race_line STEP_TABLE[] = {
    {"plain_fp32", "plain C loop with OpenMP, fp32 in place", 28, plain, PLAIN, DTYPE_FP32, "nomath_fp32"},
    {"nomath_fp32", "streams of an fp32 step, no math", 28, nomath, NOMATH_FP32, DTYPE_ANY},
    {"zoff_fp32", "zoff_optimizer_step, fp32 in place", 28, zoff, STEP_FP32, DTYPE_ANY, "nomath_fp32"},
    {"zoff_bf16", "zoff_optimizer_step, bf16 gradient and copy-out", 28, zoff, STEP_BF16, DTYPE_BF16, "nomath_bf16"},
    {"apart", "zoff_bf16, but new states go to another place", 28, apart, FORMAT_COPY, DTYPE_BF16, "nomath_bf16"},
    {"nomath_bf16", "streams of a bf16 step, no math", 28, nomath, NOMATH_HALF_OUT, DTYPE_BF16},
    {"nomath_keep", "streams of 16-bit weights in place, no math", 22, nomath, NOMATH_HALF_KEEP, DTYPE_BF16},
    {"zoff_bf16_keep", "zoff_optimizer_step, bf16 weights in place, no master", 22, zoff, KEEP_BF16, DTYPE_BF16, "nomath_keep"},
    {"nomath_moments", "streams of a bf16 step with bf16 moments, no math", 20, nomath, NOMATH_MOMENTS, DTYPE_BF16},
    {"zoff_bf16_moments", "zoff's step, bf16 gradient, copy-out and moments", 20, format, FORMAT_MOMENTS, DTYPE_BF16, "nomath_moments"},
    {"nomath_split", "streams of a bf16 step with split masters, no math", 26, nomath, NOMATH_SPLIT, DTYPE_BF16},
    {"zoff_split", "zoff's step, bf16 gradient, split masters", 26, format, FORMAT_SPLIT, DTYPE_BF16, "nomath_split"},
    {"apart_split", "zoff_split, but new states go to another place", 26, apart, FORMAT_SPLIT, DTYPE_BF16, "nomath_split"},
    {"nomath_split_bf16", "streams of that with bf16 moments, no math", 18, nomath, NOMATH_SPLIT_MOMENTS, DTYPE_BF16},
    {"zoff_split_bf16", "zoff's step, bf16 gradient and moments, split masters", 18, format, FORMAT_SPLIT_MOMENTS, DTYPE_BF16, "nomath_split_bf16"},
    {"nomath_split_m8v16", "streams of that with m in 8 bits, no math", 16, nomath, NOMATH_SPLIT_M8V16, DTYPE_BF16},
    {"zoff_split_m8v16", "zoff's step, bf16 gradient, m in 8 bits, split masters", 16, format, FORMAT_SPLIT_M8V16, DTYPE_BF16, "nomath_split_m8v16"},
    {"nomath_split_q8", "streams of that with both moments in 8 bits, no math", 14, nomath, NOMATH_SPLIT_Q8, DTYPE_BF16},
    {"zoff_split_q8", "zoff's step, bf16 gradient, moments in 8 bits, split masters", 14, format, FORMAT_SPLIT_Q8, DTYPE_BF16, "nomath_split_q8"},
    {"zoff_split_bf16_l1", "zoff_split_bf16 on data in the first cache", 18, cached, FORMAT_SPLIT_MOMENTS, DTYPE_BF16},
    {"zoff_split_m8v16_l1", "zoff_split_m8v16 on data in the first cache", 16, cached, FORMAT_SPLIT_M8V16, DTYPE_BF16},
    {"zoff_split_q8_l1", "zoff_split_q8 on data in the first cache", 14, cached, FORMAT_SPLIT_Q8, DTYPE_BF16},
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
    {"norm_zoff_bf16_moments", "norm of the bf16 gradient, then zoff_bf16_moments", 22, norm_format, FORMAT_MOMENTS, DTYPE_BF16, "nomath_norm_moments"},
    {"nomath_norm_moments", "streams of a norm and that step, no math", 22, nomath_norm_step, NOMATH_MOMENTS, DTYPE_BF16},
    {"norm_zoff_split", "norm of the bf16 gradient, then zoff_split", 28, norm_format, FORMAT_SPLIT, DTYPE_BF16, "nomath_norm_split"},
    {"nomath_norm_split", "streams of a norm and that step, no math", 28, nomath_norm_step, NOMATH_SPLIT, DTYPE_BF16},
    {"norm_zoff_split_bf16", "norm of the bf16 gradient, then zoff_split_bf16", 20, norm_format, FORMAT_SPLIT_MOMENTS, DTYPE_BF16, "nomath_norm_split_bf16"},
    {"nomath_norm_split_bf16", "streams of a norm and that step, no math", 20, nomath_norm_step, NOMATH_SPLIT_MOMENTS, DTYPE_BF16},
    {"norm_zoff_split_m8v16", "norm of the bf16 gradient, then zoff_split_m8v16", 18, norm_format, FORMAT_SPLIT_M8V16, DTYPE_BF16, "nomath_norm_split_m8v16"},
    {"nomath_norm_split_m8v16", "streams of a norm and that step, no math", 18, nomath_norm_step, NOMATH_SPLIT_M8V16, DTYPE_BF16},
    {"norm_zoff_split_q8", "norm of the bf16 gradient, then zoff_split_q8", 16, norm_format, FORMAT_SPLIT_Q8, DTYPE_BF16, "nomath_norm_split_q8"},
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

static int run_heat(void *ctx, int kind)
{
    const heat *h = ctx;
    nomath_run(&h->way, (nomath_kind)kind, &h->s->a->moved, h->s->count, h->s->threads);
    return 0;
}

/* Find the no-math kernel that is the roofline. A slow one would flatter every contestant. So all that this CPU can run race on
 * the contestants' own arrays, and the fastest one counts. */
static int find_yardstick(setting *s, nomath_kind kind, double bytes, double deadline, race_book *book)
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
    race *r = race_open(book, "yardstick", "%s, %zu elements", KINDS[kind], s->count);
    r->brief = true;
    for (unsigned i = 0; i < count; i++) {
        const race_line line = {ways[i].name, "a way to write a yardstick", bytes, run_heat, (int)kind};
        heats[i] = (heat){s, ways[i]};
        race_add(r, &line, (double)s->count, &heats[i], 0);
    }
    const int ret = race_run(r, ROUNDS, deadline);
    for (unsigned i = 0; i < count; i++) {
        const double least = bench_spread_of(r->entries[i].seconds, r->rounds).min; /* noise only adds time */
        if (least < fastest) {
            fastest = least;
            s->best[kind] = ways[i];
        }
    }
    return ret;
}

int bench_compare(const bench_options *options, const bench_arrays *a, bench_table table, size_t count, double deadline,
                  race_book *book)
{
    static const race_line *const TABLES[] = {STEP_TABLE, CHAIN_TABLE, OTHERS_TABLE};
    static const char *const NAMES[] = {"step", "chain", "others"};
    const double now = bench_now(), heats_end = now + (deadline - now) / 3;
    const unsigned tags = options->dtypes | (options->dtypes & DTYPE_FP32 && options->threads > 1 ? TAG_ALONE : 0);
    int ret = 0;
    setting s;
    if (table == TABLE_CHAIN && !(options->dtypes & DTYPE_BF16))
        return 0;
    set_up(&s, options, a, count);
    for (const race_line *c = TABLES[table]; c->name && ret == 0;
         c++) { /* start with the yardsticks that the contestants name */
        if (c->tags & tags && (c->run == nomath || c->run == nomath_norm_step) && !s.best[c->which].run)
            ret = find_yardstick(&s, (nomath_kind)c->which, c->bytes, heats_end, book);
        if (c->tags & tags && c->run == nomath_norm_step && ret == 0)
            ret = find_yardstick(&s, NOMATH_READ16, 2, heats_end, book);
    }
    race *r = race_open(book, NAMES[table], "%zu", count);
    race_add_lines(r, TABLES[table], tags, (double)count, &s, 0);
    for (race_entry *e = r->entries; e < r->entries + r->count; e++) /* libc has one memcpy */
        e->kernel = e->work.run == nomath && e->work.which != NOMATH_COPY ? s.best[e->work.which].name : NULL;
    return ret == 0 ? race_run(r, (unsigned)options->run.rounds, deadline) : ret;
}

/* --- the sweep --- */

static int nomath_if_large(void *ctx, int kind)
{
    const setting *s = ctx;
    nomath_run(&s->best[kind], (nomath_kind)kind, &s->a->moved, s->count, s->count < SHARED_FROM ? 1 : s->threads);
    return 0;
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

int bench_sweep(const bench_options *options, const bench_arrays *a, double deadline, race_book *book)
{
    enum { MOST = 64 };
    static setting all[MOST];
    race *races[MOST];
    size_t sizes[MOST];
    const unsigned count = list_sizes(a->count, options->run.quick, sizes), rounds = (unsigned)options->run.rounds;
    int ret = 0;
    for (unsigned i = 0; i < count && ret == 0; i++) {
        set_up(&all[i], options, a, sizes[i]);
        all[i].best[NOMATH_FP32] = nomath_widest();
        races[i] = race_open(book, "sweep", "%zu", sizes[i]);
        races[i]->brief = true;
        race_add_lines(races[i], SWEEP_TABLE, sizes[i] < SHARED_FROM ? ANY_SIZE | SMALL_SIZE : ANY_SIZE, (double)sizes[i],
                       &all[i], 0);
        /* A short run gives less time to small sizes, at which the rivals are far apart. */
        const bool fewer = options->run.quick && sizes[i] < SHARED_FROM && rounds > ENOUGH_ROUNDS;
        const double now = bench_now(); /* time that a size does not need goes to the next ones */
        ret = race_run(races[i], fewer ? ENOUGH_ROUNDS : rounds, now + (deadline - now) / (count - i));
    }
    /* The smallest of many noisy ratios is too small. If zoff seems to lose, more rounds decide, together with the first ones.
     */
    for (unsigned i = 0; i < count && ret == 0; i++) {
        if (race_values(races[i], "plain / zoff", false).median < 1)
            ret = race_run(races[i], 3 * rounds, deadline);
    }
    return ret;
}
