/* cpu_adam_plain.c: the rival loop, compiled as its author compiles it: -O3 -mavx2 -mfma -fno-math-errno -fopenmp, in GNU C.
 * What does not change in the loop stands in front of it; the loop is one vector instruction after the other. */
#include "cpu_adam_plain.h"

#include <math.h>

/* clang-format off */
#define ADAM_LOOP                                                                                                              \
    for (size_t i = 0; i < n; i++) {                                                                                           \
        const float grad = g[i];                                                                                               \
        const float m1 = beta1 * m[i] + (1.0f - beta1) * grad;                                                                 \
        const float v1 = beta2 * v[i] + (1.0f - beta2) * grad * grad;                                                          \
        m[i] = m1;                                                                                                             \
        v[i] = v1;                                                                                                             \
        p[i] = keep * p[i] - step * (m1 / (sqrtf(v1) * root + eps));                                                           \
    }
#define ADAM_CONSTANTS                                                                                                         \
    const float beta1 = h->beta1, beta2 = h->beta2, eps = h->eps;                                                              \
    const float step = h->lr / (1.0f - powf(beta1, (float)t));                                                                 \
    const float root = 1.0f / sqrtf(1.0f - powf(beta2, (float)t));                                                             \
    const float keep = 1.0f - h->lr * h->weight_decay;
/* clang-format on */

void plain_adam(size_t n, float *restrict p, float *restrict m, float *restrict v, const float *restrict g,
                const plain_hyper *h, int t, unsigned threads)
{
    ADAM_CONSTANTS
#pragma omp parallel for simd schedule(static) num_threads((int)threads)
    ADAM_LOOP
}

void plain_adam_if_large(size_t n, float *restrict p, float *restrict m, float *restrict v, const float *restrict g,
                         const plain_hyper *h, int t, unsigned threads)
{
    ADAM_CONSTANTS
    /* "parallel:", or the clause would forbid vectors too */
#pragma omp parallel for simd schedule(static) num_threads((int)threads) if (parallel : n >= PLAIN_SHARED_FROM)
    ADAM_LOOP
}

void plain_adam_serial(size_t n, float *restrict p, float *restrict m, float *restrict v, const float *restrict g,
                       const plain_hyper *h, int t)
{
    ADAM_CONSTANTS
#pragma omp simd
    ADAM_LOOP
}
