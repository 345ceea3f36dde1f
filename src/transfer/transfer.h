/* SPDX-License-Identifier: Apache-2.0 */
/* transfer.h: moves gradients from the program to the place where they are summed and measured, and updated weights back: in
 * place, from and to a device, and between ranks. The strategy objects are chosen once, when an engine is created: see
 * zoff_route. One thread at a time calls the functions of a transfer; the engine's calls hold its lock. */
#ifndef ZOFF_TRANSFER_H
#define ZOFF_TRANSFER_H

#include "accel.h"
#include "comm.h"
#include "cpu_adam.h"
#include "exact.h"
#include "lending.h"
#include "map.h"
#include "mem.h"
#include "offload.h"
#include "progress.h"
#include "trace.h"
#include "words.h"
#include "zero.h"
#include "zoff_model.h"

#include "route.h"
#include "transfer_device.h"
#include "transfer_grads.h"
#include "transfer_ranks.h"

#include <zoff/engine.h>

/* A bucket that is updated before zoff_step_begin(). */
typedef struct zoff_bucket_ahead {
    bool is_so;      /* the bucket takes the rows ahead of the step */
    bool is_put;     /* the second content is complete, and not adopted yet */
    char *states;    /* memory of the second content; NULL: none */
    bool is_refused; /* the bucket is not updated ahead in this step: there was no memory for it, or an error */
} zoff_bucket_ahead;

/* How far the update of a bucket has come: elements of this piece, of this rank's part, are done. */
typedef struct zoff_update_cursor {
    size_t piece, element;
} zoff_update_cursor;

/* One bucket that passes through the rows of a step: its chunk, and its current row. */
struct zoff_bucket_run {
    size_t chunk;
    uint64_t passed;            /* rows that were passed, one bit for each row of zoff_rows */
    zoff_demand lent;           /* memory of its chunks, from the stores of states and weights */
    zoff_staging_slot *staging; /* staging slot; NULL: none */
    bool shared;                /* replicated states: the sums of all ranks' parts have arrived */
    bool gathered;              /* partitioned states: the weights of all ranks' parts have arrived */
    bool measures, updates;     /* device buckets: the measurement, or the update, was enqueued */
    bool lands;                 /* device buckets: the update, or a copy to the host, is waited for */
    bool saves;                 /* device buckets: the copy of states to the host was enqueued */
    bool used;                  /* weights that were used in this step: see zoff_transfer_walk_use() */
    bool is_written;            /* matrices: the directions of this bucket are there */
    bool is_whole;              /* matrices: their directions are orthogonal, so the weights are next */
    zoff_bucket_ahead ahead;
    zoff_update_cursor cursor;
};

/* Buckets whose gradients have all come in this micro-batch, summed where ranks sum them. */
typedef struct zoff_arrivals {
    uint32_t *slices;  /* number of trained slices with a part in each bucket */
    uint32_t *missing; /* one rank: number of slices that have not come; zero/reduce.c counts them for several */
    uint32_t *buckets; /* buckets in the order in which they became complete */
    size_t count;
} zoff_arrivals;

/* The buckets of a step, and their order. */
typedef struct zoff_walk {
    zoff_bucket_run *runs;   /* runs by bucket; allocated at seal, as are the lists below */
    uint32_t *order, *place; /* learned order: the bucket of a position, and its inverse */
    uint32_t *uses;          /* buckets in the order in which the running step's weights were used first */
    size_t use_count;
    uint32_t *together;          /* scratch for the order with rounds of matrices: buckets, and flags of rounds; NULL: none */
    uint32_t *candidate, *heard; /* several ranks: the order that rank 0 tells, and what this rank has heard of it */
    size_t heard_count;
    bool has_news, begins; /* rank 0: there is a candidate, and none of it was told yet */
    bool is_learned;       /* `order` holds */
    bool is_used;          /* the program has waited for weights in this step, so it will finish it */
    zoff_arrivals arrivals;
} zoff_walk;

/* Borrowed memory of a chunk: its states, and its engine-owned weights. Either may be NULL. */
typedef struct zoff_chunk_memory {
    char *states, *weights;
} zoff_chunk_memory;

/* Work on gradients before zoff_step_begin(). */
typedef struct zoff_early {
    double measure_seconds;
    uint64_t read_bytes, write_bytes;
} zoff_early;

/* Micro-batches of a step, and the progress of its weights. */
typedef struct zoff_batch {
    uint32_t micro;     /* finished micro-steps of the current step */
    double micro_scale; /* grad_scale of these micro-steps */
    float weight;       /* factor for this rank's gradients of the current micro-batch */
    bool handed_over;   /* a gradient of this micro-batch was handed over */
    zoff_exact weights; /* sum over the earlier micro-batches of this step, on all ranks */
    zoff_early early;
    size_t updated; /* buckets whose weights are updated */
    size_t spread;  /* buckets before this position of the walk were sent to all ranks, or are in flight */
    bool closed;    /* device: all gradients that were handed over are downloaded */
} zoff_batch;

