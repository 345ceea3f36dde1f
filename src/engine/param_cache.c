/* param_cache.c: weights that the engine keeps, made whole for the caller slice by slice.
 *
 * Where a slice lies in one piece in the DRAM of its store it is lent there. Any other is copied together into an arena,
 *
 *      | persistent slices | the others, first fit ............ |
 *                      ^ no more than stage3_max_live_parameters elements
 *
 * and stays there after it is given back, until its room is needed: the one that was asked for longest ago goes first.
 * Persistent slices, the small ones, are there from seal on and are brought up to date by each step; all others are gone when a
 * step changes the weights. */
#include "engine_priv.h"

#include "bits.h"
#include "try.h"

#include <string.h>

enum { ALIGN = 64, NONE = UINT32_MAX };

/* ---- what there is ---- */

static bool is_streamed(const zoff_engine *e)
{
    return e->settings.values.weights.tier == ZOFF_TIER_NVME;
}

static bool is_persistent(const zoff_engine *e, const zoff_cached_slice *s, size_t persistent_elements)
{
    const zoff_weight_values *values = &e->settings.values.weights;
    return s->direct || (s->count <= values->persistent_slice && persistent_elements + s->count <= values->persistent_count);
}

/* One slice as the plan cuts it. */
static zoff_cached_slice describe(const zoff_engine *e, const zoff_plan *plan, size_t param, size_t slice)
{
    const zoff_engine_param *p = &e->params[param];
    zoff_cached_slice s = {.first_run = SIZE_MAX, .first_piece = SIZE_MAX, .below = NONE, .above = NONE};
    if (!p->engine_owned || !p->count)
        return s;
    s.first_run = zoff_zero_plan_find_run(plan, (uint32_t)param, slice, 0);
    if (plan->ranks == 1 || plan->replicated)
        s.first_piece = zoff_zero_plan_find(plan, (uint32_t)param, slice, 0);
    s.count = p->count;
    s.bytes = zoff_base_bits_align(p->count * zoff_adam_dtype_bytes(p->dtype), ALIGN);
    s.direct = !is_streamed(e) && (plan->ranks == 1 || plan->replicated) && plan->pieces[s.first_piece].count == p->count;
    return s;
}

/* Elements that may be whole at a time: stage3_max_live_parameters; of 0 one slice of each parameter, which is what a pass
 * holds that goes layer by layer. */
uint64_t zoff_engine_param_cache_most(const zoff_engine *e)
{
    uint64_t most = e->settings.values.weights.live_count;
    if (most)
        return most;
    for (size_t i = 0; i < e->param_count; i++)
        most += e->params[i].engine_owned ? e->params[i].count : 0;
    return most;
}

/* Sums over all slices; those of `out` where it is given. */
typedef struct room {
    size_t persistent_elements, persistent_bytes;
    uint64_t other_bytes, other_count; /* slices */
    size_t element_bytes;              /* the largest */
} room;

static room measure(const zoff_engine *e, const zoff_plan *plan, zoff_cached_slice *out)
{
    room r = {.element_bytes = 0};
    for (size_t i = 0; i < e->param_count; i++) {
        for (size_t slice = 0; e->params[i].engine_owned && slice < e->params[i].slices; slice++) {
            zoff_cached_slice s = describe(e, plan, i, slice);
            s.persistent = s.count && is_persistent(e, &s, r.persistent_elements);
            r.persistent_elements += s.persistent && !s.direct ? s.count : 0;
            r.persistent_bytes += s.persistent && !s.direct ? s.bytes : 0;
            r.other_bytes += s.persistent ? 0 : s.bytes;
            r.other_count += !s.persistent;
            r.element_bytes = zoff_base_bits_max(r.element_bytes, zoff_adam_dtype_bytes(e->params[i].dtype));
            if (out)
                out[e->params[i].first_flag + slice] = s;
        }
    }
    return r;
}

/* Of the others no more than what may be live at a time, each with its padding. */
static uint64_t arena_bytes(const zoff_engine *e, const room *r)
{
    const uint64_t live = zoff_engine_param_cache_most(e);
    const uint64_t padding = ALIGN * zoff_base_bits_min(r->other_count, live);
    uint64_t most;
    if (__builtin_mul_overflow(live, (uint64_t)r->element_bytes, &most) || __builtin_add_overflow(most, padding, &most))
        most = UINT64_MAX;
    return r->persistent_bytes + zoff_base_bits_min(r->other_bytes, most);
}

