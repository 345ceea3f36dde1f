/* SPDX-License-Identifier: Apache-2.0 */
/* simd_plain_stores.h: plain stores in place of streaming ones, for instruction sets without them. Include it behind
 * v_store_*().
 *
 * A streaming store writes a whole register past the caches, to an address that is a multiple of the bytes it writes. One of 64
 * bytes, to an aligned line, is v_stream_line(). They are visible to other threads before any later work after v_stream_end().
 */
#ifndef ZOFF_SIMD_PLAIN_STORES_H
#define ZOFF_SIMD_PLAIN_STORES_H

ZOFF_KERNEL_INLINE bool v_streams(void)
{
    return false;
}

ZOFF_KERNEL_INLINE void v_stream(float *p, v_f x)
{
    v_store(p, x, v_lanes());
}

ZOFF_KERNEL_INLINE void v_stream_bf16(uint16_t *p, v_f x)
{
    v_store_bf16(p, x, v_lanes());
}

ZOFF_KERNEL_INLINE void v_stream_f16(uint16_t *p, v_f x)
{
    v_store_f16(p, x, v_lanes());
}

ZOFF_KERNEL_INLINE void v_stream_line(void *p, const void *line)
{
    __builtin_memcpy(p, line, 64);
}

ZOFF_KERNEL_INLINE void v_stream_end(void) {}

#endif
