/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint_priv.h: what the files of this room share. Each calls those below it in this list:
 *
 *      save.c     the public calls that save: agreement of ranks
 *      complete.c the end of a save: the manifest, and what a later save must wait for
 *      load.c     the public call that loads; match.c: is it the same model
 *      fill.c     reads the bytes of a checkpoint, verifies them, and puts them where they belong
 *      saver.c    the states of units, the thread that writes them, and what a step waits for
 *      layout.c   which bytes of this rank go into which regions
 *      source.c   reads the bytes of one unit
 *      describe.c facts for the manifest
 *      data.c     the program's own bytes
 *
 *      convert.c  makes a checkpoint of state files, without an engine; calls source.c
 */
#ifndef ZOFF_CHECKPOINT_PRIV_H
#define ZOFF_CHECKPOINT_PRIV_H

#include "archive.h"
#include "map.h"
#include "view.h"

#include <pthread.h>

/* ---- describe.c ---- */

/* The hyper-parameters of a group: the learning rate as it was at seal, the others as they are. @owns out->type:
 * zoff_base_mem_free() */
zoff_status zoff_checkpoint_describe_group(const zoff_model *m, size_t group, zoff_archive_group *out);
/* The rule of a parameter's states: that of its matrices, or the type of an optimizer of elements. */
const char *zoff_checkpoint_describe_rule(const zoff_model *m, const zoff_model_param *p);
/* Fill in step, loss scale, parameters, groups and facts. Call zoff_archive_manifest_free() also after an error. */
zoff_status zoff_checkpoint_describe_engine(const zoff_engine_view *v, bool skip_frozen, zoff_archive_manifest *m);

/* ---- data.c ---- */

/* Check the list of the program's bytes.  @return ERR_INVALID */
zoff_status zoff_checkpoint_data_check(const zoff_checkpoint_opts *opts, const char *call);
/* Write the program's bytes into the file of a rank. */
zoff_status zoff_checkpoint_data_write(const zoff_checkpoint_opts *opts, unsigned rank, zoff_archive_part *part);
/* Check that a checkpoint has the program's bytes, and then read them. */
zoff_status zoff_checkpoint_data_match(const zoff_checkpoint_opts *opts, const zoff_archive *a, unsigned rank, unsigned ranks);
zoff_status zoff_checkpoint_data_read(const zoff_checkpoint_opts *opts, const zoff_archive *a, unsigned rank, unsigned ranks);
/* Set data_found, which says which of these bytes were there. */
void zoff_checkpoint_data_tell(const zoff_checkpoint_opts *opts, const zoff_archive *a, unsigned rank, unsigned ranks);

/* A copy of the program's bytes, to restore them after a load that fails. @owns out: zoff_base_mem_free() */
zoff_status zoff_checkpoint_data_keep(const zoff_checkpoint_opts *opts, char **out);
void zoff_checkpoint_data_restore(const zoff_checkpoint_opts *opts, const char *kept);

/* ---- source.c ---- */

typedef enum zoff_save_place {
    ZOFF_SAVE_MEMORY, /* contiguous in DRAM, and written from there */
    ZOFF_SAVE_FILE,   /* in a state file: read as a whole */
    ZOFF_SAVE_PIECES, /* weights that are their own masters, or frozen ones: copied piece by piece */
    ZOFF_SAVE_VISIT   /* only a borrowed chunk shows these bytes, so they are saved before any step */
} zoff_save_place;

/* A region of the checkpoint and where its bytes come from. */
typedef struct zoff_save_source {
    zoff_save_place place;
    uint32_t region;
    size_t chunk;
    unsigned array; /* array of the chunk; ZOFF_STORE_ARRAYS: weights of pieces */
    size_t begin;   /* byte of the chunk where the region begins; 0 for weights */
    /* MEMORY: address of the region. PIECES: the chunk's engine-owned weights; NULL: the program's memory */
    const char *memory;
    zoff_store_source file;
    size_t first_unit, unit_count; /* range in the saver's list of units */
} zoff_save_source;

