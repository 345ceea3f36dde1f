/* SPDX-License-Identifier: Apache-2.0 */
/* oracle.c: textbook loops. Fused multiply-adds are explicit calls of fmaf(); this file is compiled without contraction. */
#include "oracle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* 2^exponent */
static double power_of_two(int exponent)
{
    uint64_t bits = (uint64_t)(exponent + 1023) << 52;
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* A 16-bit binary format as in IEEE 754: a sign, an exponent, and a fraction of so many bits. */
struct format {
    unsigned fraction_bits;
    int bias;
    uint32_t infinity; /* the pattern of infinity; larger ones are NaN */
    uint16_t nan;
};
static const struct format BF16 = {7, 127, 0x7f80, 0x7fc0}, F16 = {10, 15, 0x7c00, 0x7e00};

/* The magnitude of a pattern without its sign. For infinity it is the next power of two, as rounding needs it. */
static double magnitude_of(const struct format *f, uint32_t pattern)
{
    const uint32_t one = 1u << f->fraction_bits, fraction = pattern % one;
    const int exponent = (int)(pattern / one), scale = -f->bias - (int)f->fraction_bits;
    return exponent == 0 ? fraction * power_of_two(1 + scale) : (one + fraction) * power_of_two(exponent + scale);
}

static float widen(const struct format *f, uint16_t bits)
{
    const uint32_t pattern = bits & 0x7fffu;
    const float size = pattern == f->infinity ? INFINITY : (float)magnitude_of(f, pattern);
    return bits & 0x8000u ? -size : size;
}

/* Bisect for the largest pattern whose value is not above a magnitude below infinity. Patterns are ordered like their values,
 * and its exponent is that of the magnitude or, for subnormal ones, 0. */
static uint32_t pattern_below(const struct format *f, double magnitude)
{
    const int exponent = magnitude > 0 ? ilogb(magnitude) + f->bias : 0;
    uint32_t low = exponent > 0 ? (uint32_t)exponent << f->fraction_bits : 0, high = low + (1u << f->fraction_bits);
    while (high - low > 1) {
        const uint32_t middle = (low + high) / 2;
        if (magnitude_of(f, middle) <= magnitude)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static uint16_t narrow(const struct format *f, float x, bool ties_go_to_even)
{
    if (isnan(x))
        return f->nan;
    const uint16_t sign = signbit(x) ? 0x8000 : 0;
    const double magnitude = fabs((double)x);
    if (magnitude >= magnitude_of(f, f->infinity))
        return (uint16_t)(sign | f->infinity);
    const uint32_t low = pattern_below(f, magnitude), high = low + 1;
    const double below = magnitude - magnitude_of(f, low), above = magnitude_of(f, high) - magnitude;
    const bool down = below < above || (below == above && ties_go_to_even && low % 2 == 0);
    const uint32_t nearest = down ? low : high;
    return (uint16_t)(sign | nearest);
}

float oracle_from_bf16(uint16_t bits)
{
    if ((bits & 0x7fffu) > BF16.infinity)
        return float_of((uint32_t)bits << 16);
    return widen(&BF16, bits);
}

float oracle_from_f16(uint16_t bits)
{
    if ((bits & 0x7fffu) > F16.infinity)
        return float_of((uint32_t)(bits & 0x8000u) << 16 | 0x7fc00000u | (uint32_t)(bits & 0x3ffu) << 13);
    return widen(&F16, bits);
}

uint16_t oracle_to_bf16(float x)
{
    return narrow(&BF16, x, false);
}

uint16_t oracle_to_f16(float x)
{
    return narrow(&F16, x, true);
}

/* The finalizer of MurmurHash3. */
static uint32_t hash_of(uint32_t x)
{
    x ^= x >> 16;
    x *= 2246822507u;
    x ^= x >> 13;
    x *= 3266489909u;
    return x ^ x >> 16;
}

unsigned oracle_dither(unsigned moment, uint64_t block, size_t lane, int64_t t)
{
    const uint32_t a = hash_of((uint32_t)(block % 4294967296u)), b = hash_of((uint32_t)(block / 4294967296u) ^ a);
    const uint32_t of_block = moment ? hash_of(b) : a ^ b, of_lane = hash_of((uint32_t)(lane + 1 + 1024 * moment));
    const uint32_t of_step = (uint32_t)((uint64_t)t * 2654435769u);
    return (of_lane / 65536 + (of_block + of_step) / 65536) % 65536;
}

uint16_t oracle_dither_bf16(float x, unsigned moment, uint64_t block, size_t lane, int64_t t)
{
    if (isnan(x))
        return BF16.nan;
    const uint16_t sign = signbit(x) ? 0x8000 : 0;
    if (isinf(x))
        return (uint16_t)(sign | BF16.infinity);
    const double random = (double)oracle_dither(moment, block, lane, t) / 65536; /* number in [0, 1) */
    const double magnitude = fabs((double)x);
    const uint32_t low = pattern_below(&BF16, magnitude);
    const double from = magnitude_of(&BF16, low), to = magnitude_of(&BF16, low + 1);
    return (uint16_t)(sign | (low + ((magnitude - from) / (to - from) + random >= 1)));
}

float oracle_load(const void *array, zoff_dtype dtype, size_t i)
{
    if (dtype == ZOFF_BF16)
        return oracle_from_bf16(((const uint16_t *)array)[i]);
    if (dtype == ZOFF_F16)
        return oracle_from_f16(((const uint16_t *)array)[i]);
    return ((const float *)array)[i];
}

void oracle_store(void *array, zoff_dtype dtype, size_t i, float x)
{
    if (dtype == ZOFF_BF16)
        ((uint16_t *)array)[i] = oracle_to_bf16(x);
    else if (dtype == ZOFF_F16)
        ((uint16_t *)array)[i] = oracle_to_f16(x);
    else
        ((float *)array)[i] = x;
}

/* The constants of all rules, computed in double and rounded once. */
struct constants {
    float beta1, rest1, beta2, rest2, eps, inv_root, rate, shrink, weight_decay, momentum, take;
    int first; /* true in step 1 */
};

/* The sum of the weights (1 - beta) * beta^k of t gradients in a moment, with both factors as rounded to fp32. */
static double weights_of(float rest, float beta, int64_t t)
{
    if (beta == 1)
        return rest * (double)t;
    return rest * (1 - pow(beta, (double)t)) / (1 - (double)beta);
}

static struct constants constants_of(const zoff_optimizer_hyper *h, int64_t t)
{
    struct constants c = {
        .beta1 = (float)h->beta1,
        .rest1 = (float)(1 - h->beta1),
        .beta2 = (float)h->beta2,
        .rest2 = (float)(1 - h->beta2),
        .eps = (float)h->eps,
        .rate = (float)-h->lr,
        .shrink = (float)(-h->lr * h->weight_decay),
        .weight_decay = (float)h->weight_decay,
        .momentum = (float)h->momentum,
        .take = (float)(1 - h->dampening),
        .first = t == 1,
    };
    const double adam_lr = h->optimizer == ZOFF_OPTIMIZER_MUON ? h->adam_lr : h->lr;
    if (h->optimizer == ZOFF_OPTIMIZER_MUON) {
        c.rate = (float)-adam_lr;
        c.shrink = (float)(-adam_lr * h->weight_decay);
    }
    if (h->optimizer == ZOFF_OPTIMIZER_ADAM && h->flags & ZOFF_HYPER_NO_BIAS_CORRECTION)
        c.inv_root = 1;
    else if (h->optimizer == ZOFF_OPTIMIZER_ADAM || h->optimizer == ZOFF_OPTIMIZER_MUON) {
        c.inv_root = (float)(1 / sqrt(weights_of(c.rest2, c.beta2, t)));
        c.rate = (float)(-adam_lr / weights_of(c.rest1, c.beta1, t));
    }
    if (h->optimizer == ZOFF_OPTIMIZER_ADAGRAD)
        c.rate = (float)(-h->lr / (1 + (double)(t - 1) * h->lr_decay));
    return c;
}

static float adam(const zoff_optimizer_hyper *h, const struct constants *c, float p, float g, float *m, float *v)
{
    if (h->weight_decay != 0 && h->decay == ZOFF_DECAY_L2)
        g = fmaf(c->weight_decay, p, g);
    *m = fmaf(c->rest1, g, c->beta1 * *m);
    const float part = c->rest2 * g;
    *v = fmaf(part, g, c->beta2 * *v);
    const float u = *m / fmaf(sqrtf(*v), c->inv_root, c->eps);
    if (h->weight_decay != 0 && h->decay == ZOFF_DECAY_DECOUPLED)
        return p + fmaf(c->rate, u, c->shrink * p);
    return fmaf(c->rate, u, p);
}

static float adagrad(const zoff_optimizer_hyper *h, const struct constants *c, float p, float g, float *v)
{
    if (h->weight_decay != 0)
        g = fmaf(c->weight_decay, p, g);
    *v = fmaf(g, g, *v);
    return fmaf(c->rate, g / (sqrtf(*v) + c->eps), p);
}

static float sign_of(float x)
{
    if (isnan(x))
        return x;
    return (float)((x > 0) - (x < 0));
}

static float lion(const zoff_optimizer_hyper *h, const struct constants *c, float p, float g, float *m)
{
    const float u = sign_of(fmaf(c->rest1, g, c->beta1 * *m));
    *m = fmaf(c->rest2, g, c->beta2 * *m);
    if (h->weight_decay != 0)
        return p + fmaf(c->rate, u, c->shrink * p);
    return fmaf(c->rate, u, p);
}

static float sgd(const zoff_optimizer_hyper *h, const struct constants *c, float p, float g, float *m)
{
    if (h->weight_decay != 0)
        g = fmaf(c->weight_decay, p, g);
    float u = g;
    if (h->momentum != 0) {
        *m = c->first ? g : fmaf(c->take, g, c->momentum * *m);
        u = h->nesterov ? fmaf(c->momentum, *m, g) : *m;
    }
    return fmaf(c->rate, u, p);
}

void oracle_step(const zoff_optimizer_hyper *hyper, int64_t t, double grad_scale, const zoff_optimizer_tensor *tensor)
{
    const struct constants c = constants_of(hyper, t);
    const zoff_dtype copy_dtype = tensor->copy_dtype ? tensor->copy_dtype : ZOFF_BF16;
    for (size_t i = 0; i < tensor->count; i++) {
        const float g = oracle_load(tensor->grad, tensor->grad_dtype, i) * (float)grad_scale;
        float p = oracle_load(tensor->master, tensor->master_dtype, i);
        switch (hyper->optimizer) {
        case ZOFF_OPTIMIZER_ADAM:
        case ZOFF_OPTIMIZER_MUON:
            p = adam(hyper, &c, p, g, &tensor->m[i], &tensor->v[i]);
            break;
        case ZOFF_OPTIMIZER_ADAGRAD:
            p = adagrad(hyper, &c, p, g, &tensor->v[i]);
            break;
        case ZOFF_OPTIMIZER_LION:
            p = lion(hyper, &c, p, g, &tensor->m[i]);
            break;
        case ZOFF_OPTIMIZER_SGD:
            p = sgd(hyper, &c, p, g, tensor->m ? &tensor->m[i] : NULL);
            break;
        case ZOFF_OPTIMIZER_KEEP:
            break;
        }
        oracle_store(tensor->master, tensor->master_dtype, i, p);
        if (tensor->copy_out)
            oracle_store(tensor->copy_out, copy_dtype, i, p);
    }
}

void oracle_muon_pass(const zoff_optimizer_hyper *h, int is_after, double scale, double grad_scale,
                      const zoff_optimizer_tensor *tensor)
{
    const float keep = (float)h->momentum, rest = (float)(1 - h->momentum);
    const float rate = (float)(-h->lr * scale), shrink = (float)(-h->lr * h->weight_decay);
    const zoff_dtype copy_dtype = tensor->copy_dtype ? tensor->copy_dtype : ZOFF_BF16;
    for (size_t i = 0; i < tensor->count; i++) {
        const float g = oracle_load(tensor->grad, tensor->grad_dtype, i) * (is_after ? 1 : (float)grad_scale);
        float p = oracle_load(tensor->master, tensor->master_dtype, i);
        if (is_after)
            p = h->weight_decay != 0 ? p + fmaf(rate, g, shrink * p) : fmaf(rate, g, p);
        else {
            tensor->m[i] = fmaf(rest, g, keep * tensor->m[i]);
            p = h->nesterov ? fmaf(rest, g, keep * tensor->m[i]) : tensor->m[i];
        }
        oracle_store(tensor->master, tensor->master_dtype, i, p);
        if (tensor->copy_out)
            oracle_store(tensor->copy_out, copy_dtype, i, p);
    }
}

float oracle_product(oracle_matrix a, oracle_matrix b, size_t i, size_t j, size_t depth)
{
    float total = 0;
    for (size_t begin = 0; begin < depth; begin += 256) {
        float s = 0;
        for (size_t k = begin; k < depth && k < begin + 256; k++)
            s = fmaf(a.at[i * a.down + k * a.across], b.at[k * b.down + j * b.across], s);
        total = begin ? total + s : s;
    }
    return total;
}

/* out = product_by x product(a, b) + add_by x add for symmetric n x n matrices, by the lower triangle. */
static void multiply_symmetric(size_t n, size_t depth, oracle_matrix a, oracle_matrix b, float product_by, float add_by,
                               const float *add, float *out)
{
    float *sums = malloc(n * n * sizeof *sums);
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j <= i; j++) {
            float x = oracle_product(a, b, i, j, depth);
            if (add && product_by == 1)
                x = fmaf(add_by, add[i * n + j], x);
            else if (add)
                x = fmaf(product_by, x, add_by * add[i * n + j]);
            sums[i * n + j] = sums[j * n + i] = x;
        }
    }
    memcpy(out, sums, n * n * sizeof *sums);
    free(sums);
}

/* X = left x X, or X x left; with `add_by` times X itself if that is not 0. */
static void apply(size_t rows, size_t cols, float *x, const float *factor, float add_by)
{
    const int wide = rows <= cols;
    const size_t n = wide ? rows : cols;
    const oracle_matrix of_x = {x, cols, 1}, of_factor = {factor, n, 1};
    float *out = malloc(rows * cols * sizeof *out);
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < cols; j++) {
            const float p = wide ? oracle_product(of_factor, of_x, i, j, n) : oracle_product(of_x, of_factor, i, j, n);
            out[i * cols + j] = add_by != 0 ? fmaf(add_by, x[i * cols + j], p) : p;
        }
    }
    memcpy(x, out, rows * cols * sizeof *out);
    free(out);
}

