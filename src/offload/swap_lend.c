/* SPDX-License-Identifier: Apache-2.0 */
/* swap_lend.c: slots for the demands of the broker: whether a chunk has a place, what ends its waiting, fetch and give back,
 * reading ahead. Also where a chunk is, for a checkpoint that reads it beside the steps. */
#include "swap_priv.h"

#include "aio.h"
#include "try.h"

/* ---- places for demands ---- */

/* A write that was put off, or a read that nobody waits for, does not keep the chunk from its slot. */
static bool is_open_to(const zoff_swap_slot *slot)
{
    const bool is_read = slot->state == ZOFF_SLOT_READING && !slot->is_granted;
    return is_read || slot->state == ZOFF_SLOT_KEPT || zoff_offload_swap_slot_is_put_off(slot);
}

bool zoff_offload_swap_lend_has_place(zoff_store *store, size_t chunk, unsigned reserved)
{
    const zoff_swap_store *s = (const zoff_swap_store *)store;
    const zoff_swap_slot *own = zoff_offload_swap_slot_find(s, chunk);
    unsigned count = own != NULL;
    if (own && own->is_home)
        return own->state == ZOFF_SLOT_FREE || zoff_offload_swap_slot_is_put_off(own);
    if (own && !is_open_to(own))
        return false;
    for (unsigned i = 0; i < s->ring_count; i++) {
        const zoff_swap_slot *slot = &s->slots[i];
        count += slot != own && (slot->state == ZOFF_SLOT_FREE || zoff_offload_swap_slot_is_clean(slot));
    }
    return count > reserved;
}

static bool is_busy(const zoff_swap_slot *slot)
{
    return slot->state == ZOFF_SLOT_READING || slot->state == ZOFF_SLOT_LENT || slot->state == ZOFF_SLOT_WRITING;
}

/* Start a write again that has failed, once for a demand. A second failure ends the demand with the error, and the slot keeps
 * bytes and error. */
static zoff_status repeat(zoff_swap_store *s, zoff_swap_slot *slot, bool *repeated)
{
    if (*repeated) {
        *repeated = false;
        zoff_base_status_restore(&slot->words);
        return slot->result;
    }
    *repeated = true;
    ZOFF_TRY(zoff_offload_swap_move_start_write(s, slot, slot->moving));
    return ZOFF_PENDING;
}

/* Find what a demand waits for: a slot of the ring that a transfer will free, otherwise a failed one, because the caller
 * may have borrowed those that are lent, otherwise one that is lent. */
static zoff_swap_slot *find_obstacle(zoff_swap_store *s)
{
    zoff_swap_slot *failed = NULL, *lent = NULL;
    for (unsigned i = 0; i < s->ring_count; i++) {
        zoff_swap_slot *slot = &s->slots[i];
        if (slot->state == ZOFF_SLOT_READING || slot->state == ZOFF_SLOT_WRITING)
            return slot;
        failed = slot->state == ZOFF_SLOT_DIRTY ? slot : failed;
        lent = slot->state == ZOFF_SLOT_LENT ? slot : lent;
    }
    return failed ? failed : lent;
}

/* Writes that were put off take slots, too, also of chunks into which arrays were read since. */
static zoff_status write_deferred(zoff_swap_store *s)
{
    zoff_swap_slot *slot;
    for (unsigned i = 0; i < s->ring_count; i++) {
        slot = &s->slots[i];
        if (slot->state == ZOFF_SLOT_READING && slot->result != ZOFF_PENDING && !slot->is_granted && slot->changed)
            zoff_offload_swap_slot_leave(s, slot);
    }
    return zoff_offload_swap_put_off_find_room(s, &slot);
}

zoff_status zoff_offload_swap_lend_clear(zoff_store *store, size_t chunk, bool *repeated)
{
    zoff_swap_store *s = (zoff_swap_store *)store;
    zoff_swap_slot *slot = zoff_offload_swap_slot_find(s, chunk);
    if (!slot) {
        ZOFF_TRY(write_deferred(s));
        slot = find_obstacle(s);
    }
    ZOFF_FAIL_IF(!slot || (!is_busy(slot) && slot->state != ZOFF_SLOT_DIRTY), ZOFF_ERR_STATE,
                 "chunk %zu waits for one of %u slots, and nothing is in them that will end; this is a defect of the library, "
                 "please report it",
                 chunk, s->ring_count);
    return is_busy(slot) ? ZOFF_PENDING : repeat(s, slot, repeated);
}

