/* SPDX-License-Identifier: Apache-2.0 */
/* offload.h: the door of the room that decides where states live. A store holds chunks of bytes, on any tier: in DRAM, in files
 * or in the memory of a device. A demand borrows them: ask, change, give back. The room knows no rank's share, no tensor, no
 * optimizer.
 *
 * A chunk consists of up to three arrays, one after the other. Each array is read, written and verified separately. A set of
 * arrays is an unsigned: bit k is array k. */
#ifndef ZOFF_OFFLOAD_H
#define ZOFF_OFFLOAD_H

#include "progress.h"

#include <zoff/accel.h>
#include <zoff/aio.h>

typedef struct zoff_store zoff_store;

enum { ZOFF_STORE_ARRAYS = 3, ZOFF_STORE_ALL = (1 << ZOFF_STORE_ARRAYS) - 1 };

enum { ZOFF_STORE_ATTACHED_MOST = 64 << 10 }; /* bytes of an attachment */

/* One chunk as the store sees it. */
typedef struct zoff_store_chunk {
    /* bytes, a multiple of 4 KiB; a chunk of 0 bytes holds nothing: it is filled all the same, and never borrowed */
    size_t bytes;
    size_t first_bytes;             /* bytes that may not be zero at first, a multiple of 4 KiB; those behind them are zero */
    size_t ends[ZOFF_STORE_ARRAYS]; /* ends of its arrays, multiples of 4 KiB, the last one `bytes`. Each array begins at the
                                       end of the one before it, and may be empty. All 0: the chunk is one array */
    bool is_elsewhere;              /* a step only writes the chunk, so it does not stay in DRAM */
} zoff_store_chunk;

/* Write the initial content of a chunk: `base` holds zeros. Called once for each chunk while the store is opened. In DRAM
 * `base` was never touched, so the thread that writes a page first decides its NUMA node. */
typedef void (*zoff_store_fill)(void *ctx, size_t chunk, void *base);

/* How chunks from a file are compared with what was written. The values are those of zoff.verify. */
typedef enum zoff_store_verify {
    ZOFF_VERIFY_FULL,   /* each time */
    ZOFF_VERIFY_SAMPLE, /* each chunk in one of ZOFF_VERIFY_SAMPLES commits */
    ZOFF_VERIFY_OFF
} zoff_store_verify;

enum { ZOFF_VERIFY_SAMPLES = 16 };

/* Persist: the content of existing files. */
typedef struct zoff_store_found {
    uint64_t generation; /* the last commit, counted from 1; 0: none */
    int64_t t;           /* step after which that commit was made */
    bool reopened;       /* the files have more than the first content */
    bool has_before;     /* all files have the commit before it, too, made after step t_before */
    int64_t t_before;
    char other[48]; /* file of another rank with states, in a folder without one of this rank; "": there is none */
} zoff_store_found;

/* The owner of persistent files, a rank. Engines with one norm train parts of a model and may use one folder, so their files
 * are named by part, too. */
typedef struct zoff_store_owner {
    unsigned rank;
    unsigned part; /* number of the part, from 1; 0: the engine trains the whole model */
} zoff_store_owner;

/* NVME: how the opening reports the bytes that it moves. */
typedef struct zoff_store_progress {
    /* whether to go on, asked at least every 64 MiB; false ends the opening with ERR_CANCELED. NULL: lines in the log */
    zoff_progress_fn report;
    void *ctx;
    const char *write, *read, *verify; /* static texts for what is done */
    double log_seconds;                /* seconds between two lines in the log; 0: 5 */
} zoff_store_progress;

/* DRAM that files take in folders that are in memory. `bytes`: of all files, spread evenly over the folders. `kept`: NULL, or
 * whose persistent files of an earlier run have their memory already. */
uint64_t zoff_offload_swap_file_memory(const char *const *folders, size_t count, uint64_t bytes, const zoff_store_owner *kept);

