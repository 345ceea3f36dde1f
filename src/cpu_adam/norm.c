/* norm.c: sums of squares of blocks over a list of pieces. The blocks and the tree inside a block are fixed, so the sums do not
 * depend on the team. The caller adds them up in the order of their index. */
#include "walk.h"

static void square_sum(const struct zoff_kernels *kernels, const void *ctx, const void *piece, size_t begin, size_t count)
{
    kernels->square_sum(piece, begin, count);
}

void zoff_adam_norm_run(unsigned threads, const zoff_norm_piece *pieces, size_t count, zoff_adam_between between, void *ctx)
{
    const zoff_adam_walk walk = {.pieces = pieces,
                                 .stride = sizeof *pieces,
                                 .count_at = offsetof(zoff_norm_piece, count),
                                 .count = count,
                                 .fn = square_sum,
                                 .between = between,
                                 .between_ctx = ctx};
    zoff_adam_walk_run(threads, &walk);
}
