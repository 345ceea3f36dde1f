/* step_beside.c: how much of a step a trainer sees that computes meanwhile. In its backward pass it computes and hands over
 * each gradient, then it ends the step. In its forward pass it waits for the weights of each slice and computes on them.
 *
 * The race "hidden" has steps in files, updated in the forward pass. The race "ahead" has a backward pass that takes 1.2 steps,
 * so buckets are updated as soon as their gradients are complete (zoff.speculation_memory). States are in files or in DRAM, and
 * some steps are taken again because their buckets were updated for nothing. The disk has a known speed, at which a step takes
 * longer than any other work on its bytes. */
#include "step_bench.h"

#include <math.h>
#include <time.h>

enum { SLICES = 32, ITERATIONS = 4, ENGINES = 4 };

/* --- a trainer whose passes compute for a given time --- */

typedef struct trainer {
    zoff_engine *engine;
    double forward, backward; /* seconds of computation */
    double turns;             /* of a thread for each second; 0: the trainer sleeps, as one that waits for a device does */
    bool misleads;            /* each step differs from what zoff_step_prepare() has said */
} trainer;

static volatile double sink;

/* A slice's share of a pass. */
static void compute(const trainer *t, double pass)
{
    const double seconds = pass / SLICES;
    if (t->turns > 0)
        sink = step_own_backward((size_t)(t->turns * seconds));
    else if (seconds > 0)
        nanosleep(&(struct timespec){.tv_sec = (time_t)seconds, .tv_nsec = (long)(1e9 * (seconds - floor(seconds)))}, NULL);
}

/* A backward pass, which begins a step. */
static int begin(const trainer *t)
{
    const zoff_step_args other = {.struct_size = sizeof other, .grad_scale = 0.5};
    int ret = t->misleads ? bench_told(zoff_step_prepare(t->engine, &other)) : 0;
    for (size_t slice = SLICES; slice-- > 0 && ret == 0;) {
        compute(t, t->backward);
        ret = bench_told(zoff_grad_ready(t->engine, 0, slice, NULL));
    }
    return ret == 0 ? bench_told(zoff_step_begin(t->engine, NULL)) : ret;
}

/* Use a slice of weights, which is the program's own or borrowed from the engine. */
static int use(const trainer *t, size_t slice, bool borrows)
{
    const void *weights;
    const int ret = bench_told(borrows ? zoff_param_fetch(t->engine, 0, slice, NULL, &weights)
                                       : zoff_param_wait(t->engine, 0, slice, NULL));
    compute(t, t->forward);
    return ret == 0 && borrows ? bench_told(zoff_param_release(t->engine, 0, slice, NULL)) : ret;
}

/* The turns of contestants, some iterations: passes alone; with steps that the trainer waits for; with steps whose weights it
 * waits for, or borrows, slice by slice in the next forward pass. */
enum { ALONE, WAITS, IN_TIME, BORROWS };
static int iterate(void *ctx, int which)
{
    const trainer *t = ctx;
    int ret = 0;
    for (unsigned i = 0; i < ITERATIONS && ret == 0; i++) {
        for (unsigned slice = 0; slice < SLICES && which == ALONE; slice++) {
            compute(t, t->forward);
            compute(t, t->backward);
        }
        ret = which == ALONE ? 0 : begin(t);
        for (size_t slice = 0; slice < SLICES && ret == 0 && which >= IN_TIME; slice++)
            ret = use(t, slice, which == BORROWS);
        ret = ret == 0 && which != ALONE ? bench_told(zoff_step_wait(t->engine, NULL)) : ret;
    }
    /* Reads for the next step end before the next sample begins. */
    while (which != ALONE && zoff_engine_progress(t->engine) == ZOFF_PENDING)
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    return ret;
}

/* Seconds of a step. */
static int measure_step(zoff_engine *engine, double *out)
{
    enum { TRIES = 3 };
    double seconds[TRIES];
    for (unsigned i = 0; i < TRIES; i++) {
        const double start = bench_now();
        if (iterate(&(trainer){.engine = engine}, WAITS) != 0)
            return -1;
        seconds[i] = (bench_now() - start) / ITERATIONS;
    }
    *out = bench_spread_of(seconds + 1, TRIES - 1).median; /* the first one warms up */
    return 0;
}

/* --- a race of trainers beside four engines --- */

typedef struct contestant {
    race_line line;
    int engine;
    double forward, backward; /* computation over the time of a plain step in the same place */
    bool busy, misleads;      /* it computes on all cores; it misleads the engine */
} contestant;

typedef struct scene {
    const char *names[ENGINES];
    step_engine_opts opts[ENGINES];
    step_model models[2]; /* of the first two engines, and of the others */
    step_engine engines[ENGINES];
    double update[ENGINES];          /* seconds of a plain step in the same place */
    int (*measure)(struct scene *s); /* find those seconds; the engines learn their order */
    const contestant *list;
    unsigned count;
} scene;

