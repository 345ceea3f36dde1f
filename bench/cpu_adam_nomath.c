/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_adam_nomath.c: loops that the compiler vectorizes, compiled once for each vector width of the machine. The copy of the
 * weights is stored past the caches, as zoff's step does when that is faster. */
#include "cpu_adam_bench.h"

#include <omp.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#if defined(__clang__)
#define AVX512 "avx512f,avx512bw,fma"
#else
#define AVX512 "avx512f,avx512bw,fma,prefer-vector-width=512"
#endif
#endif

#define INLINE static inline __attribute__((always_inline))

/* A number that depends on the old value and the gradient, and shrinks: one fused multiply-add. */
INLINE float mix(float x, float g)
{
    return 0.9f * x + g;
}

/* The arrays of a step: a 16-bit gradient, weights, momentum, variance, a copy of the weights; or 16-bit weights in place.
 */
enum { HALF = 1, P = 2, M = 4, V = 8, OUT = 16, KEEP = 32 };

INLINE void step(unsigned has, const nomath_streams *s, size_t begin, size_t end)
{
    float *restrict p = s->p, *restrict m = s->m, *restrict v = s->v;
    const float *restrict g = s->g;
    const uint16_t *restrict g16 = s->g16;
    uint16_t *restrict w16 = s->w16;
    for (size_t i = begin; i < end; i++) {
        const float x = has & HALF ? bench_from_bf16(g16[i]) : g[i];
        if (has & P)
            p[i] = mix(p[i], x);
        if (has & M)
            m[i] = mix(m[i], x);
        if (has & V)
            v[i] = mix(v[i], x * x);
        if (has & (OUT | KEEP))
            w16[i] = has & OUT ? g16[i] : (uint16_t)(w16[i] ^ (g16[i] & 1u));
    }
}

typedef uint32_t any_word __attribute__((may_alias, aligned(2)));

INLINE void step_one(const nomath_streams *s, size_t i, uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    s->p[i] = mix(s->p[i], x);
    s->m[i] = mix(s->m[i], x);
    s->v[i] = mix(s->v[i], x * x);
}

/* P, M and V of 32 elements with 16-bit gradients. A word holds two gradients. Which elements they are combined with does not
 * matter, so none changes its lane. */
enum { LINE = 32 };
INLINE void step_line(const nomath_streams *s, size_t i)
{
    const any_word *words = (const any_word *)(const void *)(s->g16 + i);
#if !defined(__clang__)
#pragma GCC ivdep
#endif
    for (size_t k = 0; k < LINE / 2; k++) {
        step_one(s, i + k, words[k] << 16);
        step_one(s, i + LINE / 2 + k, words[k] & 0xffff0000u);
    }
}

/* Turn over the last bit of 16-bit numbers, so that they stay ordinary. */
INLINE void turn_line(uint16_t *restrict numbers)
{
    for (size_t k = 0; k < LINE; k++)
        numbers[k] ^= 1;
}

/* P of 32 elements with 16-bit gradients, and their 16-bit moments. */
INLINE void moments_line(const nomath_streams *s, size_t i)
{
    float *restrict p = s->p + i;
    const uint16_t *restrict g16 = s->g16 + i;
    for (size_t k = 0; k < LINE; k++)
        p[k] = mix(p[k], bench_from_bf16(g16[k]));
    turn_line(s->m16 + i);
    turn_line(s->v16 + i);
}

INLINE void moments(const nomath_streams *s, size_t begin, size_t end)
{
    size_t i = begin;
    for (; i + LINE <= end; i += LINE) {
        moments_line(s, i);
        memcpy(s->w16 + i, s->g16 + i, LINE * sizeof *s->w16);
    }
    step(HALF | P | OUT, s, i, end); /* the last elements, which fill no line */
    for (; i < end; i++) {
        s->m16[i] ^= 1;
        s->v16[i] ^= 1;
    }
}

/* Turn over the last bit of 16-bit numbers where that of the gradient is set. */
INLINE void turn_by(uint16_t *restrict numbers, const uint16_t *restrict g16, size_t count)
{
    for (size_t k = 0; k < count; k++)
        numbers[k] ^= g16[k] & 1u;
}

