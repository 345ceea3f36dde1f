/* step_judge.c: compute the figures of a run from its races, with the limit of each and the reasons that make one worthless. */
#include "step_bench.h"

#include <math.h>

/* States are at least this many times the DRAM for them, in at least this many chunks; otherwise hardly anything is streamed.
 */
enum { LEAST_RATIO = 8, LEAST_CHUNKS = 40 };
static const size_t LEAST_ELEMENTS = (size_t)16 << 20; /* chunks of 4.8 MiB */

/* A figure depends on the size of the model, or on other processes' traffic on the disk. */
enum { ABOUT_SIZE = 1, ABOUT_DISK = 2 };

/* Time of the step over that of the longer of its two halves; a throttled race has one half. */
static double wall_over_io(const race *r, unsigned k)
{
    const double io = race_at(r, "io_only", k);
    return isnan(io) ? NAN : race_at(r, "zoff", k) / fmax(io, race_at(r, "update_only", k));
}

static void judge_step(const step_found *found, bench_figures *out)
{
    static const bench_asked WALL[] = {
        {"wall_over_io", -1, 1.12, "step / the longer of its transfers alone and its update alone", NULL, NULL},
        {"wall_over_io_throttled", -1, 1.03, "the same on a disk of 1 GB/s each way", NULL, NULL}};
    static const bench_asked FREE[] = {
        {"cached50_over_uncached", -1, 0.58, "step with half of the states in DRAM / with the small budget", "zoff_cached50",
         "zoff"},
        {"update_over_io", 0, 0, "update alone / transfers alone: above 1 the disk is not what bounds", "update_only",
         "io_only"},
        {"checksums", 0, 0, "step / the same without checksums of what is read and written", "zoff", "zoff_unverified"}};
    static const bench_asked KEPT[] = {
        {"persist_cached50_over_uncached", -1, 0.78, "the same, both kept on the disk after each step", "zoff_persist_cached50",
         "zoff_persist"},
        {"persist_over_plain", 0, 0, "step that keeps its states / one that does not", "zoff_persist", "zoff"}};
    const race *r = race_of(&found->book, "race", ""), *throttled = race_of(&found->book, "throttled", "");
    bench_figures_add_values(out, &WALL[0], r, wall_over_io);
    bench_figure *f = bench_figures_add_values(out, &WALL[1], throttled, wall_over_io);
    bench_figures_excuse(f, found->no_throttle);
    if (throttled && throttled->rounds && !throttled->clean_rounds)
        bench_figures_excuse(f, "in no round were the CPUs idle and the disk below as fast as 1 GB/s each way");
    bench_figures_add_all(out, FREE, sizeof FREE / sizeof FREE[0], r);
    f = bench_figures_add_all(out, KEPT, 2, r);
    bench_figures_excuse(&f[0], found->no_persist);
    bench_figures_excuse(&f[1], found->no_persist);
}

/* Time over bytes, against that of fp32 masters and moments. */
static double wall_over_bytes(const race *r, unsigned k, const char *name)
{
    const race_entry *all = race_find(r, "zoff"), *fewer = race_find(r, name);
    return all && fewer ? race_at(r, name, k) / race_at(r, "zoff", k) * all->bytes / fewer->bytes : NAN;
}

static double split_over_bytes(const race *r, unsigned k)
{
    return wall_over_bytes(r, k, "zoff_split");
}

static double split_bf16_over_bytes(const race *r, unsigned k)
{
    return wall_over_bytes(r, k, "zoff_split_bf16");
}

static double split_q8_over_bytes(const race *r, unsigned k)
{
    return wall_over_bytes(r, k, "zoff_split_q8");
}

