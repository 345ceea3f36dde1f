/* SPDX-License-Identifier: Apache-2.0 */
/* file_priv.h: the file of a queue: opened once, kept open, with its requirements on addresses and offsets. */
#ifndef ZOFF_AIO_FILE_PRIV_H
#define ZOFF_AIO_FILE_PRIV_H

#include <zoff/aio.h>

enum {
    ZOFF_AIO_BEHIND_RANGES = 32,
    ZOFF_AIO_BEHIND_BYTES = 32 << 20 /* at most this many written bytes stay in the page cache */
};

typedef struct zoff_aio_range {
    uint64_t offset, bytes;
} zoff_aio_range;

typedef struct zoff_aio_file {
    int fd;
    char *path;
    bool writable;
    bool direct;                                   /* O_DIRECT is in use */
    bool drops_cache;                              /* O_DIRECT was refused: leave as little as possible in the page cache */
    size_t unit;                                   /* bytes of which offsets and lengths are multiples; 1 without O_DIRECT */
    size_t memory_unit;                            /* bytes of which addresses are multiples; 1 without O_DIRECT */
    zoff_aio_range behind[ZOFF_AIO_BEHIND_RANGES]; /* ring of ranges in the page cache whose writing to the disk has begun */
    unsigned behind_first, behind_count;
    uint64_t behind_bytes;
    int late_error; /* errno and place of a write that completed for the caller and then failed on its way to the disk */
    zoff_aio_range late_range;
} zoff_aio_file;

/* `held`: a descriptor of the file at `path`; another file under that name is refused. -1: open any file. */
zoff_status zoff_aio_file_open(const char *path, int held, zoff_aio_direct direct, bool writable, bool create,
                               zoff_aio_file *out);
/* Open the same file once more, for reading, even if it has no name any more. */
zoff_status zoff_aio_file_share(const zoff_aio_file *file, zoff_aio_file *out);
void zoff_aio_file_close(zoff_aio_file *file);

/* The current end of the file; the capacity of a block device; 0 if the system does not tell. */
uint64_t zoff_aio_file_end(const zoff_aio_file *file);

zoff_status zoff_aio_file_reserve(const zoff_aio_file *file, uint64_t bytes);

/* The name of the file system, for messages. */
const char *zoff_aio_file_system(const zoff_aio_file *file, char buffer[32]);

/* cache.c: drop transferred bytes from the page cache. May wait for the disk, and learn that it has failed: then late_error is
 * set. */
void zoff_aio_cache_moved(zoff_aio_file *file, bool writes, uint64_t offset, size_t bytes);
/* Call after the last transfer. */
void zoff_aio_cache_finish(zoff_aio_file *file);

#endif
