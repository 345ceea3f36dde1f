/* clock.h: seconds since some moment, for durations; and the pauses of whoever must ask again and again. */
#ifndef ZOFF_BASE_CLOCK_H
#define ZOFF_BASE_CLOCK_H

#include <time.h>

static inline double zoff_base_clock_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Pause number `naps`, from 0, of a wait that nobody ends by a signal. 20 us at first, 1 ms at most: from the 64th on each is
 * at most 2 % of what was waited before, so that a long wait leaves the processor to others and a short one ends in time. */
static inline void zoff_base_clock_nap(unsigned naps)
{
    enum { LEAST_NS = 20000, MOST_NS = 1000000, STEP = 64 };
    const unsigned long ns = LEAST_NS + LEAST_NS / STEP * (unsigned long)naps;
    nanosleep(&(struct timespec){.tv_nsec = (long)(ns < MOST_NS ? ns : MOST_NS)}, NULL);
}

#endif
