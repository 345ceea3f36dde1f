/* SPDX-License-Identifier: Apache-2.0 */
/* nccl_life.c: the memory of lanes, leaving and giving up. No call of NCCL blocks: its communicators are non-blocking, and are
 * polled until they are ready or the deadline passes. */
#include "nccl_priv.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Seconds to wait at close for ranks that do not close. The longer time is for a group without a failure: the others may be
 * busy, and tearing the communicator down would break an operation of theirs with this rank. */
static const double CLOSE_SECONDS = 2, QUIET_CLOSE_SECONDS = 60;
static const double NOTES_SECONDS = 0.25; /* seconds until notes have surely left this host */
static const double PATIENCE_SECONDS = 5; /* seconds to wait for streams after their communicators were aborted */
const char zoff_nccl_blind[] = "NCCL cannot name the rank: look at the logs of the other ranks";

double zoff_nccl_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void zoff_nccl_nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
}

zoff_status zoff_nccl_settle(const zoff_nccl *n, ncclComm_t nccl)
{
    const double until = zoff_nccl_now() + n->comm.timeout_seconds;
    zoff_status status = ZOFF_OK;
    if (n->version >= NCCL_VERSION(2, 27, 0))
        return ZOFF_OK;
    while ((status = zoff_nccl_look(n, nccl)) == ZOFF_PENDING) {
        ZOFF_FAIL_IF(n->comm.timeout_seconds >= 0 && zoff_nccl_now() > until, ZOFF_ERR_COMM,
                     "rank %u of %u: NCCL has waited for %g s to connect the ranks: one of them did not join; %s", n->comm.rank,
                     n->comm.size, n->comm.timeout_seconds, zoff_nccl_blind);
        zoff_nccl_nap();
    }
    return status;
}

/* ---- memory of the lanes ---- */

zoff_status zoff_nccl_open_lane(zoff_nccl *n, zoff_nccl_lane *lane, unsigned first, unsigned size)
{
    lane->first = first;
    lane->size = size;
    const size_t notes = 2 * (size_t)n->comm.size * sizeof *lane->notes;
    /* A stream that waits for the default stream would wait for the trainer's work. */
    ZOFF_NCCL_CUDA(n, cudaStreamCreateWithFlags, &lane->stream, cudaStreamNonBlocking);
    ZOFF_NCCL_CUDA(n, cudaEventCreateWithFlags, &lane->event, cudaEventDisableTiming);
    ZOFF_NCCL_CUDA(n, cudaHostAlloc, (void **)&lane->notes, notes, cudaHostAllocPortable);
    ZOFF_NCCL_CUDA(n, cudaHostAlloc, (void **)&lane->bounce, ZOFF_NCCL_BOUNCE, cudaHostAllocPortable);
    ZOFF_NCCL_CUDA(n, cudaMalloc, (void **)&lane->wire, notes);
    ZOFF_NCCL_CUDA(n, cudaMalloc, (void **)&lane->slots, 2 * n->comm.size * n->cut);
    lane->to = calloc(n->comm.size, sizeof *lane->to);
    lane->from = calloc(n->comm.size, sizeof *lane->from);
    ZOFF_FAIL_IF(!lane->to || !lane->from, ZOFF_ERR_NO_MEMORY, "no memory for a communicator");
    memset(lane->notes, 0, notes);
    return ZOFF_OK;
}

/* Drop errors of the teardown. An error that the program had not asked for stays for the program. cudaErrorNotReady is no
 * error. */
void zoff_nccl_forgive(cudaError_t before)
{
    if (before == cudaSuccess || cudaPeekAtLastError() == cudaErrorNotReady)
        (void)cudaGetLastError();
}

/* Free a lane whose stream is idle. */
static void close_lane(zoff_nccl_lane *lane)
{
    const cudaError_t before = cudaPeekAtLastError();
    (void)cudaFree(lane->slots); /* cudaFree() accepts NULL */
    (void)cudaFree(lane->wire);
    (void)cudaFreeHost(lane->bounce);
    (void)cudaFreeHost(lane->notes);
    if (lane->event)
        (void)cudaEventDestroy(lane->event);
    if (lane->stream)
        (void)cudaStreamDestroy(lane->stream);
    zoff_nccl_forgive(before);
    free(lane->to);
    free(lane->from);
    free(lane->rows);
}

/* ---- the end ---- */

/* Wait until the stream is idle.  @return true also for a lost device, which executes nothing any more */
static bool is_idle(zoff_nccl_lane *lane, double until)
{
    if (!lane->stream || !lane->event || cudaEventRecord(lane->event, lane->stream) != cudaSuccess)
        return true;
    while (cudaEventQuery(lane->event) == cudaErrorNotReady) {
        if (zoff_nccl_now() > until)
            return false;
        zoff_nccl_nap();
    }
    return true;
}

