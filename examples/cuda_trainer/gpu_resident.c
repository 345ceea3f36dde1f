/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_resident.c: weights and gradients of the whole model in device memory of the program. */
#include "check.h"
#include "gpu_weights.h"

#include <string.h>

typedef struct resident {
    gpu_weights base; /* first member, because callers have a pointer to it */
    cudaStream_t stream;
    void *values, *grads;
    size_t bytes; /* bytes of each block */
} resident;

static const bf16 *borrow(const gpu_weights *w, int id, size_t slice)
{
    return (const bf16 *)w->tensor[id].value + slice * w->tensor[id].count;
}

static void stays(const gpu_weights *w, int id, size_t slice)
{
    (void)w, (void)id, (void)slice;
}

static bf16 *gradient(const gpu_weights *w, int id, size_t slice)
{
    return (bf16 *)w->tensor[id].grad + slice * w->tensor[id].count;
}

static void upload(const resident *r, void *to, const void *from, size_t bytes)
{
    CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, r->stream));
    CUDA(cudaStreamSynchronize(r->stream));
}

static void close_resident(gpu_weights *w)
{
    resident *r = (resident *)w;
    CUDA(cudaStreamSynchronize(r->stream));
    CUDA(cudaFree(r->grads));
    CUDA(cudaFree(r->values));
    free(r);
}

gpu_weights *gpu_resident_open(const gpu_first *first, cudaStream_t stream)
{
    resident *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    *r = (resident){.base = {.parameter_count = first->parameter_count,
                             .borrow = borrow,
                             .give_back = stays,
                             .gradient = gradient,
                             .close = close_resident},
                    .stream = stream,
                    .bytes = first->bytes};
    CUDA(cudaMalloc(&r->values, r->bytes));
    CUDA(cudaMalloc(&r->grads, r->bytes));
    memcpy(r->base.tensor, first->tensor, sizeof first->tensor);
    for (int id = 0; id < GPT_TENSORS; id++) {
        gpt_tensor *t = &r->base.tensor[id];
        const size_t at = (size_t)((const char *)first->tensor[id].value - (const char *)first->block);
        t->value = (char *)r->values + at;
        t->grad = (char *)r->grads + at;
    }
    upload(r, r->values, first->block, r->bytes);
    return &r->base;
}

void gpu_resident_write(gpu_weights *w, const void *values)
{
    for (int id = 0; id < GPT_TENSORS; id++) {
        const gpt_tensor *t = &w->tensor[id];
        upload((resident *)w, t->value, (const bf16 *)values + t->first, t->count * t->slices * sizeof(bf16));
    }
}
