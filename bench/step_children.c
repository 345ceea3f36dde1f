/* step_children.c: measurements that need a fresh process. First: does an engine's memory depend on the size of the model? Two
 * processes have the same budget, one of them a model ten times as large. Second: one drive and two. Each is a loop device over
 * a file in the benchmark's folder, with its own file system, and the kernel limits both alike. */
#include "step_bench.h"

#include <math.h>
#include <stdlib.h>

/* of each drive in each direction: two together are slower than the disk below */
static const uint64_t RATE = 300 * 1000 * 1000;
enum { LARGER = 10, DRIVES = 2, MOST_ELEMENTS = 16 << 20, STEPS = 2 /* in a sample */ };

/* --- memory --- */

int step_rss_child(char **arguments)
{
    const size_t elements = strtoull(arguments[0], NULL, 10);
    const char *folder = disk_child_begin();
    const step_engine_opts opts = {.paths = &folder, .path_count = 1, .host_bytes = strtoull(arguments[1], NULL, 10)};
    char name[64];
    step_model model;
    static step_engine engine;
    snprintf(name, sizeof name, "rss-%zu", elements);
    if (!folder || step_model_open(elements, &model) != 0)
        return 1;
    int ret = step_engine_open(&model, name, &opts, &engine);
    for (int i = 0; i < STEPS && ret == 0; i++)
        ret = step_engine_step(&engine, 0);
    size_t most = 0;
    const size_t shared = 2 * elements * sizeof(uint16_t) / 1024;
    bench_scan("/proc/self/status", 1, "VmHWM: %zu kB", &most);
    if (ret == 0 && most <= shared)
        ret = bench_fail("/proc/self/status lacks VmHWM");
    if (ret == 0)
        printf("%zu\n", most - shared);
    step_engine_close(&engine);
    bench_streams_close(&model.mapping);
    return ret ? 1 : 0;
}

int step_rss(step_run *run)
{
    const size_t large = run->options.elements;
    /* half of the small model's states, so that it streams, too */
    const unsigned long long budget = 3 * sizeof(float) * large / LARGER / 2;
    race *r = race_open(&run->book, "rss", "memory");
    for (unsigned i = 0; i < 2 && !disk_is_late(&run->options, 0.85, r); i++) {
        const char *line = disk_child(r, NULL, "--rss-of %zu %llu", i ? large : large / LARGER, budget);
        if (!line)
            return 0;
        run->rss[i] = strtod(line, NULL) / 1024;
    }
    return 0;
}

/* --- drives --- */

/* While one contestant works, the other's drive is idle, and the kernel makes up for idle time. That effect is gone after one
 * step. */
static const race_line LINES[] = {{"one_path", "states on one drive", 24, step_engine_step, .before = step_engine_step},
                                  {"two_paths", "the same states on two", 24, step_engine_step, .before = step_engine_step}};

static int race_paths(step_engine engines[DRIVES], const char *const paths[DRIVES], unsigned rounds, double seconds)
{
    static race r;
    for (unsigned i = 0; i < DRIVES; i++) {
        race_add(&r, &LINES[i], 0, &engines[i], STEPS);
        if (step_engine_step(&engines[i], 0) != 0) /* the first step reads less */
            return -1;
    }
    if (throttle_open(&disk_throttle, paths[0], RATE) != 0 || throttle_add(&disk_throttle, paths[1], RATE) != 0)
        return bench_fail("no throttle: %s", disk_throttle.reason);
    for (unsigned i = 0; i < DRIVES; i++) { /* the kernel grants what was not used before */
        if (step_engine_step(&engines[i], 0) != 0)
            return -1;
    }
    const int ret = race_run(&r, rounds, bench_now() + seconds);
    race_print_samples(&r);
    return ret;
}

int step_paths_child(char **arguments)
{
    const size_t elements = strtoull(arguments[0], NULL, 10);
    const char *folder = disk_child_begin();
    static char drives[DRIVES][DISK_PATH];
    const char *const paths[DRIVES] = {drives[0], drives[1]};
    static step_engine engines[DRIVES];
    step_model model;
    if (!folder || step_model_open(elements, &model) != 0)
        return 1;
    int ret = 0;
    for (unsigned i = 0; i < DRIVES; i++)
        snprintf(drives[i], DISK_PATH, "%.4000s/drive%u", folder, i);
    for (unsigned i = 0; i < DRIVES && ret == 0; i++) {
        const step_engine_opts opts = {
            .paths = paths, .path_count = i + 1, .host_bytes = 3 * sizeof(float) * elements / LARGER};
        ret = step_engine_open(&model, i ? "two" : "one", &opts, &engines[i]);
    }
    if (ret == 0)
        ret = race_paths(engines, paths, (unsigned)strtoul(arguments[1], NULL, 10), strtod(arguments[2], NULL));
    throttle_close(&disk_throttle);
    for (unsigned i = 0; i < DRIVES; i++)
        step_engine_close(&engines[i]);
    return ret ? 1 : 0;
}

int step_paths(step_run *run)
{
    const size_t half = run->options.elements / 2, elements = half < MOST_ELEMENTS ? half : MOST_ELEMENTS;
    const disk_drives drives = {.names = "drive0 drive1",
                                .allocate = "fallocate -l",
                                .format = "mkfs.ext4 -q -F -m 0 -O ^has_journal",
                                .bytes = 3 * sizeof(float) * (uint64_t)elements * 7 / 4 + (64 << 20)};
    race *r = race_open(&run->book, "paths", "%zu, %.1f GB/s each way of each", elements, 1e-9 * (double)RATE);
    if (disk_is_late(&run->options, 0.88, r))
        return 0;
    const char *line =
        disk_child(r, &drives, "--paths-of %zu %u %.0f", elements, step_fewer(run), ceil(run->options.run.seconds / 8));
    if (!line)
        return 0;
    for (unsigned i = 0; i < DRIVES; i++)
        race_add(r, &LINES[i], (double)elements, NULL, STEPS);
    race_read_samples(r, line);
    return 0;
}
