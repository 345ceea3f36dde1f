/* SPDX-License-Identifier: Apache-2.0 */
/* matrices.h: an optimizer of matrices needs the direction of a whole matrix before it can update any element of it. The states
 * of a matrix stay cut by element, in chunks of all ranks. Only its direction is made whole, in memory of this room:
 *
 *      1. for each bucket of a round: momentum and direction, by element        place(), written()
 *      2. once all of them are there: each matrix is made orthogonal            poll()
 *      3. for each bucket: weights change by the result, by element             place(), applied()
 *
 * A round (zero.h) is a list of matrices whose buckets wait for each other, and one round at a time has memory. A bucket calls
 * turn() before it borrows its states, and holds none of them while it waits for others. So no bucket keeps the memory that
 * another one of the same round needs.
 *
 * Where ranks have parts of the states, one rank is the worker of each matrix: it gets the parts of all ranks, and sends the
 * results back (exchange.c). All ranks take rounds in the order of the walk, so their exchanges have one order, too. */
#ifndef ZOFF_MATRICES_H
#define ZOFF_MATRICES_H

#include "comm.h"
#include "map.h"
#include "zero.h"
#include "zoff_model.h"

/* A matrix of the plan. */
typedef struct zoff_matrix_entry {
    uint32_t param;
    unsigned worker;     /* the rank that makes it orthogonal; 0 where each rank does that */
    size_t slice, first; /* `first`: an element of the slice */
    size_t rows, cols;
    size_t at; /* index of its first element among the whole matrices of its worker in its round */
} zoff_matrix_entry;

/* Elements that follow each other in three places: among this rank's own directions or the whole matrices, and in a message. */
typedef struct zoff_matrix_segment {
    size_t at, wire, count;
} zoff_matrix_segment;

/* A round of this rank. */
typedef struct zoff_matrix_round {
    size_t entries, own, whole; /* the first of each list: entries, segments of own directions, and of whole matrices */
    size_t *send, *receive;     /* with an exchange: bytes to and from each rank, of directions */
} zoff_matrix_round;

/* The state of the round that has memory. */
typedef enum zoff_matrix_stage {
    ZOFF_MATRICES_FILLED, /* its buckets write directions */
    ZOFF_MATRICES_SENT,   /* directions are on their way to the workers */
    ZOFF_MATRICES_WORKING,
    ZOFF_MATRICES_RETURNED, /* orthogonal directions are on their way back */
    ZOFF_MATRICES_DONE
} zoff_matrix_stage;

typedef struct zoff_matrix_turn {
    size_t round;            /* its number, from 1; 0: none */
    size_t written, applied; /* buckets whose directions are there, and buckets that need them no more */
    zoff_matrix_stage stage;
    size_t next;          /* entry that is made orthogonal next */
    zoff_orthogonal work; /* progress of that entry */
    bool is_working;
} zoff_matrix_turn;

/* Directions and products. Without an exchange `whole` is `own`. */
typedef struct zoff_matrix_memory {
    zoff_map map;                 /* all below */
    float *own;                   /* directions of this rank's elements, in the order of the plan */
    float *whole;                 /* matrices of this rank */
    float *own_wire, *whole_wire; /* the same, packed by rank */
    void *scratch;
} zoff_matrix_memory;

/* All fields are zero where there are no matrices. */
typedef struct zoff_matrices {
    const zoff_plan *plan;
    const zoff_model *model;
    bool exchanges; /* ranks have parts of the states; otherwise each has whole matrices */
    zoff_comm *comm;
    zoff_comm_channel *channel;
    unsigned threads;
    zoff_matrix_entry *entries; /* in the order of the plan */
    size_t *own_at;             /* by piece of this rank: where it begins in `own` */
    zoff_matrix_round *rounds;  /* by round, and the ends of the last one */
    zoff_matrix_segment *own_segments, *whole_segments;
    size_t *sizes; /* memory of zoff_matrix_round.send and receive */
    zoff_matrix_memory memory;
    zoff_comm_work exchange;
    uint64_t sent_bytes;
    double flop; /* operations of this step's products on this rank */
    zoff_matrix_turn turn;
} zoff_matrices;

