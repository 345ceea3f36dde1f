/* nomath.c: loops that the compiler makes vectors of, once for each width that the machine may have; and stores past the caches
 * for the copy of the weights, which zoff's step writes so where that is faster. */
#include "nomath.h"

#include <omp.h>
#include <string.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))

/* Something that depends on the old value and the gradient, and shrinks: one fused multiply-add. */
INLINE float mix(float x, float g)
{
    return 0.9f * x + g;
}

INLINE float wide_of(uint16_t half)
{
    const uint32_t bits = (uint32_t)half << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* What of a step is there: a 16-bit gradient, weights, momentum, variance, a copy of the weights; or 16-bit weights in place.
 */
enum { HALF = 1, P = 2, M = 4, V = 8, OUT = 16, KEEP = 32 };

INLINE void step(unsigned has, const nomath_streams *s, size_t begin, size_t end)
{
    float *restrict p = s->p, *restrict m = s->m, *restrict v = s->v;
    const float *restrict g = s->g;
    const uint16_t *restrict g16 = s->g16;
    uint16_t *restrict w16 = s->w16;
    for (size_t i = begin; i < end; i++) {
        const float x = has & HALF ? wide_of(g16[i]) : g[i];
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

typedef uint32_t any_word __attribute__((may_alias));
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
    switch (kind) {
    case NOMATH_FP32:
        step(P | M | V, s, begin, end);
        break;
    case NOMATH_HALF_OUT:
        step(HALF | P | M | V | OUT, s, begin, end);
        break;
    case NOMATH_HALF_KEEP:
        step(HALF | M | V | KEEP, s, begin, end);
        break;
    case NOMATH_ONE_STATE:
        step(P | M, s, begin, end);
        break;
    case NOMATH_NO_STATE:
        step(P, s, begin, end);
        break;
    case NOMATH_WIDEN:
        for (size_t i = begin; i < end; i++)
            wide[i] = wide_of(g16[i]);
        break;
    case NOMATH_READ32:
        return read_words((const any_word *)(const void *)(wide + begin), end - begin);
    case NOMATH_READ16:
        return read_words((const any_word *)(const void *)(g16 + begin), (end - begin) / 2);
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
    case NOMATH_COPY:
        memcpy(wide + begin, g + begin, (end - begin) * sizeof *g);
        break;
    case NOMATH_KINDS:
        break;
    }
    return 0;
}

static uint32_t run_portable(nomath_kind kind, const nomath_streams *s, size_t begin, size_t end)
{
    return move(kind, s, begin, end);
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) static uint32_t run_avx2(nomath_kind kind, const nomath_streams *s, size_t begin,
                                                             size_t end)
{
    return move(kind, s, begin, end);
}

__attribute__((target("avx512f,avx512bw,fma,prefer-vector-width=512"))) static uint32_t
run_avx512(nomath_kind kind, const nomath_streams *s, size_t begin, size_t end)
{
    return move(kind, s, begin, end);
}

/* NOMATH_HALF_OUT, a line of the copy at a time. Shares begin at multiples of 1024 elements of aligned arrays. */
__attribute__((target("avx2,fma"))) static uint32_t run_streaming(nomath_kind kind, const nomath_streams *s, size_t begin,
                                                                  size_t end)
{
    enum { LINE = 32, PIECE = 8 };
    size_t i = begin;
    for (; i + LINE <= end; i += LINE) {
        step(HALF | P | M | V, s, i, i + LINE);
        for (size_t k = i; k < i + LINE; k += PIECE)
            _mm_stream_si128((__m128i *)(void *)(s->w16 + k), _mm_loadu_si128((const __m128i *)(const void *)(s->g16 + k)));
    }
    _mm_sfence();
    return move(kind, s, i, end);
}
#endif

unsigned nomath_ways(nomath_kind kind, nomath_way out[NOMATH_WAYS])
{
    unsigned count = 0;
    out[count++] = (nomath_way){"portable", run_portable};
#if defined(__x86_64__)
    const int fused = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (fused && kind == NOMATH_HALF_OUT)
        out[count++] = (nomath_way){"streaming stores", run_streaming};
    if (fused)
        out[count++] = (nomath_way){"avx2", run_avx2};
    if (fused && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw"))
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

static volatile uint32_t kept; /* what was only read ends here, so that it is read */

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
