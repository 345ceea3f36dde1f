/* plugins.c: opens the communicator "mpi", which is a shared library of its own. */
#include "comm.h"

#include "plugin.h"
#include "try.h"

static zoff_status load(zoff_plugin *out)
{
    const zoff_plugin_wish wish = {.name = "mpi",
                                   .what = "the communicator \"mpi\"",
                                   .advice = "Build zoff where MPI is installed (on Debian or Ubuntu: apt-get install "
                                             "libopenmpi-dev openmpi-bin), compile zoff/mpi.h into the program",
                                   .shares_names = true};
    ZOFF_TRY(zoff_base_plugin_load(&wish, out));
    ZOFF_FAIL_IF(!out->connect, ZOFF_ERR_UNSUPPORTED, "libzoff_mpi.so has no communicator: install it together with libzoff");
    return ZOFF_OK;
}

zoff_status zoff_comm_plugins_mpi_find(void)
{
    zoff_plugin plugin;
    return load(&plugin);
}

zoff_status zoff_comm_plugins_mpi(const zoff_comm_opts *opts, zoff_comm **out)
{
    zoff_plugin plugin;
    ZOFF_TRY(load(&plugin));
    zoff_comm_transport transport = ZOFF_COMM_TRANSPORT_INIT;
    plugin.connect(&transport);
    const zoff_status status = zoff_comm_open_transport(opts, &transport, out);
    if (status < 0 && !transport.failure)
        transport.close(transport.ctx, 1);
    return status;
}
