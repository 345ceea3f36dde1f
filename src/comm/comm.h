/* comm.h: the door of the comm room, and the table that a communicator fills. Everything asynchronous has one shape: start,
 * then poll for OK, PENDING or an error. Back-ends stand in one list in comm.c. */
#ifndef ZOFF_COMM_DOOR_H
#define ZOFF_COMM_DOOR_H

#include <zoff/comm.h>

typedef enum zoff_comm_kind {
    ZOFF_COMM_EXCHANGE,  /* all_to_all: a piece for each rank, and one from each */
    ZOFF_COMM_GATHER,    /* all_gather: a piece of each rank, to all */
    ZOFF_COMM_SUM,       /* all_reduce of doubles */
    ZOFF_COMM_BROADCAST, /* from one to all */
    ZOFF_COMM_BARRIER
} zoff_comm_kind;

/* All ranks start the operations of one stream of one channel in the same order. Streams and channels know nothing of one
 * another: operations of two of them start in any order, which may differ by rank. */
typedef enum zoff_comm_stream {
    ZOFF_COMM_STEP,    /* votes, and weights after an update */
    ZOFF_COMM_REDUCE,  /* gradients */
    ZOFF_COMM_WEIGHTS, /* weights that somebody uses */
    ZOFF_COMM_STREAMS  /* how many there are */
} zoff_comm_stream;

/* What an operation is about. Ranks compare all fields; an error says them in words (names.c). */
typedef enum zoff_comm_about {
    ZOFF_COMM_ABOUT_NOTHING,
    ZOFF_COMM_ABOUT_CHANNEL,       /* a channel that is opened */
    ZOFF_COMM_ABOUT_AGREEMENT,     /* values that all ranks compare */
    ZOFF_COMM_ABOUT_FIRST_WEIGHTS, /* index: bucket */
    ZOFF_COMM_ABOUT_GRADIENTS,     /* index: bucket */
    ZOFF_COMM_ABOUT_BATCH,         /* the weight of each rank's micro-batch */
    ZOFF_COMM_ABOUT_ORDER,         /* of the buckets */
    ZOFF_COMM_ABOUT_PRESENCE,      /* slices with a gradient */
    ZOFF_COMM_ABOUT_VOTE,          /* norm and skip */
    ZOFF_COMM_ABOUT_COMMIT,
    ZOFF_COMM_ABOUT_WEIGHTS, /* index: bucket */
    ZOFF_COMM_ABOUT_SUMS,    /* index: bucket */
    ZOFF_COMM_ABOUT_SLICE,   /* param; index: slice; extra: bucket, or ZOFF_COMM_ALL */
    ZOFF_COMM_ABOUT_MASTER,  /* param; index: first element; extra: how many */
    ZOFF_COMM_ABOUT_M,       /* likewise, and so are the next two */
    ZOFF_COMM_ABOUT_V,
    ZOFF_COMM_ABOUT_ELEMENTS,
    ZOFF_COMM_ABOUTS /* how many there are */
} zoff_comm_about;

#define ZOFF_COMM_ALL UINT64_MAX

typedef struct zoff_comm_item {
    uint32_t about; /* zoff_comm_about */
    uint32_t param;
    uint64_t index, extra;
} zoff_comm_item;

/* The operations of one user of a communicator: an engine. Zeroed at first; the user keeps the struct. */
typedef struct zoff_comm_channel zoff_comm_channel;
struct zoff_comm_channel {
    uint32_t id;   /* the same on all ranks, and given out once; 0: the communicator's own channel */
    uint32_t slot; /* the same on all ranks; a later channel may get it again */
    bool is_open;
    uint64_t started[ZOFF_COMM_STREAMS];                        /* operations so far */
    uint64_t sent_bytes, received_bytes;                        /* by those that are done */
    uint64_t hash;                                              /* of what the user is: its parameters */
    char name[64];                                              /* for messages: its first parameter */
    uint64_t birth;                                             /* its place among those that have come */
    const char *(*param_name)(const void *ctx, uint32_t param); /* NULL, or NULL as result: it is not known */
    const void *ctx;
    void *port; /* of the back-end */
    zoff_comm_channel *next;
};