static void judge_formats(const step_found *found, bench_figures *out)
{
    enum { FORMATS = 3 };
    static const bench_asked WALL[FORMATS] = {
        {"split_wall_over_bytes", -1, 1.1,
         "step with split masters / with fp32 ones, over the ratio of their bytes, on a disk of 1 GB/s", NULL, NULL},
        {"split_bf16_wall_over_bytes", -1, 1.1, "the same with moments in bf16", NULL, NULL},
        {"split_q8_wall_over_bytes", -1, 1.1, "the same with moments in 8 bits", NULL, NULL}};
    static double (*const over_bytes[FORMATS])(const race *, unsigned) = {split_over_bytes, split_bf16_over_bytes,
                                                                          split_q8_over_bytes};
    static const bench_asked BYTES[] = {
        {"split_bytes", -1, 10.2, "bytes a parameter that a step reads and writes, each, with split masters", NULL, NULL},
        {"split_bf16_bytes", -1, 6.12, "the same with moments in bf16", NULL, NULL},
        {"split_q8_bytes", -1, 4.2, "the same with moments in 8 bits", NULL, NULL},
        {"disk_over_library", -1, 1.02, "bytes that the kernel counts for the disk / those that the library counts", NULL,
         NULL}};
    static const bench_asked RIVALS[] = {
        {"split_bf16_vs_libaio_pattern_grads", 1, 5,
         "the default order with the way of its gradients over the disk / step with split masters and moments in bf16",
         "libaio_pattern_grads", "zoff_split_bf16"},
        {"split_q8_vs_libaio_pattern_grads", 1, 6.5, "the same / step with split masters and moments in 8 bits",
         "libaio_pattern_grads", "zoff_split_q8"}};
    const race *throttled = race_of(&found->book, "throttled", "");
    for (unsigned i = 0; i < FORMATS; i++)
        bench_figures_excuse(bench_figures_add_values(out, &WALL[i], throttled, over_bytes[i]), found->no_throttle);
    bench_figure *f = bench_figures_add_all(out, BYTES, FORMATS + 1, NULL);
    for (unsigned i = 0; i < FORMATS; i++)
        bench_figures_set(&f[i], found->split_bytes[i] > 0 ? found->split_bytes[i] : NAN, ENOUGH_ROUNDS);
    bench_figures_set(&f[FORMATS], found->disk_over_library > 0 ? found->disk_over_library : NAN, ENOUGH_ROUNDS);
    for (unsigned i = 0; i < 2; i++)
        bench_figures_excuse(bench_figures_add(out, &RIVALS[i], race_of(&found->book, "extra", "")), found->no_rivals);
}

/* Compare plain pages with plain pages, and huge pages with huge pages. */
static void judge_rivals(const step_found *found, bench_figures *out)
{
    static const bench_asked ASKED[] = {
        {"vs_libaio_pattern", 1, 2.0, "DeepSpeed's default order over libaio / zoff's step", "libaio_pattern", "zoff"},
        {"vs_libaio_pipelined", 1, 1.35, "DeepSpeed's pipelined order over libaio / zoff's step", "libaio_pipelined", "zoff"},
        {"vs_libaio_pipelined_thp", 1, 0.95, "the pipelined order with huge pages for its buffers", "libaio_pipelined_thp",
         "zoff"},
        {"vs_libaio_pattern_grads", 0, 0, "the default order with the way of its gradients over the disk",
         "libaio_pattern_grads", "zoff"}};
    const double plain = (double)found->plain_huge, thp = (double)found->thp_huge, bytes = (double)found->buffer_bytes;
    for (unsigned i = 0; i < sizeof ASKED / sizeof ASKED[0]; i++) {
        bench_figure *f = bench_figures_add(out, &ASKED[i], race_of(&found->book, ASKED[i].sense ? "rivals" : "extra", ""));
        bench_figures_excuse(f, found->no_rivals);
        if (i != 2 && plain > 0.1 * bytes)
            bench_figures_spoil(f,
                                "this system gave the yardstick's plain buffers huge pages (transparent_hugepage is always?)");
        if (i == 2 && thp < 0.9 * bytes)
            bench_figures_spoil(f, "only %.0f of %.0f MiB of the yardstick's buffers are in huge pages", thp / (1 << 20),
                                bytes / (1 << 20));
    }
}

