/* SPDX-License-Identifier: Apache-2.0 */
/* swap_keep.c: files that outlive their process. Each chunk has two places in its file. The record of generation g names, for
 * each array of a chunk, one of the two places and the checksum of its content. Writes go to the other place; when all are
 * there, the record of g + 1 is written. Whenever the process ends, one of the last two generations is complete.
 *
 * Arrays of a chunk that were written in different generations lie in different places, until ranges bring them together. A
 * step writes each array to its other place, which costs one more request and no more bytes.
 *
 * A power cut is survived only if the drive has really written its data. `power_safe` flushes the drive's cache before the
 * record and after it. A flush that fails loses the writes since the last one, and the next flush does not report it
 * (docs/adr/0017-state-files.md#0031). Then chunks are `unproven` until they are written again.
 *
 * Several files are committed one after the other. The generation to continue with is the newest that all of them have. No file
 * is more than one ahead: g + 2 does not begin before g + 1 is committed everywhere. */
#include "swap_priv.h"

#include "clock.h"
#include "mem.h"
#include "try.h"

#include <inttypes.h>

/* ---- commit ---- */

/* Mark everything that was written to a file since its last commit. */
static void doubt_chunks(zoff_swap_store *s, uint32_t file)
{
    for (size_t chunk = 0; chunk < s->chunk_count; chunk++) {
        zoff_swap_place *place = &s->places[chunk];
        unsigned written = 0;
        for (unsigned array = 0; place->file == file && array < ZOFF_STORE_ARRAYS; array++)
            written |= (unsigned)(place->now.arrays[array].slot != place->committed.arrays[array].slot) << array;
        written &= zoff_offload_swap_place_arrays(s, chunk);
        s->store.unproven += written && !place->unproven;
        place->unproven |= written;
    }
}

/* Flush the chunks of all files, before a record in any of them names one. */
static zoff_status flush_chunks(zoff_swap_store *s)
{
    for (uint32_t i = 0; i < s->file_count; i++) {
        zoff_status status = zoff_offload_swap_move_flush_drive(s, &s->files[i]);
        if (status < 0)
            doubt_chunks(s, i);
        ZOFF_TRY(status);
    }
    return ZOFF_OK;
}

/* Without a checksum, bytes that the drive has lost cannot be distinguished from good ones. */
static bool has_checksums(const zoff_swap_store *s, const zoff_swap_place *place)
{
    bool has = s->sums.verify != ZOFF_VERIFY_OFF;
    for (unsigned array = 0; array < ZOFF_STORE_ARRAYS; array++)
        has = has && (!(place->unproven >> array & 1) || place->now.arrays[array].has_checksum);
    return has;
}

/* Write arrays whose write was put off, because the slot has newer bytes than the file. Unproven arrays in the slot are written
 * with them. */
static zoff_status rewrite_newer(zoff_swap_store *s, zoff_swap_slot *newer)
{
    const unsigned changed = newer->changed, also = s->places[newer->chunk].unproven & newer->holds & ~newer->unchecked;
    zoff_offload_swap_slot_discard(s, newer);
    newer->stays = true;
    zoff_offload_swap_sum_renew(s, newer->chunk, newer->base, changed);
    return zoff_offload_swap_move_start_write(s, newer, changed | also);
}

/* The way out of a step that no retry can finish. One rank of several cannot drop it alone, because the others are updating. */
static const char *way_back(const zoff_swap_store *s)
{
    return s->record.identity.ranks > 1 ? "End the program, and start all ranks again: they go back"
                                        : "Call zoff_grads_drop(), or open the engine again: both go back";
}

zoff_status zoff_offload_swap_keep_rewrite(zoff_swap_store *s)
{
    zoff_offload_swap_lend_forget(s);
    for (size_t chunk = 0; chunk < s->chunk_count; chunk++) {
        const zoff_swap_place *place = &s->places[chunk];
        zoff_status status = ZOFF_OK;
        void *base;
        if (!place->unproven)
            continue;
        zoff_swap_slot *newer = zoff_offload_swap_slot_find(s, chunk);
        if (newer && zoff_offload_swap_slot_is_put_off(newer))
            ZOFF_TRY(rewrite_newer(s, newer));
        if (!place->unproven)
            continue;
        while ((status = zoff_offload_swap_lend_fetch(&s->store, chunk, place->unproven, &base)) == ZOFF_PENDING)
            ZOFF_TRY(zoff_offload_swap_wait_any(&s->store));
        const bool is_compared = place->home || has_checksums(s, place);
        if (status == ZOFF_OK && !is_compared)
            zoff_offload_swap_lend_release(&s->store, chunk);
        ZOFF_FAIL_IF(
            status == ZOFF_OK && !is_compared, ZOFF_ERR_IO,
            "chunk %zu of '%s' was written before a flush that failed, and has no checksum to compare it with "
            "(zoff.verify is not \"full\"): zoff_step_retry() cannot finish this step. %s to the states after step %" PRId64,
            chunk, s->files[place->file].name, way_back(s), s->store.t);
        if (status == ZOFF_OK && !place->home)
            status = zoff_offload_swap_lend_check(&s->store, chunk);
        if (status < 0)
            return zoff_base_status_prefix(status,
                                           "a flush has failed, and the drive has lost what was written before it: "
                                           "zoff_step_retry() cannot finish this step. %s to the states after step %" PRId64
                                           ". Chunk %zu: ",
                                           way_back(s), s->store.t, chunk);
        ZOFF_TRY(zoff_offload_swap_move_start_write(s, zoff_offload_swap_slot_find(s, chunk), place->unproven));
    }
    return ZOFF_OK;
}

