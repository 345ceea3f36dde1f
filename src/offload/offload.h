/* offload.h: the door of the room that decides where a number lives. A store keeps chunks of bytes, whatever their tier, and
 * lends them one at a time: fetch, change, flush. It knows no rank's share, no tensor, no optimizer.
 *
 * A chunk consists of up to three arrays, one behind the other. Each array is read, written and verified for itself. Fetch and
 * flush are about all of them; fetch_arrays and keep are about some. A set of arrays is an unsigned: bit k is array k. */
#ifndef ZOFF_OFFLOAD_H
#define ZOFF_OFFLOAD_H

#include <zoff/types.h>

typedef struct zoff_store zoff_store;

enum { ZOFF_STORE_ARRAYS = 3, ZOFF_STORE_ALL = (1 << ZOFF_STORE_ARRAYS) - 1 };

/* One chunk as the store sees it. */
typedef struct zoff_store_chunk {
    size_t bytes;                   /* a multiple of 4 KiB; 0: it keeps nothing, is filled all the same and never borrowed */
    size_t first_bytes;             /* what is not zero in the beginning is in front of this; a multiple of 4 KiB */
    size_t ends[ZOFF_STORE_ARRAYS]; /* where its arrays end, multiples of 4 KiB, the last one `bytes`. Each array begins where
                                       the one before it ends, and may be empty. All 0: the chunk is one array */
} zoff_store_chunk;

/* Write the initial content of a chunk: `base` holds zeros. Called once for each chunk while the store is opened. In DRAM
 * `base` has not been touched: which thread writes a page decides on which NUMA node it comes to lie. */
typedef void (*zoff_store_fill)(void *ctx, size_t chunk, void *base);

/* How chunks that come back from a file are checked against what was written. The values are those of zoff.verify. */
typedef enum zoff_store_verify {
    ZOFF_VERIFY_FULL,   /* each time */
    ZOFF_VERIFY_SAMPLE, /* each chunk in one of ZOFF_VERIFY_SAMPLES commits */
    ZOFF_VERIFY_OFF
} zoff_store_verify;

enum { ZOFF_VERIFY_SAMPLES = 16 };

/* Persist: what files hold that were there already. */
typedef struct zoff_store_found {
    uint64_t generation; /* the last commit, counted from 1; 0: none */
    int64_t t;           /* and after which step it was */
    bool reopened;       /* it is more than the content of the beginning */
} zoff_store_found;

typedef struct zoff_store_opts {
    zoff_tier tier;   /* HOST or NVME */
    const char *what; /* is stored, for messages */
    const zoff_store_chunk *chunks;
    size_t chunk_count;
    zoff_store_fill fill;
    void *fill_ctx;
    unsigned threads; /* of the team that computes checksums */
    /* NVME: */
    unsigned slots;   /* chunks in DRAM at a time */
    size_t residents; /* and so many stay there, spread evenly over those that are not empty, of which there are as many at
                         least: they are not read again */
    const char *const *paths; /* folders; chunks go to them by their measured rates */
    size_t path_count;
    unsigned rank, ranks; /* part of the files' names */
    const char *aio_backend;
    bool aio_tune;          /* measure what is 0 of these two */
    size_t aio_block_bytes; /* 0: 2 MiB, or measured */
    unsigned aio_depth;     /* 0: this rank's part of 32, or of what was measured */
    int direct;             /* a zoff_aio_direct */
    double timeout_seconds; /* how long a read or write may be in flight while nothing completes; 0 or less: for ever */
    zoff_store_verify verify;
    bool persist;                       /* the files survive, and are opened again: see swap_keep.c */
    bool power_safe;                    /* persist: also over a power cut */
    uint64_t layout;                    /* persist: of whose states they are; another layout is refused */
    size_t limit_bytes, limit_elements; /* persist: how the states were cut, for zoff_offload_persisted_limits() */
    /* With several ranks, called with fill_ctx; each may be NULL. An error ends the opening, and nothing is left behind.
     * decide: with persist, called when files are open and their records read, but before anything is changed. It returns the
     *         generation to continue with, that one or the one before; 0: none, write everything anew.
     * between: called now and then while files are written.
     * written: called when everything is written, before it is committed. */
    zoff_status (*decide)(void *ctx, const zoff_store_found *found, uint64_t *out_generation);
    void (*between)(void *ctx);
    zoff_status (*written)(void *ctx);
} zoff_store_opts;

