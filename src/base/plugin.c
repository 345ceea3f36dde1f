/* SPDX-License-Identifier: Apache-2.0 */
/* plugin.c: find and load a plug-in: in the folder zoff beside libzoff, then along ZOFF_PLUGIN_PATH. */
#include "plugin.h"

#include "env.h"
#include "log.h"
#include "try.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
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

/* The file that this code is in. A program has no name among the loaded objects, and its first argument may be anything, so
 * that a plug-in would be taken from the current folder, where anybody may have put it. */
static const char *own_file(char path[PATH_MAX])
{
    Dl_info here;
    struct link_map *map = NULL;
    if (!dladdr1(__extension__(void *) zoff_base_plugin_load, &here, __extension__(void **) & map, RTLD_DL_LINKMAP) || !map)
        return NULL;
    if (map->l_name[0])
        return map->l_name;
    const ssize_t got = readlink("/proc/self/exe", path, PATH_MAX - 1);
    path[got > 0 ? got : 0] = '\0';
    return path;
}

static int find_linker(struct dl_phdr_info *object, size_t bytes, void *out_there)
{
    for (unsigned i = 0; i < object->dlpi_phnum; i++)
        *(bool *)out_there = *(bool *)out_there || object->dlpi_phdr[i].p_type == PT_INTERP;
    return 1; /* the first object is the program */
}

/* Whether the program was linked with -static. Then dlopen() would bring a second C library with the plug-in. */
static bool is_static(void)
{
    bool has_linker = false;
    (void)dl_iterate_phdr(find_linker, &has_linker);
    return !has_linker;
}

static void *load(const zoff_plugin_wish *wish, attempts *a)
{
    char path[PATH_MAX];
    void *library = NULL;
    const char *own = own_file(path);
    const char *slash = own ? strrchr(own, '/') : NULL;
    char beside[PATH_MAX];
    const int bytes = slash ? snprintf(beside, sizeof beside, "%.*s/zoff", (int)(slash - own), own) : 0;
    if (bytes > 0 && (size_t)bytes < sizeof beside)
        library = load_from(beside, (size_t)bytes, wish, a);
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
static zoff_status fail_for_plugin(zoff_status status, const char *words)
{
    return zoff_base_status_fail(status, "%s", words);
}

static void warn_for_plugin(const char *words)
{
    ZOFF_WARN("%s", words);
}

zoff_status zoff_base_plugin_load(const zoff_plugin_wish *wish, zoff_plugin *out)
{
    static const zoff_plugin_host host = {
        .struct_size = sizeof host, .version = ZOFF_VERSION_NUMBER, .fail = fail_for_plugin, .warn = warn_for_plugin};
    zoff_plugin plugin = {.struct_size = sizeof plugin};
    zoff_plugin_init_fn init = NULL;
    attempts tried = {.used = 0};
    ZOFF_FAIL_IF(is_static(), ZOFF_ERR_UNSUPPORTED,
                 "%s is a plug-in, and a program that is linked with -static loads none: link it without -static", wish->what);
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
