/* cpu_adam.c: the speed of the CPU step, and its distance from the memory's limit. This file has the options, the order of
 * the parts, and the figures with their limits and the reasons that make them worthless. Parts with limits come first, so that
 * a busy machine costs only the others. */
#include "cpu_adam_bench.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

static const char USAGE[] =
    "usage: cpu_adam [OPTION]...\n"
    "Times zoff's CPU step beside yardsticks, a plain loop, a chain of passes and calls for each tensor.\n"
    "  --sizes LIST    elements, parted by commas; 64Ki, 64Mi and the like are understood (default 4Ki,256Ki,4Mi,64Mi; with\n"
    "                  --quick 64Mi). Ratios are those of the largest, where the sweep ends too; below 64Mi they are void\n"
    "  --elements N    one size\n"
    "  --threads N     run on N of the CPUs that this process may use (default: one of each core)\n"
    "  --isa NAME      scalar, avx2, avx512, neon or sve (default: the best)\n"
    "  --dtype LIST    of fp32, bf16, fp16 (default: all; both: fp32,bf16)\n"
    "  --only LIST     parts: compare, sweep, lists, layout (default: all)\n";

static const bench_word DTYPES[] = {{"fp32", DTYPE_FP32}, {"bf16", DTYPE_BF16},
                                    {"fp16", DTYPE_FP16}, {"both", DTYPE_FP32 | DTYPE_BF16},
                                    {"all", DTYPE_ANY},   {NULL}};
static const bench_word PARTS[] = {{"compare", PART_COMPARE}, {"sweep", PART_SWEEP}, {"lists", PART_LISTS},
                                   {"layout", PART_LAYOUT},   {"all", PART_ANY},     {NULL}};

/* Ascending; "4096", "64Ki,64Mi". */
static int take_sizes(const char *text, void *ctx)
{
    static const uint64_t MOST_ELEMENTS = 1ull << 40;
    bench_options *out = ctx;
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
static int take_isa(const char *text, void *ctx)
{
    static const char *const NAMES[] = {"scalar", "avx2", "avx512", "neon", "sve"};
    ((bench_options *)ctx)->isa = text;
    for (unsigned i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        if (strcmp(text, NAMES[i]) == 0)
            return 0;
    }
    return -1;
}

static int parse_options(int argc, char **argv, bench_options *out)
{
    static const char SIZES[] = "wanted are at most 32 numbers of elements, like 4096 or 64Mi";
    static const bench_default DEFAULTS[] = {{PART_ANY, 15, 600}, {PART_ANY, 15, 44}};
    const bench_option own[] = {{"elements", .take = take_sizes, .ctx = out, .wanted = SIZES},
                                {"sizes", .take = take_sizes, .ctx = out, .wanted = SIZES},
                                {"threads", .number = &out->threads, .least = 1, .most = 1024},
                                {"isa", .take = take_isa, .ctx = out, .wanted = "wanted is one name"},
                                {"dtype", .words = &out->dtypes, .known = DTYPES},
                                {.name = NULL}};
    *out = (bench_options){.dtypes = DTYPE_ANY};
    if (bench_program_parse(argc, argv, USAGE, own, PARTS, DEFAULTS, &out->run) != 0)
        return -1;
    return out->size_count ? 0 : take_sizes(out->run.quick ? "64Mi" : "4Ki,256Ki,4Mi,64Mi", out);
}

/* --- figures --- */

/* A rival below this share of its own no-math kernel is not a fair rival: one that is slow for an unrelated reason proves
 * nothing. */
static const double HONEST_SHARE = 0.9;
static const size_t PROMISED_SIZE = (size_t)64 << 20;
enum { CHAIN = 16 /* about the passes of the chain; other bits are parts */ };

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
    const char *cached, *closeness;
    bench_asked by_memory, by_core, cycles;
} LIMITS[] = {
    {"zoff_split_bf16_l1", "zoff_split_bf16_l1 / nomath_split_bf16",
     {"split_bf16_over_limit", -1, 1 / 0.95, "step with bf16 moments / its no-math kernel: memory is the limit", "step", "zoff_split_bf16 / max(nomath_split_bf16, zoff_split_bf16_l1)", PART_COMPARE},
     {"split_bf16_over_limit", -1, 1.25, "step with bf16 moments / the longer of no math and data in L1: the core is a limit", "step", "zoff_split_bf16 / max(nomath_split_bf16, zoff_split_bf16_l1)", PART_COMPARE},
     {"split_bf16_cycles", 0, 0, "cycles of the time-stamp counter a parameter on data in the first cache, bf16 moments", NULL, NULL, PART_COMPARE}},
    {"zoff_split_m8v16_l1", "zoff_split_m8v16_l1 / nomath_split_m8v16",
     {"split_m8v16_over_limit", -1, 1 / 0.95, "step with m in 8 bits / its no-math kernel: memory is the limit", "step", "zoff_split_m8v16 / max(nomath_split_m8v16, zoff_split_m8v16_l1)", PART_COMPARE},
     {"split_m8v16_over_limit", -1, 1.25, "step with m in 8 bits / the longer of no math and data in L1: the core is a limit", "step", "zoff_split_m8v16 / max(nomath_split_m8v16, zoff_split_m8v16_l1)", PART_COMPARE},
     {"split_m8v16_cycles", 0, 0, "the same with m in 8 bits", NULL, NULL, PART_COMPARE}},
    {"zoff_split_q8_l1", "zoff_split_q8_l1 / nomath_split_q8",
     {"split_q8_over_limit", -1, 1 / 0.95, "step with moments in 8 bits / its no-math kernel: memory is the limit", "step", "zoff_split_q8 / max(nomath_split_q8, zoff_split_q8_l1)", PART_COMPARE},
     {"split_q8_over_limit", -1, 1.25, "step with moments in 8 bits / the longer of no math and data in L1: the core is a limit", "step", "zoff_split_q8 / max(nomath_split_q8, zoff_split_q8_l1)", PART_COMPARE},
     {"split_q8_cycles", 0, 0, "the same with both moments in 8 bits", NULL, NULL, PART_COMPARE}}};
