/* SPDX-License-Identifier: Apache-2.0 */
/* muon.c: the rate of Muon's orthogonalization, beside the same iterations with OpenBLAS, where that was found, and beside
 * fused multiply-adds without memory. Contestants of one thread are timed by its CPU time, so that other processes disturb them
 * less; two threads by the clock. The orthogonalization alone is not in the public headers: this file looks into the library.
 */
#include "disk.h"
#include "streams.h"

#include "cpu_adam.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef BENCH_HAVE_OPENBLAS
#include <cblas.h>
#endif

enum { PART_CHAIN = 1, PART_THREADS = 2, PART_STEP = 4, PART_ANY = 7 };
enum { ITERATIONS = 5, ENOUGH_ROUNDS = 5 };
enum { STANDARD, GRAM, OPENBLAS, PEAK, TEAM, SIDE_BY_SIDE };
enum { WIDTH = 768, VOCABULARY = 50257, CONTEXT = 1024, LAYERS = 12 }; /* GPT-2's 124 million parameters */

static const char *wanted_isa, *path = ".";

/* A matrix and what its orthogonalization needs. */
typedef struct chain {
    size_t rows, cols;
    float *u, *x, *spare, *s, *t; /* the given matrix, two of its size, and two square ones */
    void *scratch;
} chain;

static chain chain_open(size_t rows, size_t cols)
{
    const size_t n = rows < cols ? rows : cols, bytes = rows * cols * sizeof(float), square = n * n * sizeof(float);
    chain c = {.rows = rows,
               .cols = cols,
               .u = bench_array(bytes, true),
               .x = bench_array(bytes, true),
               .spare = bench_array(bytes, true),
               .s = bench_array(square, true),
               .t = bench_array(square, true),
               .scratch = bench_array(zoff_adam_orthogonal_scratch(rows, cols, true, 2), true)};
    uint64_t state = 1;
    for (size_t i = 0; i < rows * cols; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        c.u[i] = (float)(int32_t)(state >> 32) * 0x1p-31f;
    }
    return c;
}

static void run_ours(chain *c, bool gram, unsigned threads)
{
    zoff_orthogonal o = {
        .rows = c->rows, .cols = c->cols, .x = c->x, .scratch = c->scratch, .consts = {.steps = ITERATIONS, .gram = gram}};
    memcpy(c->x, c->u, c->rows * c->cols * sizeof *c->x);
    bench_must(zoff_adam_orthogonal_run(threads, &o, NULL, NULL, NULL));
}

static void *run_beside(void *ctx)
{
    run_ours(ctx, false, 1);
    return NULL;
}

#ifdef BENCH_HAVE_OPENBLAS
static void mirror(float *s, int n)
{
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < i; j++)
            s[j * n + i] = s[i * n + j];
    }
}

/* The same iterations, with half of each symmetric product, too. */
static void run_openblas(chain *c)
{
    const int rows = (int)c->rows, cols = (int)c->cols, n = rows < cols ? rows : cols, m = rows < cols ? cols : rows;
    const float a = 3.4445f, b = -4.7750f, k = 2.0315f;
    float *x = c->x, *y = c->spare;
    double f = 0;
    for (int i = 0; i < rows * cols; i++)
        f += (double)c->u[i] * (double)c->u[i];
    for (int i = 0; i < rows * cols; i++)
        x[i] = (float)((double)c->u[i] / (sqrt(f) + 1e-7));
    for (int step = 0; step < ITERATIONS; step++) {
        cblas_ssyrk(CblasRowMajor, CblasLower, rows <= cols ? CblasNoTrans : CblasTrans, n, m, 1, x, cols, 0, c->s, n);
        mirror(c->s, n);
        memcpy(c->t, c->s, (size_t)n * (size_t)n * sizeof *c->t);
        cblas_ssyrk(CblasRowMajor, CblasLower, CblasNoTrans, n, n, k, c->s, n, b, c->t, n);
        mirror(c->t, n);
        memcpy(y, x, (size_t)rows * (size_t)cols * sizeof *y);
        if (rows <= cols)
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, cols, n, 1, c->t, n, x, cols, a, y, cols);
        else
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, n, n, 1, x, cols, c->t, n, a, y, cols);
        float *other = x;
        x = y;
        y = other;
    }
}
#endif

