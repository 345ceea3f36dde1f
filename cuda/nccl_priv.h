/* nccl_priv.h: what the files of the plug-in for NCCL share.
 *
 *  nccl_plugin.c  the entry, and how errors get back       nccl_life.c    joining, leaving, giving up
 *  nccl_note.c    what ranks tell each other of a call     nccl_move.c    pieces, and the rounds in which they travel
 *  comm_nccl.c    the table: operations one after another  nccl_copies.c  memory of any kind to and from that of the device
 *
 * Each of zoff's streams is a lane: a communicator and a CUDA stream of its own, which all channels share. On the wire a lane
 * is strictly notes, pieces of one operation, notes, pieces of the next: NCCL knows its messages by their order alone, which so
 * is the same on all ranks however far each has come.
 *
 * Which channel's operation is next the notes decide. A note names the one that its rank has started first, and, as a mask of
 * slots, all channels of which that rank has started one. Where all ranks name the same operation its pieces follow. Where they
 * do not, notes follow again: for the lowest slot in all masks; where none is in all of them, a little later. */
#ifndef ZOFF_NCCL_PRIV_H
#define ZOFF_NCCL_PRIV_H

#include "comm.h"
#include "try.h"

#include "current.h"
#include "host.h"
#include "nccl_cut.h"
#include <nccl.h>
#include <zoff/plugin.h>

enum {
    ZOFF_NCCL_DEPTH = 64,       /* operations of a stream that are in flight at a time */
    ZOFF_NCCL_NOTE_BYTES = 664, /* on the wire */
    ZOFF_NCCL_VISITS = 2,
    ZOFF_NCCL_SMALL = 448,     /* pieces of host memory up to this size travel in notes */
    ZOFF_NCCL_BOUNCE = 2 << 20 /* for host memory that is not pinned */
};

/* What a rank tells another of its call before anything moves. The same on the wire everywhere: fixed widths. */
typedef struct zoff_nccl_note {
    uint32_t says; /* zoff_nccl_says */
    uint32_t kind, root, small_bytes;
    uint64_t number, count, result_bytes, sends, expects;
    uint64_t adds, mask;
    uint32_t channel, visit_count;
    zoff_comm_item item;
    zoff_comm_visit visits[ZOFF_NCCL_VISITS]; /* the call in which the program waits, behind the one before it */
    char small[ZOFF_NCCL_SMALL];
} zoff_nccl_note;
_Static_assert(sizeof(zoff_nccl_note) == ZOFF_NCCL_NOTE_BYTES, "a note has no holes");

typedef enum zoff_nccl_says { ZOFF_NCCL_CALLS = 0x6e6f7465, ZOFF_NCCL_LEAVES, ZOFF_NCCL_JOINS } zoff_nccl_says;

/* A piece for another rank, or of it. */
typedef struct zoff_nccl_piece {
    char *at;
    size_t bytes; /* 0: nothing, or it travels in the note */
    char *slot;   /* of the device, for a round; NULL: `at` is the device's own */
} zoff_nccl_piece;

typedef enum zoff_nccl_phase {
    ZOFF_NCCL_IDLE,    /* the next operation may begin */
    ZOFF_NCCL_TELLING, /* the notes are handed to NCCL */
    ZOFF_NCCL_TOLD,    /* they are on their way */
    ZOFF_NCCL_MOVING,  /* a round of pieces is handed to NCCL */
    ZOFF_NCCL_MOVED,   /* all rounds are on their way */
    ZOFF_NCCL_WRITING  /* a sum goes to the device that it is for */
} zoff_nccl_phase;

/* The state of one channel in one lane. */
typedef struct zoff_nccl_queue {
    uint64_t started, done; /* numbers of the last operations that are */
    struct {
        zoff_comm_work *work; /* NULL: none */
        uint64_t time;        /* by the lane's clock */
        bool is_done;
    } ops[ZOFF_NCCL_DEPTH]; /* by number */
} zoff_nccl_queue;

typedef struct zoff_nccl_lane {
    ncclComm_t nccl;
    cudaStream_t stream;
    cudaEvent_t event;
    zoff_nccl_phase phase;
    zoff_nccl_queue queues[ZOFF_COMM_SLOTS]; /* by slot of their channel */
    uint64_t clock;                          /* operations that were started, of all channels */
    uint64_t mask;      /* slots of which an operation has been started and is not done, when the last notes were written */
    uint64_t common;    /* of these slots, those that all ranks' last notes had; 0: the notes did not differ, or none */
    double retry, wait; /* none: when notes go again, and after how many seconds */

    /* of the operation that is going on */
    zoff_comm_work *work;
    bool in_is_device, out_is_device;
    bool has_copies;            /* were put into the stream that are not waited for yet */
    zoff_nccl_piece *to, *from; /* by rank */
    size_t round, rounds;
    double *rows; /* of a sum: those of rank 0, 1, ... */

    /* All that a lane ever needs. To allocate while a kernel waits for another rank may wait for that kernel, and the other
     * rank likewise. */
    zoff_nccl_note *notes; /* pinned: for rank 0, 1, ..., then of rank 0, 1, ... */
    char *wire;            /* the same on the device */
    char *slots;           /* on the device: a cut for each rank, and one of each */
    char *bounce;          /* pinned: ZOFF_NCCL_BOUNCE bytes */
} zoff_nccl_lane;

