/* device_race.c: copies, the stages of a step alone, and the whole step, in turns. A turn is timed from the request of its work
 * to its end. With a backward pass, only the time after that pass counts. Then the figures, with the limit of each and the
 * reasons that make one worthless. */
#include "device_bench.h"

#include <math.h>
#include <string.h>
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
    {"copy_down", "one copy of all gradients", NULL, 2, NULL, COPY_DOWN, PART_COPIES},
    {"copy_up", "one copy of all weights", NULL, 2, NULL, COPY_UP, PART_COPIES},
    {"copy_both", "both at a time", NULL, 4, NULL, COPY_BOTH, PART_COPIES},
    {"down_only", "gradients, slice by slice", NULL, 2, NULL, DOWN_ONLY, PART_STAGES},
    {"up_only", "weights, slice by slice", NULL, 2, NULL, UP_ONLY, PART_STAGES},
    {"update_only", "the same step with weights and gradients on the host", NULL, 0, NULL, UPDATE_ONLY, PART_STAGES},
    {"step", "gradients down, norm, update, weights up", NULL, 4, NULL, STEP, PART_STEP},
    {"visible", "the same step, from the end of a backward pass", NULL, 4, NULL, VISIBLE, PART_VISIBLE},
    {"duplex", "gradients and weights, slice by slice, both at a time", NULL, 4, NULL, DUPLEX, PART_DUPLEX},
    {"push_only", "the engine makes weights of their masters and sends them", NULL, 2, NULL, PUSH_ONLY, PART_DUPLEX},
    {"push_beside", "the same while gradients come down", NULL, 4, NULL, PUSH_BESIDE, PART_DUPLEX},
    {NULL, NULL, NULL, 0, NULL, 0, 0}};

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

static int sample(race *r, race_entry *e, double deadline)
{
    device_found *found = r->user;
    (void)deadline;
    e->seconds[r->rounds] = take_turn(found, e->work.which);
    e->other[r->rounds] = found->host_info.seconds.measure;
    return e->seconds[r->rounds] < 0 ? -1 : 1;
}

/* Take each turn once, untimed, for pages and connections. The download of gradients sets the length of the backward pass. */
static int warm_up(device_found *found)
{
    const double first = take_turn(found, DOWN_ONLY), again = first < 0 ? first : take_turn(found, DOWN_ONLY);
    found->backward = BACKWARD * fmin(first, again);
    found->nap = found->backward / (double)(found->model.layers + 1);
    int ret = again < 0 ? -1 : 0;
    for (unsigned i = 0; i < found->race->count && ret == 0; i++)
        ret = take_turn(found, found->race->entries[i].work.which) < 0 ? -1 : 0;
    return ret;
}

int device_race(const device_options *options, device_found *found)
{
    race *r = found->race = race_open(&found->book, "device", "%zu elements", found->model.elements);
    r->sample = sample;
    r->user = found;
    race_add_lines(r, TABLE, options->run.parts, (double)found->model.elements, NULL, 1);
    int ret = warm_up(found);
    while (ret == 0 && r->rounds < options->run.rounds &&
           (!r->rounds || bench_now() < bench_run_deadline(&options->run, options->run.parts & PART_FETCHES ? 0.9 : 1)))
        ret = race_round(r, 0);
    return ret;
}

/* --- figures --- */

static double longest(const race *r, unsigned k, double update)
{
    const double down = race_at(r, "down_only", k), up = race_at(r, "up_only", k);
    return isnan(update) ? NAN : fmax(fmax(down, up), update);
}

static double wall_over_slowest(const race *r, unsigned k)
{
    return race_at(r, "step", k) / longest(r, k, race_at(r, "update_only", k));
}

/* On a device the norm of gradients is the device's work; on the host it is part of the step. */
static double wall_over_kernels(const race *r, unsigned k)
{
    const race_entry *update = race_find(r, "update_only");
    return update ? race_at(r, "step", k) / longest(r, k, update->seconds[k] - update->other[k]) : NAN;
}

