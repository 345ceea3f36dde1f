/* call.c: an operation as its caller sees it, whatever the back-end: arguments, numbers, deadlines, counts, and what becomes of
 * a communicator when one fails. */
#include "comm.h"

#include "clock.h"
#include "mem.h"
#include "try.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const char *const NAMES[] = {"all_to_all", "all_gather", "sum", "broadcast", "barrier"};
static const char *const ADDS = "reduce_scatter"; /* an all_to_all that adds up */
static const char *const STREAMS[] = {"of the step", "of the gradients", "of the weights"};

/* The sum of a list over the ranks. */
static size_t total(const zoff_comm *comm, const size_t *bytes)
{
    size_t sum = 0;
    for (unsigned rank = 0; rank < comm->size; rank++)
        sum += bytes[rank];
    return sum;
}

size_t zoff_comm_call_sends(const zoff_comm_call *call, unsigned from, unsigned to)
{
    switch (call->kind) {
    case ZOFF_COMM_EXCHANGE:
        return call->send_bytes[to];
    case ZOFF_COMM_GATHER:
        return call->receive_bytes[from];
    default:
        return zoff_comm_call_expects(call, from, to);
    }
}

size_t zoff_comm_call_expects(const zoff_comm_call *call, unsigned from, unsigned to)
{
    switch (call->kind) {
    case ZOFF_COMM_EXCHANGE:
        return call->adds ? call->send_bytes[to] : call->receive_bytes[from];
    case ZOFF_COMM_GATHER:
        return call->receive_bytes[from];
    case ZOFF_COMM_SUM:
        return call->count * sizeof(double);
    case ZOFF_COMM_BROADCAST:
        return from == call->root ? call->count : 0;
    default:
        return 0;
    }
}

size_t zoff_comm_call_result(const zoff_comm *comm, const zoff_comm_call *call)
{
    switch (call->kind) {
    case ZOFF_COMM_EXCHANGE:
        return call->adds ? call->send_bytes[comm->rank] : total(comm, call->receive_bytes);
    case ZOFF_COMM_GATHER:
        return total(comm, call->receive_bytes);
    case ZOFF_COMM_SUM:
        return call->count * sizeof(double);
    case ZOFF_COMM_BROADCAST:
        return call->count;
    default:
        return 0;
    }
}

static void write_name(char *dst, size_t dst_bytes, const char *what, zoff_comm_stream stream, uint64_t number, size_t bytes)
{
    snprintf(dst, dst_bytes, "%s number %llu %s (%zu bytes)", what, (unsigned long long)number, STREAMS[stream], bytes);
}

const char *zoff_comm_call_name(const zoff_comm *comm, const zoff_comm_work *work)
{
    static _Thread_local char text[96];
    const zoff_comm_call *call = &work->call;
    write_name(text, sizeof text, call->adds ? ADDS : NAMES[call->kind], call->stream, work->number,
               zoff_comm_call_result(comm, call));
    return text;
}

zoff_status zoff_comm_call_compare(const zoff_comm *comm, const zoff_comm_work *work, unsigned other,
                                   const zoff_comm_theirs *theirs)
{
    const zoff_comm_call *ours = &work->call;
    const unsigned rank = comm->rank;
    if (ours->kind != theirs->kind || ours->adds != theirs->adds || ours->count != theirs->count ||
        ours->root != theirs->root) {
        char name[96];
        write_name(name, sizeof name, theirs->adds ? ADDS : NAMES[theirs->kind], ours->stream, work->number,
                   theirs->result_bytes);
        return zoff_base_status_fail(ZOFF_ERR_COMM,
                                     "rank %u calls %s where rank %u calls %s: every rank must make the same calls in the same "
                                     "order",
                                     other, name, rank, zoff_comm_call_name(comm, work));
    }
    const size_t expected = zoff_comm_call_expects(ours, other, rank), sent = zoff_comm_call_sends(ours, rank, other);
    ZOFF_FAIL_IF(theirs->sends != expected, ZOFF_ERR_COMM, "%s: rank %u has %zu bytes for rank %u, which expects %zu",
                 zoff_comm_call_name(comm, work), other, theirs->sends, rank, expected);
    ZOFF_FAIL_IF(theirs->expects != sent, ZOFF_ERR_COMM, "%s: rank %u has %zu bytes for rank %u, which expects %zu",
                 zoff_comm_call_name(comm, work), rank, sent, other, theirs->expects);
    return ZOFF_OK;
}