/* clang-format on */

static void check_honest(bench_figure *f, const race *r, const char *rival)
{
    const double share = race_share(r, race_find(r, rival));
    if (!(share < HONEST_SHARE) || f->spoilt[0])
        return;
    f->slow_rival = true;
    bench_figures_spoil(f, "%s reached only %.3f of its own no-math kernel: too slow a rival", rival, share);
}

/* The time of a step over its limit, and cycles that a core is busy for one parameter. */
static void judge_limits(const race_book *book, bench_figures *out)
{
    const race *step = race_of(book, "step");
    const double cycles = bench_cycles_a_second();
    for (unsigned i = 0; i < BENCH_COUNT(LIMITS); i++) {
        const race_entry *cached = race_find(step, LIMITS[i].cached);
        const bool by_core = race_values(step, LIMITS[i].closeness, false).median > 0.85;
        bench_figures_add(out, by_core ? &LIMITS[i].by_core : &LIMITS[i].by_memory, 1, book);
        bench_figure *f = bench_figures_add(out, &LIMITS[i].cycles, 1, book);
        if (cached)
            bench_figures_set(f, race_median(step, LIMITS[i].cached) * step->threads * cycles / cached->elements, step->rounds);
    }
}

/* Five passes with limits of their own: each has to be a fair rival. */
static void judge_chain(const race *chain, bench_figures *out)
{
    static const char *const PASSES[] = {"chain_upcast", "chain_norm", "chain_scale", "chain_adam", "chain_cast"};
    if (strcmp(zoff_isa(), "avx512") != 0) /* with 8 lanes, the instructions take longer than the bytes: see split_q8_cycles */
        bench_figures_find(out, "split_q8_vs_chain")->asked.sense = 0;
    for (bench_figure *f = out->list; f < out->list + out->count; f++) {
        for (unsigned i = 0; i < BENCH_COUNT(PASSES) && f->asked.about & CHAIN; i++)
            check_honest(f, chain, PASSES[i]);
    }
}

