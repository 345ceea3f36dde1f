/* identity.c: who an engine is to other ranks: its channel of the communicator, which it may share with other engines; and in
 * which of its calls the program waits for other ranks, so that they can compare that with what they do. */
#include "engine_priv.h"

#include <stdio.h>
#include <string.h>

static const char *param_name(const void *ctx, uint32_t param)
{
    const zoff_engine *e = ctx;
    return param < e->model.param_count ? e->model.params[param].name : NULL;
}

void zoff_engine_identity_come(zoff_engine *e)
{
    e->channel.param_name = param_name;
    e->channel.ctx = e;
    zoff_comm_channel_come(e->comm, &e->channel);
}

void zoff_engine_identity_leave(zoff_engine *e)
{
    if (e->comm)
        zoff_comm_channel_leave(e->comm, &e->channel);
}

/* Two engines are told apart by the names and sizes of their parameters. */
void zoff_engine_identity_add(zoff_engine *e, const char *name, size_t count)
{
    const uint64_t words[] = {e->channel.hash, zoff_offload_layout(name, strlen(name)), count};
    zoff_comm_lock(e->comm);
    if (!e->channel.name[0])
        snprintf(e->channel.name, sizeof e->channel.name, "%s", name);
    e->channel.hash = zoff_offload_layout(words, sizeof words);
    zoff_comm_unlock(e->comm);
}

zoff_status zoff_engine_identity_open(zoff_engine *e)
{
    return zoff_comm_channel_open(e->comm, &e->channel);
}

void zoff_engine_identity_close(zoff_engine *e)
{
    if (e->comm)
        zoff_comm_channel_close(e->comm, &e->channel);
}

void zoff_engine_identity_enter(zoff_engine *e, unsigned call, zoff_comm_item item)
{
    zoff_comm_enter(e->comm, &e->channel, call, item);
}

zoff_status zoff_engine_identity_exit(zoff_engine *e, zoff_status status)
{
    zoff_comm_exit(e->comm, status >= 0);
    return status;
}
