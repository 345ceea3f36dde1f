/* step_hidden.c: how much of a step a trainer sees that computes meanwhile. In its forward pass it waits for the weights of
 * each slice and computes on them. Then it ends the step, and computes and hands over each gradient. The disk has a known
 * speed. */
#include "step_bench.h"

#include <math.h>
#include <time.h>

/* Limit for reads, and for writes. A step then takes longer than any other work on its bytes. */
static const uint64_t THROTTLE_RATE = 1000 * 1000 * 1000;

enum { SLICES = 32, ITERATIONS = 4 };

typedef struct hidden {
    step_model model;
    step_engine engines[2]; /* that updates in calls, and with a thread of its own */
    double update;          /* seconds of a plain step */
} hidden;

typedef struct hidden_trainer {
    zoff_engine *engine;
    double forward, backward; /* seconds of computation */
    double turns;             /* of a thread for each second; 0: the trainer sleeps, as one that waits for a device does */
} hidden_trainer;

static volatile double sink;

/* A slice's share of a pass. */
static void compute(const hidden_trainer *t, double pass)
{
    const double seconds = pass / SLICES;
    if (t->turns > 0)
        sink = step_own_backward((size_t)(t->turns * seconds));
    else if (seconds > 0)
        nanosleep(&(struct timespec){.tv_sec = (time_t)seconds, .tv_nsec = (long)(1e9 * (seconds - floor(seconds)))}, NULL);
}

static int only_compute(void *ctx, int which)
{
    const hidden_trainer *t = ctx;
    (void)which;
    for (unsigned slice = 0; slice < SLICES * ITERATIONS; slice++) {
        compute(t, t->forward);
        compute(t, t->backward);
    }
    return 0;
}

static int begin(const hidden_trainer *t)
{
    int ret = 0;
    for (size_t slice = SLICES; slice-- > 0 && ret == 0;) {
        compute(t, t->backward);
        ret = bench_told(zoff_grad_ready(t->engine, 0, slice, NULL));
    }
    return ret == 0 ? bench_told(zoff_step_begin(t->engine, NULL)) : ret;
}

/* Reads for the next step end before the next sample begins. */
static void settle(const hidden_trainer *t)
{
    while (zoff_engine_progress(t->engine) == ZOFF_PENDING)
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
}

static int plain(void *ctx, int which)
{
    const hidden_trainer *t = ctx;
    int ret = 0;
    (void)which;
    for (unsigned i = 0; i < ITERATIONS && ret == 0; i++)
        ret = begin(t) != 0 ? -1 : bench_told(zoff_step_wait(t->engine, NULL));
    settle(t);
    return ret;
}

static int just_in_time(void *ctx, int which)
{
    const hidden_trainer *t = ctx;
    int ret = 0;
    (void)which;
    for (unsigned i = 0; i < ITERATIONS && ret == 0; i++) {
        ret = begin(t);
        for (size_t slice = 0; slice < SLICES && ret == 0; slice++) {
            ret = bench_told(zoff_param_wait(t->engine, 0, slice, NULL));
            compute(t, t->forward);
        }
        ret = ret == 0 ? bench_told(zoff_step_wait(t->engine, NULL)) : ret;
    }
    settle(t);
    return ret;
}

enum { IN_CALLS, BACKGROUND, ASLEEP = 1, BUSY = 2 };

static const struct contestant {
    race_line line;
    int engine;
    double forward, backward; /* computation over the time of a plain step */
    unsigned how;             /* it computes */
} CONTESTANTS[] = {
    {{"plain", "four steps, nothing beside them", NULL, 0, plain, 0, 0}, IN_CALLS, 0, 0, ASLEEP},
    {{"asleep", "passes of 1.2 and 0.6 steps on a device, alone", NULL, 0, only_compute, 0, 0}, IN_CALLS, 1.2, 0.6, ASLEEP},
    {{"jit_asleep", "the same with steps, by a thread of the engine", NULL, 0, just_in_time, 0, 0},
     BACKGROUND,
     1.2,
     0.6,
     ASLEEP},
    {{"jit_calls", "the same, in the calls of the trainer", NULL, 0, just_in_time, 0, 0}, IN_CALLS, 1.2, 0.6, ASLEEP},
    {{"busy", "passes of 1.2 and 0.6 steps on all cores, alone", NULL, 0, only_compute, 0, 0}, IN_CALLS, 1.2, 0.6, BUSY},
    {{"jit_busy", "the same with steps, by a thread of the engine", NULL, 0, just_in_time, 0, 0}, BACKGROUND, 1.2, 0.6, BUSY},
    {{"jit_half", "a forward pass of half a step on a device, with steps", NULL, 0, just_in_time, 0, 0},
     BACKGROUND,
     0.5,
     0,
     ASLEEP}};
