/* SPDX-License-Identifier: Apache-2.0 */
/* comm.h: the internal interface of src/comm, and the function table that each back-end implements. Every asynchronous
 * operation is started once, then polled until it returns OK or an error instead of PENDING. comm.c lists the back-ends. */
#ifndef ZOFF_COMM_DOOR_H
#define ZOFF_COMM_DOOR_H

#include "env.h"

#include <zoff/comm.h>

typedef enum zoff_comm_kind {
    ZOFF_COMM_EXCHANGE,  /* all_to_all: send one piece to each rank, receive one from each */
    ZOFF_COMM_GATHER,    /* all_gather: every rank receives every rank's piece */
    ZOFF_COMM_SUM,       /* all_reduce of doubles */
    ZOFF_COMM_BROADCAST, /* from the root to all */
    ZOFF_COMM_BARRIER
} zoff_comm_kind;

/* All ranks must start the operations of one stream of one channel in the same order. Different streams or channels are
 * independent, so each rank may interleave their operations as it likes. */
typedef enum zoff_comm_stream {
    ZOFF_COMM_STEP,    /* decisions of a step, and weights after an update */
    ZOFF_COMM_REDUCE,  /* gradients */
    ZOFF_COMM_WEIGHTS, /* weights fetched for use */
    /* Streams of groups of ranks, for EXCHANGE and GATHER. Each numbers for itself, so groups may drift: */
    ZOFF_COMM_GROUP,       /* weights, among the ranks of zoff_comm_open_groups() */
    ZOFF_COMM_REDUCE_NODE, /* gradients, among the ranks of a node */
    ZOFF_COMM_REDUCE_RAIL, /* gradients, among the ranks with one place in their nodes */
    ZOFF_COMM_STEP_NODE,   /* as ZOFF_COMM_STEP */
    ZOFF_COMM_STEP_RAIL,
    ZOFF_COMM_STREAMS /* number of streams */
} zoff_comm_stream;

/* The subject of an operation. Ranks compare the whole zoff_comm_item; errors describe it in words (names.c). The comments name
 * the fields that the subject uses. */
typedef enum zoff_comm_about {
    ZOFF_COMM_ABOUT_NOTHING,
    ZOFF_COMM_ABOUT_CHANNEL,       /* opening a channel */
    ZOFF_COMM_ABOUT_AGREEMENT,     /* values that must be equal on all ranks */
    ZOFF_COMM_ABOUT_FIRST_WEIGHTS, /* index: batch */
    ZOFF_COMM_ABOUT_GRADIENTS,     /* index: bucket */
    ZOFF_COMM_ABOUT_BATCH,         /* the weight of each rank's micro-batch */
    ZOFF_COMM_ABOUT_ORDER,         /* the exchange order of the buckets */
    ZOFF_COMM_ABOUT_PARTICIPATION, /* which slices have a gradient */
    ZOFF_COMM_ABOUT_VOTE,          /* gradient norm, and whether to skip the step */
    ZOFF_COMM_ABOUT_COMMIT,
    ZOFF_COMM_ABOUT_WEIGHTS,   /* index: bucket */
    ZOFF_COMM_ABOUT_SUMS,      /* index: bucket */
    ZOFF_COMM_ABOUT_SECONDARY, /* index: bucket */
    ZOFF_COMM_ABOUT_HOSTS,
    ZOFF_COMM_ABOUT_SLICE,  /* fields: param; index: slice; extra: bucket, or ZOFF_COMM_ALL */
    ZOFF_COMM_ABOUT_MASTER, /* fields: param; index: first element; extra: count */
    ZOFF_COMM_ABOUT_M,      /* M and the next two use the fields of MASTER */
    ZOFF_COMM_ABOUT_V,
    ZOFF_COMM_ABOUT_ELEMENTS,
    ZOFF_COMM_ABOUT_MATRICES, /* index: twice the number of the round, plus 1 for the way back */
    ZOFF_COMM_ABOUTS          /* number of subjects */
} zoff_comm_about;

#define ZOFF_COMM_ALL UINT64_MAX

typedef struct zoff_comm_item {
    uint32_t about; /* zoff_comm_about */
    uint32_t param;
    uint64_t index, extra;
} zoff_comm_item;