typedef struct zoff_store_stats {
    uint64_t read_bytes, write_bytes; /* of files */
    uint64_t ahead_bytes;             /* of these, read ahead of the step: zoff_offload_store_ahead() */
    uint64_t lifetime_write_bytes;    /* persist: into these files, by all runs */
    double wait_seconds;              /* spent on I/O by the calling thread */
    double check_seconds;             /* spent on checksums by the team */
} zoff_store_stats;

/* Reserve room, write the initial content, and be ready; or, with persist, find all of it there.  @blocks yes
 * On error nothing is left behind: no memory, and no file that was not there. */
zoff_status zoff_offload_store_open(const zoff_store_opts *opts, zoff_store **out);

/* Wait for writes in flight, at most 10 s without one that ends: what a drive may still touch then stays allocated. Remove the
 * files unless they are to persist, free. NULL is allowed. */
void zoff_offload_store_close(zoff_store *store);

/* Whether the store was opened again, and as it was after which step. */
bool zoff_offload_store_reopened(const zoff_store *store, int64_t *out_t);

/* How the states of persistent files in `folder` were cut; false where there are none that would be opened again. */
bool zoff_offload_persisted_limits(const char *folder, unsigned rank, size_t *out_limit_bytes, size_t *out_limit_elements);

/* Borrow a chunk. PENDING: a read is on its way or no slot is free; ask again after pump or wait. An error of the read leaves
 * nothing borrowed, and may be asked again.  @blocks never */
zoff_status zoff_offload_store_fetch(zoff_store *store, size_t chunk, void **out);

/* The same, but only these arrays are read: the borrower neither reads nor changes the others. */
zoff_status zoff_offload_store_fetch_arrays(zoff_store *store, size_t chunk, unsigned arrays, void **out);

/* Borrow a chunk that will be written anew as a whole: otherwise like fetch, but nothing is read, and what it holds is
 * anything. Given back by release it is in its file as it was. */
zoff_status zoff_offload_store_claim(zoff_store *store, size_t chunk, void **out);

/* Compare what was read of a borrowed chunk with the checksums of what was written; nothing to do the second time. Outside of
 * parallel regions.
 * @return ERR_CORRUPT with file and offset: the chunk is not borrowed any more, and may be fetched again */
zoff_status zoff_offload_store_check(zoff_store *store, size_t chunk);

/* Start to read a chunk that will be wanted later, if a slot is free. */
zoff_status zoff_offload_store_ahead(zoff_store *store, size_t chunk);

/* Give up what was read ahead of one chunk.  @blocks until its read is done */
void zoff_offload_store_drop(zoff_store *store, size_t chunk);

/* Bytes [from, to) of a borrowed chunk have their final value: compute their checksum now, while they are in a cache. Call it
 * only if wants_settle says so; ranges may overlap. flush computes the rest. Until then nothing may change these bytes, and no
 * other chunk may be checked or flushed. Call it outside of parallel regions. */
bool zoff_offload_store_wants_settle(const zoff_store *store);
void zoff_offload_store_settle(zoff_store *store, size_t chunk, size_t from, size_t to);

/* Give a borrowed chunk back changed: all that was borrowed is written behind the caller's back. Outside of parallel regions.
 */
zoff_status zoff_offload_store_flush(zoff_store *store, size_t chunk);

/* Give a borrowed chunk back and keep its slot. Borrowing it again reads no array while no other chunk needs the slot.
 * `changed`: these arrays, and no others, are written later, once, however often they change. They are written when their slot
 * is needed, when others are put off after it, or by drain. Call it outside of parallel regions. @return the error of a write
 * that could not be started; retry tries again */
zoff_status zoff_offload_store_keep(zoff_store *store, size_t chunk, unsigned changed);

