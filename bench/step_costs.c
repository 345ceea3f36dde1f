/* SPDX-License-Identifier: Apache-2.0 */
/* step_costs.c: what must cost no more than its bytes. Two measurements run in a fresh process, because memory that was freed
 * before would count. First: does an engine's memory depend on the size of the model? Two processes have the same budget, one
 * of them a model ten times as large. Second: one drive and two. Each is a loop device over a file in the benchmark's folder,
 * with its own file system, and the kernel limits both alike. Then windows of states, and chunks that all stay in DRAM. */
#include "step_bench.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* of each drive in each direction: two together are slower than the disk below */
static const uint64_t RATE = 300 * 1000 * 1000;
enum { LARGER = 10, DRIVES = 2, MOST_ELEMENTS = 16 << 20, STEPS = 2 /* steps in a sample */ };

/* --- memory --- */

void step_rss_child(const double *numbers)
{
    const size_t elements = (size_t)numbers[0];
    const double shared = 2.0 * (double)elements * sizeof(uint16_t);
    const step_engine_opts opts = {.paths = {disk.folder}, .host_bytes = (uint64_t)numbers[1]};
    const step_model model = step_model_open(elements);
    step_engine engine;
    step_engine_open(&model, bench_text("rss-%zu", elements), &opts, &engine);
    for (int i = 0; i < STEPS; i++)
        step_engine_step(&engine, 0);
    const double most = bench_memory("VmHWM");
    if (most <= shared)
        bench_die("/proc/self/status lacks VmHWM");
    printf("%.0f\n", most - shared);
}

void step_rss(const bench_part *part)
{
    /* half of the small model's states, so that it streams, too */
    const uint64_t large = disk.elements, budget = 3 * sizeof(float) * large / LARGER / 2;
    race *r = race_open("rss", "memory");
    for (unsigned i = 0; i < 2 && !disk_is_late(0.85, r); i++) {
        const char *line = disk_child(r, NULL, bench_text("rss %" PRIu64 " %" PRIu64, i ? large : large / LARGER, budget));
        if (!line)
            return;
        found.rss[i] = strtod(line, NULL) / (1 << 20);
    }
}

/* --- drives --- */

static step_engine engines[DRIVES];
/* While one contestant works, the other's drive is idle, and the kernel makes up for idle time during the next step. */
static const race_line LINES[] = {
    {"one_path", "states on one drive", 24, step_engine_step, .before = step_engine_step, .ctx = &engines[0]},
    {"two_paths", "the same states on two", 24, step_engine_step, .before = step_engine_step, .ctx = &engines[1]},
    {NULL}};

static void take_steps(void)
{
    for (unsigned i = 0; i < DRIVES; i++)
        step_engine_step(&engines[i], 0);
}

void step_paths_child(const double *numbers)
{
    const size_t elements = (size_t)numbers[0];
    const char *paths[DRIVES];
    const step_model model = step_model_open(elements);
    race *r = race_open("paths", "");
    for (unsigned i = 0; i < DRIVES; i++)
        paths[i] = bench_text("%s/drive%u", disk.folder, i);
    for (unsigned i = 0; i < DRIVES; i++) {
        const step_engine_opts opts = {.paths = {paths[0], i ? paths[1] : NULL},
                                       .host_bytes = 3 * sizeof(float) * elements / LARGER};
        step_engine_open(&model, i ? "two" : "one", &opts, &engines[i]);
    }
    race_add_lines(r, LINES, 0, 0, NULL, STEPS);
    take_steps(); /* the first step reads less */
    const char *reason = disk_hold(r, paths[0], RATE) ? throttle_add(paths[1], RATE) : r->missing;
    if (reason)
        bench_die("no throttle: %s", reason);
    take_steps(); /* the first step may use what the kernel grants after a pause */
    race_run(r, (unsigned)numbers[1], bench_now() + numbers[2]);
    race_print_samples(r);
}

