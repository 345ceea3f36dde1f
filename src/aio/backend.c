/* backend.c: which back-end a queue gets: the one that the options name, else the one that ZOFF_AIO names, else io_uring and
 * where that is not to be had pread and pwrite, with one warning that says why. */
#include "backend_priv.h"

#include "env.h"
#include "log.h"
#include "try.h"

#include <string.h>

static const zoff_aio_backend *const BACKENDS[] = {&zoff_aio_uring_backend, &zoff_aio_posix_backend};
enum { BACKEND_COUNT = sizeof BACKENDS / sizeof BACKENDS[0] };

static bool leaves_open(const char *wanted)
{
    return !wanted || strcmp(wanted, "auto") == 0;
}

static const zoff_aio_backend *find(const char *name)
{
    for (unsigned i = 0; i < BACKEND_COUNT; i++) {
        if (strcmp(BACKENDS[i]->name, name) == 0)
            return BACKENDS[i];
    }
    return NULL;
}

zoff_status zoff_aio_backend_choose(const char *wanted, int fd, unsigned depth, const zoff_aio_backend **out_backend,
                                    void **out_self)
{
    const char *source = "backend";
    if (leaves_open(wanted)) {
        wanted = zoff_base_env_get(ZOFF_ENV_AIO);
        source = zoff_base_env_name(ZOFF_ENV_AIO);
    }
    if (!leaves_open(wanted)) {
        const zoff_aio_backend *named = find(wanted);
        ZOFF_FAIL_IF(!named, ZOFF_ERR_INVALID, "%s is '%s'; it may be auto, io_uring or posix", source, wanted);
        zoff_status status = named->open(fd, depth, out_self);
        if (status < 0)
            return zoff_base_status_prefix(status, "%s asks for %s: ", source, wanted);
        *out_backend = named;
        return ZOFF_OK;
    }
    for (unsigned i = 0;; i++) {
        zoff_status status = BACKENDS[i]->open(fd, depth, out_self);
        if (status != ZOFF_ERR_UNSUPPORTED || i + 1 == BACKEND_COUNT) {
            ZOFF_TRY(status);
            *out_backend = BACKENDS[i];
            return ZOFF_OK;
        }
        ZOFF_WARN("%s; falling back to %s (pread and pwrite, one at a time: slower, same results)", zoff_last_error(),
                  BACKENDS[i + 1]->name);
    }
}
