/* SPDX-License-Identifier: Apache-2.0 */
/* step_race.c: contestants in turns on one folder: zoff's step with states on the disk, the disk alone, the update alone, more
 * DRAM, and DeepSpeed's way. Then the first three again, on a disk of known speed. */
#include "step_bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { HOST, SMALL, SPLIT, SPLIT_BF16, SPLIT_Q8, CACHED, UNVERIFIED, PERSIST_CACHED, PERSIST, ENGINES, IO = ENGINES };
enum { UNIT = 1024 /* elements; chunks are multiples of it */ };

/* --- the transfers of a step and nothing else: the limit of the disk --- */

/* The same reads and writes as a step of an engine, on a file of its own, through zoff's public queue, without an update. Each
 * byte is written as it was read. */
static struct {
    zoff_aio *queue;
    char *memory;
    size_t chunk_bytes, chunk_count, last_bytes;
    unsigned slots;
    bool direct;
} io;

typedef enum slot_state { FREE, READING, WRITING } slot_state;

typedef struct slot {
    slot_state state;
    size_t chunk;
    uint64_t ticket;
} slot;

enum { MOST_SLOTS = 64, HEAD = 4096 };

BENCH_CLOSER(close_queue, zoff_aio_close(x))

/* The engine has taken a step. */
static void open_io(const step_engine *like)
{
    char text[256];
    zoff_aio_info info = {.struct_size = sizeof info};
    const zoff_aio_opts opts = {.struct_size = sizeof opts,
                                .block_bytes = (size_t)like->aio_block_bytes,
                                .depth = (unsigned)like->aio_depth,
                                .writable = true};
    io.chunk_bytes = like->plan.chunk_bytes;
    io.slots = like->plan.slots < MOST_SLOTS ? like->plan.slots : MOST_SLOTS;
    const size_t bytes = io.slots * io.chunk_bytes;
    /* Write every byte once before a measurement, as the engine does with its own file. */
    if (!like->read_bytes ||
        bench_command(text, sizeof text,
                      bench_text("cd \"$ZOFF_BENCH_FOLDER\" && head -c %llu /dev/urandom 2>&1 >io_only && sync io_only 2>&1",
                                 (unsigned long long)(HEAD + like->read_bytes))) != 0)
        bench_die("no file of %llu bytes, which is what the step read: %s", (unsigned long long)like->read_bytes, text);
    io.chunk_count = (size_t)((like->read_bytes + io.chunk_bytes - 1) / io.chunk_bytes);
    io.last_bytes = (size_t)(like->read_bytes - (io.chunk_count - 1) * io.chunk_bytes);
    io.memory = bench_array(bytes, true);
    memset(io.memory, 0, bytes);
    bench_must(zoff_aio_open(bench_text("%s/io_only", disk.folder), &opts, &io.queue));
    bench_later(close_queue, io.queue, 0);
    bench_must(zoff_aio_register(io.queue, io.memory, bytes));
    bench_must(zoff_aio_get_info(io.queue, &info));
    io.direct = info.direct;
}

/* Begin or finish the work of a slot; return whether it advanced. `next` is the chunk to read, `written` counts chunks. */
static bool advance(unsigned at, slot *s, size_t *next, size_t *written)
{
    char *memory = io.memory + at * io.chunk_bytes;
    const zoff_status status = s->state == FREE ? ZOFF_OK : zoff_aio_poll(io.queue, s->ticket);
    bench_must(status);
    if (status != ZOFF_OK || (s->state == FREE && *next == io.chunk_count))
        return false;
    const bool reads = s->state != READING;
    if (reads) {
        *written += s->state == WRITING;
        s->state = FREE;
        if (*next == io.chunk_count)
            return true;
        s->chunk = (*next)++;
    }
    const size_t bytes = s->chunk + 1 == io.chunk_count ? io.last_bytes : io.chunk_bytes;
    const uint64_t offset = HEAD + s->chunk * io.chunk_bytes;
    s->state = reads ? READING : WRITING;
    bench_must(reads ? zoff_aio_read(io.queue, offset, bytes, memory, &s->ticket)
                     : zoff_aio_write(io.queue, offset, bytes, memory, &s->ticket));
    return true;
}

