/* comm_beside.c: how much of an exchange is hidden behind the computation beside it. That is a timed wait, as a trainer waits
 * for its device. During it the trainer calls the engine every millisecond, or leaves that to the engine's thread. The link has
 * a rate, so that an exchange takes as long as between hosts.
 *
 * "hidden": gradients, behind the computation that produces them. The same micro-batch runs with all gradients at its end, and
 * with each one as soon as it exists. A sample is the time from its end to the end of the exchange. "fetches": weights of the
 * engine (ZeRO-3), behind the computation that uses them. A pass fetches slice after slice, and releases each after its wait. A
 * sample is the time of a pass beyond its waits, beside a pass without waits. */
#include "comm_bench.h"

#include <math.h>
#include <time.h>

enum { SLICES = 16, ELEMENTS = 1 << 20, ENGINES = 2 };
enum { AT_ONCE, AT_THE_END, BY_ITSELF };
enum { OF_GRADS = 1, OF_WEIGHTS = 2 };
static const double RATE = 200e6; /* bytes per second of the link */

/* Three slices fit: the one in use, and two that are prefetched. */
static const char CONFIG_GRADS[] = "{\"gradient_accumulation_steps\": 1000000, \"zero_optimization\": {\"stage\": 2, "
                                   "\"reduce_bucket_size\": 1048576}}";
static const char CONFIG_WEIGHTS[] =
    "{\"gradient_accumulation_steps\": 1000000, \"zero_optimization\": {\"stage\": 3, \"reduce_bucket_size\": 1048576, "
    "\"stage3_max_live_parameters\": 3145728, \"stage3_prefetch_bucket_size\": 2097152, "
    "\"stage3_param_persistence_threshold\": 0}}";

/* Two engines; the second one has a thread that advances it. */
typedef struct trainers {
    zoff_comm *comms[ENGINES];
    zoff_engine *engines[ENGINES];
    bool fetches;
    double seconds; /* of the computation */
} trainers;

/* Stand in for a trainer while its device computes a slice, and advance an engine every millisecond; NULL: none. */
static void compute(zoff_engine *e, double seconds)
{
    const double end = bench_now() + seconds / SLICES;
    while (bench_now() < end) {
        if (e)
            (void)zoff_engine_progress(e);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

/* Seconds from the end of the computation to the end of the exchange; not finite: it failed. */
static double micro_batch(zoff_engine *e, int which, double seconds)
{
    int ret = 0;
    for (int slice = SLICES; slice-- > 0;) { /* the order of a backward pass */
        compute(which == BY_ITSELF ? NULL : e, seconds);
        if (which != AT_THE_END)
            ret |= bench_told(zoff_grad_ready(e, 0, (size_t)slice, NULL));
    }
    const double from = bench_now();
    ret |= bench_told(zoff_step(e, NULL, NULL));
    return ret ? INFINITY : bench_now() - from;
}

/* Seconds of a pass beyond its waits. */
static double pass(zoff_engine *e, int which, double seconds)
{
    int ret = 0;
    double waited = 0;
    const double from = bench_now();
    for (size_t slice = 0; slice < SLICES && ret == 0; slice++) {
        const void *lent;
        ret = bench_told(zoff_param_fetch(e, 0, slice, NULL, &lent));
        const double begun = bench_now();
        if (which != AT_THE_END)
            compute(which == BY_ITSELF ? NULL : e, seconds);
        waited += bench_now() - begun;
        ret = ret ? ret : bench_told(zoff_param_release(e, 0, slice, NULL));
    }
    const double took = bench_now() - from - waited;
    ret = ret ? ret : bench_told(zoff_step(e, NULL, NULL)); /* the next pass begins: the order is known */
    return ret ? INFINITY : took;
}

/* On the slowest rank. */
static double take_turn(const trainers *t, unsigned engine, int which, double seconds)
{
    MPI_Barrier(MPI_COMM_WORLD);
    return comm_slowest((t->fetches ? pass : micro_batch)(t->engines[engine], which, seconds));
}

static double sample(race *r, race_entry *e, double deadline)
{
    const trainers *t = r->user;
    const double seconds = take_turn(t, e->work.which == BY_ITSELF, e->work.which, t->seconds);
    return isfinite(seconds) ? seconds : -1;
}

static const race_line LINES[] = {
    {"at_once", "each gradient as it is made", 2, NULL, AT_ONCE, OF_GRADS},
    {"at_the_end", "all of them after the last", 2, NULL, AT_THE_END, OF_GRADS},
    {"by_itself", "each as it is made, and the trainer does not ask: a thread does", 2, NULL, BY_ITSELF, OF_GRADS},
    {"alone", "fetches, one after the other", 2, NULL, AT_THE_END, OF_WEIGHTS},
    {"at_once", "the rest beyond the waits; the trainer asks", 2, NULL, AT_ONCE, OF_WEIGHTS},
    {"by_itself", "the same, and a thread of the engine's asks", 2, NULL, BY_ITSELF, OF_WEIGHTS},
    {NULL}};

static int run(const comm_options *options, trainers *t, double deadline, race *r)
{
    const double multiple = t->fetches ? 1.5 : 2; /* of the exchange alone: the computation */
    for (unsigned i = 0; i < ENGINES; i++)
        (void)take_turn(t, i, AT_THE_END, 0); /* both learn the order */
    t->seconds = multiple * fmin(take_turn(t, 0, AT_THE_END, 0), take_turn(t, 0, AT_THE_END, 0));
    MPI_Bcast(&t->seconds, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    if (!isfinite(t->seconds))
        return -1;
    r->sample = sample;
    r->user = t;
    race_add_lines(r, LINES, t->fetches ? OF_WEIGHTS : OF_GRADS, SLICES * (double)ELEMENTS, NULL, 1);
    return comm_rounds(options, r, deadline);
}

int comm_beside_run(const comm_options *options, bool fetches, double deadline, race *r)
{
    trainers t = {.fetches = fetches};
    bench_streams mapping;
    const size_t bytes = (size_t)SLICES * ELEMENTS * sizeof(uint16_t);
    int ret = bench_streams_open(2 * bytes, 2, true, &mapping);
    uint16_t *weights = ret == 0 ? bench_streams_take(&mapping, bytes) : NULL;
    uint16_t *grads = ret == 0 && !fetches ? bench_streams_take(&mapping, bytes) : NULL;
    zoff_param_desc param = bench_param(weights, grads, ELEMENTS, SLICES, ZOFF_BF16);
    param.engine_owned = fetches;
    for (unsigned i = 0; i < ENGINES && ret == 0; i++) {
        ret = comm_link_open(RATE, &t.comms[i]);
        const zoff_engine_opts opts = {.comm = t.comms[i], .threads = 1, .progress_thread = i == 1};
        if (ret == 0)
            ret = bench_engine_open(fetches ? CONFIG_WEIGHTS : CONFIG_GRADS, opts, &param, 1, &t.engines[i]);
    }
    if (ret == 0)
        ret = run(options, &t, deadline, r);
    for (unsigned i = 0; i < ENGINES; i++) {
        zoff_engine_destroy(t.engines[i]);
        zoff_comm_close(t.comms[i]);
    }
    bench_streams_close(&mapping);
    return ret;
}
