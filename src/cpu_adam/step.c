/* SPDX-License-Identifier: Apache-2.0 */
/* step.c: the public step on tensors: check every argument before anything changes, then walk the list once with the team. */
#include "update_priv.h"

#include "bits.h"
#include "mem.h"
#include "structs.h"
#include "team.h"
#include "try.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Bytes of the struct in its first release, the fewest that a caller has. Zero is the default of every field. */
enum { FIRST_BYTES = 72 };
_Static_assert(sizeof(zoff_optimizer_tensor) == 88, "a new field: read it where it is used, and keep FIRST_BYTES");

/* Bytes of the hyper-parameters in their first release; no array of them has a smaller stride. */
enum { FIRST_HYPER_BYTES = offsetof(zoff_optimizer_hyper, momentum) };

enum { LINE = 64 }; /* bytes of a cache line */

/* A list of tensors, "tensor" or "tensors[7]" in messages, and the constants of each. */
typedef struct step_list {
    const zoff_optimizer_tensor *tensors;
    size_t stride, count;
    const char *name; /* name of the call */
    const zoff_optimizer_hyper *hyper;
    size_t hyper_stride; /* bytes; 0: all share the first */
    const zoff_adam_consts *consts;
    size_t consts_step; /* distance from one tensor's constants to the next one's: 0 or 1 */
    bool stream;
    bool has_matrices;
    size_t elements, scratch_bytes; /* of the largest matrix, and of its orthogonalization */
} step_list;

static const zoff_optimizer_tensor *tensor_at(const step_list *list, size_t index)
{
    return (const void *)((const char *)list->tensors + index * list->stride);
}

static const zoff_optimizer_hyper *hyper_at(const step_list *list, size_t index)
{
    return (const void *)((const char *)list->hyper + index * list->hyper_stride);
}

static size_t index_of(const step_list *list, const void *tensor)
{
    return (size_t)((const char *)tensor - (const char *)list->tensors) / list->stride;
}

/* Whether it is orthogonalized. A struct of an older caller ends before its shape. */
static bool is_matrix(const zoff_optimizer_tensor *tensor, const zoff_optimizer_hyper *hyper)
{
    return tensor->struct_size >= sizeof *tensor && (tensor->rows || tensor->cols) && zoff_adam_matrix_rules_of(hyper);
}

/* The same after the checks. Most lists have no matrices, and then nothing is read. */
static inline bool is_matrix_of(const step_list *list, const zoff_optimizer_tensor *tensor)
{
    return list->has_matrices && is_matrix(tensor, hyper_at(list, index_of(list, tensor)));
}

/* Fill the piece field by field, because a struct that is built elsewhere and copied in larger parts waits for its own stores,
 * for 30 ns of a small step.
 */
static inline void make_piece(const zoff_optimizer_tensor *tensor, const zoff_adam_consts *consts,
                              zoff_adam_piece *restrict out)
{
    const zoff_adam_states states = zoff_adam_hyper_rule_states(consts->rule);
    out->count = tensor->count;
    out->master = tensor->master;
    out->m = states.m ? tensor->m : NULL;
    out->v = states.v ? tensor->v : NULL;
    out->grad = tensor->grad;
    out->copy_out = tensor->copy_out;
    out->grad_dtype = tensor->grad_dtype ? tensor->grad_dtype : ZOFF_F32;
    out->copy_dtype = tensor->copy_dtype ? tensor->copy_dtype : ZOFF_BF16;
    out->consts = consts;
    out->master_dtype = tensor->master_dtype ? tensor->master_dtype : ZOFF_F32;
    out->moments = ZOFF_MOMENTS_F32;
    out->stream = out->split = false;
    out->key = 0;
}

static const zoff_adam_consts *consts_of(const step_list *list, const zoff_optimizer_tensor *tensor)
{
    return list->consts_step ? &list->consts[index_of(list, tensor)] : list->consts;
}

static size_t cost_of(const void *ctx, const void *pointer)
{
    const zoff_optimizer_tensor *tensor = pointer;
    if (is_matrix_of(ctx, tensor))
        return 0;
    const zoff_adam_states states = zoff_adam_hyper_rule_states(consts_of(ctx, tensor)->rule);
    return zoff_adam_update_bytes(tensor->master_dtype, tensor->grad_dtype, ZOFF_MOMENTS_F32, states, tensor->copy_out, false);
}

