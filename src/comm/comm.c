/* SPDX-License-Identifier: Apache-2.0 */
/* comm.c: lists the back-ends, and opens, closes and describes communicators. Operations are in call.c. */
#include "comm.h"

#include "bits.h"
#include "plugin.h"
#include "structs.h"
#include "try.h"

#include <math.h>
#include <string.h>

/* Copy the program's options into `out` and fill in defaults. The program's struct may be shorter or longer, if it was compiled
 * with another version of zoff. */
static zoff_status take_opts(const zoff_comm_opts *opts, const char *call, zoff_comm_opts *out)
{
    *out = (zoff_comm_opts)ZOFF_COMM_OPTS_INIT;
    if (opts)
        ZOFF_TRY(zoff_base_structs_read("zoff_comm_opts", "ZOFF_COMM_OPTS_INIT", opts, out, sizeof *out));
    ZOFF_FAIL_IF(isnan(out->timeout_seconds), ZOFF_ERR_INVALID, "%s: timeout_seconds is not a number", call);
    out->timeout_seconds = out->timeout_seconds == 0 ? ZOFF_COMM_TIMEOUT_SECONDS : out->timeout_seconds;
    return ZOFF_OK;
}

/* ---- the plug-in for MPI ---- */

static zoff_status load_mpi(zoff_plugin *out)
{
    const zoff_plugin_wish wish = {
        .name = "mpi",
        .what = "the communicator \"mpi\"",
        .advice =
            "With the package libzoff0 install libzoff-plugin-mpi. Otherwise build zoff where MPI is installed (on Debian "
            "or Ubuntu: apt-get install libopenmpi-dev openmpi-bin), compile zoff/mpi.h into the program",
        .shares_names = true};
    ZOFF_TRY(zoff_base_plugin_load(&wish, out));
    ZOFF_FAIL_IF(!out->connect, ZOFF_ERR_UNSUPPORTED, "libzoff_mpi.so has no communicator: install it together with libzoff");
    return ZOFF_OK;
}

zoff_status zoff_comm_mpi_find(void)
{
    zoff_plugin plugin;
    return load_mpi(&plugin);
}

static zoff_status open_mpi(const zoff_comm_opts *opts, zoff_comm **out)
{
    zoff_plugin plugin;
    ZOFF_TRY(load_mpi(&plugin));
    zoff_comm_transport transport = ZOFF_COMM_TRANSPORT_INIT;
    plugin.connect(&transport);
    const zoff_status status = zoff_comm_open_transport(opts, &transport, out);
    if (status < 0 && !transport.failure)
        transport.close(transport.ctx, 1);
    return status;
}

/* ---- opening ---- */

static zoff_status open_self(const zoff_comm_opts *opts, zoff_comm **out)
{
    return zoff_comm_threads_open(opts, "self", 1, out);
}

static zoff_status open_alone(const zoff_comm_opts *opts, zoff_comm **out)
{
    return zoff_comm_threads_open(opts, "threads", 1, out);
}

static const struct {
    const char *name;
    zoff_status (*open)(const zoff_comm_opts *opts, zoff_comm **out);
} BACKENDS[] = {{"self", open_self},
                {"threads", open_alone},
                {"mpi", open_mpi},
                {"ucx", zoff_comm_ucx_open},
                {"nccl", zoff_comm_nccl_open}};

zoff_status zoff_comm_open(const zoff_comm_opts *opts, zoff_comm **out)
{
    zoff_comm_opts known;
    ZOFF_FAIL_IF(!out, ZOFF_ERR_INVALID, "zoff_comm_open: out must not be NULL");
    ZOFF_TRY(take_opts(opts, "zoff_comm_open", &known));
    const char *name = known.backend ? known.backend : "self";
    if (strcmp(name, "auto") == 0)
        ZOFF_TRY(zoff_comm_discover(zoff_comm_discover_mpi(), &name));
    for (size_t i = 0; i < sizeof BACKENDS / sizeof BACKENDS[0]; i++) {
        if (strcmp(BACKENDS[i].name, name) == 0)
            return BACKENDS[i].open(&known, out);
    }
    return zoff_base_status_fail(
        ZOFF_ERR_UNSUPPORTED, "zoff_comm_open: there is no communicator \"%s\"; choose self, threads, mpi, ucx, nccl or auto",
        name);
}

zoff_status zoff_comm_open_threads(const zoff_comm_opts *opts, unsigned size, zoff_comm **out)
{
    enum { SIZE_MOST = 1024 };
    zoff_comm_opts known;
    ZOFF_FAIL_IF(!out, ZOFF_ERR_INVALID, "zoff_comm_open_threads: out must not be NULL");
    ZOFF_FAIL_IF(size == 0 || size > SIZE_MOST, ZOFF_ERR_INVALID, "zoff_comm_open_threads: size is %u; it must be 1 to %d",
                 size, SIZE_MOST);
    ZOFF_TRY(take_opts(opts, "zoff_comm_open_threads", &known));
    return zoff_comm_threads_open(&known, "threads", size, out);
}

zoff_status zoff_comm_open_transport(const zoff_comm_opts *opts, const zoff_comm_transport *transport, zoff_comm **out)
{
    zoff_comm_opts known;
    zoff_comm_transport t = ZOFF_COMM_TRANSPORT_INIT;
    ZOFF_FAIL_IF(!out || !transport, ZOFF_ERR_INVALID, "zoff_comm_open_transport: transport and out must not be NULL");
    ZOFF_TRY(take_opts(opts, "zoff_comm_open_transport", &known));
    ZOFF_TRY(zoff_base_structs_read("zoff_comm_transport", "ZOFF_COMM_TRANSPORT_INIT", transport, &t, sizeof t));
    ZOFF_FAIL_IF(t.failure, ZOFF_ERR_UNSUPPORTED, "%s", t.failure);
    ZOFF_FAIL_IF(!t.name || !t.send || !t.receive || !t.test || !t.cancel || !t.error || !t.close, ZOFF_ERR_INVALID,
                 "zoff_comm_open_transport: the transport lacks its name or one of its functions");
    ZOFF_FAIL_IF(t.rank >= t.size, ZOFF_ERR_INVALID, "zoff_comm_open_transport: rank %u of %u", t.rank, t.size);
    ZOFF_FAIL_IF(
        t.node_ranks && t.size % t.node_ranks, ZOFF_ERR_INVALID,
        "zoff_comm_open_transport: nodes of %u ranks do not divide %u ranks: set node_ranks to a number that does, or 0",
        t.node_ranks, t.size);
    ZOFF_TRY(zoff_comm_world_check(t.name, t.world_size));
    return zoff_comm_messages_open(&known, &t, false, out);
}

/* ---- facts, and the end ---- */

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
    info.rank = comm->rank;
    info.size = comm->size;
    zoff_base_structs_write(&info, sizeof info, out);
    return ZOFF_OK;
}
