/* SPDX-License-Identifier: Apache-2.0 */
/* simd_avx2.h: the vocabulary of simd_scalar.h with 8 lanes, for AVX2 with FMA.
 *
 * Tails of fp32 use masked loads and stores, which do not touch other bytes. 16-bit elements have no such instruction, and go
 * through a copy of the size of a register. The modulo there bounds the length for compilers that do not remove dead code. */
#ifndef ZOFF_SIMD_AVX2_H
#define ZOFF_SIMD_AVX2_H

#include "kernels.h"

#include <immintrin.h>
#include <string.h>

typedef __m256 v_f;

ZOFF_KERNEL_INLINE size_t v_lanes(void)
{
    return 8;
}

ZOFF_KERNEL_INLINE size_t v_registers(void)
{
    return 16;
}

ZOFF_KERNEL_INLINE v_f v_set1(float x)
{
    return _mm256_set1_ps(x);
}

/* All ones in the first `left` lanes, left < 8. */
ZOFF_KERNEL_INLINE __m256i v_mask(size_t left)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)left), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

ZOFF_KERNEL_INLINE v_f v_load(const float *p, size_t left)
{
    return left >= v_lanes() ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, v_mask(left));
}

ZOFF_KERNEL_INLINE void v_store(float *p, v_f x, size_t left)
{
    if (left >= v_lanes())
        _mm256_storeu_ps(p, x);
    else
        _mm256_maskstore_ps(p, v_mask(left), x);
}

/* The first `bytes` of a register. */
ZOFF_KERNEL_RARE __m128i v_load_bytes(const void *p, size_t bytes)
{
    __m128i part = _mm_setzero_si128();
    memcpy(&part, p, bytes % sizeof part);
    return part;
}

ZOFF_KERNEL_RARE void v_store_bytes(void *p, __m128i part, size_t bytes)
{
    memcpy(p, &part, bytes % sizeof part);
}

ZOFF_KERNEL_INLINE __m128i v_load_halves(const uint16_t *p, size_t left)
{
    return left >= v_lanes() ? _mm_loadu_si128((const __m128i *)p) : v_load_bytes(p, left * sizeof *p);
}

ZOFF_KERNEL_INLINE void v_store_halves(uint16_t *p, __m128i halves, size_t left)
{
    if (left >= v_lanes())
        _mm_storeu_si128((__m128i *)p, halves);
    else
        v_store_bytes(p, halves, left * sizeof *p);
}

ZOFF_KERNEL_INLINE __m128i v_upper(__m256i numbers)
{
    numbers = _mm256_srli_epi32(numbers, 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(numbers), _mm256_extracti128_si256(numbers, 1));
}

/* The upper halves of `rounded`, with the canonical NaN where `x` is NaN. */
ZOFF_KERNEL_INLINE __m128i v_upper_bf16(__m256i rounded, v_f x)
{
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    return v_upper(_mm256_blendv_epi8(rounded, _mm256_set1_epi32(0x7fc00000), nan));
}

ZOFF_KERNEL_INLINE __m128i v_round_bf16(v_f x)
{
    return v_upper_bf16(_mm256_add_epi32(_mm256_castps_si256(x), _mm256_set1_epi32(0x8000)), x);
}

/* Replace every NaN by the canonical one first, because the instruction keeps a part of a NaN's bits. */
ZOFF_KERNEL_INLINE __m128i v_round_f16(v_f x)
{
    const v_f nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000));
    return _mm256_cvtps_ph(_mm256_blendv_ps(x, nan, _mm256_cmp_ps(x, x, _CMP_UNORD_Q)), _MM_FROUND_TO_NEAREST_INT);
}

ZOFF_KERNEL_INLINE v_f v_load_bf16(const uint16_t *p, size_t left)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v_load_halves(p, left)), 16));
}

ZOFF_KERNEL_INLINE void v_store_bf16(uint16_t *p, v_f x, size_t left)
{
    v_store_halves(p, v_round_bf16(x), left);
}

ZOFF_KERNEL_INLINE v_f v_load_split(const uint16_t *high, const uint16_t *low, size_t left)
{
    const __m256i upper = _mm256_slli_epi32(_mm256_cvtepu16_epi32(v_load_halves(high, left)), 16);
    return _mm256_castsi256_ps(_mm256_add_epi32(upper, _mm256_cvtepi16_epi32(v_load_halves(low, left))));
}