static void update_piece(const struct zoff_kernels *kernels, const void *ctx, const void *tensor, size_t begin, size_t count)
{
    const step_list *list = ctx;
    zoff_adam_piece piece;
    if (is_matrix_of(list, tensor))
        return;
    make_piece(tensor, consts_of(list, tensor), &piece);
    piece.stream = list->stream;
    kernels->update(&piece, begin, count);
}

/* Where a tensor is, for messages. */
typedef struct where {
    char text[64];
} where;

static where name_tensor(const step_list *list, size_t index)
{
    where w;
    if (list->count == 1)
        snprintf(w.text, sizeof w.text, "%s: tensor", list->name);
    else
        snprintf(w.text, sizeof w.text, "%s: tensors[%zu]", list->name, index);
    return w;
}

static bool is_dtype(zoff_dtype dtype)
{
    return dtype == ZOFF_DTYPE_DEFAULT || zoff_adam_dtype_bytes(dtype) != 0;
}

/* Refuse a type that the field cannot have. */
static zoff_status refuse_dtype(const step_list *list, size_t index, const char *field, zoff_dtype dtype, const char *choices)
{
    return zoff_base_status_fail(ZOFF_ERR_INVALID, "%s.%s is %d (%s); use %s", name_tensor(list, index).text, field, (int)dtype,
                                 zoff_adam_dtype_name(dtype), choices);
}

/* Refuse a struct larger than the stride, because its end would be read from the next one, or from beyond the last. */
static zoff_status refuse_overlap(const step_list *list, size_t index, const char *which, size_t bytes, size_t stride)
{
    return zoff_base_status_fail(ZOFF_ERR_INVALID, "%s: %stensors[%zu]: struct_size is %zu, but the stride is %zu", list->name,
                                 which, index, bytes, stride);
}

static zoff_status check_shape(step_list *list, size_t index)
{
    const zoff_optimizer_tensor *tensor = tensor_at(list, index);
    const size_t rows = tensor->rows, cols = tensor->cols;
    size_t elements;
    ZOFF_FAIL_IF(!rows || !cols, ZOFF_ERR_INVALID, "%s.rows is %zu and cols %zu; set both, or none for AdamW",
                 name_tensor(list, index).text, rows, cols);
    ZOFF_FAIL_IF(!zoff_base_bits_mul(rows, cols, &elements) || tensor->count % elements, ZOFF_ERR_INVALID,
                 "%s.count is %zu, which is no multiple of a matrix of %zu x %zu", name_tensor(list, index).text, tensor->count,
                 rows, cols);
    ZOFF_FAIL_IF(elements > (size_t)PTRDIFF_MAX / 64, ZOFF_ERR_INVALID,
                 "%s is a matrix of %zu x %zu: more elements than memory can hold", name_tensor(list, index).text, rows, cols);
    if (tensor->count) {
        const zoff_matrix_rule *rule = zoff_adam_matrix_rules_of(hyper_at(list, index));
        const size_t bytes = rule->scratch_bytes(rows, cols, zoff_adam_dispatch_threads());
        list->has_matrices = true;
        list->elements = zoff_base_bits_max(list->elements, elements);
        list->scratch_bytes = zoff_base_bits_max(list->scratch_bytes, bytes);
    }
    return ZOFF_OK;
}

