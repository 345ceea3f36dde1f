/* SPDX-License-Identifier: Apache-2.0 */
/* nccl_join.c: joining the ranks, and opening the lane of a group. */
#include "nccl_priv.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- joining ---- */

static zoff_status expire(const zoff_nccl *n, const char *what)
{
    return zoff_base_status_fail(
        ZOFF_ERR_COMM,
        "rank %u of %u: %s has waited for %g s: one of the other ranks did not join; %s. All ranks must "
        "be started, with the same number of ranks and the same place to meet",
        n->comm.rank, n->comm.size, what, n->comm.timeout_seconds, zoff_nccl_blind);
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
        zoff_nccl_nap();
    }
}

/* Wait for the program's stream, because a communicator may only be split while it is idle. That stream gets nothing but an
 * event. */
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
        zoff_nccl_nap();
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
    zoff_nccl_forgive(before);
    return status;
}

/* Use few thread blocks, because the bus to the host limits these operations, and several communicators must fit beside the
 * trainer's. Share no resources between them, so that each can be aborted alone. */
static ncclConfig_t config(void)
{
    ncclConfig_t c = NCCL_CONFIG_INITIALIZER;
    c.blocking = 0;
    c.maxCTAs = 8;
    c.splitShare = 0;
    return c;
}

/* The ranks with one color get a communicator. */
static zoff_status split(zoff_nccl *n, ncclComm_t parent, unsigned lane, unsigned color, double until)
{
    ncclConfig_t c = config();
    ncclComm_t *made = &n->lanes[lane].nccl;
    ZOFF_NCCL_TRY(n, parent, ncclCommSplit, parent, (int)color, (int)n->comm.rank, made, &c);
    /* The parent is ready when the new communicator exists; the new one reports its own readiness. A parent that the program
     * owns must not be aborted, so it may finish the split even after this rank gave up. */
    n->is_promised = parent != n->lanes[0].nccl;
    ZOFF_TRY(wait_for(n, parent, made, "ncclCommSplit", until));
    n->is_promised = false;
    return wait_for(n, *made, made, "ncclCommSplit", until);
}

/* The data that rank 0 sends to all ranks. */
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

/* Send a first message to all ranks, because NCCL connects two ranks when their first message is sent, and allocates memory
 * then. Do it one lane at a time, while nothing else on the device waits for a rank. */
static zoff_status connect_lane(zoff_nccl *n, zoff_nccl_lane *lane, double until)
{
    const zoff_status status = zoff_nccl_say(n, lane, 1, ZOFF_NCCL_JOINS, n->comm.timeout_seconds < 0 ? HUGE_VAL : until);
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
    for (unsigned i = join->opts.nccl_comm ? 0 : 1; i < ZOFF_COMM_GROUP; i++)
        ZOFF_TRY(split(n, parent, i, 0, until));
    for (unsigned i = 0; i < ZOFF_COMM_GROUP; i++)
        ZOFF_TRY(zoff_nccl_open_lane(n, &n->lanes[i], 0, n->comm.size));
    for (unsigned i = 0; i < ZOFF_COMM_GROUP && n->comm.size > 1; i++)
        ZOFF_TRY(connect_lane(n, &n->lanes[i], until));
    return ZOFF_OK;
}

/* ---- groups ---- */

static zoff_status join_groups(zoff_nccl *n, unsigned members)
{
    const double until = zoff_nccl_now() + n->comm.timeout_seconds;
    const unsigned group = n->comm.rank / members;
    zoff_nccl_lane *lane = &n->lanes[ZOFF_COMM_GROUP];
    if (members > 1)
        ZOFF_TRY(split(n, n->lanes[0].nccl, ZOFF_COMM_GROUP, group, until));
    ZOFF_TRY(zoff_nccl_open_lane(n, lane, group * members, members));
    return members > 1 ? connect_lane(n, lane, until) : ZOFF_OK;
}

/* A communicator may only be split while it is idle. After an error the ranks cannot tell how far the others have come. */
zoff_status zoff_nccl_open_groups(zoff_comm *comm, unsigned members)
{
    zoff_nccl *n = zoff_nccl_of(comm);
    ZOFF_FAIL_IF(n->is_over, ZOFF_ERR_COMM, "%s", n->over);
    ZOFF_FAIL_IF(zoff_nccl_flies_in(&n->lanes[0]), ZOFF_ERR_STATE,
                 "rank %u: groups of ranks cannot be opened while an engine on this communicator is in a step", comm->rank);
    ZOFF_NCCL_ENTER(n);
    const zoff_status status = join_groups(n, members);
    if (status < 0) {
        n->is_over = true;
        snprintf(n->over, sizeof n->over, "%s", n->tools->last_error());
    }
    return status;
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

/* Take rank, size and device from the program's communicator. */
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

/* Do the program's broadcast before anything that can fail on one rank alone, because the other ranks wait in it. */
static zoff_status join_group(zoff_nccl *n, const zoff_comm_join *join)
{
    ncclUniqueId id;
    const ncclUniqueId *known = NULL;
    if (join->opts.nccl_comm) {
        ZOFF_TRY(ask_parent(n, join->opts.nccl_comm));
    } else {
        const zoff_status status = join->opts.broadcast ? find_id(n, join, &id) : ZOFF_OK;
        known = join->opts.broadcast ? &id : NULL;
        ZOFF_TRY(find_device(n, join)); /* the device first, because its error says more than NCCL's */
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
                          .info = {.backend = "nccl"},
                          .reaches = "cuda",
                          .adds = true,
                          .has_slots = true,
                          .flat = "NCCL has no operations within nodes and rails",
                          .blind = zoff_nccl_blind};
    (void)ncclGetVersion(&n->version);
    const zoff_status status = join_group(n, join);
    n->comm.device = n->device;
    if (status < 0) {
        ZOFF_NCCL_ENTER(n);
        zoff_nccl_abort_all(n);
        zoff_nccl_free_all(n);
        return status;
    }
    *out = &n->comm;
    return ZOFF_OK;
}
