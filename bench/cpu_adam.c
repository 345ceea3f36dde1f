/* cpu_adam.c: the speed of the CPU step, and its distance from the memory's limit. This file has the options and the order of
 * the parts. Parts with limits come first, so that a busy machine costs only the others. */
#include "cpu_adam_bench.h"

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
                                    {"all", DTYPE_ANY},   {NULL, 0}};
static const bench_word PARTS[] = {{"compare", PART_COMPARE}, {"sweep", PART_SWEEP}, {"lists", PART_LISTS},
                                   {"layout", PART_LAYOUT},   {"all", PART_ANY},     {NULL, 0}};

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
        bench_judge(options, book, figures);
        ret = run_judged(&more, bench_judge_undecided(options, figures), &a, true, book);
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
    bench_judge(options, &book, &figures);
    fprintf(bench_run_table(&options->run), "%u threads, %s kernels, %zu MiB in huge pages\n", book.threads, zoff_isa(),
            huge_bytes >> 20);
    json_t *root = json_pack("{s:i, s:s, s:I, s:b}", "threads", (int)book.threads, "isa", zoff_isa(), "huge_page_bytes",
                             (json_int_t)huge_bytes, "enough_clean_rounds", bench_judge_enough(&figures, PART_ANY));
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
