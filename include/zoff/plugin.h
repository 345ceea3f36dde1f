/* plugin.h: what a plug-in exports. A plug-in is a shared library libzoff_NAME.so that links nothing of zoff. It lies beside
 * libzoff or in a folder of ZOFF_PLUGIN_PATH, is loaded when its name is first asked for, and stays. */
#ifndef ZOFF_PLUGIN_H
#define ZOFF_PLUGIN_H

#include <zoff/comm.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ZOFF_PLUGIN_ABI 1

/** What zoff has for a plug-in. */
typedef struct zoff_plugin_host {
    size_t struct_size;
    unsigned version; /**< as zoff_version() */
} zoff_plugin_host;

/** What a plug-in has for zoff. Output: struct_size is set, the plug-in fills the rest. */
typedef struct zoff_plugin {
    size_t struct_size;
    /** Connect to all ranks of this process' job. Sets `failure` of the transport, to a text that stays, where it cannot. */
    void (*connect)(zoff_comm_transport *out);
} zoff_plugin;

/** The one function that a plug-in exports.
 *  @return 0, or -1 where the plug-in does not know this abi, which is then all that it may look at */
typedef int (*zoff_plugin_init_fn)(unsigned abi, const zoff_plugin_host *host, zoff_plugin *out);

#ifdef __cplusplus
}
#endif
#endif
