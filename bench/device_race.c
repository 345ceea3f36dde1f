/* device_race.c: copies, the stages of a step alone, and the whole step, by turns. A turn is timed from where its work is asked
 * for to where all of it is done; of the step with a backward pass only what comes after that pass. */
#include "device_bench.h"

#include <math.h>
#include <time.h>

/* The backward pass takes this many times the way of its gradients alone, so that they can hide behind it. */
static const double BACKWARD = 2;

static int told(zoff_status status)
{
    if (status < 0)
        fprintf(stderr, "device: %s\n", zoff_last_error());
    return status < 0 ? -1 : 0;
}

/* ---- copies ---- */

/* Seconds of copies in one direction or, at a time, both; negative: they failed. */
static double copy(const device_model *m, const device_move *down, const device_move *up, size_t count)
{
    const double from = bench_stopwatch_now();
    if (down && device_copies_put(m->accel, m->streams[0], down, count) != 0)
        return -1;
    if (up && device_copies_put(m->accel, m->streams[1], up, count) != 0)
        return -1;
    if (down && told(zoff_accel_stream_wait(m->accel, m->streams[0])) != 0)
        return -1;
    if (up && told(zoff_accel_stream_wait(m->accel, m->streams[1])) != 0)
        return -1;
    return bench_stopwatch_now() - from;
}

static double copy_whole(const device_model *m, bool down, bool up)
{
    const device_move falls = {m->grads, m->device_grads, m->bytes}, rises = {m->device_weights, m->weights, m->bytes};
    return copy(m, down ? &falls : NULL, up ? &rises : NULL, 1);
}

static double copy_down(device_book *book)
{
    return copy_whole(&book->model, true, false);
}

static double copy_up(device_book *book)
{
    return copy_whole(&book->model, false, true);
}

static double copy_both(device_book *book)
{
    return copy_whole(&book->model, true, true);
}

/* ---- stages alone ---- */

static double down_only(device_book *book)
{
    return copy(&book->model, book->model.down, NULL, book->model.slices);
}

static double up_only(device_book *book)
{
    return copy(&book->model, NULL, book->model.up, book->model.slices);
}

/* Whether a step has done what a step does. */
static int check_step(const device_book *book, const zoff_step_info *info)
{
    if (!info->skipped && info->elements_updated == book->model.elements)
        return 0;
    fprintf(stderr, "device: a step %s, %llu of %zu elements were updated\n", info->skipped ? "was skipped" : "was not whole",
            (unsigned long long)info->elements_updated, book->model.elements);
    return -1;
}

static double update_only(device_book *book)
{
    book->host_info.struct_size = sizeof book->host_info;
    const double from = bench_stopwatch_now();
    if (told(zoff_step(book->model.host_engine, NULL, &book->host_info)) != 0 || check_step(book, &book->host_info) != 0)
        return -1;
    return bench_stopwatch_now() - from;
}

/* ---- the step ---- */

static void nap(void *ctx)
{
    const device_book *book = ctx;
    struct timespec left = {.tv_sec = (time_t)book->nap};
    left.tv_nsec = (long)(1e9 * (book->nap - (double)left.tv_sec));
    while (nanosleep(&left, &left) != 0)
        continue;
}

static void note_end(void *ctx)
{
    device_book *book = ctx;
    atomic_store(&book->over, bench_stopwatch_now());
}

/* What the trainer's stream does before a gradient is there. The end is noted before the last one is handed over, so it is
 * known when that one has come. */
static int compute(device_book *book, size_t i)
{
    const device_model *m = &book->model;
    int ret = 0;
    if (m->backward[i].begins_layer)
        ret = told(zoff_accel_stream_call(m->accel, m->trainer, nap, book));
    if (ret == 0 && i == m->slices - 1)
        ret = told(zoff_accel_stream_call(m->accel, m->trainer, note_end, book));
    return ret;
}

/* A step after a backward pass that takes its time or none. Seconds from its end, or from its start. */
static double take_step(device_book *book, bool computes)
{
    const device_model *m = &book->model;
    zoff_step_info *info = &book->info;
    const zoff_step_args args = {.struct_size = sizeof args};
    info->struct_size = sizeof *info;
    double from = bench_stopwatch_now();
    for (size_t i = 0; i < m->slices; i++) {
        if (computes && compute(book, i) != 0)
            return -1;
        if (told(zoff_grad_ready(m->engine, m->backward[i].param, m->backward[i].slice, m->trainer)) != 0)
            return -1;
    }
    if (told(zoff_step_begin(m->engine, &args)) != 0 || told(zoff_step_wait(m->engine, info)) != 0)
        return -1;
    const double end = bench_stopwatch_now();
    if (computes)
        from = atomic_load(&book->over);
    return check_step(book, info) == 0 ? end - from : -1;
}