void oracle_polynomial(zoff_muon_coefficients set, unsigned i, double out[3])
{
    static const double QUINTIC[][3] = {{4.0848, -6.8946, 2.9270},
                                        {3.9505, -6.3029, 2.6377},
                                        {3.7418, -5.5913, 2.3037},
                                        {2.8769, -3.1427, 1.2046},
                                        {2.8366, -3.0525, 1.2012}};
    static const double POLAR[][3] = {{8.2051, -22.9019, 16.4607}, {4.0664, -2.8612, 0.5184}, {3.9096, -2.8234, 0.5250},
                                      {3.2856, -2.4153, 0.4853},   {2.2779, -1.6198, 0.3985}, {1.8726, -1.2307, 0.3585},
                                      {1.8564, -1.2132, 0.3568},   {1.8750, -1.2500, 0.3750}};
    static const double CANS[][3] = {{8.4703, -25.1081, 18.6293},
                                     {4.1828, -3.1087, 0.5806},
                                     {3.9619, -2.9541, 0.5630},
                                     {3.2866, -2.4647, 0.5074},
                                     {2.2737, -1.6447, 0.4162}};
    static const double SIMPLE[3] = {3.4445, -4.7750, 2.0315}, LAST[3] = {2, -1.5, 0.5};
    const double *found = set == ZOFF_MUON_QUINTIC         ? QUINTIC[i % 5]
                          : set == ZOFF_MUON_POLAR_EXPRESS ? POLAR[i < 8 ? i : 7]
                          : set == ZOFF_MUON_CANS          ? CANS[i < 5 ? i : 4]
                          : set == ZOFF_MUON_DEEPSEEKV4    ? (i < 8 ? SIMPLE : LAST)
                                                           : SIMPLE;
    memcpy(out, found, 3 * sizeof *out);
}

