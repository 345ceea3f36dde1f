/* worth.h: how many elements are worth a team. Private to the room. */
#ifndef ZOFF_CPU_ADAM_WORTH_H
#define ZOFF_CPU_ADAM_WORTH_H

#include "kernels.h"

/* Fewer elements than LEAST never are worth a team, MOST always: nothing is measured to know that. Threads that spin are awake
 * in a microsecond, threads that sleep in ten to sixty. */
enum {
    ZOFF_WORTH_LEAST = 2 * 1024,
    ZOFF_WORTH_MOST = 64 * 1024,
    ZOFF_WORTH_ASLEEP_LEAST = ZOFF_ADAM_SMALL,
    ZOFF_WORTH_ASLEEP_MOST = ZOFF_ADAM_LARGE
};

typedef struct zoff_worth {
    size_t from; /* elements whose step on the team takes as long as on one thread; at most ZOFF_WORTH_ASLEEP_MOST */
    size_t good; /* for so many elements: by then measuring again is a hundredth of the time */
} zoff_worth;

/* Measured now on `threads` >= 2 threads: some microseconds, after the threads were started. A guess inside a parallel region
 * of the caller. */
zoff_worth zoff_adam_worth_measure(const struct zoff_kernels *kernels, unsigned threads);

#endif
