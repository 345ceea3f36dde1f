/* SPDX-License-Identifier: Apache-2.0 */
/* nccl_priv.h: what the files of the NCCL plug-in share.
 *
 *     nccl_plugin.c  the entry; errors of CUDA and NCCL       nccl_join.c    joining the ranks, and groups of them
 *     nccl_life.c    memory, leaving, giving up
 *     nccl_note.c    what ranks tell each other of a call     nccl_move.c    pieces, and the rounds in which they travel
 *     comm_nccl.c    the table: operations one after another  nccl_copies.c  copies between the device and any memory
 *
 * Each of zoff's streams is a lane: a communicator and a CUDA stream, which all channels share. A lane carries notes, the
 * pieces of one operation, notes, the pieces of the next. NCCL matches messages by their order alone, and this order is the
 * same on all ranks of the lane. The lane of ZOFF_COMM_GROUP has only the ranks of this rank's group, and is opened on demand.
 *
 * Notes decide which channel's operation is next. A note names the operation that its rank started first. It also has a mask of
 * the channels' slots in which that rank has started something. If all ranks name the same operation, its pieces follow. If
 * not, notes follow again: for the lowest slot that all masks have, or a little later if there is none. */
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
    ZOFF_NCCL_DEPTH = 64, /* operations in flight in a stream */
    ZOFF_NCCL_LANES = ZOFF_COMM_GROUP + 1,
    ZOFF_NCCL_NOTE_BYTES = 664, /* bytes of a note on the wire */
    ZOFF_NCCL_VISITS = 2,
    ZOFF_NCCL_SMALL = 448,     /* pieces of host memory up to this size travel in notes */
    ZOFF_NCCL_BOUNCE = 2 << 20 /* bytes of a buffer for pageable host memory */
};

/* A rank's message about its call, sent to each other rank before anything moves. It has fixed widths, so that it is the same
 * on every machine.
 */
