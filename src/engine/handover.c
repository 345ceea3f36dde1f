/* SPDX-License-Identifier: Apache-2.0 */
/* handover.c: hands gradients over from the program to the engine: where they are, and which ones are ready. */
#include "engine_priv.h"

#include "structs.h"
#include "try.h"

#include <float.h>
#include <stdio.h>
#include <string.h>

zoff_status zoff_engine_handover_all(zoff_engine *e)
{
    for (size_t i = 0; i < e->model.param_count; i++) {
        const zoff_model_param *p = &e->model.params[i];
        for (size_t slice = 0; !p->frozen && !p->tie && p->count && slice < p->slices; slice++) {
            const size_t number = p->first_flag + slice;
            if (e->model.flags[number] & ZOFF_SLICE_READY ||
                !(p->grad || zoff_transfer_arena_at(e->transfer.route.lent, number)))
                continue;
            ZOFF_TRY(zoff_transfer_intake_take(&e->transfer, (zoff_param)i, slice, NULL));
        }
    }
    return zoff_transfer_intake_settle(&e->transfer, true);
}

/* ---- buffers ---- */

/* The gradient buffer of an entry's parameter once the entry is bound; NULL: none. */
static char *next_grad(const zoff_engine *e, const zoff_handover *h)
{
    zoff_dtype dtype;
    return h->grad == ZOFF_NO_GRAD ? NULL : h->grad ? h->grad : zoff_model_params_own_grad(&e->model, h->param, 0, &dtype);
}

static bool moves_value(const zoff_engine *e, const zoff_handover *h)
{
    return h->value && h->value != e->model.params[h->param].value;
}

static bool moves(const zoff_engine *e, const zoff_handover *h)
{
    zoff_dtype dtype;
    return moves_value(e, h) || next_grad(e, h) != zoff_model_params_own_grad(&e->model, h->param, 0, &dtype);
}

/* A gradient that was handed over is read from its present buffer, and a lent one is in engine memory: neither may be
 * rebound. */
static zoff_status check_unused(const zoff_engine *e, const zoff_handover *h, const char *call)
{
    const zoff_model_param *p = &e->model.params[h->param];
    const bool is_bound = e->life.phase == ZOFF_PHASE_IDLE && moves(e, h);
    for (size_t slice = 0; is_bound && slice < p->slices; slice++) {
        const size_t number = p->first_flag + slice;
        ZOFF_FAIL_IF(e->model.flags[number] & (ZOFF_SLICE_READY | ZOFF_SLICE_GIVEN), ZOFF_ERR_STATE,
                     "%s: slice %zu of %s was handed over (zoff_grad_ready()) and is read from its buffer until the "
                     "step is taken; bind other buffers after zoff_step_wait(), or call zoff_grads_drop() first",
                     call, slice, p->name);
        ZOFF_FAIL_IF(zoff_transfer_arena_at(e->transfer.route.lent, number), ZOFF_ERR_STATE,
                     "%s: the gradient of slice %zu of %s is in memory that zoff_grad_acquire() has lent; bind a "
                     "buffer after zoff_step_wait(), or call zoff_grads_drop() first",
                     call, slice, p->name);
    }
    return ZOFF_OK;
}

static zoff_status check_buffers(const zoff_engine *e, const zoff_handover *h, const char *call)
{
    zoff_dtype grad_dtype;
    ZOFF_FAIL_IF(h->param >= e->model.param_count, ZOFF_ERR_INVALID, "%s: there is no parameter %u; the engine has %zu", call,
                 h->param, e->model.param_count);
    const zoff_model_param *p = &e->model.params[h->param];
    (void)zoff_model_params_own_grad(&e->model, h->param, 0, &grad_dtype);
    ZOFF_FAIL_IF(h->flags & ~(unsigned)ZOFF_BIND_MOVED, ZOFF_ERR_INVALID, "%s: unknown flags 0x%x for %s", call, h->flags,
                 p->name);
    ZOFF_FAIL_IF(h->flags & ZOFF_BIND_MOVED && !h->value, ZOFF_ERR_INVALID,
                 "%s: ZOFF_BIND_MOVED says that %s has a new buffer of weights, and value is NULL", call, p->name);
    ZOFF_FAIL_IF((size_t)h->value % zoff_adam_dtype_bytes(p->dtype) ||
                     (size_t)next_grad(e, h) % zoff_adam_dtype_bytes(grad_dtype),
                 ZOFF_ERR_INVALID, "%s: %s: value and grad must be aligned to their element", call, p->name);
    ZOFF_FAIL_IF(h->value && p->engine_owned, ZOFF_ERR_INVALID,
                 "%s: the weights of %s are engine-owned; set them with zoff_param_write()", call, p->name);
    return ZOFF_OK;
}

