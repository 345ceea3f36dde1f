/* cast.c: element types converted over a list of pieces. */
#include "walk.h"

#include <string.h>

/* Add the lower halves to numbers that had only their upper halves. */
static void add(const zoff_cast_piece *piece, size_t begin, size_t count)
{
    const uint16_t *low = piece->low + begin;
    uint32_t *to = (uint32_t *)piece->dst + begin;
    for (size_t i = 0; i < count; i++)
        to[i] += low[i] - ((uint32_t)(low[i] & 0x8000u) << 1);
}

/* A bf16 number has no lower half. */
static void clear(const struct zoff_kernels *kernels, const zoff_cast_piece *piece, size_t begin, size_t count)
{
    memset(piece->low + begin, 0, count * sizeof *piece->low);
    if (piece->dst != piece->src)
        kernels->cast(piece, begin, count);
}

/* An fp16 number has bits that a bf16 one lacks, so it becomes an fp32 one first. */
static void split_f16(const struct zoff_kernels *kernels, const zoff_cast_piece *piece, size_t begin, size_t count)
{
    enum { BLOCK = 1024 };
    float numbers[BLOCK];
    for (size_t at = begin, now; at < begin + count; at += now) {
        const zoff_cast_piece widen = {
            .dst = numbers, .src = (const uint16_t *)piece->src + at, .dst_dtype = ZOFF_F32, .src_dtype = ZOFF_F16};
        const zoff_cast_piece halves = {.dst = (uint16_t *)piece->dst + at,
                                        .src = numbers,
                                        .dst_dtype = ZOFF_BF16,
                                        .src_dtype = ZOFF_F32,
                                        .low = piece->low + at};
        now = begin + count - at < BLOCK ? begin + count - at : BLOCK;
        kernels->cast(&widen, 0, now);
        kernels->cast(&halves, 0, now);
    }
}

static void cast(const struct zoff_kernels *kernels, const void *ctx, const void *pointer, size_t begin, size_t count)
{
    const zoff_cast_piece *piece = pointer;
    if (piece->low && piece->src_dtype == ZOFF_F16)
        split_f16(kernels, piece, begin, count);
    else if (!piece->low || piece->src_dtype != piece->dst_dtype)
        kernels->cast(piece, begin, count);
    else if (piece->src_dtype == ZOFF_F32)
        add(piece, begin, count);
    else
        clear(kernels, piece, begin, count);
}

void zoff_adam_cast_run(unsigned threads, const zoff_cast_piece *pieces, size_t count)
{
    const zoff_adam_walk walk = {
        .pieces = pieces, .stride = sizeof *pieces, .count_at = offsetof(zoff_cast_piece, count), .count = count, .fn = cast};
    zoff_adam_walk_run(threads, &walk);
}
