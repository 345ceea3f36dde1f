/* cpu_adam.c: how fast is the CPU Adam step, and how far from what the memory allows? Every contestant runs once in each round,
 * in an order that rotates; ratios are formed within a round; rounds in which the threads lost their cores are dropped. */
#include "cpu_adam_bench.h"
#include "cpu_adam_loops.h"
#include "streams.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zoff/zoff.h>

#define C(id, name_, bytes_, dtype, yardstick_, what_)                                                                         \
    [CONTESTANT_##                                                                                                             \
        id] = {.name = name_, .what = what_, .bytes = bytes_, .dtypes = DTYPE_##dtype, .yardstick = CONTESTANT_##yardstick_},
const contestant CONTESTANTS[CONTESTANT_COUNT] = {CONTESTANT_LIST(C)};
#undef C

typedef struct run {
    loops_arrays arrays;
    zoff_adam_hyper hyper;
    loops_adam plain;
    contestant_id id;
    double sum; /* of the norm passes, so that they cannot be left out */
    int failed;
} run;

static void step(run *r, int bf16)
{
    const loops_arrays *a = &r->arrays;
    const zoff_adam_tensor tensor = {
        .struct_size = sizeof tensor,
        .count = a->count,
        .master = a->p,
        .m = a->m,
        .v = a->v,
        .grad = bf16 ? (const void *)a->g16 : (const void *)a->g,
        .grad_dtype = bf16 ? ZOFF_BF16 : ZOFF_F32,
        .copy_out = bf16 ? a->copy16 : NULL,
    };
    /* The step number stays: pow() of a constant costs what pow() of another number does. */
    if (zoff_adam_step(&r->hyper, 10, 0.5, &tensor) != ZOFF_OK)
        r->failed = 1;
}

static void work(void *ctx)
{
    run *r = ctx;
    const loops_arrays *a = &r->arrays;
    switch (r->id) {
    case CONTESTANT_NOMATH_FP32:
        loops_nomath_fp32(a);
        break;
    case CONTESTANT_NOMATH_BF16:
        loops_nomath_bf16(a);
        break;
    case CONTESTANT_TRIAD:
        loops_triad(a);
        break;
    case CONTESTANT_MEMCPY:
        loops_memcpy(a);
        break;
    case CONTESTANT_ZOFF_FP32:
        step(r, 0);
        break;
    case CONTESTANT_PLAIN_FP32:
        loops_plain_adam(a, &r->plain, a->g);
        break;
    case CONTESTANT_NORM_ZOFF:
        r->sum += loops_norm_bf16(a);
        step(r, 1);
        break;
    case CONTESTANT_ZOFF_BF16:
        step(r, 1);
        break;
    case CONTESTANT_CHAIN:
        loops_upcast(a);
        r->sum += loops_norm(a);
        loops_scale(a, 0.5f);
        loops_plain_adam(a, &r->plain, a->wide);
        loops_downcast(a);
        break;
    case CONTESTANT_UPCAST:
        loops_upcast(a);
        break;
    case CONTESTANT_NORM:
        r->sum += loops_norm(a);
        break;
    case CONTESTANT_SCALE:
        loops_scale(a, 1.0f); /* not a shrinking one: repeated, it would end in subnormals */
        break;
    case CONTESTANT_DOWNCAST:
        loops_downcast(a);
        break;
    case CONTESTANT_COUNT:
        break;
    }
}

/* The same constants for zoff and the loops. */
static void set_hyper(run *r)
{
    zoff_adam_hyper_init(&r->hyper);
    r->hyper.weight_decay = 0.01;
    const zoff_adam_hyper *h = &r->hyper;
    r->plain = (loops_adam){
        .beta1 = (float)h->beta1,
        .beta2 = (float)h->beta2,
        .eps = (float)h->eps,
        .step_size = (float)(-h->lr / (1 - pow(h->beta1, 10))),
        .inv_sqrt_bias2 = (float)(1 / sqrt(1 - pow(h->beta2, 10))),
        .decay = (float)(-h->lr * h->weight_decay),
    };
}

/* Sizes below this finish in microseconds; a sample repeats them until it lasts. */
static const double SAMPLE_SECONDS = 0.004;

/* One round: every contestant once, beginning with another one each time. 1 if all samples were clean. */
static int run_round(const bench_options *options, run *r, unsigned round, double deadline, bench_result *out)
{
    unsigned tries = 25;
    double seconds[CONTESTANT_COUNT] = {0};
    for (unsigned k = 0; k < CONTESTANT_COUNT; k++) {
        r->id = (contestant_id)((k + round * 5) % CONTESTANT_COUNT);
        if (!(CONTESTANTS[r->id].dtypes & options->dtypes))
            continue;
        const bench_sample sample =
            bench_stopwatch_sample(work, r, out->calls[r->id], out->count < 65536 ? 1 : options->threads, tries, deadline);
        out->retried_samples += sample.retries;
        if (!sample.clean || r->failed)
            return 0;
        seconds[r->id] = sample.seconds;
    }
    for (unsigned id = 0; id < CONTESTANT_COUNT; id++)
        out->seconds[id][out->rounds] = seconds[id];
    return 1;
}

static int open_arrays(const bench_options *options, size_t count, bench_streams *streams, run *out)
{
    if (bench_streams_open(count * (5 * sizeof(float) + 2 * sizeof(uint16_t)), 7, streams) != 0) {
        fprintf(stderr, "cpu_adam: no memory for %zu elements: %s; ask for fewer with --elements\n", count, strerror(errno));
        return -1;
    }
    float *g = NULL;
    uint16_t *g16 = NULL;
    loops_arrays *a = &out->arrays;
    *a = (loops_arrays){.count = count, .threads = count < 65536 ? 1 : options->threads};
    a->p = bench_streams_take(streams, count * sizeof(float));
    a->m = bench_streams_take(streams, count * sizeof(float));
    a->v = bench_streams_take(streams, count * sizeof(float));
    a->g = g = bench_streams_take(streams, count * sizeof(float));
    a->wide = bench_streams_take(streams, count * sizeof(float));
    a->g16 = g16 = bench_streams_take(streams, count * sizeof(uint16_t));
    a->copy16 = bench_streams_take(streams, count * sizeof(uint16_t));
    if (!a->p || !a->m || !a->v || !g || !a->wide || !g16 || !a->copy16) {
        bench_streams_close(streams);
        return -1;
    }
    loops_fill(a, g, g16);
    return 0;
}

static int run_size(const bench_options *options, size_t count, double deadline, bench_result *out)
{
    bench_streams streams;
    run r = {0};
    *out = (bench_result){.count = count};
    set_hyper(&r);
    if (open_arrays(options, count, &streams, &r) != 0)
        return -1;
    for (unsigned id = 0; id < CONTESTANT_COUNT; id++) { /* also the warm-up */
        r.id = (contestant_id)id;
        if (CONTESTANTS[id].dtypes & options->dtypes)
            out->calls[id] = bench_stopwatch_calls(work, &r, SAMPLE_SECONDS);
    }
    out->huge_bytes = bench_streams_huge_bytes();
    out->total_bytes = streams.bytes;
    for (unsigned round = 0; out->rounds < options->rounds && !r.failed; round++) {
        if (bench_stopwatch_now() > deadline)
            break;
        if (run_round(options, &r, round, deadline, out))
            out->rounds++;
        else
            out->dropped_rounds++;
    }
    out->enough = out->rounds >= options->rounds;
    bench_streams_close(&streams);
    if (r.failed || !isfinite(r.sum)) {
        fprintf(stderr, "cpu_adam: %s\n", r.failed ? zoff_last_error() : "a norm is not finite: the arrays were spoilt");
        return -1;
    }
    return 0;
}

/* "4096", "64Ki", "64Mi", "1Gi"; 0 for anything else. */
static size_t parse_count(const char *text, char **end)
{
    errno = 0;
    unsigned long long value = strtoull(text, end, 10);
    unsigned shift = strncmp(*end, "Ki", 2) == 0 ? 10 : strncmp(*end, "Mi", 2) == 0 ? 20 : strncmp(*end, "Gi", 2) == 0 ? 30 : 0;
    if (shift)
        *end += 2;
    return errno || *end == text || value >> (40 - shift) ? 0 : (size_t)value << shift;
}

static int parse_sizes(const char *text, bench_options *out)
{
    out->size_count = 0;
    for (const char *p = text; out->size_count < MOST_SIZES; p++) {
        char *end;
        size_t count = parse_count(p, &end);
        if (!count || (*end && *end != ','))
            return -1;
        unsigned at = out->size_count++;
        for (; at && out->sizes[at - 1] > count; at--) /* ascending: the ratios are those of the largest */
            out->sizes[at] = out->sizes[at - 1];
        out->sizes[at] = count;
        if (!*end)
            return 0;
        p = end;
    }
    return -1;
}

static const char USAGE[] =
    "usage: cpu_adam [OPTION]...\n"
    "Times zoff's CPU Adam step beside yardsticks, a plain loop and a chain of passes.\n"
    "  --elements N    one size; 64Ki, 64Mi and the like are understood\n"
    "  --sizes LIST    several, parted by commas (default 4Ki,256Ki,4Mi,64Mi); the ratios are those of the largest\n"
    "  --threads N     run on the first N CPUs that this process may use (default: all)\n"
    "  --isa NAME      scalar, avx2 or avx512 (default: the best)\n"
    "  --dtype NAME    fp32, bf16 or both (default)\n"
    "  --rounds N      clean rounds to take of each size (default 15)\n"
    "  --quick         64Mi only, 9 rounds, at most 40 s of rounds\n"
    "  --json[=FILE]   write JSON to FILE, or to standard output with the table on standard error\n"
    "Exit status 3: not one round of the largest size was clean, the machine is too busy to measure.\n";

static int parse_options(int argc, char **argv, bench_options *out)
{
    static const struct option OPTIONS[] = {
        {"elements", required_argument, NULL, 's'}, {"sizes", required_argument, NULL, 's'},
        {"threads", required_argument, NULL, 't'},  {"isa", required_argument, NULL, 'i'},
        {"dtype", required_argument, NULL, 'd'},    {"rounds", required_argument, NULL, 'r'},
        {"quick", no_argument, NULL, 'q'},          {"json", optional_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},           {NULL, 0, NULL, 0},
    };
    const char *sizes = NULL;
    *out = (bench_options){.dtypes = DTYPE_ANY};
    for (int c; (c = getopt_long(argc, argv, "h", OPTIONS, NULL)) != -1;) {
        if (c == 's')
            sizes = optarg;
        else if (c == 't')
            out->threads = (unsigned)strtoul(optarg, NULL, 10);
        else if (c == 'i')
            out->isa = optarg;
        else if (c == 'd')
            out->dtypes = strcmp(optarg, "fp32") == 0   ? DTYPE_FP32
                          : strcmp(optarg, "bf16") == 0 ? DTYPE_BF16
                          : strcmp(optarg, "both") == 0 ? DTYPE_ANY
                                                        : 0;
        else if (c == 'r')
            out->rounds = (unsigned)strtoul(optarg, NULL, 10);
        else if (c == 'q')
            out->quick = 1;
        else if (c == 'j')
            out->json_path = optarg ? optarg : "-";
        else
            return -1;
    }
    if (!out->rounds)
        out->rounds = out->quick ? 9 : 15;
    out->budget_seconds = out->quick ? 40 : 600;
    return optind < argc || !out->dtypes || out->rounds > MOST_ROUNDS ||
                   parse_sizes(sizes        ? sizes
                               : out->quick ? "64Mi"
                                            : "4Ki,256Ki,4Mi,64Mi",
                               out) != 0
               ? -1
               : 0;
}

/* Keep the process on its first `threads` CPUs: zoff's own team then has as many threads as the loops here. */
static int pin(unsigned *threads)
{
    cpu_set_t allowed, wanted;
    CPU_ZERO(&wanted);
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return -1;
    const unsigned available = (unsigned)CPU_COUNT(&allowed);
    if (*threads == 0)
        *threads = available;
    if (*threads > available) {
        fprintf(stderr, "cpu_adam: --threads %u, but this process may use %u CPUs\n", *threads, available);
        return -1;
    }
    unsigned taken = 0;
    for (size_t cpu = 0; cpu < CPU_SETSIZE && taken < *threads; cpu++) {
        if (CPU_ISSET(cpu, &allowed)) {
            CPU_SET(cpu, &wanted);
            taken++;
        }
    }
    return sched_setaffinity(0, sizeof wanted, &wanted);
}

int main(int argc, char **argv)
{
    bench_options options;
    if (parse_options(argc, argv, &options) != 0) {
        fputs(USAGE, stderr);
        return 2;
    }
    /* Threads that wait must spin, or the CPU time would not show whether they had their cores. The runtime of OpenMP reads
     * this before main(), so the program starts itself again; by then the CPUs are chosen, and the kernels. */
    if (!getenv("OMP_WAIT_POLICY")) {
        setenv("OMP_WAIT_POLICY", "active", 1);
        unsetenv("OMP_PROC_BIND"); /* it would bind this thread before zoff counts its CPUs */
        if (options.isa)
            setenv("ZOFF_ISA", options.isa, 1);
        if (pin(&options.threads) != 0)
            return 1;
        execv("/proc/self/exe", argv);
        perror("cpu_adam: cannot start again");
        return 1;
    }
    if (pin(&options.threads) != 0)
        return 1;
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
        fprintf(stderr, "cpu_adam: the loops to compare with are compiled for AVX2 and FMA, which this CPU lacks\n");
        return 1;
    }
#endif
    if (options.isa && strcmp(options.isa, "auto") != 0 && strcmp(options.isa, zoff_isa()) != 0) {
        fprintf(stderr, "cpu_adam: --isa %s: this CPU or build has no such kernels; zoff uses %s\n", options.isa, zoff_isa());
        return 1;
    }
    bench_result *results = calloc(options.size_count, sizeof *results);
    const double deadline = bench_stopwatch_now() + options.budget_seconds;
    int ret = results ? 0 : 1;
    for (unsigned s = 0; s < options.size_count && ret == 0; s++)
        ret = run_size(&options, options.sizes[s], deadline, &results[s]) != 0;
    if (ret == 0)
        bench_report_table(options.json_path && strcmp(options.json_path, "-") == 0 ? stderr : stdout, &options, results,
                           options.size_count);
    if (ret == 0 && options.json_path && bench_report_json(&options, results, options.size_count) != 0) {
        fprintf(stderr, "cpu_adam: cannot write %s\n", options.json_path);
        ret = 1;
    }
    if (ret == 0 && !results[options.size_count - 1].rounds)
        ret = 3; /* nothing was measured */
    free(results);
    return ret;
}