static void judge_children(const step_found *found, bench_figures *out)
{
    static const bench_asked ASKED[] = {
        {"rss_growth_mib", -1, 16, "memory of a process beside weights and gradients, from a model to ten times it", NULL,
         NULL},
        {"two_paths_speedup", 1, 1.8, "step on one drive of 300 MB/s each way / on two of them", "one_path", "two_paths"}};
    bench_figure *f = bench_figures_add(out, &ASKED[0], NULL);
    bench_figures_set(f, found->rss[1] > 0 ? found->rss[1] - found->rss[0] : NAN, 1);
    bench_figures_excuse(f, found->no_rss);
    f = bench_figures_add(out, &ASKED[1], race_of(&found->book, "paths", ""));
    bench_figures_excuse(f, found->no_paths);
    f->enough = ENOUGH_ROUNDS;
}

static void judge_loop(const step_found *found, bench_figures *out)
{
    static const char MEANING[] = "an iteration with zoff / with the trainer's own loop";
    static const bench_asked SIZES[] = {{"small_engine_vs_own_loop_1k", 0, 0, MEANING, "engine_1k", "own_loop_1k"},
                                        {"small_engine_vs_own_loop_32k", 0, 0, MEANING, "engine_32k", "own_loop_32k"},
                                        {"small_engine_vs_own_loop_1m", 0, 0, MEANING, "engine_1m", "own_loop_1m"}};
    static const bench_asked SMALL[] = {
        {"small_engine_vs_own_loop", -1, 1.05, "an iteration with zoff / with the trainer's own loop: the worst of three sizes",
         NULL, NULL},
        {"small_engine_step_us", -1, 5, "microseconds of a step of 1,000 parameters, from begin to the end of wait", NULL,
         NULL}};
    static const bench_asked LARGE[] = {
        {"engine_vs_plain_loop", -1, 1.02, "zoff's step without looking for inf and nan / a plain loop, -Ofast and OpenMP",
         "engine", "own_loop"},
        {"looking_over_step", -1, 1.18,
         "zoff's step with the look for inf and nan / without it: 32 bytes an element in place of 28", "engine_looks",
         "engine"},
        {"looking_vs_plain_loop", 0, 0, "the same / the plain loop", "engine_looks", "own_loop"}};
    const race *small = race_of(&found->book, "loop", "a parameter");
    const bench_figure *sizes = bench_figures_add_all(out, SIZES, 3, small);
    bench_figure *f = bench_figures_add_all(out, SMALL, 2, NULL);
    unsigned rounds = RACE_ROUNDS;
    for (unsigned i = 0; i < 3; i++)
        rounds = bench_figures_measured(&sizes[i]) && sizes[i].rounds < rounds ? sizes[i].rounds : rounds;
    bench_figures_set(&f[0], fmax(fmax(sizes[0].value, sizes[1].value), sizes[2].value), rounds);
    const race_entry *alone = race_find(small, "step_1k");
    const bench_spread spread = bench_spread_of(alone ? alone->seconds : NULL, alone ? small->rounds : 0);
    bench_figures_set(&f[1], 1e6 * spread.median, spread.count);
    f[0].enough = f[1].enough = ENOUGH_LOOPS;
    f = bench_figures_add_all(out, LARGE, 3, race_of(&found->book, "loop", "fp32 parameters"));
    for (unsigned i = 0; i < 2; i++) {
        f[i].enough = ENOUGH_LOOPS;
        if (bench_figures_measured(&f[i]) && found->loop_elements < STEP_LARGE_LOOP)
            bench_figures_spoil(&f[i], "measured with %zu elements; what is asked is about %zu", found->loop_elements,
                                STEP_LARGE_LOOP);
    }
}

static void judge_windows(const step_found *found, bench_figures *out)
{
    static const bench_asked RESIDENT = {
        "resident_over_dram", -1,         1.3, "step on the NVMe tier with 1,024 chunks, all in DRAM / on the DRAM tier",
        "zoff_resident",      "zoff_dram"};
    static const bench_asked MOVED[] = {
        {"windows_read_over_state", -1, 1.1, "bytes read to save all states, window by window / their bytes", NULL, NULL},
        {"windows_write_over_state", -1, 1.1, "bytes written to load all states, window by window / their bytes", NULL, NULL},
        {"kinds_read_over_state", -1, 1.1, "bytes read to save all states through windows, kind by kind / their bytes", NULL,
         NULL},
        {"kinds_write_over_state", -1, 1.1, "bytes written to load all states through windows, kind by kind / their bytes",
         NULL, NULL}};
    bench_figure *f = bench_figures_add(out, &RESIDENT, race_of(&found->book, "windows", ""));
    f->enough = ENOUGH_ROUNDS;
    f->part = 0;
    if (bench_figures_measured(f) && found->resident.chunk_count < WINDOW_CHUNKS)
        bench_figures_spoil(f, "%llu chunks; what is asked is about %d", (unsigned long long)found->resident.chunk_count,
                            WINDOW_CHUNKS);
    f = bench_figures_add_all(out, MOVED, 4, NULL);
    for (unsigned i = 0; i < 4; i++) {
        const double moved = found->windows[i / 2][i % 2];
        bench_figures_set(&f[i], !found->no_windows[0] && moved > 0 ? moved : NAN, 1);
        bench_figures_excuse(&f[i], found->no_windows);
    }
}

