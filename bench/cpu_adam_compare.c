/* cpu_adam_compare.c: zoff's step in every type and optimizer beside its rivals and its yardsticks, on arrays of one size.
 * Three races: the step itself; the unfused chain of passes; the rest. */
#include "cpu_adam_bench.h"
#include "cpu_adam_plain.h"

#include <math.h>

typedef struct setting {
    const bench_options *options;
    const bench_arrays *a;
    nomath_streams streams;
    size_t count;
    unsigned threads;
    bench_yardstick best[NOMATH_KINDS]; /* of those whose stores are the contestants' */
    bench_yardstick bypass[NOMATH_KINDS];
    zoff_adam_hyper adam, adagrad, lion, momentum, sgd;
    plain_hyper plain;
    double sum; /* of the norms, so that they cannot be left out */
    int failed;
} setting;

typedef void (*contestant_fn)(setting *s, int which);

/* A line of the table of contestants. */
typedef struct contestant {
    const char *name, *what;
    unsigned bytes, dtypes;
    const char *yardstick; /* its name; NULL: none */
    contestant_fn fn;
    int which;
} contestant;

typedef struct call {
    setting *s;
    contestant_fn fn;
    int which;
} call;

static void work(void *ctx)
{
    const call *c = ctx;
    c->fn(c->s, c->which);
}

/* --- the contestants --- */

enum { STEP_FP32, STEP_BF16, STEP_F16, KEEP_BF16, KEEP_F16, ADAGRAD, LION, MOMENTUM, SGD };

static void zoff(setting *s, int which)
{
    const bench_arrays *a = s->a;
    const zoff_adam_hyper *hyper = &s->adam;
    zoff_adam_tensor t = {.struct_size = sizeof t, .count = s->count, .master = a->p, .m = a->m, .v = a->v, .grad = a->g};
    switch (which) {
    case STEP_BF16:
        t.grad = a->g16;
        t.grad_dtype = t.copy_dtype = ZOFF_BF16;
        t.copy_out = a->w16;
        break;
    case STEP_F16:
        t.grad = a->g_f16;
        t.grad_dtype = t.copy_dtype = ZOFF_F16;
        t.copy_out = a->w_f16;
        break;
    case KEEP_BF16:
        t.grad = a->g16;
        t.master = a->w16;
        t.grad_dtype = t.master_dtype = ZOFF_BF16;
        break;
    case KEEP_F16:
        t.grad = a->g_f16;
        t.master = a->w_f16;
        t.grad_dtype = t.master_dtype = ZOFF_F16;
        break;
    case ADAGRAD:
        hyper = &s->adagrad;
        t.m = NULL;
        break;
    case LION:
        hyper = &s->lion;
        t.v = NULL;
        break;
    case MOMENTUM:
        hyper = &s->momentum;
        t.v = NULL;
        break;
    case SGD:
        hyper = &s->sgd;
        t.m = t.v = NULL;
        break;
    default:
        break;
    }
    if (zoff_adam_step(hyper, BENCH_T, 0.5, &t) != ZOFF_OK)
        s->failed = 1;
}

static void plain(setting *s, int which)
{
    (void)which;
    plain_adam(s->count, s->a->p, s->a->m, s->a->v, s->a->g, &s->plain, BENCH_T, s->threads);
}

static void nomath(setting *s, int kind)
{
    nomath_run(s->best[kind].fn, &s->streams, s->count, s->threads);
}

static void nomath_bypass(setting *s, int kind)
{
    nomath_run(s->bypass[kind].fn, &s->streams, s->count, s->threads);
}

/* On one thread, while the others wait in their region as busily as they do elsewhere: nested regions have one thread. */
static void alone(setting *s, int which)
{
#pragma omp parallel num_threads((int)s->threads)
    {
#pragma omp master
        if (which < 0)
            nomath_run(s->best[NOMATH_FP32].fn, &s->streams, s->count, 1);
        else
            zoff(s, which);
    }
}

enum { WIDEN, NORM, SCALE, ADAM, ROUND, WIDEN_STREAMING, ROUND_STREAMING, NORM_BF16 };

