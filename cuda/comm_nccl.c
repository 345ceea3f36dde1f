/* SPDX-License-Identifier: Apache-2.0 */
/* comm_nccl.c: the communicator "nccl". A lane takes its operations one after another, each from phase to phase.
 *
 *      idle --- notes sent ---> telling --- in the stream ---> told --- all notes are here, and agree ---> moving, in rounds
 *           <--- this rank has its result --- moved <--- all rounds are in the stream --- '
 *
 * Nothing in this file sleeps, and only giving up makes a thread. The thread that polls does zoff's part of the work; CUDA
 * executes its streams. NCCL's communicators do not block: a call may return before its work is in the stream. Nothing is
 * enqueued behind such a call until NCCL reports that the work is there. NCCL before 2.27 is waited for: see
 * zoff_nccl_settle(). */
#include "nccl_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static zoff_status mark(zoff_nccl *n, zoff_nccl_lane *lane, zoff_nccl_phase phase)
{
    ZOFF_NCCL_CUDA(n, cudaEventRecord, lane->event, lane->stream);
    lane->phase = phase;
    return ZOFF_OK;
}

/* @return OK or PENDING for everything that was enqueued before the mark; an error if CUDA reports one */
static zoff_status look_at_mark(zoff_nccl *n, zoff_nccl_lane *lane)
{
    const cudaError_t error = cudaEventQuery(lane->event);
    if (error != cudaErrorNotReady)
        return zoff_nccl_check_cuda(n, error, "cudaEventQuery");
    if (cudaPeekAtLastError() == cudaErrorNotReady)
        (void)cudaGetLastError(); /* cudaErrorNotReady is no error, so the trainer's next check must not find it */
    return ZOFF_PENDING;
}

/* Add the rows in the order of the ranks: row r is rank r's. */
static void add_up(const zoff_nccl *n, const zoff_nccl_lane *lane, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        for (unsigned rank = 1; rank < n->comm.size; rank++)
            lane->rows[i] += lane->rows[rank * count + i];
    }
}

static zoff_nccl_queue *queue_of(zoff_nccl_lane *lane, const zoff_comm_work *work)
{
    return &lane->queues[work->call.channel->slot];
}

static void finish(zoff_nccl_lane *lane)
{
    zoff_nccl_queue *queue = queue_of(lane, lane->work);
    free(lane->rows);
    lane->rows = NULL;
    queue->done++;
    queue->ops[queue->done % ZOFF_NCCL_DEPTH].is_done = true;
    lane->work = NULL;
    lane->phase = ZOFF_NCCL_IDLE;
}

/* ---- which operation is next ---- */

/* Seconds until notes are sent again, while no operation is common to all ranks. */
static const double WAIT_LEAST = 50e-6, WAIT_MOST = 2e-3;

/* Choose the oldest operation that was started and is not done, over all channels. After the ranks' notes have differed, choose
 * the one in the first channel in which all ranks have started something.  @return NULL: nothing is started */
static zoff_comm_work *choose(const zoff_nccl_lane *lane, uint64_t *out_mask)
{
    zoff_comm_work *first = NULL;
    uint64_t time = UINT64_MAX;
    *out_mask = 0;
    for (unsigned slot = 0; slot < ZOFF_COMM_SLOTS; slot++) {
        const zoff_nccl_queue *queue = &lane->queues[slot];
        const size_t at = (queue->done + 1) % ZOFF_NCCL_DEPTH;
        if (queue->done == queue->started)
            continue;
        *out_mask |= (uint64_t)1 << slot;
        const bool is_common = lane->common >> slot & 1;
        if (is_common ? time != 0 : queue->ops[at].time < time) {
            time = is_common ? 0 : queue->ops[at].time;
            first = queue->ops[at].work;
        }
    }
    return first;
}

/* The ranks' notes named different operations, so notes go again. They go at once if the notes show a channel in which all
 * ranks have started something, otherwise after a wait. */
static zoff_status differ(zoff_nccl_lane *lane)
{
    free(lane->rows);
    lane->rows = NULL;
    lane->work = NULL;
    lane->phase = ZOFF_NCCL_IDLE;
    if (lane->common)
        return ZOFF_OK;
    lane->wait = lane->wait * 2 < WAIT_LEAST ? WAIT_LEAST : lane->wait * 2 < WAIT_MOST ? lane->wait * 2 : WAIT_MOST;
    lane->retry = zoff_nccl_now() + lane->wait;
    return ZOFF_PENDING;
}

