/* transfer_grads.h: gradients in memory that is lent to the program, or that they come down to; part of transfer.h. */
#ifndef ZOFF_TRANSFER_GRADS_H
#define ZOFF_TRANSFER_GRADS_H

#include "map.h"
#include "zero.h"

#include <zoff/engine.h>

typedef struct zoff_transfer zoff_transfer;

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

/* Sums of the gradients of tied weights, where gradients are: one of the two, or neither. */
typedef struct zoff_tied_sums {
    zoff_map host;
    void *device;
} zoff_tied_sums;

typedef struct zoff_grads {
    zoff_grad_slot *slots; /* by slice, as the flags */
    zoff_grad_buffer *buffers;
    size_t count, capacity;
    size_t bytes, most; /* of buffers: now, and ever */
    zoff_tied_sums tied;
} zoff_grads;

/* grads.c */
zoff_status zoff_transfer_grads_open(zoff_transfer *t);
void zoff_transfer_grads_close(zoff_transfer *t);
const char *zoff_transfer_grads_at(const zoff_transfer *t, size_t number); /* of a slice, by number of its flag; NULL: none */
const char *zoff_transfer_grads_of(const zoff_transfer *t, const zoff_plan_piece *piece); /* of a piece whose slice has one */
void zoff_transfer_grads_hand_over(zoff_transfer *t, size_t number, size_t buckets); /* so many buckets take a part of it */
void zoff_transfer_grads_packed(zoff_transfer *t, size_t number);                    /* one of them has */
void zoff_transfer_grads_let_go(zoff_transfer *t, size_t number);                    /* this one is free again */
void zoff_transfer_grads_forget(zoff_transfer *t);                                   /* all of them are free again */
/* The free buffer that fits best; NULL: none. */
zoff_grad_buffer *zoff_transfer_grads_find_free(zoff_grads *g, size_t bytes);
zoff_status zoff_transfer_grads_make(zoff_transfer *t, size_t bytes, zoff_grad_buffer **out);

/* acquire.c */
/* Memory for the gradient of a slice; what it has already, if it has.  @blocks for a short time, to reuse memory */
zoff_status zoff_transfer_acquire_lend(zoff_transfer *t, size_t number, size_t bytes, char **out);

/* intake.c */
/* Take the complete gradient of a slice: mark it, and start its download or its way to other ranks. */
zoff_status zoff_transfer_intake_take(zoff_transfer *t, zoff_param p, size_t slice, void *native_stream);
zoff_status zoff_transfer_intake_open(zoff_transfer *t); /* memory for the sums of tied gradients */
void zoff_transfer_intake_close(zoff_transfer *t);       /* nobody is tied any more; no stream works on the sums */
/* A tied parameter has its gradient: the sum is made when all have, */
zoff_status zoff_transfer_intake_take_tied(zoff_transfer *t, zoff_param p, size_t slice, void *native_stream);
/* or when the step begins. `all`: take the gradients that nobody has handed over, too. */
zoff_status zoff_transfer_intake_settle(zoff_transfer *t, bool all);

#endif
