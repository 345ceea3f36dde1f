/* nccl_life.c: joining, leaving and giving up. No call of NCCL blocks: its communicators are non-blocking, and are polled until
 * they are ready or the deadline passes. */
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
static const double PATIENCE_SECONDS = 5; /* seconds to wait for streams after their communicators were aborted */
static const char BLIND[] = "NCCL cannot name the rank: look at the logs of the other ranks";

double zoff_nccl_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void nap(void)
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
                     n->comm.size, n->comm.timeout_seconds, BLIND);
        nap();
    }
    return status;
}

/* ---- memory of the lanes ---- */

static zoff_status open_lane(zoff_nccl *n, zoff_nccl_lane *lane)
{
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

/* Drop errors of the teardown. An error that the program had not asked for stays for the program. cudaErrorNotReady is none. */
static void forgive(cudaError_t before)
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
    forgive(before);
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
        nap();
    }
    return true;
}

/* Abort the lane first that is most likely to be stuck. */
static void abort_in_turn(zoff_nccl *n)
{
    static const zoff_comm_stream ORDER[] = {ZOFF_COMM_REDUCE, ZOFF_COMM_WEIGHTS, ZOFF_COMM_STEP};
    for (unsigned i = 0; i < ZOFF_COMM_STREAMS; i++) {
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
static void abort_all(zoff_nccl *n)
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
    for (unsigned i = 0; i < ZOFF_COMM_STREAMS; i++)
        is_any |= n->lanes[i].nccl != NULL;
    if (is_any && n->version >= NCCL_VERSION(2, 22, 0) && pthread_create(&thread, NULL, abort_at_once, n) == 0)
        (void)pthread_join(thread, NULL);
    else
        abort_in_turn(n);
    const double until = zoff_nccl_now() + PATIENCE_SECONDS;
    for (unsigned i = 0; i < ZOFF_COMM_STREAMS; i++)
        n->comm.holds_memory |= !is_idle(&n->lanes[i], until);
    forgive(before);
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
 * only see that nothing arrives. */
void zoff_nccl_give_up(zoff_comm *comm, const char *words)
{
    zoff_nccl *n = zoff_nccl_of(comm);
    ZOFF_NCCL_ENTER(n);
    if (!n->is_over)
        snprintf(n->over, sizeof n->over, "%s", words);
    n->is_over = true;
    abort_all(n);
    for (unsigned i = 0; i < ZOFF_COMM_STREAMS * ZOFF_COMM_SLOTS; i++)
        let_go(&n->lanes[i / ZOFF_COMM_SLOTS].queues[i % ZOFF_COMM_SLOTS]);
}

/* Free everything, except memory that the device may still use. */
static void free_all(zoff_nccl *n)
{
    for (unsigned i = 0; i < ZOFF_COMM_STREAMS && !n->comm.holds_memory; i++)
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
        if (other != n->comm.rank && lane->notes[n->comm.size + other].says != says)
            return ZOFF_ERR_STATE;
    }
    return ZOFF_OK;
}

/* Tell every other rank something that is no operation, in each of these lanes.  @return PENDING: the deadline has passed */
static zoff_status say(zoff_nccl *n, zoff_nccl_lane *lanes, unsigned count, zoff_nccl_says says, double until)
{
    for (unsigned i = 0; i < count; i++) {
        ZOFF_TRY(zoff_nccl_tell(n, &lanes[i], says));
        lanes[i].phase = ZOFF_NCCL_TELLING;
    }
    for (;;) {
        bool are_all = true;
        for (unsigned i = 0; i < count; i++) {
            zoff_status status;
            ZOFF_TRY(status = hear(n, &lanes[i], says));
            are_all &= status == ZOFF_OK;
        }
        if (are_all)
            return ZOFF_OK;
        if (zoff_nccl_now() > until)
            return ZOFF_PENDING;
        nap();
    }
}

/* ---- leaving ---- */

/* Sent in the place of the next operation, in all lanes. A rank that does call an operation learns that this one has left. */
static zoff_status hear_all_leave(zoff_nccl *n, double until)
{
    return say(n, n->lanes, ZOFF_COMM_STREAMS, ZOFF_NCCL_LEAVES, until);
}

/* After this, destroying a communicator does not wait. One at a time: each is a group of this thread. */
static zoff_status finalize(zoff_nccl *n, double until)
{
    for (unsigned i = 0; i < ZOFF_COMM_STREAMS; i++) {
        zoff_status status;
        ZOFF_NCCL_TRY(n, n->lanes[i].nccl, ncclCommFinalize, n->lanes[i].nccl);
        while ((status = zoff_nccl_look(n, n->lanes[i].nccl)) == ZOFF_PENDING && zoff_nccl_now() < until)
            nap();
        if (status != ZOFF_OK)
            return ZOFF_ERR_COMM;
    }
    for (unsigned i = 0; i < ZOFF_COMM_STREAMS; i++) {
        (void)ncclCommDestroy(n->lanes[i].nccl);
        n->lanes[i].nccl = NULL;
    }
    return ZOFF_OK;
}

/* Whether an operation is in flight, or has completed without being polled. */
static bool flies_any(const zoff_nccl *n)
{
    for (unsigned i = 0; i < ZOFF_COMM_STREAMS * ZOFF_COMM_SLOTS; i++) {
        const zoff_nccl_queue *queue = &n->lanes[i / ZOFF_COMM_SLOTS].queues[i % ZOFF_COMM_SLOTS];
        for (unsigned at = 0; at < ZOFF_NCCL_DEPTH; at++) {
            if (queue->ops[at].work)
                return true;
        }
    }
    return false;
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
    free_all(n);
}

/* ---- joining ---- */

static zoff_status expire(const zoff_nccl *n, const char *what)
{
    return zoff_base_status_fail(
        ZOFF_ERR_COMM,
        "rank %u of %u: %s has waited for %g s: one of the other ranks did not join; %s. All ranks must "
        "be started, with the same number of ranks and the same place to meet",
        n->comm.rank, n->comm.size, what, n->comm.timeout_seconds, BLIND);
}

/* Wait until `nccl` has done its work, and `*made` is set. */
static zoff_status wait_for(const zoff_nccl *n, ncclComm_t nccl, ncclComm_t *made, const char *what, double until)
{
    for (;;) {
        zoff_status status = ZOFF_OK;
        if (nccl)
            ZOFF_TRY(status = zoff_nccl_look(n, nccl));
        nccl = nccl ? nccl : __atomic_load_n(made, __ATOMIC_ACQUIRE);
        if (status == ZOFF_OK && __atomic_load_n(made, __ATOMIC_ACQUIRE))
            return ZOFF_OK;
        if (n->comm.timeout_seconds >= 0 && zoff_nccl_now() > until)
            return expire(n, what);
        nap();
    }
}

/* Wait for the program's stream: a communicator may only be split while it is idle. That stream gets nothing but an event. */
static zoff_status wait_for_program(const zoff_nccl *n, cudaStream_t stream, double until)
{
    const cudaError_t before = cudaPeekAtLastError();
    cudaEvent_t event;
    zoff_status status = ZOFF_OK;
    cudaError_t error;
    ZOFF_NCCL_CUDA(n, cudaEventCreateWithFlags, &event, cudaEventDisableTiming);
    error = cudaEventRecord(event, stream);
    while (error == cudaSuccess && (error = cudaEventQuery(event)) == cudaErrorNotReady) {
        if (n->comm.timeout_seconds >= 0 && zoff_nccl_now() > until)
            break;
        nap();
        error = cudaSuccess;
    }
    if (error == cudaErrorNotReady)
        status = zoff_base_status_fail(ZOFF_ERR_COMM,
                                       "rank %u: the work in nccl_stream is not done after %g s, and nccl_comm cannot be split "
                                       "before that. Another rank may not have reached it",
                                       n->comm.rank, n->comm.timeout_seconds);
    else
        status = zoff_nccl_check_cuda(n, error, "waiting for nccl_stream");
    (void)cudaEventDestroy(event);
    forgive(before);
    return status;
}

/* Use few thread blocks: the bus to the host limits these operations, and three communicators must fit beside the trainer's.
 * Share no resources between them, so that each can be aborted alone. */
static ncclConfig_t config(void)
{
    ncclConfig_t c = NCCL_CONFIG_INITIALIZER;
    c.blocking = 0;
    c.maxCTAs = 8;
    c.splitShare = 0;
    return c;
}

static zoff_status split(zoff_nccl *n, ncclComm_t parent, unsigned lane, double until)
{
    ncclConfig_t c = config();
    ncclComm_t *made = &n->lanes[lane].nccl;
    ZOFF_NCCL_TRY(n, parent, ncclCommSplit, parent, 0, (int)n->comm.rank, made, &c);
    /* The parent is ready when the new communicator exists; the new one reports its own readiness. A parent that the program
     * owns must not be aborted, so it may finish the split even after this rank gave up. */
    n->is_promised = parent != n->lanes[0].nccl;
    ZOFF_TRY(wait_for(n, parent, made, "ncclCommSplit", until));
    n->is_promised = false;
    return wait_for(n, *made, made, "ncclCommSplit", until);
}

/* Rank 0's part, which it sends to all. */
typedef struct ticket {
    ncclUniqueId id;
    int result;
} ticket;

/* Get the id that all ranks share: over the program's own broadcast, or from NCCL_COMM_ID in the environment. */
static zoff_status find_id(zoff_nccl *n, const zoff_comm_join *join, ncclUniqueId *out)
{
    ticket t;
    memset(&t, 0, sizeof t);
    if (!join->opts.broadcast || n->comm.rank == 0)
        t.result = (int)ncclGetUniqueId(&t.id);
    if (join->opts.broadcast)
        ZOFF_FAIL_IF(join->opts.broadcast(join->opts.ctx, &t, sizeof t) != 0, ZOFF_ERR_COMM,
                     "rank %u: the program's broadcast of NCCL's id has failed", n->comm.rank);
    *out = t.id;
    return zoff_nccl_check(n, NULL, (ncclResult_t)t.result, "ncclGetUniqueId");
}

/* NCCL reads NCCL_COMM_ID in both calls, so set it for their duration. It was not set before. */
static zoff_status join_first(zoff_nccl *n, const zoff_comm_join *join, const ncclUniqueId *known, double until)
{
    ncclConfig_t c = config();
    ncclUniqueId id;
    ncclComm_t *made = &n->lanes[0].nccl;
    if (join->meet_at)
        (void)setenv("NCCL_COMM_ID", join->meet_at, 1);
    zoff_status status = ZOFF_OK;
    if (known)
        id = *known;
    else
        status = find_id(n, join, &id);
    if (status == ZOFF_OK)
        status = zoff_nccl_check(n, NULL, ncclCommInitRankConfig(made, (int)n->comm.size, id, (int)n->comm.rank, &c),
                                 "ncclCommInitRankConfig");
    if (join->meet_at)
        (void)unsetenv("NCCL_COMM_ID");
    ZOFF_TRY(status);
    return wait_for(n, NULL, made, "ncclCommInitRankConfig", until) < 0
               ? ZOFF_ERR_COMM
               : wait_for(n, *made, made, "ncclCommInitRankConfig", until);
}

/* Send a first message to all ranks: NCCL connects two ranks when their first message is sent, and allocates memory for it. Do
 * it one lane at a time, while nothing else on the device waits for a rank. */
static zoff_status connect_lane(zoff_nccl *n, zoff_nccl_lane *lane, double until)
{
    const zoff_status status = say(n, lane, 1, ZOFF_NCCL_JOINS, n->comm.timeout_seconds < 0 ? HUGE_VAL : until);
    if (status == ZOFF_PENDING)
        return expire(n, "the first message to all");
    ZOFF_FAIL_IF(status == ZOFF_ERR_STATE, ZOFF_ERR_COMM,
                 "rank %u: the first message of another rank is not valid: all ranks must run the same version of zoff",
                 n->comm.rank);
    return status;
}

static zoff_status join_lanes(zoff_nccl *n, const zoff_comm_join *join, const ncclUniqueId *known)
{
    const double until = zoff_nccl_now() + n->comm.timeout_seconds;
    ncclComm_t parent = join->opts.nccl_comm;
    if (join->opts.nccl_stream)
        ZOFF_TRY(wait_for_program(n, join->opts.nccl_stream, until));
    if (!parent) {
        ZOFF_TRY(join_first(n, join, known, until));
        parent = n->lanes[0].nccl;
    }
    for (unsigned i = join->opts.nccl_comm ? 0 : 1; i < ZOFF_COMM_STREAMS; i++)
        ZOFF_TRY(split(n, parent, i, until));
    for (unsigned i = 0; i < ZOFF_COMM_STREAMS; i++)
        ZOFF_TRY(open_lane(n, &n->lanes[i]));
    for (unsigned i = 0; i < ZOFF_COMM_STREAMS && n->comm.size > 1; i++)
        ZOFF_TRY(connect_lane(n, &n->lanes[i], until));
    return ZOFF_OK;
}

static zoff_status find_device(zoff_nccl *n, const zoff_comm_join *join)
{
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess || count == 0) {
        (void)cudaGetLastError();
        return zoff_base_status_fail(ZOFF_ERR_UNSUPPORTED,
                                     "no communicator \"nccl\" here: %s; use \"mpi\" where there is no GPU",
                                     error == cudaSuccess ? "CUDA finds no device" : cudaGetErrorString(error));
    }
    ZOFF_FAIL_IF(n->version < NCCL_VERSION(2, 18, 0), ZOFF_ERR_UNSUPPORTED,
                 "no communicator \"nccl\" here: libnccl has version %d, and zoff needs 21800 (2.18) or newer", n->version);
    n->device = join->opts.device;
    if (n->device == -1)
        ZOFF_NCCL_CUDA(n, cudaGetDevice, &n->device);
    if (join->device_is_count)
        n->device %= count;
    ZOFF_FAIL_IF(n->device < 0 || n->device >= count, ZOFF_ERR_INVALID,
                 "communicator \"nccl\": CUDA has devices 0 to %d; %d was asked for", count - 1, n->device);
    return ZOFF_OK;
}