struct zoff_saver;

/* Copy the bytes of a unit, which are in DRAM, to `dst`. */
void zoff_checkpoint_source_read(const struct zoff_saver *s, const zoff_save_source *source, size_t unit, char *dst);
/* FILE: the first `file.written` bytes of the array were read to `bytes`. Complete them, and compare them with the checksum of
 * the state file.  @return ERR_CORRUPT */
zoff_status zoff_checkpoint_source_check(const zoff_save_source *source, char *bytes, unsigned threads);
/* Copy a region that only a borrowed chunk shows, from that chunk. */
void zoff_checkpoint_source_copy(const struct zoff_saver *s, const zoff_save_source *source, zoff_chunk_memory memory,
                                 uint64_t from, size_t bytes, char *dst);
/* Read an array of a state file, and compare it with its checksum.  @blocks for the disk  @return ERR_IO; ERR_CORRUPT */
zoff_status zoff_checkpoint_source_file(const zoff_store_source *file, size_t chunk, char *dst);
/* Let bytes of another file share the disk blocks of an array.  @return whether the file system has done so */
bool zoff_checkpoint_source_share(const zoff_store_source *file, int fd, uint64_t offset);
/* Let the checkpoint share the disk blocks of a state file.  @return whether the file system has done so */
bool zoff_checkpoint_source_clone(const struct zoff_saver *s, const zoff_save_source *source);

/* ---- layout.c ---- */

/* Lay out the file of this rank: fill the list of sources, and the table of `part`. */
zoff_status zoff_checkpoint_layout_make(struct zoff_saver *s, bool skip_frozen);
/* Write frozen weights of the program's memory, which no step changes.  @blocks for the disk */
zoff_status zoff_checkpoint_layout_write_frozen(struct zoff_saver *s);

/* ---- saver.c ---- */

typedef enum zoff_save_state {
    ZOFF_UNIT_PENDING, /* the unit is still in its source only */
    ZOFF_UNIT_BUSY,    /* the unit is being read or written, so its source must not change */
    ZOFF_UNIT_COPIED,  /* the unit is in a buffer, and not being written yet */
    ZOFF_UNIT_SAFE     /* the source of the unit may change, because it is written, or is being written from a buffer */
} zoff_save_state;

typedef struct zoff_save_unit {
    uint32_t source, number;
    zoff_save_state state;
    bool passed;  /* FILE: one update has left the old content in its place; the next one overwrites it */
    char *buffer; /* COPIED */
    struct zoff_save_unit *next_copy;
} zoff_save_unit;

enum { ZOFF_SAVE_BUFFERS_MOST = 1024 };

/* Buffers of one unit each. */
typedef struct zoff_save_buffers {
    zoff_map map;
    size_t bytes; /* bytes of a buffer */
    char *free[ZOFF_SAVE_BUFFERS_MOST];
    unsigned free_count, count;
} zoff_save_buffers;

/* Frozen weights of the program's memory: one region. */
typedef struct zoff_save_frozen {
    uint32_t region;
    uint64_t bytes;
    bool has;
} zoff_save_frozen;

/* A read of a unit from its source, or its write into the checkpoint. */
typedef struct zoff_save_flight {
    zoff_save_unit *unit;
    zoff_aio *queue;
    uint64_t ticket;
    char *buffer; /* NULL: the unit is written from its source */
} zoff_save_flight;

enum { ZOFF_SAVE_FLIGHTS = 16 };

/* Transfers of one direction, oldest first. */
typedef struct zoff_save_flights {
    zoff_save_flight list[ZOFF_SAVE_FLIGHTS];
    unsigned first, count;
} zoff_save_flights;

/* A state file that is read beside the engine. */
typedef struct zoff_save_reader {
    const zoff_aio *of;
    zoff_aio *queue;
} zoff_save_reader;

