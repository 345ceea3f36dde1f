/* ties.c: parameters that share their weights. Two that have exactly the same weights are tied, as the embedding and the head
 * of a language model often are: the first one registered owns the weights and their only states, the others are names for it.
 * Weights that overlap in any other way would be updated twice, by masters that know nothing of each other: that is refused.
 *
 * Each of them may have a gradient. Those of one micro-batch are added up in fp32, in the order in which the parameters were
 * registered, into a sum of the engine's; and that is the owner's gradient for all that comes after it: accumulation, other
 * ranks, the norm, the update.
 *
 *      grad of wte      bf16 --.
 *                              +-- sum, fp32 --- the gradient of wte
 *      grad of lm_head  bf16 --'
 */
#include "engine_priv.h"

#include "array.h"
#include "bits.h"
#include "clock.h"
#include "try.h"

#include <stdlib.h>
#include <string.h>

/* ---- overlaps ---- */

/* Memory of one parameter, or of one slice where there are gaps between them. */
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

static zoff_status fail_overlap(const zoff_engine *e, const char *call, const char *what, uint32_t a, uint32_t b)
{
    const zoff_engine_param *first = &e->params[a < b ? a : b], *second = &e->params[a < b ? b : a];
    if (what[0] == 'g')
        return zoff_base_status_fail(ZOFF_ERR_INVALID,
                                     "%s: the gradients of %s and %s overlap in memory: give each a buffer of its own "
                                     "(zoff_param_desc.grad, zoff_param_bind()), or none and use zoff_grad_acquire()",
                                     call, first->name, second->name);
    if (first->frozen != second->frozen)
        return zoff_base_status_fail(ZOFF_ERR_INVALID,
                                     "%s: the weights of %s and %s overlap in memory, and only %s is frozen: it would change "
                                     "all the same; freeze both or none",
                                     call, first->name, second->name, first->frozen ? first->name : second->name);
    return zoff_base_status_fail(
        ZOFF_ERR_INVALID,
        "%s: the weights of %s and %s overlap in memory: each would be updated by masters of its own. Register them once; or, "
        "if they are tied, register both before zoff_engine_seal() with the same value, count, slices, value_stride and dtype",
        call, first->name, second->name);
}

/* Memory that nobody writes may be shared: two frozen parameters may overlap. */
static zoff_status check_regions(const zoff_engine *e, const char *call, const char *what, regions *r)
{
    region end[2] = {{.to = 0}, {.to = 0}}; /* of the trained ones so far, and of the frozen ones, the one that goes furthest */
    if (r->count)
        qsort(r->all, r->count, sizeof *r->all, by_place);
    for (size_t i = 0; i < r->count; i++) {
        const region *now = &r->all[i];
        const bool is_frozen = e->params[now->param].frozen;
        for (int k = 0; k < (is_frozen ? 1 : 2); k++) {
            if (end[k].to > now->from)
                return fail_overlap(e, call, what, end[k].param, now->param);
        }
        if (now->to > end[is_frozen].to)
            end[is_frozen] = *now;
    }
    return ZOFF_OK;
}

static bool is_name_only(const zoff_engine *e, size_t i)
{
    return zoff_engine_params_owner(e, (zoff_param)i) != i;
}

/* The gradient of one that is tied may be another's: a backward pass that has added them up itself. */
static bool shares_gradient(const zoff_engine *e, size_t i)
{
    const zoff_given own = zoff_engine_params_given(e, i);
    const zoff_tie *tie = e->params[i].tie ? &e->ties.all[e->params[i].tie - 1] : NULL;
    for (size_t k = 0; tie && k < tie->count && e->ties.members[tie->first + k] < i; k++) {
        const zoff_given other = zoff_engine_params_given(e, e->ties.members[tie->first + k]);
        if (other.grad == own.grad && other.stride == own.stride && other.dtype == own.dtype)
            return true;
    }
    return false;
}

