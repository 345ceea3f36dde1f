/* SPDX-License-Identifier: Apache-2.0 */
/* transfer_grads.h: gradient memory that the engine lends to the program, or downloads gradients to; part of transfer.h. An
 * engine on the host has one pool for both. On a device it lends from a pool there, and downloads to one in host memory. */
#ifndef ZOFF_TRANSFER_GRADS_H
#define ZOFF_TRANSFER_GRADS_H

#include "map.h"
#include "zero.h"

#include <zoff/engine.h>

typedef struct zoff_transfer zoff_transfer;

typedef struct zoff_grads zoff_grads;

/* A block of an extent, in use or free. */
typedef struct zoff_arena_block {
    char *at;
    size_t bytes;
    int32_t before, after;  /* neighbours in the extent; negative: none */
    int32_t previous, next; /* free blocks of the same class; negative: none */
    bool used;
} zoff_arena_block;

enum { ZOFF_ARENA_UNIT = 64, ZOFF_ARENA_CLASSES = 32, ZOFF_ARENA_LEVELS = 64 };

/* Memory that is lent in blocks. A zeroed arena is empty. */
typedef struct zoff_arena {
    zoff_arena_block *blocks;
    size_t count, capacity;
    int32_t spare; /* first description that is not in use */
    size_t spare_count;
    uint64_t levels;                     /* levels with a free block */
    uint32_t classes[ZOFF_ARENA_LEVELS]; /* classes of each level with a free block */
    int32_t heads[ZOFF_ARENA_LEVELS][ZOFF_ARENA_CLASSES];
} zoff_arena;

typedef struct zoff_grad_slot {
    char *at;         /* NULL: no memory */
    int32_t block;    /* block of the arena */
    size_t waits_for; /* buckets that have yet to pack their part of the gradient */
} zoff_grad_slot;

typedef struct zoff_grad_extent {
    zoff_map map;  /* mapping of an extent; on a device base and bytes only */
    int32_t first; /* block */
} zoff_grad_extent;

/* Sums of the gradients of tied weights, in the memory that holds the gradients: one of the two, or neither. */
typedef struct zoff_tied_sums {
    zoff_map host;
    void *device;
} zoff_tied_sums;

struct zoff_grads {
    bool is_there;         /* the memory is that of the device */
    zoff_grad_slot *slots; /* memory of gradients, by flag number of the slice */
    size_t slot_count;
    zoff_arena arena;
    zoff_grad_extent *extents;
    size_t count, capacity; /* extents */
    size_t looked;          /* the extent to look at next for one that nobody uses */
    uint64_t bytes, most;   /* total size of the extents: now, and at most so far */
    uint64_t first_bytes;   /* bytes of the extent that is planned; 0: none */
    uint64_t lent_most;     /* bytes of all slices that may be lent */
};

/* arena.c: blocks */
/* Add an extent, of whole units. `out`: its first block, which stands for it.  @return ERR_NO_MEMORY */
zoff_status zoff_transfer_arena_add(zoff_arena *a, char *at, size_t bytes, int32_t *out);
bool zoff_transfer_arena_is_idle(const zoff_arena *a, int32_t first); /* whether the whole extent is free */
void zoff_transfer_arena_remove(zoff_arena *a, int32_t first);        /* remove an extent that is idle */
/* Take a block.  @return false: no free block is large enough */
bool zoff_transfer_arena_take(zoff_arena *a, size_t bytes, int32_t *out);
void zoff_transfer_arena_give(zoff_arena *a, int32_t number);
void zoff_transfer_arena_end(zoff_arena *a); /* the extents are the owner's */

/* arena.c: pools */
/* Open a pool, in memory of the device or of the host. `first_bytes`: its first extent, or none yet. */
zoff_status zoff_transfer_arena_open(zoff_transfer *t, zoff_grads *g, bool is_there, size_t first_bytes);
void zoff_transfer_arena_close(zoff_transfer *t, zoff_grads *g);
/* gradient of a slice, by its flag number; NULL: none */
const char *zoff_transfer_arena_at(const zoff_grads *g, size_t number);
/* The gradient of a piece whose slice has one: a download, or, in place, lent memory. */
const char *zoff_transfer_arena_of(const zoff_transfer *t, const zoff_plan_piece *piece);
/* The gradient of a piece where the program has put it: in its own memory, or in memory lent by the engine. */
const char *zoff_transfer_arena_there(const zoff_transfer *t, const zoff_plan_piece *piece);
/* Hand a gradient over. `buckets`: how many buckets use a part of it. */
void zoff_transfer_arena_hand_over(zoff_grads *g, size_t number, size_t buckets);
void zoff_transfer_arena_packed(zoff_grads *g, size_t number); /* one bucket has packed its part */
void zoff_transfer_arena_let_go(zoff_grads *g, size_t number); /* release the slice's buffer */
void zoff_transfer_arena_forget(zoff_grads *g);                /* release all buffers */

/* Get memory for the gradient of a slice that has none.  @return PENDING: no free block has room, and the pool may not grow */
zoff_status zoff_transfer_arena_lend(zoff_transfer *t, zoff_grads *g, size_t number, size_t bytes, bool grows);
/* With a device: bytes of its memory from which gradients are lent; 0 if the program has memory for all of them. */
uint64_t zoff_transfer_arena_device_bytes(const zoff_transfer *t);
/* Clear lent memory, in the stream that will write it; NULL: before the call returns. */
zoff_status zoff_transfer_arena_clear(zoff_transfer *t, char *at, size_t bytes, void *native_stream);

/* intake.c */
/* Get memory for the gradient of a slice; return the present memory if it has some.  @blocks for a short time, to reuse a
 * buffer */
zoff_status zoff_transfer_intake_lend(zoff_transfer *t, zoff_grads *g, size_t number, size_t bytes, char **out);
/* Take the complete gradient of a slice: mark it, and start its download or its reduction. */
zoff_status zoff_transfer_intake_take(zoff_transfer *t, zoff_param p, size_t slice, void *native_stream);
zoff_status zoff_transfer_intake_open(zoff_transfer *t); /* allocate the sums of tied gradients */
void zoff_transfer_intake_close(zoff_transfer *t);       /* call only when no stream works on the sums; unties all parameters */
/* Take the gradient of a tied parameter. The sum is made when all tied parameters have handed theirs over. */
zoff_status zoff_transfer_intake_take_tied(zoff_transfer *t, zoff_param p, size_t slice, void *native_stream);
/* When the step begins: make the sums that are still missing. `all`: also take gradients that were not handed over. */
zoff_status zoff_transfer_intake_settle(zoff_transfer *t, bool all);

#endif
