/* bring.c: brings units of a checkpoint to where they belong: many reads in flight, verified in order. A unit that belongs to
 * one place as a whole is read there. Otherwise it is read into a buffer, and parts are copied from there. Buffers keep their
 * unit as long as possible, because the next chunk may need the rest of it. */
#include "checkpoint_priv.h"

#include "aio.h"
#include "array.h"
#include "bits.h"
#include "clock.h"
#include "try.h"

#include <string.h>

enum {
    FLYING_MOST = 128 << 20,  /* most bytes in flight: enough for the queue to have its 64 MiB while units are verified */
    BUFFERS_BYTES = 12 << 20, /* bytes of all buffers, unless units are large: as much as a chunk of three units */
    BUFFERS_LEAST = 3
};

void zoff_checkpoint_bring_open(const zoff_archive *a, unsigned threads, zoff_bringer *out)
{
    *out = (zoff_bringer){.archive = a, .threads = threads, .unit_room = zoff_archive_units_largest(a)};
}

/* A buffer is allocated when the first unit needs one. */
static zoff_status open_buffers(zoff_bringer *b)
{
    const size_t wanted = zoff_base_bits_max(BUFFERS_BYTES / b->unit_room, BUFFERS_LEAST);
    const unsigned count = (unsigned)zoff_base_bits_min(wanted, (size_t)ZOFF_BRING_BUFFERS);
    ZOFF_TRY(zoff_base_map_alloc(b->unit_room * count, "parts of a checkpoint", ZOFF_MAP_FIRST_TOUCH, &b->map));
    b->buffer_count = count;
    for (unsigned i = 0; i < count; i++)
        b->buffers[i] = (zoff_bring_buffer){.base = (char *)b->map.base + i * b->unit_room};
    return ZOFF_OK;
}

static zoff_status open_queue(zoff_bringer *b, uint32_t file)
{
    char path[4096];
    const zoff_aio_opts opts = ZOFF_AIO_OPTS_INIT;
    if (!b->queues)
        ZOFF_TRY(
            zoff_base_mem_alloc(b->archive->manifest.file_count + 1, sizeof(zoff_aio *), "files of a checkpoint", &b->queues));
    if (b->queues[file])
        return ZOFF_OK;
    int held; /* a save may have removed the name since the checkpoint was opened */
    zoff_archive_path(b->archive, file, path);
    ZOFF_TRY(zoff_archive_descriptor(b->archive, file, &held));
    return zoff_aio_queue_open(path, held, &opts, &b->queues[file]);
}

/* ---- what is to be brought ---- */

zoff_status zoff_checkpoint_bring_add(zoff_bringer *b, const zoff_bring_part *part)
{
    /* Parts that are done make room for others. */
    if (b->done == b->count) {
        b->first += b->count;
        b->done = b->begun = b->count = 0;
    }
    ZOFF_TRY(zoff_base_array_reserve(&b->parts, b->count, &b->room, b->count + 1, sizeof *b->parts, "parts of a checkpoint"));
    b->parts[b->count++] = *part;
    return ZOFF_OK;
}

uint64_t zoff_checkpoint_bring_end(const zoff_bringer *b)
{
    return b->first + b->count;
}

/* ---- begin reads ---- */

static zoff_status start(zoff_bringer *b, zoff_archive_unit unit, char *to, uint64_t *ticket)
{
    const size_t bytes = zoff_archive_units_bytes(b->archive, unit);
    ZOFF_TRY(open_queue(b, unit.file));
    ZOFF_TRY(zoff_aio_read(b->queues[unit.file], zoff_archive_units_offset(b->archive, unit), bytes, to, ticket));
    b->flying += bytes;
    return ZOFF_OK;
}

static bool is_same(zoff_archive_unit x, zoff_archive_unit y)
{
    return x.file == y.file && x.region == y.region && x.unit == y.unit;
}

/* The buffer with a unit; else the one that was not needed for the longest time; NULL: all are needed. */
static zoff_bring_buffer *find_buffer(zoff_bringer *b, zoff_archive_unit unit)
{
    zoff_bring_buffer *oldest = NULL;
    for (unsigned i = 0; i < b->buffer_count; i++) {
        zoff_bring_buffer *one = &b->buffers[i];
        if (one->state != ZOFF_BRING_EMPTY && is_same(one->unit, unit))
            return one;
        if (!one->users && (!oldest || one->used < oldest->used))
            oldest = one;
    }
    return oldest;
}

