/* SPDX-License-Identifier: Apache-2.0 */
/* lending.h: lends weights to the program: slices of engine-owned parameters, made whole when the program asks for them, in
 * DRAM or in the memory of a device. They are prefetched in the order of the previous pass. If each rank stores a part, the
 * parts of all ranks are gathered. One thread at a time calls the functions of a lending; the engine's calls hold its lock.
 *
 * Three objects are chosen once, before the first plan. The home says where the stored weights are, the place where slices are
 * made whole, and the source whose weights a slice consists of. */
#ifndef ZOFF_LENDING_H
#define ZOFF_LENDING_H

#include "accel.h"
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
    char *at;         /* address; NULL: the slice is only in its chunks */
    size_t first_run; /* first run of the slice in the plan */
    /* First piece in the plan, if this rank owns the whole slice; SIZE_MAX: the slice is not engine-owned. */
    size_t first_piece;
    size_t count, bytes;
    size_t element_bytes;
    uint64_t used; /* clock value of the last fetch */
    uint32_t below, above;
    uint32_t lent;    /* number of fetches that were not released */
    uint32_t missing; /* with partitioned weights: number of parts that have not arrived */
    bool ahead;       /* prefetched, and not fetched since */
    bool persistent;  /* the slice is always whole, on every rank */
    bool direct;      /* the slice is persistent, and lent directly from the memory of its home, where it is one piece */
    bool is_stale;    /* a device, persistent: the copy in host memory has changed, and the device has the old one */
    size_t filled;    /* number of elements from own chunks that are in place, or whose copy is enqueued */
    /* A device: */
    void *arrived;     /* event behind the copies that made it whole; NULL: none was needed */
    void *released;    /* event in the program's stream, at the latest release */
    void *released_in; /* stream of that event */
    bool leaves;       /* copies over this slice have to wait for `released` */
} zoff_cached_slice;

/* The order of fetches in a pass. */
typedef struct zoff_use_order {
    uint32_t *slices;
    size_t count, capacity;
} zoff_use_order;

enum { ZOFF_PARTS_IN_FLIGHT = 4 }; /* parts of slices that are gathered at a time */

/* With partitioned weights: the part of a slice that is in one bucket, gathered to all ranks. */
typedef struct zoff_assembly_part {
    uint32_t slice;
    size_t run; /* index of the run in the plan */
} zoff_assembly_part;

typedef struct zoff_assembly {
    zoff_gather *gather;
    zoff_assembly_part *parts; /* a ring, indexed by part number */
    size_t capacity, planned, started, done_before;
    size_t brought;                     /* part number; all parts before it have this rank's share, or its copy is enqueued */
    bool has_own[ZOFF_PARTS_IN_FLIGHT]; /* by slot: this rank's share is in place, or its copy is enqueued */
} zoff_assembly;

enum { ZOFF_HELD_MAX = 8 };

/* A chunk of weights that is borrowed, or asked for, to copy slices from it. */
typedef struct zoff_held_chunk {
    zoff_demand demand;
    void *copied; /* a device: event behind the copies from it; NULL: not created yet */
    bool is_used;
    bool is_read;     /* such copies may be in flight */
    bool is_unmarked; /* the event is not recorded behind the latest of them, because the device refused it */
} zoff_held_chunk;

/* The ranks that make a slice whole: [first, first + members). `parts`: how many of the plan's parts each of them has. */
typedef struct zoff_weight_group {
    unsigned first, members, parts;
    zoff_store *store; /* store with the share of this rank: that of the weights, or of the secondary shard */
} zoff_weight_group;

enum { ZOFF_SECONDARY_SLOTS = 3 }; /* buckets on their way to secondary shards at a time */