/* The operations of one engine on a communicator. The engine owns the struct and zeroes it before first use. */
typedef struct zoff_comm_channel zoff_comm_channel;
struct zoff_comm_channel {
    uint32_t id;   /* id, the same on all ranks and never reused; 0: the communicator's own channel */
    uint32_t slot; /* slot, the same on all ranks; reused after the channel is closed */
    bool is_open;
    uint64_t started[ZOFF_COMM_STREAMS];                        /* operations started so far */
    uint64_t sent_bytes, received_bytes;                        /* bytes of completed operations */
    uint64_t hash;                                              /* hash of the engine's parameters */
    char name[64];                                              /* for messages: name of the engine's first parameter */
    uint64_t birth;                                             /* order of registration; 0: not registered */
    const char *(*param_name)(const void *ctx, uint32_t param); /* may be NULL; returns NULL for a name that is unknown */
    const void *ctx;
    void *port; /* data of the back-end */
    zoff_comm_channel *next;
};

/* One operation, which every rank of the communicator or of a group starts. Its members are all ranks, or those of the group.
 * Pieces and their sizes have an entry for each member, in order of rank. Until it completes, the caller must not write to `in`
 * and must not access `out`. */
typedef struct zoff_comm_call {
    zoff_comm_kind kind;
    zoff_comm_stream stream;
    zoff_comm_channel *channel; /* channel of the operation; NULL: the communicator's own */
    zoff_comm_item item;
    const void *in;           /* EXCHANGE: packed pieces for member 0, 1, ... GATHER: this rank's piece */
    void *out;                /* EXCHANGE, GATHER: packed pieces from member 0, 1, ...; SUM, BROADCAST: input and result */
    const size_t *send_bytes; /* EXCHANGE: size of each piece in `in` */
    /* EXCHANGE, GATHER: size of each piece in `out`. GATHER: `in` is as long as this rank's. NULL: `count` each. */
    const size_t *receive_bytes;
    size_t count;  /* SUM: doubles; BROADCAST: bytes; GATHER without receive_bytes: bytes of each member */
    unsigned root; /* BROADCAST: the sending rank. zoff_comm_ops.tell, in a group: the rank, plus 1, that this one waits for */
    /* On a stream of groups: the ranks first, first + stride, ... are the members. zoff_comm_call_group() sets them. Other
     * ranks neither start the operation nor learn of it. 0 members: all ranks. A stride of 0 is 1. */
    unsigned first, stride, members;
    /* EXCHANGE only, and only if zoff_comm.adds: the back-end adds the pieces up (a reduce-scatter), in no fixed order. All
     * pieces are fp32 and of one length. `out` is one piece: the sum of the pieces sent to this rank. `receive_bytes` is not
     * read. */
    bool adds;
} zoff_comm_call;

/* One operation in flight. The caller owns the struct, zeroes it before first use, and keeps it until poll returns OK or an
 * error. */
typedef struct zoff_comm_work {
    bool active;
    zoff_status outcome; /* result of the last operation; polling again returns it */
    zoff_comm_call call;
    uint64_t number;      /* sequence number in its stream of its channel, from 1 */
    size_t result_bytes;  /* cached zoff_comm_call_result(), which loops over all ranks */
    double seen, waited;  /* seconds: time of the last poll; waiting time counted so far, see has_expired() */
    uint64_t works_heard; /* messages of zoff_comm_works() that other ranks had sent until the last poll */
    bool is_told;         /* this rank has told which rank it waits for */
    bool arrived;         /* set by the back-end: every rank has started the operation */
    bool taken;           /* set by the back-end when this rank has copied its result */
    void *scratch;        /* from zoff_base_mem_alloc(); freed by call.c */
} zoff_comm_work;

/* The public calls that wait for other ranks. Each rank numbers its successful calls, over all channels. Call number n must be
 * the same call, for the same channel and item, on every rank. A failed call passes its number on to the next call, usually its
 * retry. */
