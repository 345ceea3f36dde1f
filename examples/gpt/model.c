/* SPDX-License-Identifier: Apache-2.0 */
/* model.c: the table of tensors, their memory and first values. The passes are in forward.c and backward.c. */
#include "model.h"
#include "bf16.h"
#include "layers.h"
#include "matmul.h"
#include "passes.h"

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

/* Nearly normal, variance 1: the sum of four uniform 16-bit numbers. */
static float random_normal(uint64_t seed, uint64_t index)
{
    const uint64_t x = gpt_random(seed, index);
    const float sum = (float)((x & 0xffff) + (x >> 16 & 0xffff) + (x >> 32 & 0xffff) + (x >> 48));
    return (sum / 65536.0f - 2.0f) * 1.7320508f;
}

/* How many elements of the whole model stand for one element of a part's tensor. */
static size_t parts_of(const gpt_model *model, const gpt_tensor *tensor)
{
    return tensor->run ? model->parallel->parts : 1;
}

/* The number of a slice's first element in the whole model, whose random numbers have the same order. */
static uint64_t first_in_whole(const gpt_model *model, const gpt_tensor *tensor, size_t slice)
{
    uint64_t first = slice * tensor->count * parts_of(model, tensor);
    for (const gpt_tensor *t = model->tensor; t < tensor; t++)
        first += t->count * t->slices * parts_of(model, t);
    return first;
}

void gpt_model_first_weights(const gpt_model *model, uint64_t seed, int id, size_t slice, void *out)
{
#define X(id, label, slice_count, each, rows, columns, run, kind) kind,
    static const enum values kinds[GPT_TENSORS] = {GPT_TENSOR_LIST(X)};
#undef X
    const gpt_tensor *tensor = &model->tensor[id];
    const float narrow =
        /* smaller, because tensors of this scale are added to the stream 2 L times */
        0.02f / sqrtf(2.0f * (float)model->shape.layers);
    const enum values values = kinds[id];
    const float deviation = values == SMALL ? narrow : 0.02f;
    const uint64_t first = first_in_whole(model, tensor, slice);
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < tensor->count; i++) {
        const uint64_t index = first + gpt_place_in_whole(model->parallel, tensor->run, i);
        const float value = values == ONE ? 1.0f : values == ZERO ? 0.0f : deviation * random_normal(seed, index);
        if (tensor->bf16)
            ((uint16_t *)out)[i] = gpt_bf16_round(value);
        else
            ((float *)out)[i] = value;
    }
}

