/* SPDX-License-Identifier: Apache-2.0 */
/* swap_priv.h: the table that the files of the NVMe tier share. Each calls those before it in this list:
 *
 *     swap_place.c    where arrays are                        swap_wait.c     transfers in flight: pump, wait, drain
 *     swap_slot.c     who has a slot, and in which state      swap_second.c   two contents of a chunk, and the choice
 *     swap_file.c     names and locks of files                swap_lend.c     fetch, check, flush; reading ahead
 *     swap_record.c   what a persistent file says of itself   swap_keep.c     generations: commit, roll back
 *     swap_sum.c      checksums                               swap_reopen.c   files of an earlier process
 *     swap_move.c     reads and writes; flushes of the drive  swap_stripe.c   what folders are measured to give
 *     swap_put_off.c  chunks kept at hand, written later      swap_life.c     places, files and memory; the first content
 *                                                             swap.c          the table of the store
 *     swap_scrub.c    compares files without a store; calls swap_record.c */
#ifndef ZOFF_OFFLOAD_SWAP_PRIV_H
#define ZOFF_OFFLOAD_SWAP_PRIV_H

#include "digest.h"
#include "swap_file_priv.h"
#include "swap_record_priv.h"
#include "tier.h"
#include "try.h"

typedef enum zoff_slot_state {
    ZOFF_SLOT_FREE,
    ZOFF_SLOT_READING,
    ZOFF_SLOT_LENT,
    ZOFF_SLOT_WRITING,
    ZOFF_SLOT_DIRTY, /* to be written: its write has failed or, `changed`, was put off */
    ZOFF_SLOT_KEPT   /* unchanged since it was in the file, until another chunk needs the slot */
} zoff_slot_state;

/* Bytes of one request: one array, or several that are adjacent in the file, too. */
typedef struct zoff_swap_request {
    uint64_t offset, ticket;
    size_t begin, bytes; /* bytes in the slot */
} zoff_swap_request;

/* Memory for a chunk: a slot of the ring, for any chunk, or the home of a resident, whose chunk never changes. Sets of arrays
 * are as in offload.h. */
typedef struct zoff_swap_slot {
    zoff_slot_state state;
    bool is_home;
    bool ahead;         /* the content was read before it was requested */
    bool is_granted;    /* READING: a demand waits for it; otherwise the slot is taken back once the read is done */
    bool stays;         /* the chunk stays in its slot when its write is done */
    unsigned holds;     /* arrays whose content is here; the memory of others is undefined */
    unsigned unchecked; /* arrays here that were read, and not compared with their checksums yet */
    unsigned changed;   /* arrays here that keep has given back, newer than the file, and not being written */
    unsigned moving;    /* arrays of the read or write in flight, or of the write that has failed */
    uint64_t used;      /* number of the last call that gave the chunk back, or hinted at it */
    size_t chunk;
    zoff_swap_request requests[ZOFF_STORE_ARRAYS]; /* requests in flight */
    unsigned request_count;
    size_t moved_bytes; /* bytes moved by all requests of this read or write */
    zoff_status failed; /* the first error of its requests so far */
    zoff_status result; /* READING: PENDING, or the result, until the chunk is requested. DIRTY: that of the write */
    zoff_saved_error words;
    char *base;
    struct zoff_swap_slot *older, *newer; /* neighbours in the list of slots in flight, or of those put off */
} zoff_swap_slot;

/* Slots, oldest first. */
typedef struct zoff_swap_list {
    zoff_swap_slot *oldest, *newest;
    size_t count;
} zoff_swap_list;

/* One content of an array in its file. */
typedef struct zoff_swap_array {
    uint64_t checksum;
    unsigned slot; /* one of its two places in the file; without persist and second contents it has only place 0 */
    bool fresh;    /* initial content: only the bytes before first_bytes were written, or count */
    bool has_checksum;
} zoff_swap_array;

/* One content of a chunk. */
typedef struct zoff_swap_version {
    zoff_swap_array arrays[ZOFF_STORE_ARRAYS];
} zoff_swap_version;

typedef struct zoff_swap_place {
    zoff_swap_slot *home; /* home of a resident; NULL: the chunk uses the ring */
    zoff_swap_slot *ring; /* slot that the chunk had last, which may have another chunk by now; NULL: none yet */
    uint64_t offset;      /* offset of place 0 in the file; place 1 lies behind it */
    uint32_t file;
    /* current and committed content; undecided chunk: the second one (the first until put), and the first */
    zoff_swap_version now, committed;
    char *first;               /* memory of the first content of an undecided resident */
    bool is_undecided, is_put; /* the chunk has a second content; it is complete */
    size_t first_bytes;        /* bytes of the chunk that were filled, by this run or by the one that made the file */
    bool stale;                /* a resident whose memory differs from `now`: it must be read */
    unsigned unproven;         /* persist: arrays whose `now` was written before a failed flush of the drive, and not since */
} zoff_swap_place;

