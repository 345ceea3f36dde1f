/* step.c: the time of a step with states on a disk, and its distance from the limits of the disk and the memory. This file has
 * the options, the order of the parts, and the figures with their limits and the reasons that make them worthless. */
#include "step_bench.h"

#include <math.h>
#include <string.h>

static const char USAGE[] =
    "usage: step [OPTION]...\n"
    "Times zoff's whole optimizer step with states in files beside yardsticks: the same transfers alone, the same update "
    "alone,\n"
    "half of the states in DRAM, and the ways in which DeepSpeed's swappers move the same bytes over libaio.\n"
    "  --path FOLDER   on the disk in question; needs room for 10 times the states (default: the current folder)\n"
    "  --elements N    of the model, 12 bytes of states each; 48Mi and the like are understood (default 16Mi; --full: 128Mi).\n"
    "                  Below 16Mi ratios are void. The part ahead has 4 times as many in DRAM, up to 64Mi\n"
    "  --budget N      the small budget of DRAM is a part in N of the states (default 10)\n"
    "  --only LIST     parts: race, throttle, rss, paths, loop, windows, hidden, ahead (default: all; throttle, paths,\n"
    "                  hidden and ahead need root)\n"
    "  --background N  threads of the engine in DRAM that updates ahead of steps (default 2)\n"
    "  --busy N        beside N processes that compute all the time, and whatever else runs; nothing is judged\n";

static const bench_word PARTS[] = {
    {"race", PART_RACE},       {"throttle", PART_THROTTLE}, {"rss", PART_RSS},     {"paths", PART_PATHS}, {"loop", PART_LOOP},
    {"windows", PART_WINDOWS}, {"hidden", PART_HIDDEN},     {"ahead", PART_AHEAD}, {"all", PART_ANY},     {NULL, 0}};

static int run_parts(step_run *run)
{
    static const struct {
        unsigned parts;
        int (*run)(step_run *run);
    } ORDER[] = {
        {PART_RACE | PART_THROTTLE, step_race}, {PART_RSS, step_rss},       {PART_PATHS, step_paths}, {PART_LOOP, step_loop},
        {PART_WINDOWS, step_windows},           {PART_HIDDEN, step_hidden}, {PART_AHEAD, step_ahead}};
    /* the files of all contestants exist at the same time */
    if (disk_folder_make(&run->options, 10, run->folder, &run->in_memory) != 0)
        return -1;
    int ret = 0;
    for (unsigned i = 0; i < BENCH_COUNT(ORDER) && ret == 0; i++)
        ret = run->options.run.parts & ORDER[i].parts ? ORDER[i].run(run) : 0;
    disk_folder_remove();
    return ret;
}

/* --- figures --- */

/* States are at least this many times the DRAM for them, in at least this many chunks; otherwise hardly anything is streamed.
 */
enum { LEAST_RATIO = 8, LEAST_CHUNKS = 40 };
static const size_t LEAST_ELEMENTS = (size_t)16 << 20; /* chunks of 4.8 MiB */

/* Bits of figures: about the size of the model; also about other traffic on the disk; about plain or huge pages of a rival's
 * buffers. Others are about the chunks of an engine beside a trainer, a large model in DRAM, and all chunks in DRAM. */
enum { SIZE = 1, DISK = 2, BOTH = SIZE | DISK, PLAIN = 4, THP = 8, HIDDEN = 16, AHEAD = 32, LARGE = 64, RESIDENT = 128 };
enum { ROUNDS = ENOUGH_ROUNDS, LOOPS = ENOUGH_LOOPS };

