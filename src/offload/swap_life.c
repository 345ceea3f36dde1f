/* SPDX-License-Identifier: Apache-2.0 */
/* swap_life.c: open and close the NVMe tier: place each chunk, create or find files, map memory, and write or read the first
 * content. */
#include "swap_priv.h"

#include "bits.h"
#include "log.h"
#include "mem.h"
#include "try.h"

#include <string.h>
#include <sys/stat.h>

enum { PATIENCE_SECONDS = 10 }; /* seconds to wait at close for a disk that completes nothing */

/* ---- places ---- */

/* A resident is in a file only if files persist. */
static bool is_in_file(const zoff_swap_store *s, size_t chunk)
{
    return s->chunks[chunk].bytes && (s->persist || !s->places[chunk].home);
}

/* Assign chunks to files by their shares, one behind the other: this gives the files' lengths. */
static void place_chunks(zoff_swap_store *s)
{
    const unsigned copies = zoff_offload_swap_place_copies(s);
    for (size_t chunk = 0; chunk < s->chunk_count; chunk++) {
        for (unsigned array = 0; array < ZOFF_STORE_ARRAYS; array++) {
            s->places[chunk].now.arrays[array] = (zoff_swap_array){.fresh = true};
            /* a place that no array has, so that everything counts as new */
            s->places[chunk].committed.arrays[array] = (zoff_swap_array){.slot = 1};
        }
        s->places[chunk].first_bytes = s->chunks[chunk].first_bytes;
        if (!is_in_file(s, chunk))
            continue;
        s->places[chunk].file = zoff_offload_swap_stripe_next(s, s->chunks[chunk].bytes);
        s->files[s->places[chunk].file].chunk_count++;
    }
    for (size_t i = 0; i < s->file_count; i++)
        s->files[i].bytes = s->persist ? zoff_offload_swap_record_room(s->files[i].chunk_count) : ZOFF_SWAP_HEAD_BYTES;
    for (size_t chunk = 0; chunk < s->chunk_count; chunk++) {
        zoff_swap_place *place = &s->places[chunk];
        if (!is_in_file(s, chunk))
            continue;
        place->offset = s->files[place->file].bytes;
        s->files[place->file].bytes += (uint64_t)s->chunks[chunk].bytes * copies;
    }
}

/* ---- files ---- */

/* The second file in a folder would be the first one again, which is locked. */
static zoff_status check_folders(const zoff_store_opts *opts)
{
    for (size_t i = 0; opts->persist && i < opts->path_count; i++) {
        for (size_t k = 0; k < i; k++) {
            struct stat one, other;
            const bool are_there = stat(opts->paths[i], &one) == 0 && stat(opts->paths[k], &other) == 0;
            ZOFF_FAIL_IF(are_there && one.st_dev == other.st_dev && one.st_ino == other.st_ino, ZOFF_ERR_INVALID,
                         "nvme_path names one folder twice: '%s' and '%s'; with zoff.persist each has a state file of its own",
                         opts->paths[k], opts->paths[i]);
        }
    }
    return ZOFF_OK;
}

static zoff_status open_files(zoff_swap_store *s, const zoff_store_opts *opts)
{
    zoff_aio_opts aio = {
        .struct_size = sizeof aio, .backend = opts->aio_backend, .direct = (zoff_aio_direct)opts->direct, .writable = true};
    for (size_t i = 0; i < opts->path_count; i++)
        zoff_offload_swap_file_clean(opts->paths[i]);
    ZOFF_TRY(check_folders(opts));
    ZOFF_TRY(zoff_offload_swap_stripe_measure(s, opts));
    for (size_t i = 0; i < opts->path_count; i++) {
        s->files[i].lock = -1;
        aio.block_bytes = s->stripes[i].block_bytes;
        aio.depth = s->stripes[i].depth;
        ZOFF_TRY(s->persist ? zoff_offload_swap_file_open_kept(opts->paths[i], (zoff_store_owner){opts->rank, opts->part}, &aio,
                                                               &s->files[i])
                            : zoff_offload_swap_file_open(opts->paths[i], opts->rank, &aio, &s->files[i]));
        s->file_count = i + 1;
        zoff_aio_queue_limit(s->files[i].aio, s->timeout_seconds);
    }
    return ZOFF_OK;
}

static zoff_status reserve_files(zoff_swap_store *s)
{
    for (size_t i = 0; i < s->file_count; i++) {
        ZOFF_TRY(zoff_offload_swap_file_reserve(&s->files[i]));
        /* Before the first commit there is nothing to open again. */
        ZOFF_TRY(s->persist ? zoff_offload_swap_record_clear(s->files[i].aio, s->files[i].chunk_count)
                            : zoff_offload_swap_file_write_head(&s->files[i], s->record.identity.rank));
    }
    return ZOFF_OK;
}

