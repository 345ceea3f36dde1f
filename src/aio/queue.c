/* SPDX-License-Identifier: Apache-2.0 */
/* queue.c: the public calls: open and close a queue, accept requests and return tickets, return the results of tickets. */
#include "queue_priv.h"

#include "bits.h"
#include "clock.h"
#include "files.h"
#include "fork.h"
#include "log.h"
#include "structs.h"
#include "try.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

enum {
    BLOCK_DEFAULT = 2 << 20, /* with pieces of 1 MiB writes keep a disk slightly less busy, at twice the CPU */
    BLOCK_MOST = 1 << 30,    /* the kernel moves a little less than 2 GiB in one call; io_uring registers 1 GiB at a time */
    DEPTH_DEFAULT = 32,
    DEPTH_MOST = 4096,
    REQUESTS_AT_FIRST = 64
};

static zoff_status read_opts(const zoff_aio_opts *opts, zoff_aio_opts *out)
{
    ZOFF_FAIL_IF(!opts, ZOFF_ERR_INVALID,
                 "zoff_aio_open: opts is NULL; pass a zoff_aio_opts that starts from ZOFF_AIO_OPTS_INIT");
    *out = (zoff_aio_opts)ZOFF_AIO_OPTS_INIT;
    ZOFF_TRY(zoff_base_structs_read("zoff_aio_opts", "ZOFF_AIO_OPTS_INIT", opts, out, sizeof *out));
    if (!out->block_bytes)
        out->block_bytes = BLOCK_DEFAULT;
    if (!out->depth)
        out->depth = DEPTH_DEFAULT;
    ZOFF_FAIL_IF(out->block_bytes > BLOCK_MOST, ZOFF_ERR_INVALID, "zoff_aio_open: block_bytes is %zu; at most %d",
                 out->block_bytes, BLOCK_MOST);
    ZOFF_FAIL_IF(out->depth > DEPTH_MOST, ZOFF_ERR_INVALID, "zoff_aio_open: depth is %u; at most %d", out->depth, DEPTH_MOST);
    ZOFF_FAIL_IF((unsigned)out->direct > ZOFF_DIRECT_OFF, ZOFF_ERR_INVALID,
                 "zoff_aio_open: direct is %d; use a ZOFF_DIRECT_ value", (int)out->direct);
    ZOFF_FAIL_IF(out->create && !out->writable, ZOFF_ERR_INVALID, "zoff_aio_open: create needs writable");
    return ZOFF_OK;
}

/* New places are free and have their first generation. It starts at a value of the queue's own, so that a ticket is not valid
 * for another queue by chance. */
static zoff_status grow_requests(zoff_aio *q, unsigned count)
{
    zoff_aio_request *requests;
    ZOFF_TRY(zoff_base_mem_alloc(count, sizeof *requests, "I/O requests", &requests));
    if (q->request_count)
        memcpy(requests, q->requests, q->request_count * sizeof *requests);
    for (unsigned i = count; i-- > q->request_count;) {
        requests[i].generation = (uint32_t)((uintptr_t)q >> 4) * 2654435761u;
        requests[i].next = q->free_request;
        q->free_request = (int)i;
    }
    zoff_base_mem_free(q->requests);
    q->requests = requests;
    q->request_count = count;
    return ZOFF_OK;
}

static zoff_status make_pieces(zoff_aio *q)
{
    ZOFF_TRY(zoff_base_mem_alloc(q->depth, sizeof *q->pieces, "pieces of I/O requests", &q->pieces));
    for (unsigned i = q->depth; i-- > 0;) {
        q->pieces[i].next_free = q->free_piece;
        q->free_piece = &q->pieces[i];
    }
    return ZOFF_OK;
}

zoff_status zoff_aio_open(const char *path, const zoff_aio_opts *opts, zoff_aio **out)
{
    return zoff_aio_queue_open(path, -1, opts, out);
}

