/* plugins.c: communicators that are shared libraries of their own. */
#include "comm.h"

#include "plugin.h"
#include "try.h"

zoff_status zoff_comm_plugins_mpi(const zoff_comm_opts *opts, zoff_comm **out)
{
    const zoff_plugin_wish wish = {.name = "mpi",
                                   .what = "the communicator \"mpi\"",
                                   .advice = "Build zoff where MPI is installed (on Debian or Ubuntu: apt-get install "
                                             "libopenmpi-dev openmpi-bin), compile zoff/mpi.h into the program",
                                   .shares_names = true};
    zoff_plugin plugin;
    ZOFF_TRY(zoff_base_plugin_load(&wish, &plugin));
    ZOFF_FAIL_IF(!plugin.connect, ZOFF_ERR_UNSUPPORTED, "libzoff_mpi.so has no communicator: install it together with libzoff");
    zoff_comm_transport transport = {.struct_size = sizeof transport};
    plugin.connect(&transport);
    const zoff_status status = zoff_comm_open_transport(opts, &transport, out);
    if (status < 0 && !transport.failure)
        transport.close(transport.ctx, 1);
    return status;
}
