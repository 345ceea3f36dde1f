/* grads_priv.h: gradients in memory that the engine lends; part of engine_priv.h. */
#ifndef ZOFF_GRADS_PRIV_H
#define ZOFF_GRADS_PRIV_H

#include "map.h"
#include "zero.h"

#include <zoff/engine.h>

/* Gradients in memory of the engine. */
typedef struct zoff_grad_buffer {
    zoff_map map;
    bool used;
} zoff_grad_buffer;

typedef struct zoff_grad_slot {
    char *at; /* NULL: none */
    size_t buffer;
    size_t waits_for; /* buckets that have yet to take their part */
} zoff_grad_slot;

typedef struct zoff_grads {
    zoff_grad_slot *slots; /* by slice, as the flags */
    zoff_grad_buffer *buffers;
    size_t count, capacity;
    size_t bytes, most; /* of buffers: now, and ever */
} zoff_grads;

/* grads.c */
zoff_status zoff_engine_grads_open(zoff_engine *e);
void zoff_engine_grads_close(zoff_engine *e);
const char *zoff_engine_grads_at(const zoff_engine *e, size_t number); /* of a slice, by number of its flag; NULL: none */
const char *zoff_engine_grads_of(const zoff_engine *e, const zoff_plan_piece *piece); /* of a piece whose slice has one */
void zoff_engine_grads_hand_over(zoff_engine *e, size_t number, size_t buckets);      /* so many buckets take a part of it */
void zoff_engine_grads_packed(zoff_engine *e, size_t number);                         /* one of them has */
void zoff_engine_grads_let_go(zoff_engine *e, size_t number);                         /* this one is free again */
void zoff_engine_grads_forget(zoff_engine *e);                                        /* all of them are free again */
/* The free buffer that fits best; NULL: none. */
zoff_grad_buffer *zoff_engine_grads_find_free(zoff_grads *g, size_t bytes);
zoff_status zoff_engine_grads_make(zoff_engine *e, size_t bytes, zoff_grad_buffer **out);

/* acquire.c */
/* Memory for the gradient of a slice; what it has already, if it has.  @blocks for a short time, to reuse memory */
zoff_status zoff_engine_acquire_lend(zoff_engine *e, size_t number, size_t bytes, char **out);

#endif
