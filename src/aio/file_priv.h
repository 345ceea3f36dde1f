/* file_priv.h: the file of a queue: opened once, kept open, with what it demands of addresses and offsets. */
#ifndef ZOFF_AIO_FILE_PRIV_H
#define ZOFF_AIO_FILE_PRIV_H

#include <zoff/aio.h>

enum {
    ZOFF_AIO_BEHIND_RANGES = 32,
    ZOFF_AIO_BEHIND_BYTES = 32 << 20 /* of what was written, at most so much stays in the page cache */
};

typedef struct zoff_aio_range {
    uint64_t offset, bytes;
} zoff_aio_range;

typedef struct zoff_aio_file {
    int fd;
    char *path;
    bool writable;
    bool direct;        /* O_DIRECT is in force */
    bool drops_cache;   /* O_DIRECT was wanted and refused: leave no more in the page cache than need be */
    size_t unit;        /* bytes: offsets and lengths of transfers are multiples of it; 1 without O_DIRECT */
    size_t memory_unit; /* bytes: addresses are multiples of it; 1 without O_DIRECT */
    zoff_aio_range behind[ZOFF_AIO_BEHIND_RANGES]; /* ring: written, on their way to the disk, still in the page cache */
    unsigned behind_first, behind_count;
    uint64_t behind_bytes;
    int late_error; /* errno of a write that was done for the caller and then failed on its way to the disk; and where */
    zoff_aio_range late_range;
} zoff_aio_file;

/* `held`: a descriptor of the file at `path`; another file that has taken the name is refused. -1: whatever is there. */
zoff_status zoff_aio_file_open(const char *path, int held, zoff_aio_direct direct, bool writable, bool create,
                               zoff_aio_file *out);
void zoff_aio_file_close(zoff_aio_file *file);

/* Where the file ends now, for a block device its capacity; 0 when the system does not tell. */
uint64_t zoff_aio_file_end(const zoff_aio_file *file);

zoff_status zoff_aio_file_reserve(const zoff_aio_file *file, uint64_t bytes);

/* Words for the file system that holds the file. */
const char *zoff_aio_file_system(const zoff_aio_file *file, char buffer[32]);

/* cache.c: bytes that have been moved will not be wanted from the page cache. May wait for the disk, and find out that it has
 * failed: late_error, from then on. */
void zoff_aio_cache_moved(zoff_aio_file *file, bool writes, uint64_t offset, size_t bytes);
/* Nothing more will be moved. */
void zoff_aio_cache_finish(zoff_aio_file *file);

#endif
