/* step_loop.c: a trainer with states in DRAM, beside the same trainer with an Adam loop of its own: small models, where waking
 * and bookkeeping would be seen, and a large one, where each byte is. */
#include "step_bench.h"
#include "step_own_loop.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const size_t SMALL[STEP_SMALL_SIZES] = {1000, 32 << 10, 1 << 20};
static const char *const ENGINE_NAMES[STEP_SMALL_SIZES] = {"engine_1k", "engine_32k", "engine_1m"};
static const char *const LOOP_NAMES[STEP_SMALL_SIZES] = {"own_loop_1k", "own_loop_32k", "own_loop_1m"};
static const size_t LARGE = 124000000;
enum { ROUNDS = 15 }; /* that a median is asked of */

typedef struct trainer {
    bench_streams mapping;
    size_t elements;
    float *weights, *grads, *m, *v;
    zoff_engine *engine;
    size_t turns; /* of its computing, before each step */
    int steps;
    bool failed;
} trainer;

static volatile double sink;

static void compute(void *ctx)
{
    const trainer *t = ctx;
    sink = step_own_backward(t->turns);
}

static void step_of_engine(void *ctx)
{
    trainer *t = ctx;
    if (!t->failed && zoff_step(t->engine, NULL, NULL) != ZOFF_OK) {
        t->failed = true;
        fprintf(stderr, "step: %s\n", zoff_last_error());
    }
}

static void step_of_loop(void *ctx)
{
    trainer *t = ctx;
    step_own_loop(t->elements, t->weights, t->m, t->v, t->grads, ++t->steps);
}

static void iterate_with_engine(void *ctx)
{
    compute(ctx);
    step_of_engine(ctx);
}

static void iterate_with_loop(void *ctx)
{
    compute(ctx);
    step_of_loop(ctx);
}

static int open_engine(trainer *t, bool looks)
{
    char text[512];
    zoff_config *config = NULL;
    snprintf(text, sizeof text,
             "{\"gradient_clipping\": 0, \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 1e-3, \"weight_decay\": "
             "0.01}}, \"zoff\": {\"skip_nonfinite\": %s}}",
             looks ? "true" : "false");
    const zoff_param_desc param = {.struct_size = sizeof param,
                                   .value = t->weights,
                                   .grad = t->grads,
                                   .count = t->elements,
                                   .dtype = ZOFF_F32,
                                   .name = "weights"};
    int ret = zoff_config_parse(text, strlen(text), "the benchmark's configuration", &config) == ZOFF_OK ? 0 : -1;
    const zoff_engine_opts opts = {.struct_size = sizeof opts, .config = config};
    if (ret == 0 && (zoff_engine_create(&opts, &t->engine) != ZOFF_OK ||
                     zoff_engine_add_param(t->engine, &param, NULL) != ZOFF_OK || zoff_engine_seal(t->engine) != ZOFF_OK))
        ret = -1;
    if (ret != 0)
        fprintf(stderr, "step: %s\n", zoff_last_error());
    zoff_config_close(config);
    return ret;
}

/* Moments of its own for the loop; those of an engine are the engine's. */
static int open_trainer(size_t elements, size_t turns, bool loop, bool looks, trainer *t)
{
    const unsigned arrays = loop ? 4 : 2;
    *t = (trainer){.elements = elements, .turns = turns};
    const size_t bytes = elements * sizeof(float);
    if (bench_streams_open(arrays * bytes, arrays, &t->mapping) != 0) {
        perror("step: no memory for a trainer");
        return -1;
    }
    float **const all[] = {&t->weights, &t->grads, &t->m, &t->v};
    for (unsigned i = 0; i < arrays; i++)
        *all[i] = bench_streams_take(&t->mapping, bytes);
    for (size_t i = 0; i < elements; i++) {
        t->weights[i] = 1e-3f * (float)(i % 1000);
        t->grads[i] = 1e-4f * (float)(i % 97) - 4e-3f;
    }
    if (!loop)
        return open_engine(t, looks);
    step_of_loop(t); /* touches the moments */
    return 0;
}

static void close_trainer(trainer *t)
{
    zoff_engine_destroy(t->engine);
    bench_streams_close(&t->mapping);
    *t = (trainer){0};
}

