/* SPDX-License-Identifier: Apache-2.0 */
/* reduce.h: reduce-scatter of gradients, bucket by bucket, while the trainer still computes others.
 *
 * A bucket is exchanged once all its gradients have come. `pack` writes the gradients part by part. After the exchange each
 * rank has the gradients of all ranks for its own part, in rank order. `sum` then adds them up, because only the caller knows
 * their type. With `adds` the communicator adds them up instead, and only the sum arrives. All ranks exchange buckets in one
 * order: in the first micro-batch from the last bucket to the first, afterwards in the order in which they became complete on
 * rank 0 in that micro-batch.
 *
 * With `levels` a bucket takes two hops. Within a node each rank gets the terms for its rail, the ranks of its place in all
 * nodes, and adds up what its node has. On the rail these partial sums go to their owners. */
#ifndef ZOFF_ZERO_REDUCE_H
#define ZOFF_ZERO_REDUCE_H

#include "comm.h"
#include "exact.h"
#include "zero.h"

typedef struct zoff_reduce zoff_reduce;

/* The second hop. */
typedef struct zoff_reduce_levels {
    zoff_comm_grid grid;
    size_t partial_most; /* bytes of the partial sums of a bucket in a slot; 0: `partial` has memory for them */
    size_t sum_most;     /* upper bound in bytes for the partial sums of one node for this rank */
    /* Bytes of the partial sums for the rank of this rail in a node, the same on all ranks of the rail. */
    size_t (*sum_bytes)(void *ctx, size_t bucket, unsigned node);
    /* Add up the terms of this node for the rail. `terms` has part_bytes() of this rank's place from each rank of the node.
     * `*sums` is memory in the slot. Set it to the partial sums, packed by node. `weights` has those of this node.
     * @return PENDING or an error: the call is repeated */
    zoff_status (*partial)(void *ctx, size_t bucket, unsigned slot, const char *terms, const float *weights, char **sums);
} zoff_reduce_levels;

typedef struct zoff_reduce_opts {
    const zoff_plan *plan;
    zoff_comm *comm;
    zoff_comm_channel *channel;
    unsigned slots; /* most buckets in flight */
    char *memory;   /* slots * zoff_zero_reduce_slot_bytes() */
    double factor;  /* factor of the weights of all micro-batches */
    bool adds;      /* parts are fp32 and the communicator adds them up (zoff_comm_call.adds): `sum` gets one part */
    size_t bucket_most, part_most; /* upper bounds in bytes, for a bucket and for what one rank sends to this rank */
    /* Bytes for a rank, or, with levels, for the ranks of a rail, by the place of this node's rank in it; the same on all
     * ranks. */
    size_t (*part_bytes)(void *ctx, size_t bucket, unsigned rank);
    /* Write the parts of all ranks, packed in rank order, or, with levels, rail by rail. With `adds`, pad every part to the
     * longest one and multiply it by zoff_zero_reduce_own_weight().  @return PENDING or an error: the call is repeated */
    zoff_status (*pack)(void *ctx, size_t bucket, unsigned slot, char *out);
    /* Add up the received parts. `parts` has one part from each rank, each of this rank's part_bytes. `weights` has the weight
     * of each rank's micro-batch. With levels: the partial sums of each node.  @return PENDING or an error: the call is
     * repeated */
    zoff_status (*sum)(void *ctx, size_t bucket, unsigned slot, const char *parts, const float *weights);
    void *ctx;
    const zoff_reduce_levels *levels; /* copied; NULL: one hop, from each rank to each */
} zoff_reduce_opts;

/* Bytes of memory for one slot: the largest bucket to send, and the parts to receive. */
size_t zoff_zero_reduce_slot_bytes(const zoff_reduce_opts *opts);

/* Count what this rank sends and receives in a micro-batch, as zoff_comm_call_add_traffic(): reads no more of `opts->comm`, and
 * needs no memory, callbacks other than for sizes, or other ranks. `keeps`: see zoff_zero_reduce_begin(). The first micro-batch
 * of an engine has one operation more, for the order.  @return ERR_NO_MEMORY */
zoff_status zoff_zero_reduce_traffic(const zoff_reduce_opts *opts, bool keeps, zoff_comm_traffic *sum);

zoff_status zoff_zero_reduce_open(const zoff_reduce_opts *opts, zoff_reduce **out);
/* NULL is allowed. If an exchange is in flight, the communicator breaks. */
void zoff_zero_reduce_close(zoff_reduce *r);

/* Begin a micro-batch. missing[b] is the number of slices that bucket b waits for. `keeps`: there is no second hop, because a
 * later micro-batch of this step has it. */
void zoff_zero_reduce_begin(zoff_reduce *r, const uint32_t *missing, bool keeps);
/* Set the weight of this rank's micro-batch in the mean; the default is 1. Call it before the first zoff_zero_reduce_mark(). */
void zoff_zero_reduce_weigh(zoff_reduce *r, double weight);
/* Report that the gradient of a slice has come. The slice lies in the buckets first to last. */
void zoff_zero_reduce_mark(zoff_reduce *r, size_t first, size_t last);
/* End the micro-batch, because no further slice will come. Incomplete buckets are exchanged as they are. */
void zoff_zero_reduce_close_batch(zoff_reduce *r);
/* End the micro-batch after an error of this rank: until the next micro-batch, buckets are exchanged without their content, and
 * nothing is packed or summed. */
void zoff_zero_reduce_give_up(zoff_reduce *r);
/* Advance without waiting; calls `pack` and `sum`.  @return OK: every bucket that can be exchanged is done; PENDING; an error
 * of the communicator or of a callback */
zoff_status zoff_zero_reduce_poll(zoff_reduce *r);
/* Advance only the operations in flight, without callbacks. A kernel may call this while it computes. */
void zoff_zero_reduce_pump(zoff_reduce *r);
/* Whether this rank's part of a bucket has been summed. */
bool zoff_zero_reduce_is_done(const zoff_reduce *r, size_t bucket);
/* The weight of this rank's micro-batch times the factor. The value is set before the first `pack`; the pointer never changes.
 */
const float *zoff_zero_reduce_own_weight(const zoff_reduce *r);
/* Bytes of gradients that this rank has sent to others so far. */
uint64_t zoff_zero_reduce_sent_bytes(const zoff_reduce *r);
/* The sum over all ranks of their micro-batch weights times the factor. Valid once a bucket of the micro-batch is done. */
const zoff_exact *zoff_zero_reduce_total_weight(const zoff_reduce *r);
/* Number of micro-batches exchanged so far, with the present one. The same on all ranks, because they exchange together: valid
 * once a bucket of the micro-batch is done. */
uint64_t zoff_zero_reduce_batches(const zoff_reduce *r);

#endif
