/* step_ahead.c: how much of a step a trainer sees whose backward pass takes 1.2 steps. Buckets are updated as soon as their
 * gradients are complete (zoff.speculation_memory). States are in files on a disk of a known speed, or in DRAM. And the cost of
 * steps whose buckets were updated for nothing. */
#include "step_trainer.h"

enum { FILES, FILES_AHEAD, DRAM, DRAM_AHEAD, ENGINES };

/* A step of 16 Mi parameters in DRAM takes 15 ms. Threads wake up some hundred times in it, which would be a large part. So
 * there are more parameters in DRAM than in files, up to a number that suffices. */
enum { DRAM_TIMES = 4, DRAM_ENOUGH = 64 << 20 };

typedef struct ahead {
    step_model in_files, in_dram;
    step_engine engines[ENGINES];
    double update[ENGINES]; /* seconds of a plain step in the same place */
} ahead;

static const double BACKWARD = 1.2, FORWARD = 0.6; /* steps */

static const struct contestant {
    race_line line;
    int engine;
    bool forward, backward, busy, misleads;
} CONTESTANTS[] = {
    {{"plain", "four steps in files, nothing beside them", NULL, 0, step_trainer_waits, 0, 0}, FILES, 0, 0, 0, 0},
    {{"asleep", "a backward pass of 1.2 steps on a device, alone", NULL, 0, step_trainer_computes, 0, 0}, FILES, 0, 1, 0, 0},
    {{"ahead_asleep", "the same with steps ahead", NULL, 0, step_trainer_waits, 0, 0}, FILES_AHEAD, 0, 1, 0, 0},
    {{"misled", "the same, and all buckets are updated again", NULL, 0, step_trainer_waits, 0, 0}, FILES_AHEAD, 0, 1, 0, 1},
    {{"busy", "a backward pass of 1.2 steps on all cores, alone", NULL, 0, step_trainer_computes, 0, 0}, FILES, 0, 1, 1, 0},
    {{"ahead_busy", "the same with steps ahead", NULL, 0, step_trainer_waits, 0, 0}, FILES_AHEAD, 0, 1, 1, 0},
    {{"dram_plain", "four steps in DRAM, nothing beside them", NULL, 0, step_trainer_waits, 0, 0}, DRAM, 0, 0, 0, 0},
    {{"dram_asleep", "a backward pass of 1.2 such steps, alone", NULL, 0, step_trainer_computes, 0, 0}, DRAM, 0, 1, 0, 0},
    {{"dram_ahead", "the same with steps ahead", NULL, 0, step_trainer_waits, 0, 0}, DRAM_AHEAD, 0, 1, 0, 0},
    {{"dram_misled", "the same, and all buckets are updated again", NULL, 0, step_trainer_waits, 0, 0}, DRAM_AHEAD, 0, 1, 0, 1},
    {{"dram_passes", "forward and backward pass of 0.6 and 1.2 steps, alone", NULL, 0, step_trainer_computes, 0, 0},
     DRAM,
     1,
     1,
     0,
     0},
    {{"dram_both", "the same with steps ahead and just in time", NULL, 0, step_trainer_in_time, 0, 0}, DRAM_AHEAD, 1, 1, 0, 0}};
enum { COUNT = sizeof CONTESTANTS / sizeof CONTESTANTS[0] };

