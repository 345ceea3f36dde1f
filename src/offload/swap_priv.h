/* swap_priv.h: the table that the files of the NVMe tier share. Each calls those before it in this list:
 *
 *     swap_place.c    where arrays are                        swap_put_off.c  chunks that are kept at hand, written later
 *     swap_slot.c     who has a slot, and in which state      swap_wait.c     transfers in flight: pump, wait, drain
 *     swap_file.c     names and locks of files                swap_lend.c     fetch, check, flush; reading ahead
 *     swap_record.c   what a persistent file says of itself   swap_keep.c     generations: commit, roll back
 *     swap_sum.c      checksums                               swap_reopen.c   files of an earlier process
 *     swap_drive.c    flushes; a record in doubt              swap_stripe.c   what folders are measured to give
 *     swap_move.c     reads and writes of a slot's arrays     swap_life.c     places, files and memory; the first content
 *                                                             swap.c          the table of the store */
#ifndef ZOFF_OFFLOAD_SWAP_PRIV_H
#define ZOFF_OFFLOAD_SWAP_PRIV_H

#include "digest_priv.h"
#include "store_priv.h"
#include "swap_file_priv.h"
#include "swap_record_priv.h"
#include "try.h"

typedef enum zoff_slot_state {
    ZOFF_SLOT_FREE,
    ZOFF_SLOT_READING,
    ZOFF_SLOT_LENT,
    ZOFF_SLOT_WRITING,
    ZOFF_SLOT_DIRTY, /* to be written: its write has failed, or, `changed`, was put off */
    ZOFF_SLOT_KEPT   /* as its chunk is in the file, until another chunk needs the slot */
} zoff_slot_state;

/* Bytes that one read or write moves: one array, or several that lie one behind the other in the file, too. */
typedef struct zoff_swap_request {
    uint64_t offset, ticket;
    size_t begin, bytes; /* in the slot */
} zoff_swap_request;

/* Memory for a chunk: one of the ring, which any chunk may take, or the home of a resident, whose chunk never changes. Sets of
 * arrays are those of offload.h. */
typedef struct zoff_swap_slot {
    zoff_slot_state state;
    bool is_home;
    bool ahead;         /* read before it was asked for */
    bool stays;         /* kept when its write is done */
    unsigned holds;     /* arrays whose content is in here; the memory of others is anything */
    unsigned unchecked; /* of these: read, and not compared with their checksums yet */
    unsigned changed;   /* of these: given back by keep, newer than the file, with no write begun */
    unsigned moving;    /* arrays of the read or write in flight, or of the write that has failed */
    uint64_t used;      /* when it was given back by keep, counted in such calls */
    size_t chunk;
    zoff_swap_request requests[ZOFF_STORE_ARRAYS]; /* in flight */
    unsigned request_count;
    size_t moved_bytes; /* of all requests of this read or write */
    zoff_status failed; /* the first error of its requests, so far */
    zoff_status result; /* READING: PENDING, or what came of it, kept until the chunk is asked for. DIRTY: of the write */
    zoff_saved_error words;
    char *base;
    struct zoff_swap_slot *older, *newer; /* in the list of those in flight, or of those put off */
} zoff_swap_slot;

/* Slots, oldest first. */
typedef struct zoff_swap_list {
    zoff_swap_slot *oldest, *newest;
    size_t count;
} zoff_swap_list;

/* One content of an array in its file. */
typedef struct zoff_swap_array {
    uint64_t checksum;
    unsigned slot; /* persist: which of its two places in the file */
    bool fresh;    /* as it was filled: only what is in front of first_bytes was written, or counts */
    bool has_checksum;
} zoff_swap_array;

/* One content of a chunk. */
typedef struct zoff_swap_version {
    zoff_swap_array arrays[ZOFF_STORE_ARRAYS];
} zoff_swap_version;

typedef struct zoff_swap_place {
    zoff_swap_slot *home; /* of a resident; NULL: it goes through the ring */
    uint64_t offset;      /* in the file, of slot 0; slot 1 lies behind it */
    uint32_t file;
    zoff_swap_version now, committed;
    size_t first_bytes; /* of the chunk: only so much of it was filled, today or by the run that made the file */
    bool stale;         /* a resident whose memory is not what `now` says: to be read */
    unsigned unproven;  /* persist: arrays whose `now` was written before a flush that failed, and not again since */
} zoff_swap_place;

/* One folder: how it is used, and its part of the states. */
typedef struct zoff_swap_stripe {
    size_t block_bytes;
    unsigned depth;
    double share, credit; /* credit in bytes: what it should have had by now, less what it has */
} zoff_swap_stripe;

