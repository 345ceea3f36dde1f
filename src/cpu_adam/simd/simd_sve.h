/* SPDX-License-Identifier: Apache-2.0 */
/* simd_sve.h: the vocabulary of simd_scalar.h for SVE, with as many lanes as the CPU's vectors have: 4 to 64.
 *
 * Every load and store has a predicate made from `left`. In a loop over whole registers it never changes, and compilers make it
 * once. Arithmetic uses all lanes; those that were not read are zero. A 16-bit element lies in the lower half of a lane's 32
 * bits, as SVE's loads, stores and conversions expect. Square sums are those of simd_neon_quad.h. There are no streaming
 * stores, as in simd_neon.h. */
#ifndef ZOFF_SIMD_SVE_H
#define ZOFF_SIMD_SVE_H

#include "simd_neon_quad.h"

#include <arm_sve.h>

typedef svfloat32_t v_f;

ZOFF_KERNEL_INLINE size_t v_lanes(void)
{
    return svcntw();
}

ZOFF_KERNEL_INLINE size_t v_registers(void)
{
    return 32;
}

/* The first `left` lanes. */
ZOFF_KERNEL_INLINE svbool_t v_mask(size_t left)
{
    return svwhilelt_b32_u64(0, left);
}

ZOFF_KERNEL_INLINE v_f v_set1(float x)
{
    return svdup_n_f32(x);
}

ZOFF_KERNEL_INLINE v_f v_load(const float *p, size_t left)
{
    return svld1_f32(v_mask(left), p);
}

ZOFF_KERNEL_INLINE void v_store(float *p, v_f x, size_t left)
{
    svst1_f32(v_mask(left), p, x);
}

/* `x` with every NaN replaced by the canonical one. */
ZOFF_KERNEL_INLINE v_f v_one_nan(v_f x)
{
    return svsel_f32(svcmpuo_f32(svptrue_b32(), x, x), svreinterpret_f32_u32(svdup_n_u32(0x7fc00000)), x);
}

ZOFF_KERNEL_INLINE v_f v_load_bf16(const uint16_t *p, size_t left)
{
    return svreinterpret_f32_u32(svlsl_n_u32_x(svptrue_b32(), svld1uh_u32(v_mask(left), p), 16));
}

ZOFF_KERNEL_INLINE void v_store_bf16(uint16_t *p, v_f x, size_t left)
{
    const svbool_t all = svptrue_b32();
    const svuint32_t rounded = svadd_n_u32_x(all, svreinterpret_u32_f32(v_one_nan(x)), 0x8000);
    svst1h_u32(v_mask(left), p, svlsr_n_u32_x(all, rounded, 16));
}

ZOFF_KERNEL_INLINE v_f v_load_split(const uint16_t *high, const uint16_t *low, size_t left)
{
    const svbool_t all = svptrue_b32(), some = v_mask(left);
    const svuint32_t upper = svlsl_n_u32_x(all, svld1uh_u32(some, high), 16);
    return svreinterpret_f32_u32(svadd_u32_x(all, upper, svld1sh_u32(some, (const int16_t *)low)));
}

/* These stores keep the lower half of each lane. */
ZOFF_KERNEL_INLINE void v_store_split(uint16_t *high, uint16_t *low, v_f x, size_t left, bool ordered)
{
    const svbool_t all = svptrue_b32(), some = v_mask(left);
    const svuint32_t bits = svreinterpret_u32_f32(ordered ? x : v_one_nan(x));
    svst1h_u32(some, high, svlsr_n_u32_x(all, svadd_n_u32_x(all, bits, 0x8000), 16));
    svst1h_u32(some, low, bits);
}

ZOFF_KERNEL_INLINE void v_store_bf16_dithered(uint16_t *p, v_f x, const uint16_t *lanes, uint16_t key, size_t left,
                                              bool ordered)
{
    const svbool_t all = svptrue_b32();
    const svuint32_t random = svand_n_u32_x(all, svadd_n_u32_x(all, svld1uh_u32(all, lanes), key), 0xffff);
    const svuint32_t rounded = svadd_u32_x(all, svreinterpret_u32_f32(ordered ? x : v_one_nan(x)), random);
    svst1h_u32(v_mask(left), p, svlsr_n_u32_x(all, rounded, 16));
}

ZOFF_KERNEL_INLINE v_f v_load_f16(const uint16_t *p, size_t left)
{
    return svcvt_f32_f16_x(svptrue_b32(), svreinterpret_f16_u32(svld1uh_u32(v_mask(left), p)));
}

/* Replace every NaN by the canonical one first, because the instruction keeps a part of a NaN's bits. */
ZOFF_KERNEL_INLINE void v_store_f16(uint16_t *p, v_f x, size_t left)
{
    svst1h_u32(v_mask(left), p, svreinterpret_u32_f16(svcvt_f16_f32_x(svptrue_b32(), v_one_nan(x))));
}

