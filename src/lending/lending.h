/* lending.h: lends weights to the program: slices of engine-owned parameters, made whole in DRAM when the program asks for
 * them. They are prefetched in the order of the previous pass. If each rank stores a part, the parts of all ranks are gathered.
 * One thread at a time calls the functions of a lending; the engine's calls hold its lock. */
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

/* A slice of weights, whole in one place. Its neighbours in the arena are named by slice number. */
typedef struct zoff_cached_slice {
    char *at;         /* NULL: it is only in its chunks */
    size_t first_run; /* first run in the plan */
    /* First piece in the plan, if this rank owns the whole slice; SIZE_MAX: the slice is not engine-owned. */
    size_t first_piece;
    size_t count, bytes;
    uint64_t used; /* clock value of the last fetch */
    uint32_t below, above;
    uint32_t lent;    /* how often it is lent now */
    uint32_t missing; /* with partitioned weights: parts that have not arrived */
    bool ahead;       /* prefetched, and not fetched since */
    bool persistent;  /* always in DRAM, on every rank */
    bool direct;      /* persistent and lent directly from the store's memory, where it is one piece */
} zoff_cached_slice;

/* The order of fetches in a pass. */
typedef struct zoff_use_order {
    uint32_t *slices;
    size_t count, capacity;
} zoff_use_order;

/* With partitioned weights: the part of a slice that is in one bucket, gathered to all ranks. */
typedef struct zoff_assembly_part {
    uint32_t slice;
    size_t run; /* index in the plan's runs */
} zoff_assembly_part;

typedef struct zoff_assembly {
    zoff_gather *gather;
    zoff_assembly_part *parts; /* a ring, indexed by part number */
    size_t capacity, planned, started, done_before;
} zoff_assembly;

enum { ZOFF_HELD_MAX = 8 };

/* Slices that are whole in DRAM. */
typedef struct zoff_param_cache {
    zoff_map arena;            /* persistent slices, followed by the others */
    zoff_cached_slice *slices; /* by flag number */
    size_t persistent_bytes;
    size_t elements; /* elements of the slices that are not persistent */
    uint32_t lowest; /* the slice at the lowest address that is not persistent */
    uint32_t latest; /* the slice that was placed last; if that was removed, its neighbour below */
    uint64_t clock;
    size_t lent; /* sum of `lent` over all slices */
    struct {
        size_t chunk;
        char *base;
    } held[ZOFF_HELD_MAX]; /* borrowed chunks of weights, the most recently used first */
    unsigned held_count;
    zoff_use_order before, now;
    size_t next; /* index in `before`: the expected next use */
    zoff_assembly assembly;
} zoff_param_cache;

typedef struct zoff_lending zoff_lending;

/* Where a slice comes from that is not whole in DRAM: this rank's own chunks, or the parts of all ranks. Chosen with the route,
 * before the first plan. */
typedef struct zoff_weight_source {
    const char *name;
    /* If this rank's chunks hold the whole slice: set `first_piece`, and whether it can be lent directly from there. */
    void (*locate)(const zoff_lending *l, const zoff_plan *plan, size_t param, size_t slice, zoff_cached_slice *out);
    /* Prepare for fetches; called once, before the first one.  @return ERR_NO_MEMORY */
    zoff_status (*open)(zoff_lending *l);
    /* Make a slice whole. On an error the slice is as before.  @blocks for reads and for other ranks */
    zoff_status (*fetch)(zoff_lending *l, zoff_param p, size_t slice);
    void (*ahead)(zoff_lending *l); /* prefetch what the previous pass used next; fetch reports errors */
    bool takes_all;                 /* each rank has a part of every slice */
    bool needs_order; /* every rank must record the same order of slices, so running out of memory for it is an error */
} zoff_weight_source;

/* The owner sets the fields up to `ctx` before any call; all of them are borrowed. */
struct zoff_lending {
    const zoff_model *model;
    const zoff_plan *plan;
    const zoff_weight_values *values;
    zoff_comm *comm;
    zoff_comm_channel *channel;
    zoff_progress *progress;
    zoff_poller *reads, *ranks; /* pollers for `store` and for other ranks */
    /* Called while this rank waits for weights of other ranks: advance other work that those may wait for. */
    void (*go_on)(void *ctx);
    void *ctx;
    zoff_store *store; /* weights, with the same chunks as the states; NULL: no engine-owned weights */
    const zoff_weight_source *source;
    zoff_param_cache cache;
};

/* param_cache.c */
/* Decide which slices are persistent, and allocate the arena. */
zoff_status zoff_lending_param_cache_open(zoff_lending *l);
/* The store is filled: from now on, lend the slices that can be lent directly from it. */
void zoff_lending_param_cache_attach(zoff_lending *l);
void zoff_lending_param_cache_close(zoff_lending *l);
/* Bytes of DRAM for slices; 0 without engine-owned weights. */
uint64_t zoff_lending_param_cache_room(const zoff_lending *l, const zoff_plan *plan);
/* Check that no slice of these parameters is lent, before their weights change.  @return ERR_STATE, in the name of `call` */
zoff_status zoff_lending_param_cache_check(const zoff_lending *l, zoff_param first, size_t count, const char *call);
/* Weights are about to change: drop all slices that are not lent. */
void zoff_lending_param_cache_clear(zoff_lending *l);
/* The weights of a chunk have changed: copy its pieces of persistent slices. `all`: also pieces without a gradient. */
void zoff_lending_param_cache_refresh(zoff_lending *l, size_t chunk, const char *weights, bool all);

