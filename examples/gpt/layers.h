/* SPDX-License-Identifier: Apache-2.0 */
/* layers.h: the layers between the matrix products, forward and backward. Arrays are fp32 and row-major, one row for each
 * token. Work is divided by rows or columns, and no sum is divided: the number of threads changes no bit. */
#ifndef GPT_LAYERS_H
#define GPT_LAYERS_H

#include <stddef.h>
#include <stdint.h>

/* out = (in - mean) / sqrt(variance + 1e-5) * gain + offset, for each row. Stores mean and 1/sqrt(...) for the backward pass.
 */
void gpt_layernorm_forward(size_t rows, size_t width, const float *in, const float *gain, const float *offset, float *out,
                           float *mean, float *inverse);

/* d_in += the gradient through the layer; d_gain and d_offset are overwritten. */
void gpt_layernorm_backward(size_t rows, size_t width, const float *in, const float *gain, const float *mean,
                            const float *inverse, const float *d_out, float *d_in, float *d_gain, float *d_offset);

/* GELU as x * sigmoid(2 * sqrt(2/pi) * (x + 0.044715 x^3)), which equals its tanh form. */
void gpt_gelu_forward(size_t count, const float *in, float *out);

/* d = d * gelu'(in), in place. */
void gpt_gelu_backward(size_t count, const float *in, float *d);

/* out[c] = sum of column c: the gradient of a bias. */
void gpt_column_sums(size_t rows, size_t width, const float *in, float *out);

/* Memory of an attention layer: `qkv` holds query, key and value of a token side by side. */
typedef struct gpt_attention {
    size_t batch, context, heads, width;
    const float *qkv; /* [batch * context][3 * width] */
    float *weights;   /* [batch][heads][context][context]: softmax of the scores */
    float *scratch;   /* gpt_attention_scratch_floats() for each thread */
    int threads;
} gpt_attention;

size_t gpt_attention_scratch_floats(size_t context, size_t head_width);

/* Causal attention of all heads: out is [batch * context][width]. */
void gpt_attention_forward(const gpt_attention *layer, float *out);

/* d_qkv, of the same shape as qkv, is overwritten. */
void gpt_attention_backward(const gpt_attention *layer, const float *d_out, float *d_qkv);

/* Softmax and cross-entropy over `classes` logits of each row, in place: `logits` becomes the gradient of the mean loss.
 * Returns the mean loss in nats. `losses` is scratch, one value for each row. */
double gpt_cross_entropy(size_t rows, size_t classes, const uint8_t *targets, float *logits, double *losses);

#endif
