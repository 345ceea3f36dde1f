/* SPDX-License-Identifier: Apache-2.0 */
/* simd_avx2_pairs.h: the vocabulary of simd_scalar.h with 16 lanes for AVX2 with FMA, for steps whose arrays have 16-bit
 * elements or codes. As in simd_avx512_pairs.h, a register of 16-bit elements becomes two of fp32, the even elements and the
 * odd ones.
 *
 * It has only what these steps use. */
#ifndef ZOFF_SIMD_AVX2_PAIRS_H
#define ZOFF_SIMD_AVX2_PAIRS_H

#include "kernels.h"

#include <immintrin.h>
#include <string.h>

typedef struct v_f {
    __m256 even, odd;
} v_f;

ZOFF_KERNEL_INLINE size_t v_lanes(void)
{
    return 16;
}

ZOFF_KERNEL_INLINE v_f v_set1(float x)
{
    return (v_f){_mm256_set1_ps(x), _mm256_set1_ps(x)};
}

/* Tails go through a copy of the size of a register, see simd_avx2.h. */
ZOFF_KERNEL_RARE __m256i v_load_bytes(const void *p, size_t bytes)
{
    __m256i part = _mm256_setzero_si256();
    memcpy(&part, p, bytes % sizeof part);
    return part;
}

ZOFF_KERNEL_RARE void v_store_bytes(void *p, __m256i part, size_t bytes)
{
    memcpy(p, &part, bytes % sizeof part);
}

ZOFF_KERNEL_INLINE __m256i v_load_halves(const uint16_t *p, size_t left)
{
    return left >= v_lanes() ? _mm256_loadu_si256((const __m256i *)(const void *)p) : v_load_bytes(p, left * sizeof *p);
}

ZOFF_KERNEL_INLINE void v_store_halves(uint16_t *p, __m256i halves, size_t left)
{
    if (left >= v_lanes())
        _mm256_storeu_si256((__m256i *)(void *)p, halves);
    else
        v_store_bytes(p, halves, left * sizeof *p);
}

/* The even 16-bit lanes of one register, and the odd ones of another. */
ZOFF_KERNEL_INLINE __m256i v_merge(__m256i even, __m256i odd)
{
    return _mm256_blend_epi16(even, odd, 0xaa);
}

/* The upper halves of two registers. */
ZOFF_KERNEL_INLINE __m256i v_upper(__m256i even, __m256i odd)
{
    return v_merge(_mm256_srli_epi32(even, 16), odd);
}

ZOFF_KERNEL_INLINE __m256i v_odd_only(__m256i halves)
{
    return _mm256_and_si256(halves, _mm256_set1_epi32((int)0xffff0000));
}

ZOFF_KERNEL_INLINE __m256i v_one_nan(__m256 x, bool ordered)
{
    const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000));
    return _mm256_castps_si256(ordered ? x : _mm256_blendv_ps(x, nan, _mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
}

ZOFF_KERNEL_INLINE v_f v_load_bf16(const uint16_t *p, size_t left)
{
    const __m256i halves = v_load_halves(p, left);
    return (v_f){_mm256_castsi256_ps(_mm256_slli_epi32(halves, 16)), _mm256_castsi256_ps(v_odd_only(halves))};
}

/* A negative lower half borrows one from the upper half. */
ZOFF_KERNEL_INLINE v_f v_load_split(const uint16_t *high, const uint16_t *low, size_t left)
{
    const __m256i lower = v_load_halves(low, left);
    const __m256i upper = _mm256_add_epi16(v_load_halves(high, left), _mm256_srai_epi16(lower, 15));
    return (v_f){_mm256_castsi256_ps(v_merge(lower, _mm256_slli_epi32(upper, 16))),
                 _mm256_castsi256_ps(v_merge(_mm256_srli_epi32(lower, 16), upper))};
}

/* The rounded upper half is the upper half of a number plus the first bit of the lower one. */
ZOFF_KERNEL_INLINE void v_store_split(uint16_t *high, uint16_t *low, v_f x, size_t left, bool ordered)
{
    const __m256i even = v_one_nan(x.even, ordered), odd = v_one_nan(x.odd, ordered);
    const __m256i lower = v_merge(even, _mm256_slli_epi32(odd, 16));
    v_store_halves(high, _mm256_add_epi16(v_upper(even, odd), _mm256_srli_epi16(lower, 15)), left);
    v_store_halves(low, lower, left);
}

/* Add random bits to the lower halves of two registers, and return their upper ones. */
ZOFF_KERNEL_INLINE __m256i v_dither(__m256i even, __m256i odd, const uint16_t *lanes, uint16_t key)
{
    const __m256i table = _mm256_loadu_si256((const __m256i *)(const void *)lanes);
    const __m256i random = _mm256_add_epi16(table, _mm256_set1_epi16((short)key));
    even = _mm256_add_epi32(even, _mm256_blend_epi16(random, _mm256_setzero_si256(), 0xaa));
    return v_upper(even, _mm256_add_epi32(odd, _mm256_srli_epi32(random, 16)));
}

ZOFF_KERNEL_INLINE void v_store_bf16_dithered(uint16_t *p, v_f x, const uint16_t *lanes, uint16_t key, size_t left,
                                              bool ordered)
{
    v_store_halves(p, v_dither(v_one_nan(x.even, ordered), v_one_nan(x.odd, ordered), lanes, key), left);
}

ZOFF_KERNEL_INLINE bool v_any_nan(v_f a, v_f b)
{
    const __m256 even = _mm256_cmp_ps(a.even, b.even, _CMP_UNORD_Q), odd = _mm256_cmp_ps(a.odd, b.odd, _CMP_UNORD_Q);
    return _mm256_movemask_ps(_mm256_or_ps(even, odd)) != 0;
}

ZOFF_KERNEL_INLINE v_f v_add(v_f a, v_f b)
{
    return (v_f){_mm256_add_ps(a.even, b.even), _mm256_add_ps(a.odd, b.odd)};
}

ZOFF_KERNEL_INLINE v_f v_mul(v_f a, v_f b)
{
    return (v_f){_mm256_mul_ps(a.even, b.even), _mm256_mul_ps(a.odd, b.odd)};
}

ZOFF_KERNEL_INLINE v_f v_div(v_f a, v_f b)
{
    return (v_f){_mm256_div_ps(a.even, b.even), _mm256_div_ps(a.odd, b.odd)};
}

ZOFF_KERNEL_INLINE v_f v_sqrt(v_f a)
{
    return (v_f){_mm256_sqrt_ps(a.even), _mm256_sqrt_ps(a.odd)};
}

ZOFF_KERNEL_INLINE v_f v_fma(v_f a, v_f b, v_f c)
{
    return (v_f){_mm256_fmadd_ps(a.even, b.even, c.even), _mm256_fmadd_ps(a.odd, b.odd, c.odd)};
}

ZOFF_KERNEL_INLINE __m256 v_abs(__m256 a)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
}

