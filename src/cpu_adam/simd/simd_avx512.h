/* SPDX-License-Identifier: Apache-2.0 */
/* simd_avx512.h: the vocabulary of simd_scalar.h with 16 lanes, for AVX-512 F, BW, VL and DQ.
 *
 * Tails use predicates. Rounding to bf16 is integer arithmetic: the instruction of newer CPUs flushes subnormals to zero, and
 * so would not give the bits of the other vocabularies. */
#ifndef ZOFF_SIMD_AVX512_H
#define ZOFF_SIMD_AVX512_H

#include "kernels.h"

#include <immintrin.h>

typedef __m512 v_f;

ZOFF_KERNEL_INLINE size_t v_lanes(void)
{
    return 16;
}

ZOFF_KERNEL_INLINE size_t v_registers(void)
{
    return 32;
}

ZOFF_KERNEL_INLINE v_f v_set1(float x)
{
    return _mm512_set1_ps(x);
}

/* The first `left` lanes, left < 16. */
ZOFF_KERNEL_INLINE __mmask16 v_mask(size_t left)
{
    return (__mmask16)((1u << left) - 1u);
}

ZOFF_KERNEL_INLINE v_f v_load(const float *p, size_t left)
{
    return left >= v_lanes() ? _mm512_loadu_ps(p) : _mm512_maskz_loadu_ps(v_mask(left), p);
}

ZOFF_KERNEL_INLINE void v_store(float *p, v_f x, size_t left)
{
    if (left >= v_lanes())
        _mm512_storeu_ps(p, x);
    else
        _mm512_mask_storeu_ps(p, v_mask(left), x);
}

ZOFF_KERNEL_INLINE __m256i v_load_halves(const uint16_t *p, size_t left)
{
    return left >= v_lanes() ? _mm256_loadu_si256((const __m256i *)p) : _mm256_maskz_loadu_epi16(v_mask(left), (const void *)p);
}

ZOFF_KERNEL_INLINE void v_store_halves(uint16_t *p, __m256i halves, size_t left)
{
    if (left >= v_lanes())
        _mm256_storeu_si256((__m256i *)p, halves);
    else
        _mm256_mask_storeu_epi16(p, v_mask(left), halves);
}

/* One permutation of 16-bit lanes is cheaper than a shift and a conversion. */
ZOFF_KERNEL_INLINE __m512i v_odd_halves(void)
{
    return _mm512_castsi256_si512(_mm256_set_epi16(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1));
}

/* The upper halves of `rounded`, with the canonical NaN where `x` is NaN. */
ZOFF_KERNEL_INLINE __m256i v_upper_bf16(__m512i rounded, v_f x)
{
    const __m512i odd = v_odd_halves();
    const __mmask16 ordered = _mm512_cmp_ps_mask(x, x, _CMP_ORD_Q);
    return _mm512_castsi512_si256(_mm512_mask_permutexvar_epi16(_mm512_set1_epi16(0x7fc0), ordered, odd, rounded));
}

ZOFF_KERNEL_INLINE __m256i v_round_bf16(v_f x)
{
    return v_upper_bf16(_mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(0x8000)), x);
}

/* Replace every NaN by the canonical one first, because the instruction keeps a part of a NaN's bits. */
ZOFF_KERNEL_INLINE __m256i v_round_f16(v_f x)
{
    const v_f nan = _mm512_castsi512_ps(_mm512_set1_epi32(0x7fc00000));
    return _mm512_cvtps_ph(_mm512_mask_mov_ps(x, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), nan), _MM_FROUND_TO_NEAREST_INT);
}

/* Lane k of 16 bits goes to lane 2 k + 1, above a zero. */
ZOFF_KERNEL_INLINE __m512i v_widen_bf16(__m256i halves)
{
    const __m512i up =
        _mm512_set_epi16(15, 0, 14, 0, 13, 0, 12, 0, 11, 0, 10, 0, 9, 0, 8, 0, 7, 0, 6, 0, 5, 0, 4, 0, 3, 0, 2, 0, 1, 0, 0, 0);
    return _mm512_maskz_permutexvar_epi16(0xaaaaaaaau, up, _mm512_castsi256_si512(halves));
}