bool zoff_comm_lets_go(const zoff_comm *comm)
{
    return !comm->holds_memory;
}

/* From now on nothing goes on here; the first reason stays. Returns ERR_COMM with the words. */
static zoff_status break_off(zoff_comm *comm)
{
    if (!comm->is_broken) {
        comm->is_broken = true;
        snprintf(comm->words, sizeof comm->words, "%s", zoff_last_error());
        comm->ops->give_up(comm, comm->words);
    }
    return zoff_base_status_fail(ZOFF_ERR_COMM, "%s", comm->words);
}

/* The ranks that have not come, as "1, 3"; how many they are. */
static unsigned list_missing(zoff_comm *comm, const zoff_comm_work *work, char *dst, size_t dst_bytes)
{
    unsigned missing = 0;
    size_t used = 0;
    dst[0] = 0;
    for (unsigned rank = 0; rank < comm->size; rank++) {
        if (rank == comm->rank || comm->ops->has_arrived(comm, work, rank))
            continue;
        if (used < dst_bytes)
            used += (size_t)snprintf(dst + used, dst_bytes - used, "%s%u", missing ? ", " : "", rank);
        missing++;
    }
    return missing;
}

static zoff_status expire(zoff_comm *comm, const zoff_comm_work *work)
{
    char list[256];
    const char *name = zoff_comm_call_name(comm, work);
    if (comm->blind)
        return zoff_base_status_fail(
            ZOFF_ERR_COMM, "rank %u: %s has waited for %g s: %s; %s", comm->rank, name, comm->timeout_seconds,
            work->arrived ? "all ranks arrived, and one does not go on"
                          : "one of the other ranks did not arrive (it is stopped, ended, or calls something else)",
            comm->blind);
    const unsigned missing = list_missing(comm, work, list, sizeof list);
    if (missing && work->arrived)
        return zoff_base_status_fail(
            ZOFF_ERR_COMM, "rank %u: %s has waited for %g s: all ranks arrived, and rank%s %s of %u stopped before it was done",
            comm->rank, name, comm->timeout_seconds, missing > 1 ? "s" : "", list, comm->size);
    if (missing)
        return zoff_base_status_fail(
            ZOFF_ERR_COMM,
            "rank %u: %s has waited for %g s: rank%s %s of %u did not arrive (they are stopped, ended, or call something else)",
            comm->rank, name, comm->timeout_seconds, missing > 1 ? "s" : "", list, comm->size);
    return zoff_base_status_fail(ZOFF_ERR_COMM, "rank %u: %s has waited for %g s: all ranks arrived, and one does not go on",
                                 comm->rank, name, comm->timeout_seconds);
}

/* What went to others and came from them. */
static void count(zoff_comm *comm, const zoff_comm_call *call)
{
    zoff_comm_info *info = &comm->info;
    info->operations++;
    for (unsigned other = 0; other < comm->size; other++) {
        info->sent_bytes += other == comm->rank ? 0 : zoff_comm_call_sends(call, comm->rank, other);
        info->received_bytes += other == comm->rank ? 0 : zoff_comm_call_expects(call, other, comm->rank);
    }
}

/* A call that adds up, of a back-end that can. */
static zoff_status check_pieces(const zoff_comm *comm, const zoff_comm_call *call)
{
    ZOFF_FAIL_IF(!comm->adds, ZOFF_ERR_UNSUPPORTED, "the communicator \"%s\" does not add up what it exchanges",
                 comm->ops->name);
    ZOFF_FAIL_IF(call->kind != ZOFF_COMM_EXCHANGE, ZOFF_ERR_INVALID, "%s does not add up", NAMES[call->kind]);
    for (unsigned rank = 0; rank < comm->size; rank++)
        ZOFF_FAIL_IF(call->send_bytes[rank] != call->send_bytes[0] || call->send_bytes[rank] % sizeof(float), ZOFF_ERR_INVALID,
                     "%s takes pieces of one length, in fp32: that for rank %u has %zu bytes, that for rank 0 %zu", ADDS, rank,
                     call->send_bytes[rank], call->send_bytes[0]);
    return ZOFF_OK;
}

