/* walk.h: the team works through a list of pieces, each thread on a contiguous share. Private to the room. */
#ifndef ZOFF_CPU_ADAM_WALK_H
#define ZOFF_CPU_ADAM_WALK_H

#include "kernels.h"

/* Call one kernel of the table on elements [begin, begin + count) of a piece. */
typedef void (*zoff_adam_walk_fn)(const struct zoff_kernels *kernels, const void *ctx, const void *piece, size_t begin,
                                  size_t count);

/* Cost of an element of a piece: bytes read and written, over all its arrays. */
typedef size_t (*zoff_adam_walk_cost)(const void *ctx, const void *piece);

/* A list of pieces of one type. */
typedef struct zoff_adam_walk {
    const void *pieces;
    size_t stride;   /* bytes from one piece to the next */
    size_t count_at; /* offset in a piece of its `size_t count` of elements */
    size_t count;
    zoff_adam_walk_fn fn;
    zoff_adam_walk_cost cost;  /* NULL: each element costs 1 */
    const void *fn_ctx;        /* context of fn and cost */
    size_t total;              /* result of zoff_adam_walk_total(); 0: not known yet */
    zoff_adam_between between; /* called on thread 0 now and then; may be NULL */
    void *between_ctx;
} zoff_adam_walk;

/* Work through the list on `threads` threads. Shares have equal cost, and cuts inside a piece are at multiples of
 * ZOFF_NORM_BLOCK. The same list and team give each thread the same share, except that little work may stay on the calling
 * thread. */
void zoff_adam_walk_run(unsigned threads, const zoff_adam_walk *walk);

/* Cost of the whole list; its elements if there is no cost function. */
size_t zoff_adam_walk_total(const zoff_adam_walk *walk);

#endif
