/* aio.h: an asynchronous queue of reads and writes on one file, useful without an engine. */
#ifndef ZOFF_AIO_H
#define ZOFF_AIO_H

#include <zoff/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Whether the page cache is bypassed. */
typedef enum zoff_aio_direct {
    ZOFF_DIRECT_AUTO = 0,    /**< O_DIRECT where the file system can; else buffered, with one warning */
    ZOFF_DIRECT_REQUIRE = 1, /**< O_DIRECT or an error */
    ZOFF_DIRECT_OFF = 2      /**< through the page cache */
} zoff_aio_direct;

/** How to open a queue. A zeroed struct with struct_size set means the defaults. */
typedef struct zoff_aio_opts {
    size_t struct_size;     /**< sizeof(zoff_aio_opts) of the caller; 0 is rejected */
    const char *backend;    /**< "io_uring", "posix" (pread and pwrite), or NULL and "auto": the first that works */
    size_t block_bytes;     /**< a request is cut into pieces of this size; 0 = 1 MiB; at most 1 GiB */
    unsigned depth;         /**< pieces in flight; 0 = 32 */
    zoff_aio_direct direct; /**< default AUTO */
    bool writable;          /**< open for writing too */
    bool create;            /**< make the file if it is not there (mode 0600); needs writable */
} zoff_aio_opts;

/** What a queue turned out to be and what it has done so far. */
typedef struct zoff_aio_info {
    size_t struct_size;      /**< sizeof(zoff_aio_info) of the caller; 0 is rejected */
    const char *backend;     /**< "io_uring" or "posix"; static text */
    bool direct;             /**< O_DIRECT is in force */
    bool registered;         /**< the memory given to zoff_aio_register() is known to the kernel */
    size_t alignment;        /**< bytes: memory, offset and length aligned to this are moved without a copy */
    uint64_t read_bytes;     /**< moved from the file since open */
    uint64_t write_bytes;    /**< moved to the file since open */
    uint64_t bounce_bytes;   /**< of these, copied through aligned memory of the queue's own */
    uint64_t resumed_pieces; /**< pieces that the kernel moved only partly and that were asked for again */
} zoff_aio_info;

/** Open a queue on the file at `path`.
 *  @owns caller; zoff_aio_close()  @threads one at a time per queue  @blocks for the open
 *  @return ERR_IO with path and reason; ERR_UNSUPPORTED when the back-end named, or O_DIRECT with REQUIRE, is not to be had */
ZOFF_API zoff_status zoff_aio_open(const char *path, const zoff_aio_opts *opts, zoff_aio **out);

/** Wait for what is in flight and close. NULL is allowed. */
ZOFF_API void zoff_aio_close(zoff_aio *q);

/** Reserve room for a file of `bytes` now, so that no later write runs out of space.
 *  @blocks yes  @return ERR_NO_SPACE saying how much is needed and how much there is */
ZOFF_API zoff_status zoff_aio_reserve(zoff_aio *q, uint64_t bytes);

/** Make known the memory that most requests will use, so that the kernel need not pin it for each. An optimisation: when
 *  the kernel refuses (RLIMIT_MEMLOCK), the queue goes on without it and says so once.
 *  @owns caller; keep it until the queue is closed. Once per queue */
ZOFF_API zoff_status zoff_aio_register(zoff_aio *q, void *base, size_t bytes);

/** Start moving `bytes` from the file at `offset` into `dst`. Any offset, length and address; aligned ones (see
 *  zoff_aio_info) avoid a copy.
 *  @owns dst is the queue's until the ticket is done  @blocks never, apart from the copy of an unaligned write
 *  @return a ticket that zoff_aio_poll() or zoff_aio_wait() must finish, exactly once */
ZOFF_API zoff_status zoff_aio_read(zoff_aio *q, uint64_t offset, size_t bytes, void *dst, uint64_t *out_ticket);

/** Start moving `bytes` from `src` to the file at `offset`; otherwise like zoff_aio_read().
 *  Reads and writes of one queue that overlap have no order among themselves: wait between them. */
ZOFF_API zoff_status zoff_aio_write(zoff_aio *q, uint64_t offset, size_t bytes, const void *src, uint64_t *out_ticket);

/** Submit what is queued and collect what is done, without waiting. Cheap: no system call when nothing changed.
 *  @return OK; an error only when the queue itself is broken. Errors of requests come with their tickets */
ZOFF_API zoff_status zoff_aio_pump(zoff_aio *q);

/** Ask whether a request is done.
 *  @return PENDING, or its result: OK, or ERR_IO / ERR_NO_SPACE with path, offset, length and reason. A result ends the ticket
 */
ZOFF_API zoff_status zoff_aio_poll(zoff_aio *q, uint64_t ticket);

/** Wait for a request; returns its result and ends the ticket. */
ZOFF_API zoff_status zoff_aio_wait(zoff_aio *q, uint64_t ticket);

/** Wait until at least one piece in flight has completed; returns at once when none is. */
ZOFF_API zoff_status zoff_aio_wait_any(zoff_aio *q);

/** Tell what the queue is and has done. */
ZOFF_API zoff_status zoff_aio_get_info(const zoff_aio *q, zoff_aio_info *out);

#ifdef __cplusplus
}
#endif
#endif
