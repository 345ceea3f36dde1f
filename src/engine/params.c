/* params.c: the list of parameters, where their weights and gradients are, and which gradients have been handed over. */
#include "engine_priv.h"

#include "array.h"
#include "bits.h"
#include "try.h"

#include <stdio.h>
#include <string.h>

const char *zoff_engine_params_phase(const zoff_engine *e)
{
    static const char *const WORDS[] = {"the engine is not sealed yet", "no step is open", "a step is open; wait for it",
                                        "a step has failed; retry it, drop it, or destroy the engine"};
    return WORDS[e->phase];
}

enum { SLICES_MAX = 1 << 30 };

static zoff_status check(const zoff_param_desc *d, const char *name)
{
    zoff_dtype dtype = d->dtype ? d->dtype : ZOFF_F32;
    zoff_dtype grad_dtype = d->grad_dtype ? d->grad_dtype : dtype;
    ZOFF_FAIL_IF(!zoff_adam_dtype_bytes(dtype), ZOFF_ERR_INVALID, "%s: dtype %d is not a zoff_dtype", name, (int)dtype);
    ZOFF_FAIL_IF(!zoff_adam_dtype_bytes(grad_dtype), ZOFF_ERR_INVALID, "%s: grad_dtype %d is not a zoff_dtype", name,
                 (int)grad_dtype);
    size_t slices = d->slices ? d->slices : 1;
    ZOFF_FAIL_IF(slices > SLICES_MAX, ZOFF_ERR_INVALID, "%s: %zu slices are more than the %d that a parameter may have", name,
                 slices, (int)SLICES_MAX);
    size_t strides[] = {d->value_stride, d->grad_stride};
    for (int i = 0; i < 2; i++) {
        size_t bytes;
        ZOFF_FAIL_IF(strides[i] && strides[i] < d->count && slices > 1, ZOFF_ERR_INVALID,
                     "%s: %s_stride %zu is less than count %zu: the slices would overlap", name, i ? "grad" : "value",
                     strides[i], d->count);
        size_t stride = zoff_base_bits_max(strides[i], d->count);
        ZOFF_FAIL_IF(!zoff_base_bits_mul(stride, slices, &bytes) || !zoff_base_bits_mul(bytes, sizeof(float), &bytes) ||
                         bytes > SIZE_MAX / 2,
                     ZOFF_ERR_INVALID, "%s: %zu slices of %zu elements, %zu apart, are more than fits in memory", name, slices,
                     d->count, stride);
    }
    ZOFF_FAIL_IF((size_t)d->value % zoff_adam_dtype_bytes(dtype) || (size_t)d->grad % zoff_adam_dtype_bytes(grad_dtype),
                 ZOFF_ERR_INVALID, "%s: value and grad must be aligned to their element", name);
    return ZOFF_OK;
}

