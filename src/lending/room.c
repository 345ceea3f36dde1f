/* SPDX-License-Identifier: Apache-2.0 */
/* room.c: makes room in the arena for a slice of weights, by evicting slices that are not lent, the least recently used
 * first. */
#include "lending.h"

#include "try.h"

/* Evict a slice. All ranks must evict the same slices, so wait for one whose parts are in flight. */
static zoff_status give_up(zoff_lending *l, zoff_cached_slice *idle)
{
    if (idle->missing)
        ZOFF_TRY(zoff_lending_param_gather_wait(l, (uint32_t)(idle - l->cache.slices)));
    zoff_lending_param_cache_remove(l, idle);
    return ZOFF_OK;
}

zoff_status zoff_lending_room_place_ahead(zoff_lending *l, uint32_t number)
{
    zoff_param_cache *cache = &l->cache;
    zoff_cached_slice *s = &cache->slices[number];
    const uint64_t most = zoff_lending_param_cache_most(l);
    while (cache->elements + s->count > most || !zoff_lending_param_cache_place(cache, number)) {
        zoff_cached_slice *idle = zoff_lending_param_cache_oldest_idle(cache, false);
        if (!idle)
            return ZOFF_PENDING;
        ZOFF_TRY(give_up(l, idle));
    }
    s->ahead = true;
    cache->ahead_elements += s->count;
    s->used = ++cache->clock;
    return ZOFF_OK;
}

zoff_status zoff_lending_room_find(zoff_lending *l, uint32_t number, const char *name)
{
    zoff_param_cache *cache = &l->cache;
    const uint64_t most = zoff_lending_param_cache_most(l);
    const size_t count = cache->slices[number].count;
    while (cache->elements + count > most || !zoff_lending_param_cache_place(cache, number)) {
        zoff_cached_slice *idle = zoff_lending_param_cache_oldest_idle(cache, true);
        ZOFF_FAIL_IF(!idle, ZOFF_ERR_NO_MEMORY,
                     "%zu elements of %s do not fit%s beside the %zu that are lent: release unused slices, or raise "
                     "stage3_max_live_parameters, which is %llu",
                     count, name, cache->elements + count > most ? "" : " in one piece", cache->elements,
                     (unsigned long long)most);
        ZOFF_TRY(give_up(l, idle));
    }
    return ZOFF_OK;
}
