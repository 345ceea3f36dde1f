/* comm.c: do operations over ranks move bytes as fast as MPI's own collectives? The same sizes, in the same seconds, by turns;
 * a sample is as long as it takes the slowest rank. */
#include "comm_bench.h"

#include "json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char USAGE[] =
    "usage: mpirun -n RANKS comm [OPTION]...\n"
    "Times zoff's all_gather and reduce_scatter (an exchange of bf16 pieces, summed in rank order in fp32) over messages "
    "beside\n"
    "MPI_Allgather and the faster of two MPI_Reduce_scatter (float; bf16 with an operation of its own) of as many elements.\n"
    "hidden: gradients over a link of 200 MB/s while a timed wait stands for the device that makes them.\n"
    "  --only LIST     parts: gather, scatter, hidden (default: all)\n"
    "  --rounds N      rounds to take of each race, at most 64 (default 25, with --quick 7)\n"
    "  --seconds N     time for all of it (default 300, with --quick 40)\n"
    "  --quick         fewer rounds\n"
    "  --full          all of them (default)\n"
    "  --json[=FILE]   write JSON to FILE, or to standard output with the table on standard error\n"
    "Exit status 3: nothing that is asked of the project could be measured.\n";

static const size_t MIBS[COMM_SIZES] = {1, 16, 64}; /* of all elements in bf16 */
enum { CALLS_BYTES = 32 << 20, OURS = 0 };          /* a sample moves at least that much */

static const bench_word PARTS[] = {{"gather", PART_GATHER}, {"scatter", PART_SCATTER}, {"hidden", PART_HIDDEN}, {NULL, 0}};

typedef struct contest {
    zoff_comm *comm;
    comm_data data;
    MPI_Datatype bf16;
    MPI_Op sum;
    int failed;
} contest;

/* ---- bf16, for MPI ---- */

static float widen(uint16_t x)
{
    const uint32_t bits = (uint32_t)x << 16;
    float out;
    memcpy(&out, &bits, sizeof out);
    return out;
}

static uint16_t narrow(float x) /* to nearest even; there is no NaN here */
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static void add_bf16(void *in, void *inout, int *count, MPI_Datatype *type)
{
    const uint16_t *a = in;
    uint16_t *b = inout;
    (void)type;
    for (int i = 0; i < *count; i++)
        b[i] = narrow(widen(a[i]) + widen(b[i]));
}

/* ---- contestants ---- */

static void gather_ours(void *ctx)
{
    contest *c = ctx;
    c->failed |= comm_ours_gather(c->comm, &c->data);
}

static void gather_mpi(void *ctx)
{
    contest *c = ctx;
    const int bytes = (int)c->data.bytes[0];
    MPI_Allgather(c->data.pieces, bytes, MPI_BYTE, c->data.whole, bytes, MPI_BYTE, MPI_COMM_WORLD);
}

static void scatter_ours(void *ctx)
{
    contest *c = ctx;
    c->failed |= comm_ours_scatter(c->comm, &c->data);
}

