/* cast.c: element types converted over a list of pieces. */
#include "walk.h"

_Static_assert(offsetof(zoff_cast_piece, count) == 0, "the walk reads the count of a piece at its start");

static void cast(const struct zoff_kernels *kernels, const void *piece, size_t begin, size_t count)
{
    kernels->cast(piece, begin, count);
}

void zoff_adam_cast_run(unsigned threads, const zoff_cast_piece *pieces, size_t count)
{
    const zoff_adam_walk walk = {.pieces = pieces, .piece_bytes = sizeof *pieces, .count = count, .fn = cast};
    zoff_adam_walk_run(threads, &walk);
}
