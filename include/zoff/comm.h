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
    const char *backend;    /**< "self" (one rank), or NULL for it; "mpi": MPI_COMM_WORLD of the plug-in; "nccl": the ranks that
                                 the launcher's variables tell of; "auto": what the launcher says; "threads": see
                                 zoff_comm_open_threads() */
    double timeout_seconds; /**< how long an operation waits for ranks that do not come, and an engine for a disk or a device
                                 that neither moves nor fails; 0: 600; negative: for ever */
} zoff_comm_opts;

/** What a communicator has done. Output: set struct_size, the library fills the rest. */
typedef struct zoff_comm_info {
    size_t struct_size;      /**< sizeof(zoff_comm_info) of the caller; 0 is rejected */
    const char *backend;     /**< static text; of messages the transport's name */
    unsigned rank, size;     /**< as zoff_comm_rank() and zoff_comm_size() */
    uint64_t operations;     /**< that are done, of all engines */
    uint64_t sent_bytes;     /**< to other ranks, by these */
    uint64_t received_bytes; /**< from other ranks */
} zoff_comm_info;

/** Join a group of ranks.
 *
 *  "auto" asks the launcher's environment. MPI that this program has initialised, or variables of mpirun, of PMI or of PMIx:
 *  "mpi". torchrun's, where the plug-in for NCCL can be loaded: "nccl". Nothing: "self". What has no way to send messages
 *  (srun without PMIx, torchrun without NCCL), and variables that contradict each other, are errors that say what to do.
 *
 *  "mpi" loads the plug-in libzoff_mpi.so, which lies beside libzoff or in a folder of ZOFF_PLUGIN_PATH. Where the program has
 *  not initialised MPI the plug-in does, with MPI_THREAD_MULTIPLE, and ends MPI when the last communicator is closed: then none
 *  can be opened any more. A program with an MPI of its own, of another kind or in part of its ranks, includes zoff/mpi.h.
 *
 *  "nccl" loads libzoff_nccl.so likewise. Rank and size are the launcher's (torchrun: RANK, WORLD_SIZE), the device is that of
 *  the rank's number on its host (LOCAL_RANK), and ranks meet at MASTER_ADDR and MASTER_PORT, or one port further where
 *  torchrun's agent has that one; or at NCCL_COMM_ID, "host:port", which goes before these. A program that has its ranks
 *  together already calls zoff_comm_open_nccl().
 *  @owns caller; close after every engine on it  @blocks until all ranks have joined
 *  @return ERR_UNSUPPORTED for a back-end that this build or machine does not have */
ZOFF_API zoff_status zoff_comm_open(const zoff_comm_opts *opts, zoff_comm **out);

/** Make a group of ranks within this process, one for each of the program's threads: to try what several ranks do, and to test
 *  it. Each handle belongs to one thread at a time; different ones are used side by side.
 *  @param opts backend is not read; may be NULL  @param size at least 1, at most 1024  @param out array of `size` handles
 *  @owns caller; each is closed by itself */
ZOFF_API zoff_status zoff_comm_open_threads(const zoff_comm_opts *opts, unsigned size, zoff_comm **out);

/** Any rank, in zoff_comm_transport.receive(). */
#define ZOFF_COMM_ANY_RANK 0xffffffffu

/** Messages between two ranks, from which zoff makes its operations: what an adapter to a network fills in (zoff/mpi.h has that
 *  of MPI). No function waits, and none is called but by a thread that is inside a zoff call with this communicator. They
 * return a negative number where something failed, and error() has the words. No more than the message is written of the memory
 * of a receive, which may be larger. Messages of one rank to another with the same tag arrive in the order in which they were
 * sent, and receives take them in the order in which they were posted; tags are from 0 to 1023. */
typedef struct zoff_comm_transport {
    size_t struct_size; /**< sizeof(zoff_comm_transport) of the caller; 0 is rejected */
    const char *name;   /**< static text, for messages */
    void *ctx;          /**< what the functions are called with */
    unsigned rank, size;
    size_t most_bytes;    /**< of one message; 0: 64 MiB */
    double close_seconds; /**< how long zoff_comm_close() waits for other ranks to close, too; 0: not at all */
    /** Begin to send, or to receive from a rank or ZOFF_COMM_ANY_RANK. The memory is in use until test() says 1. */
    int (*send)(void *ctx, unsigned to, int tag, const void *data, size_t bytes, void **out_request);
    int (*receive)(void *ctx, unsigned from, int tag, void *data, size_t bytes, void **out_request);
    int (*test)(void *ctx, void **request);   /**< 1: done, and the request is gone; 0: not yet */
    int (*cancel)(void *ctx, void **request); /**< of a receive that nothing may come for; test() tells when it is over */
    const char *(*error)(void *ctx);
    /** Free ctx. `clean` is false when messages may still be under way: then what they use must stay. */
    void (*close)(void *ctx, int clean);
    const char *failure; /**< not NULL: there is no transport, and this is why; nothing else is read */
    int any_thread;      /**< any thread may call the functions, one at a time, whatever others of the program do meanwhile: see
                              zoff_engine_opts.progress_thread */
} zoff_comm_transport;

/** Make a communicator over messages.
 *  @owns caller; it closes the transport, which on an error stays the caller's
 *  @return ERR_UNSUPPORTED with the words in transport->failure, where there are some */
ZOFF_API zoff_status zoff_comm_open_transport(const zoff_comm_opts *opts, const zoff_comm_transport *transport,
                                              zoff_comm **out);

/** How to join over NCCL. */
typedef struct zoff_nccl_opts {
    size_t struct_size;     /**< sizeof(zoff_nccl_opts) of the caller; 0 is rejected */
    unsigned rank, size;    /**< of this process, and of all; not read where nccl_comm is given */
    int device;             /**< index of the CUDA device; -1: the thread's current one; not read where nccl_comm is given */
    double timeout_seconds; /**< as zoff_comm_opts.timeout_seconds; also of joining */
    /** Copy bytes from rank 0 to all, e.g. by MPI_Bcast; every rank calls it once, and it may wait for them.  @return 0 */
    int (*broadcast)(void *ctx, void *data, size_t bytes);
    void *ctx; /**< what it is called with */
    /** An ncclComm_t of the program instead of all that: zoff splits off communicators of its own and leaves it alone from then
     * on. One that is blocking waits for other ranks for as long as it likes; one that was made with splitShare 1 is aborted
     * together with zoff's, so leave that 0, NCCL's default */
    void *nccl_comm;
    void *nccl_stream; /**< the cudaStream_t in which the program uses nccl_comm: what is in it is waited for before the split,
                            as NCCL wants. NULL: nothing of nccl_comm is under way; a default stream is cudaStreamLegacy or
                            cudaStreamPerThread */
} zoff_nccl_opts;

/** Join a group of ranks over NCCL, with the plug-in libzoff_nccl.so. Memory that operations use is the host's or a device's.
 *  NCCL cannot tell which rank is missing: an operation that waits in vain fails, and names nobody.
 *  @owns caller  @blocks until all ranks have joined, or for timeout_seconds
 *  @return ERR_UNSUPPORTED where there is no GPU, no NCCL from 2.18 on, or no plug-in */
ZOFF_API zoff_status zoff_comm_open_nccl(const zoff_nccl_opts *opts, zoff_comm **out);

/** Leave. What other ranks then start, or have started without this one, fails at once. NULL is allowed. Call it on every rank
 *  before main() returns: where zoff has started MPI this ends it, and mpirun takes a rank that exits without for a failure. */
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
