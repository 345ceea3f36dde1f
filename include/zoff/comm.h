/* SPDX-License-Identifier: Apache-2.0 */
/* comm.h: join the ranks that train together. */
#ifndef ZOFF_COMM_H
#define ZOFF_COMM_H

#include <zoff/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Options of a communicator. All zero: this rank alone. */
typedef struct zoff_comm_opts {
    size_t struct_size;     /**< set by ZOFF_COMM_OPTS_INIT */
    const char *backend;    /**< NULL or "self": one rank. "mpi": MPI_COMM_WORLD. "nccl", "ucx": the ranks in the launcher's
                                 variables. "auto": whichever the launcher started. "threads": see zoff_comm_open_threads() */
    double timeout_seconds; /**< how long an operation waits for other ranks, and an engine for a disk or device that neither
                                 moves nor fails; 0: 600; ZOFF_OFF: no limit */
} zoff_comm_opts;
#define ZOFF_COMM_OPTS_INIT ZOFF_SIZED(zoff_comm_opts)

/** Facts and counters of a communicator. */
typedef struct zoff_comm_info {
    size_t struct_size;      /**< set by ZOFF_COMM_INFO_INIT */
    const char *backend;     /**< name; static text, or over a zoff_comm_transport its name */
    unsigned rank, size;     /**< as zoff_comm_rank() and zoff_comm_size() */
    uint64_t operations;     /**< finished collective operations of all engines */
    uint64_t sent_bytes;     /**< bytes that these operations sent to other ranks */
    uint64_t received_bytes; /**< bytes that these operations received from other ranks */
    uint64_t node_bytes;     /**< the part of `sent_bytes` to ranks of the same node; all of it until an engine has looked at
                                  the hosts. 0 if hosts have different numbers of ranks, or ranks that are not consecutive */
    uint64_t notes;          /**< headers that these operations sent; small pieces are inside. 0 over NCCL */
    uint64_t messages;       /**< messages beside them, for larger pieces. 0 over NCCL */
} zoff_comm_info;
#define ZOFF_COMM_INFO_INIT ZOFF_SIZED(zoff_comm_info)

/** Join the ranks that the launcher started.
 *
 *  "auto" looks at the environment. It takes "mpi" when the program has initialised MPI or variables of mpirun, PMI or PMIx are
 *  set. Under torchrun it takes "nccl" where NCCL finds a GPU, and otherwise "ucx". Without any launcher it takes "self". A
 *  launcher without a way to send messages (srun without PMIx, torchrun without NCCL and UCX) and variables that contradict
 * each other are errors that say what to do.
 *
 *  The ranks that were started must be those that join. The call fails if this process has joined alone and variables of a
 *  launcher say that there are more ranks, because each rank would train a model of its own. A launcher of another MPI starts
 *  such processes. "self" is never compared with the launcher: choose it for one rank on purpose.
 *
 *  "mpi" loads the plug-in libzoff_mpi.so, found in the folder zoff beside libzoff or in one of ZOFF_PLUGIN_PATH. If the
 *  program has not initialised MPI, the plug-in does so with MPI_THREAD_MULTIPLE, and finalises MPI when the last communicator
 *  is closed; none can be opened afterwards. A program with another MPI, or MPI in some ranks, includes zoff/mpi.h instead.
 *
 *  "ucx" loads libzoff_ucx.so, and needs no MPI and no GPU. Rank and size are the launcher's (RANK, WORLD_SIZE). Ranks meet at
 *  MASTER_ADDR, one port above MASTER_PORT, which torch.distributed may use, and rank 0 listens there until all have
 *  come. The network is trusted. UCX moves the messages over shared memory, InfiniBand or TCP, as its variables (UCX_TLS,
 *  UCX_NET_DEVICES) permit.
 *
 *  "nccl" loads libzoff_nccl.so. Rank and size are the launcher's (RANK, WORLD_SIZE), and the device is the rank's number on
 * its host (LOCAL_RANK). Ranks meet at MASTER_ADDR and MASTER_PORT, one port higher where torchrun's agent uses that one, or at
 *  NCCL_COMM_ID ("host:port") where it is set. A program whose ranks are connected already calls zoff_comm_open_nccl().
 *  @owns caller; close it after every engine on it  @blocks until all ranks have joined
 *  @return ERR_UNSUPPORTED for a back-end that this build or machine does not have, and where a launcher has started more ranks
 *  than the one that has joined */
ZOFF_API zoff_status zoff_comm_open(const zoff_comm_opts *opts, zoff_comm **out);

/** Make a group of ranks inside this process, one for each of the program's threads, to try and test several ranks. Each handle
 *  is used by one thread at a time; different handles are used in parallel.
 *  @param opts its backend is not read; may be NULL  @param size 1 to 1024  @param out array of `size` handles
 *  @owns caller; each handle is closed by itself */
ZOFF_API zoff_status zoff_comm_open_threads(const zoff_comm_opts *opts, unsigned size, zoff_comm **out);

/** Any rank, in zoff_comm_transport.receive(). */
#define ZOFF_COMM_ANY_RANK 0xffffffffu

/** Point-to-point messages, from which zoff builds its collective operations. An adapter to a network fills this struct;
 *  zoff/mpi.h has the one for MPI.
 *
 *  No function may block. Only threads inside a zoff call with this communicator call them. They return a negative number on an
 *  error, and error() has the message. A message may be shorter than the memory of its receive; the rest of the memory is not
 *  written. Messages from one rank to another with the same tag arrive in the order they were sent in, and receives take them
 *  in the order they were posted in. Tags are 0 to 1023. */
