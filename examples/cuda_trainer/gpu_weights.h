/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_weights.h: where weights and gradients are: an object that main.c chooses once. Either they are in memory of the program
 * (gpu_resident.c), or the optimizer lends them slice by slice (gpu_lent.c). The passes do not know which. */
#ifndef CUDA_TRAINER_GPU_WEIGHTS_H
#define CUDA_TRAINER_GPU_WEIGHTS_H

#include "kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

#include "model.h" /* included as C, because the header is for C alone */

/* The model's first weights, those of ../gpt for the same seed, in pinned host memory. */
typedef struct gpu_first {
    gpt_tensor tensor[GPT_TENSORS]; /* values are in the block; there are no gradients */
    size_t parameter_count;
    void *block;
    size_t bytes;
} gpu_first;

/* Returns NULL, or what is wrong with the shape; then nothing is left behind. */
const char *gpu_first_create(gpt_shape shape, uint64_t seed, gpu_first *out);
void gpu_first_destroy(gpu_first *first);

typedef struct gpu_weights gpu_weights;
struct gpu_weights {
    gpt_tensor tensor[GPT_TENSORS]; /* tensors as the optimizer registers them */
    size_t parameter_count;
    bool lent; /* the optimizer owns the weights: values are the first weights, in host memory, and gradients are NULL */

    /* Kernels enqueued after this call find the weights of the slice, until it is given back. */
    const bf16 *(*borrow)(const gpu_weights *w, int id, size_t slice);
    /* No kernel that is enqueued after this call reads the slice. */
    void (*give_back)(const gpu_weights *w, int id, size_t slice);
    /* Device memory for the gradient of the slice, until the optimizer is told that it is ready. Overwrite it. */
    bf16 *(*gradient)(const gpu_weights *w, int id, size_t slice);

    void (*close)(gpu_weights *w);
};

/* Put weights and gradients into two blocks of device memory. The weights are there when the call returns. */
gpu_weights *gpu_resident_open(const gpu_first *first, cudaStream_t stream);

/* Write all weights, tensor after tensor without gaps, for tests. */
void gpu_resident_write(gpu_weights *w, const void *values);

#ifdef __cplusplus
}
#endif
#endif
