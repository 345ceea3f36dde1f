/* SPDX-License-Identifier: Apache-2.0 */
/* update.c: the kernels over lists of pieces: a step in place or to another place, sums of squares, accumulation, exact sums,
 * and casts. */
#include "update_priv.h"

#include <string.h>

/* The fields of a walk over `pieces`, of which each has its number of elements in `count_field`. */
#define LIST(type, count_field)                                                                                                \
    .pieces = pieces, .stride = sizeof(type), .count_at = offsetof(type, count_field), .count = count

enum {
    /* Bytes of a list from which copies are written past the caches. Such a list exceeds what the caches would keep until the
     * next read, and a streaming store saves reading each line before it is overwritten. */
    STREAM_FROM = 64 << 20
};

size_t zoff_adam_update_cost(const zoff_adam_piece *piece)
{
    const zoff_adam_states states = {.m = piece->m, .v = piece->v};
    return zoff_adam_update_bytes(piece->master_dtype, piece->grad_dtype, (zoff_moments)piece->moments, states,
                                  !piece->split && piece->copy_out, piece->split);
}

bool zoff_adam_update_streams(size_t bytes)
{
    return bytes >= STREAM_FROM;
}

static size_t cost_of(const void *ctx, const void *piece)
{
    return zoff_adam_update_cost(piece);
}

static void update_piece(const struct zoff_kernels *kernels, const void *ctx, const void *piece, size_t begin, size_t count)
{
    kernels->update(piece, begin, count);
}

static void update_streaming(const struct zoff_kernels *kernels, const void *ctx, const void *piece, size_t begin, size_t count)
{
    zoff_adam_piece streaming = *(const zoff_adam_piece *)piece;
    streaming.stream = true;
    kernels->update(&streaming, begin, count);
}

/* Results of a large list go past the caches. */
static void run_update(unsigned threads, zoff_adam_walk *walk, zoff_adam_walk_fn streaming, zoff_adam_between between,
                       void *ctx)
{
    walk->between = between;
    walk->between_ctx = ctx;
    walk->total = zoff_adam_walk_total(walk);
    if (zoff_adam_update_streams(walk->total))
        walk->fn = streaming;
    zoff_adam_walk_run(threads, walk);
}

void zoff_adam_update_run(unsigned threads, const zoff_adam_piece *pieces, size_t count, zoff_adam_between between, void *ctx)
{
    zoff_adam_walk walk = {LIST(zoff_adam_piece, count), .fn = update_piece, .cost = cost_of};
    run_update(threads, &walk, update_streaming, between, ctx);
}

/* ---- a step to another place ---- */

static size_t apart_cost(const void *ctx, const void *piece)
{
    return zoff_adam_update_cost(&((const zoff_adam_apart *)piece)->old);
}

static void update_apart(const struct zoff_kernels *kernels, const void *ctx, const void *piece, size_t begin, size_t count)
{
    kernels->update_apart(piece, begin, count);
}

static void update_apart_streaming(const struct zoff_kernels *kernels, const void *ctx, const void *piece, size_t begin,
                                   size_t count)
{
    zoff_adam_apart streaming = *(const zoff_adam_apart *)piece;
    streaming.old.stream = true;
    kernels->update_apart(&streaming, begin, count);
}

void zoff_adam_update_apart_run(unsigned threads, const zoff_adam_apart *pieces, size_t count, zoff_adam_between between,
                                void *ctx)
{
    zoff_adam_walk walk = {LIST(zoff_adam_apart, old.count), .fn = update_apart, .cost = apart_cost};
    run_update(threads, &walk, update_apart_streaming, between, ctx);
}

/* ---- sums of squares: the blocks and the tree inside a block are fixed, so the sums do not depend on the team. The caller
 * adds them up in the order of their index. ---- */

static void square_sum(const struct zoff_kernels *kernels, const void *ctx, const void *piece, size_t begin, size_t count)
{
    kernels->square_sum(piece, begin, count);
}

void zoff_adam_norm_run(unsigned threads, const zoff_norm_piece *pieces, size_t count, zoff_adam_between between, void *ctx)
{
    const zoff_adam_walk walk = {LIST(zoff_norm_piece, count), .fn = square_sum, .between = between, .between_ctx = ctx};
    zoff_adam_walk_run(threads, &walk);
}

/* ---- accumulation ---- */

static void accumulate_piece(const struct zoff_kernels *kernels, const void *ctx, const void *piece, size_t begin, size_t count)
{
    kernels->accumulate(piece, begin, count);
}

void zoff_adam_accumulate_run(unsigned threads, const zoff_accumulate_piece *pieces, size_t count, zoff_adam_between between,
                              void *ctx)
{
    const zoff_adam_walk walk = {LIST(zoff_accumulate_piece, count), .fn = accumulate_piece, .between = between,
                                 .between_ctx = ctx};
    zoff_adam_walk_run(threads, &walk);
}

/* ---- exact sums ---- */

static size_t bins_cost(const void *ctx, const void *pointer)
{
    const zoff_bins_piece *piece = pointer;
    size_t bytes = piece->sources * zoff_adam_update_width(piece->dtype) + 2 * piece->to.width + sizeof(float);
    for (size_t i = 0; i < piece->part_count; i++)
        bytes += 2 * piece->parts[i].width + 1;
    return bytes;
}

static void add_bins(const struct zoff_kernels *kernels, const void *ctx, const void *piece, size_t begin, size_t count)
{
    kernels->bins(piece, begin, count);
}

void zoff_adam_bins_run(unsigned threads, const zoff_bins_piece *pieces, size_t count, zoff_adam_between between, void *ctx)
{
    const zoff_adam_walk walk = {LIST(zoff_bins_piece, count), .fn = add_bins, .cost = bins_cost, .between = between,
                                 .between_ctx = ctx};
    zoff_adam_walk_run(threads, &walk);
}

/* ---- casts ---- */

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
    const zoff_adam_walk walk = {LIST(zoff_cast_piece, count), .fn = cast};
    zoff_adam_walk_run(threads, &walk);
}
