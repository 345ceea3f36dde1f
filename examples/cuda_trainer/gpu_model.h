/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_model.h: the GPT of ../gpt/model.h on a GPU. Weights and gradients are bf16. Activations are bf16 if a matrix product
 * reads them, otherwise fp32. It knows no optimizer, and not where weights are. All work goes into one stream; only reading the
 * loss waits for it. */
#ifndef CUDA_TRAINER_GPU_MODEL_H
#define CUDA_TRAINER_GPU_MODEL_H

#include "gpu_weights.h"

#include <cublas_v2.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Results of the forward pass for the backward pass; sizes in gpu_model.c. `rows` are the tokens of a batch. */
typedef struct gpu_activations {
    float *stream, *middle; /* [layers + 1], [layers][rows][width]: inputs of the two halves of each layer */
    float *mean1, *inverse1, *mean2, *inverse2;  /* [layers][rows] */
    bf16 *norm1, *heads, *weights, *attended;    /* [layers]: operands of the products in attention */
    bf16 *norm2, *hidden, *active;               /* [layers]: operands of the products in the MLP */
    float *mean, *inverse, *logits;              /* final norm and logits, after the last layer */
    bf16 *norm, *d_logits;                       /* norm: output of the final norm */
    float *d_stream, *d_wte, *product, *scores;  /* temporaries of a pass */
    float *column_parts, *losses;                /* temporaries of a pass; losses: [rows] */
    bf16 *d_narrow, *d_wide, *d_heads, *d_score; /* temporaries of the backward pass */
    gpu_batch batch;
} gpu_activations;

typedef struct gpu_model {
    gpt_shape shape;
    cudaStream_t stream; /* borrowed */
    cublasHandle_t blas;
    const gpu_weights *weights; /* borrowed */
    void *block;                /* device memory of the activations */
    gpu_activations act;
    gpu_batch batch; /* batch in pinned memory */
    float *losses;   /* losses in pinned memory */
    cudaEvent_t loss_is_here;
} gpu_model;

/* Called in the backward pass when the kernels for the gradient of a slice are in the stream. */
typedef void gpu_gradient_fn(void *ctx, int tensor, size_t slice);

/* Allocate the activations. `shape` is that of the weights. */
void gpu_model_create(gpt_shape shape, const gpu_weights *weights, cudaStream_t stream, gpu_model *out);

/* Waits for the stream. */
void gpu_model_destroy(gpu_model *model);

/* Enqueue the forward pass. The bytes are copied; the batch before must be done. */
void gpu_model_forward(gpu_model *model, const uint8_t *inputs, const uint8_t *targets);

/* Enqueue the backward pass, after a forward pass. Gradients are overwritten, not accumulated. */
void gpu_model_backward(gpu_model *model, gpu_gradient_fn *is_ready, void *ctx);

/* Wait for the forward pass. Returns the mean loss in nats. */
double gpu_model_loss(gpu_model *model);

/* A 64-bit hash of all weights, for comparing runs; the same as that of ../gpt. Borrows slice after slice, and waits for the
 * stream. */
uint64_t gpu_model_hash(gpu_model *model);

#ifdef __cplusplus
}
#endif
#endif
