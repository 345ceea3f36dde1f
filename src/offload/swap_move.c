/* SPDX-License-Identifier: Apache-2.0 */
/* swap_move.c: reads and writes of the arrays of a slot. Several arrays that are adjacent in the file are one request. They are
 * not adjacent if the last record names different places for them (swap_keep.c). Then there are two requests, or three, and the
 * read or write is done when all of them are. Also here: flushes of the drive, which make writes durable. */
#include "swap_priv.h"

#include "clock.h"
#include "trace.h"
#include "try.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static zoff_aio *queue_of(zoff_swap_store *s, size_t chunk)
{
    return s->files[s->places[chunk].file].aio;
}

/* ---- the drive ---- */

zoff_status zoff_offload_swap_move_flush_drive(const zoff_swap_store *s, const zoff_swap_file *file)
{
    if (!s->record.power_safe)
        return ZOFF_OK;
    ZOFF_FAIL_IF(fdatasync(file->lock) != 0, ZOFF_ERR_IO,
                 "cannot flush '%s' to the drive: %s; the drive may have lost what was written since the last flush",
                 file->name, zoff_base_status_errno(errno));
    return ZOFF_OK;
}

/* Erase a record in doubt. The next writes go to the places that it names. If the process died then, the record would name
 * bytes that are not there. */
zoff_status zoff_offload_swap_move_take_back(zoff_swap_store *s)
{
    for (size_t i = 0; s->record.in_doubt && i < s->file_count; i++) {
        ZOFF_TRY(zoff_offload_swap_record_take_back(s->files[i].aio, s->record.generation + 1));
        ZOFF_TRY(zoff_offload_swap_move_flush_drive(s, &s->files[i]));
    }
    s->record.in_doubt = false;
    return ZOFF_OK;
}

uint64_t zoff_offload_swap_move_lifetime(const zoff_swap_store *s)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < s->file_count; i++)
        sum += s->files[i].write_bytes;
    return sum;
}

/* ---- requests ---- */

static void add_request(zoff_swap_slot *slot, uint64_t offset, size_t begin, size_t bytes)
{
    zoff_swap_request *last = slot->request_count ? &slot->requests[slot->request_count - 1] : NULL;
    slot->moved_bytes += bytes;
    if (last && last->begin + last->bytes == begin && last->offset + last->bytes == offset)
        last->bytes += bytes;
    else if (bytes)
        slot->requests[slot->request_count++] = (zoff_swap_request){.offset = offset, .begin = begin, .bytes = bytes};
}

static void list_requests(const zoff_swap_store *s, zoff_swap_slot *slot, unsigned arrays, bool writes)
{
    const zoff_store_chunk *c = &s->chunks[slot->chunk];
    slot->moving = arrays;
    slot->request_count = 0;
    slot->moved_bytes = 0;
    slot->failed = ZOFF_OK;
    for (unsigned array = 0; array < ZOFF_STORE_ARRAYS; array++) {
        const size_t begin = zoff_offload_swap_place_begin(c, array);
        if (arrays >> array & 1)
            add_request(slot, zoff_offload_swap_place_offset(s, slot->chunk, array), begin,
                        writes ? c->ends[array] - begin : zoff_offload_swap_place_written(s, slot->chunk, array));
    }
}

static void note_failure(zoff_swap_slot *slot, zoff_status status)
{
    if (status >= 0 || slot->failed < 0)
        return;
    slot->failed = status;
    zoff_base_status_save(&slot->words);
}

/* If a request cannot be started, those before it are in flight, so the error is returned when they end. */
static zoff_status start_requests(zoff_swap_store *s, zoff_swap_slot *slot, bool writes)
{
    zoff_aio *queue = queue_of(s, slot->chunk);
    for (unsigned i = 0; i < slot->request_count; i++) {
        zoff_swap_request *r = &slot->requests[i];
        char *memory = slot->base + r->begin;
        const zoff_status status = writes ? zoff_aio_write(queue, r->offset, r->bytes, memory, &r->ticket)
                                          : zoff_aio_read(queue, r->offset, r->bytes, memory, &r->ticket);
        if (status >= 0)
            continue;
        slot->request_count = i;
        if (!i)
            return status;
        note_failure(slot, status);
    }
    return ZOFF_OK;
}

static void end_request(zoff_swap_slot *slot, unsigned i, zoff_status status)
{
    note_failure(slot, status);
    slot->requests[i] = slot->requests[--slot->request_count];
}

/* ---- reads ---- */

/* Add the arrays that were read to those in the slot, and fill parts that were never written with zeros. */
static void finish_read(const zoff_swap_store *s, zoff_swap_slot *slot)
{
    const zoff_store_chunk *c = &s->chunks[slot->chunk];
    for (unsigned array = 0; array < ZOFF_STORE_ARRAYS; array++) {
        const size_t end = zoff_offload_swap_place_begin(c, array) + zoff_offload_swap_place_written(s, slot->chunk, array);
        if (slot->moving >> array & 1)
            memset(slot->base + end, 0, c->ends[array] - end);
    }
    slot->holds |= slot->moving;
    slot->unchecked |= slot->moving;
}

