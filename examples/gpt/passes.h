/* passes.h: what the forward and the backward pass share: where a layer finds its weights and its memory. */
#ifndef GPT_PASSES_H
#define GPT_PASSES_H

#include "bf16.h"
#include "layers.h"
#include "matmul.h"
#include "model.h"

/* Slice `layer` of a matrix tensor with `columns` columns, as it lies or transposed. */
static inline gpt_matrix gpt_weights(const gpt_model *model, int id, size_t layer, size_t columns)
{
    const gpt_tensor *t = &model->tensor[id];
    const size_t at = layer * t->count;
    const void *data = t->bf16 ? (const void *)((const uint16_t *)t->value + at) : (const void *)((const float *)t->value + at);
    return (gpt_matrix){.data = data, .row_stride = columns, .column_stride = 1, .bf16 = t->bf16};
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
    float *to = model->act.vectors + (size_t)which * 4 * model->shape.width;
    for (size_t i = 0; i < t->count; i++)
        to[i] = t->bf16 ? gpt_bf16_load(((const uint16_t *)t->value)[layer * t->count + i])
                        : ((const float *)t->value)[layer * t->count + i];
    return to;
}

static inline gpt_attention gpt_attention_of(const gpt_model *model, size_t layer)
{
    const gpt_shape s = model->shape;
    return (gpt_attention){.batch = s.batch,
                           .context = s.context,
                           .heads = s.heads,
                           .width = s.width,
                           .qkv = model->act.qkv + layer * s.batch * s.context * 3 * s.width,
                           .weights = model->act.weights + layer * s.batch * s.heads * s.context * s.context,
                           .scratch = model->act.heads,
                           .threads = model->threads};
}

#endif
