/* SPDX-License-Identifier: Apache-2.0 */
/* param_cache.c: engine-owned weights, made whole for the caller slice by slice.
 *
 * A slice that is one piece in the memory of its home is lent directly from there, if that is memory of the place. Any other is
 * assembled in an arena, in host memory or on a device:
 *
 *      | persistent slices | the others, first fit ............ |
 *                      ^ no more than stage3_max_live_parameters elements
 *
 * After its release a slice stays there until its room is needed; the least recently used slice is evicted first. Small slices
 * are persistent: they are in the arena from seal on, and each step updates them. All others are dropped when a step changes
 * the weights. */
#include "lending.h"

#include "bits.h"
#include "try.h"

#include <string.h>

enum { ALIGN = 64, NONE = UINT32_MAX };

/* ---- sizes ---- */

bool zoff_lending_param_cache_persists(const zoff_lending *l, size_t count, size_t *elements)
{
    const bool persists = count && count <= l->values->persistent_slice && *elements + count <= l->values->persistent_count;
    *elements += persists ? count : 0;
    return persists;
}

/* Describe one slice, as the plan divides it. */
static zoff_cached_slice describe(const zoff_lending *l, const zoff_plan *plan, size_t param, size_t slice)
{
    const zoff_model_param *p = &l->model->params[param];
    zoff_cached_slice s = {.first_run = SIZE_MAX, .first_piece = SIZE_MAX, .below = NONE, .above = NONE};
    if (!p->engine_owned || !p->count)
        return s;
    s.first_run = zoff_zero_plan_find_run(plan, (uint32_t)param, slice, 0);
    s.count = p->count;
    s.element_bytes = zoff_adam_dtype_bytes(p->dtype);
    s.bytes = zoff_base_bits_align(p->count * zoff_adam_dtype_bytes(p->dtype), ALIGN);
    l->source->locate(l, plan, param, slice, &s);
    return s;
}

/* Elements that may be whole at a time: stage3_max_live_parameters. If that is 0: one slice of each parameter, which is enough
 * for a pass that goes layer by layer. */
uint64_t zoff_lending_param_cache_most(const zoff_lending *l)
{
    uint64_t most = l->values->live_count;
    if (most)
        return most;
    for (size_t i = 0; i < l->model->param_count; i++)
        most += l->model->params[i].engine_owned ? l->model->params[i].count : 0;
    return most;
}

/* Sums over all slices. */
typedef struct room {
    size_t persistent_elements, persistent_bytes;
    uint64_t other_bytes, other_count; /* slices that are not persistent */
    size_t element_bytes;              /* bytes of the widest element */
} room;

/* Add up all slices, and store each one's description in `out` unless NULL. */
static room measure(const zoff_lending *l, const zoff_plan *plan, zoff_cached_slice *out)
{
    room r = {.element_bytes = 0};
    for (size_t i = 0; i < l->model->param_count; i++) {
        for (size_t slice = 0; l->model->params[i].engine_owned && slice < l->model->params[i].slices; slice++) {
            zoff_cached_slice s = describe(l, plan, i, slice);
            s.persistent = s.direct || zoff_lending_param_cache_persists(l, s.count, &r.persistent_elements);
            r.persistent_bytes += s.persistent && !s.direct ? s.bytes : 0;
            r.other_bytes += s.persistent ? 0 : s.bytes;
            r.other_count += !s.persistent;
            r.element_bytes = zoff_base_bits_max(r.element_bytes, zoff_adam_dtype_bytes(l->model->params[i].dtype));
            if (out)
                out[l->model->params[i].first_flag + slice] = s;
        }
    }
    return r;
}

void zoff_lending_param_cache_list(const zoff_lending *l, const zoff_plan *plan, zoff_cached_slice *out)
{
    (void)measure(l, plan, out);
}

