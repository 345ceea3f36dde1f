/* room.c: room in the arena for a slice of weights. Slices that nobody uses give theirs up, the one first that was used longest
 * ago. */
#include "engine_priv.h"

#include "try.h"

/* Of several ranks all give up the same slices: what is still on its way is waited for. */
static zoff_status give_up(zoff_engine *e, zoff_cached_slice *idle)
{
    if (idle->missing)
        ZOFF_TRY(zoff_engine_param_gather_wait(e, (uint32_t)(idle - e->param_cache.slices)));
    zoff_engine_param_cache_remove(&e->param_cache, idle);
    return ZOFF_OK;
}

zoff_status zoff_engine_room_place_ahead(zoff_engine *e, uint32_t number)
{
    zoff_param_cache *live = &e->param_cache;
    zoff_cached_slice *s = &live->slices[number];
    const uint64_t most = zoff_engine_param_cache_most(e);
    while (live->elements + s->count > most || !zoff_engine_param_cache_place(live, number)) {
        zoff_cached_slice *idle = zoff_engine_param_cache_oldest_idle(live, false);
        if (!idle)
            return ZOFF_PENDING;
        ZOFF_TRY(give_up(e, idle));
    }
    s->ahead = true;
    s->used = ++live->clock;
    return ZOFF_OK;
}

zoff_status zoff_engine_room_find(zoff_engine *e, uint32_t number, const char *name)
{
    zoff_param_cache *live = &e->param_cache;
    const uint64_t most = zoff_engine_param_cache_most(e);
    const size_t count = live->slices[number].count;
    while (live->elements + count > most || !zoff_engine_param_cache_place(live, number)) {
        zoff_cached_slice *idle = zoff_engine_param_cache_oldest_idle(live, true);
        ZOFF_FAIL_IF(!idle, ZOFF_ERR_NO_MEMORY,
                     "%zu elements of %s do not fit%s beside the %zu that are lent: release what is not in use, or raise "
                     "stage3_max_live_parameters, which is %llu",
                     count, name, live->elements + count > most ? "" : " in one piece", live->elements,
                     (unsigned long long)most);
        ZOFF_TRY(give_up(e, idle));
    }
    return ZOFF_OK;
}
