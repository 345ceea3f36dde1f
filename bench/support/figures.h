/* figures.h: the figures that a benchmark is run for: what each means, what is asked of it, and why one was not measured or
 * proves nothing. */
#ifndef ZOFF_BENCH_FIGURES_H
#define ZOFF_BENCH_FIGURES_H

#include <jansson.h>
#include <stdio.h>

typedef struct bench_figure {
    const char *name, *meaning; /* static texts */
    double value;               /* NAN: not measured, see `missing` */
    unsigned rounds;            /* that it is the median of */
    int sense;                  /* 1: must be at least `limit`, -1: at most, 0: nothing is asked of it */
    double limit;
    char missing[256];
    char spoilt[256]; /* why it proves nothing although it was measured; "" otherwise */
} bench_figure;

enum { MOST_FIGURES = 48 };
typedef struct bench_figures {
    bench_figure list[MOST_FIGURES];
    unsigned count;
} bench_figures;

/* Name a figure. Until it is set it counts as not measured, for the reason given. */
bench_figure *bench_figures_add(bench_figures *all, const char *name, int sense, double limit, const char *meaning,
                                const char *missing);

/* A value that is not finite leaves the figure unmeasured. */
void bench_figures_set(bench_figure *figure, double value, unsigned rounds);

/* Say why a measured figure proves nothing. The first reason stays. */
void bench_figures_spoil(bench_figure *figure, const char *format, ...) __attribute__((format(printf, 2, 3)));

int bench_figures_held(const bench_figure *figure);

/* One line for each. */
void bench_figures_print(FILE *out, const bench_figures *all);

/* Put "ratios", "verdict", "not_measured" and "meanings" into `root`. */
void bench_figures_put(json_t *root, const bench_figures *all);

/* A number, or null where it is not finite. */
json_t *bench_figures_number(double value);

/* Processor, architecture and kernel of this machine. */
json_t *bench_figures_machine(void);

/* Write to `path`, or to standard output where it is "-". 0, or -1 when it cannot be written. */
int bench_figures_write(json_t *root, const char *path);

#endif
