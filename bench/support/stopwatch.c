/* stopwatch.c: clean samples, and the numbers that sum them up. */
#include "stopwatch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Shares of the wall time that must be CPU time: of the calling thread, and of each thread of the process on average. */
static const double OWN_SHARE = 0.975, TEAM_SHARE = 0.965;

static double read_clock(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double bench_stopwatch_now(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

bench_sample bench_stopwatch_sample(bench_work_fn fn, void *ctx, unsigned calls, unsigned threads, unsigned tries,
                                    double deadline)
{
    bench_sample sample = {0};
    if (!calls)
        return sample;
    for (unsigned try = 0; try < tries; try++) {
        const double own = read_clock(CLOCK_THREAD_CPUTIME_ID), all = read_clock(CLOCK_PROCESS_CPUTIME_ID);
        const double start = bench_stopwatch_now();
        for (unsigned i = 0; i < calls; i++)
            fn(ctx);
        const double wall = bench_stopwatch_now() - start;
        const double own_share = (read_clock(CLOCK_THREAD_CPUTIME_ID) - own) / wall;
        const double all_share = (read_clock(CLOCK_PROCESS_CPUTIME_ID) - all) / wall;
        sample.seconds = wall / calls;
        sample.clean = own_share >= OWN_SHARE && all_share >= TEAM_SHARE * threads;
        sample.retries = try;
        if (sample.clean || bench_stopwatch_now() > deadline)
            break;
        nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, NULL); /* let whoever wants the core finish */
    }
    return sample;
}

unsigned bench_stopwatch_calls(bench_work_fn fn, void *ctx, double seconds)
{
    for (unsigned calls = 1;; calls *= 2) {
        double best = INFINITY; /* of three: a pause of the machine must not make a sample too short to measure */
        for (unsigned try = 0; try < 3 && best >= seconds && (try == 0 || best < 4 * seconds); try++) {
            const double start = bench_stopwatch_now();
            for (unsigned i = 0; i < calls; i++)
                fn(ctx);
            best = fmin(best, bench_stopwatch_now() - start);
        }
        if (best >= seconds || calls >= 1u << 24)
            return calls;
    }
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

bench_spread bench_stopwatch_spread(const double *values, size_t count)
{
    double sorted[256];
    if (count > sizeof sorted / sizeof sorted[0])
        count = sizeof sorted / sizeof sorted[0];
    memcpy(sorted, values, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, compare);
    const double middle = count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
    return (bench_spread){sorted[0], middle, sorted[count - 1]};
}