/* One folder: its settings, and its share of the states. */
typedef struct zoff_swap_stripe {
    size_t block_bytes;
    unsigned depth;
    double share, credit; /* credit in bytes: its share so far, minus what it has */
} zoff_swap_stripe;

/* Checksums of chunks. */
typedef struct zoff_swap_sums {
    zoff_store_verify verify;
    zoff_digest digest; /* digest of one chunk at a time */
    size_t digested;    /* the chunk whose digest settle() has begun; SIZE_MAX: none */
} zoff_swap_sums;

/* The content of the files' records. */
typedef struct zoff_swap_record {
    uint64_t generation; /* commits so far; persist: of the files */
    bool in_doubt;       /* the record of a commit that is not confirmed may be on the drive */
    bool stepped;        /* persist: more than the first content was recorded in these files, also before the first step */
    bool power_safe;     /* the drive is flushed before and after a record */
    uint32_t version;
    zoff_swap_identity identity;
} zoff_swap_record;

/* Progress of the opening. */
typedef struct zoff_swap_report {
    const char *what; /* static text; NULL: nothing is reported */
    zoff_store_progress to;
    uint64_t before, total;  /* bytes that the files had moved before, and bytes to move */
    double began, next_line; /* seconds */
} zoff_swap_report;

/* The work of the opening, of which each call of verify and fill does a part. */
typedef struct zoff_swap_opening {
    zoff_swap_found *found; /* records of the files; NULL without persist, and when fill has begun */
    uint64_t generation;    /* the last commit that all files have */
    size_t next;            /* chunk that the present part verifies or writes next, or home that it reads */
    bool is_filling;        /* fill was called */
    bool writes_seconds;    /* fill writes second places; the first contents follow */
    zoff_swap_report report;
} zoff_swap_opening;

typedef struct zoff_swap_store {
    zoff_store store;
    zoff_swap_slot *slots; /* slots of the ring, and behind them the homes */
    unsigned ring_count;
    size_t home_count;
    zoff_store_chunk *chunks; /* chunks, with all ends set */
    zoff_swap_place *places;
    size_t chunk_count, largest; /* `largest` is the bytes of a slot */
    zoff_swap_file *files;
    zoff_swap_stripe *stripes; /* stripes, one for each path */
    size_t file_count;
    zoff_swap_list flight, put_off;
    uint64_t uses;   /* number of calls that gave chunks back, and of hints */
    bool has_failed; /* a write has failed since the last retry */
    bool persist;
    double timeout_seconds; /* negative: none */
    zoff_swap_sums sums;
    zoff_swap_record record;
    zoff_swap_opening opening;
} zoff_swap_store;

/* The sections below are layers: each file calls only files of the sections above its own. */

/* ---- swap_place.c ---- */

/* The arrays of a chunk that are not empty. */
unsigned zoff_offload_swap_place_arrays(const zoff_swap_store *s, size_t chunk);
/* The offset of an array in its chunk. */
size_t zoff_offload_swap_place_begin(const zoff_store_chunk *chunk, unsigned array);
/* The offset of an array's current content in its file. */
uint64_t zoff_offload_swap_place_offset(const zoff_swap_store *s, size_t chunk, unsigned array);
/* Bytes of an array's current content that were ever written. */
size_t zoff_offload_swap_place_written(const zoff_swap_store *s, size_t chunk, unsigned array);
/* The offset of any content of the array, and its bytes that were ever written. */
uint64_t zoff_offload_swap_place_offset_of(const zoff_swap_store *s, size_t chunk, unsigned array,
                                           const zoff_swap_array *content);
size_t zoff_offload_swap_place_written_of(const zoff_swap_store *s, size_t chunk, unsigned array,
                                          const zoff_swap_array *content);
/* The places of each chunk in its file. */
unsigned zoff_offload_swap_place_copies(const zoff_swap_store *s);

/* ---- swap_slot.c ---- */

void zoff_offload_swap_slot_append(zoff_swap_list *list, zoff_swap_slot *slot);
void zoff_offload_swap_slot_take_out(zoff_swap_list *list, zoff_swap_slot *slot);
/* The slot that holds a chunk, reads it, or still has it after a release.  @return NULL: it is only in its file */
zoff_swap_slot *zoff_offload_swap_slot_find(const zoff_swap_store *s, size_t chunk);
/* Whether the content of a slot is in its file, and nobody has asked for it. */
bool zoff_offload_swap_slot_is_clean(const zoff_swap_slot *slot);
/* A slot for another chunk. If none is free, it takes the clean one that was used least recently, before number `before`.
 * @return NULL: there is none */
