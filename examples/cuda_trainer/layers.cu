/* SPDX-License-Identifier: Apache-2.0 */
/* layers.cu: layer norm, GELU, what is added to the stream, and sums over columns. */
#include "kernels.h"
#include "launch.h"

#include <math.h>

static __device__ float load(float value)
{
    return value;
}

static __device__ float load(bf16 value)
{
    return __bfloat162float(value);
}

/* ---- sums over columns: a thread has a column of a part of the rows, and then one has a column of all parts ---- */

template <typename Value> static __global__ void sum_rows(size_t rows, size_t width, Value value, float *parts)
{
    FOR_EACH(i, width * COLUMN_PARTS)
    {
        const size_t part = i / width, column = i % width;
        const size_t end = (part + 1) * rows / COLUMN_PARTS;
        float sum = 0.0f;
        for (size_t row = part * rows / COLUMN_PARTS; row < end; row++)
            sum += value(row, column);
        parts[i] = sum;
    }
}

static __global__ void sum_parts(size_t width, const float *parts, bf16 *out)
{
    FOR_EACH(column, width)
    {
        float sum = 0.0f;
        for (size_t part = 0; part < COLUMN_PARTS; part++)
            sum += parts[part * width + column];
        out[column] = __float2bfloat16(sum);
    }
}

template <typename Value>
static void sum_columns(size_t rows, size_t width, Value value, bf16 *out, float *parts, cudaStream_t stream)
{
    LAUNCH(sum_rows<Value>, grid_for(width * COLUMN_PARTS), BLOCK, stream, rows, width, value, parts);
    LAUNCH(sum_parts, grid_for(width), BLOCK, stream, width, parts, out);
}

/* A term of the sum: an element, or an element times the normalised value that it was multiplied with. */
template <typename T> struct element {
    const T *in;
    size_t width;
    __device__ float operator()(size_t row, size_t column) const { return load(in[row * width + column]); }
};

struct element_of_gain {
    const float *d_out, *in, *mean, *inverse;
    size_t width;
    __device__ float operator()(size_t row, size_t column) const
    {
        const size_t at = row * width + column;
        return d_out[at] * ((in[at] - mean[row]) * inverse[row]);
    }
};

void gpu_column_sums(size_t rows, size_t width, const float *in, bf16 *out, float *parts, cudaStream_t stream)
{
    sum_columns(rows, width, element<float>{in, width}, out, parts, stream);
}

void gpu_column_sums_bf16(size_t rows, size_t width, const bf16 *in, bf16 *out, float *parts, cudaStream_t stream)
{
    sum_columns(rows, width, element<bf16>{in, width}, out, parts, stream);
}

/* ---- layer norm: a thread has a row ---- */

static __global__ void layernorm_forward(gpu_layernorm layer, bf16 *out)
{
    const size_t width = layer.width;
    FOR_EACH(row, layer.rows)
    {
        const float *x = layer.in + row * width;
        float sum = 0.0f, squares = 0.0f;
        for (size_t c = 0; c < width; c++)
            sum += x[c];
        const float centre = sum / (float)width;
        for (size_t c = 0; c < width; c++)
            squares += (x[c] - centre) * (x[c] - centre);
        const float scale = 1.0f / sqrtf(squares / (float)width + 1e-5f);
        for (size_t c = 0; c < width; c++)
            out[row * width + c] = __float2bfloat16((x[c] - centre) * scale * load(layer.gain[c]) + load(layer.offset[c]));
        layer.mean[row] = centre;
        layer.inverse[row] = scale;
    }
}

