/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_adam.c: the speed of the CPU step, and its distance from the memory's limit. This file has the options, the order of
 * the parts, and the figures with their limits and the reasons that make them worthless. Parts with limits come first, so that
 * a busy machine costs only the others. */
#include "cpu_adam_bench.h"

#include <errno.h>
#include <math.h>
#include <omp.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct adam_options adam = {.dtypes = DTYPE_ANY};
struct adam_arrays arrays;

/* Take a list of ascending sizes: "4096", "64Ki,64Mi". */
static int take_sizes(const char *text)
{
    static const uint64_t MOST_ELEMENTS = 1ull << 40;
    struct adam_options *out = &adam;
    out->size_count = 0;
    for (const char *p = text; out->size_count < MOST_SIZES; p++) {
        uint64_t count;
        const char *end = bench_program_quantity(p, &count);
        if (!end || !count || count >= MOST_ELEMENTS || (*end && *end != ','))
            return -1;
        unsigned at = out->size_count++;
        for (; at && out->sizes[at - 1] > count; at--)
            out->sizes[at] = out->sizes[at - 1];
        out->sizes[at] = count;
        out->largest = out->sizes[out->size_count - 1];
        if (!*end)
            return 0;
        p = end;
    }
    return -1;
}

/* Take a name only; the library decides later whether this CPU has such kernels. */
static int take_isa(const char *text)
{
    static const char *const NAMES[] = {"scalar", "avx2", "avx512", "neon", "sve"};
    adam.isa = text;
    for (unsigned i = 0; i < BENCH_COUNT(NAMES); i++) {
        if (strcmp(text, NAMES[i]) == 0)
            return 0;
    }
    return -1;
}

/* --- figures --- */

/* A rival below this share of its own no-math kernel is slow for an unrelated reason, so that it proves nothing. */
static const double HONEST_SHARE = 0.9;
static const size_t PROMISED_SIZE = (size_t)64 << 20;
enum { CHAIN = 16 /* the figure is about the passes of the chain; other bits are parts */ };

