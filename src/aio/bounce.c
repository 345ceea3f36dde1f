/* SPDX-License-Identifier: Apache-2.0 */
/* bounce.c: requests that O_DIRECT would refuse, because offset, length or address is no multiple of the file's units. They go
 * through aligned staging memory, piece by piece. Aligned pieces in the middle still go without a copy.
 *
 *      file units   |        |        |        |        |
 *      request          [=====================]
 *      pieces           edge    plain    plain  edge         (address aligned like the offset; else `staged` in the middle)
 *
 * Reading is simple: read whole units, copy the part. Writing an edge reads, modifies and writes one unit. Two such writes to
 * one unit must not be in flight together: the second would write back what it read before the first. cut() holds it back.
 *
 * A unit at the end of the file makes the file longer than the caller asked for. So the file is truncated afterwards: to its
 * old end, or to the end of the furthest write in flight. This happens only while the file really ends with our padding. Within
 * a queue it is exact. Two queues are not protected from each other if they extend one file at odd lengths, or change one unit,
 * at the same time. */
#include "queue_priv.h"

#include "bits.h"
#include "log.h"
#include "try.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static bool needs_staging(const zoff_aio_file *file, uint64_t offset, size_t bytes, const void *address)
{
    return offset % file->unit || bytes % file->unit || (uintptr_t)address % file->memory_unit;
}

zoff_status zoff_aio_bounce_prepare(zoff_aio *q, uint64_t offset, size_t bytes, const void *address)
{
    if (q->stages.memory.base || !needs_staging(&q->file, offset, bytes, address))
        return ZOFF_OK;
    size_t stages = zoff_base_bits_min(q->depth, ZOFF_AIO_STAGES_MOST);
    size_t each = zoff_base_bits_max(zoff_base_bits_min(q->block_bytes, ZOFF_AIO_STAGE_BYTES), q->file.unit);
    q->stages.bytes = zoff_base_bits_align(each, zoff_base_bits_max(q->file.unit, q->file.memory_unit));
    ZOFF_TRY(
        zoff_base_map_alloc(stages * q->stages.bytes, "staging of unaligned I/O", ZOFF_MAP_INTERLEAVED, &q->stages.memory));
    for (size_t i = 0; i < stages; i++)
        q->stages.free[q->stages.free_count++] = (char *)q->stages.memory.base + i * q->stages.bytes;
    return ZOFF_OK;
}

static void take_stage(zoff_aio *q, zoff_aio_piece *piece)
{
    piece->stage = q->stages.free[--q->stages.free_count];
}

void zoff_aio_bounce_release(zoff_aio *q, zoff_aio_piece *piece)
{
    if (piece->stage)
        q->stages.free[q->stages.free_count++] = piece->stage;
    piece->stage = NULL;
}

/* Free pieces have no stage, so only pieces in flight are examined. */
static bool edge_is_out(const zoff_aio *q, uint64_t window)
{
    for (unsigned i = 0; i < q->depth; i++) {
        const zoff_aio_piece *piece = &q->pieces[i];
        if (piece->stage && piece->kind >= ZOFF_AIO_EDGE_READ && piece->window == window)
            return true;
    }
    return false;
}

static bool cut_write(zoff_aio *q, zoff_aio_piece *piece, uint64_t offset, size_t left)
{
    size_t unit = q->file.unit;
    size_t head = (size_t)(offset % unit);
    piece->window = offset - head;
    piece->skip = head;
    if (head || left < unit) {
        if (edge_is_out(q, piece->window))
            return false;
        take_stage(q, piece);
        piece->kind = ZOFF_AIO_EDGE_READ;
        piece->user_bytes = zoff_base_bits_min(unit - head, left);
        piece->io = (zoff_aio_io){.writes = false, .offset = piece->window, .bytes = unit, .address = piece->stage};
        return true;
    }
    take_stage(q, piece);
    piece->kind = ZOFF_AIO_STAGED;
    piece->user_bytes = zoff_base_bits_min(q->stages.bytes, left / unit * unit);
    memcpy(piece->stage, piece->user, piece->user_bytes);
    piece->io = (zoff_aio_io){.writes = true, .offset = offset, .bytes = piece->user_bytes, .address = piece->stage};
    return true;
}

