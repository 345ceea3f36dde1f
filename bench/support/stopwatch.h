/* SPDX-License-Identifier: Apache-2.0 */
/* stopwatch.h: time samples that can be trusted. On a shared machine a sample describes the code only if its threads had their
 * cores all the time. So every sample compares CPU time with wall time, and is repeated if they differ. */
#ifndef ZOFF_BENCH_STOPWATCH_H
#define ZOFF_BENCH_STOPWATCH_H

#include <stdbool.h>

double bench_now(void);
double bench_cpu_seconds(void);    /* CPU time of this process, with all its threads */
double bench_thread_seconds(void); /* of the calling thread alone */

/* The work that a sample times. It returns nothing, because an error ends the program. */
typedef void (*bench_work_fn)(void *ctx, int which);
typedef struct bench_work {
    bench_work_fn run;
    void *ctx;
    int which;
} bench_work;

/* Whether a sample is clean even if other processes use the CPUs: the test wants them to. */
extern bool bench_beside_others;

typedef struct bench_sample {
    double seconds; /* time of one call */
    bool clean;     /* whether the threads had their cores all the time */
    unsigned retries;
} bench_sample;

/* Time `calls` calls (none: no clean sample), which keep `threads` threads busy. Waiting threads must spin:
 * OMP_WAIT_POLICY=active. Work that waits for a disk has 0 threads: then a sample is clean if other processes used next to
 * nothing of this process's CPUs. Takes the sample again until it is clean, at most `tries` times and not after `deadline`. */
bench_sample bench_stopwatch_sample(const bench_work *work, unsigned calls, unsigned threads, unsigned tries, double deadline);

/* The number of calls that take at least `seconds`. */
unsigned bench_stopwatch_calls(const bench_work *work, double seconds);

typedef struct bench_spread {
    double min, p10, median, p90, max; /* NAN if there is no value */
    unsigned count;
} bench_spread;

/* Uses the finite ones of `count` <= 256 values. */
bench_spread bench_spread_of(const double *values, unsigned count);

#endif
