/* SPDX-License-Identifier: Apache-2.0 */
/* expf.h: e^x as a short polynomial that compilers vectorize; relative error below 2e-7. */
#ifndef GPT_EXPF_H
#define GPT_EXPF_H

#include <stdint.h>
#include <string.h>

static inline float gpt_expf(float x)
{
    x = x < -87.0f ? -87.0f : x;
    x = x > 88.0f ? 88.0f : x;
    /* x = n * ln 2 + r with |r| <= ln 2 / 2. Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits. */
    const float shifted = x * 1.44269504f + 12582912.0f;
    const float n = shifted - 12582912.0f;
    const float r = (x - n * 0.693145752f) - n * 1.42860677e-6f; /* ln 2 in two parts; the low bits of the first are zero */
    float p = 1.0f / 5040.0f;
    p = p * r + 1.0f / 720.0f;
    p = p * r + 1.0f / 120.0f;
    p = p * r + 1.0f / 24.0f;
    p = p * r + 1.0f / 6.0f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    int32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (int32_t)(((uint32_t)bits + 127u) << 23); /* 2^n: all but the low 9 bits are shifted out */
    float power;
    memcpy(&power, &bits, sizeof power);
    return p * power;
}

#endif