/* Residents take part in I/O only if files persist. */
static zoff_status register_memory(zoff_swap_store *s)
{
    const size_t bytes = s->largest * (s->ring_count + (s->persist ? s->home_count : 0));
    for (size_t i = 0; bytes && i < s->file_count; i++) /* a rank may own nothing */
        ZOFF_TRY(zoff_aio_register(s->files[i].aio, s->store.map.base, bytes));
    return ZOFF_OK;
}

/* ---- memory ---- */

/* Map the slots of the ring, and behind them the homes of residents. */
static zoff_status map_memory(zoff_swap_store *s)
{
    const char *what = s->home_count ? "the slots and the resident chunks of the NVMe tier" : "the slots of the NVMe tier";
    const size_t count = s->ring_count + s->home_count;
    ZOFF_TRY(zoff_base_map_alloc(s->largest * count, what, ZOFF_MAP_INTERLEAVED, &s->store.map));
    zoff_base_map_keep_from_children(&s->store.map);
    for (size_t i = 0; i < count; i++)
        s->slots[i].base = (char *)s->store.map.base + i * s->largest;
    zoff_swap_slot *home = &s->slots[s->ring_count];
    size_t used = 0, number = 0;
    for (size_t chunk = 0; chunk < s->chunk_count; chunk++)
        used += s->chunks[chunk].bytes != 0 && !s->chunks[chunk].is_elsewhere;
    for (size_t chunk = 0; chunk < s->chunk_count; chunk++) {
        if (!s->chunks[chunk].bytes || s->chunks[chunk].is_elsewhere ||
            !zoff_offload_placement_resident(number++, s->home_count, used))
            continue;
        home->is_home = true;
        home->chunk = chunk;
        home->holds = zoff_offload_swap_place_arrays(s, chunk);
        s->places[chunk].home = home++;
    }
    return ZOFF_OK;
}

static zoff_status allocate(zoff_swap_store *s, const zoff_store_opts *opts)
{
    s->chunk_count = opts->chunk_count;
    s->ring_count = opts->slots;
    s->home_count = opts->residents;
    ZOFF_TRY(zoff_base_mem_alloc(opts->chunk_count, sizeof *s->chunks, "the table of chunks", &s->chunks));
    ZOFF_TRY(zoff_base_mem_alloc(opts->chunk_count, sizeof *s->places, "the table of places", &s->places));
    ZOFF_TRY(zoff_base_mem_alloc(opts->slots + opts->residents, sizeof *s->slots, "the slots", &s->slots));
    ZOFF_TRY(zoff_base_mem_alloc(opts->path_count, sizeof *s->files, "the files", &s->files));
    ZOFF_TRY(zoff_base_mem_alloc(opts->path_count, sizeof *s->stripes, "the folders", &s->stripes));
    for (size_t i = 0; i < opts->chunk_count; i++) {
        s->chunks[i] = opts->chunks[i];
        zoff_offload_store_complete_ends(&s->chunks[i]);
        s->largest = zoff_base_bits_max(s->largest, opts->chunks[i].bytes);
    }
    if (s->persist)
        ZOFF_TRY(zoff_base_mem_alloc(ZOFF_STORE_ATTACHED_MOST, 1, "bytes beside the states", &s->store.attached));
    s->sums.digest.room = zoff_digest_blocks_room(s->largest);
    s->sums.digested = SIZE_MAX;
    ZOFF_TRY(zoff_base_mem_alloc(s->sums.digest.room, sizeof *s->sums.digest.hashes, "checksums", &s->sums.digest.hashes));
    ZOFF_TRY(zoff_base_mem_alloc(s->sums.digest.room, sizeof *s->sums.digest.done, "checksums", &s->sums.digest.done));
    ZOFF_TRY(map_memory(s));
    const size_t spares = opts->has_seconds ? zoff_base_bits_min(opts->spares, s->home_count) : 0;
    ZOFF_TRY(zoff_offload_spares_open(&s->store.spares, spares, s->largest, ZOFF_MAP_INTERLEAVED, s->store.threads));
    zoff_base_map_keep_from_children(&s->store.spares.map);
    return ZOFF_OK;
}

/* ---- content ---- */

static uint64_t file_bytes(const zoff_swap_store *s)
{
    uint64_t bytes = 0;
    for (size_t chunk = 0; chunk < s->chunk_count; chunk++)
        bytes += is_in_file(s, chunk) ? s->chunks[chunk].bytes : 0;
    return bytes;
}

/* Wait for one of the transfers in flight.  @return PENDING */
static zoff_status wait_for_one(zoff_swap_store *s)
{
    ZOFF_TRY(zoff_offload_swap_wait_any(&s->store));
    return ZOFF_PENDING;
}