typedef struct zoff_comm_transport {
    size_t struct_size;   /**< set by ZOFF_COMM_TRANSPORT_INIT */
    const char *name;     /**< static text, for messages */
    void *ctx;            /**< first argument of the functions */
    unsigned rank, size;  /**< rank of this process, and number of ranks */
    size_t most_bytes;    /**< most bytes of one message; 0: 64 MiB */
    double close_seconds; /**< how long zoff_comm_close() waits until other ranks close, too; 0: not at all */
    /** Begin to send, or to receive from a rank or ZOFF_COMM_ANY_RANK. The memory is in use until test() returns 1. */
    int (*send)(void *ctx, unsigned to, int tag, const void *data, size_t bytes, void **out_request);
    int (*receive)(void *ctx, unsigned from, int tag, void *data, size_t bytes, void **out_request);
    int (*test)(void *ctx, void **request);   /**< returns 1: done, and the request is freed; 0: not yet */
    int (*cancel)(void *ctx, void **request); /**< cancel a receive; test() then returns 1 when it has ended */
    const char *(*error)(void *ctx);          /**< message of the last error */
    /** Free ctx. `clean` is 0 when messages may still be in flight: then the memory that they use must stay. */
    void (*close)(void *ctx, int clean);
    const char *failure; /**< reason why there is no transport, in which case nothing else is read; NULL: there is one */
    int any_thread; /**< not 0 if any thread may call the functions, one at a time, while others of the program run. Needed for
                       zoff_engine_opts.progress_thread */
    size_t world_size;   /**< all ranks that the network knows, where the program asked for all or some of them; 0: not compared
                              with the launcher. A world of one rank beside launcher's variables of more is an error */
    unsigned node_ranks; /**< ranks of a node, which are consecutive; 0: not known, so the engine compares hosts */
} zoff_comm_transport;
#define ZOFF_COMM_TRANSPORT_INIT ZOFF_SIZED(zoff_comm_transport)

/** Make a communicator over a transport.
 *  @owns caller; closing it closes the transport. After an error the transport stays the caller's
 *  @return ERR_UNSUPPORTED with the text of transport->failure, if there is one, and where world_size is 1 and the launcher has
 *  started more */
ZOFF_API zoff_status zoff_comm_open_transport(const zoff_comm_opts *opts, const zoff_comm_transport *transport,
                                              zoff_comm **out);

/** Options of a communicator over NCCL: either `nccl_comm`, or rank, size, device and broadcast. */
typedef struct zoff_nccl_opts {
    size_t struct_size;     /**< set by ZOFF_NCCL_OPTS_INIT */
    unsigned rank, size;    /**< rank of this process, and number of ranks */
    int device;             /**< index of the CUDA device; -1: the thread's current one */
    double timeout_seconds; /**< as zoff_comm_opts.timeout_seconds; also limits joining */
    /** Copy bytes from rank 0 to all ranks, such as MPI_Bcast(). Every rank calls it once; it may block.  @return 0 */
    int (*broadcast)(void *ctx, void *data, size_t bytes);
    void *ctx; /**< argument of broadcast */
    /** An ncclComm_t of the program. zoff splits communicators of its own off and does not use this one afterwards. A blocking
     *  one waits for other ranks without a limit. One made with splitShare 1 is aborted together with zoff's: leave that at 0,
     *  NCCL's default. */
    void *nccl_comm;
    void *nccl_stream; /**< the cudaStream_t in which the program uses nccl_comm. The split waits for the work in it, as NCCL
                            requires. NULL: nothing of nccl_comm is in flight. Name a default stream as cudaStreamLegacy or
                            cudaStreamPerThread */
} zoff_nccl_opts;
#define ZOFF_NCCL_OPTS_INIT ZOFF_SIZED(zoff_nccl_opts)

/** Join ranks over NCCL, with the plug-in libzoff_nccl.so. Operations work on host memory and on device memory. NCCL cannot
 * tell which rank is missing, so the error of an operation that timed out names no rank.
 *  @owns caller  @blocks until all ranks have joined, or for timeout_seconds
 *  @return ERR_UNSUPPORTED without a GPU, without NCCL 2.18 or newer, or without the plug-in */
ZOFF_API zoff_status zoff_comm_open_nccl(const zoff_nccl_opts *opts, zoff_comm **out);

/** Leave the ranks. NULL is allowed. Operations that other ranks begin afterwards, or have begun without this rank, fail at
 *  once. Call it on every rank before main() returns: where zoff has initialised MPI this call finalises it, and mpirun reports
 *  a rank that exits without as failed. */
ZOFF_API void zoff_comm_close(zoff_comm *comm);

/** Return this rank's number, from 0.
 *  @threads any */
ZOFF_API unsigned zoff_comm_rank(const zoff_comm *comm);

/** Return the number of ranks.
 *  @threads any */
ZOFF_API unsigned zoff_comm_size(const zoff_comm *comm);

/** Read facts and counters of a communicator. */
ZOFF_API zoff_status zoff_comm_get_info(const zoff_comm *comm, zoff_comm_info *out);

#ifdef __cplusplus
}
#endif
#endif
