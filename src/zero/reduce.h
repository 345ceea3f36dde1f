/* reduce.h: gradients of all ranks to the rank that owns their sum, bucket by bucket, while the trainer still makes others.
 *
 * A bucket whose gradients are all there is packed, part by part, and exchanged; each rank then has every rank's gradients of
 * its own part, one after the other in rank order, and they are added up by whoever knows their type; or, where that is asked
 * for, the communicator adds them up, and only the sum comes. Buckets are exchanged in one order on all ranks: first from the
 * last to the first, then as they became complete on rank 0 in the first pass. */
#ifndef ZOFF_ZERO_REDUCE_H
#define ZOFF_ZERO_REDUCE_H

#include "comm.h"
#include "zero.h"

typedef struct zoff_reduce zoff_reduce;

typedef struct zoff_reduce_opts {
    const zoff_plan *plan;
    zoff_comm *comm;
    zoff_comm_channel *channel;
    unsigned slots; /* buckets under way at a time */
    char *memory;   /* slots * zoff_zero_reduce_slot_bytes() */
    double factor;  /* by which all weights are multiplied */
    bool adds; /* parts are in fp32 and the communicator adds them up, see zoff_comm_call.adds; and so `sum` gets one part */
    size_t bucket_most, part_most; /* bytes that no bucket, and no part of this rank, is larger than */
    size_t (*part_bytes)(void *ctx, size_t bucket, unsigned rank); /* on the wire; the same on all ranks */
    /* Write the parts of all ranks, one after the other; with `adds` each as long as the longest, and multiplied by
     * zoff_zero_reduce_own_weight(). PENDING, or an error: asked again. */
    zoff_status (*pack)(void *ctx, size_t bucket, unsigned slot, char *out);
    /* Add up what has come: a part of each rank, part_bytes of this rank apart, and the weight of each rank's micro-batch.
     * Likewise. */
    zoff_status (*sum)(void *ctx, size_t bucket, unsigned slot, const char *parts, const float *weights);
    void *ctx;
} zoff_reduce_opts;

/* Memory of one slot: the largest bucket, there and back. */
size_t zoff_zero_reduce_slot_bytes(const zoff_reduce_opts *opts);

zoff_status zoff_zero_reduce_open(const zoff_reduce_opts *opts, zoff_reduce **out);
/* NULL is allowed. What is in flight is given up, and the communicator with it. */
void zoff_zero_reduce_close(zoff_reduce *r);

/* A micro-batch begins. `missing[b]`: slices that bucket b waits for; read until the next call. */
void zoff_zero_reduce_begin(zoff_reduce *r, const uint32_t *missing);
/* What this rank's micro-batch weighs in the mean; before its first mark. */
void zoff_zero_reduce_weigh(zoff_reduce *r, double weight);
/* A slice of bucket [first, last] is there. */
void zoff_zero_reduce_mark(zoff_reduce *r, size_t first, size_t last);
/* No other slice will come: what is not complete is exchanged as it is. */
void zoff_zero_reduce_close_batch(zoff_reduce *r);
/* Go on, without waiting; calls pack and sum.  @return OK: all that can be exchanged is; PENDING; an error of the communicator
 */
zoff_status zoff_zero_reduce_poll(zoff_reduce *r);
/* Let what is in flight go on, and nothing else: from within a kernel. */
void zoff_zero_reduce_pump(zoff_reduce *r);
/* Whether this rank's part of a bucket is summed up. */
bool zoff_zero_reduce_is_done(const zoff_reduce *r, size_t bucket);
/* What this rank's micro-batch weighs, times the factor, from the first pack on. It stays where it is. */
const float *zoff_zero_reduce_own_weight(const zoff_reduce *r);
/* Bytes of gradients that this rank has sent to others so far. */
uint64_t zoff_zero_reduce_sent_bytes(const zoff_reduce *r);
/* The weights of all ranks' micro-batches, added up in rank order; once a bucket of it is done. */
double zoff_zero_reduce_total_weight(const zoff_reduce *r);

#endif
