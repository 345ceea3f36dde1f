/* SPDX-License-Identifier: Apache-2.0 */
/* streams.h: the arrays of a benchmark: huge pages, starts that do not compete for the same cache sets, and ordinary numbers
 * that stay ordinary over many steps. */
#ifndef ZOFF_BENCH_STREAMS_H
#define ZOFF_BENCH_STREAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Map an array in huge pages, if the system gives them, or in ordinary ones. It starts at a multiple of 2 MiB plus 4 KiB for
 * each open array before it, so that no two start at the same place of a page table or a cache. It is unmapped at the end of
 * the part. */
void *bench_array(size_t bytes, bool huge);

/* Bytes of this process that are in huge pages. */
size_t bench_streams_huge_bytes(void);

/* A number between -size and size, of either sign, different for each element. */
float bench_value(size_t i, float size);
/* Round to nearest, ties away from zero; x is no NaN. Inline, so that rivals' loops over it are as fast as a compiler can make
 * them. */
static inline uint16_t bench_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)((bits + 0x8000u) >> 16);
}
static inline float bench_from_bf16(uint16_t half)
{
    const uint32_t bits = (uint32_t)half << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
/* Element i becomes bench_value(first + i, size). An OpenMP team writes them, so that pages lie near their threads. */
void bench_fill_bf16(uint16_t *out, size_t count, size_t first, float size);
void bench_fill_float(float *out, size_t count, size_t first, float size);

#endif
