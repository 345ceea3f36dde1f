/* cpu_adam.c: how fast is the CPU step, and how far from what the memory allows? Options, cores, and the order of the parts:
 * what is asked of the project first, so that a busy machine costs the rest. */
#include "cores.h"
#include "cpu_adam_bench.h"

#include <errno.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char USAGE[] =
    "usage: cpu_adam [OPTION]...\n"
    "Times zoff's CPU step beside yardsticks, a plain loop, a chain of passes and calls for each tensor.\n"
    "  --sizes LIST    elements, parted by commas; 64Ki, 64Mi and the like are understood (default 4Ki,256Ki,4Mi,64Mi).\n"
    "                  Ratios are those of the largest, where the sweep ends too; below 64Mi they are void\n"
    "  --elements N    one size\n"
    "  --threads N     run on N of the CPUs that this process may use (default: one of each core)\n"
    "  --isa NAME      scalar, avx2, avx512, neon or sve (default: the best)\n"
    "  --dtype LIST    of fp32, bf16, fp16 (default: all; both: fp32,bf16)\n"
    "  --only LIST     parts: compare, sweep, lists, layout (default: all)\n"
    "  --rounds N      clean rounds to take of each race, at most 64 (default 15)\n"
    "  --seconds N     time for all of it (default 600)\n"
    "  --quick         64Mi only, a thinner sweep, 44 s\n"
    "  --json[=FILE]   write JSON to FILE, or to standard output with the table on standard error\n"
    "Exit status 3: nothing that is asked of the project could be measured, the machine is too busy.\n";

static const bench_word DTYPES[] = {{"fp32", DTYPE_FP32}, {"bf16", DTYPE_BF16},
                                    {"fp16", DTYPE_FP16}, {"both", DTYPE_FP32 | DTYPE_BF16},
                                    {"all", DTYPE_ANY},   {NULL, 0}};
static const bench_word PARTS[] = {{"compare", PART_COMPARE}, {"sweep", PART_SWEEP}, {"lists", PART_LISTS},
                                   {"layout", PART_LAYOUT},   {"all", PART_ANY},     {NULL, 0}};

/* Names only; whether this CPU has such kernels is asked later. */
static const bench_word ISAS[] = {{"scalar", 1}, {"avx2", 2}, {"avx512", 4}, {"neon", 8}, {"sve", 16}, {NULL, 0}};

/* Ascending; "4096", "64Ki,64Mi". */
static int parse_sizes(const char *text, bench_options *out)
{
    static const uint64_t MOST_ELEMENTS = 1ull << 40;
    out->size_count = 0;
    for (const char *p = text; out->size_count < MOST_SIZES; p++) {
        uint64_t count;
        const char *end = bench_program_quantity(p, &count);
        if (!end || !count || count >= MOST_ELEMENTS || (*end && *end != ','))
            break;
        unsigned at = out->size_count++;
        for (; at && out->sizes[at - 1] > count; at--)
            out->sizes[at] = out->sizes[at - 1];
        out->sizes[at] = count;
        if (!*end)
            return 0;
        p = end;
    }
    return bench_program_refuse("sizes", text, "wanted are at most 32 numbers of elements, like 4096 or 64Mi");
}

static int parse_option(int letter, const char *text, void *ctx)
{
    bench_options *out = ctx;
    uint64_t number = 0;
    unsigned one;
    switch (letter) {
    case 's':
        return parse_sizes(text, out);
    case 't':
        if (bench_program_number("threads", text, 1, 1024, &number) != 0)
            return -1;
        out->threads = (unsigned)number;
        return 0;
    case 'i':
        out->isa = text;
        if (bench_program_words("isa", text, ISAS, &one) != 0)
            return -1;
        return one & (one - 1) ? bench_program_refuse("isa", text, "wanted is one name") : 0;
    default:
        return bench_program_words("dtype", text, DTYPES, &out->dtypes);
    }
}

static int parse_options(int argc, char **argv, bench_options *out)
{
    static const struct option OPTIONS[] = {
        {"elements", required_argument, NULL, 's'}, {"sizes", required_argument, NULL, 's'},
        {"threads", required_argument, NULL, 't'},  {"isa", required_argument, NULL, 'i'},
        {"dtype", required_argument, NULL, 'd'},    {NULL, 0, NULL, 0},
    };
    const bench_program program = {.usage = USAGE, .options = OPTIONS, .parts = PARTS, .own = parse_option, .ctx = out};
    *out = (bench_options){.dtypes = DTYPE_ANY, .run = {.parts = PART_ANY, .rounds = 15}};
    if (bench_program_parse(&program, argc, argv, &out->run) != 0)
        return -1;
    if (out->run.seconds == 0)
        out->run.seconds = out->run.quick ? 44 : 600;
    return out->size_count ? 0 : parse_sizes(out->run.quick ? "64Mi" : "4Ki,256Ki,4Mi,64Mi", out);
}

