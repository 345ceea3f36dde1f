/* checkpoint_async.c: what a save beside training steps costs. The same steps run with a save and without one, beside the time
 * in which the queue reads and writes as many bytes as the save does. The disk is free or held, and the trainer computes or
 * not. Then again on a drive that shares blocks: a loop device over a file in the benchmark's folder, with XFS. */
#include "checkpoint_bench.h"

#include <math.h>
#include <stdlib.h>

enum { STEPS = 10 /* from one save to the next */ };

static volatile double sink;

/* A trainer with states in files, which saves beside its steps. */
typedef struct trainer {
    checkpoint_states states;
    checkpoint_mover mover;
    size_t turns; /* of computation before each step */
} trainer;

/* --- turns --- */

/* One step of training: the passes of a model compute, then the optimizer steps. */
static int train(trainer *t, zoff_checkpoint *save)
{
    int ret = 0;
    for (unsigned i = 0; ret == 0 && i < STEPS; i++) {
        if (t->turns)
            sink = step_own_backward(t->turns);
        ret = step_engine_step(&t->states.engine, 0);
        ret = ret == 0 && save ? bench_told(zoff_checkpoint_poll(save)) : ret;
    }
    return ret;
}

enum { ALONE, SAVES };
static int take_steps(void *ctx, int which)
{
    trainer *t = ctx;
    zoff_checkpoint *save = NULL;
    if (which == ALONE)
        return train(t, NULL);
    if (bench_told(zoff_checkpoint_begin(t->states.engine.engine, t->states.folder, NULL, &save)) != 0)
        return -1;
    const int ret = train(t, save);
    return bench_told(zoff_checkpoint_wait(save)) != 0 ? -1 : ret;
}

static int forget(void *ctx, int which)
{
    trainer *t = ctx;
    return checkpoint_states_forget(&t->states, which);
}

enum { OF_TRAINER = 1, OF_QUEUE = 2 };
static const race_line LINES[] = {
    {"steps", "ten steps", 240, take_steps, ALONE, OF_TRAINER, .before = forget},
    {"steps_and_save", "a save begins, ten steps, wait for the save", 264, take_steps, SAVES, OF_TRAINER, .before = forget},
    {"aio_mix", "the queue reads and writes the bytes of a save at once", 24, checkpoint_mover_mix, 0, OF_QUEUE,
     .before = checkpoint_mover_forget},
    {NULL}};
static const race_line SAVE_REFLINK = {"save_reflink", "zoff_checkpoint_save() of states in files", 12, checkpoint_states_save,
                                       .before = checkpoint_states_forget},
                       COPY_REFLINK = {"copy_reflink", "a clone of the state file, with fsync", 12, checkpoint_mover_copy,
                                       .before = checkpoint_mover_forget};

/* A part of the model: ten steps move twenty times their states. */
static size_t elements_of(const disk_options *options)
{
    return (options->elements / 4 + 1023) / 1024 * 1024;
}

static int open_trainer(const step_model *m, const char *folder, uint64_t budget, trainer *out)
{
    *out = (trainer){.turns = 0};
    if (checkpoint_states_open(m, folder, CHECKPOINT_NVME, budget, &out->states) != 0 ||
        checkpoint_mover_open(folder, 12 * m->elements, &out->mover) != 0)
        return -1;
    snprintf(out->mover.from, sizeof out->mover.from, "%s", out->states.state_file);
    out->mover.rest = &out->states;
    out->states.engine.sample_steps = STEPS;
    return 0;
}

static void close_trainer(trainer *t)
{
    checkpoint_states_close(&t->states);
    checkpoint_mover_close(&t->mover);
}

static void enter(race *r, trainer *t, size_t elements)
{
    r->sample = checkpoint_sample;
    r->user = t ? &t->mover : NULL;
    race_add_lines(r, LINES, OF_TRAINER, (double)elements, t, 1);
    race_add_lines(r, LINES, OF_QUEUE, (double)elements, t ? &t->mover : NULL, 1);
}

/* --- files in the folder --- */

/* A compute phase as long as a step: the disk has work for half of the time. Count the turns in which all threads compute for
 * so long. */
static int find_compute(trainer *t)
{
    enum { TURNS = 1 << 21 };
    double best = INFINITY, from = bench_now();
    if (take_steps(t, ALONE) != 0)
        return -1;
    const double seconds = (bench_now() - from) / STEPS;
    for (unsigned i = 0; i < 5; i++) {
        from = bench_now();
        sink = step_own_backward(TURNS);
        best = fmin(best, bench_now() - from);
    }
    t->turns = (size_t)(TURNS * (seconds / best));
    return 0;
}