typedef struct zoff_save_readers {
    zoff_save_reader *list;
    size_t count, room;
} zoff_save_readers;

/* The worker that writes units, and its list. The lock protects units, buffers and status. */
typedef struct zoff_save_work {
    pthread_t thread;
    bool has_thread, stops, is_stuck; /* stuck: the disk completes nothing any more */
    bool beside;                      /* the save runs beside steps */
    double patience; /* seconds for a disk that stands still: it fails the save before other ranks miss this one in a step.
                        Negative: no limit */
    pthread_mutex_t lock;
    pthread_cond_t moved;                   /* a unit became safe, a buffer free, or all is over */
    size_t next;                            /* first unit that may be PENDING, in the order of writing */
    zoff_save_unit *first_copy, *last_copy; /* units that are COPIED */
    unsigned copying;                       /* units that a step is copying now: they become COPIED */
    zoff_save_flights reads, writes;
    zoff_save_readers readers;
    unsigned threads; /* threads of the team that computes checksums */
    zoff_status status;
    zoff_saved_error words;
    bool is_over; /* all units are written and the file is finished, or the save has failed */
    zoff_archive_file file;
} zoff_save_work;

typedef struct zoff_saver {
    zoff_engine_view view;
    zoff_guard guard;
    zoff_archive_part part;
    zoff_save_source *sources;
    size_t source_count, source_room;
    zoff_save_unit *units;
    size_t unit_count, unit_room;
    uint32_t *by_chunk;      /* 1 + index of the source, by chunk * (ZOFF_STORE_ARRAYS + 1) + array; 0: none */
    uint64_t *weights_at;    /* byte of each piece of the plan in the region of its chunk's weights; NULL: there are none */
    uint64_t *weights_bytes; /* bytes of each piece there; 0: it is not in such a region */
    zoff_save_frozen frozen;
    zoff_save_buffers buffers;
    zoff_save_work work;
    unsigned process; /* process that began the save: zoff_base_fork_number() */
    bool is_attached; /* the engine knows of the save */
    bool is_gone;     /* the engine was destroyed */
    struct zoff_checkpoint *owner;
} zoff_saver;

/* Allocate buffers, once the layout is made, of `memory` bytes. The caller has initialized lock and condition. */
zoff_status zoff_checkpoint_saver_open(zoff_saver *s, uint64_t memory);
/* Clone regions from state files, where the file system can. */
void zoff_checkpoint_saver_clone(zoff_saver *s);
/* Write regions that only a borrowed chunk shows.  @blocks for the disk */
zoff_status zoff_checkpoint_saver_visit(zoff_saver *s, zoff_engine *e);
/* Write all units in this thread.  @blocks yes */
zoff_status zoff_checkpoint_saver_run(zoff_saver *s);
/* Write all units in a thread. `beside_steps`: then call zoff_checkpoint_saver_attach().  @return ERR_NO_MEMORY: no thread */
zoff_status zoff_checkpoint_saver_start(zoff_saver *s, bool beside_steps);
/* Whether this process is a child of the one that began the save. It may only close its copy. */
bool zoff_checkpoint_saver_is_inherited(const zoff_saver *s);
/* Stop the thread; the save is given up unless it is over. */
void zoff_checkpoint_saver_stop(zoff_saver *s);
/* Wait until the save is over, and return the result.  @blocks yes */
zoff_status zoff_checkpoint_saver_wait(zoff_saver *s);
/* Start a thread to which the program's signals do not go.  @return ERR_NO_MEMORY */
zoff_status zoff_checkpoint_saver_thread(void *(*begin)(void *ctx), void *ctx, pthread_t *out);
/* Let the engine ask before states change, and tell its end. detach: the engine need not ask any more. */
void zoff_checkpoint_saver_attach(zoff_saver *s);
void zoff_checkpoint_saver_detach(zoff_saver *s);
/* Stop a thread, and free everything. The file stays if part.keeps is set. */
void zoff_checkpoint_saver_close(zoff_saver *s);

