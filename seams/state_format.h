/* state_format.h: how a state array is kept: fp32, 16 bits, or 8 bits with a scale for each block. Not implemented: see
 * README.md. */
#ifndef ZOFF_SEAMS_STATE_FORMAT_H
#define ZOFF_SEAMS_STATE_FORMAT_H

#include <zoff/engine.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Formats are pure functions of (values, seed, first element of the slice, step): threads, chunks, tiers, ranks and instruction
 * sets change no bit. Blocks are cut from the start of a slice, in multiples that divide ZOFF_NORM_BLOCK. */
typedef struct zoff_state_format {
    const char *name; /* as in zoff.master and zoff.moments */
    size_t block;     /* elements that share a scale; 1: none do */
    size_t (*bytes)(size_t count);
    /* `first`: number of the first element in its slice, a multiple of the block. */
    void (*encode)(void *to, const float *from, size_t first, size_t count, uint64_t seed, int64_t t);
    void (*decode)(float *to, const void *from, size_t first, size_t count);
} zoff_state_format;

#ifdef __cplusplus
}
#endif
#endif