/* Bytes of the arena: all persistent slices, and as many of the others as may be whole at a time, each with padding. */
static uint64_t arena_bytes(const zoff_lending *l, const room *r)
{
    const uint64_t cache = zoff_lending_param_cache_most(l);
    const uint64_t padding = ALIGN * zoff_base_bits_min(r->other_count, cache);
    uint64_t most;
    if (__builtin_mul_overflow(cache, (uint64_t)r->element_bytes, &most) || __builtin_add_overflow(most, padding, &most))
        most = UINT64_MAX;
    return r->persistent_bytes + zoff_base_bits_min(r->other_bytes, most);
}

void zoff_lending_param_cache_plan(const zoff_lending *l, const zoff_plan *plan, zoff_plan_info *info)
{
    const room r = measure(l, plan, NULL);
    if (zoff_model_params_any_owned(l->model))
        l->place->plan(l, plan, r.persistent_bytes, arena_bytes(l, &r), info);
}

/* Fail at seal, and not after hours of work, if a slice can never be lent. */
static zoff_status check_largest(const zoff_lending *l)
{
    const uint64_t most = zoff_lending_param_cache_most(l);
    for (size_t i = 0; i < l->model->param_count; i++) {
        const zoff_model_param *p = &l->model->params[i];
        for (size_t slice = 0; p->engine_owned && slice < p->slices; slice++) {
            const zoff_cached_slice *s = &l->cache.slices[p->first_flag + slice];
            ZOFF_FAIL_IF(!s->persistent && s->count > most, ZOFF_ERR_INVALID,
                         "a slice of %s has %zu elements, and stage3_max_live_parameters is %llu: it could never be fetched; "
                         "raise that key",
                         p->name, s->count, (unsigned long long)most);
        }
    }
    return ZOFF_OK;
}

zoff_status zoff_lending_param_cache_open(zoff_lending *l)
{
    zoff_param_cache *cache = &l->cache;
    *cache = (zoff_param_cache){.lowest = NONE, .latest = NONE};
    if (!zoff_model_params_any_owned(l->model))
        return ZOFF_OK;
    ZOFF_FAIL_IF(l->model->slice_count >= NONE, ZOFF_ERR_INVALID,
                 "%zu slices are more than the %u that an engine with engine_owned weights may have", l->model->slice_count,
                 NONE - 1);
    ZOFF_TRY(zoff_base_mem_alloc(l->model->slice_count, sizeof *cache->slices, "the table of slices", &cache->slices));
    const room r = measure(l, l->plan, cache->slices);
    ZOFF_TRY(check_largest(l));
    ZOFF_TRY(l->place->open(l, r.persistent_bytes, arena_bytes(l, &r)));
    for (size_t i = 0; i < l->model->slice_count; i++) {
        zoff_cached_slice *s = &cache->slices[i];
        s->is_stale = true;
        if (!s->persistent || s->direct)
            continue;
        s->at = cache->base + cache->persistent_bytes;
        cache->persistent_bytes += s->bytes;
    }
    return ZOFF_OK;
}

void zoff_lending_param_cache_attach(zoff_lending *l)
{
    for (size_t i = 0; l->store && i < l->model->slice_count; i++) {
        zoff_cached_slice *s = &l->cache.slices[i];
        char *base;
        if (!s->direct)
            continue;
        /* In DRAM and on a device the call never has to wait. */
        if (l->home->try_to_borrow(l, l->plan->pieces[s->first_piece].bucket, &base) == ZOFF_OK)
            s->at = base + l->plan->pieces[s->first_piece].weight_offset;
    }
    (void)zoff_lending_held_let_go(l); /* no copy was enqueued yet */
}

void zoff_lending_param_cache_close(zoff_lending *l)
{
    zoff_param_cache *cache = &l->cache;
    if (cache->base && cache->base != cache->arena.base)
        l->accel->ops->free(l->accel, cache->base);
    zoff_base_map_free(&cache->arena);
    zoff_base_mem_free(cache->slices);
    zoff_base_mem_free(cache->before.slices);
    zoff_base_mem_free(cache->now.slices);
    *cache = (zoff_param_cache){.lowest = NONE, .latest = NONE};
}