/* How chunks get to the memory of a device and back: as copies in a stream of the owner. */
typedef struct zoff_store_link {
    zoff_accel *accel;
    void *stream;                     /* the owner closes it before the store, because copies may be in flight */
    zoff_progress *progress;          /* for waits */
    zoff_poller *poller;              /* poller of the device, whose deadline ends waits */
    const char *advice;               /* static text: what helps where the device has too little memory */
    bool moves;                       /* copies were enqueued; the owner sets it back when all of them are done */
    uint64_t read_bytes, write_bytes; /* from and to the device; the owner sets them back */
} zoff_store_link;

typedef struct zoff_store_opts {
    zoff_tier tier;        /* HOST or NVME */
    zoff_store_link *link; /* not NULL: chunks are in device memory, whatever the tier, and pass through the slots. It stays
                              valid while chunks are borrowed or in flight */
    const char *what;      /* the name of the content, for messages */
    const zoff_store_chunk *chunks;
    size_t chunk_count;
    zoff_store_fill fill;
    void *fill_ctx;
    unsigned threads; /* threads of the team that computes checksums */
    bool has_seconds; /* chunks may get a second content. Files then have two places for each chunk, also without persist */
    size_t spares; /* has_seconds: chunks in DRAM that may have a second content at a time: any chunk of the host tier, or the
                      residents of NVME; at most their number. Their memory is allocated at open, each as large as the largest
                      chunk, in a mapping of its own */
    /* NVME: */
    unsigned slots;   /* chunks in DRAM at a time; also with a link */
    size_t residents; /* chunks that stay in DRAM, spread evenly over those that are not empty; at most their number. They are
                         not read again */
    const char *const *paths; /* folders; their measured rates decide which chunks they get */
    size_t path_count;
    unsigned rank, ranks; /* part of the files' names */
    unsigned part;        /* persist: part of zoff_store_owner */
    const char *aio_backend;
    bool aio_tune;          /* measure the next two if they are 0 */
    size_t aio_block_bytes; /* 0: 2 MiB, or measured */
    unsigned aio_depth;     /* 0: this rank's share of 32, or of the measured depth */
    int direct;             /* a zoff_aio_direct */
    double timeout_seconds; /* deadline for a read or write while nothing completes; 0 or less: none */
    zoff_store_verify verify;
    bool persist;            /* the files stay, and are opened again: see swap_keep.c */
    bool power_safe;         /* persist: survive a power cut, too */
    bool required;           /* persist: an error where there are no states to continue with */
    const void *description; /* persist: says which elements lie where, and stands beside each file; see swap_layout.c */
    size_t description_bytes;
    int64_t wanted_t;     /* persist: the caller may choose the commit before the last, made after this step. Then its arrays
                             are verified before the last one is given up. 0: it is the last one, or the last that all ranks
                             have */
    uint64_t layout, cut; /* persist: identify the states, and their cut into chunks; files with others are refused */
    bool has_blocks;      /* persist: among the states are moments in 8 bits, so the files say in which format */
    size_t limit_bytes, limit_elements; /* persist: how the states are cut, for zoff_offload_persisted_limits() */
    zoff_store_progress progress;
} zoff_store_opts;

typedef struct zoff_store_stats {
    uint64_t read_bytes, write_bytes; /* bytes of files */
    uint64_t ahead_bytes;             /* part of read_bytes that was read ahead of the step: zoff_offload_store_ahead() */
    uint64_t lifetime_write_bytes;    /* persist: bytes that all runs have written into these files */
    double wait_seconds;              /* seconds that the calling thread has spent on I/O */
    double check_seconds;             /* seconds that the team has spent on checksums */
} zoff_store_stats;

/* ---- opening: find, with persist verify, fill, ready ----
 *
 * Ranks open their stores side by side. So verify and fill do a part of their work in each call, and return PENDING until all
 * of it is done. In between the caller can tell other ranks that it works, and between two functions it can wait for them.
 * After an error of verify, fill or ready the store can only be closed. That leaves no new file, and before fill it leaves the
 * content of older files as it was. `opts` is the same in all calls. */

/* Allocate the memory, and open the files and read their records. A tier in memory is filled here.
 * @param out_found persist: the content of existing files; otherwise zeros  @blocks yes  @return an error: nothing is left */