/* Fused multiply-adds in registers, of the width of the kernels: this file is compiled with contraction. */
enum { PEAK_TURNS = 2000000, PEAK_SUMS = 12 };
static volatile float peak_sink;
#define PEAK(name, bytes, target)                                                                                              \
    target static void name(void)                                                                                              \
    {                                                                                                                          \
        typedef float lanes __attribute__((vector_size(bytes)));                                                               \
        lanes sums[PEAK_SUMS], x = {0}, y = {0}, all = {0};                                                                    \
        x += 0.9999f;                                                                                                          \
        y += peak_sink;                                                                                                        \
        for (int i = 0; i < PEAK_SUMS; i++)                                                                                    \
            sums[i] = y + (float)i;                                                                                            \
        for (int turn = 0; turn < PEAK_TURNS; turn++) {                                                                        \
            for (int i = 0; i < PEAK_SUMS; i++)                                                                                \
                sums[i] = sums[i] * x + y;                                                                                     \
        }                                                                                                                      \
        for (int i = 0; i < PEAK_SUMS; i++)                                                                                    \
            all += sums[i];                                                                                                    \
        peak_sink = 0 * all[0];                                                                                                \
    }
#if defined(__x86_64__)
PEAK(peak_avx2, 32, __attribute__((target("avx2,fma"))))
PEAK(peak_avx512, 64, __attribute__((target("avx512f"))))
#else
PEAK(peak_plain, 16, )
#endif

static bool is_wide(void)
{
    return strcmp(zoff_isa(), "avx512") == 0;
}

static double peak_flop(void)
{
    return 2.0 * PEAK_TURNS * PEAK_SUMS * (is_wide() ? 16 : strcmp(zoff_isa(), "avx2") == 0 ? 8 : 4);
}

static void run_peak(void)
{
#if defined(__x86_64__)
    (is_wide() ? peak_avx512 : peak_avx2)();
#else
    peak_plain();
#endif
}

static void run(void *ctx, int which)
{
    chain *c = ctx;
    pthread_t other;
    if (which == STANDARD || which == GRAM)
        run_ours(c, which == GRAM, 1);
    else if (which == TEAM)
        run_ours(c, false, 2);
    else if (which == PEAK)
        run_peak();
    else if (which == SIDE_BY_SIDE) {
        if (pthread_create(&other, NULL, run_beside, &c[1]) != 0)
            bench_die("no thread: %s", strerror(errno));
        run_ours(c, false, 1);
        pthread_join(other, NULL);
    }
#ifdef BENCH_HAVE_OPENBLAS
    else
        run_openblas(c);
#endif
}

static double sample(race *r, race_entry *e, double deadline)
{
    const bool alone = strcmp(r->part, "chain") == 0;
    const double start = alone ? bench_thread_seconds() : bench_now();
    e->work.run(e->work.ctx, e->work.which);
    return (alone ? bench_thread_seconds() : bench_now()) - start;
}

/* Operations of the standard method, whose triangles count once. */
static double flop_of(const chain *c)
{
    const double n = (double)(c->rows < c->cols ? c->rows : c->cols), m = (double)(c->rows < c->cols ? c->cols : c->rows);
    return ITERATIONS * (3 * n * n * m + n * n * n);
}

static const struct {
    const char *name;
    size_t rows, cols;
} SHAPES[] = {{"768x768", 768, 768}, {"768x3072", 768, 3072}, {"3072x768", 3072, 768}, {"2048x2048", 2048, 2048}};

