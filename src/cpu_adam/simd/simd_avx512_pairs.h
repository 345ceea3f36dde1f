/* SPDX-License-Identifier: Apache-2.0 */
/* simd_avx512_pairs.h: the vocabulary of simd_scalar.h with 32 lanes, for steps whose arrays have 16-bit elements or codes. A
 * register of 32 of them becomes two of fp32, the even elements and the odd ones. That takes a shift and a mask, where lanes in
 * their order take a permutation for each half; and most CPUs have more units for the former.
 *
 * It has only what these steps use. */
#ifndef ZOFF_SIMD_AVX512_PAIRS_H
#define ZOFF_SIMD_AVX512_PAIRS_H

#include "kernels.h"

#include <immintrin.h>

typedef struct v_f {
    __m512 even, odd;
} v_f;

ZOFF_KERNEL_INLINE size_t v_lanes(void)
{
    return 32;
}

ZOFF_KERNEL_INLINE v_f v_set1(float x)
{
    return (v_f){_mm512_set1_ps(x), _mm512_set1_ps(x)};
}

/* The first `left` lanes, left < 32. */
ZOFF_KERNEL_INLINE __mmask32 v_mask(size_t left)
{
    return (__mmask32)((UINT32_C(1) << left) - 1u);
}

ZOFF_KERNEL_INLINE __m512i v_load_halves(const uint16_t *p, size_t left)
{
    return left >= v_lanes() ? _mm512_loadu_si512(p) : _mm512_maskz_loadu_epi16(v_mask(left), p);
}

ZOFF_KERNEL_INLINE void v_store_halves(uint16_t *p, __m512i halves, size_t left)
{
    if (left >= v_lanes())
        _mm512_storeu_si512(p, halves);
    else
        _mm512_mask_storeu_epi16(p, v_mask(left), halves);
}

/* The upper halves of two registers. One shuffle with a mask does what a shift and a blend would. */
ZOFF_KERNEL_INLINE __m512i v_upper(__m512i even, __m512i odd)
{
    const __m512i two_down = _mm512_set4_epi32(0x0f0e0f0e, 0x0b0a0b0a, 0x07060706, 0x03020302);
    return _mm512_mask_shuffle_epi8(odd, 0x3333333333333333u, even, two_down);
}

/* The lower halves of two registers. */
ZOFF_KERNEL_INLINE __m512i v_lower(__m512i even, __m512i odd)
{
    const __m512i two_up = _mm512_set4_epi32(0x0d0c0d0c, 0x09080908, 0x05040504, 0x01000100);
    return _mm512_mask_shuffle_epi8(even, 0xccccccccccccccccu, odd, two_up);
}

ZOFF_KERNEL_INLINE __m512i v_one_nan(__m512 x, bool ordered)
{
    const __m512i bits = _mm512_castps_si512(x);
    if (ordered)
        return bits;
    return _mm512_mask_mov_epi32(bits, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), _mm512_set1_epi32(0x7fc00000));
}

ZOFF_KERNEL_INLINE v_f v_load_bf16(const uint16_t *p, size_t left)
{
    const __m512i halves = v_load_halves(p, left);
    return (v_f){_mm512_castsi512_ps(_mm512_slli_epi32(halves, 16)),
                 _mm512_castsi512_ps(_mm512_and_si512(halves, _mm512_set1_epi32((int)0xffff0000)))};
}

/* A negative lower half borrows one from the upper half. */
ZOFF_KERNEL_INLINE v_f v_load_split(const uint16_t *high, const uint16_t *low, size_t left)
{
    const __m512i lower = v_load_halves(low, left);
    const __m512i upper = _mm512_add_epi16(v_load_halves(high, left), _mm512_srai_epi16(lower, 15));
    return (v_f){_mm512_castsi512_ps(v_lower(lower, upper)), _mm512_castsi512_ps(v_upper(lower, upper))};
}

/* The rounded upper half is the upper half of a number plus the first bit of the lower one. */
ZOFF_KERNEL_INLINE void v_store_split(uint16_t *high, uint16_t *low, v_f x, size_t left, bool ordered)
{
    const __m512i even = v_one_nan(x.even, ordered), odd = v_one_nan(x.odd, ordered);
    const __m512i lower = v_lower(even, odd);
    v_store_halves(high, _mm512_add_epi16(v_upper(even, odd), _mm512_srli_epi16(lower, 15)), left);
    v_store_halves(low, lower, left);
}

ZOFF_KERNEL_INLINE void v_store_bf16_dithered(uint16_t *p, v_f x, const uint16_t *lanes, uint16_t key, size_t left,
                                              bool ordered)
{
    const __m512i random = _mm512_add_epi16(_mm512_loadu_si512(lanes), _mm512_set1_epi16((short)key));
    const __m512i even = _mm512_and_si512(random, _mm512_set1_epi32(0xffff)), odd = _mm512_srli_epi32(random, 16);
    v_store_halves(
        p, v_upper(_mm512_add_epi32(v_one_nan(x.even, ordered), even), _mm512_add_epi32(v_one_nan(x.odd, ordered), odd)), left);
}

ZOFF_KERNEL_INLINE bool v_any_nan(v_f a, v_f b)
{
    return !_mm512_kortestz(_mm512_cmp_ps_mask(a.even, b.even, _CMP_UNORD_Q), _mm512_cmp_ps_mask(a.odd, b.odd, _CMP_UNORD_Q));
}

