/* figures.h: the figures that a benchmark is run for: what each means, what is asked of it, and why one was not measured or
 * proves nothing. */
#ifndef ZOFF_BENCH_FIGURES_H
#define ZOFF_BENCH_FIGURES_H

#include "race.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

typedef struct bench_figure {
    char name[48];
    const char *meaning; /* static text */
    double value;        /* NAN: not measured, see `missing` */
    unsigned rounds;     /* that it is the median of */
    int sense;           /* 1: must be at least `limit`, -1: at most, 0: nothing is asked of it */
    double limit;        /* what the project promises */
    unsigned part;       /* of the run that it comes from, where the benchmark tells */
    unsigned enough;     /* rounds that would do, where the benchmark tells */
    bool slow_rival;     /* why it proves nothing is that the rival was not at its best */
    char missing[1280];
    char spoilt[256]; /* why it proves nothing, measured or not; "" otherwise */
} bench_figure;

enum { MOST_FIGURES = 48 };
typedef struct bench_figures {
    bench_figure list[MOST_FIGURES];
    unsigned count;
} bench_figures;

/* Name a figure. Until it is set it counts as not measured, for the reason given. */
bench_figure *bench_figures_add(bench_figures *all, const char *name, int sense, double limit, const char *meaning,
                                const char *missing);

/* A value that is not finite leaves the figure as it is. */
void bench_figures_set(bench_figure *figure, double value, unsigned rounds);

/* Time of one entry over that of another, in pairs of one round. A race that is NULL or lacks one leaves the figure as it is.
 */
void bench_figures_set_pair(bench_figure *figure, const race *from, const char *slower, const char *faster);

/* A better reason why it was not measured, where it was not. "" is none. */
void bench_figures_excuse(bench_figure *figure, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Say why a figure proves nothing. The first reason stays. */
void bench_figures_spoil(bench_figure *figure, const char *format, ...) __attribute__((format(printf, 2, 3)));

bool bench_figures_measured(const bench_figure *figure);
bool bench_figures_held(const bench_figure *figure);

/* Whether anything that is asked of the project was measured. */
bool bench_figures_any(const bench_figures *all);

/* One line for each. */
void bench_figures_print(FILE *out, const bench_figures *all);

/* Put "ratios", "verdict", "not_measured" and "meanings" into `root`. A verdict tells its rounds under that name. */
void bench_figures_put(json_t *root, const bench_figures *all, const char *rounds_name);

#endif