/* clang-format off */
static const bench_asked FIGURES[] = {
    {"wall_over_io", -1, 1.12, "step / the longer of its transfers alone and its update alone", "race", "zoff / max(io_only, update_only)", BOTH, ROUNDS},
    {"wall_over_io_throttled", -1, 1.03, "the same on a disk of 1 GB/s each way", "throttled", "zoff / max(io_only, update_only)", BOTH, ROUNDS},
    {"cached50_over_uncached", -1, 0.58, "step with half of the states in DRAM / with the small budget", "race", "zoff_cached50 / zoff", BOTH, ROUNDS},
    {"update_over_io", 0, 0, "update alone / transfers alone: above 1 the disk is not what bounds", "race", "update_only / io_only"},
    {"checksums", 0, 0, "step / the same without checksums of what is read and written", "race", "zoff / zoff_unverified"},
    {"persist_cached50_over_uncached", -1, 0.78, "the same, both kept on the disk after each step", "race", "zoff_persist_cached50 / zoff_persist", BOTH, ROUNDS},
    {"persist_over_plain", 0, 0, "step that keeps its states / one that does not", "race", "zoff_persist / zoff"},
    /* Plain pages are compared with plain pages, and huge pages with huge pages. */
    {"vs_libaio_pattern", 1, 2.0, "DeepSpeed's default order over libaio / zoff's step", "rivals", "libaio_pattern / zoff", BOTH | PLAIN, ROUNDS},
    {"vs_libaio_pipelined", 1, 1.35, "DeepSpeed's pipelined order over libaio / zoff's step", "rivals", "libaio_pipelined / zoff", BOTH | PLAIN, ROUNDS},
    {"vs_libaio_pipelined_thp", 1, 0.95, "the pipelined order with huge pages for its buffers", "rivals", "libaio_pipelined_thp / zoff", BOTH | THP, ROUNDS},
    {"vs_libaio_pattern_grads", 0, 0, "the default order with the way of its gradients over the disk", "extra", "libaio_pattern_grads / zoff", PLAIN},
    {"split_wall_over_bytes", -1, 1.1, "step with split masters / with fp32 ones, over the ratio of their bytes, on a disk of 1 GB/s", "throttled", "zoff_split / zoff * zoff.bytes / zoff_split.bytes", BOTH, ROUNDS},
    {"split_bf16_wall_over_bytes", -1, 1.1, "the same with moments in bf16", "throttled", "zoff_split_bf16 / zoff * zoff.bytes / zoff_split_bf16.bytes", BOTH, ROUNDS},
    {"split_q8_wall_over_bytes", -1, 1.1, "the same with moments in 8 bits", "throttled", "zoff_split_q8 / zoff * zoff.bytes / zoff_split_q8.bytes", BOTH, ROUNDS},
    {"split_bytes", -1, 10.2, "bytes a parameter that a step reads and writes, each, with split masters", NULL, NULL, BOTH},
    {"split_bf16_bytes", -1, 6.12, "the same with moments in bf16", NULL, NULL, BOTH},
    {"split_q8_bytes", -1, 4.2, "the same with moments in 8 bits", NULL, NULL, BOTH},
    {"disk_over_library", -1, 1.02, "bytes that the kernel counts for the disk / those that the library counts", NULL, NULL, BOTH},
    {"split_bf16_vs_libaio_pattern_grads", 1, 5, "the default order with the way of its gradients over the disk / step with split masters and moments in bf16", "extra", "libaio_pattern_grads / zoff_split_bf16", BOTH, ROUNDS},
    {"split_q8_vs_libaio_pattern_grads", 1, 6.5, "the same / step with split masters and moments in 8 bits", "extra", "libaio_pattern_grads / zoff_split_q8", BOTH, ROUNDS},
    {"small_engine_vs_own_loop_1k", 0, 0, "an iteration with zoff / with the trainer's own loop", "loop/a parameter", "engine_1k / own_loop_1k"},
    {"small_engine_vs_own_loop_32k", 0, 0, "an iteration with zoff / with the trainer's own loop", "loop/a parameter", "engine_32k / own_loop_32k"},
    {"small_engine_vs_own_loop_1m", 0, 0, "an iteration with zoff / with the trainer's own loop", "loop/a parameter", "engine_1m / own_loop_1m"},
    {"small_engine_vs_own_loop", -1, 1.05, "an iteration with zoff / with the trainer's own loop: the worst of three sizes", NULL, NULL, 0, LOOPS},
    {"small_engine_step_us", -1, 5, "microseconds of a step of 1,000 parameters, from begin to the end of wait", "loop/a parameter", "1000000 * step_1k", 0, LOOPS},
    {"engine_vs_plain_loop", -1, 1.02, "zoff's step without looking for inf and nan / a plain loop, -Ofast and OpenMP", "loop/fp32 parameters", "engine / own_loop", LARGE, LOOPS},
    {"looking_over_step", -1, 1.18, "zoff's step with the look for inf and nan / without it: 32 bytes an element in place of 28", "loop/fp32 parameters", "engine_looks / engine", LARGE, LOOPS},
    {"looking_vs_plain_loop", 0, 0, "the same / the plain loop", "loop/fp32 parameters", "engine_looks / own_loop"},
    {"rss_growth_mib", -1, 16, "memory of a process beside weights and gradients, from a model to ten times it", "rss", NULL, SIZE},
    {"two_paths_speedup", 1, 1.8, "step on one drive of 300 MB/s each way / on two of them", "paths", "one_path / two_paths", SIZE, ROUNDS},
    {"resident_over_dram", -1, 1.3, "step on the NVMe tier with 1,024 chunks, all in DRAM / on the DRAM tier", "windows", "zoff_resident / zoff_dram", RESIDENT, ROUNDS},
    {"windows_read_over_state", -1, 1.1, "bytes read to save all states, window by window / their bytes", "moved", NULL, SIZE},
    {"windows_write_over_state", -1, 1.1, "bytes written to load all states, window by window / their bytes", "moved", NULL, SIZE},
    {"kinds_read_over_state", -1, 1.1, "bytes read to save all states through windows, kind by kind / their bytes", "moved", NULL, SIZE},
    {"kinds_write_over_state", -1, 1.1, "bytes written to load all states through windows, kind by kind / their bytes", "moved", NULL, SIZE},
    /* A trainer sees of a step its own time beyond that of its computation. */
    {"visible_of_jit_over_update", -1, 0.05, "what a trainer sees of a step beside 1.2 steps on a device / the step", "hidden", "(jit_asleep - asleep) / plain", SIZE | HIDDEN, ROUNDS},
    {"visible_of_lent_over_update", 0, 0, "the same with weights that the engine owns, in DRAM", "hidden", "(jit_lent - asleep) / plain", HIDDEN, ROUNDS},
    {"visible_of_lent_files_over_update", 0, 0, "the same with weights that the engine owns, in files", "hidden", "(jit_lent_files - asleep) / plain", HIDDEN, ROUNDS},
    {"visible_of_jit_busy_over_update", 0, 0, "the same where the trainer computes on all cores", "hidden", "(jit_busy - busy) / plain", HIDDEN, ROUNDS},
    {"visible_of_jit_calls_over_update", 0, 0, "the same without a thread of the engine", "hidden", "(jit_calls - asleep) / plain", HIDDEN, ROUNDS},
    {"jit_half_over_update", -1, 1.12, "a step beside half of its time on a device / the step alone", "hidden", "jit_half / plain", SIZE | HIDDEN, ROUNDS},
    {"visible_after_backward_over_update", -1, 0.10, "what a trainer sees of a step in files after a backward pass of 1.2 steps on a device / the step", "ahead", "(ahead_asleep - asleep) / plain", SIZE | AHEAD, ROUNDS},
    {"dram_visible_after_backward_over_update", -1, 0.25, "the same for a step in DRAM", "ahead", "(dram_ahead - dram_asleep) / dram_plain", SIZE | AHEAD, ROUNDS},
    {"dram_visible_of_both_over_update", -1, 0.10, "the same where the next forward pass waits for each weight", "ahead", "(dram_both - dram_passes) / dram_plain", SIZE | AHEAD, ROUNDS},
    {"visible_after_redo_over_update", -1, 1.1, "what it sees of a step in files that is taken again / the step", "ahead", "(misled - asleep) / plain", SIZE | AHEAD, ROUNDS},
    {"dram_visible_after_redo_over_update", -1, 1.1, "the same for a step in DRAM", "ahead", "(dram_misled - dram_asleep) / dram_plain", SIZE | AHEAD, ROUNDS},
    {"visible_after_busy_backward_over_update", 0, 0, "the first where the trainer computes on all cores", "ahead", "(ahead_busy - busy) / plain", AHEAD, ROUNDS}};
