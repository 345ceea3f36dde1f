/* SPDX-License-Identifier: Apache-2.0 */
/* step_loop.c: a trainer with states in DRAM, beside the same trainer with an Adam loop of its own. Small models show the cost
 * of waking threads and of bookkeeping, a large one shows the cost of bytes. */
#include "step_bench.h"

#include <math.h>

enum { MOST_TRAINERS = 6, ITERATIONS = 20 };

typedef struct trainer {
    size_t elements;
    float *weights, *grads, *m, *v;
    zoff_engine *engine; /* engine; NULL: the trainer has a loop of its own */
    size_t turns;        /* turns of computation before each step */
    int steps;
} trainer;

static volatile double sink;

static void compute(void *ctx, int which)
{
    const trainer *t = ctx;
    sink = step_own_backward(t->turns);
}

static void step(void *ctx, int which)
{
    trainer *t = ctx;
    if (t->engine)
        bench_must(zoff_step(t->engine, NULL, NULL));
    else
        step_own_loop(t->elements, t->weights, t->m, t->v, t->grads, ++t->steps);
}

static void iterate(void *ctx, int which)
{
    compute(ctx, which);
    step(ctx, which);
}

/* The loop has moments of its own; an engine has its own. */
static void open_trainer(size_t elements, size_t turns, bool loop, bool looks, trainer *t)
{
    *t = (trainer){.elements = elements, .turns = turns};
    float **const all[] = {&t->weights, &t->grads, &t->m, &t->v};
    for (unsigned i = 0; i < (loop ? 4 : 2); i++)
        *all[i] = bench_array(elements * sizeof(float), true);
    for (size_t i = 0; i < elements; i++) {
        t->weights[i] = 1e-3f * (float)(i % 1000);
        t->grads[i] = 1e-4f * (float)(i % 97) - 4e-3f;
    }
    const zoff_param_desc param = bench_param(t->weights, t->grads, t->elements, 1, ZOFF_F32);
    const char *config =
        bench_text("{\"gradient_clipping\": 0, \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 1e-3, "
                   "\"weight_decay\": 0.01}}, \"zoff\": {\"skip_nonfinite\": %s}}",
                   looks ? "true" : "false");
    if (loop)
        step(t, 0); /* the first step touches its moments */
    else
        t->engine = bench_engine(config, (zoff_engine_opts){.threads = 0}, &param, 1);
}

size_t step_own_turns(double seconds)
{
    for (size_t turns = 1 << 14;;) {
        double best = INFINITY;
        for (unsigned i = 0; i < 5; i++) {
            const double start = bench_thread_seconds();
            sink = step_own_compute(turns);
            best = fmin(best, bench_thread_seconds() - start);
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
static void race_trainers(race *r, const race_line *lines, size_t large, double deadline)
{
    static const race_line ALONE = {"step_1k", "zoff's step of 1,000 parameters alone", 0, step};
    const unsigned rounds = (unsigned)bench.rounds;
    trainer trainers[MOST_TRAINERS];
    const size_t mark = bench_opened();
    size_t turns = 0;
    for (unsigned i = 0; lines[i].name; i++) {
        const size_t elements = large ? large : (size_t)lines[i].which;
        if (!turns || (!large && !(lines[i].tags & LOOP))) /* contestants that are compared compute the same */
            turns = step_own_turns(large ? 3e-3 : fmax(1e-3, 5e-9 * (double)elements)); /* a few dozen tokens per step */
        open_trainer(elements, turns, lines[i].tags & LOOP, lines[i].tags & LOOKS, &trainers[i]);
        race_add(r, &lines[i], (double)elements, &trainers[i], large ? 1 : ITERATIONS)->line.before = compute;
    }
    if (!large)
        race_add(r, &ALONE, 1000, &trainers[0], bench_stopwatch_calls(&(bench_work){step, &trainers[0], 0}, 0.004));
    race_run(r, rounds < 9 || rounds > ENOUGH_LOOPS ? rounds : ENOUGH_LOOPS, deadline);
    bench_close(mark);
}

void step_loop(const bench_part *part)
{
    enum { FEW = 16 << 20 };
    found.loop_elements = disk.elements < FEW ? disk.elements : STEP_LARGE_LOOP;
    race *small = race_open("loop", "whole iterations of 1 ms, and of 5 ns a parameter");
    race *large = race_open("loop", bench_text("%zu fp32 parameters", found.loop_elements));
    race_trainers(small, SMALL, 0, bench_now() + 0.15 * bench.seconds);
    race_trainers(large, LARGE, found.loop_elements, bench_now() + 0.35 * bench.seconds);
}