/* out = a b, or with `turned` a b^T */
static void multiply_exact(size_t rows, size_t cols, size_t depth, const double *a, const double *b, int turned, double *out)
{
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < cols; j++) {
            double s = 0;
            for (size_t k = 0; k < depth; k++)
                s += a[i * depth + k] * (turned ? b[j * depth + k] : b[k * cols + j]);
            out[i * cols + j] = s;
        }
    }
}

void oracle_orthogonal_exact(size_t rows, size_t cols, double *x, zoff_muon_coefficients set, unsigned steps)
{
    double *s = malloc(rows * rows * sizeof *s), *s2 = malloc(rows * rows * sizeof *s), *y = malloc(rows * cols * sizeof *y);
    double f = 0;
    for (size_t i = 0; i < rows * cols; i++)
        f += x[i] * x[i];
    for (size_t i = 0; i < rows * cols; i++)
        x[i] /= sqrt(f) + 1e-7;
    for (unsigned step = 0; step < steps; step++) {
        double k[3];
        oracle_polynomial(set, step, k);
        multiply_exact(rows, rows, cols, x, x, 1, s);
        multiply_exact(rows, rows, rows, s, s, 0, s2);
        for (size_t i = 0; i < rows * rows; i++)
            s[i] = k[1] * s[i] + k[2] * s2[i];
        multiply_exact(rows, cols, rows, s, x, 0, y);
        for (size_t i = 0; i < rows * cols; i++)
            x[i] = k[0] * x[i] + y[i];
    }
    free(s);
    free(s2);
    free(y);
}