/* One operation, which every rank of the group starts. What is named here belongs to the operation until it is done: nobody
 * writes `in`, nobody looks at `out`. */
typedef struct zoff_comm_call {
    zoff_comm_kind kind;
    zoff_comm_stream stream;
    zoff_comm_channel *channel; /* NULL: the communicator's own */
    zoff_comm_item item;
    const void *in;              /* EXCHANGE: pieces for rank 0, 1, ..., one after the other. GATHER: this rank's piece */
    void *out;                   /* EXCHANGE, GATHER: pieces of rank 0, 1, ...; SUM, BROADCAST: in place */
    const size_t *send_bytes;    /* EXCHANGE: of each piece of `in` */
    const size_t *receive_bytes; /* EXCHANGE, GATHER: of each piece of `out`; GATHER: own rank's is that of `in`, too */
    size_t count;                /* SUM: doubles; BROADCAST: bytes */
    unsigned root;               /* BROADCAST: from whom */
    /* EXCHANGE, where zoff_comm.adds: pieces are fp32, all of one length, and are added up on the way, in whatever order; `out`
     * is one piece, the sum of those for this rank. `receive_bytes` is not looked at. */
    bool adds;
} zoff_comm_call;

/* One operation in flight. The caller keeps the struct, zeroed at first, until poll says that it is done. */
typedef struct zoff_comm_work {
    bool active;
    zoff_status outcome; /* of the last one: OK, or the error that poll gives from then on */
    zoff_comm_call call;
    uint64_t number;     /* of the operation in its stream of its channel, from 1 */
    size_t result_bytes; /* zoff_comm_call_result(), which costs a walk over the ranks */
    double seen, waited; /* when it was polled last; for how long it was polled in vain */
    bool arrived;        /* of back-ends: every rank has started it */
    bool taken;          /* this rank has what it gets */
    void *scratch;       /* from zoff_base_mem_alloc(); freed by call.c */
} zoff_comm_work;

/* A call of the program that waits for other ranks. Each rank numbers those that succeed, over all channels: call number n must
 * be the same call, for the same channel and item, on every rank. A failed call gives its number to the next one: its retry. */
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
    ZOFF_COMM_IN_CALLS,         /* how many there are, and one */
    ZOFF_COMM_IN_STEP = 0x100,  /* flag: as part of zoff_step(); not compared */
    ZOFF_COMM_IN_RETRY = 0x200, /* flag: again, by zoff_step_retry(); not compared */
} zoff_comm_visit_call;

typedef struct zoff_comm_visit {
    uint64_t number; /* from 1; 0: none */
    uint32_t channel, call;
    zoff_comm_item item;
    uint64_t before; /* checksum of all calls before it */
    uint64_t failed; /* and of these and the first call that failed here under this number, and so did not count; 0: none */
} zoff_comm_visit;

/* What a rank tells at a time: the call in which it waits is the last one, and those before it are of the numbers before. */
enum { ZOFF_COMM_VISITS_TOLD = 8 };

/* What a back-end implements. No slot is NULL. */
typedef struct zoff_comm_ops {
    const char *name;
    void (*close)(zoff_comm *comm);
    zoff_status (*start)(zoff_comm *comm, zoff_comm_work *work);
    zoff_status (*poll)(zoff_comm *comm, zoff_comm_work *work);
    /* For messages: whether a rank has started it; or, where all have, whether it has done its part. */
    bool (*has_arrived)(zoff_comm *comm, const zoff_comm_work *work, unsigned rank);
    /* Make room for a channel; then, once its id is agreed, begin to listen to it; and in the end, when nothing of it is in
     * flight any more, tell the others and free it. A channel that was not joined is closed, too. */
    zoff_status (*open_channel)(zoff_comm *comm, zoff_comm_channel *channel);
    void (*join_channel)(zoff_comm *comm, zoff_comm_channel *channel);
    void (*close_channel)(zoff_comm *comm, zoff_comm_channel *channel);
    /* Tell all others in which call the program waits, without waiting. What others tell goes to zoff_comm_heard(). */
    zoff_status (*tell)(zoff_comm *comm, const zoff_comm_visit *visits, unsigned count);
    /* Give up: nothing of it will go on, and other ranks are told where that is possible. When it returns, nobody uses the
     * memory of operations in flight any more, but where zoff_comm_lets_go() says so. */
    void (*give_up)(zoff_comm *comm, const char *words);
} zoff_comm_ops;