/* Abort the lane first that is most likely to be stuck. */
static void abort_in_turn(zoff_nccl *n)
{
    static const zoff_comm_stream ORDER[] = {ZOFF_COMM_REDUCE, ZOFF_COMM_GROUP, ZOFF_COMM_WEIGHTS, ZOFF_COMM_STEP};
    _Static_assert(sizeof ORDER / sizeof ORDER[0] == ZOFF_NCCL_LANES, "each lane has a turn");
    for (unsigned i = 0; i < ZOFF_NCCL_LANES; i++) {
        if (n->lanes[ORDER[i]].nccl)
            (void)ncclCommAbort(n->lanes[ORDER[i]].nccl);
        n->lanes[ORDER[i]].nccl = NULL;
    }
}

static void *abort_at_once(void *ctx)
{
    zoff_nccl *n = ctx;
    ZOFF_NCCL_ENTER(n);
    (void)ncclGroupStart();
    abort_in_turn(n);
    (void)ncclGroupEnd();
    return NULL;
}

/* Abort all communicators: kernels that wait for other ranks return. Their memory can be freed once the streams are idle. */
void zoff_nccl_abort_all(zoff_nccl *n)
{
    if (n->is_aborted)
        return;
    const cudaError_t before = cudaPeekAtLastError();
    n->is_aborted = true;
    /* Abort all in one group: aborting one frees memory, and that may wait for the kernels of the others. Before 2.22 a group
     * does not do this. The group needs a thread of its own, because before 2.27 a thread cannot leave a group inside another
     * one. This thread is in a group if it failed while creating the communicators. */
    pthread_t thread;
    bool is_any = false;
    for (unsigned i = 0; i < ZOFF_NCCL_LANES; i++)
        is_any |= n->lanes[i].nccl != NULL;
    if (is_any && n->version >= NCCL_VERSION(2, 22, 0) && pthread_create(&thread, NULL, abort_at_once, n) == 0)
        (void)pthread_join(thread, NULL);
    else
        abort_in_turn(n);
    const double until = zoff_nccl_now() + PATIENCE_SECONDS;
    for (unsigned i = 0; i < ZOFF_NCCL_LANES; i++)
        n->comm.holds_memory |= !is_idle(&n->lanes[i], until);
    zoff_nccl_forgive(before);
}

/* End operations that cannot complete. Their callers may free them, unless the device still uses the memory. */
static void let_go(zoff_nccl_queue *queue)
{
    for (unsigned i = 0; i < ZOFF_NCCL_DEPTH; i++) {
        zoff_comm_work *work = queue->ops[i].work;
        if (!work)
            continue;
        work->active = false;
        work->outcome = ZOFF_ERR_COMM;
        queue->ops[i].work = NULL;
        queue->ops[i].is_done = false;
    }
}

/* Tell no other rank: an aborted communicator cannot send. Ranks on other hosts get an error of the network. Ranks on this host
 * only see that nothing arrives.
 *
 * The thread of NCCL that serves the network may still have this rank's last notes, and an abort drops them. Then the other
 * ranks would hear of a lost connection, and not of the calls that differ. NCCL does not say when notes have left, so wait. */
void zoff_nccl_give_up(zoff_comm *comm, const char *words)
{
    zoff_nccl *n = zoff_nccl_of(comm);
    ZOFF_NCCL_ENTER(n);
    for (const double until = zoff_nccl_now() + NOTES_SECONDS; n->owes_notes && zoff_nccl_now() < until;)
        zoff_nccl_nap();
    if (!n->is_over)
        snprintf(n->over, sizeof n->over, "%s", words);
    n->is_over = true;
    zoff_nccl_abort_all(n);
    for (unsigned i = 0; i < ZOFF_NCCL_LANES * ZOFF_COMM_SLOTS; i++)
        let_go(&n->lanes[i / ZOFF_COMM_SLOTS].queues[i % ZOFF_COMM_SLOTS]);
}

/* Free everything, except memory that the device may still use. */
void zoff_nccl_free_all(zoff_nccl *n)
{
    for (unsigned i = 0; i < ZOFF_NCCL_LANES && !n->comm.holds_memory; i++)
        close_lane(&n->lanes[i]);
    if (!n->is_promised)
        free(n);
}

/* ---- what all say ---- */

/* Wait for the notes of all ranks.  @return OK: all say it; PENDING: some have not arrived; ERR_STATE: one says something else;
 * or the error of NCCL or CUDA */
