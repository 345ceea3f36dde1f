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
    const char *part, *label;
    race_line a, b;
    checkpoint_tier tier;
    bench_work_fn before; /* zoff's turn */
} duel;

static const duel SAVES[] = {
    {"save",
     "host",
     {"save_host", "zoff_checkpoint_save() of states in DRAM", NULL, 12, checkpoint_states_save, 0, 0},
     {"aio_new_file", "the queue writes a new file, with fsync", NULL, 12, checkpoint_mover_write, 0, 0},
     CHECKPOINT_HOST,
     checkpoint_states_forget},
    {"save",
     "nvme",
     {"save_nvme", "zoff_checkpoint_save() of states in files", NULL, 24, checkpoint_states_save, 0, 0},
     {"copy", "a copy of the state file, with fsync", NULL, 24, checkpoint_mover_copy, 0, 0},
     CHECKPOINT_NVME,
     checkpoint_states_forget}};

static const duel LOADS[] = {
    {"load",
     "host",
     {"load_host", "zoff_checkpoint_load() into DRAM", NULL, 12, checkpoint_states_load, 0, 0},
     {"aio_read", "the queue reads the same file", NULL, 12, checkpoint_mover_read, 0, 0},
     CHECKPOINT_HOST,
     NULL},
    {"load",
     "nvme",
     {"load_nvme", "zoff_checkpoint_load() into files", NULL, 24, checkpoint_states_load, 0, 0},
     {"aio_mix", "the queue reads and writes as many bytes at once", NULL, 24, checkpoint_mover_mix, 0, 0},
     CHECKPOINT_NVME,
     NULL}};

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

static int run_duel(contest *c, const duel *d, const char *from, double share)
{
    race *r = race_open(&c->found->book, d->part, "%s", d->label);
    checkpoint_states *s = &c->states[d->tier];
    const double elements = (double)c->model.elements;
    snprintf(c->mover.from, sizeof c->mover.from, "%s", from);
    race_add(r, &d->a, elements, s, 1)->before = d->before;
    race_add(r, &d->b, elements, &c->mover, 1)->before = checkpoint_mover_forget;
    const double left = bench_run_deadline(&c->options->run, 1) - bench_now();
    return race_run(r, (unsigned)c->options->run.rounds, bench_now() + share * left);
}

/* The last save of a race has left a checkpoint to load. */
static int run_duels(contest *c)
{
    const unsigned parts = c->options->run.parts;
    int ret = 0;
    for (unsigned i = 0; ret == 0 && i < CHECKPOINT_TIERS; i++) {
        const checkpoint_states *s = &c->states[SAVES[i].tier];
        if (parts & CHECKPOINT_SAVE)
            ret = run_duel(c, &SAVES[i], s->state_file, 0.2);
        else
            ret = checkpoint_states_save(&c->states[i], 0);
    }
    for (unsigned i = 0; ret == 0 && parts & CHECKPOINT_LOAD && i < CHECKPOINT_TIERS; i++) {
        char file[CHECKPOINT_PATH];
        checkpoint_states_forget(&c->states[LOADS[i].tier], 0);
        ret = checkpoint_states_save(&c->states[LOADS[i].tier], 0);
        if (ret == 0)
            ret = checkpoint_states_part(&c->states[LOADS[i].tier], file);
        if (ret == 0)
            ret = run_duel(c, &LOADS[i], file, 0.2);
    }
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
        ret = run_duels(&c);
    found->registered = c.mover.registered;
    for (unsigned tier = 0; tier < CHECKPOINT_TIERS; tier++)
        checkpoint_states_close(&c.states[tier]);
    checkpoint_mover_close(&c.mover);
    bench_streams_close(&c.model.mapping);
    return ret;
}
