/* transfer_links.h: the link between the engine and the program's weights and gradients. It is chosen when an engine is
 * created: see links.c; part of transfer.h. */
#ifndef ZOFF_TRANSFER_LINKS_H
#define ZOFF_TRANSFER_LINKS_H

#include "cpu_adam.h"
#include "map.h"
#include "zero.h"

#include <zoff/engine.h>

typedef struct zoff_transfer zoff_transfer;

/* Streams, and engine memory that gradients and weights are copied to and from. Nothing for the in-place link. */
typedef struct zoff_link_memory {
    zoff_status (*open)(zoff_transfer *t); /* at seal; zoff_transfer_device_close() frees it */
    /* Add the DRAM and device memory that the link needs to `info`. */
    void (*plan)(const zoff_transfer *t, const zoff_plan *plan, zoff_plan_info *info);
    zoff_status (*pin)(zoff_transfer *t, const zoff_map *map);
    void (*unpin)(zoff_transfer *t, const zoff_map *map);
} zoff_link_memory;

/* Sums of the gradients of tied parameters, in the memory that holds the program's gradients. */
typedef struct zoff_link_sums {
    zoff_status (*alloc)(zoff_transfer *t, uint64_t bytes, char **out); /* sets t->accumulator.tied */
    void (*plan)(zoff_plan_info *info, uint64_t bytes);                 /* add `bytes` of sums to the plan */
    zoff_status (*add)(zoff_transfer *t, const zoff_accumulate_piece *piece);
    zoff_status (*follow)(zoff_transfer *t); /* later additions wait for the stream named in the last `follow` of the link */
    void (*added)(zoff_transfer *t, size_t number); /* memory that was lent for this slice's gradient can be reused */
} zoff_link_sums;

/* The begin and the end of a step. */
typedef struct zoff_link_step {
    void (*begun)(zoff_transfer *t); /* a step begins: no other gradient is handed over before it ends */
    /* The gradient in this buffer of the program is read: clear so many bytes of it, before later work in the stream. With NULL
     * it is clear when the call returns. */
    zoff_status (*reuse)(zoff_transfer *t, char *grad, size_t bytes, void *native_stream);
    /* All buckets are through: wait for the streams. `zeroes`: clear the gradients that were handed over, if the streams do
     * that.  @blocks */
    zoff_status (*finish)(zoff_transfer *t, bool zeroes);
    void (*recorded)(zoff_transfer *t, bool zeroes); /* the step is over; clears gradients where the CPU does it */
} zoff_link_step;

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
    const char *(*gradient)(const zoff_transfer *t, const zoff_plan_piece *piece); /* where the CPU reads it */
    /* Where the CPU has the weights of a piece. `weights`: memory of the chunk's engine-owned weights.  @return NULL:
     * nowhere */
    char *(*weights)(const zoff_transfer *t, const zoff_plan_piece *piece, char *weights);
    /* The new weights of a bucket are in its staging slot, and count: the CPU copies them to the program, where it reaches
     * them, with `threads`. Otherwise they are uploaded like those of other buckets.  @return bytes copied */
    size_t (*adopt)(zoff_transfer *t, size_t bucket, unsigned threads);
    /* Outside of the walk: get memory for the weights of a bucket; `load` fills in this rank's weights.  @blocks for both */
    zoff_status (*lend)(zoff_transfer *t, size_t bucket, bool load);
    /* Work that the program enqueues in a stream from now on finds the new weights of these buckets, whose rows are done. With
     * NULL they are there when the call returns. */
    zoff_status (*let_read)(zoff_transfer *t, zoff_slice_buckets buckets, void *native_stream);
    zoff_status (*settle)(zoff_transfer *t); /* wait until the program has all updated weights */
    /* Copy weights to the program (`up`) or from it, outside of a step.  @blocks until done */
    zoff_status (*move)(zoff_transfer *t, const zoff_cast_piece *moves, size_t count, bool up);
    zoff_link_step step;
    void (*range)(zoff_transfer *t, const char *row, size_t bucket); /* for profilers: a row begins; NULL: it ends */
} zoff_link;

/* First choose the link and the place of sums, by accelerator and communicator. Choose the rest of the route, and where
 * engine-owned weights are lent, once the configuration is known.  @return ERR_INVALID: accelerator and communicator are on
 * different devices */
zoff_status zoff_transfer_links_choose(zoff_transfer *t);
void zoff_transfer_links_choose_rest(zoff_transfer *t);
/* Check that accelerator and communicator support the configuration: zoff.reduce_scatter "nccl", and states on the device
 * (offload_optimizer.ratio).  @return ERR_UNSUPPORTED, or ERR_INVALID for contradicting keys */
zoff_status zoff_transfer_links_check(const zoff_transfer *t);
zoff_status zoff_transfer_links_check_ratio(const zoff_transfer *t);

extern const zoff_link zoff_transfer_links_in_place, zoff_transfer_links_staged, zoff_transfer_links_reached;

#endif
