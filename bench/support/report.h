/* SPDX-License-Identifier: Apache-2.0 */
/* report.h: the results of a benchmark: figures with their meaning and limit, or why one was not measured or proves nothing; as
 * a table for people, and as JSON for programs. */
#ifndef ZOFF_BENCH_REPORT_H
#define ZOFF_BENCH_REPORT_H

#include "program.h"
#include "race.h"

/* A line of a table of figures. */
typedef struct bench_asked {
    const char *name;
    int sense;           /* 1: must be at least `limit`; -1: at most; 0: no limit */
    double limit;        /* what the project promises */
    const char *meaning; /* static text */
    const char *race;    /* it comes from, as race_of() finds it */
    const char *formula; /* formula of race_values(), whose median is the value; NULL: set otherwise */
    unsigned about;      /* bits of the table's own: what can make it void */
    unsigned enough;     /* rounds that are sufficient */
} bench_asked;

typedef struct bench_figure {
    bench_asked asked;      /* which the benchmark may change */
    double value, p10, p90; /* NAN: not measured, see `missing`; the value is no median of rounds */
    unsigned rounds;        /* the value is their median */
    unsigned disturbed;     /* rounds that were disturbed; 0 if enough rounds were quiet, which then are the only ones */
    bool slow_rival;        /* it proves nothing because the rival was slow for another reason */
    const char *missing;
    const char *spoilt; /* why it proves nothing, measured or not; otherwise "" */
} bench_figure;

extern struct bench_figures {
    const char *missing; /* why one is not measured, unless its race says more */
    bench_figure list[64];
    unsigned count;
} bench_figures;

/* The head of a loop over all figures: for (EACH_FIGURE(f)) ... */
#define EACH_FIGURE(f)                                                                                                         \
    bench_figure *f = bench_figures.list;                                                                                      \
    f < bench_figures.list + bench_figures.count;                                                                              \
    f++

/* Add the lines of a table; returns the figure of the first one. */
bench_figure *bench_figures_add(const bench_asked *table, size_t count);
bench_figure *bench_figures_find(const char *name); /* ends the program if there is none */

/* Set the value; one that is not finite changes nothing. */
void bench_figures_set(bench_figure *figure, double value, unsigned rounds);
/* Give a more precise reason why the figure was not measured. Does nothing if it was, or if the reason is "". */
void bench_figures_excuse(bench_figure *figure, const char *reason);
/* Say why a figure proves nothing, or all figures that have one of these bits (0: all). The first reason stays. */
void bench_figures_spoil(bench_figure *figure, const char *reason);
void bench_figures_void(unsigned about, const char *reason);
/* Make figures void that have too few rounds, or too few in which nobody was disturbed by what `others` did. */
void bench_figures_check_rounds(void);
void bench_figures_check_quiet(const char *others);

bool bench_figures_measured(const bench_figure *figure);
bool bench_figures_held(const bench_figure *figure);

/* Print all races and figures, and write the JSON if it was asked for. Returns the exit status. */
int bench_report(const bench_spec *spec);
/* A number, or null if it is not finite. */
json_t *bench_report_number(double value);
/* Processor, architecture and kernel of this machine. */
json_t *bench_report_machine(void);

#endif
