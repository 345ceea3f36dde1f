/* SPDX-License-Identifier: Apache-2.0 */
/* orthogonal.c: orthogonalization of a matrix by Newton-Schulz iterations, in stages of parts. A team shares the parts of a
 * stage; the work can stop after each part, and another call continues with the next one. */
#include "kernels.h"

#include "bits.h"
#include "team.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

/* The polynomials a X + b (X X^T) X + c (X X^T)^2 X, each set with its sources. The numbers of all five are those of NVIDIA's
 * Emerging Optimizers, so that runs can be compared. */
typedef struct polynomial {
    float a, b, c;
} polynomial;
static const struct {
    unsigned count;
    bool repeats_all; /* behind its end: from the beginning again; otherwise the last one again and again */
    polynomial list[10];
} SETS[] = {
    /* Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024 */
    [ZOFF_MUON_SIMPLE] = {1, true, {{3.4445f, -4.7750f, 2.0315f}}},
    /* Cesista, Jiacheng and Jordan, "Squeezing 1-2% efficiency gains out of Muon", 2025 */
    [ZOFF_MUON_QUINTIC] = {5,
                           true,
                           {{4.0848f, -6.8946f, 2.9270f},
                            {3.9505f, -6.3029f, 2.6377f},
                            {3.7418f, -5.5913f, 2.3037f},
                            {2.8769f, -3.1427f, 1.2046f},
                            {2.8366f, -3.0525f, 1.2012f}}},
    /* Amsel, Persson, Musco and Gower, "The Polar Express", arXiv 2505.16932, with its safety factor */
    [ZOFF_MUON_POLAR_EXPRESS] = {8,
                                 false,
                                 {{8.2051f, -22.9019f, 16.4607f},
                                  {4.0664f, -2.8612f, 0.5184f},
                                  {3.9096f, -2.8234f, 0.5250f},
                                  {3.2856f, -2.4153f, 0.4853f},
                                  {2.2779f, -1.6198f, 0.3985f},
                                  {1.8726f, -1.2307f, 0.3585f},
                                  {1.8564f, -1.2132f, 0.3568f},
                                  {1.8750f, -1.2500f, 0.3750f}}},
    /* Grishina, Smirnov and Rakhuba, "Accelerating Newton-Schulz iteration for orthogonalization via Chebyshev-type
     * polynomials", arXiv 2506.10935 */
    [ZOFF_MUON_CANS] = {5,
                        false,
                        {{8.4703f, -25.1081f, 18.6293f},
                         {4.1828f, -3.1087f, 0.5806f},
                         {3.9619f, -2.9541f, 0.5630f},
                         {3.2866f, -2.4647f, 0.5074f},
                         {2.2737f, -1.6447f, 0.4162f}}},
    /* DeepSeek-AI, "DeepSeek-V4", 2026 */
    [ZOFF_MUON_DEEPSEEKV4] = {10,
                              false,
                              {{3.4445f, -4.7750f, 2.0315f},
                               {3.4445f, -4.7750f, 2.0315f},
                               {3.4445f, -4.7750f, 2.0315f},
                               {3.4445f, -4.7750f, 2.0315f},
                               {3.4445f, -4.7750f, 2.0315f},
                               {3.4445f, -4.7750f, 2.0315f},
                               {3.4445f, -4.7750f, 2.0315f},
                               {3.4445f, -4.7750f, 2.0315f},
                               {2.0f, -1.5f, 0.5f},
                               {2.0f, -1.5f, 0.5f}}},
};

/* The stages of an iteration, in their order; the first two are before all iterations. A method has some of them. */
typedef enum stage { SUM, SCALE, RENEW, GRAM, SQUARE, NEXT_Q, NEXT_T, NEXT_R, APPLY, STAGE_COUNT } stage;

enum {
    CHUNK = 64 * 1024,      /* elements of a part of SUM and SCALE */
    LINE = 16,              /* elements of a cache line */
    TOTALS = 512 * 1024,    /* elements of a part's totals, where it has whole rows or columns */
    PART_FLOP = 1000000000, /* about as many operations has a part */
    TEAM_FLOP = 4000000,    /* a stage with fewer operations has one thread */
    HIGH = 32 * ZOFF_PRODUCT_ROWS,
    WIDE = 4 * ZOFF_PRODUCT_COLS, /* a part of a matrix that is not changed in place */
    COPY_COST = 32,               /* multiply-adds in the time in which an element of a factor is copied */
    SPAN_THREADS = 64,
};

static size_t least_side(const zoff_orthogonal *o)
{
    return zoff_base_bits_min(o->rows, o->cols);
}

static bool is_restart(unsigned iteration)
{
    return iteration % 3 == 2;
}

