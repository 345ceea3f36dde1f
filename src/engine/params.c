/* params.c: the list of parameters, and where the program keeps their weights and gradients. */
#include "engine_priv.h"

#include "array.h"
#include "bits.h"
#include "try.h"

#include <stdio.h>
#include <string.h>

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

zoff_plan_tensor zoff_engine_params_tensor(const zoff_engine *e, const zoff_engine_param *p)
{
    const zoff_adam_states states = zoff_engine_groups_states(e, p->group);
    zoff_plan_tensor tensor = {.count = p->count,
                               .slices = p->slices,
                               .frozen = p->frozen,
                               .weight_bytes = p->engine_owned ? zoff_adam_dtype_bytes(p->dtype) : 0};
    if (p->frozen)
        return tensor;
    /* fp32 weights are their own masters; files that persist hold a copy of them. */
    tensor.has[ZOFF_STREAM_MASTER] = zoff_engine_params_has_master(e, p) || e->settings.values.persist;
    tensor.has[ZOFF_STREAM_M] = states.m;
    tensor.has[ZOFF_STREAM_V] = states.v;
    return tensor;
}

zoff_param zoff_engine_params_owner(const zoff_engine *e, zoff_param p)
{
    const bool is_tied = p < e->param_count && e->params[p].tie;
    return is_tied ? e->ties.all[e->params[p].tie - 1].owner : p;
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

/* Gradients as the program gave them. */
zoff_given zoff_engine_params_given(const zoff_engine *e, size_t i)
{
    const zoff_engine_param *p = &e->params[i];
    if (p->tie && zoff_engine_params_owner(e, (zoff_param)i) == i)
        return e->ties.all[p->tie - 1].given;
    return (zoff_given){.grad = p->grad, .stride = p->grad_stride, .dtype = p->grad_dtype};
}

char *zoff_engine_params_given_grad(const zoff_engine *e, zoff_param p, size_t slice, zoff_dtype *out_dtype)
{
    const zoff_given given = zoff_engine_params_given(e, p);
    *out_dtype = given.dtype;
    return given.grad ? given.grad + slice * given.stride : NULL;
}

char *zoff_engine_params_own_grad(const zoff_engine *e, zoff_param p, size_t slice, zoff_dtype *out_dtype)
{
    const zoff_engine_param *param = &e->params[p];
    if (param->tie)
        return zoff_engine_params_given_grad(e, p, slice, out_dtype);
    *out_dtype = param->grad_dtype;
    return param->grad ? param->grad + slice * param->grad_stride : NULL;
}

bool zoff_engine_params_is_given(const zoff_engine *e, zoff_param p, size_t slice)
{
    const zoff_engine_param *param = &e->params[p];
    return e->flags[param->first_flag + slice] & (param->tie ? ZOFF_SLICE_GIVEN : ZOFF_SLICE_READY);
}
