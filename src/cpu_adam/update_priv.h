/* SPDX-License-Identifier: Apache-2.0 */
/* update_priv.h: what update.c and step.c, the two entries of the step, share: lists that are cut into shares (walk.c), and
 * what an element costs. */
#ifndef ZOFF_CPU_ADAM_UPDATE_PRIV_H
#define ZOFF_CPU_ADAM_UPDATE_PRIV_H

#include "kernels.h"

/* ---- walk.c: the team works through a list of pieces, each thread on a contiguous share ---- */

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

/* ---- update.c ---- */

/* Bytes of an element of a type that was checked; the default is fp32. */
static inline size_t zoff_adam_update_width(zoff_dtype dtype)
{
    return dtype == ZOFF_BF16 || dtype == ZOFF_F16 ? sizeof(uint16_t) : sizeof(float);
}

/* Bytes of an element of m or v, without the headers of blocks. Inline, because it is called for each tensor. */
static inline size_t zoff_adam_update_moment_width(unsigned moments, zoff_moment which)
{
    if (moments == ZOFF_MOMENTS_F32)
        return sizeof(float);
    return moments == ZOFF_MOMENTS_Q8 || (moments == ZOFF_MOMENTS_M8V16 && which == ZOFF_MOMENT_M) ? 1 : sizeof(uint16_t);
}

/* Bytes that a step reads and writes for one element. It is called three times for each tensor. */
static inline size_t zoff_adam_update_bytes(zoff_dtype master, zoff_dtype grad, zoff_moments moments, zoff_adam_states states,
                                            bool copies, bool split)
{
    return 2 * zoff_adam_update_width(split ? ZOFF_F32 : master) + zoff_adam_update_width(grad) +
           2 * (states.m ? zoff_adam_update_moment_width(moments, ZOFF_MOMENT_M) : 0) +
           2 * (states.v ? zoff_adam_update_moment_width(moments, ZOFF_MOMENT_V) : 0) + (copies ? sizeof(uint16_t) : 0);
}

/* Bytes that a step reads and writes for one element of a piece. */
size_t zoff_adam_update_cost(const zoff_adam_piece *piece);

#endif
