/* SPDX-License-Identifier: Apache-2.0 */
/* backend.c: choose the back-end of a queue: the one in the options, else the one in ZOFF_AIO, else the first that works. Each
 * step down prints a warning with the reason and the cost. */
#include "backend_priv.h"

#include "aio.h"

#include "env.h"
#include "log.h"
#include "try.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Back-ends, the best first. */
static const zoff_aio_backend *const BACKENDS[] = {&zoff_aio_uring_backend, &zoff_aio_threads_backend, &zoff_aio_posix_backend};
enum { BACKEND_COUNT = sizeof BACKENDS / sizeof BACKENDS[0] };

/* The cost of having no better back-end than this one. */
static const char *const COSTS[BACKEND_COUNT] = {
    "", "pread and pwrite by helper threads: at most 8 at a time, more CPU for each, same results",
    "pread and pwrite by the caller, one at a time: nothing overlaps with the arithmetic; slower, same results"};

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

zoff_status zoff_aio_backend_probe(const char *name)
{
    void *self;
    const zoff_aio_backend *named = find(name);
    ZOFF_FAIL_IF(!named, ZOFF_ERR_UNSUPPORTED, "there is no back-end %s", name);
    const int fd = memfd_create("zoff", MFD_CLOEXEC);
    ZOFF_FAIL_IF(fd < 0, ZOFF_ERR_UNSUPPORTED, "memfd_create(): %s", zoff_base_status_errno(errno));
    const zoff_status status = named->open(fd, 1, &self);
    if (status == ZOFF_OK)
        named->close(self, false);
    close(fd);
    return status;
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
        ZOFF_FAIL_IF(!named, ZOFF_ERR_INVALID, "%s is '%s'; it may be auto, io_uring, threads or posix", source, wanted);
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
        ZOFF_WARN("%s; falling back to %s (%s)", zoff_last_error(), BACKENDS[i + 1]->name, COSTS[i + 1]);
    }
}
