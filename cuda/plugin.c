/* plugin.c: the entry of libzoff_cuda.so. */
#include "cuda_priv.h"

ZOFF_API int zoff_plugin_init(unsigned abi, const zoff_plugin_host *host, zoff_plugin *out);

int zoff_plugin_init(unsigned abi, const zoff_plugin_host *host, zoff_plugin *out)
{
    if (!zoff_cuda_host_take(abi, host))
        return -1;
    out->open_accel = zoff_cuda_open;
    return 0;
}
