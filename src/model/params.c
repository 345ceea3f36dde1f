/* params.c: the list of parameters, and the addresses of their weights and gradients in the program. */
#include "zoff_model.h"

#include "array.h"
#include "bits.h"
#include "mem.h"
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

zoff_status zoff_model_params_add(zoff_model *m, const zoff_param_desc *d, zoff_param *out)
{
    char fallback[32];
    snprintf(fallback, sizeof fallback, "param%zu", m->param_count);
    const char *name = d->name ? d->name : fallback;
    ZOFF_FAIL_IF(m->param_count >= UINT32_MAX, ZOFF_ERR_INVALID, "an engine holds at most %u parameters", UINT32_MAX);
    ZOFF_TRY(check(d, name));
    ZOFF_TRY(zoff_base_array_reserve(&m->params, m->param_count, &m->param_capacity, m->param_count + 1, sizeof *m->params,
                                     "the list of parameters"));
    zoff_model_param p = {.value = d->value,
                          .grad = d->grad,
                          .count = d->count,
                          .slices = d->slices ? d->slices : 1,
                          .dtype = d->dtype ? d->dtype : ZOFF_F32,
                          .group = d->group,
                          .frozen = d->frozen,
                          .engine_owned = d->engine_owned,
                          .first_flag = m->slice_count};
    p.grad_dtype = d->grad_dtype ? d->grad_dtype : p.dtype;
    p.value_stride = (d->value_stride ? d->value_stride : d->count) * zoff_adam_dtype_bytes(p.dtype);
    p.grad_stride = (d->grad_stride ? d->grad_stride : d->count) * zoff_adam_dtype_bytes(p.grad_dtype);
    ZOFF_TRY(zoff_base_mem_copy_text(name, &p.name));
    /* Last, because a list of groups cannot shrink again after an error. */
    const zoff_status status = zoff_model_groups_reserve(m, d->group);
    if (status < 0) {
        zoff_base_mem_free(p.name);
        return status;
    }
    m->params[m->param_count] = p;
    m->groups[p.group].used = m->groups[p.group].used || !p.frozen;
    m->slice_count += p.slices;
    if (out)
        *out = (zoff_param)m->param_count;
    m->param_count++;
    return ZOFF_OK;
}

void zoff_model_params_free(zoff_model *m)
{
    for (size_t i = 0; i < m->param_count; i++)
        zoff_base_mem_free(m->params[i].name);
    zoff_base_mem_free(m->params);
    zoff_base_mem_free(m->groups);
}

bool zoff_model_params_any_owned(const zoff_model *m)
{
    for (size_t i = 0; i < m->param_count; i++) {
        if (m->params[i].engine_owned)
            return true;
    }
    return false;
}

zoff_plan_tensor zoff_model_params_tensor(const zoff_model *m, const zoff_model_param *p)
{
    const zoff_adam_states states = zoff_model_groups_states(m, p->group);
    zoff_plan_tensor tensor = {.count = p->count,
                               .slices = p->slices,
                               .frozen = p->frozen,
                               .weight_bytes = p->engine_owned ? zoff_adam_dtype_bytes(p->dtype) : 0};
    if (p->frozen)
        return tensor;
    /* fp32 weights are their own masters, but persistent files also hold a copy of them. */
    tensor.has[ZOFF_STREAM_MASTER] = zoff_model_params_has_master(m, p) || m->values->persist;
    tensor.has[ZOFF_STREAM_M] = states.m;
    tensor.has[ZOFF_STREAM_V] = states.v;
    return tensor;
}

zoff_param zoff_model_params_owner(const zoff_model *m, zoff_param p)
{
    const bool is_tied = p < m->param_count && m->params[p].tie;
    return is_tied ? m->ties.all[m->params[p].tie - 1].owner : p;
}

char *zoff_model_params_value(const zoff_model *m, const zoff_plan_piece *piece, char *weights)
{
    const zoff_model_param *p = &m->params[piece->param];
    if (p->engine_owned && weights)
        return weights + piece->weight_offset;
    if (!p->value)
        return NULL;
    return p->value + piece->slice * p->value_stride + piece->first * zoff_adam_dtype_bytes(p->dtype);
}

const char *zoff_model_params_there(const zoff_model *m, const zoff_plan_piece *piece)
{
    const zoff_model_param *p = &m->params[piece->param];
    return p->grad + piece->slice * p->grad_stride + piece->first * zoff_adam_dtype_bytes(p->grad_dtype);
}

/* Gradient buffers as the program passed them. */
zoff_given zoff_model_params_given(const zoff_model *m, size_t i)
{
    const zoff_model_param *p = &m->params[i];
    if (p->tie && zoff_model_params_owner(m, (zoff_param)i) == i)
        return m->ties.all[p->tie - 1].given;
    return (zoff_given){.grad = p->grad, .stride = p->grad_stride, .dtype = p->grad_dtype};
}

char *zoff_model_params_given_grad(const zoff_model *m, zoff_param p, size_t slice, zoff_dtype *out_dtype)
{
    const zoff_given given = zoff_model_params_given(m, p);
    *out_dtype = given.dtype;
    return given.grad ? given.grad + slice * given.stride : NULL;
}

char *zoff_model_params_own_grad(const zoff_model *m, zoff_param p, size_t slice, zoff_dtype *out_dtype)
{
    const zoff_model_param *param = &m->params[p];
    if (param->tie)
        return zoff_model_params_given_grad(m, p, slice, out_dtype);
    *out_dtype = param->grad_dtype;
    return param->grad ? param->grad + slice * param->grad_stride : NULL;
}

bool zoff_model_params_is_given(const zoff_model *m, zoff_param p, size_t slice)
{
    const zoff_model_param *param = &m->params[p];
    return m->flags[param->first_flag + slice] & (param->tie ? ZOFF_SLICE_GIVEN : ZOFF_SLICE_READY);
}
