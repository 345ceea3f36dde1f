/* transfer.h: the door of the room that brings gradients from the program to where they are added up and measured, and new
 * weights back: in place, from and to a device, between ranks. Several objects are chosen once, when an engine is created:
 * zoff_route. The functions of a transfer are called by one thread at a time: calls of the engine hold its lock. */
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
#include "words.h"
#include "zero.h"
#include "zoff_model.h"

#include "transfer_device.h"
#include "transfer_grads.h"
#include "transfer_links.h"
#include "transfer_ranks.h"
#include "transfer_sums.h"

#include <zoff/engine.h>

/* What a bucket has borrowed of a store. */
typedef struct zoff_loan {
    char *base;   /* NULL: nothing */
    bool checked; /* compared with its checksum */
    bool done;    /* given back changed */
} zoff_loan;

/* One bucket on its way through the rows of a step: a chunk, and the row where it is. */
struct zoff_bucket_run {
    size_t chunk;
    unsigned row;
    zoff_loan states, weights;
    zoff_staging_slot *staging; /* NULL: none */
    bool shared;                /* of replicated states: the sums of all ranks' parts are there */
    bool gathered;              /* of partitioned states: the weights of all ranks' parts are */
    bool measures, updates;     /* on the device: it was asked to */
};

/* The memory of a chunk while it is borrowed: its states, and the weights that the engine keeps. Either may be NULL. */
typedef struct zoff_chunk_memory {
    char *states, *weights;
} zoff_chunk_memory;

/* Work on gradients before the step was asked for. */
typedef struct zoff_early {
    double measure_seconds;
    uint64_t read_bytes, write_bytes;
} zoff_early;

/* Micro-batches of a step, and how far its weights are. */
typedef struct zoff_batch {
    uint32_t micro;     /* micro-steps done of the current step */
    double micro_scale; /* their grad_scale */
    float weight;       /* of this rank's gradients of the current micro-batch */
    bool handed_over;   /* some of them were */
    double weight_sum;  /* of the micro-batches of this step before it, on all ranks */
    zoff_early early;
    size_t updated; /* buckets whose weights are new */
    size_t spread;  /* buckets before this position of the walk have been sent to all ranks, or are on their way */
    bool closed;    /* of a device: all gradients that were handed over have come down */
} zoff_batch;

/* What this rank has measured of the gradients of a step. */
typedef struct zoff_measure {
    zoff_vote vote;
    size_t buckets;
} zoff_measure;

/* fp32 sums of the gradients that this rank owns, on the host. Those of the first `device_sums` elements are on the device. */
typedef struct zoff_accumulator {
    zoff_map map; /* empty without accumulation and without other ranks */
    size_t device_sums;
} zoff_accumulator;

/* What a bucket hands to the kernels: plan.most.pieces of each. */
typedef struct zoff_scratch {
    zoff_adam_piece *adam_pieces;
    zoff_norm_piece *norm_pieces;
    size_t *norm_index; /* which piece of the bucket each of them is */
    zoff_accumulate_piece *accumulate_pieces;
    zoff_cast_piece *cast_pieces;
    double *block_sums;       /* plan.most.blocks, of the bucket that is measured */
    zoff_adam_consts *consts; /* per group, of the current step */
} zoff_scratch;

/* How gradients come and weights go, and what of them norm and update read; of several ranks, who has which states, where
 * gradients are added up, and by whom. */
typedef struct zoff_route {
    const zoff_link *link;
    const zoff_sum_place *place;
    const zoff_sum_rule *rule;
    const zoff_gradient_form *gradients;
    const zoff_peers *peers;
    bool reaches; /* the communicator reaches the memory of the device: see device_direct.c */
} zoff_route;

/* Sources of work that completes later: device streams, other ranks. */
typedef struct zoff_transfer_pollers {
    zoff_poller device, ranks;
} zoff_transfer_pollers;

/* What the owner does for a transfer. Every function gets `ctx`. */
typedef struct zoff_transfer_owner {
    void *ctx;
    unsigned threads;                             /* of the team */
    unsigned (*threads_now)(void *ctx);           /* fewer where the program's threads are busy */
    unsigned (*threads_of_measure)(void *ctx);    /* that measure a bucket */
    void (*feed)(void *ctx);                      /* between two pieces of a kernel: pump, and borrow for later buckets */
    void (*io)(void *ctx, zoff_store_stats *out); /* what the stores have done so far */
    bool (*is_voting)(void *ctx);                 /* ranks decide on the step now */
} zoff_transfer_owner;