typedef enum zoff_comm_visit_call {
    ZOFF_COMM_IN_SEAL = 1,
    ZOFF_COMM_IN_STEP_BEGIN,
    ZOFF_COMM_IN_STEP_WAIT,
    ZOFF_COMM_IN_FETCH,
    ZOFF_COMM_IN_PARAM_READ,
    ZOFF_COMM_IN_STATE_READ,
    ZOFF_COMM_IN_PARAM_WRITE,
    ZOFF_COMM_IN_STATE_WRITE,
    ZOFF_COMM_IN_PUSH,
    ZOFF_COMM_IN_PULL,
    ZOFF_COMM_IN_DROP,
    ZOFF_COMM_IN_COUNT_SET,
    ZOFF_COMM_IN_STATE_FLUSH,
    ZOFF_COMM_IN_SAVE,
    ZOFF_COMM_IN_SAVE_POLL,
    ZOFF_COMM_IN_LOAD,
    ZOFF_COMM_IN_PERSIST_DATA,
    ZOFF_COMM_IN_CALLS,         /* number of calls, plus one */
    ZOFF_COMM_IN_STEP = 0x100,  /* flag: inside zoff_step(); not compared */
    ZOFF_COMM_IN_RETRY = 0x200, /* flag: inside zoff_step_retry(); not compared */
    ZOFF_COMM_IN_OPEN = 0x400,  /* flag: the call is in an open step, in which other ranks may fetch weights already */
} zoff_comm_visit_call;

typedef struct zoff_comm_visit {
    uint64_t number; /* number of the call, from 1; 0: no call */
    uint32_t channel, call;
    zoff_comm_item item;
    uint64_t before; /* checksum over all earlier calls */
    uint64_t failed; /* checksum as `before`, extended by the first call that failed under this number; 0: none failed */
} zoff_comm_visit;

/* A rank reports at most so many calls in one message, with consecutive numbers. The last one is the call in which it waits. */
enum { ZOFF_COMM_VISITS_TOLD = 8 };

/* The functions of a back-end. None is NULL. */
typedef struct zoff_comm_ops {
    void (*close)(zoff_comm *comm);
    zoff_status (*start)(zoff_comm *comm, zoff_comm_work *work);
    zoff_status (*poll)(zoff_comm *comm, zoff_comm_work *work);
    /* For error messages. Before work->arrived: whether `rank` has started the operation. After it: whether `rank` has finished
     * its part. */
    bool (*has_arrived)(zoff_comm *comm, const zoff_comm_work *work, unsigned rank);
    /* open_channel allocates the back-end's data. join_channel begins to receive, once all ranks have agreed on the id.
     * close_channel tells the other ranks and frees the data; no operation of the channel may be in flight. A channel that was
     * opened but not joined must be closed as well. */
    zoff_status (*open_channel)(zoff_comm *comm, zoff_comm_channel *channel);
    void (*join_channel)(zoff_comm *comm, zoff_comm_channel *channel);
    void (*close_channel)(zoff_comm *comm, zoff_comm_channel *channel);
    /* With the lock: prepare for groups of `members` consecutive ranks, which divide the number of ranks. All ranks call it,
     * with no operation of the step in flight.  @blocks for the other ranks */
    zoff_status (*open_groups)(zoff_comm *comm, unsigned members);
    /* Tell the other ranks of an operation in which call this rank waits, or with a count of 0 that it computes; does not
     * block. The back-end passes the reports of other ranks to zoff_comm_heard(). */
    zoff_status (*tell)(zoff_comm *comm, const zoff_comm_call *call, const zoff_comm_visit *visits, unsigned count);
    /* End all operations in flight for the reason in `words`, and tell the other ranks if that is possible. Afterwards the
     * memory of these operations is no longer used, unless zoff_comm_lets_go() returns false. */
    void (*give_up)(zoff_comm *comm, const char *words);
} zoff_comm_ops;

/* A communicator. Every back-end's own struct has it as first member. */
struct zoff_comm {
    const zoff_comm_ops *ops;
    unsigned rank, size;
    double timeout_seconds;      /* negative: no timeout */
    zoff_comm_channel common;    /* the communicator's own channel, on which ranks open others */
    struct zoff_comm_book *book; /* channels, calls and the lock, see book_priv.h */
    zoff_comm_info info;         /* the back-end fills `backend` */
    bool is_broken;
    bool one_thread;      /* only threads of the program may use the communicator, not the engine's progress thread */
    bool holds_memory;    /* the network may still use memory: see zoff_comm_lets_go() */
    const char *reaches;  /* accelerator whose memory `in` and `out` of a call may be; NULL: none */
    int device;           /* index of that accelerator */
    bool adds;            /* the back-end can add up device memory: zoff_comm_call.adds */
    unsigned group;       /* members of each group; 0: zoff_comm_open_groups() was not called */
    unsigned node;        /* ranks of a node; 0: zoff_comm_open_grid() was not called */
    const char *flat;     /* reason why the back-end has no operations of nodes and rails; NULL: it has */
    size_t message_bytes; /* most bytes of a message; 0: the back-end counts no messages */
    bool has_slots;       /* every channel needs one of the ZOFF_COMM_SLOTS slots */
    const char *blind;    /* text for errors that has_arrived() knows nothing about other ranks; NULL: it does */
    char words[1024];     /* reason why the communicator is broken */
};

