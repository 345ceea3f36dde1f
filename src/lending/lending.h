/* lending.h: the door of the room that lends weights to the program: slices of parameters that the engine keeps, made whole in
 * DRAM when the program asks for them, and read ahead in the order of the pass before. Of several ranks that each keep a part
 * it gathers the parts. The functions of a lending are called by one thread at a time: calls of the engine hold its lock. */
#ifndef ZOFF_LENDING_H
#define ZOFF_LENDING_H

#include "comm.h"
#include "gather.h"
#include "map.h"
#include "mem.h"
#include "offload.h"
#include "progress.h"
#include "zero.h"
#include "zoff_model.h"

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

typedef struct zoff_lending zoff_lending;

/* Where a slice comes from that is not whole: this rank's own chunks, or the parts of all ranks. Chosen at seal. */
typedef struct zoff_weight_source {
    const char *name;
    /* Where a slice is in this rank's chunks, where it is there as a whole: `first_piece`, and whether it can be lent there. */
    void (*locate)(const zoff_lending *l, const zoff_plan *plan, size_t param, size_t slice, zoff_cached_slice *out);
    /* Get ready for slices: called once, before the first one.  @return ERR_NO_MEMORY */
    zoff_status (*open)(zoff_lending *l);
    /* Make a slice whole, or leave it as it was.  @blocks for reads and for other ranks */
    zoff_status (*fetch)(zoff_lending *l, zoff_param p, size_t slice);
    void (*ahead)(zoff_lending *l); /* start what the pass before used next; errors are told by the fetch */
    bool takes_all;                 /* each rank has a part of every slice */
    bool needs_order;               /* every rank must learn the same order of slices: no memory for it is an error */
} zoff_weight_source;

/* The owner sets the fields up to `ctx` before any call; all of them are borrowed. */
struct zoff_lending {
    const zoff_model *model;
    const zoff_plan *plan;
    const zoff_weight_values *values;
    zoff_comm *comm;
    zoff_comm_channel *channel;
    zoff_progress *progress;
    zoff_poller *reads, *ranks; /* of `store`; of other ranks */
    /* Called while this rank waits for others' weights: other work that they may wait for. */
    void (*go_on)(void *ctx);
    void *ctx;
    zoff_store *store; /* of weights, chunk for chunk beside the states; NULL: the engine keeps none */
    const zoff_weight_source *source;
    zoff_param_cache cache;
};

/* param_cache.c */
/* Decide what is persistent, and reserve memory. */
zoff_status zoff_lending_param_cache_open(zoff_lending *l);
/* The store has its weights: what can be lent where it lies is at hand from now on. */
void zoff_lending_param_cache_attach(zoff_lending *l);
void zoff_lending_param_cache_close(zoff_lending *l);
/* DRAM that the slices may take; 0 where the engine keeps no weights. */
uint64_t zoff_lending_param_cache_room(const zoff_lending *l, const zoff_plan *plan);
/* Nothing of these parameters may be lent when their weights change. */
zoff_status zoff_lending_param_cache_check(const zoff_lending *l, zoff_param first, size_t count, const char *call);
/* Weights are about to change: what is whole and in nobody's hands is forgotten, too. */
void zoff_lending_param_cache_clear(zoff_lending *l);
/* A chunk of weights has changed: take over what is persistent of it, of the pieces that have a gradient, or of all. */
void zoff_lending_param_cache_refresh(zoff_lending *l, size_t chunk, const char *weights, bool all);

/* Whether a slice of the engine's weights is at hand on every rank all the time, and where the weights of such a piece are. */
bool zoff_lending_param_cache_is_persistent(const zoff_lending *l, zoff_param p, size_t slice);
char *zoff_lending_param_cache_persistent(const zoff_lending *l, const zoff_plan_piece *piece);

