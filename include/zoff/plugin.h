/* plugin.h: what a plug-in exports. A plug-in is a shared library libzoff_NAME.so that links nothing of zoff. It lies beside
 * libzoff or in a folder of ZOFF_PLUGIN_PATH, is loaded when its name is first asked for, and stays. */
#ifndef ZOFF_PLUGIN_H
#define ZOFF_PLUGIN_H

#include <zoff/comm.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ZOFF_PLUGIN_ABI 1

typedef struct zoff_comm_join zoff_comm_join; /**< the library's own */

/** What zoff has for a plug-in. It stays. */
typedef struct zoff_plugin_host {
    size_t struct_size;
    unsigned version;                                             /**< as zoff_version() */
    zoff_status (*fail)(zoff_status status, const char *message); /**< set zoff_last_error(); returns `status` */
    void (*warn)(const char *message);                            /**< a line for the log */
} zoff_plugin_host;

/** What a plug-in has for zoff. Output: struct_size is set, the plug-in fills what it has of the rest. */
typedef struct zoff_plugin {
    size_t struct_size;
    /** Connect to all ranks of this process' job. Sets `failure` of the transport, to a text that stays, where it cannot. */
    void (*connect)(zoff_comm_transport *out);
    /** Open device `index` of an accelerator. The struct is the library's own (src/accel/accel.h): a plug-in that has this is
     *  built with one version of zoff, and refuses another one. */
    zoff_status (*open_accel)(int index, zoff_accel **out);
    /** Join a group of ranks over a network of its own. As above: both structs are of src/comm/comm.h. */
    zoff_status (*open_comm)(const zoff_comm_join *join, zoff_comm **out);
} zoff_plugin;

/** The one function that a plug-in exports.
 *  @return 0, or -1 where the plug-in does not know this abi, which is then all that it may look at */
typedef int (*zoff_plugin_init_fn)(unsigned abi, const zoff_plugin_host *host, zoff_plugin *out);

#ifdef __cplusplus
}
#endif
#endif
