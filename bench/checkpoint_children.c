/* checkpoint_children.c: measurements that need a fresh process: the peak of memory of a save and a load, and a drive with
 * reflinks. The latter is a loop device over a file in the benchmark's folder, with XFS. Its process has its own mount
 * namespace, so mount and device are gone when it ends, in any way. */
#include "checkpoint_async.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { LINE = 4096, COLUMNS = 5 };

static bool is_late(const checkpoint_options *options, double share, char *reason)
{
    if (bench_now() < bench_run_deadline(&options->run, share))
        return false;
    snprintf(reason, CHECKPOINT_REASON, "no time was left for it; raise --seconds, or name fewer parts with --only");
    return true;
}

/* --- memory --- */

static double status_bytes(const char *format)
{
    size_t kib = 0;
    bench_scan("/proc/self/status", 1, format, &kib);
    return 1024.0 * (double)kib;
}

/* Run one turn, and return the most memory meanwhile; negative: it failed. */
static double peak_of(bench_work_fn turn, checkpoint_states *s)
{
    FILE *file = fopen("/proc/self/clear_refs", "we");
    const bool reset = file && fputs("5", file) >= 0;
    if (!file || fclose(file) != 0 || !reset)
        return bench_fail("the peak of memory cannot be reset (/proc/self/clear_refs)");
    return turn(s, 0) == 0 ? status_bytes("VmHWM: %zu kB") : -1;
}

/* Print the peaks of a save and a load over what is expected: the plan, and the memory of a save or one chunk. */
static int print_peaks(const step_model *m, const char *folder, checkpoint_tier tier, uint64_t budget)
{
    checkpoint_states s;
    const double before = status_bytes("VmRSS: %zu kB");
    if (checkpoint_states_open(m, folder, tier, budget, &s) != 0)
        return -1;
    const double plan = (double)s.engine.plan.memory_bytes, chunk = (double)s.engine.plan.chunk_bytes;
    const double save = peak_of(checkpoint_states_save, &s), load = save < 0 ? -1 : peak_of(checkpoint_states_load, &s);
    printf("%.6f %.6f ", (save - before) / (plan + (double)s.engine.plan.save_bytes),
           (load - before) / (plan + (tier == CHECKPOINT_NVME ? chunk : 0)));
    checkpoint_states_close(&s);
    return load < 0 ? -1 : 0;
}

int checkpoint_memory_child(size_t elements, uint64_t budget)
{
    const char *folder = getenv("ZOFF_BENCH_FOLDER");
    step_model model;
    if (!folder || step_model_open(elements, &model) != 0)
        return 1;
    int ret = 0;
    for (unsigned tier = 0; ret == 0 && tier < CHECKPOINT_TIERS; tier++)
        ret = print_peaks(&model, folder, (checkpoint_tier)tier, budget);
    putchar('\n');
    bench_streams_close(&model.mapping);
    return ret ? 1 : 0;
}

int checkpoint_memory(const checkpoint_options *options, checkpoint_found *found)
{
    char text[LINE];
    checkpoint_tier_found *t = found->tiers;
    if (is_late(options, 0.99, found->no_memory))
        return 0;
    const int ret = bench_command(text, sizeof text, "exec \"$ZOFF_BENCH_SELF\" --memory-of %llu %llu 2>&1",
                                  (unsigned long long)options->elements,
                                  (unsigned long long)(12 * options->elements / options->budget_share));
    if (ret != 0 || sscanf(bench_last_line(text), "%lf %lf %lf %lf", &t[0].save_peak, &t[0].load_peak, &t[1].save_peak,
                           &t[1].load_peak) != 4)
        snprintf(found->no_memory, CHECKPOINT_REASON, "%.250s", bench_last_line(text));
    return 0;
}

/* --- a drive with reflinks --- */

/* A device that is detached at once lives as long as its mount. The file has holes: it takes the space that is written. */
static const char DRIVE_SCRIPT[] = "exec unshare --mount --propagation private sh -ec '"
                                   "  cd \"$ZOFF_BENCH_FOLDER\"; truncate -s %llu xfs.img; mkdir xfs;"
                                   "  device=$(losetup --find --show --direct-io=on xfs.img);"
                                   "  { mkfs.xfs -q -m reflink=1 $device && mount $device xfs; } || failed=1;"
                                   "  losetup --detach $device; [ -z \"$failed\" ];"
                                   "  exec \"$ZOFF_BENCH_SELF\" --reflink-of %zu %llu %u %.0f %d' 2>&1";