/* The owner sets the fields up to `owner` before any call; what they point to is borrowed. All else starts as zero. */
struct zoff_transfer {
    zoff_model *model;
    const zoff_plan *plan;
    zoff_lending *lending;
    const zoff_config_values *values;
    zoff_accel *accel;
    zoff_comm *comm;
    zoff_comm_channel *channel;
    zoff_progress *progress;
    zoff_step_info *info; /* of the step that runs: time and bytes are counted there */
    zoff_transfer_owner owner;
    zoff_route route;
    zoff_grads grads;
    zoff_ranks ranks;
    zoff_device device;
    zoff_transfer_pollers pollers;
    zoff_batch batch;
    zoff_measure measure;
    zoff_accumulator accumulator;
    zoff_scratch scratch;
    zoff_bucket_run *runs; /* by bucket, from seal on */
};

/* Whether several ranks share the states, or each has a copy of its own. */
static inline bool zoff_transfer_ranks_several(const zoff_transfer *t)
{
    return zoff_comm_size(t->comm) > 1;
}
/* Whether the communicator reaches memory of the device: gradients and weights go from device to device. */
static inline bool zoff_transfer_device_direct_is(const zoff_transfer *t)
{
    return t->route.reaches;
}
/* Whether the CPU does not reach weights and gradients. */
static inline bool zoff_transfer_device_is(const zoff_transfer *t)
{
    return !zoff_accel_in_place(t->accel);
}
/* Whether the states of a bucket stay on the device. */
static inline bool zoff_transfer_device_tier_has(const zoff_transfer *t, size_t bucket)
{
    return bucket < t->device.tier.count;
}
/* Whether gradients are added up in fp32: over micro-batches, or over ranks. */
static inline bool zoff_transfer_pieces_accumulates(const zoff_transfer *t)
{
    return t->values->accumulation > 1 || zoff_comm_size(t->comm) > 1;
}
/* Where the states of a bucket are. */
static inline const zoff_sum_use *zoff_transfer_use_of(const zoff_transfer *t, size_t bucket)
{
    return zoff_transfer_device_tier_has(t, bucket) ? &zoff_transfer_sum_places_used_by_device
                                                    : &zoff_transfer_sum_places_used_by_host;
}
/* This rank's sum of gradients of a piece, on the host. */
static inline float *zoff_transfer_pieces_sum(const zoff_transfer *t, const zoff_plan_piece *piece)
{
    return (float *)t->accumulator.map.base + (piece->owned_offset - t->accumulator.device_sums);
}

/* walk.c: the order of buckets in a step: ascending; or, with a device and one rank, by the order in which gradients came in
 * the step before, unless files are read ahead in the order that was expected then */
void zoff_transfer_walk_begin(zoff_transfer *t, bool reads_ahead);
size_t zoff_transfer_walk_host_count(const zoff_transfer *t);              /* buckets whose states are in a store of the host */
size_t zoff_transfer_walk_bucket(const zoff_transfer *t, size_t position); /* the bucket at a position */
size_t zoff_transfer_walk_position(const zoff_transfer *t, size_t bucket); /* its inverse */

/* measure.c */
void zoff_transfer_measure_begin(zoff_transfer *t); /* nothing is measured */
/* Add the sums of squares of a piece, one a block of ZOFF_NORM_BLOCK elements. */
void zoff_transfer_measure_add(zoff_transfer *t, const zoff_plan_piece *piece, const double *block_sums);
/* Sums of squares of the pieces of a bucket that this rank measures; adds to `seconds` and `read_bytes`. `feed`: called between
 * pieces with the owner's ctx; NULL: not. */
void zoff_transfer_measure_bucket(zoff_transfer *t, size_t bucket, void (*feed)(void *ctx), double *seconds,
                                  uint64_t *read_bytes);
/* Seconds since `from`, without those that went to I/O and to checksums in between. */
double zoff_transfer_measure_worked(const zoff_transfer *t, double from, const zoff_store_stats *before);

/* pieces.c: the memory of a piece */
zoff_status zoff_transfer_pieces_open(zoff_transfer *t); /* at seal: lists for the kernels, the buckets, the accumulator */
void zoff_transfer_pieces_close(zoff_transfer *t);
/* A piece for the kernels: weights and all its states; gradient and constants are the caller's to add. */
zoff_adam_piece zoff_transfer_pieces_of_update(const zoff_transfer *t, const zoff_plan_chunk *chunk,
                                               const zoff_plan_piece *piece, zoff_chunk_memory memory);
/* A state of a piece, in the memory of its chunk. */
float *zoff_transfer_pieces_state(const zoff_plan_chunk *chunk, const zoff_plan_piece *piece, char *base,
                                  zoff_plan_stream stream);
/* The gradient that norm and update read, on the host. */
const void *zoff_transfer_pieces_gradient(const zoff_transfer *t, const zoff_plan_piece *piece, zoff_dtype *out_dtype);
/* The same for a bucket whose states stay on the device, in memory of the device. */
const void *zoff_transfer_pieces_kept_gradient(const zoff_transfer *t, const zoff_plan_piece *piece, zoff_dtype *out_dtype);
/* Whether a slice of the bucket has a gradient in this step. */
bool zoff_transfer_pieces_take_part(const zoff_transfer *t, size_t bucket);

#endif