ZOFF_KERNEL_INLINE v_f v_load_bf16(const uint16_t *p, size_t left)
{
    return _mm512_castsi512_ps(v_widen_bf16(v_load_halves(p, left)));
}

ZOFF_KERNEL_INLINE v_f v_load_split(const uint16_t *high, const uint16_t *low, size_t left)
{
    const __m512i lower = _mm512_cvtepi16_epi32(v_load_halves(low, left));
    return _mm512_castsi512_ps(_mm512_add_epi32(v_widen_bf16(v_load_halves(high, left)), lower));
}

ZOFF_KERNEL_INLINE void v_store_split(uint16_t *high, uint16_t *low, v_f x, size_t left, bool ordered)
{
    const __m512i even = _mm512_castsi256_si512(_mm256_set_epi16(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0));
    const __mmask16 unordered = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    const __m512i bits = ordered ? _mm512_castps_si512(x)
                                 : _mm512_mask_mov_epi32(_mm512_castps_si512(x), unordered, _mm512_set1_epi32(0x7fc00000));
    const __m512i rounded = _mm512_add_epi32(bits, _mm512_set1_epi32(0x8000));
    v_store_halves(high, _mm512_castsi512_si256(_mm512_permutexvar_epi16(v_odd_halves(), rounded)), left);
    v_store_halves(low, _mm512_castsi512_si256(_mm512_permutexvar_epi16(even, bits)), left);
}

ZOFF_KERNEL_INLINE void v_store_bf16(uint16_t *p, v_f x, size_t left)
{
    v_store_halves(p, v_round_bf16(x), left);
}

ZOFF_KERNEL_INLINE void v_store_bf16_dithered(uint16_t *p, v_f x, const uint16_t *lanes, uint16_t key, size_t left,
                                              bool ordered)
{
    const __m256i random = _mm256_add_epi16(_mm256_loadu_si256((const __m256i *)lanes), _mm256_set1_epi16((short)key));
    const __m512i rounded = _mm512_add_epi32(_mm512_castps_si512(x), _mm512_cvtepu16_epi32(random));
    const __m256i upper = _mm512_castsi512_si256(_mm512_permutexvar_epi16(v_odd_halves(), rounded));
    v_store_halves(p, ordered ? upper : v_upper_bf16(rounded, x), left);
}

ZOFF_KERNEL_INLINE v_f v_load_f16(const uint16_t *p, size_t left)
{
    return _mm512_cvtph_ps(v_load_halves(p, left));
}

ZOFF_KERNEL_INLINE void v_store_f16(uint16_t *p, v_f x, size_t left)
{
    v_store_halves(p, v_round_f16(x), left);
}

ZOFF_KERNEL_INLINE bool v_streams(void)
{
    return true;
}

ZOFF_KERNEL_INLINE void v_stream(float *p, v_f x)
{
    _mm512_stream_ps(p, x);
}

ZOFF_KERNEL_INLINE void v_stream_bf16(uint16_t *p, v_f x)
{
    _mm256_stream_si256((__m256i *)p, v_round_bf16(x));
}

ZOFF_KERNEL_INLINE void v_stream_f16(uint16_t *p, v_f x)
{
    _mm256_stream_si256((__m256i *)p, v_round_f16(x));
}

ZOFF_KERNEL_INLINE void v_stream_line(void *p, const void *line)
{
    _mm512_stream_si512((__m512i *)p, _mm512_loadu_si512(line));
}

ZOFF_KERNEL_INLINE void v_stream_end(void)
{
    _mm_sfence();
}

ZOFF_KERNEL_INLINE bool v_any_nan(v_f a, v_f b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q) != 0;
}

ZOFF_KERNEL_INLINE v_f v_add(v_f a, v_f b)
{
    return _mm512_add_ps(a, b);
}

ZOFF_KERNEL_INLINE v_f v_mul(v_f a, v_f b)
{
    return _mm512_mul_ps(a, b);
}

