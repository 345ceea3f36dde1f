/* walk.h: a list of pieces worked through by the team, each thread a contiguous share. Private to the room. */
#ifndef ZOFF_CPU_ADAM_WALK_H
#define ZOFF_CPU_ADAM_WALK_H

#include "kernels.h"

/* Call one kernel of the table on elements [begin, begin + count) of a piece. */
typedef void (*zoff_adam_walk_fn)(const struct zoff_kernels *kernels, const void *piece, size_t begin, size_t count);

/* A list of pieces of one type; `size_t count` is the first member of each. */
typedef struct zoff_adam_walk {
    const void *pieces;
    size_t piece_bytes;
    size_t count;
    zoff_adam_walk_fn fn;
    zoff_adam_between between; /* or NULL */
    void *ctx;
} zoff_adam_walk;

/* Work through the list on `threads` threads. Shares are equal in elements and cut inside a piece at multiples of
 * ZOFF_NORM_BLOCK; the same list and team give each thread the same share. Little work stays on the calling thread. */
void zoff_adam_walk_run(unsigned threads, const zoff_adam_walk *walk);

/* Whether a list of `count` elements in all is worth a team. */
bool zoff_adam_walk_shares(size_t count);

#endif