/* The part of a step that the trainer sees: its time beyond that of its computation, over that of a plain step. */
static double visible(const race *r, unsigned k, const char *with, const char *alone)
{
    return (race_at(r, with, k) - race_at(r, alone, k)) / race_at(r, "plain", k);
}

static double visible_asleep(const race *r, unsigned k)
{
    return visible(r, k, "jit_asleep", "asleep");
}

static double visible_in_calls(const race *r, unsigned k)
{
    return visible(r, k, "jit_calls", "asleep");
}

static double visible_lent(const race *r, unsigned k)
{
    return visible(r, k, "jit_lent", "asleep");
}

static double visible_lent_files(const race *r, unsigned k)
{
    return visible(r, k, "jit_lent_files", "asleep");
}

static double visible_busy(const race *r, unsigned k)
{
    return visible(r, k, "jit_busy", "busy");
}

/* The last `count` figures need enough rounds, and chunks. */
static void ask_chunks(bench_figures *out, unsigned count, uint64_t chunks, const char *excuse)
{
    for (bench_figure *f = out->list + out->count - count; f < out->list + out->count; f++) {
        bench_figures_excuse(f, excuse);
        f->enough = ENOUGH_ROUNDS;
        if (bench_figures_measured(f) && chunks < LEAST_CHUNKS / 2)
            bench_figures_spoil(f, "%llu chunks are too few", (unsigned long long)chunks);
    }
}

static void judge_hidden(const step_found *found, bench_figures *out)
{
    static const bench_asked ASKED[] = {
        {"visible_of_jit_over_update", -1, 0.05, "what a trainer sees of a step beside 1.2 steps on a device / the step", NULL,
         NULL},
        {"visible_of_lent_over_update", 0, 0, "the same with weights that the engine owns, in DRAM", NULL, NULL},
        {"visible_of_lent_files_over_update", 0, 0, "the same with weights that the engine owns, in files", NULL, NULL},
        {"visible_of_jit_busy_over_update", 0, 0, "the same where the trainer computes on all cores", NULL, NULL},
        {"visible_of_jit_calls_over_update", 0, 0, "the same without a thread of the engine", NULL, NULL}};
    static const bench_asked HALF = {
        "jit_half_over_update", -1, 1.12, "a step beside half of its time on a device / the step alone", "jit_half", "plain"};
    static double (*const VALUES[])(const race *, unsigned) = {visible_asleep, visible_lent, visible_lent_files, visible_busy,
                                                               visible_in_calls};
    const race *r = race_of(&found->book, "hidden", "");
    for (unsigned i = 0; i < 5; i++)
        (void)bench_figures_add_values(out, &ASKED[i], r, VALUES[i]);
    (void)bench_figures_add(out, &HALF, r);
    ask_chunks(out, 6, found->hidden_chunks, found->no_hidden);
}

static double visible_ahead(const race *r, unsigned k)
{
    return visible(r, k, "ahead_asleep", "asleep");
}

static double visible_ahead_busy(const race *r, unsigned k)
{
    return visible(r, k, "ahead_busy", "busy");
}

static double redo(const race *r, unsigned k)
{
    return visible(r, k, "misled", "asleep");
}

/* The same for states in DRAM. */
static double dram_visible(const race *r, unsigned k, const char *with, const char *alone)
{
    return (race_at(r, with, k) - race_at(r, alone, k)) / race_at(r, "dram_plain", k);
}

