/* SPDX-License-Identifier: Apache-2.0 */
/* gather.h: all-gather of items of which each rank has a part: weights after an update, sums of gradients if states are
 * replicated, weights to use. All ranks must start the items in the same order. The owner of a gather takes a slot for an item,
 * puts this rank's part in place, sends it, and uses the parts of all ranks once they have come.
 *
 * In a grid an item takes two hops: the ranks of a rail get each other's parts, and then those of a node the parts of all
 * rails. So parts are packed rail by rail, and within a rail by node. */
#ifndef ZOFF_ZERO_GATHER_H
#define ZOFF_ZERO_GATHER_H

#include "comm.h"

typedef struct zoff_gather zoff_gather;

typedef struct zoff_gather_opts {
    zoff_comm *comm;
    zoff_comm_channel *channel;
    zoff_comm_stream stream;
    unsigned first, stride, members; /* ranks that gather, on a stream of groups; 0 members: all */
    zoff_comm_grid grid;             /* all ranks: nodes of several ranks; `node` has the stream of the second hop */
    zoff_comm_stream node;
    unsigned slots; /* most items in flight */
} zoff_gather_opts;

/* An item in flight. Slots may have memory of their own, by their number. */
typedef struct zoff_gather_slot {
    unsigned number;
    size_t item;          /* the owner sets it, and the next two, before zoff_zero_gather_take() */
    zoff_comm_item about; /* the description that ranks compare */
    size_t *bytes;        /* of each member's part, as they are packed: the same on all ranks that gather */
    char *parts;          /* memory for the parts of all members; set before zoff_zero_gather_send() */
    bool is_used, is_sent;
    bool is_spread; /* grid: the second hop has started */
    size_t *rails;  /* grid: bytes of the parts of each rail */
    uint64_t order; /* of the items, by which they are sent */
    zoff_comm_work work;
} zoff_gather_slot;

zoff_status zoff_zero_gather_open(const zoff_gather_opts *opts, zoff_gather **out);
/* NULL is allowed. If an item is in flight, the communicator breaks. */
void zoff_zero_gather_close(zoff_gather *g);

/* Count what this rank sends and receives for one item, as zoff_comm_call_add_traffic(): reads no more of `opts->comm`. `bytes`
 * as zoff_gather_slot.bytes; `rails`: room for as many numbers as a node has ranks. */
void zoff_zero_gather_traffic(const zoff_gather_opts *opts, size_t *bytes, size_t *rails, zoff_comm_traffic *sum);

/* A slot that is free; NULL: there is none. */
zoff_gather_slot *zoff_zero_gather_free(zoff_gather *g);
/* Take it until zoff_zero_gather_end(). Items are sent in the order of these calls.  @return false: no rank has a part, so
 * there is nothing to send, and the slot stays free */
bool zoff_zero_gather_take(zoff_gather *g, zoff_gather_slot *s);
/* The next slot in use; `s` NULL: the first one. NULL: there is no other. */
zoff_gather_slot *zoff_zero_gather_next(const zoff_gather *g, const zoff_gather_slot *s);
/* This rank's part is in place: send it, and receive the others.  @return PENDING: an earlier item is not sent yet */
zoff_status zoff_zero_gather_send(zoff_gather *g, zoff_gather_slot *s);
/* @return OK: all parts have come; PENDING; an error of the communicator */
zoff_status zoff_zero_gather_poll(zoff_gather *g, zoff_gather_slot *s);
void zoff_zero_gather_end(zoff_gather_slot *s); /* the parts were used */
/* Advance the operations in flight. A kernel may call this while it computes. */
void zoff_zero_gather_pump(zoff_gather *g);
/* Bytes that this rank has sent to other ranks so far; 0 for NULL. */
uint64_t zoff_zero_gather_sent_bytes(const zoff_gather *g);

#endif