ZOFF_KERNEL_INLINE v_f v_div(v_f a, v_f b)
{
    return _mm512_div_ps(a, b);
}

ZOFF_KERNEL_INLINE v_f v_sqrt(v_f a)
{
    return _mm512_sqrt_ps(a);
}

ZOFF_KERNEL_INLINE v_f v_fma(v_f a, v_f b, v_f c)
{
    return _mm512_fmadd_ps(a, b, c);
}

ZOFF_KERNEL_INLINE v_f v_max_abs(v_f largest, v_f a)
{
    return _mm512_range_ps(largest, a, 0x0b); /* the larger magnitude, without a sign */
}

ZOFF_KERNEL_INLINE float v_largest(v_f a)
{
    return _mm512_reduce_max_ps(a);
}

/* copysign(size, x), negated if size < 0. */
ZOFF_KERNEL_INLINE v_f v_signed(v_f x, float size)
{
    return _mm512_xor_ps(_mm512_and_ps(x, _mm512_set1_ps(-0.0f)), _mm512_set1_ps(size));
}

ZOFF_KERNEL_INLINE v_f v_load_code(const uint8_t *p, size_t left, bool has_sign, float keep)
{
    const __m128i bytes =
        left >= v_lanes() ? _mm_loadu_si128((const __m128i *)(const void *)p) : _mm_maskz_loadu_epi8(v_mask(left), p);
    const __m512i codes = has_sign ? _mm512_cvtepi8_epi32(bytes) : _mm512_cvtepu8_epi32(bytes); /* bit 31 is the sign */
    const __m512i kept = _mm512_set1_epi32(has_sign ? (int)0x87f00000 : 0x0ff00000), two = _mm512_set1_epi32(0x40000000);
    const v_f x = _mm512_castsi512_ps(_mm512_or_si512(_mm512_and_si512(_mm512_slli_epi32(codes, 20), kept), two));
    return _mm512_fmadd_ps(_mm512_set1_ps(keep), x, has_sign ? v_signed(x, -2 * keep) : _mm512_set1_ps(-2 * keep));
}

/* The conversion to bytes keeps the lower eight bits of a lane. */
ZOFF_KERNEL_INLINE void v_store_code_dithered(uint8_t *p, v_f x, const uint16_t *lanes, uint16_t key, size_t left,
                                              bool has_sign)
{
    const __m256i random = _mm256_add_epi16(_mm256_loadu_si256((const __m256i *)lanes), _mm256_set1_epi16((short)key));
    const v_f number = _mm512_add_ps(x, has_sign ? v_signed(x, 2) : _mm512_set1_ps(2));
    const __m512i bits = _mm512_add_epi32(_mm512_castps_si512(number), _mm512_slli_epi32(_mm512_cvtepu16_epi32(random), 4));
    const __m512i digits = _mm512_srli_epi32(bits, 20), sign = _mm512_srli_epi32(bits, 24);
    const __m512i codes = has_sign ? _mm512_ternarylogic_epi32(digits, sign, _mm512_set1_epi32(0x7f), 0xe4) : digits;
    const __m128i bytes = _mm512_cvtepi32_epi8(codes);
    if (left >= v_lanes())
        _mm_storeu_si128((__m128i *)(void *)p, bytes);
    else
        _mm_mask_storeu_epi8(p, v_mask(left), bytes);
}

ZOFF_KERNEL_INLINE v_f v_sign(v_f a)
{
    const v_f one = _mm512_or_ps(_mm512_and_ps(a, _mm512_set1_ps(-0.0f)), _mm512_set1_ps(1.0f));
    const v_f sign = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a, _mm512_setzero_ps(), _CMP_NEQ_UQ), one);
    return _mm512_mask_mov_ps(sign, _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), a);
}

/* Lanes 0-7, 8-15. */
typedef struct v_sum {
    __m512d low, high;
} v_sum;

ZOFF_KERNEL_INLINE v_sum v_sum_zero(void)
{
    return (v_sum){_mm512_setzero_pd(), _mm512_setzero_pd()};
}

