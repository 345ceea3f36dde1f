/* SPDX-License-Identifier: Apache-2.0 */
/* swap_second.c: the second content of a chunk, and the decision which of the two stays.
 *
 *      first content: committed ------------------------------ discard: now = committed
 *      second content: second() -- put: now, other place ----- adopt: now stays
 *
 * While a chunk is undecided, `committed` is its first content, with persist and without. So the write of the second one goes
 * to the place that the first one does not use, as any write goes with persist. Each version has its place and its checksums.
 *
 * A chunk of the ring has its first content in its file, so the slot takes the second one. A resident exchanges its memory for
 * a spare.
 *
 * A discarded write must have ended before its slot or its memory is used again. Its failure must not be reported, and it must
 * not be repeated. So discard waits for it. */
#include "swap_priv.h"

#include "try.h"

/* The slot of a chunk that is borrowed now, as far as the store can tell. */
static zoff_swap_slot *borrowed_slot(zoff_swap_store *s, size_t chunk)
{
    zoff_swap_slot *slot = zoff_offload_swap_slot_find(s, chunk);
    const bool is_put_off = slot && slot->is_home && zoff_offload_swap_slot_is_put_off(slot);
    return slot && (slot->state == (slot->is_home ? ZOFF_SLOT_FREE : ZOFF_SLOT_LENT) || is_put_off) ? slot : NULL;
}

/* The first content must be in its place, and the other place must be free. */
static zoff_status check_first(zoff_swap_store *s, size_t chunk, const zoff_swap_slot *slot)
{
    const zoff_swap_place *place = &s->places[chunk];
    bool is_committed = true;
    ZOFF_FAIL_IF(!slot || place->is_undecided, ZOFF_ERR_STATE,
                 "chunk %zu %s; this is a defect of the library, please report it", chunk,
                 place->is_undecided ? "has a second content already" : "gets a second content and is not borrowed");
    ZOFF_FAIL_IF(slot->changed, ZOFF_ERR_STATE,
                 "chunk %zu was changed and not written, so it cannot get a second content: write it with "
                 "zoff_offload_store_drain() before",
                 chunk);
    for (unsigned array = 0; array < ZOFF_STORE_ARRAYS; array++)
        is_committed = is_committed && (!s->persist || place->now.arrays[array].slot == place->committed.arrays[array].slot);
    ZOFF_FAIL_IF(!is_committed, ZOFF_ERR_STATE,
                 "chunk %zu was written to '%s' after the last commit, so a second content has no place there: call "
                 "zoff_offload_store_commit() before",
                 chunk, s->files[place->file].name);
    return ZOFF_OK;
}

zoff_status zoff_offload_swap_second_begin(zoff_store *store, size_t chunk, void **out)
{
    zoff_swap_store *s = (zoff_swap_store *)store;
    zoff_swap_place *place = &s->places[chunk];
    zoff_swap_slot *slot = borrowed_slot(s, chunk);
    ZOFF_TRY(check_first(s, chunk, slot));
    if (slot->is_home) {
        char *spare = zoff_offload_spares_take(&store->spares);
        if (!spare)
            return ZOFF_PENDING;
        place->first = slot->base;
        slot->base = spare;
    }
    place->committed = place->now;
    place->is_undecided = true;
    place->is_put = false;
    store->undecided++;
    *out = slot->base;
    return ZOFF_OK;
}

/* A resident is written only if files persist. */
zoff_status zoff_offload_swap_second_put(zoff_store *store, size_t chunk)
{
    zoff_swap_store *s = (zoff_swap_store *)store;
    zoff_swap_place *place = &s->places[chunk];
    zoff_swap_slot *slot = borrowed_slot(s, chunk);
    ZOFF_FAIL_IF(!slot || !place->is_undecided || place->is_put, ZOFF_ERR_STATE,
                 "chunk %zu is put and has no second content that is borrowed; this is a defect of the library, please report "
                 "it",
                 chunk);
    place->is_put = true;
    if (slot->is_home && !s->persist)
        return ZOFF_OK;
    slot->stays = false;
    zoff_offload_swap_sum_renew(s, chunk, slot->base, slot->holds);
    return zoff_offload_swap_move_start_write(s, slot, slot->holds);
}

static void decide(zoff_swap_store *s, zoff_swap_place *place)
{
    place->is_undecided = false;
    s->store.undecided--;
}

/* The write of the second content may be in flight, or have failed, so it continues as any other. */
void zoff_offload_swap_second_adopt(zoff_store *store, size_t chunk)
{
    zoff_swap_store *s = (zoff_swap_store *)store;
    zoff_swap_place *place = &s->places[chunk];
    if (!place->is_undecided)
        return;
    if (place->home)
        zoff_offload_spares_give(&store->spares, place->first);
    decide(s, place);
}

/* A slot of the ring holds the second content, or nothing that is needed. A write that has failed is forgotten with it. */
void zoff_offload_swap_second_drop(zoff_swap_store *s, size_t chunk)
{
    zoff_swap_place *place = &s->places[chunk];
    zoff_swap_slot *slot = zoff_offload_swap_slot_find(s, chunk);
    if (slot)
        slot->state = ZOFF_SLOT_FREE;
    if (place->home) {
        zoff_offload_spares_give(&s->store.spares, slot->base);
        slot->base = place->first;
    }
    if (s->sums.digested == chunk)
        s->sums.digested = SIZE_MAX;
    place->now = place->committed;
    decide(s, place);
}

zoff_status zoff_offload_swap_second_discard(zoff_store *store, size_t chunk)
{
    zoff_swap_store *s = (zoff_swap_store *)store;
    zoff_swap_slot *slot = zoff_offload_swap_slot_find(s, chunk);
    if (!s->places[chunk].is_undecided)
        return ZOFF_OK;
    while (slot && slot->state == ZOFF_SLOT_WRITING && zoff_offload_swap_move_finish(s, slot) == ZOFF_PENDING)
        ZOFF_TRY(zoff_offload_swap_wait_for(s, slot));
    zoff_offload_swap_second_drop(s, chunk);
    return ZOFF_OK;
}

zoff_status zoff_offload_swap_second_discard_all(zoff_swap_store *s)
{
    for (size_t chunk = 0; s->store.undecided && chunk < s->chunk_count; chunk++)
        ZOFF_TRY(zoff_offload_swap_second_discard(&s->store, chunk));
    return ZOFF_OK;
}