static const race_line LINES[COLUMNS] = {
    {"save_reflink", "zoff_checkpoint_save() of states in files", NULL, 12, checkpoint_states_save, 0, 0},
    {"copy_reflink", "a clone of the state file, with fsync", NULL, 12, checkpoint_mover_copy, 0, 0},
    {"steps", "ten steps", NULL, 240, checkpoint_trainer_steps, 0, 0},
    {"steps_and_save", "a save begins, ten steps, wait for the save", NULL, 240, checkpoint_trainer_saves, 0, 0},
    {"aio_mix", "the queue reads and writes the bytes of a save at once", NULL, 24, checkpoint_mover_mix, 0, 0}};

static int race_reflink(checkpoint_trainer *t, unsigned rounds, double seconds)
{
    static race r;
    r.sample = checkpoint_sample;
    r.user = &t->mover;
    void *const contexts[COLUMNS] = {&t->states, &t->mover, t, t, &t->mover};
    const bench_work_fn befores[COLUMNS] = {checkpoint_states_forget, checkpoint_mover_forget, checkpoint_trainer_forget,
                                            checkpoint_trainer_forget, checkpoint_mover_forget};
    for (unsigned i = 0; i < COLUMNS; i++)
        race_add(&r, &LINES[i], t->states.bytes / 12, contexts[i], 1)->before = befores[i];
    /* On a drive of known speed the load of the machine does not show. The bytes of the yardstick take that time, too. */
    if (throttle_open(&step_throttle, t->mover.scratch, CHECKPOINT_RATE) != 0)
        return bench_fail("no throttle: %s", step_throttle.reason);
    const int ret = race_run(&r, rounds, bench_now() + seconds);
    throttle_close(&step_throttle);
    printf("%d ", t->mover.registered);
    for (unsigned k = 0; ret == 0 && k < r.rounds; k++) {
        for (unsigned i = 0; i < COLUMNS; i++)
            printf("%.6f %.0f ", r.entries[i].seconds[k], r.entries[i].other[k]);
    }
    putchar('\n');
    return ret;
}

int checkpoint_reflink_child(size_t elements, uint64_t budget, unsigned rounds, double seconds, bool beside_others)
{
    static checkpoint_trainer t;
    char folder[CHECKPOINT_PATH];
    step_model model;
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (beside_others)
        bench_stopwatch_beside_others();
    step_folder_guard(false);
    if (getppid() == 1 || !getenv("ZOFF_BENCH_FOLDER") || step_model_open(elements, &model) != 0)
        return 1;
    snprintf(folder, sizeof folder, "%.4000s/xfs", getenv("ZOFF_BENCH_FOLDER"));
    int ret = checkpoint_trainer_open(&model, folder, budget, &t);
    if (ret == 0)
        ret = race_reflink(&t, rounds, seconds);
    checkpoint_trainer_close(&t);
    bench_streams_close(&model.mapping);
    return ret ? 1 : 0;
}

/* Parse the line that race_reflink() has printed in the child. */
static void take_rounds(const char *line, race *r, checkpoint_found *found)
{
    int registered = 0, used = 0;
    if (sscanf(line, "%d%n", &registered, &used) != 1)
        return;
    found->registered = found->registered && registered;
    line += used;
    for (; r->rounds < RACE_ROUNDS; r->rounds++) {
        bool clean = true;
        for (unsigned i = 0; i < COLUMNS; i++, line += used) {
            race_entry *e = &r->entries[i];
            if (sscanf(line, "%lf %lf%n", &e->seconds[r->rounds], &e->other[r->rounds], &used) != 2)
                return;
            clean = clean && e->other[r->rounds] == 0;
        }
        r->clean_rounds += clean;
    }
}

int checkpoint_reflink(const checkpoint_options *options, checkpoint_found *found)
{
    static char text[1 << 16];
    const size_t elements = (options->elements / CHECKPOINT_ASYNC_PART + 1023) / 1024 * 1024;
    race *r = race_open(&found->book, "reflink", "XFS on a loop device");
    if (is_late(options, 0.9, found->no_reflink))
        return 0;
    const unsigned long long bytes = 12 * (unsigned long long)elements * 7 + (1ull << 30);
    const unsigned long long budget = 12 * (unsigned long long)elements / options->budget_share;
    const double seconds = 0.7 * (bench_run_deadline(&options->run, 1) - bench_now());
    if (bench_command(text, sizeof text, DRIVE_SCRIPT, bytes, elements, budget, (unsigned)options->run.rounds, ceil(seconds),
                      options->busy != UINT64_MAX) != 0) {
        snprintf(found->no_reflink, CHECKPOINT_REASON, "%s%.200s",
                 geteuid() == 0 ? "" : "loop devices and mounts need root: ", bench_last_line(text));
        return 0;
    }
    for (unsigned i = 0; i < COLUMNS; i++)
        race_add(r, &LINES[i], (double)elements, NULL, 1);
    take_rounds(bench_last_line(text), r, found);
    return 0;
}