/* Make a queue on an open file. After an error the file is still the caller's. */
static zoff_status make_queue(const zoff_aio_opts *chosen, const zoff_aio_file *file, zoff_aio **out)
{
    zoff_aio *q;
    zoff_status status;
    ZOFF_TRY(zoff_base_mem_alloc(1, sizeof *q, "an I/O queue", &q));
    q->file = *file;
    q->depth = chosen->depth;
    q->process = zoff_base_fork_number();
    q->free_request = ZOFF_AIO_NONE;
    q->limit_seconds = -1;
    q->block_bytes = zoff_base_bits_max(chosen->block_bytes / file->unit * file->unit, file->unit);
    for (unsigned lane = 0; lane < ZOFF_AIO_LANES; lane++)
        q->lanes[lane].first = q->lanes[lane].last = ZOFF_AIO_NONE;
    ZOFF_TRY_OR(free_q, make_pieces(q));
    ZOFF_TRY_OR(free_pieces, grow_requests(q, REQUESTS_AT_FIRST));
    ZOFF_TRY_OR(free_requests, zoff_aio_backend_choose(chosen->backend, file->fd, q->depth, &q->backend, &q->backend_self));
    *out = q;
    return ZOFF_OK;

free_requests:
    zoff_base_mem_free(q->requests);
free_pieces:
    zoff_base_mem_free(q->pieces);
free_q:
    zoff_base_mem_free(q);
    return status;
}

zoff_status zoff_aio_queue_open(const char *path, int held, const zoff_aio_opts *opts, zoff_aio **out)
{
    zoff_aio_opts chosen;
    zoff_aio_file file;
    ZOFF_FAIL_IF(!path || !out, ZOFF_ERR_INVALID, "zoff_aio_open: %s is NULL", path ? "out" : "path");
    ZOFF_TRY(read_opts(opts, &chosen));
    ZOFF_TRY(zoff_aio_file_open(path, held, chosen.direct, chosen.writable, chosen.create, &file));
    const zoff_status status = make_queue(&chosen, &file, out);
    if (status < 0)
        zoff_aio_file_close(&file);
    return status;
}

zoff_status zoff_aio_queue_share(const zoff_aio *of, zoff_aio **out)
{
    zoff_aio_file file;
    const zoff_aio_opts chosen = {.backend = of->backend->name,
                                  .block_bytes = of->block_bytes,
                                  .depth = (unsigned)zoff_base_bits_max(of->depth, DEPTH_DEFAULT)};
    ZOFF_TRY(zoff_aio_file_share(&of->file, &file));
    const zoff_status status = make_queue(&chosen, &file, out);
    if (status < 0)
        zoff_aio_file_close(&file);
    return status;
}

/* The message for a fault: what, where, how much, why, and the remedy if there is one. */
static zoff_status report(const zoff_aio *q, const zoff_aio_request *request)
{
    const zoff_aio_fault *fault = &request->fault;
    const char *verb = request->writes ? "write" : "read";
    const char *path = q->file.path;
    switch (fault->kind) {
    case ZOFF_AIO_FAULT_NONE:
        break;
    case ZOFF_AIO_FAULT_END:
        return zoff_base_status_fail(ZOFF_ERR_IO,
                                     "cannot %s %zu bytes at offset %" PRIu64 " of '%s': the file ends at %" PRIu64
                                     "; it is not the file that was written, or was cut since",
                                     verb, request->bytes, request->offset, path, fault->end);
    case ZOFF_AIO_FAULT_LATE:
        return zoff_base_status_fail(
            fault->error == EIO ? ZOFF_ERR_IO : ZOFF_ERR_NO_SPACE,
            "cannot %s %zu bytes at offset %" PRIu64 " of '%s': the disk has lost %zu bytes at offset %" PRIu64
            " that were written earlier: %s; the file is not what was written any more",
            verb, request->bytes, request->offset, path, fault->bytes, fault->offset, zoff_base_status_errno(fault->error));
    case ZOFF_AIO_FAULT_STUCK:
        return zoff_base_status_fail(ZOFF_ERR_IO,
                                     "cannot %s %zu bytes at offset %" PRIu64
                                     " of '%s': %d attempts in a row at offset %" PRIu64 " moved nothing",
                                     verb, request->bytes, request->offset, path, ZOFF_AIO_RETRIES_MOST, fault->offset);
    case ZOFF_AIO_FAULT_SYSTEM: {
        bool full = fault->error == ENOSPC || fault->error == EDQUOT;
        return zoff_base_status_fail(full ? ZOFF_ERR_NO_SPACE : ZOFF_ERR_IO,
                                     "cannot %s %zu bytes at offset %" PRIu64
                                     " of '%s': %s (piece of %zu bytes at offset %" PRIu64 ")%s",
                                     verb, request->bytes, request->offset, path, zoff_base_status_errno(fault->error),
                                     fault->bytes, fault->offset, full ? "; free some space or choose another folder" : "");
    }
    }
    return ZOFF_OK;
}