ZOFF_KERNEL_INLINE void v_store_split(uint16_t *high, uint16_t *low, v_f x, size_t left, bool ordered)
{
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)), one = _mm256_set1_epi32(0x7fc00000);
    const __m256i bits = ordered ? _mm256_castps_si256(x) : _mm256_blendv_epi8(_mm256_castps_si256(x), one, nan);
    const __m256i upper = _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x8000)), 16);
    const __m256i lower = _mm256_and_si256(bits, _mm256_set1_epi32(0xffff));
    /* Lanes 0-3 of both, then lanes 4-7, so that one instruction puts both halves of the result in place. */
    const __m256i both = _mm256_permute4x64_epi64(_mm256_packus_epi32(upper, lower), _MM_SHUFFLE(3, 1, 2, 0));
    v_store_halves(high, _mm256_castsi256_si128(both), left);
    v_store_halves(low, _mm256_extracti128_si256(both, 1), left);
}

ZOFF_KERNEL_INLINE void v_store_bf16_dithered(uint16_t *p, v_f x, const uint16_t *lanes, uint16_t key, size_t left,
                                              bool ordered)
{
    const __m128i random = _mm_add_epi16(_mm_loadu_si128((const __m128i *)lanes), _mm_set1_epi16((short)key));
    const __m256i rounded = _mm256_add_epi32(_mm256_castps_si256(x), _mm256_cvtepu16_epi32(random));
    v_store_halves(p, ordered ? v_upper(rounded) : v_upper_bf16(rounded, x), left);
}

ZOFF_KERNEL_INLINE v_f v_load_f16(const uint16_t *p, size_t left)
{
    return _mm256_cvtph_ps(v_load_halves(p, left));
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
    _mm256_stream_ps(p, x);
}

ZOFF_KERNEL_INLINE void v_stream_bf16(uint16_t *p, v_f x)
{
    _mm_stream_si128((__m128i *)p, v_round_bf16(x));
}

ZOFF_KERNEL_INLINE void v_stream_f16(uint16_t *p, v_f x)
{
    _mm_stream_si128((__m128i *)p, v_round_f16(x));
}

ZOFF_KERNEL_INLINE void v_stream_line(void *p, const void *line)
{
    const __m256i first = _mm256_loadu_si256((const __m256i *)line), second = _mm256_loadu_si256((const __m256i *)line + 1);
    _mm256_stream_si256((__m256i *)p, first);
    _mm256_stream_si256((__m256i *)p + 1, second);
}

ZOFF_KERNEL_INLINE void v_stream_end(void)
{
    _mm_sfence();
}

ZOFF_KERNEL_INLINE bool v_any_nan(v_f a, v_f b)
{
    return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_UNORD_Q)) != 0;
}

ZOFF_KERNEL_INLINE v_f v_add(v_f a, v_f b)
{
    return _mm256_add_ps(a, b);
}

ZOFF_KERNEL_INLINE v_f v_mul(v_f a, v_f b)
{
    return _mm256_mul_ps(a, b);
}

ZOFF_KERNEL_INLINE v_f v_div(v_f a, v_f b)
{
    return _mm256_div_ps(a, b);
}

ZOFF_KERNEL_INLINE v_f v_sqrt(v_f a)
{
    return _mm256_sqrt_ps(a);
}

ZOFF_KERNEL_INLINE v_f v_fma(v_f a, v_f b, v_f c)
{
    return _mm256_fmadd_ps(a, b, c);
}

ZOFF_KERNEL_INLINE v_f v_abs(v_f a)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
}

ZOFF_KERNEL_INLINE v_f v_max_abs(v_f largest, v_f a)
{
    return _mm256_max_ps(largest, v_abs(a));
}