/* clang-format on */

/* Set the figures that are no medians of rounds. */
static void set_counts(const step_run *run, bench_figures *out)
{
    static const char *const BYTES[] = {"split_bytes", "split_bf16_bytes", "split_q8_bytes"};
    static const char *const SIZES[] = {"small_engine_vs_own_loop_1k", "small_engine_vs_own_loop_32k",
                                        "small_engine_vs_own_loop_1m"};
    static const char *const MOVED[] = {"windows_read_over_state", "windows_write_over_state", "kinds_read_over_state",
                                        "kinds_write_over_state"};
    for (unsigned i = 0; i < 3; i++)
        bench_figures_set(bench_figures_find(out, BYTES[i]), run->split_bytes[i] > 0 ? run->split_bytes[i] : NAN, ROUNDS);
    bench_figures_set(bench_figures_find(out, "disk_over_library"), run->disk_over_library > 0 ? run->disk_over_library : NAN,
                      ROUNDS);
    double worst = NAN;
    unsigned rounds = RACE_ROUNDS;
    for (unsigned i = 0; i < 3; i++) {
        const bench_figure *size = bench_figures_find(out, SIZES[i]);
        worst = fmax(worst, size->value);
        rounds = bench_figures_measured(size) && size->rounds < rounds ? size->rounds : rounds;
    }
    bench_figures_set(bench_figures_find(out, "small_engine_vs_own_loop"), worst, rounds);
    bench_figures_set(bench_figures_find(out, "rss_growth_mib"), run->rss[1] > 0 ? run->rss[1] - run->rss[0] : NAN, 1);
    const race *moved = race_of(&run->book, "moved");
    for (unsigned i = 0; i < 4; i++) {
        const double value = run->windows[i / 2][i % 2];
        bench_figures_set(bench_figures_find(out, MOVED[i]), moved && !moved->missing[0] && value > 0 ? value : NAN, 1);
    }
}