zoff_status zoff_engine_params_add(zoff_engine *e, const zoff_param_desc *d, zoff_param *out)
{
    char fallback[32];
    snprintf(fallback, sizeof fallback, "param%zu", e->param_count);
    const char *name = d->name ? d->name : fallback;
    ZOFF_FAIL_IF(e->param_count >= UINT32_MAX, ZOFF_ERR_INVALID, "an engine holds at most %u parameters", UINT32_MAX);
    ZOFF_TRY(check(d, name));
    ZOFF_FAIL_IF(d->engine_owned && zoff_engine_device_is(e), ZOFF_ERR_UNSUPPORTED,
                 "%s: weights on accelerator \"%s\" are the program's; engine_owned is for the host", name,
                 zoff_accel_name(e->accel));
    ZOFF_TRY(zoff_base_array_reserve(&e->params, e->param_count, &e->param_capacity, e->param_count + 1, sizeof *e->params,
                                     "the list of parameters"));
    ZOFF_TRY(zoff_engine_groups_reserve(e, d->group));
    zoff_engine_param p = {.value = d->value,
                           .grad = d->grad,
                           .count = d->count,
                           .slices = d->slices ? d->slices : 1,
                           .dtype = d->dtype ? d->dtype : ZOFF_F32,
                           .group = d->group,
                           .frozen = d->frozen,
                           .engine_owned = d->engine_owned,
                           .first_flag = e->slice_count};
    p.grad_dtype = d->grad_dtype ? d->grad_dtype : p.dtype;
    p.value_stride = (d->value_stride ? d->value_stride : d->count) * zoff_adam_dtype_bytes(p.dtype);
    p.grad_stride = (d->grad_stride ? d->grad_stride : d->count) * zoff_adam_dtype_bytes(p.grad_dtype);
    ZOFF_TRY(zoff_base_mem_copy_text(name, &p.name));
    e->params[e->param_count] = p;
    zoff_engine_identity_add(e, name, p.count * p.slices);
    e->groups[p.group].used = e->groups[p.group].used || !p.frozen;
    e->slice_count += p.slices;
    if (out)
        *out = (zoff_param)e->param_count;
    e->param_count++;
    return ZOFF_OK;
}

void zoff_engine_params_measure(zoff_engine *e)
{
    e->widest_weight = e->widest_gradient = 0;
    for (size_t i = 0; i < e->param_count; i++) {
        const zoff_engine_param *p = &e->params[i];
        const size_t gradient = p->frozen ? 0 : zoff_adam_dtype_bytes(zoff_engine_exchange_dtype(e, p));
        e->widest_weight = zoff_base_bits_max(e->widest_weight, zoff_adam_dtype_bytes(p->dtype));
        e->widest_gradient = zoff_base_bits_max(e->widest_gradient, gradient);
    }
}

void zoff_engine_params_free(zoff_engine *e)
{
    for (size_t i = 0; i < e->param_count; i++)
        zoff_base_mem_free(e->params[i].name);
    zoff_base_mem_free(e->params);
    zoff_base_mem_free(e->groups);
}

bool zoff_engine_params_any_owned(const zoff_engine *e)
{
    for (size_t i = 0; i < e->param_count; i++) {
        if (e->params[i].engine_owned)
            return true;
    }
    return false;
}

zoff_status zoff_engine_params_check_weights(const zoff_engine *e, const char *call)
{
    ZOFF_FAIL_IF(e->awaits_weights, ZOFF_ERR_STATE,
                 "%s: the states are those after step %lld and the weights are not; call zoff_params_push() first", call,
                 (long long)e->t);
    return ZOFF_OK;
}

char *zoff_engine_params_value(const zoff_engine *e, const zoff_plan_piece *piece, char *weights)
{
    const zoff_engine_param *p = &e->params[piece->param];
    if (p->engine_owned && weights)
        return weights + piece->weight_offset;
    if (!p->value)
        return NULL;
    return p->value + piece->slice * p->value_stride + piece->first * zoff_adam_dtype_bytes(p->dtype);
}

const char *zoff_engine_params_there(const zoff_engine *e, const zoff_plan_piece *piece)
{
    const zoff_engine_param *p = &e->params[piece->param];
    return p->grad + piece->slice * p->grad_stride + piece->first * zoff_adam_dtype_bytes(p->grad_dtype);
}

const char *zoff_engine_params_grad(const zoff_engine *e, const zoff_plan_piece *piece)
{
    const zoff_engine_param *p = &e->params[piece->param];
    if (!p->grad || zoff_engine_device_is(e))
        return zoff_engine_grads_at(e, p->first_flag + piece->slice) + piece->first * zoff_adam_dtype_bytes(p->grad_dtype);
    return zoff_engine_params_there(e, piece);
}

zoff_status zoff_engine_params_take_gradient(zoff_engine *e, zoff_param p, size_t slice, void *native_stream)
{
    if (zoff_engine_device_is(e))
        ZOFF_TRY(zoff_engine_device_fall(e, p, slice, native_stream));
    e->flags[e->params[p].first_flag + slice] |= ZOFF_SLICE_READY;
    zoff_engine_exchange_hand_over(e, p, slice);
    return ZOFF_OK;
}