/* clang-format off */
static const bench_asked FIGURES[] = {
    {"share_bf16", 1, 0.95, "time of the no-math kernel / zoff's step, bf16 gradient and copy-out", "step", "nomath_bf16 / zoff_bf16", PART_COMPARE},
    {"share_fp32", 1, 0.95, "time of the no-math kernel / zoff's step, fp32 in place", "step", "nomath_fp32 / zoff_fp32", PART_COMPARE},
    {"share_bf16_moments", 0, 0, "the same for bf16 moments, gradient and copy-out", "step", "nomath_moments / zoff_bf16_moments", PART_COMPARE},
    {"share_split", 0, 0, "the same for split masters and a bf16 gradient", "step", "nomath_split / zoff_split", PART_COMPARE},
    {"share_split_bf16", 0, 0, "the same with bf16 moments, too", "step", "nomath_split_bf16 / zoff_split_bf16", PART_COMPARE},
    {"share_split_m8v16", 0, 0, "the same with m in 8 bits", "step", "nomath_split_m8v16 / zoff_split_m8v16", PART_COMPARE},
    {"share_split_q8", 0, 0, "the same with both moments in 8 bits", "step", "nomath_split_q8 / zoff_split_q8", PART_COMPARE},
    {"share_bf16_keep", 0, 0, "the same for bf16 weights in place, without a master", "step", "nomath_keep / zoff_bf16_keep", PART_COMPARE},
    {"share_fp32_alone", 0, 0, "share_fp32 on one thread", "step", "nomath_fp32_alone / zoff_fp32_alone", PART_COMPARE},
    {"scaling_1_to_2", 1, 0.95, "speed-up of zoff's fp32 step from one thread to all / that of its no-math kernel", "step", "zoff_fp32_alone / zoff_fp32 / (nomath_fp32_alone / nomath_fp32)", PART_COMPARE},
    {"bf16_vs_fp32_bytes", 1, 0.9, "bytes a second of zoff's step with bf16 gradient and copy-out / of fp32 in place", "step", "zoff_fp32 / zoff_bf16", PART_COMPARE},
    /* More of its bytes are writes, which are slower in memory, with or without math. */
    {"bf16_keep_vs_fp32_bytes", 1, 0.9, "the same for bf16 weights in place, without a master", "step", "22 / 28 * zoff_fp32 / zoff_bf16_keep", PART_COMPARE},
    {"apart_vs_in_place", 0, 0, "time of a bf16 step whose new states go to another place / in place", "step", "apart / zoff_bf16", PART_COMPARE},
    {"apart_split_vs_in_place", 0, 0, "the same with split masters", "step", "apart_split / zoff_split", PART_COMPARE},
    {"vs_chain", 1, 1.75, "five passes with plain stores / norm and zoff's fused bf16 step", "chain", "chain / norm_zoff_bf16", PART_COMPARE | CHAIN},
    {"moments_vs_chain", 0, 0, "the same passes / norm and zoff's step with bf16 moments", "chain", "chain / norm_zoff_bf16_moments", PART_COMPARE | CHAIN},
    {"split_fp32_vs_chain", 1, 2.0, "the same passes / norm and zoff's step with split masters", "chain", "chain / norm_zoff_split", PART_COMPARE | CHAIN},
    {"split_bf16_vs_chain", 1, 2.7, "the same passes / norm and zoff's step with split masters and bf16 moments", "chain", "chain / norm_zoff_split_bf16", PART_COMPARE | CHAIN},
    {"split_m8v16_vs_chain", 0, 0, "the same passes / norm and zoff's step with split masters and m in 8 bits", "chain", "chain / norm_zoff_split_m8v16", PART_COMPARE | CHAIN},
    {"split_q8_vs_chain", 1, 2.9, "the same passes / norm and zoff's step with split masters and moments in 8 bits", "chain", "chain / norm_zoff_split_q8", PART_COMPARE | CHAIN},
    {"vs_plain_loop", 1, 1, "faster plain loop / zoff's fp32 step, geometric mean over the sweep", NULL, NULL, PART_SWEEP},
    {"vs_plain_loop_worst", 1, 0.95, "smallest of the sweep", NULL, NULL, PART_SWEEP},
    {"vs_plain_loop_worst_elements", 0, 0, "the size of that", NULL, NULL, PART_SWEEP},
    {"vs_serial_loop_worst", 0, 0, "below 32768 elements, the loop without OpenMP / zoff, smallest", NULL, NULL, PART_SWEEP},
    {"list_vs_calls_1k", 1, 3, "2,000 plain-loop calls, each its own OpenMP region / one zoff_optimizer_step_list", "lists/ x 1024", "plain_calls / zoff_list", PART_LISTS},
    {"list_vs_serial_calls_1k", 0, 0, "the same, plain-loop calls on the calling thread, without OpenMP / one list call", "lists/ x 1024", "plain_calls_serial / zoff_list", PART_LISTS},
    {"list_vs_step_calls_1k", 0, 0, "2,000 zoff_optimizer_step calls / one list call", "lists/ x 1024", "zoff_calls / zoff_list", PART_LISTS},
    {"list_vs_calls_256", 0, 0, "2,000 plain-loop calls, each its own OpenMP region / one zoff_optimizer_step_list", "lists/ x 256", "plain_calls / zoff_list", PART_LISTS},
    {"list_vs_serial_calls_256", 0, 0, "the same, plain-loop calls on the calling thread, without OpenMP / one list call", "lists/ x 256", "plain_calls_serial / zoff_list", PART_LISTS},
    {"list_vs_step_calls_256", 0, 0, "2,000 zoff_optimizer_step calls / one list call", "lists/ x 256", "zoff_calls / zoff_list", PART_LISTS},
    {"list_vs_one_tensor", 1, 0.8, "one tensor of 10,000,000 / a list of 10,000 tensors of 1,000", "list_and_one/ x 1000", "zoff_one / zoff_list", PART_LISTS},
    {"layout_worst_over_best", -1, 1.1, "time of an element, engines with streams of 2^k .. 2^k + 8 KiB", NULL, NULL, PART_LAYOUT},
    {"layout_naive_over_staggered", 0, 0, "zoff_optimizer_step on arrays of 2^k bytes back to back / with 4 KiB between", "spacing", "naive / staggered", PART_LAYOUT}};

