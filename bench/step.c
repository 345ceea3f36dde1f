/* SPDX-License-Identifier: Apache-2.0 */
/* step.c: the time of a step with states on a disk, and its distance from the limits of the disk and the memory. This file has
 * the options, the order of the parts, and the figures with their limits and the reasons that make them worthless. */
#include "step_bench.h"

#include <math.h>

struct step_found found = {.agree = -1};
uint64_t step_background = 2;

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

static void set(const char *name, double value, unsigned rounds)
{
    bench_figures_set(bench_figures_find(name), value > 0 ? value : NAN, rounds);
}

/* Set the figures that are no medians of rounds. */
static void set_counts(void)
{
    static const char *const SIZES[] = {"small_engine_vs_own_loop_1k", "small_engine_vs_own_loop_32k",
                                        "small_engine_vs_own_loop_1m"};
    set("split_bytes", found.split_bytes[0], ROUNDS);
    set("split_bf16_bytes", found.split_bytes[1], ROUNDS);
    set("split_q8_bytes", found.split_bytes[2], ROUNDS);
    set("disk_over_library", found.disk_over_library, ROUNDS);
    double worst = NAN;
    unsigned rounds = RACE_ROUNDS;
    for (unsigned i = 0; i < BENCH_COUNT(SIZES); i++) {
        const bench_figure *size = bench_figures_find(SIZES[i]);
        worst = fmax(worst, size->value);
        rounds = bench_figures_measured(size) && size->rounds < rounds ? size->rounds : rounds;
    }
    set("small_engine_vs_own_loop", worst, rounds);
    if (found.rss[1] > 0) /* not by set(), because the growth may be none */
        bench_figures_set(bench_figures_find("rss_growth_mib"), found.rss[1] - found.rss[0], 1);
    const race *moved = race_of("moved");
    if (!moved || moved->missing[0])
        return;
    set("windows_read_over_state", found.windows[0][0], 1);
    set("windows_write_over_state", found.windows[0][1], 1);
    set("kinds_read_over_state", found.windows[1][0], 1);
    set("kinds_write_over_state", found.windows[1][1], 1);
}

/* Reasons that make every figure about the disk void. */
static void check_disk(void)
{
    const double host = (double)found.small.host_bytes, states = (double)found.small.state_bytes;
    const double plain = (double)found.plain_huge, thp = (double)found.thp_huge, bytes = (double)found.buffer_bytes;
    if (plain > 0.1 * bytes)
        bench_figures_void(PLAIN,
                           "this system gave the yardstick's plain buffers huge pages (transparent_hugepage is always?)");
    if (thp < 0.9 * bytes)
        bench_figures_void(THP, bench_text("only %.0f of %.0f MiB of the yardstick's buffers are in huge pages",
                                           thp / (1 << 20), bytes / (1 << 20)));
    if (disk.in_memory)
        bench_figures_void(DISK, "the folder is in memory, not on a disk; name one with --path");
    if (!found.direct)
        bench_figures_void(DISK,
                           "the file system has no O_DIRECT: the page cache was measured; name another folder with --path");
    if (!(states >= LEAST_RATIO * host))
        bench_figures_void(DISK,
                           bench_text("states are %.1f times the DRAM that they go through; what is asked is about %d times",
                                      states / host, LEAST_RATIO));
    if (found.small.chunk_count < LEAST_CHUNKS)
        bench_figures_void(DISK, bench_text("%llu chunks are too few to overlap anything; what is asked is about %d",
                                            (unsigned long long)found.small.chunk_count, LEAST_CHUNKS));
    if (found.agree == 0)
        bench_figures_void(DISK, "the contestants do not have the same states");
}

/* A measurement with less than what is asked for. */
static void check_least(unsigned about, uint64_t measured, uint64_t least, const char *what)
{
    if (measured && measured < least)
        bench_figures_void(about, bench_text(what, (size_t)measured, (size_t)least));
}

static void judge(void)
{
    static const char CHUNKS[] = "%zu chunks; what is asked is about %zu";
    bench_figures_add(FIGURES, BENCH_COUNT(FIGURES));
    if (found.no_persist) {
        bench_figures_excuse(bench_figures_find("persist_cached50_over_uncached"), found.no_persist);
        bench_figures_excuse(bench_figures_find("persist_over_plain"), found.no_persist);
    }
    set_counts();
    check_least(RESIDENT, found.resident.chunk_count, WINDOW_CHUNKS, CHUNKS);
    check_least(HIDDEN, found.hidden_chunks, LEAST_CHUNKS / 2, CHUNKS);
    check_least(AHEAD, found.ahead_chunks, LEAST_CHUNKS / 2, CHUNKS);
    check_least(LARGE, found.loop_elements, STEP_LARGE_LOOP, "measured with %zu elements; what is asked is about %zu");
    if (found.small.chunk_count)
        check_disk();
    check_least(SIZE, disk.elements, LEAST_ELEMENTS, "measured with %zu elements; what is asked is about %zu and more");
    bench_figures_check_rounds();
    if (disk.busy != DISK_ALONE)
        bench_figures_void(0, bench_text("beside %u busy processes", (unsigned)disk.busy));
}