/* Over the sizes of the sweep: the faster of the two plain loops, by the median, over zoff. */
static void judge_sweep(const race_book *book, bench_figures *out)
{
    double logs = 0, worst = INFINITY, worst_size = NAN, last_size = 0, serial_worst = INFINITY;
    unsigned sizes = 0, pairs = RACE_ROUNDS, worst_pairs = 0, skipped = 0;
    const race *last = NULL;
    for (unsigned i = 0; i < book->count; i++) {
        const race *r = book->races[i];
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
    bench_figure *f = bench_figures_find(out, "vs_plain_loop"); /* the others follow it */
    bench_figures_set(&f[0], exp(logs / sizes), pairs);
    bench_figures_set(&f[1], worst, worst_pairs);
    bench_figures_set(&f[2], worst_size, worst_pairs);
    bench_figures_set(&f[3], serial_worst, pairs);
    for (unsigned k = 0; k < 2; k++) {
        if (sizes && skipped)
            bench_figures_spoil(&f[k], "%u sizes had no clean round", skipped);
        if (last_size >= (double)PROMISED_SIZE / 4) /* smaller arrays may be in a cache, where the math shows */
            check_honest(&f[k], last, "plain");
    }
}

/* Time of an element in each partition over the middle of its round; then the worst over the best. */
static void judge_layout(const race *r, bench_figures *out)
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
    bench_figures_set(bench_figures_find(out, "layout_worst_over_best"), pairs ? worst / best : NAN, pairs);
}

static void judge(const bench_options *options, const race_book *book, bench_figures *out)
{
    *out = (bench_figures){.missing = "not among the parts, types or threads of this run, or no clean round in its time"};
    bench_figures_add(out, FIGURES, BENCH_COUNT(FIGURES), book);
    judge_limits(book, out);
    judge_chain(race_of(book, "chain"), out);
    judge_sweep(book, out);
    /* The rival's parallel regions cost the time. Without math it must lose by the same limit, or the figure is void. */
    const race *lists = race_of(book, "lists/ x 1024");
    bench_figure *calls = bench_figures_find(out, "list_vs_calls_1k");
    if (!(race_values(lists, "nomath_calls / zoff_list", false).median >= calls->asked.limit))
        check_honest(calls, lists, "plain_calls");
    judge_layout(race_of(book, "layout"), out);
    for (bench_figure *f = out->list; f < out->list + out->count; f++) {
        if (f->asked.sense && options->largest != PROMISED_SIZE)
            bench_figures_spoil(f, "measured at %zu elements; what is asked is about %zu", options->largest, PROMISED_SIZE);
    }
}

/* Whether each figure with a limit has enough clean rounds. */
static bool have_enough(const bench_figures *figures)
{
    bool all = true;
    for (const bench_figure *f = figures->list; f < figures->list + figures->count; f++)
        all = all && (!f->asked.sense || f->rounds >= ENOUGH_ROUNDS);
    return all;
}

/* The parts that need more rounds. A figure has too few, noise may have decided which side of its limit it is on, or the rival
 * was slow at a size that no cache holds. */
static unsigned undecided(const bench_options *options, const bench_figures *figures)
{
    unsigned parts = 0;
    for (const bench_figure *f = figures->list; f < figures->list + figures->count; f++) {
        const double margin = 0.05 * f->asked.limit;
        const bool close = f->asked.sense > 0 ? f->value < f->asked.limit + margin : f->value > f->asked.limit - margin;
        if ((f->asked.sense && (f->rounds < ENOUGH_ROUNDS || close)) || (f->slow_rival && options->largest >= 1 << 24))
            parts |= f->asked.about;
    }
    return parts & options->run.parts;
}

/* --- the parts --- */

/* Run the parts that have limits. Each part ends when its share of the time is over, and leaves the rest to the parts behind
 * it. `again`: add rounds to the existing races, as long as there is time. */
