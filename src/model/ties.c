/* SPDX-License-Identifier: Apache-2.0 */
/* ties.c: parameters that share their weights. Parameters with exactly the same weights are tied; the embedding and the head of
 * a language model often are. The first one registered owns the weights and the only states; the others are names for it.
 *
 * Each of them may have a gradient. The engine sums those of one micro-batch in fp32, in the order in which the parameters were
 * registered. Accumulation, reduction over ranks, norm and update then use the sum as the owner's gradient.
 *
 *      grad of wte      bf16 --.
 *                              +-- sum, fp32 --- the gradient of wte
 *      grad of lm_head  bf16 --'
 */
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

/* Check that no two buffers overlap in memory, of weights or gradients, of one parameter or two. `call` begins the message.
 * @return ERR_INVALID */
static zoff_status check_overlaps(const zoff_model *m, const char *call)
{
    regions r = {.all = NULL};
    zoff_status status = list_regions(m, &r);
    if (status == ZOFF_OK)
        status = check_regions(m, call, &r);
    zoff_base_mem_free(r.all);
    return status;
}

/* Fields that tied parameters have in common, and the parameter. */
typedef struct identity {
    uintptr_t value;
    size_t count, slices, stride;
    unsigned dtype;
    uint32_t param; /* parameter, which is not compared */
} identity;

static int compare_weights(const identity *a, const identity *b)
{
    const uint64_t left[] = {a->value, a->count, a->slices, a->stride, a->dtype},
                   right[] = {b->value, b->count, b->slices, b->stride, b->dtype};
    for (size_t i = 0; i < sizeof left / sizeof left[0]; i++) {
        if (left[i] != right[i])
            return left[i] < right[i] ? -1 : 1;
    }
    return 0;
}

static int by_identity(const void *left, const void *right)
{
    const identity *a = left, *b = right;
    const int order = compare_weights(a, b);
    return order ? order : a->param < b->param ? -1 : a->param > b->param;
}

static size_t list_identities(const zoff_model *m, identity *out)
{
    size_t count = 0;
    for (size_t i = 0; i < m->param_count; i++) {
        const zoff_model_param *p = &m->params[i];
        if (!p->frozen && !p->engine_owned && p->value && p->count)
            out[count++] = (identity){.value = (uintptr_t)p->value,
                                      .count = p->count,
                                      .slices = p->slices,
                                      .stride = p->slices > 1 ? p->value_stride : 0,
                                      .dtype = (unsigned)p->dtype,
                                      .param = (uint32_t)i};
    }
    return count;
}

/* Shared weights have one set of states, so they need one set of hyper-parameters, and one shape in a checkpoint. */
static zoff_status check(const zoff_model_param *owner, const zoff_model_param *p)
{
    char shape[ZOFF_SHAPE_BYTES], other[ZOFF_SHAPE_BYTES];
    ZOFF_FAIL_IF(p->group != owner->group, ZOFF_ERR_INVALID,
                 "zoff_engine_seal: %s and %s share their weights, but their groups are %u and %u: "
                 "shared weights need one set of hyper-parameters; give both the same group",
                 owner->name, p->name, owner->group, p->group);
    ZOFF_FAIL_IF(p->reduced != owner->reduced, ZOFF_ERR_INVALID,
                 "zoff_engine_seal: %s and %s share their weights, so their gradients are added up, but only those of %s are "
                 "reduced over the ranks: give both the same zoff_param_desc.reduced",
                 owner->name, p->name, owner->reduced ? owner->name : p->name);
    if (zoff_model_params_same_shape(owner, p))
        return ZOFF_OK;
    zoff_model_params_print_shape(owner, shape, sizeof shape);
    zoff_model_params_print_shape(p, other, sizeof other);
    return zoff_base_status_fail(ZOFF_ERR_INVALID,
                                 "zoff_engine_seal: %s and %s share their weights, but their shapes are %.300s and %.300s: "
                                 "give both the same zoff_param_desc.dims",
                                 owner->name, p->name, shape, other);
}

