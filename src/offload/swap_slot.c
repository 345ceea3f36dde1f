/* swap_slot.c: chunks that were given back and are at hand: a window of states that is read or written part by part asks for
 * the same arrays again and again. Their slot keeps them until another chunk needs the slot, and what was changed is written
 * once.
 *
 * At most half of the slots hold what is put off. When one more is, the oldest is written behind the caller's back, so that
 * drain finds little to do. */
#include "swap_priv.h"

#include "try.h"

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

/* ---- a slot for a chunk that is in none ---- */

zoff_swap_slot *zoff_offload_swap_slot_take(zoff_swap_store *s)
{
    zoff_swap_slot *kept = NULL;
    for (unsigned i = 0; i < s->ring_count; i++) {
        zoff_swap_slot *slot = &s->slots[i];
        if (slot->state == ZOFF_SLOT_FREE)
            return slot;
        if (slot->state == ZOFF_SLOT_KEPT && (!kept || slot->used < kept->used))
            kept = slot;
    }
    if (kept)
        kept->state = ZOFF_SLOT_FREE;
    return kept;
}

bool zoff_offload_swap_slot_is_put_off(const zoff_swap_slot *slot)
{
    return slot->state == ZOFF_SLOT_DIRTY && slot->changed;
}

void zoff_offload_swap_slot_assign(zoff_swap_slot *slot, size_t chunk)
{
    slot->state = ZOFF_SLOT_LENT;
    slot->chunk = chunk;
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

/* Persistent files have two places for each array. The committed bytes stay in theirs until the next commit, so new bytes go to
 * the other. */
void zoff_offload_swap_slot_renew(zoff_swap_store *s, size_t chunk, const char *base, unsigned arrays)
{
    zoff_swap_place *place = &s->places[chunk];
    for (unsigned array = 0; array < ZOFF_STORE_ARRAYS; array++) {
        if (!(arrays >> array & 1))
            continue;
        place->now.arrays[array].slot = s->persist ? !place->committed.arrays[array].slot : 0;
        place->now.arrays[array].fresh = false;
    }
    zoff_offload_swap_stamp(s, chunk, base, arrays, &place->now);
}

zoff_status zoff_offload_swap_slot_write(zoff_swap_store *s, zoff_swap_slot *slot)
{
    const unsigned changed = slot->changed;
    zoff_offload_swap_slot_discard(s, slot);
    slot->stays = true;
    zoff_offload_swap_slot_renew(s, slot->chunk, slot->base, changed);
    return zoff_offload_swap_move_start_write(s, slot, changed);
}

zoff_status zoff_offload_swap_slot_find_room(zoff_swap_store *s, zoff_swap_slot **out)
{
    *out = zoff_offload_swap_slot_take(s);
    for (zoff_swap_slot *slot = s->put_off.oldest; !*out && slot; slot = slot->newer) {
        if (!slot->is_home)
            return zoff_offload_swap_slot_write(s, slot);
    }
    return ZOFF_OK;
}

void zoff_offload_swap_slot_put_off(zoff_swap_store *s, zoff_swap_slot *slot, unsigned changed)
{
    slot->state = ZOFF_SLOT_DIRTY;
    slot->changed = changed;
    zoff_offload_swap_slot_append(&s->put_off, slot);
}

/* Both ends of a window may lie in chunks that the next window is about, too: two are put off at least. */
static size_t put_off_most(const zoff_swap_store *s)
{
    return s->ring_count / 2 > 2 ? s->ring_count / 2 : 2;
}

zoff_status zoff_offload_swap_slot_keep(zoff_store *store, size_t chunk, unsigned changed)
{
    zoff_swap_store *s = (zoff_swap_store *)store;
    zoff_swap_slot *slot = zoff_offload_swap_find(s, chunk);
    changed = (changed & zoff_offload_swap_move_arrays(s, chunk)) | slot->changed;
    slot->used = ++s->kept;
    if (slot->is_home && (!s->persist || !changed))
        return ZOFF_OK;
    zoff_offload_swap_slot_discard(s, slot);
    slot->state = ZOFF_SLOT_KEPT;
    if (!changed)
        return ZOFF_OK;
    zoff_offload_swap_slot_put_off(s, slot, changed);
    return s->put_off.count > put_off_most(s) ? zoff_offload_swap_slot_write(s, s->put_off.oldest) : ZOFF_OK;
}