/* The first member of every back-end's own struct. */
struct zoff_comm {
    const zoff_comm_ops *ops;
    unsigned rank, size;
    double timeout_seconds;      /* negative: none */
    zoff_comm_channel common;    /* its own channel: for opening others */
    struct zoff_comm_book *book; /* channels, calls and the lock */
    zoff_comm_info info;
    bool is_broken;
    bool one_thread;     /* only the program's own threads may use it */
    bool is_remote;      /* other ranks are other processes, which end side by side with this one */
    bool holds_memory;   /* see zoff_comm_lets_go() */
    const char *reaches; /* not NULL: what a call names may be memory of this rank's accelerator of that name */
    int device;          /* and of this number */
    bool adds;           /* it can add up in that memory: zoff_comm_call.adds */
    bool has_slots;      /* a channel must have a slot, and there are ZOFF_COMM_SLOTS */
    const char *blind;   /* not NULL: has_arrived() tells nothing, for the back-end cannot know; these words say so */
    char words[1024];    /* why it is broken */
};

enum {
    ZOFF_COMM_TIMEOUT_SECONDS = 600, /* where the caller has said nothing */
    ZOFF_COMM_SLOTS = 64             /* slot 0 is that of the communicator's own channel */
};

/* ---- the back-ends ---- */

zoff_status zoff_comm_self_open(const zoff_comm_opts *opts, zoff_comm **out);
/* All ranks of a group at a time. */
zoff_status zoff_comm_threads_open(const zoff_comm_opts *opts, unsigned size, zoff_comm **out);
/* On success the communicator closes the transport. */
zoff_status zoff_comm_messages_open(const zoff_comm_opts *opts, const zoff_comm_transport *transport, zoff_comm **out);
/* What the plug-in for MPI connects to. */
zoff_status zoff_comm_plugins_mpi(const zoff_comm_opts *opts, zoff_comm **out);
/* Load the plug-in for MPI, without joining anybody.  @return ERR_UNSUPPORTED with the reason why it does not load */
zoff_status zoff_comm_plugins_mpi_find(void);
/* The ranks and the place to meet that the launcher's variables tell. */
zoff_status zoff_comm_nccl_open(const zoff_comm_opts *opts, zoff_comm **out);
/* Whether the plug-in for NCCL can be loaded: OK, or why not. */
zoff_status zoff_comm_nccl_find(void);
/* Describe NCCL and its devices.  @return ERR_UNSUPPORTED with the reason why ranks cannot use it here */
zoff_status zoff_comm_nccl_probe(char *out, size_t bytes);
/* What the launcher of this process means by its variables: "self", "mpi" or "nccl"; the error says what it lacks for each.
 * `mpi_is_up`: as zoff_comm_discover_mpi() tells. */
zoff_status zoff_comm_discover(bool mpi_is_up, const char **out);
/* Whether this program has initialised an MPI of its own. */
bool zoff_comm_discover_mpi(void);

/* ---- opts.c ---- */

/* Copy the program's options into `out`, with defaults for what they leave open. `opts` may be NULL; `call` names the public
 * function in messages.  @return ERR_INVALID for a struct_size of 0 or a timeout that is no number */
zoff_status zoff_comm_opts_take(const zoff_comm_opts *opts, const char *call, zoff_comm_opts *out);

/* ---- book.c: what a communicator remembers, and its lock ---- */

