/* tied_grads.c: the gradients of parameters that share their weights are added up in fp32, in the order in which the parameters
 * were registered. The sum is the gradient of the parameter that owns the weights: see model/ties.c. */
#include "engine_priv.h"

#include "try.h"

zoff_status zoff_engine_tied_grads_open(zoff_engine *e)
{
    const uint64_t bytes = zoff_model_ties_bytes(&e->model);
    char *base;
    if (bytes == 0)
        return ZOFF_OK;
    const zoff_status status = e->link->sums_alloc(e, bytes, &base);
    if (status < 0)
        return zoff_base_status_prefix(status, "sums of the gradients of tied weights, %s: ", zoff_base_words_bytes(bytes));
    zoff_model_ties_place(&e->model, base);
    return ZOFF_OK;
}

void zoff_engine_tied_grads_close(zoff_engine *e)
{
    if (e->tied_sums.device)
        e->accel->ops->free(e->accel, e->tied_sums.device);
    zoff_base_map_free(&e->tied_sums.host);
    e->tied_sums.device = NULL;
    zoff_model_ties_dissolve(&e->model);
}

static bool is_given(const zoff_model *m, uint32_t member, size_t slice)
{
    return m->flags[m->params[member].first_flag + slice] & ZOFF_SLICE_GIVEN;
}

/* Another of them may have brought the same gradient: it is one. */
static bool is_counted(const zoff_model *m, const zoff_tie *one, size_t end, size_t slice, const char *grad)
{
    zoff_dtype dtype;
    for (size_t k = 0; k < end; k++) {
        const uint32_t member = m->ties.members[one->first + k];
        if (is_given(m, member, slice) && zoff_model_params_given_grad(m, member, slice, &dtype) == grad)
            return true;
    }
    return false;
}

/* Add up what was handed over of a slice: it is the owner's gradient from here on. */
static zoff_status add_up(zoff_engine *e, const zoff_tie *one, size_t slice)
{
    const zoff_model *m = &e->model;
    const zoff_model_param *owner = &m->params[one->owner];
    bool first = true;
    for (size_t k = 0; k < one->count; k++) {
        const uint32_t member = m->ties.members[one->first + k];
        const size_t number = m->params[member].first_flag + slice;
        zoff_accumulate_piece piece = {.count = owner->count, .first = first};
        const char *own = zoff_model_params_given_grad(m, member, slice, &piece.dtype);
        if (!is_given(m, member, slice) || (own && is_counted(m, one, k, slice, own)))
            continue;
        piece.grad = own ? own : zoff_engine_grads_at(e, number);
        piece.sum = (float *)(void *)(owner->grad + slice * owner->grad_stride);
        ZOFF_TRY(e->link->add(e, &piece)); /* by whoever has the memory */
        first = false;
    }
    for (size_t k = 0; k < one->count; k++)
        e->link->added(e, m->params[m->ties.members[one->first + k]].first_flag + slice);
    return zoff_engine_intake_take(e, one->owner, slice, e->device.compute);
}

static size_t count_given(const zoff_model *m, const zoff_tie *one, size_t slice)
{
    size_t count = 0;
    for (size_t k = 0; k < one->count; k++)
        count += is_given(m, m->ties.members[one->first + k], slice);
    return count;
}

zoff_status zoff_engine_tied_grads_take(zoff_engine *e, zoff_param p, size_t slice, void *native_stream)
{
    const zoff_model *m = &e->model;
    const zoff_tie *one = &m->ties.all[m->params[p].tie - 1];
    uint8_t *flag = &m->flags[m->params[p].first_flag + slice];
    ZOFF_TRY(e->link->follow(e, native_stream));
    ZOFF_TRY(e->link->add_follow(e));
    *flag |= ZOFF_SLICE_GIVEN;
    if (count_given(m, one, slice) < one->count)
        return ZOFF_OK; /* the others may still come */
    zoff_status status = add_up(e, one, slice);
    if (status < 0)
        *flag = (uint8_t)(*flag & ~ZOFF_SLICE_GIVEN);
    ZOFF_TRY(status);
    e->link->taken(e, one->owner, slice);
    return ZOFF_OK;
}

zoff_status zoff_engine_tied_grads_settle(zoff_engine *e, bool all)
{
    const zoff_model *m = &e->model;
    for (size_t i = 0; i < m->ties.count; i++) {
        const zoff_tie *one = &m->ties.all[i];
        const zoff_model_param *owner = &m->params[one->owner];
        for (size_t slice = 0; slice < owner->slices; slice++) {
            for (size_t k = 0; all && k < one->count; k++) {
                const uint32_t member = m->ties.members[one->first + k];
                zoff_dtype dtype;
                const bool has = zoff_model_params_given_grad(m, member, slice, &dtype) ||
                                 zoff_engine_grads_at(e, m->params[member].first_flag + slice);
                if (has && !is_given(m, member, slice))
                    ZOFF_TRY(zoff_engine_tied_grads_take(e, member, slice, NULL));
            }
            if (!(m->flags[owner->first_flag + slice] & ZOFF_SLICE_READY) && count_given(m, one, slice))
                ZOFF_TRY(add_up(e, one, slice));
        }
    }
    return ZOFF_OK;
}