/* Whether a slice of engine-owned weights is always in DRAM on every rank; and where the weights of such a piece are. */
bool zoff_lending_param_cache_is_persistent(const zoff_lending *l, zoff_param p, size_t slice);
char *zoff_lending_param_cache_persistent(const zoff_lending *l, const zoff_plan_piece *piece);

/* How many elements of slices that are not persistent may be whole at a time. */
uint64_t zoff_lending_param_cache_most(const zoff_lending *l);
/* Find a place in the arena for a slice. False: no gap is large enough. */
bool zoff_lending_param_cache_place(zoff_param_cache *cache, uint32_t number);
void zoff_lending_param_cache_remove(zoff_param_cache *cache, zoff_cached_slice *s);
/* The least recently used slice in the arena that is not lent; NULL: none. `also_ahead`: include prefetched slices. */
zoff_cached_slice *zoff_lending_param_cache_oldest_idle(zoff_param_cache *cache, bool also_ahead);

/* held.c */
/* Borrow a chunk of weights without waiting, and keep it borrowed for a while.  @return also PENDING */
zoff_status zoff_lending_held_borrow(zoff_lending *l, size_t chunk, char **out);
/* Copy a slice from its chunks to its place in the arena.  @blocks for the reads */
zoff_status zoff_lending_held_copy(zoff_lending *l, const zoff_cached_slice *s, size_t element_bytes);
/* Release all borrowed chunks, and drop prefetched ones. */
void zoff_lending_held_let_go(zoff_lending *l);
/* Start reading the chunks of `count` elements from a piece on, while slots are free. */
void zoff_lending_held_read_ahead(zoff_lending *l, size_t piece, size_t count);

/* room.c */
/* Make room for a slice.  @return ERR_NO_MEMORY: lent slices take it all  @blocks for slices that are being gathered */
zoff_status zoff_lending_room_find(zoff_lending *l, uint32_t number, const char *name);
/* Make room for a slice that is prefetched.  @return PENDING: only prefetched slices that are not used yet could be evicted */
zoff_status zoff_lending_room_place_ahead(zoff_lending *l, uint32_t number);

/* param_gather.c: slices gathered from the parts of all ranks */
zoff_status zoff_lending_param_gather_open(zoff_lending *l);
void zoff_lending_param_gather_close(zoff_lending *l);
/* Make room in the queue for the parts of a slice.  @blocks while the ring, which holds two passes, is full */
zoff_status zoff_lending_param_gather_make_room(zoff_lending *l, uint32_t number);
/* Queue the parts of a slice that has a place; all ranks plan the same slices in the same order. */
void zoff_lending_param_gather_plan(zoff_lending *l, uint32_t number);
zoff_status zoff_lending_param_gather_go_on(zoff_lending *l); /* advance without waiting; PENDING: parts are in flight */
zoff_status zoff_lending_param_gather_wait(zoff_lending *l, uint32_t number); /* wait until a slice is whole */
zoff_status zoff_lending_param_gather_finish(zoff_lending *l);                /* wait until all planned slices are whole */

/* prefetch.c: records the order of fetches, and prefetches in that order */
/* Reserve memory for one more use. With partitioned weights, every rank must record the same order. */
zoff_status zoff_lending_prefetch_reserve(zoff_lending *l);
void zoff_lending_prefetch_note(zoff_lending *l, uint32_t slice); /* skipped if no memory is left: that only costs time */
/* Prefetch what the previous pass used next: read chunks of this rank, or gather slices of all ranks. */
void zoff_lending_prefetch_own(zoff_lending *l);
void zoff_lending_prefetch_gathered(zoff_lending *l);
void zoff_lending_prefetch_turn(zoff_lending *l); /* a pass ends */

/* sources.c */
/* Choose the source, before the first plan. `has_parts`: each rank has a part of the weights; otherwise this rank has all. */
void zoff_lending_sources_choose(zoff_lending *l, bool has_parts);
/* The store is filled: make the weights available. Does nothing without a store. */
zoff_status zoff_lending_sources_open(zoff_lending *l);

/* fetch.c */
/* Lend a slice: whole, in one piece, until it is released as often as it was fetched. `out`: its first element.  @blocks for
 * reads and for other ranks  @return ERR_NO_MEMORY: lent slices leave no room */
zoff_status zoff_lending_fetch_slice(zoff_lending *l, zoff_param p, size_t slice, const void **out);
/* Release a slice.  @return ERR_STATE, in the name of zoff_param_release(): it is not lent */
zoff_status zoff_lending_fetch_release(zoff_lending *l, zoff_param p, size_t slice);

#endif
