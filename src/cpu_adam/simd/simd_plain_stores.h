/* simd_plain_stores.h: the streaming part of the vocabulary where an instruction set has no such stores: plain ones. Included
 * by the vocabularies of those, behind their v_store_*().
 *
 * Streaming stores: a whole register to 16-bit elements, past the caches. Where an instruction set has them, v_stream_bytes()
 * is the alignment that they need, and v_stream_end() makes them visible to other threads before whatever follows. */
#ifndef ZOFF_SIMD_PLAIN_STORES_H
#define ZOFF_SIMD_PLAIN_STORES_H

ZOFF_KERNEL_INLINE size_t v_stream_bytes(void)
{
    return 0;
}

ZOFF_KERNEL_INLINE void v_stream_bf16(uint16_t *p, v_f x)
{
    v_store_bf16(p, x, v_lanes());
}

ZOFF_KERNEL_INLINE void v_stream_f16(uint16_t *p, v_f x)
{
    v_store_f16(p, x, v_lanes());
}

ZOFF_KERNEL_INLINE void v_stream_end(void) {}

#endif
