/* SPDX-License-Identifier: Apache-2.0 */
/* attention.cu: heads apart and together again, and the causal softmax. The products between are gemm.c's. */
#include "kernels.h"
#include "launch.h"

#include <math.h>

/* Element `i` of [rows][parts * width] lies here when heads are apart. */
static __device__ size_t apart(const gpu_heads &h, size_t parts, size_t i)
{
    const size_t across = parts * h.width, head_width = h.width / h.heads;
    const size_t row = i / across, column = i % across;
    const size_t part = column / h.width, head = column % h.width / head_width, at = column % head_width;
    const size_t sequence = row / h.context, token = row % h.context;
    return (((part * h.batch + sequence) * h.heads + head) * h.context + token) * head_width + at;
}

static __global__ void split(gpu_heads h, size_t parts, const float *in, const bf16 *bias, bf16 *out)
{
    FOR_EACH(i, h.batch * h.context * parts * h.width)
    {
        const float offset = bias ? __bfloat162float(bias[i % (parts * h.width)]) : 0.0f;
        out[apart(h, parts, i)] = __float2bfloat16(in[i] + offset);
    }
}

static __global__ void merge(gpu_heads h, size_t parts, const float *in, bf16 *out)
{
    FOR_EACH(i, h.batch * h.context * parts * h.width)
    out[i] = __float2bfloat16(in[apart(h, parts, i)]);
}

/* A thread computes the row of one token in one head. */
static __global__ void softmax_forward(size_t rows, size_t context, const float *scores, bf16 *weights)
{
    FOR_EACH(row, rows)
    {
        const float *x = scores + row * context;
        bf16 *w = weights + row * context;
        const size_t seen = row % context + 1;
        float top = x[0], sum = 0.0f;
        for (size_t t = 1; t < seen; t++)
            top = x[t] > top ? x[t] : top;
        for (size_t t = 0; t < seen; t++)
            sum += expf(x[t] - top);
        for (size_t t = 0; t < seen; t++)
            w[t] = __float2bfloat16(expf(x[t] - top) / sum);
        for (size_t t = seen; t < context; t++)
            w[t] = __float2bfloat16(0.0f);
    }
}

static __global__ void softmax_backward(size_t rows, size_t context, const bf16 *weights, const float *d_weights,
                                        bf16 *d_scores)
{
    FOR_EACH(row, rows)
    {
        const bf16 *w = weights + row * context;
        const float *dw = d_weights + row * context;
        bf16 *dx = d_scores + row * context;
        const size_t seen = row % context + 1;
        float sum = 0.0f;
        for (size_t t = 0; t < seen; t++)
            sum += __bfloat162float(w[t]) * dw[t];
        for (size_t t = 0; t < seen; t++)
            dx[t] = __float2bfloat16(__bfloat162float(w[t]) * (dw[t] - sum));
        for (size_t t = seen; t < context; t++)
            dx[t] = __float2bfloat16(0.0f);
    }
}

void gpu_heads_split(const gpu_heads *h, size_t parts, const float *in, const bf16 *bias, bf16 *out, cudaStream_t stream)
{
    LAUNCH(split, grid_for(h->batch * h->context * parts * h->width), BLOCK, stream, *h, parts, in, bias, out);
}

void gpu_heads_merge(const gpu_heads *h, size_t parts, const float *in, bf16 *out, cudaStream_t stream)
{
    LAUNCH(merge, grid_for(h->batch * h->context * parts * h->width), BLOCK, stream, *h, parts, in, out);
}

void gpu_softmax_forward(const gpu_heads *h, const float *scores, bf16 *weights, cudaStream_t stream)
{
    const size_t rows = h->batch * h->heads * h->context;
    LAUNCH(softmax_forward, grid_for(rows), BLOCK, stream, rows, h->context, scores, weights);
}

void gpu_softmax_backward(const gpu_heads *h, const bf16 *weights, const float *d_weights, bf16 *d_scores, cudaStream_t stream)
{
    const size_t rows = h->batch * h->heads * h->context;
    LAUNCH(softmax_backward, grid_for(rows), BLOCK, stream, rows, h->context, weights, d_weights, d_scores);
}
