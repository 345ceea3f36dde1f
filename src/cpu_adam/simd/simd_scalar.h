/* simd_scalar.h: the vocabulary with one lane, for any CPU. It says what every other vocabulary must compute.
 *
 * `left` is the count of elements remaining at `p`: min(left, v_lanes()) of them are read or written, no byte beyond.
 * Lanes that were not read are zero. */
#ifndef ZOFF_SIMD_SCALAR_H
#define ZOFF_SIMD_SCALAR_H

#include "kernels.h"

#include <math.h>
#include <string.h>

typedef float v_f;

ZOFF_KERNEL_INLINE size_t v_lanes(void)
{
    return 1;
}

ZOFF_KERNEL_INLINE v_f v_set1(float x)
{
    return x;
}

ZOFF_KERNEL_INLINE v_f v_load(const float *p, size_t left)
{
    (void)left;
    return *p;
}

ZOFF_KERNEL_INLINE void v_store(float *p, v_f x, size_t left)
{
    (void)left;
    *p = x;
}

ZOFF_KERNEL_INLINE v_f v_load_bf16(const uint16_t *p, size_t left)
{
    (void)left;
    uint32_t bits = (uint32_t)*p << 16;
    v_f x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Round to nearest even by integer arithmetic, as subnormals need it; every NaN becomes 0x7fc0. */
ZOFF_KERNEL_INLINE void v_store_bf16(uint16_t *p, v_f x, size_t left)
{
    (void)left;
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    *p = (uint16_t)(x != x ? 0x7fc0u : rounded);
}

ZOFF_KERNEL_INLINE v_f v_add(v_f a, v_f b)
{
    return a + b;
}

ZOFF_KERNEL_INLINE v_f v_mul(v_f a, v_f b)
{
    return a * b;
}

ZOFF_KERNEL_INLINE v_f v_div(v_f a, v_f b)
{
    return a / b;
}

ZOFF_KERNEL_INLINE v_f v_sqrt(v_f a)
{
    return sqrtf(a);
}

/* a * b + c, rounded once. */
ZOFF_KERNEL_INLINE v_f v_fma(v_f a, v_f b, v_f c)
{
    return fmaf(a, b, c);
}

/* ZOFF_ADAM_SUM_LANES running sums in fp64. The square of an fp32 value is exact there, fused or not. */
typedef struct v_sum {
    double lane[ZOFF_ADAM_SUM_LANES];
} v_sum;

ZOFF_KERNEL_INLINE v_sum v_sum_zero(void)
{
    return (v_sum){{0}};
}

/* Add the squares of the next min(left, ZOFF_ADAM_SUM_LANES) elements, one to each lane. */
ZOFF_KERNEL_INLINE v_sum v_sum_squares(v_sum sum, const float *p, size_t left)
{
    for (size_t l = 0; l < ZOFF_ADAM_SUM_LANES && l < left; l++)
        sum.lane[l] += (double)p[l] * (double)p[l];
    return sum;
}

ZOFF_KERNEL_INLINE v_sum v_sum_squares_bf16(v_sum sum, const uint16_t *p, size_t left)
{
    for (size_t l = 0; l < ZOFF_ADAM_SUM_LANES && l < left; l++) {
        double x = (double)v_load_bf16(p + l, 1);
        sum.lane[l] += x * x;
    }
    return sum;
}

ZOFF_KERNEL_INLINE double v_sum_total(v_sum sum)
{
    for (size_t half = ZOFF_ADAM_SUM_LANES / 2; half; half /= 2) {
        for (size_t l = 0; l < half; l++)
            sum.lane[l] += sum.lane[l + half];
    }
    return sum.lane[0];
}

#endif