uint64_t zoff_engine_param_cache_room(const zoff_engine *e, const zoff_plan *plan)
{
    const room r = measure(e, plan, NULL);
    return arena_bytes(e, &r);
}

/* A slice that can never be lent is found before the work of hours begins. */
static zoff_status check_largest(const zoff_engine *e)
{
    const uint64_t most = zoff_engine_param_cache_most(e);
    for (size_t i = 0; i < e->param_count; i++) {
        const zoff_engine_param *p = &e->params[i];
        for (size_t slice = 0; p->engine_owned && slice < p->slices; slice++) {
            const zoff_cached_slice *s = &e->param_cache.slices[p->first_flag + slice];
            ZOFF_FAIL_IF(!s->persistent && s->count > most, ZOFF_ERR_INVALID,
                         "a slice of %s has %zu elements, and stage3_max_live_parameters is %llu: it could never be fetched; "
                         "raise that key",
                         p->name, s->count, (unsigned long long)most);
        }
    }
    return ZOFF_OK;
}

zoff_status zoff_engine_param_cache_open(zoff_engine *e)
{
    zoff_param_cache *live = &e->param_cache;
    *live = (zoff_param_cache){.lowest = NONE, .latest = NONE};
    if (!zoff_engine_params_any_owned(e))
        return ZOFF_OK;
    ZOFF_FAIL_IF(e->slice_count >= NONE, ZOFF_ERR_INVALID,
                 "%zu slices are more than the %u that an engine may have when it keeps weights", e->slice_count, NONE - 1);
    ZOFF_TRY(zoff_base_mem_alloc(e->slice_count, sizeof *live->slices, "the table of slices", &live->slices));
    const room r = measure(e, &e->plan, live->slices);
    ZOFF_TRY(check_largest(e));
    const uint64_t bytes = arena_bytes(e, &r);
    if (bytes)
        ZOFF_TRY(zoff_base_map_alloc(bytes, "weights that are whole", ZOFF_MAP_INTERLEAVED, &live->arena));
    for (size_t i = 0; i < e->slice_count; i++) {
        zoff_cached_slice *s = &live->slices[i];
        if (!s->persistent || s->direct)
            continue;
        s->at = (char *)live->arena.base + live->persistent_bytes;
        live->persistent_bytes += s->bytes;
    }
    return ZOFF_OK;
}

void zoff_engine_param_cache_attach(zoff_engine *e)
{
    for (size_t i = 0; e->weights && i < e->slice_count; i++) {
        zoff_cached_slice *s = &e->param_cache.slices[i];
        void *base;
        if (!s->direct)
            continue;
        const size_t chunk = e->plan.pieces[s->first_piece].bucket;
        if (zoff_offload_store_fetch(e->weights, chunk, &base) == ZOFF_OK) /* which in DRAM it always is */
            s->at = (char *)base + e->plan.pieces[s->first_piece].weight_offset;
        zoff_offload_store_release(e->weights, chunk);
    }
}

void zoff_engine_param_cache_close(zoff_engine *e)
{
    zoff_param_cache *live = &e->param_cache;
    zoff_base_map_free(&live->arena);
    zoff_base_mem_free(live->slices);
    zoff_base_mem_free(live->before.slices);
    zoff_base_mem_free(live->now.slices);
    *live = (zoff_param_cache){.lowest = NONE, .latest = NONE};
}

/* ---- the arena ---- */

/* Between two neighbours, or before the first, or behind the last; from above `below` on. */
static bool place_above(zoff_param_cache *live, uint32_t number, uint32_t below)
{
    zoff_cached_slice *s = &live->slices[number];
    const zoff_cached_slice *from = below == NONE ? NULL : &live->slices[below];
    char *at = from ? from->at + from->bytes : (char *)live->arena.base + live->persistent_bytes;
    const char *end = (char *)live->arena.base + live->arena.bytes;
    uint32_t above = from ? from->above : live->lowest;
    while (above != NONE && (size_t)(live->slices[above].at - at) < s->bytes) {
        at = live->slices[above].at + live->slices[above].bytes;
        below = above;
        above = live->slices[above].above;
    }
    if (above == NONE && (size_t)(end - at) < s->bytes)
        return false;
    s->at = at;
    s->below = below;
    s->above = above;
    *(below == NONE ? &live->lowest : &live->slices[below].above) = number;
    if (above != NONE)
        live->slices[above].below = number;
    live->elements += s->count;
    live->latest = number;
    return true;
}

