/* SPDX-License-Identifier: Apache-2.0 */
/* stopwatch.c: clean samples, and their medians. */
#include "stopwatch.h"

#include <math.h>
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* A sample is clean if CPU time is at least this share of wall time, in each thread. Other processes may use this share of the
 * CPUs that the threads leave idle. */
static const double CLEAN_SHARE = 0.975, OTHERS_SHARE = 0.08;

enum { MOST_THREADS = 1024 };
static clockid_t clocks[MOST_THREADS]; /* one for each thread of the pool, because the clock of the process lags behind */
static unsigned clock_count;
bool bench_beside_others;

static double read_clock(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double bench_now(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

double bench_cpu_seconds(void)
{
    return read_clock(CLOCK_PROCESS_CPUTIME_ID);
}

double bench_thread_seconds(void)
{
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

/* Look up the clocks of the threads once: the runtime keeps its threads as long as regions have the same size. */
static void find_clocks(unsigned threads)
{
    if (clock_count == threads)
        return;
    clock_count = threads;
#pragma omp parallel num_threads((int)threads)
    pthread_getcpuclockid(pthread_self(), &clocks[omp_get_thread_num()]);
}

static void read_clocks(double *out)
{
    for (unsigned i = 0; i < clock_count; i++)
        out[i] = read_clock(clocks[i]);
}

/* Seconds that the CPUs of this process have worked, for any process, and the number of these CPUs. The system counts in ticks.
 */
static double read_cpus(unsigned *out_count)
{
    FILE *file = fopen("/proc/stat", "re");
    char line[512];
    unsigned long long ticks = 0;
    cpu_set_t allowed;
    *out_count = 0;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        CPU_ZERO(&allowed);
    while (file && fgets(line, sizeof line, file)) {
        unsigned cpu;
        unsigned long long t[6];
        if (sscanf(line, "cpu%u %llu %llu %llu %*u %*u %llu %llu %llu", &cpu, &t[0], &t[1], &t[2], &t[3], &t[4], &t[5]) != 7 ||
            cpu >= CPU_SETSIZE || !CPU_ISSET((size_t)cpu, &allowed))
            continue;
        ticks += t[0] + t[1] + t[2] + t[3] + t[4] + t[5];
        ++*out_count;
    }
    if (file)
        fclose(file);
    return (double)ticks / (double)sysconf(_SC_CLK_TCK);
}

/* Share of the CPUs that other processes have had since `busy` and `own` were read. Counting loses a few ticks. */
static double others_share(double busy, double own, double wall)
{
    enum { LOST_TICKS = 2 };
    unsigned cpus;
    const double now = read_cpus(&cpus), lost = LOST_TICKS / (double)sysconf(_SC_CLK_TCK);
    if (!cpus)
        return 0; /* the system does not tell */
    return (now - busy - (bench_cpu_seconds() - own) - lost * cpus) / (wall * cpus);
}

/* Wall time of all calls. */
static double time_calls(const bench_work *work, unsigned calls)
{
    const double start = bench_now();
    for (unsigned i = 0; i < calls; i++)
        work->run(work->ctx, work->which);
    return bench_now() - start;
}

bench_sample bench_stopwatch_sample(const bench_work *work, unsigned calls, unsigned threads, unsigned tries, double deadline)
{
    double before[MOST_THREADS], after[MOST_THREADS];
    bench_sample sample = {.clean = false};
    find_clocks(threads);
    for (unsigned try = 0; calls && try < tries; try++) {
        unsigned cpus;
        read_clocks(before);
        const double busy = threads ? 0 : read_cpus(&cpus), own = bench_cpu_seconds(), wall = time_calls(work, calls);
        read_clocks(after);
        bool clean = threads || bench_beside_others || others_share(busy, own, wall) < OTHERS_SHARE;
        for (unsigned i = 0; i < threads; i++)
            clean = clean && after[i] - before[i] >= CLEAN_SHARE * wall;
        sample = (bench_sample){.seconds = wall / calls, .clean = clean, .retries = try};
        if (clean || bench_now() > deadline)
            break;
        nanosleep(&(struct timespec){.tv_nsec = 2 * 1000 * 1000}, NULL); /* let other processes on this core finish */
    }
    return sample;
}

unsigned bench_stopwatch_calls(const bench_work *work, double seconds)
{
    for (unsigned calls = 1;; calls *= 2) {
        /* the best of three, so that a pause of the machine does not make a sample too short to measure */
        double best = INFINITY;
        for (unsigned try = 0; try < 3 && best >= seconds && (try == 0 || best < 4 * seconds); try++)
            best = fmin(best, time_calls(work, calls));
        if (best >= seconds || calls >= 1u << 24)
            return calls;
    }
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* A percentile by linear interpolation between the two nearest of `count` sorted values. */
static double percentile(const double *sorted, unsigned count, double share)
{
    const double at = share * (count - 1);
    const unsigned below = (unsigned)at, above = below + 1 < count ? below + 1 : below;
    return sorted[below] + (at - below) * (sorted[above] - sorted[below]);
}

bench_spread bench_spread_of(const double *values, unsigned count)
{
    enum { MOST = 256 };
    double sorted[MOST];
    unsigned n = 0;
    for (unsigned i = 0; i < count && n < MOST; i++) {
        if (isfinite(values[i]))
            sorted[n++] = values[i];
    }
    if (!n)
        return (bench_spread){NAN, NAN, NAN, NAN, NAN, 0};
    qsort(sorted, n, sizeof *sorted, compare);
    return (bench_spread){.min = sorted[0],
                          .p10 = percentile(sorted, n, 0.1),
                          .median = percentile(sorted, n, 0.5),
                          .p90 = percentile(sorted, n, 0.9),
                          .max = sorted[n - 1],
                          .count = n};
}
