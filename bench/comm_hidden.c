/* comm_hidden.c: how much of the exchange of gradients is hidden behind the computation that produces them. The computation is
 * a timed wait, as a trainer waits for its device. During it the trainer calls the engine every millisecond, or leaves that to
 * the engine's thread. The link has a rate, so that the exchange takes as long as between hosts. The same micro-batch runs with
 * all gradients at its end, and with each one as soon as it exists. The figure is the time from its end to the end of the
 * exchange. */
#include "comm_bench.h"

#include <math.h>

enum { SLICES = 16, ELEMENTS = 1 << 20 };
enum { AT_ONCE, AT_THE_END, BY_ITSELF };
static const double COMPUTE = 2; /* a multiple of the exchange alone */

static const char CONFIG[] = "{\"gradient_accumulation_steps\": 1000000, \"zero_optimization\": {\"stage\": 2, "
                             "\"reduce_bucket_size\": 1048576}}";

/* Seconds from the end of the computation to the end of the exchange, on the slowest rank; not finite: it failed. */
static double micro_batch(const comm_trainers *t, int which, double seconds)
{
    zoff_engine *e = t->engines[which == BY_ITSELF];
    int ret = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    for (int slice = SLICES; slice-- > 0;) { /* the order of a backward pass */
        comm_trainers_compute(which == BY_ITSELF ? NULL : e, seconds / SLICES);
        if (which != AT_THE_END)
            ret |= bench_told(zoff_grad_ready(e, 0, (size_t)slice, NULL));
    }
    const double from = bench_now();
    ret |= bench_told(zoff_step(e, NULL, NULL));
    return comm_slowest(ret ? INFINITY : bench_now() - from);
}

static int sample(race *r, race_entry *e, double deadline)
{
    const comm_trainers *t = r->user;
    (void)deadline;
    e->seconds[r->rounds] = micro_batch(t, e->work.which, t->seconds);
    return isfinite(e->seconds[r->rounds]) ? 1 : -1;
}

static int run(const comm_options *options, comm_trainers *t, double deadline, race *r)
{
    static const race_line LINES[] = {
        {"at_once", "each gradient as it is made", NULL, 2, NULL, AT_ONCE, 1},
        {"at_the_end", "all of them after the last", NULL, 2, NULL, AT_THE_END, 1},
        {"by_itself", "each as it is made, and the trainer does not ask: a thread does", NULL, 2, NULL, BY_ITSELF, 1},
        {NULL, NULL, NULL, 0, NULL, 0, 0}};
    comm_trainers second = *t;
    second.engines[0] = t->engines[1];
    (void)micro_batch(&second, AT_THE_END, 0); /* learns the order, as the first one's warm-up did */
    const double alone = micro_batch(t, AT_THE_END, 0), again = micro_batch(t, AT_THE_END, 0);
    t->seconds = COMPUTE * fmin(alone, again);
    MPI_Bcast(&t->seconds, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    if (!isfinite(t->seconds))
        return -1;
    r->sample = sample;
    r->user = t;
    race_add_lines(r, LINES, 1, SLICES * (double)ELEMENTS, NULL, 1);
    return comm_rounds(options, r, deadline);
}

int comm_hidden_run(const comm_options *options, double deadline, race *r)
{
    comm_trainers t = {.seconds = 0};
    bench_streams mapping;
    const size_t bytes = (size_t)SLICES * ELEMENTS * sizeof(uint16_t);
    int ret = bench_streams_open(2 * bytes, 2, true, &mapping);
    uint16_t *weights = ret == 0 ? bench_streams_take(&mapping, bytes) : NULL;
    uint16_t *grads = ret == 0 ? bench_streams_take(&mapping, bytes) : NULL;
    const zoff_param_desc d = bench_param(weights, grads, ELEMENTS, SLICES, ZOFF_BF16);
    if (ret == 0)
        ret = comm_trainers_open(CONFIG, &d, &t);
    if (ret == 0)
        ret = run(options, &t, deadline, r);
    comm_trainers_close(&t);
    bench_streams_close(&mapping);
    return ret;
}
