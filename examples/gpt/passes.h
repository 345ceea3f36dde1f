/* SPDX-License-Identifier: Apache-2.0 */
/* passes.h: shared by the forward and the backward pass: weights and memory of a layer. */
#ifndef GPT_PASSES_H
#define GPT_PASSES_H

#include "bf16.h"
#include "layers.h"
#include "matmul.h"
#include "model.h"

static inline size_t gpt_slice_bytes(const gpt_model *model, int id)
{
    return model->tensor[id].count * (model->bf16 ? sizeof(uint16_t) : sizeof(float));
}

/* The weights of a slice, until they are released. */
static inline const void *gpt_fetch(const gpt_model *model, int id, size_t slice)
{
    if (model->keeper)
        return model->keeper->fetch(model->keeper->ctx, id, slice);
    return (const char *)model->tensor[id].value + slice * gpt_slice_bytes(model, id);
}

static inline void gpt_release(const gpt_model *model, int id, size_t slice)
{
    if (model->keeper)
        model->keeper->release(model->keeper->ctx, id, slice);
}

/* The memory for the gradient of a slice, until it is declared ready. */
static inline void *gpt_acquire(const gpt_model *model, int id, size_t slice)
{
    if (model->keeper)
        return model->keeper->acquire(model->keeper->ctx, id, slice);
    return (char *)model->tensor[id].grad + slice * gpt_slice_bytes(model, id);
}

static inline void gpt_ready(const gpt_model *model, int id, size_t slice)
{
    if (model->keeper)
        model->keeper->ready(model->keeper->ctx, id, slice);
}

/* Slice `layer` of a matrix tensor with `columns` columns, plain or transposed. Release it after use. */
static inline gpt_matrix gpt_weights(const gpt_model *model, int id, size_t layer, size_t columns)
{
    return (gpt_matrix){
        .data = gpt_fetch(model, id, layer), .row_stride = columns, .column_stride = 1, .bf16 = model->tensor[id].bf16};
}

static inline gpt_matrix gpt_rows(const float *data, size_t columns)
{
    return (gpt_matrix){.data = data, .row_stride = columns, .column_stride = 1};
}

static inline gpt_matrix gpt_transposed(gpt_matrix m)
{
    return (gpt_matrix){.data = m.data, .row_stride = m.column_stride, .column_stride = m.row_stride, .bf16 = m.bf16};
}

/* Slice `layer` of a gain or bias as fp32, in scratch that holds four such vectors. */
static inline const float *gpt_vector(const gpt_model *model, int id, size_t layer, int which)
{
    const gpt_tensor *t = &model->tensor[id];
    const void *from = gpt_fetch(model, id, layer);
    float *to = model->act.vectors + (size_t)which * 4 * model->shape.width;
    for (size_t i = 0; i < t->count; i++)
        to[i] = t->bf16 ? gpt_bf16_load(((const uint16_t *)from)[i]) : ((const float *)from)[i];
    gpt_release(model, id, layer);
    return to;
}

/* The width of this part's heads together. Its share of the MLP has four times as many columns. */
static inline size_t gpt_own_width(const gpt_model *model)
{
    return model->shape.width / model->parallel->parts;
}

/* Add up what each part has of an array [rows][width]. */
static inline void gpt_sum_parts(const gpt_model *model, float *data)
{
    const gpt_shape *s = &model->shape;
    model->parallel->sum(model->parallel->ctx, data, s->batch * s->context * s->width);
}

/* Attention of this part's heads. */
static inline gpt_attention gpt_attention_of(const gpt_model *model, size_t layer)
{
    const gpt_shape s = model->shape;
    const size_t heads = s.heads / model->parallel->parts, width = gpt_own_width(model);
    return (gpt_attention){.batch = s.batch,
                           .context = s.context,
                           .heads = heads,
                           .width = width,
                           .qkv = model->act.qkv + layer * s.batch * s.context * 3 * width,
                           .weights = model->act.weights + layer * s.batch * heads * s.context * s.context,
                           .scratch = model->act.heads,
                           .threads = model->threads};
}

#endif