void zoff_lending_param_cache_leave(zoff_lending *l)
{
    l->cache.arena = l->there.bounce = l->secondary.staging = (zoff_map){.base = NULL};
    l->cache.base = NULL;
}

/* ---- the arena ---- */

/* Place a slice in the first gap that is large enough: between two neighbours, before the first, or after the last. The search
 * starts above `below`. */
static bool place_above(zoff_param_cache *cache, uint32_t number, uint32_t below)
{
    zoff_cached_slice *s = &cache->slices[number];
    const zoff_cached_slice *from = below == NONE ? NULL : &cache->slices[below];
    char *at = from ? from->at + from->bytes : cache->base + cache->persistent_bytes;
    const char *end = cache->base + cache->bytes;
    uint32_t above = from ? from->above : cache->lowest;
    while (above != NONE && (size_t)(cache->slices[above].at - at) < s->bytes) {
        at = cache->slices[above].at + cache->slices[above].bytes;
        below = above;
        above = cache->slices[above].above;
    }
    if (above == NONE && (size_t)(end - at) < s->bytes)
        return false;
    s->at = at;
    s->below = below;
    s->above = above;
    *(below == NONE ? &cache->lowest : &cache->slices[below].above) = number;
    if (above != NONE)
        cache->slices[above].below = number;
    cache->elements += s->count;
    cache->latest = number;
    return true;
}

/* A pass fills the arena from one end to the other, so the gap after the latest slice is tried first. */
bool zoff_lending_param_cache_place(zoff_param_cache *cache, uint32_t number)
{
    return (cache->latest != NONE && place_above(cache, number, cache->latest)) || place_above(cache, number, NONE);
}

void zoff_lending_param_cache_remove(zoff_lending *l, zoff_cached_slice *s)
{
    zoff_param_cache *cache = &l->cache;
    l->place->vacate(l, s);
    *(s->below == NONE ? &cache->lowest : &cache->slices[s->below].above) = s->above;
    if (s->above != NONE)
        cache->slices[s->above].below = s->below;
    if (cache->latest == (uint32_t)(s - cache->slices))
        cache->latest = s->below;
    s->at = NULL;
    s->filled = 0;
    cache->elements -= s->count;
    cache->ahead_elements -= s->ahead ? s->count : 0;
    s->ahead = false;
}

zoff_cached_slice *zoff_lending_param_cache_oldest_idle(zoff_param_cache *cache, bool also_ahead)
{
    zoff_cached_slice *oldest = NULL;
    for (uint32_t i = cache->lowest; i != NONE; i = cache->slices[i].above) {
        zoff_cached_slice *s = &cache->slices[i];
        if (!s->lent && (also_ahead || !s->ahead) && (!oldest || s->used < oldest->used))
            oldest = s;
    }
    return oldest;
}

zoff_status zoff_lending_param_cache_check(const zoff_lending *l, zoff_param first, size_t count, const char *call)
{
    for (size_t i = first; l->cache.lent && i < first + count; i++) {
        const zoff_model_param *p = &l->model->params[i];
        for (size_t slice = 0; p->engine_owned && slice < p->slices; slice++) {
            ZOFF_FAIL_IF(l->cache.slices[p->first_flag + slice].lent, ZOFF_ERR_STATE,
                         "%s: slice %zu of %s is still lent (zoff_param_fetch()); call zoff_param_release() first", call, slice,
                         p->name);
        }
    }
    return ZOFF_OK;
}

void zoff_lending_param_cache_clear(zoff_lending *l)
{
    zoff_param_cache *cache = &l->cache;
    cache->in_step = false;
    cache->placed = 0;
    (void)zoff_lending_held_let_go(l); /* copies have settled, or the communicator is broken */
    if (l->store)
        l->place->vacate(l, NULL);
    for (uint32_t i = cache->lowest, above; i != NONE; i = above) {
        above = cache->slices[i].above;
        if (!cache->slices[i].lent)
            zoff_lending_param_cache_remove(l, &cache->slices[i]);
    }
}

