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

/* What a rank says before the gate opens. */
typedef struct zoff_vote {
    zoff_exact squares; /* of the gradients that it has measured, but for blocks that are not finite */
    bool poisoned;      /* there is such a block; the first one is named */
    bool rank_is_known; /* whose gradient it was; otherwise it came out of a sum of several */
    uint32_t rank;      /* that one, or the one that voted */
    zoff_param param;
    size_t slice, first;
    uint64_t terms; /* checksum of what its update uses: see terms.c */
} zoff_vote;

/* What an engine has beside others; all of it is empty where it is alone. */
typedef struct zoff_ranks {
    zoff_reduce *reduce;
    zoff_gather *gather;          /* of what the owner has updated; or, of replicated states, of the sums of gradients */
    zoff_map staging;             /* slots of both, which are not used at the same time */
    size_t spread_bytes;          /* of a slot of `gather` */
    size_t *part_bytes;           /* gradients on the wire, by rank, of the buckets that were looked at last */
    size_t *part_rows;            /* these buckets */
    uint32_t *missing;            /* slices that are trained, by bucket */
    zoff_cast_piece *moves;       /* what is packed or unpacked of a bucket */
    zoff_accumulate_piece *terms; /* likewise, of what a communicator adds up; NULL: it does not */
    bool spreads_all;             /* not only what this step has updated */
    size_t widest_weight, widest_gradient; /* bytes of an element; gradients as they go to other ranks */
    struct {
        uint64_t sent, received, gradients, weights;
    } before; /* bytes, when the step before was over */
} zoff_ranks;

enum { ZOFF_PART_ROWS = 4 }; /* a bucket more than are under way */

/* Who has the states: this rank alone, all ranks a part each, or each of them all. */
typedef struct zoff_peers {
    const char *name;
    bool replicates; /* each rank has all states: ranks send sums of gradients to one another, and no weights */
    bool has_parts;  /* of states and weights each rank has a part: to read one takes all ranks */
    bool any_order;  /* a rank goes over the buckets in the order that is best for it */
    zoff_status (*open)(zoff_transfer *t);
    uint64_t (*bytes)(const zoff_transfer *t, const zoff_plan *plan);     /* DRAM for what goes to other ranks */
    size_t (*gather_most)(const zoff_transfer *t, const zoff_plan *plan); /* a bucket that is gathered, in bytes */
    void (*gather)(const zoff_transfer *t, zoff_gather_opts *opts);       /* what is gathered of a bucket */
    bool (*is_awaited)(const zoff_transfer *t);                           /* whether others may send */
    /* Whether this rank measures the gradient of a piece that is its to measure. */
    bool (*measures)(const zoff_transfer *t, const zoff_plan_piece *piece);
    /* Whether gradients leave while the program makes others: from stage 2 on. */
    bool (*leaves_early)(const zoff_transfer *t);
} zoff_peers;

extern const zoff_peers zoff_transfer_ranks_alone, zoff_transfer_ranks_partitioned, zoff_transfer_ranks_replicated;

/* ranks.c: several ranks share the states, or each has a copy of its own */
/* Reserve memory. */
zoff_status zoff_transfer_ranks_open(zoff_transfer *t);
void zoff_transfer_ranks_abandon(zoff_transfer *t); /* what is in flight is given up */
void zoff_transfer_ranks_close(zoff_transfer *t);   /* after that */
/* DRAM for what goes to other ranks and comes from them. */
uint64_t zoff_transfer_ranks_bytes(const zoff_transfer *t, const zoff_plan *plan);
uint64_t zoff_transfer_ranks_device_bytes(const zoff_transfer *t, const zoff_plan *plan); /* and of the device's memory */
/* Bytes over the wire since the step before; and from here on anew. */
void zoff_transfer_ranks_count(const zoff_transfer *t, zoff_step_info *info);
void zoff_transfer_ranks_count_anew(zoff_transfer *t);

/* wire.c: which elements go over the wire, and where they are in a rank's part; and waiting for it */
void zoff_transfer_wire_watch(zoff_transfer *t); /* register with the engine's progress; the exchanges may follow later */
void zoff_transfer_wire_unwatch(zoff_transfer *t);
/* Wait for other ranks until `until` returns anything but PENDING.  @blocks yes */
zoff_status zoff_transfer_wire_wait_until(zoff_transfer *t, zoff_status (*until)(void *ctx), void *ctx);
void zoff_transfer_wire_measure(zoff_transfer *t); /* at seal: the widest elements of the list of parameters */
/* Where a piece goes in its part, in bytes. `at`: the end of the piece before it; moves behind this one. */
size_t zoff_transfer_wire_place(size_t *at, size_t count, size_t element_bytes);
size_t zoff_transfer_wire_part_bytes(const zoff_transfer *t, const zoff_plan *plan, size_t bucket, unsigned rank);
/* No less than all ranks' parts of a bucket together. */
size_t zoff_transfer_wire_bucket_most(const zoff_transfer *t, const zoff_plan *plan, size_t bucket);
/* Bytes of gradients in each rank's part of a bucket; valid until another bucket is asked for. */
const size_t *zoff_transfer_wire_parts(const zoff_transfer *t, size_t bucket);
/* Whether the weights of a piece go to all ranks in this step; `all`: outside of a step, whatever its gradients. */
bool zoff_transfer_wire_takes(const zoff_transfer *t, const zoff_plan_piece *piece, bool all);
bool zoff_transfer_wire_takes_now(const zoff_transfer *t, const zoff_plan_piece *piece);