enum {
    ZOFF_COMM_HEADER_DATA = 1936,    /* most bytes of a piece that is sent inside of a header */
    ZOFF_COMM_TIMEOUT_SECONDS = 600, /* default */
    ZOFF_COMM_SLOTS = 64             /* the communicator's own channel has slot 0 */
};

/* ---- the back-ends ---- */

/* Make the communicators of all `size` ranks at once: "threads", or one rank called "self". `name` is static, and `out` has
 * room for `size` pointers. */
zoff_status zoff_comm_threads_open(const zoff_comm_opts *opts, const char *name, unsigned size, zoff_comm **out);
/* Make a communicator that sends messages over `transport`. On success the communicator owns the transport and closes it.
 * `is_local`: it is the transport of threads.c. */
zoff_status zoff_comm_messages_open(const zoff_comm_opts *opts, const zoff_comm_transport *transport, bool is_local,
                                    zoff_comm **out);
/* Load the plug-in for MPI, without joining anybody.  @return ERR_UNSUPPORTED with the reason why it does not load */
zoff_status zoff_comm_mpi_find(void);
/* Join over UCX, as over NCCL. Load its plug-in.  @return ERR_UNSUPPORTED with the reason why it does not load */
zoff_status zoff_comm_ucx_open(const zoff_comm_opts *opts, zoff_comm **out);
zoff_status zoff_comm_ucx_find(void);
/* Join over NCCL. Rank, size and meeting address come from the launcher's environment variables. */
zoff_status zoff_comm_nccl_open(const zoff_comm_opts *opts, zoff_comm **out);
/* Describe NCCL and its devices.  @return ERR_UNSUPPORTED with the reason why ranks cannot use it here */
zoff_status zoff_comm_nccl_probe(char *out, size_t bytes);
/* Choose "self", "mpi", "nccl" or "ucx" from the environment variables of the launcher. The error says what each back-end
 * lacks. `mpi_is_up` is the result of zoff_comm_discover_mpi(). */
zoff_status zoff_comm_discover(bool mpi_is_up, const char **out);
/* Whether the program itself has initialised MPI. */
bool zoff_comm_discover_mpi(void);

/* ---- world.c ---- */

/* Whether the launcher is that of a batch system, which may have started another launcher on each host, such as the daemons of
 * mpirun. Then it counts hosts. */
bool zoff_comm_world_is_outer(zoff_env_world id);
/* The innermost launcher that has started more than this process, by its variables; COUNT: none has. */
zoff_env_world zoff_comm_world_several(zoff_env_place *out);
/* Print those of the launcher's two variables that are set: "RANK=1, WORLD_SIZE=2".  @return dst */
const char *zoff_comm_world_print(const zoff_env_place *place, char *dst, size_t dst_bytes);
/* Compare the number of ranks that have joined with the launcher's. Only 1 is compared, because launchers may be nested; 0: not
 * known.  @return ERR_UNSUPPORTED if one rank has joined and the launcher has started more */
zoff_status zoff_comm_world_check(const char *backend, size_t joined);
/* Read a number up to a million.  @return whether it is one */
bool zoff_comm_world_count(const char *text, unsigned *out);
/* For a back-end whose ranks know no more than the launcher's variables: which rank this is; and "host:port" where rank 0
 * listens, from MASTER_ADDR and MASTER_PORT. `is_next`: one port higher. */
zoff_status zoff_comm_world_place(const char *backend, unsigned *rank, unsigned *size);
zoff_status zoff_comm_world_meeting(const char *backend, bool is_next, char *dst, size_t dst_bytes);

/* ---- book.c: the records of a communicator, and its lock ---- */

