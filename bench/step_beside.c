/* SPDX-License-Identifier: Apache-2.0 */
/* step_beside.c: how much of a step a trainer sees that computes meanwhile. In its backward pass it computes and hands over
 * each gradient, then it ends the step. In its forward pass it waits for the weights of each slice and computes on them.
 *
 * The race "hidden" has steps in files, updated in the forward pass. The race "ahead" has a backward pass that takes 1.2 steps,
 * so buckets are updated as soon as their gradients are complete (zoff.speculation_memory). States are in files or in DRAM, and
 * some steps are taken again because their buckets were updated for nothing. The disk has a known speed, at which a step takes
 * longer than any other work on its bytes. */
#include "step_bench.h"

enum { SLICES = 32, ITERATIONS = 4, ENGINES = 4 };

/* --- a trainer whose passes compute for a given time --- */

typedef struct trainer {
    zoff_engine *engine;
    double forward, backward; /* seconds of computation */
    /* turns of a thread for each second; 0: the trainer sleeps, as one that waits for a device does */
    double turns;
    bool misleads; /* each step differs from what zoff_step_prepare() has said */
} trainer;

static volatile double sink;

/* A slice's share of a pass. */
static void compute(const trainer *t, double pass)
{
    const double seconds = pass / SLICES;
    if (t->turns > 0)
        sink = step_own_backward((size_t)(t->turns * seconds));
    else if (seconds > 0)
        bench_sleep(seconds);
}

/* A backward pass, which begins a step. */
static void begin(const trainer *t)
{
    const zoff_step_args other = {.struct_size = sizeof other, .grad_scale = 0.5};
    if (t->misleads)
        bench_must(zoff_step_prepare(t->engine, &other));
    for (size_t slice = SLICES; slice-- > 0;) {
        compute(t, t->backward);
        bench_must(zoff_grad_ready(t->engine, 0, slice, NULL));
    }
    bench_must(zoff_step_begin(t->engine, NULL));
}

/* Use a slice of weights, which is the program's own or borrowed from the engine. */
static void use(const trainer *t, size_t slice, bool borrows)
{
    const void *weights;
    bench_must(borrows ? zoff_param_fetch(t->engine, 0, slice, NULL, &weights) : zoff_param_wait(t->engine, 0, slice, NULL));
    compute(t, t->forward);
    if (borrows)
        bench_must(zoff_param_release(t->engine, 0, slice, NULL));
}

/* The turns of contestants, some iterations: passes alone; with steps that the trainer waits for; with steps whose weights it
 * waits for, or borrows, slice by slice in the next forward pass. */
enum { ALONE, WAITS, IN_TIME, BORROWS };
static void iterate(void *ctx, int which)
{
    const trainer *t = ctx;
    for (unsigned i = 0; i < ITERATIONS; i++) {
        for (unsigned slice = 0; slice < SLICES && which == ALONE; slice++) {
            compute(t, t->forward);
            compute(t, t->backward);
        }
        if (which == ALONE)
            continue;
        begin(t);
        for (size_t slice = 0; slice < SLICES && which >= IN_TIME; slice++)
            use(t, slice, which == BORROWS);
        bench_must(zoff_step_wait(t->engine, NULL));
    }
    /* Reads for the next step end before the next sample begins. */
    while (which != ALONE && zoff_engine_progress(t->engine) == ZOFF_PENDING)
        bench_sleep(2e-5);
}

/* Seconds of a step. */
static double measure_step(zoff_engine *engine)
{
    enum { TRIES = 3 };
    double seconds[TRIES];
    for (unsigned i = 0; i < TRIES; i++) {
        const double start = bench_now();
        iterate(&(trainer){.engine = engine}, WAITS);
        seconds[i] = (bench_now() - start) / ITERATIONS;
    }
    return bench_spread_of(seconds + 1, TRIES - 1).median; /* the first sample warms up */
}

/* --- a race of trainers beside four engines --- */

typedef struct contestant {
    race_line line;
    int engine;
    double forward, backward; /* computation over the time of a plain step in the same place */
    bool busy, misleads;      /* the trainer computes on all cores; it misleads the engine */
} contestant;

static step_model models[2]; /* models of the first two engines, and of the others */
static step_engine engines[ENGINES];
static double update[ENGINES]; /* seconds of a plain step in the same place */

/* Returns whether the disk is held, so that the race can begin. The second engine updates beside the trainer, so it needs
 * chunks. */