zoff_status zoff_offload_store_find(const zoff_store_opts *opts, zoff_store **out, zoff_store_found *out_found);

/* Persist: continue with this generation: that which was found, or the one before; 0: write everything anew. If the program
 * wants an older commit, each call verifies a part of it, because the newer one is given up by fill. */
zoff_status zoff_offload_store_verify(zoff_store *store, const zoff_store_opts *opts, uint64_t generation);

/* Write the initial content, or read what has to be in DRAM. */
zoff_status zoff_offload_store_fill(zoff_store *store, const zoff_store_opts *opts);

/* Commit the initial content, if it was written. The store is open now. */
zoff_status zoff_offload_store_ready(zoff_store *store);

/* Wait for writes in flight, at most 10 s without one that completes: memory that a drive may still access stays allocated.
 * Remove the files unless they persist, and free the store, also one that is being opened. Accepts NULL. */
void zoff_offload_store_close(zoff_store *store);

/* Whether the store has found existing content, and the step after which it was made. */
bool zoff_offload_store_reopened(const zoff_store *store, int64_t *out_t);

/* How the states of persistent files in `folder` were cut; false if there are none that would be opened again. */
bool zoff_offload_persisted_limits(const char *folder, zoff_store_owner owner, size_t *out_limit_bytes,
                                   size_t *out_limit_elements);

/* ---- demands: broker.c ----
 *
 * Memory for chunks is asked for by a demand, and given back. A demand is zeroed, and its kind, its chunk and its parts are
 * set, before the first ask. It must not move before it has been given back or withdrawn. */

typedef enum zoff_demand_kind {
    ZOFF_DEMAND_STEP, /* demand of a bucket in an open step; asked for in the order of the walk */
    ZOFF_DEMAND_LEND, /* a fetch of weights, which a call waits for: it comes first */
    ZOFF_DEMAND_PASS, /* a pass over the states, or a copy of weights */
    ZOFF_DEMAND_AHEAD /* demand of a bucket that is updated ahead of its step: it gets a place at once, or is refused */
} zoff_demand_kind;

enum { ZOFF_DEMAND_PARTS = 2 };

typedef struct zoff_demand_part {
    zoff_store *store; /* NULL: the demand wants nothing here */
    unsigned arrays;   /* arrays to read: the borrower neither reads nor changes the others */
    bool overwrites;   /* the caller writes the whole chunk, so nothing is read and its content is undefined */
    char *base;        /* memory of the chunk once it is granted, read and compared; otherwise NULL */
    bool done;         /* the part was given back, so the demand does not ask for it again */
    bool has_repeated; /* for the broker: a failed write in the way of this part was started again */
} zoff_demand_part;

typedef struct zoff_demand {
    zoff_demand_kind kind;
    size_t chunk;
    union {
        zoff_demand_part part[ZOFF_DEMAND_PARTS];
        struct {
            zoff_demand_part states, weights;
        };
    };
    bool is_granted; /* the demand has a place for each part */
} zoff_demand;

/* Ask for memory for all parts, and for what is to be read. Ask again until it is there.
 * @return OK: each part has its base. PENDING: ask again after pump or wait. An error, of a read, a checksum (ERR_CORRUPT with
 * file and offset) or a write that is in the way: the demand has nothing, and may ask anew.  @blocks never */
zoff_status zoff_offload_broker_ask(zoff_demand *demand);

/* Give the memory of a part back. Call it outside of parallel regions.
 * @param changed the arrays that are newer than the store; 0: none, and the chunk stays until another needs its slot
 * @param may_wait the write is put off: until the slot is needed, others are put off after it, or drain. However often the
 * chunk is borrowed and changed before, it is written once. Otherwise the write of all borrowed arrays starts now
 * @return the error of a write that could not be started: the store keeps chunk and error, and retry writes it again */
zoff_status zoff_offload_broker_give(zoff_demand *demand, zoff_demand_part *part, unsigned changed, bool may_wait);

/* Give a part back whose second content is complete (see below). It is written in the background, to the place that does not
 * have the first content. Call it outside of parallel regions.  @return as zoff_offload_broker_give(): retry writes to the same
 * place */
