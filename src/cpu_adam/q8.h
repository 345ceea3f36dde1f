/* SPDX-License-Identifier: Apache-2.0 */
/* q8.h: moments in 8 bits, in blocks of ZOFF_NORM_BLOCK elements. Valid C and C++, because GPU kernels include it.
 *
 * A block in memory is a header of 64 bytes, a q8_header, and a byte for each element. The last block of a piece may have fewer
 * elements.
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
 * the divisor of an element is
 *
 *     (sqrt(v) + quantum of m + sqrt(quantum of v)) / sqrt(1 - beta2^t) + eps
 *
 * where a quantum is only there for a moment that is a code.
 *
 * Outliers. One element may be so much larger than the others that a quantum is above all of them. So up to 10 numbers of a
 * block are outliers: the header has them in fp32, their codes are zero, and the scale is that of the others. Which ones is
 * decided anew in each step, from old moments and gradients alone. Let b(i) be the bound of element i by the formulas above,
 * with its own |g| and old moment. Then
 *
 *     those with b(i) >= 2^-8 * the largest b (v: 2^-16) are outliers if they are at most as many as there is space for,
 *
 * and this is done again with the others, until they are too many. If there are outliers, the bound of the block is the largest
 * b of the others. The two moments have outliers of their own: m forgets a large gradient long before v does. An element whose
 * m and v are both outliers takes the step of moments in fp32. v is infinite there if a gradient was above 2^69, with beta2
 * 0.999, and that element alone stands still.
 *
 * In most blocks hundreds of numbers are near the largest, and a few codes show that before any b is computed: see body_q8.h.
 * A block whose bound is not finite moves no weight any more. For that it needs an infinite v, and more than 10 elements whose
 * v is infinite or at least 2^-16 * FLT_MAX, which is 2^112: they count together, because an infinite b counts as FLT_MAX. */
#ifndef ZOFF_CPU_ADAM_Q8_H
#define ZOFF_CPU_ADAM_Q8_H

#include "kernels.h"

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

enum { Q8_HEADER = 64, Q8_SCALE_M_LEAST = -64, Q8_SCALE_V_LEAST = -126 };

/* Outliers of a block, and the binary digits from the largest number to the least that is as large as an outlier. Gradients of
 * most layers are not that far apart, and the others have two digits more above a quantum than their own spread takes. */
enum { Q8_OUTLIERS = 10, Q8_FAR_M = 8, Q8_FAR_V = 16 };

/* A code is the bits of x(c) from bit 20 on, less those of 2. */
enum { Q8_SHIFT = 20, Q8_TWO = 0x40000000 };

/* Numbers to add, which carry into the exponent of an fp32 number if its fraction is above that of the largest value. */
enum { Q8_ABOVE_M = 0x1000ff, Q8_ABOVE_V = 0xfffff };

/* The first bytes of a block. Zeros: no outlier, and all numbers are zero. */
typedef struct q8_header {
    float bound; /* bound of the codes */
    float values[Q8_OUTLIERS];
    uint16_t places[Q8_OUTLIERS]; /* 1 + index of the element in the block, ascending; 0 behind the last one */
} q8_header;