/* ---- borrowing ---- */

/* Lend the arrays in a slot to the caller, if nobody has them. */
static void pick_up(zoff_swap_store *s, zoff_swap_slot *slot)
{
    if (zoff_offload_swap_slot_is_put_off(slot))
        zoff_offload_swap_slot_take_out(&s->put_off, slot);
    else if (slot->state != ZOFF_SLOT_KEPT)
        return;
    slot->state = ZOFF_SLOT_LENT;
}

/* The error of a read ahead is dropped, because it may be an old one, so the demand reads again.  @return OK: it has not
 * failed */
static zoff_status read_again(zoff_swap_store *s, zoff_swap_slot *slot)
{
    if (slot->result == ZOFF_PENDING)
        (void)zoff_offload_swap_move_finish(s, slot);
    if (slot->result >= 0 || !slot->ahead)
        return ZOFF_OK;
    const zoff_status status = zoff_offload_swap_move_start_read(s, slot, slot->moving);
    if (status < 0)
        zoff_offload_swap_slot_leave(s, slot);
    return status < 0 ? status : ZOFF_PENDING;
}

/* Read the missing arrays into a slot that the caller has. A read in flight may be for other arrays. */
static zoff_status complete(zoff_swap_store *s, zoff_swap_slot *slot, unsigned arrays)
{
    for (;;) {
        if (slot->state == ZOFF_SLOT_READING) {
            const zoff_status again = read_again(s, slot);
            const zoff_status status = again == ZOFF_OK ? zoff_offload_swap_move_take_read(s, slot) : again;
            if (status != ZOFF_OK)
                return status;
        }
        const unsigned missing = arrays & ~slot->holds;
        if (!missing)
            return ZOFF_OK;
        const zoff_status status = zoff_offload_swap_move_start_read(s, slot, missing);
        if (status < 0)
            zoff_offload_swap_slot_leave(s, slot);
        ZOFF_TRY(status);
    }
}

/* Find the read of a demand that was withdrawn. */
static zoff_swap_slot *find_read(zoff_swap_store *s, size_t chunk)
{
    zoff_swap_slot *slot = zoff_offload_swap_slot_find(s, chunk);
    if (slot && slot->state == ZOFF_SLOT_READING && !slot->is_granted && slot->result < 0) {
        zoff_offload_swap_slot_leave(s, slot);
        slot = zoff_offload_swap_slot_find(s, chunk);
    }
    return slot;
}

zoff_status zoff_offload_swap_lend_fetch(zoff_store *store, size_t chunk, unsigned arrays, void **out)
{
    zoff_swap_store *s = (zoff_swap_store *)store;
    zoff_swap_slot *slot = find_read(s, chunk);
    arrays &= zoff_offload_swap_place_arrays(s, chunk);
    if (slot && slot->is_home) { /* the home must not change while it is written */
        *out = slot->base;
        return slot->state == ZOFF_SLOT_FREE || zoff_offload_swap_slot_is_put_off(slot) ? ZOFF_OK : ZOFF_PENDING;
    }
    if (slot) {
        const bool is_lent = slot->state == ZOFF_SLOT_LENT;
        pick_up(s, slot);
        if (is_lent || (slot->state != ZOFF_SLOT_LENT && slot->state != ZOFF_SLOT_READING))
            return ZOFF_PENDING; /* the home is still being written */
        slot->is_granted = true;
    } else {
        ZOFF_TRY(zoff_offload_swap_put_off_find_room(s, &slot));
        if (!slot)
            return ZOFF_PENDING;
        zoff_offload_swap_slot_assign(s, slot, chunk);
        slot->is_granted = true;
    }
    const zoff_status status = complete(s, slot, arrays);
    if (status == ZOFF_OK)
        *out = slot->base;
    return status;
}