/* reduce_scatter.c: gradients of all ranks to the owner of their sum */
zoff_status zoff_transfer_reduce_scatter_pack(void *ctx, size_t bucket, unsigned slot, char *out);
zoff_status zoff_transfer_reduce_scatter_sum(void *ctx, size_t bucket, unsigned slot, const char *parts, const float *weights);
/* The sums of a bucket are complete for this micro-batch: measure them in the last one. */
zoff_status zoff_transfer_reduce_scatter_summed(zoff_transfer *t, size_t bucket, const char *parts, const float *weights);
/* What goes into the parts of all ranks, as t->ranks.moves or t->ranks.terms; what is missing is zeroed already. And what is
 * added up of what has come, as t->scratch.accumulate_pieces.  @return how many. Both on the host, or on a device that is
 * reached. */
zoff_status zoff_transfer_reduce_scatter_list_parts(zoff_transfer *t, size_t bucket, char *out, size_t *out_moves);
size_t zoff_transfer_reduce_scatter_list_sums(zoff_transfer *t, size_t bucket, const char *parts, const float *weights);
void zoff_transfer_reduce_scatter_begin(zoff_transfer *t); /* the next micro-batch */
/* A slice is ready: its buckets will take it. */
void zoff_transfer_reduce_scatter_hand_over(zoff_transfer *t, zoff_param p, size_t slice);
void zoff_transfer_reduce_scatter_mark(zoff_transfer *t, zoff_param p, size_t slice);
bool zoff_transfer_reduce_scatter_go_on(zoff_transfer *t); /* without waiting; whether something is under way */
void zoff_transfer_reduce_scatter_close(zoff_transfer *t); /* no other gradient will come */
zoff_status zoff_transfer_reduce_scatter_bucket(void *ctx, zoff_bucket_run *run); /* a row */
zoff_status zoff_transfer_reduce_scatter_finish(zoff_transfer *t);                /* wait for all of it */
/* How much the gradients of this rank count in the sum; and of this micro-batch on all ranks together, once it is summed. */
void zoff_transfer_reduce_scatter_weigh(zoff_transfer *t, double weight);
double zoff_transfer_reduce_scatter_total_weight(const zoff_transfer *t);

/* device_direct.c: over a communicator that reaches the device's memory, gradients and weights go from device to device */
uint64_t zoff_transfer_device_direct_bytes(const zoff_transfer *t, const zoff_plan *plan,
                                           size_t staging_bytes); /* of the device */
zoff_status zoff_transfer_device_direct_open(zoff_transfer *t);
zoff_status zoff_transfer_device_direct_connect(
    zoff_transfer *t); /* at seal, on all ranks: for sums that the communicator makes.  @blocks */
void zoff_transfer_device_direct_close(zoff_transfer *t);
/* The sums of a bucket, one after the other in memory from `first` to `last`, to the accumulator of the host. */
zoff_status zoff_transfer_device_direct_bring_down(zoff_transfer *t, const zoff_accumulate_piece *first,
                                                   const zoff_accumulate_piece *last);
/* The twins of zoff_transfer_reduce_scatter_pack() and _sum(), zoff_transfer_all_gather_begin() and _end(), on the device. */
zoff_status zoff_transfer_device_direct_pack(void *ctx, size_t bucket, unsigned slot, char *out);
zoff_status zoff_transfer_device_direct_sum(void *ctx, size_t bucket, unsigned slot, const char *parts, const float *weights);
zoff_status zoff_transfer_device_direct_begin(void *ctx, size_t bucket, unsigned slot, char **out);
zoff_status zoff_transfer_device_direct_end(void *ctx, size_t bucket, unsigned slot, const char *parts);

/* all_gather.c: from the owner to all ranks */
size_t zoff_transfer_all_gather_most(const zoff_transfer *t, const zoff_plan *plan); /* the largest bucket, in bytes */
size_t zoff_transfer_all_gather_part_bytes(void *ctx, size_t bucket, unsigned rank);
zoff_status zoff_transfer_all_gather_begin(void *ctx, size_t bucket, unsigned slot, char **out);
zoff_status zoff_transfer_all_gather_end(void *ctx, size_t bucket, unsigned slot, const char *parts);
/* Fill in what is gathered: weights of partitioned states, sums of gradients of replicated ones. */
void zoff_transfer_all_gather_of_weights(const zoff_transfer *t, zoff_gather_opts *opts);
void zoff_transfer_all_gather_of_sums(const zoff_transfer *t, zoff_gather_opts *opts);
size_t zoff_transfer_all_gather_place(const zoff_transfer *t, const zoff_plan_piece *piece, size_t *at);
zoff_status zoff_transfer_all_gather_sums(void *ctx, zoff_bucket_run *run);    /* a row, of replicated states */
zoff_status zoff_transfer_all_gather_weights(void *ctx, zoff_bucket_run *run); /* a row */
zoff_status zoff_transfer_all_gather_finish(zoff_transfer *t);                 /* wait for all of it */
zoff_status zoff_transfer_all_gather_all(zoff_transfer *t);                    /* outside of a step: all weights */

#endif