/* Reasons that make every figure about the disk void. */
static void check_disk(const step_run *run, bench_figures *out)
{
    const double host = (double)run->small.host_bytes, states = (double)run->small.state_bytes;
    const double plain = (double)run->plain_huge, thp = (double)run->thp_huge, bytes = (double)run->buffer_bytes;
    if (plain > 0.1 * bytes)
        bench_figures_void(out, PLAIN,
                           "this system gave the yardstick's plain buffers huge pages (transparent_hugepage is always?)");
    if (thp < 0.9 * bytes)
        bench_figures_void(out, THP, "only %.0f of %.0f MiB of the yardstick's buffers are in huge pages", thp / (1 << 20),
                           bytes / (1 << 20));
    if (run->in_memory)
        bench_figures_void(out, DISK, "the folder is in memory, not on a disk; name one with --path");
    if (!run->direct)
        bench_figures_void(out, DISK,
                           "the file system has no O_DIRECT: the page cache was measured; name another folder with --path");
    if (!(states >= LEAST_RATIO * host))
        bench_figures_void(out, DISK, "states are %.1f times the DRAM that they go through; what is asked is about %d times",
                           states / host, LEAST_RATIO);
    if (run->small.chunk_count < LEAST_CHUNKS)
        bench_figures_void(out, DISK, "%llu chunks are too few to overlap anything; what is asked is about %d",
                           (unsigned long long)run->small.chunk_count, LEAST_CHUNKS);
    if (run->agree == 0)
        bench_figures_void(out, DISK, "the contestants do not have the same states");
}

static void judge(const step_run *run, bench_figures *out)
{
    const struct {
        unsigned about;
        uint64_t chunks, least;
    } CHUNKS[] = {{RESIDENT, run->resident.chunk_count, WINDOW_CHUNKS},
                  {HIDDEN, run->hidden_chunks, LEAST_CHUNKS / 2},
                  {AHEAD, run->ahead_chunks, LEAST_CHUNKS / 2}};
    out->missing = "not among the parts of this run, or no round in its time";
    bench_figures_add(out, FIGURES, BENCH_COUNT(FIGURES), &run->book);
    bench_figures_excuse(bench_figures_find(out, "persist_cached50_over_uncached"), run->no_persist);
    bench_figures_excuse(bench_figures_find(out, "persist_over_plain"), run->no_persist);
    set_counts(run, out);
    for (unsigned i = 0; i < BENCH_COUNT(CHUNKS); i++) {
        if (CHUNKS[i].chunks && CHUNKS[i].chunks < CHUNKS[i].least)
            bench_figures_void(out, CHUNKS[i].about, "%llu chunks; what is asked is about %llu",
                               (unsigned long long)CHUNKS[i].chunks, (unsigned long long)CHUNKS[i].least);
    }
    if (run->loop_elements && run->loop_elements < STEP_LARGE_LOOP)
        bench_figures_void(out, LARGE, "measured with %zu elements; what is asked is about %zu", run->loop_elements,
                           STEP_LARGE_LOOP);
    if (run->small.chunk_count)
        check_disk(run, out);
    if (run->options.elements < LEAST_ELEMENTS)
        bench_figures_void(out, SIZE, "measured with %zu elements; what is asked is about %zu and more",
                           (size_t)run->options.elements, LEAST_ELEMENTS);
    bench_figures_check_rounds(out);
    if (run->options.busy != UINT64_MAX)
        bench_figures_void(out, 0, "beside %u busy processes", (unsigned)run->options.busy);
}

