/* SPDX-License-Identifier: Apache-2.0 */
/* body_types.h: load and store one register of elements of any type. The type is a constant of the caller, so no branch
 * remains. */
#ifndef ZOFF_BODY_TYPES_H
#define ZOFF_BODY_TYPES_H

ZOFF_KERNEL_INLINE v_f load_any(const void *p, size_t i, size_t left, zoff_dtype dtype)
{
    return dtype == ZOFF_BF16  ? v_load_bf16((const uint16_t *)p + i, left)
           : dtype == ZOFF_F16 ? v_load_f16((const uint16_t *)p + i, left)
                               : v_load((const float *)p + i, left);
}

ZOFF_KERNEL_INLINE void store_any(void *p, size_t i, v_f x, size_t left, zoff_dtype dtype)
{
    if (dtype == ZOFF_BF16)
        v_store_bf16((uint16_t *)p + i, x, left);
    else if (dtype == ZOFF_F16)
        v_store_f16((uint16_t *)p + i, x, left);
    else
        v_store((float *)p + i, x, left);
}

/* How a moment is stored. Moments in 8 bits are multiples of the scale of their block, see q8.h. */
typedef enum state_form { STATE_F32, STATE_BF16, STATE_M8, STATE_V8 } state_form;

ZOFF_KERNEL_INLINE state_form state_form_m(zoff_moments moments)
{
    return moments == ZOFF_MOMENTS_F32 ? STATE_F32 : moments == ZOFF_MOMENTS_BF16 ? STATE_BF16 : STATE_M8;
}

ZOFF_KERNEL_INLINE state_form state_form_v(zoff_moments moments)
{
    return moments == ZOFF_MOMENTS_F32 ? STATE_F32 : moments == ZOFF_MOMENTS_Q8 ? STATE_V8 : STATE_BF16;
}

/* A state in fp32 or bf16. */
ZOFF_KERNEL_INLINE v_f load_state(const void *p, size_t i, size_t left, state_form form)
{
    return form == STATE_BF16 ? v_load_bf16((const uint16_t *)p + i, left) : v_load((const float *)p + i, left);
}

/* keep * a state */
ZOFF_KERNEL_INLINE v_f load_kept(const void *p, size_t i, size_t left, state_form form, float keep)
{
    return form == STATE_M8 || form == STATE_V8 ? v_load_code((const uint8_t *)p + i, left, form == STATE_M8, keep)
                                                : v_mul(v_set1(keep), load_state(p, i, left, form));
}

/* Store a state, rounded with the random bits of `lanes` and `key`; see dither.h. `ordered`: no number is NaN. */
ZOFF_KERNEL_INLINE void store_state(void *p, size_t i, v_f x, const uint16_t *lanes, uint16_t key, size_t left, state_form form,
                                    bool ordered)
{
    if (form == STATE_F32)
        v_store((float *)p + i, x, left);
    else if (form == STATE_BF16)
        v_store_bf16_dithered((uint16_t *)p + i, x, lanes, key, left, ordered);
    else
        v_store_code_dithered((uint8_t *)p + i, x, lanes, key, left, form == STATE_M8);
}

/* Store past the caches: a whole register, whose address is a multiple of its size. */
ZOFF_KERNEL_INLINE void stream_any(void *p, size_t i, v_f x, zoff_dtype dtype)
{
    if (dtype == ZOFF_BF16)
        v_stream_bf16((uint16_t *)p + i, x);
    else if (dtype == ZOFF_F16)
        v_stream_f16((uint16_t *)p + i, x);
    else
        v_stream((float *)p + i, x);
}

/* Bytes of an element. */
ZOFF_KERNEL_INLINE size_t width_of(zoff_dtype dtype)
{
    return dtype == ZOFF_BF16 || dtype == ZOFF_F16 ? sizeof(uint16_t) : sizeof(float);
}

/* Elements from `p` to the first address where stream_any() may begin. */
ZOFF_KERNEL_INLINE size_t stream_head(const void *p, size_t count, zoff_dtype dtype)
{
    const size_t width = width_of(dtype), head = (0 - (uintptr_t)p) % (v_lanes() * width) / width;
    return head < count ? head : count;
}

#endif
