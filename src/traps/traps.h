/* traps.h: weights that a program uses or changes when it must not. While a step is open, the pages inside each slice that it
 * updates are inaccessible, until the program has waited for the slice. Pages that hold anything else stay accessible, so a
 * slice below some pages is not watched. Between steps, weights must stay as the last call left them, unless it takes them as
 * masters. */
#ifndef ZOFF_TRAPS_H
#define ZOFF_TRAPS_H

#include "zero.h"
#include "zoff_model.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- pages.c ---- */

/* A run of whole pages. `from` == `to`: there are none. */
typedef struct zoff_trap {
    uintptr_t from, to;
    bool was_set; /* the trap was set since it was lifted last */
    bool is_set;  /* the trap is set; atomic, as are the fields below, because the handler sets them */
} zoff_trap;

/* Traps, and the first use of one since the last zoff_traps_pages_take(). */
typedef struct zoff_trap_list {
    zoff_trap *list;
    size_t count;
    uintptr_t place;      /* address of the instruction; 0: no use */
    uintptr_t used_index; /* index of the trap */
} zoff_trap_list;

/* Register the list with the handler of SIGSEGV, which is installed with the first one.  @return ERR_UNSUPPORTED: too many */
zoff_status zoff_traps_pages_register(zoff_trap_list *traps);
void zoff_traps_pages_unregister(zoff_trap_list *traps); /* call this when every trap is lifted */
/* Make the pages of a trap inaccessible. If the system refuses, they stay accessible. */
void zoff_traps_pages_set(zoff_trap *trap);
void zoff_traps_pages_lift(zoff_trap *trap);
/* Make the pages of a trap that [first, first + bytes) touches accessible, and forbid them again if the trap is still set. */
void zoff_traps_pages_enter(const zoff_trap *trap, uintptr_t first, size_t bytes);
void zoff_traps_pages_leave(const zoff_trap *trap, uintptr_t first, size_t bytes);
/* Take the first use, which is then forgotten.  @return whether there was one */
bool zoff_traps_pages_take(zoff_trap_list *traps, size_t *out_index, uintptr_t *out_place);

/* ---- weights.c ---- */

typedef struct zoff_traps {
    const zoff_model *model;
    const zoff_plan *plan;
    zoff_trap_list traps; /* traps by number of a slice */
    uint64_t *left;       /* checksum of each slice's weights as the last call has left them */
} zoff_traps;

/* Open the traps of an engine that is being sealed; the model has its slices. In all functions below NULL does nothing. */
zoff_status zoff_traps_weights_open(const zoff_model *model, const zoff_plan *plan, zoff_traps **out);
void zoff_traps_weights_close(zoff_traps *t);
/* Forbid the use of every slice that has a gradient, because a step has begun. */
void zoff_traps_weights_set(zoff_traps *t);
void zoff_traps_weights_lift(zoff_traps *t, size_t number); /* the program has waited for a slice */
void zoff_traps_weights_lift_all(zoff_traps *t);
/* Access weights of a bucket between these calls. */
void zoff_traps_weights_enter(zoff_traps *t, size_t bucket);
void zoff_traps_weights_leave(zoff_traps *t, size_t bucket);
/* Note that a call has left the weights as they are now, or has taken them as masters. */
void zoff_traps_weights_note(zoff_traps *t);
/* Compare weights with what the last call has left; `call` begins the message.  @return ERR_STATE with parameter and slice */
zoff_status zoff_traps_weights_compare(const zoff_traps *t, const char *call);
/* Report weights that were used too early, once for each step.  @return ERR_STATE with parameter and place */
zoff_status zoff_traps_weights_check(zoff_traps *t);

#endif
