/* SPDX-License-Identifier: Apache-2.0 */
/* call.c: the part of operations that all back-ends share: checks of arguments, numbers, timeouts and statistics. When an
 * operation fails, it breaks the communicator. */
#include "book_priv.h"

#include "clock.h"
#include "mem.h"
#include "try.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

static const char *const STREAMS[] = {"of the step",      "of the gradients", "of the weights", "of the weights",
                                      "of the gradients", "of the gradients", "of the step",    "of the step"};

static unsigned step(unsigned stride)
{
    return stride ? stride : 1;
}

static unsigned stride_of(const zoff_comm_call *call)
{
    return step(call->stride);
}

bool zoff_comm_call_has(const zoff_comm_call *call, unsigned rank)
{
    const unsigned behind = rank - call->first; /* a rank before `first` is far behind it */
    return !call->members || (behind / stride_of(call) < call->members && behind % stride_of(call) == 0);
}

unsigned zoff_comm_call_members(const zoff_comm *comm, const zoff_comm_call *call)
{
    return call->members ? call->members : comm->size;
}

unsigned zoff_comm_call_member(const zoff_comm_call *call, unsigned i)
{
    return call->members ? call->first + i * stride_of(call) : i;
}

unsigned zoff_comm_call_index(const zoff_comm_call *call, unsigned rank)
{
    return call->members ? (rank - call->first) / stride_of(call) : rank;
}

static size_t total(const zoff_comm *comm, const zoff_comm_call *call)
{
    size_t sum = 0;
    for (unsigned i = 0; i < zoff_comm_call_members(comm, call); i++)
        sum += call->receive_bytes[i];
    return sum;
}

/* The bytes of a rank in a gather. */
static size_t gathers(const zoff_comm_call *call, unsigned rank)
{
    return call->receive_bytes ? call->receive_bytes[zoff_comm_call_index(call, rank)] : call->count;
}

size_t zoff_comm_call_sends(const zoff_comm_call *call, unsigned from, unsigned to)
{
    switch (call->kind) {
    case ZOFF_COMM_EXCHANGE:
        return call->send_bytes[zoff_comm_call_index(call, to)];
    default:
        return zoff_comm_call_expects(call, from, to);
    }
}

size_t zoff_comm_call_expects(const zoff_comm_call *call, unsigned from, unsigned to)
{
    switch (call->kind) {
    case ZOFF_COMM_EXCHANGE:
        return call->adds ? call->send_bytes[zoff_comm_call_index(call, to)]
                          : call->receive_bytes[zoff_comm_call_index(call, from)];
    case ZOFF_COMM_GATHER:
        return gathers(call, from);
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
        return call->adds ? zoff_comm_call_sends(call, comm->rank, comm->rank) : total(comm, call);
    case ZOFF_COMM_GATHER:
        return call->receive_bytes ? total(comm, call) : zoff_comm_call_members(comm, call) * call->count;
    case ZOFF_COMM_SUM:
        return call->count * sizeof(double);
    case ZOFF_COMM_BROADCAST:
        return call->count;
    default:
        return 0;
    }
}

void zoff_comm_call_group(const zoff_comm *comm, zoff_comm_call *call)
{
    const bool is_rail = call->stream == ZOFF_COMM_REDUCE_RAIL || call->stream == ZOFF_COMM_STEP_RAIL;
    const unsigned node = call->stream == ZOFF_COMM_GROUP ? comm->group : call->stream < ZOFF_COMM_GROUP ? 0 : comm->node;
    call->first = !node ? 0 : is_rail ? comm->rank % node : comm->rank / node * node;
    call->stride = node && is_rail ? node : 1;
    call->members = node && is_rail ? comm->size / node : node;
}

uint64_t zoff_comm_call_messages(size_t bytes, size_t message_bytes)
{
    return bytes <= ZOFF_COMM_HEADER_DATA ? 0 : (bytes + message_bytes - 1) / message_bytes;
}

void zoff_comm_call_traffic(const zoff_comm *comm, const zoff_comm_call *call, zoff_comm_traffic *out)
{
    const unsigned me = comm->rank;
    *out = (zoff_comm_traffic){.notes = 0};
    for (unsigned i = 0; i < zoff_comm_call_members(comm, call); i++) {
        const unsigned other = zoff_comm_call_member(call, i);
        if (other == me)
            continue;
        const size_t sends = zoff_comm_call_sends(call, me, other);
        out->sent_bytes += sends;
        out->received_bytes += zoff_comm_call_expects(call, other, me);
        out->node_bytes += !comm->node || other / comm->node == me / comm->node ? sends : 0;
        out->notes += comm->message_bytes != 0;
        out->messages += comm->message_bytes ? zoff_comm_call_messages(sends, comm->message_bytes) : 0;
    }
}