/* Finish the operation: all rows and pieces have arrived. */
static zoff_status complete(zoff_nccl *n, zoff_nccl_lane *lane)
{
    const zoff_comm_call *call = &zoff_nccl_work_of(lane)->call;
    if (call->kind == ZOFF_COMM_SUM && call->count) {
        add_up(n, lane, call->count);
        if (lane->in_is_device) {
            ZOFF_TRY(zoff_nccl_copy(n, lane, call->out, lane->rows, call->count * sizeof(double)));
            return mark(n, lane, ZOFF_NCCL_WRITING);
        }
        memcpy(call->out, lane->rows, call->count * sizeof(double));
    }
    finish(lane);
    return ZOFF_OK;
}

/* Look at the communicator first, because an error that is already there says more than the failure of the next call would. */
static zoff_status begin(zoff_nccl *n, zoff_nccl_lane *lane)
{
    zoff_status status = ZOFF_OK;
    uint64_t mask;
    zoff_comm_work *work = choose(lane, &mask);
    if (!work || (lane->retry > 0 && mask == lane->mask && zoff_nccl_now() < lane->retry))
        return ZOFF_PENDING;
    if (lane->size > 1)
        ZOFF_TRY(status = zoff_nccl_look(n, lane->nccl));
    if (status == ZOFF_PENDING)
        return status;
    lane->work = work;
    lane->mask = mask;
    lane->retry = 0;
    ZOFF_TRY(zoff_nccl_lay(n, lane));
    ZOFF_TRY(zoff_nccl_tell(n, lane, ZOFF_NCCL_CALLS));
    lane->phase = ZOFF_NCCL_TELLING;
    return ZOFF_OK;
}

static zoff_status move_on(zoff_nccl *n, zoff_nccl_lane *lane)
{
    if (lane->round < lane->rounds) {
        ZOFF_TRY(zoff_nccl_move(n, lane));
        lane->phase = ZOFF_NCCL_MOVING;
        return ZOFF_OK;
    }
    return lane->rounds || lane->has_copies ? mark(n, lane, ZOFF_NCCL_MOVED) : complete(n, lane);
}

static zoff_status hear(zoff_nccl *n, zoff_nccl_lane *lane)
{
    zoff_status status;
    status = zoff_nccl_hear(n, lane);
    n->owes_notes = status < 0; /* the other ranks must find the same error in the notes of this rank */
    ZOFF_TRY(status);
    if (status == ZOFF_PENDING)
        return differ(lane);
    lane->wait = 0;
    ZOFF_TRY(zoff_nccl_take_own(n, lane));
    zoff_nccl_count_rounds(n, lane);
    return move_on(n, lane);
}

/* Take the operation one phase further.  @return OK: there may be more to do; PENDING: not now */
static zoff_status advance(zoff_nccl *n, zoff_nccl_lane *lane)
{
    zoff_status status = ZOFF_OK;
    switch (lane->phase) {
    case ZOFF_NCCL_IDLE:
        return begin(n, lane);
    case ZOFF_NCCL_TELLING:
        if (lane->size == 1)
            return hear(n, lane);
        ZOFF_TRY(status = zoff_nccl_look(n, lane->nccl));
        if (status == ZOFF_PENDING)
            return status;
        ZOFF_TRY(zoff_nccl_fetch_notes(n, lane));
        return mark(n, lane, ZOFF_NCCL_TOLD);
    case ZOFF_NCCL_TOLD:
        ZOFF_TRY(status = look_at_mark(n, lane));
        return status == ZOFF_PENDING ? status : hear(n, lane);
    case ZOFF_NCCL_MOVING:
        ZOFF_TRY(status = zoff_nccl_look(n, lane->nccl));
        if (status == ZOFF_PENDING)
            return status;
        ZOFF_TRY(zoff_nccl_unload(n, lane));
        lane->round++;
        return move_on(n, lane);
    case ZOFF_NCCL_MOVED:
        ZOFF_TRY(status = look_at_mark(n, lane));
        return status == ZOFF_PENDING ? status : complete(n, lane);
    case ZOFF_NCCL_WRITING:
        ZOFF_TRY(status = look_at_mark(n, lane));
        if (status == ZOFF_OK)
            finish(lane);
        return status;
    }
    return ZOFF_PENDING;
}

/* While the stream waits, only the communicator shows an error of the network, so look at it as well. */
static zoff_status go_on(zoff_nccl *n, zoff_nccl_lane *lane)
{
    zoff_status status;
    while ((status = advance(n, lane)) == ZOFF_OK)
        ;
    if (status == ZOFF_PENDING && lane->phase != ZOFF_NCCL_IDLE && lane->size > 1)
        status = zoff_nccl_look(n, lane->nccl);
    return status;
}