static double step(device_book *book)
{
    return take_step(book, false);
}

static double visible(device_book *book)
{
    return take_step(book, true);
}

/* A step is as long as its update and hides how fast both directions are at a time. This turn measures it where the engine does
 * little else: the engine makes weights of their masters and uploads them. The gradients beside them are copies of this
 * program, for an engine that was handed gradients refuses zoff_params_push(). */
static double duplex(device_book *book)
{
    const device_model *m = &book->model;
    const double from = bench_stopwatch_now();
    if (device_copies_put(m->accel, m->streams[0], m->down, m->slices) != 0 || told(zoff_params_push(m->engine)) != 0 ||
        told(zoff_accel_stream_wait(m->accel, m->streams[0])) != 0)
        return -1;
    return bench_stopwatch_now() - from;
}

/* ---- rounds ---- */

typedef double (*turn_fn)(device_book *book);

static const struct {
    const char *name, *what;
    unsigned parts;
    double bytes; /* between the device and the host, an element */
    turn_fn turn;
} TURNS[] = {
    {"copy_down", "one copy of all gradients", PART_COPIES, 2, copy_down},
    {"copy_up", "one copy of all weights", PART_COPIES, 2, copy_up},
    {"copy_both", "both at a time", PART_COPIES, 4, copy_both},
    {"down_only", "gradients, slice by slice", PART_STAGES, 2, down_only},
    {"up_only", "weights, slice by slice", PART_STAGES, 2, up_only},
    {"update_only", "the same step with weights and gradients on the host", PART_STAGES, 0, update_only},
    {"step", "gradients down, norm, update, weights up", PART_STEP, 4, step},
    {"visible", "the same step, from the end of a backward pass", PART_VISIBLE, 4, visible},
    {"duplex", "gradients down while the engine makes and sends weights", PART_DUPLEX, 4, duplex},
};
enum { TURN_COUNT = sizeof TURNS / sizeof TURNS[0] };

/* Each once and untimed: pages, connections, the way of gradients that says how long the backward pass is. */
static int warm_up(const turn_fn *turns, device_book *book)
{
    double alone = down_only(book);
    const double again = alone < 0 ? -1 : down_only(book);
    if (again < 0)
        return -1;
    alone = fmin(alone, again);
    book->nap = BACKWARD * alone / (double)(book->model.layers + 1);
    book->backward = BACKWARD * alone;
    for (unsigned i = 0; i < book->race.count; i++) {
        if (turns[i](book) < 0)
            return -1;
    }
    return 0;
}

int device_race(const device_options *options, device_book *book)
{
    race *r = &book->race;
    turn_fn turns[TURN_COUNT];
    *r = (race){.part = "device"};
    snprintf(r->label, sizeof r->label, "%zu elements", book->model.elements);
    for (unsigned i = 0; i < TURN_COUNT; i++) {
        if (!(options->run.parts & TURNS[i].parts))
            continue;
        turns[r->count] = TURNS[i].turn;
        race_add(r, (race_entry){.name = TURNS[i].name,
                                 .what = TURNS[i].what,
                                 .elements = (double)book->model.elements,
                                 .bytes = TURNS[i].bytes,
                                 .yardstick = -1,
                                 .calls = 1});
    }
    if (warm_up(turns, book) != 0)
        return -1;
    for (unsigned k = 0; k < options->run.rounds; k++) {
        if (k > 0 && bench_stopwatch_now() > bench_run_deadline(&options->run, 1))
            break;
        for (unsigned i = 0; i < r->count; i++) {
            const unsigned turn = (i + k / 2 * 3) % r->count, at = k % 2 ? r->count - 1 - turn : turn;
            const double seconds = turns[at](book);
            if (seconds < 0)
                return -1;
            r->entries[at].seconds[k] = seconds;
            if (turns[at] == update_only)
                book->measure[k] = book->host_info.measure_seconds;
        }
        r->rounds = r->clean_rounds = k + 1;
    }
    return 0;
}