/* Move the weights to the new buffer, because they are half of each split master. */
static void move_weights(const zoff_engine *e, const zoff_handover *h)
{
    const zoff_model_param *p = &e->model.params[h->param];
    const zoff_model_param *owner = &e->model.params[zoff_model_params_owner(&e->model, h->param)];
    const size_t bytes = p->count * zoff_adam_dtype_bytes(p->dtype);
    char *value = h->value;
    if (e->life.phase != ZOFF_PHASE_IDLE || h->flags & ZOFF_BIND_MOVED || !moves_value(e, h) || !bytes ||
        !zoff_model_masters_of(&e->model, owner)->is_split)
        return;
    for (size_t i = 0; i < p->slices; i++) {
        /* an order that allows both buffers to overlap */
        const size_t at = (value < p->value ? i : p->slices - 1 - i) * p->value_stride;
        memmove(value + at, p->value + at, bytes);
    }
}

static void bind_all(zoff_engine *e, const zoff_handover *h)
{
    zoff_model_param *p = &e->model.params[h->param];
    char *grad = next_grad(e, h);
    if (!moves(e, h))
        return;
    if (moves_value(e, h) && e->io.guard)
        e->io.guard->before_all(e->io.guard->ctx); /* a save may read weights from the old buffer */
    move_weights(e, h);
    e->model.ties.rebound = true; /* overlaps are checked later, when all buffers are bound */
    if (p->tie) {
        zoff_model_ties_bind(&e->model, h->param, h->value, grad);
        return;
    }
    p->value = h->value ? h->value : p->value;
    p->grad = grad;
}

static zoff_status bind_one(zoff_engine *e, zoff_call id, const zoff_handover *h, const char *call)
{
    ZOFF_TRY(zoff_engine_phase_check(e, id));
    ZOFF_TRY(check_buffers(e, h, call));
    ZOFF_TRY(check_unused(e, h, call));
    bind_all(e, h);
    return ZOFF_OK;
}

zoff_status zoff_param_bind(zoff_engine *e, zoff_param p, void *value, void *grad)
{
    ZOFF_ENTER(e);
    return bind_one(e, ZOFF_CALL_PARAM_BIND, &(zoff_handover){.param = p, .value = value, .grad = grad}, "zoff_param_bind");
}

zoff_status zoff_param_bind_opts(zoff_engine *e, zoff_param p, void *value, void *grad, unsigned flags)
{
    ZOFF_ENTER(e);
    return bind_one(e, ZOFF_CALL_PARAM_BIND_OPTS, &(zoff_handover){.param = p, .flags = flags, .value = value, .grad = grad},
                    "zoff_param_bind_opts");
}

/* ---- gradients that are ready ---- */

/* `has_buffer`: the program has bound a gradient buffer. */
static zoff_status check_gradient(const zoff_engine *e, const zoff_handed_over *g, bool has_buffer, const char *call)
{
    const zoff_param p = g->param;
    ZOFF_FAIL_IF(p >= e->model.param_count || g->slice >= e->model.params[p].slices, ZOFF_ERR_INVALID,
                 "%s: there is no slice %zu of parameter %u", call, g->slice, p);
    ZOFF_FAIL_IF(g->native_stream && !e->transfer.route.link->has_streams, ZOFF_ERR_INVALID,
                 "%s: accelerator \"%s\" has no streams; pass NULL", call, zoff_accel_name(e->accel));
    const zoff_model_param *param = &e->model.params[p];
    /* This goes first, because lent memory is given back once it was handed over. */
    ZOFF_FAIL_IF(zoff_model_params_is_given(&e->model, p, g->slice), ZOFF_ERR_STATE,
                 "%s: slice %zu of %s was handed over twice in one step", call, g->slice, param->name);
    ZOFF_FAIL_IF(!has_buffer && param->count && !zoff_transfer_arena_at(e->transfer.route.lent, param->first_flag + g->slice),
                 ZOFF_ERR_STATE, "%s: %s has no gradient buffer; see zoff_param_bind() and zoff_grad_acquire()", call,
                 param->name);
    return ZOFF_OK;
}