static void pass(setting *s, int which)
{
    const bench_arrays *a = s->a;
    switch (which) {
    case WIDEN:
        plain_widen(s->count, a->wide, a->g16, s->threads);
        break;
    case NORM:
        s->sum += plain_norm(s->count, a->wide, s->threads);
        break;
    case SCALE: /* not a shrinking one: repeated, it would end in subnormals */
        plain_scale(s->count, a->wide, 1.0f, s->threads);
        break;
    case ADAM:
        plain_adam(s->count, a->p, a->m, a->v, a->wide, &s->plain, BENCH_T, s->threads);
        break;
    case ROUND:
        plain_round(s->count, a->w16, a->p, s->threads);
        break;
    case WIDEN_STREAMING:
        plain_widen_streaming(s->count, a->wide, a->g16, s->threads);
        break;
    case ROUND_STREAMING:
        plain_round_streaming(s->count, a->w16, a->p, s->threads);
        break;
    case NORM_BF16:
        s->sum += plain_norm_bf16(s->count, a->g16, s->threads);
        break;
    default:
        break;
    }
}

static void chain(setting *s, int streaming)
{
    pass(s, streaming ? WIDEN_STREAMING : WIDEN);
    pass(s, NORM);
    plain_scale(s->count, s->a->wide, 0.5f, s->threads);
    pass(s, ADAM);
    pass(s, streaming ? ROUND_STREAMING : ROUND);
}

static void nomath_chain(setting *s, int which)
{
    (void)which;
    nomath(s, NOMATH_WIDEN);
    nomath(s, NOMATH_READ32);
    nomath(s, NOMATH_TOUCH);
    nomath(s, NOMATH_FP32);
    nomath(s, NOMATH_NARROW);
}

static void norm_step(setting *s, int which)
{
    pass(s, NORM_BF16);
    zoff(s, which);
}

static void nomath_norm_step(setting *s, int which)
{
    (void)which;
    nomath(s, NOMATH_READ16);
    nomath(s, NOMATH_HALF_OUT);
}

/* --- the tables; neighbours are compared, so what belongs together stands together --- */

/* clang-format off */
static const contestant STEP_TABLE[] = {
    {"plain_fp32", "plain C loop with OpenMP, fp32 in place", 28, DTYPE_FP32, "nomath_fp32", plain, 0},
    {"nomath_fp32", "streams of an fp32 step, no math", 28, DTYPE_ANY, NULL, nomath, NOMATH_FP32},
    {"zoff_fp32", "zoff_adam_step, fp32 in place", 28, DTYPE_ANY, "nomath_fp32", zoff, STEP_FP32},
    {"zoff_bf16", "zoff_adam_step, bf16 gradient and copy-out", 28, DTYPE_BF16, "nomath_bf16", zoff, STEP_BF16},
    {"nomath_bf16", "streams of a bf16 step, no math", 28, DTYPE_BF16, NULL, nomath, NOMATH_HALF_OUT},
    {"nomath_keep", "streams of 16-bit weights in place, no math", 22, DTYPE_BF16, NULL, nomath, NOMATH_HALF_KEEP},
    {"zoff_bf16_keep", "zoff_adam_step, bf16 weights in place, no master", 22, DTYPE_BF16, "nomath_keep", zoff, KEEP_BF16},
    {"nomath_fp32_alone", "nomath_fp32 on one thread", 28, DTYPE_FP32, NULL, alone, -1},
    {"zoff_fp32_alone", "zoff_fp32 on one thread", 28, DTYPE_FP32, "nomath_fp32_alone", alone, STEP_FP32},
};

