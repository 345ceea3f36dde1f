/* backend_priv.h: what a back-end of the queue is: eight functions that move contiguous pieces and judge nothing. Cutting,
 * alignment, retries and errors are the queue's (pieces.c), so that they are the same for every back-end. */
#ifndef ZOFF_AIO_BACKEND_PRIV_H
#define ZOFF_AIO_BACKEND_PRIV_H

#include <zoff/status.h>

/* One transfer: contiguous in the file and in memory, at most 1 GiB. Filled in by the queue, untouched by back-ends. */
typedef struct zoff_aio_io {
    bool writes;
    uint64_t offset;
    size_t bytes;
    void *address;
} zoff_aio_io;

/* A transfer that came back. res: bytes moved, possibly fewer than asked for, or -errno. */
typedef struct zoff_aio_done {
    zoff_aio_io *io;
    int res;
} zoff_aio_done;

/* Used by one thread at a time, not always the same one. No slot may be NULL. */
typedef struct zoff_aio_backend {
    const char *name;

    /* At most `depth` transfers will be out at once. ERR_UNSUPPORTED, with the cause in words, where it cannot work here. */
    zoff_status (*open)(int fd, unsigned depth, void **out_self);

    /* Called when nothing is in flight. `inherited`: this process is a child of fork(), and transfers of the parent may be in
     * flight. Then free what this process alone has, wait for nothing, and do not touch what the two share. */
    void (*close)(void *self, bool inherited);

    /* Make memory known to the kernel. A refusal is a warning and *out_registered = false, not an error. */
    zoff_status (*register_memory)(void *self, void *base, size_t bytes, bool *out_registered);

    /* Take a transfer; it is out from here until reap() hands it back. Never blocks, cannot fail. */
    void (*start)(void *self, zoff_aio_io *io);

    /* Let the transfers taken begin. An error means that those which could not begin come back by reap() with it. */
    zoff_status (*submit)(void *self);

    /* Hand back what is done, without waiting for the device; the number of entries filled. */
    size_t (*reap)(void *self, zoff_aio_done *out, size_t capacity);

    /* Submit, and wait until reap() has something to hand back, at most so long (negative: without a limit); may return early.
     * At once when nothing is out. */
    zoff_status (*wait)(void *self, double seconds);
} zoff_aio_backend;

extern const zoff_aio_backend zoff_aio_uring_backend;   /* uring.c */
extern const zoff_aio_backend zoff_aio_threads_backend; /* threads.c */
extern const zoff_aio_backend zoff_aio_posix_backend;   /* posix.c */

/* Open the back-end that `wanted` names ("io_uring", "threads", "posix", "auto" or NULL): backend.c. */
zoff_status zoff_aio_backend_choose(const char *wanted, int fd, unsigned depth, const zoff_aio_backend **out_backend,
                                    void **out_self);

/* Every result of every back-end passes through this function on its way to the queue, and returns unchanged. It has a file of
 * its own so that a test can replace it at link time (-Wl,--wrap=zoff_aio_result_check with the static library). The test
 * returns a short count or -errno for a transfer of its choice, which runs paths that a healthy disk never takes. The transfer
 * itself has happened by then. */
int zoff_aio_result_check(int res, bool writes, uint64_t offset, size_t bytes);

#endif
