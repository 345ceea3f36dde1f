/* SPDX-License-Identifier: Apache-2.0 */
/* simd_pairs_never.h: the part of the vocabulary that steps with 16-bit arrays do not use. Include it behind v_f. */
#ifndef ZOFF_SIMD_PAIRS_NEVER_H
#define ZOFF_SIMD_PAIRS_NEVER_H

/* The other types, which no step of this vocabulary has. */
#define NEVER(declaration, ...)                                                                                                \
    ZOFF_KERNEL_INLINE declaration                                                                                             \
    {                                                                                                                          \
        __VA_ARGS__;                                                                                                           \
        __builtin_unreachable();                                                                                               \
    }
NEVER(v_f v_load(const float *p, size_t left), (void)p, (void)left)
NEVER(v_f v_load_f16(const uint16_t *p, size_t left), (void)p, (void)left)
NEVER(void v_store(float *p, v_f x, size_t left), (void)p, (void)x, (void)left)
NEVER(void v_store_bf16(uint16_t *p, v_f x, size_t left), (void)p, (void)x, (void)left)
NEVER(void v_store_f16(uint16_t *p, v_f x, size_t left), (void)p, (void)x, (void)left)
NEVER(void v_stream(float *p, v_f x), (void)p, (void)x)
NEVER(void v_stream_bf16(uint16_t *p, v_f x), (void)p, (void)x)
NEVER(void v_stream_f16(uint16_t *p, v_f x), (void)p, (void)x)
#undef NEVER

ZOFF_KERNEL_INLINE bool v_streams(void)
{
    return false;
}

ZOFF_KERNEL_INLINE void v_stream_end(void) {}

#endif
