/* body_accumulate.h: gradients of several micro-batches summed in fp32, each multiplied by its weight in the same operation. */
#ifndef ZOFF_BODY_ACCUMULATE_H
#define ZOFF_BODY_ACCUMULATE_H

ZOFF_KERNEL_INLINE v_f accumulate_one(v_f sum, v_f g, const float *weight, bool first)
{
    if (!weight)
        return first ? g : v_add(sum, g);
    return first ? v_mul(v_set1(*weight), g) : v_fma(v_set1(*weight), g, sum);
}

ZOFF_KERNEL_INLINE void accumulate_lanes(const zoff_accumulate_piece *piece, size_t i, size_t left, zoff_dtype grads,
                                         bool first, bool weighted)
{
    const char *grad = piece->grad;
    v_f sum = first ? v_set1(0) : v_load(piece->sum + i, left);
    sum = accumulate_one(sum, load_any(grad, i, left, grads), weighted ? piece->weights : NULL, first);
    for (size_t source = 1; source < piece->sources; source++) {
        const v_f g = load_any(grad + source * piece->stride, i, left, grads);
        sum = accumulate_one(sum, g, weighted ? piece->weights + source : NULL, false);
    }
    v_store(piece->sum + i, sum, left);
}

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
