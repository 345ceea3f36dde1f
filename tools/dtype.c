/* SPDX-License-Identifier: Apache-2.0 */
/* dtype.c: names of element types, and rounding from fp32 to fp16 and bf16 with integers alone. */
#include "dtype.h"

#include <string.h>

static const struct {
    const char *name;
    zoff_dtype dtype;
} TYPES[] = {{"bf16", ZOFF_BF16}, {"fp16", ZOFF_F16}, {"fp32", ZOFF_F32}};
enum { TYPE_COUNT = sizeof TYPES / sizeof TYPES[0] };

const char *dtype_name(zoff_dtype dtype)
{
    for (size_t i = 0; i < TYPE_COUNT; i++) {
        if (TYPES[i].dtype == dtype)
            return TYPES[i].name;
    }
    return "unknown";
}

size_t dtype_bytes(zoff_dtype dtype)
{
    return dtype == ZOFF_F32 ? 4 : 2;
}

zoff_dtype dtype_of(const char *name)
{
    for (size_t i = 0; i < TYPE_COUNT; i++) {
        if (strcmp(TYPES[i].name, name) == 0)
            return TYPES[i].dtype;
    }
    return ZOFF_DTYPE_DEFAULT;
}

/* Drop the last `bits` bits of a number, rounding to nearest even. A carry of the fraction moves into the exponent. */
static uint32_t drop_bits(uint32_t number, unsigned bits)
{
    const uint32_t is_odd = number >> bits & 1;
    return (number + (1u << (bits - 1)) - 1 + is_odd) >> bits;
}

static uint16_t bf16_of(uint32_t bits)
{
    return (bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0 : (uint16_t)((bits + 0x8000u) >> 16);
}

static uint16_t fp16_of(uint32_t bits)
{
    const uint32_t sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu, exponent = size >> 23;
    if (size > 0x7f800000u)
        return 0x7e00;
    if (exponent >= 143) /* 65536 and more */
        return (uint16_t)(sign | 0x7c00u);
    if (exponent >= 113) /* from 2^-14 on a normal number, where a carry from 65520 on gives the bits of infinity */
        return (uint16_t)(sign | drop_bits(size - (112u << 23), 13));
    if (exponent < 102) /* less than half of the least subnormal number, 2^-24, is 0 */
        return (uint16_t)sign;
    const uint32_t fraction = (size & 0x7fffffu) | 0x800000u; /* fraction in units of 2^(exponent - 150) */
    return (uint16_t)(sign | drop_bits(fraction, 126 - exponent));
}

void dtype_round(zoff_dtype to, const float *src, size_t count, void *dst)
{
    if (to == ZOFF_F32) {
        memcpy(dst, src, count * sizeof *src);
        return;
    }
    uint16_t *half = dst;
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, src + i, sizeof bits);
        half[i] = to == ZOFF_BF16 ? bf16_of(bits) : fp16_of(bits);
    }
}

static uint32_t widen_fp16(uint16_t half)
{
    const uint32_t sign = (half & 0x8000u) << 16, exponent = half >> 10 & 31u, fraction = half & 0x3ffu;
    const float subnormal = (float)fraction / 16777216; /* a multiple of 2^-24, which is a normal number in fp32 */
    uint32_t bits;
    memcpy(&bits, &subnormal, sizeof bits);
    if (exponent == 31)
        bits = 0x7f800000u | fraction << 13 | (fraction ? 0x400000u : 0);
    else if (exponent > 0)
        bits = (exponent + 112) << 23 | fraction << 13;
    return sign | bits;
}

void dtype_widen(zoff_dtype from, const void *src, size_t count, float *dst)
{
    if (from == ZOFF_F32) {
        memcpy(dst, src, count * sizeof *dst);
        return;
    }
    const uint16_t *half = src;
    for (size_t i = 0; i < count; i++) {
        const uint32_t bits = from == ZOFF_BF16 ? (uint32_t)half[i] << 16 : widen_fp16(half[i]);
        memcpy(dst + i, &bits, sizeof bits);
    }
}
