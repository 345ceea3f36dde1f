/* transfer_links.h: between the program's weights and gradients and the engine. Chosen when an engine is created, see links.c;
 * part of transfer.h. */
#ifndef ZOFF_TRANSFER_LINKS_H
#define ZOFF_TRANSFER_LINKS_H

#include "cpu_adam.h"
#include "map.h"
#include "zero.h"

#include <zoff/engine.h>

typedef struct zoff_transfer zoff_transfer;

/* Streams, and memory of the engine that gradients and weights are copied to and from: nothing in place. */
typedef struct zoff_link_memory {
    zoff_status (*open)(zoff_transfer *t); /* at seal; zoff_transfer_device_close() frees it */
    /* Add to `info` what it takes of DRAM and of the device. */
    void (*plan)(const zoff_transfer *t, const zoff_plan *plan, zoff_plan_info *info);
    zoff_status (*pin)(zoff_transfer *t, const zoff_map *map);
    void (*unpin)(zoff_transfer *t, const zoff_map *map);
} zoff_link_memory;

/* Sums of gradients that are where the program's gradients are: of tied parameters. */
typedef struct zoff_link_sums {
    zoff_status (*alloc)(zoff_transfer *t, uint64_t bytes, char **out); /* into t->grads.tied */
    void (*plan)(zoff_plan_info *info, uint64_t bytes);                 /* so many bytes of them */
    zoff_status (*add)(zoff_transfer *t, const zoff_accumulate_piece *piece);
    zoff_status (*follow)(zoff_transfer *t);        /* additions from now on wait for the stream that `follow` was told last */
    void (*added)(zoff_transfer *t, size_t number); /* memory that was lent for this slice's gradient is free */
} zoff_link_sums;

typedef struct zoff_link {
    const char *name;
    bool has_streams;     /* the program may name one with a gradient */
    bool lends;           /* memory of the engine to the program, for gradients: zoff_grad_acquire() */
    bool downloads;       /* gradients come down one by one, and are in memory of the engine until they are used */
    size_t most_elements; /* of a bucket: several of a device are under way at a time, without much memory */
    zoff_link_memory memory;
    zoff_link_sums sums;
    /* Whatever the engine does to weights from now on waits for the work that is in `native_stream` now. */
    zoff_status (*follow)(zoff_transfer *t, void *native_stream);
    zoff_status (*take)(zoff_transfer *t, zoff_param p, size_t slice, void *native_stream); /* a gradient begins its way */
    void (*taken)(zoff_transfer *t, zoff_param p, size_t slice); /* and is the engine's; what fails is told by the step */
    const char *(*gradient)(const zoff_transfer *t, const zoff_plan_piece *piece); /* where the CPU reads it */
    /* Where the CPU has the weights of a piece. `weights`: the chunk of those that are the engine's.  @return NULL: nowhere */
    char *(*weights)(const zoff_transfer *t, const zoff_plan_piece *piece, char *weights);
    /* Outside of the walk: memory for the weights of a bucket, with this rank's where `load`.  @blocks for both */
    zoff_status (*lend)(zoff_transfer *t, size_t bucket, bool load);
    zoff_status (*settle)(zoff_transfer *t); /* wait until all new weights are where the program has them */
    /* Copy weights from and to (`up`) where the program has them, outside of a step.  @blocks until done */
    zoff_status (*move)(zoff_transfer *t, const zoff_cast_piece *moves, size_t count, bool up);
    void (*begun)(zoff_transfer *t); /* a step is asked for: no other gradient is handed over before it ends */
    /* All buckets are through: wait for what is in streams. `zeroes`: gradients that were handed over become zeros, where the
     * streams do that.  @blocks */
    zoff_status (*finish)(zoff_transfer *t, bool zeroes);
    void (*recorded)(zoff_transfer *t, bool zeroes);                 /* the step is over: likewise, where the CPU does it */
    void (*range)(zoff_transfer *t, const char *row, size_t bucket); /* for profilers: a row begins; NULL: it has ended */
} zoff_link;

/* Choose the link, and where gradients of ranks are added up, by accelerator and communicator; then, once the configuration is
 * known, the rest of the route.  @return ERR_INVALID where these two are on different devices */
zoff_status zoff_transfer_links_choose(zoff_transfer *t);
void zoff_transfer_links_choose_rest(zoff_transfer *t);
/* ERR_UNSUPPORTED for what the configuration asks for and accelerator and communicator cannot do: zoff.reduce_scatter "nccl";
 * states on the device (offload_optimizer.ratio). */
zoff_status zoff_transfer_links_check(const zoff_transfer *t);
zoff_status zoff_transfer_links_check_ratio(const zoff_transfer *t);

extern const zoff_link zoff_transfer_links_in_place, zoff_transfer_links_staged, zoff_transfer_links_reached;

#endif
