/* SPDX-License-Identifier: Apache-2.0 */
/* plugin.c: find and load a plug-in: beside libzoff, then along ZOFF_PLUGIN_PATH. */
#include "plugin.h"

#include "env.h"
#include "log.h"
#include "try.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The attempts so far, for the message. */
typedef struct attempts {
    char words[1024];
    size_t used;
} attempts;

static void note_attempt(attempts *a, const char *words)
{
    if (a->used < sizeof a->words)
        a->used += (size_t)snprintf(a->words + a->used, sizeof a->words - a->used, "%s%s", a->used ? "; " : "", words);
}

/* Load a library from the folder text[0..length).  @return NULL if it cannot be loaded */
static void *load_from(const char *text, size_t length, const zoff_plugin_wish *wish, attempts *a)
{
    char path[PATH_MAX];
    const int bytes = snprintf(path, sizeof path, "%.*s/libzoff_%s.so", (int)length, text, wish->name);
    if (bytes < 0 || (size_t)bytes >= sizeof path)
        return NULL;
    if (access(path, F_OK) != 0) {
        char words[PATH_MAX + 32];
        snprintf(words, sizeof words, "no %s", path);
        note_attempt(a, words);
        return NULL;
    }
    void *library = dlopen(path, RTLD_NOW | (wish->shares_names ? RTLD_GLOBAL : RTLD_LOCAL));
    if (!library)
        note_attempt(a, dlerror());
    return library;
}

static void *load(const zoff_plugin_wish *wish, attempts *a)
{
    Dl_info here;
    void *library = NULL;
    if (dladdr(__extension__(void *) zoff_base_plugin_load, &here) && here.dli_fname) {
        const char *slash = strrchr(here.dli_fname, '/');
        library = slash ? load_from(here.dli_fname, (size_t)(slash - here.dli_fname), wish, a) : load_from(".", 1, wish, a);
    }
    const char *folder = zoff_base_env_get(ZOFF_ENV_PLUGINS);
    while (!library && folder) {
        const char *end = strchrnul(folder, ':');
        if (end > folder)
            library = load_from(folder, (size_t)(end - folder), wish, a);
        folder = *end ? end + 1 : NULL;
    }
    return library;
}

/* The functions that libzoff gives to plug-ins. */
static zoff_status fail(zoff_status status, const char *words)
{
    return zoff_base_status_fail(status, "%s", words);
}

static void warn(const char *words)
{
    ZOFF_WARN("%s", words);
}

zoff_status zoff_base_plugin_load(const zoff_plugin_wish *wish, zoff_plugin *out)
{
    static const zoff_plugin_host host = {
        .struct_size = sizeof host, .version = ZOFF_VERSION_NUMBER, .fail = fail, .warn = warn};
    zoff_plugin plugin = {.struct_size = sizeof plugin};
    zoff_plugin_init_fn init = NULL;
    attempts tried = {.used = 0};
    void *library = load(wish, &tried);
    ZOFF_FAIL_IF(!library, ZOFF_ERR_UNSUPPORTED,
                 "%s is a plug-in, and cannot be loaded: %s. %s, or set %s to the folder of libzoff_%s.so", wish->what,
                 tried.words, wish->advice, zoff_base_env_name(ZOFF_ENV_PLUGINS), wish->name);
    void *found = dlsym(library, "zoff_plugin_init");
    memcpy(&init, &found, sizeof init); /* ISO C has no cast from an object pointer to a function pointer */
    ZOFF_FAIL_IF(!init || init(ZOFF_PLUGIN_ABI, &host, &plugin) != 0, ZOFF_ERR_UNSUPPORTED,
                 "libzoff_%s.so is no plug-in for this version of zoff: install the two together", wish->name);
    *out = plugin;
    return ZOFF_OK;
}
