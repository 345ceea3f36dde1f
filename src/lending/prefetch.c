/* SPDX-License-Identifier: Apache-2.0 */
/* prefetch.c: learns the order in which the caller uses weights in one pass, and prefetches in that order in the next. A pass
 * is the time between two calls of zoff_step(). When a use is out of order, the search for it continues further along the
 * previous order. */
#include "lending.h"

#include "array.h"
#include "bits.h"
#include "try.h"

enum {
    LONGEST = 1 << 20, /* uses recorded in a pass: 4 MiB; of a longer pass only this beginning is prefetched */
    FURTHEST = 4096    /* most uses that are searched for one that is out of order */
};

zoff_status zoff_lending_prefetch_reserve(zoff_lending *l)
{
    zoff_use_order *now = &l->cache.now;
    zoff_saved_error saved;
    if (now->count >= LONGEST)
        return ZOFF_OK;
    zoff_base_status_save(&saved);
    zoff_status status = zoff_base_array_reserve(&now->slices, now->count, &now->capacity, now->count + 1, sizeof *now->slices,
                                                 "the order of weight fetches");
    if (status == ZOFF_OK || l->source->needs_order)
        return status;
    zoff_base_status_restore(&saved); /* with one rank, a missing entry only costs time */
    return ZOFF_OK;
}

void zoff_lending_prefetch_note(zoff_lending *l, uint32_t slice)
{
    zoff_param_cache *cache = &l->cache;
    zoff_use_order *now = &cache->now;
    if (now->count < LONGEST && now->count < now->capacity)
        now->slices[now->count++] = slice;
    const size_t end = zoff_base_bits_min(cache->before.count, cache->next + FURTHEST);
    for (size_t i = cache->next; i < end; i++) {
        if (cache->before.slices[i] == slice) {
            cache->next = i + 1;
            return;
        }
    }
}

/* All ranks prefetch the same slices, and a prefetched slice stays until its use. So nothing here may depend on which parts
 * have arrived. */
void zoff_lending_prefetch_gathered(zoff_lending *l)
{
    zoff_param_cache *cache = &l->cache;
    uint64_t left = l->values->ahead_count;
    for (size_t i = cache->next; left && i < cache->before.count; i++) {
        const uint32_t number = cache->before.slices[i];
        zoff_cached_slice *s = &cache->slices[number];
        if (!s->at) {
            if (zoff_lending_param_gather_make_room(l, number) < 0 || zoff_lending_room_place_ahead(l, number) != ZOFF_OK)
                break;
            zoff_lending_param_gather_plan(l, number);
        }
        s->used = ++cache->clock; /* so that slices needed next are evicted last */
        left -= zoff_base_bits_min(left, s->count);
    }
    (void)zoff_lending_param_gather_go_on(l); /* fetch reports errors */
}

/* Slices that the open step has yet to update get a place, where its update copies them. So a background thread does it, and no
 * slot has to keep them until their fetch. */
static void place_next(zoff_lending *l)
{
    zoff_param_cache *cache = &l->cache;
    cache->placed = zoff_base_bits_max(cache->placed, cache->next);
    for (; cache->ahead_elements < l->values->ahead_count && cache->placed < cache->before.count; cache->placed++) {
        const uint32_t number = cache->before.slices[cache->placed];
        if (!cache->slices[number].at && zoff_lending_room_place_ahead(l, number) != ZOFF_OK)
            return;
    }
}

static void read_next(zoff_lending *l)
{
    zoff_base_progress_pump(l->progress); /* the step reports errors */
    zoff_lending_held_read_slices_ahead(l);
}

void zoff_lending_prefetch_own(zoff_lending *l)
{
    if (l->cache.in_step)
        place_next(l);
    else if (l->home->streams)
        read_next(l);
}

/* A chunk that is not there yet ends the turn, because its read was started, and so were those of the slice behind it. A slice
 * that the open step has not updated ends the turn as well. */
void zoff_lending_prefetch_into_arena(zoff_lending *l)
{
    zoff_param_cache *cache = &l->cache;
    uint64_t left = l->values->ahead_count;
    zoff_base_progress_pump(l->progress); /* the step reports errors */
    for (size_t i = cache->next; left && i < cache->before.count; i++) {
        const uint32_t number = cache->before.slices[i];
        zoff_cached_slice *s = &cache->slices[number];
        if (!zoff_lending_param_cache_is_new(l, number) || (!s->at && zoff_lending_room_place_ahead(l, number) != ZOFF_OK))
            return;
        s->used = ++cache->clock; /* so that slices needed next are evicted last */
        if (zoff_lending_fill_ahead(l, s) != ZOFF_OK)
            return;
        left -= zoff_base_bits_min(left, s->count);
    }
}

void zoff_lending_prefetch_turn(zoff_lending *l)
{
    zoff_param_cache *cache = &l->cache;
    if (!l->store)
        return;
    if (cache->now.count) {
        const zoff_use_order before = cache->before;
        cache->before = cache->now;
        cache->now = before;
    }
    cache->now.count = 0;
    cache->next = cache->placed = 0;
    l->source->ahead(l);
}
