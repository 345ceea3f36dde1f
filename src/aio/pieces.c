/* SPDX-License-Identifier: Apache-2.0 */
/* pieces.c: cut requests into pieces, submit them, and judge every result. No other file judges what the system returns for a
 * transfer:
 *
 *      as much as asked       done
 *      less                   ask again for the rest, under O_DIRECT from the last whole unit
 *      0 at the end of file   an error that names the offset (for an edge about to be written: nothing was there yet)
 *      EAGAIN, EINTR, ...     ask again, a bounded number of times
 *      any other -errno       the request has failed; wait for its other pieces, because they use the caller's memory */
#include "queue_priv.h"

#include "bits.h"
#include "try.h"

#include <errno.h>

enum { REAP_AT_ONCE = 32 };

unsigned zoff_aio_pieces_out(const zoff_aio *q)
{
    return q->lanes[ZOFF_AIO_READS].out + q->lanes[ZOFF_AIO_WRITES].out;
}

static void pop_lane(zoff_aio *q, unsigned lane)
{
    q->lanes[lane].first = q->requests[q->lanes[lane].first].next;
    if (q->lanes[lane].first == ZOFF_AIO_NONE)
        q->lanes[lane].last = ZOFF_AIO_NONE;
}

/* Cut the next piece of a lane's oldest request and submit it.  @return false: there is none to cut, or it has to wait */
static bool start_one(zoff_aio *q, unsigned lane)
{
    int index = q->lanes[lane].first;
    zoff_aio_piece *piece = q->free_piece;
    if (index == ZOFF_AIO_NONE || !piece)
        return false;
    zoff_aio_request *request = &q->requests[index];
    zoff_aio_piece *next_free = piece->next_free;
    if (!zoff_aio_bounce_cut(q, request, piece)) {
        piece->next_free = next_free;
        return false;
    }
    q->free_piece = next_free;
    piece->request = index;
    request->cut += piece->user_bytes;
    request->pieces++;
    q->lanes[lane].out++;
    if (request->cut == request->bytes)
        pop_lane(q, lane);
    q->backend->start(q->backend_self, &piece->io);
    return true;
}

zoff_status zoff_aio_pieces_feed(zoff_aio *q)
{
    /* The direction with fewer pieces in flight goes first, so that a backlog of one does not delay the other. */
    for (;;) {
        unsigned lane = q->lanes[ZOFF_AIO_WRITES].out < q->lanes[ZOFF_AIO_READS].out ? ZOFF_AIO_WRITES : ZOFF_AIO_READS;
        if (!start_one(q, lane) && !start_one(q, ZOFF_AIO_LANES - 1 - lane))
            break;
    }
    return q->backend->submit(q->backend_self);
}

static void finish_piece(zoff_aio *q, zoff_aio_piece *piece)
{
    zoff_aio_request *request = &q->requests[piece->request];
    unsigned lane = request->writes ? ZOFF_AIO_WRITES : ZOFF_AIO_READS;
    if (request->fault.kind == ZOFF_AIO_FAULT_NONE) {
        *(request->writes ? &q->counts.write_bytes : &q->counts.read_bytes) += piece->user_bytes;
        q->counts.bounce_bytes += piece->stage ? piece->user_bytes : 0;
    }
    zoff_aio_cache_moved(&q->file, request->writes, request->offset + (uint64_t)(piece->user - request->address),
                         piece->user_bytes);
    /* A late error fails the next request, so that nobody trusts the file to hold what was written to it. */
    if (q->file.late_error && request->fault.kind == ZOFF_AIO_FAULT_NONE)
        request->fault = (zoff_aio_fault){.kind = ZOFF_AIO_FAULT_LATE,
                                          .error = q->file.late_error,
                                          .offset = q->file.late_range.offset,
                                          .bytes = (size_t)q->file.late_range.bytes};
    zoff_aio_bounce_release(q, piece);
    piece->next_free = q->free_piece;
    q->free_piece = piece;
    q->lanes[lane].out--;
    q->counts.completed_pieces++;
    if (--request->pieces == 0 && request->cut == request->bytes) {
        request->state = ZOFF_AIO_DONE;
        request->ended = zoff_trace_now();
    }
}