/* Whether a child of fork() uses the parent's queue: it shares the ring, or lacks the threads. Transfers in flight belong to
 * the parent. */
static bool is_inherited(const zoff_aio *q)
{
    return q->process != zoff_base_fork_number();
}

static zoff_status check_process(const zoff_aio *q)
{
    ZOFF_FAIL_IF(is_inherited(q), ZOFF_ERR_STATE,
                 "the queue of '%s' was opened before fork() and belongs to the parent; a child can only close it, and open "
                 "one of its own",
                 q->file.path);
    return ZOFF_OK;
}

void zoff_aio_queue_limit(zoff_aio *q, double seconds)
{
    __atomic_store(&q->limit_seconds, &seconds, __ATOMIC_RELAXED);
}

/* A wait in which no piece completes. */
typedef struct stretch {
    uint64_t completed;
    double since; /* start of the wait in seconds */
} stretch;

static stretch begin_stretch(const zoff_aio *q)
{
    return (stretch){.completed = q->counts.completed_pieces, .since = zoff_base_clock_seconds()};
}

/* Wait until a transfer has completed, or for a second: another thread may set a limit.  @return PENDING: the limit has
 * passed */
static zoff_status wait_on(zoff_aio *q, stretch *s)
{
    double limit, left = 1;
    if (q->counts.completed_pieces != s->completed)
        *s = begin_stretch(q);
    __atomic_load(&q->limit_seconds, &limit, __ATOMIC_RELAXED);
    if (limit >= 0) {
        left = fmin(left, s->since + limit - zoff_base_clock_seconds());
        if (left <= 0)
            return ZOFF_PENDING;
    }
    return q->backend->wait(q->backend_self, left);
}

/* Finish all accepted requests. Results that nobody asks for are dropped, but a failure is reported.  @return false: some did
 * not end in time */
static bool finish(zoff_aio *q)
{
    stretch s = begin_stretch(q);
    for (;;) {
        (void)zoff_aio_pieces_advance(q);
        if (!zoff_aio_pieces_out(q))
            break;
        if (wait_on(q, &s) == ZOFF_PENDING)
            return false;
    }
    for (unsigned i = 0; i < q->request_count; i++) {
        if (q->requests[i].state == ZOFF_AIO_DONE && report(q, &q->requests[i]) < 0)
            ZOFF_WARN("a request failed and the queue was closed before anybody asked for its result: %s", zoff_last_error());
    }
    bool known = q->file.late_error;
    zoff_aio_cache_finish(&q->file);
    if (q->file.late_error && !known)
        ZOFF_WARN(
            "'%s': the disk has lost %" PRIu64 " bytes at offset %" PRIu64 " that were written before the queue was closed: %s",
            q->file.path, q->file.late_range.bytes, q->file.late_range.offset, zoff_base_status_errno(q->file.late_error));
    return true;
}

void zoff_aio_close(zoff_aio *q)
{
    (void)zoff_aio_queue_close(q); /* a program's queue has no limit */
}

bool zoff_aio_queue_close(zoff_aio *q)
{
    if (!q)
        return true;
    bool inherited = is_inherited(q);
    if (!inherited && !finish(q))
        return false;
    q->backend->close(q->backend_self, inherited);
    zoff_aio_file_close(&q->file);
    zoff_base_map_free(&q->stages.memory);
    zoff_base_mem_free(q->requests);
    zoff_base_mem_free(q->pieces);
    zoff_base_mem_free(q);
    return true;
}

zoff_status zoff_aio_reserve(zoff_aio *q, uint64_t bytes)
{
    ZOFF_FAIL_IF(!q, ZOFF_ERR_INVALID, "zoff_aio_reserve: the queue is NULL");
    ZOFF_FAIL_IF(!q->file.writable, ZOFF_ERR_INVALID,
                 "cannot reserve room in '%s': it was opened for reading; set opts.writable", q->file.path);
    ZOFF_TRY(check_process(q));
    ZOFF_FAIL_IF(bytes > INT64_MAX, ZOFF_ERR_INVALID, "cannot reserve %" PRIu64 " bytes for '%s': a file has at most %" PRId64,
                 bytes, q->file.path, INT64_MAX);
    return zoff_aio_file_reserve(&q->file, bytes);
}

