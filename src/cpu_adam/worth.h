/* SPDX-License-Identifier: Apache-2.0 */
/* worth.h: how many elements make a team faster than one thread. Private to the room. */
#ifndef ZOFF_CPU_ADAM_WORTH_H
#define ZOFF_CPU_ADAM_WORTH_H

#include "kernels.h"

/* Fewer elements than LEAST never need a team, MOST always do, without a measurement. A spinning thread is awake in one
 * microsecond, a sleeping one in ten to sixty. */
enum {
    ZOFF_WORTH_LEAST = 2 * 1024,
    ZOFF_WORTH_MOST = 64 * 1024,
    ZOFF_WORTH_ASLEEP_LEAST = ZOFF_ADAM_SMALL,
    ZOFF_WORTH_ASLEEP_MOST = ZOFF_ADAM_LARGE
};

typedef struct zoff_worth {
    size_t from; /* elements that take as long on the team as on one thread; at most ZOFF_WORTH_ASLEEP_MOST */
    size_t good; /* elements for which the measurement is valid: by then a new one costs a hundredth of the time */
} zoff_worth;

/* Measure now on `threads` >= 2 threads. It takes some microseconds once the threads are started. Inside a parallel region of
 * the caller it returns a guess. */
zoff_worth zoff_adam_worth_measure(const struct zoff_kernels *kernels, unsigned threads);

#endif
