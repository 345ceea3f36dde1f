/* handover.c: hands gradients over from the program to the engine: where they are, and which ones are ready. */
#include "engine_priv.h"

#include "try.h"

#include <float.h>
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

/* A gradient that was handed over is read from its present buffer, and a lent one is in engine memory: neither may be
 * rebound. */
static zoff_status check_unused(const zoff_engine *e, const zoff_model_param *p)
{
    for (size_t slice = 0; e->life.phase == ZOFF_PHASE_IDLE && slice < p->slices; slice++) {
        const size_t number = p->first_flag + slice;
        ZOFF_FAIL_IF(
            e->model.flags[number] & (ZOFF_SLICE_READY | ZOFF_SLICE_GIVEN), ZOFF_ERR_STATE,
            "zoff_param_bind: slice %zu of %s was handed over (zoff_grad_ready()) and is read from its buffer until the "
            "step is taken; bind other buffers after zoff_step_wait(), or call zoff_grads_drop() first",
            slice, p->name);
        ZOFF_FAIL_IF(zoff_transfer_arena_at(e->transfer.route.lent, number), ZOFF_ERR_STATE,
                     "zoff_param_bind: the gradient of slice %zu of %s is in memory that zoff_grad_acquire() has lent; bind a "
                     "buffer after zoff_step_wait(), or call zoff_grads_drop() first",
                     slice, p->name);
    }
    return ZOFF_OK;
}

/* Move the weights to the new buffer, because they are half of each split master. */
static void move_weights(const zoff_engine *e, const zoff_model_param *p, char *value)
{
    const zoff_model_param *owner = &e->model.params[zoff_model_params_owner(&e->model, (zoff_param)(p - e->model.params))];
    const size_t bytes = p->count * zoff_adam_dtype_bytes(p->dtype);
    if (e->life.phase != ZOFF_PHASE_IDLE || !value || value == p->value || !bytes ||
        !zoff_model_masters_of(&e->model, owner)->is_split)
        return;
    for (size_t i = 0; i < p->slices; i++) {
        /* an order that allows both buffers to overlap */
        const size_t at = (value < p->value ? i : p->slices - 1 - i) * p->value_stride;
        memmove(value + at, p->value + at, bytes);
    }
}

zoff_status zoff_param_bind(zoff_engine *e, zoff_param p, void *value, void *grad)
{
    ZOFF_ENTER(e);
    ZOFF_FAIL_IF(!e, ZOFF_ERR_INVALID, "zoff_param_bind: engine must not be NULL");
    ZOFF_FAIL_IF(p >= e->model.param_count, ZOFF_ERR_INVALID, "zoff_param_bind: there is no parameter %u; the engine has %zu",
                 p, e->model.param_count);
    ZOFF_TRY(zoff_engine_phase_check(e, ZOFF_CALL_PARAM_BIND));
    zoff_model_param *param = &e->model.params[p];
    zoff_dtype grad_dtype;
    char *own_grad = zoff_model_params_own_grad(&e->model, p, 0, &grad_dtype);
    ZOFF_FAIL_IF((size_t)value % zoff_adam_dtype_bytes(param->dtype) || (size_t)grad % zoff_adam_dtype_bytes(grad_dtype),
                 ZOFF_ERR_INVALID, "%s: value and grad must be aligned to their element", param->name);
    ZOFF_FAIL_IF(value && param->engine_owned, ZOFF_ERR_INVALID,
                 "zoff_param_bind: the weights of %s are engine-owned; set them with zoff_param_write()", param->name);
    const bool moves = (value && value != param->value) || (grad && grad != own_grad);
    ZOFF_TRY(moves ? check_unused(e, param) : ZOFF_OK);
    if (moves && value && e->io.guard)
        e->io.guard->before_all(e->io.guard->ctx); /* a save may read weights from the old buffer */
    move_weights(e, param, value);
    e->model.ties.rebound = e->model.ties.rebound || moves; /* overlaps are checked later, when all buffers are bound */
    if (param->tie) {
        zoff_model_ties_bind(&e->model, p, value, grad);
        return ZOFF_OK;
    }
    param->value = value ? value : param->value;
    param->grad = grad ? grad : param->grad;
    return ZOFF_OK;
}

zoff_status zoff_engine_handover_take(zoff_engine *e, const zoff_handed_over *gradient)
{
    const zoff_param p = gradient->param;
    const size_t slice = gradient->slice;
    void *native_stream = gradient->native_stream;
    ZOFF_TRY(zoff_engine_phase_check(e, ZOFF_CALL_GRAD_READY));
    ZOFF_FAIL_IF(p >= e->model.param_count || slice >= e->model.params[p].slices, ZOFF_ERR_INVALID,
                 "zoff_grad_ready: there is no slice %zu of parameter %u", slice, p);
    ZOFF_FAIL_IF(native_stream && !e->transfer.route.link->has_streams, ZOFF_ERR_INVALID,
                 "zoff_grad_ready: accelerator \"%s\" has no streams; pass NULL", zoff_accel_name(e->accel));
    const zoff_model_param *param = &e->model.params[p];
    zoff_dtype dtype;
    const bool has_gradient = zoff_model_params_own_grad(&e->model, p, slice, &dtype) ||
                              zoff_transfer_arena_at(e->transfer.route.lent, param->first_flag + slice) || !param->count;
    ZOFF_FAIL_IF(!has_gradient, ZOFF_ERR_STATE,
                 "zoff_grad_ready: %s has no gradient buffer; see zoff_param_bind() and zoff_grad_acquire()", param->name);
    ZOFF_FAIL_IF(zoff_model_params_is_given(&e->model, p, slice), ZOFF_ERR_STATE,
                 "zoff_grad_ready: slice %zu of %s was handed over twice in one step", slice, param->name);
    /* Ranks commit written ranges together, and a rank may have no gradient: so the step does it. */
    if (!e->ranges.unsaved || !zoff_engine_stores_commit_together(e))
        ZOFF_TRY(zoff_engine_admit_close_ranges(e));
    if (param->tie)
        ZOFF_TRY(zoff_transfer_intake_take_tied(&e->transfer, p, slice, native_stream));
    else if (!param->frozen && param->count)
        ZOFF_TRY(zoff_transfer_intake_take(&e->transfer, p, slice, native_stream));
    else
        ZOFF_TRY(ZOFF_LINK(&e->transfer, follow, (&e->transfer, native_stream)));
    e->transfer.batch.handed_over = true;
    if (!param->tie)
        e->transfer.route.link->taken(&e->transfer, p, slice);
    zoff_base_progress_pump(&e->progress); /* the step reports errors */
    if (!e->settings.values.background_threads)
        (void)zoff_engine_pipeline_precede(e);
    return ZOFF_OK;
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
    const bool is_lent = zoff_transfer_arena_at(e->transfer.route.lent, number) != NULL;
    char *at;
    ZOFF_TRY(zoff_transfer_intake_lend(&e->transfer, e->transfer.route.lent, number, bytes, &at));
    const zoff_status status = !is_lent && bytes ? zoff_transfer_arena_clear(&e->transfer, at, bytes, native_stream) : ZOFF_OK;
    if (status < 0)
        zoff_transfer_arena_let_go(e->transfer.route.lent, number); /* the next call clears the memory */
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