void step_paths(const bench_part *part)
{
    const size_t half = disk.elements / 2, elements = half < MOST_ELEMENTS ? half : MOST_ELEMENTS;
    const disk_drives drives = {.names = "drive0 drive1",
                                .allocate = "fallocate -l",
                                .format = "mkfs.ext4 -q -F -m 0 -O ^has_journal",
                                .bytes = 3 * sizeof(float) * (uint64_t)elements * 7 / 4 + (64 << 20)};
    race *r = race_open("paths", bench_text("%zu, %.1f GB/s each way of each", elements, 1e-9 * (double)RATE));
    if (disk_is_late(0.88, r))
        return;
    const char *line = disk_child(r, &drives, bench_text("paths %zu %u %.0f", elements, step_fewer(), ceil(bench.seconds / 8)));
    if (!line)
        return;
    race_add_lines(r, LINES, 0, (double)elements, NULL, STEPS);
    race_read_samples(r, line);
}

/* --- windows --- */

/* A step on the NVMe tier with all states in DRAM, beside one on the DRAM tier. */
static void race_residents(const step_model *m)
{
    enum { LEAST = 1024 };
    const size_t chunk = m->elements / WINDOW_CHUNKS < LEAST ? LEAST : m->elements / WINDOW_CHUNKS, mark = bench_opened();
    const step_engine_opts opts[2] = {
        {.paths = {disk.folder}, .chunk_elements = chunk, .host_bytes = 36ull * m->elements + (64ull << 20)},
        {.chunk_elements = chunk}};
    static const race_line RESIDENTS[] = {
        {"zoff_resident", "zoff's step, NVMe tier, all chunks resident", 28, step_engine_step},
        {"zoff_dram", "zoff's step, DRAM tier", 28, step_engine_step}};
    race *r = race_open("windows", "all states in DRAM");
    for (unsigned i = 0; i < 2; i++) {
        step_engine_open(m, RESIDENTS[i].name, &opts[i], &engines[i]);
        race_add(r, &RESIDENTS[i], (double)m->elements, &engines[i], 0);
    }
    found.resident = engines[0].plan;
    race_run(r, (unsigned)bench.rounds, bench_now() + 0.1 * bench.seconds);
    bench_close(mark);
}

/* Move all states, counted in bytes of the files, through windows no larger than half a chunk, in one of two orders that
 * engine.h names. Either all kinds of a window come before the next window, or all windows of a kind before the next kind. */
static void move_all(const step_engine *e, size_t elements, float *buffer, bool write, bool by_kind)
{
    enum { KINDS = 3 };
    const size_t window = e->plan.chunk_bytes / 24, windows = (elements + window - 1) / window;
    for (size_t i = 0; i < windows * KINDS; i++) {
        const zoff_state_kind kind = (zoff_state_kind)(by_kind ? i / windows : i % KINDS);
        const size_t first = (by_kind ? i % windows : i / KINDS) * window;
        const size_t count = elements - first < window ? elements - first : window;
        bench_must(write ? zoff_state_write(e->engine, 0, kind, first, count, buffer)
                         : zoff_state_read(e->engine, 0, kind, first, count, buffer));
    }
    if (write)
        bench_must(zoff_state_flush(e->engine));
}

static void count_windows(const step_model *m)
{
    const double states = 12 * (double)m->elements;
    const step_engine_opts opts = {.paths = {disk.folder}, .host_bytes = step_budget(m->elements), .persist = true};
    step_engine e;
    race *moved = race_open("moved", "bytes");
    if (step_engine_open(m, "windows", &opts, &e) != 0) {
        moved->missing = bench_text("%s", zoff_last_error());
        return;
    }
    float *buffer = bench_array(e.plan.chunk_bytes / 24 * sizeof *buffer, true);
    for (unsigned pass = 0; pass < 4; pass++) {
        const bool write = pass & 1, by_kind = pass & 2;
        step_engine_step(&e, 0); /* the moments are not zero any more */
        const uint64_t before = bench_traffic(write);
        move_all(&e, m->elements, buffer, write, by_kind);
        found.windows[by_kind][write] = (double)(bench_traffic(write) - before) / states;
        if (found.windows[by_kind][write] <= 0)
            moved->missing = "the kernel counts no transfers of this process (/proc/self/io)";
    }
}

void step_windows(const bench_part *part)
{
    const step_model m = step_model_open(disk.elements);
    race_residents(&m);
    count_windows(&m);
}