/* Checksums of a parameter's gradient in a step, where the program has declared it equal to those of other ranks. They are sums
 * of checksums of blocks, so neither the order of the blocks nor the rank that adds one changes them. */
typedef struct zoff_alike {
    uint64_t copies;   /* zoff_param_desc.reduced: this rank's copies in all micro-batches, the blocks that the step compares */
    uint64_t replicas; /* zoff_param_desc.norm_replicated: the sums of squares that this rank has measured */
    uint64_t factor;   /* factor of `replicas`, set at seal: see agreement/alike.c; 0: not compared */
} zoff_alike;

/* This rank's measurement of the gradients of a step. */
typedef struct zoff_measure {
    zoff_vote vote;
    size_t buckets;
    bool votes;        /* a vote on the measurement is under way; set by the owner */
    zoff_alike *alike; /* checksums by parameter; NULL: nothing is declared */
} zoff_measure;

/* fp32 sums of the gradients that this rank owns, in host memory. Sums of the first `device_sums` elements are on the device
 * instead. */
typedef struct zoff_accumulator {
    zoff_map map;  /* memory of the sums, empty without accumulation on a single rank */
    zoff_map bins; /* what the rule keeps beside them from one micro-batch to the next */
    size_t device_sums;
    float *there; /* sums in device memory, by `owned_offset`; NULL: none */
    zoff_tied_sums tied;
} zoff_accumulator;

/* Argument lists for the kernels of one bucket: plan.most.pieces entries each. */
typedef struct zoff_scratch {
    zoff_adam_piece *adam_pieces;
    zoff_adam_apart *apart_pieces;
    zoff_norm_piece *norm_pieces;
    size_t *norm_index; /* index within the bucket, for each entry of norm_pieces */
    zoff_accumulate_piece *accumulate_pieces;
    zoff_bins_piece *bins_pieces;
    zoff_cast_piece *cast_pieces;
    double *block_sums;       /* plan.most.blocks entries, for the bucket that is measured */
    zoff_adam_consts *consts; /* constants of the current step, by zoff_model_groups_index() */
} zoff_scratch;

/* A rule by which gradients are added up in host memory: zoff.reduce_scatter. */
typedef struct zoff_sum_rule {
    const char *name;
    bool ends_all; /* the last micro-batch makes all sums, also those to which it adds nothing */
    uint64_t (*bytes)(const zoff_transfer *t, size_t elements); /* memory for so many sums, beside the sums */
    void (*add)(zoff_transfer *t, const zoff_accumulate_piece *pieces, size_t count, zoff_adam_between between, void *ctx);
} zoff_sum_rule;

extern const zoff_sum_rule zoff_transfer_sums_ordered, zoff_transfer_sums_exact;

/* How gradients and weights travel: the objects that were chosen, and what follows from them. */
typedef struct zoff_route {
    const zoff_link *link;
    const zoff_wire *wire; /* wire; NULL: one rank */
    zoff_grads *lent;      /* the pool that zoff_grad_acquire() lends from */
    zoff_grads *packed;    /* the pool whose gradients are sent to other ranks, or summed */
    bool reaches;          /* the communicator accesses device memory: see wire_device.c */
    bool sums;             /* norm and update read fp32 sums, over micro-batches or ranks; otherwise what was handed over */
    bool adds;             /* the communicator sums gradients, in an order of its own: parts are fp32, and of equal length */
    const zoff_sum_rule *rule;
} zoff_route;

/* Pollers for work that completes later: device streams, other ranks. */
typedef struct zoff_transfer_pollers {
    zoff_poller device, ranks;
} zoff_transfer_pollers;

/* Numbers of threads for kernels, written by the owner. */
typedef struct zoff_transfer_threads {
    unsigned team;    /* threads of the team */
    unsigned now;     /* threads of the team to use now: fewer while the program's are busy */
    unsigned measure; /* most threads that measure a bucket, if fewer are faster; 0: as many as `now` */
} zoff_transfer_threads;

/* The owner sets the fields up to and including `threads` before any call; what they point to is borrowed. All other fields
 * start as zero. */
