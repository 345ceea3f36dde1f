/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_first.c: the first weights, on the host. */
#include "check.h"
#include "gpu_weights.h"

#include <string.h>

/* Tensors start at multiples of 256 bytes, because cuBLAS is fastest then. */
static size_t padded(size_t bytes)
{
    return (bytes + 255) & ~(size_t)255;
}

static const char *shape_check(gpt_shape s)
{
    if (s.layers < 1 || s.layers > 1000 || s.width < 1 || s.width > 65536 || s.context < 1 || s.context > 65536 ||
        s.batch < 1 || s.batch > 65536)
        return "layers must be 1 to 1000; width, context and batch 1 to 65536";
    if (s.heads < 1 || s.width % s.heads)
        return "width must be a multiple of heads";
    return s.batch * s.context > INT32_MAX ? "batch times context must be below 2^31" : NULL;
}

static void describe(gpt_shape shape, gpu_first *first)
{
    const size_t L = shape.layers, C = shape.width, D = C, T = shape.context;
#define X(id, label, slice_count, each, rows, columns, run, values)                                                            \
    first->tensor[GPT_##id] =                                                                                                  \
        (gpt_tensor){GPT_TENSOR(label, slice_count, each, rows, columns), .first = first->parameter_count, .bf16 = true};      \
    first->parameter_count += first->tensor[GPT_##id].count * first->tensor[GPT_##id].slices;                                  \
    first->bytes += padded(first->tensor[GPT_##id].count * first->tensor[GPT_##id].slices * sizeof(bf16));
    GPT_TENSOR_LIST(X)
#undef X
}

const char *gpu_first_create(gpt_shape shape, uint64_t seed, gpu_first *out)
{
    const char *wrong = shape_check(shape);
    if (wrong)
        return wrong;
    gpu_first first = {0};
    describe(shape, &first);
    CUDA(cudaMallocHost(&first.block, first.bytes));
    memset(first.block, 0, first.bytes); /* clear the gaps between tensors */
    char *at = first.block;
    for (int id = 0; id < GPT_TENSORS; id++) {
        gpt_tensor *t = &first.tensor[id];
        t->value = at;
        at += padded(t->count * t->slices * sizeof(bf16));
    }
    gpt_model host = {.shape = shape, .parallel = &gpt_alone, .bf16 = true, .parameter_count = first.parameter_count};
    memcpy(host.tensor, first.tensor, sizeof host.tensor);
    for (int id = 0; id < GPT_TENSORS; id++)
        for (size_t slice = 0; slice < host.tensor[id].slices; slice++)
            gpt_model_first_weights(&host, seed, id, slice, (bf16 *)host.tensor[id].value + slice * host.tensor[id].count);
    *out = first;
    return NULL;
}

void gpu_first_destroy(gpu_first *first)
{
    CUDA(cudaFreeHost(first->block));
    *first = (gpu_first){0};
}
