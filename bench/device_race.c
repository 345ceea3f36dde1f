/* device_race.c: copies, the stages of a step alone, and the whole step, in turns. A turn is timed from the request of its work
 * to its end. With a backward pass, only the time after that pass counts. */
#include "device_bench.h"

#include <math.h>
#include <time.h>

/* Length of the backward pass, as a multiple of the download of its gradients: they can hide behind it. */
static const double BACKWARD = 2;

/* --- copies --- */

/* Enqueue copies in one direction, of everything at once or slice by slice. */
static int put(const device_model *m, int direction, bool slices)
{
    const device_move whole[] = {{m->host[GRADS], m->device[GRADS], m->bytes},
                                 {m->device[WEIGHTS], m->host[WEIGHTS], m->bytes}};
    int ret = 0;
    for (size_t i = 0; i < (slices ? m->slices : 1) && ret == 0; i++)
        ret = device_copies_put(m->accel, m->streams[direction], slices ? &m->backward[i].moves[direction] : &whole[direction]);
    return ret;
}

static int wait_for(const device_model *m, int direction)
{
    return bench_told(zoff_accel_stream_wait(m->accel, m->streams[direction]));
}

/* Seconds of copies in one direction, or in both at the same time; negative: they failed. */
static double copy(const device_model *m, bool down, bool up, bool slices)
{
    const double from = bench_now();
    if ((down && put(m, DOWN, slices) != 0) || (up && put(m, UP, slices) != 0) || (down && wait_for(m, DOWN) != 0) ||
        (up && wait_for(m, UP) != 0))
        return -1;
    return bench_now() - from;
}

/* --- steps --- */

/* Whether a step did its work. */
static int check_step(const device_found *found, const zoff_step_info *info)
{
    if (!info->skipped && info->numbers.elements_updated == found->model.elements)
        return 0;
    return bench_fail("a step %s, %llu of %zu elements were updated", info->skipped ? "was skipped" : "was not whole",
                      (unsigned long long)info->numbers.elements_updated, found->model.elements);
}

static double update_only(device_found *found)
{
    found->host_info.struct_size = sizeof found->host_info;
    const double from = bench_now();
    if (bench_told(zoff_step(found->model.host_engine, NULL, &found->host_info)) != 0 ||
        check_step(found, &found->host_info) != 0)
        return -1;
    return bench_now() - from;
}

static void nap(void *ctx)
{
    const device_found *found = ctx;
    struct timespec left = {.tv_sec = (time_t)found->nap};
    left.tv_nsec = (long)(1e9 * (found->nap - (double)left.tv_sec));
    while (nanosleep(&left, &left) != 0)
        continue;
}

static void note_end(void *ctx)
{
    device_found *found = ctx;
    atomic_store(&found->over, bench_now());
}

/* Enqueue the trainer's work for one gradient. Before the last gradient is handed over, a host function notes the end of the
 * work. So the time is known when that gradient arrives. */
static int compute(device_found *found, size_t i)
{
    const device_model *m = &found->model;
    int ret = 0;
    if (m->backward[i].begins_layer)
        ret = bench_told(zoff_accel_stream_call(m->accel, m->trainer, nap, found));
    if (ret == 0 && i == m->slices - 1)
        ret = bench_told(zoff_accel_stream_call(m->accel, m->trainer, note_end, found));
    return ret;
}

/* Take a step after a backward pass, or without one. Seconds from the end of the pass, or from the start. */
static double take_step(device_found *found, bool computes)
{
    const device_model *m = &found->model;
    const zoff_step_args args = {.struct_size = sizeof args};
    found->info.struct_size = sizeof found->info;
    double from = bench_now();
    for (size_t i = 0; i < m->slices; i++) {
        if (computes && compute(found, i) != 0)
            return -1;
        if (bench_told(zoff_grad_ready(m->engine, m->backward[i].param, m->backward[i].slice, m->trainer)) != 0)
            return -1;
    }
    if (bench_told(zoff_step_begin(m->engine, &args)) != 0 || bench_told(zoff_step_wait(m->engine, &found->info)) != 0)
        return -1;
    const double end = bench_now();
    if (computes)
        from = atomic_load(&found->over);
    return check_step(found, &found->info) == 0 ? end - from : -1;
}

