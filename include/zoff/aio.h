/* SPDX-License-Identifier: Apache-2.0 */
/* aio.h: an asynchronous queue of reads and writes on one file, usable without an engine.
 *
 *     zoff_aio_opts opts = ZOFF_AIO_OPTS_INIT;
 *     zoff_aio *q;
 *     uint64_t ticket;
 *     opts.writable = opts.create = true;
 *     if (zoff_aio_open("states.bin", &opts, &q) < 0)
 *         return fail(zoff_last_error());
 *     if (zoff_aio_write(q, 0, bytes, states, &ticket) == ZOFF_OK) {
 *         while (compute_a_little())
 *             zoff_aio_pump(q);
 *         if (zoff_aio_wait(q, ticket) < 0) // do not touch `states` until here
 *             complain(zoff_last_error());
 *     }
 *     zoff_aio_close(q);
 *
 * A queue belongs to the process that opened it. In a child of fork() every call that would do I/O is refused.
 * zoff_aio_close() in the child frees the child's copy, waits for nothing, and leaves transfers in flight to the parent. */
#ifndef ZOFF_AIO_H
#define ZOFF_AIO_H

#include <zoff/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Whether to bypass the page cache. */
typedef enum zoff_aio_direct {
    ZOFF_DIRECT_AUTO = 0,    /**< O_DIRECT where the file system supports it; otherwise buffered, with one warning */
    ZOFF_DIRECT_REQUIRE = 1, /**< O_DIRECT or an error */
    ZOFF_DIRECT_OFF = 2      /**< through the page cache */
} zoff_aio_direct;

/** Options of a queue. All zero: defaults. */
typedef struct zoff_aio_opts {
    size_t struct_size;     /**< set by ZOFF_AIO_OPTS_INIT */
    const char *backend;    /**< "io_uring"; "threads": pread and pwrite by up to 8 threads; "posix": by the caller;
                                 NULL or "auto": the first of these that works */
    size_t block_bytes;     /**< a request is split into pieces of this size; 0: 2 MiB; at most 1 GiB */
    unsigned depth;         /**< most pieces in flight; 0: 32 */
    zoff_aio_direct direct; /**< default AUTO */
    bool writable;          /**< open for writing, too */
    bool create;            /**< create the file if it does not exist (mode 0600); needs writable */
} zoff_aio_opts;
#define ZOFF_AIO_OPTS_INIT ZOFF_SIZED(zoff_aio_opts)

/** Facts and counters of a queue. */
typedef struct zoff_aio_info {
    size_t struct_size;      /**< set by ZOFF_AIO_INFO_INIT */
    const char *backend;     /**< "io_uring", "threads" or "posix"; static text */
    bool direct;             /**< O_DIRECT is in use */
    bool registered;         /**< the kernel has pinned the memory given to zoff_aio_register() */
    size_t alignment;        /**< bytes to which memory, offset and length of a request are aligned if it needs no copy */
    uint64_t read_bytes;     /**< bytes read from the file since open */
    uint64_t write_bytes;    /**< bytes written to the file since open */
    uint64_t bounce_bytes;   /**< bytes of both that were copied through aligned memory of the queue */
    uint64_t resumed_pieces; /**< pieces that the kernel moved partly, so that the rest was submitted again */
} zoff_aio_info;
#define ZOFF_AIO_INFO_INIT ZOFF_SIZED(zoff_aio_info)

/** Open a queue on the file at `path`.
 *  @owns caller; zoff_aio_close()  @threads one at a time per queue, not always the same  @blocks for the open
 *  @return ERR_IO with path and reason; ERR_UNSUPPORTED when the named back-end does not work here, or O_DIRECT with REQUIRE */
ZOFF_API zoff_status zoff_aio_open(const char *path, const zoff_aio_opts *opts, zoff_aio **out);

/** Wait for transfers in flight and close. NULL is allowed. */
ZOFF_API void zoff_aio_close(zoff_aio *q);

/** Reserve disk space for a file of `bytes`, so that no later write runs out of space.
 *  @blocks yes  @return ERR_NO_SPACE with the bytes needed and the bytes free */
ZOFF_API zoff_status zoff_aio_reserve(zoff_aio *q, uint64_t bytes);

/** Register the memory that most requests use, so that the kernel does not pin it for each request. Call it once per queue.
 * When the kernel refuses (RLIMIT_MEMLOCK), the queue works without and warns once.
 *  @owns caller; keep the memory until the queue is closed */
ZOFF_API zoff_status zoff_aio_register(zoff_aio *q, void *base, size_t bytes);

/** Begin to read `bytes` at `offset` of the file into `dst`. Any offset, length and address work; aligned ones
 *  (zoff_aio_info.alignment) avoid a copy.
 *  @param out_ticket must be finished exactly once, by zoff_aio_poll() or zoff_aio_wait()
 *  @owns the queue uses dst until the ticket is finished  @blocks never, apart from the copy of an unaligned write */
