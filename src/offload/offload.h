/* offload.h: the door of the room that decides where a number lives. A store keeps chunks of bytes, whatever their tier, and
 * lends them one at a time: fetch, change, flush. It knows no rank's share, no tensor, no optimizer. */
#ifndef ZOFF_OFFLOAD_H
#define ZOFF_OFFLOAD_H

#include <zoff/types.h>

typedef struct zoff_store zoff_store;

/* One chunk as the store sees it. */
typedef struct zoff_store_chunk {
    size_t bytes;       /* a multiple of 4 KiB; 0: it keeps nothing, is filled all the same and never borrowed */
    size_t first_bytes; /* what is not zero in the beginning is in front of this; a multiple of 4 KiB */
} zoff_store_chunk;

/* Write the initial content of a chunk: `base` holds zeros. Called once for each chunk while the store is opened. In DRAM
 * `base` has not been touched: which thread writes a page decides on which NUMA node it comes to lie. */
typedef void (*zoff_store_fill)(void *ctx, size_t chunk, void *base);

typedef struct zoff_store_opts {
    zoff_tier tier; /* HOST or NVME */
    const zoff_store_chunk *chunks;
    size_t chunk_count;
    zoff_store_fill fill;
    void *fill_ctx;
    /* NVME: */
    unsigned slots;           /* chunks in DRAM at a time */
    size_t residents;         /* and so many stay there, evenly spread over the list: they are in no file */
    const char *const *paths; /* folders; chunks go to them in turn */
    size_t path_count;
    unsigned rank; /* part of the file's name */
    const char *aio_backend;
    size_t aio_block_bytes;
    unsigned aio_depth;
    int direct; /* a zoff_aio_direct */
} zoff_store_opts;

typedef struct zoff_store_stats {
    uint64_t read_bytes, write_bytes; /* of files */
    double wait_seconds;              /* spent on I/O by the calling thread */
} zoff_store_stats;

/* Reserve room, write the initial content, and be ready.  @blocks yes
 * On error nothing is left behind: no file, no memory. */
zoff_status zoff_offload_store_open(const zoff_store_opts *opts, zoff_store **out);

/* Wait for writes in flight, remove the files, free. NULL is allowed. */
void zoff_offload_store_close(zoff_store *store);

/* Borrow a chunk. PENDING: a read is on its way or no slot is free; ask again after pump or wait. An error of the read leaves
 * nothing borrowed, and may be asked again.  @blocks never */
zoff_status zoff_offload_store_fetch(zoff_store *store, size_t chunk, void **out);

/* Give a borrowed chunk back changed: it is written behind the caller's back. */
zoff_status zoff_offload_store_flush(zoff_store *store, size_t chunk);

/* Give a borrowed chunk back as it was. */
void zoff_offload_store_release(zoff_store *store, size_t chunk);

/* Let I/O go on without waiting. Returns the error of a write that failed; its chunk is kept and written again by retry. */
zoff_status zoff_offload_store_pump(zoff_store *store);

/* Wait until something in flight has completed; errors as pump. */
zoff_status zoff_offload_store_wait(zoff_store *store);

/* Wait until all that was flushed is written; errors as pump. */
zoff_status zoff_offload_store_drain(zoff_store *store);

/* Write again what could not be written.  @blocks never */
zoff_status zoff_offload_store_retry(zoff_store *store);

/* Give up what was read ahead and not asked for, with the errors it may have met.  @blocks until reads in flight are done */
void zoff_offload_store_forget(zoff_store *store);

/* Whether a chunk is in DRAM all the time: borrowing it takes no slot. */
bool zoff_offload_store_resident(const zoff_store *store, size_t chunk);

void zoff_offload_store_stats(const zoff_store *store, zoff_store_stats *out);

/* How much of the store's DRAM is in huge pages; see zoff_base_map_huge_bytes(). */
uint64_t zoff_offload_store_huge_bytes(const zoff_store *store);

/* Placement: from a budget of DRAM to the size of chunks. Pure integers. */
typedef struct zoff_placement {
    unsigned slots;
    size_t chunk_bytes; /* no chunk may be larger */
} zoff_placement;

/* `budget_bytes` 0: automatic. `state_bytes`: all that is to be stored. */
void zoff_offload_placement_nvme(uint64_t budget_bytes, unsigned slots, uint64_t state_bytes, zoff_placement *out);

/* How many of `count` chunks, the largest of `chunk_bytes`, can stay in what the slots leave of the budget; 0 without one. */
size_t zoff_offload_placement_residents(uint64_t budget_bytes, unsigned slots, size_t chunk_bytes, size_t count);

/* Whether `chunk` is one of them: they are spread evenly, so that the disk has as much to do in each part of a step. */
bool zoff_offload_placement_resident(size_t chunk, size_t residents, size_t count);

#endif