/* The limit of a step with split masters and some format of moments is the longer of its instructions, on data in the first
 * cache, and its streams without math. Two limits that are as close as 0.85 do not overlap to the end: then the core is one. */
static const struct {
    const char *format, *by_core; /* the meaning of the ratio, and its limit, if the core is one */
    bench_asked ratio, cycles;
} LIMITS[] = {
    {"split_bf16", "step with bf16 moments / the longer of no math and data in L1: the core is a limit",
     {"split_bf16_over_limit", -1, 1 / 0.95, "step with bf16 moments / its no-math kernel: memory is the limit", "step", "zoff_split_bf16 / max(nomath_split_bf16, zoff_split_bf16_l1)", PART_COMPARE},
     {"split_bf16_cycles", 0, 0, "cycles of the time-stamp counter a parameter on data in the first cache, bf16 moments", NULL, NULL, PART_COMPARE}},
    {"split_m8v16", "step with m in 8 bits / the longer of no math and data in L1: the core is a limit",
     {"split_m8v16_over_limit", -1, 1 / 0.95, "step with m in 8 bits / its no-math kernel: memory is the limit", "step", "zoff_split_m8v16 / max(nomath_split_m8v16, zoff_split_m8v16_l1)", PART_COMPARE},
     {"split_m8v16_cycles", 0, 0, "the same with m in 8 bits", NULL, NULL, PART_COMPARE}},
    {"split_q8", "step with moments in 8 bits / the longer of no math and data in L1: the core is a limit",
     {"split_q8_over_limit", -1, 1 / 0.95, "step with moments in 8 bits / its no-math kernel: memory is the limit", "step", "zoff_split_q8 / max(nomath_split_q8, zoff_split_q8_l1)", PART_COMPARE},
     {"split_q8_cycles", 0, 0, "the same with both moments in 8 bits", NULL, NULL, PART_COMPARE}}};
static const double LIMIT_BY_CORE = 1.25;
/* clang-format on */

static void check_honest(bench_figure *f, const race *r, const char *rival)
{
    const double share = race_share(r, race_find(r, rival));
    if (!(share < HONEST_SHARE) || f->spoilt[0])
        return;
    f->slow_rival = true;
    bench_figures_spoil(f, bench_text("%s reached only %.3f of its own no-math kernel: too slow a rival", rival, share));
}

/* The time of a step over its limit, and cycles that a core is busy for one parameter. */
static void judge_limits(void)
{
    const race *step = race_of("step");
    const double cycles = bench_cycles_a_second();
    for (unsigned i = 0; i < BENCH_COUNT(LIMITS); i++) {
        const char *format = LIMITS[i].format, *name = bench_text("zoff_%s_l1", format);
        const race_entry *cached = race_find(step, name);
        bench_asked ratio = LIMITS[i].ratio;
        if (race_values(step, bench_text("%s / nomath_%s", name, format), false).median > 0.85) {
            ratio.limit = LIMIT_BY_CORE;
            ratio.meaning = LIMITS[i].by_core;
        }
        bench_figures_add(&ratio, 1);
        bench_figure *f = bench_figures_add(&LIMITS[i].cycles, 1);
        if (cached)
            bench_figures_set(f, race_median(step, name) * step->threads * cycles / cached->elements, step->rounds);
    }
}

