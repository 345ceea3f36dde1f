/* body_accumulate.h: gradients of several micro-batches summed in fp32. */
#ifndef ZOFF_BODY_ACCUMULATE_H
#define ZOFF_BODY_ACCUMULATE_H

ZOFF_KERNEL_INLINE void accumulate_lanes(float *sum, const void *grad, size_t i, size_t left, zoff_dtype grads, bool first)
{
    const v_f g = load_any(grad, i, left, grads);
    v_store(sum + i, first ? g : v_add(v_load(sum + i, left), g), left);
}

ZOFF_KERNEL_INLINE void accumulate_span(const zoff_accumulate_piece *piece, size_t begin, size_t count, zoff_dtype grads,
                                        bool first)
{
    float *sum = piece->sum;
    const void *grad = piece->grad;
    const size_t end = begin + count;
    size_t i = begin;
    for (; i + v_lanes() <= end; i += v_lanes())
        accumulate_lanes(sum, grad, i, v_lanes(), grads, first);
    if (i < end)
        accumulate_lanes(sum, grad, i, end - i, grads, first);
}

ZOFF_KERNEL_INLINE void accumulate_by_order(const zoff_accumulate_piece *piece, size_t begin, size_t count, zoff_dtype grads)
{
    if (piece->first)
        accumulate_span(piece, begin, count, grads, true);
    else
        accumulate_span(piece, begin, count, grads, false);
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