/* How many threads the library takes of its own accord, as the plan of an engine tells; 0 with a message. */
static unsigned library_threads(void)
{
    float value = 0, grad = 0;
    const zoff_param_desc param = {.struct_size = sizeof param, .value = &value, .grad = &grad, .count = 1};
    zoff_plan_info plan = {.struct_size = sizeof plan};
    zoff_engine *engine = NULL;
    if (zoff_engine_create(NULL, &engine) != ZOFF_OK || zoff_engine_add_param(engine, &param, NULL) != ZOFF_OK ||
        zoff_engine_plan(engine, &plan) != ZOFF_OK) {
        fprintf(stderr, "cpu_adam: %s\n", zoff_last_error());
        plan.threads = 0;
    }
    zoff_engine_destroy(engine);
    return plan.threads;
}

/* The same CPUs for everybody: those of options->threads, and the library must take as many. */
static int choose_cores(bench_options *options)
{
    const unsigned allowed = bench_cores_allowed(), asked = options->threads;
    unsigned pinned = bench_cores_pin(asked);
    if (!pinned) {
        if (errno)
            perror("cpu_adam: affinity");
        else
            fprintf(stderr, "cpu_adam: --threads %u, but this process may use %u CPUs\n", asked, allowed);
        return -1;
    }
    unsigned taken = library_threads();
    if (!asked && taken && taken < pinned) /* a quota of the cgroup */
        pinned = bench_cores_pin(taken);
    options->threads = pinned;
    if (taken == pinned)
        return 0;
    if (taken)
        fprintf(stderr, "cpu_adam: %u CPUs are to be used, but zoff takes %u threads there; try --threads %u\n", pinned, taken,
                taken < allowed ? taken : allowed);
    return -1;
}

/* Threads that wait must spin, or the CPU time would not show whether they had their cores; and nothing else in the environment
 * may choose threads. The runtime of OpenMP reads it before main(), so the program starts itself again. */
static int start_again(const bench_options *options, char **argv)
{
    static const char *const OTHERS[] = {"OMP_NUM_THREADS",   "OMP_PROC_BIND",        "OMP_PLACES",   "OMP_DYNAMIC",
                                         "OMP_NESTED",        "OMP_THREAD_LIMIT",     "OMP_SCHEDULE", "GOMP_SPINCOUNT",
                                         "GOMP_CPU_AFFINITY", "OMP_MAX_ACTIVE_LEVELS"};
    const char *policy = getenv("OMP_WAIT_POLICY"), *isa = getenv("ZOFF_ISA");
    int ready = policy && strcmp(policy, "active") == 0 && (!options->isa || (isa && strcmp(isa, options->isa) == 0));
    for (unsigned i = 0; i < sizeof OTHERS / sizeof OTHERS[0]; i++) {
        ready = ready && !getenv(OTHERS[i]);
        unsetenv(OTHERS[i]);
    }
    if (ready)
        return 0;
    setenv("OMP_WAIT_POLICY", "active", 1);
    if (options->isa)
        setenv("ZOFF_ISA", options->isa, 1);
    execv("/proc/self/exe", argv);
    perror("cpu_adam: cannot start again");
    return -1;
}

/* What is asked of the project, each part until its share of the time is over; what it leaves goes to those behind it. A second
 * time each goes on with the races that it has, as long as there is time. */
static int run_judged(const bench_options *options, unsigned parts, const bench_arrays *a, int again, bench_book *book)
{
    static const double ENDS[] = {0.3, 0.48, 0.68, 0.8, 0.92};
    const size_t last = options->sizes[options->size_count - 1];
    double ends[5];
    int ret = 0;
    for (unsigned i = 0; i < 5; i++)
        ends[i] = bench_run_deadline(&options->run, again ? 0.96 : ENDS[i]);
    if (parts & PART_COMPARE)
        ret = bench_compare_step(options, a, last, ends[0], book);
    if (ret == 0 && parts & PART_COMPARE && options->dtypes & DTYPE_BF16)
        ret = bench_compare_chain(options, a, last, ends[1], book);
    if (ret == 0 && parts & PART_SWEEP)
        ret = bench_sweep(options, a, ends[2], book);
    if (ret == 0 && parts & PART_LISTS)
        ret = bench_lists(options, ends[3], book);
    if (ret == 0 && parts & PART_LAYOUT)
        ret = bench_layout(options, ends[4], book);
    return ret;
}