static void move_chunks(void *ctx, int which)
{
    slot slots[MOST_SLOTS] = {{.state = FREE}};
    size_t next = 0, written = 0;
    while (written < io.chunk_count) {
        bool moved = false;
        for (unsigned i = 0; i < io.slots; i++)
            moved = advance(i, &slots[i], &next, &written) || moved;
        if (!moved)
            bench_must(zoff_aio_wait_any(io.queue));
    }
}

/* --- the contestants --- */

static step_model model;
static step_engine engines[ENGINES];
static step_states states[ENGINES + 1];
static unsigned state_count;

/* The budget with which half of the states stay in DRAM, beside the slots of the small budget. The last chunk always stays; if
 * it is short, it comes on top. */
static uint64_t large_budget(uint64_t small)
{
    const zoff_plan_info *p = &engines[SMALL].plan;
    const bool short_one = p->nvme_bytes < (p->chunk_count - 1) * p->chunk_bytes + p->chunk_bytes / 2;
    return small + (p->chunk_count / 2 + short_one) * p->chunk_bytes;
}

static void read_states(const void *ctx, zoff_state_kind kind, size_t first, size_t count, float *dst)
{
    const step_engine *e = ctx;
    bench_must(zoff_state_read(e->engine, 0, kind, first, count, dst));
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
    [IO] = {"io_only", "the same reads and writes, no update", 24, move_chunks}};

static void enter(race *r, unsigned which)
{
    race_add(r, &LINES[which], (double)model.elements, which == IO ? NULL : &engines[which], 1);
}

/* In the order in which they run: contestants whose times are compared are neighbours. */
static void open_engines(race *r)
{
    const uint64_t small = step_budget(model.elements);
    for (unsigned i = 0; i < (bench.parts & PART_RACE ? ENGINES : SPLIT_Q8 + 1); i++) {
        const size_t chunk =
            i > SMALL ? engines[SMALL].plan.chunk_bytes / (3 * sizeof(float)) / UNIT * UNIT : 0; /* all engines get the same */
        const bool half = i == CACHED || i == PERSIST_CACHED, persist = i == PERSIST_CACHED || i == PERSIST;
        step_engine_opts opts = {.paths = {disk.folder}, .chunk_elements = chunk, .persist = persist};
        opts.split = i >= SPLIT && i <= SPLIT_Q8;
        opts.moments = i == SPLIT_BF16 ? "bf16" : i == SPLIT_Q8 ? "q8" : NULL;
        /* as many slots for all: LINES has the bytes both ways */
        opts.host_bytes = half ? large_budget(small) : (uint64_t)((double)small * LINES[i].bytes / LINES[SMALL].bytes);
        opts.unverified = i == UNVERIFIED;
        if (i == HOST)
            opts = (step_engine_opts){.host_bytes = 0};
        if (step_engine_open(&model, LINES[i].name, &opts, &engines[i]) != 0) {
            found.no_persist = bench_text("%s", zoff_last_error());
            return;
        }
        enter(r, i);
        if (!opts.moments) /* other moments are rounded */
            states[state_count++] = (step_states){LINES[i].name, &engines[i], step_engine_step, read_states, &engines[i].steps};
        if (i == HOST)
            enter(r, IO);
    }
}

/* Warm up: touch memory and files once. After a step its bytes are known. */
static void warm_up(void)
{
    enum { TURNS = 2 }; /* the first step reads less, because moments are known to be zero */
    const step_engine *small = &engines[SMALL];
    for (unsigned i = 0; i < ENGINES * TURNS; i++) {
        if (engines[i / TURNS].engine)
            step_engine_step(&engines[i / TURNS], 0);
    }
    found.small = small->plan;
    found.cached = engines[CACHED].plan;
    found.step_bytes = small->read_bytes;
    found.threads = small->plan.threads;
    open_io(small);
    found.direct = io.direct;
    move_chunks(NULL, 0);
}

