/* SPDX-License-Identifier: Apache-2.0 */
/* posix.c: the last back-end of the list: pread and pwrite, one transfer at a time, on the thread that reaps. It needs nothing
 * from the kernel that could be forbidden, not even a thread. */
#include "backend_priv.h"

#include "mem.h"
#include "try.h"

#include <errno.h>
#include <unistd.h>

typedef struct posix {
    int fd;
    unsigned depth;
    unsigned first, count; /* ring of transfers that were taken and not started */
    zoff_aio_io *waiting[];
} posix;

static zoff_status posix_open(int fd, unsigned depth, void **out_self)
{
    posix *self;
    ZOFF_TRY(zoff_base_mem_alloc(1, sizeof *self + depth * sizeof self->waiting[0], "the posix I/O back-end", &self));
    self->fd = fd;
    self->depth = depth;
    *out_self = self;
    return ZOFF_OK;
}

static void posix_close(void *self, bool inherited)
{
    zoff_base_mem_free(self);
}

/* pread and pwrite pin no memory, so registering saves nothing. */
static zoff_status posix_register_memory(void *self, void *base, size_t bytes, bool *out_registered)
{
    *out_registered = false;
    return ZOFF_OK;
}

static void posix_start(void *ctx, zoff_aio_io *io)
{
    posix *self = ctx;
    self->waiting[(self->first + self->count++) % self->depth] = io;
}

static zoff_status posix_submit(void *self)
{
    return ZOFF_OK;
}

/* One transfer per call, so a caller that pumps between two pieces of arithmetic gets its thread back after one block. */
static size_t posix_reap(void *ctx, zoff_aio_done *out, size_t capacity)
{
    posix *self = ctx;
    if (!self->count || !capacity)
        return 0;
    zoff_aio_io *io = self->waiting[self->first];
    self->first = (self->first + 1) % self->depth;
    self->count--;
    ssize_t ret = io->writes ? pwrite(self->fd, io->address, io->bytes, (off_t)io->offset)
                             : pread(self->fd, io->address, io->bytes, (off_t)io->offset);
    *out = (zoff_aio_done){.io = io, .res = ret < 0 ? -errno : (int)ret};
    return 1;
}

static zoff_status posix_wait(void *self, double seconds)
{
    (void)self; /* the next reap() does the work */
    return ZOFF_OK;
}

const zoff_aio_backend zoff_aio_posix_backend = {
    .name = "posix",
    .open = posix_open,
    .close = posix_close,
    .register_memory = posix_register_memory,
    .start = posix_start,
    .submit = posix_submit,
    .reap = posix_reap,
    .wait = posix_wait,
};
