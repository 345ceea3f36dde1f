/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_adam_plain.c: the rivals, compiled as their authors compile them: -O3 -mavx2 -mfma -fno-math-errno -fopenmp, in GNU C.
 * The compiler vectorizes the loops and uses ordinary stores. */
#include "cpu_adam_bench.h"

#include <math.h>
#include <omp.h>

/* Constants are computed before the loop. */
void plain_adam_serial(size_t n, float *restrict p, float *restrict m, float *restrict v, const float *restrict g,
                       const zoff_optimizer_hyper *h, int t)
{
    const float beta1 = (float)h->beta1, beta2 = (float)h->beta2, eps = (float)h->eps, lr = (float)h->lr;
    const float step = lr / (1.0f - powf(beta1, (float)t)), root = 1.0f / sqrtf(1.0f - powf(beta2, (float)t));
    const float keep = 1.0f - lr * (float)h->weight_decay;
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        const float grad = g[i];
        const float m1 = beta1 * m[i] + (1.0f - beta1) * grad;
        const float v1 = beta2 * v[i] + (1.0f - beta2) * grad * grad;
        m[i] = m1;
        v[i] = v1;
        p[i] = keep * p[i] - step * (m1 / (sqrtf(v1) * root + eps));
    }
}

void plain_adam(size_t n, float *p, float *m, float *v, const float *g, const zoff_optimizer_hyper *h, int t, unsigned threads)
{
#pragma omp parallel num_threads((int)threads)
    {
        const size_t count = (size_t)omp_get_num_threads(), thread = (size_t)omp_get_thread_num();
        const size_t begin = n * thread / count, end = n * (thread + 1) / count;
        plain_adam_serial(end - begin, p + begin, m + begin, v + begin, g + begin, h, t);
    }
}

void plain_widen(size_t n, float *restrict wide, const uint16_t *restrict g16, unsigned threads)
{
#pragma omp parallel for simd schedule(static) num_threads((int)threads)
    for (size_t i = 0; i < n; i++)
        wide[i] = bench_from_bf16(g16[i]);
}

void plain_scale(size_t n, float *restrict wide, float factor, unsigned threads)
{
#pragma omp parallel for simd schedule(static) num_threads((int)threads)
    for (size_t i = 0; i < n; i++)
        wide[i] *= factor;
}

void plain_round(size_t n, uint16_t *restrict w16, const float *restrict p, unsigned threads)
{
#pragma omp parallel for simd schedule(static) num_threads((int)threads)
    for (size_t i = 0; i < n; i++)
        w16[i] = bench_bf16(p[i]);
}

/* Square sums as a tuned library computes them: straight through memory, into enough vector sums to hide the adder's latency,
 * and no longer than a block in fp32. */
typedef float floats __attribute__((vector_size(32), aligned(4), may_alias));
typedef uint32_t words __attribute__((vector_size(32), aligned(2), may_alias));
enum { LANES = 8, SUMS = 8, BLOCK = 8192 };

/* Vector k from element i on. Two vectors of bf16 are the even and the odd elements of twice as many. */
static inline floats load(const float *g, const uint16_t *g16, size_t i, size_t k)
{
    if (g)
        return *(const floats *)(g + i + k * LANES);
    const words pair = *(const words *)(const void *)(g16 + i + k / 2 * 2 * LANES);
    return k % 2 ? (floats)(pair & 0xffff0000u) : (floats)(pair << 16);
}

static inline __attribute__((always_inline)) double square_sum(size_t begin, size_t end, const float *g, const uint16_t *g16)
{
    double total = 0;
    size_t i = begin;
    while (end - i >= BLOCK) {
        floats sums[SUMS] = {0};
        for (const size_t stop = i + BLOCK; i < stop; i += LANES * SUMS) {
            for (size_t k = 0; k < SUMS; k++) {
                const floats x = load(g, g16, i, k);
                sums[k] += x * x;
            }
        }
        for (size_t k = 0; k < SUMS * LANES; k++)
            total += (double)sums[k / LANES][k % LANES];
    }
    for (; i < end; i++) {
        const double x = g ? (double)g[i] : (double)bench_from_bf16(g16[i]);
        total += x * x;
    }
    return total;
}

double plain_norm(size_t n, const float *wide, const uint16_t *g16, unsigned threads)
{
    double total = 0;
#pragma omp parallel num_threads((int)threads) reduction(+ : total)
    {
        size_t begin, end;
        nomath_share(n, &begin, &end);
        total += wide ? square_sum(begin, end, wide, NULL) : square_sum(begin, end, NULL, g16);
    }
    return total;
}