void zoff_comm_call_add_traffic(const zoff_comm *comm, const zoff_comm_call *call, zoff_comm_traffic *sum)
{
    zoff_comm_traffic t;
    zoff_comm_call_traffic(comm, call, &t);
    sum->sent_bytes += t.sent_bytes;
    sum->received_bytes += t.received_bytes;
    sum->node_bytes += t.node_bytes;
    sum->notes += t.notes;
    sum->messages += t.messages;
}

enum { NAME_BYTES = 640 };

static void write_name(const zoff_comm *comm, const zoff_comm_work *work, const zoff_comm_theirs *of, char *dst)
{
    const uint32_t channel = work->call.channel->id;
    char whose[128] = "", item[320], among[64] = "", steps[32] = "";
    if (channel) {
        memcpy(whose, " of ", 4);
        zoff_comm_names_channel(comm, channel, whose + 4, sizeof whose - 4);
    }
    zoff_comm_names_item(comm, channel, &of->item, item, sizeof item);
    if (of->stride > 1)
        snprintf(steps, sizeof steps, " in steps of %u", of->stride);
    if (of->members)
        snprintf(among, sizeof among, " among ranks %u to %u%s", of->first, of->first + (of->members - 1) * step(of->stride),
                 steps);
    snprintf(dst, NAME_BYTES, "%s number %llu %s%s%s (%zu bytes)%s%s", zoff_comm_names_kind(of->kind, of->adds),
             (unsigned long long)work->number, STREAMS[work->call.stream], whose, among, of->result_bytes, item[0] ? ", " : "",
             item);
}

const char *zoff_comm_call_name(const zoff_comm *comm, const zoff_comm_work *work)
{
    static _Thread_local char text[NAME_BYTES];
    const zoff_comm_call *call = &work->call;
    const zoff_comm_theirs own = {.kind = call->kind,
                                  .adds = call->adds,
                                  .first = call->first,
                                  .stride = call->stride,
                                  .members = call->members,
                                  .item = call->item,
                                  .result_bytes = work->result_bytes};
    write_name(comm, work, &own, text);
    return text;
}

static bool are_same(const zoff_comm_call *ours, const zoff_comm_theirs *theirs)
{
    return ours->kind == theirs->kind && ours->adds == theirs->adds && ours->count == theirs->count &&
           ours->root == theirs->root && ours->first == theirs->first && ours->members == theirs->members &&
           step(ours->stride) == step(theirs->stride) && ours->item.about == theirs->item.about &&
           ours->item.param == theirs->item.param && ours->item.index == theirs->item.index &&
           ours->item.extra == theirs->item.extra;
}

