/* step_loop.c: a trainer with states in DRAM, beside the same trainer with an Adam loop of its own. Small models show the cost
 * of waking threads and of bookkeeping, a large one shows the cost of bytes. */
#include "step_bench.h"

#include <math.h>
#include <string.h>
#include <time.h>

enum { MOST_TRAINERS = 6, ITERATIONS = 20 };

typedef struct trainer {
    bench_streams mapping;
    size_t elements;
    float *weights, *grads, *m, *v;
    zoff_engine *engine; /* NULL: it has a loop of its own */
    size_t turns;        /* of computation before each step */
    int steps;
} trainer;

static volatile double sink;

static int compute(void *ctx, int which)
{
    const trainer *t = ctx;
    sink = step_own_backward(t->turns);
    return 0;
}

static int step(void *ctx, int which)
{
    trainer *t = ctx;
    if (t->engine)
        return bench_told(zoff_step(t->engine, NULL, NULL));
    step_own_loop(t->elements, t->weights, t->m, t->v, t->grads, ++t->steps);
    return 0;
}

static int iterate(void *ctx, int which)
{
    compute(ctx, which);
    return step(ctx, which);
}

static int open_engine(trainer *t, bool looks)
{
    char text[512];
    const zoff_param_desc param = bench_param(t->weights, t->grads, t->elements, 1, ZOFF_F32);
    snprintf(text, sizeof text,
             "{\"gradient_clipping\": 0, \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 1e-3, \"weight_decay\": "
             "0.01}}, \"zoff\": {\"skip_nonfinite\": %s}}",
             looks ? "true" : "false");
    return bench_engine_open(text, (zoff_engine_opts){.threads = 0}, &param, 1, &t->engine);
}

/* The loop has moments of its own; an engine has its own. */
static int open_trainer(size_t elements, size_t turns, bool loop, bool looks, trainer *t)
{
    const unsigned arrays = loop ? 4 : 2;
    const size_t bytes = elements * sizeof(float);
    *t = (trainer){.elements = elements, .turns = turns};
    if (bench_streams_open(arrays * bytes, arrays, true, &t->mapping) != 0)
        return -1;
    float **const all[] = {&t->weights, &t->grads, &t->m, &t->v};
    for (unsigned i = 0; i < arrays; i++)
        *all[i] = bench_streams_take(&t->mapping, bytes);
    for (size_t i = 0; i < elements; i++) {
        t->weights[i] = 1e-3f * (float)(i % 1000);
        t->grads[i] = 1e-4f * (float)(i % 97) - 4e-3f;
    }
    return loop ? step(t, 0) : open_engine(t, looks); /* the loop touches its moments */
}

static double thread_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

size_t step_own_turns(double seconds)
{
    for (size_t turns = 1 << 14;;) {
        double best = INFINITY;
        for (unsigned i = 0; i < 5; i++) {
            const double start = thread_seconds();
            sink = step_own_compute(turns);
            best = fmin(best, thread_seconds() - start);
        }
        if (best >= seconds)
            return turns;
        turns += turns / 4 + (best < seconds / 4 ? turns : 0);
    }
}

enum { LOOP = 1, LOOKS = 2 };
static const char BY_ZOFF[] = "a trainer's iteration, its step by zoff", BY_LOOP[] = "a trainer's iteration, its step a loop";
static const race_line SMALL[] = {{"engine_1k", BY_ZOFF, 0, iterate, 1000, LOOKS},
                                  {"own_loop_1k", BY_LOOP, 0, iterate, 1000, LOOP},
                                  {"engine_32k", BY_ZOFF, 0, iterate, 32 << 10, LOOKS},
                                  {"own_loop_32k", BY_LOOP, 0, iterate, 32 << 10, LOOP},
                                  {"engine_1m", BY_ZOFF, 0, iterate, 1 << 20, LOOKS},
                                  {"own_loop_1m", BY_LOOP, 0, iterate, 1 << 20, LOOP},
                                  {NULL}};
static const race_line LARGE[] = {{"engine", "zoff's step, zoff.skip_nonfinite false", 0, step},
                                  {"own_loop", "a plain loop, -Ofast and OpenMP", 0, step, 0, LOOP},
                                  {"engine_looks", "zoff's step, which looks for inf and nan first", 0, step, 0, LOOKS},
                                  {NULL}};

/* Run at least as many rounds as are asked for, unless the run is a quick one. Before each sample the trainer computes, as it
 * does before each step: after that its threads spin, or sleep. */
static int race_trainers(const step_run *run, const race_line *lines, size_t large, double deadline, race *r)
{
    static const race_line ALONE = {"step_1k", "zoff's step of 1,000 parameters alone", 0, step};
    const unsigned rounds = (unsigned)run->options.run.rounds;
    trainer trainers[MOST_TRAINERS] = {{.engine = NULL}};
    size_t turns = 0;
    int ret = 0;
    for (unsigned i = 0; lines[i].name && ret == 0; i++) {
        const size_t elements = large ? large : (size_t)lines[i].which;
        if (!turns || (!large && !(lines[i].tags & LOOP))) /* contestants that are compared compute the same */
            turns = step_own_turns(large ? 3e-3 : fmax(1e-3, 5e-9 * (double)elements)); /* a few dozen tokens per step */
        ret = open_trainer(elements, turns, lines[i].tags & LOOP, lines[i].tags & LOOKS, &trainers[i]);
        race_add(r, &lines[i], (double)elements, &trainers[i], large ? 1 : ITERATIONS)->line.before = compute;
    }
    if (ret == 0 && !large)
        race_add(r, &ALONE, 1000, &trainers[0], bench_stopwatch_calls(&(bench_work){step, &trainers[0], 0}, 0.004));
    if (ret == 0)
        ret = race_run(r, rounds < 9 || rounds > ENOUGH_LOOPS ? rounds : ENOUGH_LOOPS, deadline);
    for (unsigned i = 0; i < MOST_TRAINERS; i++) {
        zoff_engine_destroy(trainers[i].engine);
        bench_streams_close(&trainers[i].mapping);
    }
    return ret;
}

int step_loop(step_run *run)
{
    enum { FEW = 16 << 20 };
    const double seconds = run->options.run.seconds;
    run->loop_elements = run->options.elements < FEW ? run->options.elements : STEP_LARGE_LOOP;
    race *small = race_open(&run->book, "loop", "whole iterations of 1 ms, and of 5 ns a parameter");
    race *large = race_open(&run->book, "loop", "%zu fp32 parameters", run->loop_elements);
    if (race_trainers(run, SMALL, 0, bench_now() + 0.15 * seconds, small) != 0)
        return -1;
    return race_trainers(run, LARGE, run->loop_elements, bench_now() + 0.35 * seconds, large);
}