zoff_status zoff_offload_broker_put(zoff_demand *demand, zoff_demand_part *part);

/* End a demand without a result: its memory is given back, and what was written there is lost. Parts that were given back
 * before stay so. A second content that was not put is discarded. Does nothing for a zeroed demand, nor the second time. */
void zoff_offload_broker_withdraw(zoff_demand *demand);

/* Name chunks that will be asked for, in this order, and the arrays of each (NULL: all), so that their reads start into free
 * slots and over old clean copies. None of them takes the place of another in the list. A demand takes their place if it needs
 * one.
 * @blocks never */
void zoff_offload_broker_hint(zoff_store *store, const size_t *chunks, const unsigned *arrays, size_t count);

/* Compute the checksum of bytes [from, to) of a borrowed chunk now, because they are final and in a cache. Call it only if
 * wants_settle says so; ranges may overlap. flush computes the rest. Until then nothing may change these bytes, and no other
 * chunk may be checked or flushed. Call it outside of parallel regions. */
bool zoff_offload_store_wants_settle(const zoff_store *store);
void zoff_offload_store_settle(zoff_store *store, size_t chunk, size_t from, size_t to);

/* ---- a second content ----
 *
 * A borrowed chunk gets a second content, and later the caller decides which of the two stays. Calls for one chunk:
 * zoff_offload_broker_ask(), second, [settle,] zoff_offload_broker_put(); then adopt or discard. From second to adopt or
 * discard the chunk is undecided: nobody may ask for it, and no hint may name it. Other chunks are not affected. Call them in
 * the thread that asks. A store that persists must have committed the first content. Withdrawing the demand before put has the
 * effect of discard. Rollback discards all second contents. */

/* Get memory for the second content of a borrowed chunk. A chunk in DRAM gets other memory, of undefined content: write every
 * byte of it that matters. The borrowed memory keeps the first content until adopt or discard. A chunk of a file gets the
 * borrowed memory itself, with the first content in it, which the file keeps, too.
 * @owns the store; valid until put, or until a release or discard before it  @blocks never
 * @return PENDING: all spares are in use, and the chunk stays borrowed without a second content; ERR_STATE: its first content
 * is not in its file, or not committed, or the store was opened without has_seconds */
zoff_status zoff_offload_store_second(zoff_store *store, size_t chunk, void **out);

/* Make the second content the content. The memory of the first one is a spare again, so in DRAM the chunk may have moved. Its
 * write may still be in flight: drain before a commit. Does nothing if the chunk is not undecided. */
void zoff_offload_store_adopt(zoff_store *store, size_t chunk);

/* Make the first content the content, also where the write of the second one has failed: its error is not reported any more.
 * Withdraw a demand whose second content was not put. Does nothing if the chunk is not undecided.
 * @blocks until the write of the second content has ended
 * @return ERR_IO, as wait, only if it does not end: the chunk stays undecided, and the call may be repeated */
zoff_status zoff_offload_store_discard(zoff_store *store, size_t chunk);

/* Whether some chunk has a second content that is neither adopted nor discarded. Then commit fails with ERR_STATE. */
bool zoff_offload_store_is_undecided(const zoff_store *store);

/* Advance I/O without waiting.  @return the error of a write that failed. The store keeps the chunk and the error until retry
 * writes the chunk again. A caller may ignore the error here: drain and commit return it again. */
zoff_status zoff_offload_store_pump(zoff_store *store);

/* Wait until a transfer in flight has completed.  @return as pump; ERR_IO if none completes for timeout_seconds: then they stay
 * in flight, and may be waited for again */
zoff_status zoff_offload_store_wait(zoff_store *store);

/* Start writes that were put off, and wait for all writes.  @return the first error of a write that failed, now or earlier, and
 * was not repeated */
zoff_status zoff_offload_store_drain(zoff_store *store);

/* Repeat writes that failed, and writes that precede a failed flush of the drive.  @blocks only for the latter
 * @return an error if the bytes of the latter are lost: then only rollback is possible */
