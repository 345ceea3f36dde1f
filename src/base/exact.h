/* exact.h: a sum of doubles that is exact until it is read: the same bits whatever the order of its terms, and whoever added
 * them up. It is one integer of more than 2,100 bits, in units of the smallest double. */
#ifndef ZOFF_BASE_EXACT_H
#define ZOFF_BASE_EXACT_H

#include <stdint.h>

enum { ZOFF_EXACT_LIMBS = 68 };

/* Zeroed, it is 0. Plain data: it may be sent to another rank of the same kind of machine. */
typedef struct zoff_exact {
    uint64_t limbs[ZOFF_EXACT_LIMBS]; /* 32 bits of the integer each, the lowest first; what is above them is a carry to come */
    uint64_t terms;                   /* since the last carry */
} zoff_exact;

/* Add a number that is finite and not negative. */
void zoff_base_exact_add(zoff_exact *sum, double term);
void zoff_base_exact_join(zoff_exact *sum, const zoff_exact *other);
/* The sum, rounded to nearest even; infinite where it is beyond a double. */
double zoff_base_exact_value(const zoff_exact *sum);

#endif
