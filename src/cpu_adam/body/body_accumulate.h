/* body_accumulate.h: gradients of several micro-batches summed in fp32. */
#ifndef ZOFF_BODY_ACCUMULATE_H
#define ZOFF_BODY_ACCUMULATE_H

ZOFF_KERNEL_INLINE void accumulate_lanes(float *sum, const void *grad, size_t i, size_t left, bool grad16, bool first)
{
    v_f g = grad16 ? v_load_bf16((const uint16_t *)grad + i, left) : v_load((const float *)grad + i, left);
    v_store(sum + i, first ? g : v_add(v_load(sum + i, left), g), left);
}

ZOFF_KERNEL_INLINE void accumulate_span(const zoff_accumulate_piece *piece, size_t begin, size_t count, bool grad16, bool first)
{
    float *sum = piece->sum;
    const void *grad = piece->grad;
    const size_t end = begin + count;
    size_t i = begin;
    for (; i + v_lanes() <= end; i += v_lanes())
        accumulate_lanes(sum, grad, i, v_lanes(), grad16, first);
    if (i < end)
        accumulate_lanes(sum, grad, i, end - i, grad16, first);
}

static void kernel_accumulate(const zoff_accumulate_piece *piece, size_t begin, size_t count)
{
    if (piece->dtype == ZOFF_BF16 && piece->first)
        accumulate_span(piece, begin, count, true, true);
    else if (piece->dtype == ZOFF_BF16)
        accumulate_span(piece, begin, count, true, false);
    else if (piece->first)
        accumulate_span(piece, begin, count, false, true);
    else
        accumulate_span(piece, begin, count, false, false);
}

#endif