/* @return PENDING: no buffer is free */
static zoff_status begin_buffered(zoff_bringer *b, zoff_bring_part *part)
{
    if (!b->buffer_count)
        ZOFF_TRY(open_buffers(b));
    zoff_bring_buffer *buffer = find_buffer(b, part->unit);
    if (!buffer)
        return ZOFF_PENDING;
    if (buffer->state == ZOFF_BRING_EMPTY || !is_same(buffer->unit, part->unit)) {
        buffer->state = ZOFF_BRING_EMPTY;
        buffer->unit = part->unit;
        ZOFF_TRY(start(b, part->unit, buffer->base, &buffer->ticket));
        buffer->state = ZOFF_BRING_READING;
    }
    buffer->users++;
    buffer->used = ++b->uses;
    part->buffer = buffer;
    return ZOFF_OK;
}

static zoff_status begin_some(zoff_bringer *b)
{
    while (b->begun < b->count && b->flying < FLYING_MOST) {
        zoff_bring_part *part = &b->parts[b->begun];
        const zoff_status status = part->is_whole ? start(b, part->unit, part->to, &part->ticket) : begin_buffered(b, part);
        if (status == ZOFF_PENDING)
            return ZOFF_OK;
        ZOFF_TRY(status);
        b->begun++;
    }
    return ZOFF_OK;
}

zoff_status zoff_checkpoint_bring_begin(zoff_bringer *b)
{
    return begin_some(b);
}

/* ---- end them ---- */

static zoff_status land(zoff_bringer *b, zoff_archive_unit unit, uint64_t ticket)
{
    b->flying -= zoff_archive_units_bytes(b->archive, unit);
    return zoff_aio_wait(b->queues[unit.file], ticket);
}

/* Wait for a unit, and verify it. One thread is faster than most disks, so the team helps only where the disk does not let this
 * thread wait. To wake the team costs time, above all on a busy machine. */
static zoff_status land_verified(zoff_bringer *b, zoff_archive_unit unit, uint64_t ticket, const char *bytes)
{
    static const double AT_ONCE = 50e-6;
    const double from = zoff_base_clock_seconds();
    ZOFF_TRY(land(b, unit, ticket));
    const bool is_late = zoff_base_clock_seconds() - from < AT_ONCE;
    return zoff_archive_units_check(b->archive, unit, bytes, is_late ? b->threads : 1);
}

static void convert(const zoff_bringer *b, zoff_cast_piece cast, char *bytes)
{
    if (cast.src)
        cast.low = (uint16_t *)(void *)bytes;
    else
        cast.src = bytes;
    zoff_adam_cast_run(b->threads, &cast, 1);
}

/* After an error the buffer is empty: its unit may be asked for again. */
static zoff_status end_buffered(zoff_bringer *b, const zoff_bring_part *part)
{
    zoff_bring_buffer *buffer = part->buffer;
    buffer->users--;
    if (buffer->state == ZOFF_BRING_READING) {
        buffer->state = ZOFF_BRING_EMPTY;
        ZOFF_TRY(land_verified(b, part->unit, buffer->ticket, buffer->base));
        buffer->state = ZOFF_BRING_READY;
    }
    ZOFF_FAIL_IF(buffer->state != ZOFF_BRING_READY, ZOFF_ERR_STATE, "a part of a checkpoint was not read, after an error");
    if (part->feed)
        ZOFF_TRY(zoff_checkpoint_feed_take(part->feed, buffer->base + part->from, part->bytes));
    else if (part->cast.count)
        convert(b, part->cast, buffer->base + part->from);
    else if (part->to)
        memcpy(part->to, buffer->base + part->from, part->bytes);
    return ZOFF_OK;
}

static zoff_status end_one(zoff_bringer *b)
{
    const zoff_bring_part *part = &b->parts[b->done++];
    if (!part->is_whole)
        return end_buffered(b, part);
    return land_verified(b, part->unit, part->ticket, part->to);
}

zoff_status zoff_checkpoint_bring_until(zoff_bringer *b, uint64_t end)
{
    while (b->first + b->done < end) {
        ZOFF_TRY(begin_some(b));
        ZOFF_TRY(end_one(b));
    }
    return begin_some(b);
}

void zoff_checkpoint_bring_stop(zoff_bringer *b)
{
    for (; b->done < b->begun; b->done++) {
        const zoff_bring_part *part = &b->parts[b->done];
        if (part->is_whole) {
            (void)land(b, part->unit, part->ticket);
            continue;
        }
        part->buffer->users--;
        if (part->buffer->state == ZOFF_BRING_READING)
            (void)land(b, part->unit, part->buffer->ticket);
        part->buffer->state = ZOFF_BRING_EMPTY;
    }
    b->first += b->count;
    b->done = b->begun = b->count = 0;
}

void zoff_checkpoint_bring_close(zoff_bringer *b)
{
    zoff_checkpoint_bring_stop(b);
    for (size_t i = 0; b->queues && i < b->archive->manifest.file_count; i++)
        zoff_aio_close(b->queues[i]);
    zoff_base_map_free(&b->map);
    zoff_base_mem_free(b->queues);
    zoff_base_mem_free(b->parts);
    *b = (zoff_bringer){.queues = NULL};
}