ZOFF_KERNEL_INLINE float v_largest(v_f a)
{
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

/* copysign(size, x), negated if size < 0. */
ZOFF_KERNEL_INLINE v_f v_signed(v_f x, float size)
{
    return _mm256_xor_ps(_mm256_and_ps(x, _mm256_set1_ps(-0.0f)), _mm256_set1_ps(size));
}

ZOFF_KERNEL_INLINE v_f v_load_code(const uint8_t *p, size_t left, bool has_sign, float keep)
{
    const __m128i bytes = left >= v_lanes() ? _mm_loadl_epi64((const __m128i *)(const void *)p) : v_load_bytes(p, left);
    const __m256i codes = has_sign ? _mm256_cvtepi8_epi32(bytes) : _mm256_cvtepu8_epi32(bytes); /* bit 31 is the sign */
    const __m256i kept = _mm256_set1_epi32(has_sign ? (int)0x87f00000 : 0x0ff00000), two = _mm256_set1_epi32(0x40000000);
    const v_f x = _mm256_castsi256_ps(_mm256_or_si256(_mm256_and_si256(_mm256_slli_epi32(codes, 20), kept), two));
    return _mm256_fmadd_ps(_mm256_set1_ps(keep), x, has_sign ? v_signed(x, -2 * keep) : _mm256_set1_ps(-2 * keep));
}

ZOFF_KERNEL_INLINE void v_store_code_dithered(uint8_t *p, v_f x, const uint16_t *lanes, uint16_t key, size_t left,
                                              bool has_sign)
{
    const __m128i random = _mm_add_epi16(_mm_loadu_si128((const __m128i *)lanes), _mm_set1_epi16((short)key));
    const v_f number = _mm256_add_ps(x, has_sign ? v_signed(x, 2) : _mm256_set1_ps(2));
    const __m256i bits = _mm256_add_epi32(_mm256_castps_si256(number), _mm256_slli_epi32(_mm256_cvtepu16_epi32(random), 4));
    const __m256i digits = _mm256_and_si256(_mm256_srli_epi32(bits, 20), _mm256_set1_epi32(has_sign ? 0x7f : 0xff));
    const __m256i sign = _mm256_and_si256(_mm256_srli_epi32(bits, 24), _mm256_set1_epi32(0x80));
    const __m256i codes = has_sign ? _mm256_or_si256(digits, sign) : digits;
    const __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(codes), _mm256_extracti128_si256(codes, 1));
    const __m128i bytes = _mm_packus_epi16(words, words);
    if (left >= v_lanes())
        _mm_storel_epi64((__m128i *)(void *)p, bytes);
    else
        v_store_bytes(p, bytes, left);
}

ZOFF_KERNEL_INLINE v_f v_sign(v_f a)
{
    const v_f one = _mm256_or_ps(_mm256_and_ps(a, _mm256_set1_ps(-0.0f)), _mm256_set1_ps(1.0f));
    const v_f sign = _mm256_and_ps(one, _mm256_cmp_ps(a, _mm256_setzero_ps(), _CMP_NEQ_UQ));
    return _mm256_blendv_ps(sign, a, _mm256_cmp_ps(a, a, _CMP_UNORD_Q));
}

/* Lanes 0-3, 4-7, 8-11, 12-15. */
typedef struct v_sum {
    __m256d a, b, c, d;
} v_sum;

ZOFF_KERNEL_INLINE v_sum v_sum_zero(void)
{
    __m256d zero = _mm256_setzero_pd();
    return (v_sum){zero, zero, zero, zero};
}

ZOFF_KERNEL_INLINE __m256d v_sum_quarter(__m256d sum, __m128 x)
{
    __m256d wide = _mm256_cvtps_pd(x);
    return _mm256_fmadd_pd(wide, wide, sum);
}

/* A lane that was not read is zero, and adds +0 to a sum that is never -0. */
ZOFF_KERNEL_INLINE v_sum v_sum_add(v_sum sum, v_f low, v_f high)
{
    sum.a = v_sum_quarter(sum.a, _mm256_castps256_ps128(low));
    sum.b = v_sum_quarter(sum.b, _mm256_extractf128_ps(low, 1));
    sum.c = v_sum_quarter(sum.c, _mm256_castps256_ps128(high));
    sum.d = v_sum_quarter(sum.d, _mm256_extractf128_ps(high, 1));
    return sum;
}

