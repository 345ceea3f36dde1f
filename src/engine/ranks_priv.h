/* ranks_priv.h: what an engine has beside others; part of engine_priv.h. */
#ifndef ZOFF_RANKS_PRIV_H
#define ZOFF_RANKS_PRIV_H

#include "cpu_adam.h"
#include "exact.h"
#include "gather.h"
#include "map.h"
#include "offload.h"
#include "reduce.h"
#include "zero.h"

#include <zoff/engine.h>

typedef struct zoff_bucket_run zoff_bucket_run;
typedef struct zoff_model_param zoff_model_param;

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

/* How far a rank is that opens its store, and what it has found there. */
typedef struct zoff_standing {
    uint32_t phase;
    bool has_failed;
    zoff_store_found found;
} zoff_standing;

/* See together.c. */
typedef struct zoff_together {
    zoff_comm_work work; /* the round */
    double began;
    zoff_standing own, *all; /* all: by rank, of the last round */
    size_t *each;
    bool is_open, behind; /* some rank is not as far as this one */
    bool over;            /* a rank has failed, and every rank knows */
    unsigned failed;      /* that one */
} zoff_together;

/* What an engine has beside others; all of it is empty where it is alone. */
typedef struct zoff_ranks {
    zoff_reduce *reduce;
    zoff_gather *gather;          /* of what the owner has updated; or, of replicated states, of the sums of gradients */
    zoff_map staging;             /* slots of both, which are not used at the same time */
    size_t spread_bytes;          /* of a slot of `gather` */
    size_t *part_bytes;           /* gradients on the wire, by rank, of the buckets that were looked at last */
    size_t *part_rows;            /* these buckets */
    uint32_t *missing;            /* slices that are trained, by bucket */
    uint64_t *bits;               /* a bit a slice, in words of 64, of each rank */
    size_t *bits_bytes;           /* the same for all */
    zoff_cast_piece *moves;       /* what is packed or unpacked of a bucket */
    zoff_accumulate_piece *terms; /* likewise, of what a communicator adds up; NULL: it does not */
    uint64_t *step_terms;         /* of the step, in words: this rank's, and room for those of two ranks */
    zoff_together together;
    bool spreads_all; /* not only what this step has updated */
    struct {
        uint64_t sent, received, gradients, weights;
    } before; /* bytes, when the step before was over */
} zoff_ranks;

enum { ZOFF_PART_ROWS = 4 }; /* a bucket more than are under way */

/* ranks.c: several ranks share the states, or each has a copy of its own */
/* Reserve memory. */
zoff_status zoff_engine_ranks_open(zoff_engine *e);
void zoff_engine_ranks_abandon(zoff_engine *e); /* what is in flight is given up */
void zoff_engine_ranks_close(zoff_engine *e);   /* after that */
/* DRAM for what goes to other ranks and comes from them. */
uint64_t zoff_engine_ranks_bytes(const zoff_engine *e, const zoff_plan *plan);
uint64_t zoff_engine_ranks_device_bytes(const zoff_engine *e, const zoff_plan *plan); /* and of the device's memory */
/* ranks_wait.c */
void zoff_engine_ranks_wait_open(zoff_engine *e); /* register with the engine's progress; the exchanges may follow later */
void zoff_engine_ranks_wait_close(zoff_engine *e);
/* Wait for other ranks until `until` returns anything but PENDING.  @blocks yes */
zoff_status zoff_engine_ranks_wait_until(zoff_engine *e, zoff_status (*until)(void *ctx), void *ctx);
/* Bytes over the wire since the step before; and from here on anew. */
void zoff_engine_ranks_count(const zoff_engine *e, zoff_step_info *info);
void zoff_engine_ranks_count_anew(zoff_engine *e);

