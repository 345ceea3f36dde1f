/* comm.c: lists the back-ends, and opens, closes and describes communicators. Operations are in call.c. */
#include "comm.h"

#include "bits.h"
#include "structs.h"
#include "try.h"

#include <string.h>

static zoff_status open_alone(const zoff_comm_opts *opts, zoff_comm **out)
{
    return zoff_comm_threads_open(opts, 1, out);
}

static const struct {
    const char *name;
    zoff_status (*open)(const zoff_comm_opts *opts, zoff_comm **out);
} BACKENDS[] = {
    {"self", zoff_comm_self_open}, {"threads", open_alone}, {"mpi", zoff_comm_plugins_mpi}, {"nccl", zoff_comm_nccl_open}};

zoff_status zoff_comm_open(const zoff_comm_opts *opts, zoff_comm **out)
{
    zoff_comm_opts known;
    ZOFF_FAIL_IF(!out, ZOFF_ERR_INVALID, "zoff_comm_open: out must not be NULL");
    ZOFF_TRY(zoff_comm_opts_take(opts, "zoff_comm_open", &known));
    const char *name = known.backend ? known.backend : "self";
    if (strcmp(name, "auto") == 0)
        ZOFF_TRY(zoff_comm_discover(zoff_comm_discover_mpi(), &name));
    for (size_t i = 0; i < sizeof BACKENDS / sizeof BACKENDS[0]; i++) {
        if (strcmp(BACKENDS[i].name, name) == 0)
            return BACKENDS[i].open(&known, out);
    }
    return zoff_base_status_fail(
        ZOFF_ERR_UNSUPPORTED, "zoff_comm_open: there is no communicator \"%s\"; choose self, threads, mpi, nccl or auto", name);
}

zoff_status zoff_comm_open_threads(const zoff_comm_opts *opts, unsigned size, zoff_comm **out)
{
    enum { SIZE_MOST = 1024 };
    zoff_comm_opts known;
    ZOFF_FAIL_IF(!out, ZOFF_ERR_INVALID, "zoff_comm_open_threads: out must not be NULL");
    ZOFF_FAIL_IF(size == 0 || size > SIZE_MOST, ZOFF_ERR_INVALID, "zoff_comm_open_threads: size is %u; it must be 1 to %d",
                 size, SIZE_MOST);
    ZOFF_TRY(zoff_comm_opts_take(opts, "zoff_comm_open_threads", &known));
    return zoff_comm_threads_open(&known, size, out);
}

void zoff_comm_close(zoff_comm *comm)
{
    if (!comm)
        return;
    struct zoff_comm_book *book = comm->book; /* the back-end's close still reads it, and frees `comm` */
    comm->ops->close(comm);
    zoff_comm_forget(book);
}

unsigned zoff_comm_rank(const zoff_comm *comm)
{
    return comm->rank;
}

unsigned zoff_comm_size(const zoff_comm *comm)
{
    return comm->size;
}

zoff_status zoff_comm_get_info(const zoff_comm *comm, zoff_comm_info *out)
{
    ZOFF_FAIL_IF(!comm || !out, ZOFF_ERR_INVALID, "zoff_comm_get_info: comm and out must not be NULL");
    ZOFF_TRY(zoff_base_structs_check_out("zoff_comm_info", "ZOFF_COMM_INFO_INIT", out));
    zoff_comm_lock((zoff_comm *)(uintptr_t)comm);
    zoff_comm_info info = comm->info;
    zoff_comm_unlock((zoff_comm *)(uintptr_t)comm);
    info.backend = comm->info.backend ? comm->info.backend : comm->ops->name;
    info.rank = comm->rank;
    info.size = comm->size;
    zoff_base_structs_write(&info, sizeof info, out);
    return ZOFF_OK;
}
