/* body_cast.h: element types converted. The same type on both sides is a copy, bit for bit, NaN and all. */
#ifndef ZOFF_BODY_CAST_H
#define ZOFF_BODY_CAST_H

ZOFF_KERNEL_INLINE void cast_lanes(void *dst, const void *src, size_t i, size_t left, bool down)
{
    if (down)
        v_store_bf16((uint16_t *)dst + i, v_load((const float *)src + i, left), left);
    else
        v_store((float *)dst + i, v_load_bf16((const uint16_t *)src + i, left), left);
}

ZOFF_KERNEL_INLINE void cast_span(void *dst, const void *src, size_t begin, size_t count, bool down)
{
    const size_t end = begin + count;
    size_t i = begin;
    for (; i + v_lanes() <= end; i += v_lanes())
        cast_lanes(dst, src, i, v_lanes(), down);
    if (i < end)
        cast_lanes(dst, src, i, end - i, down);
}

static void kernel_cast(const zoff_cast_piece *piece, size_t begin, size_t count)
{
    if (count == 0)
        return;
    if (piece->dst_dtype == piece->src_dtype) {
        size_t bytes = zoff_adam_dtype_bytes(piece->dst_dtype);
        __builtin_memmove((char *)piece->dst + begin * bytes, (const char *)piece->src + begin * bytes, count * bytes);
    } else if (piece->dst_dtype == ZOFF_BF16) {
        cast_span(piece->dst, piece->src, begin, count, true);
    } else {
        cast_span(piece->dst, piece->src, begin, count, false);
    }
}

#endif