static zoff_status check_tensor(step_list *list, size_t index)
{
    const zoff_optimizer_hyper *hyper = hyper_at(list, index);
    zoff_adam_states states = zoff_adam_hyper_states(hyper);
    const zoff_optimizer_tensor *tensor = tensor_at(list, index);
    ZOFF_FAIL_IF(tensor->struct_size < FIRST_BYTES, ZOFF_ERR_INVALID,
                 "%s.struct_size is %zu; start from ZOFF_OPTIMIZER_TENSOR_INIT, which sets it to sizeof(zoff_optimizer_tensor)",
                 name_tensor(list, index).text, tensor->struct_size);
    if (list->count > 1 && tensor->struct_size > list->stride)
        return refuse_overlap(list, index, "", tensor->struct_size, list->stride);
    zoff_status status = zoff_base_structs_check("zoff_optimizer_tensor", "ZOFF_OPTIMIZER_TENSOR_INIT", tensor, sizeof *tensor);
    if (status < 0)
        return zoff_base_status_prefix(status, "%s: ", name_tensor(list, index).text);
    if (is_matrix(tensor, hyper)) {
        ZOFF_TRY(check_shape(list, index));
        states = zoff_adam_matrix_rules_of(hyper)->states;
    }
    const struct {
        const char *name;
        const void *array;
        bool needed;
    } arrays[] = {
        {"master", tensor->master, true}, {"m", tensor->m, states.m}, {"v", tensor->v, states.v}, {"grad", tensor->grad, true}};
    for (size_t i = 0; tensor->count && i < sizeof arrays / sizeof arrays[0]; i++) {
        ZOFF_FAIL_IF(arrays[i].needed && !arrays[i].array, ZOFF_ERR_INVALID, "%s.%s is NULL, but count is %zu",
                     name_tensor(list, index).text, arrays[i].name, tensor->count);
    }
    ZOFF_FAIL_IF(tensor->count > (size_t)PTRDIFF_MAX / sizeof(float), ZOFF_ERR_INVALID,
                 "%s.count is %zu: more elements than memory can hold", name_tensor(list, index).text, tensor->count);
    if (!is_dtype(tensor->grad_dtype))
        return refuse_dtype(list, index, "grad_dtype", tensor->grad_dtype, "ZOFF_F32, ZOFF_BF16 or ZOFF_F16");
    if (!is_dtype(tensor->master_dtype))
        return refuse_dtype(list, index, "master_dtype", tensor->master_dtype, "ZOFF_F32, ZOFF_BF16 or ZOFF_F16");
    if (!is_dtype(tensor->copy_dtype) || (tensor->copy_out && tensor->copy_dtype == ZOFF_F32))
        return refuse_dtype(list, index, "copy_dtype", tensor->copy_dtype, "ZOFF_BF16 or ZOFF_F16");
    ZOFF_FAIL_IF(tensor->copy_out && tensor->master_dtype != ZOFF_DTYPE_DEFAULT && tensor->master_dtype != ZOFF_F32,
                 ZOFF_ERR_INVALID,
                 "%s.copy_out is given, but master is %s; weights without an fp32 master are updated in place",
                 name_tensor(list, index).text, zoff_adam_dtype_name(tensor->master_dtype));
    return ZOFF_OK;
}

static zoff_status check_scale(double grad_scale)
{
    ZOFF_FAIL_IF(!(fabs(grad_scale) <= (double)FLT_MAX), ZOFF_ERR_INVALID, "grad_scale is %g; it must be finite in fp32",
                 grad_scale);
    return ZOFF_OK;
}

/* One step of one matrix of a tensor: directions, their transform, addition. */
static void step_matrix(const zoff_optimizer_tensor *tensor, size_t first, const zoff_matrix_rule *rule,
                        const zoff_adam_consts *before, const zoff_adam_consts *after, zoff_orthogonal o)
{
    const unsigned threads = zoff_adam_dispatch_threads();
    zoff_adam_piece from, to;
    make_piece(tensor, before, &from);
    make_piece(tensor, after, &to);
    from.count = to.count = o.rows * o.cols;
    from.grad = (const char *)from.grad + first * zoff_adam_update_width(from.grad_dtype);
    from.m = (float *)from.m + first;
    from.master = o.x;
    from.master_dtype = ZOFF_F32;
    from.copy_out = NULL;
    zoff_adam_update_run(threads, &from, 1, NULL, NULL);
    (void)rule->transform(threads, &o, NULL, NULL, NULL); /* nothing stops it */
    to.grad = o.x;
    to.grad_dtype = ZOFF_F32;
    to.master = (char *)to.master + first * zoff_adam_update_width(to.master_dtype);
    if (to.copy_out)
        to.copy_out = (uint16_t *)to.copy_out + first;
    zoff_adam_update_run(threads, &to, 1, NULL, NULL);
}