static void scatter_float(void *ctx)
{
    contest *c = ctx;
    MPI_Reduce_scatter(c->data.floats, c->data.sums, c->data.counts, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void scatter_bf16(void *ctx)
{
    contest *c = ctx;
    MPI_Reduce_scatter(c->data.whole, c->data.pieces, c->data.counts, c->bf16, c->sum, MPI_COMM_WORLD);
}

/* ---- one race ---- */

static int make_data(comm_data *d, size_t mib, unsigned size, unsigned rank)
{
    *d = (comm_data){.count = mib << 19};
    d->share = d->count / size;
    d->count = d->share * size;
    d->whole = malloc(d->count * sizeof *d->whole);
    d->pieces = malloc(d->count * sizeof *d->pieces);
    d->sums = malloc(d->share * sizeof *d->sums);
    d->floats = malloc(d->count * sizeof *d->floats);
    d->bytes = malloc(size * sizeof *d->bytes);
    d->counts = malloc(size * sizeof *d->counts);
    if (!d->whole || !d->pieces || !d->sums || !d->floats || !d->bytes || !d->counts) {
        fprintf(stderr, "comm: out of memory\n");
        return -1;
    }
    for (unsigned i = 0; i < size; i++) {
        d->bytes[i] = d->share * sizeof *d->whole;
        d->counts[i] = (int)d->share;
    }
    for (size_t i = 0; i < d->count; i++) { /* sums of these are exact in bf16 */
        d->floats[i] = (float)((i + rank) % 5);
        d->whole[i] = d->pieces[i] = narrow(d->floats[i]);
    }
    memset(d->sums, 0, d->share * sizeof *d->sums);
    return 0;
}

static void free_data(comm_data *d)
{
    free(d->whole);
    free(d->pieces);
    free(d->sums);
    free(d->floats);
    free(d->bytes);
    free(d->counts);
}

/* Seconds of one call, on the slowest rank. */
static double sample(const race_entry *e)
{
    MPI_Barrier(MPI_COMM_WORLD);
    const double from = bench_stopwatch_now();
    for (unsigned i = 0; i < e->calls; i++)
        e->work(e->ctx);
    double seconds = (bench_stopwatch_now() - from) / e->calls, slowest = seconds;
    MPI_Allreduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
}

static void run_rounds(race *r, unsigned rounds, double deadline)
{
    for (unsigned i = 0; i < r->count; i++)
        (void)sample(&r->entries[i]); /* pages, connections */
    for (unsigned k = 0; k < rounds; k++) {
        int late = bench_stopwatch_now() > deadline && k > 0;
        MPI_Bcast(&late, 1, MPI_INT, 0, MPI_COMM_WORLD);
        if (late)
            return;
        for (unsigned i = 0; i < r->count; i++) {
            const unsigned at = k % 2 ? r->count - 1 - i : i;
            r->entries[at].seconds[k] = sample(&r->entries[at]);
        }
        r->rounds = r->clean_rounds = k + 1;
    }
}

/* Whether our result is MPI's, and what one operation sends / what it must send. */
static double check(contest *c, int scatters, int *wrong)
{
    comm_data *d = &c->data;
    const double least = (double)d->share * sizeof *d->whole * (zoff_comm_size(c->comm) - 1);
    zoff_comm_info before = {.struct_size = sizeof before}, after = {.struct_size = sizeof after};
    const size_t bytes = scatters ? d->share * sizeof *d->sums : d->count * sizeof *d->whole;
    void *result = scatters ? (void *)d->sums : (void *)d->whole, *copy = malloc(bytes);
    if (!copy) {
        *wrong = 1;
        return NAN;
    }
    (scatters ? scatter_float : gather_mpi)(c);
    memcpy(copy, result, bytes);
    memset(result, 0, bytes);
    zoff_comm_get_info(c->comm, &before);
    (scatters ? scatter_ours : gather_ours)(c);
    zoff_comm_get_info(c->comm, &after);
    *wrong |= memcmp(copy, result, bytes) != 0;
    free(copy);
    return (double)(after.sent_bytes - before.sent_bytes) / least;
}

static int run_race(const comm_options *options, contest *c, int scatters, size_t mib, double deadline, race *out, double *wire)
{
    static const race_entry GATHER[] = {{.name = "zoff", .what = "all_gather", .work = gather_ours},
                                        {.name = "mpi", .what = "MPI_Allgather", .work = gather_mpi}};
    static const race_entry SCATTER[] = {
        {.name = "zoff", .what = "exchange of bf16 and sum in fp32", .work = scatter_ours},
        {.name = "mpi_float", .what = "MPI_Reduce_scatter", .work = scatter_float},
        {.name = "mpi_bf16", .what = "the same with an operation for bf16", .work = scatter_bf16}};
    int wrong = 0, any = 0;
    *out = (race){.part = scatters ? "scatter" : "gather"};
    snprintf(out->label, sizeof out->label, "%zu MiB", mib);
    if (make_data(&c->data, mib, options->size, options->rank) != 0)
        MPI_Abort(MPI_COMM_WORLD, 1);
    *wire = check(c, scatters, &wrong);
    for (unsigned i = 0; i < (scatters ? 3 : 2); i++) {
        race_entry e = scatters ? SCATTER[i] : GATHER[i];
        e.ctx = c;
        e.elements = (double)c->data.count;
        e.yardstick = -1;
        e.calls = (unsigned)(CALLS_BYTES / (mib << 20));
        e.calls = e.calls ? e.calls : 1;
        race_add(out, e);
    }
    run_rounds(out, options->run.rounds, deadline);
    free_data(&c->data);
    wrong |= c->failed;
    MPI_Allreduce(&wrong, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (any && options->rank == 0)
        fprintf(stderr, "comm: %s of %s: the result is not that of MPI\n", out->part, out->label);
    return any ? -1 : 0;
}

/* ---- report ---- */

/* The contestant with the least median beside ours. */
static int fastest(const race *r)
{
    int best = -1;
    double least = INFINITY;
    for (unsigned i = OURS + 1; i < r->count; i++) {
        unsigned count;
        const bench_spread spread = race_spread(r, (int)i, &count);
        if (count && spread.median < least) {
            least = spread.median;
            best = (int)i;
        }
    }
    return best;
}

static void judge(const race *r, double wire, bench_figures *out)
{
    const int scatters = strcmp(r->part, "scatter") == 0, rival = fastest(r);
    char name[48];
    snprintf(name, sizeof name, "%s_vs_mpi_%.*smib", scatters ? "reduce_scatter" : "all_gather", (int)strcspn(r->label, " "),
             r->label);
    bench_figure *f = bench_figures_add(out, name, 1, 0.9,
                                        scatters ? "speed against the faster of two MPI_Reduce_scatter of as many elements"
                                                 : "speed against MPI_Allgather of as many bytes",
                                        "no round ended in its time");
    if (rival >= 0) {
        const race_ratio ratio = race_compare(r, rival, OURS);
        bench_figures_set(f, ratio.median, ratio.pairs);
    }
    snprintf(name, sizeof name, "%s_bytes_%.*smib", scatters ? "reduce_scatter" : "all_gather", (int)strcspn(r->label, " "),
             r->label);
    f = bench_figures_add(out, name, -1, 1.0, "bytes that a rank has sent / (ranks - 1) / ranks of all",
                          "no operation was done");
    bench_figures_set(f, wire, 1);
}

static void judge_hidden(const race *r, bench_figures *out)
{
    static const struct {
        const char *name, *what;
        int entry;
    } SHARES[] = {{"hidden_share", "part of the exchange of gradients that is over when the last gradient is made", 0},
                  {"hidden_share_by_itself", "the same where a thread of the engine's asks, and not the trainer", 2}};
    for (size_t i = 0; i < sizeof SHARES / sizeof SHARES[0]; i++) {
        bench_figure *f = bench_figures_add(out, SHARES[i].name, 1, 0.8, SHARES[i].what, "no round ended in its time");
        if (!r->rounds)
            continue;
        const race_ratio ratio = race_compare(r, SHARES[i].entry, 1); /* time of the first over that of the second */
        bench_figures_set(f, 1 - ratio.median, ratio.pairs);
    }
}

static void print_race(FILE *out, const race *r)
{
    fprintf(out, "\n%s, %s: %u rounds\n%-12s %10s %10s %10s %8s\n", r->part, r->label, r->rounds, "", "min ms", "median ms",
            "max ms", "GB/s");
    for (unsigned i = 0; i < r->count; i++) {
        unsigned count;
        const bench_spread s = race_spread(r, (int)i, &count);
        fprintf(out, "%-12s %10.2f %10.2f %10.2f %8.2f  %s\n", r->entries[i].name, 1e3 * s.min, 1e3 * s.median, 1e3 * s.max,
                1e-9 * 2 * r->entries[i].elements / s.median, r->entries[i].what);
    }
}

static json_t *put_race(const race *r)
{
    json_t *rows = json_array();
    for (unsigned i = 0; i < r->count; i++) {
        unsigned count;
        json_t *row = json_pack("{s:s, s:s, s:o}", "name", r->entries[i].name, "what", r->entries[i].what, "seconds",
                                bench_json_samples(r, i));
        bench_json_spread(row, race_spread(r, (int)i, &count));
        json_array_append_new(rows, row);
    }
    return json_pack("{s:s, s:s, s:o}", "part", r->part, "size", r->label, "rows", rows);
}

static int report(const comm_options *options, const race *races, unsigned count, const bench_figures *figures)
{
    FILE *out = bench_run_table(&options->run);
    char library[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Get_library_version(library, &length);
    library[strcspn(library, ",\n")] = 0;
    fprintf(out, "%u ranks, %s; sizes are those of all elements in bf16, GB/s of them\n", options->size, library);
    for (unsigned i = 0; i < count; i++)
        print_race(out, &races[i]);
    fprintf(out, "\nratios, medians of paired rounds\n");
    bench_figures_print(out, figures);
    fprintf(out, "%.1f s\n", bench_stopwatch_now() - options->run.start);
    if (options->run.json_path) {
        json_t *list = json_array();
        for (unsigned i = 0; i < count; i++)
            json_array_append_new(list, put_race(&races[i]));
        json_t *root = json_pack("{s:s, s:o, s:s, s:i, s:o}", "bench", "comm", "machine", bench_json_machine(), "mpi", library,
                                 "ranks", (int)options->size, "races", list);
        bench_figures_put(root, figures, "rounds");
        if (bench_json_write(root, options->run.json_path) != 0)
            return 1;
    }
    return bench_figures_any(figures) ? 0 : 3;
}

/* ---- the program ---- */

static int no_option(int letter, const char *text, void *ctx)
{
    (void)letter;
    (void)text;
    (void)ctx;
    return -1;
}

static int run_all(const comm_options *options, contest *c)
{
    static race races[2 * COMM_SIZES + 1];
    static bench_figures figures;
    unsigned count = 0;
    int ret = 0;
    double wire;
    for (int scatters = 0; scatters < 2; scatters++) {
        for (unsigned i = 0; i < COMM_SIZES; i++) {
            if (!(options->run.parts & (scatters ? PART_SCATTER : PART_GATHER)))
                continue;
            const double share = (count + 1.0) / (2 * COMM_SIZES + 2);
            ret |= run_race(options, c, scatters, MIBS[i], bench_run_deadline(&options->run, share), &races[count], &wire);
            judge(&races[count++], wire, &figures);
        }
    }
    if (options->run.parts & PART_HIDDEN) {
        ret |= comm_hidden_run(options, bench_run_deadline(&options->run, 1), &races[count]);
        judge_hidden(&races[count++], &figures);
    }
    const int reported = options->rank == 0 ? report(options, races, count, &figures) : 0;
    return ret ? 1 : reported;
}

int main(int argc, char **argv)
{
    static const struct option OPTIONS[] = {{"full", no_argument, NULL, 'F'}, {NULL, 0, NULL, 0}};
    comm_options options = {.run = {.parts = 0}};
    contest c = {.failed = 0};
    const bench_program program = {.usage = USAGE, .options = OPTIONS, .parts = PARTS, .own = no_option};
    if (bench_program_parse(&program, argc, argv, &options.run) != 0)
        return 2;
    int rank, size, level, ret;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level); /* for the engine that has a thread */
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size < 2) {
        fprintf(stderr, "comm: one rank has nobody to talk to. Start it so: mpirun -n 2 %s --quick\n", argv[0]);
        MPI_Finalize();
        return 3;
    }
    options.rank = (unsigned)rank;
    options.size = (unsigned)size;
    options.run.start = bench_stopwatch_now();
    options.run.parts = options.run.parts ? options.run.parts : PART_ANY;
    options.run.rounds = options.run.rounds ? options.run.rounds : options.run.quick ? 7 : 25;
    options.run.seconds = options.run.seconds > 0 ? options.run.seconds : options.run.quick ? 40 : 300;
    zoff_log_set(bench_program_log, NULL);
    MPI_Type_contiguous(2, MPI_BYTE, &c.bf16);
    MPI_Type_commit(&c.bf16);
    MPI_Op_create(add_bf16, 1, &c.sum);
    if (zoff_comm_from_mpi(MPI_COMM_WORLD, NULL, &c.comm) < 0) {
        fprintf(stderr, "comm: %s\n", zoff_last_error());
        ret = 1;
    } else {
        ret = run_all(&options, &c);
        zoff_comm_close(c.comm);
    }
    MPI_Op_free(&c.sum);
    MPI_Type_free(&c.bf16);
    MPI_Finalize();
    return ret;
}
