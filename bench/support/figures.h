/* figures.h: the results of a benchmark: the meaning and limit of each, and why one was not measured or proves nothing. */
#ifndef ZOFF_BENCH_FIGURES_H
#define ZOFF_BENCH_FIGURES_H

#include "race.h"

#include <stdio.h>

/* A line of a table of figures. */
typedef struct bench_asked {
    const char *name;
    int sense;           /* 1: must be at least `limit`; -1: at most; 0: no limit */
    double limit;        /* what the project promises */
    const char *meaning; /* static text */
    /* The value is the time of one over the time of the other, in pairs of one round; NULL: set otherwise. */
    const char *slower, *faster;
} bench_asked;

typedef struct bench_figure {
    char name[48];
    const char *meaning;
    int sense;
    double limit, value; /* value: NAN if not measured, see `missing` */
    double p10, p90;     /* of the rounds; NAN if the value is no median of rounds */
    unsigned rounds;     /* the value is their median */
    unsigned part;       /* part of the run, if the benchmark sets it */
    unsigned enough;     /* rounds that are sufficient, if the benchmark sets it */
    bool slow_rival;     /* it proves nothing because the rival was slow for another reason */
    char missing[1280];
    char spoilt[256]; /* why it proves nothing, measured or not; otherwise "" */
} bench_figure;

enum { MOST_FIGURES = 48 };
typedef struct bench_figures {
    const char *missing; /* why one is not measured, unless the figure says more */
    bench_figure list[MOST_FIGURES];
    unsigned count, part;
} bench_figures;

/* Add a figure; a ratio takes its value from the race. NULL: nothing was measured. */
bench_figure *bench_figures_add(bench_figures *all, const bench_asked *asked, const race *from);
/* Add all lines of a table; returns the first one. */
bench_figure *bench_figures_add_all(bench_figures *all, const bench_asked *table, size_t count, const race *from);
/* Add a figure that is computed in each round. */
bench_figure *bench_figures_add_values(bench_figures *all, const bench_asked *asked, const race *from, race_value_fn value);

/* Set the value; one that is not finite changes nothing. */
void bench_figures_set(bench_figure *figure, double value, unsigned rounds);
/* Set the value to a median, with its percentiles; one that is not finite changes nothing. */
void bench_figures_set_median(bench_figure *figure, bench_spread spread);
/* Turn the value x and its percentiles into offset + scale * x. */
void bench_figures_map(bench_figure *figure, double offset, double scale);
/* Give a more precise reason why the figure was not measured. Does nothing if it was, or if the reason is "". */
void bench_figures_excuse(bench_figure *figure, const char *reason);
/* Say why a figure proves nothing. The first reason stays. */
void bench_figures_spoil(bench_figure *figure, const char *format, ...) __attribute__((format(printf, 2, 3)));

bool bench_figures_measured(const bench_figure *figure);
bool bench_figures_held(const bench_figure *figure);

/* Print one line for each figure. */
void bench_figures_print(FILE *out, const bench_figures *all);
/* Put "ratios", their "percentiles", "verdict", "not_measured" and "meanings" into `root`. Verdicts name their rounds
 * `rounds_name`. */
void bench_figures_put(json_t *root, const bench_figures *all, const char *rounds_name);

#endif
