/* streams.h: the arrays that a benchmark walks over: huge pages, starts that do not fall on equal sets of the caches, and
 * ordinary numbers that no step spoils. */
#ifndef ZOFF_BENCH_STREAMS_H
#define ZOFF_BENCH_STREAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* One mapping out of which arrays are cut. */
typedef struct bench_streams {
    char *base;
    size_t bytes, used, cut;
} bench_streams;

/* Map room for `arrays` arrays of `bytes` in all, asked to be huge pages or ordinary ones. 0, or -1 with a message. */
int bench_streams_open(size_t bytes, unsigned arrays, bool huge, bench_streams *out);
void bench_streams_close(bench_streams *streams);
/* The next array: at a 2 MiB border plus 4 KiB for each array before it, so that no two start at the same place of a page
 * table or a cache. */
void *bench_streams_take(bench_streams *streams, size_t bytes);

/* Bytes of this process that are in huge pages. */
size_t bench_streams_huge_bytes(void);

/* Between -size and size, of both signs, another for each element. */
float bench_value(size_t i, float size);
/* To nearest even; x is no NaN. Inline: loops of rivals over them must be as fast as a compiler makes them. */
static inline uint16_t bench_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
static inline float bench_from_bf16(uint16_t half)
{
    const uint32_t bits = (uint32_t)half << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
/* Element i becomes bench_value(first + i, size). By a team of OpenMP, so that pages lie with their threads. */
void bench_fill_bf16(uint16_t *out, size_t count, size_t first, float size);
void bench_fill_float(float *out, size_t count, size_t first, float size);

#endif
