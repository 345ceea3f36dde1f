/* step_race.c: contestants in turns on one folder: zoff's step with states on the disk, the disk alone, the update alone, more
 * DRAM, and DeepSpeed's way. Then the first three again, on a disk of known speed. */
#include "step_bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { HOST, SMALL, SPLIT, SPLIT_BF16, SPLIT_Q8, CACHED, UNVERIFIED, PERSIST_CACHED, PERSIST, ENGINES, IO = ENGINES };
enum { UNIT = 1024 /* elements; chunks are multiples of it */ };

typedef struct contest {
    step_run *run;
    race *free_race, *rivals, *extra;
    step_model model;
    step_engine engines[ENGINES];
    step_io io;
    step_states states[ENGINES + 1];
    unsigned state_count;
} contest;

/* The budget with which half of the states stay in DRAM, beside the slots of the small budget. The last chunk always stays; if
 * it is short, it comes on top. */
static uint64_t large_budget(const contest *c, uint64_t small)
{
    const zoff_plan_info *p = &c->engines[SMALL].plan;
    const bool short_one = p->nvme_bytes < (p->chunk_count - 1) * p->chunk_bytes + p->chunk_bytes / 2;
    return small + (p->chunk_count / 2 + short_one) * p->chunk_bytes;
}

static int read_states(const void *ctx, zoff_state_kind kind, size_t first, size_t count, float *dst)
{
    const step_engine *e = ctx;
    return bench_told(zoff_state_read(e->engine, 0, kind, first, count, dst));
}

static const race_line LINES[] = {
    [HOST] = {"update_only", "the same engine, states in DRAM", 0, step_engine_step},
    [SMALL] = {"zoff", "states on the disk, the small budget", 24, step_engine_step},
    [SPLIT] = {"zoff_split", "masters in two halves, one of them in the weights", 20, step_engine_step},
    [SPLIT_BF16] = {"zoff_split_bf16", "the same with moments in bf16", 12, step_engine_step},
    [SPLIT_Q8] = {"zoff_split_q8", "the same with moments in 8 bits", 8.25, step_engine_step},
    [CACHED] = {"zoff_cached50", "half of the states stay in DRAM", 24, step_engine_step},
    [UNVERIFIED] = {"zoff_unverified", "the small budget, without checksums", 24, step_engine_step},
    [PERSIST_CACHED] = {"zoff_persist_cached50", "half of the states in DRAM, kept on the disk after each step", 24,
                        step_engine_step},
    [PERSIST] = {"zoff_persist", "the small budget, kept on the disk after each step", 24, step_engine_step},
    [IO] = {"io_only", "the same reads and writes, no update", 24, step_io_turn}};

static void enter(contest *c, race *r, unsigned which)
{
    race_add(r, &LINES[which], (double)c->model.elements, which == IO ? (void *)&c->io : &c->engines[which], 1);
}

/* In the order in which they run: contestants whose times are compared are neighbours. */
static int open_engines(contest *c)
{
    const uint64_t small = 3 * sizeof(float) * c->model.elements / c->run->options.budget_share;
    step_engine *const e = c->engines;
    const char *const folder = c->run->folder;
    for (unsigned i = 0; i < (c->run->options.run.parts & PART_RACE ? ENGINES : SPLIT_Q8 + 1); i++) {
        const size_t chunk =
            i > SMALL ? e[SMALL].plan.chunk_bytes / (3 * sizeof(float)) / UNIT * UNIT : 0; /* the same for all */
        const bool half = i == CACHED || i == PERSIST_CACHED, persist = i == PERSIST_CACHED || i == PERSIST;
        step_engine_opts opts = {.paths = &folder, .path_count = 1, .chunk_elements = chunk, .persist = persist};
        opts.split = i >= SPLIT && i <= SPLIT_Q8;
        opts.moments = i == SPLIT_BF16 ? "bf16" : i == SPLIT_Q8 ? "q8" : NULL;
        /* as many slots for all: LINES has the bytes both ways */
        opts.host_bytes = half ? large_budget(c, small) : (uint64_t)((double)small * LINES[i].bytes / LINES[SMALL].bytes);
        opts.unverified = i == UNVERIFIED;
        if (i == HOST)
            opts = (step_engine_opts){.paths = NULL};
        if (step_engine_open(&c->model, LINES[i].name, &opts, &e[i]) != 0) {
            snprintf(c->run->no_persist, STEP_REASON, "%s", zoff_last_error());
            return persist ? 0 : -1;
        }
        enter(c, c->free_race, i);
        if (!opts.moments) /* those moments are rounded */
            c->states[c->state_count++] = (step_states){LINES[i].name, &e[i], step_engine_step, read_states, &e[i].steps};
        if (i == HOST)
            enter(c, c->free_race, IO);
    }
    return 0;
}