static void cut_read(zoff_aio *q, zoff_aio_piece *piece, uint64_t offset, size_t left)
{
    size_t unit = q->file.unit;
    size_t head = (size_t)(offset % unit);
    size_t bytes = zoff_base_bits_min(q->stages.bytes - head, left);
    /* If the address is aligned again after the first unit, the rest needs no copy. */
    if (head && ((uintptr_t)piece->user + (unit - head)) % q->file.memory_unit == 0)
        bytes = zoff_base_bits_min(bytes, unit - head);
    take_stage(q, piece);
    piece->kind = ZOFF_AIO_STAGED;
    piece->window = offset - head;
    piece->skip = head;
    piece->user_bytes = bytes;
    piece->io = (zoff_aio_io){
        .writes = false, .offset = piece->window, .bytes = zoff_base_bits_align(head + bytes, unit), .address = piece->stage};
}

bool zoff_aio_bounce_cut(zoff_aio *q, const zoff_aio_request *request, zoff_aio_piece *piece)
{
    size_t unit = q->file.unit;
    uint64_t offset = request->offset + request->cut;
    size_t left = request->bytes - request->cut;
    *piece = (zoff_aio_piece){.user = request->address + request->cut};
    if (offset % unit == 0 && left >= unit && (uintptr_t)piece->user % q->file.memory_unit == 0) {
        piece->kind = ZOFF_AIO_PLAIN;
        piece->user_bytes = zoff_base_bits_min(q->block_bytes, left / unit * unit);
        piece->io =
            (zoff_aio_io){.writes = request->writes, .offset = offset, .bytes = piece->user_bytes, .address = piece->user};
        return true;
    }
    if (!q->stages.free_count)
        return false;
    if (request->writes)
        return cut_write(q, piece, offset, left);
    cut_read(q, piece, offset, left);
    return true;
}

/* The furthest byte that the writes of this queue in flight will put into the file. */
static uint64_t latest_end(const zoff_aio *q)
{
    uint64_t end = 0;
    for (unsigned i = 0; i < q->request_count; i++) {
        const zoff_aio_request *request = &q->requests[i];
        if (request->state == ZOFF_AIO_ACTIVE && request->writes && request->offset + request->bytes > end)
            end = request->offset + request->bytes;
    }
    return end;
}

/* Truncate the padding of the last unit off the file. */
static void trim(const zoff_aio *q, const zoff_aio_piece *piece)
{
    uint64_t padded_end = piece->window + q->file.unit;
    uint64_t end = piece->window + zoff_base_bits_max(piece->present, piece->skip + piece->user_bytes);
    uint64_t coming = latest_end(q);
    if (coming > end)
        end = coming;
    if (end >= padded_end || zoff_aio_file_end(&q->file) != padded_end)
        return;
    if (ftruncate(q->file.fd, (off_t)end) != 0)
        ZOFF_WARN("'%s' keeps %llu bytes of padding at its end: %s", q->file.path, (unsigned long long)(padded_end - end),
                  zoff_base_status_errno(errno));
}

bool zoff_aio_bounce_next(zoff_aio *q, zoff_aio_piece *piece)
{
    size_t unit = q->file.unit;
    switch (piece->kind) {
    case ZOFF_AIO_PLAIN:
        return false;
    case ZOFF_AIO_STAGED:
        if (!piece->io.writes)
            memcpy(piece->user, piece->stage + piece->skip, piece->user_bytes);
        return false;
    case ZOFF_AIO_EDGE_READ:
        memset(piece->stage + piece->present, 0, unit - piece->present);
        memcpy(piece->stage + piece->skip, piece->user, piece->user_bytes);
        piece->kind = ZOFF_AIO_EDGE_WRITE;
        piece->io = (zoff_aio_io){.writes = true, .offset = piece->window, .bytes = unit, .address = piece->stage};
        return true;
    case ZOFF_AIO_EDGE_WRITE:
        if (piece->present < unit)
            trim(q, piece);
        return false;
    }
    return false;
}