/* --- report --- */

static json_t *plan_object(const zoff_plan_info *p)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:i}", "state_bytes", (json_int_t)p->state_bytes, "host_bytes",
                     (json_int_t)p->host_bytes, "resident_bytes", (json_int_t)p->resident_bytes, "nvme_bytes",
                     (json_int_t)p->nvme_bytes, "chunk_count", (json_int_t)p->chunk_count, "chunk_bytes",
                     (json_int_t)p->chunk_bytes, "slots", (int)p->slots);
}

static json_t *findings(const step_run *run)
{
    static const char *const JUDGED[] = {"race", "rivals", "throttled", "paths"};
    bool enough = true;
    for (unsigned i = 0; i < BENCH_COUNT(JUDGED); i++) {
        const race *r = race_of(&run->book, JUDGED[i]);
        enough = enough && (!r || !r->rounds || r->clean_rounds >= ENOUGH_ROUNDS);
    }
    json_t *root = json_pack(
        "{s:I, s:i, s:s, s:s, s:b, s:o, s:o, s:I, s:b, s:o, s:i, s:{s:o, s:o}}", "elements", (json_int_t)run->options.elements,
        "threads", (int)run->threads, "isa", zoff_isa(), "path", run->options.path, "enough_clean_rounds", enough, "plan",
        plan_object(&run->small), "plan_cached50", plan_object(&run->cached), "step_read_bytes", (json_int_t)run->step_bytes,
        "direct_io", run->direct, "states_agree", run->agree < 0 ? json_null() : json_boolean(run->agree), "states_compared",
        (int)run->compared, "rss_mib", "model", bench_report_number(run->rss[0] > 0 ? run->rss[0] : NAN), "ten_times_the_model",
        bench_report_number(run->rss[1] > 0 ? run->rss[1] : NAN));
    if (run->agree == 0)
        json_object_set_new(root, "states_differ", json_string(run->disagree));
    const race *rivals = race_of(&run->book, "rivals");
    if (rivals && !rivals->missing[0] && run->buffer_bytes)
        json_object_set_new(root, "libaio_buffers",
                            json_pack("{s:I, s:I, s:I, s:b}", "bytes", (json_int_t)run->buffer_bytes, "plain_in_huge_pages",
                                      (json_int_t)run->plain_huge, "thp_in_huge_pages", (json_int_t)run->thp_huge, "locked",
                                      run->locked));
    return root;
}

static int report(const step_run *run)
{
    static bench_figures figures;
    FILE *out = bench_run_table(&run->options.run);
    const zoff_plan_info *small = &run->small;
    judge(run, &figures);
    fprintf(out, "%zu weights and gradients of bf16, %.0f MiB of states", (size_t)run->options.elements,
            12.0 * (double)run->options.elements / (1 << 20));
    if (small->chunk_count)
        fprintf(out, " in %llu chunks through %u slots, %.0f MiB of DRAM; %u threads, %s kernels",
                (unsigned long long)small->chunk_count, small->slots, (double)small->host_bytes / (1 << 20), run->threads,
                zoff_isa());
    fprintf(out, "\nGB/s are bytes read and written in files\n");
    if (run->agree >= 0)
        fprintf(out, "states: %s\n", run->agree ? "all contestants have the same bits" : run->disagree);
    return bench_report(&run->options.run, findings(run), &run->book, &figures, "rounds");
}

int main(int argc, char **argv)
{
    static step_run run = {.agree = -1, .book.enough = ENOUGH_ROUNDS, .background = 2};
    static const bench_default DEFAULTS[] = {{PART_ANY, 15, 600}, {PART_ANY, 9, 46}};
    static const unsigned MEBI_ELEMENTS[] = {128, 16};
    /* The program starts itself again in this way for a part. */
    if (argc == 4 && strcmp(argv[1], "--rss-of") == 0)
        return step_rss_child(argv + 2);
    if (argc == 5 && strcmp(argv[1], "--paths-of") == 0)
        return step_paths_child(argv + 2);
    const bench_option background = {"background", .number = &run.background, .least = 1, .most = 64};
    const int refused = disk_start(argc, argv, USAGE, background, PARTS, DEFAULTS, MEBI_ELEMENTS, &run.options);
    if (refused)
        return refused;
    const int ret = run_parts(&run), reported = report(&run); /* also the measurements of a failed run */
    race_book_free(&run.book);
    return ret ? 1 : reported;
}