static bool open_engines(race *r, const char *const names[ENGINES], step_engine_opts opts[ENGINES], uint64_t *chunks)
{
    for (unsigned i = 0; i < ENGINES; i++) {
        opts[i].slices = SLICES;
        step_engine_open(&models[i / 2], names[i], &opts[i], &engines[i]);
    }
    const bool holds = disk_hold(r, disk.folder, STEP_DISK_RATE);
    *chunks = holds ? engines[1].plan.chunk_count : 0;
    return holds;
}

static void run_race(race *r, const contestant *list, unsigned count)
{
    static const double SAMPLE = 5e-3; /* seconds for which turns are counted */
    static trainer trainers[RACE_ENTRIES];
    for (unsigned i = 0; i < count; i++) {
        const contestant *c = &list[i];
        trainers[i] = (trainer){.engine = engines[c->engine].engine,
                                .forward = c->forward * update[c->engine],
                                .backward = c->backward * update[c->engine],
                                .turns = c->busy ? (double)step_own_turns(SAMPLE) / SAMPLE : 0,
                                .misleads = c->misleads};
        race_add(r, &c->line, (double)models[c->engine / 2].elements, &trainers[i], 1);
    }
    race_run(r, step_fewer(), bench_share(1));
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

void step_hidden(const bench_part *part)
{
    static const char *const NAMES[] = {"in_calls", "background", "lends", "lends_files"};
    step_engine_opts opts[ENGINES];
    const size_t elements = disk.elements / SLICES * SLICES;
    race *r = race_open(part->name, bench_text("%zu elements, %.1f GB/s each way", elements, 1e-9 * (double)STEP_DISK_RATE));
    models[0] = models[1] = step_model_open(elements);
    for (unsigned i = 0; i < ENGINES; i++)
        opts[i] = (step_engine_opts){.paths = {disk.folder},
                                     .host_bytes = step_budget(disk.elements),
                                     .background_threads = i >= BACKGROUND,
                                     .owned = i >= LENDS,
                                     .owned_in_files = i == LENDS_FILES};
    if (!open_engines(r, NAMES, opts, &found.hidden_chunks))
        return;
    for (int i = BACKGROUND; i < ENGINES; i++) /* a first pass, in which engines learn their order */
        iterate(&(trainer){.engine = engines[i].engine}, i == BACKGROUND ? IN_TIME : BORROWS);
    update[0] = update[1] = update[2] = update[3] = measure_step(engines[IN_CALLS].engine);
    run_race(r, HIDDEN, BENCH_COUNT(HIDDEN));
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

void step_ahead(const bench_part *part)
{
    static const char *const NAMES[] = {"files", "files_ahead", "dram", "dram_ahead"};
    const size_t elements = disk.elements / SLICES * SLICES, most = DRAM_TIMES * elements;
    const size_t in_dram = elements >= DRAM_ENOUGH ? elements : most < DRAM_ENOUGH ? most : DRAM_ENOUGH;
    const uint64_t weights = sizeof(uint16_t), states = 3 * sizeof(float);
    /* In DRAM chunks of a slice, or smaller: the last bucket of a pass is then a small part of the step. */
    step_engine_opts in_files = {.paths = {disk.folder}, .host_bytes = step_budget(disk.elements)},
                     in_memory = {.chunk_elements = in_dram / SLICES}, opts[] = {in_files, in_files, in_memory, in_memory};
    opts[FILES_AHEAD].background_threads = 1;
    opts[FILES_AHEAD].speculation_bytes = 2 * weights * elements;
    opts[DRAM_AHEAD].background_threads = (unsigned)step_background;
    opts[DRAM_AHEAD].speculation_bytes = 2 * (weights + states) * in_dram;
    race *r = race_open(part->name, bench_text("%zu elements in files, %.1f GB/s each way; %zu elements in DRAM", elements,
                                               1e-9 * (double)STEP_DISK_RATE, in_dram));
    models[0] = step_model_open(elements);
    models[1] = step_model_open(in_dram);
    if (!open_engines(r, NAMES, opts, &found.ahead_chunks))
        return;
    /* engines that update ahead touch their memory for new states and weights in a first pass */
    for (unsigned i = 0; i < ENGINES; i += 2) {
        update[i] = update[i + 1] = measure_step(engines[i].engine);
        iterate(&(trainer){.engine = engines[i + 1].engine, .backward = 4 * 1.2 * update[i]}, WAITS);
    }
    run_race(r, CONTESTANTS_AHEAD, BENCH_COUNT(CONTESTANTS_AHEAD));
}