ZOFF_KERNEL_INLINE v_f v_add(v_f a, v_f b)
{
    return (v_f){_mm512_add_ps(a.even, b.even), _mm512_add_ps(a.odd, b.odd)};
}

ZOFF_KERNEL_INLINE v_f v_mul(v_f a, v_f b)
{
    return (v_f){_mm512_mul_ps(a.even, b.even), _mm512_mul_ps(a.odd, b.odd)};
}

ZOFF_KERNEL_INLINE v_f v_div(v_f a, v_f b)
{
    return (v_f){_mm512_div_ps(a.even, b.even), _mm512_div_ps(a.odd, b.odd)};
}

ZOFF_KERNEL_INLINE v_f v_sqrt(v_f a)
{
    return (v_f){_mm512_sqrt_ps(a.even), _mm512_sqrt_ps(a.odd)};
}

ZOFF_KERNEL_INLINE v_f v_fma(v_f a, v_f b, v_f c)
{
    return (v_f){_mm512_fmadd_ps(a.even, b.even, c.even), _mm512_fmadd_ps(a.odd, b.odd, c.odd)};
}

/* The larger magnitude, without a sign. */
ZOFF_KERNEL_INLINE v_f v_max_abs(v_f largest, v_f a)
{
    return (v_f){_mm512_range_ps(largest.even, a.even, 0x0b), _mm512_range_ps(largest.odd, a.odd, 0x0b)};
}

ZOFF_KERNEL_INLINE float v_largest(v_f a)
{
    return _mm512_reduce_max_ps(_mm512_max_ps(a.even, a.odd));
}

/* copysign(size, x), negated if size < 0. */
ZOFF_KERNEL_INLINE __m512 v_signed(__m512 x, float size)
{
    return _mm512_xor_ps(_mm512_and_ps(x, _mm512_set1_ps(-0.0f)), _mm512_set1_ps(size));
}

ZOFF_KERNEL_INLINE __m512 v_kept(__m512i bits, bool has_sign, float keep)
{
    const __m512 x = _mm512_castsi512_ps(bits);
    return _mm512_fmadd_ps(_mm512_set1_ps(keep), x, has_sign ? v_signed(x, -2 * keep) : _mm512_set1_ps(-2 * keep));
}

/* Load codes. The digits of a code become bits of the upper half of a number. */
ZOFF_KERNEL_INLINE v_f v_load_code(const uint8_t *p, size_t left, bool has_sign, float keep)
{
    const __m256i bytes =
        left >= v_lanes() ? _mm256_loadu_si256((const __m256i *)(const void *)p) : _mm256_maskz_loadu_epi8(v_mask(left), p);
    const __m512i codes = has_sign ? _mm512_cvtepi8_epi16(bytes) : _mm512_cvtepu8_epi16(bytes); /* bit 15 is the sign */
    const __m512i digits = _mm512_and_si512(_mm512_slli_epi16(codes, 4), _mm512_set1_epi16(has_sign ? (short)0x87f0 : 0x0ff0));
    const __m512i halves = _mm512_or_si512(digits, _mm512_set1_epi16(0x4000));
    return (v_f){v_kept(_mm512_slli_epi32(halves, 16), has_sign, keep),
                 v_kept(_mm512_and_si512(halves, _mm512_set1_epi32((int)0xffff0000)), has_sign, keep)};
}

/* The number whose bits from bit 20 on are a code. Its last four bits are zero, because they are never part of a code. */
ZOFF_KERNEL_INLINE __m512i v_number(__m512 x, bool has_sign)
{
    const __m512 number = _mm512_add_ps(x, has_sign ? v_signed(x, 2) : _mm512_set1_ps(2));
    return _mm512_srli_epi32(_mm512_castps_si512(number), 4);
}

ZOFF_KERNEL_INLINE void v_store_code_dithered(uint8_t *p, v_f x, const uint16_t *lanes, uint16_t key, size_t left,
                                              bool has_sign)
{
    const __m512i random = _mm512_add_epi16(_mm512_loadu_si512(lanes), _mm512_set1_epi16((short)key));
    const __m512i even = _mm512_and_si512(random, _mm512_set1_epi32(0xffff)), odd = _mm512_srli_epi32(random, 16);
    const __m512i words =
        v_upper(_mm512_add_epi32(v_number(x.even, has_sign), even), _mm512_add_epi32(v_number(x.odd, has_sign), odd));
    /* Bits 0 to 6 of the digits, and bit 11, the sign, as bit 7. */
    const __m512i codes =
        has_sign ? _mm512_ternarylogic_epi32(words, _mm512_srli_epi16(words, 4), _mm512_set1_epi16(0x7f), 0xe4) : words;
    const __m256i bytes = _mm512_cvtepi16_epi8(codes);
    if (left >= v_lanes())
        _mm256_storeu_si256((__m256i *)(void *)p, bytes);
    else
        _mm256_mask_storeu_epi8(p, v_mask(left), bytes);
}

ZOFF_KERNEL_INLINE __m512 v_sign_of(__m512 a)
{
    const __m512 one = _mm512_or_ps(_mm512_and_ps(a, _mm512_set1_ps(-0.0f)), _mm512_set1_ps(1.0f));
    const __m512 sign = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a, _mm512_setzero_ps(), _CMP_NEQ_UQ), one);
    return _mm512_mask_mov_ps(sign, _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), a);
}

ZOFF_KERNEL_INLINE v_f v_sign(v_f a)
{
    return (v_f){v_sign_of(a.even), v_sign_of(a.odd)};
}

#include "simd_pairs_never.h"

#endif