static zoff_status hear(zoff_nccl *n, zoff_nccl_lane *lane, zoff_nccl_says says)
{
    zoff_status status = ZOFF_OK;
    if (lane->phase == ZOFF_NCCL_TELLING) {
        ZOFF_TRY(status = zoff_nccl_look(n, lane->nccl));
        if (status == ZOFF_PENDING)
            return status;
        ZOFF_TRY(zoff_nccl_fetch_notes(n, lane));
        ZOFF_NCCL_CUDA(n, cudaEventRecord, lane->event, lane->stream);
        lane->phase = ZOFF_NCCL_TOLD;
    }
    if (lane->phase == ZOFF_NCCL_TOLD) {
        const cudaError_t error = cudaEventQuery(lane->event);
        if (error == cudaErrorNotReady)
            return zoff_nccl_look(n, lane->nccl) < 0 ? ZOFF_ERR_COMM : ZOFF_PENDING;
        ZOFF_TRY(zoff_nccl_check_cuda(n, error, "cudaEventQuery"));
        lane->phase = ZOFF_NCCL_IDLE;
    }
    for (unsigned other = 0; other < n->comm.size; other++) {
        if (other != n->comm.rank && zoff_nccl_has(lane, other) && lane->notes[n->comm.size + other].says != says)
            return ZOFF_ERR_STATE;
    }
    return ZOFF_OK;
}

/* Tell every other rank something that is no operation, in each of these lanes that is open.  @return PENDING: the deadline has
 * passed */
zoff_status zoff_nccl_say(zoff_nccl *n, zoff_nccl_lane *lanes, unsigned count, zoff_nccl_says says, double until)
{
    for (unsigned i = 0; i < count; i++) {
        if (!lanes[i].nccl)
            continue;
        ZOFF_TRY(zoff_nccl_tell(n, &lanes[i], says));
        lanes[i].phase = ZOFF_NCCL_TELLING;
    }
    for (;;) {
        bool are_all = true;
        for (unsigned i = 0; i < count; i++) {
            zoff_status status = ZOFF_OK;
            if (lanes[i].nccl)
                ZOFF_TRY(status = hear(n, &lanes[i], says));
            are_all &= status == ZOFF_OK;
        }
        if (are_all)
            return ZOFF_OK;
        if (zoff_nccl_now() > until)
            return ZOFF_PENDING;
        zoff_nccl_nap();
    }
}

/* ---- leaving ---- */

/* Tell in all lanes that this rank leaves, in the place of the next operation, and hear the same from others. A rank that does
 * call an operation learns that this one has left. */
static zoff_status hear_all_leave(zoff_nccl *n, double until)
{
    return zoff_nccl_say(n, n->lanes, ZOFF_NCCL_LANES, ZOFF_NCCL_LEAVES, until);
}

/* Finalize the communicators one at a time, because each is a group of this thread. Destroying one does not wait afterwards. */
static zoff_status finalize(zoff_nccl *n, double until)
{
    for (unsigned i = 0; i < ZOFF_NCCL_LANES; i++) {
        zoff_status status;
        if (!n->lanes[i].nccl)
            continue;
        ZOFF_NCCL_TRY(n, n->lanes[i].nccl, ncclCommFinalize, n->lanes[i].nccl);
        while ((status = zoff_nccl_look(n, n->lanes[i].nccl)) == ZOFF_PENDING && zoff_nccl_now() < until)
            zoff_nccl_nap();
        if (status != ZOFF_OK)
            return ZOFF_ERR_COMM;
    }
    for (unsigned i = 0; i < ZOFF_NCCL_LANES; i++) {
        if (n->lanes[i].nccl)
            (void)ncclCommDestroy(n->lanes[i].nccl);
        n->lanes[i].nccl = NULL;
    }
    return ZOFF_OK;
}

/* Whether an operation is in flight, or has completed without being polled. */
bool zoff_nccl_flies_in(const zoff_nccl_lane *lane)
{
    for (unsigned i = 0; i < ZOFF_COMM_SLOTS * ZOFF_NCCL_DEPTH; i++) {
        if (lane->queues[i / ZOFF_NCCL_DEPTH].ops[i % ZOFF_NCCL_DEPTH].work)
            return true;
    }
    return false;
}

static bool flies_any(const zoff_nccl *n)
{
    bool flies = false;
    for (unsigned i = 0; i < ZOFF_NCCL_LANES; i++)
        flies = flies || zoff_nccl_flies_in(&n->lanes[i]);
    return flies;
}

void zoff_nccl_close(zoff_comm *comm)
{
    zoff_nccl *n = zoff_nccl_of(comm);
    const bool flies = flies_any(n);
    ZOFF_NCCL_ENTER(n);
    const double most = flies || n->is_over ? CLOSE_SECONDS : QUIET_CLOSE_SECONDS;
    const double seconds = comm->timeout_seconds >= 0 && comm->timeout_seconds < most ? comm->timeout_seconds : most;
    const double until = zoff_nccl_now() + seconds;
    if (flies || n->is_over || (comm->size > 1 && hear_all_leave(n, until) != ZOFF_OK) ||
        finalize(n, zoff_nccl_now() + seconds) != ZOFF_OK)
        zoff_nccl_give_up(comm, "this rank has left the group");
    zoff_nccl_free_all(n);
}