/* Rank, size and device are those of the program's communicator. */
static zoff_status ask_parent(zoff_nccl *n, ncclComm_t parent)
{
    int rank, size;
    ZOFF_NCCL_TRY(n, parent, ncclCommUserRank, parent, &rank);
    ZOFF_NCCL_TRY(n, parent, ncclCommCount, parent, &size);
    ZOFF_NCCL_TRY(n, parent, ncclCommCuDevice, parent, &n->device);
    n->comm.rank = (unsigned)rank;
    n->comm.size = (unsigned)size;
    return ZOFF_OK;
}

/* Do the program's broadcast before anything that can fail on one rank alone: the other ranks wait in theirs. */
static zoff_status join_group(zoff_nccl *n, const zoff_comm_join *join)
{
    ncclUniqueId id;
    const ncclUniqueId *known = NULL;
    if (join->opts.nccl_comm) {
        ZOFF_TRY(ask_parent(n, join->opts.nccl_comm));
    } else {
        const zoff_status status = join->opts.broadcast ? find_id(n, join, &id) : ZOFF_OK;
        known = join->opts.broadcast ? &id : NULL;
        ZOFF_TRY(find_device(n, join)); /* its message says more than NCCL's */
        ZOFF_TRY(status);
    }
    n->cut = zoff_nccl_cut(n->comm.size);
    ZOFF_NCCL_ENTER(n);
    return join_lanes(n, join, known);
}

zoff_status zoff_nccl_open(const zoff_comm_join *join, zoff_comm **out)
{
    zoff_nccl *n = calloc(1, sizeof *n);
    ZOFF_FAIL_IF(!n, ZOFF_ERR_NO_MEMORY, "no memory for a communicator");
    n->tools = join->tools;
    n->comm = (zoff_comm){.ops = &zoff_nccl_ops,
                          .rank = join->opts.rank,
                          .size = join->opts.size,
                          .timeout_seconds = join->opts.timeout_seconds,
                          .reaches = "cuda",
                          .adds = true,
                          .has_slots = true,
                          .blind = BLIND};
    (void)ncclGetVersion(&n->version);
    const zoff_status status = join_group(n, join);
    n->comm.device = n->device;
    if (status < 0) {
        ZOFF_NCCL_ENTER(n);
        abort_all(n);
        free_all(n);
        return status;
    }
    *out = &n->comm;
    return ZOFF_OK;
}
