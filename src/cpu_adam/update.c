/* update.c: the step over a list of pieces. */
#include "update_priv.h"

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

static size_t cost(const void *ctx, const void *piece)
{
    return zoff_adam_update_cost(piece);
}

static void update(const struct zoff_kernels *kernels, const void *ctx, const void *piece, size_t begin, size_t count)
{
    kernels->update(piece, begin, count);
}

static void update_streaming(const struct zoff_kernels *kernels, const void *ctx, const void *piece, size_t begin, size_t count)
{
    zoff_adam_piece streaming = *(const zoff_adam_piece *)piece;
    streaming.stream = true;
    kernels->update(&streaming, begin, count);
}

void zoff_adam_update_run(unsigned threads, const zoff_adam_piece *pieces, size_t count, zoff_adam_between between, void *ctx)
{
    zoff_adam_walk walk = {.pieces = pieces,
                           .stride = sizeof *pieces,
                           .count_at = offsetof(zoff_adam_piece, count),
                           .count = count,
                           .fn = update,
                           .cost = cost,
                           .between = between,
                           .between_ctx = ctx};
    walk.total = zoff_adam_walk_total(&walk);
    if (zoff_adam_update_streams(walk.total))
        walk.fn = update_streaming;
    zoff_adam_walk_run(threads, &walk);
}