static int open_all(const step_options *options, const char *folder, ahead *a)
{
    const size_t elements = options->elements / STEP_SLICES * STEP_SLICES, most = DRAM_TIMES * elements;
    const size_t in_dram = elements >= DRAM_ENOUGH ? elements : most < DRAM_ENOUGH ? most : DRAM_ENOUGH;
    const uint64_t budget = 3 * sizeof(float) * options->elements / options->budget_share;
    const uint64_t weights = sizeof(uint16_t), states = 3 * sizeof(float);
    /* Chunks of a slice, or smaller: the last bucket of a pass is then a small part of the step. */
    const size_t chunk = in_dram / STEP_SLICES;
    const step_engine_opts opts[ENGINES] = {{.paths = &folder, .path_count = 1, .host_bytes = budget, .slices = STEP_SLICES},
                                            {.paths = &folder,
                                             .path_count = 1,
                                             .host_bytes = budget,
                                             .slices = STEP_SLICES,
                                             .background_threads = 1,
                                             .speculation_bytes = 2 * weights * elements},
                                            {.slices = STEP_SLICES, .chunk_elements = chunk},
                                            {.slices = STEP_SLICES,
                                             .chunk_elements = chunk,
                                             .background_threads = (unsigned)options->background,
                                             .speculation_bytes = 2 * (weights + states) * in_dram}};
    static const char *const NAMES[] = {"files", "files_ahead", "dram", "dram_ahead"};
    int ret = step_model_open(elements, &a->in_files);
    ret = ret == 0 ? step_model_open(in_dram, &a->in_dram) : ret;
    for (unsigned i = 0; i < ENGINES && ret == 0; i++)
        ret = step_engine_open(i < DRAM ? &a->in_files : &a->in_dram, NAMES[i], &opts[i], &a->engines[i]);
    return ret;
}

/* The engines that update ahead touch their memory for new states and weights in a first pass. */
static int measure_updates(ahead *a)
{
    int ret = 0;
    for (unsigned i = 0; i < ENGINES && ret == 0; i += 2) {
        step_trainer trainer = {.engine = a->engines[i].engine}, ahead_of_it = {.engine = a->engines[i + 1].engine};
        ret = step_trainer_update(&trainer, &a->update[i]);
        a->update[i + 1] = a->update[i];
        ahead_of_it.backward = 4 * BACKWARD * a->update[i];
        ret = ret == 0 ? step_trainer_waits(&ahead_of_it, 0) : ret;
    }
    return ret;
}

/* The memory of an engine that has not worked for seconds is cold on some virtual machines: its first step took 1.6 times as
 * long. A trainer does not pause like that. So those in DRAM warm up before each sample. */
static int run(const step_options *options, ahead *a, step_found *found)
{
    step_trainer trainers[COUNT];
    race *r = race_open(&found->book, "ahead", "%zu elements in files, %.1f GB/s each way; %zu elements in DRAM",
                        a->in_files.elements, 1e-9 * (double)STEP_DISK_RATE, a->in_dram.elements);
    if (measure_updates(a) != 0)
        return -1;
    found->ahead_chunks = a->engines[FILES_AHEAD].plan.chunk_count;
    for (unsigned i = 0; i < COUNT; i++) {
        const struct contestant *c = &CONTESTANTS[i];
        trainers[i] = (step_trainer){.engine = a->engines[c->engine].engine,
                                     .forward = c->forward ? FORWARD * a->update[c->engine] : 0,
                                     .backward = c->backward ? BACKWARD * a->update[c->engine] : 0,
                                     .turns = c->busy ? step_trainer_turns() : 0,
                                     .misleads = c->misleads};
        race_entry *entry =
            race_add(r, &c->line, (double)(c->engine < DRAM ? a->in_files : a->in_dram).elements, &trainers[i], 1);
        entry->before = c->engine >= DRAM && c->line.run != step_trainer_computes ? c->line.run : NULL;
    }
    return race_run(r, (unsigned)(options->run.rounds + 1) / 2, bench_run_deadline(&options->run, 1));
}

int step_ahead(const step_options *options, const char *folder, step_found *found)
{
    static ahead a;
    int ret = open_all(options, folder, &a);
    if (ret == 0 && throttle_open(&step_throttle, folder, STEP_DISK_RATE) != 0) {
        snprintf(found->no_ahead, STEP_REASON, "%.250s", step_throttle.reason);
    } else if (ret == 0) {
        ret = run(options, &a, found);
        throttle_close(&step_throttle);
    }
    for (unsigned i = 0; i < ENGINES; i++)
        step_engine_close(&a.engines[i]);
    bench_streams_close(&a.in_files.mapping);
    bench_streams_close(&a.in_dram.mapping);
    return ret;
}
