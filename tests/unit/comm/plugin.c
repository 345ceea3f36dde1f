/* SPDX-License-Identifier: Apache-2.0 */
/* plugin.c: a plug-in that connects what a test has given it. */
#include "plugin.h"

static test_plugin state;

test_plugin *test_plugin_get(void)
{
    return &state;
}

static void connect_given(zoff_comm_transport *out)
{
    *out = *state.transport;
}

ZOFF_API int zoff_plugin_init(unsigned abi, const zoff_plugin_host *host, zoff_plugin *out);

int zoff_plugin_init(unsigned abi, const zoff_plugin_host *host, zoff_plugin *out)
{
    (void)host;
    if (abi != ZOFF_PLUGIN_ABI)
        return -1;
    out->connect = state.transport ? connect_given : 0;
    return 0;
}
