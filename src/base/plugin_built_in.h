/* SPDX-License-Identifier: Apache-2.0 */
/* plugin_built_in.h: additional functions of zoff's own plug-ins. They are built with one version of zoff, use its internal
 * structs, and refuse every other version. So this is no part of zoff/plugin.h. */
#ifndef ZOFF_BASE_PLUGIN_BUILT_IN_H
#define ZOFF_BASE_PLUGIN_BUILT_IN_H

#include <zoff/types.h>

typedef struct zoff_comm_join zoff_comm_join; /* src/comm/comm.h */

/* zoff_plugin.built_in points to one of these, in static memory. */
typedef struct zoff_plugin_built_in {
    zoff_status (*open_accel)(int index, zoff_accel **out); /* open device `index`; the struct is that of src/accel/accel.h */
    zoff_status (*open_comm)(const zoff_comm_join *join, zoff_comm **out); /* join ranks over a network of the plug-in's own */
    /* Describe device and library in a few words, without opening them.  @return ERR_UNSUPPORTED with the reason */
    zoff_status (*probe)(char *out, size_t bytes);
} zoff_plugin_built_in;

#endif