zoff_swap_slot *zoff_offload_swap_slot_take(zoff_swap_store *s, uint64_t before);
/* Assign a free slot to a chunk; it holds nothing of it yet. */
void zoff_offload_swap_slot_assign(zoff_swap_store *s, zoff_swap_slot *slot, size_t chunk);
/* Whether a slot is newer than its file and is not being written. */
bool zoff_offload_swap_slot_is_put_off(const zoff_swap_slot *slot);
/* Put off the write of these arrays of a slot. */
void zoff_offload_swap_slot_put_off(zoff_swap_store *s, zoff_swap_slot *slot, unsigned changed);
/* Drop the write that was put off. */
void zoff_offload_swap_slot_discard(zoff_swap_store *s, zoff_swap_slot *slot);
/* Give a slot up: it becomes free, unless it is newer than the file. */
void zoff_offload_swap_slot_leave(zoff_swap_store *s, zoff_swap_slot *slot);

/* ---- swap_sum.c ---- */

/* Compute the checksums of some arrays and store them in `out`, if this chunk is verified. */
void zoff_offload_swap_sum_stamp(zoff_swap_store *s, size_t chunk, const char *base, unsigned arrays, zoff_swap_version *out);
/* Renew the content of arrays: choose its place and compute its checksums. The committed content stays where it is, and the
 * first content of an undecided chunk. */
void zoff_offload_swap_sum_renew(zoff_swap_store *s, size_t chunk, const char *base, unsigned arrays);
/* Compute the checksums of elements that do not change any more before the flush of their chunk. */
void zoff_offload_swap_sum_settle(zoff_store *store, size_t chunk, size_t from, size_t to);
/* The arrays of a slot whose bytes differ from the checksum of their last flush. */
unsigned zoff_offload_swap_sum_find_corrupt(zoff_swap_store *s, const zoff_swap_slot *slot);

/* ---- swap_move.c ---- */

/* If configured, have the drive make durable what it has received.  @blocks yes */
zoff_status zoff_offload_swap_move_flush_drive(const zoff_swap_store *s, const zoff_swap_file *file);
/* Erase the record of a failed commit, before anything that it names is overwritten.  @blocks yes */
zoff_status zoff_offload_swap_move_take_back(zoff_swap_store *s);
/* Bytes that all processes have written to all files. */
uint64_t zoff_offload_swap_move_lifetime(const zoff_swap_store *s);
/* Read arrays that the slot of a chunk does not hold. After an error the slot is unchanged. */
zoff_status zoff_offload_swap_move_start_read(zoff_swap_store *s, zoff_swap_slot *slot, unsigned arrays);
/* Write arrays to their current places. After an error, also a later one, the slot is DIRTY. */
zoff_status zoff_offload_swap_move_start_write(zoff_swap_store *s, zoff_swap_slot *slot, unsigned arrays);
/* Process the completed requests of a slot.  @return PENDING: some are in flight; or the error of a write */
zoff_status zoff_offload_swap_move_finish(zoff_swap_store *s, zoff_swap_slot *slot);
/* Finish a read: the slot becomes LENT, or FREE or DIRTY after an error.  @return PENDING: the read is in flight */
zoff_status zoff_offload_swap_move_take_read(zoff_swap_store *s, zoff_swap_slot *slot);
/* Abandon a read, with any result.  @blocks until it is done
 * @return false: it does not end, so the slot stays READING, and the drive may still access its memory */
bool zoff_offload_swap_move_abandon(zoff_swap_store *s, zoff_swap_slot *slot);

/* ---- swap_put_off.c ---- */

/* Write a slot that was put off, as flush would have written it. */
zoff_status zoff_offload_swap_put_off_write(zoff_swap_store *s, zoff_swap_slot *slot);
/* Find a slot for another chunk. NULL: a write that was put off is in flight now, if there was one. */
zoff_status zoff_offload_swap_put_off_find_room(zoff_swap_store *s, zoff_swap_slot **out);
zoff_status zoff_offload_swap_put_off_keep(zoff_store *store, size_t chunk, unsigned changed);

/* ---- swap_wait.c ---- */