#include "simd_plain_stores.h"

ZOFF_KERNEL_INLINE bool v_any_nan(v_f a, v_f b)
{
    return svptest_any(svptrue_b32(), svcmpuo_f32(svptrue_b32(), a, b));
}

ZOFF_KERNEL_INLINE v_f v_add(v_f a, v_f b)
{
    return svadd_f32_x(svptrue_b32(), a, b);
}

ZOFF_KERNEL_INLINE v_f v_mul(v_f a, v_f b)
{
    return svmul_f32_x(svptrue_b32(), a, b);
}

ZOFF_KERNEL_INLINE v_f v_div(v_f a, v_f b)
{
    return svdiv_f32_x(svptrue_b32(), a, b);
}

ZOFF_KERNEL_INLINE v_f v_sqrt(v_f a)
{
    return svsqrt_f32_x(svptrue_b32(), a);
}

ZOFF_KERNEL_INLINE v_f v_fma(v_f a, v_f b, v_f c)
{
    return svmla_f32_x(svptrue_b32(), c, a, b);
}

ZOFF_KERNEL_INLINE v_f v_max_abs(v_f largest, v_f a)
{
    return svmax_f32_x(svptrue_b32(), largest, svabs_f32_x(svptrue_b32(), a));
}

ZOFF_KERNEL_INLINE float v_largest(v_f a)
{
    return svmaxv_f32(svptrue_b32(), a);
}

/* copysign(size, x) */
ZOFF_KERNEL_INLINE v_f v_signed(v_f x, float size)
{
    const svbool_t all = svptrue_b32();
    const svuint32_t sign = svand_n_u32_x(all, svreinterpret_u32_f32(x), 0x80000000);
    return svreinterpret_f32_u32(svorr_u32_x(all, sign, svreinterpret_u32_f32(svdup_n_f32(size))));
}

ZOFF_KERNEL_INLINE v_f v_load_code(const uint8_t *p, size_t left, bool has_sign, float keep)
{
    const svbool_t all = svptrue_b32();
    const svuint32_t codes = svld1ub_u32(v_mask(left), p);
    const svuint32_t digits = svlsl_n_u32_x(all, svand_n_u32_x(all, codes, has_sign ? 0x7f : 0xff), 20);
    const svuint32_t size = svadd_n_u32_x(all, digits, 0x40000000);
    const svuint32_t sign = svlsl_n_u32_x(all, svand_n_u32_x(all, codes, 0x80), 24);
    const v_f x = svreinterpret_f32_u32(has_sign ? svorr_u32_x(all, size, sign) : size);
    return svmla_n_f32_x(all, has_sign ? v_signed(svneg_f32_x(all, x), 2 * keep) : svdup_n_f32(-2 * keep), x, keep);
}

/* The store keeps the lower eight bits of a lane. */
ZOFF_KERNEL_INLINE void v_store_code_dithered(uint8_t *p, v_f x, const uint16_t *lanes, uint16_t key, size_t left,
                                              bool has_sign)
{
    const svbool_t all = svptrue_b32();
    const svuint32_t random = svand_n_u32_x(all, svadd_n_u32_x(all, svld1uh_u32(all, lanes), key), 0xffff);
    const v_f number = svadd_f32_x(all, x, has_sign ? v_signed(x, 2) : svdup_n_f32(2));
    const svuint32_t bits = svadd_u32_x(all, svreinterpret_u32_f32(number), svlsl_n_u32_x(all, random, 4));
    const svuint32_t digits = svlsr_n_u32_x(all, bits, 20), sign = svlsr_n_u32_x(all, bits, 24);
    const svuint32_t codes = svorr_u32_x(all, svand_n_u32_x(all, digits, 0x7f), svand_n_u32_x(all, sign, 0x80));
    svst1b_u32(v_mask(left), p, has_sign ? codes : digits);
}

ZOFF_KERNEL_INLINE v_f v_sign(v_f a)
{
    const svbool_t all = svptrue_b32();
    const svuint32_t minus = svand_n_u32_x(all, svreinterpret_u32_f32(a), 0x80000000);
    const v_f one = svreinterpret_f32_u32(svorr_n_u32_x(all, minus, 0x3f800000));
    const v_f sign = svsel_f32(svcmpeq_n_f32(all, a, 0), svdup_n_f32(0), one);
    return svsel_f32(svcmpuo_f32(all, a, a), a, sign);
}

typedef svint32_t v_i;

ZOFF_KERNEL_INLINE v_i v_int(int32_t x)
{
    return svdup_n_s32(x);
}

ZOFF_KERNEL_INLINE v_i v_int_add(v_i a, v_i b)
{
    return svadd_s32_x(svptrue_b32(), a, b);
}

ZOFF_KERNEL_INLINE v_i v_int_sub(v_i a, v_i b)
{
    return svsub_s32_x(svptrue_b32(), a, b);
}

