/* simd_avx512_pairs.h: the vocabulary of simd_scalar.h with 32 lanes, for steps whose arrays all have 16-bit elements. A
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

/* The even 16-bit lanes of one register, and the odd ones of another. */
ZOFF_KERNEL_INLINE __m512i v_merge(__m512i even, __m512i odd)
{
    return _mm512_mask_mov_epi16(even, 0xaaaaaaaau, odd);
}

/* The upper halves of two registers. */
ZOFF_KERNEL_INLINE __m512i v_upper(__m512i even, __m512i odd)
{
    return v_merge(_mm512_srli_epi32(even, 16), odd);
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

/* A lower half that is negative takes one from the upper one. */
ZOFF_KERNEL_INLINE v_f v_load_split(const uint16_t *high, const uint16_t *low, size_t left)
{
    const __m512i lower = v_load_halves(low, left);
    const __m512i upper = _mm512_add_epi16(v_load_halves(high, left), _mm512_srai_epi16(lower, 15));
    return (v_f){_mm512_castsi512_ps(v_merge(lower, _mm512_slli_epi32(upper, 16))),
                 _mm512_castsi512_ps(v_merge(_mm512_srli_epi32(lower, 16), upper))};
}

ZOFF_KERNEL_INLINE void v_store_split(uint16_t *high, uint16_t *low, v_f x, size_t left, bool ordered)
{
    const __m512i even = v_one_nan(x.even, ordered), odd = v_one_nan(x.odd, ordered), half = _mm512_set1_epi32(0x8000);
    v_store_halves(high, v_upper(_mm512_add_epi32(even, half), _mm512_add_epi32(odd, half)), left);
    v_store_halves(low, v_merge(even, _mm512_slli_epi32(odd, 16)), left);
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
    return (_mm512_cmp_ps_mask(a.even, b.even, _CMP_UNORD_Q) | _mm512_cmp_ps_mask(a.odd, b.odd, _CMP_UNORD_Q)) != 0;
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

/* The other types: no step of this vocabulary has them. */
#define NEVER(declaration, ...)                                                                                                \
    ZOFF_KERNEL_INLINE declaration                                                                                             \
    {                                                                                                                          \
        __VA_ARGS__;                                                                                                           \
        __builtin_unreachable();                                                                                               \
    }
NEVER(v_f v_load(const float *p, size_t left), (void)p, (void)left)
NEVER(v_f v_load_f16(const uint16_t *p, size_t left), (void)p, (void)left)
NEVER(void v_store(float *p, v_f x, size_t left), (void)p, (void)x, (void)left)
NEVER(void v_store_bf16(uint16_t *p, v_f x, size_t left), (void)p, (void)x, (void)left)
NEVER(void v_store_f16(uint16_t *p, v_f x, size_t left), (void)p, (void)x, (void)left)
NEVER(void v_stream_bf16(uint16_t *p, v_f x), (void)p, (void)x)
NEVER(void v_stream_f16(uint16_t *p, v_f x), (void)p, (void)x)
#undef NEVER

ZOFF_KERNEL_INLINE size_t v_stream_bytes(void)
{
    return 0;
}

ZOFF_KERNEL_INLINE void v_stream_end(void) {}

#endif
