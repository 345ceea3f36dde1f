/* SPDX-License-Identifier: Apache-2.0 */
/* simd_neon.h: the vocabulary of simd_scalar.h with 4 lanes, for NEON, which every aarch64 CPU has. Loads and sums are those of
 * simd_neon_quad.h.
 *
 * There are no streaming stores: Arm CPUs detect that whole lines are written, and do not read those first. */
#ifndef ZOFF_SIMD_NEON_H
#define ZOFF_SIMD_NEON_H

#include "simd_neon_quad.h"

typedef float32x4_t v_f;

ZOFF_KERNEL_INLINE size_t v_lanes(void)
{
    return QUAD_LANES;
}

ZOFF_KERNEL_INLINE size_t v_registers(void)
{
    return 32;
}

ZOFF_KERNEL_INLINE v_f v_set1(float x)
{
    return vdupq_n_f32(x);
}

ZOFF_KERNEL_INLINE v_f v_load(const float *p, size_t left)
{
    return quad_load(p, left);
}

ZOFF_KERNEL_INLINE void v_store(float *p, v_f x, size_t left)
{
    if (left >= QUAD_LANES) {
        vst1q_f32(p, x);
        return;
    }
    float lanes[QUAD_LANES];
    vst1q_f32(lanes, x);
    memcpy(p, lanes, left % QUAD_LANES * sizeof *p);
}

ZOFF_KERNEL_INLINE void v_store_halves(uint16_t *p, uint16x4_t x, size_t left)
{
    if (left >= QUAD_LANES) {
        vst1_u16(p, x);
        return;
    }
    uint16_t lanes[QUAD_LANES];
    vst1_u16(lanes, x);
    memcpy(p, lanes, left % QUAD_LANES * sizeof *p);
}

/* `x` with every NaN replaced by the canonical one. */
ZOFF_KERNEL_INLINE v_f v_one_nan(v_f x)
{
    return vbslq_f32(vceqq_f32(x, x), x, vreinterpretq_f32_u32(vdupq_n_u32(0x7fc00000)));
}

ZOFF_KERNEL_INLINE v_f v_load_bf16(const uint16_t *p, size_t left)
{
    return quad_load_bf16(p, left);
}

ZOFF_KERNEL_INLINE void v_store_bf16(uint16_t *p, v_f x, size_t left)
{
    v_store_halves(p, vaddhn_u32(vreinterpretq_u32_f32(v_one_nan(x)), vdupq_n_u32(0x8000)), left);
}

ZOFF_KERNEL_INLINE v_f v_load_split(const uint16_t *high, const uint16_t *low, size_t left)
{
    const uint32x4_t upper = vshll_n_u16(quad_load_halves(high, left), 16);
    const int32x4_t lower = vmovl_s16(vreinterpret_s16_u16(quad_load_halves(low, left)));
    return vreinterpretq_f32_u32(vaddq_u32(upper, vreinterpretq_u32_s32(lower)));
}

ZOFF_KERNEL_INLINE void v_store_split(uint16_t *high, uint16_t *low, v_f x, size_t left, bool ordered)
{
    const uint32x4_t bits = vreinterpretq_u32_f32(ordered ? x : v_one_nan(x));
    v_store_halves(high, vaddhn_u32(bits, vdupq_n_u32(0x8000)), left);
    v_store_halves(low, vmovn_u32(bits), left);
}

ZOFF_KERNEL_INLINE void v_store_bf16_dithered(uint16_t *p, v_f x, const uint16_t *lanes, uint16_t key, size_t left,
                                              bool ordered)
{
    const uint16x4_t random = vadd_u16(vld1_u16(lanes), vdup_n_u16(key));
    v_store_halves(p, vaddhn_u32(vreinterpretq_u32_f32(ordered ? x : v_one_nan(x)), vmovl_u16(random)), left);
}

ZOFF_KERNEL_INLINE v_f v_load_f16(const uint16_t *p, size_t left)
{
    return quad_load_f16(p, left);
}

