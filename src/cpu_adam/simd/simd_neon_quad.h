/* SPDX-License-Identifier: Apache-2.0 */
/* simd_neon_quad.h: four lanes of NEON, read from every element type, and the square sums over them. NEON is part of every
 * aarch64 CPU. simd_neon.h uses these loads and sums. simd_sve.h uses the sums, because vectors of unknown length cannot be
 * fields of a struct.
 *
 * Tails go through a copy of the size of a register, because NEON has no masked loads. The modulo there bounds the length for
 * compilers that do not remove dead code. */
#ifndef ZOFF_SIMD_NEON_QUAD_H
#define ZOFF_SIMD_NEON_QUAD_H

#include "kernels.h"

#include <arm_neon.h>
#include <string.h>

enum { QUAD_LANES = 4 };

ZOFF_KERNEL_INLINE float32x4_t quad_load(const float *p, size_t left)
{
    if (left >= QUAD_LANES)
        return vld1q_f32(p);
    float lanes[QUAD_LANES] = {0};
    memcpy(lanes, p, left % QUAD_LANES * sizeof *p);
    return vld1q_f32(lanes);
}

ZOFF_KERNEL_INLINE uint16x4_t quad_load_halves(const uint16_t *p, size_t left)
{
    if (left >= QUAD_LANES)
        return vld1_u16(p);
    uint16_t lanes[QUAD_LANES] = {0};
    memcpy(lanes, p, left % QUAD_LANES * sizeof *p);
    return vld1_u16(lanes);
}

ZOFF_KERNEL_INLINE float32x4_t quad_load_bf16(const uint16_t *p, size_t left)
{
    return vreinterpretq_f32_u32(vshll_n_u16(quad_load_halves(p, left), 16));
}

ZOFF_KERNEL_INLINE float32x4_t quad_load_f16(const uint16_t *p, size_t left)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(quad_load_halves(p, left)));
}

/* Lanes 0 and 1, 2 and 3, ... 14 and 15. */
typedef struct v_sum {
    float64x2_t a, b, c, d, e, f, g, h;
} v_sum;

ZOFF_KERNEL_INLINE v_sum v_sum_zero(void)
{
    const float64x2_t zero = vdupq_n_f64(0);
    return (v_sum){zero, zero, zero, zero, zero, zero, zero, zero};
}

ZOFF_KERNEL_INLINE float64x2_t quad_square_low(float64x2_t sum, float32x4_t x)
{
    const float64x2_t wide = vcvt_f64_f32(vget_low_f32(x));
    return vfmaq_f64(sum, wide, wide);
}

ZOFF_KERNEL_INLINE float64x2_t quad_square_high(float64x2_t sum, float32x4_t x)
{
    const float64x2_t wide = vcvt_high_f64_f32(x);
    return vfmaq_f64(sum, wide, wide);
}

/* A lane that was not read is zero, and adds +0 to a sum that is never -0. */
ZOFF_KERNEL_INLINE v_sum quad_sum_add(v_sum sum, float32x4_t first, float32x4_t second, float32x4_t third, float32x4_t fourth)
{
    sum.a = quad_square_low(sum.a, first);
    sum.b = quad_square_high(sum.b, first);
    sum.c = quad_square_low(sum.c, second);
    sum.d = quad_square_high(sum.d, second);
    sum.e = quad_square_low(sum.e, third);
    sum.f = quad_square_high(sum.f, third);
    sum.g = quad_square_low(sum.g, fourth);
    sum.h = quad_square_high(sum.h, fourth);
    return sum;
}

/* How many of `left` elements are in the quarter that begins at element `from`. */
ZOFF_KERNEL_INLINE size_t quad_left(size_t left, size_t from)
{
    return left > from ? left - from : 0;
}

/* Load sixteen elements as four quads. No pointer goes beyond the elements. */
#define QUAD_SUM(sum, load, p, left)                                                                                           \
    quad_sum_add(sum, load(p, left), load(p + (left > 4 ? 4 : 0), quad_left(left, 4)),                                         \
                 load(p + (left > 8 ? 8 : 0), quad_left(left, 8)), load(p + (left > 12 ? 12 : 0), quad_left(left, 12)))

ZOFF_KERNEL_INLINE v_sum v_sum_squares(v_sum sum, const float *p, size_t left)
{
    return QUAD_SUM(sum, quad_load, p, left);
}

ZOFF_KERNEL_INLINE v_sum v_sum_squares_bf16(v_sum sum, const uint16_t *p, size_t left)
{
    return QUAD_SUM(sum, quad_load_bf16, p, left);
}

ZOFF_KERNEL_INLINE v_sum v_sum_squares_f16(v_sum sum, const uint16_t *p, size_t left)
{
    return QUAD_SUM(sum, quad_load_f16, p, left);
}
#undef QUAD_SUM

ZOFF_KERNEL_INLINE double v_sum_total(v_sum sum)
{
    const float64x2_t eight_a = vaddq_f64(sum.a, sum.e), eight_b = vaddq_f64(sum.b, sum.f);
    const float64x2_t eight_c = vaddq_f64(sum.c, sum.g), eight_d = vaddq_f64(sum.d, sum.h);
    const float64x2_t two = vaddq_f64(vaddq_f64(eight_a, eight_c), vaddq_f64(eight_b, eight_d));
    return vaddvq_f64(two);
}

#endif
