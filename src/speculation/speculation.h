/* SPDX-License-Identifier: Apache-2.0 */
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

/* Numbers that the next step is assumed to use, or that zoff_step_prepare() gave. */
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
    bool *has_arrived;         /* one flag per bucket: it is complete */
    size_t heard;              /* number of buckets whose arrival was noted, see zoff_arrivals */
    size_t entered;            /* index in `arrived` of the first that waits for memory */
    size_t measured;           /* index in `arrived` of the first not measured yet, where gradients are measured early */
    uint32_t *active;          /* buckets that have memory, and are on their way */
    size_t active_count, turn; /* turn: index in `active` of the bucket to visit next */
    /* Positions of `expected` whose chunks may still be read ahead, as a list. A position that is not read ahead is removed for
     * the rest of the pass when it is met. */
    uint32_t first, *next;
} zoff_speculation_order;

typedef struct zoff_speculation {
    size_t places;     /* most buckets that are updated ahead at a time; 0: this engine does not speculate */
    bool is_begun;     /* the run of the next step is open, before zoff_step_begin() */
    bool updates;      /* buckets are updated for the next step; otherwise gradients are only measured */
    bool in_step;      /* the step is open, and gradients are still on their way: buckets without them go on as before it */
    bool is_over;      /* a bucket has met an error, so no bucket begins any more before the next step */
    unsigned restless; /* steps without clipping that must follow before the next one is likely to go without */
    size_t group_count;
    zoff_adam_consts *consts; /* constants that buckets are updated with: two per group, by zoff_model_groups_index() */
    zoff_speculation_terms terms;
    zoff_speculation_order order;
} zoff_speculation;

/* Allocate at seal. `places` 0: only what zoff_step_prepare() needs. */
zoff_status zoff_speculation_open(zoff_speculation *s, size_t places, size_t group_count, size_t bucket_count);
void zoff_speculation_close(zoff_speculation *s);
/* Set the constants of buckets that are updated from now on. */
void zoff_speculation_assume(zoff_speculation *s, const zoff_adam_consts *consts);
/* Whether the constants of the step are the same as the assumed ones, to the bit. */
bool zoff_speculation_holds(const zoff_speculation *s, const zoff_adam_consts *consts);
/* Begin anew after a step, or after a step that was dropped. */
void zoff_speculation_end(zoff_speculation *s);

/* Note that a step has updated, or was skipped. A clipped step never has the assumed constants, and clipping seldom comes
 * alone, so the steps after it do not speculate. */
void zoff_speculation_note_step(zoff_speculation *s, bool clipped, bool skipped);
/* Whether the next step is likely to have the constants that are assumed. */
bool zoff_speculation_is_likely(const zoff_speculation *s);
/* Note that the gradients of a bucket are complete. Only the first call for it counts until zoff_speculation_end(). */
void zoff_speculation_note_arrival(zoff_speculation *s, size_t bucket);
/* Allow all positions to be read ahead again. */
void zoff_speculation_list(zoff_speculation *s);
/* The bucket that is expected at a position. The order is that of the last pass; at first it descends, because backward passes
 * usually end at the first parameter. */
size_t zoff_speculation_expected(const zoff_speculation *s, size_t position);

#endif