/* A bucket whose new weights go to the secondary shards. */
typedef struct zoff_secondary_slot {
    enum { ZOFF_SECONDARY_FREE, ZOFF_SECONDARY_READS, ZOFF_SECONDARY_MOVES, ZOFF_SECONDARY_WRITES } phase;
    size_t bucket;
    uint64_t number; /* position in the order of starts */
    bool takes_all;  /* the exchange also takes weights that no step has changed */
    bool is_packed;
    size_t own;               /* bytes of this rank's part */
    size_t sent, received;    /* bytes to other ranks, and from all ranks */
    size_t *sends, *receives; /* bytes to and from each rank */
    char *out, *in;           /* data to all ranks, and behind it the data from them */
    zoff_comm_work work;
    zoff_demand reads, writes; /* this rank's part, and the chunk of the secondary shard */
} zoff_secondary_slot;

/* The secondary shard of this rank, with one chunk for each bucket. */
typedef struct zoff_secondary {
    zoff_store *store; /* store of the secondary shard; NULL: there is none */
    size_t *bytes;     /* by chunk */
    size_t *offsets;   /* for each run of the plan, the byte in the chunk where this rank's share begins */
    size_t *lengths;   /* memory for `sends` and `receives` of all slots */
    zoff_map staging;  /* memory for `out` and `in` of all slots */
    zoff_secondary_slot slots[ZOFF_SECONDARY_SLOTS];
    size_t next;             /* position of the next bucket in the walk of a step */
    size_t fill_next;        /* index of the next bucket, outside of a step */
    bool sends_all;          /* all weights are sent, outside of a step */
    uint64_t taken, started; /* buckets that got a slot; exchanges started, in the same order */
    uint64_t sent_bytes;     /* bytes sent to other ranks */
} zoff_secondary;

/* Slices that are whole. */
typedef struct zoff_param_cache {
    char *base; /* the arena: persistent slices, followed by the others; in host memory or on a device */
    size_t bytes;
    zoff_map arena;            /* host memory: all of the arena; with a device, a copy of the persistent slices */
    zoff_cached_slice *slices; /* slices by flag number */
    size_t persistent_bytes;
    size_t elements; /* elements of the slices that are not persistent */
    uint32_t lowest; /* the slice at the lowest address that is not persistent */
    uint32_t latest; /* the slice that was placed last; if that was removed, its neighbour below */
    uint64_t clock;
    size_t lent; /* sum of `lent` over all slices */
    zoff_held_chunk held[ZOFF_HELD_MAX];
    bool is_awaited; /* a call waits for chunks, so its demands come before others */
    bool in_step;    /* slices are lent while a step is open, which needs slots, too, so one chunk at a time is read for them */
    zoff_use_order before, now;
    size_t next;           /* index in `before`: the expected next use */
    size_t placed;         /* index in `before` up to which an open step has given places */
    size_t ahead_elements; /* elements of the slices that are `ahead` */
    zoff_assembly assembly;
} zoff_param_cache;

typedef struct zoff_lending zoff_lending;

/* Host memory that is pinned for copies to a device. */
typedef enum zoff_lending_pinned {
    ZOFF_PINNED_PERSISTENT,
    ZOFF_PINNED_BOUNCE,
    ZOFF_PINNED_STORE,
    ZOFF_PINNED_SECONDARY,
    ZOFF_PINNED_COUNT
} zoff_lending_pinned;

/* Bytes of a store of weights: of all its chunks, of those that stay in DRAM, and of the largest chunk. */
typedef struct zoff_weight_sizes {
    uint64_t stored, cached;
    size_t residents; /* how many chunks stay in DRAM */
    size_t most;
} zoff_weight_sizes;

/* Where the weights of this rank are stored: DRAM, files, or the memory of a device. */
typedef struct zoff_weight_home {
    const char *name;
    bool streams;  /* chunks pass through few slots, so only some are borrowed at a time */
    bool is_dram;  /* every chunk is in DRAM all the time */
    bool is_there; /* every chunk is in device memory all the time */
    /* The memory of a chunk of l->group.store, from which slices are copied.  @return PENDING, where `borrow` is set */
    zoff_status (*try_to_borrow)(zoff_lending *l, size_t chunk, char **out);
    /* The same, and wait. `piece` and `count`: where the slice begins, and elements from there on, for reading ahead.  @blocks
     * for a read */
    zoff_status (*borrow)(zoff_lending *l, size_t chunk, size_t piece, size_t count, char **out);
    void (*plan)(const zoff_lending *l, const zoff_weight_sizes *sizes, zoff_plan_info *info); /* adds its memory to a plan */
} zoff_weight_home;

