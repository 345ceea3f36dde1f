/* param_cache_priv.h: weights that the engine keeps and gradients that it lends: what of them is whole for the caller; part of
 * engine_priv.h. */
#ifndef ZOFF_LIVE_PRIV_H
#define ZOFF_LIVE_PRIV_H

#include "gather.h"
#include "map.h"
#include "zero.h"

#include <zoff/engine.h>

/* A slice of weights, whole in one place. Its neighbours are those in the arena, by number of slice. */
typedef struct zoff_cached_slice {
    char *at;           /* NULL: it is only in its chunks */
    size_t first_run;   /* of the plan, likewise */
    size_t first_piece; /* of the plan, where all of it is this rank's; SIZE_MAX: nothing of it is the engine's */
    size_t count, bytes;
    uint64_t used; /* when it was asked for last */
    uint32_t below, above;
    uint32_t lent;    /* times */
    uint32_t missing; /* of several ranks: parts that are on their way */
    bool ahead;       /* and it was not asked for yet */
    bool persistent;  /* always at hand */
    bool direct;      /* and that in the store itself, in one piece */
} zoff_cached_slice;

/* The order in which slices were asked for in a pass. */
typedef struct zoff_use_order {
    uint32_t *slices;
    size_t count, capacity;
} zoff_use_order;

/* Of several ranks: what a bucket has of a slice, on its way to all of them. */
typedef struct zoff_assembly_part {
    uint32_t slice;
    size_t run; /* of the plan: what the bucket has of the slice */
} zoff_assembly_part;

typedef struct zoff_assembly {
    zoff_gather *gather;
    zoff_assembly_part *parts; /* a ring, by number */
    size_t capacity, planned, started, done_before;
} zoff_assembly;

enum { ZOFF_HELD_MAX = 8 };

/* What of the weights is whole for the caller. */
typedef struct zoff_param_cache {
    zoff_map arena;            /* persistent slices, and behind them the others */
    zoff_cached_slice *slices; /* as the flags */
    size_t persistent_bytes;
    size_t elements; /* of those that are not persistent */
    uint32_t lowest; /* of these, in the arena */
    uint32_t latest; /* the one that was placed last, or its neighbour below */
    uint64_t clock;
    size_t lent; /* slices, each as often as it is lent */
    struct {
        size_t chunk;
        char *base;
    } held[ZOFF_HELD_MAX]; /* chunks of weights, the last used one first */
    unsigned held_count;
    zoff_use_order before, now;
    size_t next; /* in `before`: the use that comes next */
    zoff_assembly assembly;
} zoff_param_cache;

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

/* param_cache.c */
/* Decide what is persistent, and reserve memory. */
zoff_status zoff_engine_param_cache_open(zoff_engine *e);
/* The weights are there: what can be lent where it lies is at hand from now on. */
void zoff_engine_param_cache_attach(zoff_engine *e);
void zoff_engine_param_cache_close(zoff_engine *e);
/* DRAM that the slices may take; 0 where the engine keeps no weights. */
uint64_t zoff_engine_param_cache_room(const zoff_engine *e, const zoff_plan *plan);
/* Nothing of these parameters may be lent when their weights change. */
zoff_status zoff_engine_param_cache_check(const zoff_engine *e, zoff_param first, size_t count, const char *call);
/* Weights are about to change: what is whole and in nobody's hands is forgotten, too. */
void zoff_engine_param_cache_clear(zoff_engine *e);
/* A chunk of weights has changed: take over what is persistent of it, of the pieces that have a gradient, or of all. */
void zoff_engine_param_cache_refresh(zoff_engine *e, size_t chunk, const char *weights, bool all);

/* Whether a slice of the engine's weights is at hand on every rank all the time, and where the weights of such a piece are. */
bool zoff_engine_param_cache_is_persistent(const zoff_engine *e, zoff_param p, size_t slice);
char *zoff_engine_param_cache_persistent(const zoff_engine *e, const zoff_plan_piece *piece);

/* Elements that may be whole at a time. */
uint64_t zoff_engine_param_cache_most(const zoff_engine *e);
/* Find a place in the arena for a slice. False: there is none. */
bool zoff_engine_param_cache_place(zoff_param_cache *live, uint32_t number);
void zoff_engine_param_cache_remove(zoff_param_cache *live, zoff_cached_slice *s);
/* The slice that is in the arena, not lent, and was used longest ago; NULL: none. `also_ahead`: prefetched ones, too. */
zoff_cached_slice *zoff_engine_param_cache_oldest_idle(zoff_param_cache *live, bool also_ahead);

/* held.c */
/* Borrow a chunk of weights without waiting, and keep it for a while.  @return also PENDING */
zoff_status zoff_engine_held_borrow(zoff_engine *e, size_t chunk, char **out);
/* Copy a slice from its chunks to its place.  @blocks for the reads */
zoff_status zoff_engine_held_copy(zoff_engine *e, const zoff_cached_slice *s, size_t element_bytes);
/* Release all chunks, and give up what was read ahead. */
void zoff_engine_held_let_go(zoff_engine *e);
/* Start to read the chunks of `count` elements from a piece on, as far as there are slots. */
void zoff_engine_held_read_ahead(zoff_engine *e, size_t piece, size_t count);

/* room.c */
/* Make room for a slice.  @return ERR_NO_MEMORY: lent slices take it all  @blocks for slices that are on their way */
zoff_status zoff_engine_room_find(zoff_engine *e, uint32_t number, const char *name);
/* Make room for a slice that is prefetched.  @return PENDING: only slices that are not used yet could make room */
zoff_status zoff_engine_room_place_ahead(zoff_engine *e, uint32_t number);

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

/* param_gather.c: slices of several ranks' parts */
zoff_status zoff_engine_param_gather_open(zoff_engine *e);
void zoff_engine_param_gather_close(zoff_engine *e);
/* Room in the queue for the parts of a slice.  @blocks where ranks are two passes behind */
zoff_status zoff_engine_param_gather_make_room(zoff_engine *e, uint32_t number);
void zoff_engine_param_gather_plan(zoff_engine *e, uint32_t number); /* it has room and its place; all ranks plan the same */
zoff_status zoff_engine_param_gather_go_on(zoff_engine *e);          /* without waiting; PENDING: something is on its way */
zoff_status zoff_engine_param_gather_wait(zoff_engine *e, uint32_t number); /* until a slice is whole */
zoff_status zoff_engine_param_gather_finish(zoff_engine *e);                /* until all are that are planned */

/* prefetch.c: what is asked for, and read before it is */
/* Room for one more. Of several ranks each must learn the same order. */
zoff_status zoff_engine_prefetch_reserve(zoff_engine *e);
void zoff_engine_prefetch_note(zoff_engine *e, uint32_t slice); /* left out where there is no room: then only time is lost */
void zoff_engine_prefetch_ahead(zoff_engine *e);                /* read what the pass before used next */
void zoff_engine_prefetch_turn(zoff_engine *e);                 /* a pass is over */

#endif
