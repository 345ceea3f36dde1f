/* step_race.c: zoff's step with states on the disk, the disk alone, the update alone, more DRAM, and DeepSpeed's way, in turns
 * on one folder; then the first three once more on a disk of known speed. */
#include "step_bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Reads and writes, each. A step of an engine takes longer than its update at this rate. */
static const uint64_t THROTTLE_RATE = 1000 * 1000 * 1000;

enum { MOST_STATES = 8, UNIT = 1024 /* elements; chunks are multiples of it */ };

typedef struct contest {
    const step_options *options;
    const char *folder;
    step_book *book;
    step_model model;
    step_engine host, small, unverified, cached, persist, persist_cached;
    step_io io;
    step_states states[MOST_STATES];
    unsigned state_count;
} contest;

static void enter(race *r, const char *name, const char *what, const contest *c, double bytes, bench_work_fn work, void *ctx)
{
    race_add(r, (race_entry){.name = name,
                             .what = what,
                             .elements = (double)c->model.elements,
                             .bytes = bytes,
                             .yardstick = -1,
                             .work = work,
                             .ctx = ctx,
                             .calls = 1,
                             .fixed = true});
}

static int add_engine(contest *c, race *r, const char *name, const char *what, const step_engine_opts *opts, step_engine *out)
{
    if (step_engine_open(&c->model, name, opts, out) != 0)
        return -1;
    enter(r, name, what, c, 0, step_engine_step, out);
    c->states[c->state_count++] = step_engine_states(name, out);
    return 0;
}

/* Half of the states stay in DRAM, beside the slots of the small budget. The last chunk is always one of those that stay: where
 * it is short, it comes on top. */
static uint64_t large_budget(const contest *c, uint64_t small)
{
    const zoff_plan_info *p = &c->small.plan;
    const bool short_one = p->nvme_bytes < (p->chunk_count - 1) * p->chunk_bytes + p->chunk_bytes / 2;
    return small + (p->chunk_count / 2 + short_one) * p->chunk_bytes;
}

/* In the order in which they run: those whose times are compared are neighbours. */
static int open_engines(contest *c)
{
    race *const r = &c->book->free_race;
    const uint64_t small = 3 * sizeof(float) * c->model.elements / c->options->budget_share;
    const char *const paths[] = {c->folder};
    step_engine_opts host = {0}, disk = {.paths = paths, .path_count = 1, .host_bytes = small};
    if (add_engine(c, r, "update_only", "the same engine, states in DRAM", &host, &c->host) != 0) {
        fprintf(stderr, "step: %s\n", c->host.reason);
        return -1;
    }
    enter(r, "io_only", "the same reads and writes, no update", c, 24, step_io_turn, &c->io); /* opened in warm_up() */
    if (add_engine(c, r, "zoff", "states on the disk, the small budget", &disk, &c->small) != 0) {
        fprintf(stderr, "step: %s\n", c->small.reason);
        return -1;
    }
    if (!(c->options->run.parts & PART_RACE))
        return 0;
    disk.host_bytes = large_budget(c, small);
    disk.chunk_elements = c->small.plan.chunk_bytes / (3 * sizeof(float)) / UNIT * UNIT; /* the same chunks for all */
    if (add_engine(c, r, "zoff_cached50", "half of the states stay in DRAM", &disk, &c->cached) != 0) {
        fprintf(stderr, "step: %s\n", c->cached.reason);
        return -1;
    }
    disk.host_bytes = small;
    disk.unverified = true;
    if (add_engine(c, r, "zoff_unverified", "the small budget, without checksums", &disk, &c->unverified) != 0) {
        fprintf(stderr, "step: %s\n", c->unverified.reason);
        return -1;
    }
    disk.unverified = false;
    disk.host_bytes = large_budget(c, small);
    disk.persist = true;
    if (add_engine(c, r, "zoff_persist_cached50", "half of the states in DRAM, kept on the disk after each step", &disk,
                   &c->persist_cached) != 0) {
        snprintf(c->book->no_persist, STEP_REASON, "%s", c->persist_cached.reason);
        return 0;
    }
    disk.host_bytes = small;
    if (add_engine(c, r, "zoff_persist", "the small budget, kept on the disk after each step", &disk, &c->persist) != 0)
        snprintf(c->book->no_persist, STEP_REASON, "%s", c->persist.reason);
    return 0;
}

/* Sub-groups like zoff's chunks. */
static size_t group_elements(const contest *c)
{
    const size_t chunks = (size_t)c->small.plan.chunk_count;
    return (c->model.elements / (chunks ? chunks : 1) + UNIT) / UNIT * UNIT;
}

