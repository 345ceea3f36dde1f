/* SPDX-License-Identifier: Apache-2.0 */
/* plain_adamw.c: AdamW with clipping by the global norm, in one loop. */
#include "plain_adamw.h"

#include <math.h>

double gpt_plain_adamw(const gpt_hyper *hyper, int t, size_t count, float *weights, const float *grads, float *m, float *v)
{
    double squares = 0.0;
    for (size_t i = 0; i < count; i++)
        squares += (double)grads[i] * (double)grads[i];
    const double norm = sqrt(squares);
    const float scale = hyper->clip > 0.0 && norm > hyper->clip ? (float)(hyper->clip / (norm + 1e-6)) : 1.0f;
    /* the double is rounded, because 1.0f - 0.999f would be off by 5e-5 */
    const float beta1 = (float)hyper->beta1, rest1 = (float)(1.0 - hyper->beta1);
    const float beta2 = (float)hyper->beta2, rest2 = (float)(1.0 - hyper->beta2), eps = (float)hyper->eps;
    const float decay = (float)(hyper->lr * hyper->weight_decay), rate = (float)(hyper->lr / (1.0 - pow(hyper->beta1, t)));
    const float correction = (float)(1.0 / sqrt(1.0 - pow(hyper->beta2, t)));
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < count; i++) {
        const float g = grads[i] * scale;
        m[i] = beta1 * m[i] + rest1 * g;
        v[i] = beta2 * v[i] + rest2 * g * g;
        weights[i] -= decay * weights[i];
        weights[i] -= rate * m[i] / (sqrtf(v[i]) * correction + eps);
    }
    return norm;
}