static void fail_piece(zoff_aio *q, zoff_aio_piece *piece, zoff_aio_fault_kind kind, int error)
{
    zoff_aio_request *request = &q->requests[piece->request];
    unsigned lane = request->writes ? ZOFF_AIO_WRITES : ZOFF_AIO_READS;
    if (request->fault.kind == ZOFF_AIO_FAULT_NONE) {
        request->fault = (zoff_aio_fault){.kind = kind, .error = error, .offset = piece->io.offset, .bytes = piece->io.bytes};
        if (kind == ZOFF_AIO_FAULT_END) {
            uint64_t end = zoff_aio_file_end(&q->file);
            request->fault.end = end < piece->io.offset + piece->io.bytes ? end : piece->io.offset;
        }
    }
    /* Start no more pieces. Only the oldest request of a lane can have uncut bytes, because one is cut at a time. */
    if (request->cut < request->bytes) {
        request->cut = request->bytes;
        pop_lane(q, lane);
    }
    finish_piece(q, piece);
}

/* Submit a piece again, unless it has failed too often. */
static void again(zoff_aio *q, zoff_aio_piece *piece, zoff_aio_fault_kind kind, int error)
{
    if (++piece->retries > ZOFF_AIO_RETRIES_MOST)
        fail_piece(q, piece, kind, error);
    else
        q->backend->start(q->backend_self, &piece->io);
}

static void advance_piece(zoff_aio *q, zoff_aio_piece *piece)
{
    piece->retries = 0;
    if (zoff_aio_bounce_next(q, piece))
        q->backend->start(q->backend_self, &piece->io);
    else
        finish_piece(q, piece);
}

/* Bytes from the start of the window that are in the stage; for a plain piece, bytes of the transfer. */
static size_t have_bytes(const zoff_aio_piece *piece, size_t moved)
{
    return piece->stage ? (size_t)(piece->io.offset - piece->window) + moved : moved;
}

static size_t want_bytes(const zoff_aio_piece *piece)
{
    return piece->kind == ZOFF_AIO_STAGED && !piece->io.writes ? piece->skip + piece->user_bytes : SIZE_MAX;
}

/* Handle a short transfer, perhaps of no bytes. */
static void resume(zoff_aio *q, zoff_aio_piece *piece, size_t moved)
{
    zoff_aio_io *io = &piece->io;
    if (have_bytes(piece, moved) >= want_bytes(piece)) { /* only the rest of the last unit is missing */
        advance_piece(q, piece);
        return;
    }
    /* Only the last unit of a file can be partial, and a file reports its end by 0 bytes. */
    bool at_end = !io->writes && (moved == 0 || moved % q->file.unit) && io->offset + moved >= zoff_aio_file_end(&q->file);
    if (at_end && piece->kind == ZOFF_AIO_EDGE_READ) {
        piece->present = have_bytes(piece, moved);
        advance_piece(q, piece);
        return;
    }
    if (at_end) {
        fail_piece(q, piece, ZOFF_AIO_FAULT_END, 0);
        return;
    }
    size_t whole = moved / q->file.unit * q->file.unit;
    if (whole) {
        q->counts.resumed_pieces++;
        piece->retries = 0;
        io->offset += whole;
        io->bytes -= whole;
        io->address = (char *)io->address + whole;
        q->backend->start(q->backend_self, io);
        return;
    }
    if (moved)
        q->counts.resumed_pieces++;
    again(q, piece, ZOFF_AIO_FAULT_STUCK, 0);
}

static void judge(zoff_aio *q, zoff_aio_piece *piece, int res)
{
    res = zoff_aio_result_check(res, piece->io.writes, piece->io.offset, piece->io.bytes);
    /* ECANCELED: the thread that submitted the piece has ended; submit it again */
    if (res == -EAGAIN || res == -EINTR || res == -ECANCELED) {
        again(q, piece, ZOFF_AIO_FAULT_SYSTEM, -res);
    } else if (res < 0) {
        fail_piece(q, piece, ZOFF_AIO_FAULT_SYSTEM, -res);
    } else if ((size_t)res < piece->io.bytes) {
        resume(q, piece, (size_t)res);
    } else {
        if (piece->kind == ZOFF_AIO_EDGE_READ)
            piece->present = q->file.unit;
        advance_piece(q, piece);
    }
}

zoff_status zoff_aio_pieces_advance(zoff_aio *q)
{
    zoff_aio_done done[REAP_AT_ONCE];
    size_t count;
    if (!zoff_aio_pieces_out(q) && q->lanes[ZOFF_AIO_READS].first == ZOFF_AIO_NONE &&
        q->lanes[ZOFF_AIO_WRITES].first == ZOFF_AIO_NONE)
        return ZOFF_OK;
    do {
        count = q->backend->reap(q->backend_self, done, REAP_AT_ONCE);
        for (size_t i = 0; i < count; i++)
            judge(q, (zoff_aio_piece *)done[i].io, done[i].res);
    } while (count == REAP_AT_ONCE);
    return zoff_aio_pieces_feed(q);
}