/* Judge five passes with limits of their own, because each has to be a fair rival. */
static void judge_chain(const race *chain)
{
    static const char *const PASSES[] = {"chain_upcast", "chain_norm", "chain_scale", "chain_adam", "chain_cast"};
    if (strcmp(zoff_isa(), "avx512") != 0) /* with 8 lanes, the instructions take longer than the bytes: see split_q8_cycles */
        bench_figures_find("split_q8_vs_chain")->asked.sense = 0;
    for (EACH_FIGURE(f)) {
        for (unsigned i = 0; i < BENCH_COUNT(PASSES) && f->asked.about & CHAIN; i++)
            check_honest(f, chain, PASSES[i]);
    }
}

/* Over the sizes of the sweep: the faster of the two plain loops, by the median, over zoff. */
static void judge_sweep(void)
{
    double logs = 0, worst = INFINITY, worst_size = NAN, last_size = 0, serial_worst = INFINITY;
    unsigned sizes = 0, pairs = RACE_ROUNDS, worst_pairs = 0, skipped = 0;
    const race *last = NULL;
    for (unsigned i = 0; i < race_book.count; i++) {
        const race *r = race_book.races[i];
        if (strcmp(r->part, "sweep") != 0)
            continue;
        const bench_spread a = race_values(r, "plain / zoff", false), b = race_values(r, "plain_if / zoff", false);
        const bench_spread rival = b.median < a.median || !a.count ? b : a;
        if (!rival.count) {
            skipped++;
            continue;
        }
        const double elements = r->entries[0].elements;
        serial_worst = fmin(serial_worst, race_values(r, "plain_serial / zoff", false).median);
        logs += log(rival.median);
        sizes++;
        pairs = rival.count < pairs ? rival.count : pairs;
        if (rival.median < worst) {
            worst = rival.median;
            worst_size = elements;
            worst_pairs = rival.count;
        }
        last = elements > last_size ? r : last;
        last_size = fmax(elements, last_size);
    }
    bench_figure *f = bench_figures_find("vs_plain_loop"); /* the other figures follow it */
    bench_figures_set(&f[0], exp(logs / sizes), pairs);
    bench_figures_set(&f[1], worst, worst_pairs);
    bench_figures_set(&f[2], worst_size, worst_pairs);
    bench_figures_set(&f[3], serial_worst, pairs);
    for (unsigned k = 0; k < 2; k++) {
        if (sizes && skipped)
            bench_figures_spoil(&f[k], bench_text("%u sizes had no clean round", skipped));
        if (last_size >= (double)PROMISED_SIZE / 4) /* smaller arrays may be in a cache, where the math shows */
            check_honest(&f[k], last, "plain");
    }
}

/* Time of an element in each partition over the middle of its round; then the worst over the best. */
static void judge_layout(const race *r)
{
    double worst = 0, best = INFINITY, middles[RACE_ROUNDS], values[RACE_ROUNDS];
    unsigned pairs = RACE_ROUNDS;
    for (unsigned k = 0; r && k < r->rounds; k++) {
        for (unsigned i = 0; i < r->count; i++)
            values[i] = r->entries[i].seconds[k] / r->entries[i].elements;
        middles[k] = bench_spread_of(values, r->count).median;
    }
    for (unsigned i = 0; r && i < r->count; i++) {
        for (unsigned k = 0; k < r->rounds; k++)
            values[k] = r->entries[i].seconds[k] / r->entries[i].elements / middles[k];
        const bench_spread own = bench_spread_of(values, r->rounds);
        worst = fmax(worst, own.median);
        best = fmin(best, own.median);
        pairs = own.count < pairs ? own.count : pairs;
    }
    if (!isfinite(best)) /* the deadline passed before an engine was open */
        pairs = 0;
    bench_figures_set(bench_figures_find("layout_worst_over_best"), pairs ? worst / best : NAN, pairs);
}

