/* tune_priv.h: the three files that measure a folder. tune.c decides, tune_run.c moves bytes and takes the time, tune_keep.c
 * stores results and reads them again. */
#ifndef ZOFF_AIO_TUNE_PRIV_H
#define ZOFF_AIO_TUNE_PRIV_H

#include <zoff/aio.h>

#define ZOFF_AIO_TUNE_FILE "zoff-aio-tune.json"

enum {
    ZOFF_AIO_TUNE_BLOCK_MOST = 4 << 20,
    ZOFF_AIO_TUNE_DEPTH_MOST = 32,
    /* One place to read from and one to write to. */
    ZOFF_AIO_TUNE_EXTENT_LEAST = 2 * ZOFF_AIO_TUNE_BLOCK_MOST
};

/* A queue on a scratch file, and memory for its blocks. */
typedef struct zoff_aio_tuner {
    zoff_aio *q;
    char *memory;
    size_t memory_bytes;
    uint64_t extent;            /* bytes of the file that are used; a multiple of the smallest extent */
    uint64_t read_at, write_at; /* where each direction continues */
    double rate;                /* bytes per second, as far as known; 0: unknown */
} zoff_aio_tuner;

/* One way of moving bytes. */
typedef struct zoff_aio_tune_way {
    size_t block;
    unsigned depth;
    bool reads, writes;
} zoff_aio_tune_way;

/* tune_run.c: move bytes in this way for about this long, at least one block for each place in flight. If `bytes` is not 0, it
 * is the maximum. Return the rate and, if wanted, the bytes. */
zoff_status zoff_aio_tune_run(zoff_aio_tuner *tuner, const zoff_aio_tune_way *way, double seconds, uint64_t bytes,
                              double *out_rate, uint64_t *out_moved);

/* tune_keep.c: load the folder's stored result into `io`, if device, file system, back-end and directness match those in `io`.
 * @return false: there is none that can be used */
bool zoff_aio_tune_keep_load(const char *folder, zoff_aio_tune_result *io);
void zoff_aio_tune_keep_store(const char *folder, const zoff_aio_tune_result *result);

#endif