ZOFF_KERNEL_INLINE v_i v_int_mul(v_i a, int32_t by)
{
    return svmul_n_s32_x(svptrue_b32(), a, by);
}

ZOFF_KERNEL_INLINE v_i v_int_down(v_i a, int bits)
{
    return svreinterpret_s32_u32(svlsr_n_u32_x(svptrue_b32(), svreinterpret_u32_s32(a), (uint32_t)bits));
}

ZOFF_KERNEL_INLINE v_i v_int_max(v_i a, v_i b)
{
    return svmax_s32_x(svptrue_b32(), a, b);
}

ZOFF_KERNEL_INLINE v_i v_int_unless_above(v_i a, int32_t limit, v_i x)
{
    return svsel_s32(svcmpgt_n_s32(svptrue_b32(), a, limit), svdup_n_s32(0), x);
}

ZOFF_KERNEL_INLINE v_i v_int_bits(v_f x)
{
    return svreinterpret_s32_f32(x);
}

ZOFF_KERNEL_INLINE v_i v_int_size(v_f x)
{
    return svand_n_s32_x(svptrue_b32(), svreinterpret_s32_f32(x), 0x7fffffff);
}

ZOFF_KERNEL_INLINE v_f v_from_bits(v_i bits)
{
    return svreinterpret_f32_s32(bits);
}

/* Numbers of 3 bytes are three vectors of bytes, of which the first lanes are used. */
ZOFF_KERNEL_INLINE v_i v_load_int(const char *p, unsigned width)
{
    const svbool_t all = svptrue_b32();
    if (width == 1)
        return svld1ub_s32(all, (const uint8_t *)p);
    if (width == 4)
        return svreinterpret_s32_u8(svld1_u8(svptrue_b8(), (const uint8_t *)p));
    const svuint8x3_t bytes = svld3_u8(svwhilelt_b8_u64(0, v_lanes()), (const uint8_t *)p);
    const svuint32_t first = svunpklo_u32(svunpklo_u16(svget3_u8(bytes, 0)));
    const svuint32_t second = svunpklo_u32(svunpklo_u16(svget3_u8(bytes, 1)));
    const svuint32_t third = svunpklo_u32(svunpklo_u16(svget3_u8(bytes, 2)));
    const svuint32_t upper = svorr_u32_x(all, svlsl_n_u32_x(all, third, 24), svlsl_n_u32_x(all, second, 16));
    return svasr_n_s32_x(all, svreinterpret_s32_u32(svorr_u32_x(all, upper, svlsl_n_u32_x(all, first, 8))), 8);
}

/* The lowest byte of each lane, in the first lanes of bytes. */
ZOFF_KERNEL_INLINE svuint8_t v_low_bytes(svuint32_t x)
{
    const svuint8_t halves = svuzp1_u8(svreinterpret_u8_u32(x), svreinterpret_u8_u32(x));
    return svuzp1_u8(halves, halves);
}

ZOFF_KERNEL_INLINE void v_store_int(char *p, v_i x, unsigned width)
{
    const svbool_t all = svptrue_b32();
    const svuint32_t bits = svreinterpret_u32_s32(x);
    if (width == 1)
        svst1b_u32(all, (uint8_t *)p, bits);
    else if (width == 4)
        svst1_u8(svptrue_b8(), (uint8_t *)p, svreinterpret_u8_s32(x));
    else
        svst3_u8(svwhilelt_b8_u64(0, v_lanes()), (uint8_t *)p,
                 svcreate3_u8(v_low_bytes(bits), v_low_bytes(svlsr_n_u32_x(all, bits, 8)),
                              v_low_bytes(svlsr_n_u32_x(all, bits, 16))));
}

ZOFF_KERNEL_INLINE v_f v_from_int(v_i a)
{
    return svcvt_f32_s32_x(svptrue_b32(), a);
}

/* Conversions between fp32 and fp64 use the even lanes of fp32. */
ZOFF_KERNEL_INLINE v_f v_digits_half(svint64_t hi, svint64_t lo, v_f unit)
{
    const svbool_t all = svptrue_b64();
    const svfloat64_t sum = svmla_n_f64_x(all, svcvt_f64_s64_x(all, hi), svcvt_f64_s64_x(all, lo), 0x1p-20);
    return svcvt_f32_f64_x(all, svmul_f64_x(all, sum, svcvt_f64_f32_x(all, unit)));
}

ZOFF_KERNEL_INLINE v_f v_digits(v_i hi, v_i lo, v_f unit)
{
    return svuzp1_f32(v_digits_half(svunpklo_s64(hi), svunpklo_s64(lo), svzip1_f32(unit, unit)),
                      v_digits_half(svunpkhi_s64(hi), svunpkhi_s64(lo), svzip2_f32(unit, unit)));
}

#endif