/* The matrices of a list, one after the other, because each has the whole team. */
static void step_matrices(const step_list *list, int64_t t, double grad_scale, void *workspace)
{
    const size_t x_bytes = zoff_base_bits_align(list->elements * sizeof(float), LINE);
    char *x = (char *)zoff_base_bits_align((uintptr_t)workspace, LINE);
    for (size_t i = 0; i < list->count; i++) {
        const zoff_optimizer_tensor *tensor = tensor_at(list, i);
        if (!is_matrix_of(list, tensor))
            continue;
        zoff_adam_consts before, after;
        zoff_orthogonal o = {.rows = tensor->rows, .cols = tensor->cols, .x = (float *)(void *)x, .scratch = x + x_bytes};
        const zoff_matrix_rule *rule = zoff_adam_matrix_rules_of(hyper_at(list, i));
        rule->passes(hyper_at(list, i), o.rows, o.cols, t, grad_scale, &before, &after);
        rule->begin(hyper_at(list, i), &o);
        for (size_t first = 0; first < tensor->count; first += o.rows * o.cols)
            step_matrix(tensor, first, rule, &before, &after, o);
    }
}

static void run(step_list *list)
{
    zoff_adam_walk walk = {.pieces = list->tensors,
                           .stride = list->stride,
                           .count_at = offsetof(zoff_optimizer_tensor, count),
                           .count = list->count,
                           .fn = update_piece,
                           .cost = cost_of,
                           .fn_ctx = list};
    walk.total = zoff_adam_walk_total(&walk);
    list->stream = zoff_adam_update_streams(walk.total);
    zoff_adam_walk_run(zoff_adam_dispatch_threads(), &walk);
}

/* The step of a list that was checked. The memory for matrices comes first, because nothing may change without it. */
static zoff_status run_all(step_list *list, int64_t t, double grad_scale)
{
    void *workspace = NULL;
    const size_t x_bytes = zoff_base_bits_align(list->elements * sizeof(float), LINE);
    if (list->has_matrices)
        ZOFF_TRY(
            zoff_base_mem_alloc(1, x_bytes + list->scratch_bytes + LINE, "a matrix and its orthogonalization", &workspace));
    run(list);
    if (list->has_matrices)
        step_matrices(list, t, grad_scale, workspace);
    zoff_base_mem_free(workspace);
    return ZOFF_OK;
}

/* One set of hyper-parameters for all tensors. */
static zoff_status step_alike(step_list *list, int64_t t, double grad_scale)
{
    zoff_adam_consts consts;
    ZOFF_TRY(zoff_adam_hyper_check(list->hyper, t));
    for (size_t i = 0; i < list->count; i++)
        ZOFF_TRY(check_tensor(list, i));
    zoff_adam_hyper_consts(list->hyper, t, grad_scale, &consts);
    list->consts = &consts;
    return run_all(list, t, grad_scale);
}

/* Whether two structs give the same constants, as far as this library's fields show. */
static bool are_alike(const zoff_optimizer_hyper *a, const zoff_optimizer_hyper *b)
{
    return a->struct_size == b->struct_size && a->struct_size <= sizeof *a && memcmp(a, b, a->struct_size) == 0;
}

/* Check one tensor's hyper-parameters and compute its constants. Reuse the constants of the tensor before it if they are the
 * same, because a power is expensive. */
static zoff_status make_consts(step_list *list, size_t index, const zoff_optimizer_hyper *hyper,
                               const zoff_optimizer_hyper *before, int64_t t, double grad_scale, zoff_adam_consts *consts)
{
    if (before && are_alike(hyper, before)) {
        consts[index] = consts[index - 1];
    } else {
        const zoff_status status = zoff_adam_hyper_check(hyper, t);
        if (status < 0)
            return zoff_base_status_prefix(status, "%s: hyper-parameters of tensors[%zu]: ", list->name, index);
        zoff_adam_hyper_consts(hyper, t, grad_scale, &consts[index]);
    }
    return check_tensor(list, index);
}

/* Each tensor has its own hyper-parameters. */
static zoff_status step_each(step_list *list, int64_t t, double grad_scale)
{
    zoff_status status = ZOFF_OK;
    zoff_adam_consts *consts;
    ZOFF_TRY(zoff_base_mem_alloc(list->count, sizeof *consts, "the constants of a list of tensors", &consts));
    const zoff_optimizer_hyper *before = NULL;
    for (size_t i = 0; i < list->count && status == ZOFF_OK; i++) {
        const zoff_optimizer_hyper *own = hyper_at(list, i);
        status = own->struct_size > list->hyper_stride
                     ? refuse_overlap(list, i, "hyper-parameters of ", own->struct_size, list->hyper_stride)
                     : make_consts(list, i, own, before, t, grad_scale, consts);
        before = own;
    }
    list->consts = consts;
    list->consts_step = 1;
    if (status == ZOFF_OK)
        status = run_all(list, t, grad_scale);
    zoff_base_mem_free(consts);
    return status;
}