static double dram_ahead(const race *r, unsigned k)
{
    return dram_visible(r, k, "dram_ahead", "dram_asleep");
}

static double dram_both(const race *r, unsigned k)
{
    return dram_visible(r, k, "dram_both", "dram_passes");
}

static double dram_redo(const race *r, unsigned k)
{
    return dram_visible(r, k, "dram_misled", "dram_asleep");
}

static void judge_ahead(const step_found *found, bench_figures *out)
{
    static const bench_asked ASKED[] = {
        {"visible_after_backward_over_update", -1, 0.10,
         "what a trainer sees of a step in files after a backward pass of 1.2 steps on a device / the step", NULL, NULL},
        {"dram_visible_after_backward_over_update", -1, 0.25, "the same for a step in DRAM", NULL, NULL},
        {"dram_visible_of_both_over_update", -1, 0.10, "the same where the next forward pass waits for each weight", NULL,
         NULL},
        {"visible_after_redo_over_update", -1, 1.1, "what it sees of a step in files that is taken again / the step", NULL,
         NULL},
        {"dram_visible_after_redo_over_update", -1, 1.1, "the same for a step in DRAM", NULL, NULL},
        {"visible_after_busy_backward_over_update", 0, 0, "the first where the trainer computes on all cores", NULL, NULL}};
    static double (*const VALUES[])(const race *, unsigned) = {visible_ahead, dram_ahead, dram_both,
                                                               redo,          dram_redo,  visible_ahead_busy};
    const unsigned count = sizeof ASKED / sizeof ASKED[0];
    for (unsigned i = 0; i < count; i++)
        (void)bench_figures_add_values(out, &ASKED[i], race_of(&found->book, "ahead", ""), VALUES[i]);
    ask_chunks(out, count, found->ahead_chunks, found->no_ahead);
}

/* Reasons that make every figure about the disk void. */
static void check_disk(const step_found *found, bench_figure *f)
{
    const double host = (double)found->small.host_bytes, states = (double)found->small.state_bytes;
    if (found->in_memory)
        bench_figures_spoil(f, "the folder is in memory, not on a disk; name one with --path");
    if (!found->direct)
        bench_figures_spoil(f, "the file system has no O_DIRECT: the page cache was measured; name another folder with --path");
    if (!(states >= LEAST_RATIO * host))
        bench_figures_spoil(f, "states are %.1f times the DRAM that they go through; what is asked is about %d times",
                            states / host, LEAST_RATIO);
    if (found->small.chunk_count < LEAST_CHUNKS)
        bench_figures_spoil(f, "%llu chunks are too few to overlap anything; what is asked is about %d",
                            (unsigned long long)found->small.chunk_count, LEAST_CHUNKS);
    if (found->agree == 0)
        bench_figures_spoil(f, "the contestants do not have the same states");
}

void step_judge(const step_options *options, const step_found *found, bench_figures *out)
{
    *out = (bench_figures){.missing = "not among the parts of this run, or no round in its time"};
    out->part = ABOUT_DISK | ABOUT_SIZE;
    judge_step(found, out);
    judge_rivals(found, out);
    judge_formats(found, out);
    out->part = 0;
    judge_loop(found, out);
    out->part = ABOUT_SIZE;
    judge_children(found, out);
    judge_windows(found, out);
    judge_hidden(found, out);
    judge_ahead(found, out);
    for (bench_figure *f = out->list; f < out->list + out->count; f++) {
        if (!bench_figures_measured(f))
            continue;
        if (f->sense && f->part & ABOUT_DISK)
            check_disk(found, f);
        if (f->sense && f->part & ABOUT_SIZE && options->elements < LEAST_ELEMENTS)
            bench_figures_spoil(f, "measured with %zu elements; what is asked is about %zu and more", (size_t)options->elements,
                                LEAST_ELEMENTS);
        if (f->rounds < (f->part & ABOUT_DISK && f->sense ? ENOUGH_ROUNDS : f->enough))
            bench_figures_spoil(f, "%u rounds are too few", f->rounds);
        if (options->busy != UINT64_MAX)
            bench_figures_spoil(f, "beside %u busy processes", (unsigned)options->busy);
    }
}