zoff_status zoff_offload_swap_wait_pump(zoff_store *store);
/* Wait until a transfer on the drive of a slot completes. */
zoff_status zoff_offload_swap_wait_for(zoff_swap_store *s, const zoff_swap_slot *slot);
zoff_status zoff_offload_swap_wait_any(zoff_store *store);
bool zoff_offload_swap_wait_busy(const zoff_store *store, bool writes_only);
zoff_status zoff_offload_swap_wait_drain(zoff_store *store);
zoff_status zoff_offload_swap_wait_settled(const zoff_store *store);
/* Begin to report `total` bytes, which the files move from now on. */
void zoff_offload_swap_wait_begin_report(zoff_swap_store *s, const char *what, uint64_t total);
/* Report how many have moved. Call it at least after each wait. Does nothing outside of a report.
 * @return ERR_CANCELED: the program ends the opening */
zoff_status zoff_offload_swap_wait_report(zoff_swap_store *s);
/* Report that all have moved, and end. */
zoff_status zoff_offload_swap_wait_end_report(zoff_swap_store *s);

/* ---- swap_second.c ---- */

zoff_status zoff_offload_swap_second_begin(zoff_store *store, size_t chunk, void **out);
zoff_status zoff_offload_swap_second_put(zoff_store *store, size_t chunk);
void zoff_offload_swap_second_adopt(zoff_store *store, size_t chunk);
zoff_status zoff_offload_swap_second_discard(zoff_store *store, size_t chunk);
/* Discard the second content of an undecided chunk, whose write is not in flight. */
void zoff_offload_swap_second_drop(zoff_swap_store *s, size_t chunk);
/* Discard all second contents.  @return ERR_IO: a write does not end; repeat the call */
zoff_status zoff_offload_swap_second_discard_all(zoff_swap_store *s);

/* ---- swap_lend.c ---- */

zoff_status zoff_offload_swap_lend_fetch(zoff_store *store, size_t chunk, unsigned arrays, void **out);
zoff_status zoff_offload_swap_lend_claim(zoff_store *store, size_t chunk, void **out);
zoff_status zoff_offload_swap_lend_check(zoff_store *store, size_t chunk);
zoff_status zoff_offload_swap_lend_flush(zoff_store *store, size_t chunk);
void zoff_offload_swap_lend_release(zoff_store *store, size_t chunk);
bool zoff_offload_swap_lend_resident(const zoff_store *store, size_t chunk);
bool zoff_offload_swap_lend_has_place(zoff_store *store, size_t chunk, unsigned reserved);
zoff_status zoff_offload_swap_lend_clear(zoff_store *store, size_t chunk, bool *repeated);
void zoff_offload_swap_lend_hint(zoff_store *store, const size_t *chunks, const unsigned *arrays, size_t count);
/* Drop all reads that nobody has asked for, with their errors.  @blocks until reads in flight are done */
void zoff_offload_swap_lend_forget(zoff_swap_store *s);
/* Read the memory of a resident again and verify it.  @blocks for one transfer  @return PENDING: call it again */
zoff_status zoff_offload_swap_lend_reload(zoff_swap_store *s, zoff_swap_slot *home);
zoff_status zoff_offload_swap_lend_source(const zoff_store *store, size_t chunk, unsigned array, zoff_store_source *out);

/* ---- swap_keep.c ---- */

zoff_status zoff_offload_swap_keep_record(zoff_store *store, int64_t t);
void zoff_offload_swap_keep_confirm(zoff_store *store);
zoff_status zoff_offload_swap_keep_rollback(zoff_store *store);
/* Write again what was written before a failed flush of the drive. A chunk that used the ring is first read back and compared
 * with its checksum.  @blocks yes  @return ERR_IO if it differs or cannot be compared */
zoff_status zoff_offload_swap_keep_rewrite(zoff_swap_store *s);

/* ---- swap_reopen.c ---- */

/* Read the records of the open files. */
zoff_status zoff_offload_swap_reopen_find(zoff_swap_store *s, zoff_store_found *out);
/* Set places and generation to a commit, and verify it if it is an older one that the program wants. */
zoff_status zoff_offload_swap_reopen_verify(zoff_store *store, const zoff_store_opts *opts, uint64_t generation);
/* Erase later generations, in the files too, and the records in memory. */
zoff_status zoff_offload_swap_reopen_go_on(zoff_swap_store *s);
void zoff_offload_swap_reopen_forget(zoff_swap_store *s);

/* ---- swap_stripe.c ---- */

zoff_status zoff_offload_swap_stripe_measure(zoff_swap_store *s, const zoff_store_opts *opts);
/* The file for the next chunk. */
uint32_t zoff_offload_swap_stripe_next(zoff_swap_store *s, size_t bytes);

/* ---- swap_life.c ---- */

zoff_status zoff_offload_swap_life_find(const zoff_store_opts *opts, zoff_store **out, zoff_store_found *out_found);
zoff_status zoff_offload_swap_life_fill(zoff_store *store, const zoff_store_opts *opts);
void zoff_offload_swap_life_close(zoff_store *store);

#endif
