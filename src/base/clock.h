/* clock.h: seconds since some moment, for durations. */
#ifndef ZOFF_BASE_CLOCK_H
#define ZOFF_BASE_CLOCK_H

#include <time.h>

static inline double zoff_base_clock_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

#endif
