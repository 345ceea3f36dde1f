/* SPDX-License-Identifier: Apache-2.0 */
/* bf16.h: bf16 is the upper half of an fp32 number. Weights and gradients may have this type; all arithmetic is in fp32. */
#ifndef GPT_BF16_H
#define GPT_BF16_H

#include <stdint.h>
#include <string.h>

static inline float gpt_bf16_load(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Round to nearest, ties to even; a NaN stays a NaN. */
static inline uint16_t gpt_bf16_round(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded);
}

#endif
