/* gather.h: all-gather of items of which each rank has a part: weights after an update, sums of gradients if states are
 * replicated, weights to use. All ranks must start the items in the same order. */
#ifndef ZOFF_ZERO_GATHER_H
#define ZOFF_ZERO_GATHER_H

#include "comm.h"

typedef struct zoff_gather zoff_gather;

typedef struct zoff_gather_opts {
    zoff_comm *comm;
    zoff_comm_channel *channel;
    zoff_comm_stream stream;
    unsigned first, members; /* ranks that gather; 0, 0: all. Some of the ranks do so on ZOFF_COMM_GROUP */
    unsigned slots;          /* most items in flight */
    zoff_comm_item (*about)(void *ctx, size_t item); /* the description that ranks compare */
    /* the number is the same on all ranks that gather, and 0 on others */
    size_t (*part_bytes)(void *ctx, size_t item, unsigned rank);
    /* Set *out to memory for the parts of all ranks, packed in rank order; this rank's part must be in place. Each slot may use
     * other memory.  @return PENDING while this rank's part is being copied there: the call is repeated */
    zoff_status (*begin)(void *ctx, size_t item, unsigned slot, char **out);
    /* Use the parts of all ranks; NULL if all parts are empty.  @return PENDING or an error: the slot stays in use, and the
     * next poll repeats the call */
    zoff_status (*end)(void *ctx, size_t item, unsigned slot, const char *parts);
    void *ctx;
} zoff_gather_opts;

zoff_status zoff_zero_gather_open(const zoff_gather_opts *opts, zoff_gather **out);
/* NULL is allowed. If an item is in flight, the communicator breaks. */
void zoff_zero_gather_close(zoff_gather *g);

/* Start an item. If all its parts are empty, `end` is called at once, without `begin`.  @return PENDING if no slot is free:
 * repeat the call after a poll */
zoff_status zoff_zero_gather_start(zoff_gather *g, size_t item);
/* Whether a slot is free. */
bool zoff_zero_gather_has_room(const zoff_gather *g);
/* Advance all items without waiting; calls `begin` and `end`.  @return OK: nothing is in flight; PENDING; an error of the
 * communicator or of a callback */
zoff_status zoff_zero_gather_poll(zoff_gather *g);
/* Advance only the operations in flight, without callbacks. A kernel may call this while it computes. */
void zoff_zero_gather_pump(zoff_gather *g);
/* Bytes that this rank has sent to other ranks so far; 0 for NULL. */
uint64_t zoff_zero_gather_sent_bytes(const zoff_gather *g);

#endif
