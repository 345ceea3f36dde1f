/* plugin.c: communicators that are shared libraries of their own, for what they need must not be needed by libzoff. */
#include "comm.h"

#include "env.h"
#include "log.h"
#include "try.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zoff/plugin.h>

/* What was tried, for the message. */
typedef struct attempts {
    char words[1024];
    size_t used;
} attempts;

static void note_attempt(attempts *a, const char *words)
{
    if (a->used < sizeof a->words)
        a->used += (size_t)snprintf(a->words + a->used, sizeof a->words - a->used, "%s%s", a->used ? "; " : "", words);
}

/* A library of the folder text[0..length), or NULL. */
static void *load_from(const char *text, size_t length, const char *name, attempts *a)
{
    char path[PATH_MAX];
    const int bytes = snprintf(path, sizeof path, "%.*s/libzoff_%s.so", (int)length, text, name);
    if (bytes < 0 || (size_t)bytes >= sizeof path)
        return NULL;
    if (access(path, F_OK) != 0) {
        char words[PATH_MAX + 32];
        snprintf(words, sizeof words, "no %s", path);
        note_attempt(a, words);
        return NULL;
    }
    /* Some MPIs load parts of themselves that look for the rest among the symbols of the program. */
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!library)
        note_attempt(a, dlerror());
    return library;
}

/* Beside the file that has this code, then along ZOFF_PLUGIN_PATH. */
static void *load(const char *name, attempts *a)
{
    Dl_info here;
    void *library = NULL;
    if (dladdr(__extension__(void *) zoff_comm_plugin_open, &here) && here.dli_fname) {
        const char *slash = strrchr(here.dli_fname, '/');
        library = slash ? load_from(here.dli_fname, (size_t)(slash - here.dli_fname), name, a) : load_from(".", 1, name, a);
    }
    const char *folder = zoff_base_env_get(ZOFF_ENV_PLUGINS);
    while (!library && folder) {
        const char *end = strchrnul(folder, ':');
        if (end > folder)
            library = load_from(folder, (size_t)(end - folder), name, a);
        folder = *end ? end + 1 : NULL;
    }
    return library;
}

zoff_status zoff_comm_plugin_open(const char *name, const zoff_comm_opts *opts, zoff_comm **out)
{
    const zoff_plugin_host host = {.struct_size = sizeof host, .version = zoff_version()};
    zoff_plugin plugin = {.struct_size = sizeof plugin};
    zoff_plugin_init_fn init = NULL;
    attempts tried = {.used = 0};
    void *library = load(name, &tried);
    ZOFF_FAIL_IF(
        !library, ZOFF_ERR_UNSUPPORTED,
        "the communicator \"%s\" is a plug-in, and cannot be loaded: %s. Build zoff where MPI is installed (on Debian or "
        "Ubuntu: apt-get install libopenmpi-dev openmpi-bin), set %s to the folder of libzoff_%s.so, or compile "
        "zoff/mpi.h into the program",
        name, tried.words, zoff_base_env_name(ZOFF_ENV_PLUGINS), name);
    void *found = dlsym(library, "zoff_plugin_init");
    memcpy(&init, &found, sizeof init); /* ISO C has no such cast */
    ZOFF_FAIL_IF(!init || init(ZOFF_PLUGIN_ABI, &host, &plugin) != 0 || !plugin.connect, ZOFF_ERR_UNSUPPORTED,
                 "libzoff_%s.so is no plug-in for this version of zoff: install the two together", name);
    zoff_comm_transport transport = {.struct_size = sizeof transport};
    plugin.connect(&transport);
    const zoff_status status = zoff_comm_open_transport(opts, &transport, out);
    if (status < 0 && !transport.failure)
        transport.close(transport.ctx, 1);
    return status;
}
