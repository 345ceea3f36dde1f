/* SPDX-License-Identifier: Apache-2.0 */
/* swap_slot.c: which slot has a chunk, which one is free, and the state of each. */
#include "swap_priv.h"

/* ---- lists of slots, oldest first ---- */

void zoff_offload_swap_slot_append(zoff_swap_list *list, zoff_swap_slot *slot)
{
    slot->newer = NULL;
    slot->older = list->newest;
    *(list->newest ? &list->newest->newer : &list->oldest) = slot;
    list->newest = slot;
    list->count++;
}

void zoff_offload_swap_slot_take_out(zoff_swap_list *list, zoff_swap_slot *slot)
{
    *(slot->older ? &slot->older->newer : &list->oldest) = slot->newer;
    *(slot->newer ? &slot->newer->older : &list->newest) = slot->older;
    list->count--;
}

/* ---- find a slot by its chunk ---- */

zoff_swap_slot *zoff_offload_swap_slot_find(const zoff_swap_store *s, size_t chunk)
{
    const zoff_swap_place *place = &s->places[chunk];
    if (place->home)
        return place->home;
    return place->ring && place->ring->chunk == chunk && place->ring->state != ZOFF_SLOT_FREE ? place->ring : NULL;
}

/* ---- a slot for a chunk that has none ---- */

/* A read ahead that has failed leaves nothing that is needed. */
bool zoff_offload_swap_slot_is_clean(const zoff_swap_slot *slot)
{
    const bool has_arrived = slot->state == ZOFF_SLOT_READING && slot->result != ZOFF_PENDING && !slot->is_granted;
    return slot->state == ZOFF_SLOT_KEPT || (has_arrived && !slot->changed);
}

zoff_swap_slot *zoff_offload_swap_slot_take(zoff_swap_store *s, uint64_t before)
{
    zoff_swap_slot *oldest = NULL;
    for (unsigned i = 0; i < s->ring_count; i++) {
        zoff_swap_slot *slot = &s->slots[i];
        if (slot->state == ZOFF_SLOT_FREE)
            return slot;
        if (zoff_offload_swap_slot_is_clean(slot) && slot->used < before && (!oldest || slot->used < oldest->used))
            oldest = slot;
    }
    if (oldest)
        oldest->state = ZOFF_SLOT_FREE;
    return oldest;
}

bool zoff_offload_swap_slot_is_put_off(const zoff_swap_slot *slot)
{
    return slot->state == ZOFF_SLOT_DIRTY && slot->changed;
}

void zoff_offload_swap_slot_assign(zoff_swap_store *s, zoff_swap_slot *slot, size_t chunk)
{
    s->places[chunk].ring = slot;
    slot->state = ZOFF_SLOT_LENT;
    slot->chunk = chunk;
    slot->is_granted = false;
    slot->holds = slot->unchecked = slot->changed = 0;
}

void zoff_offload_swap_slot_discard(zoff_swap_store *s, zoff_swap_slot *slot)
{
    if (zoff_offload_swap_slot_is_put_off(slot))
        zoff_offload_swap_slot_take_out(&s->put_off, slot);
    slot->changed = 0;
}

void zoff_offload_swap_slot_leave(zoff_swap_store *s, zoff_swap_slot *slot)
{
    slot->state = ZOFF_SLOT_FREE;
    if (slot->changed)
        zoff_offload_swap_slot_put_off(s, slot, slot->changed);
}

void zoff_offload_swap_slot_put_off(zoff_swap_store *s, zoff_swap_slot *slot, unsigned changed)
{
    slot->state = ZOFF_SLOT_DIRTY;
    slot->changed = changed;
    zoff_offload_swap_slot_append(&s->put_off, slot);
}
