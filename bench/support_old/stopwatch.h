/* stopwatch.h: seconds that count. On a shared machine a sample says something about the code only if its threads had their
 * cores all the time, so every sample compares CPU time with wall time, and is taken again where they differ. */
#ifndef ZOFF_BENCH_STOPWATCH_H
#define ZOFF_BENCH_STOPWATCH_H

#include <stdbool.h>
#include <stddef.h>

double bench_stopwatch_now(void);

/* What one sample repeats. */
typedef void (*bench_work_fn)(void *ctx);

/* From now on a sample is clean whoever else has the CPUs: it is meant to be that way. */
void bench_stopwatch_beside_others(void);

typedef struct bench_sample {
    double seconds; /* of one call */
    bool clean;     /* the threads held their cores, or others left the CPUs alone */
    unsigned retries;
} bench_sample;

/* Time `calls` calls of fn (none: no clean sample), which keeps `threads` threads busy (waiting threads must spin:
 * OMP_WAIT_POLICY=active). Where fn waits for a disk, `threads` is 0: then a sample is clean if other processes had next to
 * nothing of the CPUs that this one may use. Takes the sample again, at most `tries` times and not after `deadline`, until it
 * is clean. */
bench_sample bench_stopwatch_sample(bench_work_fn fn, void *ctx, unsigned calls, unsigned threads, unsigned tries,
                                    double deadline);

/* How many calls of fn take at least `seconds`. */
unsigned bench_stopwatch_calls(bench_work_fn fn, void *ctx, double seconds);

typedef struct bench_spread {
    double min, median, max;
} bench_spread;

/* Of `count` >= 1 values, which are left as they are. */
bench_spread bench_stopwatch_spread(const double *values, size_t count);

#endif
