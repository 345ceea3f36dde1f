/* step_paths.c: one drive and two. Each is a loop device over a file of the benchmark's folder with a file system of its own,
 * and the kernel bounds both alike. All of it happens in a process with a mount namespace of its own: when that ends, however
 * it ends, mounts and devices are gone. */
#include "step_bench.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

static const uint64_t RATE = 300 * 1000 * 1000; /* of each drive, each way: two together are slower than the disk below */

enum { DRIVES = 2, MOST_ELEMENTS = 16 << 20, STEPS = 2 /* in a sample */ };

typedef struct drive {
    char image[STEP_PATH], folder[STEP_PATH];
} drive;

static int fail(const char *what, const char *why)
{
    printf("%s: %s\n", what, why);
    return -1;
}

static int run_tool(char *const argv[], char *line, size_t bytes)
{
    return step_child_run(argv, true, line, bytes) == 0 ? 0 : fail(argv[0], line);
}

/* A file of that size as a loop device, formatted and mounted. Detached at once, it lives as long as it is mounted. */
static int open_drive(const char *folder, unsigned index, uint64_t bytes, drive *out)
{
    char line[512], device[128];
    const int lengths[] = {snprintf(out->image, sizeof out->image, "%s/drive%u.img", folder, index),
                           snprintf(out->folder, sizeof out->folder, "%s/drive%u", folder, index)};
    if ((size_t)lengths[0] >= sizeof out->image || (size_t)lengths[1] >= sizeof out->folder)
        return fail("the folder's name", "too long");
    const int fd = open(out->image, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    const int error = fd < 0 ? errno : posix_fallocate(fd, 0, (off_t)bytes);
    if (fd >= 0)
        close(fd);
    if (error || mkdir(out->folder, 0700) != 0)
        return fail("cannot make a drive", strerror(error ? error : errno));
    char *const losetup[] = {(char[]){"losetup"},        (char[]){"--find"}, (char[]){"--show"},
                             (char[]){"--direct-io=on"}, out->image,         NULL};
    if (run_tool(losetup, line, sizeof line) != 0)
        return -1;
    snprintf(device, sizeof device, "%.127s", line);
    char *const mkfs[] = {(char[]){"mkfs.ext4"},    (char[]){"-q"}, (char[]){"-F"},
                          (char[]){"-m"},           (char[]){"0"},  (char[]){"-O"},
                          (char[]){"^has_journal"}, device,         NULL};
    char *const detach[] = {(char[]){"losetup"}, (char[]){"--detach"}, device, NULL};
    int ret = run_tool(mkfs, line, sizeof line);
    if (ret == 0 && mount(device, out->folder, "ext4", 0, NULL) != 0)
        ret = fail("mount", strerror(errno));
    return run_tool(detach, line, sizeof line) == 0 ? ret : -1;
}

static int contest(const step_model *m, const drive drives[DRIVES], unsigned rounds, double seconds)
{
    const char *const paths[DRIVES] = {drives[0].folder, drives[1].folder};
    const uint64_t budget = 3 * sizeof(float) * m->elements / 10;
    step_engine one, two;
    step_engine_opts opts = {.paths = paths, .path_count = 1, .host_bytes = budget};
    if (step_engine_open(m, "one", &opts, &one) != 0)
        return fail("one path", one.reason);
    opts.path_count = DRIVES;
    if (step_engine_open(m, "two", &opts, &two) != 0) {
        step_engine_close(&one);
        return fail("two paths", two.reason);
    }
    race r = {.part = "paths"};
    /* While one works, the other's drive is idle, for which the kernel makes up: that is gone after a step. */
    race_entry entry = {.work = step_engine_step, .before = step_engine_step, .calls = STEPS, .fixed = true, .yardstick = -1};
    entry.name = "one_path", entry.ctx = &one;
    race_add(&r, entry);
    entry.name = "two_paths", entry.ctx = &two;
    race_add(&r, entry);
    step_engine_step(&one); /* the first step reads less */
    step_engine_step(&two);
    int ret = throttle_open(&step_throttle, paths[0], RATE);
    if (ret == 0)
        ret = throttle_add(&step_throttle, paths[1], RATE);
    if (ret != 0)
        fail("no throttle", step_throttle.reason);
    if (ret == 0) {
        step_engine_step(&one); /* the kernel grants what was left unused before */
        step_engine_step(&two);
        race_run(&r, rounds, 0, bench_stopwatch_now() + seconds);
    }
    throttle_close(&step_throttle);
    ret = ret == 0 && (one.failed || two.failed) ? fail("a step failed", "see standard error") : ret;
    for (unsigned k = 0; ret == 0 && k < r.rounds; k++)
        printf("%.6f %.6f%s", r.entries[0].seconds[k], r.entries[1].seconds[k], k + 1 < r.rounds ? " " : "\n");
    step_engine_close(&one);
    step_engine_close(&two);
    return ret;
}

int step_paths_child(const char *folder, size_t elements, unsigned rounds, double seconds)
{
    const uint64_t bytes = 3 * sizeof(float) * (uint64_t)elements * 7 / 4 + (64 << 20);
    drive drives[DRIVES];
    step_model model;
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) {
        fail("loop devices and mounts need root", strerror(errno));
        return 1;
    }
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    step_folder_guard("");
    for (unsigned i = 0; i < DRIVES; i++) {
        if (open_drive(folder, i, bytes, &drives[i]) != 0)
            return 1;
    }
    if (step_model_open(elements, &model) != 0)
        return 1;
    const int ret = contest(&model, drives, rounds, seconds);
    step_model_close(&model);
    return ret == 0 ? 0 : 1;
}

int step_paths(const step_options *options, const char *folder, step_book *book)
{
    char count[32], rounds[32], seconds[32], line[2048], path[STEP_PATH];
    const size_t half = options->elements / 2, elements = half < MOST_ELEMENTS ? half : MOST_ELEMENTS;
    race *r = &book->paths;
    if (step_options_late(options, 0.88, book->no_paths))
        return 0;
    r->part = "paths";
    snprintf(r->label, sizeof r->label, "%zu, %.1f GB/s each way of each", elements, 1e-9 * (double)RATE);
    snprintf(count, sizeof count, "%zu", elements);
    snprintf(rounds, sizeof rounds, "%u", (options->run.rounds + 1) / 2);
    snprintf(seconds, sizeof seconds, "%.0f", ceil(options->run.seconds / 8));
    snprintf(path, sizeof path, "%s", folder);
    char program[] = "/proc/self/exe", option[] = "--paths-of";
    char *const argv[] = {program, option, path, count, rounds, seconds, NULL};
    if (step_child_run(argv, false, line, sizeof line) != 0) {
        snprintf(book->no_paths, sizeof book->no_paths, "%.250s", line);
        return 0;
    }
    race_entry entry = {.elements = (double)elements, .bytes = 24, .yardstick = -1, .calls = 1, .fixed = true};
    entry.name = "one_path", entry.what = "states on one drive";
    race_add(r, entry);
    entry.name = "two_paths", entry.what = "the same states on two";
    race_add(r, entry);
    double *const one = r->entries[0].seconds, *const two = r->entries[1].seconds;
    int used = 0;
    for (const char *at = line; r->rounds < RACE_ROUNDS; at += used, r->rounds++) {
        if (sscanf(at, "%lf %lf%n", &one[r->rounds], &two[r->rounds], &used) != 2)
            break;
        r->clean_rounds += isfinite(one[r->rounds] + two[r->rounds]);
    }
    return 0;
}
