/* comm.c: the speed of operations over ranks beside MPI's own collectives: the same sizes, in turns, within the same seconds. A
 * sample is the time of the slowest rank. */
#include "comm_bench.h"

#include <stdlib.h>
#include <string.h>

static const char USAGE[] =
    "usage: mpirun -n RANKS comm [OPTION]...\n"
    "Times zoff's all_gather and reduce_scatter (an exchange of bf16 pieces, summed in rank order in fp32) over messages "
    "beside\n"
    "MPI_Allgather and the faster of two MPI_Reduce_scatter (float; bf16 with an operation of its own) of as many elements.\n"
    "hidden: gradients over a link of 200 MB/s while a timed wait stands for the device that makes them.\n"
    "fetches: the engine's weights over that link, gathered behind such a wait.\n"
    "  --only LIST     parts: gather, scatter, hidden, fetches (default: all)\n";

enum { SIZES = 3, CALLS_BYTES = 32 << 20 };    /* a sample moves at least this many bytes */
static const size_t MIBS[SIZES] = {1, 16, 64}; /* size of all elements in bf16 */

typedef struct contest {
    zoff_comm *comm;
    comm_data data;
    MPI_Datatype bf16;
    MPI_Op sum;
} contest;

/* --- contestants --- */

static void add_bf16(void *in, void *inout, int *count, MPI_Datatype *type)
{
    const uint16_t *a = in;
    uint16_t *b = inout;
    for (int i = 0; i < *count; i++)
        b[i] = bench_bf16(bench_from_bf16(a[i]) + bench_from_bf16(b[i]));
}

enum { OURS, MPI, MPI_BF16 };

static int gather(void *ctx, int which)
{
    contest *c = ctx;
    const int bytes = (int)c->data.bytes[0];
    if (which == OURS)
        return comm_ours_gather(c->comm, &c->data);
    MPI_Allgather(c->data.pieces, bytes, MPI_BYTE, c->data.whole, bytes, MPI_BYTE, MPI_COMM_WORLD);
    return 0;
}