/* The parts in which a figure comes from too few clean rounds, or is so close to its limit, or to being void, that more of them
 * should decide. */
static unsigned undecided(const bench_options *options, const bench_book *book)
{
    bench_figures figures;
    bench_judge(options, book, &figures);
    const int large = options->sizes[options->size_count - 1] >= 1 << 24; /* in a cache a rival may be slow for good */
    unsigned parts = 0;
    for (unsigned part = 1; part & PART_ANY; part <<= 1) {
        if (!bench_judge_enough(&figures, part))
            parts |= part;
    }
    for (unsigned i = 0; i < figures.count; i++) {
        const bench_figure *f = &figures.list[i];
        parts |= bench_judge_close(f) || (f->slow_rival && large) ? f->part : 0;
    }
    return parts & options->run.parts;
}

/* What is told beside: the other types and optimizers, and the smaller sizes, which a cache may hold. */
static int run_told(const bench_options *options, const bench_arrays *a, bench_book *book)
{
    const double end = bench_run_deadline(&options->run, 1);
    int ret = bench_compare_others(options, a, a->count, end, book);
    for (unsigned i = 0; ret == 0 && i + 1 < options->size_count; i++) {
        ret = bench_compare_step(options, a, options->sizes[i], end, book);
        if (ret == 0 && options->dtypes & DTYPE_BF16)
            ret = bench_compare_chain(options, a, options->sizes[i], end, book);
        if (ret == 0)
            ret = bench_compare_others(options, a, options->sizes[i], end, book);
    }
    return ret;
}

static int run_parts(const bench_options *options, bench_book *book)
{
    bench_arrays a = {0};
    int ret = 0;
    if (options->run.parts & (PART_COMPARE | PART_SWEEP)) {
        ret = bench_arrays_open(&a, options->sizes[options->size_count - 1], options->threads);
        book->huge_bytes = bench_streams_huge_bytes();
    }
    if (ret == 0)
        ret = run_judged(options, options->run.parts, &a, 0, book);
    if (ret == 0 && options->run.rounds >= ENOUGH_ROUNDS && bench_stopwatch_now() < bench_run_deadline(&options->run, 0.92)) {
        bench_options more = *options;
        more.run.rounds = options->run.rounds < RACE_ROUNDS / 3 ? 3 * options->run.rounds : RACE_ROUNDS;
        ret = run_judged(&more, undecided(options, book), &a, 1, book);
    }
    if (ret == 0 && options->run.parts & PART_COMPARE)
        ret = run_told(options, &a, book);
    bench_arrays_close(&a);
    return ret;
}

static int report(const bench_options *options, const bench_book *book)
{
    bench_figures figures;
    bool measured = false;
    bench_judge(options, book, &figures);
    for (unsigned i = 0; i < figures.count; i++) /* what is only told counts too */
        measured = measured || figures.list[i].rounds;
    bench_report_table(bench_run_table(&options->run), options, book, &figures);
    if (options->run.json_path && bench_report_json(options, book, &figures) != 0)
        return 1;
    return measured ? 0 : 3;
}

int main(int argc, char **argv)
{
    bench_options options;
    if (parse_options(argc, argv, &options) != 0)
        return 2;
    options.run.start = bench_stopwatch_now();
    zoff_log_set(bench_program_log, NULL);
    if (start_again(&options, argv) != 0 || choose_cores(&options) != 0)
        return 1;
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
        fprintf(stderr, "cpu_adam: the loops to compare with are compiled for AVX2 and FMA, which this CPU lacks\n");
        return 1;
    }
#endif
    if (options.isa && strcmp(options.isa, zoff_isa()) != 0) {
        fprintf(stderr, "cpu_adam: --isa %s: this CPU or build has no such kernels; zoff uses %s\n", options.isa, zoff_isa());
        return 1;
    }
    omp_set_max_active_levels(1); /* a region inside another has one thread: so steps are timed alone */
    bench_book *book = calloc(1, sizeof *book);
    int ret = book ? 0 : 1;
    if (book && run_parts(&options, book) != 0)
        ret = 1;
    const int reported = book && book->count ? report(&options, book) : 1; /* also what a failed run has measured */
    if (book)
        bench_book_free(book);
    free(book);
    return ret ? ret : reported;
}