/* Give a borrowed chunk back as it was. */
void zoff_offload_store_release(zoff_store *store, size_t chunk);

/* Let I/O go on without waiting. Returns the error of a write that failed. The store keeps the chunk and the error until retry
 * writes the chunk again: a caller may drop the error here, since drain and commit return it again. */
zoff_status zoff_offload_store_pump(zoff_store *store);

/* Wait until something in flight has completed; errors as pump, and ERR_IO when nothing has for timeout_seconds: then it stays
 * in flight, and may be waited for again. */
zoff_status zoff_offload_store_wait(zoff_store *store);

/* Write what was put off, and wait until all that was flushed is written. Returns the first error of a write that failed, now
 * or earlier, and was not written again. */
zoff_status zoff_offload_store_drain(zoff_store *store);

/* Write again what could not be written, and what was written before a flush that failed.  @blocks only for the latter
 * @return an error when the latter is not there any more: only rollback is left */
zoff_status zoff_offload_store_retry(zoff_store *store);

/* Whether reads or writes, or only writes, are in flight, as far as pump has seen. */
bool zoff_offload_store_busy(const zoff_store *store, bool writes_only);

/* All that was flushed is written and belongs together: it is what the files hold from now on, after step `t`. Drain before:
 * commit records nothing while a write is in flight or has failed.
 * @blocks with persist, for the commit record  @return an error: the files hold what they held before; may be called again */
zoff_status zoff_offload_store_commit(zoff_store *store, int64_t t);

/* Whether chunks were written before a flush that failed, and not again since: retry, or rollback. */
bool zoff_offload_store_is_in_doubt(const zoff_store *store);

/* Whether rollback can be had. */
bool zoff_offload_store_can_rollback(const zoff_store *store);

/* Forget what was flushed since the last commit. Nothing may be borrowed.  @blocks yes  @return an error: call it again */
zoff_status zoff_offload_store_rollback(zoff_store *store);

/* Give up what was read ahead and not asked for, with the errors it may have met.  @blocks until reads in flight are done */
void zoff_offload_store_forget(zoff_store *store);

/* Whether a chunk is in DRAM all the time: borrowing it takes no slot. */
bool zoff_offload_store_resident(const zoff_store *store, size_t chunk);

/* Whether chunks are read and written while the caller does other things. */
bool zoff_offload_store_overlaps(const zoff_store *store);

/* From now on checksums are computed by so many threads. No checksum depends on it. */
void zoff_offload_store_set_threads(zoff_store *store, unsigned threads);

void zoff_offload_store_stats(const zoff_store *store, zoff_store_stats *out);

/* How much of the store's DRAM is in huge pages; see zoff_base_map_huge_bytes(). */
uint64_t zoff_offload_store_huge_bytes(const zoff_store *store);

/* A number for whose states these are, made of whatever describes that. */
uint64_t zoff_offload_layout(const void *words, size_t bytes);

/* Placement: from a budget of DRAM to the size of chunks. Pure integers. */
typedef struct zoff_placement {
    unsigned slots;
    size_t chunk_bytes; /* no chunk may be larger */
} zoff_placement;

/* `budget_bytes` 0: automatic. `state_bytes`: all that is to be stored. */
void zoff_offload_placement_nvme(uint64_t budget_bytes, unsigned slots, uint64_t state_bytes, zoff_placement *out);

/* How many of `count` chunks, the largest of `chunk_bytes`, can stay in what the slots leave of the budget; 0 without one. */
size_t zoff_offload_placement_residents(uint64_t budget_bytes, unsigned slots, size_t chunk_bytes, size_t count);

/* Whether chunk number `chunk`, of `count` that are not empty, is one of them: they are spread evenly, so that the disk has as
 * much to do in each part of a step. */
bool zoff_offload_placement_resident(size_t chunk, size_t residents, size_t count);

/* From rates of several devices to their shares of the states, which add up to 1. Rates that are about the same are the same:
 * what is measured differs by a little each time. A device of which nothing is known makes all shares equal. */
void zoff_offload_placement_shares(double *rates, size_t count);

#endif