static double two_way(const race *r, unsigned k)
{
    return (race_at(r, "copy_down", k) + race_at(r, "copy_up", k)) / race_at(r, "copy_both", k);
}

static const struct {
    bench_asked asked;
    race_value_fn value;
} SPEEDS[] = {
    {{"wall_over_slowest", -1, 1.10, "step without a backward pass / the longest of download, update, upload alone", NULL,
      NULL},
     wall_over_slowest},
    {{"wall_over_kernels", 0, 0, "the same, of the update without the norm, which is the device's here", NULL, NULL},
     wall_over_kernels},
    /* Without the cast of a push: the CPU takes longer for it than the bus for its bytes, so no copy could make up for it. */
    {{"slices_over_memcpy_both", 1, 0.85, "rate of both ways at a time, slice by slice / of two plain copies", "copy_both",
      "duplex"},
     NULL},
    {{"push_beside_over_push", 0, 0, "time of the engine's casts and uploads while gradients come down / alone", "push_beside",
      "push_only"},
     NULL},
    {{"bus_in_step", 0, 0, "bytes of the step over its time / the same rate", "copy_both", "step"}, NULL},
    {{"slices_over_memcpy_down", 0, 0, "rate of gradients slice by slice / of one copy", "copy_down", "down_only"}, NULL},
    {{"slices_over_memcpy_up", 0, 0, "rate of weights slice by slice / of one copy", "copy_up", "up_only"}, NULL},
    {{"two_way_over_one_way", 0, 0, "one way after the other / both at a time, plain copies: 2 where neither slows the other",
      NULL, NULL},
     two_way},
    {{"visible_over_update", 0, 0, "from the end of the backward pass to new weights / the update alone", "visible",
      "update_only"},
     NULL}};

/* Counts, which are the same on every machine. */
static void judge_counts(const device_found *found, bench_figures *out)
{
    static const bench_asked COUNTS[] = {
        {"bytes_per_parameter", -1, 4, "between the device and the host in a step, / parameters: 2 of gradients, 2 of weights",
         NULL, NULL},
        {"pageable_copies", -1, 0, "copies whose host memory was not pinned", NULL, NULL},
        {"bounced_bytes", -1, 0, "copied twice, because host memory was not pinned", NULL, NULL}};
    const race *r = found->race;
    const double moved = (double)(found->info.bytes.device_read + found->info.bytes.device_written);
    bench_figure *f = bench_figures_add_all(out, COUNTS, 3, NULL);
    if (race_find(r, "step") || race_find(r, "visible"))
        bench_figures_set(&f[0], moved / (double)found->model.elements, r->rounds);
    bench_figures_set(&f[1], (double)found->about.pageable_copies, r->rounds);
    bench_figures_set(&f[2], (double)found->about.bounced_bytes, r->rounds);
}

void device_judge(const device_options *options, const device_found *found, bench_figures *out)
{
    static const size_t LEAST_ELEMENTS = (size_t)256 << 20; /* with fewer elements the fixed cost of a copy shows */
    *out = (bench_figures){.missing = "not among the parts of this run"};
    for (unsigned i = 0; i < sizeof SPEEDS / sizeof SPEEDS[0]; i++) {
        bench_figure *f = bench_figures_add_values(out, &SPEEDS[i].asked, found->race, SPEEDS[i].value);
        if (!bench_figures_measured(f))
            continue;
        if (strcmp(options->accel, "cuda") != 0)
            bench_figures_spoil(f, "the accelerator \"%s\" has no bus", options->accel);
        if (found->model.elements < LEAST_ELEMENTS)
            bench_figures_spoil(f, "measured with %zu elements; what is asked is about %zu and more", found->model.elements,
                                LEAST_ELEMENTS);
        if (f->rounds < ENOUGH_ROUNDS)
            bench_figures_spoil(f, "%u rounds are too few", f->rounds);
    }
    if (found->race && found->race->rounds)
        judge_counts(found, out);
}
