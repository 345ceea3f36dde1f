/* SPDX-License-Identifier: Apache-2.0 */
/* backend_priv.h: a back-end of the queue: eight functions that move contiguous pieces and judge nothing. The queue does
 * cutting, alignment, retries and errors (pieces.c), so that they are the same for every back-end. */
#ifndef ZOFF_AIO_BACKEND_PRIV_H
#define ZOFF_AIO_BACKEND_PRIV_H

#include <zoff/status.h>

/* One transfer: contiguous in the file and in memory, at most 1 GiB. The queue fills it in, and back-ends do not change it. */
typedef struct zoff_aio_io {
    bool writes;
    uint64_t offset;
    size_t bytes;
    void *address;
} zoff_aio_io;

/* A transfer that has completed. res: bytes moved, possibly fewer than requested, or -errno. */
typedef struct zoff_aio_done {
    zoff_aio_io *io;
    int res;
} zoff_aio_done;

/* The functions of a back-end, which are all set. One thread at a time uses it, not always the same one. */
typedef struct zoff_aio_backend {
    const char *name;

    /* Open a back-end for at most `depth` transfers in flight.  @return ERR_UNSUPPORTED with the cause if it cannot work here
     */
    zoff_status (*open)(int fd, unsigned depth, void **out_self);

    /* Called when nothing is in flight. `inherited`: this process is a child of fork(), and transfers of the parent may be in
     * flight. Then free what this process alone has, wait for nothing, and do not touch what the two share. */
    void (*close)(void *self, bool inherited);

    /* Register memory with the kernel. A refusal is a warning and *out_registered = false, not an error. */
    zoff_status (*register_memory)(void *self, void *base, size_t bytes, bool *out_registered);

    /* Take a transfer; it is in flight until reap() returns it. Never blocks, cannot fail. */
    void (*start)(void *self, zoff_aio_io *io);

    /* Submit the transfers that were taken.  @return an error: reap() returns the transfers that could not start, with this
     * error */
    zoff_status (*submit)(void *self);

    /* Return completed transfers without waiting for the device.  @return the number of entries filled */
    size_t (*reap)(void *self, zoff_aio_done *out, size_t capacity);

    /* Submit, and wait until reap() has a transfer to return, at most this long (negative: no limit). May return early. Returns
     * at once if nothing is in flight. */
    zoff_status (*wait)(void *self, double seconds);
} zoff_aio_backend;

extern const zoff_aio_backend zoff_aio_uring_backend;   /* uring.c */
extern const zoff_aio_backend zoff_aio_threads_backend; /* threads.c */
extern const zoff_aio_backend zoff_aio_posix_backend;   /* posix.c */

/* Open the back-end named `wanted`: "io_uring", "threads", "posix", "auto" or NULL (backend.c). */
zoff_status zoff_aio_backend_choose(const char *wanted, int fd, unsigned depth, const zoff_aio_backend **out_backend,
                                    void **out_self);

/* Every result of every back-end passes through this function on its way to the queue, and returns unchanged. It has a file of
 * its own so that a test can replace it at link time (-Wl,--wrap=zoff_aio_result_check with the static library). The test
 * returns a short count or -errno for a transfer of its choice, which runs paths that a healthy disk never takes. The transfer
 * itself has happened by then. */
int zoff_aio_result_check(int res, bool writes, uint64_t offset, size_t bytes);

#endif