ZOFF_API zoff_status zoff_aio_read(zoff_aio *q, uint64_t offset, size_t bytes, void *dst, uint64_t *out_ticket);

/** Begin to write `bytes` from `src` at `offset` of the file; otherwise like zoff_aio_read().
 *  Overlapping requests of one queue have no order: wait between them. Without O_DIRECT a write is done when it is in the page
 *  cache. If it then fails on its way to the disk, every later request returns that error. */
ZOFF_API zoff_status zoff_aio_write(zoff_aio *q, uint64_t offset, size_t bytes, const void *src, uint64_t *out_ticket);

/** Submit queued pieces and collect finished ones, without waiting. Makes no system call when nothing has changed.
 *  @return OK; an error only when the queue itself is broken. A ticket has the error of its request */
ZOFF_API zoff_status zoff_aio_pump(zoff_aio *q);

/** Ask whether a request is done. A result other than PENDING finishes the ticket.
 *  @return PENDING; or OK; or ERR_IO or ERR_NO_SPACE with path, offset, length and reason */
ZOFF_API zoff_status zoff_aio_poll(zoff_aio *q, uint64_t ticket);

/** Wait for a request, return its result as zoff_aio_poll() does, and finish the ticket. */
ZOFF_API zoff_status zoff_aio_wait(zoff_aio *q, uint64_t ticket);

/** Wait until at least one piece in flight has finished. Returns at once when none is in flight. */
ZOFF_API zoff_status zoff_aio_wait_any(zoff_aio *q);

/** Read facts and counters of a queue. */
ZOFF_API zoff_status zoff_aio_get_info(const zoff_aio *q, zoff_aio_info *out);

/** Options of a measurement. All zero: defaults. */
typedef struct zoff_aio_tune_opts {
    size_t struct_size;     /**< set by ZOFF_AIO_TUNE_OPTS_INIT */
    const char *backend;    /**< back-end, as in zoff_aio_opts */
    double seconds;         /**< longest measurement; 0: 2; at most 60 */
    zoff_aio_direct direct; /**< page cache, as in zoff_aio_opts */
    bool fresh;             /**< measure again, although the folder has an earlier result */
} zoff_aio_tune_opts;
#define ZOFF_AIO_TUNE_OPTS_INIT ZOFF_SIZED(zoff_aio_tune_opts)

/** The settings with which a folder is fastest, and its rates with them. */
typedef struct zoff_aio_tune_result {
    size_t struct_size;   /**< set by ZOFF_AIO_TUNE_RESULT_INIT */
    size_t block_bytes;   /**< block size for zoff_aio_opts: 512 KiB, 1 MiB or 4 MiB */
    const char *backend;  /**< back-end that was measured; static text */
    double read_rate;     /**< bytes per second, reading alone */
    double write_rate;    /**< bytes per second, writing alone */
    double mixed_rate;    /**< bytes per second of both, half reading, half writing; this rate decides */
    double seconds;       /**< duration of the measurement */
    uint64_t device;      /**< st_dev of the folder */
    char file_system[32]; /**< "ext4" */
    unsigned depth;       /**< depth for zoff_aio_opts: 8, 16 or 32 */
    bool direct;          /**< O_DIRECT was in use */
    bool registered;      /**< the memory was registered */
    bool cached;          /**< an earlier result of this folder, not measured now */
} zoff_aio_tune_result;
#define ZOFF_AIO_TUNE_RESULT_INIT ZOFF_SIZED(zoff_aio_tune_result)

/** Find the block size and depth with which `folder` reads and writes fastest at the same time. Among those within 3 % of the
 *  best, take the one with the fewest bytes in flight.
 *
 *  Writes up to 256 MiB to a temporary file and uses up to 128 MiB of memory. The result stays in the folder as
 *  zoff-aio-tune.json. It is used again while device, file system, back-end, O_DIRECT and version of the library are the same.
 *  Processes that measure one folder take turns.
 *  @blocks for opts.seconds; before that, while another process measures, for up to twice as long and one second more
 *  @return ERR_NO_SPACE when less than 16 MiB are free; ERR_IO with path and reason; otherwise as zoff_aio_open() */
ZOFF_API zoff_status zoff_aio_tune(const char *folder, const zoff_aio_tune_opts *opts, zoff_aio_tune_result *out);

/** Write a result as JSON. Its "aio" object can be pasted into a ds_config, where the rest is ignored.
 *  @return OK; *out_bytes (may be NULL) is the length of the whole text without the final 0, also where `dst` is shorter */
ZOFF_API zoff_status zoff_aio_tune_print(const zoff_aio_tune_result *result, char *dst, size_t dst_bytes, size_t *out_bytes);

#ifdef __cplusplus
}
#endif
#endif
