/* plugins.c: accelerators that are shared libraries of their own. */
#include "accel.h"

#include "plugin.h"
#include "plugin_built_in.h"
#include "try.h"

static zoff_status load(const zoff_plugin_built_in **out)
{
    const zoff_plugin_wish wish = {.name = "cuda",
                                   .what = "the accelerator \"cuda\"",
                                   .advice = "Build zoff where the CUDA toolkit is found, and have its runtime where the "
                                             "loader looks"};
    zoff_plugin plugin;
    ZOFF_TRY(zoff_base_plugin_load(&wish, &plugin));
    *out = plugin.built_in;
    ZOFF_FAIL_IF(!*out || !(*out)->open_accel, ZOFF_ERR_UNSUPPORTED,
                 "libzoff_cuda.so has no accelerator: install it together with libzoff");
    return ZOFF_OK;
}

zoff_status zoff_accel_plugins_cuda(int index, zoff_accel **out)
{
    const zoff_plugin_built_in *plugin;
    ZOFF_TRY(load(&plugin));
    return plugin->open_accel(index, out);
}

zoff_status zoff_accel_plugins_cuda_probe(char *out, size_t bytes)
{
    const zoff_plugin_built_in *plugin;
    ZOFF_TRY(load(&plugin));
    return plugin->probe(out, bytes);
}
