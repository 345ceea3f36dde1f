/* checkpoint_race.c: saves and loads of each tier, beside the same bytes moved by a file queue or a plain copy. */
#include "checkpoint_states.h"

#include <string.h>

/* One engine, its folder of checkpoints, and the yardstick beside it. */
typedef struct contest {
    const checkpoint_options *options;
    checkpoint_found *found;
    step_model model;
    checkpoint_states states[CHECKPOINT_TIERS];
    checkpoint_mover mover;
} contest;

/* A race of two: `a` of zoff, `b` the yardstick. */
typedef struct duel {
    unsigned part;
    const char *part_name, *label;
    const race_line *a, *b;
    checkpoint_tier tier;
    bench_work_fn before; /* zoff's turn */
} duel;

static const race_line
    SAVE_HOST = {"save_host", "zoff_checkpoint_save() of states in DRAM", NULL, 12, checkpoint_states_save, 0, 0},
    SAVE_NVME = {"save_nvme", "zoff_checkpoint_save() of states in files", NULL, 24, checkpoint_states_save, 0, 0},
    LOAD_HOST = {"load_host", "zoff_checkpoint_load() into DRAM", NULL, 12, checkpoint_states_load, 0, 0},
    LOAD_NVME = {"load_nvme", "zoff_checkpoint_load() into files", NULL, 24, checkpoint_states_load, 0, 0},
    AIO_NEW = {"aio_new_file", "the queue writes a new file, with fsync", NULL, 12, checkpoint_mover_write, 0, 0},
    AIO_READ = {"aio_read", "the queue reads the same file", NULL, 12, checkpoint_mover_read, 0, 0},
    AIO_MIX = {"aio_mix", "the queue reads and writes as many bytes at once", NULL, 24, checkpoint_mover_mix, 0, 0},
    COPY = {"copy", "a copy of the state file, with fsync", NULL, 24, checkpoint_mover_copy, 0, 0};

/* Buffered writes are not held at a rate, so a copy takes no part there. */
static const duel FREE[] = {{CHECKPOINT_SAVE, "save", "host", &SAVE_HOST, &AIO_NEW, CHECKPOINT_HOST, checkpoint_states_forget},
                            {CHECKPOINT_SAVE, "save", "nvme", &SAVE_NVME, &COPY, CHECKPOINT_NVME, checkpoint_states_forget},
                            {CHECKPOINT_LOAD, "load", "host", &LOAD_HOST, &AIO_READ, CHECKPOINT_HOST, checkpoint_states_rest},
                            {CHECKPOINT_LOAD, "load", "nvme", &LOAD_NVME, &AIO_MIX, CHECKPOINT_NVME, checkpoint_states_rest}};
static const duel HELD[] = {
    {CHECKPOINT_SAVE, "throttled_save", "host", &SAVE_HOST, &AIO_NEW, CHECKPOINT_HOST, checkpoint_states_forget},
    {CHECKPOINT_SAVE, "throttled_save", "nvme", &SAVE_NVME, &AIO_MIX, CHECKPOINT_NVME, checkpoint_states_forget},
    {CHECKPOINT_LOAD, "throttled_load", "host", &LOAD_HOST, &AIO_READ, CHECKPOINT_HOST, checkpoint_states_rest},
    {CHECKPOINT_LOAD, "throttled_load", "nvme", &LOAD_NVME, &AIO_MIX, CHECKPOINT_NVME, checkpoint_states_rest}};
enum { DUELS = sizeof FREE / sizeof FREE[0] };

static int open_states(contest *c, const char *folder)
{
    const uint64_t budget = 12 * c->options->elements / c->options->budget_share;
    for (unsigned tier = 0; tier < CHECKPOINT_TIERS; tier++) {
        if (checkpoint_states_open(&c->model, folder, (checkpoint_tier)tier, budget, &c->states[tier]) != 0 ||
            checkpoint_states_count(&c->states[tier], &c->found->tiers[tier]) != 0)
            return -1;
    }
    c->found->plan = c->states[CHECKPOINT_NVME].engine.plan;
    return checkpoint_mover_open(folder, 12 * c->options->elements, &c->mover);
}

static int run_duel(contest *c, const duel *d, double share)
{
    checkpoint_states *s = &c->states[d->tier];
    const bool loads = d->part == CHECKPOINT_LOAD;
    const double elements = (double)c->model.elements;
    race *r = race_open(&c->found->book, d->part_name, "%s", d->label);
    int ret = 0;
    for (unsigned tier = 0; tier < CHECKPOINT_TIERS; tier++) /* the duel before may have left reads of a next step */
        checkpoint_states_rest(&c->states[tier], 0);
    if (loads) { /* of this one, and not of the last save of another race */
        ret = checkpoint_states_forget(s, 0) != 0 || checkpoint_states_save(s, 0) != 0 ? -1 : 0;
        ret = ret == 0 ? checkpoint_states_part(s, c->mover.from) : ret;
    } else {
        memcpy(c->mover.from, s->state_file, sizeof c->mover.from);
    }
    if (ret != 0)
        return -1;
    c->mover.rest = (bench_work){checkpoint_states_rest, s, 0};
    r->sample = checkpoint_sample;
    r->user = &c->mover;
    race_add(r, d->a, elements, s, 1)->before = d->before;
    race_add(r, d->b, elements, &c->mover, 1)->before = checkpoint_mover_forget;
    const double left = bench_run_deadline(&c->options->run, 1) - bench_now();
    return race_run(r, (unsigned)c->options->run.rounds, bench_now() + share * left);
}

static int run_duels(contest *c, const duel *duels)
{
    int ret = 0;
    for (unsigned i = 0; ret == 0 && i < DUELS; i++) {
        if (c->options->run.parts & duels[i].part)
            ret = run_duel(c, &duels[i], 0.07);
    }
    return ret;
}

static int run_all(contest *c, const char *folder)
{
    if (run_duels(c, FREE) != 0)
        return -1;
    if (throttle_open(&step_throttle, folder, CHECKPOINT_RATE) != 0) {
        snprintf(c->found->no_throttle, sizeof c->found->no_throttle, "%.250s", step_throttle.reason);
        return 0;
    }
    const int ret = run_duels(c, HELD);
    throttle_close(&step_throttle);
    return ret;
}

int checkpoint_race(const checkpoint_options *options, const char *folder, checkpoint_found *found)
{
    static contest c;
    c = (contest){.options = options, .found = found};
    int ret = step_model_open(options->elements, &c.model);
    if (ret == 0)
        ret = open_states(&c, folder);
    if (ret == 0)
        ret = run_all(&c, folder);
    found->registered = found->registered && c.mover.registered;
    for (unsigned tier = 0; tier < CHECKPOINT_TIERS; tier++)
        checkpoint_states_close(&c.states[tier]);
    checkpoint_mover_close(&c.mover);
    bench_streams_close(&c.model.mapping);
    return ret;
}