/* Bytes are known after a step; and everything was touched once, memory and files. */
static int warm_up(contest *c)
{
    enum { TURNS = 2 }; /* the first step reads less: moments are known to be zero */
    for (unsigned i = 0; i < c->state_count; i++) {
        for (unsigned k = 0; k < TURNS; k++)
            c->states[i].step(c->states[i].ctx);
        if (*c->states[i].failed)
            return -1;
    }
    c->book->small = c->small.plan;
    c->book->cached = c->cached.plan;
    c->book->step_bytes = c->small.read_bytes;
    c->book->threads = c->small.plan.threads;
    if (step_io_open(&c->small, &c->io) != 0)
        return -1;
    c->book->direct = c->io.direct;
    step_io_turn(&c->io);
    return c->io.failed ? -1 : 0;
}

static int failed(const contest *c)
{
    int any = c->io.failed;
    for (unsigned i = 0; i < c->state_count; i++)
        any = any || *c->states[i].failed;
    return any;
}

/* From now on a sample of an engine, and of the transfers alone, is so many steps. */
static void set_sample(contest *c, unsigned steps)
{
    race *const races[] = {&c->book->free_race, &c->book->rivals, &c->book->extra, &c->book->throttled};
    step_engine *const engines[] = {&c->host, &c->small, &c->unverified, &c->cached, &c->persist, &c->persist_cached};
    for (unsigned i = 0; i < sizeof engines / sizeof engines[0]; i++) {
        engines[i]->sample_steps = steps;
        engines[i]->in_sample = 0;
    }
    for (unsigned i = 0; i < sizeof races / sizeof races[0]; i++) {
        for (race_entry *e = races[i]->entries; e < races[i]->entries + races[i]->count; e++)
            e->calls = e->work == step_engine_step || e->work == step_io_turn ? steps : e->calls;
    }
}

/* Rounds of a race that is dear. */
static unsigned fewer(const step_options *options)
{
    return (options->run.rounds + 1) / 2;
}

/* Bytes that each engine really moved, for the table. */
static void note_bytes(contest *c)
{
    race *const races[] = {&c->book->free_race, &c->book->rivals, &c->book->extra};
    enum { RACES = sizeof races / sizeof races[0] };
    const step_engine *const engines[] = {&c->small, &c->unverified, &c->cached, &c->persist, &c->persist_cached};
    for (unsigned i = 0; i < sizeof engines / sizeof engines[0]; i++) {
        for (unsigned k = 0; k < RACES * RACE_ENTRIES; k++) {
            race_entry *entry = &races[k % RACES]->entries[k / RACES];
            if (k / RACES < races[k % RACES]->count && entry->ctx == engines[i])
                entry->bytes = (double)(engines[i]->read_bytes + engines[i]->write_bytes) / (double)c->model.elements;
        }
    }
}

/* Whether two have the same states, bit by bit. The one that took fewer steps catches up first. */
static int compare(contest *c, const step_states *a, const step_states *b, float *buffer, size_t buffer_elements)
{
    static const char *const KINDS[] = {"masters", "m", "v"};
    const size_t total = c->model.elements;
    while (*a->steps != *b->steps && !*a->failed && !*b->failed) {
        const step_states *behind = *a->steps < *b->steps ? a : b;
        behind->step(behind->ctx);
    }
    for (int kind = ZOFF_STATE_MASTER; kind <= ZOFF_STATE_V; kind++) {
        for (size_t first = 0; first < total; first += buffer_elements) {
            const size_t left = total - first, count = left < buffer_elements ? left : buffer_elements;
            float *const other = buffer + buffer_elements;
            if (a->read(a->ctx, (zoff_state_kind)kind, first, count, buffer) != 0 ||
                b->read(b->ctx, (zoff_state_kind)kind, first, count, other) != 0)
                return -1;
            if (memcmp(buffer, other, count * sizeof *buffer) == 0)
                continue;
            c->book->agree = 0;
            snprintf(c->book->disagree, STEP_REASON, "%s and %s have different %s after %lld steps", a->name, b->name,
                     KINDS[kind], (long long)*a->steps);
            return 0;
        }
    }
    c->book->compared++;
    return 0;
}

/* Those with few steps first: it is the engine in DRAM that catches up then, which costs little. */
static int compare_all(contest *c)
{
    enum { WINDOW = 1 << 20 };
    float *buffer = malloc(2 * WINDOW * sizeof *buffer);
    int ret = buffer ? 0 : -1;
    c->book->agree = 1;
    for (unsigned i = 1; i < c->state_count; i++) {
        const step_states moved = c->states[i];
        unsigned at = i;
        for (; at > 1 && *c->states[at - 1].steps > *moved.steps; at--)
            c->states[at] = c->states[at - 1];
        c->states[at] = moved;
    }
    for (unsigned i = 1; i < c->state_count && ret == 0; i++)
        ret = compare(c, &c->states[0], &c->states[i], buffer, WINDOW);
    free(buffer);
    return ret;
}