/* Where slices are made whole: in host memory, or in the memory of a device. There all copies are enqueued in one stream of the
 * lending, and the program's streams wait for them; the host does not. */
typedef struct zoff_slice_place {
    const char *name;
    bool (*is_direct)(const zoff_weight_home *home); /* whether slices may be lent from the memory of the home itself */
    void (*plan)(const zoff_lending *l, const zoff_plan *plan, uint64_t persistent, uint64_t arena, zoff_plan_info *info);
    /* allocates these bytes; sets base, bytes and arena of the cache */
    zoff_status (*open)(zoff_lending *l, size_t persistent, size_t arena);
    /* Copy from host memory, or from the home, into the arena. */
    zoff_status (*put)(zoff_lending *l, void *to, const void *from, size_t bytes);
    zoff_status (*placed)(zoff_lending *l, zoff_cached_slice *s); /* the copies of a slice are enqueued */
    zoff_status (*lend)(zoff_lending *l, zoff_cached_slice *s, void *native_stream);
    zoff_status (*take_back)(zoff_lending *l, zoff_cached_slice *s, void *native_stream);
    /* the memory of a slice will be overwritten; NULL: that of all slices */
    void (*vacate)(zoff_lending *l, zoff_cached_slice *s);
    /* read: copies read a borrowed chunk. is_read: whether they are done.  @return PENDING */
    zoff_status (*read)(zoff_lending *l, zoff_held_chunk *held);
    zoff_status (*is_read)(zoff_lending *l, zoff_held_chunk *held);
    /* All ranks have the same bytes of a persistent slice in the host's copy: make the arena follow. */
    zoff_status (*follow)(zoff_lending *l, const zoff_cached_slice *s, size_t first_byte, size_t bytes);
    void (*ahead)(zoff_lending *l); /* prefetch from own chunks */
    bool is_at_once;                /* put() copies at once, so what it reads may be used again when it returns */
    const struct zoff_part_landing *landing;
} zoff_slice_place;

/* Where the parts of all ranks arrive that make a slice whole: see zoff_gather_slot. `at`: their place in the arena. */
typedef struct zoff_part_landing {
    const char *name;
    zoff_status (*begin)(zoff_lending *l, size_t item, unsigned slot, char *at, char **out);
    zoff_status (*end)(zoff_lending *l, unsigned slot, char *at, size_t bytes);
} zoff_part_landing;

/* A device in whose memory slices are made whole; empty for the host. */
typedef struct zoff_lending_device {
    zoff_store_link link;               /* link of all copies of the lending */
    void *synced;                       /* event for a caller that waits for it at once */
    void *published;                    /* event behind the latest copy of persistent slices */
    void *landed[ZOFF_PARTS_IN_FLIGHT]; /* events: the work enqueued for a slot is done */
    bool lands[ZOFF_PARTS_IN_FLIGHT];   /* work is enqueued for the slot */
    zoff_map bounce;                    /* host memory of the slots, where the communicator does not reach the device */
    size_t bounce_bytes;                /* bytes of a slot */
    void *pinned[ZOFF_PINNED_COUNT];
    bool is_vacant; /* all slices are stale, and no copy waits for the program's work with one */
} zoff_lending_device;

/* Whose weights a slice consists of that is not whole: this rank's own chunks, or the parts of several ranks. */
typedef struct zoff_weight_source {
    const char *name;
    /* If this rank's chunks hold the whole slice: set `first_piece`, and whether it can be lent directly from there. */
    void (*locate)(const zoff_lending *l, const zoff_plan *plan, size_t param, size_t slice, zoff_cached_slice *out);
    /* Prepare for fetches; called once, before the first one.  @return ERR_NO_MEMORY */
    zoff_status (*open)(zoff_lending *l);
    /* Make a slice whole. On an error the slice is as before.  @blocks for reads and for other ranks */
    zoff_status (*fetch)(zoff_lending *l, zoff_param p, size_t slice);
    void (*ahead)(zoff_lending *l); /* prefetch what the previous pass used next; fetch reports errors */
    /* Parts of several ranks: where this rank's share of a run begins in its chunk, in bytes. `first`: its first element. */
    size_t (*offset)(const zoff_lending *l, size_t run, size_t first);
    /* All ranks set the same bytes of a slice that is not persistent. The caller then sets those in the chunks of the plan.
     * @blocks for a read */
    zoff_status (*set)(zoff_lending *l, const zoff_plan_piece *run, size_t first_byte, const char *from, size_t bytes);
    bool takes_all;   /* each rank has a part of every slice */
    bool needs_order; /* every rank must record the same order of slices, so running out of memory for it is an error */
} zoff_weight_source;

