/* SPDX-License-Identifier: Apache-2.0 */
/* comm.c: the speed of operations over ranks beside MPI's own collectives: the same sizes, in turns, within the same seconds. A
 * sample is the time of the slowest rank. Every rank runs all of it; rank 0 decides and reports. */
#include "report.h"
#include "streams.h"

/* Include this first: it decides how <mpi.h> is included. */
#include <zoff/mpi.h>

#include "comm.h"
#include "cpu_adam.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PART_GATHER = 1, PART_SCATTER = 2, PART_HIDDEN = 4, PART_FETCHES = 8, PART_SUMS = 16, PART_ANY = 31 };
enum { SIZES = 3, CALLS_BYTES = 32 << 20 };    /* a sample moves at least this many bytes */
static const size_t MIBS[SIZES] = {1, 16, 64}; /* size of all elements in bf16 */

static struct {
    unsigned rank, size;
    zoff_comm *comm;
    /* Memory of a rank: bf16 elements, divided evenly over the ranks. */
    size_t count, share; /* elements: all, and those of one rank */
    uint16_t *whole;     /* operand of the exchange, result of the gather */
    uint16_t *pieces;    /* one piece of this rank's share from each rank; operand of the gather */
    float *sums;         /* sums of this rank's share, in fp32 */
    float *floats;       /* `whole` in fp32 */
    size_t *bytes;       /* bytes of the share, for each rank */
    int *counts;         /* elements of the share, for each rank */
    MPI_Datatype bf16;
    MPI_Op sum;
    double wire[2 * SIZES]; /* bytes that an operation sends over those that it must send */
} own;

static const char *over = "mpi";

BENCH_CLOSER(close_comm, zoff_comm_close(x))

/* --- contestants --- */

/* zoff's operations as the engine calls them are not in the public headers, so this file uses internal ones. */
static void run_call(const zoff_comm_call *call)
{
    zoff_comm_work work = {0};
    bench_must(zoff_comm_start(own.comm, call, &work));
    bench_must(zoff_comm_wait(own.comm, &work));
}

static void add_bf16(void *in, void *inout, int *count, MPI_Datatype *type)
{
    const uint16_t *a = in;
    uint16_t *b = inout;
    for (int i = 0; i < *count; i++)
        b[i] = bench_bf16(bench_from_bf16(a[i]) + bench_from_bf16(b[i]));
}

enum { OURS, MPI, MPI_BF16 };

static void gather(void *ctx, int which)
{
    const int bytes = (int)own.bytes[0];
    zoff_comm_call call = {.kind = ZOFF_COMM_GATHER, .stream = ZOFF_COMM_WEIGHTS, .in = own.pieces, .out = own.whole};
    call.receive_bytes = own.bytes;
    if (which == OURS)
        run_call(&call);
    else
        MPI_Allgather(own.pieces, bytes, MPI_BYTE, own.whole, bytes, MPI_BYTE, MPI_COMM_WORLD);
}

