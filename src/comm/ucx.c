/* SPDX-License-Identifier: Apache-2.0 */
/* ucx.c: joins ranks over UCX. It collects the launcher's variables and calls the plug-in. */
#include "comm.h"

#include "plugin.h"
#include "try.h"

#include <signal.h>

/* UCX takes these signals when it is loaded. They stay the program's. */
static zoff_status load(zoff_plugin *out)
{
    static const int SIGNALS[] = {SIGILL, SIGSEGV, SIGBUS, SIGFPE};
    enum { COUNT = sizeof SIGNALS / sizeof SIGNALS[0] };
    struct sigaction before[COUNT];
    const zoff_plugin_wish wish = {
        .name = "ucx",
        .what = "the communicator \"ucx\"",
        .advice =
            "With the package libzoff0 install libzoff-plugin-ucx; the Python package needs the library libucx0. Otherwise "
            "build zoff where UCX is installed (on Debian or Ubuntu: apt-get install libucx-dev)"};
    for (int i = 0; i < COUNT; i++)
        (void)sigaction(SIGNALS[i], NULL, &before[i]);
    const zoff_status status = zoff_base_plugin_load(&wish, out);
    for (int i = 0; i < COUNT; i++)
        (void)sigaction(SIGNALS[i], &before[i], NULL);
    ZOFF_FAIL_IF(status == ZOFF_OK && !out->meet, ZOFF_ERR_UNSUPPORTED,
                 "libzoff_ucx.so has no communicator: install it together with libzoff");
    return status;
}

zoff_status zoff_comm_ucx_find(void)
{
    zoff_plugin plugin;
    return load(&plugin);
}

zoff_status zoff_comm_ucx_open(const zoff_comm_opts *opts, zoff_comm **out)
{
    char place[320] = "";
    zoff_plugin_meeting meeting = {.struct_size = sizeof meeting, .place = place, .timeout_seconds = opts->timeout_seconds};
    zoff_comm_transport transport = ZOFF_COMM_TRANSPORT_INIT;
    zoff_plugin plugin;
    ZOFF_TRY(zoff_comm_world_place("ucx", &meeting.rank, &meeting.size));
    ZOFF_TRY(zoff_comm_world_check("ucx", meeting.size));
    /* At MASTER_PORT is torchrun's agent, or the program's torch.distributed. */
    if (meeting.size > 1)
        ZOFF_TRY(zoff_comm_world_meeting("ucx", true, place, sizeof place));
    ZOFF_TRY(load(&plugin));
    ZOFF_TRY(plugin.meet(&meeting, &transport));
    const zoff_status status = zoff_comm_messages_open(opts, &transport, false, out);
    if (status < 0)
        transport.close(transport.ctx, 1);
    return status;
}
