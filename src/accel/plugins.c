/* plugins.c: accelerators that are shared libraries of their own. */
#include "accel.h"

#include "plugin.h"
#include "try.h"

zoff_status zoff_accel_plugins_cuda(int index, zoff_accel **out)
{
    const zoff_plugin_wish wish = {.name = "cuda",
                                   .what = "the accelerator \"cuda\"",
                                   .advice = "Build zoff where the CUDA toolkit is found, and have its runtime where the "
                                             "loader looks"};
    zoff_plugin plugin;
    ZOFF_TRY(zoff_base_plugin_load(&wish, &plugin));
    ZOFF_FAIL_IF(!plugin.open_accel, ZOFF_ERR_UNSUPPORTED,
                 "libzoff_cuda.so has no accelerator: install it together with libzoff");
    return plugin.open_accel(index, out);
}
