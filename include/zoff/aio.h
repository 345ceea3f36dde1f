/* aio.h: an asynchronous queue of reads and writes on one file, useful without an engine.
 *
 *     zoff_aio_opts opts = {.struct_size = sizeof opts, .writable = true, .create = true};
 *     zoff_aio *q;
 *     uint64_t ticket;
 *     if (zoff_aio_open("states.bin", &opts, &q) < 0)
 *         return fail(zoff_last_error());
 *     if (zoff_aio_write(q, 0, bytes, states, &ticket) == ZOFF_OK) {
 *         while (compute_a_little())
 *             zoff_aio_pump(q);
 *         if (zoff_aio_wait(q, ticket) < 0) // until here `states` is the queue's
 *             complain(zoff_last_error());
 *     }
 *     zoff_aio_close(q);
 *
 * A queue belongs to the process that opened it. In a child of fork() every call that would do I/O is refused;
 * zoff_aio_close() frees what the child has of it, waits for nothing, and leaves what is in flight to the parent. */
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
    const char *backend;    /**< "io_uring", "threads" (pread and pwrite by up to 8 threads), "posix" (by the caller),
                                 or NULL and "auto": the first of them that works */
    size_t block_bytes;     /**< a request is cut into pieces of this size; 0 = 2 MiB; at most 1 GiB */
    unsigned depth;         /**< pieces in flight; 0 = 32 */
    zoff_aio_direct direct; /**< default AUTO */
    bool writable;          /**< open for writing too */
    bool create;            /**< make the file if it is not there (mode 0600); needs writable */
} zoff_aio_opts;

/** What a queue turned out to be and what it has done so far. */
typedef struct zoff_aio_info {
    size_t struct_size;      /**< sizeof(zoff_aio_info) of the caller; 0 is rejected */
    const char *backend;     /**< "io_uring", "threads" or "posix"; static text */
    bool direct;             /**< O_DIRECT is in force */
    bool registered;         /**< the memory given to zoff_aio_register() is known to the kernel */
    size_t alignment;        /**< bytes: memory, offset and length aligned to this are moved without a copy */
    uint64_t read_bytes;     /**< moved from the file since open */
    uint64_t write_bytes;    /**< moved to the file since open */
    uint64_t bounce_bytes;   /**< of these, copied through aligned memory of the queue's own */
    uint64_t resumed_pieces; /**< pieces that the kernel moved only partly and that were asked for again */
} zoff_aio_info;

/** Open a queue on the file at `path`.
 *  @owns caller; zoff_aio_close()  @threads one at a time per queue, not always the same  @blocks for the open
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
 *  Reads and writes of one queue that overlap have no order among themselves: wait between them. Where O_DIRECT is refused, a
 *  write is done when it is in the page cache; if it fails on its way to the disk, every later request says so. */
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

/** How to measure a folder. A zeroed struct with struct_size set means the defaults. */
typedef struct zoff_aio_tune_opts {
    size_t struct_size;     /**< sizeof(zoff_aio_tune_opts) of the caller; 0 is rejected */
    const char *backend;    /**< as in zoff_aio_opts */
    double seconds;         /**< to measure, at most; 0 = 2; at most 60 */
    zoff_aio_direct direct; /**< as in zoff_aio_opts */
    bool fresh;             /**< measure, whatever the folder has of an earlier time */
} zoff_aio_tune_opts;

/** What suits a folder, and how fast it is with that. */
typedef struct zoff_aio_tune_result {
    size_t struct_size;   /**< sizeof(zoff_aio_tune_result) of the caller; 0 is rejected */
    size_t block_bytes;   /**< for zoff_aio_opts: 512 KiB, 1 MiB or 4 MiB */
    const char *backend;  /**< measured with; static text */
    double read_rate;     /**< bytes per second, reading alone */
    double write_rate;    /**< writing alone */
    double mixed_rate;    /**< half reading, half writing: both together. This decided */
    double seconds;       /**< that it took */
    uint64_t device;      /**< st_dev of the folder */
    char file_system[32]; /**< "ext4" */
    unsigned depth;       /**< for zoff_aio_opts: 8, 16 or 32 */
    bool direct;          /**< O_DIRECT was in force */
    bool registered;      /**< the memory was known to the kernel */
    bool cached;          /**< read from the folder, not measured now */
} zoff_aio_tune_result;

/** Find the block size and depth with which reading and writing at a time are fastest in `folder`; of those within 3 % of the
 *  best the one that keeps the fewest bytes in flight. Writes up to 256 MiB to a file that is gone afterwards, and uses up to
 *  128 MiB of memory. The result stays in the folder as zoff-aio-tune.json, and is used again while device, file system,
 *  back-end, O_DIRECT and version of the library are the same. Processes that measure one folder at a time take turns.
 *  @blocks for opts.seconds; before that for up to twice as long and a second more while another process measures the folder
 *  @return ERR_NO_SPACE when less than 16 MiB are free; ERR_IO with path and reason; as zoff_aio_open() */
ZOFF_API zoff_status zoff_aio_tune(const char *folder, const zoff_aio_tune_opts *opts, zoff_aio_tune_result *out);

/** Write a result as JSON whose "aio" is ready for a ds_config. The rest of it is a remark there.
 *  @return OK; *out_bytes (may be NULL) is the full length without the final 0, whatever fitted into dst_bytes */
ZOFF_API zoff_status zoff_aio_tune_print(const zoff_aio_tune_result *result, char *dst, size_t dst_bytes, size_t *out_bytes);

#ifdef __cplusplus
}
#endif
#endif