static void name_slot(zoff_swap_version *version, unsigned slot)
{
    for (unsigned array = 0; array < ZOFF_STORE_ARRAYS; array++)
        version->arrays[array].slot = slot;
}

static zoff_status write_chunk(zoff_swap_store *s, size_t chunk, zoff_swap_slot *slot)
{
    ZOFF_TRY(zoff_offload_swap_move_start_write(s, slot, zoff_offload_swap_place_arrays(s, chunk)));
    return zoff_offload_swap_wait_pump(&s->store);
}

/* Write the place that the first step, or the first second content, will write. Without fallocate() nothing else reserves its
 * space; with it the first step would meet extents that were never written.  @return PENDING: no slot is free */
static zoff_status write_second_place(zoff_swap_store *s, size_t chunk)
{
    if (!is_in_file(s, chunk))
        return ZOFF_OK;
    zoff_swap_slot *slot = zoff_offload_swap_slot_take(s, UINT64_MAX);
    if (!slot)
        return wait_for_one(s);
    zoff_offload_swap_slot_assign(s, slot, chunk);
    name_slot(&s->places[chunk].now, 1);
    return write_chunk(s, chunk, slot);
}

/* Write the initial content, so that no hole or unwritten extent remains that would slow down the first step.  @return PENDING:
 * no slot is free */
static zoff_status write_first_place(zoff_swap_store *s, const zoff_store_opts *opts, size_t chunk)
{
    zoff_swap_place *place = &s->places[chunk];
    zoff_swap_slot *slot = place->home ? place->home : zoff_offload_swap_slot_take(s, UINT64_MAX);
    if (!slot)
        return wait_for_one(s);
    if (!slot->is_home)
        memset(slot->base, 0, s->chunks[chunk].bytes);
    opts->fill(opts->fill_ctx, chunk, slot->base);
    if (!is_in_file(s, chunk))
        return ZOFF_OK;
    zoff_offload_swap_sum_stamp(s, chunk, slot->base, zoff_offload_swap_place_arrays(s, chunk), &place->now);
    if (!slot->is_home)
        zoff_offload_swap_slot_assign(s, slot, chunk);
    return write_chunk(s, chunk, slot);
}

/* Files of an earlier run have a description. It is written anew if it was lost, or if the types of weights have changed. */
static zoff_status describe_files(zoff_swap_store *s, const zoff_store_opts *opts)
{
    for (size_t i = 0; s->persist && i < s->file_count; i++)
        ZOFF_TRY(
            zoff_offload_swap_layout_write(s->files[i].name, &s->record.identity, opts->description, opts->description_bytes));
    return ZOFF_OK;
}

/* All chunks are written once for each place, the second places first. */
static zoff_status begin_to_write(zoff_swap_store *s, const zoff_store_opts *opts)
{
    place_chunks(s);
    ZOFF_TRY(reserve_files(s));
    s->opening.writes_seconds = zoff_offload_swap_place_copies(s) > 1;
    zoff_offload_swap_wait_begin_report(s, opts->progress.write, file_bytes(s) * zoff_offload_swap_place_copies(s));
    return ZOFF_PENDING;
}

static zoff_status write_next(zoff_swap_store *s, const zoff_store_opts *opts)
{
    zoff_swap_opening *o = &s->opening;
    ZOFF_TRY(zoff_offload_swap_wait_report(s));
    if (o->next < s->chunk_count) {
        ZOFF_TRY_DONE(o->writes_seconds ? write_second_place(s, o->next) : write_first_place(s, opts, o->next));
        o->next++;
        return ZOFF_PENDING;
    }
    if (zoff_offload_swap_wait_busy(&s->store, true))
        return wait_for_one(s);
    ZOFF_TRY(zoff_offload_swap_wait_drain(&s->store));
    if (!o->writes_seconds) {
        ZOFF_TRY(zoff_offload_swap_wait_end_report(s));
        return describe_files(s, opts);
    }
    for (size_t chunk = 0; chunk < s->chunk_count; chunk++)
        name_slot(&s->places[chunk].now, 0);
    o->writes_seconds = false;
    o->next = 0;
    return ZOFF_PENDING;
}

/* Files are opened again: residents are read. */
static zoff_status begin_to_read(zoff_swap_store *s, const zoff_store_opts *opts)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < s->home_count; i++)
        bytes += s->chunks[s->slots[s->ring_count + i].chunk].bytes;
    ZOFF_TRY(zoff_offload_swap_reopen_go_on(s));
    ZOFF_TRY(describe_files(s, opts));
    zoff_offload_swap_wait_begin_report(s, opts->progress.read, bytes);
    return ZOFF_PENDING;
}