/* A pass fills the arena from one end to the other: room is most often behind what was placed last. */
bool zoff_engine_param_cache_place(zoff_param_cache *live, uint32_t number)
{
    return (live->latest != NONE && place_above(live, number, live->latest)) || place_above(live, number, NONE);
}

void zoff_engine_param_cache_remove(zoff_param_cache *live, zoff_cached_slice *s)
{
    *(s->below == NONE ? &live->lowest : &live->slices[s->below].above) = s->above;
    if (s->above != NONE)
        live->slices[s->above].below = s->below;
    if (live->latest == (uint32_t)(s - live->slices))
        live->latest = s->below;
    s->at = NULL;
    live->elements -= s->count;
    s->ahead = false;
}

/* The one that nobody has and that was asked for longest ago; or also one that was brought in advance. */
zoff_cached_slice *zoff_engine_param_cache_oldest_idle(zoff_param_cache *live, bool also_ahead)
{
    zoff_cached_slice *oldest = NULL;
    for (uint32_t i = live->lowest; i != NONE; i = live->slices[i].above) {
        zoff_cached_slice *s = &live->slices[i];
        if (!s->lent && (also_ahead || !s->ahead) && (!oldest || s->used < oldest->used))
            oldest = s;
    }
    return oldest;
}

zoff_status zoff_engine_param_cache_check(const zoff_engine *e, zoff_param first, size_t count, const char *call)
{
    for (size_t i = first; e->param_cache.lent && i < first + count; i++) {
        const zoff_engine_param *p = &e->params[i];
        for (size_t slice = 0; p->engine_owned && slice < p->slices; slice++) {
            ZOFF_FAIL_IF(e->param_cache.slices[p->first_flag + slice].lent, ZOFF_ERR_STATE,
                         "%s: slice %zu of %s is still lent (zoff_param_fetch()); call zoff_param_release() first", call, slice,
                         p->name);
        }
    }
    return ZOFF_OK;
}

void zoff_engine_param_cache_clear(zoff_engine *e)
{
    zoff_param_cache *live = &e->param_cache;
    zoff_engine_held_let_go(e);
    for (uint32_t i = live->lowest, above; i != NONE; i = above) {
        above = live->slices[i].above;
        if (!live->slices[i].lent)
            zoff_engine_param_cache_remove(live, &live->slices[i]);
    }
}

void zoff_engine_param_cache_refresh(zoff_engine *e, size_t chunk, const char *weights, bool all)
{
    const zoff_plan_chunk *c = &e->plan.chunks[chunk];
    for (size_t i = 0; weights && i < c->piece_count; i++) {
        const zoff_plan_piece *piece = &e->plan.pieces[c->first_piece + i];
        const zoff_engine_param *p = &e->params[piece->param];
        const zoff_cached_slice *s = &e->param_cache.slices[p->first_flag + piece->slice];
        const size_t element_bytes = zoff_adam_dtype_bytes(p->dtype);
        if (p->engine_owned && s->persistent && !s->direct && (all || *zoff_engine_params_flag(e, piece)))
            memcpy(s->at + piece->first * element_bytes, weights + piece->weight_offset, piece->count * element_bytes);
    }
}

bool zoff_engine_param_cache_is_persistent(const zoff_engine *e, zoff_param p, size_t slice)
{
    return e->param_cache.slices && e->param_cache.slices[e->params[p].first_flag + slice].persistent;
}

char *zoff_engine_param_cache_persistent(const zoff_engine *e, const zoff_plan_piece *piece)
{
    const zoff_engine_param *p = &e->params[piece->param];
    return e->param_cache.slices[p->first_flag + piece->slice].at + piece->first * zoff_adam_dtype_bytes(p->dtype);
}