/* What all communicators have, once rank and size are known; and after the back-end's close. NULL is allowed. */
zoff_status zoff_comm_prepare(zoff_comm *comm);
void zoff_comm_forget(struct zoff_comm_book *book);

/* Any thread may call what is below and in call.c, also while others do: each call holds the communicator's lock. */
void zoff_comm_lock(zoff_comm *comm);
void zoff_comm_unlock(zoff_comm *comm);

/* With the lock: the one that is open with this id; or NULL. */
const zoff_comm_channel *zoff_comm_channel_find(const zoff_comm *comm, uint32_t id);

/* ---- channels.c: who uses a communicator ---- */

/* A user has come, on this rank alone: its place among those that have no channel yet is compared when it opens one. Nothing to
 * undo but zoff_comm_channel_leave(). */
void zoff_comm_channel_come(zoff_comm *comm, zoff_comm_channel *channel);
void zoff_comm_channel_leave(zoff_comm *comm, zoff_comm_channel *channel);
/* All ranks open a channel for the same user. Its name, hash, param_name and ctx are set. Users with different hashes must be
 * different in their order of coming, too, or the caller compares them: a wrong list of parameters has an error of its own.
 * @blocks until all have come  @return ERR_COMM that names two users where ranks differ; then nothing is open */
zoff_status zoff_comm_channel_open(zoff_comm *comm, zoff_comm_channel *channel);
/* Nothing of it is in flight any more. It can be opened again. */
void zoff_comm_channel_close(zoff_comm *comm, zoff_comm_channel *channel);
/* Whether other channels are open, too. */
bool zoff_comm_channel_is_shared(zoff_comm *comm);

/* ---- visits.c: in which call the program waits ---- */

/* The program is in such a call; calls inside of it do not count. When it takes long the other ranks are told, and what they
 * tell is compared: polls then fail with both calls named. */
void zoff_comm_enter(zoff_comm *comm, const zoff_comm_channel *channel, unsigned call, zoff_comm_item item);
void zoff_comm_exit(zoff_comm *comm, bool counts);
void zoff_comm_uncount(zoff_comm *comm); /* the last call that counted did not */
/* Of a back-end, with the lock: what another rank has told, at most ZOFF_COMM_VISITS_TOLD visits. */
void zoff_comm_heard(zoff_comm *comm, unsigned rank, const zoff_comm_visit *visits, unsigned count);
/* With the lock: the call in which the program is, behind those before it, at most `most`.  @return how many; 0: in none */
unsigned zoff_comm_get_visits(const zoff_comm *comm, zoff_comm_visit *out, unsigned most);
/* With the lock, of an operation that waits: tell and compare.  @return ERR_COMM where two ranks are in different calls */
zoff_status zoff_comm_watch(zoff_comm *comm, double now);
bool zoff_comm_is_broken(zoff_comm *comm);
/* What a rank has told last, as "; rank 1 waits in zoff_step_wait() of engine 2"; "" when it has told nothing new. */
void zoff_comm_describe_visit_of(const zoff_comm *comm, unsigned rank, char *dst, size_t dst_bytes);

/* ---- names.c: in words ---- */

const char *zoff_comm_names_kind(zoff_comm_kind kind, bool adds);
/* `engine 2 ("critic")`, by its id; with the name where this rank has such a channel. */
void zoff_comm_names_channel(const zoff_comm *comm, uint32_t id, char *dst, size_t dst_bytes);
/* "slice 0 of layer.w", "" for nothing. */
void zoff_comm_names_item(const zoff_comm *comm, uint32_t channel, const zoff_comm_item *item, char *dst, size_t dst_bytes);
/* "zoff_param_fetch() of slice 0 of layer.w of engine 2" */
void zoff_comm_names_visit(const zoff_comm *comm, const zoff_comm_visit *visit, char *dst, size_t dst_bytes);

/* ---- call.c: what all back-ends share of an operation ---- */

