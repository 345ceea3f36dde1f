/* overlaps.c: finds buffers that overlap in memory. Overlapping weights would be updated twice, from different master weights,
 * and a step that writes weights over gradients would read what it has written. Two parameters with exactly the same weights
 * are tied instead: see ties.c. */
#include "zoff_model.h"

#include "array.h"
#include "mem.h"
#include "try.h"

#include <stdlib.h>

typedef enum region_kind { WEIGHTS, FROZEN, GRADIENT, KINDS } region_kind;

/* Memory of one parameter; of one slice, if there are gaps between slices. */
typedef struct region {
    uintptr_t from, to;
    uint32_t param;
    region_kind kind;
} region;

static int by_place(const void *left, const void *right)
{
    const region *a = left, *b = right;
    if (a->from != b->from)
        return a->from < b->from ? -1 : 1;
    return a->param != b->param ? (a->param < b->param ? -1 : 1) : (int)a->kind - (int)b->kind;
}

typedef struct regions {
    region *all;
    size_t count, capacity;
} regions;

static zoff_status add(regions *r, region_kind kind, uint32_t param, const char *base, size_t bytes, size_t stride,
                       size_t slices)
{
    const bool is_one = slices == 1 || stride == bytes;
    const size_t more = is_one ? 1 : slices;
    if (!base || !bytes)
        return ZOFF_OK;
    ZOFF_TRY(zoff_base_array_reserve(&r->all, r->count, &r->capacity, r->count + more, sizeof *r->all, "a list of buffers"));
    for (size_t i = 0; i < more; i++) {
        const uintptr_t from = (uintptr_t)base + i * stride;
        r->all[r->count++] =
            (region){.from = from, .to = from + (is_one ? slices * bytes : bytes), .param = param, .kind = kind};
    }
    return ZOFF_OK;
}

static zoff_status fail_overlap(const zoff_model *m, const char *call, const region *a, const region *b)
{
    const region *one = a->param < b->param || (a->param == b->param && a->kind != GRADIENT) ? a : b, *two = one == a ? b : a;
    const zoff_model_param *first = &m->params[one->param], *second = &m->params[two->param];
    if (one->kind == GRADIENT && two->kind == GRADIENT)
        return zoff_base_status_fail(ZOFF_ERR_INVALID,
                                     "%s: the gradients of %s and %s overlap in memory: give each a buffer of its own "
                                     "(zoff_param_desc.grad, zoff_param_bind()), or none and use zoff_grad_acquire()",
                                     call, first->name, second->name);
    if (one->kind == GRADIENT || two->kind == GRADIENT)
        return zoff_base_status_fail(
            ZOFF_ERR_INVALID,
            "%s: the gradient of %s and the weights of %s overlap in memory: give the gradient a buffer of its own "
            "(zoff_param_desc.grad, zoff_param_bind()), or none and use zoff_grad_acquire()",
            call, (one->kind == GRADIENT ? first : second)->name, (one->kind == GRADIENT ? second : first)->name);
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

/* Frozen weights are never written, so two frozen parameters may overlap. No other two regions may. */
static zoff_status check_regions(const zoff_model *m, const char *call, regions *r)
{
    region end[KINDS] = {{.to = 0}}; /* for each kind, the region that ends last so far */
    if (r->count)
        qsort(r->all, r->count, sizeof *r->all, by_place);
    for (size_t i = 0; i < r->count; i++) {
        const region *now = &r->all[i];
        for (region_kind kind = WEIGHTS; kind < KINDS; kind++) {
            if (end[kind].to > now->from && !(kind == FROZEN && now->kind == FROZEN))
                return fail_overlap(m, call, &end[kind], now);
        }
        if (now->to > end[now->kind].to)
            end[now->kind] = *now;
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

static zoff_status list_regions(const zoff_model *m, regions *r)
{
    for (size_t i = 0; i < m->param_count; i++) {
        const zoff_model_param *p = &m->params[i];
        const zoff_given given = zoff_model_params_given(m, i);
        const bool is_tied = p->tie != 0;
        if ((is_tied || !p->frozen) && !shares_gradient(m, i))
            ZOFF_TRY(add(r, GRADIENT, (uint32_t)i, given.grad, p->count * zoff_adam_dtype_bytes(given.dtype), given.stride,
                         p->slices));
        /* Engine-owned weights are only copied from `value` at seal. */
        if (!p->engine_owned && !is_name_only(m, i))
            ZOFF_TRY(add(r, p->frozen ? FROZEN : WEIGHTS, (uint32_t)i, p->value, p->count * zoff_adam_dtype_bytes(p->dtype),
                         p->value_stride, p->slices));
    }
    return ZOFF_OK;
}

zoff_status zoff_model_overlaps_check(const zoff_model *m, const char *call)
{
    regions r = {.all = NULL};
    zoff_status status = list_regions(m, &r);
    if (status == ZOFF_OK)
        status = check_regions(m, call, &r);
    zoff_base_mem_free(r.all);
    return status;
}