/* Loads of a quarter of a register need no shuffle, and a core can do only one shuffle in a cycle. */
ZOFF_KERNEL_INLINE v_sum v_sum_squares(v_sum sum, const float *p, size_t left)
{
    if (left >= 2 * v_lanes()) {
        sum.a = v_sum_quarter(sum.a, _mm_loadu_ps(p));
        sum.b = v_sum_quarter(sum.b, _mm_loadu_ps(p + 4));
        sum.c = v_sum_quarter(sum.c, _mm_loadu_ps(p + 8));
        sum.d = v_sum_quarter(sum.d, _mm_loadu_ps(p + 12));
        return sum;
    }
    v_f high = left > v_lanes() ? v_load(p + v_lanes(), left - v_lanes()) : _mm256_setzero_ps();
    return v_sum_add(sum, v_load(p, left), high);
}

ZOFF_KERNEL_INLINE v_sum v_sum_squares_bf16(v_sum sum, const uint16_t *p, size_t left)
{
    v_f high = left > v_lanes() ? v_load_bf16(p + v_lanes(), left - v_lanes()) : _mm256_setzero_ps();
    return v_sum_add(sum, v_load_bf16(p, left), high);
}

ZOFF_KERNEL_INLINE v_sum v_sum_squares_f16(v_sum sum, const uint16_t *p, size_t left)
{
    v_f high = left > v_lanes() ? v_load_f16(p + v_lanes(), left - v_lanes()) : _mm256_setzero_ps();
    return v_sum_add(sum, v_load_f16(p, left), high);
}

ZOFF_KERNEL_INLINE double v_sum_total(v_sum sum)
{
    __m256d four = _mm256_add_pd(_mm256_add_pd(sum.a, sum.c), _mm256_add_pd(sum.b, sum.d));
    __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
    return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

typedef __m256i v_i;

ZOFF_KERNEL_INLINE v_i v_int(int32_t x)
{
    return _mm256_set1_epi32(x);
}

ZOFF_KERNEL_INLINE v_i v_int_add(v_i a, v_i b)
{
    return _mm256_add_epi32(a, b);
}

ZOFF_KERNEL_INLINE v_i v_int_sub(v_i a, v_i b)
{
    return _mm256_sub_epi32(a, b);
}

ZOFF_KERNEL_INLINE v_i v_int_mul(v_i a, int32_t by)
{
    return _mm256_mullo_epi32(a, _mm256_set1_epi32(by));
}

ZOFF_KERNEL_INLINE v_i v_int_down(v_i a, int bits)
{
    return _mm256_srli_epi32(a, bits);
}

ZOFF_KERNEL_INLINE v_i v_int_max(v_i a, v_i b)
{
    return _mm256_max_epi32(a, b);
}

ZOFF_KERNEL_INLINE v_i v_int_unless_above(v_i a, int32_t limit, v_i x)
{
    return _mm256_andnot_si256(_mm256_cmpgt_epi32(a, _mm256_set1_epi32(limit)), x);
}

ZOFF_KERNEL_INLINE v_i v_int_bits(v_f x)
{
    return _mm256_castps_si256(x);
}

ZOFF_KERNEL_INLINE v_i v_int_size(v_f x)
{
    return _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fffffff));
}

ZOFF_KERNEL_INLINE v_f v_from_bits(v_i bits)
{
    return _mm256_castsi256_ps(bits);
}

/* Eight numbers of 3 bytes are read in two halves of 16 bytes, of which the second begins 4 bytes early. */
ZOFF_KERNEL_INLINE v_i v_load_int(const char *p, unsigned width)
{
    if (width == 1)
        return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
    if (width == 4)
        return _mm256_loadu_si256((const __m256i *)(const void *)p);
    const __m128i low = _mm_loadu_si128((const __m128i *)(const void *)p);
    const __m128i high = _mm_loadu_si128((const __m128i *)(const void *)(p + 8));
    const __m256i spread = _mm256_setr_epi8(-1, 0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1, 4, 5, 6, -1, 7, 8, 9, -1,
                                            10, 11, 12, -1, 13, 14, 15);
    return _mm256_srai_epi32(_mm256_shuffle_epi8(_mm256_set_m128i(high, low), spread), 8);
}