typedef struct zoff_nccl_note {
    uint32_t says; /* a zoff_nccl_says */
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

/* A piece for another rank or from it. */
typedef struct zoff_nccl_piece {
    char *at;
    size_t bytes; /* bytes of the piece; 0: nothing, or the note carries it */
    char *slot;   /* place on the device for a round; NULL: `at` is device memory */
} zoff_nccl_piece;

typedef enum zoff_nccl_phase {
    ZOFF_NCCL_IDLE,    /* the next operation may begin */
    ZOFF_NCCL_TELLING, /* NCCL has the notes */
    ZOFF_NCCL_TOLD,    /* the notes are in the stream */
    ZOFF_NCCL_MOVING,  /* NCCL has a round of pieces */
    ZOFF_NCCL_MOVED,   /* all rounds are in the stream */
    ZOFF_NCCL_WRITING  /* a sum is copied to the device */
} zoff_nccl_phase;

/* The state of one channel in one lane. */
typedef struct zoff_nccl_queue {
    uint64_t started, done; /* number of the last operation that was started, that was done */
    struct {
        zoff_comm_work *work; /* the operation; NULL: none */
        uint64_t time;        /* time by the lane's clock */
        bool is_done;
    } ops[ZOFF_NCCL_DEPTH]; /* operations by their number */
} zoff_nccl_queue;

typedef struct zoff_nccl_lane {
    ncclComm_t nccl;      /* communicator; NULL: not open, or of one rank */
    unsigned first, size; /* ranks of the lane; NCCL numbers them from 0 */
    cudaStream_t stream;
    cudaEvent_t event;
    zoff_nccl_phase phase;
    zoff_nccl_queue queues[ZOFF_COMM_SLOTS]; /* queues by slot of the channel */
    uint64_t clock;                          /* operations that were started, in all channels */
    uint64_t mask;      /* slots with an operation that was started and not done, when the last notes were written */
    uint64_t common;    /* slots that were in the mask of every rank's last notes; 0: the notes agreed, or none is common */
    double retry, wait; /* time at which notes go again, and seconds of the wait until then; 0: no wait */

    /* Fields of the current operation: */
    zoff_comm_work *work;
    bool in_is_device, out_is_device;
    bool has_copies;            /* copies were enqueued that were not waited for yet */
    zoff_nccl_piece *to, *from; /* pieces by rank, of all ranks, as everything below */
    size_t round, rounds;
    double *rows; /* the rows of a sum: those of rank 0, 1, ... */

    /* All memory that a lane ever needs. An allocation during an operation may wait for a kernel that waits for another rank,
     * while that rank waits likewise. */
    zoff_nccl_note *notes; /* notes in pinned memory: to rank 0, 1, ..., then from rank 0, 1, ... */
    char *wire;            /* the notes' copy on the device */
    char *slots;           /* cuts on the device: one to each rank, and one from each */
    char *bounce;          /* buffer of ZOFF_NCCL_BOUNCE pinned bytes */
} zoff_nccl_lane;

typedef struct zoff_nccl {
    zoff_comm comm;
    const zoff_comm_tools *tools;
    int device;
    int version;                           /* version of libnccl, in the format of NCCL_VERSION() */
    size_t cut;                            /* bytes of a piece that travel in a round; the same on all ranks */
    zoff_nccl_lane lanes[ZOFF_NCCL_LANES]; /* lanes by stream */
    bool is_over;                          /* nothing will complete any more; `over` says why */
    bool owes_notes; /* the failure was found in notes, and other ranks must find it in this rank's notes */
    bool is_aborted;
    bool is_promised; /* NCCL may still write the handle of a communicator into this struct, so it must not be freed */
    char over[1024];
} zoff_nccl;

static inline zoff_nccl *zoff_nccl_of(zoff_comm *comm)
{
    return (zoff_nccl *)(void *)comm;
}

/* Make the device the thread's current one until the end of the block. */
#define ZOFF_NCCL_ENTER(n)                                                                                                     \
    const zoff_cuda_before before_ __attribute__((cleanup(zoff_cuda_current_leave), unused)) =                                 \
        zoff_cuda_current_enter((n)->device)

/* Turn the result of a call into a status. ncclInProgress becomes OK. */
zoff_status zoff_nccl_check_cuda(const zoff_nccl *n, cudaError_t error, const char *call);
zoff_status zoff_nccl_check(const zoff_nccl *n, ncclComm_t nccl, ncclResult_t result, const char *call);
#define ZOFF_NCCL_CUDA(n, call, ...) ZOFF_TRY(zoff_nccl_check_cuda((n), call(__VA_ARGS__), #call))
#define ZOFF_NCCL_TRY(n, nccl, call, ...) ZOFF_TRY(zoff_nccl_check((n), (nccl), call(__VA_ARGS__), #call))
/* @return OK: the work that was passed to NCCL is in the stream; PENDING: not yet; an error if NCCL reports one */
zoff_status zoff_nccl_look(const zoff_nccl *n, ncclComm_t nccl);
/* Call this after each group of NCCL calls. Before 2.27 NCCL keeps work that is not in the stream yet in variables of the
 * thread. The next call of NCCL on this thread, perhaps the trainer's, would corrupt them, so older versions are waited for
 * here. This waits for no other rank, except at the first sum, for which NCCL connects the ranks. */
zoff_status zoff_nccl_settle(const zoff_nccl *n, ncclComm_t nccl); /* nccl_life.c */
extern const char zoff_nccl_blind[];                               /* what errors say about a rank that NCCL does not name */
double zoff_nccl_now(void);
void zoff_nccl_nap(void);
/* Drop errors of a teardown: `before` is what cudaPeekAtLastError() gave before it. */
void zoff_nccl_forgive(cudaError_t before);
/* Allocate a lane for the ranks [first, first + size). */
zoff_status zoff_nccl_open_lane(zoff_nccl *n, zoff_nccl_lane *lane, unsigned first, unsigned size);
bool zoff_nccl_flies_in(const zoff_nccl_lane *lane); /* an operation is in flight, or was not polled to its end */
/* Send every other rank a note that is no operation, in each of these lanes that is open.  @return PENDING: the deadline has
 * passed */
zoff_status zoff_nccl_say(zoff_nccl *n, zoff_nccl_lane *lanes, unsigned count, zoff_nccl_says says, double until);
void zoff_nccl_abort_all(zoff_nccl *n);
void zoff_nccl_free_all(zoff_nccl *n);
void zoff_nccl_close(zoff_comm *comm);
void zoff_nccl_give_up(zoff_comm *comm, const char *words);

/* nccl_join.c */
zoff_status zoff_nccl_open(const zoff_comm_join *join, zoff_comm **out);
zoff_status zoff_nccl_open_groups(zoff_comm *comm, unsigned members);
extern const zoff_comm_ops zoff_nccl_ops; /* comm_nccl.c */

/* nccl_note.c */
zoff_status zoff_nccl_tell(zoff_nccl *n, zoff_nccl_lane *lane,
                           zoff_nccl_says says);                       /* put the operation's notes into the group */
zoff_status zoff_nccl_fetch_notes(zoff_nccl *n, zoff_nccl_lane *lane); /* call when the notes are in the stream */
/* Call when the notes have arrived.  @return PENDING: they name different operations */
zoff_status zoff_nccl_hear(zoff_nccl *n, zoff_nccl_lane *lane);

/* nccl_move.c */
zoff_status zoff_nccl_lay(zoff_nccl *n, zoff_nccl_lane *lane); /* the pieces of an operation that begins */
void zoff_nccl_count_rounds(zoff_nccl *n, zoff_nccl_lane *lane);
zoff_status zoff_nccl_check_memory(zoff_nccl *n, const zoff_comm_call *call); /* call before the operation counts as started */
zoff_status zoff_nccl_move(zoff_nccl *n, zoff_nccl_lane *lane);               /* pass the round to NCCL */
zoff_status zoff_nccl_unload(zoff_nccl *n, zoff_nccl_lane *lane);             /* call when the round is in the stream */
zoff_status zoff_nccl_take_own(zoff_nccl *n, zoff_nccl_lane *lane);

/* nccl_copies.c: copies and queries, all in the order of the lane's stream */
zoff_status zoff_nccl_is_device(const zoff_nccl *n, const void *memory, bool *out);
zoff_status zoff_nccl_copy(zoff_nccl *n, zoff_nccl_lane *lane, void *dst, const void *src, size_t bytes);

static inline bool zoff_nccl_has(const zoff_nccl_lane *lane, unsigned rank)
{
    return rank - lane->first < lane->size;
}

static inline zoff_comm_work *zoff_nccl_work_of(const zoff_nccl_lane *lane)
{
    return lane->work;
}

#endif