/* The step of one tensor. This struct has two cache lines, because most of the time of a small tensor goes into fetching data
 * from the caller's core to the other threads. */
typedef struct lone_step {
    _Alignas(64) zoff_adam_piece piece;
    zoff_adam_consts consts;
} lone_step;
_Static_assert(sizeof(lone_step) == 128, "two lines");

static size_t lone_share(size_t count, unsigned thread, unsigned threads)
{
    enum { GRAIN = 64 };
    const size_t grains = count / GRAIN;
    return thread == threads ? count : (grains / threads * thread + grains % threads * thread / threads) * GRAIN;
}

static void run_share(void *ctx, unsigned thread, unsigned threads)
{
    const lone_step *s = ctx;
    const size_t begin = lone_share(s->piece.count, thread, threads);
    zoff_adam_dispatch_kernels()->update(&s->piece, begin, lone_share(s->piece.count, thread + 1, threads) - begin);
}

zoff_status zoff_optimizer_step(const zoff_optimizer_hyper *hyper, int64_t t, double grad_scale,
                                const zoff_optimizer_tensor *tensor)
{
    step_list list = {.tensors = tensor, .stride = sizeof *tensor, .count = 1, .name = "zoff_optimizer_step", .hyper = hyper};
    lone_step step;
    ZOFF_TRY(check_scale(grad_scale));
    ZOFF_FAIL_IF(!tensor, ZOFF_ERR_INVALID, "zoff_optimizer_step: tensor is NULL");
    ZOFF_TRY(zoff_adam_hyper_check(hyper, t));
    ZOFF_TRY(check_tensor(&list, 0));
    if (!tensor->count)
        return ZOFF_OK;
    zoff_adam_hyper_consts(hyper, t, grad_scale, &step.consts);
    if (list.has_matrices) {
        list.consts = &step.consts;
        return run_all(&list, t, grad_scale);
    }
    make_piece(tensor, &step.consts, &step.piece);
    step.piece.stream = zoff_adam_update_streams(tensor->count * zoff_adam_update_cost(&step.piece));
    const unsigned threads = zoff_adam_dispatch_threads();
    zoff_base_team_run(zoff_adam_dispatch_shares(threads, tensor->count) ? threads : 1, run_share, &step);
    return ZOFF_OK;
}

zoff_status zoff_optimizer_step_list(const zoff_optimizer_hyper *hyper, size_t hyper_stride, int64_t t, double grad_scale,
                                     const zoff_optimizer_tensor *tensors, size_t tensor_stride, size_t count)
{
    step_list list = {.tensors = tensors,
                      .stride = tensor_stride,
                      .count = count,
                      .name = "zoff_optimizer_step_list",
                      .hyper = hyper,
                      .hyper_stride = hyper_stride};
    ZOFF_TRY(check_scale(grad_scale));
    ZOFF_FAIL_IF(!hyper, ZOFF_ERR_INVALID, "zoff_optimizer_step_list: hyper is NULL");
    ZOFF_FAIL_IF(!tensors && count, ZOFF_ERR_INVALID, "zoff_optimizer_step_list: tensors is NULL, but count is %zu", count);
    ZOFF_FAIL_IF(count && (tensor_stride < FIRST_BYTES || tensor_stride % _Alignof(zoff_optimizer_tensor)), ZOFF_ERR_INVALID,
                 "zoff_optimizer_step_list: tensor_stride is %zu; pass sizeof(zoff_optimizer_tensor)", tensor_stride);
    ZOFF_FAIL_IF(
        hyper_stride && (hyper_stride < FIRST_HYPER_BYTES || hyper_stride % _Alignof(zoff_optimizer_hyper)), ZOFF_ERR_INVALID,
        "zoff_optimizer_step_list: hyper_stride is %zu; pass sizeof(zoff_optimizer_hyper), or 0 where all tensors share one",
        hyper_stride);
    return hyper_stride ? step_each(&list, t, grad_scale) : step_alike(&list, t, grad_scale);
}
