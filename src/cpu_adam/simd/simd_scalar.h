/* SPDX-License-Identifier: Apache-2.0 */
/* simd_scalar.h: the vocabulary with one lane, for any CPU. It defines what every other vocabulary must compute.
 *
 * `left` is the number of elements from `p` on: min(left, v_lanes()) of them are read or written, and no byte beyond. Lanes
 * that were not read are zero. */
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

/* Registers of vectors; loops with sums of their own use all. */
ZOFF_KERNEL_INLINE size_t v_registers(void)
{
    return 16;
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

/* Round to nearest, ties away from zero, by integer arithmetic, which is right for subnormals, too; every NaN becomes 0x7fc0.
 */
ZOFF_KERNEL_INLINE void v_store_bf16(uint16_t *p, v_f x, size_t left)
{
    (void)left;
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    *p = (uint16_t)(x != x ? 0x7fc0u : (bits + 0x8000u) >> 16);
}

/* Store an fp32 number in two halves: the upper one rounded as v_store_bf16() does, the lower one as it is. Their sum, with the
 * lower half as a signed integer, has the bits of the number. Every NaN becomes the canonical one; `ordered`: there is none. */
ZOFF_KERNEL_INLINE v_f v_load_split(const uint16_t *high, const uint16_t *low, size_t left)
{
    (void)left;
    const uint32_t bits = ((uint32_t)*high << 16) + *low - ((uint32_t)(*low & 0x8000u) << 1);
    v_f x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

ZOFF_KERNEL_INLINE void v_store_split(uint16_t *high, uint16_t *low, v_f x, size_t left, bool ordered)
{
    (void)left;
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = !ordered && x != x ? 0x7fc00000u : bits;
    *high = (uint16_t)((bits + 0x8000u) >> 16);
    *low = (uint16_t)bits;
}

/* Add 16 random bits behind the digits that stay, and cut off the rest; see dither.h. Every NaN becomes 0x7fc0. Lanes behind
 * `left` are read, too. */
ZOFF_KERNEL_INLINE void v_store_bf16_dithered(uint16_t *p, v_f x, const uint16_t *lanes, uint16_t key, size_t left,
                                              bool ordered)
{
    (void)left;
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    *p = (uint16_t)(!ordered && x != x ? 0x7fc0u : (bits + (uint16_t)(*lanes + key)) >> 16);
}

/* Every fp16 number is exact in fp32; subnormals are multiples of 2^-24. A signalling NaN becomes quiet, as with the
 * instructions. */
ZOFF_KERNEL_INLINE v_f v_load_f16(const uint16_t *p, size_t left)
{
    (void)left;
    const uint32_t sign = (uint32_t)(*p & 0x8000u) << 16, exponent = *p >> 10 & 31u, fraction = *p & 0x3ffu;
    const float tiny = (float)fraction * 0x1p-24f;
    uint32_t bits = (exponent == 31 ? 0x7f800000u | (uint32_t)(fraction != 0) << 22 : (exponent + 112) << 23) | fraction << 13;
    if (exponent == 0)
        memcpy(&bits, &tiny, sizeof bits);
    bits |= sign;
    v_f x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Round to nearest even. A result of 65536 or more is infinite, every NaN becomes 0x7e00. */
ZOFF_KERNEL_INLINE void v_store_f16(uint16_t *p, v_f x, size_t left)
{
    (void)left;
    uint32_t bits, shifted;
    memcpy(&bits, &x, sizeof bits);
    const uint32_t sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
    const float half = fabsf(x) + 0.5f; /* the last digit of this sum is 2^-24, like that of an fp16 below 2^-14 */
    memcpy(&shifted, &half, sizeof shifted);
    uint32_t rounded = (size - (112u << 23) + 0xfffu + (size >> 13 & 1u)) >> 13;
    rounded = size < 113u << 23 ? shifted - 0x3f000000u : size >= 0x477ff000u ? 0x7c00u : rounded;
    *p = (uint16_t)(x != x ? 0x7e00u : sign | rounded);
}

#include "simd_plain_stores.h"

/* Whether a lane of `a` or `b` is NaN. */
ZOFF_KERNEL_INLINE bool v_any_nan(v_f a, v_f b)
{
    return a != a || b != b;
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

/* ---- moments in 8 bits, which are multiples of their scale; see q8.h ---- */

/* The larger of a number that is not negative and |a|. */
ZOFF_KERNEL_INLINE v_f v_max_abs(v_f largest, v_f a)
{
    return fabsf(a) > largest ? fabsf(a) : largest;
}

/* The largest of all lanes. */
ZOFF_KERNEL_INLINE float v_largest(v_f a)
{
    return a;
}

/* keep * the value of a code, whose upper bit is the sign if it has one: keep * x - keep * 2, rounded once. */
ZOFF_KERNEL_INLINE v_f v_load_code(const uint8_t *p, size_t left, bool has_sign, float keep)
{
    (void)left;
    const uint32_t sign = has_sign ? *p & 0x80u : 0;
    const uint32_t bits = sign << 24 | (0x40000000u + ((*p - sign) << 20));
    v_f x;
    memcpy(&x, &bits, sizeof x);
    return fmaf(keep, x, sign ? 2 * keep : -2 * keep);
}

/* Add 16 random bits behind the digits that stay, above four zeros, and cut off the rest. Lanes behind `left` are read, too.
 * A number without sign is not negative. */
ZOFF_KERNEL_INLINE void v_store_code_dithered(uint8_t *p, v_f x, const uint16_t *lanes, uint16_t key, size_t left,
                                              bool has_sign)
{
    (void)left;
    const v_f number = x + (has_sign ? copysignf(2, x) : 2);
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    bits += (uint32_t)(uint16_t)(*lanes + key) << 4;
    *p = (uint8_t)(has_sign ? (bits >> 20 & 0x7fu) | (bits >> 24 & 0x80u) : bits >> 20 & 0xffu);
}

/* 1 with the sign of a number, +0 for either zero, NaN for NaN. */
ZOFF_KERNEL_INLINE v_f v_sign(v_f a)
{
    return a != a ? a : a > 0 ? 1.0f : a < 0 ? -1.0f : 0.0f;
}

/* ZOFF_ADAM_SUM_LANES running sums in fp64. The square of an fp32 value is exact there, fused or not. */
typedef struct v_sum {
    double lane[ZOFF_ADAM_SUM_LANES];
} v_sum;

ZOFF_KERNEL_INLINE v_sum v_sum_zero(void)
{
    const v_sum zero = {{0}};
    return zero;
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

ZOFF_KERNEL_INLINE v_sum v_sum_squares_f16(v_sum sum, const uint16_t *p, size_t left)
{
    for (size_t l = 0; l < ZOFF_ADAM_SUM_LANES && l < left; l++) {
        double x = (double)v_load_f16(p + l, 1);
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

/* ---- exact sums: integers of 32 bits, which wrap around; see body_bins.h ---- */

typedef uint32_t v_i;

ZOFF_KERNEL_INLINE v_i v_int(int32_t x)
{
    return (v_i)x;
}

ZOFF_KERNEL_INLINE v_i v_int_add(v_i a, v_i b)
{
    return a + b;
}

ZOFF_KERNEL_INLINE v_i v_int_sub(v_i a, v_i b)
{
    return a - b;
}

ZOFF_KERNEL_INLINE v_i v_int_mul(v_i a, int32_t by)
{
    return a * (uint32_t)by;
}

/* Bits come down from above as zeros. */
ZOFF_KERNEL_INLINE v_i v_int_down(v_i a, int bits)
{
    return a >> bits;
}

/* The larger of signed numbers. */
ZOFF_KERNEL_INLINE v_i v_int_max(v_i a, v_i b)
{
    return (int32_t)a > (int32_t)b ? a : b;
}

/* 0 where a, a signed number, is above the limit, and x elsewhere. */
ZOFF_KERNEL_INLINE v_i v_int_unless_above(v_i a, int32_t limit, v_i x)
{
    return (int32_t)a > limit ? 0 : x;
}

/* The bits of a float, and those of its magnitude. */
ZOFF_KERNEL_INLINE v_i v_int_bits(v_f x)
{
    v_i bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

ZOFF_KERNEL_INLINE v_i v_int_size(v_f x)
{
    return v_int_bits(x) & 0x7fffffffu;
}

ZOFF_KERNEL_INLINE v_f v_from_bits(v_i bits)
{
    v_f x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Whole registers of integers of 1 (without sign), 3 or 4 bytes, at any address. Stores drop the upper bits. */
ZOFF_KERNEL_INLINE v_i v_load_int(const char *p, unsigned width)
{
    v_i x = 0;
    memcpy(&x, p, width);
    return width == 3 ? (v_i)((int32_t)(x << 8) >> 8) : x;
}

ZOFF_KERNEL_INLINE void v_store_int(char *p, v_i x, unsigned width)
{
    memcpy(p, &x, width);
}

/* The nearest floats. */
ZOFF_KERNEL_INLINE v_f v_from_int(v_i a)
{
    return (float)(int32_t)a;
}

/* (hi + lo 2^-20) * unit, a power of two, rounded once: the sum is exact in fp64. */
ZOFF_KERNEL_INLINE v_f v_digits(v_i hi, v_i lo, v_f unit)
{
    return (float)(((int32_t)hi + (int32_t)lo * 0x1p-20) * (double)unit);
}

#endif