zoff_status zoff_engine_params_ready_all(zoff_engine *e)
{
    for (size_t i = 0; i < e->param_count; i++) {
        const zoff_engine_param *p = &e->params[i];
        for (size_t slice = 0; !p->frozen && !p->tie && p->count && slice < p->slices; slice++) {
            const size_t number = p->first_flag + slice;
            if (e->flags[number] & ZOFF_SLICE_READY || !(p->grad || zoff_engine_grads_at(e, number)))
                continue;
            ZOFF_TRY(zoff_engine_params_take_gradient(e, (zoff_param)i, slice, NULL));
        }
    }
    return zoff_engine_ties_settle(e, true);
}

char *zoff_engine_params_own_grad(const zoff_engine *e, zoff_param p, size_t slice, zoff_dtype *out_dtype)
{
    const zoff_engine_param *param = &e->params[p];
    if (param->tie)
        return zoff_engine_ties_given(e, p, slice, out_dtype);
    *out_dtype = param->grad_dtype;
    return param->grad ? param->grad + slice * param->grad_stride : NULL;
}

bool zoff_engine_params_is_given(const zoff_engine *e, zoff_param p, size_t slice)
{
    const zoff_engine_param *param = &e->params[p];
    return e->flags[param->first_flag + slice] & (param->tie ? ZOFF_SLICE_GIVEN : ZOFF_SLICE_READY);
}

void zoff_engine_params_zero_grads(zoff_engine *e)
{
    for (size_t i = 0; !zoff_engine_device_is(e) && i < e->param_count; i++) {
        const zoff_engine_param *p = &e->params[i];
        for (size_t slice = 0; slice < p->slices; slice++) {
            zoff_dtype dtype;
            char *grad = zoff_engine_params_own_grad(e, (zoff_param)i, slice, &dtype);
            if (grad && zoff_engine_params_is_given(e, (zoff_param)i, slice))
                memset(grad, 0, p->count * zoff_adam_dtype_bytes(dtype));
        }
    }
}

/* A gradient that was handed over is read from where it was then, and one that is lent is in memory of the engine. */
static zoff_status check_unused(const zoff_engine *e, const zoff_engine_param *p)
{
    for (size_t slice = 0; e->phase == ZOFF_PHASE_IDLE && slice < p->slices; slice++) {
        const size_t number = p->first_flag + slice;
        ZOFF_FAIL_IF(
            e->flags[number] & (ZOFF_SLICE_READY | ZOFF_SLICE_GIVEN), ZOFF_ERR_STATE,
            "zoff_param_bind: slice %zu of %s was handed over (zoff_grad_ready()) and is read from its buffer until the "
            "step is taken; bind other buffers after zoff_step_wait(), or call zoff_grads_drop() first",
            slice, p->name);
        ZOFF_FAIL_IF(!zoff_engine_device_is(e) && zoff_engine_grads_at(e, number), ZOFF_ERR_STATE,
                     "zoff_param_bind: the gradient of slice %zu of %s is in memory that zoff_grad_acquire() has lent; bind a "
                     "buffer after zoff_step_wait(), or call zoff_grads_drop() first",
                     slice, p->name);
    }
    return ZOFF_OK;
}