static const contestant CHAIN_TABLE[] = {
    {"nomath_widen", "streams of an upcast, no math", 6, DTYPE_BF16, NULL, nomath, NOMATH_WIDEN},
    {"chain_upcast", "first pass: bf16 gradients to fp32", 6, DTYPE_BF16, "nomath_widen", pass, WIDEN},
    {"nomath_read", "read fp32, no math", 4, DTYPE_BF16, NULL, nomath, NOMATH_READ32},
    {"chain_norm", "second pass: square sum", 4, DTYPE_BF16, "nomath_read", pass, NORM},
    {"nomath_touch", "read and write fp32, no math", 8, DTYPE_BF16, NULL, nomath, NOMATH_TOUCH},
    {"chain_scale", "third pass: times a factor", 8, DTYPE_BF16, "nomath_touch", pass, SCALE},
    {"nomath_adam", "streams of an fp32 step, no math", 28, DTYPE_BF16, NULL, nomath, NOMATH_FP32},
    {"chain_adam", "fourth pass: plain C loop", 28, DTYPE_BF16, "nomath_adam", pass, ADAM},
    {"nomath_narrow", "streams of a copy-out, no math", 6, DTYPE_BF16, NULL, nomath, NOMATH_NARROW},
    {"chain_cast", "last pass: weights to bf16", 6, DTYPE_BF16, "nomath_narrow", pass, ROUND},
    {"nomath_chain", "the five without math", 52, DTYPE_BF16, NULL, nomath_chain, 0},
    {"chain", "upcast, norm, scale, Adam, copy-out: five passes", 52, DTYPE_BF16, "nomath_chain", chain, 0},
    {"norm_zoff_bf16", "norm of the bf16 gradient, then zoff_bf16", 30, DTYPE_BF16, "nomath_norm_step", norm_step, STEP_BF16},
    {"nomath_norm_step", "streams of a norm and a bf16 step, no math", 30, DTYPE_BF16, NULL, nomath_norm_step, 0},
    {"chain_streaming", "the chain, casts with streaming stores", 52, DTYPE_BF16, "nomath_chain", chain, 1},
};

static const contestant OTHERS_TABLE[] = {
    {"nomath_f16", "streams of an fp16 step, no math", 28, DTYPE_FP16, NULL, nomath, NOMATH_HALF_OUT},
    {"zoff_f16", "zoff_adam_step, fp16 gradient and copy-out", 28, DTYPE_FP16, "nomath_f16", zoff, STEP_F16},
    {"nomath_f16_keep", "streams of 16-bit weights in place, no math", 22, DTYPE_FP16, NULL, nomath, NOMATH_HALF_KEEP},
    {"zoff_f16_keep", "zoff_adam_step, fp16 weights in place, no master", 22, DTYPE_FP16, "nomath_f16_keep", zoff, KEEP_F16},
    {"nomath_one_state", "streams with one state, no math", 20, DTYPE_FP32, NULL, nomath, NOMATH_ONE_STATE},
    {"zoff_adagrad", "Adagrad, fp32", 20, DTYPE_FP32, "nomath_one_state", zoff, ADAGRAD},
    {"zoff_lion", "Lion, fp32", 20, DTYPE_FP32, "nomath_one_state", zoff, LION},
    {"zoff_sgd_momentum", "SGD with momentum, fp32", 20, DTYPE_FP32, "nomath_one_state", zoff, MOMENTUM},
    {"nomath_no_state", "streams without states, no math", 12, DTYPE_FP32, NULL, nomath, NOMATH_NO_STATE},
    {"zoff_sgd", "SGD without momentum, fp32", 12, DTYPE_FP32, "nomath_no_state", zoff, SGD},
    {"triad", "a = b + s * c", 12, DTYPE_ANY, NULL, nomath, NOMATH_TRIAD},
    {"triad_streaming", "the faster of plain and streaming stores", 12, DTYPE_ANY, NULL, nomath_bypass, NOMATH_TRIAD},
    {"memcpy", "libc's memcpy", 8, DTYPE_ANY, NULL, nomath, NOMATH_COPY},
    {"copy_streaming", "the faster of memcpy and streaming stores", 8, DTYPE_ANY, NULL, nomath_bypass, NOMATH_COPY},
};
/* clang-format on */

static void set_up(setting *s, const bench_options *options, const bench_arrays *a, size_t count)
{
    *s = (setting){
        .options = options,
        .a = a,
        .count = count,
        .threads = options->threads,
        .streams = {.p = a->p, .m = a->m, .v = a->v, .g = a->g, .g16 = a->g16, .w16 = a->w16, .wide = a->wide},
    };
    bench_hyper_adam(&s->adam);
    zoff_adam_hyper_init_for(&s->adagrad, ZOFF_OPTIMIZER_ADAGRAD);
    zoff_adam_hyper_init_for(&s->lion, ZOFF_OPTIMIZER_LION);
    zoff_adam_hyper_init_for(&s->momentum, ZOFF_OPTIMIZER_SGD);
    zoff_adam_hyper_init_for(&s->sgd, ZOFF_OPTIMIZER_SGD);
    s->lion.weight_decay = 0.01;
    s->momentum.momentum = 0.9;
    const zoff_adam_hyper *h = &s->adam;
    s->plain = (plain_hyper){(float)h->lr, (float)h->beta1, (float)h->beta2, (float)h->eps, (float)h->weight_decay};
}

