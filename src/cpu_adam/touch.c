/* SPDX-License-Identifier: Apache-2.0 */
/* touch.c: the first write to states: masters from the 16-bit weights, and zeros. Those are also the lower halves of split
 * masters. Each page is written by the thread that will update it. */
#include "update_priv.h"

enum { PAGE = 4096 };

static size_t cost_of(const void *ctx, const void *piece)
{
    return zoff_adam_update_cost(piece);
}

/* The memory is zero already, so writing one byte of each page is enough to place it on this thread's node. */
static void touch_pages(void *state, size_t first_byte, size_t bytes)
{
    volatile char *at = (char *)state + first_byte;
    const size_t into_page = (size_t)(uintptr_t)at % PAGE;
    for (size_t i = 0; i < bytes; i += i ? PAGE : PAGE - into_page)
        at[i] = 0;
}

static void touch_moment(void *state, const zoff_adam_piece *piece, zoff_moment which, size_t begin, size_t count)
{
    const zoff_moments moments = (zoff_moments)piece->moments;
    touch_pages(state, zoff_adam_moments_offset(moments, which, begin), zoff_adam_moments_size(moments, which, count));
}

static void touch(const struct zoff_kernels *kernels, const void *ctx, const void *pointer, size_t begin, size_t count)
{
    const zoff_adam_piece *piece = pointer;
    if (piece->copy_out && !piece->split) {
        const zoff_cast_piece cast = {.count = piece->count,
                                      .dst = piece->master,
                                      .src = piece->copy_out,
                                      .dst_dtype = ZOFF_F32,
                                      .src_dtype = piece->copy_dtype};
        kernels->cast(&cast, begin, count);
    }
    if (piece->split)
        touch_pages(piece->low, begin * sizeof *piece->low, count * sizeof *piece->low);
    if (piece->m)
        touch_moment(piece->m, piece, ZOFF_MOMENT_M, begin, count);
    if (piece->v)
        touch_moment(piece->v, piece, ZOFF_MOMENT_V, begin, count);
}

void zoff_adam_touch_run(unsigned threads, const zoff_adam_piece *pieces, size_t count)
{
    const zoff_adam_walk walk = {.pieces = pieces,
                                 .stride = sizeof *pieces,
                                 .count_at = offsetof(zoff_adam_piece, count),
                                 .count = count,
                                 .fn = touch,
                                 .cost = cost_of};
    zoff_adam_walk_run(threads, &walk);
}