void oracle_orthogonal(size_t rows, size_t cols, float *x, zoff_muon_coefficients set, unsigned steps, int gram)
{
    const int wide = rows <= cols;
    const size_t n = wide ? rows : cols, m = wide ? cols : rows, bytes = n * n * sizeof(float);
    const oracle_matrix left = wide ? (oracle_matrix){x, cols, 1} : (oracle_matrix){x, 1, cols};
    const oracle_matrix right = wide ? (oracle_matrix){x, 1, cols} : (oracle_matrix){x, cols, 1};
    float *r = malloc(bytes), *z = malloc(bytes), *q = malloc(bytes), *t = malloc(bytes);
    const oracle_matrix of_r = {r, n, 1}, of_z = {z, n, 1}, of_q = {q, n, 1}, of_t = {t, n, 1};
    double f = 0;
    for (size_t begin = 0; begin < rows * cols; begin += 1024)
        f += oracle_square_sum(x, ZOFF_F32, begin, rows * cols - begin < 1024 ? rows * cols - begin : 1024);
    for (size_t i = 0; i < rows * cols; i++)
        x[i] = (float)((double)x[i] * (1 / (sqrt(f) + 1e-7)));
    for (unsigned step = 0; step < steps; step++) {
        double k[3];
        oracle_polynomial(set, step, k);
        const float a = (float)k[0], b = (float)k[1], c = (float)k[2];
        const int begins = !gram || step == 0 || step % 3 == 2, ends = step + 1 == steps;
        if (gram && step % 3 == 2)
            apply(rows, cols, x, q, 0);
        if (begins)
            multiply_symmetric(n, m, left, right, 1, 0, NULL, r);
        multiply_symmetric(n, n, of_r, of_r, c, b, r, z);
        if (!gram) {
            apply(rows, cols, x, z, a);
            continue;
        }
        if (begins) {
            memcpy(q, z, bytes);
            for (size_t i = 0; i < n; i++)
                q[i * n + i] += a;
        } else {
            multiply_symmetric(n, n, of_z, of_q, 1, a, q, q);
        }
        if (!ends && (step + 1) % 3 != 2) {
            multiply_symmetric(n, n, of_z, of_r, 1, a, r, t);
            multiply_symmetric(n, n, of_z, of_t, 1, a, t, r);
        }
        if (ends)
            apply(rows, cols, x, q, 0);
    }
    free(r);
    free(z);
    free(q);
    free(t);
}

