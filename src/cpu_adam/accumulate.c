/* accumulate.c: gradient accumulation over a list of pieces. */
#include "walk.h"

_Static_assert(offsetof(zoff_accumulate_piece, count) == 0, "the walk reads the count of a piece at its start");

static void accumulate(const struct zoff_kernels *kernels, const void *piece, size_t begin, size_t count)
{
    kernels->accumulate(piece, begin, count);
}

void zoff_adam_accumulate_run(unsigned threads, const zoff_accumulate_piece *pieces, size_t count, zoff_adam_between between,
                              void *ctx)
{
    const zoff_adam_walk walk = {
        .pieces = pieces, .piece_bytes = sizeof *pieces, .count = count, .fn = accumulate, .between = between, .ctx = ctx};
    zoff_adam_walk_run(threads, &walk);
}
