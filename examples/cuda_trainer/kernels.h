/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.h: the layers between the matrix products: functions that enqueue kernels and return at once. Arrays are on the
 * device and row-major, one row for each token. Sums are in fp32 and in a fixed order, so a run can be repeated to the bit. */
#ifndef CUDA_TRAINER_KERNELS_H
#define CUDA_TRAINER_KERNELS_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#include <cuda_bf16.h>
typedef __nv_bfloat16 bf16;
extern "C" {
#else
typedef struct bf16 {
    uint16_t bits;
} bf16;
#endif

/* Column sums have this many parts with every grid; `parts` below is scratch of COLUMN_PARTS * width floats. */
enum { COLUMN_PARTS = 32 };

/* ---- layers.cu ---- */

typedef struct gpu_layernorm {
    size_t rows, width;
    const float *in;
    const bf16 *gain, *offset;
    float *mean, *inverse; /* mean and inverse deviation of each row, stored for the backward pass */
} gpu_layernorm;

void gpu_layernorm_forward(const gpu_layernorm *layer, bf16 *out, cudaStream_t stream);

/* d_in += the gradient through the layer; d_gain and d_offset are written. */
void gpu_layernorm_backward(const gpu_layernorm *layer, const float *d_out, float *d_in, bf16 *d_gain, bf16 *d_offset,
                            float *parts, cudaStream_t stream);

/* out = a + b + bias: the residual connection around the layer that computed b. */
void gpu_residual(size_t rows, size_t width, const float *a, const float *b, const bf16 *bias, float *out, cudaStream_t stream);

/* hidden = in + bias, active = GELU(hidden), in the form x * sigmoid(2 * sqrt(2/pi) * (x + 0.044715 x^3)). */
void gpu_gelu_forward(size_t rows, size_t width, const float *in, const bf16 *bias, bf16 *hidden, bf16 *active,
                      cudaStream_t stream);
/* d_hidden = d_active * GELU'(hidden) */
void gpu_gelu_backward(size_t count, const bf16 *hidden, const float *d_active, bf16 *d_hidden, cudaStream_t stream);

void gpu_round(size_t count, const float *in, bf16 *out, cudaStream_t stream);

/* out[c] = sum of column c: the gradient of a bias. */
void gpu_column_sums(size_t rows, size_t width, const float *in, bf16 *out, float *parts, cudaStream_t stream);
void gpu_column_sums_bf16(size_t rows, size_t width, const bf16 *in, bf16 *out, float *parts, cudaStream_t stream);

/* ---- attention.cu ---- */

typedef struct gpu_heads {
    size_t batch, context, heads, width;
} gpu_heads;

/* From [batch * context][parts * width], plus a bias (or NULL), to [parts][batch * heads][context][width / heads]. */
void gpu_heads_split(const gpu_heads *h, size_t parts, const float *in, const bf16 *bias, bf16 *out, cudaStream_t stream);
/* Reverse gpu_heads_split(). */
void gpu_heads_merge(const gpu_heads *h, size_t parts, const float *in, bf16 *out, cudaStream_t stream);

/* Each token attends to itself and to those before it: softmax over these scores of [batch * heads][context][context]. Tokens
 * behind it get 0. */
void gpu_softmax_forward(const gpu_heads *h, const float *scores, bf16 *weights, cudaStream_t stream);
void gpu_softmax_backward(const gpu_heads *h, const bf16 *weights, const float *d_weights, bf16 *d_scores, cudaStream_t stream);

/* ---- ends.cu ---- */

/* A batch on the device, for both ends of the model. */
typedef struct gpu_batch {
    uint8_t *inputs, *targets;
    uint32_t *order;  /* rows sorted by their input byte; rows of one byte are in ascending order */
    uint32_t *starts; /* starts[byte] is where the rows of a byte begin in `order`; starts[256] is the number of rows */
} gpu_batch;

/* out = embedding of the byte + embedding of the position */
void gpu_embed_forward(size_t rows, size_t context, size_t width, const gpu_batch *batch, const bf16 *wte, const bf16 *wpe,
                       float *out, cudaStream_t stream);

/* d_wpe is overwritten. d_wte is the gradient through the embedding plus d_head, the gradient through the output head. */
void gpu_embed_backward(size_t rows, size_t context, size_t width, const gpu_batch *batch, const float *d_out,
                        const float *d_head, bf16 *d_wte, bf16 *d_wpe, cudaStream_t stream);

/* The loss of each row in nats, and the gradient of their mean by the logits. */
void gpu_cross_entropy(size_t rows, size_t classes, const gpu_batch *batch, const float *logits, float *losses, bf16 *d_logits,
                       cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