/* Checksums of chunks. */
typedef struct zoff_swap_sums {
    zoff_store_verify verify;
    zoff_digest digest; /* of one chunk at a time */
    size_t digested;    /* the chunk that settle() has begun it for; SIZE_MAX: none */
} zoff_swap_sums;

/* The content of the files' records. */
typedef struct zoff_swap_record {
    uint64_t generation; /* commits so far; persist: of the files */
    bool in_doubt;       /* a commit has failed, and its record may have come to the drive all the same */
    bool stepped;        /* persist: a step, or a count of steps, was recorded in these files */
    zoff_swap_identity identity;
} zoff_swap_record;

typedef struct zoff_swap_store {
    zoff_store store;
    zoff_swap_slot *slots; /* the ring, and behind it the homes */
    unsigned ring_count;
    size_t home_count;
    zoff_store_chunk *chunks; /* with all ends */
    zoff_swap_place *places;
    size_t chunk_count, largest; /* bytes of a slot */
    zoff_swap_file *files;
    zoff_swap_stripe *stripes; /* one for each path */
    size_t file_count;
    zoff_swap_list flight, put_off;
    uint64_t kept;   /* calls of keep */
    bool has_failed; /* a write, since the last retry */
    bool persist, power_safe;
    double timeout_seconds; /* negative: none */
    zoff_swap_sums sums;
    zoff_swap_record record;
} zoff_swap_store;

/* The sections below are in layers: each file calls only files of the sections above its own. */

/* ---- swap_place.c ---- */

/* The arrays of a chunk that are not empty. */
unsigned zoff_offload_swap_place_arrays(const zoff_swap_store *s, size_t chunk);
/* Where an array begins in its chunk. */
size_t zoff_offload_swap_place_begin(const zoff_store_chunk *chunk, unsigned array);
/* Where in its file the content lies that an array has now. */
uint64_t zoff_offload_swap_place_offset(const zoff_swap_store *s, size_t chunk, unsigned array);
/* Bytes of an array that were ever written. */
size_t zoff_offload_swap_place_written(const zoff_swap_store *s, size_t chunk, unsigned array);

/* ---- swap_slot.c ---- */

void zoff_offload_swap_slot_append(zoff_swap_list *list, zoff_swap_slot *slot);
void zoff_offload_swap_slot_take_out(zoff_swap_list *list, zoff_swap_slot *slot);
/* The slot that holds a chunk, reads it or still has it after a release; NULL: it is only in its file. */
zoff_swap_slot *zoff_offload_swap_slot_find(zoff_swap_store *s, size_t chunk);
/* A slot for another chunk, or NULL. Takes the one of a chunk that was kept, if none is free. */
zoff_swap_slot *zoff_offload_swap_slot_take(zoff_swap_store *s);
/* A slot that is free becomes that of a chunk, and holds nothing of it. */
void zoff_offload_swap_slot_assign(zoff_swap_slot *slot, size_t chunk);
/* Whether the content of a slot is newer than its file, and no write of it has begun. */
bool zoff_offload_swap_slot_is_put_off(const zoff_swap_slot *slot);
/* Put off the write of these arrays of a slot. */
void zoff_offload_swap_slot_put_off(zoff_swap_store *s, zoff_swap_slot *slot, unsigned changed);
/* Forget that a slot was put off. */
void zoff_offload_swap_slot_discard(zoff_swap_store *s, zoff_swap_slot *slot);
/* Nobody has the slot any more: it is free, unless it holds what is newer than the file. */
void zoff_offload_swap_slot_leave(zoff_swap_store *s, zoff_swap_slot *slot);

/* ---- swap_sum.c ---- */

/* Compute the checksums of some arrays and put them into `out`, if this chunk is one of those that are checked. */
void zoff_offload_swap_sum_stamp(zoff_swap_store *s, size_t chunk, const char *base, unsigned arrays, zoff_swap_version *out);
/* New content of arrays: choose their place and compute its checksums. The committed content stays where it is. */
void zoff_offload_swap_sum_renew(zoff_swap_store *s, size_t chunk, const char *base, unsigned arrays);
/* Elements of a chunk that do not change any more before its flush: their part of the checksums. */
void zoff_offload_swap_sum_settle(zoff_store *store, size_t chunk, size_t from, size_t to);
/* The arrays of a slot whose bytes differ from the checksum of their last flush. */
unsigned zoff_offload_swap_sum_find_corrupt(zoff_swap_store *s, const zoff_swap_slot *slot);

