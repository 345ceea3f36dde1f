/* SPDX-License-Identifier: Apache-2.0 */
/* transfer_ranks.h: gradients and weights between ranks; part of transfer.h. */
#ifndef ZOFF_TRANSFER_RANKS_H
#define ZOFF_TRANSFER_RANKS_H

#include "cpu_adam.h"
#include "exact.h"
#include "gather.h"
#include "map.h"
#include "reduce.h"
#include "zero.h"

#include <zoff/engine.h>

typedef struct zoff_bucket_run zoff_bucket_run;
typedef struct zoff_transfer zoff_transfer;

/* Buckets in a vote. */
enum { ZOFF_WALK_NEWS = 32 };

/* A part of a new order of buckets, by rank 0. Each vote of a step has one, until all ranks have heard the whole order. */
typedef struct zoff_walk_news {
    uint32_t heard[2]; /* buckets that a rank has heard before this vote: least and most of the ranks */
    uint32_t first;    /* by rank 0: position of the first bucket below; UINT32_MAX in votes of others */
    uint32_t count;    /* number of buckets below; 0: no news */
    uint32_t buckets[ZOFF_WALK_NEWS];
} zoff_walk_news;

/* This rank's vote, before the gate opens. Votes of ranks join: see zoff_transfer_measure_join(). */
typedef struct zoff_vote {
    zoff_exact squares; /* sums of squares of the gradients that this rank has measured, without blocks that are not finite */
    bool poisoned;      /* a block is not finite; the fields below name the first one */
    /* The rank that contributed it is known; otherwise only the sum of several ranks is known to be not finite. */
    bool rank_is_known;
    bool stop_requested; /* this rank was asked to stop: zoff_engine_request_stop() */
    uint32_t failed;     /* the first rank that has failed while it measured, so all drop the step; UINT32_MAX: none */
    uint32_t rank;       /* rank of that block, or the rank that votes */
    zoff_param param;
    size_t slice, first;
    uint64_t inputs[2]; /* checksum of the inputs of its update, least and most of the ranks: see agreement/listed.c */
    uint64_t copies[2]; /* checksum of the gradients that the trainer has reduced, likewise */
    uint64_t replicas;  /* sum of checksums: see agreement/norm.c */
    zoff_walk_news order;
} zoff_vote;

/* Memory of a wire, set by its `open`. */
typedef struct zoff_wire_memory {
    char *slots;  /* slots of the exchanges: in zoff_ranks.staging, or in memory of the device */
    float *sums;  /* sums of the gradients that this rank owns, where the wire adds them */
    void *own;    /* state of the wire: one block, which is freed with the other memory of the ranks; NULL: none */
    size_t waits; /* slots whose work on the device the wire waits for */
} zoff_wire_memory;

/* Two levels of ranks. */
typedef struct zoff_levels {
    zoff_comm_grid nodes;         /* ranks by host */
    zoff_comm_grid sums, weights; /* the nodes, where these take two hops; nodes of one rank: one hop */
    bool may_keep, keeps;         /* partial sums may stay on their rank until the last micro-batch; and they do */
    zoff_bins_piece *pieces;      /* additions of terms for one bucket, and the piece of each */
    zoff_plan_piece *whose;
    zoff_bins *parts; /* partial sums of all nodes for the pieces of this rank */
    size_t *kept_at;  /* where those of each bucket are in `kept` */
    zoff_map kept;
} zoff_levels;

/* Communication state of an engine with several ranks; empty for a single rank. */
typedef struct zoff_ranks {
    zoff_reduce *reduce;
    zoff_gather *gather; /* gathers updated weights; with replicated states, gradient sums */
    zoff_map staging;    /* host memory for slots of both gathers and reductions, which are never used at the same time */
    zoff_wire_memory wire;
    zoff_levels levels;
    size_t spread_bytes;                   /* bytes of a slot of `gather` */
    size_t *part_bytes;                    /* bytes of gradients on the wire, by rank, for the buckets in `part_rows` */
    size_t *part_rows;                     /* buckets whose parts were looked up last */
    zoff_cast_piece *moves;                /* copies that pack or unpack a bucket */
    float reduced_weight;                  /* weight of gradients that the trainer has reduced, in this micro-batch */
    bool spreads_all;                      /* send all weights, including those that this step did not update */
    size_t spread_next;                    /* outside of a step: the next bucket whose weights are sent */
    size_t widest_weight, widest_gradient; /* bytes of the widest weight, and of the widest gradient in its wire type */
    struct {
        uint64_t sent, received, gradients, weights;
    } before; /* byte counts at the end of the previous step */
} zoff_ranks;

/* Another rule of sums, with the memory and the routes that it needs. */
typedef struct zoff_sums_change {
    bool exact;
    bool is_other_route; /* `ranks` replaces what the engine has */
    zoff_map bins;
    zoff_ranks ranks;
} zoff_sums_change;

/* Buckets in flight at a time: one that is being packed or summed, and others on the wire. */
enum { ZOFF_REDUCE_SLOTS = 3, ZOFF_GATHER_SLOTS = 3 };