/* Elements that may be whole at a time. */
uint64_t zoff_lending_param_cache_most(const zoff_lending *l);
/* Find a place in the arena for a slice. False: there is none. */
bool zoff_lending_param_cache_place(zoff_param_cache *cache, uint32_t number);
void zoff_lending_param_cache_remove(zoff_param_cache *cache, zoff_cached_slice *s);
/* The slice that is in the arena, not lent, and was used longest ago; NULL: none. `also_ahead`: prefetched ones, too. */
zoff_cached_slice *zoff_lending_param_cache_oldest_idle(zoff_param_cache *cache, bool also_ahead);

/* held.c */
/* Borrow a chunk of weights without waiting, and keep it for a while.  @return also PENDING */
zoff_status zoff_lending_held_borrow(zoff_lending *l, size_t chunk, char **out);
/* Copy a slice from its chunks to its place.  @blocks for the reads */
zoff_status zoff_lending_held_copy(zoff_lending *l, const zoff_cached_slice *s, size_t element_bytes);
/* Release all chunks, and give up what was read ahead. */
void zoff_lending_held_let_go(zoff_lending *l);
/* Start to read the chunks of `count` elements from a piece on, as far as there are slots. */
void zoff_lending_held_read_ahead(zoff_lending *l, size_t piece, size_t count);

/* room.c */
/* Make room for a slice.  @return ERR_NO_MEMORY: lent slices take it all  @blocks for slices that are on their way */
zoff_status zoff_lending_room_find(zoff_lending *l, uint32_t number, const char *name);
/* Make room for a slice that is prefetched.  @return PENDING: only slices that are not used yet could make room */
zoff_status zoff_lending_room_place_ahead(zoff_lending *l, uint32_t number);

/* param_gather.c: slices of several ranks' parts */
zoff_status zoff_lending_param_gather_open(zoff_lending *l);
void zoff_lending_param_gather_close(zoff_lending *l);
/* Room in the queue for the parts of a slice.  @blocks where ranks are two passes behind */
zoff_status zoff_lending_param_gather_make_room(zoff_lending *l, uint32_t number);
void zoff_lending_param_gather_plan(zoff_lending *l, uint32_t number); /* it has room and its place; all ranks plan the same */
zoff_status zoff_lending_param_gather_go_on(zoff_lending *l);          /* without waiting; PENDING: something is on its way */
zoff_status zoff_lending_param_gather_wait(zoff_lending *l, uint32_t number); /* until a slice is whole */
zoff_status zoff_lending_param_gather_finish(zoff_lending *l);                /* until all are that are planned */

/* prefetch.c: what is asked for, and read before it is */
/* Room for one more. Of several ranks each must learn the same order. */
zoff_status zoff_lending_prefetch_reserve(zoff_lending *l);
void zoff_lending_prefetch_note(zoff_lending *l, uint32_t slice); /* left out where there is no room: then only time is lost */
/* Start what the pass before used next: read chunks of this rank, or gather slices of all ranks. */
void zoff_lending_prefetch_own(zoff_lending *l);
void zoff_lending_prefetch_gathered(zoff_lending *l);
void zoff_lending_prefetch_turn(zoff_lending *l); /* a pass is over */

/* sources.c */
/* Choose the source: whether each rank has a part of the weights, or this one has all. Before the first plan. */
void zoff_lending_sources_choose(zoff_lending *l, bool has_parts);
/* The store has its weights: lend what can be lent where it lies. Does nothing without a store. */
zoff_status zoff_lending_sources_open(zoff_lending *l);

/* fetch.c */
/* Lend a slice: whole, in one piece, until it is released; each slice as often as it is fetched. `out`: its first element.
 * @blocks for reads and for other ranks  @return ERR_NO_MEMORY: slices that are lent leave no room */
zoff_status zoff_lending_fetch_slice(zoff_lending *l, zoff_param p, size_t slice, const void **out);
/* @return ERR_STATE, in the name of zoff_param_release(): it is not lent */
zoff_status zoff_lending_fetch_release(zoff_lending *l, zoff_param p, size_t slice);

#endif