static double thread_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Turns that take a thread so long, of its own time: a busy machine does not matter. */
static size_t turns_of(double seconds)
{
    size_t turns = 1 << 14;
    for (;;) {
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

static void enter(race *r, const char *name, const char *what, trainer *t, bench_work_fn work, bench_work_fn before,
                  unsigned calls)
{
    race_add(r, (race_entry){.name = name,
                             .what = what,
                             .elements = (double)t->elements,
                             .yardstick = -1,
                             .work = work,
                             .before = before,
                             .ctx = t,
                             .calls = calls,
                             .fixed = true});
}

/* At least as many as are asked for, unless somebody wants only a glance. */
static unsigned rounds_of(const step_options *options)
{
    const unsigned rounds = options->run.rounds;
    return rounds < 9 || rounds > ROUNDS ? rounds : ROUNDS;
}

static int race_small(const step_options *options, step_book *book, double deadline)
{
    enum { ITERATIONS = 20 };
    trainer with[STEP_SMALL_SIZES] = {{.engine = NULL}}, without[STEP_SMALL_SIZES] = {{.engine = NULL}};
    race *r = &book->small_loop;
    size_t turns = 0;
    int ret = 0;
    r->part = "loop";
    snprintf(r->label, sizeof r->label, "whole iterations of 1 ms, and of 5 ns a parameter");
    for (unsigned i = 0; i < STEP_SMALL_SIZES && ret == 0; i++) {
        turns = turns_of(fmax(1e-3, 5e-9 * (double)SMALL[i])); /* some dozen tokens a step */
        ret = open_trainer(SMALL[i], turns, false, true, &with[i]);
        ret = ret == 0 ? open_trainer(SMALL[i], turns, true, true, &without[i]) : ret;
        enter(r, ENGINE_NAMES[i], "a trainer's iteration, its step by zoff", &with[i], iterate_with_engine, compute,
              ITERATIONS);
        enter(r, LOOP_NAMES[i], "a trainer's iteration, its step a loop", &without[i], iterate_with_loop, compute, ITERATIONS);
    }
    if (ret == 0) {
        const unsigned steps = bench_stopwatch_calls(step_of_engine, &with[0], 0.004);
        enter(r, "step_1k", "zoff's step of 1,000 parameters alone", &with[0], step_of_engine, NULL, steps);
        race_run(r, rounds_of(options), 0, deadline);
    }
    for (unsigned i = 0; i < STEP_SMALL_SIZES; i++) {
        ret = with[i].failed ? -1 : ret;
        close_trainer(&with[i]);
        close_trainer(&without[i]);
    }
    return ret;
}

/* Before each sample the trainer computes, as it does before each step: its threads spin then, or do not. */
static int race_large(const step_options *options, step_book *book, double deadline)
{
    enum { FEW = 16 << 20 };
    const size_t elements = options->elements < FEW ? options->elements : LARGE, turns = turns_of(3e-3);
    trainer once = {.engine = NULL}, looks = {.engine = NULL}, loop = {.engine = NULL};
    race *r = &book->large_loop;
    r->part = "loop";
    snprintf(r->label, sizeof r->label, "%zu fp32 parameters", elements);
    book->loop_elements = elements;
    int ret = open_trainer(elements, turns, false, false, &once);
    ret = ret == 0 ? open_trainer(elements, turns, false, true, &looks) : ret;
    ret = ret == 0 ? open_trainer(elements, turns, true, true, &loop) : ret;
    if (ret == 0) {
        enter(r, "engine", "zoff's step, zoff.skip_nonfinite false", &once, step_of_engine, compute, 1);
        enter(r, "own_loop", "a plain loop, -Ofast and OpenMP", &loop, step_of_loop, compute, 1);
        enter(r, "engine_looks", "zoff's step, which looks for inf and nan first", &looks, step_of_engine, compute, 1);
        race_run(r, rounds_of(options), 0, deadline);
        ret = once.failed || looks.failed ? -1 : 0;
    }
    close_trainer(&once);
    close_trainer(&looks);
    close_trainer(&loop);
    return ret;
}

int step_loop(const step_options *options, step_book *book)
{
    const double start = bench_stopwatch_now(), seconds = options->run.seconds;
    if (race_small(options, book, start + 0.15 * seconds) != 0)
        return -1;
    return race_large(options, book, bench_stopwatch_now() + 0.35 * seconds);
}

void step_loop_judge(const step_book *book, bench_figures *out)
{
    static const char LEFT_OUT[] = "not among the parts of this run, or no round in its time";
    static const char *const FIGURES[STEP_SMALL_SIZES] = {"small_engine_vs_own_loop_1k", "small_engine_vs_own_loop_32k",
                                                          "small_engine_vs_own_loop_1m"};
    double worst = NAN;
    unsigned rounds = 0;
    bench_figure *all =
        bench_figures_add(out, "small_engine_vs_own_loop", -1, 1.05,
                          "an iteration with zoff / with the trainer's own loop: the worst of three sizes", LEFT_OUT);
    for (unsigned i = 0; i < STEP_SMALL_SIZES; i++) {
        bench_figure *f =
            bench_figures_add(out, FIGURES[i], 0, 0, "an iteration with zoff / with the trainer's own loop", LEFT_OUT);
        bench_figures_set_pair(f, &book->small_loop, ENGINE_NAMES[i], LOOP_NAMES[i]);
        if (bench_figures_measured(f)) {
            worst = isnan(worst) || f->value > worst ? f->value : worst;
            rounds = rounds && rounds < f->rounds ? rounds : f->rounds;
        }
    }
    bench_figures_set(all, worst, rounds);
    bench_figure *step =
        bench_figures_add(out, "small_engine_step_us", -1, 5,
                          "microseconds of a step of 1,000 parameters, from begin to the end of wait", LEFT_OUT);
    unsigned count = 0;
    const int alone = race_find(&book->small_loop, "step_1k");
    if (alone >= 0) {
        const bench_spread spread = race_spread(&book->small_loop, alone, &count);
        bench_figures_set(step, 1e6 * spread.median, count);
    }
    bench_figure *f =
        bench_figures_add(out, "engine_vs_plain_loop", -1, 1.02,
                          "zoff's step without looking for inf and nan / a plain loop, -Ofast and OpenMP", LEFT_OUT);
    bench_figures_set_pair(f, &book->large_loop, "engine", "own_loop");
    bench_figure *judged[] = {all, step, f};
    for (unsigned i = 0; i < 3; i++) {
        if (bench_figures_measured(judged[i]) && judged[i]->rounds < ROUNDS)
            bench_figures_spoil(judged[i], "%u rounds are too few", judged[i]->rounds);
    }
    if (bench_figures_measured(f) && book->loop_elements < LARGE)
        bench_figures_spoil(f, "measured with %zu elements; what is asked is about %zu", book->loop_elements, LARGE);
    f = bench_figures_add(out, "looking_vs_plain_loop", 0, 0, "the same with the look: 32 bytes an element in place of 28",
                          LEFT_OUT);
    bench_figures_set_pair(f, &book->large_loop, "engine_looks", "own_loop");
}
