/* SPDX-License-Identifier: Apache-2.0 */
/* body_cast.h: conversion between element types. Each is exact or rounds once: two 16-bit types meet in fp32, which holds
 * every value of both. */
#ifndef ZOFF_BODY_CAST_H
#define ZOFF_BODY_CAST_H

/* Past the caches the destination is not read before it is written. A list of such casts must end with v_stream_end(). */
ZOFF_KERNEL_INLINE void cast_span(const zoff_cast_piece *piece, size_t begin, size_t count, zoff_dtype from, zoff_dtype to)
{
    void *dst = piece->dst;
    const void *src = piece->src;
    const size_t end = begin + count;
    size_t i = begin;
    if (piece->stream && v_streams()) {
        const size_t head = stream_head((char *)dst + i * width_of(to), count, to);
        if (head)
            store_any(dst, i, load_any(src, i, head, from), head, to);
        for (i += head; i + v_lanes() <= end; i += v_lanes())
            stream_any(dst, i, load_any(src, i, v_lanes(), from), to);
    }
    for (; i + v_lanes() <= end; i += v_lanes())
        store_any(dst, i, load_any(src, i, v_lanes(), from), v_lanes(), to);
    if (i < end)
        store_any(dst, i, load_any(src, i, end - i, from), end - i, to);
}

/* An fp32 number in two halves, see v_load_split(). */
ZOFF_KERNEL_INLINE void split_span(const zoff_cast_piece *piece, size_t begin, size_t count)
{
    const float *src = (const float *)piece->src;
    uint16_t *high = (uint16_t *)piece->dst;
    const size_t end = begin + count;
    size_t i = begin;
    for (; i + v_lanes() <= end; i += v_lanes())
        v_store_split(high + i, piece->low + i, v_load(src + i, v_lanes()), v_lanes(), false);
    if (i < end)
        v_store_split(high + i, piece->low + i, v_load(src + i, end - i), end - i, false);
}

ZOFF_KERNEL_INLINE void join_span(const zoff_cast_piece *piece, size_t begin, size_t count)
{
    const uint16_t *high = (const uint16_t *)piece->src;
    float *dst = (float *)piece->dst;
    const size_t end = begin + count;
    size_t i = begin;
    for (; i + v_lanes() <= end; i += v_lanes())
        v_store(dst + i, v_load_split(high + i, piece->low + i, v_lanes()), v_lanes());
    if (i < end)
        v_store(dst + i, v_load_split(high + i, piece->low + i, end - i), end - i);
}

/* A copy past the caches. The destination is not read before it is written. */
ZOFF_KERNEL_INLINE void copy_streaming(char *dst, const char *src, size_t bytes)
{
    enum { LINE = 64 };
    const size_t head = (0 - (uintptr_t)dst) % LINE;
    size_t i = head < bytes ? head : bytes;
    __builtin_memcpy(dst, src, i);
    for (; i + LINE <= bytes; i += LINE)
        v_stream_line(dst + i, src + i);
    __builtin_memcpy(dst + i, src + i, bytes - i);
}

static void cast_any(const zoff_cast_piece *piece, size_t begin, size_t count)
{
    const zoff_dtype from = piece->src_dtype, to = piece->dst_dtype;
    if (count == 0)
        return;
    if (from == to) { /* the types are the same, so copy every bit, NaN and all */
        const size_t bytes = zoff_adam_dtype_bytes(to);
        char *dst = (char *)piece->dst + begin * bytes;
        const char *src = (const char *)piece->src + begin * bytes;
        if (piece->stream)
            copy_streaming(dst, src, count * bytes);
        else
            __builtin_memmove(dst, src, count * bytes);
    } else if (piece->low && to == ZOFF_BF16) {
        split_span(piece, begin, count);
    } else if (piece->low) {
        join_span(piece, begin, count);
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

static void kernel_cast(const zoff_cast_piece *piece, size_t begin, size_t count)
{
    cast_any(piece, begin, count);
    if (piece->stream)
        v_stream_end();
}

#endif