ZOFF_KERNEL_INLINE v_sum v_sum_halves(v_sum sum, __m256 low, __m256 high)
{
    const __m512d first = _mm512_cvtps_pd(low), second = _mm512_cvtps_pd(high);
    sum.low = _mm512_fmadd_pd(first, first, sum.low);
    sum.high = _mm512_fmadd_pd(second, second, sum.high);
    return sum;
}

/* A lane that was not read is zero, and adds +0 to a sum that is never -0. */
ZOFF_KERNEL_INLINE v_sum v_sum_add(v_sum sum, v_f x)
{
    return v_sum_halves(sum, _mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
}

/* Two loads need no shuffle. */
ZOFF_KERNEL_INLINE v_sum v_sum_squares(v_sum sum, const float *p, size_t left)
{
    return left >= v_lanes() ? v_sum_halves(sum, _mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)) : v_sum_add(sum, v_load(p, left));
}

ZOFF_KERNEL_INLINE v_sum v_sum_squares_bf16(v_sum sum, const uint16_t *p, size_t left)
{
    return v_sum_add(sum, v_load_bf16(p, left));
}

ZOFF_KERNEL_INLINE v_sum v_sum_squares_f16(v_sum sum, const uint16_t *p, size_t left)
{
    return v_sum_add(sum, v_load_f16(p, left));
}

ZOFF_KERNEL_INLINE double v_sum_total(v_sum sum)
{
    __m512d eight = _mm512_add_pd(sum.low, sum.high);
    __m256d four = _mm256_add_pd(_mm512_castpd512_pd256(eight), _mm512_extractf64x4_pd(eight, 1));
    __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
    return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

typedef __m512i v_i;

ZOFF_KERNEL_INLINE v_i v_int(int32_t x)
{
    return _mm512_set1_epi32(x);
}

ZOFF_KERNEL_INLINE v_i v_int_add(v_i a, v_i b)
{
    return _mm512_add_epi32(a, b);
}

ZOFF_KERNEL_INLINE v_i v_int_sub(v_i a, v_i b)
{
    return _mm512_sub_epi32(a, b);
}

ZOFF_KERNEL_INLINE v_i v_int_mul(v_i a, int32_t by)
{
    return _mm512_mullo_epi32(a, _mm512_set1_epi32(by));
}

ZOFF_KERNEL_INLINE v_i v_int_down(v_i a, int bits)
{
    return _mm512_srli_epi32(a, bits & 31);
}

ZOFF_KERNEL_INLINE v_i v_int_max(v_i a, v_i b)
{
    return _mm512_max_epi32(a, b);
}

ZOFF_KERNEL_INLINE v_i v_int_unless_above(v_i a, int32_t limit, v_i x)
{
    return _mm512_maskz_mov_epi32(_mm512_cmple_epi32_mask(a, _mm512_set1_epi32(limit)), x);
}

ZOFF_KERNEL_INLINE v_i v_int_bits(v_f x)
{
    return _mm512_castps_si512(x);
}

ZOFF_KERNEL_INLINE v_i v_int_size(v_f x)
{
    return _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff));
}

ZOFF_KERNEL_INLINE v_f v_from_bits(v_i bits)
{
    return _mm512_castsi512_ps(bits);
}

/* Sixteen numbers of 3 bytes: four go to each quarter of the register, and their bytes to the places there. */
ZOFF_KERNEL_INLINE v_i v_load_int(const char *p, unsigned width)
{
    if (width == 1)
        return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
    if (width == 4)
        return _mm512_loadu_si512(p);
    const __m512i quarters = _mm512_setr_epi32(0, 1, 2, 0, 3, 4, 5, 0, 6, 7, 8, 0, 9, 10, 11, 0);
    const __m512i spread = _mm512_broadcast_i32x4(_mm_setr_epi8(-1, 0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11));
    const __m512i bytes = _mm512_permutexvar_epi32(quarters, _mm512_maskz_loadu_epi32(0x0fff, p));
    return _mm512_srai_epi32(_mm512_shuffle_epi8(bytes, spread), 8);
}