static json_t *plan_object(const zoff_plan_info *p)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:i}", "state_bytes", (json_int_t)p->state_bytes, "host_bytes",
                     (json_int_t)p->host_bytes, "resident_bytes", (json_int_t)p->resident_bytes, "nvme_bytes",
                     (json_int_t)p->nvme_bytes, "chunk_count", (json_int_t)p->chunk_count, "chunk_bytes",
                     (json_int_t)p->chunk_bytes, "slots", (int)p->slots);
}

static json_t *describe(FILE *out)
{
    static const char *const JUDGED[] = {"race", "rivals", "throttled", "paths"};
    const zoff_plan_info *small = &found.small;
    bool enough = true;
    for (unsigned i = 0; i < BENCH_COUNT(JUDGED); i++) {
        const race *r = race_of(JUDGED[i]);
        enough = enough && (!r || !r->rounds || r->clean_rounds >= ENOUGH_ROUNDS);
    }
    fprintf(out, "%zu weights and gradients of bf16, %.0f MiB of states", (size_t)disk.elements,
            12.0 * (double)disk.elements / (1 << 20));
    if (small->chunk_count)
        fprintf(out, " in %llu chunks through %u slots, %.0f MiB of DRAM; %u threads, %s kernels",
                (unsigned long long)small->chunk_count, small->slots, (double)small->host_bytes / (1 << 20), found.threads,
                zoff_isa());
    fprintf(out, "\nGB/s are bytes read and written in files\n");
    if (found.agree >= 0)
        fprintf(out, "states: %s\n", found.agree ? "all contestants have the same bits" : found.disagree);
    json_t *root = json_pack(
        "{s:I, s:i, s:s, s:s, s:b, s:o, s:o, s:I, s:b, s:o, s:i, s:{s:o, s:o}, s:s*}", "elements", (json_int_t)disk.elements,
        "threads", (int)found.threads, "isa", zoff_isa(), "path", disk.path, "enough_clean_rounds", enough, "plan",
        plan_object(small), "plan_cached50", plan_object(&found.cached), "step_read_bytes", (json_int_t)found.step_bytes,
        "direct_io", found.direct, "states_agree", found.agree < 0 ? json_null() : json_boolean(found.agree), "states_compared",
        (int)found.compared, "rss_mib", "model", bench_report_number(found.rss[0] > 0 ? found.rss[0] : NAN),
        "ten_times_the_model", bench_report_number(found.rss[1] > 0 ? found.rss[1] : NAN), "states_differ", found.disagree);
    const race *rivals = race_of("rivals");
    if (rivals && !rivals->missing[0] && found.buffer_bytes)
        json_object_set_new(root, "libaio_buffers",
                            json_pack("{s:I, s:I, s:I, s:b}", "bytes", (json_int_t)found.buffer_bytes, "plain_in_huge_pages",
                                      (json_int_t)found.plain_huge, "thp_in_huge_pages", (json_int_t)found.thp_huge, "locked",
                                      found.locked));
    return root;
}

/* The files of all contestants exist at the same time. */
static void begin(char **argv)
{
    race_book.enough = ENOUGH_ROUNDS;
    disk_begin(10, 128, 16);
}

int main(int argc, char **argv)
{
    static const bench_option OPTIONS[] = {
        DISK_OPTIONS("10",
                     "(default 16Mi; --full: 128Mi).\n"
                     "                  Below 16Mi ratios are void. The part ahead has 4 times as many in DRAM, up to 64Mi"),
        {"background", "N", "threads of the engine in DRAM that updates ahead of steps (default 2)", .number = &step_background,
         .least = 1, .most = 64},
        {NULL}};
    static const bench_part PARTS[] = {{"race", PART_RACE, step_race},
                                       {"throttle", PART_THROTTLE},
                                       {"rss", PART_RSS, step_rss, .child = step_rss_child},
                                       {"paths", PART_PATHS, step_paths, .child = step_paths_child},
                                       {"loop", PART_LOOP, step_loop},
                                       {"windows", PART_WINDOWS, step_windows},
                                       {"hidden", PART_HIDDEN, step_hidden},
                                       {"ahead", PART_AHEAD, step_ahead},
                                       {NULL}};
    static const bench_spec SPEC = {
        .usage =
            "usage: step [OPTION]...\n"
            "Times zoff's whole optimizer step with states in files beside yardsticks: the same transfers alone, the same\n"
            "update alone, half of the states in DRAM, and the ways in which DeepSpeed's swappers move the same bytes over\n"
            "libaio. The parts throttle, paths, hidden and ahead need root.\n",
        .options = OPTIONS,
        .parts = PARTS,
        .full = {PART_ANY, 15, 600},
        .quick = {PART_ANY, 9, 46},
        .quick_first = true,
        .begin = begin,
        .judge = judge,
        .describe = describe};
    return bench_main(argc, argv, &SPEC);
}
