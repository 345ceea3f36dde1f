/* comm_nccl.c: the communicator "nccl": the operations of a lane one after another, each from phase to phase.
 *
 *      idle --- notes sent ---> telling --- in the stream ---> told --- all notes are here, and agree ---> moving, in rounds
 *           <--- this rank has what it gets --- moved <--- all rounds are in the stream --- '
 *
 * Nothing sleeps in here and no thread is made, but to give up: who polls does the work, and CUDA what is in its streams.
 * NCCL's communicators do not block, so what it answers may be that it has not put something into the stream yet; nothing is
 * put behind that before it has. (Of NCCL before 2.27 that is waited for: zoff_nccl_settle().) */
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

/* OK, PENDING or an error, of all that was put into the stream before the mark. */
static zoff_status look_at_mark(zoff_nccl *n, zoff_nccl_lane *lane)
{
    const cudaError_t error = cudaEventQuery(lane->event);
    if (error != cudaErrorNotReady)
        return zoff_nccl_check_cuda(n, error, "cudaEventQuery");
    if (cudaPeekAtLastError() == cudaErrorNotReady)
        (void)cudaGetLastError(); /* it is no error, and no trainer shall take it for one */
    return ZOFF_PENDING;
}

/* Row r is rank r's. */
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

static const double WAIT_LEAST = 50e-6, WAIT_MOST = 2e-3; /* seconds between notes of ranks that have nothing in common */

/* The operation that was started first, among all channels with something to do; or, once the ranks have differed, that of the
 * first channel that all have something of. NULL: there is none. */
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

/* The notes have differed: they are written anew, at once where they show what all have started. */
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

/* All rows and pieces are here. */
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

/* What has failed meanwhile has a better name than what is tried then. */
static zoff_status begin(zoff_nccl *n, zoff_nccl_lane *lane)
{
    zoff_status status = ZOFF_OK;
    uint64_t mask;
    zoff_comm_work *work = choose(lane, &mask);
    if (!work || (lane->retry > 0 && mask == lane->mask && zoff_nccl_now() < lane->retry))
        return ZOFF_PENDING;
    if (n->comm.size > 1)
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
    ZOFF_TRY(status = zoff_nccl_hear(n, lane));
    if (status == ZOFF_PENDING)
        return differ(lane);
    lane->wait = 0;
    ZOFF_TRY(zoff_nccl_take_own(n, lane));
    zoff_nccl_count_rounds(n, lane);
    return move_on(n, lane);
}

/* One phase further.  @return OK: perhaps there is more to do; PENDING: not now */
static zoff_status advance(zoff_nccl *n, zoff_nccl_lane *lane)
{
    zoff_status status = ZOFF_OK;
    switch (lane->phase) {
    case ZOFF_NCCL_IDLE:
        return begin(n, lane);
    case ZOFF_NCCL_TELLING:
        if (n->comm.size == 1)
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

/* An error of the network shows in its communicator while the stream only waits. */
static zoff_status go_on(zoff_nccl *n, zoff_nccl_lane *lane)
{
    zoff_status status;
    while ((status = advance(n, lane)) == ZOFF_OK)
        ;
    if (status == ZOFF_PENDING && lane->phase != ZOFF_NCCL_IDLE && n->comm.size > 1)
        status = zoff_nccl_look(n, lane->nccl);
    return status;
}

/* Others may wait for what this rank has started and is not asking for: all of it goes on. What fails ends everything; each
 * operation in flight says so when it is polled. */
static void progress(zoff_nccl *n)
{
    for (unsigned i = 0; i < ZOFF_COMM_STREAMS && !n->is_over; i++) {
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
                 "rank %u: operation %llu is not done yet, and no more than %d may follow it", comm->rank,
                 (unsigned long long)queue->ops[at].work->number, ZOFF_NCCL_DEPTH - 1);
    ZOFF_NCCL_ENTER(n);
    ZOFF_TRY(zoff_nccl_check_memory(n, &work->call));
    queue->ops[at].work = work;
    queue->ops[at].is_done = false;
    queue->ops[at].time = ++lane->clock;
    queue->started = work->number;
    progress(n); /* what fails from here on is told by its poll */
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
    /* What has all it needs is done, whatever has become of the group since. */
    if (queue->ops[at].is_done) {
        queue->ops[at].work = NULL;
        queue->ops[at].is_done = false;
        return ZOFF_OK;
    }
    ZOFF_FAIL_IF(n->is_over, ZOFF_ERR_COMM, "%s", n->over);
    return ZOFF_PENDING;
}

/* NCCL does not tell, and zoff_comm.blind says so. */
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

/* A channel that had its slot before is closed on all ranks. */
static void nccl_join_channel(zoff_comm *comm, zoff_comm_channel *channel)
{
    for (unsigned i = 0; i < ZOFF_COMM_STREAMS; i++)
        memset(&zoff_nccl_of(comm)->lanes[i].queues[channel->slot], 0, sizeof(zoff_nccl_queue));
}

/* Other ranks are not told: a lane has no message that nobody expects. */
static void nccl_close_channel(zoff_comm *comm, zoff_comm_channel *channel)
{
    (void)comm;
    (void)channel;
}

/* Notes tell of it. One that nobody expects would keep the device busy until all ranks have come to that lane. */
static zoff_status nccl_tell(zoff_comm *comm, const zoff_comm_visit *visits, unsigned count)
{
    (void)comm;
    (void)visits;
    (void)count;
    return ZOFF_OK;
}

const zoff_comm_ops zoff_nccl_ops = {.name = "nccl",
                                     .close = zoff_nccl_close,
                                     .start = nccl_start,
                                     .poll = nccl_poll,
                                     .has_arrived = nccl_has_arrived,
                                     .open_channel = nccl_open_channel,
                                     .join_channel = nccl_join_channel,
                                     .close_channel = nccl_close_channel,
                                     .tell = nccl_tell,
                                     .give_up = zoff_nccl_give_up};
