/* speculation.h: buckets that are updated before the step is asked for. As soon as the gradient of a bucket is complete, it is
 * updated as a step without clipping would do it. The new states go where the old ones are not (offload.h: second content), the
 * new weights to staging memory. The gate then decides: the results count if the step has the same constants, and otherwise
 * these buckets are updated again, from the old states. So a step has the same bits with and without speculation.
 *
 * This room knows what was assumed, when it pays, and in which order buckets become complete. The engine does the work. */
#ifndef ZOFF_SPECULATION_H
#define ZOFF_SPECULATION_H

#include "cpu_adam.h"

#include <zoff/engine.h>

/* Numbers that the next step uses: assumed, or said by zoff_step_prepare(). */
typedef struct zoff_speculation_terms {
    int64_t t;
    double grad_scale;
    zoff_optimizer_hyper *hyper; /* per group */
    bool is_said;
} zoff_speculation_terms;

/* Buckets that became complete in this pass, in that order, and the order that is expected. Each bucket is visited when it
 * arrives and while it is on its way, so a gradient costs the same for any number of buckets. */
typedef struct zoff_speculation_order {
    uint32_t *expected, *arrived; /* bucket_count each */
    size_t count, arrived_count;
    bool *has_arrived;         /* by bucket */
    size_t heard;              /* buckets whose arrival was noted, see zoff_arrivals */
    size_t entered;            /* of `arrived`: the first that waits for memory */
    size_t measured;           /* of `arrived`: the first that was not measured yet, where gradients are measured early */
    uint32_t *active;          /* those that have memory, and are on their way */
    size_t active_count, turn; /* turn: of `active`, the one to visit next */
    /* Positions of `expected` whose chunks may still be read ahead, as a list: those that are not are taken out for the rest of
     * the pass when they are met. */
    uint32_t first, *next;
} zoff_speculation_order;

typedef struct zoff_speculation {
    size_t places;     /* buckets at a time; 0: this engine does not speculate */
    bool is_begun;     /* for the next step: its run is open, before zoff_step_begin() */
    bool updates;      /* buckets are updated for it; otherwise gradients are only measured */
    bool in_step;      /* the step is open, and gradients are still on their way: buckets without them go on as before it */
    bool is_over;      /* no bucket begins any more before the next step: one has met an error */
    unsigned restless; /* steps without clipping that must follow before one is likely to go without */
    size_t group_count;
    zoff_adam_consts *consts; /* per group: those that buckets are updated with */
    zoff_speculation_terms terms;
    zoff_speculation_order order;
} zoff_speculation;

/* ---- terms.c ---- */

/* At seal: allocate. `places` 0: only what zoff_step_prepare() needs. */
zoff_status zoff_speculation_open(zoff_speculation *s, size_t places, size_t group_count, size_t bucket_count);
void zoff_speculation_close(zoff_speculation *s);
/* The constants of buckets that are updated from now on. */
void zoff_speculation_assume(zoff_speculation *s, const zoff_adam_consts *consts);
/* Whether those of the step are the same, to the bit. */
bool zoff_speculation_holds(const zoff_speculation *s, const zoff_adam_consts *consts);
/* A step is over, or was dropped: begin anew. */
void zoff_speculation_end(zoff_speculation *s);

/* ---- order.c ---- */

/* A step has updated, or was skipped. A clipped step never has the constants that were assumed, and clipping seldom comes
 * alone: so the steps after it do not speculate. */
void zoff_speculation_note_step(zoff_speculation *s, bool clipped, bool skipped);
/* Whether the next step is likely to have the constants that are assumed. */
bool zoff_speculation_is_likely(const zoff_speculation *s);
/* The gradients of a bucket are complete. Only the first call for it counts until zoff_speculation_end(). */
void zoff_speculation_note_arrival(zoff_speculation *s, size_t bucket);
/* All positions may be read ahead again. */
void zoff_speculation_list(zoff_speculation *s);
/* The bucket that is expected at a position. The order is that of the last pass; at first it descends, because backward passes
 * usually end at the first parameter. */
size_t zoff_speculation_expected(const zoff_speculation *s, size_t position);

#endif