static bool has_stage(const zoff_orthogonal *o, stage s)
{
    const unsigned i = o->iteration, next = i + 1;
    const bool gram = o->consts.gram, ends = next == o->consts.steps;
    switch (s) {
    case SUM:
    case SCALE:
        return i == 0;
    case RENEW:
        return gram && is_restart(i);
    case GRAM:
        return !gram || i == 0 || is_restart(i);
    case NEXT_Q:
        return gram;
    case NEXT_T:
    case NEXT_R:
        return gram && !ends && !is_restart(next);
    case APPLY:
        return !gram || ends;
    case SQUARE:
    case STAGE_COUNT:
        break;
    }
    return true;
}

/* Whether Q is not multiplied, but begun. */
static bool begins_q(const zoff_orthogonal *o)
{
    return o->iteration == 0 || is_restart(o->iteration);
}

double zoff_adam_orthogonal_flop(const zoff_orthogonal *given)
{
    zoff_orthogonal o = *given;
    const double n = (double)least_side(&o), all = (double)o.rows * (double)o.cols;
    double flop = 0;
    for (o.iteration = 0; o.iteration < o.consts.steps; o.iteration++) {
        for (stage s = RENEW; s <= APPLY; s++) {
            if (has_stage(&o, s) && !(s == NEXT_Q && begins_q(&o)))
                flop += s == RENEW || s == APPLY ? 2 * n * all : s == GRAM ? n * all : n * n * n;
        }
    }
    return flop;
}

/* Columns, or rows, of a part that has all rows, or columns, `length` of them. */
static size_t thickness(size_t length, size_t unit)
{
    const size_t wanted = TOTALS / length / unit * unit;
    return zoff_base_bits_min(zoff_base_bits_max(wanted, zoff_base_bits_align(96, unit)), zoff_base_bits_align(512, unit));
}

/* Elements of the matrices in the scratch: n x n each, from a cache line on. */
static size_t matrix_elements(size_t n)
{
    return zoff_base_bits_align(n * n, LINE);
}

/* Elements of a thread's part of the scratch. */
static size_t thread_elements(size_t rows, size_t cols)
{
    const size_t n = zoff_base_bits_min(rows, cols);
    const size_t along = rows <= cols ? zoff_adam_product_scratch(n, thickness(n, ZOFF_PRODUCT_COLS))
                                      : zoff_adam_product_scratch(thickness(n, ZOFF_PRODUCT_ROWS), n);
    const size_t other = zoff_adam_product_scratch(zoff_base_bits_min(n, 2 * HIGH), WIDE);
    return zoff_base_bits_align(zoff_base_bits_max(along, other), LINE);
}

size_t zoff_adam_orthogonal_scratch(size_t rows, size_t cols, bool gram, unsigned threads)
{
    const size_t n = zoff_base_bits_min(rows, cols);
    return ((gram ? 4 : 2) * matrix_elements(n) + threads * thread_elements(rows, cols)) * sizeof(float);
}

/* ---- stages ---- */

/* A stage, as its threads see it. */
typedef struct work {
    zoff_orthogonal *o;
    const struct zoff_kernels *kernels;
    stage s;
    bool multiplies; /* the stage is `product`; otherwise a loop over elements or rows */
    zoff_product product;
    size_t parts;
    float *scratch; /* of thread 0 */
    zoff_adam_between between;
    bool (*stops)(void *ctx);
    void *ctx;
    atomic_size_t next;
    atomic_bool stopped;
} work;

static float *matrix(const zoff_orthogonal *o, unsigned index)
{
    return (float *)o->scratch + index * matrix_elements(least_side(o));
}

/* The matrices of the method gram. Q and T change places when Q is computed anew. */
static float *matrix_q(const zoff_orthogonal *o)
{
    return matrix(o, o->swapped ? 3 : 2);
}

static float *matrix_t(const zoff_orthogonal *o)
{
    return matrix(o, o->swapped ? 2 : 3);
}

static polynomial polynomial_of(const zoff_orthogonal *o)
{
    const unsigned count = SETS[o->consts.coefficients].count, i = o->iteration;
    return SETS[o->consts.coefficients].list[i < count ? i : SETS[o->consts.coefficients].repeats_all ? i % count : count - 1];
}

/* A product of symmetric matrices: `out` = `left` x `right`. The left factor is its own transpose, which is the faster one to
 * read. */
static zoff_product symmetric(const zoff_orthogonal *o, const float *left, const float *right, float *out)
{
    const size_t n = least_side(o);
    return (zoff_product){.rows = n,
                          .cols = n,
                          .depth = n,
                          .a_stride = n,
                          .b_stride = n,
                          .out_stride = n,
                          .a = left,
                          .a_turned = true,
                          .b = right,
                          .lower = true,
                          .product_by = 1,
                          .out = out};
}

