/* SPDX-License-Identifier: Apache-2.0 */
/* bits.h: rounding and checked arithmetic of integers. */
#ifndef ZOFF_BASE_BITS_H
#define ZOFF_BASE_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline size_t zoff_base_bits_align(size_t value, size_t unit)
{
    return (value + unit - 1) / unit * unit;
}

static inline size_t zoff_base_bits_ceil_div(size_t value, size_t unit)
{
    return value / unit + (value % unit != 0);
}

static inline size_t zoff_base_bits_min(size_t a, size_t b)
{
    return a < b ? a : b;
}

static inline size_t zoff_base_bits_max(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* *out = a * b; false on overflow. */
static inline bool zoff_base_bits_mul(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

#endif