/* The bound is what the transfers alone take, or something else had the disk: then the round does not count. */
static void check_round(const contest *c, race *r)
{
    const double bound = (double)c->book->step_bytes / (double)THROTTLE_RATE, margin = 0.04;
    const unsigned last = r->rounds - 1;
    const double io = r->entries[race_find(r, "io_only")].seconds[last];
    if (io > (1 - margin) * bound && io < (1 + margin) * bound)
        return;
    for (unsigned i = 0; i < r->count; i++)
        r->entries[i].seconds[last] = NAN;
    r->clean_rounds--;
}

/* The kernel makes up for pauses of up to 100 ms, whoever comes next: so only those run here who keep the disk busy, and a
 * sample is several steps. */
static int run_throttled(contest *c)
{
    enum { STEPS = 3 };
    const unsigned wanted = fewer(c->options);
    throttle *const t = &step_throttle;
    race *r = &c->book->throttled;
    const double end = bench_run_deadline(&c->options->run, 0.72);
    r->part = "throttled";
    r->neighbours = true;
    snprintf(r->label, sizeof r->label, "%.1f GB/s each way", 1e-9 * (double)THROTTLE_RATE);
    if (throttle_open(t, c->folder, THROTTLE_RATE) != 0) {
        snprintf(c->book->no_throttle, STEP_REASON, "%.250s", t->reason);
        return 0;
    }
    enter(r, "zoff", "states on the disk, the small budget", c, 24, step_engine_step, &c->small);
    enter(r, "io_only", "the same reads and writes, no update", c, 24, step_io_turn, &c->io);
    set_sample(c, STEPS);
    step_io_turn(&c->io);
    while (r->clean_rounds < wanted && r->rounds < RACE_ROUNDS && bench_stopwatch_now() < end && !failed(c)) {
        const unsigned clean = r->clean_rounds;
        race_run(r, clean + 1, 0, end);
        if (r->clean_rounds > clean)
            check_round(c, r);
    }
    throttle_close(t);
    return failed(c) ? -1 : 0;
}

/* A race on the free disk beside the first one: what zoff's step is compared with there. */
static void begin(contest *c, race *r, const char *part)
{
    r->part = part;
    r->neighbours = true;
    snprintf(r->label, sizeof r->label, "%zu elements", c->model.elements);
    enter(r, "zoff", "states on the disk, the small budget", c, 24, step_engine_step, &c->small);
}

/* What is judged, in turns; then what is only told, in fewer rounds; then whether all of them computed the same. */
static int run_free(contest *c)
{
    const bench_run *run = &c->options->run;
    race *r = &c->book->free_race, *rivals = &c->book->rivals, *extra = &c->book->extra;
    const double end = bench_run_deadline(run, 0.47);
    step_states theirs;
    begin(c, rivals, "rivals");
    begin(c, extra, "extra");
    if (step_swapper_open(&c->model, c->folder, group_elements(c), c->book, &theirs) == 0)
        c->states[c->state_count++] = theirs;
    else
        rivals->count = extra->count = 0;
    /* Two, because a trainer takes one after the other: the beginning of the second belongs to the end of the first. */
    set_sample(c, 2);
    while (r->clean_rounds < run->rounds && r->rounds < RACE_ROUNDS && bench_stopwatch_now() < end) {
        race_run(r, r->clean_rounds + 1, 0, end);
        if (rivals->count && rivals->clean_rounds < (r->clean_rounds + 1) / 2)
            race_run(rivals, rivals->clean_rounds + 1, 0, end);
    }
    if (extra->count)
        race_run(extra, run->quick ? 1 : fewer(c->options), 0, bench_run_deadline(run, 0.52));
    note_bytes(c);
    return failed(c) ? -1 : compare_all(c);
}

static int run(contest *c)
{
    race *r = &c->book->free_race;
    const unsigned parts = c->options->run.parts;
    r->part = "race";
    r->neighbours = true;
    snprintf(r->label, sizeof r->label, "%zu elements", c->model.elements);
    if (open_engines(c) != 0 || warm_up(c) != 0 || (parts & PART_RACE && run_free(c) != 0))
        return -1;
    return parts & PART_THROTTLE ? run_throttled(c) : 0;
}

int step_race(const step_options *options, const char *folder, step_book *book)
{
    contest c = {.options = options, .folder = folder, .book = book};
    if (step_model_open(options->elements, &c.model) != 0)
        return -1;
    const int ret = run(&c);
    race *const races[] = {&book->free_race, &book->rivals, &book->extra, &book->throttled};
    for (unsigned k = 0; k < sizeof races / sizeof races[0]; k++) {
        for (unsigned i = 0; i < races[k]->count; i++)
            races[k]->entries[i].ctx = NULL;
    }
    step_io_close(&c.io);
    for (unsigned i = 0; i < c.state_count; i++)
        c.states[i].close(c.states[i].ctx);
    step_model_close(&c.model);
    return ret;
}