static void run_chains(const bench_part *part)
{
    static const race_line TABLE[] = {{"standard", "zoff, over the matrix", 0, run, STANDARD},
                                      {"gram", "zoff, over its Gram matrix", 0, run, GRAM},
#ifdef BENCH_HAVE_OPENBLAS
                                      {"openblas", "OpenBLAS, ssyrk and sgemm", 0, run, OPENBLAS},
#endif
                                      {NULL}};
    static const race_line LINE = {"peak", "multiply-adds in registers", 0, run, PEAK};
    for (unsigned i = 0; i < BENCH_COUNT(SHAPES); i++) {
        const size_t mark = bench_opened();
        chain c = chain_open(SHAPES[i].rows, SHAPES[i].cols);
        race *r = race_open("chain", SHAPES[i].name);
        r->threads = 1;
        r->sample = sample;
        race_add_lines(r, TABLE, 0, flop_of(&c), &c, 1);
        race_add(r, &LINE, peak_flop(), &c, 1);
        race_run(r, (unsigned)bench.rounds, bench_share((i + 1) * 0.9 / BENCH_COUNT(SHAPES)));
        bench_close(mark);
    }
}

static void run_threads(const bench_part *part)
{
    static const race_line TABLE[] = {{"team", "two threads on one matrix", 0, run, TEAM},
                                      {"side_by_side", "two threads, each on a matrix", 0, run, SIDE_BY_SIDE},
                                      {NULL}};
    chain both[] = {chain_open(768, 768), chain_open(768, 768)};
    race *r = race_open("threads", "768x768");
    r->threads = 2;
    r->sample = sample;
    race_add_lines(r, TABLE, 0, flop_of(both), both, 1);
    race_run(r, (unsigned)bench.rounds, bench_share(1));
}

/* Matrices of a layer, and the rest of the model that AdamW updates. */
static const struct {
    const char *name;
    size_t dims[2], dim_count;
} LAYER[] = {{"qkv", {3 * WIDTH, WIDTH}, 2},
             {"proj", {WIDTH, WIDTH}, 2},
             {"fc", {4 * WIDTH, WIDTH}, 2},
             {"fcproj", {WIDTH, 4 * WIDTH}, 2},
             {"ln", {13 * WIDTH}, 1}},
  TABLES[] = {{"wte", {VOCABULARY, WIDTH}, 2}, {"wpe", {CONTEXT, WIDTH}, 2}};

