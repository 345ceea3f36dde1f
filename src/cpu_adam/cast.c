/* cast.c: element types converted over a list of pieces. */
#include "walk.h"

static void cast(const struct zoff_kernels *kernels, const void *ctx, const void *piece, size_t begin, size_t count)
{
    (void)ctx;
    kernels->cast(piece, begin, count);
}

void zoff_adam_cast_run(unsigned threads, const zoff_cast_piece *pieces, size_t count)
{
    const zoff_adam_walk walk = {
        .pieces = pieces, .stride = sizeof *pieces, .count_at = offsetof(zoff_cast_piece, count), .count = count, .fn = cast};
    zoff_adam_walk_run(threads, &walk);
}