static void judge(void)
{
    bench_figures.count = 0;
    bench_figures.missing = "not among the parts, types or threads of this run, or no clean round in its time";
    bench_figures_add(FIGURES, BENCH_COUNT(FIGURES));
    judge_limits();
    judge_chain(race_of("chain"));
    judge_sweep();
    /* The rival's parallel regions cost the time. Without math it must lose by the same limit, or the figure is void. */
    const race *lists = race_of("lists/ x 1024");
    bench_figure *calls = bench_figures_find("list_vs_calls_1k");
    if (!(race_values(lists, "nomath_calls / zoff_list", false).median >= calls->asked.limit))
        check_honest(calls, lists, "plain_calls");
    judge_layout(race_of("layout"));
    for (EACH_FIGURE(f)) {
        if (f->asked.sense && adam.largest != PROMISED_SIZE)
            bench_figures_spoil(
                f, bench_text("measured at %zu elements; what is asked is about %zu", adam.largest, PROMISED_SIZE));
    }
}

/* The parts that need more rounds. A figure has too few, noise may have decided which side of its limit it is on, or the rival
 * was slow at a size that no cache holds. */
static unsigned undecided(void)
{
    unsigned parts = 0;
    for (EACH_FIGURE(f)) {
        const double margin = 0.05 * f->asked.limit;
        const bool close = f->asked.sense > 0 ? f->value < f->asked.limit + margin : f->value > f->asked.limit - margin;
        if ((f->asked.sense && (f->rounds < ENOUGH_ROUNDS || close)) || (f->slow_rival && adam.largest >= 1 << 24))
            parts |= f->asked.about;
    }
    return parts & bench.parts;
}

/* --- the parts --- */

/* Run the parts that have limits. Each part ends when its share of the time is over, and leaves the rest to the parts behind
 * it. `again`: add rounds to the existing races, as long as there is time. */
static void run_judged(unsigned parts, bool again)
{
    static const double ENDS[] = {0.3, 0.48, 0.68, 0.8, 0.92};
    double ends[BENCH_COUNT(ENDS)];
    for (unsigned i = 0; i < BENCH_COUNT(ENDS); i++)
        ends[i] = bench_share(again ? 0.96 : ENDS[i]);
    if (parts & PART_COMPARE) {
        bench_compare(TABLE_STEP, adam.largest, ends[0]);
        bench_compare(TABLE_CHAIN, adam.largest, ends[1]);
    }
    if (parts & PART_SWEEP)
        bench_sweep(ends[2]);
    if (parts & PART_LISTS)
        bench_lists(ends[3]);
    if (parts & PART_LAYOUT)
        bench_layout(ends[4]);
}

/* Contestants without a limit: other types and optimizers, and sizes that a cache may hold. */
static void run_told(void)
{
    bench_compare(TABLE_OTHERS, arrays.count, bench_share(1));
    for (unsigned i = 0; i + 1 < adam.size_count; i++) {
        for (bench_table table = TABLE_STEP; table <= TABLE_OTHERS; table++)
            bench_compare(table, adam.sizes[i], bench_share(1));
    }
}

static size_t huge_bytes;

static void run(void)
{
    if (bench.parts & (PART_COMPARE | PART_SWEEP)) {
        bench_arrays_open(adam.largest);
        huge_bytes = bench_streams_huge_bytes();
    }
    run_judged(bench.parts, false);
    const uint64_t rounds = bench.rounds;
    if (rounds >= ENOUGH_ROUNDS && bench_now() < bench_share(0.92)) {
        judge();
        bench.rounds = rounds < RACE_ROUNDS / 3 ? 3 * rounds : RACE_ROUNDS;
        run_judged(undecided(), true);
        bench.rounds = rounds;
    }
    if (bench.parts & PART_COMPARE)
        run_told();
}

