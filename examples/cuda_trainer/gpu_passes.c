/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_passes.c: from bytes to the loss, and back to the gradients of all tensors. Every function here puts work into the stream
 * and returns. A pass borrows the weights of a layer, enqueues the kernels that read them, and gives them back. For each layer:
 *
 *     stream --+-- norm1 -- qkv -- attention -- proj --(+)-- middle --+-- norm2 -- fc -- GELU -- out --(+)-- next stream
 *              +---------------------------------------^             +--------------------------------^
 */
#include "check.h"
#include "gemm.h"
#include "gpu_model.h"

#include <math.h>

/* ---- shared by the passes: weights and memory of a layer ---- */

static size_t rows_of(const gpu_model *m)
{
    return m->shape.batch * m->shape.context;
}

/* One slice of each of some consecutive tensors, borrowed. */
typedef struct slices {
    int first, last; /* tensors */
    size_t slice;
    const bf16 *value[GPT_TENSORS];
} slices;

static slices borrow(const gpu_model *m, int first, int last, size_t slice)
{
    slices w = {.first = first, .last = last, .slice = slice};
    for (int id = first; id <= last; id++)
        w.value[id] = m->weights->borrow(m->weights, id, slice);
    return w;
}

static slices borrow_layer(const gpu_model *m, size_t l)
{
    return borrow(m, GPT_LN1_G, GPT_OUT_B, l);
}

/* Give the slices back, because the kernels that read them are in the stream. */
static void give_back(const gpu_model *m, const slices *w)
{
    for (int id = w->first; id <= w->last; id++)
        m->weights->give_back(m->weights, id, w->slice);
}

static bf16 *grad(const gpu_model *m, int id, size_t slice)
{
    return m->weights->gradient(m->weights, id, slice);
}

static gpu_heads heads_of(const gpu_model *m)
{
    return (gpu_heads){.batch = m->shape.batch, .context = m->shape.context, .heads = m->shape.heads, .width = m->shape.width};
}

static int gain_of(int norm)
{
    return norm == 1 ? GPT_LN1_G : norm == 2 ? GPT_LN2_G : GPT_LNF_G;
}

/* The layer norm before attention (1), before the MLP (2), or after the last layer (0). */
static gpu_layernorm norm_of(const gpu_model *m, const slices *w, int which)
{
    const gpu_activations *a = &m->act;
    const size_t l = which == 0 ? m->shape.layers : w->slice, rows = rows_of(m), C = m->shape.width, at = l * rows * C;
    float *const in = which == 2 ? a->middle + at : a->stream + at;
    float *const mean = which == 1 ? a->mean1 + l * rows : which == 2 ? a->mean2 + l * rows : a->mean;
    float *const inverse = which == 1 ? a->inverse1 + l * rows : which == 2 ? a->inverse2 + l * rows : a->inverse;
    return (gpu_layernorm){.rows = rows,
                           .width = C,
                           .in = in,
                           .gain = w->value[gain_of(which)],
                           .offset = w->value[gain_of(which) + 1],
                           .mean = mean,
                           .inverse = inverse};
}

static gemm_matrix as_is(const void *data, size_t columns)
{
    return (gemm_matrix){.data = data, .columns = columns};
}

static gemm_matrix transposed(const void *data, size_t columns)
{
    return (gemm_matrix){.data = data, .columns = columns, .transposed = true};
}

/* Multiply all tokens with one matrix. */
static void multiply(const gpu_model *m, size_t rows, size_t columns, size_t inner, gemm_matrix a, gemm_matrix b, float *out)
{
    const gemm_shape shape = {.rows = rows, .columns = columns, .inner = inner, .products = 1, .scale = 1.0f, .fp32 = true};
    gemm(m->blas, shape, a, b, out);
}

/* Multiply in each head of each sequence; fp32. */
static void multiply_heads(const gpu_model *m, size_t columns, size_t inner, float scale, gemm_matrix a, gemm_matrix b,
                           float *out)
{
    const gemm_shape shape = {.rows = m->shape.context,
                              .columns = columns,
                              .inner = inner,
                              .products = m->shape.batch * m->shape.heads,
                              .scale = scale,
                              .fp32 = true};
    gemm(m->blas, shape, a, b, out);
}

