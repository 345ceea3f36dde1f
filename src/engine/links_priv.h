/* links_priv.h: between the program's weights and gradients and the engine; part of engine_priv.h. Chosen when an engine is
 * created, see links.c. */
#ifndef ZOFF_LINKS_PRIV_H
#define ZOFF_LINKS_PRIV_H

#include "cpu_adam.h"
#include "map.h"
#include "zero.h"

#include <zoff/engine.h>

typedef struct zoff_link {
    const char *name;
    /* Memory of the engine that gradients and weights are copied to and from. */
    zoff_status (*pin)(zoff_engine *e, const zoff_map *map);
    void (*unpin)(zoff_engine *e, const zoff_map *map);
    /* Whatever the engine does to weights from now on waits for the work that is in `native_stream` now. */
    zoff_status (*follow)(zoff_engine *e, void *native_stream);
    zoff_status (*take)(zoff_engine *e, zoff_param p, size_t slice, void *native_stream); /* a gradient begins its way */
    void (*taken)(zoff_engine *e, zoff_param p, size_t slice); /* and is the engine's; what fails is told by the step */
    const char *(*gradient)(const zoff_engine *e, const zoff_plan_piece *piece); /* where the CPU reads it */
    /* Where the CPU has the weights of a piece. `weights`: the chunk of those that are the engine's.  @return NULL: nowhere */
    char *(*weights)(const zoff_engine *e, const zoff_plan_piece *piece, char *weights);
    /* Outside of the walk: memory for the weights of a bucket, with this rank's where `load`.  @blocks for both */
    zoff_status (*lend)(zoff_engine *e, size_t bucket, bool load);
    zoff_status (*settle)(zoff_engine *e); /* wait until all new weights are where the program has them */
    /* Copy weights from and to (`up`) where the program has them, outside of a step.  @blocks until done */
    zoff_status (*move)(zoff_engine *e, const zoff_cast_piece *moves, size_t count, bool up);
    zoff_status (*add)(zoff_engine *e, const zoff_accumulate_piece *piece); /* to a sum that is where gradients are */
    zoff_status (*add_follow)(zoff_engine *e);    /* additions from now on wait for the stream that `follow` was told last */
    void (*added)(zoff_engine *e, size_t number); /* memory that was lent for this slice's gradient is free */
    zoff_status (*sums_alloc)(zoff_engine *e, uint64_t bytes, char **out); /* where gradients are; into e->tied_sums */
    void (*range)(zoff_engine *e, const char *row, size_t bucket);         /* for profilers: a row begins; NULL: it has ended */
} zoff_link;

extern const zoff_link zoff_engine_links_in_place, zoff_engine_links_staged, zoff_engine_links_reached;

#endif