/* Move bytes as turn() moves numbers. */
INLINE void turn_bytes(uint8_t *restrict bytes, const uint16_t *restrict g16, size_t count)
{
    for (size_t k = 0; k < count; k++)
        bytes[k] = (uint8_t)(bytes[k] ^ (g16[k] & 1u));
}

enum { MOMENTS_F32, MOMENTS_16, MOMENTS_8_16, MOMENTS_8 };

/* Run two loops over parts that stay in the first cache between them. */
INLINE void split(const nomath_streams *s, size_t begin, size_t end, int moments)
{
    enum { PART = 1024 };
    for (size_t i = begin; i < end; i += PART) {
        const size_t count = end - i < PART ? end - i : PART;
        turn_by(s->low + i, s->g16 + i, count);
        if (moments == MOMENTS_F32)
            step(HALF | M | V | KEEP, s, i, i + count);
        else
            turn_by(s->w16 + i, s->g16 + i, count);
        if (moments == MOMENTS_16)
            turn_by(s->m16 + i, s->g16 + i, count);
        if (moments == MOMENTS_16 || moments == MOMENTS_8_16)
            turn_by(s->v16 + i, s->g16 + i, count);
        if (moments == MOMENTS_8_16 || moments == MOMENTS_8)
            turn_bytes(s->m8 + i, s->g16 + i, count);
        if (moments == MOMENTS_8)
            turn_bytes(s->v8 + i, s->g16 + i, count);
    }
}

INLINE uint32_t read_words(const any_word *words, size_t count)
{
    uint32_t seen = 0;
    for (size_t i = 0; i < count; i++)
        seen |= words[i];
    return seen;
}

INLINE uint32_t move(nomath_kind kind, const nomath_streams *s, size_t begin, size_t end)
{
    float *restrict wide = s->wide;
    const float *restrict p = s->p, *restrict g = s->g;
    const uint16_t *restrict g16 = s->g16;
    uint16_t *restrict w16 = s->w16;
    /* clang-format off */
    switch (kind) {
    case NOMATH_FP32: step(P | M | V, s, begin, end); break;
    case NOMATH_HALF_OUT: step(HALF | P | M | V | OUT, s, begin, end); break;
    case NOMATH_MOMENTS: moments(s, begin, end); break;
    case NOMATH_SPLIT: split(s, begin, end, MOMENTS_F32); break;
    case NOMATH_SPLIT_MOMENTS: split(s, begin, end, MOMENTS_16); break;
    case NOMATH_SPLIT_M8V16: split(s, begin, end, MOMENTS_8_16); break;
    case NOMATH_SPLIT_Q8: split(s, begin, end, MOMENTS_8); break;
    case NOMATH_HALF_KEEP: step(HALF | M | V | KEEP, s, begin, end); break;
    case NOMATH_ONE_STATE: step(P | M, s, begin, end); break;
    case NOMATH_NO_STATE: step(P, s, begin, end); break;
    case NOMATH_READ32: return read_words((const any_word *)(const void *)(wide + begin), end - begin);
    case NOMATH_READ16: return read_words((const any_word *)(const void *)(g16 + begin), (end - begin) / 2);
    case NOMATH_COPY: memcpy(wide + begin, g + begin, (end - begin) * sizeof *g); break;
    /* clang-format on */
    case NOMATH_WIDEN:
        for (size_t i = begin; i < end; i++)
            wide[i] = bench_from_bf16(g16[i]);
        break;
    case NOMATH_TOUCH:
        for (size_t i = begin; i < end; i++)
            wide[i] = -wide[i];
        break;
    case NOMATH_NARROW:
        for (size_t i = begin; i < end; i++) {
            uint32_t bits;
            memcpy(&bits, &p[i], sizeof bits);
            w16[i] = (uint16_t)(bits >> 16);
        }
        break;
    case NOMATH_TRIAD:
        for (size_t i = begin; i < end; i++)
            wide[i] = g[i] + 0.5f * p[i];
        break;
    case NOMATH_KINDS:
        break;
    }
    return 0;
}

