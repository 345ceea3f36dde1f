/* q8.h: moments in 8 bits, in blocks of ZOFF_NORM_BLOCK elements. Valid C and C++, because GPU kernels include it.
 *
 * A block in memory is a header of 64 bytes and a byte for each element. The header begins with the bound of the block, an fp32
 * number in the order of the machine; its other bytes are zero. The last block of a piece may have fewer elements.
 *
 * A byte is a code c of 3 fraction bits and an exponent: of 5 bits for v, which has no sign; of 4 bits for m, below the sign.
 * Every code is a number, and code 0 is zero:
 *
 *     value(c) = scale * (x(c) - 2), x(c) = (1 + c % 8 / 8) * 2^(1 + c / 8)
 *
 * So the first codes are multiples of the quantum, scale / 4, and large ones are 1/16 to 1/8 apart. The bits of x(c) are the
 * code and a constant. A multiple k of a value, k * x(c) - 2 k, is one operation. Such a product is rounded once.
 *
 * The scale is the least power of two for which the largest code is not below the bound. For m that code is 1.875 * 2^16 - 2
 * times the scale. For v it is 1.875 * 2^32, because values of v are rounded to fp32. The scale is at least 2^-64 for m and
 * 2^-126 for v.
 *
 * A step first finds the largest |g| of the block, G, and its largest stored moments, M and V, and then its new bounds. They
 * are the formulas of a step on these numbers, with the same operations:
 *
 *     bound of m = fma(1 - beta1, G, beta1 * M)        bound of v = fma((1 - beta2) * G, G, beta2 * V)
 *
 * Rounding is monotone, so no new moment is above its bound. (A bound below 2^-126 has lost digits, but the least scale holds
 * far more.) M and V are those stored, not the old bounds: rounding up a code in many steps may lift a number above every bound
 * that follows from gradients alone.
 *
 * Between load and store, a moment is a multiple of its scale. The constants of a block absorb both scales, the old and the new
 * one, by powers of two, so that they cost no operation. One of them is not exact: the root of an odd power of two.
 *
 * The random bits of dither.h are added behind the last digit of a code, times 2^-16 of that digit.
 *
 * Moments below a quantum become zero in most steps. A step that divides an m of one quantum by a v of zero would be huge, so
 * the divisor of a block is
 *
 *     (sqrt(v) + quantum of m + sqrt(quantum of v)) / sqrt(1 - beta2^t) + eps
 *
 * where the third term is only for a v in 8 bits. A block whose bound is not finite any more moves no weight. In fp32 that is
 * so for single elements: v becomes infinite if a gradient is above 2^69, with beta2 0.999. */
#ifndef ZOFF_CPU_ADAM_Q8_H
#define ZOFF_CPU_ADAM_Q8_H

#include "kernels.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { Q8_HEADER = 64, Q8_SCALE_M_LEAST = -64, Q8_SCALE_V_LEAST = -126 };

/* A code is the bits of x(c) from bit 20 on, less those of 2. */
enum { Q8_SHIFT = 20, Q8_TWO = 0x40000000 };

/* These carry into the exponent of an fp32 number where its fraction is above that of the largest value. */
enum { Q8_ABOVE_M = 0x1000ff, Q8_ABOVE_V = 0xfffff };

typedef struct q8_bounds {
    float m, v; /* v: 0 if it is not in 8 bits */
} q8_bounds;

/* Byte of a state where the block of element `first` begins, a multiple of ZOFF_NORM_BLOCK. */
ZOFF_KERNEL_INLINE size_t q8_block_at(size_t first)
{
    return first + first / ZOFF_NORM_BLOCK * Q8_HEADER;
}

ZOFF_KERNEL_INLINE uint32_t q8_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