ZOFF_KERNEL_INLINE void v_store_int(char *p, v_i x, unsigned width)
{
    if (width == 1) {
        _mm_storeu_si128((__m128i *)(void *)p, _mm512_cvtepi32_epi8(x));
    } else if (width == 4) {
        _mm512_storeu_si512(p, x);
    } else {
        const __m512i together = _mm512_setr_epi32(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 0, 0, 0, 0);
        const __m512i pack = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1));
        _mm512_mask_storeu_epi32(p, 0x0fff, _mm512_permutexvar_epi32(together, _mm512_shuffle_epi8(x, pack)));
    }
}

/* Integers of 16 bits, twice as many as lanes. As upper halves they become two registers: four elements of each eight, and the
 * others. */
#define ZOFF_SIMD_HALVES
typedef __m512i v_h;

ZOFF_KERNEL_INLINE v_h v_halves(int16_t x)
{
    return _mm512_set1_epi16(x);
}

ZOFF_KERNEL_INLINE v_h v_load_h(const void *p)
{
    return _mm512_loadu_si512(p);
}

ZOFF_KERNEL_INLINE v_h v_halves_load_bytes(const uint8_t *p)
{
    return _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

ZOFF_KERNEL_INLINE void v_halves_store_bytes(uint8_t *p, v_h x)
{
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtepi16_epi8(x));
}

ZOFF_KERNEL_INLINE v_h v_halves_size(v_h x)
{
    return _mm512_and_si512(x, _mm512_set1_epi16(0x7fff));
}

ZOFF_KERNEL_INLINE v_h v_halves_max(v_h a, v_h b)
{
    return _mm512_max_epi16(a, b);
}

ZOFF_KERNEL_INLINE v_h v_halves_add(v_h a, v_h b)
{
    return _mm512_add_epi16(a, b);
}

ZOFF_KERNEL_INLINE v_h v_halves_sub(v_h a, v_h b)
{
    return _mm512_sub_epi16(a, b);
}

ZOFF_KERNEL_INLINE v_h v_halves_mul(v_h a, int16_t by)
{
    return _mm512_mullo_epi16(a, _mm512_set1_epi16(by));
}

ZOFF_KERNEL_INLINE v_h v_halves_down(v_h a, int bits)
{
    return _mm512_srli_epi16(a, bits & 15);
}

ZOFF_KERNEL_INLINE bool v_halves_any_above(v_h a, int16_t limit)
{
    return _mm512_cmpgt_epi16_mask(a, _mm512_set1_epi16(limit)) != 0;
}

ZOFF_KERNEL_INLINE void v_halves_widen(v_h x, v_i *a, v_i *b)
{
    *a = _mm512_unpacklo_epi16(_mm512_setzero_si512(), x);
    *b = _mm512_unpackhi_epi16(_mm512_setzero_si512(), x);
}

ZOFF_KERNEL_INLINE void v_halves_in_order(v_i *a, v_i *b)
{
    const v_i first = _mm512_permutex2var_epi64(*a, _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11), *b);
    *b = _mm512_permutex2var_epi64(*a, _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15), *b);
    *a = first;
}

ZOFF_KERNEL_INLINE v_f v_from_int(v_i a)
{
    return _mm512_cvtepi32_ps(a);
}

ZOFF_KERNEL_INLINE __m256 v_digits_half(__m256i hi, __m256i lo, __m256 unit)
{
    const __m512d sum = _mm512_fmadd_pd(_mm512_cvtepi32_pd(lo), _mm512_set1_pd(0x1p-20), _mm512_cvtepi32_pd(hi));
    return _mm512_cvtpd_ps(_mm512_mul_pd(sum, _mm512_cvtps_pd(unit)));
}

ZOFF_KERNEL_INLINE v_f v_digits(v_i hi, v_i lo, v_f unit)
{
    const __m256 low = v_digits_half(_mm512_castsi512_si256(hi), _mm512_castsi512_si256(lo), _mm512_castps512_ps256(unit));
    const __m256 high =
        v_digits_half(_mm512_extracti64x4_epi64(hi, 1), _mm512_extracti64x4_epi64(lo, 1), _mm512_extractf32x8_ps(unit, 1));
    return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
}

#endif