static zoff_status tie(zoff_model *m, const identity *same, size_t count)
{
    zoff_ties *t = &m->ties;
    zoff_model_param *owner = &m->params[same[0].param];
    for (size_t i = 1; i < count; i++)
        ZOFF_TRY(check(owner, &m->params[same[i].param]));
    ZOFF_TRY(zoff_base_array_reserve(&t->all, t->count, &t->capacity, t->count + 1, sizeof *t->all, "tied weights"));
    ZOFF_TRY(zoff_base_array_reserve(&t->members, t->member_count, &t->member_capacity, t->member_count + count,
                                     sizeof *t->members, "tied weights"));
    t->all[t->count++] = (zoff_tie){.owner = same[0].param,
                                    .first = t->member_count,
                                    .count = count,
                                    .given = {.grad = owner->grad, .stride = owner->grad_stride, .dtype = owner->grad_dtype}};
    for (size_t i = 0; i < count; i++) {
        zoff_model_param *p = &m->params[same[i].param];
        t->members[t->member_count++] = same[i].param;
        p->tie = (uint32_t)t->count;
        p->frozen = i > 0; /* other files treat it as frozen, because only the owner is trained */
    }
    owner->grad_dtype = ZOFF_F32;
    owner->grad_stride = owner->count * sizeof(float);
    return ZOFF_OK;
}

static zoff_status find(zoff_model *m, identity *list)
{
    const size_t count = list_identities(m, list);
    if (count)
        qsort(list, count, sizeof *list, by_identity);
    for (size_t first = 0, next; first < count; first = next) {
        for (next = first + 1; next < count && compare_weights(&list[first], &list[next]) == 0; next++)
            ;
        if (next > first + 1)
            ZOFF_TRY(tie(m, &list[first], next - first));
    }
    return check_overlaps(m, "zoff_engine_seal");
}

zoff_status zoff_model_ties_find(zoff_model *m)
{
    identity *list;
    ZOFF_TRY(zoff_base_mem_alloc(m->param_count, sizeof *list, "the list of parameters", &list));
    zoff_status status = find(m, list);
    zoff_base_mem_free(list);
    if (status < 0)
        zoff_model_ties_dissolve(m);
    ZOFF_TRY(status);
    m->ties.rebound = false;
    return ZOFF_OK;
}

void zoff_model_ties_dissolve(zoff_model *m)
{
    zoff_ties *t = &m->ties;
    for (size_t i = 0; i < t->count; i++) {
        const zoff_tie *one = &t->all[i];
        zoff_model_param *owner = &m->params[one->owner];
        owner->grad = one->given.grad;
        owner->grad_stride = one->given.stride;
        owner->grad_dtype = one->given.dtype;
        for (size_t k = 0; k < one->count; k++) {
            m->params[t->members[one->first + k]].tie = 0;
            m->params[t->members[one->first + k]].frozen = false;
        }
    }
    zoff_base_mem_free(t->all);
    zoff_base_mem_free(t->members);
    *t = (zoff_ties){.all = NULL};
}

zoff_status zoff_model_ties_check(zoff_model *m)
{
    if (!m->ties.rebound)
        return ZOFF_OK;
    ZOFF_TRY(check_overlaps(m, "zoff_step, after zoff_param_bind()"));
    m->ties.rebound = false;
    return ZOFF_OK;
}

uint64_t zoff_model_ties_bytes(const zoff_model *m)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < m->ties.count; i++) {
        const zoff_model_param *owner = &m->params[m->ties.all[i].owner];
        bytes += (uint64_t)owner->count * owner->slices * sizeof(float);
    }
    return bytes;
}

void zoff_model_ties_place(zoff_model *m, char *base)
{
    for (size_t i = 0; i < m->ties.count; i++) {
        zoff_model_param *owner = &m->params[m->ties.all[i].owner];
        owner->grad = base;
        base += owner->count * owner->slices * sizeof(float);
    }
}

void zoff_model_ties_bind(zoff_model *m, zoff_param p, void *value, void *grad)
{
    const zoff_tie *one = &m->ties.all[m->params[p].tie - 1];
    *(p == one->owner ? &m->ties.all[m->params[p].tie - 1].given.grad : &m->params[p].grad) = grad;
    for (size_t k = 0; value && k < one->count; k++)
        m->params[m->ties.members[one->first + k]].value = value;
}