/* ---- complete.c ---- */

typedef enum zoff_save_stage {
    ZOFF_SAVE_WRITING,    /* ranks write their files */
    ZOFF_SAVE_PUBLISHING, /* all files are durable; rank 0 writes the manifest and removes old checkpoints */
    ZOFF_SAVE_ENDED       /* all ranks know the result */
} zoff_save_stage;

/* The thread of rank 0 that publishes. The saver's lock protects is_over. */
typedef struct zoff_save_publisher {
    pthread_t thread;
    bool has_thread, is_over;
    zoff_status status;
    zoff_saved_error words;
} zoff_save_publisher;

struct zoff_checkpoint {
    zoff_engine *engine;
    char *folder, *path; /* folder of checkpoints, and folder of this one */
    char work[4096];     /* hidden folder until the checkpoint is complete; "": not made */
    char name[ZOFF_ARCHIVE_NAME_MOST + 1];
    unsigned keep;
    zoff_archive_manifest manifest; /* files: of all ranks, filled in at the end */
    zoff_saver saver;
    bool sweeps; /* this is rank 0, and no manifest names the files yet */
    zoff_save_stage stage;
    zoff_save_publisher publisher;
    zoff_status result;
    zoff_saved_error words;
};

/* Ask all ranks, which must be at the same stage.  @return PENDING, or the result, which is kept
 * @blocks for one short message of every other rank */
zoff_status zoff_checkpoint_complete_ask(zoff_checkpoint *c);
/* Between two questions every rank sleeps, so none waits for the disk of another beyond its deadline. A single rank waits for
 * its own thread. */
void zoff_checkpoint_complete_nap(zoff_checkpoint *c);
/* End an earlier save of the engine, of which the owner learns the result later; or refuse on every rank: ERR_STATE.
 * @blocks until all ranks have called it, and the earlier save has ended */
zoff_status zoff_checkpoint_complete_settle(const zoff_engine_view *v, bool refuses);
/* Wait for the thread that publishes. */
void zoff_checkpoint_complete_close(zoff_checkpoint *c);

/* ---- match.c ---- */

/* Parameters of the engine and those of a checkpoint. */
typedef struct zoff_match {
    const zoff_engine_view *view;
    const zoff_archive *archive;
    bool weights_only; /* the moments are not taken, so they need not match */
    uint32_t *to;      /* for each parameter of the engine 1 + that of the checkpoint; 0: it is missing, and may be */
} zoff_match;

/* Compare names, shapes and states. `opts`: allow and weights_only.
 * @owns out: zoff_checkpoint_match_close()  @return ERR_INVALID with the first differences */
zoff_status zoff_checkpoint_match_open(const zoff_engine_view *v, const zoff_archive *a, const zoff_checkpoint_opts *opts,
                                       zoff_match *out);
void zoff_checkpoint_match_close(zoff_match *m);

/* ---- feed.c ---- */

/* Moments that change their format, at least one of which has blocks, or that are a part of a block. Their bytes come in order,
 * and in any portions. */
typedef struct zoff_block_feed {
    struct zoff_block_feed *next;
    const char *name;   /* name of the parameter, for messages */
    unsigned from, to;  /* formats of type zoff_archive_format */
    size_t count, done; /* number of elements: all, and those that are stored */
    size_t room;        /* elements from the first one to the end of the piece; those behind `count` stay as they are */
    char *dst;          /* address of the first element, which begins a block */
    size_t have;        /* bytes of the present block */
    char bytes[sizeof(float) * ZOFF_ARCHIVE_BLOCK];
} zoff_block_feed;

/* @return ERR_UNSUPPORTED for numbers that a block with one scale does not store */
zoff_status zoff_checkpoint_feed_take(zoff_block_feed *f, const char *bytes, size_t count);

/* ---- fill.c ---- */

