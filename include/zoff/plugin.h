/* SPDX-License-Identifier: Apache-2.0 */
/* plugin.h: write a plug-in: a shared library libzoff_NAME.so that zoff loads when NAME is first asked for.
 *
 *  A plug-in links nothing of zoff, lies in the folder zoff beside libzoff or in one of ZOFF_PLUGIN_PATH, and stays loaded. It
 *  exports one function, zoff_plugin_init(). This header is not part of zoff.h.
 */
#ifndef ZOFF_PLUGIN_H
#define ZOFF_PLUGIN_H

#include <zoff/comm.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Version of the structs below. zoff passes it to zoff_plugin_init(). */
#define ZOFF_PLUGIN_ABI 1

/** Services of zoff for a plug-in. Valid for the life of the process. */
typedef struct zoff_plugin_host {
    size_t struct_size;                                           /**< bytes of the library's struct */
    unsigned version;                                             /**< as zoff_version() */
    zoff_status (*fail)(zoff_status status, const char *message); /**< set zoff_last_error(); returns `status` */
    void (*warn)(const char *message);                            /**< write a line to the log */
} zoff_plugin_host;

/** Which rank this is, and where the ranks meet, by the launcher's variables. */
typedef struct zoff_plugin_meeting {
    size_t struct_size;     /**< bytes of the library's struct */
    unsigned rank, size;    /**< rank of this process, and number of ranks */
    const char *place;      /**< "host:port" or "[host]:port" where rank 0 listens; valid during the call. Empty if size is 1 */
    double timeout_seconds; /**< how long to wait for the other ranks; negative: without a limit */
} zoff_plugin_meeting;

/** Services of a plug-in. struct_size is set by zoff; the plug-in fills the fields that it has. */
typedef struct zoff_plugin {
    size_t struct_size;
    /** Connect to all ranks of this process' job: fill `out`. On failure set `failure` of the transport, to a static text. */
    void (*connect)(zoff_comm_transport *out);
    const void *built_in; /**< for the plug-ins of zoff itself, which are built with one version of it; leave it NULL */
    /** Join ranks that know no more than their numbers and a place: fill `out`.
     *  @blocks until all ranks have come, or for timeout_seconds  @return an error that zoff_plugin_host.fail() has set */
    zoff_status (*meet)(const zoff_plugin_meeting *meeting, zoff_comm_transport *out);
} zoff_plugin;

/** Type of zoff_plugin_init(), the one function that a plug-in exports.
 *  @param abi ZOFF_PLUGIN_ABI of the library. A plug-in that does not know it returns -1 and looks at nothing else
 *  @return 0, or -1 */
typedef int (*zoff_plugin_init_fn)(unsigned abi, const zoff_plugin_host *host, zoff_plugin *out);

#ifdef __cplusplus
}
#endif
#endif