static json_t *describe(FILE *out)
{
    bool enough = true; /* whether each figure with a limit has enough clean rounds */
    for (EACH_FIGURE(f))
        enough = enough && (!f->asked.sense || f->rounds >= ENOUGH_ROUNDS);
    fprintf(out, "%u threads, %s kernels, %zu MiB in huge pages\n", race_book.threads, zoff_isa(), huge_bytes >> 20);
    return json_pack("{s:i, s:s, s:I, s:b}", "threads", (int)race_book.threads, "isa", zoff_isa(), "huge_page_bytes",
                     (json_int_t)huge_bytes, "enough_clean_rounds", enough);
}

/* --- the same CPUs for all contestants --- */

/* The library's team and the loops beside it have the same number of threads, on one hardware thread of each core. */

/* The first hardware thread of a CPU's core; the CPU itself if the system does not tell. */
static int first_sibling(int cpu)
{
    char path[96];
    int first = cpu;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    bench_scan(path, 1, "%d", &first);
    return first;
}

/* Pin the process to `wanted` of its allowed CPUs: first one thread of each core, then the others. 0: one thread of each core.
 * Returns their number; 0 if there are fewer than wanted. */
static unsigned pin(unsigned wanted, const cpu_set_t *allowed)
{
    cpu_set_t cores, chosen;
    unsigned taken = 0;
    CPU_ZERO(&cores);
    CPU_ZERO(&chosen);
    for (int pass = 0; pass < (wanted ? 2 : 1); pass++) {
        for (int cpu = 0; cpu < CPU_SETSIZE && (!wanted || taken < wanted); cpu++) {
            const size_t core = (size_t)first_sibling(cpu);
            if (!CPU_ISSET((size_t)cpu, allowed) || CPU_ISSET((size_t)cpu, &chosen) || (pass == 0 && CPU_ISSET(core, &cores)))
                continue;
            CPU_SET(core, &cores);
            CPU_SET((size_t)cpu, &chosen);
            taken++;
        }
    }
    return taken >= wanted && sched_setaffinity(0, sizeof chosen, &chosen) == 0 ? taken : 0;
}

/* The number of threads that the library chooses, from the plan of an engine. */
static unsigned library_threads(void)
{
    float value = 0, grad = 0;
    const zoff_param_desc param = bench_param(&value, &grad, 1, 1, ZOFF_F32);
    zoff_plan_info plan = {.struct_size = sizeof plan};
    zoff_engine *engine;
    /* Ask before seal: a sealed engine knows that its model is small. */
    bench_must(zoff_engine_create(NULL, &engine));
    bench_must(zoff_engine_add_param(engine, &param, NULL));
    bench_must(zoff_engine_plan(engine, &plan));
    zoff_engine_destroy(engine);
    return plan.threads;
}

/* Restart the program with an environment for measurements. Waiting threads must spin: otherwise the CPU time would not show
 * whether they had their cores. No other variable may choose threads. The OpenMP runtime reads its environment before main().
 */
static void start_again(char **argv)
{
    static const char *const OTHERS[] = {"OMP_NUM_THREADS",   "OMP_PROC_BIND",        "OMP_PLACES",   "OMP_DYNAMIC",
                                         "OMP_NESTED",        "OMP_THREAD_LIMIT",     "OMP_SCHEDULE", "GOMP_SPINCOUNT",
                                         "GOMP_CPU_AFFINITY", "OMP_MAX_ACTIVE_LEVELS"};
    const char *policy = getenv("OMP_WAIT_POLICY"), *isa = getenv("ZOFF_ISA");
    bool ready = policy && strcmp(policy, "active") == 0 && (!adam.isa || (isa && strcmp(isa, adam.isa) == 0));
    for (unsigned i = 0; i < BENCH_COUNT(OTHERS); i++) {
        ready = ready && !getenv(OTHERS[i]);
        unsetenv(OTHERS[i]);
    }
    if (ready)
        return;
    setenv("OMP_WAIT_POLICY", "active", 1);
    if (adam.isa)
        setenv("ZOFF_ISA", adam.isa, 1);
    execv("/proc/self/exe", argv);
    bench_die("cannot start again: %s", strerror(errno));
}

