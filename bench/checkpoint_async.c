/* checkpoint_async.c: what a save beside training steps costs. The same steps run with a save and without one, beside the time
 * in which the queue reads and writes as many bytes as the save does. */
#include "checkpoint_async.h"

#include <math.h>

enum { STEPS = 10 /* from one save to the next */ };

static volatile double sink;

/* The number of turns in which all threads compute for so long. */
static size_t turns_of(double seconds)
{
    enum { TURNS = 1 << 21 };
    double best = INFINITY;
    for (unsigned i = 0; i < 5; i++) {
        const double from = bench_now();
        sink = step_own_backward(TURNS);
        best = fmin(best, bench_now() - from);
    }
    return (size_t)(TURNS * (seconds / best));
}

/* One step of training: the passes of a model compute, then the optimizer steps. */
static int train(checkpoint_trainer *t, zoff_checkpoint *save)
{
    if (t->turns)
        sink = step_own_backward(t->turns);
    if (step_engine_step(&t->states.engine, 0) != 0)
        return -1;
    return save ? bench_told(zoff_checkpoint_poll(save)) : 0;
}

static int train_beside(checkpoint_trainer *t, zoff_checkpoint *save)
{
    int ret = 0;
    for (unsigned i = 0; ret == 0 && i < STEPS; i++)
        ret = train(t, save);
    return ret;
}

int checkpoint_trainer_steps(void *ctx, int which)
{
    (void)which;
    return train_beside(ctx, NULL);
}

int checkpoint_trainer_saves(void *ctx, int which)
{
    checkpoint_trainer *t = ctx;
    zoff_checkpoint *save = NULL;
    (void)which;
    if (bench_told(zoff_checkpoint_begin(t->states.engine.engine, t->states.folder, NULL, &save)) != 0)
        return -1;
    const int ret = train_beside(t, save);
    return bench_told(zoff_checkpoint_wait(save)) != 0 ? -1 : ret;
}

int checkpoint_trainer_open(const step_model *m, const char *folder, uint64_t budget, checkpoint_trainer *out)
{
    *out = (checkpoint_trainer){.turns = 0};
    if (checkpoint_states_open(m, folder, CHECKPOINT_NVME, budget, &out->states) != 0 ||
        checkpoint_mover_open(folder, 12 * m->elements, &out->mover) != 0)
        return -1;
    snprintf(out->mover.from, sizeof out->mover.from, "%s", out->states.state_file);
    out->mover.rest = (bench_work){checkpoint_states_rest, &out->states, 0};
    out->states.engine.sample_steps = STEPS;
    return 0;
}

void checkpoint_trainer_close(checkpoint_trainer *t)
{
    checkpoint_states_close(&t->states);
    checkpoint_mover_close(&t->mover);
}

/* A compute phase as long as a step: the disk has work for half of the time. */
int checkpoint_trainer_compute(checkpoint_trainer *t)
{
    const double from = bench_now();
    t->turns = 0;
    if (checkpoint_trainer_steps(t, 0) != 0)
        return -1;
    t->turns = turns_of((bench_now() - from) / STEPS);
    return 0;
}

static int run_race(const checkpoint_options *options, checkpoint_trainer *t, checkpoint_found *found, const char *label,
                    double share)
{
    static const race_line LINES[] = {
        {"steps", "ten steps", NULL, 240, checkpoint_trainer_steps, 0, 1},
        {"steps_and_save", "a save begins, ten steps, wait for the save", NULL, 264, checkpoint_trainer_saves, 0, 1},
        {"aio_mix", "the queue reads and writes the bytes of a save at once", NULL, 24, checkpoint_mover_mix, 0, 2},
        {.name = NULL}};
    race *r = race_open(&found->book, "async", "%s", label);
    const double elements = t->states.bytes / 12;
    r->sample = checkpoint_sample;
    r->user = &t->mover;
    race_add_lines(r, LINES, 1, elements, t, 1);
    race_add_lines(r, LINES, 2, elements, &t->mover, 1);
    r->entries[0].before = r->entries[1].before = checkpoint_trainer_forget;
    r->entries[2].before = checkpoint_mover_forget;
    const double left = bench_run_deadline(&options->run, 1) - bench_now();
    return race_run(r, (unsigned)options->run.rounds, bench_now() + share * left);
}

int checkpoint_trainer_forget(void *ctx, int which)
{
    checkpoint_trainer *t = ctx;
    return checkpoint_states_forget(&t->states, which);
}

/* On a disk of known speed the load of the machine does not show. */
static int run_throttled(const checkpoint_options *options, checkpoint_trainer *t, checkpoint_found *found)
{
    if (throttle_open(&step_throttle, t->mover.scratch, CHECKPOINT_RATE) != 0) {
        snprintf(found->no_throttle, sizeof found->no_throttle, "%.250s", step_throttle.reason);
        return 0;
    }
    const int ret = run_race(options, t, found, "the disk is held at 1 GB/s each way", 0.25);
    throttle_close(&step_throttle);
    return ret;
}

int checkpoint_async(const checkpoint_options *options, const char *folder, checkpoint_found *found)
{
    static checkpoint_trainer t;
    step_model model;
    const size_t elements = (options->elements / CHECKPOINT_ASYNC_PART + 1023) / 1024 * 1024;
    int ret = step_model_open(elements, &model);
    if (ret == 0)
        ret = checkpoint_trainer_open(&model, folder, 12 * elements / options->budget_share, &t);
    if (ret == 0)
        ret = run_race(options, &t, found, "the disk has no pause", 0.25);
    if (ret == 0)
        ret = run_throttled(options, &t, found);
    if (ret == 0)
        ret = checkpoint_trainer_compute(&t);
    if (ret == 0)
        ret = run_race(options, &t, found, "half of the time is compute", 0.25);
    found->registered = found->registered && t.mover.registered;
    checkpoint_trainer_close(&t);
    bench_streams_close(&model.mapping);
    return ret;
}
