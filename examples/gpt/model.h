/* SPDX-License-Identifier: Apache-2.0 */
/* model.h: a GPT over bytes: its shape, its sixteen tensors, and the memory of a training step.
 *
 * Weights lie in one block and gradients in another, tensor after tensor in the order of the table below. The matrices of all
 * layers are stacked into one tensor with `slices` equal parts. Optimizers get this table and know nothing else. */
#ifndef GPT_MODEL_H
#define GPT_MODEL_H

#include "parallel.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GPT_VOCABULARY = 256 };

/* clang-format off */
/*            id      name           slices, and their names    rows            columns  run        initial values
 * C is the width, T the context. D is the part's share of the width, which is C for the whole model. Without columns a slice
 * is a vector. Parts take turns in a slice of the whole model, with a run of elements each; 0: replicated in all parts
 * (parallel.h). Exports have the names of slices, with a number for "{}". */
#define GPT_TENSOR_LIST(X)                                                                                                     \
    X(WTE,    "wte",         1, NULL,                GPT_VOCABULARY, C,       0,         NORMAL) /* of a byte; the head, too */\
    X(WPE,    "wpe",         1, NULL,                T,              C,       0,         NORMAL) /* of a position */           \
    X(LN1_G,  "ln1.gain",    L, "h.{}.ln1.gain",     C,              0,       0,         ONE)                                  \
    X(LN1_B,  "ln1.bias",    L, "h.{}.ln1.bias",     C,              0,       0,         ZERO)                                 \
    X(QKV_W,  "qkv.weight",  L, "h.{}.qkv.weight",   C,              3 * D,   D,         NORMAL) /* matrices are [in][out] */  \
    X(QKV_B,  "qkv.bias",    L, "h.{}.qkv.bias",     3 * D,          0,       D,         ZERO)                                 \
    X(PROJ_W, "proj.weight", L, "h.{}.proj.weight",  D,              C,       D * C,     SMALL)                                \
    X(PROJ_B, "proj.bias",   L, "h.{}.proj.bias",    C,              0,       0,         ZERO)                                 \
    X(LN2_G,  "ln2.gain",    L, "h.{}.ln2.gain",     C,              0,       0,         ONE)                                  \
    X(LN2_B,  "ln2.bias",    L, "h.{}.ln2.bias",     C,              0,       0,         ZERO)                                 \
    X(FC_W,   "fc.weight",   L, "h.{}.fc.weight",    C,              4 * D,   4 * D,     NORMAL)                               \
    X(FC_B,   "fc.bias",     L, "h.{}.fc.bias",      4 * D,          0,       4 * D,     ZERO)                                 \
    X(OUT_W,  "out.weight",  L, "h.{}.out.weight",   4 * D,          C,       4 * D * C, SMALL)                                \
    X(OUT_B,  "out.bias",    L, "h.{}.out.bias",     C,              0,       0,         ZERO)                                 \
    X(LNF_G,  "lnf.gain",    1, NULL,                C,              0,       0,         ONE)                                  \
    X(LNF_B,  "lnf.bias",    1, NULL,                C,              0,       0,         ZERO)
/* clang-format on */

enum {
#define X(id, name, slices, slice_name, rows, columns, run, values) GPT_##id,
    GPT_TENSOR_LIST(X)
#undef X
        GPT_TENSORS
};

typedef struct gpt_tensor {
    const char *name, *slice_name;
    void *value, *grad; /* fp32, or bf16 */
    size_t dims[2];     /* shape of a slice */
    size_t dim_count;
    size_t count; /* elements of a slice */
    size_t slices;
    size_t first; /* elements of the tensors before it */
    size_t run;   /* run as in the table above; 0: replicated in all parts */
    bool bf16;
} gpt_tensor;