/* On a disk of known speed the load of the machine does not show. */
static int run_race(checkpoint_run *run, trainer *t, const char *label, bool held)
{
    static const double SHARE = 0.25; /* of the time that is left */
    const bench_run *own = &run->options.run;
    race *r = race_open(&run->book, "async", "%s", label);
    if (held && disk_hold(r, t->mover.scratch, STEP_DISK_RATE) != 0)
        return 0;
    enter(r, t, elements_of(&run->options));
    const int ret = race_run(r, (unsigned)own->rounds, bench_now() + SHARE * (bench_run_deadline(own, 1) - bench_now()));
    if (held)
        throttle_close(&disk_throttle);
    return ret;
}

int checkpoint_async(checkpoint_run *run)
{
    static trainer t;
    step_model model;
    const size_t elements = elements_of(&run->options);
    int ret = step_model_open(elements, &model);
    if (ret == 0)
        ret = open_trainer(&model, run->folder, 12 * elements / run->options.budget_share, &t);
    if (ret == 0)
        ret = run_race(run, &t, "the disk has no pause", false);
    if (ret == 0)
        ret = run_race(run, &t, "the disk is held at 1 GB/s each way", true);
    if (ret == 0)
        ret = find_compute(&t);
    if (ret == 0)
        ret = run_race(run, &t, "half of the time is compute", false);
    run->registered = run->registered && t.mover.registered;
    close_trainer(&t);
    bench_streams_close(&model.mapping);
    return ret;
}

/* --- a drive with reflinks, in a process of its own --- */

static void enter_reflink(race *r, trainer *t, size_t elements)
{
    race_add(r, &SAVE_REFLINK, (double)elements, t ? &t->states : NULL, 1);
    race_add(r, &COPY_REFLINK, (double)elements, t ? &t->mover : NULL, 1);
    enter(r, t, elements);
    r->entries[3].line.bytes = 240; /* the blocks of a save are shared */
}

/* On a drive of known speed the load of the machine does not show. The bytes of the yardstick take that time, too. */
static int race_reflink(trainer *t, size_t elements, unsigned rounds, double seconds)
{
    static race r;
    enter_reflink(&r, t, elements);
    if (disk_hold(&r, t->mover.scratch, STEP_DISK_RATE) != 0)
        return bench_fail("no throttle: %s", r.missing);
    const int ret = race_run(&r, rounds, bench_now() + seconds);
    throttle_close(&disk_throttle);
    printf("%d ", t->mover.registered);
    race_print_samples(&r);
    return ret;
}

int checkpoint_reflink_child(char **arguments)
{
    static trainer t;
    char folder[DISK_PATH];
    step_model model;
    const char *parent = disk_child_begin();
    const size_t elements = strtoull(arguments[0], NULL, 10);
    if (arguments[4][0] == '1')
        bench_stopwatch_beside_others();
    if (!parent || step_model_open(elements, &model) != 0)
        return 1;
    snprintf(folder, sizeof folder, "%.4000s/xfs", parent);
    int ret = open_trainer(&model, folder, strtoull(arguments[1], NULL, 10), &t);
    if (ret == 0)
        ret = race_reflink(&t, elements, (unsigned)strtoul(arguments[2], NULL, 10), strtod(arguments[3], NULL));
    close_trainer(&t);
    bench_streams_close(&model.mapping);
    return ret ? 1 : 0;
}

int checkpoint_reflink(checkpoint_run *run)
{
    const size_t elements = elements_of(&run->options);
    const unsigned long long budget = 12 * (unsigned long long)elements / run->options.budget_share;
    /* The file has holes: it takes the space that is written. */
    const disk_drives drives = {.names = "xfs",
                                .allocate = "truncate -s",
                                .format = "mkfs.xfs -q -m reflink=1",
                                .bytes = 12 * (unsigned long long)elements * 7 + (1ull << 30)};
    race *r = race_open(&run->book, "reflink", "XFS on a loop device");
    if (disk_is_late(&run->options, 0.9, r))
        return 0;
    const double seconds = 0.7 * (bench_run_deadline(&run->options.run, 1) - bench_now());
    const char *line = disk_child(r, &drives, "--reflink-of %zu %llu %u %.0f %d", elements, budget,
                                  (unsigned)run->options.run.rounds, ceil(seconds), run->options.busy != UINT64_MAX);
    int registered = 0, used = 0;
    if (!line || sscanf(line, "%d%n", &registered, &used) != 1)
        return 0;
    run->registered = run->registered && registered;
    enter_reflink(r, NULL, elements);
    race_read_samples(r, line + used);
    return 0;
}