/* A gradient that was checked. */
static zoff_status take(zoff_engine *e, const zoff_handed_over *g)
{
    const zoff_model_param *param = &e->model.params[g->param];
    /* Ranks commit written ranges together, and a rank may have no gradient: so the step does it. */
    if (!e->ranges.unsaved || !zoff_engine_stores_commit_together(e))
        ZOFF_TRY(zoff_engine_admit_close_ranges(e));
    if (param->tie)
        ZOFF_TRY(zoff_transfer_intake_take_tied(&e->transfer, g->param, g->slice, g->native_stream));
    else if (!param->frozen && param->count)
        ZOFF_TRY(zoff_transfer_intake_take(&e->transfer, g->param, g->slice, g->native_stream));
    else
        ZOFF_TRY(ZOFF_LINK(&e->transfer, follow, (&e->transfer, g->native_stream)));
    e->transfer.batch.handed_over = true;
    if (!param->tie)
        e->transfer.route.link->taken(&e->transfer, g->param, g->slice);
    zoff_base_progress_pump(&e->progress); /* the step reports errors */
    if (!e->settings.values.background_threads)
        (void)zoff_engine_pipeline_precede(e);
    return ZOFF_OK;
}

zoff_status zoff_engine_handover_take(zoff_engine *e, const zoff_handed_over *gradient)
{
    zoff_dtype dtype;
    ZOFF_TRY(zoff_engine_phase_check(e, ZOFF_CALL_GRAD_READY));
    const bool has_buffer = gradient->param < e->model.param_count &&
                            zoff_model_params_own_grad(&e->model, gradient->param, gradient->slice, &dtype);
    ZOFF_TRY(check_gradient(e, gradient, has_buffer, "zoff_grad_ready"));
    return take(e, gradient);
}

zoff_status zoff_grad_ready(zoff_engine *e, zoff_param p, size_t slice, void *native_stream)
{
    ZOFF_TRACED(e, false);
    const zoff_handed_over gradient = {p, slice, native_stream};
    /* The thread of the engine could not name the program's stream, and an event there would come too late. */
    const bool is_right = e && p < e->model.param_count && slice < e->model.params[p].slices && !native_stream;
    if (is_right && zoff_engine_progress_thread_leaves(e, &gradient))
        return ZOFF_OK;
    ZOFF_ENTER(e);
    ZOFF_FAIL_IF(!e, ZOFF_ERR_INVALID, "zoff_grad_ready: engine must not be NULL");
    ZOFF_TRY(zoff_engine_progress_thread_fault(e));
    return zoff_engine_handover_take(e, &gradient);
}

/* ---- a list of gradients ---- */

/* The entries of zoff_grads_hand_over(). */
typedef struct entries {
    const char *list;
    size_t stride, count;
} entries;

static zoff_status read_entry(const entries *all, size_t i, zoff_handover *out)
{
    *out = (zoff_handover)ZOFF_HANDOVER_INIT;
    return zoff_base_structs_read("zoff_handover", "ZOFF_HANDOVER_INIT", all->list + i * all->stride, out, sizeof *out);
}

/* An entry that was checked. */
static zoff_handover entry_of(const entries *all, size_t i)
{
    zoff_handover h;
    (void)read_entry(all, i, &h);
    return h;
}

/* Entries of the other slices of a parameter repeat what its first entry binds, or leave it out. */
static bool agrees(const zoff_handover *first, const zoff_handover *other)
{
    const bool same_value = !other->value || (other->value == first->value && other->flags == first->flags);
    const bool has_gradients = first->grad != ZOFF_NO_GRAD && other->grad != ZOFF_NO_GRAD;
    return same_value && (other->grad == first->grad || (!other->grad && has_gradients));
}

