/* SPDX-License-Identifier: Apache-2.0 */
/* places.c: where slices are made whole. In host memory a copy is done when the call returns. On a device it is enqueued, and
 * events say when it is done:
 *
 *      program's stream                 forward of 1 | forward of 2 | ...        fetch: waits for `arrived`
 *                                      ^ arrived 1   ^ arrived 2                 release: records `released`
 *      stream of the lending    copy 1 | copy 2 | copy 3 ...                     waits for `released` of what it overwrites
 *
 * Persistent slices also have a copy in host memory, which each step updates. The next fetch copies it to the device. Where the
 * communicator reaches the device, ranks exchange these slices there instead, and the copy in host memory has only this rank's
 * parts. */
#include "lending.h"

#include "try.h"
#include "words.h"

#include <string.h>

/* ---- the host ---- */

static bool host_is_direct(const zoff_weight_home *home)
{
    return home->is_dram;
}

static void host_plan(const zoff_lending *l, const zoff_plan *plan, uint64_t persistent, uint64_t arena, zoff_plan_info *info)
{
    info->weight_host_bytes += arena;
}

static zoff_status host_open(zoff_lending *l, size_t persistent, size_t arena)
{
    zoff_param_cache *cache = &l->cache;
    if (arena)
        ZOFF_TRY(zoff_base_map_alloc(arena, "fetched weights", ZOFF_MAP_INTERLEAVED, &cache->arena));
    cache->base = cache->arena.base;
    cache->bytes = arena;
    return ZOFF_OK;
}

static zoff_status host_put(zoff_lending *l, void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
    return ZOFF_OK;
}

static zoff_status host_placed(zoff_lending *l, zoff_cached_slice *s)
{
    return ZOFF_OK;
}

static zoff_status host_lend(zoff_lending *l, zoff_cached_slice *s, void *native_stream)
{
    return ZOFF_OK;
}

static void host_vacate(zoff_lending *l, zoff_cached_slice *s) {}

static zoff_status host_read(zoff_lending *l, zoff_held_chunk *held)
{
    return ZOFF_OK;
}

static zoff_status host_follow(zoff_lending *l, const zoff_cached_slice *s, size_t first_byte, size_t bytes)
{
    return ZOFF_OK;
}

const zoff_slice_place zoff_lending_places_host = {.name = "host memory",
                                                   .is_direct = host_is_direct,
                                                   .plan = host_plan,
                                                   .open = host_open,
                                                   .put = host_put,
                                                   .placed = host_placed,
                                                   .lend = host_lend,
                                                   .take_back = host_lend,
                                                   .vacate = host_vacate,
                                                   .read = host_read,
                                                   .is_read = host_read,
                                                   .follow = host_follow,
                                                   .ahead = zoff_lending_prefetch_own,
                                                   .is_at_once = true,
                                                   .landing = &zoff_lending_landings_place};

/* ---- a device ---- */

static bool device_is_direct(const zoff_weight_home *home)
{
    return home->is_there;
}

/* Slots of host memory, where parts of other ranks arrive before they go to the device. */
static uint64_t bounce_bytes(const zoff_lending *l, const zoff_plan *plan)
{
    return l->source->takes_all ? (uint64_t)ZOFF_PARTS_IN_FLIGHT * zoff_lending_landings_most(l, plan) : 0;
}

static void device_plan(const zoff_lending *l, const zoff_plan *plan, uint64_t persistent, uint64_t arena, zoff_plan_info *info)
{
    info->weight_host_bytes += persistent + bounce_bytes(l, plan);
    info->device_bytes += arena;
}

static zoff_status open_there(zoff_lending *l, size_t persistent, size_t arena)
{
    zoff_param_cache *cache = &l->cache;
    void *memory = NULL;
    const zoff_status status = arena ? l->accel->ops->alloc(l->accel, arena, &memory) : ZOFF_OK;
    if (status < 0)
        return zoff_base_status_prefix(status, "fetched weights, %s of device memory (stage3_max_live_parameters limits it): ",
                                       zoff_base_words_bytes(arena));
    cache->base = memory;
    cache->bytes = arena;
    if (persistent)
        ZOFF_TRY(zoff_base_map_alloc(persistent, "weights that stay whole", ZOFF_MAP_INTERLEAVED, &cache->arena));
    return zoff_lending_copies_pin(l, cache->arena.base, persistent, ZOFF_PINNED_PERSISTENT);
}