zoff_status zoff_comm_start(zoff_comm *comm, const zoff_comm_call *call, zoff_comm_work *work)
{
    ZOFF_FAIL_IF(work->active, ZOFF_ERR_STATE, "a second operation was started before the first was done");
    ZOFF_FAIL_IF(comm->is_broken, ZOFF_ERR_COMM, "%s", comm->words);
    ZOFF_FAIL_IF(call->kind == ZOFF_COMM_BROADCAST && call->root >= comm->size, ZOFF_ERR_INVALID,
                 "a broadcast from rank %u of %u", call->root, comm->size);
    if (call->adds)
        ZOFF_TRY(check_pieces(comm, call));
    *work = (zoff_comm_work){.call = *call, .number = comm->started[call->stream] + 1, .seen = zoff_base_clock_seconds()};
    ZOFF_TRY(comm->ops->start(comm, work));
    comm->started[call->stream]++;
    work->active = true;
    return ZOFF_OK;
}

/* While a trainer does other things nobody waits, and the others may do the same: a long time between two polls says nothing
 * about them. */
static bool has_expired(const zoff_comm *comm, zoff_comm_work *work)
{
    const double now = zoff_base_clock_seconds(), most = comm->timeout_seconds / 10;
    work->waited += now - work->seen < most ? now - work->seen : most;
    work->seen = now;
    return comm->timeout_seconds >= 0 && work->waited > comm->timeout_seconds;
}

zoff_status zoff_comm_poll(zoff_comm *comm, zoff_comm_work *work)
{
    if (!work->active)
        return work->outcome < 0 ? zoff_base_status_fail(work->outcome, "%s", comm->words) : ZOFF_OK;
    zoff_status status =
        comm->is_broken ? zoff_base_status_fail(ZOFF_ERR_COMM, "%s", comm->words) : comm->ops->poll(comm, work);
    if (status == ZOFF_PENDING && has_expired(comm, work))
        status = expire(comm, work);
    if (status == ZOFF_PENDING)
        return status;
    if (status < 0)
        status = break_off(comm);
    work->active = false;
    work->outcome = status;
    zoff_base_mem_free(work->scratch);
    work->scratch = NULL;
    if (status < 0)
        return status;
    count(comm, &work->call);
    return ZOFF_OK;
}

zoff_status zoff_comm_wait(zoff_comm *comm, zoff_comm_work *work)
{
    static const struct timespec NAP = {.tv_nsec = 20000};
    /* Once all have come bytes are moved by whoever polls, so there is no time to sleep; and a rank that lets others run after
     * every look gives away whole slices of time on a machine that is busy. */
    enum { LOOKS = 128, PATIENCE = 32 * LOOKS };
    for (unsigned turn = 1;; turn++) {
        zoff_status status = zoff_comm_poll(comm, work);
        if (status != ZOFF_PENDING)
            return status;
        if (turn > PATIENCE && !work->arrived)
            nanosleep(&NAP, NULL);
        else if (turn % LOOKS == 0)
            sched_yield();
    }
}

void zoff_comm_abandon(zoff_comm *comm, zoff_comm_work *work)
{
    if (!work->active)
        return;
    if (!comm->is_broken) {
        (void)zoff_base_status_fail(ZOFF_ERR_COMM, "rank %u has left the group with an operation in flight: %s", comm->rank,
                                    zoff_comm_call_name(comm, work));
        (void)break_off(comm);
    }
    zoff_base_mem_free(work->scratch); /* NULL where the back-end has let go of it */
    *work = (zoff_comm_work){.outcome = ZOFF_ERR_COMM};
}

zoff_status zoff_comm_sum_scalars(zoff_comm *comm, double *inout, size_t count, zoff_comm_work *work)
{
    const zoff_comm_call call = {.kind = ZOFF_COMM_SUM, .out = inout, .count = count};
    return zoff_comm_start(comm, &call, work);
}