/* Work that poll() does. */
typedef struct zoff_matrices_work {
    const zoff_optimizer_hyper *hyper; /* of each group, in this step */
    unsigned threads;                  /* at most those of open() */
    zoff_adam_between feed;            /* called as zoff_adam_between */
    void *ctx;
    const bool *stops; /* set by feed(): poll() returns PENDING at the next pause of a product */
} zoff_matrices_work;

typedef struct zoff_matrices_opts {
    const zoff_plan *plan;
    const zoff_model *model;
    bool exchanges; /* ranks have parts of the states */
    zoff_comm *comm;
    zoff_comm_channel *channel;
    unsigned threads; /* the most that work */
} zoff_matrices_opts;

/* After planning. `opts->plan` has its final place.  @return ERR_NO_MEMORY */
zoff_status zoff_matrices_open(zoff_matrices *x, const zoff_matrices_opts *opts);
void zoff_matrices_close(zoff_matrices *x);
/* Compute the bytes of memory that open() allocates for directions and products.  @return ERR_NO_MEMORY */
zoff_status zoff_matrices_bytes(const zoff_matrices_opts *opts, uint64_t *out);
/* Count what a step sends and receives that updates all matrices. Reads no more of opts->comm than zoff_comm_call_traffic().
 * @return ERR_NO_MEMORY */
zoff_status zoff_matrices_traffic(const zoff_matrices_opts *opts, zoff_comm_traffic *sum);
/* Forget what an earlier step has left. No exchange is in flight. */
void zoff_matrices_begin(zoff_matrices *x);

/* Whether the round of a bucket has memory; it gets the memory if that is free. */
bool zoff_matrices_turn(zoff_matrices *x, size_t bucket);
/* Whether all buckets of the bucket's round have written their directions. */
bool zoff_matrices_is_written(const zoff_matrices *x, size_t bucket);
/* The matrix that has element `first` of a slice. */
const zoff_matrix_entry *zoff_matrices_entry(const zoff_matrices *x, const zoff_plan_piece *piece, size_t first);
/* The directions of a piece of this rank, in the round that has memory. */
float *zoff_matrices_place(const zoff_matrices *x, const zoff_plan_piece *piece);
/* All directions of a bucket are there. */
void zoff_matrices_written(zoff_matrices *x);
/* Make the matrices of a bucket's round orthogonal: those that have a gradient in this step, and whose worker this rank is.
 * @return OK: the directions of all its buckets are orthogonal; PENDING: other buckets are not written yet, other ranks are not
 * so far, or `stops` asks for a pause; an error of the communicator
 * @blocks for the matrices of this rank, or until `stops` */
zoff_status zoff_matrices_poll(zoff_matrices *x, size_t bucket, const zoff_matrices_work *work);
/* A bucket needs its directions no more. The last one frees the memory for the next round. */
void zoff_matrices_applied(zoff_matrices *x);

/* entries.c */
/* List the matrices of each round, and the places of this rank's pieces.  @return ERR_NO_MEMORY */
zoff_status zoff_matrices_entries_list(zoff_matrices *x);

/* exchange.c */
/* Choose the worker of each matrix, so that all ranks have about the same work in each round, and list what goes from rank to
 * rank.  @return ERR_NO_MEMORY */
zoff_status zoff_matrices_exchange_list(zoff_matrices *x);
zoff_comm_call zoff_matrices_exchange_call(const zoff_matrices *x, size_t round, bool is_back);
/* Send directions to the workers, or results back (`is_back`).  @return PENDING: they are on their way */
zoff_status zoff_matrices_exchange_run(zoff_matrices *x, bool is_back);

#endif
