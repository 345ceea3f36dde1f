/* self.c: the back-end of a single rank. Its pieces are copied to itself; sums are complete already; nothing waits. */
#include "comm.h"

#include "mem.h"
#include "try.h"

#include <string.h>

static const zoff_comm_ops OPS;

zoff_status zoff_comm_self_open(const zoff_comm_opts *opts, zoff_comm **out)
{
    zoff_comm *comm;
    ZOFF_TRY(zoff_base_mem_alloc(1, sizeof *comm, "the communicator", &comm));
    *comm = (zoff_comm){.ops = &OPS, .size = 1, .timeout_seconds = opts->timeout_seconds, .info = {.backend = "self"}};
    const zoff_status status = zoff_comm_prepare(comm);
    if (status < 0)
        zoff_base_mem_free(comm);
    else
        *out = comm;
    return status;
}

static void self_close(zoff_comm *comm)
{
    zoff_base_mem_free(comm);
}

static zoff_status self_start(zoff_comm *comm, zoff_comm_work *work)
{
    const zoff_comm_call *call = &work->call;
    ZOFF_FAIL_IF(call->kind == ZOFF_COMM_EXCHANGE && call->send_bytes[0] != call->receive_bytes[0], ZOFF_ERR_INVALID,
                 "an exchange of a single rank: it sends %zu bytes to itself, but expects %zu", call->send_bytes[0],
                 call->receive_bytes[0]);
    const bool moves = call->kind == ZOFF_COMM_EXCHANGE || call->kind == ZOFF_COMM_GATHER;
    const size_t bytes = moves ? zoff_comm_call_expects(call, 0, 0) : 0;
    if (call->in != call->out && bytes)
        memcpy(call->out, call->in, bytes);
    return ZOFF_OK;
}

static zoff_status self_poll(zoff_comm *comm, zoff_comm_work *work)
{
    return ZOFF_OK;
}

static bool self_has_arrived(zoff_comm *comm, const zoff_comm_work *work, unsigned rank)
{
    return true;
}

static zoff_status self_open_groups(zoff_comm *comm, unsigned members)
{
    return ZOFF_OK;
}

static void self_give_up(zoff_comm *comm, const char *words) {}

static zoff_status self_open_channel(zoff_comm *comm, zoff_comm_channel *channel)
{
    return ZOFF_OK;
}

static void self_mind_channel(zoff_comm *comm, zoff_comm_channel *channel) {}

static zoff_status self_tell(zoff_comm *comm, const zoff_comm_call *call, const zoff_comm_visit *visits, unsigned count)
{
    return ZOFF_OK;
}

static const zoff_comm_ops OPS = {.close = self_close,
                                  .start = self_start,
                                  .poll = self_poll,
                                  .has_arrived = self_has_arrived,
                                  .open_channel = self_open_channel,
                                  .join_channel = self_mind_channel,
                                  .close_channel = self_mind_channel,
                                  .tell = self_tell,
                                  .open_groups = self_open_groups,
                                  .give_up = self_give_up};
