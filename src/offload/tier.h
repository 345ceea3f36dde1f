/* SPDX-License-Identifier: Apache-2.0 */
/* tier.h: the table of functions that each tier fills: host.c, swap.c and device.c. */
#ifndef ZOFF_OFFLOAD_TIER_H
#define ZOFF_OFFLOAD_TIER_H

#include "offload.h"

#include "map.h"

/* Call a function that a tier may lack. */
#define ZOFF_OF_TIER(store, function, ...) ((store)->ops->function ? (store)->ops->function(__VA_ARGS__) : ZOFF_OK)

/* Functions that record what was written, and go back to the last record. */
typedef struct zoff_store_commits {
    zoff_status (*settled)(const zoff_store *store); /* check that nothing is dirty, in flight or failed */
    zoff_status (*record)(zoff_store *store, int64_t t);
    void (*confirm)(zoff_store *store);
    zoff_status (*rollback)(zoff_store *store);
    zoff_status (*retry)(zoff_store *store);
} zoff_store_commits;

/* The second content of a chunk. NULL in a tier that is never opened with has_seconds: store.c calls none of them then. adopt
 * and discard do nothing for a chunk without a second content. */
typedef struct zoff_store_seconds {
    zoff_status (*begin)(zoff_store *store, size_t chunk, void **out);
    zoff_status (*put)(zoff_store *store, size_t chunk);
    void (*adopt)(zoff_store *store, size_t chunk);
    zoff_status (*discard)(zoff_store *store, size_t chunk);
} zoff_store_seconds;

/* The functions that open a tier; see offload.h. */
typedef struct zoff_store_opening {
    zoff_status (*find)(const zoff_store_opts *opts, zoff_store **out, zoff_store_found *out_found);
    zoff_status (*verify)(zoff_store *store, const zoff_store_opts *opts, uint64_t generation);
    zoff_status (*fill)(zoff_store *store, const zoff_store_opts *opts);
} zoff_store_opening;

/* A function that is NULL has nothing to do, and a tier without has_place has memory for every chunk. Each has find, close,
 * fetch, claim, release and source. */
typedef struct zoff_store_ops {
    zoff_store_opening opening;
    void (*close)(zoff_store *store);
    /* The broker (broker.c) calls these: */
    /* Whether the chunk would get memory now, so that `reserved` places are left. */
    bool (*has_place)(zoff_store *store, size_t chunk, unsigned reserved);
    /* End the waiting of a chunk that has no place. `repeated`: a failed write in its way was started again before.  @return
     * PENDING: it will end; or an error that ends the demand */
    zoff_status (*clear)(zoff_store *store, size_t chunk, bool *repeated);
    /* as zoff_offload_broker_hint() */
    void (*hint)(zoff_store *store, const size_t *chunks, const unsigned *arrays, size_t count);
    /* Take the place of a chunk. fetch: with these arrays; claim: with any content.  @return PENDING: it is being read */
    zoff_status (*fetch)(zoff_store *store, size_t chunk, unsigned arrays, void **out);
    zoff_status (*claim)(zoff_store *store, size_t chunk, void **out);
    zoff_status (*check)(zoff_store *store, size_t chunk); /* compares what was read; after an error the place is given up */
    void (*settle)(zoff_store *store, size_t chunk, size_t from, size_t to);
    zoff_status (*flush)(zoff_store *store, size_t chunk);
    zoff_status (*keep)(zoff_store *store, size_t chunk, unsigned changed);
    /* gives a chunk back, also while it is being read, or after its place was given up */
    void (*release)(zoff_store *store, size_t chunk);
    zoff_status (*pump)(zoff_store *store);
    zoff_status (*wait)(zoff_store *store);
    zoff_status (*drain)(zoff_store *store);
    bool (*busy)(const zoff_store *store, bool writes_only);
    zoff_store_commits commits;
    zoff_store_seconds seconds;
    /* whether a chunk stays in memory; NULL: none does, or all without has_place */
    bool (*resident)(const zoff_store *store, size_t chunk);
    zoff_status (*source)(const zoff_store *store, size_t chunk, unsigned array, zoff_store_source *out);
} zoff_store_ops;

/* Memory for second contents of chunks in DRAM: a stack. Each has the bytes of the largest chunk. */
typedef struct zoff_spares {
    zoff_map map;
    char **free;  /* stack of free spares, with room for all */
    size_t count; /* number of free spares */
} zoff_spares;

/* A store. It is the first member of each tier's own struct. */
struct zoff_store {
    const zoff_store_ops *ops;
    zoff_store_stats stats;
    bool can_rollback, reopened, wants_settle, overlaps;
    bool is_open;     /* the content at the opening is committed, and what is recorded later is more than that */
    unsigned threads; /* threads of the team that computes checksums */
    int64_t t;        /* step of the last commit */
    size_t unproven;  /* chunks that were written before a failed flush of the drive, and not since */
    char *attached;   /* buffer of ZOFF_STORE_ATTACHED_MOST bytes, if files persist: the next commit records its first
                         attached_count; otherwise NULL */
    size_t attached_count;
    zoff_map map;             /* memory of all chunks, or of the slots and the residents */
    const zoff_demand *first; /* the fetch of weights that waits for a place, and gets the next one; NULL: none */
    bool has_seconds;
    size_t undecided; /* chunks with a second content that is neither adopted nor discarded */
    zoff_spares spares;
};

/* store.c: set the ends of the arrays of a chunk that has none: it is one array. */
void zoff_offload_store_complete_ends(zoff_store_chunk *chunk);

/* ---- spares.c ---- */

/* Map `count` memories of `bytes` each, which is a multiple of 4 KiB. Without bytes nothing is allocated. */
zoff_status zoff_offload_spares_open(zoff_spares *spares, size_t count, size_t bytes, zoff_map_nodes nodes, unsigned threads);
/* Take a spare.  @return NULL: all are in use */
char *zoff_offload_spares_take(zoff_spares *spares);
/* Give back a spare, or other memory of the same size that the caller gives in its place. */
void zoff_offload_spares_give(zoff_spares *spares, char *memory);
/* Close the spares. Accepts a zeroed struct, also after an open that has failed.  @param is_idle false: a drive may still
 * access the memory, so it stays mapped */
void zoff_offload_spares_close(zoff_spares *spares, bool is_idle);

extern const zoff_store_ops zoff_offload_host_ops;
extern const zoff_store_ops zoff_offload_swap_ops;
extern const zoff_store_ops zoff_offload_device_ops;

#endif
