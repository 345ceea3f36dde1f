/* transfer_grads.h: gradient memory that the engine lends to the program, or downloads gradients to; part of transfer.h. */
#ifndef ZOFF_TRANSFER_GRADS_H
#define ZOFF_TRANSFER_GRADS_H

#include "map.h"
#include "zero.h"

#include <zoff/engine.h>

typedef struct zoff_transfer zoff_transfer;

/* Engine memory for one gradient. */
typedef struct zoff_grad_buffer {
    zoff_map map;
    bool used;
} zoff_grad_buffer;

typedef struct zoff_grad_slot {
    char *at; /* NULL: none */
    size_t buffer;
    size_t waits_for; /* buckets that have yet to pack their part of it */
} zoff_grad_slot;

/* Sums of the gradients of tied weights, in the memory that holds the gradients: one of the two, or neither. */
typedef struct zoff_tied_sums {
    zoff_map host;
    void *device;
} zoff_tied_sums;

typedef struct zoff_grads {
    zoff_grad_slot *slots; /* by flag number of the slice */
    zoff_grad_buffer *buffers;
    size_t count, capacity;
    size_t bytes, most; /* total size of the buffers: now, and at most so far */
    zoff_tied_sums tied;
} zoff_grads;

/* grads.c */
zoff_status zoff_transfer_grads_open(zoff_transfer *t);
void zoff_transfer_grads_close(zoff_transfer *t);
const char *zoff_transfer_grads_at(const zoff_transfer *t, size_t number); /* gradient of a slice, by flag number; NULL: none */
/* gradient of a piece whose slice has one */
const char *zoff_transfer_grads_of(const zoff_transfer *t, const zoff_plan_piece *piece);
/* `buckets`: how many buckets use a part of it */
void zoff_transfer_grads_hand_over(zoff_transfer *t, size_t number, size_t buckets);
void zoff_transfer_grads_packed(zoff_transfer *t, size_t number); /* one bucket has packed its part */
void zoff_transfer_grads_let_go(zoff_transfer *t, size_t number); /* release its buffer */
void zoff_transfer_grads_forget(zoff_transfer *t);                /* release all buffers */
/* The free buffer that fits best; NULL: none fits. */
zoff_grad_buffer *zoff_transfer_grads_find_free(zoff_grads *g, size_t bytes);
zoff_status zoff_transfer_grads_make(zoff_transfer *t, size_t bytes, zoff_grad_buffer **out);

/* acquire.c */
/* Get memory for the gradient of a slice; return the present memory if it has some.  @blocks for a short time, to reuse a
 * buffer */
zoff_status zoff_transfer_acquire_lend(zoff_transfer *t, size_t number, size_t bytes, char **out);

/* intake.c */
/* Take the complete gradient of a slice: mark it, and start its download or its reduction. */
zoff_status zoff_transfer_intake_take(zoff_transfer *t, zoff_param p, size_t slice, void *native_stream);
zoff_status zoff_transfer_intake_open(zoff_transfer *t); /* allocate the sums of tied gradients */
void zoff_transfer_intake_close(zoff_transfer *t);       /* call only when no stream works on the sums; unties all parameters */
/* Take the gradient of a tied parameter. The sum is made when all tied parameters have handed theirs over. */
zoff_status zoff_transfer_intake_take_tied(zoff_transfer *t, zoff_param p, size_t slice, void *native_stream);
/* When the step begins: make the sums that are still missing. `all`: also take gradients that were not handed over. */
zoff_status zoff_transfer_intake_settle(zoff_transfer *t, bool all);

#endif
