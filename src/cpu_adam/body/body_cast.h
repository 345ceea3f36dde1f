/* body_cast.h: conversion between element types. Each is exact or rounds once: two 16-bit types meet in fp32, which holds
 * every value of both. */
#ifndef ZOFF_BODY_CAST_H
#define ZOFF_BODY_CAST_H

ZOFF_KERNEL_INLINE void cast_span(const zoff_cast_piece *piece, size_t begin, size_t count, zoff_dtype from, zoff_dtype to)
{
    void *dst = piece->dst;
    const void *src = piece->src;
    const size_t end = begin + count;
    size_t i = begin;
    for (; i + v_lanes() <= end; i += v_lanes())
        store_any(dst, i, load_any(src, i, v_lanes(), from), v_lanes(), to);
    if (i < end)
        store_any(dst, i, load_any(src, i, end - i, from), end - i, to);
}

static void kernel_cast(const zoff_cast_piece *piece, size_t begin, size_t count)
{
    const zoff_dtype from = piece->src_dtype, to = piece->dst_dtype;
    if (count == 0)
        return;
    if (from == to) { /* a copy, NaN and all */
        const size_t bytes = zoff_adam_dtype_bytes(to);
        __builtin_memmove((char *)piece->dst + begin * bytes, (const char *)piece->src + begin * bytes, count * bytes);
    } else if (from == ZOFF_F32 && to == ZOFF_BF16) {
        cast_span(piece, begin, count, ZOFF_F32, ZOFF_BF16);
    } else if (from == ZOFF_F32) {
        cast_span(piece, begin, count, ZOFF_F32, ZOFF_F16);
    } else if (from == ZOFF_BF16 && to == ZOFF_F32) {
        cast_span(piece, begin, count, ZOFF_BF16, ZOFF_F32);
    } else if (from == ZOFF_BF16) {
        cast_span(piece, begin, count, ZOFF_BF16, ZOFF_F16);
    } else if (to == ZOFF_F32) {
        cast_span(piece, begin, count, ZOFF_F16, ZOFF_F32);
    } else {
        cast_span(piece, begin, count, ZOFF_F16, ZOFF_BF16);
    }
}

#endif
