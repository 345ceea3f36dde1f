/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_model.c: the memory of a pass, on the device and pinned on the host; the loss, and the hash of the weights. The passes
 * are in gpu_passes.c. */
#include "gpu_model.h"
#include "check.h"

#include <string.h>

/* Arrays start at multiples of 256 bytes, because cuBLAS is fastest then. */
static size_t padded(size_t bytes)
{
    return (bytes + 255) & ~(size_t)255;
}

/* Lay the activations out from `block`; NULL only counts bytes. */
static size_t lay_out(const gpt_shape *s, char *block, gpu_activations *a)
{
    const size_t L = s->layers, C = s->width, T = s->context, rows = s->batch * T;
    const size_t square = s->batch * s->heads * T * T; /* attention weights of all heads */
    const size_t widest = 4 * C;
    size_t at = 0;
#define TAKE(field, count) (a->field = block ? (void *)(block + at) : NULL, at += padded((count) * sizeof *a->field))
    TAKE(stream, (L + 1) * rows * C);
    TAKE(middle, L * rows * C);
    TAKE(mean1, L * rows);
    TAKE(inverse1, L * rows);
    TAKE(mean2, L * rows);
    TAKE(inverse2, L * rows);
    TAKE(norm1, L * rows * C);
    TAKE(heads, L * rows * 3 * C);
    TAKE(weights, L * square);
    TAKE(attended, L * rows * C);
    TAKE(norm2, L * rows * C);
    TAKE(hidden, L * rows * 4 * C);
    TAKE(active, L * rows * 4 * C);
    TAKE(mean, rows);
    TAKE(inverse, rows);
    TAKE(logits, rows * GPT_VOCABULARY);
    TAKE(norm, rows * C);
    TAKE(d_logits, rows * GPT_VOCABULARY);
    TAKE(d_stream, rows * C);
    TAKE(d_wte, GPT_VOCABULARY * C);
    TAKE(product, rows * widest);
    TAKE(scores, square);
    TAKE(column_parts, COLUMN_PARTS * widest);
    TAKE(losses, rows);
    TAKE(d_narrow, rows * C);
    TAKE(d_wide, rows * widest);
    TAKE(d_heads, rows * C);
    TAKE(d_score, square);
    TAKE(batch.inputs, rows);
    TAKE(batch.targets, rows);
    TAKE(batch.order, rows);
    TAKE(batch.starts, GPT_VOCABULARY + 1);
#undef TAKE
    return at;
}

static void *pinned(size_t bytes)
{
    void *memory;
    CUDA(cudaMallocHost(&memory, bytes));
    return memory;
}

void gpu_model_create(gpt_shape shape, const gpu_weights *weights, cudaStream_t stream, gpu_model *out)
{
    gpu_model m = {.shape = shape, .stream = stream, .weights = weights};
    const size_t rows = shape.batch * shape.context;
    CUDA(cudaMalloc(&m.block, lay_out(&m.shape, NULL, &m.act)));
    lay_out(&m.shape, m.block, &m.act);
    m.batch.inputs = pinned(rows);
    m.batch.targets = pinned(rows);
    m.batch.order = pinned(rows * sizeof *m.batch.order);
    m.batch.starts = pinned((GPT_VOCABULARY + 1) * sizeof *m.batch.starts);
    m.losses = pinned(rows * sizeof *m.losses);
    CUDA(cudaEventCreateWithFlags(&m.loss_is_here, cudaEventDisableTiming));
    CUBLAS(cublasCreate(&m.blas));
    CUBLAS(cublasSetStream(m.blas, stream));
    *out = m;
}

void gpu_model_destroy(gpu_model *model)
{
    CUDA(cudaStreamSynchronize(model->stream));
    CUBLAS(cublasDestroy(model->blas));
    CUDA(cudaEventDestroy(model->loss_is_here));
    void *const on_host[] = {model->batch.inputs, model->batch.targets, model->batch.order, model->batch.starts, model->losses};
    for (size_t i = 0; i < sizeof on_host / sizeof on_host[0]; i++)
        CUDA(cudaFreeHost(on_host[i]));
    CUDA(cudaFree(model->block));
    *model = (gpu_model){0};
}

double gpu_model_loss(gpu_model *model)
{
    const size_t rows = model->shape.batch * model->shape.context;
    double loss = 0.0;
    CUDA(cudaEventSynchronize(model->loss_is_here));
    for (size_t row = 0; row < rows; row++)
        loss += (double)model->losses[row];
    return loss / (double)rows;
}

/* Reads the weights for the hash of ../gpt. */
typedef struct reader {
    const gpu_model *model;
    void *slice; /* slice in host memory */
} reader;

static const void *read_slice(void *ctx, int id, size_t slice)
{
    const reader *r = ctx;
    const gpu_weights *w = r->model->weights;
    const size_t bytes = w->tensor[id].count * sizeof(bf16);
    CUDA(cudaMemcpyAsync(r->slice, w->borrow(w, id, slice), bytes, cudaMemcpyDeviceToHost, r->model->stream));
    CUDA(cudaStreamSynchronize(r->model->stream));
    return r->slice;
}

static void give_back(void *ctx, int id, size_t slice)
{
    const reader *r = ctx;
    r->model->weights->give_back(r->model->weights, id, slice);
}

uint64_t gpu_model_hash(gpu_model *model)
{
    const gpu_weights *w = model->weights;
    size_t most = 0;
    for (int id = 0; id < GPT_TENSORS; id++)
        most = w->tensor[id].count > most ? w->tensor[id].count : most;
    reader r = {.model = model, .slice = pinned(most * sizeof(bf16))};
    const gpt_keeper keeper = {.ctx = &r, .fetch = read_slice, .release = give_back};
    gpt_model host = {.shape = model->shape, .parallel = &gpt_alone, .bf16 = true, .parameter_count = w->parameter_count};
    host.keeper = &keeper;
    memcpy(host.tensor, w->tensor, sizeof host.tensor);
    const uint64_t hash = gpt_model_hash(&host);
    CUDA(cudaFreeHost(r.slice));
    return hash;
}