/* Exchange 16-bit pieces and add them in fp32, in rank order, as zoff does. */
static void scatter(void *ctx, int which)
{
    zoff_comm_call call = {.kind = ZOFF_COMM_EXCHANGE, .stream = ZOFF_COMM_REDUCE, .in = own.whole, .out = own.pieces};
    call.send_bytes = call.receive_bytes = own.bytes;
    if (which == OURS)
        run_call(&call);
    for (unsigned rank = 0; rank < own.size && which == OURS; rank++) {
        const zoff_accumulate_piece piece = {
            .count = own.share, .sum = own.sums, .grad = own.pieces + rank * own.share, .dtype = ZOFF_BF16, .first = rank == 0};
        zoff_adam_accumulate_run(1, &piece, 1, NULL, NULL);
    }
    if (which == MPI)
        MPI_Reduce_scatter(own.floats, own.sums, own.counts, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    if (which == MPI_BF16)
        MPI_Reduce_scatter(own.whole, own.pieces, own.counts, own.bf16, own.sum, MPI_COMM_WORLD);
}

static const race_line CONTESTANTS[] = {{"zoff", "all_gather", 2, gather, OURS, PART_GATHER},
                                        {"mpi", "MPI_Allgather", 2, gather, MPI, PART_GATHER},
                                        {"zoff", "exchange of bf16 and sum in fp32", 2, scatter, OURS, PART_SCATTER},
                                        {"mpi_float", "MPI_Reduce_scatter", 2, scatter, MPI, PART_SCATTER},
                                        {"mpi_bf16", "the same with an operation for bf16", 2, scatter, MPI_BF16, PART_SCATTER},
                                        {NULL}};

static void make_data(size_t mib)
{
    own.share = (mib << 19) / own.size;
    own.count = own.share * own.size;
    const size_t halves = own.count * sizeof *own.whole, floats = own.count * sizeof *own.floats;
    own.whole = bench_array(halves, true);
    own.pieces = bench_array(halves, true);
    own.sums = bench_array(floats, true);
    own.floats = bench_array(floats, true);
    own.bytes = bench_array(own.size * sizeof *own.bytes, true);
    own.counts = bench_array(own.size * sizeof *own.counts, true);
    for (unsigned i = 0; i < own.size; i++) {
        own.bytes[i] = own.share * sizeof *own.whole;
        own.counts[i] = (int)own.share;
    }
    for (size_t i = 0; i < own.count; i++) { /* sums of these numbers are exact in bf16 */
        own.floats[i] = (float)((i + own.rank) % 5);
        own.whole[i] = own.pieces[i] = bench_bf16(own.floats[i]);
    }
}

/* The maximum over all ranks, because the slowest one decides. */
static double slowest_of(double seconds)
{
    double slowest = seconds;
    MPI_Allreduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
}

/* Rank 0's clock decides for all, otherwise one rank would wait in a round that the others do not take. */
static bool agree(bool late)
{
    int all = late;
    MPI_Bcast(&all, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return all;
}

/* Seconds of one call, on the slowest rank. */
static double sample(race *r, race_entry *e, double deadline)
{
    MPI_Barrier(MPI_COMM_WORLD);
    const double from = bench_now();
    for (unsigned i = 0; i < e->calls; i++)
        e->work.run(e->work.ctx, e->work.which);
    return slowest_of((bench_now() - from) / e->calls);
}

/* Check that our result equals MPI's. Return the bytes that one operation sends over those that it must send. */
static double check(const race *r, bool scatters)
{
    const double least = (double)own.share * sizeof *own.whole * (own.size - 1);
    const size_t bytes = scatters ? own.share * sizeof *own.sums : own.count * sizeof *own.whole;
    const bench_work_fn run = scatters ? scatter : gather;
    zoff_comm_info before = {.struct_size = sizeof before}, after = {.struct_size = sizeof after};
    void *result = scatters ? (void *)own.sums : (void *)own.whole, *copy = bench_array(bytes, true);
    run(NULL, MPI);
    memcpy(copy, result, bytes);
    memset(result, 0, bytes);
    zoff_comm_get_info(own.comm, &before);
    run(NULL, OURS);
    zoff_comm_get_info(own.comm, &after);
    if (slowest_of(memcmp(copy, result, bytes) != 0) > 0)
        bench_die("%s of %s: the result is not that of MPI", r->part, r->label);
    return (double)(after.sent_bytes - before.sent_bytes) / least;
}

static void run_races(const bench_part *part)
{
    const bool scatters = part->bit == PART_SCATTER;
    for (unsigned i = 0; i < SIZES; i++) {
        const size_t mark = bench_opened();
        const double now = bench_now();
        const unsigned calls = (unsigned)(CALLS_BYTES / (MIBS[i] << 20));
        race *r = race_open(part->name, bench_text("%zu MiB", MIBS[i]));
        make_data(MIBS[i]);
        own.wire[scatters * SIZES + i] = check(r, scatters);
        r->sample = sample;
        r->least = 1;
        race_add_lines(r, CONTESTANTS, part->bit, (double)own.count, NULL, calls ? calls : 1);
        for (race_entry *e = r->entries; e < r->entries + r->count; e++)
            (void)sample(r, e, 0); /* first use: pages and connections */
        race_run(r, (unsigned)bench.rounds, now + (bench.deadline - now) / (SIZES - i));
        bench_close(mark);
    }
}

/* --- the sums of one rank, in order and exact --- */

/* Elements whose arrays do not lie multiples of 4 KiB apart, where they would compete for the same sets of a cache. */
enum { TERMS = 8, IN_L2 = 4160, IN_MEMORY = 4160 << 10, JOINED_BYTES = 7 };
enum { ORDERED, EXACT, EXACT_MEMORY, JOIN, ONTO };

static struct {
    uint16_t *terms;
    float *out;
    char *joined, *accumulators;
} sums;

/* A sum with digits of 3 or 4 bytes. */
static zoff_bins bins_at(char *at, unsigned width)
{
    return (zoff_bins){at, at + (size_t)width * IN_L2, (uint8_t *)at + 2 * (size_t)width * IN_L2, width};
}

static void add_terms(void *ctx, int which)
{
    const size_t count = which == EXACT_MEMORY ? IN_MEMORY : IN_L2, stride = count * sizeof *sums.terms;
    const zoff_accumulate_piece ordered = {count, sums.out, sums.terms, ZOFF_BF16, true, TERMS, stride, NULL};
    zoff_bins_piece exact = {.count = count, .first = true, .terms = sums.terms, .dtype = ZOFF_BF16, .stride = stride};
    zoff_bins parts[TERMS];
    for (size_t i = 0; i < TERMS; i++)
        parts[i] = bins_at(sums.joined + i * JOINED_BYTES * IN_L2, 3);
    exact.out = which == ONTO ? NULL : sums.out;
    exact.sources = which == JOIN ? 0 : which == ONTO ? 1 : TERMS;
    if (which == JOIN) {
        exact.to.width = 3;
        exact.parts = parts;
        exact.part_count = TERMS;
    } else if (which == ONTO) {
        exact.to = bins_at(sums.accumulators, 4);
        exact.first = false;
    }
    if (which == ORDERED)
        zoff_adam_accumulate_run(1, &ordered, 1, NULL, NULL);
    else
        zoff_adam_bins_run(1, &exact, 1, NULL, NULL);
}

static void run_sums(const bench_part *part)
{
    static const race_line LINES[] = {{"ordered", "8 bf16 terms in L2, a chain in fp32", 2, add_terms, ORDERED},
                                      {"exact", "the same terms, exact", 2, add_terms, EXACT},
                                      {"exact_memory", "8 bf16 terms in memory, exact", 2, add_terms, EXACT_MEMORY},
                                      {"join", "8 exact sums of 24 bits in L2", JOINED_BYTES, add_terms, JOIN},
                                      {"onto", "one bf16 term onto accumulators of 9 bytes in L2", 20, add_terms, ONTO}};
    race *r = race_open(part->name, "a term or sum of one thread");
    sums.terms = bench_array((size_t)TERMS * IN_MEMORY * sizeof *sums.terms, true);
    sums.out = bench_array((size_t)IN_MEMORY * sizeof *sums.out, true);
    sums.joined = bench_array((size_t)TERMS * JOINED_BYTES * IN_L2, true);
    sums.accumulators = bench_array((size_t)9 * IN_L2, true);
    for (size_t i = 0; i < (size_t)TERMS * IN_MEMORY; i++) /* of both signs, over 16 powers of two */
        sums.terms[i] = (uint16_t)((i * 40503 >> 3 & 0x807f) | (112 + (i * 2654435761u >> 20) % 16) << 7);
    for (size_t i = 0; i < TERMS; i++) {
        const zoff_bins_piece piece = {.count = IN_L2,
                                       .to = bins_at(sums.joined + i * JOINED_BYTES * IN_L2, 3),
                                       .first = true,
                                       .terms = sums.terms + i * IN_L2,
                                       .dtype = ZOFF_BF16,
                                       .sources = 1};
        zoff_adam_bins_run(1, &piece, 1, NULL, NULL);
    }
    r->sample = sample;
    r->least = 1;
    for (size_t i = 0; i < BENCH_COUNT(LINES); i++) {
        const double count = LINES[i].which == EXACT_MEMORY ? IN_MEMORY : IN_L2;
        race_add(r, &LINES[i], LINES[i].which == ONTO ? count : TERMS * count, NULL, LINES[i].which == EXACT_MEMORY ? 1 : 200);
    }
    race_run(r, (unsigned)bench.rounds, bench.deadline);
}

/* clang-format off */
static const bench_asked SUMS[] = {
    {"exact_vs_ordered", -1, 4, "time of an exact sum of 8 bf16 terms in L2 / of a chain in fp32", "sums", "exact / ordered", 0},
    {"exact_ns", -1, 0.55, "ns a term, 8 bf16 terms in L2, one thread", "sums", "1e9 * exact / exact.elements", 0},
    {"exact_memory_ns", -1, 0.42, "the same terms in memory", "sums", "1e9 * exact_memory / exact_memory.elements", 0},
    {"join_ns", -1, 0.65, "ns a sum of 24 bits that is joined", "sums", "1e9 * join / join.elements", 0},
    {"onto_ns", -1, 1.1, "ns of one term onto accumulators of 9 bytes", "sums", "1e9 * onto / onto.elements", 0}};
/* clang-format on */

/* --- a link of a given rate, around the transport of zoff/mpi.h --- */

/* A message waits in a queue until the link has had time for it and for those before it. Then MPI sends it. Messages move only
 * when a rank polls. */
typedef struct link_message {
    struct link_message *next; /* next message in the queue */
    double due;
    int is_waiting, tag;
    unsigned to;
    const void *data;
    size_t bytes;
    void *request; /* request of MPI, once the message is sent */
} link_message;

typedef struct link {
    zoff_comm_transport inner;
    double rate, free_at;
    link_message *first, **last;
} link;

/* Send in order, because two messages with one tag would change places otherwise. */
static int send_due(link *l)
{
    while (l->first && bench_now() >= l->first->due) {
        link_message *m = l->first;
        if (l->inner.send(l->inner.ctx, m->to, m->tag, m->data, m->bytes, &m->request) < 0)
            return -1;
        m->is_waiting = 0;
        l->first = m->next;
        if (!l->first)
            l->last = &l->first;
    }
    return 0;
}

static int link_send(void *ctx, unsigned to, int tag, const void *data, size_t bytes, void **out_request)
{
    link *l = ctx;
    link_message *m = calloc(1, sizeof *m);
    const double now = bench_now();
    if (!m)
        return -1;
    l->free_at = (l->free_at > now ? l->free_at : now) + (double)bytes / l->rate;
    *m = (link_message){.due = l->free_at, .is_waiting = 1, .tag = tag, .to = to, .data = data, .bytes = bytes};
    *l->last = m;
    l->last = &m->next;
    *out_request = m;
    return send_due(l);
}

static int link_receive(void *ctx, unsigned from, int tag, void *data, size_t bytes, void **out_request)
{
    link *l = ctx;
    link_message *m = calloc(1, sizeof *m);
    if (!m)
        return -1;
    *out_request = m;
    return l->inner.receive(l->inner.ctx, from, tag, data, bytes, &m->request);
}

static int link_test(void *ctx, void **request)
{
    link *l = ctx;
    link_message *m = *request;
    if (send_due(l) < 0)
        return -1;
    const int done = m->is_waiting ? 0 : l->inner.test(l->inner.ctx, &m->request);
    if (done == 1) {
        free(m);
        *request = NULL;
    }
    return done;
}

static int link_cancel(void *ctx, void **request)
{
    link *l = ctx;
    link_message *m = *request;
    return l->inner.cancel(l->inner.ctx, &m->request);
}

static const char *link_error(void *ctx)
{
    link *l = ctx;
    return l->inner.error(l->inner.ctx);
}

static void link_close(void *ctx, int clean)
{
    link *l = ctx;
    l->inner.close(l->inner.ctx, clean);
    free(l);
}

static zoff_comm *open_link(double bytes_per_second)
{
    link *l = calloc(1, sizeof *l);
    zoff_comm *comm;
    if (!l)
        bench_die("no memory for a link");
    zoff_mpi_connect(MPI_COMM_WORLD, &l->inner);
    l->rate = bytes_per_second;
    l->last = &l->first;
    zoff_comm_transport limited = l->inner;
    limited.name = "mpi over a limited link";
    limited.ctx = l;
    limited.send = link_send;
    limited.receive = link_receive;
    limited.test = link_test;
    limited.cancel = link_cancel;
    limited.error = link_error;
    limited.close = link_close;
    bench_must(zoff_comm_open_transport(NULL, &limited, &comm));
    bench_later(close_comm, comm, 0);
    return comm;
}

/* --- how much of an exchange is hidden behind the computation beside it --- */

/* The computation is a timed wait, as a trainer waits for its device. During it the trainer calls the engine every millisecond,
 * or leaves that to the engine's thread. The link has a rate, so that an exchange takes as long as between hosts.
 *
 * "hidden": gradients, behind the computation that produces them. The same micro-batch runs with all gradients at its end, and
 * with each one as soon as it exists. A sample is the time from its end to the end of the exchange. "fetches": weights of the
 * engine (ZeRO-3), behind the computation that uses them. A pass fetches slice after slice, and releases each after its wait. A
 * sample is the time of a pass beyond its waits, beside a pass without waits. */
enum { SLICES = 16, ELEMENTS = 1 << 20, ENGINES = 2 };
enum { AT_ONCE, AT_THE_END, BY_ITSELF };
static const double RATE = 200e6; /* bytes per second of the link */

/* Three slices fit, the one in use and two that are prefetched. */
static const char CONFIG_GRADS[] = "{\"gradient_accumulation_steps\": 1000000, \"zero_optimization\": {\"stage\": 2, "
                                   "\"reduce_bucket_size\": 1048576}}";
static const char CONFIG_WEIGHTS[] =
    "{\"gradient_accumulation_steps\": 1000000, \"zero_optimization\": {\"stage\": 3, \"reduce_bucket_size\": 1048576, "
    "\"stage3_max_live_parameters\": 3145728, \"stage3_prefetch_bucket_size\": 2097152, "
    "\"stage3_param_persistence_threshold\": 0}}";

/* Two engines; the second one has a thread that advances it. */
static struct {
    zoff_engine *engines[ENGINES];
    bool fetches;
    double seconds; /* of the computation */
} beside;

/* Stand in for a trainer while its device computes a slice, and advance an engine every millisecond; NULL: none. */
static void compute(zoff_engine *e, double seconds)
{
    const double end = bench_now() + seconds / SLICES;
    while (bench_now() < end) {
        if (e)
            (void)zoff_engine_progress(e);
        bench_sleep(1e-3);
    }
}

/* Seconds from the end of the computation to the end of the exchange. */
static double micro_batch(zoff_engine *e, int which, double seconds)
{
    for (int slice = SLICES; slice-- > 0;) { /* slices in the order of a backward pass */
        compute(which == BY_ITSELF ? NULL : e, seconds);
        if (which != AT_THE_END)
            bench_must(zoff_grad_ready(e, 0, (size_t)slice, NULL));
    }
    const double from = bench_now();
    bench_must(zoff_step(e, NULL, NULL));
    return bench_now() - from;
}

/* Seconds of a pass beyond its waits. */
static double pass(zoff_engine *e, int which, double seconds)
{
    double waited = 0;
    const double from = bench_now();
    for (size_t slice = 0; slice < SLICES; slice++) {
        const void *lent;
        bench_must(zoff_param_fetch(e, 0, slice, NULL, &lent));
        const double begun = bench_now();
        if (which != AT_THE_END)
            compute(which == BY_ITSELF ? NULL : e, seconds);
        waited += bench_now() - begun;
        bench_must(zoff_param_release(e, 0, slice, NULL));
    }
    const double took = bench_now() - from - waited;
    bench_must(zoff_step(e, NULL, NULL)); /* the next pass begins: the order is known */
    return took;
}

/* Take a turn. Returns the seconds on the slowest rank. */
static double take_turn(unsigned engine, int which, double seconds)
{
    MPI_Barrier(MPI_COMM_WORLD);
    return slowest_of((beside.fetches ? pass : micro_batch)(beside.engines[engine], which, seconds));
}

static double sample_beside(race *r, race_entry *e, double deadline)
{
    return take_turn(e->work.which == BY_ITSELF, e->work.which, beside.seconds);
}

static const race_line BESIDE[] = {
    {"at_once", "each gradient as it is made", 2, NULL, AT_ONCE, PART_HIDDEN},
    {"at_the_end", "all of them after the last", 2, NULL, AT_THE_END, PART_HIDDEN},
    {"by_itself", "each as it is made, and the trainer does not ask: a thread does", 2, NULL, BY_ITSELF, PART_HIDDEN},
    {"alone", "fetches, one after the other", 2, NULL, AT_THE_END, PART_FETCHES},
    {"at_once", "the rest beyond the waits; the trainer asks", 2, NULL, AT_ONCE, PART_FETCHES},
    {"by_itself", "the same, and a thread of the engine's asks", 2, NULL, BY_ITSELF, PART_FETCHES},
    {NULL}};

static void run_beside(const bench_part *part)
{
    const bool fetches = part->bit == PART_FETCHES;
    const double multiple = fetches ? 1.5 : 2; /* computation as a multiple of the exchange alone */
    const size_t bytes = (size_t)SLICES * ELEMENTS * sizeof(uint16_t);
    race *r = race_open(part->name, "32 MiB");
    uint16_t *weights = bench_array(bytes, true), *grads = fetches ? NULL : bench_array(bytes, true);
    zoff_param_desc param = bench_param(weights, grads, ELEMENTS, SLICES, ZOFF_BF16);
    param.engine_owned = fetches;
    beside.fetches = fetches;
    for (unsigned i = 0; i < ENGINES; i++) {
        const zoff_engine_opts opts = {.comm = open_link(RATE), .threads = 1, .progress_thread = i == 1};
        beside.engines[i] = bench_engine(fetches ? CONFIG_WEIGHTS : CONFIG_GRADS, opts, &param, 1);
    }
    for (unsigned i = 0; i < ENGINES; i++)
        (void)take_turn(i, AT_THE_END, 0); /* both engines learn the order */
    beside.seconds = multiple * fmin(take_turn(0, AT_THE_END, 0), take_turn(0, AT_THE_END, 0));
    MPI_Bcast(&beside.seconds, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    r->sample = sample_beside;
    r->least = 1;
    race_add_lines(r, BESIDE, part->bit, SLICES * (double)ELEMENTS, NULL, 1);
    race_run(r, (unsigned)bench.rounds, bench.deadline);
}

/* --- figures --- */

static void judge_race(const race *r, bool scatters, size_t mib, double wire)
{
    const char *operation = scatters ? "reduce_scatter" : "all_gather", *rival = scatters ? "mpi_float" : "mpi";
    if (scatters && race_median(r, "mpi_bf16") < race_median(r, rival))
        rival = "mpi_bf16";
    const bench_asked asked[] = {
        {bench_text("%s_vs_mpi_%zumib", operation, mib), 1, 0.9,
         scatters ? "speed against the faster of two MPI_Reduce_scatter of as many elements"
                  : "speed against MPI_Allgather of as many bytes",
         bench_text("%s/%s", r->part, r->label), bench_text("%s / zoff", rival)},
        {bench_text("%s_bytes_%zumib", operation, mib), -1, 1.0, "bytes that a rank has sent / (ranks - 1) / ranks of all"}};
    bench_figures_set(bench_figures_add(asked, 2) + 1, wire, 1);
}

/* clang-format off */
static const bench_asked HIDDEN[] = {
    {"hidden_share", 1, 0.8, "part of the exchange of gradients that is over when the last gradient is made", "hidden", "1 - at_once / at_the_end"},
    {"hidden_share_by_itself", 1, 0.8, "the same where a thread of the engine's asks, and not the trainer", "hidden", "1 - by_itself / at_the_end"}};
static const bench_asked FETCHES[] = {
    {"fetches_hidden_share", 1, 0.8, "part of the gathers of weights that a computation of 1.5 times their length hides", "fetches", "1 - at_once / alone"},
    {"fetches_hidden_share_by_itself", 1, 0.8, "the same where a thread of the engine's asks, and not the trainer", "fetches", "1 - by_itself / alone"}};
/* clang-format on */

static void judge(void)
{
    bench_figures.missing = "no round ended in its time";
    for (unsigned i = 0; i < 2 * SIZES; i++) {
        const race *r = race_of(bench_text("%s/%zu MiB", i < SIZES ? "gather" : "scatter", MIBS[i % SIZES]));
        if (r)
            judge_race(r, i >= SIZES, MIBS[i % SIZES], own.wire[i]);
    }
    if (bench.parts & PART_HIDDEN)
        bench_figures_add(HIDDEN, BENCH_COUNT(HIDDEN));
    if (bench.parts & PART_FETCHES)
        bench_figures_add(FETCHES, BENCH_COUNT(FETCHES));
    if (bench.parts & PART_SUMS) {
        bench_figure *ratio = bench_figures_add(SUMS, BENCH_COUNT(SUMS));
        ratio->asked.sense = strcmp(zoff_isa(), "avx512") == 0 ? 0 : ratio->asked.sense; /* a chain is twice as fast there */
    }
}

static json_t *describe(FILE *out)
{
    char library[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Get_library_version(library, &length);
    library[strcspn(library, ",\n")] = 0;
    fprintf(out, "%u ranks over %s, %s; sizes are those of all elements in bf16, GB/s of them\n", own.size, over, library);
    return json_pack("{s:s, s:i, s:s}", "mpi", library, "ranks", (int)own.size, "over", over);
}

/* --- the program --- */

static void give_up(void)
{
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void finalize(void *ctx, size_t value)
{
    MPI_Op_free(&own.sum);
    MPI_Type_free(&own.bf16);
    MPI_Finalize();
}

static void begin(char **argv)
{
    int rank, size, level;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level); /* one of the engines has a thread */
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Type_contiguous(2, MPI_BYTE, &own.bf16);
    MPI_Type_commit(&own.bf16);
    MPI_Op_create(add_bf16, 1, &own.sum);
    bench_later(finalize, NULL, 0);
    if (size < 2) {
        bench_fail("one rank has nobody to talk to. Start it so: mpirun -n 2 %s --quick", argv[0]);
        bench_end(3);
    }
    own.rank = (unsigned)rank;
    own.size = (unsigned)size;
    bench.silent = rank != 0;
    bench.start = bench_now();
    bench.abort = give_up;
    race_agree = agree;
    zoff_comm_opts opts = ZOFF_COMM_OPTS_INIT;
    opts.backend = over;
    bench_must(strcmp(over, "mpi") == 0 ? zoff_comm_from_mpi(MPI_COMM_WORLD, NULL, &own.comm)
                                        : zoff_comm_open(&opts, &own.comm));
    bench_later(close_comm, own.comm, 0);
}

int main(int argc, char **argv)
{
    static const bench_option OPTIONS[] = {
        {"over", "NAME", "mpi, or ucx with MASTER_ADDR and MASTER_PORT set (default: mpi)", .text = &over}, {NULL}};
    static const bench_part PARTS[] = {
        {"gather", PART_GATHER, run_races, {0.375, 0.375}}, {"scatter", PART_SCATTER, run_races, {0.375, 0.375}},
        {"hidden", PART_HIDDEN, run_beside, {0.15, 0.15}},  {"fetches", PART_FETCHES, run_beside, {0.05, 0.05}},
        {"sums", PART_SUMS, run_sums, {0.05, 0.05}},        {NULL}};
    static const bench_spec SPEC = {
        .usage =
            "usage: mpirun -n RANKS comm [OPTION]...\n"
            "Times zoff's all_gather and reduce_scatter (an exchange of bf16 pieces, summed in rank order in fp32) over\n"
            "messages beside MPI_Allgather and the faster of two MPI_Reduce_scatter (float; bf16 with an operation of its\n"
            "own) of as many elements. hidden: gradients over a link of 200 MB/s while a timed wait stands for the device\n"
            "that makes them. fetches: the engine's weights over that link, gathered behind such a wait. sums: one thread\n"
            "adds gradients in order and exactly.\n",
        .options = OPTIONS,
        .parts = PARTS,
        .full = {PART_ANY, 25, 300},
        .quick = {PART_ANY, 7, 40},
        .begin = begin,
        .judge = judge,
        .describe = describe};
    return bench_main(argc, argv, &SPEC);
}
