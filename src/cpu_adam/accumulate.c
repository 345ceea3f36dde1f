/* accumulate.c: gradient accumulation over a list of pieces. */
#include "walk.h"

static void accumulate(const struct zoff_kernels *kernels, const void *ctx, const void *piece, size_t begin, size_t count)
{
    kernels->accumulate(piece, begin, count);
}

void zoff_adam_accumulate_run(unsigned threads, const zoff_accumulate_piece *pieces, size_t count, zoff_adam_between between,
                              void *ctx)
{
    const zoff_adam_walk walk = {.pieces = pieces,
                                 .stride = sizeof *pieces,
                                 .count_at = offsetof(zoff_accumulate_piece, count),
                                 .count = count,
                                 .fn = accumulate,
                                 .between = between,
                                 .between_ctx = ctx};
    zoff_adam_walk_run(threads, &walk);
}
