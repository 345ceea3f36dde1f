/* libaio_pattern.h: a handle that moves whole files with libaio the way a widely used trainer does: each request opens its file
 * with O_DIRECT, a thread of the handle cuts it into blocks, keeps `depth` of them in flight, and closes the file when all are
 * done. Unlike there, every result is looked at. */
#ifndef ZOFF_BENCH_LIBAIO_PATTERN_H
#define ZOFF_BENCH_LIBAIO_PATTERN_H

#include <stdbool.h>
#include <stddef.h>

typedef struct libaio_handle libaio_handle;

enum { LIBAIO_REQUESTS = 16 }; /* that may wait at a time */

/* Make a handle and start its thread. 0, or -1 with errno set. */
int libaio_handle_open(size_t block_bytes, unsigned depth, libaio_handle **out);

/* Wait for what is in flight and close. NULL is allowed. */
void libaio_handle_close(libaio_handle *handle);

/* Hand over the first `bytes` of a file, which are to be read or written. 0, or -1 with errno set when it cannot be opened. */
int libaio_handle_start(libaio_handle *handle, const char *path, void *buffer, size_t bytes, bool writes);

/* Wait until all that was handed over is done. 0, or -1 with errno set: of the first that failed. */
int libaio_handle_wait(libaio_handle *handle);

/* A page-aligned buffer locked in memory: of pages as they come, or asked to be huge. 0, or -1 with errno set. */
typedef struct libaio_buffer {
    void *base;
    size_t bytes;
    bool locked; /* RLIMIT_MEMLOCK may forbid it; the pages are there all the same */
} libaio_buffer;
int libaio_buffer_open(size_t bytes, bool huge, libaio_buffer *out);
void libaio_buffer_close(libaio_buffer *buffer);

#endif