enum { COUNT = sizeof CONTESTANTS / sizeof CONTESTANTS[0] };

static int open_all(const step_options *options, const char *folder, hidden *h)
{
    const uint64_t budget = 3 * sizeof(float) * options->elements / options->budget_share;
    const step_engine_opts opts[] = {
        {.paths = &folder, .path_count = 1, .host_bytes = budget, .slices = SLICES},
        {.paths = &folder, .path_count = 1, .host_bytes = budget, .slices = SLICES, .background_threads = 1}};
    if (step_model_open(options->elements / SLICES * SLICES, &h->model) != 0 ||
        step_engine_open(&h->model, "in_calls", &opts[IN_CALLS], &h->engines[IN_CALLS]) != 0)
        return -1;
    return step_engine_open(&h->model, "background", &opts[BACKGROUND], &h->engines[BACKGROUND]);
}

/* The time of a plain step on the throttled disk, which the computation is a share of. */
static int measure_update(hidden *h)
{
    enum { TRIES = 3 };
    double seconds[TRIES];
    hidden_trainer both[] = {{.engine = h->engines[IN_CALLS].engine}, {.engine = h->engines[BACKGROUND].engine}};
    for (unsigned i = 0; i < TRIES; i++) {
        const double start = bench_now();
        if (plain(&both[IN_CALLS], 0) != 0 || (i == 0 && just_in_time(&both[BACKGROUND], 0) != 0))
            return -1;
        seconds[i] = (bench_now() - start) / ITERATIONS;
    }
    h->update = bench_spread_of(seconds + 1, TRIES - 1).median;
    return 0;
}

static int run(const step_options *options, hidden *h, step_found *found)
{
    static const double SAMPLE = 5e-3; /* seconds for which turns are counted */
    hidden_trainer trainers[COUNT];
    race *r =
        race_open(&found->book, "hidden", "%zu elements, %.1f GB/s each way", h->model.elements, 1e-9 * (double)THROTTLE_RATE);
    if (measure_update(h) != 0)
        return -1;
    found->hidden_chunks = h->engines[BACKGROUND].plan.chunk_count;
    for (unsigned i = 0; i < COUNT; i++) {
        const struct contestant *c = &CONTESTANTS[i];
        trainers[i] = (hidden_trainer){.engine = h->engines[c->engine].engine,
                                       .forward = c->forward * h->update,
                                       .backward = c->backward * h->update,
                                       .turns = c->how == BUSY ? (double)step_own_turns(SAMPLE) / SAMPLE : 0};
        race_add(r, &c->line, (double)h->model.elements, &trainers[i], 1);
    }
    return race_run(r, (unsigned)(options->run.rounds + 1) / 2, bench_run_deadline(&options->run, 1));
}

int step_hidden(const step_options *options, const char *folder, step_found *found)
{
    static hidden h;
    int ret = open_all(options, folder, &h);
    if (ret == 0 && throttle_open(&step_throttle, folder, THROTTLE_RATE) != 0) {
        snprintf(found->no_hidden, STEP_REASON, "%.250s", step_throttle.reason);
    } else if (ret == 0) {
        ret = run(options, &h, found);
        throttle_close(&step_throttle);
    }
    step_engine_close(&h.engines[IN_CALLS]);
    step_engine_close(&h.engines[BACKGROUND]);
    bench_streams_close(&h.model.mapping);
    return ret;
}