typedef struct zoff_lending_pollers {
    zoff_poller *stored; /* poller of `store` */
    zoff_poller *reads;  /* poller of `group.store` */
    zoff_poller *ranks, *device;
    /* The open step. Waits for weights that are read, or that come from other ranks, pump it: they may wait for that, or it has
     * the slots. An error ends the wait. */
    zoff_poller *step;
} zoff_lending_pollers;

/* The owner sets the fields up to `is_new`; all of them are borrowed. */
struct zoff_lending {
    const zoff_model *model;
    const zoff_plan *plan;
    const zoff_weight_values *values;
    zoff_comm *comm;
    zoff_comm_channel *channel;
    zoff_progress *progress;
    zoff_accel *accel;
    zoff_lending_pollers pollers;
    bool is_updated;    /* an open step updates weights; those that are not new yet are not copied */
    const bool *is_new; /* then, by bucket: its weights are those of the end of the step */
    zoff_store *store;  /* weights, with the same chunks as the states; NULL: no engine-owned weights */
    zoff_weight_group group;
    zoff_secondary secondary;
    const zoff_weight_source *source;
    const zoff_weight_home *home;
    const zoff_slice_place *place;
    unsigned slots; /* chunks that the home lends at a time, if it streams */
    zoff_lending_device there;
    zoff_param_cache cache;
};

/* param_cache.c */
/* Decide which slices are persistent, and allocate the arena. */
zoff_status zoff_lending_param_cache_open(zoff_lending *l);
/* The store is filled: from now on, lend the slices that can be lent directly from it. */
void zoff_lending_param_cache_attach(zoff_lending *l);
void zoff_lending_param_cache_close(zoff_lending *l);
/* Messages or copies may still use the memory of slices: it is not freed. */
void zoff_lending_param_cache_leave(zoff_lending *l);
/* Add the memory for slices to a plan: nothing without engine-owned weights. */
void zoff_lending_param_cache_plan(const zoff_lending *l, const zoff_plan *plan, zoff_plan_info *info);
/* Check that no slice of these parameters is lent, before their weights change.  @return ERR_STATE, in the name of `call` */
zoff_status zoff_lending_param_cache_check(const zoff_lending *l, zoff_param first, size_t count, const char *call);
/* Weights are about to change: drop all slices that are not lent. */
void zoff_lending_param_cache_clear(zoff_lending *l);
/* The weights of a chunk have changed: copy its pieces of persistent slices. `all`: also pieces without a gradient. */
void zoff_lending_param_cache_refresh(zoff_lending *l, size_t chunk, const char *weights, bool all);

/* Whether a slice has the weights that it will have at the end of the open step. */
bool zoff_lending_param_cache_is_new(const zoff_lending *l, size_t number);
/* Whether a slice of engine-owned weights is always whole on every rank; and where the weights of such a piece are: in host
 * memory, and where they are lent. */
bool zoff_lending_param_cache_is_persistent(const zoff_lending *l, zoff_param p, size_t slice);
char *zoff_lending_param_cache_persistent(const zoff_lending *l, const zoff_plan_piece *piece);
char *zoff_lending_param_cache_lent(const zoff_lending *l, const zoff_plan_piece *piece);
/* All ranks set the same bytes of a piece, from `first_byte` on: set them where a copy of the slice stays whole. */
zoff_status zoff_lending_param_cache_set(zoff_lending *l, const zoff_plan_piece *piece, size_t first_byte, const char *from,
                                         size_t bytes);