static zoff_status device_open(zoff_lending *l, size_t persistent, size_t arena)
{
    zoff_lending_device *d = &l->there;
    const size_t bytes = (size_t)bounce_bytes(l, l->plan);
    ZOFF_TRY(open_there(l, persistent, arena));
    d->bounce_bytes = bytes / ZOFF_PARTS_IN_FLIGHT;
    if (bytes)
        ZOFF_TRY(zoff_base_map_alloc(bytes, "weights of other ranks", ZOFF_MAP_INTERLEAVED, &d->bounce));
    return zoff_lending_copies_pin(l, d->bounce.base, bytes, ZOFF_PINNED_BOUNCE);
}

static zoff_status device_put(zoff_lending *l, void *to, const void *from, size_t bytes)
{
    return l->home->is_there ? zoff_lending_copies_within(l, to, from, bytes) : zoff_lending_copies_up(l, to, from, bytes);
}

static zoff_status device_placed(zoff_lending *l, zoff_cached_slice *s)
{
    return zoff_lending_copies_record(l, &s->arrived);
}

/* Whether the device needs a persistent slice from host memory. While a step is open, the others will be updated. */
static bool is_due(zoff_lending *l, size_t number)
{
    const zoff_cached_slice *s = &l->cache.slices[number];
    return s->persistent && !s->direct && s->is_stale && zoff_lending_param_cache_is_new(l, number);
}

static zoff_status send(zoff_lending *l, char *from, const char *to)
{
    const char *host = l->cache.arena.base;
    return from ? zoff_lending_copies_up(l, from, host + (from - l->cache.base), (size_t)(to - from)) : ZOFF_OK;
}

/* Copy persistent slices to the device, behind the program's work that reads them. Neighbours take one copy. */
static zoff_status publish(zoff_lending *l)
{
    char *from = NULL, *to = NULL;
    l->there.is_vacant = false;
    for (size_t i = 0; i < l->model->slice_count; i++) {
        zoff_cached_slice *s = &l->cache.slices[i];
        if (!is_due(l, i))
            continue;
        l->place->vacate(l, s);
        if (s->at != to) {
            ZOFF_TRY(send(l, from, to));
            from = s->at;
        }
        to = s->at + s->bytes;
    }
    ZOFF_TRY(send(l, from, to));
    ZOFF_TRY(zoff_lending_copies_record(l, &l->there.published));
    for (size_t i = 0; i < l->model->slice_count; i++)
        l->cache.slices[i].is_stale = l->cache.slices[i].is_stale && !is_due(l, i);
    return ZOFF_OK;
}

/* The event that the program has to wait for before it reads a slice; NULL: none. Direct slices are uploaded by their store. */
static zoff_status event_of(zoff_lending *l, const zoff_cached_slice *s, void **out)
{
    if (s->direct)
        ZOFF_TRY(zoff_lending_copies_record(l, &l->there.published));
    *out = s->direct || s->persistent ? l->there.published : s->arrived;
    return ZOFF_OK;
}

static zoff_status lend_there(zoff_lending *l, zoff_cached_slice *s, void *native_stream)
{
    void *event;
    ZOFF_TRY(event_of(l, s, &event));
    if (!event || !s->count)
        return ZOFF_OK;
    return native_stream ? l->accel->ops->event_await(l->accel, native_stream, event) : zoff_lending_copies_wait(l, event);
}

static zoff_status device_lend(zoff_lending *l, zoff_cached_slice *s, void *native_stream)
{
    if (s->is_stale && s->persistent && !s->direct)
        ZOFF_TRY(publish(l));
    return lend_there(l, s, native_stream);
}

/* Another stream may have released the slice before. Then later copies wait for that stream now. */
static zoff_status device_take_back(zoff_lending *l, zoff_cached_slice *s, void *native_stream)
{
    const zoff_accel_ops *ops = l->accel->ops;
    if (!native_stream || !s->count)
        return ZOFF_OK;
    if (!s->released)
        ZOFF_TRY(ops->event_open(l->accel, &s->released));
    if (s->leaves && s->released_in != native_stream)
        ZOFF_TRY(ops->event_await(l->accel, l->there.link.stream, s->released));
    ZOFF_TRY(ops->event_record(l->accel, s->released, native_stream));
    s->leaves = true;
    l->there.is_vacant = false;
    s->released_in = native_stream;
    return ZOFF_OK;
}

