/* SPDX-License-Identifier: Apache-2.0 */
/* plugin.h: what a test tells the plug-in that it loads. */
#ifndef ZOFF_TESTS_PLUGIN_H
#define ZOFF_TESTS_PLUGIN_H

#include <zoff/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct test_plugin {
    const zoff_comm_transport *transport; /* the transport that it connects; NULL: it has no communicator */
} test_plugin;

/* The test plug-in of the library that was loaded. */
ZOFF_API test_plugin *test_plugin_get(void);

#ifdef __cplusplus
}
#endif
#endif