static unsigned threads(void)
{
    return (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
}

static unsigned layers(void)
{
    return bench.quick ? 2 : LAYERS;
}

static void add_param(zoff_param_desc *list, size_t *count, const char *name, const size_t *dims, size_t dim_count)
{
    const size_t elements = dim_count == 2 ? dims[0] * dims[1] : dims[0];
    uint16_t *weights = bench_array(elements * sizeof *weights, true), *grads = bench_array(elements * sizeof *grads, true);
    bench_fill_bf16(weights, elements, 0, 0.02f);
    bench_fill_bf16(grads, elements, *count + 1, 0.01f);
    list[*count] = bench_param(weights, grads, elements, 1, ZOFF_BF16);
    list[*count].name = name;
    list[*count].dims = dims;
    list[(*count)++].dim_count = dim_count;
}

static zoff_engine *open_engine(const char *name, const char *optimizer, const zoff_param_desc *params, size_t count)
{
    const char *folder = bench_text("%s/%s", disk.folder, name);
    if (mkdir(folder, 0700) != 0)
        bench_die("cannot make a folder: %s", strerror(errno));
    return bench_engine(bench_text("{\"optimizer\": %s, \"zero_optimization\": {\"offload_optimizer\": {\"device\": \"nvme\", "
                                   "\"nvme_path\": \"%s\"}}, \"zoff\": {\"threads\": %u, \"master\": \"fp32\"}}",
                                   optimizer, folder, threads()),
                        (zoff_engine_opts){.threads = 0}, params, count);
}

/* A step, with the reads that it has begun for the next one. */
static void run_step(void *ctx, int which)
{
    bench_must(zoff_step(ctx, NULL, NULL));
    while (zoff_engine_progress(ctx) == ZOFF_PENDING)
        bench_sleep(2e-5);
}

/* All matrices of the model, one after the other. */
static void run_matrices(void *ctx, int which)
{
    chain *c = ctx;
    for (unsigned layer = 0; layer < layers(); layer++) {
        for (size_t i = 0; i < BENCH_COUNT(LAYER) && LAYER[i].dim_count == 2; i++)
            run_ours(&c[i], LAYER[i].dims[0] != LAYER[i].dims[1], threads());
    }
}

static void run_steps(const bench_part *part)
{
    static const race_line STEP = {"step", "a step of Muon", 0, run_step},
                           ALONE = {"matrices", "its matrices alone", 0, run_matrices},
                           PASSES = {"elements", "a step of SGD with momentum", 0, run_step};
    zoff_param_desc params[LAYERS * BENCH_COUNT(LAYER) + BENCH_COUNT(TABLES)];
    chain chains[BENCH_COUNT(LAYER)];
    size_t count = 0;
    double elements = 0;
    for (unsigned layer = 0; layer < layers(); layer++) {
        for (size_t i = 0; i < BENCH_COUNT(LAYER); i++)
            add_param(params, &count, bench_text("h.%u.%s", layer, LAYER[i].name), LAYER[i].dims, LAYER[i].dim_count);
    }
    for (size_t i = 0; i < BENCH_COUNT(TABLES); i++)
        add_param(params, &count, TABLES[i].name, TABLES[i].dims, TABLES[i].dim_count);
    for (size_t i = 0; i < BENCH_COUNT(LAYER) && LAYER[i].dim_count == 2; i++)
        chains[i] = chain_open(LAYER[i].dims[0], LAYER[i].dims[1]);
    for (size_t i = 0; i < count; i++)
        elements += (double)params[i].count;
    disk_folder_make("path", path, 24 * elements, NULL);
    race *r = race_open("step", bench.quick ? "2 layers of GPT-2 124M" : "GPT-2 124M");
    r->threads = threads();
    r->sample = sample;
    race_add(r, &STEP, elements, open_engine("muon", "{\"type\": \"Muon\"}", params, count), 1);
    race_add(r, &ALONE, elements, chains, 1);
    race_add(r, &PASSES, elements,
             open_engine("sgd", "{\"type\": \"SGD\", \"params\": {\"lr\": 1e-3, \"momentum\": 0.95}}", params, count), 1);
    race_run(r, (unsigned)bench.rounds, bench_share(1));
}

/* clang-format off */
static const bench_asked FIGURES[] = {
    {"openblas_768x768", 1, 0.95, "time of OpenBLAS's iterations / zoff's", "chain/768x768", "openblas / standard", PART_CHAIN},
    {"openblas_768x3072", 1, 0.95, "the same", "chain/768x3072", "openblas / standard", PART_CHAIN},
    {"openblas_3072x768", 1, 0.95, "the same", "chain/3072x768", "openblas / standard", PART_CHAIN},
    {"openblas_2048x2048", 1, 0.95, "the same", "chain/2048x2048", "openblas / standard", PART_CHAIN},
    {"peak_768x768", 1, 0.62, "zoff's operations a second / those of multiply-adds in registers", "chain/768x768", "standard.elements / standard / (peak.elements / peak)", PART_CHAIN},
    {"peak_768x3072", 1, 0.62, "the same", "chain/768x3072", "standard.elements / standard / (peak.elements / peak)", PART_CHAIN},
    {"peak_3072x768", 1, 0.62, "the same", "chain/3072x768", "standard.elements / standard / (peak.elements / peak)", PART_CHAIN},
    {"peak_2048x2048", 1, 0.62, "the same", "chain/2048x2048", "standard.elements / standard / (peak.elements / peak)", PART_CHAIN},
    {"gram_768x3072", 1, 1.6, "time over the matrix / over its Gram matrix", "chain/768x3072", "standard / gram", PART_CHAIN},
    {"gram_3072x768", 1, 1.6, "the same", "chain/3072x768", "standard / gram", PART_CHAIN},
    {"two_threads", 1, 0.95, "time of two threads with a matrix each / twice that of two threads on one", "threads/768x768", "side_by_side / (2 * team)", PART_THREADS},
    {"step_over_parts", -1, 1.05, "time of a step with states in files / its matrices alone and a step of SGD with momentum", "step/GPT-2 124M", "step / (matrices + elements)", PART_STEP}};
/* clang-format on */

static void judge(void)
{
    bench_figures.count = 0;
    bench_figures.missing = "not among the parts of this run, or this build has no OpenBLAS";
    bench_figures_add(FIGURES, BENCH_COUNT(FIGURES));
    for (EACH_FIGURE(f)) {
        if (is_wide() && strncmp(f->asked.name, "openblas", 8) == 0)
            f->asked.limit = 0.85;
        else if (is_wide() && strncmp(f->asked.name, "peak", 4) == 0)
            f->asked.limit = 0.5;
    }
}

static json_t *describe(FILE *out)
{
    const char *blas = "";
#ifdef BENCH_HAVE_OPENBLAS
    blas = openblas_get_corename();
#endif
    fprintf(out, "%s kernels%s%s\n", zoff_isa(), *blas ? ", OpenBLAS's are those of " : "", blas);
    return json_pack("{s:s, s:s}", "isa", zoff_isa(), "openblas", blas);
}

/* Restart the program with the kernels that were asked for: OpenBLAS chooses its own before main(). */
static void begin(char **argv)
{
    const char *core = wanted_isa && strcmp(wanted_isa, "avx2") == 0 ? "Haswell" : NULL, *isa = getenv("ZOFF_ISA");
    if (wanted_isa && !(isa && strcmp(isa, wanted_isa) == 0)) {
        setenv("ZOFF_ISA", wanted_isa, 1);
        setenv("OPENBLAS_NUM_THREADS", "1", 1);
        if (core)
            setenv("OPENBLAS_CORETYPE", core, 1);
        execv("/proc/self/exe", argv);
        bench_die("cannot start again: %s", strerror(errno));
    }
    if (wanted_isa && strcmp(wanted_isa, zoff_isa()) != 0)
        bench_die("--isa %s: this CPU or build has no such kernels; zoff uses %s", wanted_isa, zoff_isa());
#ifdef BENCH_HAVE_OPENBLAS
    openblas_set_num_threads(1);
#endif
    race_book.threads = 1;
    race_book.enough = ENOUGH_ROUNDS;
}

int main(int argc, char **argv)
{
    static const bench_option OPTIONS[] = {
        {"isa", "NAME", "scalar, avx2, avx512, neon or sve (default: the best)", .text = &wanted_isa},
        {"path", "FOLDER", "on the disk for the states of a step, 3 GB (default: the current folder)", .text = &path},
        {NULL}};
    static const bench_part PARTS[] = {
        {"chain", PART_CHAIN, run_chains}, {"threads", PART_THREADS, run_threads}, {"step", PART_STEP, run_steps}, {NULL}};
    static const bench_spec SPEC = {.usage =
                                        "usage: muon [OPTION]...\nTimes the orthogonalization of matrices, five iterations.\n",
                                    .options = OPTIONS,
                                    .parts = PARTS,
                                    .full = {PART_ANY, 15, 300},
                                    .quick = {PART_ANY, 5, 60},
                                    .begin = begin,
                                    .judge = judge,
                                    .describe = describe,
                                    .needs_no_limit = true};
    return bench_main(argc, argv, &SPEC);
}
