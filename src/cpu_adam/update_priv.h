/* update_priv.h: what the two entrances of the step, update.c and step.c, decide alike. */
#ifndef ZOFF_CPU_ADAM_UPDATE_PRIV_H
#define ZOFF_CPU_ADAM_UPDATE_PRIV_H

#include "walk.h"

/* Bytes that a step reads and writes for one element of a piece. */
size_t zoff_adam_update_cost(const zoff_adam_piece *piece);

/* Whether a list that moves so many bytes writes its copies past the caches. */
bool zoff_adam_update_streams(size_t bytes);

#endif
