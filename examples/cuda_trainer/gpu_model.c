/* gpu_model.c: the model's memory, on the device and pinned on the host, its first weights, and its loss. The passes are in
 * gpu_passes.c. */
#include "gpu_model.h"
#include "check.h"

#include <string.h>

/* Tensors start at multiples of 256 bytes: cuBLAS is fastest then. */
static size_t padded(size_t bytes)
{
    return (bytes + 255) & ~(size_t)255;
}

static void describe(gpu_model *model)
{
    const size_t L = model->shape.layers, C = model->shape.width, D = C, T = model->shape.context;
#define X(id, label, slice_count, elements, run, values)                                                                       \
    model->tensor[GPT_##id] =                                                                                                  \
        (gpt_tensor){.name = label, .count = elements, .slices = slice_count, .first = model->parameter_count, .bf16 = true};  \
    model->parameter_count += (elements) * (slice_count);                                                                      \
    model->value_bytes += padded((elements) * (slice_count) * sizeof(bf16));
    GPT_TENSOR_LIST(X)
#undef X
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

/* Set the tensors' places in one block of memory. */
static void place(gpu_model *model, void *values, void *grads)
{
    size_t at = 0;
    for (int id = 0; id < GPT_TENSORS; id++) {
        gpt_tensor *t = &model->tensor[id];
        t->value = (char *)values + at;
        t->grad = (char *)grads + at;
        at += padded(t->count * t->slices * sizeof(bf16));
    }
}

/* A model in host memory with weights only. */
static gpt_model on_the_host(const gpu_model *model, void *values)
{
    gpt_model host = {.shape = model->shape, .parallel = &gpt_alone, .bf16 = true, .parameter_count = model->parameter_count};
    gpu_model placed = *model;
    place(&placed, values, values);
    memcpy(host.tensor, placed.tensor, sizeof host.tensor);
    return host;
}

static void *pinned(size_t bytes)
{
    void *memory;
    CUDA(cudaMallocHost(&memory, bytes));
    return memory;
}

/* Copy all values to the device, or back. */
static void copy_values(gpu_model *model, void *host, enum cudaMemcpyKind kind)
{
    void *const dst = kind == cudaMemcpyHostToDevice ? model->values : host;
    const void *const src = kind == cudaMemcpyHostToDevice ? host : model->values;
    CUDA(cudaMemcpyAsync(dst, src, model->value_bytes, kind, model->stream));
    CUDA(cudaStreamSynchronize(model->stream));
}

const char *gpu_model_create(gpt_shape shape, uint64_t seed, cudaStream_t stream, gpu_model *out)
{
    if (shape.layers < 1 || shape.layers > 1000 || shape.width < 1 || shape.width > 65536 || shape.context < 1 ||
        shape.context > 65536 || shape.batch < 1 || shape.batch > 65536)
        return "layers must be 1 to 1000; width, context and batch 1 to 65536";
    if (shape.heads < 1 || shape.width % shape.heads)
        return "width must be a multiple of heads";
    if (shape.batch * shape.context > INT32_MAX)
        return "batch times context must be below 2^31";
    gpu_model m = {.shape = shape, .stream = stream};
    const size_t rows = shape.batch * shape.context;
    const size_t block_bytes = lay_out(&m.shape, NULL, &m.act);
    describe(&m);
    CUDA(cudaMalloc(&m.values, m.value_bytes));
    CUDA(cudaMalloc(&m.grads, m.value_bytes));
    CUDA(cudaMalloc(&m.block, block_bytes));
    lay_out(&m.shape, m.block, &m.act);
    place(&m, m.values, m.grads);
    m.batch.inputs = pinned(rows);
    m.batch.targets = pinned(rows);
    m.batch.order = pinned(rows * sizeof *m.batch.order);
    m.batch.starts = pinned((GPT_VOCABULARY + 1) * sizeof *m.batch.starts);
    m.losses = pinned(rows * sizeof *m.losses);
    CUDA(cudaEventCreateWithFlags(&m.loss_is_here, cudaEventDisableTiming));
    CUBLAS(cublasCreate(&m.blas));
    CUBLAS(cublasSetStream(m.blas, stream));

    void *first = pinned(m.value_bytes);
    memset(first, 0, m.value_bytes); /* between tensors */
    const gpt_model host = on_the_host(&m, first);
    for (int id = 0; id < GPT_TENSORS; id++)
        for (size_t slice = 0; slice < host.tensor[id].slices; slice++)
            gpt_model_first_weights(&host, seed, id, slice, (bf16 *)host.tensor[id].value + slice * host.tensor[id].count);
    copy_values(&m, first, cudaMemcpyHostToDevice);
    CUDA(cudaFreeHost(first));
    *out = m;
    return NULL;
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
    CUDA(cudaFree(model->grads));
    CUDA(cudaFree(model->values));
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

uint64_t gpu_model_hash(gpu_model *model)
{
    void *values = pinned(model->value_bytes);
    copy_values(model, values, cudaMemcpyDeviceToHost);
    const gpt_model host = on_the_host(model, values);
    const uint64_t hash = gpt_model_hash(&host);
    CUDA(cudaFreeHost(values));
    return hash;
}

void gpu_model_write(gpu_model *model, const void *values)
{
    void *padded_values = pinned(model->value_bytes);
    const gpt_model host = on_the_host(model, padded_values);
    memset(padded_values, 0, model->value_bytes);
    for (int id = 0; id < GPT_TENSORS; id++) {
        const gpt_tensor *t = &host.tensor[id];
        memcpy(t->value, (const bf16 *)values + t->first, t->count * t->slices * sizeof(bf16));
    }
    copy_values(model, padded_values, cudaMemcpyHostToDevice);
    CUDA(cudaFreeHost(padded_values));
}