/* All operations in flight go on when one of them is polled. When a rank fails, another may have had what it asked for just
 * before: the same operation can be done on one rank and an error on another.
 *
 * A rank that does not come within the communicator's timeout, leaves, or calls something else is an error that names it, on
 * every other rank; from then on the communicator is broken, and every call says why. */
zoff_status zoff_comm_start(zoff_comm *comm, const zoff_comm_call *call, zoff_comm_work *work);
zoff_status zoff_comm_poll(zoff_comm *comm, zoff_comm_work *work);
/* Poll until it is done.  @blocks until then, or until the timeout */
zoff_status zoff_comm_wait(zoff_comm *comm, zoff_comm_work *work);

/* Whoever started it goes away, and its memory with it: what is in flight is given up, and so is the communicator. Nothing to
 * do where it is done. */
void zoff_comm_abandon(zoff_comm *comm, zoff_comm_work *work);

/* inout[i] becomes the sum over the ranks, added up in rank order: the same bits on every rank. */
zoff_status zoff_comm_sum_scalars(zoff_comm *comm, double *inout, size_t count, zoff_comm_work *work);

/* "all_gather number 7 of the gradients (4096 bytes)", in a buffer of this thread */
const char *zoff_comm_call_name(const zoff_comm *comm, const zoff_comm_work *work);

/* Whether nobody uses memory of operations any more that have failed. A back-end over messages cannot always take back what it
 * has handed to the network for a rank that then stopped: such memory must outlive the process' use of that network, so the
 * caller leaks it rather than free it. */
bool zoff_comm_lets_go(zoff_comm *comm);

/* Bytes that the call of rank `from` has for rank `to`; those that the call of rank `to` expects of rank `from`, also where
 * they only come as part of a sum. */
size_t zoff_comm_call_sends(const zoff_comm_call *call, unsigned from, unsigned to);
size_t zoff_comm_call_expects(const zoff_comm_call *call, unsigned from, unsigned to);
/* Bytes of the result. */
size_t zoff_comm_call_result(const zoff_comm *comm, const zoff_comm_call *call);

/* What a rank knows of the call of another under the same number of the same channel and stream. */
typedef struct zoff_comm_theirs {
    zoff_comm_kind kind;
    bool adds;
    unsigned root;
    zoff_comm_item item;
    size_t count, result_bytes;
    size_t sends, expects; /* for this rank, and of this rank */
} zoff_comm_theirs;

/* What another rank has for this one must be what this one expects, and the other way round. */
zoff_status zoff_comm_call_compare(const zoff_comm *comm, const zoff_comm_work *work, unsigned other,
                                   const zoff_comm_theirs *theirs);

/* ---- a back-end that is a plug-in, and links nothing of this ---- */

/* What it has of call.c. */
typedef struct zoff_comm_tools {
    const char *(*name)(const zoff_comm *comm, const zoff_comm_work *work);
    size_t (*sends)(const zoff_comm_call *call, unsigned from, unsigned to);
    size_t (*expects)(const zoff_comm_call *call, unsigned from, unsigned to);
    zoff_status (*compare)(const zoff_comm *comm, const zoff_comm_work *work, unsigned other, const zoff_comm_theirs *theirs);
    const char *(*last_error)(void);
    void (*heard)(zoff_comm *comm, unsigned rank, const zoff_comm_visit *visits, unsigned count);
    unsigned (*visits)(const zoff_comm *comm, zoff_comm_visit *out, unsigned most);
} zoff_comm_tools;

/* What zoff_plugin.open_comm gets; all of it stays until that returns, the tools for ever. */
typedef struct zoff_comm_join zoff_comm_join;
struct zoff_comm_join {
    const zoff_comm_tools *tools;
    zoff_nccl_opts opts;  /* whole, with the timeout that holds */
    const char *meet_at;  /* neither a communicator nor a broadcast in opts: "host:port", where rank 0 listens; or NULL, where
                             NCCL_COMM_ID is set already */
    bool device_is_count; /* opts.device counts ranks of this host, which may see fewer devices */
};

#endif