/* ---- forward ---- */

/* Multiply into fp32, without the bias, because the next kernel adds it. */
static void linear(const gpu_model *m, const slices *w, size_t in_width, size_t out_width, const bf16 *in, int weights)
{
    multiply(m, rows_of(m), out_width, in_width, as_is(in, in_width), as_is(w->value[weights], out_width), m->act.product);
}

static void attention_forward(const gpu_model *m, const slices *w)
{
    const gpu_activations *a = &m->act;
    const gpu_heads h = heads_of(m);
    const size_t l = w->slice, count = rows_of(m) * h.width, D = h.width / h.heads, T = h.context;
    bf16 *const q = a->heads + l * 3 * count, *const k = q + count, *const v = k + count;
    bf16 *const weights = a->weights + l * h.batch * h.heads * T * T;
    gpu_heads_split(&h, 3, a->product, w->value[GPT_QKV_B], q, m->stream);
    multiply_heads(m, T, D, 1.0f / sqrtf((float)D), as_is(q, D), transposed(k, D), a->scores);
    gpu_softmax_forward(&h, a->scores, weights, m->stream);
    multiply_heads(m, D, T, 1.0f, as_is(weights, T), as_is(v, D), a->product);
    gpu_heads_merge(&h, 1, a->product, a->attended + l * count, m->stream);
}

static void send(const gpu_model *m, void *to, const void *from, size_t bytes)
{
    CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, m->stream));
}

/* Sort the rows by their byte, so that the backward pass adds those of each byte in a fixed order. */
static void take_batch(gpu_model *m, const uint8_t *inputs, const uint8_t *targets)
{
    const size_t rows = rows_of(m);
    const gpu_batch *to = &m->act.batch, *from = &m->batch;
    uint32_t next[GPT_VOCABULARY + 1] = {0};
    for (size_t row = 0; row < rows; row++) {
        from->inputs[row] = inputs[row];
        from->targets[row] = targets[row];
        next[inputs[row] + 1]++;
    }
    from->starts[0] = 0;
    for (size_t byte = 0; byte < GPT_VOCABULARY; byte++)
        from->starts[byte + 1] = next[byte + 1] += next[byte];
    for (size_t row = 0; row < rows; row++)
        from->order[next[inputs[row]]++] = (uint32_t)row;
    send(m, to->inputs, from->inputs, rows);
    send(m, to->targets, from->targets, rows);
    send(m, to->order, from->order, rows * sizeof *to->order);
    send(m, to->starts, from->starts, (GPT_VOCABULARY + 1) * sizeof *to->starts);
}

