/* update.c: the Adam step over a list of pieces. */
#include "walk.h"

_Static_assert(offsetof(zoff_adam_piece, count) == 0, "the walk reads the count of a piece at its start");

static void update(const struct zoff_kernels *kernels, const void *piece, size_t begin, size_t count)
{
    kernels->adam(piece, begin, count);
}

void zoff_adam_update_run(unsigned threads, const zoff_adam_piece *pieces, size_t count, zoff_adam_between between, void *ctx)
{
    const zoff_adam_walk walk = {
        .pieces = pieces, .piece_bytes = sizeof *pieces, .count = count, .fn = update, .between = between, .ctx = ctx};
    zoff_adam_walk_run(threads, &walk);
}
