/* update_apart.c: the step over a list of pieces whose results go to another place. */
#include "update_priv.h"

static size_t cost(const void *ctx, const void *piece)
{
    return zoff_adam_update_cost(&((const zoff_adam_apart *)piece)->old);
}

static void update(const struct zoff_kernels *kernels, const void *ctx, const void *piece, size_t begin, size_t count)
{
    kernels->update_apart(piece, begin, count);
}

static void update_streaming(const struct zoff_kernels *kernels, const void *ctx, const void *piece, size_t begin, size_t count)
{
    zoff_adam_apart streaming = *(const zoff_adam_apart *)piece;
    streaming.old.stream = true;
    kernels->update_apart(&streaming, begin, count);
}

void zoff_adam_update_apart_run(unsigned threads, const zoff_adam_apart *pieces, size_t count, zoff_adam_between between,
                                void *ctx)
{
    zoff_adam_walk walk = {.pieces = pieces,
                           .stride = sizeof *pieces,
                           .count_at = offsetof(zoff_adam_apart, old.count),
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
