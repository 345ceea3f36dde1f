/* identity.c: identifies an engine to other ranks by its channel of the communicator, which it may share with other engines. It
 * also records in which call the program waits for other ranks, so that those can compare it with their own calls. */
#include "agreement.h"

#include <stdio.h>
#include <string.h>

static const char *param_name(const void *ctx, uint32_t param)
{
    const zoff_agreement *a = ctx;
    return param < a->model->param_count ? a->model->params[param].name : NULL;
}

void zoff_agreement_identity_come(zoff_agreement *a)
{
    a->channel->param_name = param_name;
    a->channel->ctx = a;
    zoff_comm_channel_come(a->comm, a->channel);
}

void zoff_agreement_identity_leave(zoff_agreement *a)
{
    if (a->comm)
        zoff_comm_channel_leave(a->comm, a->channel);
}

/* Names and sizes of the parameters distinguish two engines. */
void zoff_agreement_identity_add(zoff_agreement *a, const char *name, size_t count)
{
    const uint64_t words[] = {a->channel->hash, zoff_offload_layout(name, strlen(name)), count};
    zoff_comm_lock(a->comm);
    if (!a->channel->name[0])
        snprintf(a->channel->name, sizeof a->channel->name, "%s", name);
    a->channel->hash = zoff_offload_layout(words, sizeof words);
    zoff_comm_unlock(a->comm);
}

zoff_status zoff_agreement_identity_open(zoff_agreement *a)
{
    return zoff_comm_channel_open(a->comm, a->channel);
}

void zoff_agreement_identity_close(zoff_agreement *a)
{
    if (a->comm)
        zoff_comm_channel_close(a->comm, a->channel);
}

void zoff_agreement_identity_enter(zoff_agreement *a, unsigned call, zoff_comm_item item)
{
    zoff_comm_enter(a->comm, a->channel, call, item);
}

zoff_status zoff_agreement_identity_exit(zoff_agreement *a, zoff_status status)
{
    zoff_comm_exit(a->comm, status >= 0);
    return status;
}