static int scatter(void *ctx, int which)
{
    contest *c = ctx;
    if (which == OURS)
        return comm_ours_scatter(c->comm, &c->data);
    if (which == MPI)
        MPI_Reduce_scatter(c->data.floats, c->data.sums, c->data.counts, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    else
        MPI_Reduce_scatter(c->data.whole, c->data.pieces, c->data.counts, c->bf16, c->sum, MPI_COMM_WORLD);
    return 0;
}

enum { PART_GATHER = 1, PART_SCATTER = 2, PART_HIDDEN = 4, PART_FETCHES = 8, PART_ANY = 15 };
static const race_line CONTESTANTS[] = {{"zoff", "all_gather", 2, gather, OURS, PART_GATHER},
                                        {"mpi", "MPI_Allgather", 2, gather, MPI, PART_GATHER},
                                        {"zoff", "exchange of bf16 and sum in fp32", 2, scatter, OURS, PART_SCATTER},
                                        {"mpi_float", "MPI_Reduce_scatter", 2, scatter, MPI, PART_SCATTER},
                                        {"mpi_bf16", "the same with an operation for bf16", 2, scatter, MPI_BF16, PART_SCATTER},
                                        {NULL}};

/* --- one race --- */

static int make_data(comm_data *d, size_t mib, unsigned size, unsigned rank)
{
    *d = (comm_data){.share = (mib << 19) / size};
    d->count = d->share * size;
    const size_t halves = d->count * sizeof *d->whole, floats = d->count * sizeof *d->floats, lists = size * sizeof *d->bytes;
    if (bench_streams_open(2 * (halves + floats + lists), 6, true, &d->mapping) != 0)
        return -1;
    d->whole = bench_streams_take(&d->mapping, halves);
    d->pieces = bench_streams_take(&d->mapping, halves);
    d->sums = bench_streams_take(&d->mapping, floats);
    d->floats = bench_streams_take(&d->mapping, floats);
    d->bytes = bench_streams_take(&d->mapping, lists);
    d->counts = bench_streams_take(&d->mapping, lists);
    for (unsigned i = 0; i < size; i++) {
        d->bytes[i] = d->share * sizeof *d->whole;
        d->counts[i] = (int)d->share;
    }
    for (size_t i = 0; i < d->count; i++) { /* their sums are exact in bf16 */
        d->floats[i] = (float)((i + rank) % 5);
        d->whole[i] = d->pieces[i] = bench_bf16(d->floats[i]);
    }
    return 0;
}

double comm_slowest(double own)
{
    double slowest = own;
    MPI_Allreduce(&own, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
}

int comm_rounds(const comm_options *options, race *r, double deadline)
{
    int ret = 0, late = 0;
    while (ret == 0 && r->rounds < options->run.rounds && !late) {
        ret = race_round(r, deadline);
        late = bench_now() > deadline;
        MPI_Bcast(&late, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    return ret;
}

/* Seconds of one call, on the slowest rank. A rank that fails continues: the others would wait for it. */
static double sample(race *r, race_entry *e, double deadline)
{
    bool *failed = r->user;
    MPI_Barrier(MPI_COMM_WORLD);
    const double from = bench_now();
    for (unsigned i = 0; i < e->calls; i++)
        *failed = e->work.run(e->work.ctx, e->work.which) != 0 || *failed;
    return comm_slowest((bench_now() - from) / e->calls);
}

/* Check that our result equals MPI's. Return the bytes that one operation sends over those that it must send. */
static double check(contest *c, bool scatters, bool *wrong)
{
    comm_data *d = &c->data;
    const double least = (double)d->share * sizeof *d->whole * (zoff_comm_size(c->comm) - 1);
    const size_t bytes = scatters ? d->share * sizeof *d->sums : d->count * sizeof *d->whole;
    const bench_work_fn run = scatters ? scatter : gather;
    zoff_comm_info before = {.struct_size = sizeof before}, after = {.struct_size = sizeof after};
    void *result = scatters ? (void *)d->sums : (void *)d->whole, *copy = malloc(bytes);
    if (!copy)
        MPI_Abort(MPI_COMM_WORLD, 1);
    run(c, MPI);
    memcpy(copy, result, bytes);
    memset(result, 0, bytes);
    zoff_comm_get_info(c->comm, &before);
    *wrong = run(c, OURS) != 0;
    zoff_comm_get_info(c->comm, &after);
    *wrong = *wrong || memcmp(copy, result, bytes) != 0;
    free(copy);
    return (double)(after.sent_bytes - before.sent_bytes) / least;
}

static int run_race(const comm_options *options, contest *c, bool scatters, size_t mib, double deadline, race *r, double *wire)
{
    const unsigned calls = (unsigned)(CALLS_BYTES / (mib << 20));
    bool wrong = false, failed = false;
    if (make_data(&c->data, mib, options->size, options->rank) != 0)
        MPI_Abort(MPI_COMM_WORLD, 1);
    *wire = check(c, scatters, &wrong);
    r->sample = sample;
    r->user = &failed;
    race_add_lines(r, CONTESTANTS, scatters ? PART_SCATTER : PART_GATHER, (double)c->data.count, c, calls ? calls : 1);
    for (race_entry *e = r->entries; e < r->entries + r->count; e++)
        (void)sample(r, e, deadline); /* first use: pages and connections */
    comm_rounds(options, r, deadline);
    bench_streams_close(&c->data.mapping);
    if (comm_slowest(wrong || failed) == 0)
        return 0;
    return options->rank == 0 ? bench_fail("%s of %s: the result is not that of MPI", r->part, r->label) : -1;
}

/* --- figures --- */

static void judge(const race_book *book, const race *r, bool scatters, size_t mib, double wire, bench_figures *out)
{
    const char *operation = scatters ? "reduce_scatter" : "all_gather", *rival = scatters ? "mpi_float" : "mpi";
    char speed[48], bytes[48], formula[32], name[96];
    if (scatters && race_median(r, "mpi_bf16") < race_median(r, rival))
        rival = "mpi_bf16";
    snprintf(speed, sizeof speed, "%s_vs_mpi_%zumib", operation, mib);
    snprintf(bytes, sizeof bytes, "%s_bytes_%zumib", operation, mib);
    snprintf(formula, sizeof formula, "%s / zoff", rival);
    snprintf(name, sizeof name, "%s/%s", r->part, r->label);
    const bench_asked asked[] = {{speed, 1, 0.9,
                                  scatters ? "speed against the faster of two MPI_Reduce_scatter of as many elements"
                                           : "speed against MPI_Allgather of as many bytes",
                                  name, formula},
                                 {bytes, -1, 1.0, "bytes that a rank has sent / (ranks - 1) / ranks of all"}};
    bench_figures_set(bench_figures_add(out, asked, 2, book) + 1, wire, 1);
}

/* clang-format off */
static const bench_asked HIDDEN[] = {
    {"hidden_share", 1, 0.8, "part of the exchange of gradients that is over when the last gradient is made", "hidden", "1 - at_once / at_the_end"},
    {"hidden_share_by_itself", 1, 0.8, "the same where a thread of the engine's asks, and not the trainer", "hidden", "1 - by_itself / at_the_end"}};
static const bench_asked FETCHES[] = {
    {"fetches_hidden_share", 1, 0.8, "part of the gathers of weights that a computation of 1.5 times their length hides", "fetches", "1 - at_once / alone"},
    {"fetches_hidden_share_by_itself", 1, 0.8, "the same where a thread of the engine's asks, and not the trainer", "fetches", "1 - by_itself / alone"}};
/* clang-format on */

static int report(const comm_options *options, const race_book *book, const bench_figures *figures)
{
    char library[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Get_library_version(library, &length);
    library[strcspn(library, ",\n")] = 0;
    fprintf(bench_run_table(&options->run), "%u ranks, %s; sizes are those of all elements in bf16, GB/s of them\n",
            options->size, library);
    return bench_report(&options->run, json_pack("{s:s, s:i}", "mpi", library, "ranks", (int)options->size), book, figures,
                        "rounds");
}

/* --- the program --- */

static int run_all(const comm_options *options, contest *c)
{
    static race_book book;
    static bench_figures figures = {.missing = "no round ended in its time"};
    int ret = 0;
    double wire;
    for (unsigned i = 0; i < 2 * SIZES; i++) {
        const bool scatters = i >= SIZES;
        const size_t mib = MIBS[i % SIZES];
        if (!(options->run.parts & (scatters ? PART_SCATTER : PART_GATHER)))
            continue;
        race *r = race_open(&book, scatters ? "scatter" : "gather", "%zu MiB", mib);
        const double share = book.count / (2 * SIZES + 2.0);
        ret |= run_race(options, c, scatters, mib, bench_run_deadline(&options->run, share), r, &wire);
        judge(&book, r, scatters, mib, wire, &figures);
    }
    if (options->run.parts & PART_HIDDEN) {
        race *r = race_open(&book, "hidden", "32 MiB");
        ret |=
            comm_beside_run(options, false, bench_run_deadline(&options->run, options->run.parts & PART_FETCHES ? 0.9 : 1), r);
        bench_figures_add(&figures, HIDDEN, BENCH_COUNT(HIDDEN), &book);
    }
    if (options->run.parts & PART_FETCHES) {
        race *r = race_open(&book, "fetches", "32 MiB");
        ret |= comm_beside_run(options, true, bench_run_deadline(&options->run, 1), r);
        bench_figures_add(&figures, FETCHES, BENCH_COUNT(FETCHES), &book);
    }
    const int reported = options->rank == 0 ? report(options, &book, &figures) : 0;
    race_book_free(&book);
    return ret ? 1 : reported;
}

int main(int argc, char **argv)
{
    static const bench_word PARTS[] = {
        {"gather", PART_GATHER}, {"scatter", PART_SCATTER}, {"hidden", PART_HIDDEN}, {"fetches", PART_FETCHES}, {NULL}};
    static const bench_default DEFAULTS[] = {{PART_ANY, 25, 300}, {PART_ANY, 7, 40}};
    static const bench_option NONE = {.name = NULL};
    comm_options options = {.run = {.parts = 0}};
    contest c = {.comm = NULL};
    if (bench_program_parse(argc, argv, USAGE, &NONE, PARTS, DEFAULTS, &options.run) != 0)
        return 2;
    int rank, size, level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level); /* one of the engines has a thread */
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size < 2) {
        bench_fail("one rank has nobody to talk to. Start it so: mpirun -n 2 %s --quick", argv[0]);
        MPI_Finalize();
        return 3;
    }
    options.rank = (unsigned)rank;
    options.size = (unsigned)size;
    options.run.start = bench_now();
    MPI_Type_contiguous(2, MPI_BYTE, &c.bf16);
    MPI_Type_commit(&c.bf16);
    MPI_Op_create(add_bf16, 1, &c.sum);
    int ret = bench_told(zoff_comm_from_mpi(MPI_COMM_WORLD, NULL, &c.comm));
    ret = ret == 0 ? run_all(&options, &c) : 1;
    zoff_comm_close(c.comm);
    MPI_Op_free(&c.sum);
    MPI_Type_free(&c.bf16);
    MPI_Finalize();
    return ret;
}
