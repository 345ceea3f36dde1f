/* SPDX-License-Identifier: Apache-2.0 */
/* plugin.h: shared libraries that are loaded by name, so that libzoff does not need their dependencies. They fill the table in
 * zoff/plugin.h. The caller decides whether one may be missing. */
#ifndef ZOFF_BASE_PLUGIN_H
#define ZOFF_BASE_PLUGIN_H

#include <zoff/plugin.h>

typedef struct zoff_plugin_wish {
    const char *name;   /* name of libzoff_NAME.so */
    const char *what;   /* "the communicator \"mpi\"", for messages */
    const char *advice; /* a sentence without its full stop: the remedy if it cannot be loaded */
    bool shares_names;  /* its libraries look up one another among the program's symbols, as some MPIs do */
} zoff_plugin_wish;

/* Load a plug-in, which stays loaded.  @return ERR_UNSUPPORTED with the attempts and the advice */
zoff_status zoff_base_plugin_load(const zoff_plugin_wish *wish, zoff_plugin *out);

#endif
