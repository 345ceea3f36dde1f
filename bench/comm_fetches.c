/* comm_fetches.c: how much of gathering the engine's weights (ZeRO-3) is hidden behind the computation that uses them. A pass
 * fetches slice after slice, and releases each after a timed wait of 1.5 times its gather, as a trainer waits for its device.
 * During it the trainer calls the engine every millisecond, or leaves that to the engine's thread. The link has a rate. The
 * figure is the time of a pass beyond its waits, beside a pass without waits. */
#include "comm_bench.h"

#include <math.h>

enum { SLICES = 16, ELEMENTS = 1 << 20 };
enum { ALONE, AT_ONCE, BY_ITSELF };
static const double COMPUTE = 1.5; /* a multiple of the gathers alone */

/* Three slices fit: the one in use, and two that are prefetched. */
static const char CONFIG[] =
    "{\"gradient_accumulation_steps\": 1000000, \"zero_optimization\": {\"stage\": 3, \"reduce_bucket_size\": 1048576, "
    "\"stage3_max_live_parameters\": 3145728, \"stage3_prefetch_bucket_size\": 2097152, "
    "\"stage3_param_persistence_threshold\": 0}}";

/* Seconds of a pass beyond its waits, on the slowest rank; not finite: it failed. */
static double pass(const comm_trainers *t, int which, double seconds)
{
    zoff_engine *e = t->engines[which == BY_ITSELF];
    int ret = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    const double from = bench_now();
    double waited = 0;
    for (size_t slice = 0; slice < SLICES && ret == 0; slice++) {
        const void *lent;
        ret = bench_told(zoff_param_fetch(e, 0, slice, NULL, &lent));
        const double begun = bench_now();
        if (which != ALONE)
            comm_trainers_compute(which == BY_ITSELF ? NULL : e, seconds / SLICES);
        waited += bench_now() - begun;
        ret |= ret ? 0 : bench_told(zoff_param_release(e, 0, slice, NULL));
    }
    const double took = bench_now() - from - waited;
    ret |= ret ? 0 : bench_told(zoff_step(e, NULL, NULL)); /* the next pass begins: the order is known */
    return comm_slowest(ret ? INFINITY : took);
}

static int sample(race *r, race_entry *e, double deadline)
{
    const comm_trainers *t = r->user;
    (void)deadline;
    e->seconds[r->rounds] = pass(t, e->work.which, t->seconds);
    return isfinite(e->seconds[r->rounds]) ? 1 : -1;
}

static int run(const comm_options *options, comm_trainers *t, double deadline, race *r)
{
    static const race_line LINES[] = {{"alone", "fetches, one after the other", NULL, 2, NULL, ALONE, 1},
                                      {"at_once", "the rest beyond the waits; the trainer asks", NULL, 2, NULL, AT_ONCE, 1},
                                      {"by_itself", "the same, and a thread of the engine's asks", NULL, 2, NULL, BY_ITSELF, 1},
                                      {NULL, NULL, NULL, 0, NULL, 0, 0}};
    comm_trainers second = *t;
    second.engines[0] = t->engines[1];
    (void)pass(t, ALONE, 0); /* both learn the order */
    (void)pass(&second, ALONE, 0);
    t->seconds = COMPUTE * fmin(pass(t, ALONE, 0), pass(t, ALONE, 0));
    MPI_Bcast(&t->seconds, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    if (!isfinite(t->seconds))
        return -1;
    r->sample = sample;
    r->user = t;
    race_add_lines(r, LINES, 1, SLICES * (double)ELEMENTS, NULL, 1);
    return comm_rounds(options, r, deadline);
}

int comm_fetches_run(const comm_options *options, double deadline, race *r)
{
    comm_trainers t = {.seconds = 0};
    bench_streams mapping;
    const size_t bytes = (size_t)SLICES * ELEMENTS * sizeof(uint16_t);
    int ret = bench_streams_open(bytes, 1, true, &mapping);
    uint16_t *weights = ret == 0 ? bench_streams_take(&mapping, bytes) : NULL;
    zoff_param_desc d = bench_param(weights, NULL, ELEMENTS, SLICES, ZOFF_BF16);
    d.engine_owned = true;
    if (ret == 0)
        ret = comm_trainers_open(CONFIG, &d, &t);
    if (ret == 0)
        ret = run(options, &t, deadline, r);
    comm_trainers_close(&t);
    bench_streams_close(&mapping);
    return ret;
}