/* Set the number of steps in a sample of an engine, and of the transfers alone. */
static void set_sample(unsigned steps)
{
    for (unsigned i = 0; i < ENGINES; i++) {
        engines[i].sample_steps = steps;
        engines[i].in_sample = 0;
    }
    for (unsigned i = 0; i < race_book.count; i++) {
        race *r = race_book.races[i];
        for (race_entry *e = r->entries; e < r->entries + r->count; e++)
            e->calls = e->work.run == step_engine_step || e->work.run == move_chunks ? steps : e->calls;
    }
}

/* Note the bytes that each engine really moved, for the table. */
static void note_bytes(void)
{
    for (unsigned i = 0; i < race_book.count; i++) {
        race *r = race_book.races[i];
        for (race_entry *e = r->entries; e < r->entries + r->count; e++) {
            const step_engine *engine = e->work.run == step_engine_step ? e->work.ctx : NULL;
            if (engine)
                e->line.bytes = (double)(engine->read_bytes + engine->write_bytes) / e->elements;
        }
    }
}

/* The kernel's count of a few steps over the library's, as close as it gets to 1: other processes use the disk, too. */
static void count_on_disk(step_engine *e)
{
    enum { STEPS = 4, TRIES = 5 };
    double least = INFINITY;
    for (unsigned i = 0; i < TRIES; i++) {
        e->sample_steps = STEPS;
        e->in_sample = 0;
        double bytes = 0;
        const double before = disk_moved(disk.folder);
        for (unsigned k = 0; k < STEPS; k++) {
            step_engine_step(e, 0);
            bytes += (double)(e->read_bytes + e->write_bytes);
        }
        least = fmin(least, (disk_moved(disk.folder) - before) / bytes);
    }
    if (isfinite(least))
        found.disk_over_library = fmax(found.disk_over_library, least);
}

static void count_formats(void)
{
    for (unsigned i = SMALL; i <= SPLIT_Q8; i++) {
        const step_engine *e = &engines[i];
        count_on_disk(&engines[i]);
        if (i >= SPLIT)
            found.split_bytes[i - SPLIT] =
                (double)(e->read_bytes > e->write_bytes ? e->read_bytes : e->write_bytes) / (double)model.elements;
    }
}

/* --- whether all have computed the same --- */

/* Compare the states of two contestants bit by bit. The one that took fewer steps catches up first. */
static void compare(const step_states *a, const step_states *b, float *buffer, size_t window)
{
    static const char *const KINDS[] = {"masters", "m", "v"};
    while (*a->steps != *b->steps) {
        const step_states *behind = *a->steps < *b->steps ? a : b;
        behind->step(behind->ctx, 0);
    }
    for (int kind = ZOFF_STATE_MASTER; kind <= ZOFF_STATE_V; kind++) {
        for (size_t first = 0; first < model.elements; first += window) {
            const size_t count = model.elements - first < window ? model.elements - first : window;
            a->read(a->ctx, (zoff_state_kind)kind, first, count, buffer);
            b->read(b->ctx, (zoff_state_kind)kind, first, count, buffer + window);
            if (memcmp(buffer, buffer + window, count * sizeof *buffer) == 0)
                continue;
            found.agree = 0;
            found.disagree =
                bench_text("%s and %s have different %s after %lld steps", a->name, b->name, KINDS[kind], (long long)*a->steps);
            return;
        }
    }
    found.compared++;
}

static int by_steps(const void *a, const void *b)
{
    const int64_t x = *((const step_states *)a)->steps, y = *((const step_states *)b)->steps;
    return (x > y) - (x < y);
}

/* Compare those with few steps first: then the engine in DRAM catches up, which is cheap. */
static void compare_all(void)
{
    enum { WINDOW = 1 << 20 };
    float *buffer = bench_array(2 * WINDOW * sizeof *buffer, true);
    found.agree = 1;
    qsort(states + 1, state_count - 1, sizeof states[0], by_steps);
    for (unsigned i = 1; i < state_count; i++)
        compare(&states[0], &states[i], buffer, WINDOW);
}

