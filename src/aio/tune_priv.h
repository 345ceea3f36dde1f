/* tune_priv.h: the three files that find out what suits a folder: tune.c asks and decides, tune_run.c moves bytes and takes the
 * time, tune_keep.c writes results down and reads them again. */
#ifndef ZOFF_AIO_TUNE_PRIV_H
#define ZOFF_AIO_TUNE_PRIV_H

#include <zoff/aio.h>

#define ZOFF_AIO_TUNE_FILE "zoff-aio-tune.json"

enum {
    ZOFF_AIO_TUNE_BLOCK_MOST = 4 << 20,
    ZOFF_AIO_TUNE_DEPTH_MOST = 32,
    /* A place to read from and one to write to. */
    ZOFF_AIO_TUNE_EXTENT_LEAST = 2 * ZOFF_AIO_TUNE_BLOCK_MOST
};

/* A queue on a scratch file, and memory for its blocks. */
typedef struct zoff_aio_tuner {
    zoff_aio *q;
    char *memory;
    size_t memory_bytes;
    uint64_t extent;            /* of the file is used; a multiple of the least one */
    uint64_t read_at, write_at; /* where each direction goes on */
    double rate;                /* bytes per second, as far as is known; 0: nothing is */
} zoff_aio_tuner;

/* One way of moving bytes. */
typedef struct zoff_aio_tune_way {
    size_t block;
    unsigned depth;
    bool reads, writes;
} zoff_aio_tune_way;

/* tune_run.c: move bytes that way for about so many seconds, at least one block for each place in flight and, where `bytes` is
 * not 0, no more than that. The rate and, if wanted, how many. */
zoff_status zoff_aio_tune_run(zoff_aio_tuner *tuner, const zoff_aio_tune_way *way, double seconds, uint64_t bytes,
                              double *out_rate, uint64_t *out_moved);

/* tune_keep.c: fill in what the folder has kept, when it is of the same device, file system, back-end and directness as `io` is
 * already. False: there is nothing that can be used. */
bool zoff_aio_tune_keep_load(const char *folder, zoff_aio_tune_result *io);
void zoff_aio_tune_keep_store(const char *folder, const zoff_aio_tune_result *result);

#endif
