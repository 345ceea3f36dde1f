/* streams.h: the arrays that a benchmark walks over: huge pages, and starts that do not fall on equal sets of the caches. */
#ifndef ZOFF_BENCH_STREAMS_H
#define ZOFF_BENCH_STREAMS_H

#include <stddef.h>

/* One mapping out of which arrays are cut. */
typedef struct bench_streams {
    char *base;
    size_t bytes, used, cut;
} bench_streams;

/* Map room for `arrays` arrays of `bytes` in all, asked to be huge pages. 0, or -1 with errno set. */
int bench_streams_open(size_t bytes, unsigned arrays, bench_streams *out);
void bench_streams_close(bench_streams *streams);

/* The next array: at a 2 MiB border plus 4 KiB for each array before it, so that no two start at the same place of a page
 * table or a cache. NULL when the room is used up. */
void *bench_streams_take(bench_streams *streams, size_t bytes);

/* What a file below /proc/self tells of this process under `key`, in bytes; 0 where the system does not tell. */
size_t bench_streams_process_bytes(const char *path, const char *key);

/* Bytes of this process that are in huge pages. */
size_t bench_streams_huge_bytes(void);

#endif
