/* cpu_adam_chain.c: the passes that frameworks run around their Adam: upcast, norm, scale, copy-out. In plain C for the
 * compiler to vectorise, with stores as they come, which is what such libraries do; the casts also with streaming stores, which
 * the best of them might. */
#include "cpu_adam_plain.h"

#include "nomath.h"

#include <omp.h>
#include <string.h>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

static float from_bf16(uint16_t half)
{
    const uint32_t bits = (uint32_t)half << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* To nearest even; the weights of a benchmark are finite. */
static uint16_t to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/* Run `call` on the share begin .. end-1 of each thread. */
#define ON_EACH_SHARE(n, threads, call)                                                                                        \
    _Pragma("omp parallel num_threads((int)threads)")                                                                          \
    {                                                                                                                          \
        size_t begin, end;                                                                                                     \
        nomath_share(n, &begin, &end);                                                                                         \
        call;                                                                                                                  \
    }

static void widen(size_t n, float *restrict to, const uint16_t *restrict from)
{
    for (size_t i = 0; i < n; i++)
        to[i] = from_bf16(from[i]);
}

void plain_widen(size_t n, float *wide, const uint16_t *g16, unsigned threads)
{
    ON_EACH_SHARE(n, threads, widen(end - begin, wide + begin, g16 + begin))
}

/* Square sums as a tuned library takes them: straight through memory, into so many sums of vectors that none waits for the
 * adder, and no further than a block in fp32. */
typedef float floats __attribute__((vector_size(32), aligned(4), may_alias));
typedef uint32_t words __attribute__((vector_size(32), aligned(2), may_alias));
enum { LANES = 8, SUMS = 8, BLOCK = 8192 };

static double add_up(const floats sums[SUMS])
{
    double total = 0;
    for (int k = 0; k < SUMS; k++) {
        for (int lane = 0; lane < LANES; lane++)
            total += (double)sums[k][lane];
    }
    return total;
}

static double norm_fp32(size_t n, const float *g)
{
    double total = 0;
    size_t i = 0;
    while (n - i >= BLOCK) {
        floats sums[SUMS] = {0};
        for (const size_t end = i + BLOCK; i < end; i += LANES * SUMS) {
            for (int k = 0; k < SUMS; k++) {
                const floats x = *(const floats *)(g + i + k * LANES);
                sums[k] += x * x;
            }
        }
        total += add_up(sums);
    }
    for (; i < n; i++)
        total += (double)g[i] * (double)g[i];
    return total;
}

static double norm_bf16(size_t n, const uint16_t *g16)
{
    double total = 0;
    size_t i = 0;
    while (n - i >= BLOCK) {
        floats sums[SUMS] = {0};
        for (const size_t end = i + BLOCK; i < end; i += LANES * SUMS) {
            for (int k = 0; k < SUMS; k += 2) {
                const words pair = *(const words *)(const void *)(g16 + i + k * LANES);
                const floats even = (floats)(pair << 16), odd = (floats)(pair & 0xffff0000u);
                sums[k] += even * even;
                sums[k + 1] += odd * odd;
            }
        }
        total += add_up(sums);
    }
    for (; i < n; i++)
        total += (double)from_bf16(g16[i]) * (double)from_bf16(g16[i]);
    return total;
}

double plain_norm(size_t n, const float *wide, unsigned threads)
{
    double total = 0;
#pragma omp parallel num_threads((int)threads) reduction(+ : total)
    {
        size_t begin, end;
        nomath_share(n, &begin, &end);
        total += norm_fp32(end - begin, wide + begin);
    }
    return total;
}

double plain_norm_bf16(size_t n, const uint16_t *g16, unsigned threads)
{
    double total = 0;
#pragma omp parallel num_threads((int)threads) reduction(+ : total)
    {
        size_t begin, end;
        nomath_share(n, &begin, &end);
        total += norm_bf16(end - begin, g16 + begin);
    }
    return total;
}

static void scale(size_t n, float *restrict x, float factor)
{
    for (size_t i = 0; i < n; i++)
        x[i] *= factor;
}

void plain_scale(size_t n, float *wide, float factor, unsigned threads)
{
    ON_EACH_SHARE(n, threads, scale(end - begin, wide + begin, factor))
}

static void round_to_bf16(size_t n, uint16_t *restrict to, const float *restrict from)
{
    for (size_t i = 0; i < n; i++)
        to[i] = to_bf16(from[i]);
}

void plain_round(size_t n, uint16_t *w16, const float *p, unsigned threads)
{
    ON_EACH_SHARE(n, threads, round_to_bf16(end - begin, w16 + begin, p + begin))
}

#if defined(__AVX2__)
int plain_has_streaming(void)
{
    return 1;
}

/* Starts are aligned: shares begin at multiples of 1024 elements of arrays that begin at a page. */
static void widen_streaming(size_t n, float *restrict to, const uint16_t *restrict from)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256i x = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(from + i)));
        _mm256_stream_si256((__m256i *)(void *)(to + i), _mm256_slli_epi32(x, 16));
    }
    _mm_sfence();
    widen(n - i, to + i, from + i);
}

static __m256i rounded(const float *from)
{
    const __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)from);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(x, 16), _mm256_set1_epi32(1));
    return _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(x, _mm256_set1_epi32(0x7fff)), odd), 16);
}

static void round_streaming(size_t n, uint16_t *restrict to, const float *restrict from)
{
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const __m256i both = _mm256_packus_epi32(rounded(from + i), rounded(from + i + 8));
        _mm256_stream_si256((__m256i *)(void *)(to + i), _mm256_permute4x64_epi64(both, 0xd8));
    }
    _mm_sfence();
    round_to_bf16(n - i, to + i, from + i);
}
#else
int plain_has_streaming(void)
{
    return 0;
}

static void widen_streaming(size_t n, float *restrict to, const uint16_t *restrict from)
{
    widen(n, to, from);
}

static void round_streaming(size_t n, uint16_t *restrict to, const float *restrict from)
{
    round_to_bf16(n, to, from);
}
#endif

void plain_widen_streaming(size_t n, float *wide, const uint16_t *g16, unsigned threads)
{
    ON_EACH_SHARE(n, threads, widen_streaming(end - begin, wide + begin, g16 + begin))
}

void plain_round_streaming(size_t n, uint16_t *w16, const float *p, unsigned threads)
{
    ON_EACH_SHARE(n, threads, round_streaming(end - begin, w16 + begin, p + begin))
}
