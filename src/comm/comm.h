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

/* Every operation follows those of its stream: all ranks start the operations of one stream in the same order. Streams know
 * nothing of one another, so what depends on how fast a rank is may differ between them, and only between them. */
typedef enum zoff_comm_stream {
    ZOFF_COMM_STEP,    /* votes, and weights after an update */
    ZOFF_COMM_REDUCE,  /* gradients */
    ZOFF_COMM_WEIGHTS, /* weights that somebody uses */
    ZOFF_COMM_STREAMS  /* how many there are */
} zoff_comm_stream;

/* One operation, which every rank of the group starts. What is named here belongs to the operation until it is done: nobody
 * writes `in`, nobody looks at `out`. */
typedef struct zoff_comm_call {
    zoff_comm_kind kind;
    zoff_comm_stream stream;
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
    uint64_t number;     /* of the operation in its stream, from 1 */
    double seen, waited; /* when it was polled last; for how long it was polled in vain */
    bool arrived;        /* of back-ends: every rank has started it */
    bool taken;          /* this rank has what it gets */
    void *scratch;       /* from zoff_base_mem_alloc(); freed by call.c */
} zoff_comm_work;

/* What a back-end implements. No slot is NULL. */
typedef struct zoff_comm_ops {
    const char *name;
    void (*close)(zoff_comm *comm);
    zoff_status (*start)(zoff_comm *comm, zoff_comm_work *work);
    zoff_status (*poll)(zoff_comm *comm, zoff_comm_work *work);
    /* For messages: whether a rank has started it; or, where all have, whether it has done its part. */
    bool (*has_arrived)(zoff_comm *comm, const zoff_comm_work *work, unsigned rank);
    /* Give up: nothing of it will go on, and other ranks are told where that is possible. When it returns, nobody uses the
     * memory of operations in flight any more, but where zoff_comm_lets_go() says so. */
    void (*give_up)(zoff_comm *comm, const char *words);
} zoff_comm_ops;

/* The first member of every back-end's own struct. */
struct zoff_comm {
    const zoff_comm_ops *ops;
    unsigned rank, size;
    double timeout_seconds;              /* negative: none */
    uint64_t started[ZOFF_COMM_STREAMS]; /* operations so far */
    zoff_comm_info info;
    bool is_broken;
    bool has_conductor;  /* an engine's thread uses it, under that engine's lock */
    bool one_thread;     /* only the program's own threads may use it */
    bool is_remote;      /* other ranks are other processes, which end side by side with this one */
    bool holds_memory;   /* see zoff_comm_lets_go() */
    const char *reaches; /* not NULL: what a call names may be memory of this rank's accelerator of that name */
    int device;          /* and of this number */
    bool adds;           /* it can add up in that memory: zoff_comm_call.adds */
    const char *blind;   /* not NULL: has_arrived() tells nothing, for the back-end cannot know; these words say so */
    char words[1024];    /* why it is broken */
};

enum { ZOFF_COMM_TIMEOUT_SECONDS = 600 }; /* where the caller has said nothing */

/* ---- the back-ends ---- */

zoff_status zoff_comm_self_open(const zoff_comm_opts *opts, zoff_comm **out);
/* All ranks of a group at a time. */
zoff_status zoff_comm_threads_open(const zoff_comm_opts *opts, unsigned size, zoff_comm **out);
/* On success the communicator closes the transport. */
zoff_status zoff_comm_messages_open(const zoff_comm_opts *opts, const zoff_comm_transport *transport, zoff_comm **out);
/* What the plug-in for MPI connects to. */
zoff_status zoff_comm_plugins_mpi(const zoff_comm_opts *opts, zoff_comm **out);
/* The ranks and the place to meet that the launcher's variables tell. */
zoff_status zoff_comm_nccl_open(const zoff_comm_opts *opts, zoff_comm **out);
/* Whether the plug-in for NCCL can be loaded: OK, or why not. */
zoff_status zoff_comm_nccl_find(void);
/* What the launcher of this process means by its variables: "self", "mpi" or "nccl"; the error says what it lacks for each.
 * `mpi_is_up`: as zoff_comm_discover_mpi() tells. */
zoff_status zoff_comm_discover(bool mpi_is_up, const char **out);
/* Whether this program has initialised an MPI of its own. */
bool zoff_comm_discover_mpi(void);

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
bool zoff_comm_lets_go(const zoff_comm *comm);

/* Bytes that the call of rank `from` has for rank `to`; those that the call of rank `to` expects of rank `from`, also where
 * they only come as part of a sum. */
size_t zoff_comm_call_sends(const zoff_comm_call *call, unsigned from, unsigned to);
size_t zoff_comm_call_expects(const zoff_comm_call *call, unsigned from, unsigned to);
/* Bytes of the result. */
size_t zoff_comm_call_result(const zoff_comm *comm, const zoff_comm_call *call);

/* What a rank knows of the call of another under the same number. */
typedef struct zoff_comm_theirs {
    zoff_comm_kind kind;
    bool adds;
    unsigned root;
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
    size_t (*result)(const zoff_comm *comm, const zoff_comm_call *call);
    zoff_status (*compare)(const zoff_comm *comm, const zoff_comm_work *work, unsigned other, const zoff_comm_theirs *theirs);
    const char *(*last_error)(void);
} zoff_comm_tools;

/* What zoff_plugin.open_comm gets; all of it stays until that returns, the tools for ever. */
struct zoff_comm_join {
    const zoff_comm_tools *tools;
    zoff_nccl_opts opts;  /* whole, with the timeout that holds */
    const char *meet_at;  /* neither a communicator nor a broadcast in opts: "host:port", where rank 0 listens; or NULL, where
                             NCCL_COMM_ID is set already */
    bool device_is_count; /* opts.device counts ranks of this host, which may see fewer devices */
};

#endif
