/* SPDX-License-Identifier: Apache-2.0 */
/* body_norm.h: sums of squares of blocks. A sum is finite exactly if all elements are: the square of an fp32 value is exact in
 * fp64, and 1024 of the largest do not overflow there. */
#ifndef ZOFF_BODY_NORM_H
#define ZOFF_BODY_NORM_H

ZOFF_KERNEL_INLINE v_sum square_sum_lanes(v_sum sum, const void *grad, size_t i, size_t left, zoff_dtype grads)
{
    return grads == ZOFF_BF16  ? v_sum_squares_bf16(sum, (const uint16_t *)grad + i, left)
           : grads == ZOFF_F16 ? v_sum_squares_f16(sum, (const uint16_t *)grad + i, left)
                               : v_sum_squares(sum, (const float *)grad + i, left);
}

/* Fetch what the loop reads a block later. One stream alone, read by one core, waits for memory in the same time in which it
 * computes: the prefetchers of CPUs are not far enough ahead. Bytes behind the array may be fetched, too, because a prefetch is
 * no access. */
ZOFF_KERNEL_INLINE void square_sum_prefetch(const void *grad, size_t i, zoff_dtype grads)
{
    __builtin_prefetch((const void *)((uintptr_t)grad + (i + ZOFF_NORM_BLOCK) * width_of(grads)));
}

ZOFF_KERNEL_INLINE void square_sum_span(const zoff_norm_piece *piece, size_t begin, size_t count, zoff_dtype grads)
{
    const size_t end = begin + count;
    for (size_t block = begin / ZOFF_NORM_BLOCK; block * ZOFF_NORM_BLOCK < end; block++) {
        size_t i = block * ZOFF_NORM_BLOCK;
        const size_t stop = end - i > ZOFF_NORM_BLOCK ? i + ZOFF_NORM_BLOCK : end;
        v_sum sum = v_sum_zero();
        for (; i + ZOFF_ADAM_SUM_LANES <= stop; i += ZOFF_ADAM_SUM_LANES) {
            square_sum_prefetch(piece->grad, i, grads);
            sum = square_sum_lanes(sum, piece->grad, i, ZOFF_ADAM_SUM_LANES, grads);
        }
        if (i < stop)
            sum = square_sum_lanes(sum, piece->grad, i, stop - i, grads);
        piece->block_sums[block] = v_sum_total(sum);
    }
}

static void kernel_square_sum(const zoff_norm_piece *piece, size_t begin, size_t count)
{
    if (piece->dtype == ZOFF_BF16)
        square_sum_span(piece, begin, count, ZOFF_BF16);
    else if (piece->dtype == ZOFF_F16)
        square_sum_span(piece, begin, count, ZOFF_F16);
    else
        square_sum_span(piece, begin, count, ZOFF_F32);
}

#endif