/* What a yardstick was found to be best written as; libc has one memcpy. */
static const char *find_kernel(const setting *s, const contestant *c)
{
    if (c->fn == nomath_bypass)
        return s->bypass[c->which].kernel;
    return c->fn == nomath && c->which != NOMATH_COPY ? s->best[c->which].kernel : NULL;
}

/* Find the yardsticks that the contestants name, then let them race. */
static int run_table(setting *s, const char *part, const contestant *table, size_t lines, double deadline, bench_book *book)
{
    char label[64];
    call calls[RACE_ENTRIES];
    const double now = bench_stopwatch_now();
    const double heats_end = now + (deadline - now) / 3;
    for (size_t i = 0; i < lines; i++) {
        const contestant *c = &table[i];
        if (c->dtypes & s->options->dtypes && (c->fn == nomath || c->fn == nomath_bypass)) {
            bench_yardstick *found = c->fn == nomath ? s->best : s->bypass;
            /* zoff's step writes past the caches where that is faster; the passes of the chain do not */
            const int streaming = c->fn == nomath_bypass || c->which == NOMATH_HALF_OUT;
            if (!found[c->which].fn)
                found[c->which] =
                    bench_yardstick_find(s->options, &s->streams, s->count, (nomath_kind)c->which, streaming, heats_end, book);
        }
        if (c->dtypes & s->options->dtypes && c->fn == nomath_norm_step) {
            s->best[NOMATH_READ16] = bench_yardstick_find(s->options, &s->streams, s->count, NOMATH_READ16, 0, heats_end, book);
            s->best[NOMATH_HALF_OUT] =
                bench_yardstick_find(s->options, &s->streams, s->count, NOMATH_HALF_OUT, 1, heats_end, book);
        }
    }
    snprintf(label, sizeof label, "%zu", s->count);
    race *r = bench_book_open(book, part, label);
    if (!r)
        return -1;
    for (size_t i = 0; i < lines; i++) {
        const contestant *c = &table[i];
        if (!(c->dtypes & s->options->dtypes) || (c->fn == alone && s->threads < 2) ||
            (c->fn == chain && c->which && !plain_has_streaming()))
            continue;
        calls[i] = (call){s, c->fn, c->which};
        race_add(r, (race_entry){.name = c->name,
                                 .what = c->what,
                                 .kernel = find_kernel(s, c),
                                 .elements = (double)s->count,
                                 .bytes = c->bytes,
                                 .work = work,
                                 .ctx = &calls[i]});
    }
    for (unsigned i = 0; i < r->count; i++) { /* a yardstick may stand behind */
        const contestant *c = table;
        while (c->name != r->entries[i].name)
            c++;
        r->entries[i].yardstick = c->yardstick ? race_find(r, c->yardstick) : -1;
    }
    race_run(r, s->options->run.rounds, s->threads, deadline);
    for (unsigned i = 0; i < r->count; i++)
        r->entries[i].ctx = NULL; /* the race outlives what it ran on */
    if (s->failed)
        fprintf(stderr, "cpu_adam: %s\n", zoff_last_error());
    else if (!isfinite(s->sum))
        fprintf(stderr, "cpu_adam: a norm is not finite: the arrays were spoilt\n");
    return s->failed || !isfinite(s->sum) ? -1 : 0;
}

#define RUN_TABLE(part, table)                                                                                                 \
    setting s;                                                                                                                 \
    set_up(&s, options, a, count);                                                                                             \
    return run_table(&s, part, table, sizeof table / sizeof table[0], deadline, book);

int bench_compare_step(const bench_options *options, const bench_arrays *a, size_t count, double deadline, bench_book *book)
{
    RUN_TABLE("step", STEP_TABLE)
}

int bench_compare_chain(const bench_options *options, const bench_arrays *a, size_t count, double deadline, bench_book *book)
{
    RUN_TABLE("chain", CHAIN_TABLE)
}

int bench_compare_others(const bench_options *options, const bench_arrays *a, size_t count, double deadline, bench_book *book)
{
    RUN_TABLE("others", OTHERS_TABLE)
}
