/* prefetch.c: in which order the caller uses weights, learned in one pass and read ahead in the next. A pass is what lies
 * between two calls of zoff_step(). When a pass takes another way than the one before, what it asks for is looked for further
 * on. */
#include "engine_priv.h"

#include "array.h"
#include "bits.h"
#include "try.h"

enum {
    LONGEST = 1 << 20, /* uses of a pass: 4 MiB; a longer one is read ahead as far as it is known */
    FURTHEST = 4096    /* uses that are looked through for one that came out of its turn */
};

zoff_status zoff_engine_prefetch_reserve(zoff_engine *e)
{
    zoff_use_order *now = &e->param_cache.now;
    zoff_saved_error saved;
    if (now->count >= LONGEST)
        return ZOFF_OK;
    zoff_base_status_save(&saved);
    zoff_status status = zoff_base_array_reserve(&now->slices, now->count, &now->capacity, now->count + 1, sizeof *now->slices,
                                                 "the order of weights");
    if (status == ZOFF_OK || zoff_engine_param_cache_is_sharded(e))
        return status;
    zoff_base_status_restore(&saved); /* of one rank alone it is only for speed */
    return ZOFF_OK;
}

void zoff_engine_prefetch_note(zoff_engine *e, uint32_t slice)
{
    zoff_param_cache *live = &e->param_cache;
    zoff_use_order *now = &live->now;
    if (now->count < LONGEST && now->count < now->capacity)
        now->slices[now->count++] = slice;
    const size_t end = zoff_base_bits_min(live->before.count, live->next + FURTHEST);
    for (size_t i = live->next; i < end; i++) {
        if (live->before.slices[i] == slice) {
            live->next = i + 1;
            return;
        }
    }
}

/* Of several ranks: what is brought in advance is brought by all of them, and stays for its use. Nothing here may depend on
 * what has arrived. */
static void plan_ahead(zoff_engine *e)
{
    zoff_param_cache *live = &e->param_cache;
    uint64_t left = e->settings.values.weights.ahead_count;
    for (size_t i = live->next; left && i < live->before.count; i++) {
        const uint32_t number = live->before.slices[i];
        zoff_cached_slice *s = &live->slices[number];
        if (!s->at) {
            if (zoff_engine_param_gather_make_room(e, number) < 0 || zoff_engine_room_place_ahead(e, number) != ZOFF_OK)
                break;
            zoff_engine_param_gather_plan(e, number);
        }
        s->used = ++live->clock; /* what comes next is given up last */
        left -= zoff_base_bits_min(left, s->count);
    }
    (void)zoff_engine_param_gather_go_on(e); /* what fails is told by the fetch */
}

void zoff_engine_prefetch_ahead(zoff_engine *e)
{
    const zoff_param_cache *live = &e->param_cache;
    uint64_t left = e->settings.values.weights.ahead_count;
    if (zoff_engine_param_cache_is_sharded(e)) {
        plan_ahead(e);
        return;
    }
    if (!e->weights || e->settings.values.weights.tier != ZOFF_TIER_NVME)
        return;
    zoff_base_progress_pump(&e->progress); /* keeps errors for the step */
    for (size_t i = live->next; left && i < live->before.count; i++) {
        const zoff_cached_slice *s = &live->slices[live->before.slices[i]];
        if (!s->at)
            zoff_engine_held_read_ahead(e, s->first_piece, s->count);
        left -= zoff_base_bits_min(left, s->count);
    }
}

void zoff_engine_prefetch_turn(zoff_engine *e)
{
    zoff_param_cache *live = &e->param_cache;
    if (!e->weights)
        return;
    if (live->now.count) {
        const zoff_use_order before = live->before;
        live->before = live->now;
        live->now = before;
    }
    live->now.count = 0;
    live->next = 0;
    zoff_engine_prefetch_ahead(e);
}
