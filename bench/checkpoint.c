/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint.c: the speed of saves and loads beside that of their bytes alone: engines on each tier, yardsticks that move the
 * same bytes, and their races. First saves and loads, of which a race has two contestants. Then what a save beside training
 * steps costs: the same steps run with a save and without one, beside the time in which the queue reads and writes as many
 * bytes. The disk is free or held, and the trainer computes or not. Then again on a drive that shares blocks: a loop device
 * over a file in the benchmark's folder, with XFS. At last the memory of a save and a load, in a process of its own. */
#include "aio_bench.h"
#include "checkpoint_bench.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/fs.h>
#include <math.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* --- engines whose states are saved and loaded --- */

/* An engine on one tier, and the folder of its checkpoints. */
typedef struct saved {
    step_engine engine;
    double bytes; /* of the states */
    const char *folder;
    const char *state_file; /* path of the state file on NVMe; NULL on the host */
} saved;

static const char NAME[] = "last"; /* name of each checkpoint */

/* Find the state file among the open files of the process, because it has no name any more. */
static const char *find_state_file(const saved *s)
{
    char target[PATH_MAX];
    const char *found_file = NULL;
    glob_t files = {.gl_pathc = 0};
    (void)glob("/proc/self/fd/*", 0, NULL, &files);
    for (size_t i = 0; i < files.gl_pathc; i++) {
        const ssize_t length = readlink(files.gl_pathv[i], target, sizeof target - 1);
        target[length > 0 ? length : 0] = 0;
        if (strncmp(target, s->engine.folder, strlen(s->engine.folder)) == 0 && strstr(target, ".swap"))
            found_file = bench_text("%s", files.gl_pathv[i]);
    }
    globfree(&files);
    if (!found_file)
        bench_die("the open state file is not in /proc/self/fd");
    return found_file;
}

/* Reads ahead of the next step are no part of a turn. */
static void rest(void *ctx, int which)
{
    const saved *s = ctx;
    step_engine_rest(&s->engine);
}

static void forget_save(void *ctx, int which)
{
    const saved *s = ctx;
    char text[512];
    rest(ctx, which);
    /* The disk frees its blocks before the turn. */
    if (bench_command(text, sizeof text, bench_text("rm -rf --one-file-system '%s' 2>&1 && sync", s->folder)) != 0)
        bench_die("%s", text);
}

BENCH_CLOSER(forget_last, forget_save(x, 0))

static void open_states(const step_model *m, const char *folder, checkpoint_tier tier, uint64_t budget, saved *out)
{
    const bool in_files = tier == CHECKPOINT_NVME;
    const step_engine_opts opts = {.paths = {in_files ? folder : NULL}, .host_bytes = in_files ? budget : 0};
    const char *name = in_files ? "nvme" : "host";
    *out = (saved){.bytes = 12.0 * (double)m->elements, .folder = bench_text("%s/of-%s", folder, name)};
    step_engine_open(m, name, &opts, &out->engine);
    bench_later(forget_last, out, 0);
    for (unsigned i = 0; i < 2; i++)
        step_engine_step(&out->engine, 0);
    out->state_file = in_files ? find_state_file(out) : NULL;
}

static void save(void *ctx, int which)
{
    const saved *s = ctx;
    zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
    opts.name = NAME;
    bench_must(zoff_checkpoint_save(s->engine.engine, s->folder, &opts));
}

static void load(void *ctx, int which)
{
    const saved *s = ctx;
    bench_must(zoff_checkpoint_load(s->engine.engine, s->folder, NULL));
}

/* Run a turn, and count its bytes of files over those of the states, without those that it reads for the next step. */
static void count_turn(saved *s, bench_work_fn turn, double dst[2])
{
    zoff_step_info info = {.struct_size = sizeof info};
    rest(s, 0);
    const uint64_t before[2] = {bench_traffic(false), bench_traffic(true)};
    turn(s, 0);
    rest(s, 0);
    for (unsigned way = 0; way < 2; way++)
        dst[way] = (double)(bench_traffic(way) - before[way]) / s->bytes;
    bench_must(zoff_step(s->engine.engine, NULL, &info));
    dst[0] -= turn == load ? (double)info.bytes.nvme_read_ahead / s->bytes : 0;
    rest(s, 0);
}

