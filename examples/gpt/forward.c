/* SPDX-License-Identifier: Apache-2.0 */
/* forward.c: from bytes to the loss. For each layer:
 *
 *     stream --+-- norm1 -- qkv -- attention -- proj --(+)-- middle --+-- norm2 -- fc -- GELU -- out --(+)-- next stream
 *              +---------------------------------------^             +--------------------------------^
 *
 * With tensor parallelism (parallel.h) the products after proj and out are sums over all parts.
 */
#include "passes.h"

static void embed(const gpt_model *model, const uint8_t *inputs)
{
    const size_t C = model->shape.width, T = model->shape.context, rows = model->shape.batch * T;
    const void *wte = gpt_fetch(model, GPT_WTE, 0), *wpe = gpt_fetch(model, GPT_WPE, 0);
#pragma omp parallel for schedule(static)
    for (size_t row = 0; row < rows; row++) {
        float *x = model->act.stream + row * C;
        const size_t byte = inputs[row] * C, position = row % T * C;
        for (size_t c = 0; c < C; c++)
            x[c] = model->bf16
                       ? gpt_bf16_load(((const uint16_t *)wte)[byte + c]) + gpt_bf16_load(((const uint16_t *)wpe)[position + c])
                       : ((const float *)wte)[byte + c] + ((const float *)wpe)[position + c];
    }
    gpt_release(model, GPT_WPE, 0);
    gpt_release(model, GPT_WTE, 0);
}

/* out = in * weights + bias */
static void linear(const gpt_model *model, size_t in_width, size_t out_width, const float *in, int weights, int bias,
                   size_t layer, float *out)
{
    const size_t rows = model->shape.batch * model->shape.context;
    const float *offset = gpt_vector(model, bias, layer, 0);
    gpt_matmul(rows, out_width, in_width, gpt_rows(in, in_width), gpt_weights(model, weights, layer, out_width),
               (gpt_product){.data = out, .bias = offset}, model->act.panels, model->threads);
    gpt_release(model, weights, layer);
}

/* out = stream + bias + in * weights, where each part has some of the columns of `in`. */
static void project(const gpt_model *model, size_t in_width, const float *in, int weights, int bias, size_t layer,
                    const float *stream, float *out)
{
    const size_t C = model->shape.width, rows = model->shape.batch * model->shape.context;
    gpt_matmul(rows, C, in_width, gpt_rows(in, in_width), gpt_weights(model, weights, layer, C), (gpt_product){.data = out},
               model->act.panels, model->threads);
    gpt_release(model, weights, layer);
    gpt_sum_parts(model, out);
    const float *offset = gpt_vector(model, bias, layer, 0);
#pragma omp parallel for schedule(static)
    for (size_t row = 0; row < rows; row++)
        for (size_t c = 0; c < C; c++)
            out[row * C + c] = out[row * C + c] + offset[c] + stream[row * C + c];
}

double gpt_model_forward(gpt_model *model, const uint8_t *inputs, const uint8_t *targets)
{
    const size_t C = model->shape.width, L = model->shape.layers, rows = model->shape.batch * model->shape.context;
    const size_t D = gpt_own_width(model);
    const gpt_activations *a = &model->act;
    embed(model, inputs);
    for (size_t l = 0; l < L; l++) {
        const size_t at = l * rows * C, own = l * rows * D;
        const float *stream = a->stream + at;
        float *middle = a->middle + at, *next = a->stream + at + rows * C;
        const gpt_attention attention = gpt_attention_of(model, l);

        gpt_layernorm_forward(rows, C, stream, gpt_vector(model, GPT_LN1_G, l, 0), gpt_vector(model, GPT_LN1_B, l, 1),
                              a->norm1 + at, a->mean1 + l * rows, a->inverse1 + l * rows);
        linear(model, C, 3 * D, a->norm1 + at, GPT_QKV_W, GPT_QKV_B, l, a->qkv + 3 * own);
        gpt_attention_forward(&attention, a->attended + own);
        project(model, D, a->attended + own, GPT_PROJ_W, GPT_PROJ_B, l, stream, middle);

        gpt_layernorm_forward(rows, C, middle, gpt_vector(model, GPT_LN2_G, l, 0), gpt_vector(model, GPT_LN2_B, l, 1),
                              a->norm2 + at, a->mean2 + l * rows, a->inverse2 + l * rows);
        linear(model, C, 4 * D, a->norm2 + at, GPT_FC_W, GPT_FC_B, l, a->hidden + 4 * own);
        gpt_gelu_forward(rows * 4 * D, a->hidden + 4 * own, a->active + 4 * own);
        project(model, 4 * D, a->active + 4 * own, GPT_OUT_W, GPT_OUT_B, l, middle, next);
    }
    gpt_layernorm_forward(rows, C, a->stream + L * rows * C, gpt_vector(model, GPT_LNF_G, 0, 0),
                          gpt_vector(model, GPT_LNF_B, 0, 1), a->norm, a->mean, a->inverse);
    /* The head is the transposed embedding. */
    gpt_matmul(rows, GPT_VOCABULARY, C, gpt_rows(a->norm, C), gpt_transposed(gpt_weights(model, GPT_WTE, 0, C)),
               (gpt_product){.data = a->logits}, a->panels, model->threads);
    gpt_release(model, GPT_WTE, 0);
    return gpt_cross_entropy(rows, GPT_VOCABULARY, targets, a->logits, model->row_losses);
}