/* prepare allocates the book once rank and size are known. forget frees it, after the back-end's close; NULL is allowed. */
zoff_status zoff_comm_prepare(zoff_comm *comm);
void zoff_comm_forget(struct zoff_comm_book *book);

/* Any thread may call the functions below, and those of call.c, at any time: each takes the communicator's lock. "With the
 * lock" marks functions whose caller must hold it already. */
void zoff_comm_lock(zoff_comm *comm);
void zoff_comm_unlock(zoff_comm *comm);

/* With the lock: the open channel with this id, or NULL. */
const zoff_comm_channel *zoff_comm_channel_find(const zoff_comm *comm, uint32_t id);

/* ---- channels.c: the engines that use a communicator ---- */

/* Register an engine, and unregister it. Both are local to this rank. Ranks compare the order of registration when they open
 * the channel. */
void zoff_comm_channel_come(zoff_comm *comm, zoff_comm_channel *channel);
void zoff_comm_channel_leave(zoff_comm *comm, zoff_comm_channel *channel);
/* Open a channel for the same engine on all ranks. The caller has set name, hash, param_name and ctx. Different hashes are an
 * error only if the order of registration differs, too: then ranks open different engines. Otherwise the caller must compare
 * the parameters itself, because it can name the one that differs.
 * @blocks until all ranks have come  @return ERR_COMM that names two engines if ranks differ; then nothing is open */
zoff_status zoff_comm_channel_open(zoff_comm *comm, zoff_comm_channel *channel);
/* Close a channel that has no operation in flight. It can be opened again. */
void zoff_comm_channel_close(zoff_comm *comm, zoff_comm_channel *channel);
/* Whether more than one channel is open. */
bool zoff_comm_channel_is_shared(zoff_comm *comm);

/* ---- visits.c: in which call the program waits ---- */

/* Mark the begin and the end of a zoff_comm_visit_call; nested calls are not counted. A rank that waits long in one tells the
 * other ranks. If their calls differ from its own, its polls fail with an error that names both calls. `counts`: the call
 * succeeded and uses up its number. */
void zoff_comm_enter(zoff_comm *comm, const zoff_comm_channel *channel, unsigned call, zoff_comm_item item);
void zoff_comm_exit(zoff_comm *comm, bool counts);
void zoff_comm_uncount(zoff_comm *comm); /* take back the number of the last counted call */
/* Called by a back-end, with the lock: store a report of another rank, at most ZOFF_COMM_VISITS_TOLD visits. Without any the
 * rank computes. */
void zoff_comm_heard(zoff_comm *comm, unsigned rank, const zoff_comm_visit *visits, unsigned count);
/* With the lock: write the current call and the calls before it, oldest first, at most `most`.  @return number written; 0: the
 * program is in no such call */
unsigned zoff_comm_get_visits(const zoff_comm *comm, zoff_comm_visit *out, unsigned most);
/* With the lock, while an operation waits: tell the ranks that take part in it about the current call, and compare reports.
 * @return ERR_COMM if two ranks are in different calls */
zoff_status zoff_comm_watch(zoff_comm *comm, const zoff_comm_call *call, double now);
/* Called again and again by a rank that computes what others wait for, such as a large matrix: it tells them a few times in
 * each timeout, and their waits begin anew. */
void zoff_comm_works(zoff_comm *comm);
bool zoff_comm_is_broken(zoff_comm *comm);
/* With the lock: the rank that keeps a rank from starting an operation, by its last report; else the rank itself. */
unsigned zoff_comm_waits_for(const zoff_comm *comm, unsigned rank);
/* With the lock: whether a rank has reported that it waits in the same call as this rank. */
bool zoff_comm_waits_too(const zoff_comm *comm, unsigned rank);
/* The last report of a rank, as "; rank 1 waits in zoff_step_wait() of engine 2"; "" if there is no new report. */
void zoff_comm_describe_visit_of(const zoff_comm *comm, unsigned rank, char *dst, size_t dst_bytes);

/* ---- names.c: texts for error messages ---- */