zoff_status zoff_param_bind(zoff_engine *e, zoff_param p, void *value, void *grad)
{
    ZOFF_ENTER(e);
    ZOFF_FAIL_IF(!e, ZOFF_ERR_INVALID, "zoff_param_bind: engine must not be NULL");
    ZOFF_FAIL_IF(p >= e->param_count, ZOFF_ERR_INVALID, "zoff_param_bind: there is no parameter %u; the engine has %zu", p,
                 e->param_count);
    ZOFF_FAIL_IF(e->phase > ZOFF_PHASE_IDLE, ZOFF_ERR_STATE, "zoff_param_bind: %s cannot move: %s", e->params[p].name,
                 zoff_engine_params_phase(e));
    zoff_engine_param *param = &e->params[p];
    zoff_dtype grad_dtype;
    char *own_grad = zoff_engine_params_own_grad(e, p, 0, &grad_dtype);
    ZOFF_FAIL_IF((size_t)value % zoff_adam_dtype_bytes(param->dtype) || (size_t)grad % zoff_adam_dtype_bytes(grad_dtype),
                 ZOFF_ERR_INVALID, "%s: value and grad must be aligned to their element", param->name);
    ZOFF_FAIL_IF(value && param->engine_owned, ZOFF_ERR_INVALID,
                 "zoff_param_bind: the weights of %s are the engine's; zoff_param_write() sets them", param->name);
    const bool moves = (value && value != param->value) || (grad && grad != own_grad);
    ZOFF_TRY(moves ? check_unused(e, param) : ZOFF_OK);
    e->ties.rebound = e->ties.rebound || moves; /* whether they overlap is seen when all have moved */
    if (param->tie) {
        zoff_engine_ties_bind(e, p, value, grad);
        return ZOFF_OK;
    }
    param->value = value ? value : param->value;
    param->grad = grad ? grad : param->grad;
    return ZOFF_OK;
}

zoff_status zoff_grad_ready(zoff_engine *e, zoff_param p, size_t slice, void *native_stream)
{
    ZOFF_ENTER(e);
    ZOFF_FAIL_IF(!e, ZOFF_ERR_INVALID, "zoff_grad_ready: engine must not be NULL");
    ZOFF_FAIL_IF(e->phase != ZOFF_PHASE_IDLE, ZOFF_ERR_STATE, "zoff_grad_ready: %s", zoff_engine_params_phase(e));
    ZOFF_FAIL_IF(p >= e->param_count || slice >= e->params[p].slices, ZOFF_ERR_INVALID,
                 "zoff_grad_ready: there is no slice %zu of parameter %u", slice, p);
    ZOFF_FAIL_IF(native_stream && !zoff_engine_device_is(e), ZOFF_ERR_INVALID,
                 "zoff_grad_ready: accelerator \"%s\" has no streams; pass NULL", zoff_accel_name(e->accel));
    const zoff_engine_param *param = &e->params[p];
    zoff_dtype dtype;
    const bool has_gradient =
        zoff_engine_params_own_grad(e, p, slice, &dtype) || zoff_engine_grads_at(e, param->first_flag + slice) || !param->count;
    ZOFF_FAIL_IF(!has_gradient, ZOFF_ERR_STATE,
                 "zoff_grad_ready: %s has no gradient buffer; see zoff_param_bind() and zoff_grad_acquire()", param->name);
    ZOFF_FAIL_IF(zoff_engine_params_is_given(e, p, slice), ZOFF_ERR_STATE,
                 "zoff_grad_ready: slice %zu of %s was handed over twice in one step", slice, param->name);
    ZOFF_TRY(zoff_engine_window_close(e));
    if (param->tie)
        ZOFF_TRY(zoff_engine_ties_take(e, p, slice, native_stream));
    else if (!param->frozen && param->count)
        ZOFF_TRY(zoff_engine_params_take_gradient(e, p, slice, native_stream));
    else
        ZOFF_TRY(zoff_engine_device_follow(e, native_stream));
    e->handed_over = true;
    if (zoff_engine_device_is(e) && !zoff_engine_reach_is(e))
        (void)zoff_engine_device_go_on(e); /* it is marked when it has come down; what fails is told by the step */
    else if (!param->tie)
        zoff_engine_exchange_mark(e, p, slice);
    zoff_base_progress_pump(&e->progress); /* keeps errors for the step */
    return ZOFF_OK;
}