static zoff_product with(zoff_product p, float add_by, const float *add, float product_by)
{
    p.add_by = add_by;
    p.add = add;
    p.product_by = product_by;
    return p;
}

/* The symmetric matrix of X, over its longer side. */
static zoff_product gram(const zoff_orthogonal *o)
{
    const bool wide = o->rows <= o->cols;
    zoff_product p = symmetric(o, o->x, o->x, matrix(o, 0));
    p.depth = wide ? o->cols : o->rows;
    p.a_stride = p.b_stride = o->cols;
    p.a_turned = !wide;
    p.b_turned = wide;
    return p;
}

/* X = `factor` x X, or X x `factor` where X has more rows than columns. */
static zoff_product apply(const zoff_orthogonal *o, const float *factor)
{
    const bool wide = o->rows <= o->cols;
    const size_t n = least_side(o);
    return (zoff_product){.rows = o->rows,
                          .cols = o->cols,
                          .depth = n,
                          .a_stride = n,
                          .b_stride = o->cols,
                          .out_stride = o->cols,
                          .a = wide ? factor : o->x,
                          .a_turned = wide,
                          .b = wide ? o->x : factor,
                          .product_by = 1,
                          .out = o->x};
}

static zoff_product product_of(const zoff_orthogonal *o)
{
    const polynomial k = polynomial_of(o);
    float *r = matrix(o, 0), *z = matrix(o, 1), *q = matrix_q(o), *t = matrix_t(o);
    switch ((stage)o->stage) {
    case GRAM:
        return gram(o);
    case SQUARE:
        return with(symmetric(o, r, r, z), k.b, r, k.c);
    case NEXT_Q:
        return with(symmetric(o, z, q, t), k.a, q, 1);
    case NEXT_T:
        return with(symmetric(o, z, r, t), k.a, r, 1);
    case NEXT_R:
        return with(symmetric(o, z, t, r), k.a, t, 1);
    default:
        break;
    }
    return o->consts.gram ? apply(o, q) : with(apply(o, z), k.a, o->x, 1);
}

/* Multiply-adds in the time of `threads` threads that take the parts one after the other. A part copies its rows of A and its
 * columns of B. */
static double span(const zoff_product *p, size_t part_rows, size_t part_cols, unsigned threads)
{
    double busy[SPAN_THREADS] = {0}, longest = 0;
    for (size_t left = 0; left < p->cols; left += part_cols) {
        for (size_t top = 0; top < p->rows; top += part_rows) {
            const size_t bottom = zoff_base_bits_min(p->rows, top + part_rows);
            const size_t right = zoff_base_bits_min(p->lower ? bottom : p->cols, left + part_cols);
            const size_t begin = p->lower ? zoff_base_bits_max(top, left) : top;
            unsigned first = 0;
            if (left >= right)
                continue;
            const double high = (double)(bottom - begin), wide = (double)(right - left);
            const double above = p->lower && right > begin ? (double)(right - begin) : 0;
            for (unsigned i = 1; i < threads; i++)
                first = busy[i] < busy[first] ? i : first;
            busy[first] += high * wide - above * above / 2 + COPY_COST * (high + wide);
            longest = busy[first] > longest ? busy[first] : longest;
        }
    }
    return longest;
}

/* Choose the parts of a stage when it begins: those with which the threads are done first. One thread has the largest ones. */
static void cut(zoff_orthogonal *o, const zoff_product *p, unsigned threads)
{
    const bool tall = !p->lower && o->rows > o->cols;
    const size_t unit = tall ? ZOFF_PRODUCT_ROWS : ZOFF_PRODUCT_COLS;
    const size_t all = zoff_base_bits_align(tall ? p->rows : p->cols, unit);
    const size_t most = zoff_base_bits_min(all, p->lower ? WIDE : thickness(least_side(o), unit));
    double least = INFINITY;
    for (size_t thick = most; thick > 0; thick -= unit) {
        for (size_t high = 2 * HIGH; high >= HIGH / 2; high /= 2) {
            const size_t rows = tall ? thick : p->lower ? high : p->rows, cols = tall ? p->cols : thick;
            if (p->lower && high > HIGH && p->depth > PART_FLOP / (2 * HIGH * WIDE))
                continue;
            const double time = threads > 1 ? span(p, rows, cols, threads < SPAN_THREADS ? threads : SPAN_THREADS) : 0;
            if (time < least) {
                least = time;
                o->part_rows = rows;
                o->part_cols = cols;
            }
        }
    }
}

