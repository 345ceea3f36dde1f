/* device_judge.c: from the race to the figures that the run is for, with what is asked of each and what makes one worthless. */
#include "device_bench.h"

#include <math.h>
#include <string.h>

static const size_t LEAST_ELEMENTS = (size_t)256 << 20; /* below, what a copy costs beside its bytes is seen */

static const char LEFT_OUT[] = "not among the parts of this run";

/* Of an entry in a round; NAN where it did not run. */
static double at(const race *r, const char *name, unsigned k)
{
    const int i = race_find(r, name);
    return i < 0 ? NAN : r->entries[i].seconds[k];
}

static double pair(const race *r, const char *a, const char *b, unsigned k)
{
    return at(r, a, k) / at(r, b, k);
}

/* ---- a figure of one round ---- */

typedef double (*value_fn)(const device_book *book, unsigned k);

static double wall_over_slowest(const device_book *book, unsigned k)
{
    const race *r = &book->race;
    const double down = at(r, "down_only", k), up = at(r, "up_only", k), update = at(r, "update_only", k);
    return at(r, "step", k) / fmax(fmax(down, up), update);
}

/* The norm of gradients on a device is the device's work; of those on the host it is part of the step. */
static double wall_over_kernels(const device_book *book, unsigned k)
{
    const race *r = &book->race;
    const double update = at(r, "update_only", k) - book->measure[k];
    return at(r, "step", k) / fmax(fmax(at(r, "down_only", k), at(r, "up_only", k)), update);
}

static double duplex_over_memcpy(const device_book *book, unsigned k)
{
    return pair(&book->race, "copy_both", "duplex", k);
}

static double bus_in_step(const device_book *book, unsigned k)
{
    return pair(&book->race, "copy_both", "step", k);
}

static double slices_down(const device_book *book, unsigned k)
{
    return pair(&book->race, "copy_down", "down_only", k);
}

static double slices_up(const device_book *book, unsigned k)
{
    return pair(&book->race, "copy_up", "up_only", k);
}

static double two_way(const device_book *book, unsigned k)
{
    return (at(&book->race, "copy_down", k) + at(&book->race, "copy_up", k)) / at(&book->race, "copy_both", k);
}

static double visible_over_update(const device_book *book, unsigned k)
{
    return pair(&book->race, "visible", "update_only", k);
}

static const struct {
    const char *name, *meaning;
    value_fn value;
    int sense;
    double limit;
} FIGURES[] = {
    {"wall_over_slowest", "step without a backward pass / the longest of download, update, upload alone", wall_over_slowest, -1,
     1.10},
    {"wall_over_kernels", "the same, of the update without the norm, which is the device's here", wall_over_kernels, 0, 0},
    {"duplex_over_memcpy", "rate of both ways at a time through the engine / of two plain copies", duplex_over_memcpy, 1, 0.85},
    {"bus_in_step", "bytes of the step over its time / the same rate", bus_in_step, 0, 0},
    {"slices_over_memcpy_down", "rate of gradients slice by slice / of one copy", slices_down, 0, 0},
    {"slices_over_memcpy_up", "rate of weights slice by slice / of one copy", slices_up, 0, 0},
    {"two_way_over_one_way", "one way after the other / both at a time, plain copies: 2 where neither slows the other", two_way,
     0, 0},
    {"visible_over_update", "from the end of the backward pass to new weights / the update alone", visible_over_update, 0, 0},
};

/* ---- all of them ---- */

static void check_speed(const device_options *options, const device_book *book, bench_figure *f)
{
    if (!bench_figures_measured(f))
        return;
    if (strcmp(options->accel, "cuda") != 0)
        bench_figures_spoil(f, "the accelerator \"%s\" has no bus", options->accel);
    if (book->model.elements < LEAST_ELEMENTS)
        bench_figures_spoil(f, "measured with %zu elements; what is asked is about %zu and more", book->model.elements,
                            LEAST_ELEMENTS);
    if (f->rounds < ENOUGH_ROUNDS)
        bench_figures_spoil(f, "%u rounds are too few", f->rounds);
}

/* Counts, which are the same on any machine. */
static void judge_counts(const device_book *book, bench_figures *out)
{
    bench_figure *f = bench_figures_add(out, "bytes_per_parameter", -1, 4,
                                        "between the device and the host in a step, / "
                                        "parameters: 2 of gradients, 2 of weights",
                                        LEFT_OUT);
    if (race_find(&book->race, "step") >= 0 || race_find(&book->race, "visible") >= 0)
        bench_figures_set(f,
                          (double)(book->info.device_read_bytes + book->info.device_write_bytes) / (double)book->model.elements,
                          book->race.rounds);
    f = bench_figures_add(out, "pageable_copies", -1, 0, "copies whose host memory was not pinned", LEFT_OUT);
    bench_figures_set(f, (double)book->about.pageable_copies, book->race.rounds);
    f = bench_figures_add(out, "bounced_bytes", -1, 0, "copied twice, because host memory was not pinned", LEFT_OUT);
    bench_figures_set(f, (double)book->about.bounced_bytes, book->race.rounds);
}

void device_judge(const device_options *options, const device_book *book, bench_figures *out)
{
    *out = (bench_figures){.count = 0};
    for (unsigned i = 0; i < sizeof FIGURES / sizeof FIGURES[0]; i++) {
        double values[RACE_ROUNDS];
        unsigned count = 0;
        bench_figure *f =
            bench_figures_add(out, FIGURES[i].name, FIGURES[i].sense, FIGURES[i].limit, FIGURES[i].meaning, LEFT_OUT);
        for (unsigned k = 0; k < book->race.rounds; k++) {
            const double value = FIGURES[i].value(book, k);
            if (isfinite(value))
                values[count++] = value;
        }
        if (count)
            bench_figures_set(f, bench_stopwatch_spread(values, count).median, count);
        check_speed(options, book, f);
    }
    if (book->race.rounds)
        judge_counts(book, out);
}
