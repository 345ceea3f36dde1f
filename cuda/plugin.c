/* SPDX-License-Identifier: Apache-2.0 */
/* plugin.c: the entry of libzoff_cuda.so. */
#include "cuda_priv.h"

static const zoff_plugin_built_in BUILT_IN = {.open_accel = zoff_cuda_open, .probe = zoff_cuda_probe};

ZOFF_API int zoff_plugin_init(unsigned abi, const zoff_plugin_host *host, zoff_plugin *out);

int zoff_plugin_init(unsigned abi, const zoff_plugin_host *host, zoff_plugin *out)
{
    if (!zoff_cuda_host_take(abi, host))
        return -1;
    out->built_in = &BUILT_IN;
    return 0;
}