/* Check an entry, and mark its parameter and slice. */
static zoff_status check_entry(zoff_engine *e, const entries *all, size_t i)
{
    char call[64];
    zoff_handover h;
    snprintf(call, sizeof call, "zoff_grads_hand_over: entry %zu", i);
    const zoff_status status = read_entry(all, i, &h);
    if (status < 0)
        return zoff_base_status_prefix(status, "%s: ", call);
    ZOFF_TRY(check_buffers(e, &h, call));
    const zoff_model_param *p = &e->model.params[h.param];
    size_t *listed = &e->model.listed[h.param];
    const zoff_handover first = *listed ? entry_of(all, *listed - 1) : h;
    ZOFF_TRY(*listed ? ZOFF_OK : check_unused(e, &h, call));
    ZOFF_FAIL_IF(!agrees(&first, &h), ZOFF_ERR_INVALID,
                 "%s: %s has other buffers or flags than in entry %zu: repeat them in its entries, or pass NULL", call, p->name,
                 *listed - 1);
    if (h.grad != ZOFF_NO_GRAD) {
        const zoff_handed_over gradient = {h.param, h.slice, h.native_stream};
        ZOFF_TRY(check_gradient(e, &gradient, next_grad(e, &first), call));
        uint8_t *flag = &e->model.flags[p->first_flag + h.slice];
        ZOFF_FAIL_IF(*flag & ZOFF_SLICE_LISTED, ZOFF_ERR_INVALID, "%s: slice %zu of %s is in the list twice", call, h.slice,
                     p->name);
        *flag |= ZOFF_SLICE_LISTED;
    }
    *listed = *listed ? *listed : i + 1;
    return ZOFF_OK;
}

static bool is_handed_over(const zoff_engine *e, zoff_param p)
{
    bool is = false;
    for (size_t slice = 0; slice < e->model.params[p].slices; slice++)
        is = is || zoff_model_params_is_given(&e->model, p, slice);
    return is;
}

/* Bind the buffers of the list, and unbind those of gradients that are neither listed nor handed over. Nothing can fail. */
static void bind_entries(zoff_engine *e, const entries *all)
{
    for (size_t i = 0; i < all->count; i++) {
        const zoff_handover h = entry_of(all, i);
        if (e->model.listed[h.param] == i + 1)
            bind_all(e, &h);
    }
    for (zoff_param p = 0; p < e->model.param_count; p++) {
        if (!e->model.listed[p] && !is_handed_over(e, p))
            bind_all(e, &(zoff_handover){.param = p, .grad = ZOFF_NO_GRAD});
    }
}

static zoff_status take_entries(zoff_engine *e, const entries *all)
{
    for (size_t i = 0; i < all->count; i++) {
        const zoff_handover h = entry_of(all, i);
        const zoff_handed_over gradient = {h.param, h.slice, h.native_stream};
        const zoff_status status = h.grad == ZOFF_NO_GRAD ? ZOFF_OK : take(e, &gradient);
        if (status < 0)
            return zoff_base_status_prefix(status, "zoff_grads_hand_over: entry %zu, %s: ", i, e->model.params[h.param].name);
    }
    return ZOFF_OK;
}

static void forget_entries(zoff_engine *e)
{
    memset(e->model.listed, 0, e->model.param_count * sizeof *e->model.listed);
    for (size_t i = 0; i < e->model.slice_count; i++)
        e->model.flags[i] &= (uint8_t)~ZOFF_SLICE_LISTED;
}

zoff_status zoff_grads_hand_over(zoff_engine *e, const zoff_handover *list, size_t stride, size_t count)
{
    ZOFF_TRACED(e, false);
    ZOFF_ENTER(e);
    const entries all = {(const char *)list, stride, count};
    ZOFF_TRY(zoff_engine_phase_check(e, ZOFF_CALL_GRADS_HAND_OVER));
    ZOFF_FAIL_IF(count && (!list || stride < list->struct_size), ZOFF_ERR_INVALID,
                 "zoff_grads_hand_over: list must not be NULL, and stride must be at least its struct_size: pass sizeof *list");
    ZOFF_TRY(zoff_engine_progress_thread_fault(e));
    zoff_status status = ZOFF_OK;
    for (size_t i = 0; i < count && status == ZOFF_OK; i++)
        status = check_entry(e, &all, i);
    if (status == ZOFF_OK)
        bind_entries(e, &all);
    forget_entries(e);
    return status == ZOFF_OK ? take_entries(e, &all) : status;
}

