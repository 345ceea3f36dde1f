/* comm_hidden.c: how much of the exchange of gradients is hidden behind the computing that makes them. The computing is a timed
 * wait, as a trainer waits for its device, asking the engine to go on every millisecond, or leaving that to a thread of the
 * engine's; the link has a rate, so that the exchange takes as long as it does between hosts. The same micro-batch is taken
 * with all gradients at its end, and with each as soon as it is there; what is measured is the time from its end to the end of
 * the exchange. */
#include "comm_bench.h"
#include "comm_link.h"

#include "stopwatch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SLICES = 16, ELEMENTS = 1 << 20, ROUNDS_MOST = 64 };
static const double RATE = 200e6, COMPUTE = 2; /* bytes a second; times the exchange alone */

static const char CONFIG[] = "{\"gradient_accumulation_steps\": 1000000, \"zero_optimization\": {\"stage\": 2, "
                             "\"reduce_bucket_size\": 1048576}}";

static int told(zoff_status status)
{
    if (status < 0)
        fprintf(stderr, "comm: %s\n", zoff_last_error());
    return status < 0 ? -1 : 0;
}

/* The second one has a thread that lets it go on. */
typedef struct trainers {
    zoff_comm *comms[2];
    zoff_engine *engines[2];
} trainers;

static int make_engine(zoff_comm *comm, bool has_thread, uint16_t *weights, uint16_t *grads, zoff_engine **out)
{
    zoff_config *config;
    zoff_engine_opts opts = {.struct_size = sizeof opts, .comm = comm, .threads = 1, .progress_thread = has_thread};
    if (told(zoff_config_parse(CONFIG, sizeof CONFIG - 1, "comm", &config)) != 0)
        return -1;
    opts.config = config;
    int ret = told(zoff_engine_create(&opts, out));
    zoff_config_close(config);
    const zoff_param_desc d = {
        .struct_size = sizeof d, .value = weights, .grad = grads, .count = ELEMENTS, .slices = SLICES, .dtype = ZOFF_BF16};
    if (ret == 0)
        ret = told(zoff_engine_add_param(*out, &d, NULL));
    if (ret == 0)
        ret = told(zoff_engine_seal(*out));
    return ret;
}

/* What a trainer does while its device computes; NULL: it only waits. */
static void compute(zoff_engine *e, double seconds)
{
    const double end = bench_stopwatch_now() + seconds;
    while (bench_stopwatch_now() < end) {
        if (e)
            (void)zoff_engine_progress(e);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

/* Seconds from the end of computing to the end of the exchange, on the slowest rank; negative: it failed. */
static double micro_batch(zoff_engine *e, bool asks, double seconds, bool at_once)
{
    int ret = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    for (int slice = SLICES; slice-- > 0;) { /* as a backward pass goes */
        compute(asks ? e : NULL, seconds / SLICES);
        if (at_once)
            ret |= told(zoff_grad_ready(e, 0, (size_t)slice, NULL));
    }
    const double from = bench_stopwatch_now();
    ret |= told(zoff_step(e, NULL, NULL));
    double own = ret ? INFINITY : bench_stopwatch_now() - from, slowest = own;
    MPI_Allreduce(&own, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return isfinite(slowest) ? slowest : -1;
}

static int run(const comm_options *options, const trainers *t, double deadline, race *out)
{
    enum { CONTESTANTS = 3 };
    (void)micro_batch(t->engines[1], true, 0, false); /* learns the order, as the first one of the other does */
    const double alone = micro_batch(t->engines[0], true, 0, false), again = micro_batch(t->engines[0], true, 0, false);
    double seconds = COMPUTE * (alone < again ? alone : again);
    MPI_Bcast(&seconds, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    if (seconds < 0)
        return -1;
    race_add(out, (race_entry){.name = "at_once",
                               .what = "each gradient as it is made",
                               .elements = SLICES * (double)ELEMENTS,
                               .yardstick = -1,
                               .calls = 1});
    race_add(out, (race_entry){.name = "at_the_end",
                               .what = "all of them after the last",
                               .elements = SLICES * (double)ELEMENTS,
                               .yardstick = -1,
                               .calls = 1});
    race_add(out, (race_entry){.name = "by_itself",
                               .what = "each as it is made, and the trainer does not ask: a thread does",
                               .elements = SLICES * (double)ELEMENTS,
                               .yardstick = -1,
                               .calls = 1});
    for (unsigned k = 0; k < options->run.rounds && k < ROUNDS_MOST; k++) {
        int late = bench_stopwatch_now() > deadline && k > 0;
        MPI_Bcast(&late, 1, MPI_INT, 0, MPI_COMM_WORLD);
        if (late)
            break;
        for (unsigned i = 0; i < CONTESTANTS; i++) {
            const unsigned at = (i + k) % CONTESTANTS;
            out->entries[at].seconds[k] = micro_batch(t->engines[at == 2], at != 2, seconds, at != 1);
            if (out->entries[at].seconds[k] < 0)
                return -1;
        }
        out->rounds = out->clean_rounds = k + 1;
    }
    return 0;
}

int comm_hidden_run(const comm_options *options, double deadline, race *out)
{
    trainers t = {.comms = {NULL}};
    uint16_t *weights = calloc((size_t)SLICES * ELEMENTS, sizeof *weights);
    uint16_t *grads = calloc((size_t)SLICES * ELEMENTS, sizeof *grads);
    *out = (race){.part = "hidden", .label = "32 MiB"};
    int ret = weights && grads ? 0 : -1;
    for (int i = 0; i < 2 && ret == 0; i++) {
        ret = comm_link_open(RATE, &t.comms[i]);
        if (ret == 0)
            ret = make_engine(t.comms[i], i == 1, weights, grads, &t.engines[i]);
    }
    if (ret == 0)
        ret = run(options, &t, deadline, out);
    for (int i = 0; i < 2; i++) {
        zoff_engine_destroy(t.engines[i]);
        zoff_comm_close(t.comms[i]);
    }
    free(weights);
    free(grads);
    return ret;
}
