/* SPDX-License-Identifier: Apache-2.0 */
/* attention.c: causal self-attention, one (sequence, head) at a time. Keys and values are copied out of the interleaved array
 * into scratch. A transposed copy lets the inner loops run over independent sums. */
#include "expf.h"
#include "layers.h"

#include <math.h>
#include <omp.h>
#include <string.h>

/* A head's share of a thread's scratch memory. */
typedef struct head {
    const float *q, *k, *v; /* first token's query, key, value; tokens are `stride` apart */
    size_t stride;
    float *weights;    /* [context][context] */
    float *transposed; /* [head_width][context] */
    float *row;        /* [context] */
} head;

size_t gpt_attention_scratch_floats(size_t context, size_t head_width)
{
    return context * head_width + context;
}

static head head_at(const gpt_attention *a, size_t index)
{
    const size_t batch = index / a->heads, which = index % a->heads, head_width = a->width / a->heads;
    float *scratch = a->scratch + (size_t)omp_get_thread_num() * gpt_attention_scratch_floats(a->context, head_width);
    const float *q = a->qkv + batch * a->context * 3 * a->width + which * head_width;
    return (head){.q = q,
                  .k = q + a->width,
                  .v = q + 2 * a->width,
                  .stride = 3 * a->width,
                  .weights = a->weights + index * a->context * a->context,
                  .transposed = scratch,
                  .row = scratch + a->context * head_width};
}

static void transpose(size_t context, size_t width, const float *from, size_t stride, float *to)
{
    for (size_t t = 0; t < context; t++)
        for (size_t d = 0; d < width; d++)
            to[d * context + t] = from[t * stride + d];
}

/* row[j] = <left, column j of the transposed matrix> for j <= t. */
static void products(size_t context, size_t width, size_t t, const float *left, const float *transposed, float *row)
{
    memset(row, 0, (t + 1) * sizeof *row);
    for (size_t d = 0; d < width; d++)
        for (size_t j = 0; j <= t; j++)
            row[j] += left[d] * transposed[d * context + j];
}

void gpt_attention_forward(const gpt_attention *a, float *out)
{
    const size_t width = a->width / a->heads, context = a->context;
    const float scale = 1.0f / sqrtf((float)width);
#pragma omp parallel for num_threads(a->threads) schedule(static)
    for (size_t index = 0; index < a->batch * a->heads; index++) {
        const head h = head_at(a, index);
        transpose(context, width, h.k, h.stride, h.transposed);
        for (size_t t = 0; t < context; t++) {
            float *p = h.weights + t * context;
            products(context, width, t, h.q + t * h.stride, h.transposed, p);
            float top = p[0], sum = 0.0f;
            for (size_t j = 1; j <= t; j++)
                top = p[j] > top ? p[j] : top;
            for (size_t j = 0; j <= t; j++)
                p[j] = gpt_expf((p[j] - top) * scale);
            for (size_t j = 0; j <= t; j++)
                sum += p[j];
            for (size_t j = 0; j <= t; j++)
                p[j] /= sum;
            float *y = out + (index / a->heads * context + t) * a->width + index % a->heads * width;
            memset(y, 0, width * sizeof *y);
            for (size_t j = 0; j <= t; j++)
                for (size_t d = 0; d < width; d++)
                    y[d] += p[j] * h.v[j * h.stride + d];
        }
    }
}

void gpt_attention_backward(const gpt_attention *a, const float *d_out, float *d_qkv)
{
    const size_t width = a->width / a->heads, context = a->context;
    const float scale = 1.0f / sqrtf((float)width);
#pragma omp parallel for num_threads(a->threads) schedule(static)
    for (size_t index = 0; index < a->batch * a->heads; index++) {
        const head h = head_at(a, index);
        float *dq = d_qkv + (h.q - a->qkv), *dk = d_qkv + (h.k - a->qkv), *dv = d_qkv + (h.v - a->qkv);
        for (size_t t = 0; t < context; t++) {
            memset(dq + t * h.stride, 0, width * sizeof *dq);
            memset(dk + t * h.stride, 0, width * sizeof *dk);
            memset(dv + t * h.stride, 0, width * sizeof *dv);
        }
        transpose(context, width, h.v, h.stride, h.transposed);
        for (size_t t = 0; t < context; t++) {
            const float *p = h.weights + t * context;
            const float *dy = d_out + (index / a->heads * context + t) * a->width + index % a->heads * width;
            const float *q = h.q + t * h.stride;
            products(context, width, t, dy, h.transposed, h.row); /* products are the gradients of the attention weights */
            float mean = 0.0f;
            for (size_t j = 0; j <= t; j++)
                mean += p[j] * h.row[j];
            for (size_t j = 0; j <= t; j++) {
                const float d_score = p[j] * (h.row[j] - mean) * scale;
                for (size_t d = 0; d < width; d++) {
                    dv[j * h.stride + d] += p[j] * dy[d];
                    dq[t * h.stride + d] += d_score * h.k[j * h.stride + d];
                    dk[j * h.stride + d] += d_score * q[d];
                }
            }
        }
    }
}
