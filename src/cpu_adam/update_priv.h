/* update_priv.h: what update.c and step.c, the two entries of the step, share. */
#ifndef ZOFF_CPU_ADAM_UPDATE_PRIV_H
#define ZOFF_CPU_ADAM_UPDATE_PRIV_H

#include "walk.h"

/* Bytes of an element of a type that was checked; the default is fp32. */
static inline size_t zoff_adam_update_width(zoff_dtype dtype)
{
    return dtype == ZOFF_BF16 || dtype == ZOFF_F16 ? sizeof(uint16_t) : sizeof(float);
}

/* Bytes of an element of m or v, without the headers of blocks. Inline, because it is called for each tensor. */
static inline size_t zoff_adam_update_moment_width(unsigned moments, zoff_moment which)
{
    if (moments == ZOFF_MOMENTS_F32)
        return sizeof(float);
    return moments == ZOFF_MOMENTS_Q8 || (moments == ZOFF_MOMENTS_M8V16 && which == ZOFF_MOMENT_M) ? 1 : sizeof(uint16_t);
}

/* Bytes that a step reads and writes for one element. It is called three times for each tensor. */
static inline size_t zoff_adam_update_bytes(zoff_dtype master, zoff_dtype grad, zoff_moments moments, zoff_adam_states states,
                                            bool copies, bool split)
{
    return 2 * zoff_adam_update_width(split ? ZOFF_F32 : master) + zoff_adam_update_width(grad) +
           2 * (states.m ? zoff_adam_update_moment_width(moments, ZOFF_MOMENT_M) : 0) +
           2 * (states.v ? zoff_adam_update_moment_width(moments, ZOFF_MOMENT_V) : 0) + (copies ? sizeof(uint16_t) : 0);
}

/* Bytes that a step reads and writes for one element of a piece. */
size_t zoff_adam_update_cost(const zoff_adam_piece *piece);

#endif
