/* comm_trainers.c: what the parts share that hide an exchange behind a computation: engines over a slow link, and a timed wait
 * that stands for the computation. */
#include "comm_bench.h"

#include <time.h>

static const double RATE = 200e6; /* bytes per second */

int comm_trainers_open(const char *config, const zoff_param_desc *param, comm_trainers *out)
{
    int ret = 0;
    for (int i = 0; i < 2 && ret == 0; i++) {
        ret = comm_link_open(RATE, &out->comms[i]);
        const zoff_engine_opts opts = {.comm = out->comms[i], .threads = 1, .progress_thread = i == 1};
        if (ret == 0)
            ret = bench_engine_open(config, opts, param, 1, &out->engines[i]);
    }
    return ret;
}

void comm_trainers_close(comm_trainers *t)
{
    for (int i = 0; i < 2; i++) {
        zoff_engine_destroy(t->engines[i]);
        zoff_comm_close(t->comms[i]);
    }
}

void comm_trainers_compute(zoff_engine *e, double seconds)
{
    const double end = bench_now() + seconds;
    while (bench_now() < end) {
        if (e)
            (void)zoff_engine_progress(e);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}