static void count_costs(saved *s, checkpoint_costs *costs)
{
    count_turn(s, save, costs->saved);
    count_turn(s, load, costs->loaded);
}

static const char *part_of(const saved *s)
{
    glob_t files = {.gl_pathc = 0};
    if (glob(bench_text("%s/%s/*{part,rank}*", s->folder, NAME), GLOB_BRACE, NULL, &files) != 0)
        bench_die("%s/%s has no file of states", s->folder, NAME);
    const char *last = bench_text("%s", files.gl_pathv[files.gl_pathc - 1]);
    globfree(&files);
    return last;
}

/* --- the yardsticks: bench/aio's queue, and a plain copy --- */

typedef struct mover {
    char *memory;
    uint64_t bytes;      /* bytes in one direction */
    const char *scratch; /* file of twice these bytes, all written */
    const char *made;    /* the file that a write or a copy makes */
    const char *from;    /* the file that a read or a copy reads */
    double registering; /* seconds in which turns registered their memory, which is no part of their work; set it to 0 before */
    saved *rest;        /* engine that ends its reads of a next step before each turn; NULL: none */
} mover;

/* Move bytes as bench/aio does by default: one request, registered memory. */
static void move(mover *m, const char *path, aio_way way, uint64_t bytes)
{
    aio_transfer t = {.path = path, .memory = m->memory, .way = way, .bytes = bytes};
    aio_ours_run(&(aio_line){.block = 0}, &t);
    checkpoint.unregistered = checkpoint.unregistered || !t.registered;
    m->registering += t.registering;
}

/* Make a file with its space reserved, as zoff makes its own. */
static void make(const char *path, uint64_t bytes)
{
    const zoff_aio_opts opts = {.struct_size = sizeof opts, .writable = true, .create = true};
    zoff_aio *queue;
    bench_must(zoff_aio_open(path, &opts, &queue));
    bench_must(zoff_aio_reserve(queue, bytes));
    zoff_aio_close(queue);
}

static void unlink_files(void *ctx, size_t value)
{
    const mover *m = ctx;
    (void)unlink(m->made);
    (void)unlink(m->scratch);
}

static void open_mover(const char *folder, uint64_t bytes, mover *out)
{
    *out = (mover){.bytes = bytes, .memory = bench_array(2 * bytes, true)};
    out->scratch = bench_text("%s/scratch", folder);
    out->made = bench_text("%s/made", folder);
    bench_fill_float((float *)(void *)out->memory, 2 * bytes / sizeof(float), 0, 1);
    bench_later(unlink_files, out, 0);
    make(out->scratch, 2 * bytes);
    move(out, out->scratch, WAY_WRITE, 2 * bytes);
}

static void forget_made(void *ctx, int which)
{
    const mover *m = ctx;
    if (m->rest)
        step_engine_rest(&m->rest->engine);
    (void)unlink(m->made);
    sync(); /* the disk frees its blocks before the turn */
    const int fd = m->from ? open(m->from, O_RDONLY | O_CLOEXEC) : -1;
    if (fd >= 0) { /* a copy has left it in the page cache */
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        close(fd);
    }
}

static void mover_write(void *ctx, int which)
{
    mover *m = ctx;
    make(m->made, m->bytes);
    move(m, m->made, WAY_WRITE, m->bytes);
    const int fd = open(m->made, O_RDWR | O_CLOEXEC);
    if (fd < 0 || fsync(fd) != 0)
        bench_die("cannot flush %s: %s", m->made, strerror(errno));
    close(fd);
}

static void mover_read(void *ctx, int which)
{
    mover *m = ctx;
    move(m, m->from, WAY_READ, m->bytes);
}