zoff_status zoff_aio_register(zoff_aio *q, void *base, size_t bytes)
{
    ZOFF_FAIL_IF(!q || !base || !bytes, ZOFF_ERR_INVALID, "zoff_aio_register: %s",
                 !q ? "the queue is NULL" : "there is no memory to register");
    ZOFF_TRY(check_process(q));
    ZOFF_FAIL_IF(q->register_called, ZOFF_ERR_STATE,
                 "zoff_aio_register: the queue of '%s' has its memory already; once per queue", q->file.path);
    ZOFF_TRY(q->backend->register_memory(q->backend_self, base, bytes, &q->registered));
    q->register_called = true;
    return ZOFF_OK;
}

static uint64_t make_ticket(const zoff_aio *q, int index)
{
    return (uint64_t)q->requests[index].generation << 32 | (uint32_t)(index + 1);
}

/* A request of 0 bytes completes at once. */
/* A device has no limit. */
static bool fits(const zoff_aio *q, uint64_t end)
{
    struct stat st;
    return zoff_base_files_fits(zoff_base_bits_align(end, q->file.unit)) ||
           (fstat(q->file.fd, &st) == 0 && S_ISBLK(st.st_mode));
}

static zoff_status accept_request(zoff_aio *q, bool writes, uint64_t offset, size_t bytes, void *address, uint64_t *out_ticket)
{
    const char *verb = writes ? "write" : "read";
    ZOFF_FAIL_IF(!q || !out_ticket || (!address && bytes), ZOFF_ERR_INVALID, "zoff_aio_%s: %s is NULL", verb,
                 !q            ? "the queue"
                 : !out_ticket ? "out_ticket"
                               : "the memory");
    ZOFF_FAIL_IF(writes && !q->file.writable, ZOFF_ERR_INVALID,
                 "cannot write to '%s': it was opened for reading; set opts.writable", q->file.path);
    ZOFF_FAIL_IF(bytes > INT64_MAX || offset > (uint64_t)INT64_MAX - bytes, ZOFF_ERR_INVALID,
                 "cannot %s %zu bytes at offset %" PRIu64 " of '%s': beyond the largest offset of a file, %" PRId64, verb,
                 bytes, offset, q->file.path, INT64_MAX);
    ZOFF_FAIL_IF(writes && bytes && !fits(q, offset + bytes), ZOFF_ERR_IO,
                 "cannot write %zu bytes at offset %" PRIu64 " of '%s': %s", bytes, offset, q->file.path,
                 zoff_base_status_errno(EFBIG));
    ZOFF_TRY(check_process(q));
    if (q->free_request == ZOFF_AIO_NONE)
        ZOFF_TRY(grow_requests(q, 2 * q->request_count));
    ZOFF_TRY(zoff_aio_bounce_prepare(q, offset, bytes, address));
    int index = q->free_request;
    zoff_aio_request *request = &q->requests[index];
    q->free_request = request->next;
    *request = (zoff_aio_request){.state = bytes ? ZOFF_AIO_ACTIVE : ZOFF_AIO_DONE,
                                  .generation = request->generation,
                                  .next = ZOFF_AIO_NONE,
                                  .writes = writes,
                                  .offset = offset,
                                  .bytes = bytes,
                                  .address = address,
                                  .began = zoff_trace_now()};
    *out_ticket = make_ticket(q, index);
    if (!bytes)
        return ZOFF_OK;
    unsigned lane = writes ? ZOFF_AIO_WRITES : ZOFF_AIO_READS;
    if (q->lanes[lane].last == ZOFF_AIO_NONE)
        q->lanes[lane].first = index;
    else
        q->requests[q->lanes[lane].last].next = index;
    q->lanes[lane].last = index;
    (void)zoff_aio_pieces_feed(q); /* the request is accepted, so an error becomes its result */
    return ZOFF_OK;
}

zoff_status zoff_aio_read(zoff_aio *q, uint64_t offset, size_t bytes, void *dst, uint64_t *out_ticket)
{
    return accept_request(q, false, offset, bytes, dst, out_ticket);
}

zoff_status zoff_aio_write(zoff_aio *q, uint64_t offset, size_t bytes, const void *src, uint64_t *out_ticket)
{
    void *address = (void *)(uintptr_t)src; /* the memory is only read: see bounce.c */
    return accept_request(q, true, offset, bytes, address, out_ticket);
}