ZOFF_KERNEL_INLINE float q8_number(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The bound of the block at `block`; blocks begin at any byte. */
ZOFF_KERNEL_INLINE float q8_load_bound(const uint8_t *block)
{
    float bound;
    memcpy(&bound, block, sizeof bound);
    return bound;
}

ZOFF_KERNEL_INLINE void q8_store_bound(uint8_t *block, float bound)
{
    memcpy(block, &bound, sizeof bound);
}

ZOFF_KERNEL_INLINE int q8_within(int n, int least, int most)
{
    return n < least ? least : n > most ? most : n;
}

/* 2^n, -126 <= n < 128 */
ZOFF_KERNEL_INLINE float q8_power(int n)
{
    return q8_number((uint32_t)(n + 127) << 23);
}

/* Exponent of the least power of two p with |bound| <= p * the largest value, which is below 2^(most + 1); at least `least`. */
ZOFF_KERNEL_INLINE int q8_scale(float bound, int most, uint32_t above, int least)
{
    const uint32_t size = q8_bits(bound) & 0x7fffffffu;
    return q8_within((int)((size + above) >> 23) - 127 - most, least, 127);
}

ZOFF_KERNEL_INLINE int q8_scale_m(float bound)
{
    return q8_scale(bound, 16, Q8_ABOVE_M, Q8_SCALE_M_LEAST);
}

ZOFF_KERNEL_INLINE int q8_scale_v(float bound)
{
    return q8_scale(bound, 32, Q8_ABOVE_V, Q8_SCALE_V_LEAST);
}

/* A code without its sign, in multiples of the scale. */
ZOFF_KERNEL_INLINE float q8_value(uint32_t code)
{
    return q8_number(Q8_TWO + (code << Q8_SHIFT)) - 2;
}

/* The largest moment that is stored under a bound; infinite for good once the bound is. */
ZOFF_KERNEL_INLINE float q8_stored(float bound, int scale, uint32_t code)
{
    return bound <= FLT_MAX ? q8_value(code) * q8_power(scale) : bound;
}

/* 0 * infinity has other bits on each machine. */
ZOFF_KERNEL_INLINE float q8_or_infinity(float bound)
{
    return bound == bound ? bound : INFINITY;
}

/* New bounds from the old ones, the largest codes stored, and the largest |g|. */
ZOFF_KERNEL_INLINE float q8_bound_m(const zoff_adam_consts *k, float bound, uint32_t code, float g)
{
    return q8_or_infinity(fmaf(k->one_minus_beta1, g, k->beta1 * q8_stored(bound, q8_scale_m(bound), code)));
}

ZOFF_KERNEL_INLINE float q8_bound_v(const zoff_adam_consts *k, float bound, uint32_t code, float g)
{
    return q8_or_infinity(fmaf(k->one_minus_beta2 * g, g, k->beta2 * q8_stored(bound, q8_scale_v(bound), code)));
}

/* 2^(n / 2 - scale). Ends of the range, where sqrt(v) and m are unrelated numbers, keep the products finite. */
ZOFF_KERNEL_INLINE float q8_root(int n, int scale)
{
    const int half = (n + 1024) / 2 - 512;
    return (n == 2 * half ? 1.0f : 0x1.6a09e6p0f) * q8_power(q8_within(half - scale, -126, 90));
}

/* keep * 2^n for codes: twice of it is finite, and it is not -0. Where n is larger, all codes are 0. */
ZOFF_KERNEL_INLINE float q8_keep(float keep, int n)
{
    return fabsf(keep) * q8_power(q8_within(n, -126, 126));
}

/* The constants of a step on moments that are multiples of their scales. */
ZOFF_KERNEL_INLINE zoff_adam_consts q8_consts(const zoff_adam_consts *k, q8_bounds old, q8_bounds now, bool has_v)
{
    const int m = q8_scale_m(now.m), v = q8_scale_v(now.v);
    zoff_adam_consts own = *k;
    own.beta1 = q8_keep(k->beta1, q8_scale_m(old.m) - m);
    own.one_minus_beta1 = k->one_minus_beta1 * q8_power(-m);
    if (has_v) {
        own.beta2 = q8_keep(k->beta2, q8_scale_v(old.v) - v);
        own.one_minus_beta2 = k->one_minus_beta2 * q8_power(-v);
    }
    const float quanta = has_v ? 0.25f + q8_root(v - 2, m) : 0.25f;
    own.inv_sqrt_bias2 = k->inv_sqrt_bias2 * (has_v ? q8_root(v, m) : q8_power(-m));
    own.eps = k->eps * q8_power(-m) + k->inv_sqrt_bias2 * quanta;
    if (!(now.m <= FLT_MAX && now.v <= FLT_MAX))
        own.eps = INFINITY;
    return own;
}

#endif