const char *zoff_comm_names_kind(zoff_comm_kind kind, bool adds);
/* Describe a channel: `engine 2 ("critic")`, or `engine 2` if this rank has no channel with this id. */
void zoff_comm_names_channel(const zoff_comm *comm, uint32_t id, char *dst, size_t dst_bytes);
/* Describe an item: "slice 0 of layer.w"; "" for ZOFF_COMM_ABOUT_NOTHING. */
void zoff_comm_names_item(const zoff_comm *comm, uint32_t channel, const zoff_comm_item *item, char *dst, size_t dst_bytes);
/* Describe a call of the program: "zoff_param_fetch() of engine 2 for slice 0 of layer.w". */
void zoff_comm_names_visit(const zoff_comm *comm, const zoff_comm_visit *visit, char *dst, size_t dst_bytes);

/* ---- call.c: operations, for all back-ends ---- */

/* Polling one operation advances all operations in flight. When a rank fails, the same operation may have completed on one rank
 * and fail on another.
 *
 * A rank can miss the communicator's timeout, leave, or call something else. Every other rank then gets an error that names
 * this rank. From then on the communicator is broken, and every call returns the reason. */
zoff_status zoff_comm_start(zoff_comm *comm, const zoff_comm_call *call, zoff_comm_work *work);
zoff_status zoff_comm_poll(zoff_comm *comm, zoff_comm_work *work);
/* Poll until the operation completes.  @blocks until it does, or until the timeout */
zoff_status zoff_comm_wait(zoff_comm *comm, zoff_comm_work *work);

/* End an operation because its caller is about to free the memory. An operation in flight breaks the communicator; a completed
 * one changes nothing. */
void zoff_comm_abandon(zoff_comm *comm, zoff_comm_work *work);

/* Start a sum: inout[i] becomes the sum over all ranks, added in rank order, so every rank gets the same bits. */
zoff_status zoff_comm_sum_scalars(zoff_comm *comm, double *inout, size_t count, zoff_comm_work *work);

/* Describe an operation: "all_gather number 7 of the gradients (4096 bytes)". The text is in a thread-local buffer, valid until
 * the thread's next call. */
const char *zoff_comm_call_name(const zoff_comm *comm, const zoff_comm_work *work);

/* Whether the caller may free the memory of failed operations. The network cannot always cancel a transfer to a rank that has
 * stopped. The memory must then outlive the network, so the caller leaks it. */
bool zoff_comm_lets_go(zoff_comm *comm);

/* zoff_comm_call_sends(): bytes that rank `from` sends to rank `to`, by the call of rank `from`. zoff_comm_call_expects():
 * bytes that rank `to` expects from rank `from`, by the call of rank `to`. Bytes that arrive only as part of a sum count as
 * well. */
size_t zoff_comm_call_sends(const zoff_comm_call *call, unsigned from, unsigned to);
size_t zoff_comm_call_expects(const zoff_comm_call *call, unsigned from, unsigned to);
/* Whether a rank takes part. */
bool zoff_comm_call_has(const zoff_comm_call *call, unsigned rank);
/* The number of ranks that take part; the rank of member i; and which member a rank is that takes part. */
unsigned zoff_comm_call_members(const zoff_comm *comm, const zoff_comm_call *call);
unsigned zoff_comm_call_member(const zoff_comm_call *call, unsigned i);
unsigned zoff_comm_call_index(const zoff_comm_call *call, unsigned rank);
/* Bytes of the result. */
size_t zoff_comm_call_result(const zoff_comm *comm, const zoff_comm_call *call);

/* Set the members of a call: the group of this rank on the call's stream. Reads rank, size, group and node of `comm` only. */
void zoff_comm_call_group(const zoff_comm *comm, zoff_comm_call *call);

/* The traffic of this rank in one call. */
typedef struct zoff_comm_traffic {
    uint64_t sent_bytes, received_bytes; /* to and from other ranks */
    uint64_t node_bytes;                 /* the part of sent_bytes to ranks of the same node; all of it if comm->node is 0 */
    uint64_t notes, messages;            /* headers that it sends, and other messages */
} zoff_comm_traffic;

/* Count it. Reads rank, size, node and message_bytes of `comm` only, so a plan may count for ranks that do not exist. */
void zoff_comm_call_traffic(const zoff_comm *comm, const zoff_comm_call *call, zoff_comm_traffic *out);
/* Count it, and add that to `sum`. */
void zoff_comm_call_add_traffic(const zoff_comm *comm, const zoff_comm_call *call, zoff_comm_traffic *sum);
/* The messages that carry a piece; 0: it is sent inside of the header. */
uint64_t zoff_comm_call_messages(size_t bytes, size_t message_bytes);