/* Before the table of slices exists: whether a gathered slice of `count` elements is persistent. Ask for all slices in their
 * order; `elements` is 0 before the first one. */
bool zoff_lending_param_cache_persists(const zoff_lending *l, size_t count, size_t *elements);
/* List all slices, by flag number, as the cache has them for this plan. */
void zoff_lending_param_cache_list(const zoff_lending *l, const zoff_plan *plan, zoff_cached_slice *out);
/* How many elements of slices that are not persistent may be whole at a time. */
uint64_t zoff_lending_param_cache_most(const zoff_lending *l);
/* Find a place in the arena for a slice. False: no gap is large enough. */
bool zoff_lending_param_cache_place(zoff_param_cache *cache, uint32_t number);
void zoff_lending_param_cache_remove(zoff_lending *l, zoff_cached_slice *s);
/* The least recently used slice in the arena that is not lent; NULL: none. `also_ahead`: include prefetched slices. */
zoff_cached_slice *zoff_lending_param_cache_oldest_idle(zoff_param_cache *cache, bool also_ahead);

/* held.c */
/* Borrow a chunk of weights without waiting, until mark or done.  @return also PENDING */
zoff_status zoff_lending_held_borrow(zoff_lending *l, size_t chunk, char **out);
/* Borrow a chunk likewise, and wait. `count`: elements wanted from `piece` on.  @blocks for the read */
zoff_status zoff_lending_held_hold(zoff_lending *l, size_t chunk, size_t piece, size_t count, char **out);
/* A wait of a call, as zoff_base_progress_wait(): chunks that `poll` borrows come before those of a step or a pass. Errors of
 * earlier prefetches are dropped.  @blocks yes */
zoff_status zoff_lending_held_wait(zoff_lending *l, zoff_poller *poller, zoff_status (*poll)(void *ctx), void *ctx);
/* mark: copies were enqueued that read a chunk, so it stays borrowed until they are done. done: they were not enqueued, or read
 * nothing any more. Neither does anything for a chunk that needs no slot. */
zoff_status zoff_lending_held_mark(zoff_lending *l, size_t chunk);
zoff_status zoff_lending_held_done(zoff_lending *l, size_t chunk);
/* Give back the chunks that are read no more, so that their slots are free for others.  @return PENDING: some are still read */
zoff_status zoff_lending_held_poll(zoff_lending *l);
/* Give back all borrowed chunks.  @blocks for copies that read them  @return ERR_DEVICE: the device stands still, and the
 * chunks stay borrowed */
zoff_status zoff_lending_held_let_go(zoff_lending *l);
/* Start reading the chunks of `count` elements from a piece on; of the slices that are used next; of this rank's shares of
 * parts, from number `from` on. */
void zoff_lending_held_read_ahead(zoff_lending *l, size_t piece, size_t count);
void zoff_lending_held_read_slices_ahead(zoff_lending *l);
void zoff_lending_held_read_parts_ahead(zoff_lending *l, size_t from);

/* fill.c */
/* Copy a slice from its chunks to its place in the arena.  @blocks for the reads */
zoff_status zoff_lending_fill_slice(zoff_lending *l, zoff_cached_slice *s);
/* Copy a slice as far as its chunks are there.  @return PENDING: the others are being read, as far as slots are free */
zoff_status zoff_lending_fill_ahead(zoff_lending *l, zoff_cached_slice *s);

/* room.c */
/* Make room for a slice.  @return ERR_NO_MEMORY: lent slices take it all  @blocks for slices that are being gathered */
zoff_status zoff_lending_room_find(zoff_lending *l, uint32_t number, const char *name);
/* Make room for a slice that is prefetched.  @return PENDING: only prefetched slices that are not used yet could be evicted */
zoff_status zoff_lending_room_place_ahead(zoff_lending *l, uint32_t number);

/* param_gather.c: slices gathered from the parts of all ranks */
zoff_status zoff_lending_param_gather_open(zoff_lending *l);
/* Count one fetch of each slice that is not persistent, as zoff_zero_gather_traffic(). Reads the plan, the table of slices and
 * l->comm.  @return ERR_NO_MEMORY */