static int run_judged(const bench_options *options, unsigned parts, const bench_arrays *a, bool again, race_book *book)
{
    static const double ENDS[] = {0.3, 0.48, 0.68, 0.8, 0.92};
    double ends[5];
    int ret = 0;
    for (unsigned i = 0; i < 5; i++)
        ends[i] = bench_run_deadline(&options->run, again ? 0.96 : ENDS[i]);
    if (parts & PART_COMPARE)
        ret = bench_compare(options, a, TABLE_STEP, options->largest, ends[0], book);
    if (ret == 0 && parts & PART_COMPARE)
        ret = bench_compare(options, a, TABLE_CHAIN, options->largest, ends[1], book);
    if (ret == 0 && parts & PART_SWEEP)
        ret = bench_sweep(options, a, ends[2], book);
    if (ret == 0 && parts & PART_LISTS)
        ret = bench_lists(options, ends[3], book);
    if (ret == 0 && parts & PART_LAYOUT)
        ret = bench_layout(options, ends[4], book);
    return ret;
}

/* Contestants without a limit: other types and optimizers, and sizes that a cache may hold. */
static int run_told(const bench_options *options, const bench_arrays *a, race_book *book)
{
    const double end = bench_run_deadline(&options->run, 1);
    int ret = bench_compare(options, a, TABLE_OTHERS, a->count, end, book);
    for (unsigned i = 0; i + 1 < options->size_count; i++) {
        for (bench_table table = TABLE_STEP; ret == 0 && table <= TABLE_OTHERS; table++)
            ret = bench_compare(options, a, table, options->sizes[i], end, book);
    }
    return ret;
}

static int run_parts(const bench_options *options, size_t *huge_bytes, bench_figures *figures, race_book *book)
{
    const bench_run *run = &options->run;
    bench_arrays a = {.count = 0};
    int ret = 0;
    if (run->parts & (PART_COMPARE | PART_SWEEP)) {
        ret = bench_arrays_open(&a, options->largest);
        *huge_bytes = bench_streams_huge_bytes();
    }
    if (ret == 0)
        ret = run_judged(options, run->parts, &a, false, book);
    if (ret == 0 && run->rounds >= ENOUGH_ROUNDS && bench_now() < bench_run_deadline(run, 0.92)) {
        bench_options more = *options;
        more.run.rounds = run->rounds < RACE_ROUNDS / 3 ? 3 * run->rounds : RACE_ROUNDS;
        judge(options, book, figures);
        ret = run_judged(&more, undecided(options, figures), &a, true, book);
    }
    if (ret == 0 && run->parts & PART_COMPARE)
        ret = run_told(options, &a, book);
    bench_streams_close(&a.mapping);
    return ret;
}

static int run_and_report(const bench_options *options)
{
    static race_book book;
    static bench_figures figures;
    size_t huge_bytes = 0;
    book.threads = (unsigned)options->threads;
    book.enough = ENOUGH_ROUNDS;
    const int ret = run_parts(options, &huge_bytes, &figures, &book);
    judge(options, &book, &figures);
    fprintf(bench_run_table(&options->run), "%u threads, %s kernels, %zu MiB in huge pages\n", book.threads, zoff_isa(),
            huge_bytes >> 20);
    json_t *root = json_pack("{s:i, s:s, s:I, s:b}", "threads", (int)book.threads, "isa", zoff_isa(), "huge_page_bytes",
                             (json_int_t)huge_bytes, "enough_clean_rounds", have_enough(&figures));
    int reported =
        bench_report(&options->run, root, &book, &figures, "clean_rounds"); /* also the measurements of a failed run */
    for (unsigned i = 0; i < figures.count && reported == 3; i++)
        reported = figures.list[i].rounds ? 0 : 3; /* figures without a limit count, too */
    race_book_free(&book);
    return ret ? 1 : reported;
}

int main(int argc, char **argv)
{
    bench_options options;
    if (parse_options(argc, argv, &options) != 0)
        return 2;
    if (bench_cores_choose(&options, argv) != 0)
        return 1;
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
        bench_fail("the loops to compare with are compiled for AVX2 and FMA, which this CPU lacks");
        return 1;
    }
#endif
    if (options.isa && strcmp(options.isa, zoff_isa()) != 0) {
        bench_fail("--isa %s: this CPU or build has no such kernels; zoff uses %s", options.isa, zoff_isa());
        return 1;
    }
    omp_set_max_active_levels(
        1); /* a parallel region inside another has one thread; that is how steps on one thread are timed */
    return run_and_report(&options);
}
