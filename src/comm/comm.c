/* comm.c: the list of communicators, and the checks that all of them share. */
#include "comm.h"

#include "try.h"

#include <string.h>

static const zoff_comm_ops *const BACKENDS[] = {&zoff_comm_self_ops};

zoff_status zoff_comm_open(const zoff_comm_opts *opts, zoff_comm **out)
{
    ZOFF_FAIL_IF(!out, ZOFF_ERR_INVALID, "zoff_comm_open: out must not be NULL");
    ZOFF_FAIL_IF(opts && opts->struct_size == 0, ZOFF_ERR_INVALID,
                 "zoff_comm_open: opts->struct_size is 0; set it to sizeof(zoff_comm_opts)");
    zoff_comm_opts known = {.struct_size = sizeof known};
    if (opts)
        memcpy(&known, opts, opts->struct_size < sizeof known ? opts->struct_size : sizeof known);
    const char *name = known.backend ? known.backend : "self";
    for (size_t i = 0; i < sizeof BACKENDS / sizeof BACKENDS[0]; i++) {
        if (strcmp(BACKENDS[i]->name, name) == 0)
            return BACKENDS[i]->open(&known, out);
    }
    return zoff_base_status_fail(ZOFF_ERR_UNSUPPORTED, "this build has no communicator \"%s\"; it has: self", name);
}

void zoff_comm_close(zoff_comm *comm)
{
    if (comm)
        comm->ops->close(comm);
}

unsigned zoff_comm_rank(const zoff_comm *comm)
{
    return comm->rank;
}

unsigned zoff_comm_size(const zoff_comm *comm)
{
    return comm->size;
}

zoff_status zoff_comm_sum_scalars(zoff_comm *comm, double *inout, size_t count, zoff_comm_work *work)
{
    ZOFF_FAIL_IF(work->active, ZOFF_ERR_STATE, "a second operation was started before the first was done");
    ZOFF_TRY(comm->ops->sum_scalars(comm, inout, count, work));
    work->active = true;
    return ZOFF_OK;
}

zoff_status zoff_comm_poll(zoff_comm *comm, zoff_comm_work *work)
{
    if (!work->active)
        return ZOFF_OK;
    zoff_status status = comm->ops->poll(comm, work);
    if (status != ZOFF_PENDING)
        work->active = false;
    return status;
}
