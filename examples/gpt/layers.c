/* SPDX-License-Identifier: Apache-2.0 */
/* layers.c: layer norm, GELU, bias gradients and cross-entropy. */
#include "layers.h"
#include "expf.h"

#include <math.h>

enum { STRIPE = 64 }; /* columns that one thread sums at a time */

void gpt_layernorm_forward(size_t rows, size_t width, const float *in, const float *gain, const float *offset, float *out,
                           float *mean, float *inverse)
{
#pragma omp parallel for schedule(static)
    for (size_t row = 0; row < rows; row++) {
        const float *x = in + row * width;
        float *y = out + row * width;
        float sum = 0.0f, squares = 0.0f;
        for (size_t c = 0; c < width; c++)
            sum += x[c];
        const float centre = sum / (float)width;
        for (size_t c = 0; c < width; c++)
            squares += (x[c] - centre) * (x[c] - centre);
        const float scale = 1.0f / sqrtf(squares / (float)width + 1e-5f);
        for (size_t c = 0; c < width; c++)
            y[c] = (x[c] - centre) * scale * gain[c] + offset[c];
        mean[row] = centre;
        inverse[row] = scale;
    }
}

void gpt_layernorm_backward(size_t rows, size_t width, const float *in, const float *gain, const float *mean,
                            const float *inverse, const float *d_out, float *d_in, float *d_gain, float *d_offset)
{
#pragma omp parallel for schedule(static)
    for (size_t first = 0; first < width; first += STRIPE) {
        const size_t end = first + STRIPE < width ? first + STRIPE : width;
        for (size_t c = first; c < end; c++)
            d_gain[c] = d_offset[c] = 0.0f;
        for (size_t row = 0; row < rows; row++) {
            const float *x = in + row * width, *dy = d_out + row * width;
            for (size_t c = first; c < end; c++) {
                d_gain[c] += dy[c] * ((x[c] - mean[row]) * inverse[row]);
                d_offset[c] += dy[c];
            }
        }
    }
#pragma omp parallel for schedule(static)
    for (size_t row = 0; row < rows; row++) {
        const float *x = in + row * width, *dy = d_out + row * width;
        float *dx = d_in + row * width;
        float sum = 0.0f, product = 0.0f; /* sum of d_norm, and of d_norm times the normalised value */
        for (size_t c = 0; c < width; c++) {
            const float d_norm = dy[c] * gain[c];
            sum += d_norm;
            product += d_norm * ((x[c] - mean[row]) * inverse[row]);
        }
        sum /= (float)width;
        product /= (float)width;
        for (size_t c = 0; c < width; c++)
            dx[c] += inverse[row] * (dy[c] * gain[c] - sum - (x[c] - mean[row]) * inverse[row] * product);
    }
}

#define GELU_SCALE 1.59576912f /* 2 * sqrt(2 / pi) */
#define GELU_CUBE 0.044715f

static inline float sigmoid(float x)
{
    return 1.0f / (1.0f + gpt_expf(-x));
}

void gpt_gelu_forward(size_t count, const float *in, float *out)
{
#pragma omp parallel for simd schedule(static)
    for (size_t i = 0; i < count; i++) {
        const float x = in[i];
        out[i] = x * sigmoid(GELU_SCALE * (x + GELU_CUBE * x * x * x));
    }
}

void gpt_gelu_backward(size_t count, const float *in, float *d)
{
#pragma omp parallel for simd schedule(static)
    for (size_t i = 0; i < count; i++) {
        const float x = in[i];
        const float s = sigmoid(GELU_SCALE * (x + GELU_CUBE * x * x * x));
        d[i] *= s + x * s * (1.0f - s) * GELU_SCALE * (1.0f + 3.0f * GELU_CUBE * x * x);
    }
}

void gpt_column_sums(size_t rows, size_t width, const float *in, float *out)
{
#pragma omp parallel for schedule(static)
    for (size_t first = 0; first < width; first += STRIPE) {
        const size_t end = first + STRIPE < width ? first + STRIPE : width;
        for (size_t c = first; c < end; c++)
            out[c] = 0.0f;
        for (size_t row = 0; row < rows; row++)
            for (size_t c = first; c < end; c++)
                out[c] += in[row * width + c];
    }
}

double gpt_cross_entropy(size_t rows, size_t classes, const uint8_t *targets, float *logits, double *losses)
{
    const float share = 1.0f / (float)rows;
#pragma omp parallel for schedule(static)
    for (size_t row = 0; row < rows; row++) {
        float *x = logits + row * classes;
        float top = x[0];
        for (size_t c = 1; c < classes; c++)
            top = x[c] > top ? x[c] : top;
        const double target = (double)(x[targets[row]] - top);
        for (size_t c = 0; c < classes; c++)
            x[c] = gpt_expf(x[c] - top);
        float sum = 0.0f;
        for (size_t c = 0; c < classes; c++)
            sum += x[c];
        losses[row] = log((double)sum) - target;
        for (size_t c = 0; c < classes; c++)
            x[c] *= share / sum;
        x[targets[row]] -= share;
    }
    double loss = 0.0;
    for (size_t row = 0; row < rows; row++)
        loss += losses[row];
    return rows ? loss / (double)rows : 0.0;
}