/* Where the host has the weights of a persistent slice, from `at` in the arena on. */
static char *host_copy(const zoff_lending *l, const zoff_cached_slice *s)
{
    return (char *)l->cache.arena.base + (s->at - l->cache.base);
}

/* A slice that has a place in the arena already is filled when its chunks are updated, if that is in the order of its
 * elements. Otherwise its fetch reads them. */
static void take_updated(zoff_lending *l, zoff_cached_slice *s, const zoff_plan_piece *piece, const char *weights)
{
    const bool is_next = s->at && s->first_piece != SIZE_MAX && s->filled == piece->first;
    if (!is_next || !l->cache.in_step || !l->place->is_at_once)
        return;
    memcpy(s->at + piece->first * s->element_bytes, weights + piece->weight_offset, piece->count * s->element_bytes);
    s->filled += piece->count;
}

void zoff_lending_param_cache_refresh(zoff_lending *l, size_t chunk, const char *weights, bool all)
{
    const zoff_plan_chunk *c = &l->plan->chunks[chunk];
    for (size_t i = 0; weights && i < c->piece_count; i++) {
        const zoff_plan_piece *piece = &l->plan->pieces[c->first_piece + i];
        const zoff_model_param *p = &l->model->params[piece->param];
        zoff_cached_slice *s = &l->cache.slices[p->first_flag + piece->slice];
        if (!p->engine_owned || s->direct)
            continue;
        if (!s->persistent)
            take_updated(l, s, piece, weights);
        else if (all || *zoff_model_params_flag(l->model, piece))
            memcpy(host_copy(l, s) + piece->first * s->element_bytes, weights + piece->weight_offset,
                   piece->count * s->element_bytes);
    }
}

static const zoff_cached_slice *slice_of(const zoff_lending *l, const zoff_plan_piece *piece, size_t *out_skip)
{
    const zoff_model_param *p = &l->model->params[piece->param];
    *out_skip = piece->first * zoff_adam_dtype_bytes(p->dtype);
    return &l->cache.slices[p->first_flag + piece->slice];
}

/* A step leaves slices without a gradient as they are. */
bool zoff_lending_param_cache_is_new(const zoff_lending *l, size_t number)
{
    const zoff_slice_buckets in = l->model->slice_buckets[number];
    if (!l->is_updated || !zoff_model_slices_has(l->model, number))
        return true;
    bool all = true;
    for (size_t b = in.first; b <= in.last && all; b++)
        all = l->is_new[b];
    return all;
}

bool zoff_lending_param_cache_is_persistent(const zoff_lending *l, zoff_param p, size_t slice)
{
    return l->cache.slices && l->cache.slices[l->model->params[p].first_flag + slice].persistent;
}

char *zoff_lending_param_cache_persistent(const zoff_lending *l, const zoff_plan_piece *piece)
{
    size_t skip;
    const zoff_cached_slice *s = slice_of(l, piece, &skip);
    return host_copy(l, s) + skip;
}

char *zoff_lending_param_cache_lent(const zoff_lending *l, const zoff_plan_piece *piece)
{
    size_t skip;
    return slice_of(l, piece, &skip)->at + skip;
}

zoff_status zoff_lending_param_cache_set(zoff_lending *l, const zoff_plan_piece *piece, size_t first_byte, const char *from,
                                         size_t bytes)
{
    size_t skip;
    if (!l->cache.slices)
        return ZOFF_OK;
    const zoff_cached_slice *s = slice_of(l, piece, &skip);
    if (!s->persistent)
        return l->source->set(l, piece, first_byte, from, bytes);
    if (s->direct)
        return ZOFF_OK;
    memcpy(host_copy(l, s) + skip + first_byte, from, bytes);
    return l->place->follow(l, s, skip + first_byte, bytes);
}