/* The call of another rank with the same number, channel and stream, as far as this rank knows it. */
typedef struct zoff_comm_theirs {
    zoff_comm_kind kind;
    bool adds;
    unsigned root;
    unsigned first, stride, members;
    zoff_comm_item item;
    size_t count, result_bytes;
    size_t sends, expects; /* bytes that it sends to this rank, and expects from this rank */
} zoff_comm_theirs;

/* Check that another rank makes the same call, and that the sizes match in both directions.  @return ERR_COMM that names both
 * calls */
zoff_status zoff_comm_call_compare(const zoff_comm *comm, const zoff_comm_work *work, unsigned other,
                                   const zoff_comm_theirs *theirs);

/* ---- grid.c: groups of ranks ---- */

/* Rank = node * node_ranks + place. A rail is the ranks with one place. Without both, a node has 1 rank or all of them. */
typedef struct zoff_comm_grid {
    unsigned node_ranks, nodes;
} zoff_comm_grid;

/* Parts that are packed rail by rail: the position of a rank's part; and the rank of the part at a position. With nodes of 1
 * rank both are the same. */
static inline unsigned zoff_comm_grid_position(const zoff_comm_grid *g, unsigned rank)
{
    return rank % g->node_ranks * g->nodes + rank / g->node_ranks;
}
static inline unsigned zoff_comm_grid_rank(const zoff_comm_grid *g, unsigned position)
{
    return position % g->nodes * g->node_ranks + position / g->nodes;
}

/* Let gathers take place within groups of so many consecutive ranks, on ZOFF_COMM_GROUP. Every rank calls it, before any such
 * gather, and while no engine on the communicator is in a step.
 * @blocks for other ranks  @return ERR_UNSUPPORTED: there are other groups already */
zoff_status zoff_comm_open_groups(zoff_comm *comm, unsigned members);
/* Let operations take place within nodes, and within rails. Every rank calls it with the same number of ranks of a node. 0: as
 * many as are on each host. If hosts have different numbers of ranks, or ranks that are not consecutive, nodes have 1 rank, and
 * rank 0 warns. 1: nodes have 1 rank, and hosts are compared for zoff_comm_info.node_bytes only.
 * @blocks for other ranks  @return ERR_UNSUPPORTED: there are other nodes already, or the back-end has none */
zoff_status zoff_comm_open_grid(zoff_comm *comm, unsigned node_ranks, zoff_comm_grid *out);
/* Whether there are several nodes of several ranks, so that a report goes over nodes, then over rails. */
bool zoff_comm_has_levels(const zoff_comm *comm);

/* The ranks of a node that zoff_comm_open_grid() would find, without asking other ranks; 0: not known. */
unsigned zoff_comm_known_node(const zoff_comm *comm, unsigned node_ranks);

/* ---- a back-end in a plug-in, which does not link against libzoff ---- */

/* The functions of src/comm that a plug-in may call. */
typedef struct zoff_comm_tools {
    const char *(*name)(const zoff_comm *comm, const zoff_comm_work *work);
    size_t (*sends)(const zoff_comm_call *call, unsigned from, unsigned to);
    size_t (*expects)(const zoff_comm_call *call, unsigned from, unsigned to);
    zoff_status (*compare)(const zoff_comm *comm, const zoff_comm_work *work, unsigned other, const zoff_comm_theirs *theirs);
    const char *(*last_error)(void);
    void (*heard)(zoff_comm *comm, unsigned rank, const zoff_comm_visit *visits, unsigned count);
    unsigned (*visits)(const zoff_comm *comm, zoff_comm_visit *out, unsigned most);
} zoff_comm_tools;

/* The argument of zoff_plugin_built_in.open_comm. It is valid during that call; `tools` stay valid for ever. */
typedef struct zoff_comm_join zoff_comm_join;
struct zoff_comm_join {
    const zoff_comm_tools *tools;
    zoff_nccl_opts opts;  /* full size, with defaults filled in */
    const char *meet_at;  /* if opts has neither nccl_comm nor broadcast: "host:port" where rank 0 listens, or NULL if
                             NCCL_COMM_ID is set already */
    bool device_is_count; /* opts.device is the rank's number on this host; take it modulo the number of devices */
};

#endif
