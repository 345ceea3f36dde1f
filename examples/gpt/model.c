/* model.c: the table of tensors, their memory and first values. The passes are in forward.c and backward.c. */
#include "model.h"
#include "bf16.h"
#include "layers.h"
#include "matmul.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum values { ZERO, ONE, NORMAL, SMALL };

uint64_t gpt_random(uint64_t seed, uint64_t index)
{
    uint64_t x = seed * 0x9e3779b97f4a7c15u + index; /* a bijection of 64 bits: multiply, fold, three times */
    for (int round = 0; round < 3; round++) {
        x = (x ^ (x >> 31)) * 0xd6e8feb86659fd93u;
        x ^= x >> 32;
    }
    return x;
}

/* Nearly normal, variance 1: the sum of four uniform numbers of 16 bits. */
static float random_normal(uint64_t seed, uint64_t index)
{
    const uint64_t x = gpt_random(seed, index);
    const float sum = (float)((x & 0xffff) + (x >> 16 & 0xffff) + (x >> 32 & 0xffff) + (x >> 48));
    return (sum / 65536.0f - 2.0f) * 1.7320508f;
}

static void fill(const gpt_tensor *tensor, enum values values, float deviation, uint64_t seed, uint64_t first_index)
{
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < tensor->count * tensor->slices; i++) {
        const float value = values == ONE ? 1.0f : values == ZERO ? 0.0f : deviation * random_normal(seed, first_index + i);
        if (tensor->bf16)
            ((uint16_t *)tensor->value)[i] = gpt_bf16_round(value);
        else
            ((float *)tensor->value)[i] = value;
    }
}

static size_t describe(gpt_shape shape, bool bf16, gpt_tensor tensor[GPT_TENSORS])
{
    const size_t L = shape.layers, C = shape.width, T = shape.context;
    size_t total = 0;
#define X(id, label, slice_count, elements, values)                                                                            \
    tensor[GPT_##id] = (gpt_tensor){.name = label, .count = elements, .slices = slice_count, .bf16 = bf16};                    \
    total += (elements) * (slice_count);
    GPT_TENSOR_LIST(X)
#undef X
    return total;
}

static size_t max(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Lay the activations out from `block`; with NULL only count. */
static size_t lay_out(const gpt_model *model, float *block, gpt_activations *a)
{
    const size_t L = model->shape.layers, C = model->shape.width, T = model->shape.context, H = model->shape.heads;
    const size_t rows = model->shape.batch * T, threads = (size_t)model->threads;
    const size_t inner = max(max(4 * C, rows), GPT_VOCABULARY);
    size_t at = 0;
#define TAKE(field, floats) (a->field = block ? block + at : NULL, at += ((floats) + 15) & ~(size_t)15)
    TAKE(stream, (L + 1) * rows * C);
    TAKE(middle, L * rows * C);
    TAKE(norm1, L * rows * C);
    TAKE(norm2, L * rows * C);
    TAKE(mean1, L * rows);
    TAKE(mean2, L * rows);
    TAKE(inverse1, L * rows);
    TAKE(inverse2, L * rows);
    TAKE(qkv, L * rows * 3 * C);
    TAKE(weights, L * model->shape.batch * H * T * T);
    TAKE(attended, L * rows * C);
    TAKE(hidden, L * rows * 4 * C);
    TAKE(active, L * rows * 4 * C);
    TAKE(norm, rows * C);
    TAKE(mean, rows);
    TAKE(inverse, rows);
    TAKE(logits, rows * GPT_VOCABULARY);
    TAKE(d_stream, rows * C);
    TAKE(d_narrow, rows * C);
    TAKE(d_wide, rows * 3 * C);
    TAKE(d_hidden, rows * 4 * C);
    TAKE(d_wte, GPT_VOCABULARY * C);
    TAKE(d_vector, 8 * C);
    TAKE(vectors, 16 * C);
    TAKE(panels, threads * gpt_matmul_panel_floats(inner));
    TAKE(heads, threads * gpt_attention_scratch_floats(T, C / H));
#undef TAKE
    a->block = block;
    return at;
}

const char *gpt_model_create(gpt_shape shape, bool bf16, uint64_t seed, gpt_model *out)
{
    const size_t L = shape.layers, C = shape.width, T = shape.context;
    if (L < 1 || L > 1000 || C < 1 || C > 65536 || T < 1 || T > 65536 || shape.batch < 1 || shape.batch > 65536)
        return "layers must be 1 to 1000; width, context and batch 1 to 65536";
    if (shape.heads < 1 || C % shape.heads)
        return "width must be a multiple of heads";
    gpt_model model = {.shape = shape, .bf16 = bf16, .threads = omp_get_max_threads()};
    model.parameter_count = describe(shape, bf16, model.tensor);
    const size_t element_bytes = bf16 ? sizeof(uint16_t) : sizeof(float), rows = shape.batch * T;
    model.values = calloc(model.parameter_count, element_bytes);
    model.grads = calloc(model.parameter_count, element_bytes);
    model.row_losses = calloc(rows, sizeof *model.row_losses);
    float *block = calloc(lay_out(&model, NULL, &model.act), sizeof *block);
    lay_out(&model, block, &model.act);
    if (!model.values || !model.grads || !model.row_losses || !block) {
        gpt_model_destroy(&model);
        return "not enough memory for a model of this shape";
    }
    const float narrow = 0.02f / sqrtf(2.0f * (float)L); /* what is added to the stream 2 L times */
    size_t first = 0;
#define X(id, label, slice_count, elements, kind)                                                                              \
    model.tensor[GPT_##id].value = (char *)model.values + first * element_bytes;                                               \
    model.tensor[GPT_##id].grad = (char *)model.grads + first * element_bytes;                                                 \
    fill(&model.tensor[GPT_##id], kind, kind == SMALL ? narrow : 0.02f, seed, first);                                          \
    first += (elements) * (slice_count);
    GPT_TENSOR_LIST(X)
#undef X
    *out = model;
    return NULL;
}

void gpt_model_destroy(gpt_model *model)
{
    free(model->values);
    free(model->grads);
    free(model->row_losses);
    free(model->act.block);
    *model = (gpt_model){0};
}

uint64_t gpt_model_hash(const gpt_model *model)
{
    const unsigned char *bytes = model->values;
    const size_t count = model->parameter_count * (model->bf16 ? sizeof(uint16_t) : sizeof(float));
    uint64_t hash = count;
    for (size_t i = 0; i < count; i += sizeof hash) {
        uint64_t word = 0;
        memcpy(&word, bytes + i, count - i < sizeof word ? count - i : sizeof word);
        hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    }
    return hash;
}