zoff_status zoff_lending_param_gather_traffic(const zoff_lending *l, zoff_comm_traffic *sum);
void zoff_lending_param_gather_close(zoff_lending *l);
/* Make room in the queue for the parts of a slice.  @blocks while the ring, which holds two passes, is full */
zoff_status zoff_lending_param_gather_make_room(zoff_lending *l, uint32_t number);
/* Queue the parts of a slice that has a place; all ranks plan the same slices in the same order. */
void zoff_lending_param_gather_plan(zoff_lending *l, uint32_t number);
zoff_status zoff_lending_param_gather_go_on(zoff_lending *l); /* advance without waiting; PENDING: parts are in flight */
zoff_status zoff_lending_param_gather_wait(zoff_lending *l, uint32_t number); /* wait until a slice is whole */
zoff_status zoff_lending_param_gather_finish(zoff_lending *l);                /* wait until all planned slices are whole */

/* group.c */
/* The share that a member of the group has of a run: returns the number of elements, and sets *out_first to the first one in
 * the slice, unless that is 0. */
size_t zoff_lending_group_share(const zoff_lending *l, const zoff_plan *plan, const zoff_plan_piece *run, unsigned rank,
                                size_t *out_first);

/* secondary.c: a second copy of the weights in each group of ranks */
bool zoff_lending_secondary_is(const zoff_lending *l); /* whether the engine has one */
void zoff_lending_secondary_plan(const zoff_lending *l, const zoff_plan *plan, zoff_plan_info *info); /* add its memory */
/* The number of chunks of the secondary shard that stay in DRAM: offload_param.max_in_cpu, in whole chunks. */
size_t zoff_lending_secondary_residents(const zoff_lending *l);
/* Lay the secondary shard out; the owner then opens its store. */
zoff_status zoff_lending_secondary_open(zoff_lending *l);
/* Open the groups of the communicator, when all ranks have laid the shard out.  @blocks for other ranks */
zoff_status zoff_lending_secondary_connect(zoff_lending *l);
void zoff_lending_secondary_abandon(zoff_lending *l); /* end exchanges in flight */
void zoff_lending_secondary_close(zoff_lending *l);
/* Send the new weights of a bucket, which are stored, to the ranks that have them in a secondary shard. All ranks start the
 * same buckets in the same order.  @return PENDING: repeat the call after a poll */
zoff_status zoff_lending_secondary_start(zoff_lending *l, size_t bucket);
/* Whether the chunk of a bucket that was started is not read any more. */
bool zoff_lending_secondary_has_read(const zoff_lending *l, size_t bucket);
/* Whether all of a bucket that was started has come, and is on its way to its chunk. */
bool zoff_lending_secondary_has_come(const zoff_lending *l, size_t bucket);
zoff_status zoff_lending_secondary_poll(zoff_lending *l);   /* advance without waiting; OK: nothing is in flight */
zoff_status zoff_lending_secondary_finish(zoff_lending *l); /* wait until nothing is in flight */
/* Count what a step sends if it changes all weights, as zoff_lending_param_gather_traffic(). */
zoff_status zoff_lending_secondary_traffic(const zoff_lending *l, zoff_comm_traffic *sum);
/* Send all weights of all buckets.  @blocks for other ranks */
zoff_status zoff_lending_secondary_fill(zoff_lending *l);
zoff_status zoff_lending_secondary_set(zoff_lending *l, const zoff_plan_piece *run, size_t first_byte, const char *from,
                                       size_t bytes); /* zoff_weight_source.set */

/* prefetch.c: records the order of fetches, and prefetches in that order */
/* Reserve memory for one more use. With partitioned weights, every rank must record the same order. */
zoff_status zoff_lending_prefetch_reserve(zoff_lending *l);
/* note a use; without memory it is skipped, which only costs time */
void zoff_lending_prefetch_note(zoff_lending *l, uint32_t slice);
/* Prefetch what the previous pass used next: read chunks of this rank, or gather slices of all ranks. */
void zoff_lending_prefetch_own(zoff_lending *l);
void zoff_lending_prefetch_into_arena(zoff_lending *l); /* prefetch from own chunks into the memory of a device */
void zoff_lending_prefetch_gathered(zoff_lending *l);
void zoff_lending_prefetch_turn(zoff_lending *l); /* note that a pass ends */