static zoff_status read_next(zoff_swap_store *s)
{
    if (s->opening.next == s->home_count)
        return zoff_offload_swap_wait_end_report(s);
    zoff_swap_slot *home = &s->slots[s->ring_count + s->opening.next];
    const zoff_status status = s->chunks[home->chunk].bytes ? zoff_offload_swap_lend_reload(s, home) : ZOFF_OK;
    s->opening.next += status == ZOFF_OK;
    return status < 0 ? status : ZOFF_PENDING;
}

zoff_status zoff_offload_swap_life_fill(zoff_store *store, const zoff_store_opts *opts)
{
    zoff_swap_store *s = (zoff_swap_store *)store;
    if (s->opening.is_filling)
        return store->reopened ? read_next(s) : write_next(s, opts);
    const zoff_status status = store->reopened ? begin_to_read(s, opts) : begin_to_write(s, opts);
    zoff_offload_swap_reopen_forget(s);
    s->opening.next = 0;
    s->opening.is_filling = true;
    return status;
}

/* The posix back-end moves bytes only in the caller's calls. */
static bool overlaps(const zoff_swap_store *s)
{
    for (size_t i = 0; i < s->file_count; i++) {
        zoff_aio_info info = {.struct_size = sizeof info};
        if (zoff_aio_get_info(s->files[i].aio, &info) != ZOFF_OK || strcmp(info.backend, "posix") == 0)
            return false;
    }
    return true;
}

zoff_status zoff_offload_swap_life_find(const zoff_store_opts *opts, zoff_store **out, zoff_store_found *out_found)
{
    zoff_status status;
    zoff_swap_store *s;
    ZOFF_TRY(zoff_base_mem_alloc(1, sizeof *s, "the NVMe tier", &s));
    s->store.ops = &zoff_offload_swap_ops;
    s->store.can_rollback = s->persist = opts->persist;
    s->store.has_seconds = opts->has_seconds;
    s->record.power_safe = opts->power_safe;
    s->timeout_seconds = opts->timeout_seconds > 0 ? opts->timeout_seconds : -1;
    s->sums.verify = opts->verify;
    s->opening.report.to = opts->progress;
    s->store.wants_settle = opts->verify != ZOFF_VERIFY_OFF;
    s->store.threads = opts->threads ? opts->threads : 1;
    s->record.version = opts->has_blocks ? ZOFF_RECORD_VERSION_BLOCKS : ZOFF_RECORD_VERSION;
    s->record.identity = (zoff_swap_identity){.layout = opts->layout,
                                              .cut = opts->cut,
                                              .limit_bytes = opts->limit_bytes,
                                              .limit_elements = opts->limit_elements,
                                              .chunk_count = opts->chunk_count,
                                              .rank = opts->rank,
                                              .ranks = opts->ranks,
                                              .files = (uint32_t)opts->path_count};
    ZOFF_TRY_OR(close_store, allocate(s, opts));
    ZOFF_TRY_OR(close_store, open_files(s, opts));
    ZOFF_TRY_OR(close_store, register_memory(s));
    if (s->persist)
        ZOFF_TRY_OR(close_store, zoff_offload_swap_reopen_find(s, out_found));
    s->store.overlaps = overlaps(s);
    *out = &s->store;
    return ZOFF_OK;
close_store:
    zoff_offload_store_close(&s->store);
    return status;
}

void zoff_offload_swap_life_close(zoff_store *store)
{
    zoff_swap_store *s = (zoff_swap_store *)store;
    bool is_idle = true;
    zoff_offload_swap_reopen_forget(s);
    /* Closing a queue waits for transfers in flight; the slots may be freed after that. */
    for (size_t i = 0; i < s->file_count; i++) {
        if (s->timeout_seconds < 0 || s->timeout_seconds > PATIENCE_SECONDS)
            zoff_aio_queue_limit(s->files[i].aio, PATIENCE_SECONDS);
        is_idle = zoff_offload_swap_file_close(&s->files[i]) && is_idle;
    }
    if (is_idle)
        zoff_base_map_free(&s->store.map);
    else
        ZOFF_WARN("%zu bytes of slots cannot be freed: the disk may still read or write them",
                  s->store.map.bytes + s->store.spares.map.bytes);
    zoff_offload_spares_close(&s->store.spares, is_idle);
    zoff_base_mem_free(s->sums.digest.hashes);
    zoff_base_mem_free(s->sums.digest.done);
    zoff_base_mem_free(s->store.attached);
    zoff_base_mem_free(s->slots);
    zoff_base_mem_free(s->files);
    zoff_base_mem_free(s->stripes);
    zoff_base_mem_free(s->places);
    zoff_base_mem_free(s->chunks);
    zoff_base_mem_free(s);
}
