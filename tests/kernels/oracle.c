/* oracle.c: textbook loops. Fused multiply-adds are calls of fmaf(), and this file is compiled without contraction. */
#include "oracle.h"

#include <math.h>
#include <string.h>

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

float oracle_from_bf16(uint16_t bits)
{
    return float_of((uint32_t)bits * 65536u);
}

/* The value of a bf16 magnitude as the rounding sees it: the pattern of infinity stands for the next power of two. */
static double bf16_magnitude(uint32_t bits)
{
    return bits == 0x7f80u ? ldexp(1.0, 128) : (double)oracle_from_bf16((uint16_t)bits);
}

uint16_t oracle_to_bf16(float x)
{
    if (isnan(x))
        return 0x7fc0;
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    if (isinf(x))
        return (uint16_t)(sign | 0x7f80);
    double magnitude = fabs((double)x);
    /* The largest bf16 that is not above the magnitude, by bisection over the patterns, which are in order. */
    uint32_t low = 0, high = 0x7f80;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (bf16_magnitude(middle) <= magnitude)
            low = middle;
        else
            high = middle;
    }
    double below = magnitude - bf16_magnitude(low);
    double above = bf16_magnitude(high) - magnitude;
    uint32_t nearest = below < above || (below == above && low % 2 == 0) ? low : high;
    return (uint16_t)(sign | nearest);
}

void oracle_adam(const zoff_adam_hyper *hyper, int64_t t, double grad_scale, size_t n, float *p, float *m, float *v,
                 const float *g, const uint16_t *g16, uint16_t *copy16)
{
    const float beta1 = (float)hyper->beta1, beta2 = (float)hyper->beta2;
    const float rest1 = (float)(1 - hyper->beta1), rest2 = (float)(1 - hyper->beta2);
    const float inv_root = (float)(1 / sqrt(1 - pow(hyper->beta2, (double)t)));
    const float rate = (float)(-hyper->lr / (1 - pow(hyper->beta1, (double)t)));
    const float shrink = (float)(-hyper->lr * hyper->weight_decay);
    for (size_t i = 0; i < n; i++) {
        float grad = (g16 ? oracle_from_bf16(g16[i]) : g[i]) * (float)grad_scale;
        if (hyper->decay == ZOFF_DECAY_L2 && hyper->weight_decay != 0)
            grad = fmaf((float)hyper->weight_decay, p[i], grad);
        m[i] = fmaf(rest1, grad, beta1 * m[i]);
        float scaled = rest2 * grad;
        v[i] = fmaf(scaled, grad, beta2 * v[i]);
        float update = m[i] / fmaf(sqrtf(v[i]), inv_root, (float)hyper->eps);
        if (hyper->decay == ZOFF_DECAY_DECOUPLED && hyper->weight_decay != 0)
            p[i] = fmaf(shrink, p[i], p[i]);
        p[i] = fmaf(rate, update, p[i]);
        if (copy16)
            copy16[i] = oracle_to_bf16(p[i]);
    }
}

double oracle_square_sum(size_t n, const float *g, const uint16_t *g16)
{
    double lane[16];
    for (size_t l = 0; l < 16; l++) {
        lane[l] = 0;
        for (size_t i = l; i < n; i += 16) {
            double x = g16 ? oracle_from_bf16(g16[i]) : g[i];
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

void oracle_accumulate(size_t n, float *sum, const float *g, const uint16_t *g16, int first)
{
    for (size_t i = 0; i < n; i++) {
        float grad = g16 ? oracle_from_bf16(g16[i]) : g[i];
        sum[i] = first ? grad : sum[i] + grad;
    }
}
