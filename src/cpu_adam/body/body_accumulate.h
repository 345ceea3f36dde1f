/* SPDX-License-Identifier: Apache-2.0 */
/* body_accumulate.h: a sum of gradients over a span of elements. */
#ifndef ZOFF_BODY_ACCUMULATE_H
#define ZOFF_BODY_ACCUMULATE_H

ZOFF_KERNEL_INLINE void accumulate_span(const zoff_accumulate_piece *piece, size_t begin, size_t count, zoff_dtype grads,
                                        bool first, bool weighted)
{
    const size_t end = begin + count;
    size_t i = begin;
    for (; i + v_lanes() <= end; i += v_lanes())
        accumulate_lanes(piece, i, v_lanes(), grads, first, weighted);
    if (i < end)
        accumulate_lanes(piece, i, end - i, grads, first, weighted);
}

ZOFF_KERNEL_INLINE void accumulate_by_order(const zoff_accumulate_piece *piece, size_t begin, size_t count, zoff_dtype grads)
{
    if (piece->weights && piece->first)
        accumulate_span(piece, begin, count, grads, true, true);
    else if (piece->weights)
        accumulate_span(piece, begin, count, grads, false, true);
    else if (piece->first)
        accumulate_span(piece, begin, count, grads, true, false);
    else
        accumulate_span(piece, begin, count, grads, false, false);
}

static void kernel_accumulate(const zoff_accumulate_piece *piece, size_t begin, size_t count)
{
    if (piece->dtype == ZOFF_BF16)
        accumulate_by_order(piece, begin, count, ZOFF_BF16);
    else if (piece->dtype == ZOFF_F16)
        accumulate_by_order(piece, begin, count, ZOFF_F16);
    else
        accumulate_by_order(piece, begin, count, ZOFF_F32);
}

#endif
