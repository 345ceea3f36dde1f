/* SPDX-License-Identifier: Apache-2.0 */
/* backward.c: from the gradient of the logits, which the forward pass stores, to the gradients of all tensors. Gradients are
 * summed in fp32, and rounded once if they are bf16. The embedding is used twice, so its gradient is summed separately first.
 */
#include "passes.h"

#include <string.h>

/* Write slice `layer` of a tensor's gradient. */
static void keep(const gpt_model *model, int id, size_t layer, const float *from)
{
    const gpt_tensor *t = &model->tensor[id];
    void *grad = gpt_acquire(model, id, layer);
    for (size_t i = 0; i < t->count; i++)
        if (t->bf16)
            ((uint16_t *)grad)[i] = gpt_bf16_round(from[i]);
        else
            ((float *)grad)[i] = from[i];
    gpt_ready(model, id, layer);
}

/* Backward through out = in * weights + bias: gradients of weights and bias, and d_in, which is overwritten. */
static void linear(const gpt_model *model, size_t in_width, size_t out_width, const float *in, int weights, int bias,
                   size_t layer, const float *d_out, float *d_in)
{
    const size_t rows = model->shape.batch * model->shape.context;
    const gpt_activations *a = &model->act;
    gpt_column_sums(rows, out_width, d_out, a->d_vector);
    keep(model, bias, layer, a->d_vector);
    gpt_matmul(in_width, out_width, rows, gpt_transposed(gpt_rows(in, in_width)), gpt_rows(d_out, out_width),
               (gpt_product){.data = gpt_acquire(model, weights, layer), .bf16 = model->bf16}, a->panels, model->threads);
    gpt_ready(model, weights, layer);
    gpt_matmul(rows, in_width, out_width, gpt_rows(d_out, out_width),
               gpt_transposed(gpt_weights(model, weights, layer, out_width)), (gpt_product){.data = d_in}, a->panels,
               model->threads);
    gpt_release(model, weights, layer);
}

/* Backward through a layer norm: add the gradient through it to d_stream. */
static void layernorm(const gpt_model *model, const float *in, int gain, int bias, size_t layer, const float *mean,
                      const float *inverse, const float *d_out)
{
    const size_t C = model->shape.width, rows = model->shape.batch * model->shape.context;
    const gpt_activations *a = &model->act;
    gpt_layernorm_backward(rows, C, in, gpt_vector(model, gain, layer, 0), mean, inverse, d_out, a->d_stream, a->d_vector,
                           a->d_vector + C);
    keep(model, gain, layer, a->d_vector);
    keep(model, bias, layer, a->d_vector + C);
}

/* Add the rows of one byte or position in ascending order. Each column belongs to one thread. */
static void embed(const gpt_model *model, const uint8_t *inputs)
{
    enum { STRIPE = 16 };
    const size_t C = model->shape.width, T = model->shape.context, rows = model->shape.batch * T;
    const gpt_activations *a = &model->act;
    void *wpe = gpt_acquire(model, GPT_WPE, 0);
#pragma omp parallel for schedule(static)
    for (size_t first = 0; first < C; first += STRIPE) {
        const size_t end = first + STRIPE < C ? first + STRIPE : C;
        for (size_t row = 0; row < rows; row++)
            for (size_t c = first; c < end; c++)
                a->d_wte[inputs[row] * C + c] += a->d_stream[row * C + c];
        for (size_t t = 0; t < T; t++)
            for (size_t c = first; c < end; c++) {
                float sum = 0.0f;
                for (size_t row = t; row < rows; row += T)
                    sum += a->d_stream[row * C + c];
                if (model->bf16)
                    ((uint16_t *)wpe)[t * C + c] = gpt_bf16_round(sum);
                else
                    ((float *)wpe)[t * C + c] = sum;
            }
    }
    gpt_ready(model, GPT_WPE, 0);
    keep(model, GPT_WTE, 0, a->d_wte);
}

void gpt_model_backward(gpt_model *model, const uint8_t *inputs)
{
    const size_t C = model->shape.width, L = model->shape.layers, rows = model->shape.batch * model->shape.context;
    const size_t D = gpt_own_width(model);
    const gpt_activations *a = &model->act;
    gpt_matmul(GPT_VOCABULARY, C, rows, gpt_transposed(gpt_rows(a->logits, GPT_VOCABULARY)), gpt_rows(a->norm, C),
               (gpt_product){.data = a->d_wte}, a->panels, model->threads);
    gpt_matmul(rows, C, GPT_VOCABULARY, gpt_rows(a->logits, GPT_VOCABULARY), gpt_weights(model, GPT_WTE, 0, C),
               (gpt_product){.data = a->d_narrow}, a->panels, model->threads);
    gpt_release(model, GPT_WTE, 0);
    memset(a->d_stream, 0, rows * C * sizeof *a->d_stream);
    layernorm(model, a->stream + L * rows * C, GPT_LNF_G, GPT_LNF_B, 0, a->mean, a->inverse, a->d_narrow);
    for (size_t l = L; l-- > 0;) {
        const size_t at = l * rows * C, own = l * rows * D;
        const gpt_attention attention = gpt_attention_of(model, l);

        linear(model, 4 * D, C, a->active + 4 * own, GPT_OUT_W, GPT_OUT_B, l, a->d_stream, a->d_hidden);
        gpt_gelu_backward(rows * 4 * D, a->hidden + 4 * own, a->d_hidden);
        linear(model, C, 4 * D, a->norm2 + at, GPT_FC_W, GPT_FC_B, l, a->d_hidden, a->d_narrow);
        gpt_sum_parts(model, a->d_narrow);
        layernorm(model, a->middle + at, GPT_LN2_G, GPT_LN2_B, l, a->mean2 + l * rows, a->inverse2 + l * rows, a->d_narrow);

        linear(model, D, C, a->attended + own, GPT_PROJ_W, GPT_PROJ_B, l, a->d_stream, a->d_narrow);
        gpt_attention_backward(&attention, a->d_narrow, a->d_wide);
        linear(model, C, 3 * D, a->norm1 + at, GPT_QKV_W, GPT_QKV_B, l, a->d_wide, a->d_narrow);
        gpt_sum_parts(model, a->d_narrow);
        layernorm(model, a->stream + at, GPT_LN1_G, GPT_LN1_B, l, a->mean1 + l * rows, a->inverse1 + l * rows, a->d_narrow);
    }
    embed(model, inputs);
}
