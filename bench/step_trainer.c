/* step_trainer.c: a trainer whose passes compute for a given time, beside an engine. */
#include "step_trainer.h"

#include <math.h>
#include <time.h>

static volatile double sink;

/* A slice's share of a pass. */
static void compute(const step_trainer *t, double pass)
{
    const double seconds = pass / STEP_SLICES;
    if (t->turns > 0)
        sink = step_own_backward((size_t)(t->turns * seconds));
    else if (seconds > 0)
        nanosleep(&(struct timespec){.tv_sec = (time_t)seconds, .tv_nsec = (long)(1e9 * (seconds - floor(seconds)))}, NULL);
}

int step_trainer_computes(void *ctx, int which)
{
    const step_trainer *t = ctx;
    (void)which;
    for (unsigned slice = 0; slice < STEP_SLICES * STEP_ITERATIONS; slice++) {
        compute(t, t->forward);
        compute(t, t->backward);
    }
    return 0;
}

/* With `misleads` the step is not as it was said. */
static int begin(const step_trainer *t)
{
    const zoff_step_args other = {.struct_size = sizeof other, .grad_scale = 0.5};
    int ret = t->misleads ? bench_told(zoff_step_prepare(t->engine, &other)) : 0;
    for (size_t slice = STEP_SLICES; slice-- > 0 && ret == 0;) {
        compute(t, t->backward);
        ret = bench_told(zoff_grad_ready(t->engine, 0, slice, NULL));
    }
    return ret == 0 ? bench_told(zoff_step_begin(t->engine, NULL)) : ret;
}

/* Reads for the next step end before the next sample begins. */
static void settle(const step_trainer *t)
{
    while (zoff_engine_progress(t->engine) == ZOFF_PENDING)
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
}

int step_trainer_waits(void *ctx, int which)
{
    const step_trainer *t = ctx;
    int ret = 0;
    (void)which;
    for (unsigned i = 0; i < STEP_ITERATIONS && ret == 0; i++)
        ret = begin(t) != 0 ? -1 : bench_told(zoff_step_wait(t->engine, NULL));
    settle(t);
    return ret;
}

/* The forward pass uses a slice of weights. */
static int use_own(const step_trainer *t, size_t slice)
{
    const int ret = bench_told(zoff_param_wait(t->engine, 0, slice, NULL));
    compute(t, t->forward);
    return ret;
}

static int use_lent(const step_trainer *t, size_t slice)
{
    const void *weights;
    const int ret = bench_told(zoff_param_fetch(t->engine, 0, slice, NULL, &weights));
    compute(t, t->forward);
    return ret == 0 ? bench_told(zoff_param_release(t->engine, 0, slice, NULL)) : ret;
}

static int in_time(const step_trainer *t, int (*use)(const step_trainer *t, size_t slice))
{
    int ret = 0;
    for (unsigned i = 0; i < STEP_ITERATIONS && ret == 0; i++) {
        ret = begin(t);
        for (size_t slice = 0; slice < STEP_SLICES && ret == 0; slice++)
            ret = use(t, slice);
        ret = ret == 0 ? bench_told(zoff_step_wait(t->engine, NULL)) : ret;
    }
    settle(t);
    return ret;
}

int step_trainer_in_time(void *ctx, int which)
{
    (void)which;
    return in_time(ctx, use_own);
}

int step_trainer_borrows(void *ctx, int which)
{
    (void)which;
    return in_time(ctx, use_lent);
}

double step_trainer_turns(void)
{
    static const double SAMPLE = 5e-3; /* seconds for which turns are counted */
    return (double)step_own_turns(SAMPLE) / SAMPLE;
}

int step_trainer_update(const step_trainer *t, double *out)
{
    enum { TRIES = 3 };
    double seconds[TRIES];
    for (unsigned i = 0; i < TRIES; i++) {
        const double start = bench_now();
        if (step_trainer_waits((void *)(uintptr_t)t, 0) != 0)
            return -1;
        seconds[i] = (bench_now() - start) / STEP_ITERATIONS;
    }
    *out = bench_spread_of(seconds + 1, TRIES - 1).median; /* the first one warms up */
    return 0;
}