static __global__ void layernorm_backward(gpu_layernorm layer, const float *d_out, float *d_in)
{
    const size_t width = layer.width;
    FOR_EACH(row, layer.rows)
    {
        const float *x = layer.in + row * width, *dy = d_out + row * width;
        const float mean = layer.mean[row], inverse = layer.inverse[row];
        /* sum of the gradient of the normalised value, and of that gradient times the value */
        float sum = 0.0f, product = 0.0f;
        for (size_t c = 0; c < width; c++) {
            const float d_norm = dy[c] * load(layer.gain[c]);
            sum += d_norm;
            product += d_norm * ((x[c] - mean) * inverse);
        }
        sum /= (float)width;
        product /= (float)width;
        for (size_t c = 0; c < width; c++)
            d_in[row * width + c] += inverse * (dy[c] * load(layer.gain[c]) - sum - (x[c] - mean) * inverse * product);
    }
}

void gpu_layernorm_forward(const gpu_layernorm *layer, bf16 *out, cudaStream_t stream)
{
    LAUNCH(layernorm_forward, grid_for(layer->rows), BLOCK, stream, *layer, out);
}

void gpu_layernorm_backward(const gpu_layernorm *layer, const float *d_out, float *d_in, bf16 *d_gain, bf16 *d_offset,
                            float *parts, cudaStream_t stream)
{
    const element_of_gain gain = {d_out, layer->in, layer->mean, layer->inverse, layer->width};
    sum_columns(layer->rows, layer->width, gain, d_gain, parts, stream);
    gpu_column_sums(layer->rows, layer->width, d_out, d_offset, parts, stream);
    LAUNCH(layernorm_backward, grid_for(layer->rows), BLOCK, stream, *layer, d_out, d_in);
}

/* ---- one element after the other ---- */

static __global__ void residual(size_t count, size_t width, const float *a, const float *b, const bf16 *bias, float *out)
{
    FOR_EACH(i, count)
    out[i] = a[i] + (b[i] + load(bias[i % width]));
}

#define GELU_SCALE 1.59576912f /* 2 * sqrt(2 / pi) */
#define GELU_CUBE 0.044715f

static __device__ float gelu_gate(float x)
{
    return 1.0f / (1.0f + expf(-GELU_SCALE * (x + GELU_CUBE * x * x * x)));
}

static __global__ void gelu_forward(size_t count, size_t width, const float *in, const bf16 *bias, bf16 *hidden, bf16 *active)
{
    FOR_EACH(i, count)
    {
        hidden[i] = __float2bfloat16(in[i] + load(bias[i % width]));
        const float x = load(hidden[i]); /* rounded, as the backward pass will read it */
        active[i] = __float2bfloat16(x * gelu_gate(x));
    }
}

static __global__ void gelu_backward(size_t count, const bf16 *hidden, const float *d_active, bf16 *d_hidden)
{
    FOR_EACH(i, count)
    {
        const float x = load(hidden[i]), gate = gelu_gate(x);
        const float slope = gate + x * gate * (1.0f - gate) * GELU_SCALE * (1.0f + 3.0f * GELU_CUBE * x * x);
        d_hidden[i] = __float2bfloat16(d_active[i] * slope);
    }
}

static __global__ void round_all(size_t count, const float *in, bf16 *out)
{
    FOR_EACH(i, count)
    out[i] = __float2bfloat16(in[i]);
}

void gpu_residual(size_t rows, size_t width, const float *a, const float *b, const bf16 *bias, float *out, cudaStream_t stream)
{
    LAUNCH(residual, grid_for(rows * width), BLOCK, stream, rows * width, width, a, b, bias, out);
}

void gpu_gelu_forward(size_t rows, size_t width, const float *in, const bf16 *bias, bf16 *hidden, bf16 *active,
                      cudaStream_t stream)
{
    LAUNCH(gelu_forward, grid_for(rows * width), BLOCK, stream, rows * width, width, in, bias, hidden, active);
}

void gpu_gelu_backward(size_t count, const bf16 *hidden, const float *d_active, bf16 *d_hidden, cudaStream_t stream)
{
    LAUNCH(gelu_backward, grid_for(count), BLOCK, stream, count, hidden, d_active, d_hidden);
}

void gpu_round(size_t count, const float *in, bf16 *out, cudaStream_t stream)
{
    LAUNCH(round_all, grid_for(count), BLOCK, stream, count, in, out);
}
