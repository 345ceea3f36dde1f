/* SPDX-License-Identifier: Apache-2.0 */
/* dither.h: the random bits with which states are rounded to 16 bits. Valid C and C++, because GPU kernels include it.
 *
 * An fp32 number is rounded up or down so that its mean is kept: 16 random bits are added behind the digits that stay, and the
 * rest is cut off. Rounding to the nearest would not work. A second moment with beta2 = 0.999 changes by less than half of
 * its last digit in a step, and so would never decay.
 *
 * The bits are a function of the parameter, its element and the step. So threads, chunks, tiers, ranks and instruction sets do
 * not change a bit of training, and a step that is taken again gives the same states:
 *
 *     lane(element % 1024) + the upper 16 of the 32 bits of block(key of the slice + element / 1024) + step * 0x9e3779b9
 *
 * all modulo 2^16. From step to step these go through all of the interval evenly. So over a thousand steps the share of those
 * that round up is within 1.5 % of what it should be, for each element. */
#ifndef ZOFF_CPU_ADAM_DITHER_H
#define ZOFF_CPU_ADAM_DITHER_H

#include "kernels.h"

/* The random bits of a block in a step, for each of the two moments. */
typedef struct zoff_dither {
    uint16_t m, v;
} zoff_dither;

/* The finalizer of MurmurHash3: every bit of `x` changes every bit of the result. */
ZOFF_KERNEL_INLINE uint32_t dither_mix(uint32_t x)
{
    x = (x ^ x >> 16) * 0x85ebca6bu;
    x = (x ^ x >> 13) * 0xc2b2ae35u;
    return x ^ x >> 16;
}

/* Lane `i` of a block, i < 1024. The two moments have different bits. */
ZOFF_KERNEL_INLINE uint16_t dither_lane_m(size_t i)
{
    return (uint16_t)(dither_mix((uint32_t)i + 1) >> 16);
}

ZOFF_KERNEL_INLINE uint16_t dither_lane_v(size_t i)
{
    return (uint16_t)(dither_mix((uint32_t)i + 1 + ZOFF_NORM_BLOCK) >> 16);
}

/* The random bits of a block in a step. `key` is that of the block; `step`: see zoff_adam_consts.dither. */
ZOFF_KERNEL_INLINE zoff_dither dither_block(uint64_t key, uint32_t step)
{
    const uint32_t low = dither_mix((uint32_t)key), high = dither_mix((uint32_t)(key >> 32) ^ low);
    zoff_dither d;
    d.m = (uint16_t)(((low ^ high) + step) >> 16);
    d.v = (uint16_t)((dither_mix(high) + step) >> 16);
    return d;
}

#endif