/* identity.c: who an engine is to other ranks, and in which of its calls the program waits */
void zoff_engine_identity_come(zoff_engine *e);
void zoff_engine_identity_leave(zoff_engine *e);
void zoff_engine_identity_add(zoff_engine *e, const char *name, size_t count); /* a parameter */
/* All ranks seal the same engine: from here on it has a channel.  @blocks until all have come */
zoff_status zoff_engine_identity_open(zoff_engine *e);
void zoff_engine_identity_close(zoff_engine *e); /* when nothing of it is in flight */
/* A call that waits for other ranks, from behind its checks to its end: what fails does not count, and is tried again. */
void zoff_engine_identity_enter(zoff_engine *e, unsigned call, zoff_comm_item item);
zoff_status zoff_engine_identity_exit(zoff_engine *e, zoff_status status);

/* consensus.c */
/* `bytes` of each rank to all; this rank's are in their place.  @blocks until all have come */
zoff_status zoff_engine_consensus_gather(zoff_engine *e, void *all, size_t bytes);
/* Every rank calls it with what has become of its work: when one has failed, all have. */
zoff_status zoff_engine_consensus_success(zoff_engine *e, zoff_status own);

/* presence.c */
/* `words` of each of `ranks`, one rank after the other: those of rank 0 become the union of all. */
void zoff_engine_presence_join(uint64_t *bits, size_t words, unsigned ranks);
zoff_status zoff_engine_presence_agree(zoff_bucket_run *run); /* a row: slices that have a gradient on any rank */

/* together.c: at seal, on every rank: open the stores.  @blocks until all have */
zoff_status zoff_engine_together_open(zoff_engine *e); /* reserve memory */
zoff_status zoff_engine_together_run(zoff_engine *e, zoff_status (*open)(zoff_engine *e));
void zoff_engine_together_close(zoff_engine *e);
/* For zoff_store_opts. */
zoff_status zoff_engine_together_decide(void *ctx, const zoff_store_found *found, uint64_t *out_generation);
zoff_status zoff_engine_together_written(void *ctx);
void zoff_engine_together_pulse(void *ctx);

/* first_weights.c: at seal. @blocks */
zoff_status zoff_engine_first_weights_send(zoff_engine *e); /* the program's weights become those of rank 0 */
zoff_status
zoff_engine_first_weights_compare(zoff_engine *e); /* of what the engine keeps, unless states of an earlier process are there */

/* wire.c: which elements go over the wire, and where they are in a rank's part */
void zoff_engine_wire_measure(zoff_engine *e); /* at seal: the widest elements of the list of parameters */
/* Where a piece goes in its part, in bytes. `at`: the end of the piece before it; moves behind this one. */
size_t zoff_engine_wire_place(size_t *at, size_t count, size_t element_bytes);
size_t zoff_engine_wire_part_bytes(const zoff_engine *e, const zoff_plan *plan, size_t bucket, unsigned rank);
/* No less than all ranks' parts of a bucket together. */
size_t zoff_engine_wire_bucket_most(const zoff_engine *e, const zoff_plan *plan, size_t bucket);
/* Bytes of gradients in each rank's part of a bucket; valid until another bucket is asked for. */
const size_t *zoff_engine_wire_parts(const zoff_engine *e, size_t bucket);
/* Whether the weights of a piece go to all ranks in this step; `all`: outside of a step, whatever its gradients. */
bool zoff_engine_wire_takes(const zoff_engine *e, const zoff_plan_piece *piece, bool all);
bool zoff_engine_wire_takes_now(const zoff_engine *e, const zoff_plan_piece *piece);

/* weight.c */
/* The weight of this micro-batch on all ranks together, once its gradients are summed. */
double zoff_engine_weight_total(const zoff_engine *e);

/* reduce_scatter.c: gradients of all ranks to the owner of their sum */
zoff_status zoff_engine_reduce_scatter_pack(void *ctx, size_t bucket, unsigned slot, char *out);
zoff_status zoff_engine_reduce_scatter_sum(void *ctx, size_t bucket, unsigned slot, const char *parts, const float *weights);
/* The sums of a bucket are complete for this micro-batch: measure them in the last one. */
zoff_status zoff_engine_reduce_scatter_summed(zoff_engine *e, size_t bucket, const char *parts, const float *weights);
/* What goes into the parts of all ranks, as e->ranks.moves or e->ranks.terms; what is missing is zeroed already. And what is
 * added up of what has come, as e->accumulate_pieces.  @return how many. Both on the host, or on a device that is reached. */