/* Warm up: touch memory and files once. After a step its bytes are known. */
static int warm_up(contest *c)
{
    enum { TURNS = 2 }; /* the first step reads less, because moments are known to be zero */
    const step_engine *small = &c->engines[SMALL];
    for (unsigned i = 0; i < ENGINES * TURNS; i++) {
        if (c->engines[i / TURNS].engine && step_engine_step(&c->engines[i / TURNS], 0) != 0)
            return -1;
    }
    c->run->small = small->plan;
    c->run->cached = c->engines[CACHED].plan;
    c->run->step_bytes = small->read_bytes;
    c->run->threads = small->plan.threads;
    if (step_io_open(small, &c->io) != 0)
        return -1;
    c->run->direct = c->io.direct;
    return step_io_turn(&c->io, 0);
}

/* Set the number of steps in a sample of an engine, and of the transfers alone. */
static void set_sample(contest *c, unsigned steps)
{
    for (unsigned i = 0; i < ENGINES; i++) {
        c->engines[i].sample_steps = steps;
        c->engines[i].in_sample = 0;
    }
    for (unsigned i = 0; i < c->run->book.count; i++) {
        race *r = c->run->book.races[i];
        for (race_entry *e = r->entries; e < r->entries + r->count; e++)
            e->calls = e->work.run == step_engine_step || e->work.run == step_io_turn ? steps : e->calls;
    }
}

/* Note the bytes that each engine really moved, for the table. */
static void note_bytes(contest *c)
{
    for (unsigned i = 0; i < c->run->book.count; i++) {
        race *r = c->run->book.races[i];
        for (race_entry *e = r->entries; e < r->entries + r->count; e++) {
            const step_engine *engine = e->work.run == step_engine_step ? e->work.ctx : NULL;
            if (engine)
                e->line.bytes = (double)(engine->read_bytes + engine->write_bytes) / e->elements;
        }
    }
}

/* The kernel's count of a few steps over the library's, as close as it gets to 1: other processes use the disk, too. */
static int count_on_disk(contest *c, step_engine *e)
{
    enum { STEPS = 4, TRIES = 5 };
    double least = INFINITY;
    for (unsigned i = 0; i < TRIES; i++) {
        e->sample_steps = STEPS;
        e->in_sample = 0;
        double bytes = 0;
        const double before = disk_moved(c->run->folder);
        for (unsigned k = 0; k < STEPS; k++) {
            if (step_engine_step(e, 0) != 0)
                return -1;
            bytes += (double)(e->read_bytes + e->write_bytes);
        }
        least = fmin(least, (disk_moved(c->run->folder) - before) / bytes);
    }
    if (isfinite(least))
        c->run->disk_over_library = fmax(c->run->disk_over_library, least);
    return 0;
}

static double bytes_each_way(const contest *c, const step_engine *e)
{
    return (double)(e->read_bytes > e->write_bytes ? e->read_bytes : e->write_bytes) / (double)c->model.elements;
}

static int count_formats(contest *c)
{
    step_engine *const e = c->engines;
    int ret = 0;
    for (unsigned i = SMALL; i <= SPLIT_Q8 && ret == 0; i++)
        ret = count_on_disk(c, &e[i]);
    for (unsigned i = SPLIT; i <= SPLIT_Q8; i++)
        c->run->split_bytes[i - SPLIT] = bytes_each_way(c, &e[i]);
    return ret;
}

/* --- whether all have computed the same --- */

/* Compare the states of two contestants bit by bit. The one that took fewer steps catches up first. */
static int compare(step_run *run, size_t total, const step_states *a, const step_states *b, float *buffer, size_t window)
{
    static const char *const KINDS[] = {"masters", "m", "v"};
    while (*a->steps != *b->steps) {
        const step_states *behind = *a->steps < *b->steps ? a : b;
        if (behind->step(behind->ctx, 0) != 0)
            return -1;
    }
    for (int kind = ZOFF_STATE_MASTER; kind <= ZOFF_STATE_V; kind++) {
        for (size_t first = 0; first < total; first += window) {
            const size_t count = total - first < window ? total - first : window;
            if (a->read(a->ctx, (zoff_state_kind)kind, first, count, buffer) != 0 ||
                b->read(b->ctx, (zoff_state_kind)kind, first, count, buffer + window) != 0)
                return -1;
            if (memcmp(buffer, buffer + window, count * sizeof *buffer) == 0)
                continue;
            run->agree = 0;
            snprintf(run->disagree, STEP_REASON, "%s and %s have different %s after %lld steps", a->name, b->name, KINDS[kind],
                     (long long)*a->steps);
            return 0;
        }
    }
    run->compared++;
    return 0;
}

static int by_steps(const void *a, const void *b)
{
    const int64_t x = *((const step_states *)a)->steps, y = *((const step_states *)b)->steps;
    return (x > y) - (x < y);
}

/* Compare those with few steps first: then the engine in DRAM catches up, which is cheap. */
static int compare_all(contest *c)
{
    enum { WINDOW = 1 << 20 };
    float *buffer = malloc(2 * WINDOW * sizeof *buffer);
    int ret = buffer ? 0 : -1;
    c->run->agree = 1;
    qsort(c->states + 1, c->state_count - 1, sizeof c->states[0], by_steps);
    for (unsigned i = 1; i < c->state_count && ret == 0; i++)
        ret = compare(c->run, c->model.elements, &c->states[0], &c->states[i], buffer, WINDOW);
    free(buffer);
    return ret;
}