void gpu_model_forward(gpu_model *m, const uint8_t *inputs, const uint8_t *targets)
{
    const gpu_activations *a = &m->act;
    const size_t C = m->shape.width, L = m->shape.layers, T = m->shape.context, rows = rows_of(m);
    take_batch(m, inputs, targets);
    const slices embeddings = borrow(m, GPT_WTE, GPT_WPE, 0);
    gpu_embed_forward(rows, T, C, &a->batch, embeddings.value[GPT_WTE], embeddings.value[GPT_WPE], a->stream, m->stream);
    give_back(m, &embeddings);
    for (size_t l = 0; l < L; l++) {
        const slices w = borrow_layer(m, l);
        const size_t at = l * rows * C;
        float *const stream = a->stream + at, *const middle = a->middle + at, *const next = stream + rows * C;
        const gpu_layernorm norm1 = norm_of(m, &w, 1), norm2 = norm_of(m, &w, 2);

        gpu_layernorm_forward(&norm1, a->norm1 + at, m->stream);
        linear(m, &w, C, 3 * C, a->norm1 + at, GPT_QKV_W);
        attention_forward(m, &w);
        linear(m, &w, C, C, a->attended + at, GPT_PROJ_W);
        gpu_residual(rows, C, stream, a->product, w.value[GPT_PROJ_B], middle, m->stream);

        gpu_layernorm_forward(&norm2, a->norm2 + at, m->stream);
        linear(m, &w, C, 4 * C, a->norm2 + at, GPT_FC_W);
        gpu_gelu_forward(rows, 4 * C, a->product, w.value[GPT_FC_B], a->hidden + 4 * at, a->active + 4 * at, m->stream);
        linear(m, &w, 4 * C, C, a->active + 4 * at, GPT_OUT_W);
        gpu_residual(rows, C, middle, a->product, w.value[GPT_OUT_B], next, m->stream);
        give_back(m, &w);
    }
    const slices end = borrow(m, GPT_LNF_G, GPT_LNF_B, 0), head = borrow(m, GPT_WTE, GPT_WTE, 0);
    const gpu_layernorm last = norm_of(m, &end, 0);
    gpu_layernorm_forward(&last, a->norm, m->stream);
    /* The head is the transposed embedding. */
    multiply(m, rows, GPT_VOCABULARY, C, as_is(a->norm, C), transposed(head.value[GPT_WTE], C), a->logits);
    give_back(m, &end);
    give_back(m, &head);
    gpu_cross_entropy(rows, GPT_VOCABULARY, &a->batch, a->logits, a->losses, a->d_logits, m->stream);
    CUDA(cudaMemcpyAsync(m->losses, a->losses, rows * sizeof *m->losses, cudaMemcpyDeviceToHost, m->stream));
    CUDA(cudaEventRecord(m->loss_is_here, m->stream));
}

/* ---- backward ---- */

typedef struct backward {
    const gpu_model *m;
    gpu_gradient_fn *is_ready;
    void *ctx;
} backward;

/* Backward through out = in * weights + bias, with the bias gradient computed already. d_in, in fp32, goes to `product`. */
static void linear_backward(const backward *b, const slices *w, size_t in_width, size_t out_width, const bf16 *in, int weights,
                            const bf16 *d_out)
{
    const gpu_model *m = b->m;
    const size_t l = w->slice;
    const gemm_shape shape = {.rows = in_width, .columns = out_width, .inner = rows_of(m), .products = 1, .scale = 1.0f};
    gemm(m->blas, shape, transposed(in, in_width), as_is(d_out, out_width), grad(m, weights, l));
    b->is_ready(b->ctx, weights, l);
    b->is_ready(b->ctx, weights + 1, l);
    multiply(m, rows_of(m), in_width, out_width, as_is(d_out, out_width), transposed(w->value[weights], out_width),
             m->act.product);
}

/* Backward through a linear layer with the stream's gradient as d_out. */
static void linear_backward_of_stream(const backward *b, const slices *w, size_t in_width, const bf16 *in, int weights)
{
    const gpu_model *m = b->m;
    const gpu_activations *a = &m->act;
    const size_t rows = rows_of(m), C = m->shape.width;
    gpu_column_sums(rows, C, a->d_stream, grad(m, weights + 1, w->slice), a->column_parts, m->stream);
    gpu_round(rows * C, a->d_stream, a->d_narrow, m->stream);
    linear_backward(b, w, in_width, C, in, weights, a->d_narrow);
}

/* Backward through a linear layer with d_wide as d_out. */
static void linear_backward_of_wide(const backward *b, const slices *w, size_t out_width, const bf16 *in, int weights)
{
    const gpu_model *m = b->m;
    const gpu_activations *a = &m->act;
    gpu_column_sums_bf16(rows_of(m), out_width, a->d_wide, grad(m, weights + 1, w->slice), a->column_parts, m->stream);
    linear_backward(b, w, m->shape.width, out_width, in, weights, a->d_wide);
}