/* homes.c */
/* Find a store of weights at their home, which the caller fills and closes, after zoff_lending_copies_close(). Also after an
 * error, if `out` is set. */
zoff_status zoff_lending_homes_open(zoff_lending *l, zoff_store_opts *opts, zoff_lending_pinned which, zoff_store **out);
extern const zoff_weight_home zoff_lending_homes_dram, zoff_lending_homes_files, zoff_lending_homes_device;

/* places.c */
extern const zoff_slice_place zoff_lending_places_host, zoff_lending_places_device, zoff_lending_places_reached;

/* landings.c */
extern const zoff_part_landing zoff_lending_landings_place, zoff_lending_landings_bounce, zoff_lending_landings_reached;
/* Bytes of the largest part of a slice, with the shares of all ranks. */
size_t zoff_lending_landings_most(const zoff_lending *l, const zoff_plan *plan);

/* copies.c: the stream of a device, and the memory that its copies use */
zoff_status zoff_lending_copies_open(zoff_lending *l); /* does nothing if slices are in host memory */
void zoff_lending_copies_close(zoff_lending *l);       /* waits for the copies; call before stores and arena are freed */
/* Enqueue a copy, to the device (`up`), from it, or within it. Bytes over the link are counted. */
zoff_status zoff_lending_copies_up(zoff_lending *l, void *to, const void *from, size_t bytes);
zoff_status zoff_lending_copies_down(zoff_lending *l, void *to, const void *from, size_t bytes);
zoff_status zoff_lending_copies_within(zoff_lending *l, void *to, const void *from, size_t bytes);
/* Record an event behind all copies so far. `event` is created when it is NULL. */
zoff_status zoff_lending_copies_record(zoff_lending *l, void **event);
zoff_status zoff_lending_copies_wait(zoff_lending *l, void *event); /* @blocks until the event is reached */
/* Wait until no copy reads a chunk or the host's copy of persistent slices, before these change.  @blocks yes */
zoff_status zoff_lending_copies_settle(zoff_lending *l);
zoff_status zoff_lending_copies_pin(zoff_lending *l, const void *base, size_t bytes, zoff_lending_pinned which);
bool zoff_lending_copies_are_busy(const zoff_lending *l);

/* sources.c */
/* Choose source, home and place, before the first plan.
 * @param has_parts each rank has a part of the weights; otherwise this rank has all
 * @param on_device slices are lent in the memory of l->accel
 * @param reaches the communicator accesses that memory */
void zoff_lending_sources_choose(zoff_lending *l, bool has_parts, bool on_device, bool reaches);
/* The store is filled: make the weights available. Does nothing without a store. */
zoff_status zoff_lending_sources_open(zoff_lending *l);

/* fetch.c */
/* Lend a slice: whole, in one piece, until it is released as often as it was fetched. `out`: its first element. On a device,
 * work that is enqueued in the stream from now on finds it.  @blocks for reads and for other ranks  @return ERR_NO_MEMORY: lent
 * slices leave no room */
zoff_status zoff_lending_fetch_slice(zoff_lending *l, zoff_param p, size_t slice, void *native_stream, const void **out);
/* The program's call that lends a slice, which may wait for other ranks before zoff_lending_fetch_slice(), too. `in_step`: a
 * step is open that updates weights. */
void zoff_lending_fetch_enter(zoff_lending *l, zoff_param p, size_t slice, bool in_step);
zoff_status zoff_lending_fetch_exit(const zoff_lending *l, zoff_param p, size_t slice, zoff_status status);
/* Release a slice, on a device behind the work that is now in the stream.  @return ERR_STATE, in the name of
 * zoff_param_release(): it is not lent */
zoff_status zoff_lending_fetch_release(zoff_lending *l, zoff_param p, size_t slice, void *native_stream);

#endif