struct zoff_transfer {
    zoff_model *model;
    const zoff_plan *plan;
    zoff_lending *lending;
    const zoff_config_values *values;
    zoff_accel *accel;
    zoff_comm *comm;
    zoff_comm_channel *channel;
    zoff_progress *progress;
    zoff_step_info *info; /* info of the running step: time and bytes are counted there */
    zoff_transfer_threads threads;
    zoff_route route;
    zoff_grads grads; /* gradients in host memory */
    zoff_ranks ranks;
    zoff_device device;
    zoff_transfer_pollers pollers;
    zoff_batch batch;
    zoff_measure measure;
    zoff_accumulator accumulator;
    zoff_scratch scratch;
    zoff_walk walk;
};

/* Whether there are several ranks. They share the states, or each has a copy of its own. */
static inline bool zoff_transfer_ranks_several(const zoff_transfer *t)
{
    return zoff_comm_size(t->comm) > 1;
}
/* Whether the communicator accesses device memory: gradients and weights then travel from device to device. */
static inline bool zoff_transfer_device_direct_is(const zoff_transfer *t)
{
    return t->route.reaches;
}
/* Whether weights and gradients are in memory that the CPU cannot access. */
static inline bool zoff_transfer_device_is(const zoff_transfer *t)
{
    return !zoff_accel_in_place(t->accel);
}
/* Whether the states of a bucket stay on the device. */
static inline bool zoff_transfer_device_tier_has(const zoff_transfer *t, size_t bucket)
{
    return bucket < t->device.tier.count;
}
/* Whether the states of a bucket are only on the device: without zoff.persist. */
static inline bool zoff_transfer_device_tier_alone(const zoff_transfer *t, size_t bucket)
{
    return zoff_transfer_device_tier_has(t, bucket) && !t->values->persist;
}
/* Whether each rank has a part of states and weights, so reading one needs all ranks. Otherwise each has all of them, and
 * several ranks exchange sums of gradients, but no weights. */
static inline bool zoff_transfer_ranks_have_parts(const zoff_transfer *t)
{
    return zoff_transfer_ranks_several(t) && t->values->zero_stage > 0;
}
/* Whether gradients are sent while the program computes others: from stage 2 on. */
static inline bool zoff_transfer_ranks_leave_early(const zoff_transfer *t)
{
    return zoff_transfer_ranks_several(t) && t->values->zero_stage >= 2;
}
/* Whether this rank measures the gradient of a piece that it owns. Another rank may have a gradient that this one lacks. */
static inline bool zoff_transfer_ranks_measure(const zoff_transfer *t, const zoff_plan_piece *piece)
{
    return !t->model->params[piece->param].frozen &&
           (zoff_transfer_ranks_several(t) || *zoff_model_params_flag(t->model, piece));
}
/* The type of a parameter's gradients between ranks, and the type in which norm and update read them. */
static inline zoff_dtype zoff_transfer_wire_dtype(const zoff_transfer *t, const zoff_model_param *p)
{
    return t->route.adds ? ZOFF_F32 : t->values->wire_dtype ? t->values->wire_dtype : p->grad_dtype;
}
static inline zoff_dtype zoff_transfer_pieces_dtype(const zoff_transfer *t, const zoff_model_param *p)
{
    return t->route.sums ? ZOFF_F32 : p->grad_dtype;
}
/* Where the states of a bucket are, and where its gradients are summed and measured. */
static inline zoff_used_place zoff_transfer_place_of(const zoff_transfer *t, size_t bucket)
{
    return zoff_transfer_device_tier_has(t, bucket) ? t->device.tier.place : ZOFF_USED_BY_HOST;
}
/* This rank's sum of the gradients of a piece, in host memory. */
static inline float *zoff_transfer_pieces_sum(const zoff_transfer *t, const zoff_plan_piece *piece)
{
    return (float *)t->accumulator.map.base + (piece->owned_offset - t->accumulator.device_sums);
}

/* walk.c: the order of buckets in a step. It is the one in which the program used weights while a step was open
 * (zoff_param_wait()), if it has done so. Otherwise it ascends; or, with a device and one rank, it is the order in which
 * gradients arrived in the previous step. With `reads_ahead`, files are prefetched in the expected order, so that is kept. */
zoff_status zoff_transfer_walk_open(zoff_transfer *t); /* at seal */
void zoff_transfer_walk_close(zoff_transfer *t);
void zoff_transfer_walk_begin_batch(zoff_transfer *t);             /* no bucket is complete in this micro-batch */
void zoff_transfer_walk_complete(zoff_transfer *t, size_t bucket); /* note that a bucket is complete, once in a micro-batch */
/* The program uses weights of these buckets before the running step is over. */
void zoff_transfer_walk_use(zoff_transfer *t, zoff_slice_buckets buckets);
/* Several ranks: fill in this rank's vote. hear: read the joined vote. */
void zoff_transfer_walk_tell(const zoff_transfer *t, zoff_walk_news *out);
void zoff_transfer_walk_hear(zoff_transfer *t, const zoff_vote *vote);
/* At the end of a step: use the order of its uses from now on, then that of the other buckets. Several ranks use the order of
 * rank 0, once all have heard it.  @return whether the order is another one */