typedef struct q8_bounds {
    float m, v; /* bounds; v is 0 if it is not in 8 bits */
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

/* The header of the block at `block`; blocks begin at any byte. A place beyond the block is left out, because a file may be
 * wrong. */
ZOFF_KERNEL_INLINE q8_header q8_load_header(const uint8_t *block, size_t count)
{
    q8_header h;
    memcpy(&h, block, sizeof h);
    for (unsigned e = 0; e < Q8_OUTLIERS; e++)
        h.places[e] = h.places[e] <= count ? h.places[e] : 0;
    return h;
}

/* Whether a header lists an outlier. */
ZOFF_KERNEL_INLINE bool q8_has_outliers(const uint8_t *block)
{
    uint16_t place;
    memcpy(&place, block + offsetof(q8_header, places), sizeof place);
    return place != 0;
}

/* The bound of the block at `block`. */
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

/* Keep infinity, because 0 * infinity has other bits on each machine. */
ZOFF_KERNEL_INLINE float q8_or_infinity(float bound)
{
    return bound == bound ? bound : INFINITY;
}

/* The bounds of one element from its old moments and its gradient, or of a block from the largest of both. */
ZOFF_KERNEL_INLINE float q8_bound_m(const zoff_adam_consts *k, float m, float g)
{
    return q8_or_infinity(fmaf(k->one_minus_beta1, fabsf(g), k->beta1 * fabsf(m)));
}

ZOFF_KERNEL_INLINE float q8_bound_v(const zoff_adam_consts *k, float v, float g)
{
    return q8_or_infinity(fmaf(k->one_minus_beta2 * g, g, k->beta2 * v));
}

/* 2^(n / 2 - scale). The exponent is limited, so that products stay finite where sqrt(v) and m are unrelated numbers. */
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

/* The constants of a step whose results are multiples of 2^m and 2^v. A moment that is no code has the exponent 0, and no
 * quantum. Old moments times beta1 and beta2 must be multiples as well. */
ZOFF_KERNEL_INLINE zoff_adam_consts q8_consts_of(const zoff_adam_consts *k, int m, int v, bool m_code, bool v_code)
{
    const float quanta = (m_code ? 0.25f : 0) + (v_code ? q8_root(v - 2, m) : 0);
    zoff_adam_consts own = *k;
    own.one_minus_beta1 = k->one_minus_beta1 * q8_power(-m);
    own.one_minus_beta2 = k->one_minus_beta2 * q8_power(-v);
    own.inv_sqrt_bias2 = k->inv_sqrt_bias2 * q8_root(v, m);
    own.eps = k->eps * q8_power(-m) + k->inv_sqrt_bias2 * quanta;
    return own;
}

/* The constants of a step on codes. `has_v`: v is in codes, too. */
ZOFF_KERNEL_INLINE zoff_adam_consts q8_consts(const zoff_adam_consts *k, q8_bounds old, q8_bounds now, bool has_v)
{
    const int m = q8_scale_m(now.m), v = has_v ? q8_scale_v(now.v) : 0;
    zoff_adam_consts own = q8_consts_of(k, m, v, true, has_v);
    own.beta1 = q8_keep(k->beta1, q8_scale_m(old.m) - m);
    if (has_v)
        own.beta2 = q8_keep(k->beta2, q8_scale_v(old.v) - v);
    if (!(now.m <= FLT_MAX && now.v <= FLT_MAX))
        own.eps = INFINITY;
    return own;
}

/* ---- outliers ---- */

/* The least number that is as large as an outlier. `most`: the largest number. */
ZOFF_KERNEL_INLINE float q8_far(float most, int digits)
{
    return (most < FLT_MAX ? most : FLT_MAX) * q8_power(-digits);
}

/* Find outliers among numbers that are not negative, set them to zero, and add `mark` to their marks.  @return how many */
ZOFF_KERNEL_INLINE unsigned q8_take_outliers(float *numbers, size_t count, int digits, uint8_t mark, uint8_t *marks)
{
    unsigned taken = 0;
    for (;;) {
        float most = 0;
        unsigned now = 0;
        for (size_t i = 0; i < count; i++)
            most = numbers[i] > most ? numbers[i] : most;
        const float far = q8_far(most, digits);
        for (size_t i = 0; i < count; i++)
            now += numbers[i] >= far && numbers[i] > 0;
        if (now == 0 || now > Q8_OUTLIERS - taken)
            return taken;
        taken += now;
        for (size_t i = 0; i < count; i++) {
            const bool is_out = numbers[i] >= far && numbers[i] > 0;
            marks[i] = (uint8_t)(marks[i] | (is_out ? mark : 0));
            numbers[i] = is_out ? 0 : numbers[i];
        }
    }
}

/* One element's weight, gradient and moments: the old ones at first, then the new ones. */
typedef struct q8_element {
    float p, g, m, v;
} q8_element;

/* The step of an element that was or is an outlier. `now`: bounds of the codes; `m_code`, `v_code`: the new moment is one, and
 * is given as a multiple of its scale. Where the other elements are codes, this equals their step to the last bit. `has_v`: v
 * may be an outlier or a code; else it is in bf16. */
ZOFF_KERNEL_INLINE q8_element q8_step(const zoff_adam_consts *k, q8_element e, q8_bounds now, bool m_code, bool v_code,
                                      bool has_v)
{
    const int m = m_code ? q8_scale_m(now.m) : 0, v = v_code ? q8_scale_v(now.v) : 0;
    const zoff_adam_consts own = q8_consts_of(k, m, v, m_code, v_code);
    const bool lost = (m_code && !(now.m <= FLT_MAX)) || (v_code && !(now.v <= FLT_MAX));
    const float kept_m = fabsf(k->beta1) * e.m * q8_power(-m);
    const float kept_v = has_v ? fabsf(k->beta2) * e.v * q8_power(-v) : k->beta2 * e.v;
    q8_element new_one = e;
    new_one.m = fmaf(own.one_minus_beta1, e.g, kept_m);
    new_one.v = fmaf(own.one_minus_beta2 * e.g, e.g, kept_v);
    if (has_v) /* an infinite v stays infinite */
        new_one.v = q8_or_infinity(new_one.v);
    const float u = new_one.m / fmaf(sqrtf(new_one.v), own.inv_sqrt_bias2, lost ? INFINITY : own.eps);
    new_one.p = k->rule == ZOFF_RULE_ADAM_DECOUPLED ? e.p + fmaf(k->step_size, u, k->decay * e.p) : fmaf(k->step_size, u, e.p);
    return new_one;
}

#endif
