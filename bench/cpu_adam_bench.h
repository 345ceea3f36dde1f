/* cpu_adam_bench.h: what the parts of the CPU step's benchmark share: the options, the arrays, the book of races. */
#ifndef ZOFF_BENCH_CPU_ADAM_BENCH_H
#define ZOFF_BENCH_CPU_ADAM_BENCH_H

#include "figures.h"
#include "nomath.h"
#include "program.h"
#include "race.h"
#include "streams.h"

#include <stdio.h>
#include <zoff/zoff.h>

enum { DTYPE_FP32 = 1, DTYPE_BF16 = 2, DTYPE_FP16 = 4, DTYPE_ANY = 7 };
enum { PART_COMPARE = 1, PART_SWEEP = 2, PART_LISTS = 4, PART_LAYOUT = 8, PART_ANY = 15 };
enum { MOST_SIZES = 32, MOST_RACES = 1024, ENOUGH_ROUNDS = 9 };

typedef struct bench_options {
    size_t sizes[MOST_SIZES]; /* ascending; the ratios are those of the last, and the sweep ends there */
    unsigned size_count;
    unsigned threads; /* 0: one for each core that the affinity mask allows */
    unsigned dtypes;
    const char *isa; /* NULL: the best */
    bench_run run;
} bench_options;

/* All that was measured. */
typedef struct bench_book {
    race *races[MOST_RACES];
    unsigned count;
    size_t huge_bytes; /* of this process in huge pages, once the large arrays were filled */
} bench_book;

/* The race of that name, to go on with, or a new one; NULL with a message when there is no memory for it. */
race *bench_book_open(bench_book *book, const char *part, const char *label);
/* The race of a part with that label, or NULL. */
const race *bench_book_find(const bench_book *book, const char *part, const char *label);
void bench_book_free(bench_book *book);

/* The arrays that compare and sweep walk over, `count` elements each; smaller sizes take their beginnings. */
typedef struct bench_arrays {
    bench_streams mapping;
    size_t count;
    float *p, *m, *v, *g, *wide;
    uint16_t *g16, *w16;     /* bf16: gradient; weights or copy-out */
    uint16_t *g_f16, *w_f16; /* the same in fp16 */
} bench_arrays;

/* Map and fill them, each thread its share. 0, or -1 with a message. */
int bench_arrays_open(bench_arrays *a, size_t count, unsigned threads);
void bench_arrays_close(bench_arrays *a);

/* fp32 values of a benchmark, about `size` large and of both signs: ordinary numbers that no step spoils. */
float bench_arrays_value(size_t i, float size);
uint16_t bench_arrays_bf16(float x);

/* The hyper-parameters of every Adam here, zoff's and the rivals'. */
void bench_hyper_adam(zoff_adam_hyper *out);
enum { BENCH_T = 10 }; /* the number of every step: pow() of it costs what pow() of another number does */

/* The parts. Each adds races to the book; -1 with a message when something failed, which slowness is not. */
int bench_compare_step(const bench_options *options, const bench_arrays *a, size_t count, double deadline, bench_book *book);
int bench_compare_chain(const bench_options *options, const bench_arrays *a, size_t count, double deadline, bench_book *book);
int bench_compare_others(const bench_options *options, const bench_arrays *a, size_t count, double deadline, bench_book *book);
int bench_sweep(const bench_options *options, const bench_arrays *a, double deadline, bench_book *book);
int bench_lists(const bench_options *options, double deadline, bench_book *book);
int bench_layout(const bench_options *options, double deadline, bench_book *book);

/* The fastest of the no-math kernels of that kind on these arrays, found in a race of its own that the book keeps.
 * `streaming` allows those whose pure writes go past the caches, beside those whose do not. */
typedef struct bench_yardstick {
    nomath_fn fn;
    const char *kernel;
} bench_yardstick;
bench_yardstick bench_yardstick_find(const bench_options *options, const nomath_streams *s, size_t count, nomath_kind kind,
                                     int streaming, double deadline, bench_book *book);

/* Form the figures. */
void bench_judge(const bench_options *options, const bench_book *book, bench_figures *out);
/* Whether every figure of a part that something is asked of comes from enough clean rounds. */
int bench_judge_enough(const bench_figures *figures, unsigned parts);
/* Whether noise may decide on which side of its limit a figure is, or has put it on the wrong one. */
int bench_judge_close(const bench_figure *figure);

void bench_report_table(FILE *out, const bench_options *options, const bench_book *book, const bench_figures *figures);
/* 0, or -1 with a message. */
int bench_report_json(const bench_options *options, const bench_book *book, const bench_figures *figures);

#endif
