/* update_priv.h: what update.c and step.c, the two entries of the step, share. */
#ifndef ZOFF_CPU_ADAM_UPDATE_PRIV_H
#define ZOFF_CPU_ADAM_UPDATE_PRIV_H

#include "walk.h"

/* Bytes of an element of a type that was checked; the default is fp32. */
static inline size_t zoff_adam_update_width(zoff_dtype dtype)
{
    return dtype == ZOFF_BF16 || dtype == ZOFF_F16 ? sizeof(uint16_t) : sizeof(float);
}

/* Bytes of an element of m or v. It is called as often, so it is inline; other rooms call zoff_adam_moments_bytes(). */
static inline size_t zoff_adam_update_moment_width(unsigned moments)
{
    return moments == ZOFF_MOMENTS_BF16 ? sizeof(uint16_t) : sizeof(float);
}

/* Bytes that a step reads and writes for one element. It is called three times for each tensor. */
static inline size_t zoff_adam_update_bytes(zoff_dtype master, zoff_dtype grad, zoff_moments moments, zoff_adam_states states,
                                            bool copies, bool split)
{
    return 2 * zoff_adam_update_width(split ? ZOFF_F32 : master) + zoff_adam_update_width(grad) +
           2 * zoff_adam_update_moment_width(moments) * ((size_t)states.m + states.v) + (copies ? sizeof(uint16_t) : 0);
}

/* The same for a piece. */
size_t zoff_adam_update_cost(const zoff_adam_piece *piece);

/* Whether a list with this many bytes writes its copies past the caches. */
bool zoff_adam_update_streams(size_t bytes);

#endif