/* Replace every NaN by the canonical one first, because the instruction keeps a part of a NaN's bits. */
ZOFF_KERNEL_INLINE void v_store_f16(uint16_t *p, v_f x, size_t left)
{
    v_store_halves(p, vreinterpret_u16_f16(vcvt_f16_f32(v_one_nan(x))), left);
}

#include "simd_plain_stores.h"

ZOFF_KERNEL_INLINE bool v_any_nan(v_f a, v_f b)
{
    return vminvq_u32(vandq_u32(vceqq_f32(a, a), vceqq_f32(b, b))) == 0;
}

ZOFF_KERNEL_INLINE v_f v_add(v_f a, v_f b)
{
    return vaddq_f32(a, b);
}

ZOFF_KERNEL_INLINE v_f v_mul(v_f a, v_f b)
{
    return vmulq_f32(a, b);
}

ZOFF_KERNEL_INLINE v_f v_div(v_f a, v_f b)
{
    return vdivq_f32(a, b);
}

ZOFF_KERNEL_INLINE v_f v_sqrt(v_f a)
{
    return vsqrtq_f32(a);
}

ZOFF_KERNEL_INLINE v_f v_fma(v_f a, v_f b, v_f c)
{
    return vfmaq_f32(c, a, b);
}

ZOFF_KERNEL_INLINE v_f v_max_abs(v_f largest, v_f a)
{
    return vmaxq_f32(largest, vabsq_f32(a));
}

ZOFF_KERNEL_INLINE float v_largest(v_f a)
{
    return vmaxvq_f32(a);
}

/* copysign(size, x) */
ZOFF_KERNEL_INLINE v_f v_signed(v_f x, float size)
{
    return vbslq_f32(vdupq_n_u32(0x80000000), x, vdupq_n_f32(size));
}

ZOFF_KERNEL_INLINE v_f v_load_code(const uint8_t *p, size_t left, bool has_sign, float keep)
{
    uint32_t bytes = 0;
    memcpy(&bytes, p, left >= QUAD_LANES ? QUAD_LANES : left % QUAD_LANES);
    const uint32x4_t codes = vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(bytes))));
    const uint32x4_t digits = vandq_u32(codes, vdupq_n_u32(has_sign ? 0x7f : 0xff));
    const v_f size = vreinterpretq_f32_u32(vaddq_u32(vshlq_n_u32(digits, 20), vdupq_n_u32(0x40000000)));
    const uint32x4_t minus = vdupq_n_u32(0x80000000);
    const v_f x = has_sign ? vbslq_f32(minus, vreinterpretq_f32_u32(vshlq_n_u32(codes, 24)), size) : size;
    return vfmaq_f32(has_sign ? v_signed(vnegq_f32(x), 2 * keep) : vdupq_n_f32(-2 * keep), x, vdupq_n_f32(keep));
}

ZOFF_KERNEL_INLINE void v_store_code_dithered(uint8_t *p, v_f x, const uint16_t *lanes, uint16_t key, size_t left,
                                              bool has_sign)
{
    const uint16x4_t random = vadd_u16(vld1_u16(lanes), vdup_n_u16(key));
    const v_f number = vaddq_f32(x, has_sign ? v_signed(x, 2) : vdupq_n_f32(2));
    const uint32x4_t bits = vaddq_u32(vreinterpretq_u32_f32(number), vshll_n_u16(random, 4));
    const uint32x4_t digits = vshrq_n_u32(bits, 20), sign = vshrq_n_u32(bits, 24);
    const uint16x4_t codes = vmovn_u32(has_sign ? vbslq_u32(vdupq_n_u32(0x7f), digits, sign) : digits);
    const uint32_t bytes = vget_lane_u32(vreinterpret_u32_u8(vmovn_u16(vcombine_u16(codes, codes))), 0);
    memcpy(p, &bytes, left >= QUAD_LANES ? QUAD_LANES : left % QUAD_LANES);
}

ZOFF_KERNEL_INLINE v_f v_sign(v_f a)
{
    const uint32x4_t one = vbslq_u32(vdupq_n_u32(0x80000000), vreinterpretq_u32_f32(a), vdupq_n_u32(0x3f800000));
    const v_f sign = vreinterpretq_f32_u32(vbicq_u32(one, vceqzq_f32(a)));
    return vbslq_f32(vceqq_f32(a, a), sign, a);
}

