/* step_children.c: measurements that need a fresh process. First: does an engine's memory depend on the size of the model? Two
 * processes have the same budget, one of them a model ten times as large. Second: one drive and two. Each is a loop device over
 * a file in the benchmark's folder, with its own file system, and the kernel limits both alike. That process has its own mount
 * namespace, so mounts and devices are gone when it ends, in any way. */
#include "step_bench.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static const uint64_t RATE =
    300 * 1000 * 1000; /* of each drive in each direction: two together are slower than the disk below */
enum { LARGER = 10, LINE = 4096, DRIVES = 2, MOST_ELEMENTS = 16 << 20, STEPS = 2 /* in a sample */ };

/* Whether `share` of the run's time has passed; if so, write `reason`. */
static bool is_late(const step_options *options, double share, char *reason)
{
    if (bench_now() < bench_run_deadline(&options->run, share))
        return false;
    snprintf(reason, STEP_REASON, "no time was left for it; raise --seconds, or name fewer parts with --only");
    return true;
}

/* --- memory --- */

int step_rss_child(size_t elements, uint64_t budget)
{
    const char *folder = getenv("ZOFF_BENCH_FOLDER");
    const step_engine_opts opts = {.paths = &folder, .path_count = 1, .host_bytes = budget};
    char name[64];
    step_model model;
    static step_engine engine;
    snprintf(name, sizeof name, "rss-%zu", elements);
    if (step_model_open(elements, &model) != 0)
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

int step_rss(const step_options *options, step_found *found)
{
    const size_t large = options->elements;
    const uint64_t budget =
        3 * sizeof(float) * large / LARGER / 2; /* half of the small model's states, so that it streams, too */
    if (is_late(options, 0.85, found->no_rss))
        return 0;
    for (unsigned i = 0; i < 2; i++) {
        char text[LINE];
        size_t rss = 0;
        const int ret = bench_command(text, sizeof text, "exec \"$ZOFF_BENCH_SELF\" --rss-of %zu %llu 2>&1",
                                      i ? large : large / LARGER, (unsigned long long)budget);
        if (ret != 0 || sscanf(bench_last_line(text), "%zu", &rss) != 1) {
            snprintf(found->no_rss, STEP_REASON, "%.250s", bench_last_line(text));
            return 0;
        }
        found->rss[i] = (double)rss / 1024;
    }
    return 0;
}

/* --- drives --- */

/* Create files of this size as loop devices, formatted and mounted. A device that is detached at once lives as long as its
 * mount. */
static const char DRIVES_SCRIPT[] = "exec unshare --mount --propagation private sh -ec '"
                                    "  cd \"$ZOFF_BENCH_FOLDER\";"
                                    "  for drive in drive0 drive1; do"
                                    "    fallocate -l %llu $drive.img; mkdir $drive;"
                                    "    device=$(losetup --find --show --direct-io=on $drive.img);"
                                    "    { mkfs.ext4 -q -F -m 0 -O ^has_journal $device && mount $device $drive; } || failed=1;"
                                    "    losetup --detach $device; [ -z \"$failed\" ];"
                                    "  done;"
                                    "  exec \"$ZOFF_BENCH_SELF\" --paths-of %zu %u %.0f' 2>&1";

static const race_line LINES[DRIVES] = {{"one_path", "states on one drive", NULL, 24, step_engine_step, 0, 0},
                                        {"two_paths", "the same states on two", NULL, 24, step_engine_step, 0, 0}};

/* While one contestant works, the other's drive is idle, and the kernel makes up for idle time. That effect is gone after one
 * step. */
static int race_paths(step_engine engines[DRIVES], const char *const paths[DRIVES], unsigned rounds, double seconds)
{
    static race r;
    for (unsigned i = 0; i < DRIVES; i++) {
        race_add(&r, &LINES[i], 0, &engines[i], STEPS)->before = step_engine_step;
        if (step_engine_step(&engines[i], 0) != 0) /* the first step reads less */
            return -1;
    }
    if (throttle_open(&step_throttle, paths[0], RATE) != 0 || throttle_add(&step_throttle, paths[1], RATE) != 0)
        return bench_fail("no throttle: %s", step_throttle.reason);
    for (unsigned i = 0; i < DRIVES; i++) { /* the kernel grants what was not used before */
        if (step_engine_step(&engines[i], 0) != 0)
            return -1;
    }
    const int ret = race_run(&r, rounds, bench_now() + seconds);
    for (unsigned k = 0; ret == 0 && k < r.rounds; k++)
        printf("%.6f %.6f%s", r.entries[0].seconds[k], r.entries[1].seconds[k], k + 1 < r.rounds ? " " : "\n");
    return ret;
}

int step_paths_child(size_t elements, unsigned rounds, double seconds)
{
    const char *folder = getenv("ZOFF_BENCH_FOLDER");
    static char drives[DRIVES][STEP_PATH];
    const char *const paths[DRIVES] = {drives[0], drives[1]};
    static step_engine engines[DRIVES];
    step_model model;
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    step_folder_guard(false);
    if (getppid() == 1 || !folder || step_model_open(elements, &model) != 0) /* the parent may be gone already */
        return 1;
    int ret = 0;
    for (unsigned i = 0; i < DRIVES; i++)
        snprintf(drives[i], STEP_PATH, "%.4000s/drive%u", folder, i);
    for (unsigned i = 0; i < DRIVES && ret == 0; i++) {
        const step_engine_opts opts = {
            .paths = paths, .path_count = i + 1, .host_bytes = 3 * sizeof(float) * elements / LARGER};
        ret = step_engine_open(&model, i ? "two" : "one", &opts, &engines[i]);
    }
    if (ret == 0)
        ret = race_paths(engines, paths, rounds, seconds);
    throttle_close(&step_throttle);
    for (unsigned i = 0; i < DRIVES; i++)
        step_engine_close(&engines[i]);
    return ret ? 1 : 0;
}

int step_paths(const step_options *options, step_found *found)
{
    char text[LINE];
    const size_t half = options->elements / 2, elements = half < MOST_ELEMENTS ? half : MOST_ELEMENTS;
    race *r = race_open(&found->book, "paths", "%zu, %.1f GB/s each way of each", elements, 1e-9 * (double)RATE);
    if (is_late(options, 0.88, found->no_paths))
        return 0;
    const unsigned long long bytes = 3 * sizeof(float) * (uint64_t)elements * 7 / 4 + (64 << 20);
    if (bench_command(text, sizeof text, DRIVES_SCRIPT, bytes, elements, (unsigned)(options->run.rounds + 1) / 2,
                      ceil(options->run.seconds / 8)) != 0) {
        snprintf(found->no_paths, STEP_REASON, "%s%.200s",
                 geteuid() == 0 ? "" : "loop devices and mounts need root: ", bench_last_line(text));
        return 0;
    }
    double *const one = race_add(r, &LINES[0], (double)elements, NULL, STEPS)->seconds;
    double *const two = race_add(r, &LINES[1], (double)elements, NULL, STEPS)->seconds;
    int used = 0;
    for (const char *at = bench_last_line(text); r->rounds < RACE_ROUNDS; at += used, r->rounds++) {
        if (sscanf(at, "%lf %lf%n", &one[r->rounds], &two[r->rounds], &used) != 2)
            break;
        r->clean_rounds += isfinite(one[r->rounds] + two[r->rounds]) ? 1 : 0;
    }
    return 0;
}