enum { ZOFF_PART_ROWS = 4 }; /* number of rows, one more than there are buckets in flight */

/* ranks.c: communication state of several ranks */
/* Register with the engine's progress, and allocate memory for several ranks. */
zoff_status zoff_transfer_ranks_open(zoff_transfer *t);
zoff_status zoff_transfer_ranks_connect(zoff_transfer *t); /* at seal, on all ranks  @blocks yes */
void zoff_transfer_ranks_close_wire(zoff_transfer *t);     /* call when no work is in a stream */
void zoff_transfer_ranks_abandon(zoff_transfer *t);        /* give up all operations in flight */
void zoff_transfer_ranks_close(zoff_transfer *t);          /* free the memory; call after abandon */
/* Change the rule of sums, between two steps. prepare takes what may fail, use changes the engine, and discard gives up.
 * @return prepare: ERR_NO_MEMORY */
zoff_status zoff_transfer_ranks_prepare_sums(zoff_transfer *t, bool exact, zoff_sums_change *out);
/* route.c: as prepare, for the engine.  @return ERR_UNSUPPORTED, too: its sums are made where only "ordered" works */
zoff_status zoff_transfer_route_prepare_sums(zoff_transfer *t, bool exact, zoff_sums_change *out);
void zoff_transfer_ranks_use_sums(zoff_transfer *t, zoff_sums_change *change);
void zoff_transfer_ranks_discard_sums(zoff_transfer *t, zoff_sums_change *change);
/* Bytes of DRAM for data that is sent to and received from other ranks. */
uint64_t zoff_transfer_ranks_bytes(const zoff_transfer *t, const zoff_plan *plan);
/* bytes of device memory for that data */
uint64_t zoff_transfer_ranks_device_bytes(const zoff_transfer *t, const zoff_plan *plan);
/* Count what this rank sends and receives in a step in which all slices take part: gradients of all micro-batches, and weights,
 * or sums of replicated states. Reads no more of t->comm than zoff_comm_call_traffic(). `t` is a copy for this call, with the
 * plan.  @return ERR_NO_MEMORY */
zoff_status zoff_transfer_ranks_traffic(zoff_transfer *t, zoff_comm_traffic *reduce, zoff_comm_traffic *gather);
/* Count the bytes exchanged since the last count_anew in `info`; or begin a new count. */
void zoff_transfer_ranks_count(const zoff_transfer *t, zoff_step_info *info);
void zoff_transfer_ranks_count_anew(zoff_transfer *t);

/* wire.c: which elements go over the wire, where they are in a rank's part, and waiting for other ranks */
void zoff_transfer_wire_watch(zoff_transfer *t); /* register with the engine's progress; the exchanges may be opened later */
void zoff_transfer_wire_unwatch(zoff_transfer *t);
void zoff_transfer_wire_give_up(zoff_transfer *t); /* the rest of the reductions is sent without content  @blocks */
/* Wait for other ranks until `until` returns anything but PENDING.  @blocks yes */
zoff_status zoff_transfer_wire_wait_until(zoff_transfer *t, zoff_status (*until)(void *ctx), void *ctx);
void zoff_transfer_wire_measure(zoff_transfer *t); /* at seal: find the widest element types of the parameters */
/* The byte offset of a piece within its part. `at`: the end of the previous piece; set to the end of this one. */
size_t zoff_transfer_wire_place(size_t *at, size_t count, size_t element_bytes);
/* Upper bounds for this rank's part of a bucket, and for all parts together, in bytes. */
void zoff_transfer_wire_most(const zoff_transfer *t, const zoff_plan *plan, size_t bucket, size_t *out_part, size_t *out_all);
size_t zoff_transfer_wire_part(const zoff_transfer *t, const zoff_plan *plan, size_t bucket, unsigned rank); /* bytes of it */
size_t zoff_transfer_wire_most_pieces(const zoff_plan *plan); /* an upper bound for the pieces of all ranks in one bucket */
/* Bytes of gradients in each rank's part of a bucket. Valid until the next call for another bucket. */
const size_t *zoff_transfer_wire_parts(const zoff_transfer *t, size_t bucket);
/* Whether the weights of a piece go to all ranks in this step. `all`: outside of a step, regardless of its gradients. */
bool zoff_transfer_wire_takes(const zoff_transfer *t, const zoff_plan_piece *piece, bool all);
bool zoff_transfer_wire_takes_now(const zoff_transfer *t, const zoff_plan_piece *piece);

/* reduce_scatter.c: sends the gradients of all ranks to the rank that owns their sum */
/* Release the engine memory of a bucket's gradients that are packed now, or, of those that stay on this rank, summed. */
void zoff_transfer_reduce_scatter_forget(zoff_transfer *t, size_t bucket, bool stays);
/* Call when the sums of all micro-batches of a bucket are measured. `before`: the vote without it. `parts`, `weights`: those of
 * the last micro-batch, to find the rank whose gradient is not finite. */
void zoff_transfer_reduce_scatter_measured(zoff_transfer *t, size_t bucket, const zoff_vote *before, const char *parts,
                                           const float *weights);
