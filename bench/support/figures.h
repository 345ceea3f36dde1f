/* figures.h: the figures that a benchmark is run for: what each means, what is asked of it, and why one was not measured or
 * proves nothing. */
#ifndef ZOFF_BENCH_FIGURES_H
#define ZOFF_BENCH_FIGURES_H

#include "race.h"

#include <stdio.h>

/* A line of a table of figures. */
typedef struct bench_asked {
    const char *name;
    int sense;                   /* 1: must be at least `limit`, -1: at most, 0: nothing is asked of it */
    double limit;                /* what the project promises */
    const char *meaning;         /* static text */
    const char *slower, *faster; /* it is time of the one / time of the other, in pairs of one round; NULL: set otherwise */
} bench_asked;

typedef struct bench_figure {
    char name[48];
    const char *meaning;
    int sense;
    double limit, value; /* value: NAN, not measured, see `missing` */
    unsigned rounds;     /* that it is the median of */
    unsigned part;       /* of the run that it comes from, where the benchmark tells */
    unsigned enough;     /* rounds that would do, where the benchmark tells */
    bool slow_rival;     /* it proves nothing because the rival was not at its best */
    char missing[1280];
    char spoilt[256]; /* why it proves nothing, measured or not; "" otherwise */
} bench_figure;

enum { MOST_FIGURES = 48 };
typedef struct bench_figures {
    const char *missing; /* why one is not measured, where nobody says better */
    bench_figure list[MOST_FIGURES];
    unsigned count, part;
} bench_figures;

/* Add a figure, from a race where it is a ratio; NULL: nothing was measured. */
bench_figure *bench_figures_add(bench_figures *all, const bench_asked *asked, const race *from);
/* Add all lines of a table; the first of them. */
bench_figure *bench_figures_add_all(bench_figures *all, const bench_asked *table, size_t count, const race *from);
/* Add a figure that is formed in each round. */
bench_figure *bench_figures_add_values(bench_figures *all, const bench_asked *asked, const race *from, race_value_fn value);

/* A value that is not finite leaves the figure as it is. */
void bench_figures_set(bench_figure *figure, double value, unsigned rounds);
/* A better reason why it was not measured, where it was not. "" is none. */
void bench_figures_excuse(bench_figure *figure, const char *reason);
/* Say why a figure proves nothing. The first reason stays. */
void bench_figures_spoil(bench_figure *figure, const char *format, ...) __attribute__((format(printf, 2, 3)));

bool bench_figures_measured(const bench_figure *figure);
bool bench_figures_held(const bench_figure *figure);

/* One line for each. */
void bench_figures_print(FILE *out, const bench_figures *all);
/* Put "ratios", "verdict", "not_measured" and "meanings" into `root`. A verdict tells its rounds under that name. */
void bench_figures_put(json_t *root, const bench_figures *all, const char *rounds_name);

#endif