static void mover_mix(void *ctx, int which)
{
    mover *m = ctx;
    move(m, m->scratch, WAY_MIX, 2 * m->bytes);
}

/* Copy a file as `cp --reflink=auto`: clone it, or let the kernel copy. */
static int copy(int from, int to)
{
    enum { AT_ONCE = 1 << 30 };
    ssize_t got = 1;
    if (ioctl(to, FICLONE, from) == 0)
        return 0;
    while (got > 0)
        got = copy_file_range(from, NULL, to, NULL, AT_ONCE, 0);
    return (int)got;
}

static void mover_copy(void *ctx, int which)
{
    const mover *m = ctx;
    const int from = open(m->from, O_RDONLY | O_CLOEXEC), to = open(m->made, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (from < 0 || to < 0 || copy(from, to) != 0 || fsync(to) != 0)
        bench_die("cannot copy %s to %s: %s", m->from, m->made, strerror(errno));
    close(from);
    close(to);
}

static double sample(race *r, race_entry *e, double deadline)
{
    mover *m = r->user;
    m->registering = 0;
    const bench_sample sample = bench_stopwatch_sample(&e->work, 1, 0, 1, deadline);
    e->disturbed[r->rounds] = !sample.clean;
    return sample.seconds - m->registering;
}

/* --- saves and loads of each tier --- */

/* clang-format off */
static const race_line
    SAVE_HOST = {"save_host", "zoff_checkpoint_save() of states in DRAM", 12, save, .before = forget_save},
    SAVE_NVME = {"save_nvme", "zoff_checkpoint_save() of states in files", 24, save, .before = forget_save},
    LOAD_HOST = {"load_host", "zoff_checkpoint_load() into DRAM", 12, load, .before = rest},
    LOAD_NVME = {"load_nvme", "zoff_checkpoint_load() into files", 24, load, .before = rest},
    AIO_NEW = {"aio_new_file", "the queue writes a new file, with fsync", 12, mover_write, .before = forget_made},
    AIO_READ = {"aio_read", "the queue reads the same file", 12, mover_read, .before = forget_made},
    AIO_MIX = {"aio_mix", "the queue reads and writes as many bytes at once", 24, mover_mix, .before = forget_made},
    COPY = {"copy", "a copy of the state file, with fsync", 24, mover_copy, .before = forget_made};

/* A race of two, zoff and the yardstick. Buffered writes are not held at a rate, so a copy takes no part there. */
static const struct duel {
    const char *part;
    unsigned asked;
    bool held; /* the race runs on a disk of a known speed */
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

static step_model model;
static saved tiers[CHECKPOINT_TIERS];
static mover yardstick;

static void run_duel(const struct duel *d, race *r)
{
    static const double SHARE = 0.07; /* of the time that is left */
    saved *s = &tiers[d->tier];
    for (unsigned tier = 0; tier < CHECKPOINT_TIERS; tier++) /* the duel before may have left reads of a next step to end */
        rest(&tiers[tier], 0);
    yardstick.from = s->state_file;
    if (d->asked == CHECKPOINT_LOAD) { /* the samples are of this race, and not of the last save of another */
        forget_save(s, 0);
        save(s, 0);
        yardstick.from = part_of(s);
    }
    yardstick.rest = s;
    r->sample = sample;
    r->user = &yardstick;
    race_add(r, d->a, (double)model.elements, s, 1);
    race_add(r, d->b, (double)model.elements, &yardstick, 1);
    race_run(r, (unsigned)bench.rounds, bench_now() + SHARE * (bench_share(1) - bench_now()));
}

static void run_duels(const bench_part *part)
{
    const uint64_t budget = step_budget(disk.elements);
    model = step_model_open(disk.elements);
    for (unsigned tier = 0; tier < CHECKPOINT_TIERS; tier++) {
        open_states(&model, disk.folder, (checkpoint_tier)tier, budget, &tiers[tier]);
        count_costs(&tiers[tier], &checkpoint.tiers[tier]);
    }
    checkpoint.plan = tiers[CHECKPOINT_NVME].engine.plan;
    open_mover(disk.folder, 12 * disk.elements, &yardstick);
    for (const struct duel *d = DUELS; d < DUELS + BENCH_COUNT(DUELS); d++) {
        const size_t mark = bench_opened();
        if (!(bench.parts & d->asked))
            continue;
        race *r = race_open(d->part, d->tier == CHECKPOINT_HOST ? "host" : "nvme");
        if (!d->held || disk_hold(r, disk.folder, STEP_DISK_RATE))
            run_duel(d, r);
        bench_close(mark);
    }
}

/* --- saves beside steps --- */

enum { STEPS = 10 /* steps from one save to the next */ };

static volatile double sink;

/* A trainer with states in files, which saves beside its steps. */
typedef struct trainer {
    saved states; /* first member, so that a trainer stands for its states, too */
    mover queue;
    size_t turns; /* turns of computation before each step */
} trainer;

/* Steps of training: the passes of a model compute, then the optimizer steps. */
enum { ALONE, SAVES };
static void take_steps(void *ctx, int which)
{
    trainer *t = ctx;
    zoff_checkpoint *now = NULL;
    if (which == SAVES)
        bench_must(zoff_checkpoint_begin(t->states.engine.engine, t->states.folder, NULL, &now));
    for (unsigned i = 0; i < STEPS; i++) {
        if (t->turns)
            sink = step_own_backward(t->turns);
        step_engine_step(&t->states.engine, 0);
        if (now)
            bench_must(zoff_checkpoint_poll(now));
    }
    if (now)
        bench_must(zoff_checkpoint_wait(now));
}

enum { OF_TRAINER = 1, OF_QUEUE = 2 };
static const race_line LINES[] = {
    {"steps", "ten steps", 240, take_steps, ALONE, OF_TRAINER, .before = forget_save},
    {"steps_and_save", "a save begins, ten steps, wait for the save", 264, take_steps, SAVES, OF_TRAINER,
     .before = forget_save},
    {"aio_mix", "the queue reads and writes the bytes of a save at once", 24, mover_mix, 0, OF_QUEUE, .before = forget_made},
    {NULL}};
static const race_line SAVE_REFLINK = {"save_reflink", "zoff_checkpoint_save() of states in files", 12, save,
                                       .before = forget_save},
                       COPY_REFLINK = {"copy_reflink", "a clone of the state file, with fsync", 12, mover_copy,
                                       .before = forget_made};

/* The elements of a part of the model, because ten steps move twenty times their states. */
static size_t elements_of_part(void)
{
    return (disk.elements / 4 + 1023) / 1024 * 1024;
}

static void open_trainer(const char *folder, size_t elements, uint64_t budget, trainer *out)
{
    model = step_model_open(elements);
    *out = (trainer){.turns = 0};
    open_states(&model, folder, CHECKPOINT_NVME, budget, &out->states);
    open_mover(folder, 12 * elements, &out->queue);
    out->queue.from = out->states.state_file;
    out->queue.rest = &out->states;
    out->states.engine.sample_steps = STEPS;
}

static void enter(race *r, trainer *t, size_t elements)
{
    r->sample = sample;
    r->user = t ? &t->queue : NULL;
    race_add_lines(r, LINES, OF_TRAINER, (double)elements, t, 1);
    race_add_lines(r, LINES, OF_QUEUE, (double)elements, t ? &t->queue : NULL, 1);
}

/* A compute phase as long as a step, so that the disk has work for half of the time. Count turns in which all threads do so. */
static void find_compute(trainer *t)
{
    enum { TURNS = 1 << 21 };
    double best = INFINITY, from = bench_now();
    take_steps(t, ALONE);
    const double seconds = (bench_now() - from) / STEPS;
    for (unsigned i = 0; i < 5; i++) {
        from = bench_now();
        sink = step_own_backward(TURNS);
        best = fmin(best, bench_now() - from);
    }
    t->turns = (size_t)(TURNS * (seconds / best));
}

/* On a disk of known speed the load of the machine does not show. */
static void run_race(trainer *t, const char *label, bool held)
{
    static const double SHARE = 0.25; /* of the time that is left */
    const size_t mark = bench_opened();
    race *r = race_open("async", label);
    if (held && !disk_hold(r, t->queue.scratch, STEP_DISK_RATE))
        return;
    enter(r, t, elements_of_part());
    race_run(r, (unsigned)bench.rounds, bench_now() + SHARE * (bench_share(1) - bench_now()));
    bench_close(mark);
}

static void run_async(const bench_part *part)
{
    static trainer t;
    const size_t elements = elements_of_part();
    open_trainer(disk.folder, elements, step_budget(elements), &t);
    run_race(&t, "the disk has no pause", false);
    run_race(&t, "the disk is held at 1 GB/s each way", true);
    find_compute(&t);
    run_race(&t, "half of the time is compute", false);
}

/* --- a drive with reflinks, in a process of its own --- */

static void enter_reflink(race *r, trainer *t, size_t elements)
{
    race_add(r, &SAVE_REFLINK, (double)elements, t ? &t->states : NULL, 1);
    race_add(r, &COPY_REFLINK, (double)elements, t ? &t->queue : NULL, 1);
    enter(r, t, elements);
    r->entries[3].line.bytes = 240; /* a save shares its blocks with the state file */
}

/* On a drive of known speed the load of the machine does not show. The bytes of the yardstick take that time, too. */
static void reflink_child(const double *numbers)
{
    static trainer t;
    const char *folder = bench_text("%s/xfs", disk.folder);
    const size_t elements = (size_t)numbers[0];
    race *r = race_open("reflink", "");
    bench_beside_others = numbers[4] > 0;
    open_trainer(folder, elements, (uint64_t)numbers[1], &t);
    enter_reflink(r, &t, elements);
    if (!disk_hold(r, t.queue.scratch, STEP_DISK_RATE))
        bench_die("no throttle: %s", r->missing);
    race_run(r, (unsigned)numbers[2], bench_now() + numbers[3]);
    printf("%d ", !checkpoint.unregistered);
    race_print_samples(r);
}

static void run_reflink(const bench_part *part)
{
    const size_t elements = elements_of_part();
    /* The file has holes: it takes the space that is written. */
    const disk_drives drives = {.names = "xfs",
                                .allocate = "truncate -s",
                                .format = "mkfs.xfs -q -m reflink=1",
                                .bytes = 12 * (unsigned long long)elements * 7 + (1ull << 30)};
    race *r = race_open("reflink", "XFS on a loop device");
    if (disk_is_late(0.9, r))
        return;
    const char *line =
        disk_child(r, &drives,
                   bench_text("reflink %zu %" PRIu64 " %" PRIu64 " %.0f %d", elements, step_budget(elements), bench.rounds,
                              ceil(0.7 * (bench_share(1) - bench_now())), disk.busy != DISK_ALONE));
    int registered = 0, used = 0;
    if (!line || sscanf(line, "%d%n", &registered, &used) != 1)
        return;
    checkpoint.unregistered = checkpoint.unregistered || !registered;
    enter_reflink(r, NULL, elements);
    race_read_samples(r, line + used);
}

/* --- memory --- */

/* Run one turn, and return the most memory meanwhile. */
static double peak_of(bench_work_fn turn, saved *s)
{
    FILE *file = fopen("/proc/self/clear_refs", "we");
    const bool reset = file && fputs("5", file) >= 0;
    if (!file || fclose(file) != 0 || !reset)
        bench_die("the peak of memory cannot be reset (/proc/self/clear_refs)");
    turn(s, 0);
    return bench_memory("VmHWM");
}

/* Print the peaks of a save and a load on each tier over what is expected: the plan, and the memory of a save or one chunk. */
static void memory_child(const double *numbers)
{
    model = step_model_open((size_t)numbers[0]);
    for (unsigned tier = 0; tier < CHECKPOINT_TIERS; tier++) {
        saved s;
        const size_t mark = bench_opened();
        const double before = bench_memory("VmRSS");
        open_states(&model, disk.folder, (checkpoint_tier)tier, (uint64_t)numbers[1], &s);
        const zoff_plan_info *plan = &s.engine.plan;
        const double bytes = (double)plan->memory_bytes, chunk = tier == CHECKPOINT_NVME ? (double)plan->chunk_bytes : 0;
        const double most = peak_of(save, &s), most_of_load = peak_of(load, &s);
        printf("%.6f %.6f ", (most - before) / (bytes + (double)plan->save_bytes), (most_of_load - before) / (bytes + chunk));
        bench_close(mark);
    }
    putchar('\n');
}

static void run_memory(const bench_part *part)
{
    checkpoint_costs *t = checkpoint.tiers;
    race *r = race_open("memory", "peaks");
    if (disk_is_late(0.99, r))
        return;
    const char *line =
        disk_child(r, NULL, bench_text("memory %" PRIu64 " %" PRIu64, disk.elements, step_budget(disk.elements)));
    if (line && sscanf(line, "%lf %lf %lf %lf", &t[0].save_peak, &t[0].load_peak, &t[1].save_peak, &t[1].load_peak) != 4)
        r->missing = bench_text("%.250s", line);
}

/* --- the program --- */

static json_t *costs_object(const checkpoint_costs *c)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f}", "save_read", c->saved[0], "save_written", c->saved[1], "load_read",
                     c->loaded[0], "load_written", c->loaded[1], "save_peak", c->save_peak, "load_peak", c->load_peak);
}