zoff_status zoff_offload_store_retry(zoff_store *store);

/* Whether reads or writes, or only writes, are in flight, as far as pump has seen. */
bool zoff_offload_store_busy(const zoff_store *store, bool writes_only);

/* Record that everything written so far belongs together: this is what the files hold from now on, after step `t`. Call drain
 * first: commit records nothing while a write is in flight or has failed. @blocks with persist, for the commit record  @return
 * an error: the files hold what they held before; may be repeated */
zoff_status zoff_offload_store_commit(zoff_store *store, int64_t t);

/* The two parts of a commit. Ranks that commit together all record, and confirm once all have. If one of them cannot record,
 * none confirms, and each is as after a failed commit. Otherwise those that have committed would be a generation ahead, and the
 * next commits of all would have the same number for different steps.  @blocks record: as commit  @return record: as commit */
zoff_status zoff_offload_store_record(zoff_store *store, int64_t t);
void zoff_offload_store_confirm(zoff_store *store, int64_t t);

/* Persist: attach bytes to the commits that follow, which record them in the same write; 0 bytes: none. They are copied. Does
 * nothing for a store that does not persist.
 * @param count at most ZOFF_STORE_ATTACHED_MOST */
void zoff_offload_store_attach(zoff_store *store, const void *bytes, size_t count);

/* The bytes that were attached last; after opening, those of the commit that the store has found. */
const void *zoff_offload_store_attached(const zoff_store *store, size_t *out_count);

/* Whether chunks were written before a failed flush of the drive, and not since: then call retry or rollback. */
bool zoff_offload_store_is_in_doubt(const zoff_store *store);

/* Whether rollback is possible. */
bool zoff_offload_store_can_rollback(const zoff_store *store);

/* Undo all writes since the last commit. Nothing may be borrowed.  @blocks yes  @return an error: repeat the call */
zoff_status zoff_offload_store_rollback(zoff_store *store);

/* Where the current content of an array is, for a reader that does not borrow it, also in another thread. */
typedef struct zoff_store_source {
    const char *memory;    /* in DRAM; NULL: in a file */
    int fd;                /* descriptor of the file, to clone its blocks */
    const zoff_aio *queue; /* queue of the file, for zoff_aio_queue_share() alone, because a step uses it */
    uint64_t offset;       /* offset of the array in the file, a multiple of 4 KiB */
    size_t begin, bytes;   /* range of the array in its chunk */
    size_t written;        /* bytes of the array that the file has; those behind it are zero */
    bool has_checksum;
    uint64_t checksum; /* zoff_digest_blocks_whole() of the array */
    bool stays;        /* the first flush of the chunk from now on leaves this content in its place (persist) */
} zoff_store_source;

/* The host memory of the chunks: all of them, or the slots and those that stay in DRAM. With has_seconds a chunk may also be in
 * the memory of the spares, which is not part of it. */
void zoff_offload_store_memory(const zoff_store *store, const void **out_base, size_t *out_bytes);

/* Find the source of an array that is not empty. Call drain first. The content changes with the next flush or keep of the
 * chunk. An undecided chunk has its first content, up to adopt or discard.
 * @return ERR_STATE: a slot has newer bytes than the file, because a write has failed */
zoff_status zoff_offload_store_source(const zoff_store *store, size_t chunk, unsigned array, zoff_store_source *out);

/* The address of a chunk in device memory. Flushed bytes are there once the link's stream has reached their copy. Only for a
 * store with a link. */
char *zoff_offload_device_there(const zoff_store *store, size_t chunk);

/* Whether a chunk is always in DRAM: borrowing it takes no slot. */
bool zoff_offload_store_resident(const zoff_store *store, size_t chunk);

/* Whether I/O proceeds while the caller computes. */
bool zoff_offload_store_overlaps(const zoff_store *store);

/* Compute checksums with this many threads from now on. No checksum depends on the number. */
void zoff_offload_store_set_threads(zoff_store *store, unsigned threads);

void zoff_offload_store_stats(const zoff_store *store, zoff_store_stats *out);

