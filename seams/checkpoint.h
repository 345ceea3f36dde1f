/* checkpoint.h: the states of a run in a folder that any world size, stage and tier can load. Not implemented: see README.md.
 */
#ifndef ZOFF_SEAMS_CHECKPOINT_H
#define ZOFF_SEAMS_CHECKPOINT_H

#include <zoff/engine.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of the trainer's own that go in and out with the states: random generators, the position in the data. */
typedef struct zoff_checkpoint_data {
    const char *name; /* unique in a checkpoint */
    void *bytes;      /* the caller's: read by a save, written by a load */
    size_t count;     /* a load fails if the checkpoint has another number */
    bool each_rank;   /* false: those of rank 0 are everybody's */
} zoff_checkpoint_data;

typedef struct zoff_checkpoint_opts {
    size_t struct_size; /* sizeof(zoff_checkpoint_opts) */
    const zoff_checkpoint_data *data;
    size_t data_count;
    uint64_t memory;        /* bytes of DRAM for chunks that are copied before a step overwrites them; 0: one chunk */
    unsigned keep;          /* complete checkpoints that stay in the folder; 0: all */
    const char *may_differ; /* of a load: patterns of parameter names that may be missing or extra; NULL: none */
} zoff_checkpoint_opts;

typedef struct zoff_checkpoint zoff_checkpoint;

/* Save the states as they are after the last step.  @blocks until files and folder are flushed
 * @return ERR_IO, with the checkpoint before this one untouched; ERR_COMM names the ranks that are missing */
zoff_status zoff_checkpoint_save(zoff_engine *engine, const char *folder, const zoff_checkpoint_opts *opts);
/* The same beside further steps. Each chunk is copied before a step overwrites it. @owns caller, until _wait() */
zoff_status zoff_checkpoint_begin(zoff_engine *engine, const char *folder, const zoff_checkpoint_opts *opts,
                                  zoff_checkpoint **out);
zoff_status zoff_checkpoint_poll(zoff_checkpoint *checkpoint); /* PENDING: under way */
zoff_status zoff_checkpoint_wait(zoff_checkpoint *checkpoint); /* @blocks; frees it, also after an error */
/* Load in the order of the disk, with one commit. Names, sizes and types are compared before anything changes.
 * @return ERR_CORRUPT after the first byte: the engine is unloaded, and only load and destroy are legal */
zoff_status zoff_checkpoint_load(zoff_engine *engine, const char *folder, const zoff_checkpoint_opts *opts);
/* Ask all ranks to stop after the next step; zoff_step_info then says so. Async-signal-safe. */
void zoff_engine_request_stop(zoff_engine *engine);

/* The engine's view for the room: state arrays by chunk, in host memory, for every tier. */
typedef struct zoff_checkpoint_view {
    void *ctx;
    int64_t t;
    size_t chunk_count;
    /* `array`: 0 masters, 1 and 2 moments. @blocks for the read */
    zoff_status (*read)(void *ctx, size_t chunk, unsigned array, size_t from, size_t bytes, void *to);
    zoff_status (*write)(void *ctx, size_t chunk, unsigned array, size_t from, size_t bytes, const void *bytes_from);
    /* Called before the content of a chunk is overwritten; PENDING: the update of that chunk waits. */
    void (*guard)(void *ctx, zoff_status (*leaving)(void *room, size_t chunk), void *room);
} zoff_checkpoint_view;

#ifdef __cplusplus
}
#endif
#endif