typedef enum zoff_bring_state { ZOFF_BRING_EMPTY, ZOFF_BRING_READING, ZOFF_BRING_READY } zoff_bring_state;

/* Memory of one unit. READY: it is verified. */
typedef struct zoff_bring_buffer {
    char *base;
    zoff_archive_unit unit;
    zoff_bring_state state;
    unsigned users; /* parts that were begun and have not ended */
    uint64_t ticket, used;
} zoff_bring_buffer;

/* A unit, or bytes of it, and where they go. */
typedef struct zoff_bring_part {
    zoff_archive_unit unit;
    bool is_whole; /* the whole unit is read to `to` */
    size_t from, bytes;
    char *to;              /* place of the bytes; NULL: they are only verified, or converted */
    zoff_cast_piece cast;  /* `count` is not 0: these bytes become `src`, or `low` if `src` is given, and are converted */
    zoff_block_feed *feed; /* feed that gets these bytes, or NULL */
    uint64_t ticket;
    zoff_bring_buffer *buffer;
} zoff_bring_part;

enum { ZOFF_BRING_BUFFERS = 8 };

typedef struct zoff_bringer {
    const zoff_archive *archive;
    unsigned threads;
    zoff_aio **queues; /* queues by file of the checkpoint; NULL: not opened yet */
    zoff_bring_part *parts;
    size_t done, begun, count, room; /* numbers of parts that have ended, are begun, and exist; and room for parts */
    uint64_t first;                  /* number of parts[0], counted from the first one ever */
    size_t flying;                   /* bytes in flight */
    zoff_map map;
    size_t unit_room;
    zoff_bring_buffer buffers[ZOFF_BRING_BUFFERS];
    unsigned buffer_count;
    uint64_t uses;
} zoff_bringer;

/* Bytes of a region that go to one place in memory. */
typedef struct zoff_fill_run {
    uint32_t file, region;
    uint64_t begin, end; /* range in the region; equal: there are none */
    char *to;            /* address of `begin`; NULL: only verify the bytes */
} zoff_fill_run;

/* A chunk that is being filled. */
typedef struct zoff_fill_chunk {
    uint64_t masters_end, end; /* ends of its masters, and of all its parts, in the bringer's list */
    zoff_block_feed *feeds;    /* feeds of moments that come in another format */
} zoff_fill_chunk;

typedef struct zoff_filler {
    const zoff_match *match;
    zoff_bringer bringer;
    zoff_fill_run run;                           /* run that may still grow */
    size_t run_count;                            /* runs since the array began */
    zoff_fill_chunk *filling;                    /* the chunk whose parts are being added */
    zoff_fill_chunk chunks[ZOFF_STATES_LOADING]; /* chunks by number, modulo the length of the list */
} zoff_filler;

void zoff_checkpoint_fill_open(const zoff_match *match, zoff_filler *out);
void zoff_checkpoint_fill_close(zoff_filler *f);
/* Every state of the chunk is filled. */
bool zoff_checkpoint_fill_is_whole(const zoff_filler *f, size_t chunk);
/* Begin to fill a chunk. Its memory must stay until it is finished. Chunks are finished in the order in which they were
 * begun. */
zoff_status zoff_checkpoint_fill_begin(zoff_filler *f, size_t chunk, zoff_chunk_memory memory);
/* wait until the chunk has masters and weights  @blocks yes */
zoff_status zoff_checkpoint_fill_masters(zoff_filler *f, size_t chunk);
zoff_status zoff_checkpoint_fill_finish(zoff_filler *f, size_t chunk); /* wait until the chunk has everything  @blocks yes */
void zoff_checkpoint_fill_stop(zoff_filler *f); /* after an error: nothing is being filled any more  @blocks yes */
/* Verify frozen weights in the program's memory, or load them as well. */
zoff_status zoff_checkpoint_fill_frozen(zoff_filler *f, bool verify_only);

#endif