typedef struct zoff_nccl {
    zoff_comm comm;
    const zoff_comm_tools *tools;
    int device;
    int version; /* of libnccl, as NCCL_VERSION() has it */
    size_t cut;  /* bytes of a piece that travel in a round: the same on all ranks */
    zoff_nccl_lane lanes[ZOFF_COMM_STREAMS];
    bool is_over; /* nothing will go on, for the reason in `over` */
    bool is_aborted;
    bool is_promised; /* NCCL may still write the handle of a communicator into this struct */
    char over[1024];
} zoff_nccl;

static inline zoff_nccl *zoff_nccl_of(zoff_comm *comm)
{
    return (zoff_nccl *)(void *)comm;
}

/* Make the device the thread's current one.  @return the one that was, for leave */
#define ZOFF_NCCL_ENTER(n)                                                                                                     \
    const zoff_cuda_before before_ __attribute__((cleanup(zoff_cuda_current_leave), unused)) =                                 \
        zoff_cuda_current_enter((n)->device)

/* What a call has returned, as a status. NCCL's ncclInProgress is OK. */
zoff_status zoff_nccl_check_cuda(const zoff_nccl *n, cudaError_t error, const char *call);
zoff_status zoff_nccl_check(const zoff_nccl *n, ncclComm_t nccl, ncclResult_t result, const char *call);
#define ZOFF_NCCL_CUDA(n, call, ...) ZOFF_TRY(zoff_nccl_check_cuda((n), call(__VA_ARGS__), #call))
#define ZOFF_NCCL_TRY(n, nccl, call, ...) ZOFF_TRY(zoff_nccl_check((n), (nccl), call(__VA_ARGS__), #call))
/* OK: what was handed to NCCL is in the stream; PENDING: not yet; or what went wrong since. */
zoff_status zoff_nccl_look(const zoff_nccl *n, ncclComm_t nccl);
/* Behind everything that is handed to NCCL. Before 2.27 NCCL keeps what it has not put into a stream yet in variables of the
 * calling thread, and whoever calls it next there, be it the trainer with a communicator of its own, breaks them: so there it
 * is waited for. As all ranks are connected that takes no other rank, but where NCCL connects them for the first sum. */
zoff_status zoff_nccl_settle(const zoff_nccl *n, ncclComm_t nccl); /* nccl_life.c */

/* nccl_life.c */
double zoff_nccl_now(void);
zoff_status zoff_nccl_open(const zoff_comm_join *join, zoff_comm **out);
void zoff_nccl_close(zoff_comm *comm);
void zoff_nccl_give_up(zoff_comm *comm, const char *words);
extern const zoff_comm_ops zoff_nccl_ops; /* comm_nccl.c */

/* nccl_note.c */
zoff_status zoff_nccl_tell(zoff_nccl *n, zoff_nccl_lane *lane,
                           zoff_nccl_says says);                       /* puts notes of the operation into the group */
zoff_status zoff_nccl_fetch_notes(zoff_nccl *n, zoff_nccl_lane *lane); /* once they are in the stream */
/* Once they are there.  @return PENDING: they name different operations */
zoff_status zoff_nccl_hear(zoff_nccl *n, zoff_nccl_lane *lane);

/* nccl_move.c */
zoff_status zoff_nccl_lay(zoff_nccl *n, zoff_nccl_lane *lane); /* the pieces of an operation that begins */
void zoff_nccl_count_rounds(zoff_nccl *n, zoff_nccl_lane *lane);
zoff_status zoff_nccl_check_memory(zoff_nccl *n, const zoff_comm_call *call); /* before it counts as started */
zoff_status zoff_nccl_move(zoff_nccl *n, zoff_nccl_lane *lane);               /* hand over the round */
zoff_status zoff_nccl_unload(zoff_nccl *n, zoff_nccl_lane *lane);             /* once it is in the stream */
zoff_status zoff_nccl_take_own(zoff_nccl *n, zoff_nccl_lane *lane);

/* nccl_copies.c: all in the order of the lane's stream */
zoff_status zoff_nccl_is_device(const zoff_nccl *n, const void *memory, bool *out);
zoff_status zoff_nccl_copy(zoff_nccl *n, zoff_nccl_lane *lane, void *dst, const void *src, size_t bytes);

static inline zoff_comm_work *zoff_nccl_work_of(const zoff_nccl_lane *lane)
{
    return lane->work;
}

#endif
