/* checkpoint_race.c: saves and loads of each tier, beside the same bytes moved by a file queue or a plain copy. */
#include "checkpoint_bench.h"

#include <string.h>

/* Engines, their folders of checkpoints, and the yardstick beside them. */
typedef struct contest {
    checkpoint_run *run;
    step_model model;
    checkpoint_states states[CHECKPOINT_TIERS];
    checkpoint_mover mover;
} contest;

/* clang-format off */
static const race_line
    SAVE_HOST = {"save_host", "zoff_checkpoint_save() of states in DRAM", 12, checkpoint_states_save, .before = checkpoint_states_forget},
    SAVE_NVME = {"save_nvme", "zoff_checkpoint_save() of states in files", 24, checkpoint_states_save, .before = checkpoint_states_forget},
    LOAD_HOST = {"load_host", "zoff_checkpoint_load() into DRAM", 12, checkpoint_states_load, .before = checkpoint_states_rest},
    LOAD_NVME = {"load_nvme", "zoff_checkpoint_load() into files", 24, checkpoint_states_load, .before = checkpoint_states_rest},
    AIO_NEW = {"aio_new_file", "the queue writes a new file, with fsync", 12, checkpoint_mover_write, .before = checkpoint_mover_forget},
    AIO_READ = {"aio_read", "the queue reads the same file", 12, checkpoint_mover_read, .before = checkpoint_mover_forget},
    AIO_MIX = {"aio_mix", "the queue reads and writes as many bytes at once", 24, checkpoint_mover_mix, .before = checkpoint_mover_forget},
    COPY = {"copy", "a copy of the state file, with fsync", 24, checkpoint_mover_copy, .before = checkpoint_mover_forget};

/* A race of two, zoff and the yardstick. Buffered writes are not held at a rate, so a copy takes no part there. */
static const struct duel {
    const char *part;
    unsigned asked;
    bool held; /* on a disk of a known speed */
    checkpoint_tier tier;
    const race_line *a, *b;
} DUELS[] = {{"save", CHECKPOINT_SAVE, false, CHECKPOINT_HOST, &SAVE_HOST, &AIO_NEW},
             {"save", CHECKPOINT_SAVE, false, CHECKPOINT_NVME, &SAVE_NVME, &COPY},
             {"load", CHECKPOINT_LOAD, false, CHECKPOINT_HOST, &LOAD_HOST, &AIO_READ},
             {"load", CHECKPOINT_LOAD, false, CHECKPOINT_NVME, &LOAD_NVME, &AIO_MIX},
             {"throttled_save", CHECKPOINT_SAVE, true, CHECKPOINT_HOST, &SAVE_HOST, &AIO_NEW},
             {"throttled_save", CHECKPOINT_SAVE, true, CHECKPOINT_NVME, &SAVE_NVME, &AIO_MIX},
             {"throttled_load", CHECKPOINT_LOAD, true, CHECKPOINT_HOST, &LOAD_HOST, &AIO_READ},
             {"throttled_load", CHECKPOINT_LOAD, true, CHECKPOINT_NVME, &LOAD_NVME, &AIO_MIX}};
/* clang-format on */

static int open_states(contest *c)
{
    checkpoint_run *run = c->run;
    for (unsigned tier = 0; tier < CHECKPOINT_TIERS; tier++) {
        if (checkpoint_states_open(&c->model, run->folder, (checkpoint_tier)tier,
                                   12 * run->options.elements / run->options.budget_share, &c->states[tier]) != 0 ||
            checkpoint_states_count(&c->states[tier], &run->tiers[tier]) != 0)
            return -1;
    }
    run->plan = c->states[CHECKPOINT_NVME].engine.plan;
    return checkpoint_mover_open(run->folder, 12 * run->options.elements, &c->mover);
}

static int run_duel(contest *c, const struct duel *d, race *r)
{
    static const double SHARE = 0.07; /* of the time that is left */
    checkpoint_states *s = &c->states[d->tier];
    const bench_run *run = &c->run->options.run;
    const double elements = (double)c->model.elements;
    int ret = 0;
    for (unsigned tier = 0; tier < CHECKPOINT_TIERS; tier++) /* the duel before may have left reads of a next step */
        checkpoint_states_rest(&c->states[tier], 0);
    if (d->asked == CHECKPOINT_LOAD) { /* of this one, and not of the last save of another race */
        ret = checkpoint_states_forget(s, 0) != 0 || checkpoint_states_save(s, 0) != 0 ? -1 : 0;
        ret = ret == 0 ? checkpoint_states_part(s, c->mover.from) : ret;
    } else {
        memcpy(c->mover.from, s->state_file, sizeof c->mover.from);
    }
    if (ret != 0)
        return -1;
    c->mover.rest = s;
    r->sample = checkpoint_sample;
    r->user = &c->mover;
    race_add(r, d->a, elements, s, 1);
    race_add(r, d->b, elements, &c->mover, 1);
    return race_run(r, (unsigned)run->rounds, bench_now() + SHARE * (bench_run_deadline(run, 1) - bench_now()));
}

static int run_duels(contest *c)
{
    int ret = 0;
    for (const struct duel *d = DUELS; ret == 0 && d < DUELS + BENCH_COUNT(DUELS); d++) {
        if (!(c->run->options.run.parts & d->asked))
            continue;
        race *r = race_open(&c->run->book, d->part, "%s", d->tier == CHECKPOINT_HOST ? "host" : "nvme");
        if (d->held && disk_hold(r, c->run->folder, STEP_DISK_RATE) != 0)
            continue;
        ret = run_duel(c, d, r);
        if (d->held)
            throttle_close(&disk_throttle);
    }
    return ret;
}

int checkpoint_race(checkpoint_run *run)
{
    static contest c;
    c.run = run;
    int ret = step_model_open(run->options.elements, &c.model);
    if (ret == 0)
        ret = open_states(&c);
    if (ret == 0)
        ret = run_duels(&c);
    run->registered = run->registered && c.mover.registered;
    for (unsigned tier = 0; tier < CHECKPOINT_TIERS; tier++)
        checkpoint_states_close(&c.states[tier]);
    checkpoint_mover_close(&c.mover);
    bench_streams_close(&c.model.mapping);
    return ret;
}
