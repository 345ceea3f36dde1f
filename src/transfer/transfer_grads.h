/* transfer_grads.h: gradient memory that the engine lends to the program, or downloads gradients to; part of transfer.h. An
 * engine on the host has one pool for both. On a device it lends from a pool there, and downloads to one in host memory. */
#ifndef ZOFF_TRANSFER_GRADS_H
#define ZOFF_TRANSFER_GRADS_H

#include "map.h"
#include "zero.h"

#include <zoff/engine.h>

typedef struct zoff_transfer zoff_transfer;

typedef struct zoff_grads zoff_grads;

/* Engine memory for one gradient. */
typedef struct zoff_grad_buffer {
    char *at; /* NULL: an entry without memory */
    size_t bytes;
    zoff_map map; /* host memory; empty on a device */
    bool used;
    bool is_extra; /* a device: memory of its own, beside the arena of the pool */
} zoff_grad_buffer;

/* The kind of memory of a pool. */
typedef struct zoff_grad_memory {
    const char *name;
    /* Find memory that is free; NULL: there is none. */
    zoff_grad_buffer *(*find)(zoff_grads *g, size_t bytes);
    zoff_status (*make)(zoff_transfer *t, zoff_grads *g, size_t bytes, zoff_grad_buffer **out); /* allocate more */
    void (*free)(zoff_transfer *t, zoff_grad_buffer *buffer);
    /* Advance what frees memory of the pool.  @return false: nothing is in flight */
    bool (*go_on)(zoff_transfer *t);
} zoff_grad_memory;

extern const zoff_grad_memory zoff_transfer_acquire_on_host, zoff_transfer_acquire_on_device;

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

struct zoff_grads {
    const zoff_grad_memory *memory;
    zoff_grad_slot *slots; /* by flag number of the slice */
    size_t slot_count;
    zoff_grad_buffer *buffers;
    size_t count, capacity;
    size_t bytes, most; /* total size of the buffers: now, and at most so far */
    char *arena;        /* a device: memory of the buffers that are not extra */
    size_t arena_bytes;
};

/* grads.c */
/* Open a pool: `arena_bytes` of device memory, or none. */
zoff_status zoff_transfer_grads_open(zoff_transfer *t, zoff_grads *g, const zoff_grad_memory *memory, size_t arena_bytes);
void zoff_transfer_grads_close(zoff_transfer *t, zoff_grads *g);
const char *zoff_transfer_grads_at(const zoff_grads *g, size_t number); /* gradient of a slice, by flag number; NULL: none */
/* The gradient of a piece whose slice has one: a download, or, in place, lent memory. */
const char *zoff_transfer_grads_of(const zoff_transfer *t, const zoff_plan_piece *piece);
/* The gradient of a piece where the program has put it: in its own memory, or in memory lent by the engine. */
const char *zoff_transfer_grads_there(const zoff_transfer *t, const zoff_plan_piece *piece);
/* `buckets`: how many buckets use a part of it */
void zoff_transfer_grads_hand_over(zoff_grads *g, size_t number, size_t buckets);
void zoff_transfer_grads_packed(zoff_grads *g, size_t number); /* one bucket has packed its part */
void zoff_transfer_grads_let_go(zoff_grads *g, size_t number); /* release its buffer */
void zoff_transfer_grads_forget(zoff_grads *g);                /* release all buffers */
/* An entry without memory.  @return ERR_NO_MEMORY */
zoff_status zoff_transfer_grads_entry(zoff_grads *g, zoff_grad_buffer **out);

/* Host memory: see zoff_grad_memory. `find`: the free buffer that fits best. */
zoff_grad_buffer *zoff_transfer_grads_find(zoff_grads *g, size_t bytes);
zoff_status zoff_transfer_grads_make(zoff_transfer *t, zoff_grads *g, size_t bytes, zoff_grad_buffer **out);
void zoff_transfer_grads_free(zoff_transfer *t, zoff_grad_buffer *buffer);

/* acquire.c */
/* Get memory for the gradient of a slice; return the present memory if it has some.  @blocks for a short time, to reuse a
 * buffer */
zoff_status zoff_transfer_acquire_lend(zoff_transfer *t, zoff_grads *g, size_t number, size_t bytes, char **out);
/* With a device: bytes of its memory from which gradients are lent; 0 if the program has memory for all of them. */
uint64_t zoff_transfer_acquire_bytes(const zoff_transfer *t);
/* Clear lent memory, in the stream that will write it; NULL: before the call returns. */
zoff_status zoff_transfer_acquire_clear_here(zoff_transfer *t, char *at, size_t bytes, void *native_stream);
zoff_status zoff_transfer_acquire_clear_there(zoff_transfer *t, char *at, size_t bytes, void *native_stream);

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