static int run_race(step_run *run, scene *s, race *r)
{
    static const double SAMPLE = 5e-3; /* seconds for which turns are counted */
    trainer trainers[RACE_ENTRIES];
    if (s->measure(s) != 0)
        return -1;
    for (unsigned i = 0; i < s->count; i++) {
        const contestant *c = &s->list[i];
        trainers[i] = (trainer){.engine = s->engines[c->engine].engine,
                                .forward = c->forward * s->update[c->engine],
                                .backward = c->backward * s->update[c->engine],
                                .turns = c->busy ? (double)step_own_turns(SAMPLE) / SAMPLE : 0,
                                .misleads = c->misleads};
        race_add(r, &c->line, (double)s->models[c->engine / 2].elements, &trainers[i], 1);
    }
    return race_run(r, step_fewer(run), bench_run_deadline(&run->options.run, 1));
}

/* The second engine updates beside the trainer: it needs chunks. */
static int run_scene(step_run *run, scene *s, race *r, uint64_t *chunks)
{
    int ret = 0;
    for (unsigned i = 0; i < ENGINES && ret == 0; i++) {
        s->opts[i].slices = SLICES;
        ret = step_engine_open(&s->models[i / 2], s->names[i], &s->opts[i], &s->engines[i]);
    }
    if (ret == 0 && disk_hold(r, run->folder, STEP_DISK_RATE) == 0) {
        *chunks = s->engines[1].plan.chunk_count;
        ret = run_race(run, s, r);
        throttle_close(&disk_throttle);
    }
    for (unsigned i = 0; i < ENGINES; i++)
        step_engine_close(&s->engines[i]);
    bench_streams_close(&s->models[0].mapping);
    bench_streams_close(&s->models[1].mapping);
    return ret;
}

/* --- hidden: the engine updates in calls; with a thread of its own; and owns the weights, too: in DRAM, in files --- */

enum { IN_CALLS, BACKGROUND, LENDS, LENDS_FILES };
/* clang-format off */
static const contestant HIDDEN[] = {
    {{"plain", "four steps, nothing beside them", 0, iterate, WAITS}, IN_CALLS, 0, 0},
    {{"asleep", "passes of 1.2 and 0.6 steps on a device, alone", 0, iterate, ALONE}, IN_CALLS, 1.2, 0.6},
    {{"jit_asleep", "the same with steps, by a thread of the engine", 0, iterate, IN_TIME}, BACKGROUND, 1.2, 0.6},
    {{"jit_lent", "the same with weights of the engine, in DRAM", 0, iterate, BORROWS}, LENDS, 1.2, 0.6},
    {{"jit_lent_files", "the same with weights of the engine, in files", 0, iterate, BORROWS}, LENDS_FILES, 1.2, 0.6},
    {{"jit_calls", "the same, in the calls of the trainer", 0, iterate, IN_TIME}, IN_CALLS, 1.2, 0.6},
    {{"busy", "passes of 1.2 and 0.6 steps on all cores, alone", 0, iterate, ALONE}, IN_CALLS, 1.2, 0.6, true},
    {{"jit_busy", "the same with steps, by a thread of the engine", 0, iterate, IN_TIME}, BACKGROUND, 1.2, 0.6, true},
    {{"jit_half", "a forward pass of half a step on a device, with steps", 0, iterate, IN_TIME}, BACKGROUND, 0.5, 0}};
/* clang-format on */

static int measure_hidden(scene *s)
{
    trainer all[ENGINES];
    for (unsigned i = 0; i < ENGINES; i++)
        all[i] = (trainer){.engine = s->engines[i].engine};
    if (iterate(&all[BACKGROUND], IN_TIME) != 0 || iterate(&all[LENDS], BORROWS) != 0 ||
        iterate(&all[LENDS_FILES], BORROWS) != 0 || measure_step(all[IN_CALLS].engine, &s->update[0]) != 0)
        return -1;
    for (unsigned i = 1; i < ENGINES; i++)
        s->update[i] = s->update[0];
    return 0;
}

int step_hidden(step_run *run)
{
    const char *const paths = run->folder;
    const step_engine_opts in_files = {
        .paths = &paths, .path_count = 1, .host_bytes = 3 * sizeof(float) * run->options.elements / run->options.budget_share};
    static scene s = {.names = {"in_calls", "background", "lends", "lends_files"},
                      .measure = measure_hidden,
                      .list = HIDDEN,
                      .count = BENCH_COUNT(HIDDEN)};
    const size_t elements = run->options.elements / SLICES * SLICES;
    for (unsigned i = 0; i < ENGINES; i++) {
        s.opts[i] = in_files;
        s.opts[i].background_threads = i >= BACKGROUND;
        s.opts[i].owned = i >= LENDS;
        s.opts[i].owned_in_files = i == LENDS_FILES;
    }
    race *r = race_open(&run->book, "hidden", "%zu elements, %.1f GB/s each way", elements, 1e-9 * (double)STEP_DISK_RATE);
    if (step_model_open(elements, &s.models[0]) != 0)
        return -1;
    s.models[1] = s.models[0]; /* the same memory, which the first one unmaps */
    s.models[1].mapping.base = NULL;
    return run_scene(run, &s, r, &run->hidden_chunks);
}