/* ---- swap_drive.c ---- */

/* Have the drive make durable what it took, where that is asked for.  @blocks yes */
zoff_status zoff_offload_swap_drive_flush(const zoff_swap_store *s, const zoff_swap_file *file);
/* Take back the record of a commit that has failed, before anything that it names is overwritten.  @blocks yes */
zoff_status zoff_offload_swap_drive_take_back(zoff_swap_store *s);
/* Bytes written to all files, by all processes that had them. */
uint64_t zoff_offload_swap_drive_lifetime(const zoff_swap_store *s);

/* ---- swap_move.c ---- */

/* Read arrays that the slot of a chunk does not hold. On an error the slot is as it was. */
zoff_status zoff_offload_swap_move_start_read(zoff_swap_store *s, zoff_swap_slot *slot, unsigned arrays);
/* Write arrays to the places that they have now. On an error, also a later one, the slot is DIRTY. */
zoff_status zoff_offload_swap_move_start_write(zoff_swap_store *s, zoff_swap_slot *slot, unsigned arrays);
/* Account for the requests of a slot that have completed.  @return PENDING: some are not; or the error of a write */
zoff_status zoff_offload_swap_move_finish(zoff_swap_store *s, zoff_swap_slot *slot);
/* Finish a read: the slot is then LENT, after an error FREE or DIRTY.  @return PENDING: the read is still under way */
zoff_status zoff_offload_swap_move_take_read(zoff_swap_store *s, zoff_swap_slot *slot);
/* Give up a read, whatever comes of it.  @blocks until it is done
 * @return false: it does not end, so the slot is READING still, and its memory the drive's */
bool zoff_offload_swap_move_abandon(zoff_swap_store *s, zoff_swap_slot *slot);

/* ---- swap_put_off.c ---- */

/* Write what was put off to its place, as flush would have written it. */
zoff_status zoff_offload_swap_put_off_write(zoff_swap_store *s, zoff_swap_slot *slot);
/* A slot for another chunk; with NULL a write of what was put off is on its way, if anything was. */
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

/* ---- swap_lend.c ---- */

zoff_status zoff_offload_swap_lend_fetch(zoff_store *store, size_t chunk, unsigned arrays, void **out);
zoff_status zoff_offload_swap_lend_claim(zoff_store *store, size_t chunk, void **out);
zoff_status zoff_offload_swap_lend_check(zoff_store *store, size_t chunk);
zoff_status zoff_offload_swap_lend_flush(zoff_store *store, size_t chunk);
void zoff_offload_swap_lend_release(zoff_store *store, size_t chunk);
bool zoff_offload_swap_lend_resident(const zoff_store *store, size_t chunk);
zoff_status zoff_offload_swap_lend_ahead(zoff_store *store, size_t chunk);
void zoff_offload_swap_lend_drop(zoff_store *store, size_t chunk);
void zoff_offload_swap_lend_forget(zoff_store *store);
/* Read the memory of a resident anew and check it.  @blocks yes */
zoff_status zoff_offload_swap_lend_reload(zoff_swap_store *s, zoff_swap_slot *home);

/* ---- swap_keep.c ---- */

zoff_status zoff_offload_swap_keep_commit(zoff_store *store, int64_t t);
zoff_status zoff_offload_swap_keep_rollback(zoff_store *store);
/* Write again what was written before a flush that failed. Where a chunk went through the ring it is read back, and compared
 * with its checksum first.  @blocks yes  @return ERR_IO where that is not what was written, or cannot be compared */
zoff_status zoff_offload_swap_keep_rewrite(zoff_swap_store *s);

/* ---- swap_reopen.c ---- */

/* Read the records of the open files and decide with which one to continue. *out_found says that there is one; then places and
 * generation are set to it. Later generations are erased, in the files too. */
zoff_status zoff_offload_swap_reopen_find(zoff_swap_store *s, const zoff_store_opts *opts, bool *out_found);

/* ---- swap_stripe.c ---- */

zoff_status zoff_offload_swap_stripe_measure(zoff_swap_store *s, const zoff_store_opts *opts);
/* The file for the next chunk. */
uint32_t zoff_offload_swap_stripe_next(zoff_swap_store *s, size_t bytes);

/* ---- swap_life.c ---- */

zoff_status zoff_offload_swap_life_open(const zoff_store_opts *opts, zoff_store **out);
void zoff_offload_swap_life_close(zoff_store *store);

#endif