/* Wait for a read in flight as for any other, because its memory cannot be used until then. */
zoff_status zoff_offload_swap_lend_claim(zoff_store *store, size_t chunk, void **out)
{
    zoff_swap_store *s = (zoff_swap_store *)store;
    zoff_swap_slot *slot;
    if (zoff_offload_swap_slot_find(s, chunk))
        return zoff_offload_swap_lend_fetch(store, chunk, ZOFF_STORE_ALL, out);
    ZOFF_TRY(zoff_offload_swap_put_off_find_room(s, &slot));
    if (!slot)
        return ZOFF_PENDING;
    zoff_offload_swap_slot_assign(s, slot, chunk);
    slot->holds = zoff_offload_swap_place_arrays(s, chunk);
    *out = slot->base;
    return ZOFF_OK;
}

zoff_status zoff_offload_swap_lend_check(zoff_store *store, size_t chunk)
{
    zoff_swap_store *s = (zoff_swap_store *)store;
    s->sums.digested = SIZE_MAX;
    zoff_swap_slot *slot = zoff_offload_swap_slot_find(s, chunk);
    const unsigned corrupt = slot->unchecked ? zoff_offload_swap_sum_find_corrupt(s, slot) : 0;
    if (!corrupt) {
        slot->unchecked = 0;
        return ZOFF_OK;
    }
    if (!slot->is_home) { /* arrays that were read with them are read again, too */
        slot->holds &= ~slot->unchecked;
        slot->unchecked = 0;
        zoff_offload_swap_slot_leave(s, slot);
    }
    const zoff_store_chunk *c = &s->chunks[chunk];
    unsigned array = 0;
    while (!(corrupt >> array & 1))
        array++;
    return zoff_base_status_fail(
        ZOFF_ERR_CORRUPT,
        "chunk %zu (%zu bytes at offset %llu of '%s') is not what was written there: its checksum is wrong. A bit has "
        "changed on the drive or on the way; nothing of the chunk was used. Try again. If the error stays, go back to a "
        "checkpoint on another drive (zoff.verify sets what is compared)",
        chunk, c->ends[array] - zoff_offload_swap_place_begin(c, array),
        (unsigned long long)zoff_offload_swap_place_offset(s, chunk, array), s->files[s->places[chunk].file].name);
}

/* Write every array in the slot: the whole chunk after a whole fetch. */
zoff_status zoff_offload_swap_lend_flush(zoff_store *store, size_t chunk)
{
    zoff_swap_store *s = (zoff_swap_store *)store;
    if (s->places[chunk].home && !s->persist)
        return ZOFF_OK;
    zoff_swap_slot *slot = zoff_offload_swap_slot_find(s, chunk);
    zoff_offload_swap_slot_discard(s, slot);
    slot->stays = false;
    zoff_offload_swap_sum_renew(s, chunk, slot->base, slot->holds);
    return zoff_offload_swap_move_start_write(s, slot, slot->holds);
}

void zoff_offload_swap_lend_release(zoff_store *store, size_t chunk)
{
    zoff_swap_store *s = (zoff_swap_store *)store;
    zoff_swap_slot *slot = zoff_offload_swap_slot_find(s, chunk);
    if (s->places[chunk].is_undecided && !s->places[chunk].is_put)
        zoff_offload_swap_second_drop(s, chunk);
    else if (slot && slot->state == ZOFF_SLOT_READING)
        slot->is_granted = false;
    else if (slot && slot->state == ZOFF_SLOT_LENT)
        zoff_offload_swap_slot_leave(s, slot);
}

bool zoff_offload_swap_lend_resident(const zoff_store *store, size_t chunk)
{
    return ((const zoff_swap_store *)store)->places[chunk].home;
}

/* ---- reading ahead ---- */

/* A range may have left some arrays of the chunk in a slot: then this reads the others into the same slot.
 * @return false: no slot is free, nor has one a copy that was used before number `before` */
static bool read_ahead(zoff_swap_store *s, size_t chunk, unsigned arrays, uint64_t before)
{
    zoff_swap_slot *slot = zoff_offload_swap_slot_find(s, chunk);
    if (!arrays || (slot && (slot->state != ZOFF_SLOT_KEPT || !(arrays & ~slot->holds))))
        return true;
    if (!slot) {
        slot = zoff_offload_swap_slot_take(s, before);
        if (!slot)
            return false;
        zoff_offload_swap_slot_assign(s, slot, chunk);
    }
    slot->is_granted = false;
    slot->used = ++s->uses;
    if (zoff_offload_swap_move_start_read(s, slot, arrays & ~slot->holds) < 0)
        zoff_offload_swap_slot_leave(s, slot); /* the demand for the chunk meets the error again */
    else
        slot->ahead = true;
    return true;
}