/* List the chunks of one file as they are now, in the order of the list. */
static void list_entries(const zoff_swap_store *s, uint32_t file, zoff_swap_entry *out)
{
    for (size_t chunk = 0; chunk < s->chunk_count; chunk++) {
        const zoff_swap_place *place = &s->places[chunk];
        if (!s->chunks[chunk].bytes || place->file != file)
            continue;
        *out = (zoff_swap_entry){.chunk = chunk, .offset = place->offset, .first_bytes = place->first_bytes};
        for (unsigned i = 0; i < ZOFF_STORE_ARRAYS; i++) {
            const zoff_swap_array *now = &place->now.arrays[i];
            out->arrays[i] = (zoff_swap_entry_array){.end = s->chunks[chunk].ends[i],
                                                     .checksum = now->checksum,
                                                     .slot = now->slot,
                                                     .flags = (now->fresh ? ZOFF_ENTRY_FRESH : 0u) |
                                                              (now->has_checksum ? ZOFF_ENTRY_HAS_CHECKSUM : 0u)};
        }
        out++;
    }
}

static zoff_status write_record(zoff_swap_store *s, uint32_t index, uint64_t generation, int64_t t)
{
    zoff_status status;
    zoff_swap_entry *entries;
    zoff_swap_file *file = &s->files[index];
    zoff_swap_head head = {.version = s->record.version,
                           .generation = generation,
                           .t = t,
                           .flags = s->record.stepped || s->store.is_open ? ZOFF_HEAD_STEPPED : 0,
                           .identity = s->record.identity,
                           .entry_count = file->chunk_count,
                           .file_bytes = file->bytes,
                           .write_bytes = file->write_bytes};
    head.identity.file = index;
    head.attached_bytes = index == 0 ? s->store.attached_count : 0;
    ZOFF_TRY(zoff_base_mem_alloc(file->chunk_count + 1, sizeof *entries, "a commit record", &entries));
    list_entries(s, index, entries);
    ZOFF_TRY_OR(free_entries, zoff_offload_swap_record_write(file->aio, &head, entries, s->store.attached));
    status = zoff_offload_swap_move_flush_drive(s, file);
free_entries:
    zoff_base_mem_free(entries);
    return status;
}

zoff_status zoff_offload_swap_keep_record(zoff_store *store, int64_t t)
{
    zoff_swap_store *s = (zoff_swap_store *)store;
    double from = zoff_base_clock_seconds();
    zoff_status status = ZOFF_OK;
    for (uint32_t i = 0; status == ZOFF_OK && s->persist && i < s->file_count; i++)
        status = zoff_offload_swap_file_check_name(&s->files[i]);
    if (status == ZOFF_OK && s->persist)
        status = flush_chunks(s);
    s->record.in_doubt = s->record.in_doubt || (s->persist && status == ZOFF_OK);
    for (uint32_t i = 0; status == ZOFF_OK && s->persist && i < s->file_count; i++)
        status = write_record(s, i, s->record.generation + 1, t);
    s->store.stats.wait_seconds += zoff_base_clock_seconds() - from;
    return status < 0 ? zoff_base_status_prefix(status, "the commit of step %" PRId64 " failed: ", t) : ZOFF_OK;
}

void zoff_offload_swap_keep_confirm(zoff_store *store)
{
    zoff_swap_store *s = (zoff_swap_store *)store;
    for (size_t i = 0; s->persist && i < s->file_count; i++)
        s->files[i].keep = true; /* keep all files or, if the first commit fails, none */
    for (size_t chunk = 0; s->persist && chunk < s->chunk_count; chunk++)
        s->places[chunk].committed = s->places[chunk].now;
    s->record.in_doubt = false;
    s->record.stepped = s->record.stepped || s->store.is_open;
    s->record.generation++;
    s->store.stats.lifetime_write_bytes = zoff_offload_swap_move_lifetime(s);
}

/* ---- roll back ---- */

zoff_status zoff_offload_swap_keep_rollback(zoff_store *store)
{
    zoff_swap_store *s = (zoff_swap_store *)store;
    ZOFF_TRY(zoff_offload_swap_second_discard_all(s));
    if (!s->persist) /* there is no commit to go back to */
        return ZOFF_OK;
    zoff_offload_swap_lend_forget(s);
    while (s->put_off.oldest)
        zoff_offload_swap_slot_discard(s, s->put_off.oldest);
    zoff_status drained = zoff_offload_swap_wait_drain(store);
    /* A failed write is not needed any more; one that does not end would take effect later. */
    if (drained < 0 && zoff_offload_store_busy(store, false))
        return drained;
    while (zoff_offload_store_busy(store, false)) /* a read that could not be abandoned */
        ZOFF_TRY(zoff_offload_swap_wait_any(store));
    for (size_t i = 0; i < s->ring_count + s->home_count; i++)
        s->slots[i].state = ZOFF_SLOT_FREE;
    s->has_failed = false;
    for (size_t chunk = 0; chunk < s->chunk_count; chunk++) {
        zoff_swap_place *place = &s->places[chunk];
        place->stale = place->stale || (place->home && s->chunks[chunk].bytes);
        place->now = place->committed;
        place->unproven = false;
    }
    s->store.unproven = 0;
    for (size_t chunk = 0; chunk < s->chunk_count; chunk++) {
        if (!s->places[chunk].stale)
            continue;
        zoff_status status;
        while ((status = zoff_offload_swap_lend_reload(s, s->places[chunk].home)) == ZOFF_PENDING) {
        }
        ZOFF_TRY(status);
        s->places[chunk].stale = false;
    }
    /* Otherwise the next process would go on with the commit that is undone here, because its record may be whole. */
    return zoff_offload_swap_move_take_back(s);
}