zoff_status zoff_comm_call_compare(const zoff_comm *comm, const zoff_comm_work *work, unsigned other,
                                   const zoff_comm_theirs *theirs)
{
    const zoff_comm_call *ours = &work->call;
    const unsigned rank = comm->rank;
    if (!are_same(ours, theirs)) {
        char name[NAME_BYTES];
        write_name(comm, work, theirs, name);
        return zoff_base_status_fail(ZOFF_ERR_COMM,
                                     "rank %u calls %s while rank %u calls %s: every rank must make the same calls in the same "
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

bool zoff_comm_lets_go(zoff_comm *comm)
{
    zoff_comm_lock(comm);
    const bool does = !comm->holds_memory;
    zoff_comm_unlock(comm);
    return does;
}

bool zoff_comm_is_broken(zoff_comm *comm)
{
    zoff_comm_lock(comm);
    const bool is = comm->is_broken;
    zoff_comm_unlock(comm);
    return is;
}

/* Break the communicator with the current error as the reason, unless it is broken already. Returns ERR_COMM with the first
 * reason. */
static zoff_status break_off(zoff_comm *comm)
{
    if (!comm->is_broken) {
        comm->is_broken = true;
        snprintf(comm->words, sizeof comm->words, "%s", zoff_last_error());
        comm->ops->give_up(comm, comm->words);
    }
    return zoff_base_status_fail(ZOFF_ERR_COMM, "%s", comm->words);
}

static bool is_missing(zoff_comm *comm, const zoff_comm_work *work, unsigned rank)
{
    return rank != comm->rank && zoff_comm_call_has(&work->call, rank) && !comm->ops->has_arrived(comm, work, rank);
}

/* Whether a rank before this one is missing because of the same rank. */
static bool is_listed(zoff_comm *comm, const zoff_comm_work *work, unsigned rank)
{
    const unsigned end = zoff_comm_waits_for(comm, rank);
    bool is = end != rank && is_missing(comm, work, end);
    for (unsigned i = 0; i < rank && end != rank; i++)
        is = is || (is_missing(comm, work, i) && zoff_comm_waits_for(comm, i) == end);
    return is;
}

/* List the ranks that has_arrived() does not report, as "1, 3", or those that they wait for. A rank that waits in the same call
 * as this one is listed only if no other rank is missing, because the others keep it from starting the operation. The text in
 * `visits` says in which calls the first of the missing ranks wait. Returns the number of listed ranks. */
static unsigned list_missing(zoff_comm *comm, const zoff_comm_work *work, char *dst, size_t dst_bytes, char *visits,
                             size_t visits_bytes)
{
    enum { VISITS = 3 };
    unsigned missing = 0, waiting = 0;
    size_t used = 0, told = 0;
    bool some_do_not_wait = false;
    dst[0] = visits[0] = 0;
    for (unsigned rank = 0; rank < comm->size; rank++)
        some_do_not_wait |= is_missing(comm, work, rank) && !zoff_comm_waits_too(comm, rank);
    for (unsigned rank = 0; rank < comm->size; rank++) {
        if (!is_missing(comm, work, rank))
            continue;
        if (waiting++ < VISITS && told < visits_bytes)
            zoff_comm_describe_visit_of(comm, rank, visits + told, visits_bytes - told);
        told += strlen(visits + told);
        if ((some_do_not_wait && zoff_comm_waits_too(comm, rank)) || is_listed(comm, work, rank))
            continue;
        if (used < dst_bytes)
            used +=
                (size_t)snprintf(dst + used, dst_bytes - used, "%s%u", missing ? ", " : "", zoff_comm_waits_for(comm, rank));
        missing++;
    }
    return missing;
}

static zoff_status expire(zoff_comm *comm, const zoff_comm_work *work)
{
    char list[256], visits[768];
    const char *name = zoff_comm_call_name(comm, work);
    if (comm->blind)
        return zoff_base_status_fail(
            ZOFF_ERR_COMM, "rank %u: %s has waited for %g s: %s; %s", comm->rank, name, comm->timeout_seconds,
            work->arrived ? "all ranks arrived, but one makes no progress"
                          : "one of the other ranks did not arrive (it is stopped, ended, or calls something else)",
            comm->blind);
    const unsigned missing = list_missing(comm, work, list, sizeof list, visits, sizeof visits);
    if (missing && work->arrived)
        return zoff_base_status_fail(
            ZOFF_ERR_COMM,
            "rank %u: %s has waited for %g s: all ranks arrived, and rank%s %s of %u stopped before it was done%s", comm->rank,
            name, comm->timeout_seconds, missing > 1 ? "s" : "", list, comm->size, visits);
    if (missing)
        return zoff_base_status_fail(ZOFF_ERR_COMM,
                                     "rank %u: %s has waited for %g s: rank%s %s of %u did not arrive (they are stopped, "
                                     "ended, or call something else)%s",
                                     comm->rank, name, comm->timeout_seconds, missing > 1 ? "s" : "", list, comm->size, visits);
    return zoff_base_status_fail(ZOFF_ERR_COMM, "rank %u: %s has waited for %g s: all ranks arrived, but one makes no progress",
                                 comm->rank, name, comm->timeout_seconds);
}

/* Add a completed operation to the statistics. A rank's transfer to itself does not count. */
static void count(zoff_comm *comm, const zoff_comm_call *call)
{
    zoff_comm_traffic t;
    zoff_comm_call_traffic(comm, call, &t);
    comm->info.operations++;
    comm->info.sent_bytes += t.sent_bytes;
    comm->info.received_bytes += t.received_bytes;
    comm->info.node_bytes += t.node_bytes;
    comm->info.notes += t.notes;
    comm->info.messages += t.messages;
    call->channel->sent_bytes += t.sent_bytes;
    call->channel->received_bytes += t.received_bytes;
}

/* Check a call with `adds`: the back-end must support it, and all pieces must have one length. */
static zoff_status check_pieces(const zoff_comm *comm, const zoff_comm_call *call)
{
    ZOFF_FAIL_IF(!comm->adds, ZOFF_ERR_UNSUPPORTED, "the communicator \"%s\" cannot add up pieces while it exchanges them",
                 comm->info.backend);
    ZOFF_FAIL_IF(call->kind != ZOFF_COMM_EXCHANGE, ZOFF_ERR_INVALID, "%s cannot add up pieces",
                 zoff_comm_names_kind(call->kind, false));
    for (unsigned rank = 0; rank < comm->size; rank++)
        ZOFF_FAIL_IF(call->send_bytes[rank] != call->send_bytes[0] || call->send_bytes[rank] % sizeof(float), ZOFF_ERR_INVALID,
                     "%s needs fp32 pieces of one length: the piece for rank %u has %zu bytes, the piece for rank 0 %zu",
                     zoff_comm_names_kind(call->kind, true), rank, call->send_bytes[rank], call->send_bytes[0]);
    return ZOFF_OK;
}

static zoff_status check_group(const zoff_comm *comm, const zoff_comm_call *call)
{
    zoff_comm_call known = {.stream = call->stream};
    zoff_comm_call_group(comm, &known);
    ZOFF_FAIL_IF(
        (call->kind != ZOFF_COMM_GATHER && call->kind != ZOFF_COMM_EXCHANGE) || call->adds || call->stream < ZOFF_COMM_GROUP,
        ZOFF_ERR_INVALID, "%s %s of a group of ranks", zoff_comm_names_kind(call->kind, call->adds), STREAMS[call->stream]);
    ZOFF_FAIL_IF(comm->flat && call->stream != ZOFF_COMM_GROUP, ZOFF_ERR_UNSUPPORTED, "%s", comm->flat);
    ZOFF_FAIL_IF(
        !call->members || call->members != known.members || call->first != known.first || stride_of(call) != known.stride,
        ZOFF_ERR_INVALID,
        "rank %u of %u in a group of %u ranks from %u on in steps of %u, where groups have %u from %u on in steps of %u",
        comm->rank, comm->size, call->members, call->first, stride_of(call), known.members, known.first, known.stride);
    return ZOFF_OK;
}

static zoff_status start_call(zoff_comm *comm, const zoff_comm_call *call, zoff_comm_work *work)
{
    zoff_comm_channel *channel = call->channel ? call->channel : &comm->common;
    ZOFF_FAIL_IF(work->active, ZOFF_ERR_STATE, "a second operation was started before the first was done");
    ZOFF_FAIL_IF(comm->is_broken, ZOFF_ERR_COMM, "%s", comm->words);
    ZOFF_FAIL_IF(call->kind == ZOFF_COMM_BROADCAST && call->root >= comm->size, ZOFF_ERR_INVALID,
                 "a broadcast from rank %u of %u", call->root, comm->size);
    if (call->adds)
        ZOFF_TRY(check_pieces(comm, call));
    if (call->stream >= ZOFF_COMM_GROUP || call->members)
        ZOFF_TRY(check_group(comm, call));
    *work = (zoff_comm_work){.call = *call,
                             .number = channel->started[call->stream] + 1,
                             .result_bytes = zoff_comm_call_result(comm, call),
                             .seen = zoff_base_clock_seconds()};
    work->call.channel = channel;
    ZOFF_TRY(comm->ops->start(comm, work));
    channel->started[call->stream]++;
    work->active = true;
    return ZOFF_OK;
}

zoff_status zoff_comm_start(zoff_comm *comm, const zoff_comm_call *call, zoff_comm_work *work)
{
    zoff_comm_lock(comm);
    const zoff_status status = start_call(comm, call, work);
    zoff_comm_unlock(comm);
    return status;
}

/* Whether an operation has waited too long. At most a tenth of the timeout counts between two polls, because a trainer that
 * does other work does not wait, and the other ranks may be doing the same. */
static bool has_expired(const zoff_comm *comm, zoff_comm_work *work)
{
    const double now = zoff_base_clock_seconds(), most = comm->timeout_seconds / 10;
    const uint64_t heard = comm->book->works_heard;
    work->waited = heard != work->works_heard ? 0 : work->waited + (now - work->seen < most ? now - work->seen : most);
    work->works_heard = heard;
    work->seen = now;
    return comm->timeout_seconds >= 0 && work->waited > comm->timeout_seconds;
}

/* Tell node and rail for which rank this one waits. Their operations wait for this rank, so their errors name that one. */
static void tell_waits(zoff_comm *comm, zoff_comm_work *work)
{
    static const zoff_comm_stream TOLD[] = {ZOFF_COMM_STEP_NODE, ZOFF_COMM_STEP_RAIL};
    zoff_comm_visit visits[ZOFF_COMM_VISITS_TOLD];
    const unsigned count = zoff_comm_get_visits(comm, visits, ZOFF_COMM_VISITS_TOLD);
    unsigned i = 0;
    work->is_told = true;
    while (i < work->call.members && !is_missing(comm, work, zoff_comm_call_member(&work->call, i)))
        i++;
    for (size_t k = 0; k < 2 && comm->node && i < work->call.members; k++) {
        zoff_comm_call call = {.stream = TOLD[k], .root = zoff_comm_waits_for(comm, zoff_comm_call_member(&work->call, i)) + 1};
        zoff_comm_call_group(comm, &call);
        (void)comm->ops->tell(comm, &call, visits, count); /* later calls report a transport that fails */
    }
}

static zoff_status poll_work(zoff_comm *comm, zoff_comm_work *work)
{
    if (!work->active)
        return work->outcome < 0 ? zoff_base_status_fail(work->outcome, "%s", comm->words) : ZOFF_OK;
    zoff_status status =
        comm->is_broken ? zoff_base_status_fail(ZOFF_ERR_COMM, "%s", comm->words) : comm->ops->poll(comm, work);
    if (status == ZOFF_PENDING && has_expired(comm, work))
        status = expire(comm, work);
    else if (status == ZOFF_PENDING && zoff_comm_watch(comm, &work->call, work->seen) < 0)
        status = ZOFF_ERR_COMM;
    if (status == ZOFF_PENDING && !work->is_told && comm->timeout_seconds >= 0 && work->waited > comm->timeout_seconds / 2)
        tell_waits(comm, work);
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

zoff_status zoff_comm_poll(zoff_comm *comm, zoff_comm_work *work)
{
    zoff_comm_lock(comm);
    const zoff_status status = poll_work(comm, work);
    zoff_comm_unlock(comm);
    return status;
}

/* Whether all ranks have started an operation in flight. */
static bool has_arrived(zoff_comm *comm, const zoff_comm_work *work)
{
    zoff_comm_lock(comm);
    const bool has = work->arrived;
    zoff_comm_unlock(comm);
    return has;
}

zoff_status zoff_comm_wait(zoff_comm *comm, zoff_comm_work *work)
{
    unsigned naps = 0;
    bool had_arrived = false;
    /* Once all ranks have arrived, this thread moves the bytes, so it starts a new series of polls, and then takes the shortest
     * pauses. A rank may also stop after its arrival, so the polls without a pause must end. Yield only after LOOKS polls,
     * because on a busy machine every yield costs a whole time slice. */
    enum { LOOKS = 128, PATIENCE = 32 * LOOKS };
    for (unsigned turn = 1;; turn++) {
        zoff_status status = zoff_comm_poll(comm, work);
        if (status != ZOFF_PENDING)
            return status;
        if (turn % LOOKS == 0 && turn <= PATIENCE)
            sched_yield();
        if (turn <= PATIENCE)
            continue;
        const bool arrived = has_arrived(comm, work);
        if (arrived && !had_arrived)
            turn = naps = 0;
        else
            zoff_base_clock_nap(arrived ? 0 : naps++);
        had_arrived = arrived;
    }
}

static void abandon(zoff_comm *comm, zoff_comm_work *work)
{
    if (!comm->is_broken) {
        (void)zoff_base_status_fail(ZOFF_ERR_COMM, "rank %u has left the group with an operation in flight: %s", comm->rank,
                                    zoff_comm_call_name(comm, work));
        (void)break_off(comm);
    }
    zoff_base_mem_free(work->scratch); /* scratch is NULL if the back-end has freed or leaked it */
    *work = (zoff_comm_work){.outcome = ZOFF_ERR_COMM};
}

void zoff_comm_abandon(zoff_comm *comm, zoff_comm_work *work)
{
    if (!comm)
        return;
    zoff_comm_lock(comm);
    if (work->active)
        abandon(comm, work);
    zoff_comm_unlock(comm);
}

zoff_status zoff_comm_sum_scalars(zoff_comm *comm, double *inout, size_t count, zoff_comm_work *work)
{
    const zoff_comm_call call = {.kind = ZOFF_COMM_SUM, .out = inout, .count = count};
    return zoff_comm_start(comm, &call, work);
}
