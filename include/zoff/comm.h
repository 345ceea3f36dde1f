/* comm.h: join the group of ranks that train together. */
#ifndef ZOFF_COMM_H
#define ZOFF_COMM_H

#include <zoff/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** How to join. A zeroed struct with struct_size set means "self". */
typedef struct zoff_comm_opts {
    size_t struct_size;     /**< sizeof(zoff_comm_opts) of the caller; 0 is rejected */
    const char *backend;    /**< "self" (one rank), or NULL for it; "threads": see zoff_comm_open_threads() */
    double timeout_seconds; /**< how long an operation waits for ranks that do not come; 0: 600; negative: for ever */
} zoff_comm_opts;

/** What a communicator has done. Output: set struct_size, the library fills the rest. */
typedef struct zoff_comm_info {
    size_t struct_size;      /**< sizeof(zoff_comm_info) of the caller; 0 is rejected */
    const char *backend;     /**< static text */
    unsigned rank, size;     /**< as zoff_comm_rank() and zoff_comm_size() */
    uint64_t operations;     /**< that are done */
    uint64_t sent_bytes;     /**< to other ranks, by these */
    uint64_t received_bytes; /**< from other ranks */
} zoff_comm_info;

/** Join a group of ranks.
 *  @owns caller; close after every engine on it  @blocks until all ranks have joined
 *  @return ERR_UNSUPPORTED for a back-end that this build does not have */
ZOFF_API zoff_status zoff_comm_open(const zoff_comm_opts *opts, zoff_comm **out);

/** Make a group of ranks within this process, one for each of the program's threads: to try what several ranks do, and to test
 *  it. Each handle belongs to one thread at a time; different ones are used side by side.
 *  @param opts backend is not read; may be NULL  @param size at least 1, at most 1024  @param out array of `size` handles
 *  @owns caller; each is closed by itself */
ZOFF_API zoff_status zoff_comm_open_threads(const zoff_comm_opts *opts, unsigned size, zoff_comm **out);

/** Leave. What other ranks then start, or have started without this one, fails at once. NULL is allowed. */
ZOFF_API void zoff_comm_close(zoff_comm *comm);

/** This rank's number, from 0.  @threads any */
ZOFF_API unsigned zoff_comm_rank(const zoff_comm *comm);

/** Number of ranks in the group.  @threads any */
ZOFF_API unsigned zoff_comm_size(const zoff_comm *comm);

/** Tell what went over the wire so far. */
ZOFF_API zoff_status zoff_comm_get_info(const zoff_comm *comm, zoff_comm_info *out);

#ifdef __cplusplus
}
#endif
#endif