static json_t *describe(FILE *out)
{
    const zoff_plan_info *plan = &checkpoint.plan;
    fprintf(out, "%.0f MiB of states\n", 12.0 * (double)disk.elements / (1 << 20));
    return json_pack("{s:I, s:I, s:I, s:i, s:b, s:o, s:o}", "elements", (json_int_t)disk.elements, "host_bytes",
                     (json_int_t)plan->host_bytes, "chunk_bytes", (json_int_t)plan->chunk_bytes, "slots", (int)plan->slots,
                     "registered", !checkpoint.unregistered, "host", costs_object(&checkpoint.tiers[CHECKPOINT_HOST]), "nvme",
                     costs_object(&checkpoint.tiers[CHECKPOINT_NVME]));
}

/* The files of all contestants exist at the same time. */
static void begin(char **argv)
{
    race_book.enough = CHECKPOINT_ROUNDS;
    disk_begin(8, 128, 96);
}

int main(int argc, char **argv)
{
    static const bench_option OPTIONS[] = {DISK_OPTIONS("8", "(default 96Mi; --full: 128Mi).\n"
                                                             "                  Below 1 GiB of states ratios are void"),
                                           {NULL}};
    static const bench_part PARTS[] = {{"save", CHECKPOINT_SAVE, run_duels},
                                       {"load", CHECKPOINT_LOAD},
                                       {"async", CHECKPOINT_ASYNC, run_async},
                                       {"reflink", CHECKPOINT_REFLINK, run_reflink, .child = reflink_child},
                                       {"memory", CHECKPOINT_MEMORY, run_memory, .child = memory_child},
                                       {NULL}};
    static const bench_spec SPEC = {
        .usage = "usage: checkpoint [OPTION]...\n"
                 "Times saves and loads of checkpoints beside yardsticks: zoff's file queue with the same bytes, and a plain\n"
                 "copy. Then saves beside training steps, also on XFS, which shares blocks (a loop device; needs root and\n"
                 "mkfs.xfs).\n",
        .options = OPTIONS,
        .parts = PARTS,
        .full = {CHECKPOINT_ALL, 15, 1200},
        .quick = {CHECKPOINT_ALL, 5, 300},
        .quick_first = true,
        .begin = begin,
        .judge = checkpoint_judge,
        .describe = describe};
    return bench_main(argc, argv, &SPEC);
}
