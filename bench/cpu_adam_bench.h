/* cpu_adam_bench.h: shared by the files of the CPU step's benchmark: options, arrays, parts. */
#ifndef ZOFF_BENCH_CPU_ADAM_BENCH_H
#define ZOFF_BENCH_CPU_ADAM_BENCH_H

#include "nomath.h"
#include "report.h"
#include "streams.h"

enum { DTYPE_FP32 = 1, DTYPE_BF16 = 2, DTYPE_FP16 = 4, DTYPE_ANY = 7 };
enum { PART_COMPARE = 1, PART_SWEEP = 2, PART_LISTS = 4, PART_LAYOUT = 8, PART_ANY = 15 };
enum { MOST_SIZES = 32, ENOUGH_ROUNDS = 9 };
enum { SHARED_FROM = 32768 }; /* elements from which a trainer's loop opens a parallel region */
enum { BENCH_T = 10 };        /* the number of every step; pow() costs the same for any */

typedef struct bench_options {
    size_t sizes[MOST_SIZES], largest; /* ascending; ratios are those of the largest, with which the sweep ends */
    unsigned size_count, dtypes;
    uint64_t threads; /* 0: one for each core in the affinity mask */
    const char *isa;  /* NULL: the fastest */
    bench_run run;
} bench_options;

/* Arrays of `count` elements for compare and sweep; smaller sizes use their beginnings. */
typedef struct bench_arrays {
    bench_streams mapping;
    size_t count;
    nomath_streams s;        /* 16-bit ones are bf16 */
    nomath_streams moved;    /* s for the no-math kernels, but 8-bit moments of their own: changed headers list outliers */
    nomath_streams apart;    /* the other place of p, m, v, w16 and low; split weights share the memory of p */
    uint16_t *g_f16, *w_f16; /* the same in fp16 */
} bench_arrays;

/* cpu_adam_formats.c: step BENCH_T with bf16 gradients. FORMAT_MOMENTS has fp32 masters with a bf16 copy and moments in bf16.
 * The others have masters in two halves, with moments in fp32, in bf16, with m in 8 bits, or with both in 8 bits. */
typedef enum bench_format {
    FORMAT_COPY, /* as FORMAT_MOMENTS, but moments in fp32 */
    FORMAT_MOMENTS,
    FORMAT_SPLIT,
    FORMAT_SPLIT_MOMENTS,
    FORMAT_SPLIT_M8V16,
    FORMAT_SPLIT_Q8
} bench_format;
/* Bytes of `count` moments in 8 bits. */
size_t bench_codes_bytes(size_t count);
void bench_step_format(bench_format format, const nomath_streams *s, size_t count, unsigned threads,
                       const zoff_optimizer_hyper *hyper);
/* The same, but new states go to `apart`; the new 16-bit weights of FORMAT_COPY go to `s`. Not with moments in 16 or 8 bits. */
void bench_step_apart(bench_format format, const nomath_streams *s, const nomath_streams *apart, size_t count, unsigned threads,
                      const zoff_optimizer_hyper *hyper);
/* The same on `count` elements, but each thread repeats it on its own 2,048 elements, which stay in its first cache: the time
 * is that of the instructions. Not with moments in fp32. */
void bench_step_cached(bench_format format, const nomath_streams *s, size_t count, unsigned threads,
                       const zoff_optimizer_hyper *hyper);
/* Cycles of the time-stamp counter in a second, which does not change with the clock of the core; NAN if the CPU has none. */
double bench_cycles_a_second(void);

/* The hyper-parameters of every Adam here: zoff's and the rivals'. */
void bench_hyper_adam(zoff_optimizer_hyper *out);

/* cpu_adam_cores.c: restart the program with the environment that measurements need. Pin the process to as many CPUs as the
 * library has threads, or to those in the options. 0, or -1 with a message. */
int bench_cores_choose(bench_options *options, char **argv);

/* cpu_adam_compare.c, cpu_adam_parts.c: each part adds races to the book. 0, or -1 with a message for an error; slowness is
 * none. */
typedef enum bench_table { TABLE_STEP, TABLE_CHAIN, TABLE_OTHERS } bench_table;
int bench_arrays_open(bench_arrays *a, size_t count);
int bench_compare(const bench_options *options, const bench_arrays *a, bench_table table, size_t count, double deadline,
                  race_book *book);
int bench_sweep(const bench_options *options, const bench_arrays *a, double deadline, race_book *book);
int bench_lists(const bench_options *options, double deadline, race_book *book);
int bench_layout(const bench_options *options, double deadline, race_book *book);

/* cpu_adam_judge.c: compute the figures. */
void bench_judge(const bench_options *options, const race_book *book, bench_figures *out);
/* Whether each figure with a limit, in these parts, has enough clean rounds. */
bool bench_judge_enough(const bench_figures *figures, unsigned parts);
/* The parts that need more rounds. A figure has too few, noise may have decided which side of its limit it is on, or the rival
 * was slow at a size that no cache holds. */
unsigned bench_judge_undecided(const bench_options *options, const bench_figures *figures);

#endif
