/* step_hidden.c: how much of a step a trainer sees that computes meanwhile. In its forward pass it waits for the weights of
 * each slice and computes on them. Then it ends the step, and computes and hands over each gradient. The disk has a known
 * speed. */
#include "step_trainer.h"

typedef struct hidden {
    step_model model;
    step_engine
        engines[4]; /* that updates in calls; with a thread of its own; and that owns the weights, too: in DRAM, in files */
    double update;  /* seconds of a plain step */
} hidden;

enum { IN_CALLS, BACKGROUND, LENDS, LENDS_FILES, ENGINES, ASLEEP = 1, BUSY = 2 };

static const struct contestant {
    race_line line;
    int engine;
    double forward, backward; /* computation over the time of a plain step */
    unsigned how;             /* it computes */
} CONTESTANTS[] = {
    {{"plain", "four steps, nothing beside them", NULL, 0, step_trainer_waits, 0, 0}, IN_CALLS, 0, 0, ASLEEP},
    {{"asleep", "passes of 1.2 and 0.6 steps on a device, alone", NULL, 0, step_trainer_computes, 0, 0},
     IN_CALLS,
     1.2,
     0.6,
     ASLEEP},
    {{"jit_asleep", "the same with steps, by a thread of the engine", NULL, 0, step_trainer_in_time, 0, 0},
     BACKGROUND,
     1.2,
     0.6,
     ASLEEP},
    {{"jit_lent", "the same with weights of the engine, in DRAM", NULL, 0, step_trainer_borrows, 0, 0},
     LENDS,
     1.2,
     0.6,
     ASLEEP},
    {{"jit_lent_files", "the same with weights of the engine, in files", NULL, 0, step_trainer_borrows, 0, 0},
     LENDS_FILES,
     1.2,
     0.6,
     ASLEEP},
    {{"jit_calls", "the same, in the calls of the trainer", NULL, 0, step_trainer_in_time, 0, 0}, IN_CALLS, 1.2, 0.6, ASLEEP},
    {{"busy", "passes of 1.2 and 0.6 steps on all cores, alone", NULL, 0, step_trainer_computes, 0, 0},
     IN_CALLS,
     1.2,
     0.6,
     BUSY},
    {{"jit_busy", "the same with steps, by a thread of the engine", NULL, 0, step_trainer_in_time, 0, 0},
     BACKGROUND,
     1.2,
     0.6,
     BUSY},
    {{"jit_half", "a forward pass of half a step on a device, with steps", NULL, 0, step_trainer_in_time, 0, 0},
     BACKGROUND,
     0.5,
     0,
     ASLEEP}};
enum { COUNT = sizeof CONTESTANTS / sizeof CONTESTANTS[0] };

static int open_all(const step_options *options, const char *folder, hidden *h)
{
    const uint64_t budget = 3 * sizeof(float) * options->elements / options->budget_share;
    const step_engine_opts opts[] = {
        {.paths = &folder, .path_count = 1, .host_bytes = budget, .slices = STEP_SLICES},
        {.paths = &folder, .path_count = 1, .host_bytes = budget, .slices = STEP_SLICES, .background_threads = 1},
        {.paths = &folder,
         .path_count = 1,
         .host_bytes = budget,
         .slices = STEP_SLICES,
         .background_threads = 1,
         .owned = true},
        {.paths = &folder,
         .path_count = 1,
         .host_bytes = budget,
         .slices = STEP_SLICES,
         .background_threads = 1,
         .owned = true,
         .owned_in_files = true}};
    static const char *const NAMES[] = {"in_calls", "background", "lends", "lends_files"};
    int ret = step_model_open(options->elements / STEP_SLICES * STEP_SLICES, &h->model);
    for (unsigned i = 0; i < ENGINES && ret == 0; i++)
        ret = step_engine_open(&h->model, NAMES[i], &opts[i], &h->engines[i]);
    return ret;
}

/* The time of a plain step on the throttled disk, which the computation is a share of. The other engines learn their order. */
static int measure_update(hidden *h)
{
    step_trainer all[ENGINES];
    for (unsigned i = 0; i < ENGINES; i++)
        all[i] = (step_trainer){.engine = h->engines[i].engine};
    const bool learn = step_trainer_in_time(&all[BACKGROUND], 0) == 0 && step_trainer_borrows(&all[LENDS], 0) == 0 &&
                       step_trainer_borrows(&all[LENDS_FILES], 0) == 0;
    return learn ? step_trainer_update(&all[IN_CALLS], &h->update) : -1;
}

static int run(const step_options *options, hidden *h, step_found *found)
{
    step_trainer trainers[COUNT];
    race *r =
        race_open(&found->book, "hidden", "%zu elements, %.1f GB/s each way", h->model.elements, 1e-9 * (double)STEP_DISK_RATE);
    if (measure_update(h) != 0)
        return -1;
    found->hidden_chunks = h->engines[BACKGROUND].plan.chunk_count;
    for (unsigned i = 0; i < COUNT; i++) {
        const struct contestant *c = &CONTESTANTS[i];
        trainers[i] = (step_trainer){.engine = h->engines[c->engine].engine,
                                     .forward = c->forward * h->update,
                                     .backward = c->backward * h->update,
                                     .turns = c->how == BUSY ? step_trainer_turns() : 0};
        race_add(r, &c->line, (double)h->model.elements, &trainers[i], 1);
    }
    return race_run(r, (unsigned)(options->run.rounds + 1) / 2, bench_run_deadline(&options->run, 1));
}

int step_hidden(const step_options *options, const char *folder, step_found *found)
{
    static hidden h;
    int ret = open_all(options, folder, &h);
    if (ret == 0 && throttle_open(&step_throttle, folder, STEP_DISK_RATE) != 0) {
        snprintf(found->no_hidden, STEP_REASON, "%.250s", step_throttle.reason);
    } else if (ret == 0) {
        ret = run(options, &h, found);
        throttle_close(&step_throttle);
    }
    for (unsigned i = 0; i < ENGINES; i++)
        step_engine_close(&h.engines[i]);
    bench_streams_close(&h.model.mapping);
    return ret;
}
