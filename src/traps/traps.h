/* SPDX-License-Identifier: Apache-2.0 */
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

typedef struct zoff_traps zoff_traps;

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
void zoff_traps_weights_note_param(zoff_traps *t, zoff_param param);
/* Compare weights with what the last call has left; `call` begins the message.  @return ERR_STATE with parameter and slice */
zoff_status zoff_traps_weights_compare(const zoff_traps *t, const char *call);
/* Report weights that were used too early, once for each step.  @return ERR_STATE with parameter and place */
zoff_status zoff_traps_weights_check(zoff_traps *t);

#endif