double oracle_square_sum(const void *grad, zoff_dtype dtype, size_t begin, size_t count)
{
    double lane[16];
    for (size_t l = 0; l < 16; l++) {
        lane[l] = 0;
        for (size_t i = l; i < count; i += 16) {
            const double x = oracle_load(grad, dtype, begin + i);
            lane[l] += x * x;
        }
    }
    double s8[8], s4[4], s2[2];
    for (size_t l = 0; l < 8; l++)
        s8[l] = lane[l] + lane[l + 8];
    for (size_t l = 0; l < 4; l++)
        s4[l] = s8[l] + s8[l + 4];
    for (size_t l = 0; l < 2; l++)
        s2[l] = s4[l] + s4[l + 2];
    return s2[0] + s2[1];
}

void oracle_accumulate(float *sum, size_t count, const oracle_gradients *g)
{
    for (size_t i = 0; i < count; i++) {
        for (size_t source = 0; source < g->sources; source++) {
            const float x = oracle_load((const char *)g->first + source * g->stride, g->dtype, i);
            const float weight = g->weights ? g->weights[source] : 1.0f;
            const bool starts = g->starts_sum && source == 0;
            if (weight == 0) /* weight 0: the gradient counts as zeros, even if it has inf or nan */
                sum[i] = starts ? 0 : sum[i];
            else
                sum[i] = starts ? weight * x : fmaf(weight, x, sum[i]);
        }
    }
}