static zoff_status list_regions(const zoff_engine *e, bool gradients, regions *r)
{
    for (size_t i = 0; i < e->param_count; i++) {
        const zoff_engine_param *p = &e->params[i];
        const zoff_given given = zoff_engine_params_given(e, i);
        const bool is_tied = p->tie != 0;
        if (gradients && (is_tied || !p->frozen) && !shares_gradient(e, i))
            ZOFF_TRY(add(r, (uint32_t)i, given.grad, p->count * zoff_adam_dtype_bytes(given.dtype), given.stride, p->slices));
        if (!gradients && !p->engine_owned && !is_name_only(e, i)) /* which only starts from there */
            ZOFF_TRY(add(r, (uint32_t)i, p->value, p->count * zoff_adam_dtype_bytes(p->dtype), p->value_stride, p->slices));
    }
    return ZOFF_OK;
}

static zoff_status check_overlaps(const zoff_engine *e, const char *call)
{
    zoff_status status = ZOFF_OK;
    for (int gradients = 0; gradients < 2 && status == ZOFF_OK; gradients++) {
        regions r = {.all = NULL};
        status = list_regions(e, gradients, &r);
        if (status == ZOFF_OK)
            status = check_regions(e, call, gradients ? "gradients" : "weights", &r);
        zoff_base_mem_free(r.all);
    }
    return status;
}

zoff_status zoff_engine_ties_check(zoff_engine *e)
{
    if (!e->ties.rebound)
        return ZOFF_OK;
    ZOFF_TRY(check_overlaps(e, "zoff_step, after zoff_param_bind()"));
    e->ties.rebound = false;
    return ZOFF_OK;
}

/* ---- who is tied ---- */