/* --- the races --- */

/* Run the judged contestants in turns, then the others in fewer rounds; then compare the states of all. */
static int run_free(contest *c)
{
    const bench_run *run = &c->run->options.run;
    race *r = c->free_race, *rivals = c->rivals, *extra = c->extra;
    const double end = bench_run_deadline(run, 0.47);
    const size_t chunks = (size_t)c->engines[SMALL].plan.chunk_count; /* as many sub-groups as chunks */
    const size_t group = (c->model.elements / (chunks ? chunks : 1) + UNIT) / UNIT * UNIT;
    enter(c, rivals, SMALL);
    enter(c, extra, SMALL);
    enter(c, extra, SPLIT_BF16);
    enter(c, extra, SPLIT_Q8);
    if (step_swapper_open(&c->model, group, rivals, extra, c->run, &c->states[c->state_count]) == 0)
        c->state_count++;
    else
        rivals->count = extra->count = 0;
    /* Two steps, because a trainer takes one after the other: reads that the second needs begin in the first. */
    set_sample(c, 2);
    int ret = 0;
    while (ret == 0 && r->clean_rounds < run->rounds && r->rounds < RACE_ROUNDS && bench_now() < end) {
        ret = race_run(r, r->clean_rounds + 1, end);
        if (ret == 0 && rivals->count && rivals->clean_rounds < (r->clean_rounds + 1) / 2)
            ret = race_run(rivals, rivals->clean_rounds + 1, end);
    }
    if (ret == 0 && extra->count)
        ret = race_run(extra, run->quick ? 1 : step_fewer(c->run), bench_run_deadline(run, 0.52));
    note_bytes(c);
    ret = ret == 0 ? count_formats(c) : ret;
    return ret == 0 ? compare_all(c) : ret;
}

/* A round counts only if the transfers alone ran at the limit; otherwise something else used the disk. */
static void check_round(const contest *c, race *r)
{
    const double bound = (double)c->run->step_bytes / (double)STEP_DISK_RATE, margin = 0.04;
    const unsigned last = r->rounds - 1;
    const double io = race_find(r, "io_only")->seconds[last];
    if (io > (1 - margin) * bound && io < (1 + margin) * bound)
        return;
    for (unsigned i = 0; i < r->count; i++)
        r->entries[i].seconds[last] = NAN;
    r->clean_rounds--;
}

static race *begin(contest *c, const char *part, double bytes_a_second)
{
    race *r = bytes_a_second > 0 ? race_open(&c->run->book, part, "%.1f GB/s each way", 1e-9 * bytes_a_second)
                                 : race_open(&c->run->book, part, "%zu elements", c->model.elements);
    r->neighbours = true;
    return r;
}

/* The kernel makes up for pauses of up to 100 ms, for the next one to run. So only contestants run here that keep the disk
 * busy, and a sample is several steps. */
static int run_throttled(contest *c)
{
    enum { STEPS = 3 };
    static const unsigned CONTESTANTS[] = {SMALL, IO, SPLIT, SPLIT_BF16, SPLIT_Q8};
    const double end = bench_run_deadline(&c->run->options.run, 0.72);
    race *r = begin(c, "throttled", (double)STEP_DISK_RATE);
    if (disk_hold(r, c->run->folder, STEP_DISK_RATE) != 0)
        return 0;
    for (unsigned i = 0; i < BENCH_COUNT(CONTESTANTS); i++)
        enter(c, r, CONTESTANTS[i]);
    set_sample(c, STEPS);
    int ret = step_io_turn(&c->io, 0);
    while (ret == 0 && r->clean_rounds < step_fewer(c->run) && r->rounds < RACE_ROUNDS && bench_now() < end) {
        const unsigned clean = r->clean_rounds;
        ret = race_round(r, end);
        if (r->clean_rounds > clean)
            check_round(c, r);
    }
    throttle_close(&disk_throttle);
    if (r->rounds && !r->clean_rounds)
        race_excuse(r, "in no round were the CPUs idle and the disk below as fast as 1 GB/s each way");
    return ret;
}

int step_race(step_run *run)
{
    static contest c;
    c.run = run;
    if (step_model_open(run->options.elements, &c.model) != 0)
        return -1;
    c.free_race = begin(&c, "race", 0);
    c.rivals = begin(&c, "rivals", 0);
    c.extra = begin(&c, "extra", 0);
    int ret = open_engines(&c);
    if (ret == 0)
        ret = warm_up(&c);
    if (ret == 0 && run->options.run.parts & PART_RACE)
        ret = run_free(&c);
    if (ret == 0 && run->options.run.parts & PART_THROTTLE)
        ret = run_throttled(&c);
    step_io_close(&c.io);
    for (unsigned i = 0; i < ENGINES; i++)
        step_engine_close(&c.engines[i]);
    step_swapper_close();
    bench_streams_close(&c.model.mapping);
    return ret;
}