/* If the device refuses to let the copies wait, the call waits, because otherwise they would overwrite what the program reads.
 * A device that has failed runs neither. Its error is kept for the next wait. */
static void vacate_one(zoff_lending *l, zoff_cached_slice *s)
{
    if (!s->leaves)
        return;
    s->leaves = false;
    if (l->accel->ops->event_await(l->accel, l->there.link.stream, s->released) < 0)
        zoff_base_progress_keep(l->pollers.device, zoff_lending_copies_wait(l, s->released));
}

/* Writes of slice after slice find all of them vacated already. */
static void device_vacate(zoff_lending *l, zoff_cached_slice *s)
{
    if (s)
        vacate_one(l, s);
    for (size_t i = 0; !s && !l->there.is_vacant && i < l->model->slice_count; i++) {
        l->cache.slices[i].is_stale = true;
        vacate_one(l, &l->cache.slices[i]);
    }
    l->there.is_vacant = l->there.is_vacant || !s;
}

static zoff_status device_read(zoff_lending *l, zoff_held_chunk *held)
{
    held->is_read = held->is_unmarked = true;
    ZOFF_TRY(zoff_lending_copies_record(l, &held->copied));
    held->is_unmarked = false;
    return ZOFF_OK;
}

static zoff_status device_is_read(zoff_lending *l, zoff_held_chunk *held)
{
    const bool may_be_read = held->is_read && l->there.link.moves;
    if (may_be_read && held->is_unmarked)
        ZOFF_TRY(device_read(l, held));
    const zoff_status status = may_be_read ? l->accel->ops->event_poll(l->accel, held->copied) : ZOFF_OK;
    held->is_read = held->is_read && status != ZOFF_OK;
    return status;
}

static zoff_status device_follow(zoff_lending *l, const zoff_cached_slice *s, size_t first_byte, size_t bytes)
{
    l->cache.slices[s - l->cache.slices].is_stale = true;
    return ZOFF_OK;
}

const zoff_slice_place zoff_lending_places_device = {.name = "a device",
                                                     .is_direct = device_is_direct,
                                                     .plan = device_plan,
                                                     .open = device_open,
                                                     .put = device_put,
                                                     .placed = device_placed,
                                                     .lend = device_lend,
                                                     .take_back = device_take_back,
                                                     .vacate = device_vacate,
                                                     .read = device_read,
                                                     .is_read = device_is_read,
                                                     .follow = device_follow,
                                                     .ahead = zoff_lending_prefetch_into_arena,
                                                     .landing = &zoff_lending_landings_bounce};

/* ---- a device that the communicator reaches ---- */

static void reached_plan(const zoff_lending *l, const zoff_plan *plan, uint64_t persistent, uint64_t arena,
                         zoff_plan_info *info)
{
    info->weight_host_bytes += persistent;
    info->device_bytes += arena;
}

static zoff_status reached_follow(zoff_lending *l, const zoff_cached_slice *s, size_t first_byte, size_t bytes)
{
    const zoff_param_cache *cache = &l->cache;
    ZOFF_TRY(zoff_lending_copies_up(l, s->at + first_byte, (const char *)cache->arena.base + (s->at - cache->base) + first_byte,
                                    bytes));
    return zoff_lending_copies_settle(l);
}

const zoff_slice_place zoff_lending_places_reached = {.name = "a device that ranks reach",
                                                      .is_direct = device_is_direct,
                                                      .plan = reached_plan,
                                                      .open = open_there,
                                                      .put = device_put,
                                                      .placed = device_placed,
                                                      .lend = lend_there,
                                                      .take_back = device_take_back,
                                                      .vacate = device_vacate,
                                                      .read = device_read,
                                                      .is_read = device_is_read,
                                                      .follow = reached_follow,
                                                      .ahead = zoff_lending_prefetch_into_arena,
                                                      .landing = &zoff_lending_landings_reached};