zoff_status zoff_engine_reduce_scatter_list_parts(zoff_engine *e, size_t bucket, char *out, size_t *out_moves);
size_t zoff_engine_reduce_scatter_list_sums(zoff_engine *e, size_t bucket, const char *parts, const float *weights);
/* Whether gradients leave while the trainer makes others: from stage 2 on. */
bool zoff_engine_reduce_scatter_leaves_early(const zoff_engine *e);
void zoff_engine_reduce_scatter_begin(zoff_engine *e); /* the next micro-batch */
/* A slice is ready: its buckets will take it. */
void zoff_engine_reduce_scatter_hand_over(zoff_engine *e, zoff_param p, size_t slice);
void zoff_engine_reduce_scatter_mark(zoff_engine *e, zoff_param p, size_t slice);
bool zoff_engine_reduce_scatter_go_on(zoff_engine *e);               /* without waiting; whether something is under way */
void zoff_engine_reduce_scatter_close(zoff_engine *e);               /* no other gradient will come */
zoff_status zoff_engine_reduce_scatter_bucket(zoff_bucket_run *run); /* a row */
zoff_status zoff_engine_reduce_scatter_finish(zoff_engine *e);       /* wait for all of it */
zoff_status zoff_engine_reduce_scatter_drop(zoff_engine *e);         /* the gradients so far are not wanted; on all ranks */

/* device_direct.c: over a communicator that reaches the device's memory, gradients and weights go from device to device */
zoff_status zoff_engine_device_direct_find(zoff_engine *e);        /* whether it does */
zoff_status zoff_engine_device_direct_check(const zoff_engine *e); /* whether what that asks for can be had */
uint64_t zoff_engine_device_direct_bytes(const zoff_engine *e, const zoff_plan *plan, size_t staging_bytes); /* of the device */
zoff_status zoff_engine_device_direct_open(zoff_engine *e);
zoff_status
zoff_engine_device_direct_connect(zoff_engine *e); /* at seal, on all ranks: for sums that the communicator makes.  @blocks */
void zoff_engine_device_direct_close(zoff_engine *e);
/* The twins of exchange_pack() and exchange_sum(), spread_begin() and spread_end(), on the device. */
zoff_status zoff_engine_device_direct_pack(void *ctx, size_t bucket, unsigned slot, char *out);
zoff_status zoff_engine_device_direct_sum(void *ctx, size_t bucket, unsigned slot, const char *parts, const float *weights);
zoff_status zoff_engine_device_direct_begin(void *ctx, size_t bucket, unsigned slot, char **out);
zoff_status zoff_engine_device_direct_end(void *ctx, size_t bucket, unsigned slot, const char *parts);

/* all_gather.c: from the owner to all ranks */
size_t zoff_engine_all_gather_most(const zoff_engine *e, const zoff_plan *plan); /* the largest bucket, in bytes */
size_t zoff_engine_all_gather_part_bytes(void *ctx, size_t bucket, unsigned rank);
zoff_comm_item zoff_engine_all_gather_about(void *ctx, size_t bucket);
zoff_status zoff_engine_all_gather_begin(void *ctx, size_t bucket, unsigned slot, char **out);
zoff_status zoff_engine_all_gather_end(void *ctx, size_t bucket, unsigned slot, const char *parts);
size_t zoff_engine_all_gather_place(const zoff_engine *e, const zoff_plan_piece *piece, size_t *at);
zoff_status zoff_engine_all_gather_sums(zoff_bucket_run *run);    /* a row, of replicated states */
zoff_status zoff_engine_all_gather_weights(zoff_bucket_run *run); /* a row */
zoff_status zoff_engine_all_gather_finish(zoff_engine *e);        /* wait for all of it */
zoff_status zoff_engine_all_gather_all(zoff_engine *e);           /* outside of a step: all weights */

#endif