bool zoff_transfer_walk_learn(zoff_transfer *t);
void zoff_transfer_walk_begin(zoff_transfer *t, bool reads_ahead);
size_t zoff_transfer_walk_host_count(const zoff_transfer *t);              /* buckets whose states are in a host store */
size_t zoff_transfer_walk_bucket(const zoff_transfer *t, size_t position); /* the bucket at a position */
size_t zoff_transfer_walk_position(const zoff_transfer *t, size_t bucket); /* the position of a bucket */

/* sums.c */
/* Memory for sums by a rule; use: add up gradients by it from now on. No step is under way.  @owns memory: taken by use */
zoff_status zoff_transfer_sums_prepare(const zoff_transfer *t, bool exact, zoff_map *out);
void zoff_transfer_sums_use(zoff_transfer *t, bool exact, zoff_map *memory);
/* By the rule "exact": add sums, such as those of each node, to the sum of a piece. */
zoff_bins_piece zoff_transfer_sums_join(const zoff_transfer *t, const zoff_plan_piece *piece, const zoff_bins *parts,
                                        size_t count);
bool zoff_transfer_sums_ends(const zoff_transfer *t); /* whether the present micro-batch is the last of its step */

/* measure.c */
zoff_status zoff_transfer_measure_open(zoff_transfer *t); /* at seal: allocate memory, if gradients are declared equal */
void zoff_transfer_measure_close(zoff_transfer *t);
void zoff_transfer_measure_begin(zoff_transfer *t); /* reset all measurements */
/* Whether the block of one vote that is not finite precedes that of another in the list of parameters. */
bool zoff_transfer_measure_is_before(const zoff_vote *a, const zoff_vote *b);
/* Join the vote `other` into the vote `into`: see zoff_report.join. */
void zoff_transfer_measure_join(void *into, const void *other, size_t bytes);
/* The bucket is complete on this rank: add the checksums of gradients that the trainer has reduced. Call begin_copies() before
 * the first micro-batch of a step. A step compares at most 16 blocks of each slice, the next one others, so that it takes
 * little time. */
void zoff_transfer_measure_begin_copies(zoff_transfer *t);
void zoff_transfer_measure_add_copies(zoff_transfer *t, size_t bucket);
/* The gradient of a rank is not finite in this block, and the sum will not be. */
void zoff_transfer_measure_blame(zoff_transfer *t, const zoff_plan_piece *piece, size_t first, unsigned rank);
/* Add the sums of squares of a piece, one per block of ZOFF_NORM_BLOCK elements. */
void zoff_transfer_measure_add(zoff_transfer *t, const zoff_plan_piece *piece, const double *block_sums);
/* Measure a bucket before zoff_step_begin(), or while ranks exchange: the time and bytes are those of t->batch.early. */
void zoff_transfer_measure_early(zoff_transfer *t, size_t bucket);
/* Compute the sums of squares of those pieces of a bucket that this rank measures; add to `read_bytes`. `between` is called
 * between pieces; NULL: no call. */
void zoff_transfer_measure_bucket(zoff_transfer *t, size_t bucket, void (*between)(void *ctx), void *ctx, uint64_t *read_bytes);

/* pieces.c: the memory of a piece */
/* at seal: allocate the kernels' lists, the buckets and the accumulator */
zoff_status zoff_transfer_pieces_open(zoff_transfer *t);
void zoff_transfer_pieces_close(zoff_transfer *t);
/* Build the update piece for the kernels, with weights and all states. The caller adds gradient and constants. */
zoff_adam_piece zoff_transfer_pieces_of_update(const zoff_transfer *t, const zoff_plan_chunk *chunk,
                                               const zoff_plan_piece *piece, zoff_chunk_memory memory);
/* A state of a piece, within the memory of its chunk. Its format is that of zoff_model_masters_of() or
 * zoff_model_moments_of(). */
void *zoff_transfer_pieces_state(const zoff_plan_chunk *chunk, const zoff_plan_piece *piece, char *base,
                                 zoff_plan_stream stream);
/* The gradient that norm and update read, in memory of the host, or of the device (`there`). */
const void *zoff_transfer_pieces_gradient(const zoff_transfer *t, const zoff_plan_piece *piece, bool there,
                                          zoff_dtype *out_dtype);
/* Whether any slice of the bucket has a gradient in this step. */
bool zoff_transfer_pieces_take_part(const zoff_transfer *t, size_t bucket);

#endif
