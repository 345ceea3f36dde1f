/* SPDX-License-Identifier: Apache-2.0 */
/* exact.h: a sum of doubles that is exact until it is read. The order of the terms does not change its bits, nor does the rank
 * or thread that adds them. The sum is one integer of more than 2,100 bits, in units of the smallest double. */
#ifndef ZOFF_BASE_EXACT_H
#define ZOFF_BASE_EXACT_H

#include <stdint.h>

enum { ZOFF_EXACT_LIMBS = 68 };

/* Zeroed memory is the sum 0. It is plain data, so it may be sent to a rank on a machine of the same kind. */
typedef struct zoff_exact {
    /* 32 bits of the integer each, the lowest first; the upper 32 bits hold pending carries. */
    uint64_t limbs[ZOFF_EXACT_LIMBS];
    uint64_t terms; /* number of terms since the last carry */
} zoff_exact;

/* Add a number that is finite and not negative. */
void zoff_base_exact_add(zoff_exact *sum, double term);
void zoff_base_exact_join(zoff_exact *sum, const zoff_exact *other);
/* The sum, rounded to nearest even; infinite if a double cannot hold it. */
double zoff_base_exact_value(const zoff_exact *sum);

#endif
