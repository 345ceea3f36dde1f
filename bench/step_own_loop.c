/* SPDX-License-Identifier: Apache-2.0 */
/* step_own_loop.c: the trainer's own loop, and a stand-in for its forward and backward pass. */
#include "step_bench.h"

#include <math.h>

void step_own_loop(size_t n, float *restrict p, float *restrict m, float *restrict v, const float *restrict g, int t)
{
    const float beta1 = 0.9f, beta2 = 0.999f, eps = 1e-8f, lr = 1e-3f, decay = 0.01f;
    const float step = lr / (1.0f - powf(beta1, (float)t)), root = 1.0f / sqrtf(1.0f - powf(beta2, (float)t));
#pragma omp parallel for simd schedule(static) if (parallel : n >= 32768)
    for (size_t i = 0; i < n; i++) {
        const float grad = g[i];
        const float m1 = beta1 * m[i] + (1.0f - beta1) * grad;
        const float v1 = beta2 * v[i] + (1.0f - beta2) * grad * grad;
        m[i] = m1;
        v[i] = v1;
        p[i] = p[i] - lr * decay * p[i] - step * (m1 / (sqrtf(v1) * root + eps));
    }
}

double step_own_compute(size_t turns)
{
    double a = 1.0, b = 0.5, c = 0.25, d = 0.125; /* four chains take some nanoseconds for each turn */
    for (size_t i = 0; i < turns; i++) {
        a = sqrt(a + 0.5);
        b = sqrt(b + 0.4);
        c = sqrt(c + 0.3);
        d = sqrt(d + 0.2);
    }
    return a + b + c + d;
}

double step_own_backward(size_t turns)
{
    double total = 0;
#pragma omp parallel reduction(+ : total)
    total += step_own_compute(turns);
    return total;
}
