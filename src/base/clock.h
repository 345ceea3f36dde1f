/* SPDX-License-Identifier: Apache-2.0 */
/* clock.h: seconds since some moment, for durations; and pauses for loops that poll. */
#ifndef ZOFF_BASE_CLOCK_H
#define ZOFF_BASE_CLOCK_H

#include <time.h>

static inline double zoff_base_clock_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Pause number `naps`, from 0, in a wait that no signal ends. The first pauses last 20 us, the longest 1 ms. From the 64th on
 * each lasts at most 2 % of the time waited so far: a long wait frees the processor, and a short wait ends soon. */
static inline void zoff_base_clock_nap(unsigned naps)
{
    enum { LEAST_NS = 20000, MOST_NS = 1000000, STEP = 64 };
    const unsigned long ns = LEAST_NS + LEAST_NS / STEP * (unsigned long)naps;
    nanosleep(&(struct timespec){.tv_nsec = (long)(ns < MOST_NS ? ns : MOST_NS)}, NULL);
}

#endif
