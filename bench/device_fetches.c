/* device_fetches.c: weights of the engine (ZeRO-3), fetched to the device behind the computation that uses them. They are
 * stored in DRAM. A pass fetches slice after slice; in the program's stream each is used for 1.5 times its copy, which a timed
 * wait stands for, and then released. The figure is the time of a pass beyond its waits, beside a pass without waits. */
#include "device_bench.h"

#include <math.h>
#include <string.h>
#include <time.h>

/* A slice has 64 MiB, like a layer of a model with billions of parameters: the fixed cost of a copy does not show. Where there
 * is no bus, smaller ones do. It has no more elements than the model that was asked for. */
enum { SLICES = 16, ELEMENTS = 32 << 20, ELEMENTS_EMULATED = 4 << 20 };
enum { ALONE, HIDDEN, WAITS };
static const double COMPUTE = 1.5; /* a multiple of the fetches alone */

typedef struct fetches {
    zoff_accel *accel;
    zoff_engine *engine;
    void *stream;
    double seconds;        /* of the computation of a slice */
    _Atomic double waited; /* in the stream, in this pass */
    double asked;          /* seconds that the calls have taken, in this pass */
} fetches;

/* Three slices fit: the one in use, and two that are prefetched. */
static int open_engine(fetches *f, size_t count, uint16_t *weights)
{
    char config[512];
    snprintf(config, sizeof config,
             "{\"gradient_accumulation_steps\": 1000000, \"zero_optimization\": {\"stage\": 3, \"offload_param\": "
             "{\"device\": \"cpu\"}, \"stage3_max_live_parameters\": %zu, \"stage3_prefetch_bucket_size\": %zu, "
             "\"stage3_param_persistence_threshold\": 0}}",
             3 * count, 2 * count);
    zoff_param_desc d = bench_param(weights, NULL, count, SLICES, ZOFF_BF16);
    d.engine_owned = true;
    return bench_engine_open(config, (zoff_engine_opts){.accel = f->accel}, &d, 1, &f->engine);
}

static void use(void *ctx)
{
    fetches *f = ctx;
    const double from = bench_now();
    while (bench_now() < from + f->seconds)
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    atomic_store(&f->waited, atomic_load(&f->waited) + bench_now() - from);
}

/* Seconds that the waits of a pass take beyond their own time, as the device calls the host for each; negative: they failed. */
static double waits_alone(fetches *f)
{
    int ret = 0;
    atomic_store(&f->waited, 0);
    const double from = bench_now();
    for (size_t slice = 0; slice < SLICES && ret == 0; slice++)
        ret = bench_told(zoff_accel_stream_call(f->accel, f->stream, use, f));
    ret = ret ? ret : bench_told(zoff_accel_stream_wait(f->accel, f->stream));
    return ret ? -1 : bench_now() - from - atomic_load(&f->waited);
}

/* Seconds of a pass beyond its waits; negative: it failed. */
static double pass(fetches *f, bool waits)
{
    int ret = 0;
    f->asked = 0;
    atomic_store(&f->waited, 0);
    const double from = bench_now();
    for (size_t slice = 0; slice < SLICES && ret == 0; slice++) {
        const void *lent;
        const double asked = bench_now();
        ret = bench_told(zoff_param_fetch(f->engine, 0, slice, f->stream, &lent));
        f->asked += bench_now() - asked;
        if (waits && ret == 0)
            ret = bench_told(zoff_accel_stream_call(f->accel, f->stream, use, f));
        ret = ret ? ret : bench_told(zoff_param_release(f->engine, 0, slice, f->stream));
    }
    ret = ret ? ret : bench_told(zoff_accel_stream_wait(f->accel, f->stream));
    const double took = bench_now() - from - atomic_load(&f->waited);
    ret = ret ? ret : bench_told(zoff_step(f->engine, NULL, NULL)); /* the next pass begins: the order is known */
    return ret ? -1 : took;
}

static double sample(race *r, race_entry *e, double deadline)
{
    fetches *f = r->user;
    const double seconds = e->work.which == WAITS ? waits_alone(f) : pass(f, e->work.which == HIDDEN);
    e->other[r->rounds] = f->asked;
    return seconds;
}

static const race_line LINES[] = {{"fetch_alone", "fetches, one after the other", 2, NULL, ALONE},
                                  {"fetch_hidden", "the rest beyond the waits", 2, NULL, HIDDEN},
                                  {"waits_alone", "the rest of waits without fetches", 0, NULL, WAITS},
                                  {NULL}};

static int run(const device_options *options, fetches *f, size_t count, race *r)
{
    (void)pass(f, false); /* it learns the order */
    const double alone = fmin(pass(f, false), pass(f, false));
    f->seconds = COMPUTE * alone / SLICES;
    r->sample = sample;
    r->user = f;
    race_add_lines(r, LINES, 0, (double)(SLICES * count), NULL, 1);
    return alone < 0 ? -1 : device_rounds(options, r, 1);
}

int device_fetches(const device_options *options, device_found *found)
{
    fetches f = {.accel = found->model.accel};
    const size_t most = strcmp(options->accel, "cuda") == 0 ? ELEMENTS : ELEMENTS_EMULATED;
    const size_t count = options->elements < most ? options->elements : most;
    bench_streams mapping;
    race *r = race_open(&found->book, "fetches", "%zu elements", count * SLICES);
    int ret = bench_streams_open(count * SLICES * sizeof(uint16_t), 1, true, &mapping);
    if (ret == 0)
        ret = open_engine(&f, count, bench_streams_take(&mapping, count * SLICES * sizeof(uint16_t)));
    if (ret == 0)
        ret = bench_told(zoff_accel_stream_open(f.accel, &f.stream));
    if (ret == 0)
        ret = run(options, &f, count, r);
    zoff_engine_destroy(f.engine);
    zoff_accel_stream_close(f.accel, f.stream);
    bench_streams_close(&mapping);
    r->user = NULL;
    return ret;
}