static void sum_chunk(const struct zoff_kernels *kernels, zoff_orthogonal *o, size_t first, size_t count)
{
    double sums[CHUNK / ZOFF_NORM_BLOCK];
    const zoff_norm_piece piece = {.count = count, .grad = o->x + first, .dtype = ZOFF_F32, .block_sums = sums};
    kernels->square_sum(&piece, 0, count);
    for (size_t i = 0; i < zoff_base_bits_ceil_div(count, ZOFF_NORM_BLOCK); i++)
        o->sum += sums[i];
}

static void scale_chunk(const zoff_orthogonal *o, size_t first, size_t count)
{
    const double factor = 1 / (sqrt(o->sum) + 1e-7);
    float *x = o->x + first;
    for (size_t i = 0; i < count; i++)
        x[i] = (float)((double)x[i] * factor);
}

/* The first Q of a run of iterations: Z + a I. */
static void begin_q(const zoff_orthogonal *o)
{
    const size_t n = least_side(o);
    float *q = matrix_q(o);
    memcpy(q, matrix(o, 1), n * n * sizeof *q);
    for (size_t i = 0; i < n; i++)
        q[i * n + i] += polynomial_of(o).a;
}

static void run_part(const work *w, size_t part, unsigned thread)
{
    zoff_orthogonal *o = w->o;
    const size_t first = part * CHUNK, count = zoff_base_bits_min(CHUNK, o->rows * o->cols - first);
    if (w->multiplies) {
        zoff_product own = w->product;
        own.scratch = w->scratch + thread * thread_elements(o->rows, o->cols);
        w->kernels->product(&own, part, 1);
    } else if (w->s == SUM)
        sum_chunk(w->kernels, o, first, count);
    else if (w->s == SCALE)
        scale_chunk(o, first, count);
    else
        begin_q(o);
}

static void run_share(void *ctx, unsigned thread, unsigned threads)
{
    work *w = ctx;
    while (!atomic_load_explicit(&w->stopped, memory_order_relaxed)) {
        const size_t part = atomic_fetch_add_explicit(&w->next, 1, memory_order_relaxed);
        if (part >= w->parts)
            return;
        run_part(w, part, thread);
        if (thread == 0 && w->between)
            w->between(w->ctx);
        if (thread == 0 && w->stops && w->stops(w->ctx))
            atomic_store_explicit(&w->stopped, true, memory_order_relaxed);
    }
}

/* Fill in the stage that is next. */
static void prepare(work *w, unsigned *threads)
{
    zoff_orthogonal *o = w->o;
    double flop = 0;
    w->s = (stage)o->stage;
    w->multiplies = w->s >= RENEW && !(w->s == NEXT_Q && begins_q(o));
    if (w->multiplies) {
        zoff_product *p = &w->product;
        *p = product_of(o);
        flop = 2.0 * (double)p->rows * (double)p->cols * (double)p->depth;
        if (o->part == 0)
            cut(o, p, flop >= TEAM_FLOP ? *threads : 1);
        p->part_rows = o->part_rows;
        p->part_cols = o->part_cols;
        w->parts = zoff_base_bits_ceil_div(p->rows, p->part_rows) * zoff_base_bits_ceil_div(p->cols, p->part_cols);
    } else {
        w->parts = w->s == NEXT_Q ? 1 : zoff_base_bits_ceil_div(o->rows * o->cols, CHUNK);
        flop = w->s == SCALE ? 16.0 * (double)o->rows * (double)o->cols : 0; /* a sum has an order */
    }
    if (flop < TEAM_FLOP)
        *threads = 1;
}

/* Go on to the next stage that the method has. */
static void advance(zoff_orthogonal *o)
{
    if (o->stage == NEXT_Q && !begins_q(o))
        o->swapped = !o->swapped;
    o->part = 0;
    do {
        if (++o->stage == STAGE_COUNT) {
            o->stage = SUM;
            o->iteration++;
        }
    } while (o->iteration < o->consts.steps && !has_stage(o, (stage)o->stage));
}

zoff_status zoff_adam_orthogonal_run(unsigned threads, zoff_orthogonal *o, zoff_adam_between between, bool (*stops)(void *ctx),
                                     void *ctx)
{
    work w = {.o = o, .kernels = zoff_adam_dispatch_kernels(), .between = between, .stops = stops, .ctx = ctx};
    w.scratch = matrix(o, o->consts.gram ? 4 : 2);
    while (o->iteration < o->consts.steps && !atomic_load_explicit(&w.stopped, memory_order_relaxed)) {
        unsigned team = threads;
        prepare(&w, &team);
        atomic_store_explicit(&w.next, o->part, memory_order_relaxed);
        zoff_base_team_run(team, run_share, &w);
        o->part = zoff_base_bits_min(atomic_load_explicit(&w.next, memory_order_relaxed), w.parts);
        if (o->part == w.parts)
            advance(o);
    }
    return o->iteration < o->consts.steps ? ZOFF_PENDING : ZOFF_OK;
}
