/* overlaps.c: finds parameters whose buffers overlap in memory. Overlapping weights would be updated twice, from different
 * master weights. Two parameters with exactly the same weights are tied instead: see ties.c. */
#include "zoff_model.h"

#include "array.h"
#include "mem.h"
#include "try.h"

#include <stdlib.h>

/* Memory of one parameter; of one slice, if there are gaps between slices. */
typedef struct region {
    uintptr_t from, to;
    uint32_t param;
} region;

static int by_place(const void *left, const void *right)
{
    const region *a = left, *b = right;
    if (a->from != b->from)
        return a->from < b->from ? -1 : 1;
    return a->param < b->param ? -1 : a->param > b->param;
}

typedef struct regions {
    region *all;
    size_t count, capacity;
} regions;

static zoff_status add(regions *r, uint32_t param, const char *base, size_t bytes, size_t stride, size_t slices)
{
    const bool is_one = slices == 1 || stride == bytes;
    const size_t more = is_one ? 1 : slices;
    if (!base || !bytes)
        return ZOFF_OK;
    ZOFF_TRY(zoff_base_array_reserve(&r->all, r->count, &r->capacity, r->count + more, sizeof *r->all, "a list of buffers"));
    for (size_t i = 0; i < more; i++) {
        const uintptr_t from = (uintptr_t)base + i * stride;
        r->all[r->count++] = (region){.from = from, .to = from + (is_one ? slices * bytes : bytes), .param = param};
    }
    return ZOFF_OK;
}

static zoff_status fail_overlap(const zoff_model *m, const char *call, const char *what, uint32_t a, uint32_t b)
{
    const zoff_model_param *first = &m->params[a < b ? a : b], *second = &m->params[a < b ? b : a];
    if (what[0] == 'g')
        return zoff_base_status_fail(ZOFF_ERR_INVALID,
                                     "%s: the gradients of %s and %s overlap in memory: give each a buffer of its own "
                                     "(zoff_param_desc.grad, zoff_param_bind()), or none and use zoff_grad_acquire()",
                                     call, first->name, second->name);
    if (first->frozen != second->frozen)
        return zoff_base_status_fail(
            ZOFF_ERR_INVALID,
            "%s: the weights of %s and %s overlap in memory, but only %s is frozen, and its weights would "
            "change, too; freeze both or none",
            call, first->name, second->name, first->frozen ? first->name : second->name);
    return zoff_base_status_fail(
        ZOFF_ERR_INVALID,
        "%s: the weights of %s and %s overlap in memory: each would be updated from its own master weights. Register them "
        "once; or, "
        "if they are tied, register both before zoff_engine_seal() with the same value, count, slices, value_stride and dtype",
        call, first->name, second->name);
}

/* Frozen memory is never written, so two frozen parameters may overlap. */
static zoff_status check_regions(const zoff_model *m, const char *call, const char *what, regions *r)
{
    /* The region that ends last: of the trained parameters so far, and of the frozen ones. */
    region end[2] = {{.to = 0}, {.to = 0}};
    if (r->count)
        qsort(r->all, r->count, sizeof *r->all, by_place);
    for (size_t i = 0; i < r->count; i++) {
        const region *now = &r->all[i];
        const bool is_frozen = m->params[now->param].frozen;
        for (int k = 0; k < (is_frozen ? 1 : 2); k++) {
            if (end[k].to > now->from)
                return fail_overlap(m, call, what, end[k].param, now->param);
        }
        if (now->to > end[is_frozen].to)
            end[is_frozen] = *now;
    }
    return ZOFF_OK;
}

static bool is_name_only(const zoff_model *m, size_t i)
{
    return zoff_model_params_owner(m, (zoff_param)i) != i;
}

/* Tied parameters may pass the same gradient buffer, when the backward pass sums their gradients itself. */
static bool shares_gradient(const zoff_model *m, size_t i)
{
    const zoff_given own = zoff_model_params_given(m, i);
    const zoff_tie *tie = m->params[i].tie ? &m->ties.all[m->params[i].tie - 1] : NULL;
    for (size_t k = 0; tie && k < tie->count && m->ties.members[tie->first + k] < i; k++) {
        const zoff_given other = zoff_model_params_given(m, m->ties.members[tie->first + k]);
        if (other.grad == own.grad && other.stride == own.stride && other.dtype == own.dtype)
            return true;
    }
    return false;
}

static zoff_status list_regions(const zoff_model *m, bool gradients, regions *r)
{
    for (size_t i = 0; i < m->param_count; i++) {
        const zoff_model_param *p = &m->params[i];
        const zoff_given given = zoff_model_params_given(m, i);
        const bool is_tied = p->tie != 0;
        if (gradients && (is_tied || !p->frozen) && !shares_gradient(m, i))
            ZOFF_TRY(add(r, (uint32_t)i, given.grad, p->count * zoff_adam_dtype_bytes(given.dtype), given.stride, p->slices));
        /* Engine-owned weights are only copied from `value` at seal. */
        if (!gradients && !p->engine_owned && !is_name_only(m, i))
            ZOFF_TRY(add(r, (uint32_t)i, p->value, p->count * zoff_adam_dtype_bytes(p->dtype), p->value_stride, p->slices));
    }
    return ZOFF_OK;
}

zoff_status zoff_model_overlaps_check(const zoff_model *m, const char *call)
{
    zoff_status status = ZOFF_OK;
    for (int gradients = 0; gradients < 2 && status == ZOFF_OK; gradients++) {
        regions r = {.all = NULL};
        status = list_regions(m, gradients, &r);
        if (status == ZOFF_OK)
            status = check_regions(m, call, gradients ? "gradients" : "weights", &r);
        zoff_base_mem_free(r.all);
    }
    return status;
}