/* Mark chunks of the list that are here already as used now, so that the others do not take their slots. */
void zoff_offload_swap_lend_hint(zoff_store *store, const size_t *chunks, const unsigned *arrays, size_t count)
{
    zoff_swap_store *s = (zoff_swap_store *)store;
    const uint64_t before = s->uses + 1;
    for (size_t i = 0; i < count; i++) {
        zoff_swap_slot *slot = zoff_offload_swap_slot_find(s, chunks[i]);
        if (slot && !slot->is_home)
            slot->used = ++s->uses;
    }
    for (size_t i = 0; i < count; i++) {
        const unsigned all = zoff_offload_swap_place_arrays(s, chunks[i]);
        if (!read_ahead(s, chunks[i], arrays ? arrays[i] & all : all, before))
            break;
    }
}

void zoff_offload_swap_lend_forget(zoff_swap_store *s)
{
    for (unsigned i = 0; i < s->ring_count; i++) {
        if (s->slots[i].state == ZOFF_SLOT_READING)
            (void)zoff_offload_swap_move_abandon(s, &s->slots[i]);
    }
}

zoff_status zoff_offload_swap_lend_reload(zoff_swap_store *s, zoff_swap_slot *home)
{
    if (home->state != ZOFF_SLOT_READING)
        ZOFF_TRY(zoff_offload_swap_move_start_read(s, home, zoff_offload_swap_place_arrays(s, home->chunk)));
    const zoff_status status = zoff_offload_swap_move_take_read(s, home);
    if (status == ZOFF_PENDING) {
        ZOFF_TRY(zoff_offload_swap_wait_for(s, home));
        ZOFF_TRY(zoff_offload_swap_wait_report(s));
        return ZOFF_PENDING;
    }
    home->state = ZOFF_SLOT_FREE; /* a home is FREE while nobody has borrowed it */
    ZOFF_TRY(status);
    return zoff_offload_swap_lend_check(&s->store, home->chunk);
}

/* ---- read without borrowing ---- */

/* Whether a slot holds bytes that the file lacks. */
static bool has_newer(const zoff_swap_store *s, size_t chunk)
{
    const zoff_swap_slot *slot = zoff_offload_swap_slot_find(s, chunk);
    return slot && (slot->state == ZOFF_SLOT_DIRTY || slot->state == ZOFF_SLOT_WRITING);
}

/* A resident that persists is in its file, too: its place stays while its memory changes. An undecided chunk has its first
 * content. */
zoff_status zoff_offload_swap_lend_source(const zoff_store *store, size_t chunk, unsigned array, zoff_store_source *out)
{
    const zoff_swap_store *s = (const zoff_swap_store *)store;
    const zoff_swap_place *place = &s->places[chunk];
    const zoff_swap_array *now = &(place->is_undecided ? &place->committed : &place->now)->arrays[array];
    const size_t begin = zoff_offload_swap_place_begin(&s->chunks[chunk], array);
    zoff_store_source source = {.fd = -1, .begin = begin, .bytes = s->chunks[chunk].ends[array] - begin};
    if (place->home && !s->persist) {
        source.memory = (place->is_undecided ? place->first : place->home->base) + begin;
        source.written = source.bytes;
        *out = source;
        return ZOFF_OK;
    }
    ZOFF_FAIL_IF(!place->is_undecided && has_newer(s, chunk), ZOFF_ERR_STATE,
                 "a slot has newer states than '%s', because a write has failed: call zoff_state_flush() until it succeeds",
                 s->files[place->file].name);
    source.queue = s->files[place->file].aio;
    source.fd = zoff_aio_queue_fd(source.queue);
    source.offset = zoff_offload_swap_place_offset_of(s, chunk, array, now);
    source.written = zoff_offload_swap_place_written_of(s, chunk, array, now);
    source.has_checksum = now->has_checksum;
    source.checksum = now->checksum;
    source.stays = s->persist && now->slot == place->committed.arrays[array].slot;
    *out = source;
    return ZOFF_OK;
}