ZOFF_KERNEL_INLINE void v_store_int(char *p, v_i x, unsigned width)
{
    const __m256i pack = width == 1 ? _mm256_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0, 4, 8, 12,
                                                       -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1)
                                    : _mm256_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1, 0, 1, 2, 4, 5, 6,
                                                       8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
    const __m256i order = width == 1 ? _mm256_setr_epi32(0, 4, 0, 4, 0, 4, 0, 4) : _mm256_setr_epi32(0, 1, 2, 4, 5, 6, 7, 7);
    if (width == 4) {
        _mm256_storeu_si256((__m256i *)(void *)p, x);
        return;
    }
    const __m256i packed = _mm256_permutevar8x32_epi32(_mm256_shuffle_epi8(x, pack), order);
    if (width == 1) {
        _mm_storel_epi64((__m128i *)(void *)p, _mm256_castsi256_si128(packed));
        return;
    }
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_castsi256_si128(packed));
    _mm_storel_epi64((__m128i *)(void *)(p + 16), _mm256_extracti128_si256(packed, 1));
}

/* Integers of 16 bits, twice as many as lanes. As upper halves they become two registers: elements 0-3 and 8-11, and the
 * others. */
#define ZOFF_SIMD_HALVES
typedef __m256i v_h;

ZOFF_KERNEL_INLINE v_h v_halves(int16_t x)
{
    return _mm256_set1_epi16(x);
}

ZOFF_KERNEL_INLINE v_h v_load_h(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

ZOFF_KERNEL_INLINE v_h v_halves_load_bytes(const uint8_t *p)
{
    return _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)p));
}

ZOFF_KERNEL_INLINE void v_halves_store_bytes(uint8_t *p, v_h x)
{
    _mm_storeu_si128((__m128i *)(void *)p, _mm_packus_epi16(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1)));
}

ZOFF_KERNEL_INLINE v_h v_halves_size(v_h x)
{
    return _mm256_and_si256(x, _mm256_set1_epi16(0x7fff));
}

ZOFF_KERNEL_INLINE v_h v_halves_max(v_h a, v_h b)
{
    return _mm256_max_epi16(a, b);
}

ZOFF_KERNEL_INLINE v_h v_halves_add(v_h a, v_h b)
{
    return _mm256_add_epi16(a, b);
}

ZOFF_KERNEL_INLINE v_h v_halves_sub(v_h a, v_h b)
{
    return _mm256_sub_epi16(a, b);
}

ZOFF_KERNEL_INLINE v_h v_halves_mul(v_h a, int16_t by)
{
    return _mm256_mullo_epi16(a, _mm256_set1_epi16(by));
}

ZOFF_KERNEL_INLINE v_h v_halves_down(v_h a, int bits)
{
    return _mm256_srli_epi16(a, bits);
}

ZOFF_KERNEL_INLINE bool v_halves_any_above(v_h a, int16_t limit)
{
    return _mm256_movemask_epi8(_mm256_cmpgt_epi16(a, _mm256_set1_epi16(limit))) != 0;
}

ZOFF_KERNEL_INLINE void v_halves_widen(v_h x, v_i *a, v_i *b)
{
    *a = _mm256_unpacklo_epi16(_mm256_setzero_si256(), x);
    *b = _mm256_unpackhi_epi16(_mm256_setzero_si256(), x);
}

ZOFF_KERNEL_INLINE void v_halves_in_order(v_i *a, v_i *b)
{
    const v_i first = _mm256_permute2x128_si256(*a, *b, 0x20), second = _mm256_permute2x128_si256(*a, *b, 0x31);
    *a = first;
    *b = second;
}

ZOFF_KERNEL_INLINE v_f v_from_int(v_i a)
{
    return _mm256_cvtepi32_ps(a);
}

ZOFF_KERNEL_INLINE __m128 v_digits_half(__m128i hi, __m128i lo, __m128 unit)
{
    const __m256d sum = _mm256_fmadd_pd(_mm256_cvtepi32_pd(lo), _mm256_set1_pd(0x1p-20), _mm256_cvtepi32_pd(hi));
    return _mm256_cvtpd_ps(_mm256_mul_pd(sum, _mm256_cvtps_pd(unit)));
}

ZOFF_KERNEL_INLINE v_f v_digits(v_i hi, v_i lo, v_f unit)
{
    return _mm256_set_m128(
        v_digits_half(_mm256_extracti128_si256(hi, 1), _mm256_extracti128_si256(lo, 1), _mm256_extractf128_ps(unit, 1)),
        v_digits_half(_mm256_castsi256_si128(hi), _mm256_castsi256_si128(lo), _mm256_castps256_ps128(unit)));
}

#endif