/* list_parts: list the copies that fill all ranks' parts, in t->ranks.moves; gradients that are missing become zero at once.
 * list_sums: list the additions of the received parts, in t->scratch.accumulate_pieces. Without
 * parts, only gradients that the trainer has reduced are listed.  @return how many. Both work in host
 * memory, and in device memory that the communicator accesses. */
zoff_status zoff_transfer_reduce_scatter_list_parts(zoff_transfer *t, size_t bucket, char *out, size_t *out_moves);
size_t zoff_transfer_reduce_scatter_list_sums(zoff_transfer *t, size_t bucket, const char *parts, const float *weights);
void zoff_transfer_reduce_scatter_begin(zoff_transfer *t); /* begin the next micro-batch */
/* A slice was handed over: set how many buckets pack a part of it. */
void zoff_transfer_reduce_scatter_hand_over(zoff_transfer *t, zoff_param p, size_t slice);
/* A slice is complete here: its buckets may be exchanged. */
void zoff_transfer_reduce_scatter_mark(zoff_transfer *t, zoff_param p, size_t slice);
bool zoff_transfer_reduce_scatter_go_on(zoff_transfer *t); /* advance without waiting; whether exchanges are in flight */
void zoff_transfer_reduce_scatter_end(zoff_transfer *t);   /* a step begins: no other gradient is handed over before it ends */
void zoff_transfer_reduce_scatter_close(zoff_transfer *t); /* no other gradient will come */
zoff_status zoff_transfer_reduce_scatter_bucket(void *ctx, zoff_bucket_run *run); /* a row */
zoff_status
zoff_transfer_reduce_scatter_poll(const zoff_transfer *t);         /* PENDING: some exchanges of this micro-step are not done */
zoff_status zoff_transfer_reduce_scatter_finish(zoff_transfer *t); /* wait for all buckets */
/* Set the weight of this rank's gradients in the sum. Once the micro-batch is reduced: add the weights of all ranks to a sum;
 * get the sum over all micro-batches of this step. */
void zoff_transfer_reduce_scatter_weigh(zoff_transfer *t, double weight);
void zoff_transfer_reduce_scatter_add_weight(const zoff_transfer *t, zoff_exact *sum);
double zoff_transfer_reduce_scatter_total_weight(const zoff_transfer *t);

/* After `sum` of a bucket, whose measurement is due in the last micro-batch. `parts` NULL: the terms are elsewhere. */
void zoff_transfer_reduce_scatter_summed(zoff_transfer *t, size_t bucket, const char *parts, const float *weights);

/* levels.c: gradients over two levels of ranks */
/* Whether the partial sums of a node can stay on their rank until the last micro-batch, and whether there is room for them
 * beside states. */
bool zoff_transfer_levels_can_keep(const zoff_transfer *t);
bool zoff_transfer_levels_has_room(const zoff_transfer *t);
/* Choose the routes. t->ranks.levels.nodes, levels.may_keep and the rule of sums are known. */
void zoff_transfer_levels_choose(zoff_transfer *t);
/* Describe the second hop, for this plan. */
void zoff_transfer_levels_plan(const zoff_transfer *t, const zoff_plan *plan, zoff_reduce_levels *out);
uint64_t zoff_transfer_levels_kept_bytes(const zoff_transfer *t, const zoff_plan *plan);
/* Bytes of the terms for the ranks of a rail, and the sum of a bucket from its partial sums: for zoff_reduce_opts. */
size_t zoff_transfer_levels_part_bytes(void *ctx, size_t bucket, unsigned place);
zoff_status zoff_transfer_levels_take(void *ctx, size_t bucket, unsigned slot, const char *sums, const float *weights);
zoff_status zoff_transfer_levels_open(zoff_transfer *t);
void zoff_transfer_levels_close(zoff_transfer *t);

/* all_gather.c: sends data from its owner to all ranks */
size_t zoff_transfer_all_gather_most(const zoff_transfer *t, const zoff_plan *plan); /* bytes of the largest bucket */
/* Set the bytes of each rank's part of a bucket, as they are packed: zoff_gather_slot.bytes. */
void zoff_transfer_all_gather_size_up(const zoff_transfer *t, size_t bucket, size_t *bytes);
size_t zoff_transfer_all_gather_part_bytes(const zoff_transfer *t, size_t bucket, unsigned rank);
size_t zoff_transfer_all_gather_place(const zoff_transfer *t, const zoff_plan_piece *piece, size_t *at);
zoff_status zoff_transfer_all_gather_sums(void *ctx, zoff_bucket_run *run);    /* a row with replicated states */
zoff_status zoff_transfer_all_gather_weights(void *ctx, zoff_bucket_run *run); /* a row */
zoff_status zoff_transfer_all_gather_poll(zoff_transfer *t);                   /* move bytes; OK without other ranks */
zoff_status zoff_transfer_all_gather_finish(zoff_transfer *t);                 /* wait for all buckets */
zoff_status zoff_transfer_all_gather_all(zoff_transfer *t);                    /* outside of a step: send all weights */

#endif