zoff_status zoff_grad_acquire(zoff_engine *e, zoff_param p, size_t slice, void *native_stream, void **out)
{
    ZOFF_ENTER(e);
    ZOFF_FAIL_IF(!e || !out, ZOFF_ERR_INVALID, "zoff_grad_acquire: engine and out must not be NULL");
    ZOFF_TRY(zoff_engine_phase_check(e, ZOFF_CALL_GRAD_ACQUIRE));
    ZOFF_FAIL_IF(p >= e->model.param_count || slice >= e->model.params[p].slices, ZOFF_ERR_INVALID,
                 "zoff_grad_acquire: there is no slice %zu of parameter %u", slice, p);
    ZOFF_FAIL_IF(native_stream && !e->transfer.route.link->has_streams, ZOFF_ERR_INVALID,
                 "zoff_grad_acquire: accelerator \"%s\" has no streams; pass NULL", zoff_accel_name(e->accel));
    const zoff_model_param *param = &e->model.params[p];
    const size_t number = param->first_flag + slice;
    zoff_dtype dtype;
    const bool is_frozen = param->frozen && !param->tie;
    ZOFF_FAIL_IF(is_frozen || zoff_model_params_own_grad(&e->model, p, slice, &dtype), ZOFF_ERR_INVALID,
                 "zoff_grad_acquire: %s %s", param->name,
                 is_frozen ? "is frozen and needs no gradient" : "has a gradient buffer of the program (zoff_param_desc.grad)");
    ZOFF_FAIL_IF(zoff_model_params_is_given(&e->model, p, slice), ZOFF_ERR_STATE,
                 "zoff_grad_acquire: slice %zu of %s was handed over in this step", slice, param->name);
    const size_t bytes = param->count * zoff_adam_dtype_bytes(dtype);
    zoff_grads *pool = e->transfer.route.lent;
    ZOFF_FAIL_IF(
        bytes && pool->is_there && !pool->first_bytes, ZOFF_ERR_STATE,
        "zoff_grad_acquire: %s had a gradient buffer at seal, as all parameters had, so the engine reserved no memory of "
        "the device to lend: bind a buffer (zoff_param_bind()), or pass zoff_param_desc.grad NULL",
        param->name);
    const bool is_lent = zoff_transfer_arena_at(pool, number) != NULL;
    char *at;
    ZOFF_TRY(zoff_transfer_intake_lend(&e->transfer, pool, number, bytes, &at));
    const zoff_status status = !is_lent && bytes ? zoff_transfer_arena_clear(&e->transfer, at, bytes, native_stream) : ZOFF_OK;
    if (status < 0)
        zoff_transfer_arena_let_go(pool, number); /* the next call clears the memory */
    ZOFF_TRY(status);
    *out = at;
    return ZOFF_OK;
}

zoff_status zoff_grad_weight(zoff_engine *e, double weight)
{
    ZOFF_ENTER(e);
    ZOFF_FAIL_IF(!e, ZOFF_ERR_INVALID, "zoff_grad_weight: engine must not be NULL");
    ZOFF_TRY(zoff_engine_phase_check(e, ZOFF_CALL_GRAD_WEIGHT));
    ZOFF_FAIL_IF(!(weight >= 0 && weight <= FLT_MAX), ZOFF_ERR_INVALID,
                 "zoff_grad_weight: %g is not a finite fp32 number of at least 0", weight);
    ZOFF_FAIL_IF(e->transfer.batch.handed_over, ZOFF_ERR_STATE,
                 "zoff_grad_weight: gradients of this micro-batch were handed over already; call it before zoff_grad_ready()");
    zoff_transfer_reduce_scatter_weigh(&e->transfer, weight);
    return ZOFF_OK;
}