/* The request of a ticket.  @return NULL, with an error, for a ticket that is stale or belongs to another queue */
static zoff_aio_request *find(zoff_aio *q, uint64_t ticket)
{
    uint32_t place = (uint32_t)ticket;
    if (!q) {
        zoff_base_status_fail(ZOFF_ERR_INVALID, "zoff_aio: the queue is NULL");
        return NULL;
    }
    if (place && place <= q->request_count && q->requests[place - 1].state != ZOFF_AIO_FREE &&
        q->requests[place - 1].generation == (uint32_t)(ticket >> 32))
        return &q->requests[place - 1];
    zoff_base_status_fail(ZOFF_ERR_INVALID,
                          "ticket %" PRIu64 " is not one of the queue of '%s', or its result has been given already", ticket,
                          q->file.path);
    return NULL;
}

/* Return the result of a finished request, and free its place. */
static zoff_status end_ticket(zoff_aio *q, zoff_aio_request *request)
{
    zoff_status result = report(q, request);
    request->state = ZOFF_AIO_FREE;
    request->generation++;
    request->next = q->free_request;
    q->free_request = (int)(request - q->requests);
    return result;
}

void zoff_aio_queue_times(const zoff_aio *q, uint64_t ticket, double *out_began, double *out_ended)
{
    const zoff_aio_request *request = &q->requests[(uint32_t)ticket - 1];
    *out_began = request->began;
    *out_ended = request->ended;
}

zoff_status zoff_aio_pump(zoff_aio *q)
{
    ZOFF_FAIL_IF(!q, ZOFF_ERR_INVALID, "zoff_aio_pump: the queue is NULL");
    ZOFF_TRY(check_process(q));
    return zoff_aio_pieces_advance(q);
}

zoff_status zoff_aio_poll(zoff_aio *q, uint64_t ticket)
{
    zoff_aio_request *request = find(q, ticket);
    if (!request)
        return ZOFF_ERR_INVALID;
    ZOFF_TRY(check_process(q));
    if (request->state != ZOFF_AIO_DONE)
        (void)zoff_aio_pieces_advance(q);
    return request->state == ZOFF_AIO_DONE ? end_ticket(q, request) : ZOFF_PENDING;
}

zoff_status zoff_aio_wait(zoff_aio *q, uint64_t ticket)
{
    zoff_aio_request *request = find(q, ticket);
    if (!request)
        return ZOFF_ERR_INVALID;
    ZOFF_TRY(check_process(q));
    stretch s = begin_stretch(q);
    while (request->state != ZOFF_AIO_DONE) {
        (void)zoff_aio_pieces_advance(q);
        if (request->state != ZOFF_AIO_DONE && wait_on(q, &s) == ZOFF_PENDING)
            return ZOFF_PENDING;
    }
    return end_ticket(q, request);
}

zoff_status zoff_aio_wait_any(zoff_aio *q)
{
    ZOFF_FAIL_IF(!q, ZOFF_ERR_INVALID, "zoff_aio_wait_any: the queue is NULL");
    ZOFF_TRY(check_process(q));
    stretch s = begin_stretch(q);
    const uint64_t completed = s.completed;
    while (zoff_aio_pieces_out(q) && q->counts.completed_pieces == completed) {
        ZOFF_TRY_DONE(wait_on(q, &s));
        ZOFF_TRY(zoff_aio_pieces_advance(q));
    }
    return ZOFF_OK;
}

zoff_status zoff_aio_get_info(const zoff_aio *q, zoff_aio_info *out)
{
    ZOFF_FAIL_IF(!q || !out, ZOFF_ERR_INVALID, "zoff_aio_get_info: %s is NULL", q ? "out" : "the queue");
    ZOFF_TRY(zoff_base_structs_check_out("zoff_aio_info", "ZOFF_AIO_INFO_INIT", out));
    zoff_aio_info info = {.struct_size = sizeof info,
                          .backend = q->backend->name,
                          .direct = q->file.direct,
                          .registered = q->registered,
                          .alignment = zoff_base_bits_max(q->file.unit, q->file.memory_unit),
                          .read_bytes = q->counts.read_bytes,
                          .write_bytes = q->counts.write_bytes,
                          .bounce_bytes = q->counts.bounce_bytes,
                          .resumed_pieces = q->counts.resumed_pieces};
    zoff_base_structs_write(&info, sizeof info, out);
    return ZOFF_OK;
}

int zoff_aio_queue_fd(const zoff_aio *q)
{
    return q->file.fd;
}