typedef int32x4_t v_i;

ZOFF_KERNEL_INLINE v_i v_int(int32_t x)
{
    return vdupq_n_s32(x);
}

ZOFF_KERNEL_INLINE v_i v_int_add(v_i a, v_i b)
{
    return vaddq_s32(a, b);
}

ZOFF_KERNEL_INLINE v_i v_int_sub(v_i a, v_i b)
{
    return vsubq_s32(a, b);
}

ZOFF_KERNEL_INLINE v_i v_int_mul(v_i a, int32_t by)
{
    return vmulq_n_s32(a, by);
}

ZOFF_KERNEL_INLINE v_i v_int_down(v_i a, int bits)
{
    return vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(a), vdupq_n_s32(-bits)));
}

ZOFF_KERNEL_INLINE v_i v_int_max(v_i a, v_i b)
{
    return vmaxq_s32(a, b);
}

ZOFF_KERNEL_INLINE v_i v_int_unless_above(v_i a, int32_t limit, v_i x)
{
    return vandq_s32(x, vreinterpretq_s32_u32(vcleq_s32(a, vdupq_n_s32(limit))));
}

ZOFF_KERNEL_INLINE v_i v_int_bits(v_f x)
{
    return vreinterpretq_s32_f32(x);
}

ZOFF_KERNEL_INLINE v_i v_int_size(v_f x)
{
    return vandq_s32(vreinterpretq_s32_f32(x), vdupq_n_s32(0x7fffffff));
}

ZOFF_KERNEL_INLINE v_f v_from_bits(v_i bits)
{
    return vreinterpretq_f32_s32(bits);
}

ZOFF_KERNEL_INLINE v_i v_load_int(const char *p, unsigned width)
{
    static const uint8_t spread[] = {255, 0, 1, 2, 255, 3, 4, 5, 255, 6, 7, 8, 255, 9, 10, 11};
    static const uint8_t bytes[] = {0, 255, 255, 255, 1, 255, 255, 255, 2, 255, 255, 255, 3, 255, 255, 255};
    uint8_t from[16] = {0};
    memcpy(from, p, QUAD_LANES * (size_t)width);
    const uint8x16_t x = vld1q_u8(from);
    return width == 4   ? vreinterpretq_s32_u8(x)
           : width == 3 ? vshrq_n_s32(vreinterpretq_s32_u8(vqtbl1q_u8(x, vld1q_u8(spread))), 8)
                        : vreinterpretq_s32_u8(vqtbl1q_u8(x, vld1q_u8(bytes)));
}

ZOFF_KERNEL_INLINE void v_store_int(char *p, v_i x, unsigned width)
{
    static const uint8_t pack[] = {0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 255, 255, 255, 255};
    static const uint8_t bytes[] = {0, 4, 8, 12, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255};
    const uint8x16_t from = vreinterpretq_u8_s32(x);
    uint8_t to[16];
    vst1q_u8(to, width == 4 ? from : vqtbl1q_u8(from, vld1q_u8(width == 3 ? pack : bytes)));
    memcpy(p, to, QUAD_LANES * (size_t)width);
}

ZOFF_KERNEL_INLINE v_f v_from_int(v_i a)
{
    return vcvtq_f32_s32(a);
}

ZOFF_KERNEL_INLINE float32x2_t v_digits_half(int32x2_t hi, int32x2_t lo, float32x2_t unit)
{
    const float64x2_t small = vcvtq_f64_s64(vmovl_s32(lo)), large = vcvtq_f64_s64(vmovl_s32(hi));
    return vcvt_f32_f64(vmulq_f64(vfmaq_f64(large, small, vdupq_n_f64(0x1p-20)), vcvt_f64_f32(unit)));
}

ZOFF_KERNEL_INLINE v_f v_digits(v_i hi, v_i lo, v_f unit)
{
    return vcombine_f32(v_digits_half(vget_low_s32(hi), vget_low_s32(lo), vget_low_f32(unit)),
                        v_digits_half(vget_high_s32(hi), vget_high_s32(lo), vget_high_f32(unit)));
}

#endif
