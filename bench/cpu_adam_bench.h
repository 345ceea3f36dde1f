/* cpu_adam_bench.h: what the parts of the CPU Adam benchmark share: the options, the contestants, the measurements. */
#ifndef ZOFF_BENCH_CPU_ADAM_BENCH_H
#define ZOFF_BENCH_CPU_ADAM_BENCH_H

#include "stopwatch.h"

#include <stdio.h>

/* In the order of the table. `bytes` is what the algorithm must move for an element, without reads for ownership. */
/* clang-format off */
#define CONTESTANT_LIST(C) /* id    name                    bytes  dtype  yardstick     what it is */ \
    C(NOMATH_FP32, "nomath_fp32",          28, FP32, NOMATH_FP32, "yardstick: streams of an fp32 step, no math")               \
    C(NOMATH_BF16, "nomath_bf16",          28, BF16, NOMATH_BF16, "yardstick: streams of a bf16 step, no math")                \
    C(TRIAD,       "triad",                12, ANY,  TRIAD,       "yardstick: a = b + s*c")                                    \
    C(MEMCPY,      "memcpy",                8, ANY,  MEMCPY,      "yardstick: libc's memcpy")                                  \
    C(ZOFF_FP32,   "zoff_fp32",            28, FP32, NOMATH_FP32, "zoff_adam_step, fp32 in place")                             \
    C(PLAIN_FP32,  "plain_fp32",           28, FP32, NOMATH_FP32, "plain C loop, fp32 in place")                               \
    C(ZOFF_BF16,   "zoff_bf16",            28, BF16, NOMATH_BF16, "zoff_adam_step, bf16 gradient and copy-out")                \
    C(NORM_ZOFF,   "norm_zoff_bf16",       30, BF16, NOMATH_BF16, "norm of the bf16 gradient, then zoff_bf16")                 \
    C(CHAIN,       "chain_bf16",           58, BF16, NOMATH_BF16, "upcast, norm, scale, fp32 Adam, cast: five passes")         \
    C(UPCAST,      "chain_upcast",          6, BF16, MEMCPY,      "first pass of the chain")                                   \
    C(NORM,        "chain_norm",            4, BF16, MEMCPY,      "second pass")                                               \
    C(SCALE,       "chain_scale",           8, BF16, MEMCPY,      "third pass")                                                \
    C(DOWNCAST,    "chain_cast",            6, BF16, MEMCPY,      "last pass; the fourth is plain_fp32")
/* clang-format on */

typedef enum contestant_id {
#define C(id, name, bytes, dtype, yardstick, what) CONTESTANT_##id,
    CONTESTANT_LIST(C)
#undef C
        CONTESTANT_COUNT
} contestant_id;

enum { DTYPE_FP32 = 1, DTYPE_BF16 = 2, DTYPE_ANY = DTYPE_FP32 | DTYPE_BF16, MOST_ROUNDS = 64, MOST_SIZES = 32 };

typedef struct contestant {
    const char *name, *what;
    unsigned bytes, dtypes;
    contestant_id yardstick;
} contestant;
extern const contestant CONTESTANTS[CONTESTANT_COUNT];

typedef struct bench_options {
    size_t sizes[MOST_SIZES];
    unsigned size_count;
    unsigned threads; /* 0: all cores that the affinity mask allows */
    unsigned dtypes;
    unsigned rounds; /* clean ones */
    double budget_seconds;
    const char *isa;       /* NULL: the best */
    const char *json_path; /* NULL: no JSON; "-": standard output */
    int quick;
} bench_options;

/* What came of one size. Rounds that were not clean are not in it. */
typedef struct bench_result {
    size_t count;
    unsigned rounds, dropped_rounds, retried_samples;
    int enough;                                    /* as many clean rounds as were asked for */
    double seconds[CONTESTANT_COUNT][MOST_ROUNDS]; /* 0 for a contestant that did not run */
    unsigned calls[CONTESTANT_COUNT];              /* that a sample repeats */
    size_t huge_bytes, total_bytes;
} bench_result;

/* Median over the rounds of time(a) / time(b), each ratio from one round; 0 where either did not run. */
double bench_ratio(const bench_result *result, contestant_id a, contestant_id b);

/* `count` >= 1 sizes, ascending; the ratios are those of the last. */
void bench_report_table(FILE *out, const bench_options *options, const bench_result *results, unsigned count);
/* 0, or -1 when the file cannot be written. */
int bench_report_json(const bench_options *options, const bench_result *results, unsigned count);

#endif