/* Seconds in which the engine makes weights of their masters and uploads them, alone or while gradients come down. The
 * gradients beside them are copies by this program, because an engine that has gradients refuses zoff_params_push().
 */
static double push(const device_model *m, bool down)
{
    const double from = bench_now();
    if ((down && put(m, DOWN, true) != 0) || bench_told(zoff_params_push(m->engine)) != 0 || (down && wait_for(m, DOWN) != 0))
        return -1;
    return bench_now() - from;
}

/* --- rounds --- */

enum { COPY_DOWN, COPY_UP, COPY_BOTH, DOWN_ONLY, UP_ONLY, DUPLEX, UPDATE_ONLY, STEP, VISIBLE, PUSH_ONLY, PUSH_BESIDE };

/* Bytes are those between device and host, for each element; tags are parts. */
static const race_line TABLE[] = {
    {"copy_down", "one copy of all gradients", 2, NULL, COPY_DOWN, PART_COPIES},
    {"copy_up", "one copy of all weights", 2, NULL, COPY_UP, PART_COPIES},
    {"copy_both", "both at a time", 4, NULL, COPY_BOTH, PART_COPIES},
    {"down_only", "gradients, slice by slice", 2, NULL, DOWN_ONLY, PART_STAGES},
    {"up_only", "weights, slice by slice", 2, NULL, UP_ONLY, PART_STAGES},
    {"update_only", "the same step with weights and gradients on the host", 0, NULL, UPDATE_ONLY, PART_STAGES},
    {"step", "gradients down, norm, update, weights up", 4, NULL, STEP, PART_STEP},
    {"visible", "the same step, from the end of a backward pass", 4, NULL, VISIBLE, PART_VISIBLE},
    {"duplex", "gradients and weights, slice by slice, both at a time", 4, NULL, DUPLEX, PART_DUPLEX},
    {"push_only", "the engine makes weights of their masters and sends them", 2, NULL, PUSH_ONLY, PART_DUPLEX},
    {"push_beside", "the same while gradients come down", 4, NULL, PUSH_BESIDE, PART_DUPLEX},
    {NULL}};

/* Seconds; negative: it failed. */
static double take_turn(device_found *found, int turn)
{
    if (turn == UPDATE_ONLY)
        return update_only(found);
    if (turn == STEP || turn == VISIBLE) {
        const double seconds = take_step(found, turn == VISIBLE);
        found->at_once = turn == STEP ? found->info : found->at_once;
        return seconds;
    }
    if (turn == PUSH_ONLY || turn == PUSH_BESIDE)
        return push(&found->model, turn == PUSH_BESIDE);
    return copy(&found->model, turn != COPY_UP && turn != UP_ONLY, turn != COPY_DOWN && turn != DOWN_ONLY, turn >= DOWN_ONLY);
}

static double sample(race *r, race_entry *e, double deadline)
{
    device_found *found = r->user;
    const double seconds = take_turn(found, e->work.which);
    e->other[r->rounds] = found->host_info.seconds.measure;
    return seconds;
}

/* Take each turn once, untimed, for pages and connections. The download of gradients sets the length of the backward pass. */
static int warm_up(device_found *found, const race *r)
{
    const double first = take_turn(found, DOWN_ONLY), again = first < 0 ? first : take_turn(found, DOWN_ONLY);
    found->backward = BACKWARD * fmin(first, again);
    found->nap = found->backward / (double)(found->model.layers + 1);
    int ret = again < 0 ? -1 : 0;
    for (unsigned i = 0; i < r->count && ret == 0; i++)
        ret = take_turn(found, r->entries[i].work.which) < 0 ? -1 : 0;
    return ret;
}

int device_race(const device_options *options, device_found *found)
{
    race *r = race_open(&found->book, "device", "%zu elements", found->model.elements);
    r->sample = sample;
    r->user = found;
    race_add_lines(r, TABLE, options->run.parts, (double)found->model.elements, NULL, 1);
    return warm_up(found, r) == 0 ? device_rounds(options, r, options->run.parts & PART_FETCHES ? 0.9 : 1) : -1;
}
