/* step_windows.c: operations that must cost no more than their bytes. A step on the NVMe tier with all states in DRAM runs
 * beside one on the DRAM tier. All states are read, and written, through windows; the cost is in bytes of the files. */
#include "step_bench.h"

#include <stdlib.h>

static int race_residents(step_run *run, const step_model *m)
{
    enum { LEAST = 1024 };
    const char *const folder = run->folder;
    const size_t chunk = m->elements / WINDOW_CHUNKS < LEAST ? LEAST : m->elements / WINDOW_CHUNKS;
    const step_engine_opts opts[2] = {
        {.paths = &folder, .path_count = 1, .chunk_elements = chunk, .host_bytes = 36ull * m->elements + (64ull << 20)},
        {.chunk_elements = chunk}};
    static const race_line LINES[] = {{"zoff_resident", "zoff's step, NVMe tier, all chunks resident", 28, step_engine_step},
                                      {"zoff_dram", "zoff's step, DRAM tier", 28, step_engine_step}};
    static step_engine engines[2];
    race *r = race_open(&run->book, "windows", "all states in DRAM");
    int ret = 0;
    for (unsigned i = 0; i < 2 && ret == 0; i++) {
        ret = step_engine_open(m, LINES[i].name, &opts[i], &engines[i]);
        race_add(r, &LINES[i], (double)m->elements, &engines[i], 0);
    }
    run->resident = engines[0].plan;
    if (ret == 0)
        ret = race_run(r, (unsigned)run->options.run.rounds, bench_now() + 0.1 * run->options.run.seconds);
    step_engine_close(&engines[0]);
    step_engine_close(&engines[1]);
    return ret;
}

/* Move all states through windows no larger than half a chunk, in one of two orders that engine.h names. Either all kinds of a
 * window come before the next window, or all windows of a kind before the next kind. */
static int move_all(const step_engine *e, size_t elements, float *buffer, bool write, bool by_kind)
{
    enum { KINDS = 3 };
    const size_t window = e->plan.chunk_bytes / 24, windows = (elements + window - 1) / window;
    int ret = 0;
    for (size_t i = 0; ret == 0 && i < windows * KINDS; i++) {
        const zoff_state_kind kind = (zoff_state_kind)(by_kind ? i / windows : i % KINDS);
        const size_t first = (by_kind ? i % windows : i / KINDS) * window;
        const size_t count = elements - first < window ? elements - first : window;
        ret = bench_told(write ? zoff_state_write(e->engine, 0, kind, first, count, buffer)
                               : zoff_state_read(e->engine, 0, kind, first, count, buffer));
    }
    return ret == 0 && write ? bench_told(zoff_state_flush(e->engine)) : ret;
}

static int count_windows(step_run *run, const step_model *m)
{
    const uint64_t states = 12ull * m->elements;
    const char *const folder = run->folder;
    const step_engine_opts opts = {
        .paths = &folder, .path_count = 1, .host_bytes = states / run->options.budget_share, .persist = true};
    static step_engine e;
    race *moved = race_open(&run->book, "moved", "bytes");
    if (step_engine_open(m, "windows", &opts, &e) != 0) {
        race_excuse(moved, "%s", zoff_last_error());
        return 0;
    }
    float *buffer = calloc(e.plan.chunk_bytes / 24, sizeof *buffer);
    int ret = buffer ? 0 : bench_fail("no memory for a window");
    for (unsigned pass = 0; pass < 4 && ret == 0; pass++) {
        const bool write = pass & 1, by_kind = pass & 2;
        ret = step_engine_step(&e, 0); /* the moments are not zero any more */
        const uint64_t before = bench_traffic(write);
        ret = ret == 0 ? move_all(&e, m->elements, buffer, write, by_kind) : ret;
        run->windows[by_kind][write] = (double)(bench_traffic(write) - before) / (double)states;
        if (run->windows[by_kind][write] <= 0)
            race_excuse(moved, "the kernel counts no transfers of this process (/proc/self/io)");
    }
    free(buffer);
    step_engine_close(&e);
    return ret;
}

int step_windows(step_run *run)
{
    step_model m;
    int ret = step_model_open(run->options.elements, &m);
    ret = ret == 0 ? race_residents(run, &m) : ret;
    ret = ret == 0 ? count_windows(run, &m) : ret;
    bench_streams_close(&m.mapping);
    return ret;
}
