/* SPDX-License-Identifier: Apache-2.0 */
/* swap_put_off.c: chunks that were given back and stay in their slots. Ranges of states that are read or written part by part
 * request the same arrays again and again. The slot keeps them until another chunk needs it, and changes are written once.
 *
 * At most half of the slots hold a write that was put off. Beyond that the oldest is written in the background, so that drain
 * finds little to do. */
#include "swap_priv.h"

zoff_status zoff_offload_swap_put_off_write(zoff_swap_store *s, zoff_swap_slot *slot)
{
    const unsigned changed = slot->changed;
    zoff_offload_swap_slot_discard(s, slot);
    slot->stays = true;
    zoff_offload_swap_sum_renew(s, slot->chunk, slot->base, changed);
    return zoff_offload_swap_move_start_write(s, slot, changed);
}

zoff_status zoff_offload_swap_put_off_find_room(zoff_swap_store *s, zoff_swap_slot **out)
{
    *out = zoff_offload_swap_slot_take(s, UINT64_MAX);
    for (zoff_swap_slot *slot = s->put_off.oldest; !*out && slot; slot = slot->newer) {
        if (!slot->is_home)
            return zoff_offload_swap_put_off_write(s, slot);
    }
    return ZOFF_OK;
}

/* The limit is at least two, because both ends of a range may lie in chunks of the next range, too. */
static size_t put_off_most(const zoff_swap_store *s)
{
    return s->ring_count / 2 > 2 ? s->ring_count / 2 : 2;
}

zoff_status zoff_offload_swap_put_off_keep(zoff_store *store, size_t chunk, unsigned changed)
{
    zoff_swap_store *s = (zoff_swap_store *)store;
    zoff_swap_slot *slot = zoff_offload_swap_slot_find(s, chunk);
    changed = (changed & zoff_offload_swap_place_arrays(s, chunk)) | slot->changed;
    slot->used = ++s->uses;
    if (slot->is_home && (!s->persist || !changed))
        return ZOFF_OK;
    zoff_offload_swap_slot_discard(s, slot);
    slot->state = ZOFF_SLOT_KEPT;
    if (!changed)
        return ZOFF_OK;
    zoff_offload_swap_slot_put_off(s, slot, changed);
    return s->put_off.count > put_off_most(s) ? zoff_offload_swap_put_off_write(s, s->put_off.oldest) : ZOFF_OK;
}