/* --- ahead: steps in files, and in DRAM, each without and with updates ahead --- */

enum { FILES, FILES_AHEAD, DRAM, DRAM_AHEAD };

/* A step of 16 Mi parameters in DRAM takes 15 ms. Threads wake up some hundred times in it, which would be a large part. So
 * there are more parameters in DRAM than in files, up to a number that suffices. */
enum { DRAM_TIMES = 4, DRAM_ENOUGH = 64 << 20 };

/* The memory of an engine that has not worked for seconds is cold on some virtual machines: its first step took 1.6 times as
 * long. A trainer does not pause like that. So those in DRAM warm up before each sample. */
/* clang-format off */
static const contestant CONTESTANTS_AHEAD[] = {
    {{"plain", "four steps in files, nothing beside them", 0, iterate, WAITS}, FILES, 0, 0},
    {{"asleep", "a backward pass of 1.2 steps on a device, alone", 0, iterate, ALONE}, FILES, 0, 1.2},
    {{"ahead_asleep", "the same with steps ahead", 0, iterate, WAITS}, FILES_AHEAD, 0, 1.2},
    {{"misled", "the same, and all buckets are updated again", 0, iterate, WAITS}, FILES_AHEAD, 0, 1.2, false, true},
    {{"busy", "a backward pass of 1.2 steps on all cores, alone", 0, iterate, ALONE}, FILES, 0, 1.2, true},
    {{"ahead_busy", "the same with steps ahead", 0, iterate, WAITS}, FILES_AHEAD, 0, 1.2, true},
    {{"dram_plain", "four steps in DRAM, nothing beside them", 0, iterate, WAITS, .before = iterate}, DRAM, 0, 0},
    {{"dram_asleep", "a backward pass of 1.2 such steps, alone", 0, iterate, ALONE}, DRAM, 0, 1.2},
    {{"dram_ahead", "the same with steps ahead", 0, iterate, WAITS, .before = iterate}, DRAM_AHEAD, 0, 1.2},
    {{"dram_misled", "the same, and all buckets are updated again", 0, iterate, WAITS, .before = iterate}, DRAM_AHEAD, 0, 1.2, false, true},
    {{"dram_passes", "forward and backward pass of 0.6 and 1.2 steps, alone", 0, iterate, ALONE}, DRAM, 0.6, 1.2},
    {{"dram_both", "the same with steps ahead and just in time", 0, iterate, IN_TIME, .before = iterate}, DRAM_AHEAD, 0.6, 1.2}};
/* clang-format on */

/* The engines that update ahead touch their memory for new states and weights in a first pass. */
static int measure_ahead(scene *s)
{
    int ret = 0;
    for (unsigned i = 0; i < ENGINES && ret == 0; i += 2) {
        ret = measure_step(s->engines[i].engine, &s->update[i]);
        s->update[i + 1] = s->update[i];
        trainer ahead = {.engine = s->engines[i + 1].engine, .backward = 4 * 1.2 * s->update[i]};
        ret = ret == 0 ? iterate(&ahead, WAITS) : ret;
    }
    return ret;
}

int step_ahead(step_run *run)
{
    const char *const paths = run->folder;
    const size_t elements = run->options.elements / SLICES * SLICES, most = DRAM_TIMES * elements;
    const size_t in_dram = elements >= DRAM_ENOUGH ? elements : most < DRAM_ENOUGH ? most : DRAM_ENOUGH;
    const uint64_t budget = 3 * sizeof(float) * run->options.elements / run->options.budget_share;
    const uint64_t weights = sizeof(uint16_t), states = 3 * sizeof(float);
    /* Chunks of a slice, or smaller: the last bucket of a pass is then a small part of the step. */
    const size_t chunk = in_dram / SLICES;
    static scene s = {.names = {"files", "files_ahead", "dram", "dram_ahead"},
                      .measure = measure_ahead,
                      .list = CONTESTANTS_AHEAD,
                      .count = BENCH_COUNT(CONTESTANTS_AHEAD)};
    s.opts[FILES] = s.opts[FILES_AHEAD] = (step_engine_opts){.paths = &paths, .path_count = 1, .host_bytes = budget};
    s.opts[FILES_AHEAD].background_threads = 1;
    s.opts[FILES_AHEAD].speculation_bytes = 2 * weights * elements;
    s.opts[DRAM] = s.opts[DRAM_AHEAD] = (step_engine_opts){.chunk_elements = chunk};
    s.opts[DRAM_AHEAD].background_threads = (unsigned)run->background;
    s.opts[DRAM_AHEAD].speculation_bytes = 2 * (weights + states) * in_dram;
    race *r = race_open(&run->book, "ahead", "%zu elements in files, %.1f GB/s each way; %zu elements in DRAM", elements,
                        1e-9 * (double)STEP_DISK_RATE, in_dram);
    if (step_model_open(elements, &s.models[0]) != 0 || step_model_open(in_dram, &s.models[1]) != 0)
        return -1;
    return run_scene(run, &s, r, &run->ahead_chunks);
}