/* What has to be the same. */
typedef struct identity {
    uintptr_t value;
    size_t count, slices, stride;
    unsigned dtype;
    uint32_t param; /* last */
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

static size_t list_identities(const zoff_engine *e, identity *out)
{
    size_t count = 0;
    for (size_t i = 0; i < e->param_count; i++) {
        const zoff_engine_param *p = &e->params[i];
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

static zoff_status tie(zoff_engine *e, const identity *same, size_t count)
{
    zoff_ties *t = &e->ties;
    zoff_engine_param *owner = &e->params[same[0].param];
    for (size_t i = 1; i < count; i++) {
        const zoff_engine_param *p = &e->params[same[i].param];
        ZOFF_FAIL_IF(p->group != owner->group, ZOFF_ERR_INVALID,
                     "zoff_engine_seal: %s and %s are tied, for they have the same weights, but their groups are %u and %u: "
                     "one master has one set of hyper-parameters; give both the same group",
                     owner->name, p->name, owner->group, p->group);
    }
    ZOFF_TRY(zoff_base_array_reserve(&t->all, t->count, &t->capacity, t->count + 1, sizeof *t->all, "tied weights"));
    ZOFF_TRY(zoff_base_array_reserve(&t->members, t->member_count, &t->member_capacity, t->member_count + count,
                                     sizeof *t->members, "tied weights"));
    t->all[t->count++] = (zoff_tie){.owner = same[0].param,
                                    .first = t->member_count,
                                    .count = count,
                                    .given = {.grad = owner->grad, .stride = owner->grad_stride, .dtype = owner->grad_dtype}};
    for (size_t i = 0; i < count; i++) {
        zoff_engine_param *p = &e->params[same[i].param];
        t->members[t->member_count++] = same[i].param;
        p->tie = (uint32_t)t->count;
        p->frozen = i > 0; /* to all other files: nothing of it is trained but by its owner */
    }
    owner->grad_dtype = ZOFF_F32;
    owner->grad_stride = owner->count * sizeof(float);
    return ZOFF_OK;
}

static zoff_status find(zoff_engine *e, identity *list)
{
    const size_t count = list_identities(e, list);
    if (count)
        qsort(list, count, sizeof *list, by_identity);
    for (size_t first = 0, next; first < count; first = next) {
        for (next = first + 1; next < count && compare_weights(&list[first], &list[next]) == 0; next++)
            ;
        if (next > first + 1)
            ZOFF_TRY(tie(e, &list[first], next - first));
    }
    return check_overlaps(e, "zoff_engine_seal");
}

zoff_status zoff_engine_ties_find(zoff_engine *e)
{
    identity *list;
    ZOFF_TRY(zoff_base_mem_alloc(e->param_count, sizeof *list, "the list of parameters", &list));
    zoff_status status = find(e, list);
    zoff_base_mem_free(list);
    if (status < 0)
        zoff_engine_ties_dissolve(e);
    ZOFF_TRY(status);
    e->ties.rebound = false;
    zoff_engine_wire_measure(e);
    return ZOFF_OK;
}

void zoff_engine_ties_dissolve(zoff_engine *e)
{
    zoff_ties *t = &e->ties;
    for (size_t i = 0; i < t->count; i++) {
        const zoff_tie *one = &t->all[i];
        zoff_engine_param *owner = &e->params[one->owner];
        owner->grad = one->given.grad;
        owner->grad_stride = one->given.stride;
        owner->grad_dtype = one->given.dtype;
        for (size_t k = 0; k < one->count; k++) {
            e->params[t->members[one->first + k]].tie = 0;
            e->params[t->members[one->first + k]].frozen = false;
        }
    }
    zoff_base_mem_free(t->all);
    zoff_base_mem_free(t->members);
    *t = (zoff_ties){.all = NULL};
}

bool zoff_engine_ties_has(const zoff_engine *e, zoff_param p)
{
    return e->params[p].tie != 0;
}

/* ---- memory ---- */

uint64_t zoff_engine_ties_bytes(const zoff_engine *e)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < e->ties.count; i++) {
        const zoff_engine_param *owner = &e->params[e->ties.all[i].owner];
        bytes += (uint64_t)owner->count * owner->slices * sizeof(float);
    }
    return bytes;
}

zoff_status zoff_engine_ties_open(zoff_engine *e)
{
    zoff_ties *t = &e->ties;
    const uint64_t bytes = zoff_engine_ties_bytes(e);
    char *at = NULL;
    if (bytes == 0)
        return ZOFF_OK;
    if (zoff_engine_device_is(e)) {
        void *there;
        zoff_status status = e->accel->ops->alloc(e->accel, bytes, &there);
        if (status < 0)
            return zoff_base_status_prefix(
                status, "sums of the gradients of tied weights, %s of the device: ", zoff_base_words_bytes(bytes));
        at = t->there = there;
    } else {
        ZOFF_TRY(zoff_base_map_alloc(bytes, "sums of the gradients of tied weights", ZOFF_MAP_INTERLEAVED, &t->sums));
        at = t->sums.base;
    }
    for (size_t i = 0; i < t->count; i++) {
        zoff_engine_param *owner = &e->params[t->all[i].owner];
        owner->grad = at;
        at += owner->count * owner->slices * sizeof(float);
    }
    return ZOFF_OK;
}

/* Nothing is in a stream any more. */
void zoff_engine_ties_close(zoff_engine *e)
{
    if (e->ties.there)
        e->accel->ops->free(e->accel, e->ties.there);
    zoff_base_map_free(&e->ties.sums);
    zoff_engine_ties_dissolve(e);
}

/* ---- gradients ---- */

void zoff_engine_ties_bind(zoff_engine *e, zoff_param p, void *value, void *grad)
{
    const zoff_tie *one = &e->ties.all[e->params[p].tie - 1];
    if (grad)
        *(p == one->owner ? &e->ties.all[e->params[p].tie - 1].given.grad : &e->params[p].grad) = grad;
    for (size_t k = 0; value && k < one->count; k++)
        e->params[e->ties.members[one->first + k]].value = value;
}

static bool is_given(const zoff_engine *e, uint32_t member, size_t slice)
{
    return e->flags[e->params[member].first_flag + slice] & ZOFF_SLICE_GIVEN;
}

/* Another of them may have brought the same gradient: it is one. */
static bool is_counted(const zoff_engine *e, const zoff_tie *one, size_t end, size_t slice, const char *grad)
{
    zoff_dtype dtype;
    for (size_t k = 0; k < end; k++) {
        const uint32_t member = e->ties.members[one->first + k];
        if (is_given(e, member, slice) && zoff_engine_params_given_grad(e, member, slice, &dtype) == grad)
            return true;
    }
    return false;
}

/* Add up what was handed over of a slice: it is the owner's gradient from here on. */
static zoff_status add_up(zoff_engine *e, const zoff_tie *one, size_t slice)
{
    const zoff_engine_param *owner = &e->params[one->owner];
    bool first = true;
    for (size_t k = 0; k < one->count; k++) {
        const uint32_t member = e->ties.members[one->first + k];
        const size_t number = e->params[member].first_flag + slice;
        zoff_accumulate_piece piece = {.count = owner->count, .first = first};
        const char *own = zoff_engine_params_given_grad(e, member, slice, &piece.dtype);
        if (!is_given(e, member, slice) || (own && is_counted(e, one, k, slice, own)))
            continue;
        piece.grad = own ? own : zoff_engine_grads_at(e, number);
        piece.sum = (float *)(void *)(owner->grad + slice * owner->grad_stride);
        ZOFF_TRY(e->link->add(e, &piece)); /* by whoever has the memory */
        first = false;
    }
    for (size_t k = 0; k < one->count && !zoff_engine_device_is(e); k++)
        zoff_engine_grads_let_go(e, e->params[e->ties.members[one->first + k]].first_flag + slice);
    return zoff_engine_intake_take(e, one->owner, slice, e->device.compute);
}

static size_t count_given(const zoff_engine *e, const zoff_tie *one, size_t slice)
{
    size_t count = 0;
    for (size_t k = 0; k < one->count; k++)
        count += is_given(e, e->ties.members[one->first + k], slice);
    return count;
}

zoff_status zoff_engine_ties_take(zoff_engine *e, zoff_param p, size_t slice, void *native_stream)
{
    const zoff_tie *one = &e->ties.all[e->params[p].tie - 1];
    uint8_t *flag = &e->flags[e->params[p].first_flag + slice];
    ZOFF_TRY(e->link->follow(e, native_stream));
    if (zoff_engine_device_is(e))
        ZOFF_TRY(zoff_engine_link_compute_follow(e));
    *flag |= ZOFF_SLICE_GIVEN;
    if (count_given(e, one, slice) < one->count)
        return ZOFF_OK; /* the others may still come */
    zoff_status status = add_up(e, one, slice);
    if (status < 0)
        *flag = (uint8_t)(*flag & ~ZOFF_SLICE_GIVEN);
    ZOFF_TRY(status);
    e->link->taken(e, one->owner, slice);
    return ZOFF_OK;
}

zoff_status zoff_engine_ties_settle(zoff_engine *e, bool all)
{
    for (size_t i = 0; i < e->ties.count; i++) {
        const zoff_tie *one = &e->ties.all[i];
        const zoff_engine_param *owner = &e->params[one->owner];
        for (size_t slice = 0; slice < owner->slices; slice++) {
            for (size_t k = 0; all && k < one->count; k++) {
                const uint32_t member = e->ties.members[one->first + k];
                zoff_dtype dtype;
                const bool has = zoff_engine_params_given_grad(e, member, slice, &dtype) ||
                                 zoff_engine_grads_at(e, e->params[member].first_flag + slice);
                if (has && !is_given(e, member, slice))
                    ZOFF_TRY(zoff_engine_ties_take(e, member, slice, NULL));
            }
            if (!(e->flags[owner->first_flag + slice] & ZOFF_SLICE_READY) && count_given(e, one, slice))
                ZOFF_TRY(add_up(e, one, slice));
        }
    }
    return ZOFF_OK;
}
