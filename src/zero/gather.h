/* gather.h: what each rank has a part of, to all ranks: weights after an update, sums where states are replicated, weights that
 * somebody uses. Items are gathered in the order in which they are started, which is the same on all ranks. */
#ifndef ZOFF_ZERO_GATHER_H
#define ZOFF_ZERO_GATHER_H

#include "comm.h"

typedef struct zoff_gather zoff_gather;

typedef struct zoff_gather_opts {
    zoff_comm *comm;
    zoff_comm_channel *channel;
    zoff_comm_stream stream;
    unsigned slots;                                              /* items under way at a time */
    zoff_comm_item (*about)(void *ctx, size_t item);             /* what it is, for ranks that compare it */
    size_t (*part_bytes)(void *ctx, size_t item, unsigned rank); /* the same on all ranks */
    /* Where the parts of all ranks go, one after the other; this rank's is there. Each slot may have a memory of its own.
     * PENDING: it is on its way there; asked again. */
    zoff_status (*begin)(void *ctx, size_t item, unsigned slot, char **out);
    /* All are there; NULL: nobody has one. PENDING, or an error: asked again, and the slot is in use until then. */
    zoff_status (*end)(void *ctx, size_t item, unsigned slot, const char *parts);
    void *ctx;
} zoff_gather_opts;

zoff_status zoff_zero_gather_open(const zoff_gather_opts *opts, zoff_gather **out);
/* NULL is allowed. What is in flight is given up, and the communicator with it. */
void zoff_zero_gather_close(zoff_gather *g);

/* Gather an item; one of which nobody has a part ends at once, and was not begun.  @return PENDING: no slot is free, ask again
 * after a poll */
zoff_status zoff_zero_gather_start(zoff_gather *g, size_t item);
/* Whether a slot is free. */
bool zoff_zero_gather_has_room(const zoff_gather *g);
/* Go on, without waiting; calls end.  @return OK: nothing is in flight; PENDING; an error of the communicator */
zoff_status zoff_zero_gather_poll(zoff_gather *g);
/* Let what is in flight go on, and nothing else: from within a kernel. */
void zoff_zero_gather_pump(zoff_gather *g);
/* Bytes that this rank has sent to others so far; of NULL none. */
uint64_t zoff_zero_gather_sent_bytes(const zoff_gather *g);

#endif