static size_t describe(gpt_shape shape, size_t parts, bool bf16, gpt_tensor tensor[GPT_TENSORS])
{
    const size_t L = shape.layers, C = shape.width, D = C / parts, T = shape.context;
    size_t total = 0;
#define X(id, label, slice_count, each, rows, columns, length, values)                                                         \
    tensor[GPT_##id] =                                                                                                         \
        (gpt_tensor){GPT_TENSOR(label, slice_count, each, rows, columns), .first = total, .run = length, .bf16 = bf16};        \
    total += tensor[GPT_##id].count * tensor[GPT_##id].slices;
    GPT_TENSOR_LIST(X)
#undef X
    return total;
}

static size_t max(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Lay the activations out from `block`; NULL only counts bytes. */
static size_t lay_out(const gpt_model *model, float *block, gpt_activations *a)
{
    const size_t L = model->shape.layers, C = model->shape.width, T = model->shape.context, H = model->shape.heads;
    const size_t rows = model->shape.batch * T, threads = (size_t)model->threads;
    const size_t D = C / model->parallel->parts, own_heads = H / model->parallel->parts;
    const size_t inner = max(max(max(C, 4 * D), rows), GPT_VOCABULARY);
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
    TAKE(qkv, L * rows * 3 * D);
    TAKE(weights, L * model->shape.batch * own_heads * T * T);
    TAKE(attended, L * rows * D);
    TAKE(hidden, L * rows * 4 * D);
    TAKE(active, L * rows * 4 * D);
    TAKE(norm, rows * C);
    TAKE(mean, rows);
    TAKE(inverse, rows);
    TAKE(logits, rows * GPT_VOCABULARY);
    TAKE(d_stream, rows * C);
    TAKE(d_narrow, rows * C);
    TAKE(d_wide, rows * 3 * D);
    TAKE(d_hidden, rows * 4 * D);
    TAKE(d_wte, GPT_VOCABULARY * C);
    TAKE(d_vector, 8 * C);
    TAKE(vectors, 16 * C);
    TAKE(panels, threads * gpt_matmul_panel_floats(inner));
    TAKE(heads, threads * gpt_attention_scratch_floats(T, C / H));
#undef TAKE
    a->block = block;
    return at;
}

const char *gpt_shape_check(gpt_shape shape, unsigned parts)
{
    const size_t L = shape.layers, C = shape.width, T = shape.context;
    if (L < 1 || L > 1000 || C < 1 || C > 65536 || T < 1 || T > 65536 || shape.batch > 65536)
        return "layers must be 1 to 1000; width and context 1 to 65536, batch at most that";
    if (shape.heads < 1 || C % shape.heads)
        return "width must be a multiple of heads";
    if (shape.heads % parts)
        return "heads must be a multiple of --tensor-parallel, because each part has as many";
    return NULL;
}

const char *gpt_model_create_kept(gpt_shape shape, const gpt_parallel *parallel, bool bf16, const gpt_keeper *keeper,
                                  gpt_model *out)
{
    const char *wrong = gpt_shape_check(shape, parallel->parts);
    if (wrong)
        return wrong;
    gpt_model model = {.shape = shape, .parallel = parallel, .bf16 = bf16, .threads = omp_get_max_threads(), .keeper = keeper};
    model.parameter_count = describe(shape, parallel->parts, bf16, model.tensor);
    model.row_losses = calloc(shape.batch * shape.context + 1, sizeof *model.row_losses);
    float *block = calloc(lay_out(&model, NULL, &model.act), sizeof *block);
    lay_out(&model, block, &model.act);
    if (!model.row_losses || !block) {
        gpt_model_destroy(&model);
        return "not enough memory for a model of this shape";
    }
    *out = model;
    return NULL;
}

const char *gpt_model_create(gpt_shape shape, const gpt_parallel *parallel, bool bf16, uint64_t seed, gpt_model *out)
{
    gpt_model model;
    const char *wrong = gpt_model_create_kept(shape, parallel, bf16, NULL, &model);
    if (wrong)
        return wrong;
    const size_t element_bytes = bf16 ? sizeof(uint16_t) : sizeof(float);
    model.values = calloc(model.parameter_count, element_bytes);
    model.grads = calloc(model.parameter_count, element_bytes);
    if (!model.values || !model.grads) {
        gpt_model_destroy(&model);
        return "not enough memory for a model of this shape";
    }
    for (int id = 0; id < GPT_TENSORS; id++) {
        gpt_tensor *t = &model.tensor[id];
        t->value = (char *)model.values + t->first * element_bytes;
        t->grad = (char *)model.grads + t->first * element_bytes;
        for (size_t slice = 0; slice < t->slices; slice++)
            gpt_model_first_weights(&model, seed, id, slice, (char *)t->value + slice * t->count * element_bytes);
    }
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

static uint64_t hash_bytes(uint64_t hash, const unsigned char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i += sizeof hash) {
        uint64_t word = 0;
        memcpy(&word, bytes + i, count - i < sizeof word ? count - i : sizeof word);
        hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    }
    return hash;
}

static uint64_t hash_tensor(uint64_t hash, const gpt_model *model, int id)
{
    for (size_t slice = 0; slice < model->tensor[id].slices; slice++) {
        hash = hash_bytes(hash, gpt_fetch(model, id, slice), gpt_slice_bytes(model, id));
        gpt_release(model, id, slice);
    }
    return hash;
}

uint64_t gpt_model_hash(const gpt_model *model)
{
    uint64_t hash = model->parameter_count;
    for (int id = 0; id < GPT_TENSORS; id++)
        hash = hash_tensor(hash, model, id);
    return hash;
}

uint64_t gpt_model_hash_replicated(const gpt_model *model)
{
    uint64_t hash = 0;
    for (int id = 0; id < GPT_TENSORS; id++) {
        if (model->tensor[id].run == 0)
            hash = hash_tensor(hash, model, id);
    }
    return hash;
}