/* The facts of a tensor that stand in the table. */
#define GPT_TENSOR(tensor_name, slice_count, name_of_slices, rows, columns)                                                    \
    .name = tensor_name, .slice_name = name_of_slices, .dims = {rows, columns}, .dim_count = (columns) > 0 ? 2 : 1,            \
    .count = (rows) * ((columns) > 0 ? (columns) : 1), .slices = slice_count

typedef struct gpt_shape {
    size_t layers, heads, width, context, batch;
} gpt_shape;

/* Results of the forward pass for the backward pass, fp32; sizes in model.c. */
typedef struct gpt_activations {
    float *block;  /* memory of all activations */
    float *stream; /* [layers + 1][rows][width]: the input of each layer */
    float *middle; /* [layers][rows][width]: between attention and MLP */
    float *norm1, *norm2, *mean1, *mean2, *inverse1, *inverse2;
    float *qkv, *weights, *attended, *hidden, *active;
    /* After the last layer; `logits` becomes their gradient, which the backward pass reads. */
    float *norm, *mean, *inverse, *logits;
    float *d_stream, *d_narrow, *d_wide, *d_hidden, *d_wte, *d_vector;
    float *vectors; /* gains and biases of the current layer, as fp32 */
    float *panels, *heads;
} gpt_activations;

/* The owner of weights and gradients that are not in the model's own memory. The passes ask for a slice when they use it, and
 * hand over a gradient as soon as it is complete. A failure ends the program, because the passes cannot continue. */
typedef struct gpt_keeper {
    void *ctx;
    const void *(*fetch)(void *ctx, int id, size_t slice);
    void (*release)(void *ctx, int id, size_t slice);
    void *(*acquire)(void *ctx, int id, size_t slice);
    void (*ready)(void *ctx, int id, size_t slice);
} gpt_keeper;

typedef struct gpt_model {
    gpt_shape shape;
    const gpt_parallel *parallel; /* which part of the model this is; borrowed */
    bool bf16;
    int threads;
    size_t parameter_count; /* number of weights in this part; all sizes are those of the part */
    gpt_tensor tensor[GPT_TENSORS];
    void *values, *grads;     /* blocks of weights and gradients; NULL with a keeper */
    const gpt_keeper *keeper; /* borrowed */
    gpt_activations act;
    double *row_losses;
} gpt_model;

/* Why there is no model of this shape in so many parts; NULL: there is one. */
const char *gpt_shape_check(gpt_shape shape, unsigned parts);

/* Build a model, or a part of one, whose `shape` is that of the whole. Random weights depend on `seed` alone, and those of a
 * part are a section of those of the whole model. Returns NULL, or an error text; then nothing is left behind. */
const char *gpt_model_create(gpt_shape shape, const gpt_parallel *parallel, bool bf16, uint64_t seed, gpt_model *out);

/* Build a model without memory for weights and gradients, because `keeper` owns those. */
const char *gpt_model_create_kept(gpt_shape shape, const gpt_parallel *parallel, bool bf16, const gpt_keeper *keeper,
                                  gpt_model *out);

/* Write the first weights of one slice. */
void gpt_model_first_weights(const gpt_model *model, uint64_t seed, int id, size_t slice, void *out);

void gpt_model_destroy(gpt_model *model);

/* The mean loss in nats of predicting `targets` from `inputs`, each batch * context bytes; 0 for an empty batch. */
double gpt_model_forward(gpt_model *model, const uint8_t *inputs, const uint8_t *targets);

/* Write the gradients of all tensors, after a forward pass. They are not accumulated. */
void gpt_model_backward(gpt_model *model, const uint8_t *inputs);

/* A 64-bit hash of all weights, for comparing runs. With a keeper it fetches slice after slice. */
uint64_t gpt_model_hash(const gpt_model *model);

/* A 64-bit hash of replicated tensors, which must be equal in all parts. */
uint64_t gpt_model_hash_replicated(const gpt_model *model);

/* One pseudo-random number for each (seed, index). */
uint64_t gpt_random(uint64_t seed, uint64_t index);

#endif
