/* SPDX-License-Identifier: Apache-2.0 */
/* exact.c: sums of doubles without rounding. A double is 53 bits at some place in a row of limbs, and touches three limbs.
 * Carries stay in the upper halves of the limbs until the sum is read, or the halves might overflow. */
#include "exact.h"

#include <math.h>
#include <string.h>

enum {
    BITS = 32,
    FRACTION = 52,
    LOWEST = 1074 /* a double is a multiple of 2 to the -LOWEST */
};

static void carry(zoff_exact *sum)
{
    uint64_t over = 0;
    for (int i = 0; i < ZOFF_EXACT_LIMBS; i++) {
        const uint64_t limb = sum->limbs[i] + over;
        sum->limbs[i] = limb & UINT32_MAX;
        over = limb >> BITS;
    }
    sum->terms = 0;
}

void zoff_base_exact_add(zoff_exact *sum, double term)
{
    uint64_t bits;
    memcpy(&bits, &term, sizeof bits);
    const unsigned exponent = bits >> FRACTION & 2047;
    const uint64_t fraction = bits & ((UINT64_C(1) << FRACTION) - 1);
    /* Count in units of the smallest double. Subnormals need no shift, because they have these units. */
    const unsigned shift = exponent ? exponent - 1 : 0;
    const unsigned __int128 wide = (unsigned __int128)(exponent ? fraction | UINT64_C(1) << FRACTION : fraction)
                                   << shift % BITS;
    uint64_t *limb = &sum->limbs[shift / BITS];
    limb[0] += (uint64_t)wide & UINT32_MAX;
    limb[1] += (uint64_t)(wide >> BITS) & UINT32_MAX;
    limb[2] += (uint64_t)(wide >> 2 * BITS);
    if (++sum->terms == UINT64_C(1) << (BITS - 1))
        carry(sum);
}

void zoff_base_exact_join(zoff_exact *sum, const zoff_exact *other)
{
    zoff_exact theirs = *other;
    carry(&theirs);
    carry(sum);
    for (int i = 0; i < ZOFF_EXACT_LIMBS; i++)
        sum->limbs[i] += theirs.limbs[i];
    sum->terms = 1;
}

double zoff_base_exact_value(const zoff_exact *sum)
{
    zoff_exact s = *sum;
    carry(&s);
    int top = ZOFF_EXACT_LIMBS - 1;
    while (top > 2 && s.limbs[top] == 0)
        top--;
    /* Three limbs hold more bits than a double. All that matters in the lower limbs is whether any bit is set. */
    unsigned __int128 wide = (unsigned __int128)s.limbs[top] << 2 * BITS | s.limbs[top - 1] << BITS | s.limbs[top - 2];
    for (int i = 0; i < top - 2; i++)
        wide |= s.limbs[i] != 0;
    return ldexp((double)wide, (top - 2) * BITS - LOWEST);
}