/* --- the races --- */

static race *open_race(const char *part, const char *label)
{
    race *r = race_open(part, label);
    r->neighbours = true;
    return r;
}

/* Run the judged contestants in turns, then the others in fewer rounds; then compare the states of all. */
static void run_free(race *r, race *rivals, race *extra)
{
    const double end = bench_share(0.47);
    const size_t chunks = (size_t)engines[SMALL].plan.chunk_count; /* as many sub-groups as chunks */
    const size_t group = (model.elements / (chunks ? chunks : 1) + UNIT) / UNIT * UNIT;
    enter(rivals, SMALL);
    enter(extra, SMALL);
    enter(extra, SPLIT_BF16);
    enter(extra, SPLIT_Q8);
    if (step_swapper_open(&model, group, rivals, extra, &states[state_count]) == 0)
        state_count++;
    else
        rivals->count = extra->count = 0;
    /* Two steps, because a trainer takes one after the other: reads that the second needs begin in the first. */
    set_sample(2);
    while (r->clean_rounds < bench.rounds && r->rounds < RACE_ROUNDS && bench_now() < end) {
        race_run(r, r->clean_rounds + 1, end);
        if (rivals->count && rivals->clean_rounds < (r->clean_rounds + 1) / 2)
            race_run(rivals, rivals->clean_rounds + 1, end);
    }
    if (extra->count)
        race_run(extra, bench.quick ? 1 : step_fewer(), bench_share(0.52));
    note_bytes();
    count_formats();
    compare_all();
}

/* A round counts only if the transfers alone ran at the limit; otherwise something else used the disk. */
static void check_round(race *r)
{
    const double bound = (double)found.step_bytes / (double)STEP_DISK_RATE, margin = 0.04;
    const unsigned last = r->rounds - 1;
    const double seconds = race_find(r, "io_only")->seconds[last];
    if (seconds > (1 - margin) * bound && seconds < (1 + margin) * bound)
        return;
    for (unsigned i = 0; i < r->count; i++)
        r->entries[i].seconds[last] = NAN;
    r->clean_rounds--;
}

/* The kernel makes up for pauses of up to 100 ms, for the next one to run. So only contestants run here that keep the disk
 * busy, and a sample is several steps. */
static void run_throttled(void)
{
    enum { STEPS = 3 };
    static const unsigned CONTESTANTS[] = {SMALL, IO, SPLIT, SPLIT_BF16, SPLIT_Q8};
    const double end = bench_share(0.72);
    race *r = open_race("throttled", bench_text("%.1f GB/s each way", 1e-9 * (double)STEP_DISK_RATE));
    if (!disk_hold(r, disk.folder, STEP_DISK_RATE))
        return;
    for (unsigned i = 0; i < BENCH_COUNT(CONTESTANTS); i++)
        enter(r, CONTESTANTS[i]);
    set_sample(STEPS);
    move_chunks(NULL, 0);
    while (r->clean_rounds < step_fewer() && r->rounds < RACE_ROUNDS && bench_now() < end) {
        const unsigned clean = r->clean_rounds;
        race_round(r, end);
        if (r->clean_rounds > clean)
            check_round(r);
    }
    if (r->rounds && !r->clean_rounds)
        r->missing = "in no round were the CPUs idle and the disk below as fast as 1 GB/s each way";
}

void step_race(const bench_part *part)
{
    model = step_model_open(disk.elements);
    const char *label = bench_text("%zu elements", model.elements);
    race *r = open_race("race", label), *rivals = open_race("rivals", label), *extra = open_race("extra", label);
    open_engines(r);
    warm_up();
    if (bench.parts & PART_RACE)
        run_free(r, rivals, extra);
    if (bench.parts & PART_THROTTLE)
        run_throttled();
}