/* Advance all operations, not only the one that is polled, because other ranks may wait for one that this rank does not ask
 * for. An error ends the communicator, and the poll of each operation in flight returns it. */
static void progress(zoff_nccl *n)
{
    for (unsigned i = 0; i < ZOFF_NCCL_LANES && !n->is_over; i++) {
        if (go_on(n, &n->lanes[i]) >= 0)
            continue;
        n->is_over = true;
        snprintf(n->over, sizeof n->over, "%s", n->tools->last_error());
    }
}

static zoff_status nccl_start(zoff_comm *comm, zoff_comm_work *work)
{
    zoff_nccl *n = zoff_nccl_of(comm);
    zoff_nccl_lane *lane = &n->lanes[work->call.stream];
    zoff_nccl_queue *queue = queue_of(lane, work);
    const size_t at = work->number % ZOFF_NCCL_DEPTH;
    ZOFF_FAIL_IF(queue->ops[at].work, ZOFF_ERR_STATE,
                 "rank %u: operation %llu is not done yet, and at most %d newer ones may be in flight", comm->rank,
                 (unsigned long long)queue->ops[at].work->number, ZOFF_NCCL_DEPTH - 1);
    ZOFF_NCCL_ENTER(n);
    ZOFF_TRY(zoff_nccl_check_memory(n, &work->call));
    queue->ops[at].work = work;
    queue->ops[at].is_done = false;
    queue->ops[at].time = ++lane->clock;
    queue->started = work->number;
    progress(n); /* from here on, an error is returned by the poll */
    return ZOFF_OK;
}

static zoff_status nccl_poll(zoff_comm *comm, zoff_comm_work *work)
{
    zoff_nccl *n = zoff_nccl_of(comm);
    zoff_nccl_queue *queue = queue_of(&n->lanes[work->call.stream], work);
    const size_t at = work->number % ZOFF_NCCL_DEPTH;
    ZOFF_NCCL_ENTER(n);
    if (!queue->ops[at].is_done)
        progress(n);
    /* An operation that is complete stays a success, even if the group has failed since. */
    if (queue->ops[at].is_done) {
        queue->ops[at].work = NULL;
        queue->ops[at].is_done = false;
        return ZOFF_OK;
    }
    ZOFF_FAIL_IF(n->is_over, ZOFF_ERR_COMM, "%s", n->over);
    return ZOFF_PENDING;
}

/* NCCL reports nothing about single ranks: see zoff_comm.blind. */
static bool nccl_has_arrived(zoff_comm *comm, const zoff_comm_work *work, unsigned rank)
{
    (void)comm;
    (void)rank;
    return work->arrived;
}

static zoff_status nccl_open_channel(zoff_comm *comm, zoff_comm_channel *channel)
{
    (void)comm;
    (void)channel;
    return ZOFF_OK;
}

/* The slot is free, because all ranks have closed the channel that had it before. */
static void nccl_join_channel(zoff_comm *comm, zoff_comm_channel *channel)
{
    for (unsigned i = 0; i < ZOFF_NCCL_LANES; i++)
        memset(&zoff_nccl_of(comm)->lanes[i].queues[channel->slot], 0, sizeof(zoff_nccl_queue));
}

/* Tell nobody, because every message in a lane must be expected by its receiver. */
static void nccl_close_channel(zoff_comm *comm, zoff_comm_channel *channel)
{
    (void)comm;
    (void)channel;
}

/* Send nothing, because the next notes carry the visits. A message of its own, which no rank expects, would occupy the device
 * until all ranks use that lane. */
static zoff_status nccl_tell(zoff_comm *comm, const zoff_comm_call *call, const zoff_comm_visit *visits, unsigned count)
{
    (void)call;
    (void)comm;
    (void)visits;
    (void)count;
    return ZOFF_OK;
}

const zoff_comm_ops zoff_nccl_ops = {.close = zoff_nccl_close,
                                     .start = nccl_start,
                                     .poll = nccl_poll,
                                     .has_arrived = nccl_has_arrived,
                                     .open_channel = nccl_open_channel,
                                     .join_channel = nccl_join_channel,
                                     .close_channel = nccl_close_channel,
                                     .open_groups = zoff_nccl_open_groups,
                                     .tell = nccl_tell,
                                     .give_up = zoff_nccl_give_up};
