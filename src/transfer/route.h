/* SPDX-License-Identifier: Apache-2.0 */
/* route.h: how gradients reach the engine, how updated weights reach the program, and what carries both between ranks: one
 * route and, with several ranks, one wire. They are chosen when an engine is created: see route.c; part of transfer.h. */
#ifndef ZOFF_TRANSFER_ROUTE_H
#define ZOFF_TRANSFER_ROUTE_H

#include "cpu_adam.h"
#include "map.h"
#include "zero.h"

#include <zoff/engine.h>

typedef struct zoff_transfer zoff_transfer;

/* Streams, and engine memory that gradients and weights are copied to and from. */
typedef struct zoff_link_memory {
    zoff_status (*open)(zoff_transfer *t); /* makes the memory at seal; zoff_transfer_device_close() frees it */
    /* Add the memory of the link and of the sums below to `info`. */
    void (*plan)(const zoff_transfer *t, const zoff_plan *plan, zoff_plan_info *info);
} zoff_link_memory;

/* Sums of the gradients of tied parameters, in the memory that holds the program's gradients. */
typedef struct zoff_link_sums {
    zoff_status (*alloc)(zoff_transfer *t, uint64_t bytes, char **out); /* sets t->accumulator.tied */
    zoff_status (*add)(zoff_transfer *t, const zoff_accumulate_piece *piece);
    zoff_status (*follow)(zoff_transfer *t); /* later additions wait for the stream named in the last `follow` of the link */
    void (*added)(zoff_transfer *t, size_t number); /* memory that was lent for this slice's gradient can be reused */
} zoff_link_sums;

/* The end of a step. */
typedef struct zoff_link_step {
    /* The gradient in this buffer of the program is read: clear so many bytes of it, before later work in the stream. With NULL
     * it is clear when the call returns. */
    zoff_status (*reuse)(zoff_transfer *t, char *grad, size_t bytes, void *native_stream);
    /* All buckets are through: wait for the streams. `zeroes`: clear the gradients that were handed over, if the streams do
     * that.  @blocks */
    zoff_status (*finish)(zoff_transfer *t, bool zeroes);
    void (*recorded)(zoff_transfer *t, bool zeroes); /* ends a step; clears gradients if the CPU does that */
} zoff_link_step;

/* How gradients reach the engine, and updated weights the program. An entry that is NULL has nothing to do: ZOFF_LINK() calls
 * those that may be. Only `open`, `alloc`, `add`, `taken`, `gradient`, `weights`, `move` and `reuse` are in every link. */
typedef struct zoff_link {
    const char *name;
    bool has_streams; /* the program may name a stream with a gradient */
    bool downloads;   /* gradients are downloaded one by one into engine memory, until they are used */
    zoff_link_memory memory;
    zoff_link_sums sums;
    /* Make all later engine work on weights wait for the work that is now in `native_stream`. */
    zoff_status (*follow)(zoff_transfer *t, void *native_stream);
    /* start the transfer of a gradient */
    zoff_status (*take)(zoff_transfer *t, zoff_param p, size_t slice, void *native_stream);
    void (*taken)(zoff_transfer *t, zoff_param p, size_t slice); /* call after `take`; the step returns errors */
    /* gives the address where the CPU reads a gradient */
    const char *(*gradient)(const zoff_transfer *t, const zoff_plan_piece *piece);
    /* Where the CPU has the weights of a piece. `weights`: memory of the chunk's engine-owned weights.  @return NULL:
     * nowhere */
    char *(*weights)(const zoff_transfer *t, const zoff_plan_piece *piece, char *weights);
    /* Take the new weights of a bucket from its staging slot: the CPU copies them to the program, where it reaches them, with
     * `threads`. Otherwise they are uploaded like those of other buckets.  @return bytes copied */
    size_t (*adopt)(zoff_transfer *t, size_t bucket, unsigned threads);
    /* Outside of the walk: get memory for the weights of a bucket; `load` fills in this rank's weights.  @blocks for both */
    zoff_status (*lend)(zoff_transfer *t, size_t bucket, bool load);
    /* Let work that the program enqueues in a stream from now on find the new weights of these buckets, whose rows are done.
     * With NULL they are there when the call returns. */
    zoff_status (*let_read)(zoff_transfer *t, zoff_slice_buckets buckets, void *native_stream);
    zoff_status (*settle)(zoff_transfer *t); /* wait until the program has all updated weights */
    /* Copy weights to the program (`up`) or from it, outside of a step.  @blocks until done */
    zoff_status (*move)(zoff_transfer *t, const zoff_cast_piece *moves, size_t count, bool up);
    zoff_link_step step;
} zoff_link;

#define ZOFF_LINK(t, entry, args) ((t)->route.link->entry ? (t)->route.link->entry args : ZOFF_OK)

/* A wire carries gradients and weights between ranks. Each has a file of its own, wire_<name>.c, and a line in the table of
 * route.c, which takes the first that serves the engine. zoff.reduce_scatter "nccl" is a branch of wire_device.c. An entry that
 * is NULL does nothing. The slots are memory that exchanges of buckets use in turn. */