/* Backward through a layer norm: add the gradient through it, from `product`, to d_stream. */
static void norm_backward(const backward *b, const slices *w, int which)
{
    const gpu_model *m = b->m;
    const gpu_layernorm norm = norm_of(m, w, which);
    const int gain = gain_of(which);
    gpu_layernorm_backward(&norm, m->act.product, m->act.d_stream, grad(m, gain, w->slice), grad(m, gain + 1, w->slice),
                           m->act.column_parts, m->stream);
    b->is_ready(b->ctx, gain, w->slice);
    b->is_ready(b->ctx, gain + 1, w->slice);
}

/* Compute the gradient of attention's input, in d_wide, from that of its output, in `product`. */
static void attention_backward(const gpu_model *m, size_t l)
{
    const gpu_activations *a = &m->act;
    const gpu_heads h = heads_of(m);
    const size_t count = rows_of(m) * h.width, D = h.width / h.heads, T = h.context;
    const bf16 *const q = a->heads + l * 3 * count, *const k = q + count, *const v = k + count;
    const bf16 *const weights = a->weights + l * h.batch * h.heads * T * T;
    float *const d_q = a->product, *const d_k = d_q + count, *const d_v = d_k + count;
    const float scale = 1.0f / sqrtf((float)D);
    gpu_heads_split(&h, 1, a->product, NULL, a->d_heads, m->stream);
    multiply_heads(m, D, T, 1.0f, transposed(weights, T), as_is(a->d_heads, D), d_v);
    multiply_heads(m, T, D, 1.0f, as_is(a->d_heads, D), transposed(v, D), a->scores);
    gpu_softmax_backward(&h, weights, a->scores, a->d_score, m->stream);
    multiply_heads(m, D, T, scale, as_is(a->d_score, T), as_is(k, D), d_q);
    multiply_heads(m, D, T, scale, transposed(a->d_score, T), as_is(q, D), d_k);
    gpu_heads_merge(&h, 3, a->product, a->d_wide, m->stream);
}

void gpu_model_backward(gpu_model *m, gpu_gradient_fn *is_ready, void *ctx)
{
    const backward b = {.m = m, .is_ready = is_ready, .ctx = ctx};
    const gpu_activations *a = &m->act;
    const size_t C = m->shape.width, L = m->shape.layers, T = m->shape.context, rows = rows_of(m);
    multiply(m, GPT_VOCABULARY, C, rows, transposed(a->d_logits, GPT_VOCABULARY), as_is(a->norm, C), a->d_wte);
    const slices head = borrow(m, GPT_WTE, GPT_WTE, 0), end = borrow(m, GPT_LNF_G, GPT_LNF_B, 0);
    multiply(m, rows, C, GPT_VOCABULARY, as_is(a->d_logits, GPT_VOCABULARY), as_is(head.value[GPT_WTE], C), a->product);
    CUDA(cudaMemsetAsync(a->d_stream, 0, rows * C * sizeof *a->d_stream, m->stream));
    norm_backward(&b, &end, 0);
    give_back(m, &head);
    give_back(m, &end);
    for (size_t l = L; l-- > 0;) {
        const size_t at = l * rows * C;
        const slices w = borrow_layer(m, l);
        linear_backward_of_stream(&b, &w, 4 * C, a->active + 4 * at, GPT_OUT_W);
        gpu_gelu_backward(rows * 4 * C, a->hidden + 4 * at, a->product, a->d_wide, m->stream);
        linear_backward_of_wide(&b, &w, 4 * C, a->norm2 + at, GPT_FC_W);
        norm_backward(&b, &w, 2);

        linear_backward_of_stream(&b, &w, C, a->attended + at, GPT_PROJ_W);
        attention_backward(m, l);
        linear_backward_of_wide(&b, &w, 3 * C, a->norm1 + at, GPT_QKV_W);
        norm_backward(&b, &w, 1);
        give_back(m, &w);
    }
    gpu_embed_backward(rows, T, C, &a->batch, a->d_stream, a->d_wte, grad(m, GPT_WTE, 0), grad(m, GPT_WPE, 0), m->stream);
    is_ready(ctx, GPT_WPE, 0);
    is_ready(ctx, GPT_WTE, 0);
}