/* ---- the rule "exact" ---- */

/* x / 2^shift, rounded to nearest even. */
static int64_t nearest(int64_t x, int shift)
{
    if (shift <= 0)
        return x * ((int64_t)1 << -shift);
    if (shift > 62)
        return 0;
    const int64_t one = (int64_t)1 << shift, below = x >> shift, rest = x - below * one;
    return below + (2 * rest > one || (2 * rest == one && below % 2 != 0));
}

void oracle_bins_join(oracle_bins *sum, oracle_bins part)
{
    const unsigned top = part.top > sum->top ? part.top : sum->top;
    const unsigned lift = top - sum->top, other = top - part.top;
    sum->lo = (lift == 0 ? sum->lo : lift == 1 ? sum->hi : 0) + (other == 0 ? part.lo : other == 1 ? part.hi : 0);
    sum->hi = (lift == 0 ? sum->hi : 0) + (other == 0 ? part.hi : 0);
    sum->top = top;
    if (top == 15)
        sum->hi = sum->lo = 0;
}

void oracle_bins_add(oracle_bins *sum, float grad, float weight)
{
    const float x = weight * grad;
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const int exponent = (int)(bits >> 23 & 0xff), top = exponent == 255 ? 15 : exponent < 19 ? 1 : (exponent + 1) / 20;
    if (weight == 0)
        return;
    /* |x| is size * 2^(scale - 150), and a unit of bin t is 2^(20 t - 127). The digits are those of the bin of the whole. */
    const int scale = exponent ? exponent : 1, bin = top > (int)sum->top ? top : (int)sum->top;
    const int64_t size = (int64_t)(bits & 0x7fffffu) + (exponent ? 0x800000 : 0), sign = bits >> 31 ? -1 : 1;
    const int shift = 20 * bin + 23 - scale;
    const int64_t hi = nearest(size, shift), rest = hi ? size - hi * ((int64_t)1 << shift) : size;
    oracle_bins_join(sum, (oracle_bins){sign * hi, sign * nearest(rest, shift - 20), (unsigned)bin});
}

float oracle_bins_value(oracle_bins sum)
{
    const int64_t whole = sum.hi * (1 << 20) + sum.lo;
    int64_t size = whole < 0 ? -whole : whole;
    int scale = 20 * (int)sum.top - 147, excess = 0;
    while (size >> excess >= 1 << 24)
        excess++;
    size = nearest(size, excess);
    return sum.top == 15 ? float_of(0x7fc00000) : ldexpf(whole < 0 ? -(float)size : (float)size, scale + excess);
}