/* Bytes of the store's DRAM in huge pages; see zoff_base_map_huge_bytes(). */
uint64_t zoff_offload_store_huge_bytes(const zoff_store *store);

/* A number that identifies states, computed from any description of them. */
uint64_t zoff_offload_layout(const void *words, size_t bytes);

/* Placement: from a budget of DRAM to the size of chunks, in integers. */
typedef struct zoff_placement {
    unsigned slots;
    size_t chunk_bytes; /* most bytes of a chunk */
} zoff_placement;

/* `budget_bytes` 0: automatic. `state_bytes`: the size of everything to store. */
void zoff_offload_placement_nvme(uint64_t budget_bytes, unsigned slots, uint64_t state_bytes, zoff_placement *out);

/* The number of chunks, of `count` with at most `chunk_bytes` each, that fit into the budget beside the slots; 0 without a
 * budget. */
size_t zoff_offload_placement_residents(uint64_t budget_bytes, unsigned slots, size_t chunk_bytes, size_t count);

/* Whether chunk number `chunk`, of `count` that are not empty, stays in DRAM. These chunks are spread evenly, so that the disk
 * has the same work in each part of a step. */
bool zoff_offload_placement_resident(size_t chunk, size_t residents, size_t count);

/* Bytes of memory of a chunk in DRAM that may have a second content. Chunks that are almost the largest get room for any chunk,
 * so that adopt copies nothing. Most chunks have about the same size. */
size_t zoff_offload_placement_room(size_t chunk_bytes, size_t largest);

/* Turn the rates of several devices into their shares of the states, which add up to 1. Rates that are almost the same count as
 * the same, because measurements vary. If one rate is unknown, all shares are equal. */
void zoff_offload_placement_shares(double *rates, size_t count);

/* ---- persistent state files without a store: swap_scrub.c ---- */

/* State files that are open and locked, so that no engine opens them. */
typedef struct zoff_state_files zoff_state_files;

/* A state file and its owner. `has_commit` false: the file is blank, and only path and fd are set. */
typedef struct zoff_state_file {
    const char *path;
    int fd; /* descriptor for reading, through the page cache */
    bool has_commit;
    uint32_t rank, ranks, file, files;
    uint64_t layout, cut;
    uint64_t generation; /* generation of the last whole commit */
    bool is_damaged;     /* a later commit has a damaged record, or the power failed while it was written */
} zoff_state_file;

/* One commit of a file. */
typedef struct zoff_state_commit {
    int64_t t;
    size_t chunk_count; /* chunks in this file */
    const void *attached;
    size_t attached_bytes;
} zoff_state_commit;

/* Open all state files of some folders. `call` begins messages.
 * @owns out: zoff_offload_files_close()  @return ERR_STATE for a file that an engine has open; ERR_IO for a folder without
 * state files; ERR_CORRUPT for a file without a whole commit; ERR_UNSUPPORTED for another version */
zoff_status zoff_offload_files_open(const char *call, const char *const *folders, size_t count, zoff_state_files **out);
void zoff_offload_files_close(zoff_state_files *f);
size_t zoff_offload_files_count(const zoff_state_files *f);
zoff_state_file zoff_offload_files_file(const zoff_state_files *f, size_t file);
/* Find the commit of a generation. A file has at most two.  @return false: it does not have it */
bool zoff_offload_files_commit(const zoff_state_files *f, size_t file, uint64_t generation, zoff_state_commit *out);
/* Read the description beside a file that has a commit.
 * @owns out: zoff_base_mem_free()  @return ERR_IO: there is none; ERR_CORRUPT: damaged, or of other states; ERR_UNSUPPORTED */
zoff_status zoff_offload_files_description(const zoff_state_files *f, size_t file, char **out, size_t *out_bytes);
/* Where an array of chunk number `index` of a commit is. `stays`: the step after the last commit does not overwrite it.
 * @return the chunk; 0 bytes: the array is empty */
size_t zoff_offload_files_array(const zoff_state_files *f, size_t file, uint64_t generation, size_t index, unsigned array,
                                zoff_store_source *out);

#endif