zoff_status zoff_offload_swap_move_start_read(zoff_swap_store *s, zoff_swap_slot *slot, unsigned arrays)
{
    list_requests(s, slot, arrays, false);
    ZOFF_TRY(start_requests(s, slot, false));
    slot->ahead = false;
    slot->state = ZOFF_SLOT_READING;
    slot->result = slot->request_count ? ZOFF_PENDING : ZOFF_OK;
    if (slot->request_count)
        zoff_offload_swap_slot_append(&s->flight, slot);
    else
        finish_read(s, slot); /* there was nothing to read */
    return ZOFF_OK;
}

/* ---- writes ---- */

/* The slot keeps its chunk and the error until retry: drain returns the error again, even if an earlier caller has dropped it.
 */
static zoff_status fail_write(zoff_swap_store *s, zoff_swap_slot *slot, zoff_status status)
{
    slot->state = ZOFF_SLOT_DIRTY;
    slot->result = status;
    zoff_base_status_save(&slot->words);
    s->has_failed = true;
    return status;
}

zoff_status zoff_offload_swap_move_start_write(zoff_swap_store *s, zoff_swap_slot *slot, unsigned arrays)
{
    zoff_swap_place *place = &s->places[slot->chunk];
    list_requests(s, slot, arrays, true);
    zoff_status status = zoff_offload_swap_move_take_back(s);
    if (status == ZOFF_OK)
        status = start_requests(s, slot, true);
    if (status < 0)
        return fail_write(s, slot, status);
    slot->state = ZOFF_SLOT_WRITING;
    zoff_offload_swap_slot_append(&s->flight, slot);
    s->store.unproven -= place->unproven && !(place->unproven & ~arrays);
    place->unproven &= ~arrays;
    return ZOFF_OK;
}

static zoff_status finish_write(zoff_swap_store *s, zoff_swap_slot *slot)
{
    if (slot->failed < 0) {
        zoff_base_status_restore(&slot->words);
        return fail_write(s, slot, slot->failed);
    }
    slot->state = slot->stays && !slot->is_home ? ZOFF_SLOT_KEPT : ZOFF_SLOT_FREE;
    s->store.stats.write_bytes += slot->moved_bytes;
    s->files[s->places[slot->chunk].file].write_bytes += slot->moved_bytes;
    return ZOFF_OK;
}

/* ---- results ---- */

static void trace(const zoff_swap_store *s, const zoff_swap_slot *slot, const zoff_swap_request *r)
{
    const zoff_swap_file *file = &s->files[s->places[slot->chunk].file];
    zoff_trace_transfer x = {.kind = slot->state == ZOFF_SLOT_WRITING ? "write" : "read",
                             .path = file->name,
                             .item = slot->chunk,
                             .item_kind = "bucket",
                             .offset = r->offset,
                             .bytes = r->bytes};
    zoff_aio_queue_times(file->aio, r->ticket, &x.from, &x.to);
    zoff_trace_end_transfer(&x);
}

/* A fetch of the chunk returns the error of a failed read. */
zoff_status zoff_offload_swap_move_finish(zoff_swap_store *s, zoff_swap_slot *slot)
{
    /* The posix back-end moves its bytes in here, which is time spent on the disk, too. */
    double from = zoff_base_clock_seconds();
    for (unsigned i = slot->request_count; i-- > 0;) {
        const zoff_status status = zoff_aio_poll(queue_of(s, slot->chunk), slot->requests[i].ticket);
        if (status != ZOFF_PENDING && zoff_trace_on())
            trace(s, slot, &slot->requests[i]);
        if (status != ZOFF_PENDING)
            end_request(slot, i, status);
    }
    s->store.stats.wait_seconds += zoff_base_clock_seconds() - from;
    if (slot->request_count)
        return ZOFF_PENDING;
    zoff_offload_swap_slot_take_out(&s->flight, slot);
    if (slot->state == ZOFF_SLOT_WRITING)
        return finish_write(s, slot);
    slot->result = slot->failed;
    if (slot->result == ZOFF_OK)
        finish_read(s, slot);
    return ZOFF_OK;
}

/* The step that takes the read counts it. */
zoff_status zoff_offload_swap_move_take_read(zoff_swap_store *s, zoff_swap_slot *slot)
{
    if (slot->result == ZOFF_PENDING && zoff_offload_swap_move_finish(s, slot) == ZOFF_PENDING)
        return ZOFF_PENDING;
    if (slot->result < 0) {
        zoff_offload_swap_slot_leave(s, slot);
        zoff_base_status_restore(&slot->words);
        return slot->result;
    }
    slot->state = ZOFF_SLOT_LENT;
    s->store.stats.read_bytes += slot->moved_bytes;
    s->store.stats.ahead_bytes += slot->ahead ? slot->moved_bytes : 0;
    return ZOFF_OK;
}

bool zoff_offload_swap_move_abandon(zoff_swap_store *s, zoff_swap_slot *slot)
{
    const bool is_in_flight = slot->result == ZOFF_PENDING;
    for (unsigned i = slot->request_count; i-- > 0;) {
        const zoff_status status = zoff_aio_wait(queue_of(s, slot->chunk), slot->requests[i].ticket);
        if (status == ZOFF_PENDING)
            return false; /* a caller that needs its memory waits, and gets the error */
        end_request(slot, i, status);
    }
    if (is_in_flight)
        zoff_offload_swap_slot_take_out(&s->flight, slot);
    zoff_offload_swap_slot_leave(s, slot);
    return true;
}