typedef struct zoff_wire {
    const char *name;
    bool is_there;                          /* gradients, their sums and the slots are in memory of the device */
    bool (*serves)(const zoff_transfer *t); /* whether the wire serves an engine; NULL: any engine of several ranks */
    /* Set `slots` and `sums` of t->ranks.wire, and `own`, if the wire has state. The ranks' other memory exists already. An
     * error leaves what is open to `close`. */
    zoff_status (*open)(zoff_transfer *t);
    zoff_status (*connect)(zoff_transfer *t); /* connects the ranks at seal, on all of them at the same time  @blocks */
    void (*close)(zoff_transfer *t);          /* call when no work is in a stream */
    /* Give up the reductions: wait until no stream uses a slot of them, and forget what was enqueued, because the next exchange
     * would take it for its own. NULL: nothing is enqueued.  @blocks */
    void (*forget)(zoff_transfer *t);
    /* Bytes of device memory. `staging_bytes`: DRAM of the slots. */
    uint64_t (*device_bytes)(const zoff_transfer *t, const zoff_plan *plan, size_t staging_bytes);
    zoff_status (*zero)(zoff_transfer *t, char *to, size_t bytes); /* clear a part of a slot */
    /* Make elements of a slot readable by the CPU.  @return `grad` itself; or `copy`, which has ZOFF_NORM_BLOCK elements; NULL:
     * the copy failed */
    const void *(*look)(zoff_transfer *t, const void *grad, size_t count, zoff_dtype dtype, float *copy);
    /* Callbacks for zoff_reduce_opts; ctx: the transfer. */
    zoff_status (*pack)(void *ctx, size_t bucket, unsigned slot, char *out);
    zoff_status (*sum)(void *ctx, size_t bucket, unsigned slot, const char *parts, const float *weights);
    /* Weights of a gather: set *out to memory for the parts of all ranks, with this rank's in place; and use the parts of all,
     * NULL if none has any.  @return PENDING or an error: the call is repeated */
    zoff_status (*gather_begin)(zoff_transfer *t, size_t bucket, unsigned slot, char **out);
    zoff_status (*gather_end)(zoff_transfer *t, size_t bucket, unsigned slot, const char *parts);
} zoff_wire;

/* Where the states of a bucket are, and where its gradients are summed and measured: both on the host, both on the device, or
 * states on the device, which gets the gradients from the host. */
typedef enum zoff_used_place {
    ZOFF_USED_BY_HOST,
    ZOFF_USED_BY_DEVICE,
    ZOFF_USED_BY_DEVICE_FROM_HOST,
    ZOFF_USED_PLACES
} zoff_used_place;

extern const zoff_wire zoff_transfer_wire_host, zoff_transfer_wire_device;

/* wire_host.c: the entries of its wire, for a wire that has some of them, too */
zoff_status zoff_transfer_wire_host_open(zoff_transfer *t);
zoff_status zoff_transfer_wire_host_zero(zoff_transfer *t, char *to, size_t bytes);
const void *zoff_transfer_wire_host_look(zoff_transfer *t, const void *grad, size_t count, zoff_dtype dtype, float *copy);
zoff_status zoff_transfer_wire_host_pack(void *ctx, size_t bucket, unsigned slot, char *out);
zoff_status zoff_transfer_wire_host_sum(void *ctx, size_t bucket, unsigned slot, const char *parts, const float *weights);
zoff_status zoff_transfer_wire_host_gather_begin(zoff_transfer *t, size_t bucket, unsigned slot, char **out);
zoff_status zoff_transfer_wire_host_gather_end(zoff_transfer *t, size_t bucket, unsigned slot, const char *parts);

/* Choose the link and the wire first, by accelerator and communicator; choose the rest of the route, and where engine-owned
 * weights are lent, once the configuration is known.  @return ERR_INVALID: accelerator and communicator are on different
 * devices */
zoff_status zoff_transfer_route_choose(zoff_transfer *t);
void zoff_transfer_route_choose_rest(zoff_transfer *t);
/* Check that accelerator and communicator support the configuration: zoff.reduce_scatter "nccl", and states on the device
 * (offload_optimizer.ratio).  @return ERR_UNSUPPORTED, or ERR_INVALID for contradicting keys */
zoff_status zoff_transfer_route_check(const zoff_transfer *t);
zoff_status zoff_transfer_route_check_ratio(const zoff_transfer *t);
bool zoff_transfer_route_may_be_exact(const zoff_transfer *t); /* whether zoff.reduce_scatter "exact" works */
/* For profilers of a device: a row of a bucket begins; NULL: it ends. */
void zoff_transfer_route_range(zoff_transfer *t, const char *row, size_t bucket);

extern const zoff_link zoff_transfer_route_in_place, zoff_transfer_route_staged, zoff_transfer_route_resident;

#endif