/* An implementation for one width of vectors, which the attribute sets. */
#define WAY(name, attribute)                                                                                                   \
    attribute static uint32_t name(nomath_kind kind, const nomath_streams *s, size_t begin, size_t end)                        \
    {                                                                                                                          \
        return move(kind, s, begin, end);                                                                                      \
    }
/* NOMATH_HALF_OUT and NOMATH_MOMENTS, a line of the copy at a time. Shares begin at multiples of 1024 aligned elements. */
#define STREAMING_WAY(name, attribute, store)                                                                                  \
    attribute static uint32_t name(nomath_kind kind, const nomath_streams *s, size_t begin, size_t end)                        \
    {                                                                                                                          \
        size_t i = begin;                                                                                                      \
        for (; i + LINE <= end; i += LINE) {                                                                                   \
            if (kind == NOMATH_MOMENTS)                                                                                        \
                moments_line(s, i);                                                                                            \
            else                                                                                                               \
                step_line(s, i);                                                                                               \
            store(s->w16 + i, s->g16 + i);                                                                                     \
        }                                                                                                                      \
        _mm_sfence();                                                                                                          \
        return move(kind, s, i, end);                                                                                          \
    }
#define STREAM_HALF(to, from)                                                                                                  \
    _mm256_stream_si256((__m256i *)(void *)(to), _mm256_loadu_si256((const __m256i *)(const void *)(from)))
#define STREAM_AVX2(to, from) (STREAM_HALF(to, from), STREAM_HALF((to) + LINE / 2, (from) + LINE / 2))
#define STREAM_AVX512(to, from) _mm512_stream_si512((__m512i *)(void *)(to), _mm512_loadu_si512(from))

WAY(run_portable, )
#if defined(__x86_64__)
WAY(run_avx2, __attribute__((target("avx2,fma"))))
WAY(run_avx512, __attribute__((target(AVX512))))
STREAMING_WAY(stream_avx2, __attribute__((target("avx2,fma"))), STREAM_AVX2)
STREAMING_WAY(stream_avx512, __attribute__((target(AVX512))), STREAM_AVX512)
#endif

unsigned nomath_ways(nomath_kind kind, nomath_way out[NOMATH_WAYS])
{
    unsigned count = 0;
    out[count++] = (nomath_way){"portable", run_portable};
#if defined(__x86_64__)
    const int fused = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const int wide = fused && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
    const int streams = kind == NOMATH_HALF_OUT || kind == NOMATH_MOMENTS;
    if (fused && streams)
        out[count++] = (nomath_way){"avx2, streaming stores", stream_avx2};
    if (wide && streams)
        out[count++] = (nomath_way){"avx512, streaming stores", stream_avx512};
    if (fused)
        out[count++] = (nomath_way){"avx2", run_avx2};
    if (wide)
        out[count++] = (nomath_way){"avx512", run_avx512};
#else
    (void)kind;
#endif
    return count;
}

nomath_way nomath_widest(void)
{
    nomath_way ways[NOMATH_WAYS];
    return ways[nomath_ways(NOMATH_FP32, ways) - 1];
}

void nomath_share(size_t count, size_t *begin, size_t *end)
{
    enum { CUT = 1024 };
    const size_t threads = (size_t)omp_get_num_threads(), thread = (size_t)omp_get_thread_num();
    *begin = count / CUT * thread / threads * CUT;
    *end = thread + 1 == threads ? count : count / CUT * (thread + 1) / threads * CUT;
}

static volatile uint32_t kept; /* results of read-only kernels go here, so that the compiler cannot drop the reads */

void nomath_run(const nomath_way *way, nomath_kind kind, const nomath_streams *s, size_t count, unsigned threads)
{
    if (threads <= 1) {
        kept = way->run(kind, s, 0, count);
        return;
    }
#pragma omp parallel num_threads((int)threads)
    {
        size_t begin, end;
        nomath_share(count, &begin, &end);
        kept = way->run(kind, s, begin, end);
    }
}