/* Restart the program with the environment that measurements need. Pin the process to as many CPUs as the library has threads,
 * or to those in the options. */
static void choose_cores(char **argv)
{
    cpu_set_t allowed;
    const unsigned asked = (unsigned)adam.threads;
    start_again(argv);
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        bench_die("affinity: %s", strerror(errno));
    unsigned pinned = pin(asked, &allowed);
    if (!pinned)
        bench_die("--threads %u, but this process may use %d CPUs", asked, CPU_COUNT(&allowed));
    const unsigned taken = library_threads();
    if (!asked && taken < pinned) /* the cgroup has a CPU quota */
        pinned = pin(taken, &allowed);
    if (taken != pinned)
        bench_die("%u CPUs are to be used, but zoff takes %u threads there; try another --threads", pinned, taken);
    adam.threads = pinned;
}

/* --- the program --- */

static void begin(char **argv)
{
    if (!adam.size_count)
        take_sizes(bench.quick ? "64Mi" : "4Ki,256Ki,4Mi,64Mi");
    choose_cores(argv);
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        bench_die("the loops to compare with are compiled for AVX2 and FMA, which this CPU lacks");
#endif
    if (adam.isa && strcmp(adam.isa, zoff_isa()) != 0)
        bench_die("--isa %s: this CPU or build has no such kernels; zoff uses %s", adam.isa, zoff_isa());
    omp_set_max_active_levels(
        1); /* a parallel region inside another has one thread; that is how steps on one thread are timed */
    race_book.threads = (unsigned)adam.threads;
    race_book.enough = ENOUGH_ROUNDS;
}

int main(int argc, char **argv)
{
    static const char SIZES[] = "wanted are at most 32 numbers of elements, like 4096 or 64Mi";
    static const bench_word DTYPES[] = {{"fp32", DTYPE_FP32}, {"bf16", DTYPE_BF16},
                                        {"fp16", DTYPE_FP16}, {"both", DTYPE_FP32 | DTYPE_BF16},
                                        {"all", DTYPE_ANY},   {NULL}};
    /* clang-format off */
    static const bench_option OPTIONS[] = {
        {"sizes", "LIST", "elements, parted by commas; 64Ki, 64Mi and the like are understood (default 4Ki,256Ki,4Mi,64Mi; with\n"
         "                  --quick 64Mi). Ratios are those of the largest, where the sweep ends too; below 64Mi they are void", .take = take_sizes, .wanted = SIZES},
        {"elements", "N", "one size", .take = take_sizes, .wanted = SIZES},
        {"threads", "N", "run on N of the CPUs that this process may use (default: one of each core)", .number = &adam.threads, .least = 1, .most = 1024},
        {"isa", "NAME", "scalar, avx2, avx512, neon or sve (default: the best)", .take = take_isa, .wanted = "wanted is one name"},
        {"dtype", "LIST", "of fp32, bf16, fp16 (default: all; both: fp32,bf16)", .words = &adam.dtypes, .known = DTYPES},
        {NULL}};
    /* clang-format on */
    static const bench_part PARTS[] = {
        {"compare", PART_COMPARE}, {"sweep", PART_SWEEP}, {"lists", PART_LISTS}, {"layout", PART_LAYOUT}, {NULL}};
    static const bench_spec SPEC = {
        .usage = "usage: cpu_adam [OPTION]...\n"
                 "Times zoff's CPU step beside yardsticks, a plain loop, a chain of passes and calls for each tensor.\n",
        .options = OPTIONS,
        .parts = PARTS,
        .full = {PART_ANY, 15, 600},
        .quick = {PART_ANY, 15, 44},
        .begin = begin,
        .run = run,
        .judge = judge,
        .describe = describe,
        .rounds_name = "clean_rounds",
        .needs_no_limit = true};
    return bench_main(argc, argv, &SPEC);
}
