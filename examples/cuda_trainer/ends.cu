/* SPDX-License-Identifier: Apache-2.0 */
/* ends.cu: both ends of the model: the embeddings of bytes and positions, and the cross-entropy of the logits. */
#include "kernels.h"
#include "launch.h"

#include <math.h>

static __global__ void embed_forward(size_t rows, size_t context, size_t width, const uint8_t *inputs, const bf16 *wte,
                                     const bf16 *wpe, float *out)
{
    FOR_EACH(i, rows * width)
    {
        const size_t row = i / width, c = i % width;
        out[i] = __bfloat162float(wte[inputs[row] * width + c]) + __bfloat162float(wpe[row % context * width + c]);
    }
}

/* A thread sums one column of one byte: the rows with this byte in ascending order. */
static __global__ void embed_backward_bytes(size_t count, size_t width, gpu_batch batch, const float *d_out,
                                            const float *d_head, bf16 *d_wte)
{
    FOR_EACH(i, count)
    {
        const size_t byte = i / width, c = i % width;
        float sum = d_head[i];
        for (size_t at = batch.starts[byte]; at < batch.starts[byte + 1]; at++)
            sum += d_out[batch.order[at] * width + c];
        d_wte[i] = __float2bfloat16(sum);
    }
}

static __global__ void embed_backward_positions(size_t rows, size_t context, size_t width, const float *d_out, bf16 *d_wpe)
{
    FOR_EACH(i, context * width)
    {
        float sum = 0.0f;
        for (size_t row = i / width; row < rows; row += context)
            sum += d_out[row * width + i % width];
        d_wpe[i] = __float2bfloat16(sum);
    }
}

/* A thread computes one row. */
static __global__ void cross_entropy(size_t rows, size_t classes, const uint8_t *targets, const float *logits, float *losses,
                                     bf16 *d_logits)
{
    const float share = 1.0f / (float)rows;
    FOR_EACH(row, rows)
    {
        const float *x = logits + row * classes;
        const size_t target = targets[row];
        float top = x[0], sum = 0.0f;
        for (size_t c = 1; c < classes; c++)
            top = x[c] > top ? x[c] : top;
        for (size_t c = 0; c < classes; c++)
            sum += expf(x[c] - top);
        losses[row] = logf(sum) - (x[target] - top);
        for (size_t c = 0; c < classes; c++)
            d_logits[row * classes + c] = __float2bfloat16(share * (expf(x[c] - top) / sum - (c == target ? 1.0f : 0.0f)));
    }
}

void gpu_embed_forward(size_t rows, size_t context, size_t width, const gpu_batch *batch, const bf16 *wte, const bf16 *wpe,
                       float *out, cudaStream_t stream)
{
    LAUNCH(embed_forward, grid_for(rows * width), BLOCK, stream, rows, context, width, batch->inputs, wte, wpe, out);
}

void gpu_embed_backward(size_t rows, size_t context, size_t width, const gpu_batch *batch, const float *d_out,
                        const float *d_head, bf16 *d_wte, bf16 *d_wpe, cudaStream_t stream)
{
    LAUNCH(embed_backward_positions, grid_for(context * width), BLOCK, stream, rows, context, width, d_out, d_wpe);
    LAUNCH(embed_backward_bytes, grid_for(256 * width), BLOCK, stream, 256 * width, width, *batch, d_out, d_head, d_wte);
}

void gpu_cross_entropy(size_t rows, size_t classes, const gpu_batch *batch, const float *logits, float *losses, bf16 *d_logits,
                       cudaStream_t stream)
{
    LAUNCH(cross_entropy, grid_for(rows), BLOCK, stream, rows, classes, batch->targets, logits, losses, d_logits);
}