ZOFF_KERNEL_INLINE v_f v_max_abs(v_f largest, v_f a)
{
    return (v_f){_mm256_max_ps(largest.even, v_abs(a.even)), _mm256_max_ps(largest.odd, v_abs(a.odd))};
}

ZOFF_KERNEL_INLINE float v_largest(v_f a)
{
    const __m256 eight = _mm256_max_ps(a.even, a.odd);
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

/* copysign(size, x), negated if size < 0. */
ZOFF_KERNEL_INLINE __m256 v_signed(__m256 x, float size)
{
    return _mm256_xor_ps(_mm256_and_ps(x, _mm256_set1_ps(-0.0f)), _mm256_set1_ps(size));
}

ZOFF_KERNEL_INLINE __m256 v_kept(__m256i bits, bool has_sign, float keep)
{
    const __m256 x = _mm256_castsi256_ps(bits);
    return _mm256_fmadd_ps(_mm256_set1_ps(keep), x, has_sign ? v_signed(x, -2 * keep) : _mm256_set1_ps(-2 * keep));
}

/* Load codes. The digits of a code become bits of the upper half of a number. */
ZOFF_KERNEL_INLINE v_f v_load_code(const uint8_t *p, size_t left, bool has_sign, float keep)
{
    const __m128i bytes =
        left >= v_lanes() ? _mm_loadu_si128((const __m128i *)(const void *)p) : _mm256_castsi256_si128(v_load_bytes(p, left));
    const __m256i codes = has_sign ? _mm256_cvtepi8_epi16(bytes) : _mm256_cvtepu8_epi16(bytes); /* bit 15 is the sign */
    const __m256i shifted = _mm256_slli_epi16(codes, 4); /* without a sign no bit is wrong */
    const __m256i digits = has_sign ? _mm256_and_si256(shifted, _mm256_set1_epi16((short)0x87f0)) : shifted;
    const __m256i halves = _mm256_or_si256(digits, _mm256_set1_epi16(0x4000));
    return (v_f){v_kept(_mm256_slli_epi32(halves, 16), has_sign, keep), v_kept(v_odd_only(halves), has_sign, keep)};
}

/* The number whose bits from bit 20 on are a code. Its last four bits are zero, because they are never part of a code. */
ZOFF_KERNEL_INLINE __m256i v_number(__m256 x, bool has_sign)
{
    const __m256 number = _mm256_add_ps(x, has_sign ? v_signed(x, 2) : _mm256_set1_ps(2));
    return _mm256_srli_epi32(_mm256_castps_si256(number), 4);
}

ZOFF_KERNEL_INLINE void v_store_code_dithered(uint8_t *p, v_f x, const uint16_t *lanes, uint16_t key, size_t left,
                                              bool has_sign)
{
    const __m256i words = v_dither(v_number(x.even, has_sign), v_number(x.odd, has_sign), lanes, key);
    const __m256i digits = _mm256_and_si256(words, _mm256_set1_epi16(has_sign ? 0x7f : 0xff));
    /* the sign, which was bit 11 */
    const __m256i sign = _mm256_and_si256(_mm256_srli_epi16(words, 4), _mm256_set1_epi16(0x80));
    const __m256i codes = has_sign ? _mm256_or_si256(digits, sign) : digits;
    const __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(codes), _mm256_extracti128_si256(codes, 1));
    if (left >= v_lanes())
        _mm_storeu_si128((__m128i *)(void *)p, bytes);
    else
        v_store_bytes(p, _mm256_castsi128_si256(bytes), left);
}

ZOFF_KERNEL_INLINE __m256 v_sign_of(__m256 a)
{
    const __m256 one = _mm256_or_ps(_mm256_and_ps(a, _mm256_set1_ps(-0.0f)), _mm256_set1_ps(1.0f));
    const __m256 sign = _mm256_and_ps(one, _mm256_cmp_ps(a, _mm256_setzero_ps(), _CMP_NEQ_UQ));
    return _mm256_blendv_ps(sign, a, _mm256_cmp_ps(a, a, _CMP_UNORD_Q));
}

ZOFF_KERNEL_INLINE v_f v_sign(v_f a)
{
    return (v_f){v_sign_of(a.even), v_sign_of(a.odd)};
}

#include "simd_pairs_never.h"

#endif
