/* SPDX-License-Identifier: Apache-2.0 */
/* plugin_under_test.c: a plug-in for tests, in several forms, each a shared library of its own:
 *
 *     WITHOUT_INIT     exports nothing
 *     OTHER_ABI        supports only the abi of the next version
 *     WITHOUT_CALLS    offers no accelerator or communicator
 *     none of these    its accelerator fails to open, with a message through the host's function */
#include "plugin_built_in.h"

#include <zoff/plugin.h>

#include <string.h>

#ifndef WITHOUT_INIT
#ifdef OTHER_ABI
enum { KNOWN_ABI = ZOFF_PLUGIN_ABI + 1 };
#else
enum { KNOWN_ABI = ZOFF_PLUGIN_ABI };
#endif

static const zoff_plugin_host *host;

#ifndef WITHOUT_CALLS
/* Fails with a message that contains printf conversions, which must stay as they are, and the index. */
static zoff_status open_accel(int index, zoff_accel **out)
{
    char words[] = "device 0 says %s%n";
    words[strlen("device ")] = (char)('0' + index);
    *out = NULL;
    return host->fail(ZOFF_ERR_DEVICE, words);
}

static zoff_status probe(char *out, size_t bytes)
{
    return strlen("a device of tests") < bytes ? strcpy(out, "a device of tests"), ZOFF_OK : ZOFF_ERR_NO_MEMORY;
}

static const zoff_plugin_built_in BUILT_IN = {.open_accel = open_accel, .probe = probe};
#endif

ZOFF_API int zoff_plugin_init(unsigned abi, const zoff_plugin_host *of, zoff_plugin *out);
int zoff_plugin_init(unsigned abi, const zoff_plugin_host *of, zoff_plugin *out)
{
    if (abi != KNOWN_ABI || of->struct_size < sizeof *of || out->struct_size < sizeof *out)
        return -1;
    host = of;
    host->warn("the plug-in was loaded, 100 %s");
#ifndef WITHOUT_CALLS
    out->built_in = &BUILT_IN;
#endif
    return 0;
}
#endif

/* A symbol by which tests see whether the plug-in shares its symbols with other libraries. */
#define JOIN(a, b) a##b
#define NAME(plugin) JOIN(zoff_test_symbol_of_, plugin)
ZOFF_API int NAME(PLUGIN)(void);
int NAME(PLUGIN)(void)
{
    return 0;
}
