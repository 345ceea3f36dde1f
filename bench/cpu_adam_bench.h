/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_adam_bench.h: shared by the files of the CPU step's benchmark: options, arrays, parts. */
#ifndef ZOFF_BENCH_CPU_ADAM_BENCH_H
#define ZOFF_BENCH_CPU_ADAM_BENCH_H

#include "report.h"
#include "streams.h"

enum { DTYPE_FP32 = 1, DTYPE_BF16 = 2, DTYPE_FP16 = 4, DTYPE_ANY = 7 };
enum { PART_COMPARE = 1, PART_SWEEP = 2, PART_LISTS = 4, PART_LAYOUT = 8, PART_ANY = 15 };
enum { MOST_SIZES = 32, ENOUGH_ROUNDS = 9 };
enum { SHARED_FROM = 32768 }; /* elements from which a trainer's loop opens a parallel region */
enum { BENCH_T = 10 };        /* the number of every step; pow() costs the same for any */

/* cpu_adam_nomath.c: kernels that move the bytes of a step and compute next to nothing. They are the roofline: the most that
 * memory allows for these streams. Values stay finite and ordinary, so the kernels may run on a contestant's arrays, but not on
 * its 8-bit moments: a header that changes lists other outliers. */

/* The arrays of a kernel; unused ones may be NULL. */
typedef struct nomath_streams {
    float *p, *m, *v, *g, *wide; /* arrays in fp32; wide: scratch */
    uint16_t *g16, *w16;         /* gradients of 16 bits; w16: weights, or the copy of them */
    uint16_t *m16, *v16;         /* moments of 16 bits */
    uint16_t *low;               /* lower halves of split weights, whose upper ones are w16 */
    uint8_t *m8, *v8;            /* moments of 8 bits; a kernel moves as many bytes as there are elements, headers or not */
} nomath_streams;

typedef enum nomath_kind {
    NOMATH_FP32,          /* p m v read and written, g read: 28 bytes an element */
    NOMATH_HALF_OUT,      /* p m v read and written, g16 read, w16 written: 28 */
    NOMATH_MOMENTS,       /* p m16 v16 read and written, g16 read, w16 written: 20 */
    NOMATH_SPLIT,         /* w16 low m v read and written, g16 read: 26 */
    NOMATH_SPLIT_MOMENTS, /* w16 low m16 v16 read and written, g16 read: 18 */
    NOMATH_SPLIT_M8V16,   /* w16 low m8 v16 read and written, g16 read: 16 */
    NOMATH_SPLIT_Q8,      /* w16 low m8 v8 read and written, g16 read: 14 */
    NOMATH_HALF_KEEP,     /* w16 m v read and written, g16 read: 22 */
    NOMATH_ONE_STATE,     /* p m read and written, g read: 20 */
    NOMATH_NO_STATE,      /* p read and written, g read: 12 */
    NOMATH_WIDEN,         /* wide written, g16 read: 6 */
    NOMATH_READ32,        /* wide read: 4 */
    NOMATH_READ16,        /* g16 read: 2 */
    NOMATH_TOUCH,         /* wide read and written: 8 */
    NOMATH_NARROW,        /* w16 written, p read: 6 */
    NOMATH_TRIAD,         /* wide = g + s * p: 12 */
    NOMATH_COPY,          /* wide = g: 8 */
    NOMATH_KINDS
} nomath_kind;

/* One implementation of all kernels. */
typedef struct nomath_way {
    const char *name;
    /* Work on elements begin .. end-1. The result only keeps the compiler from dropping reads. */
    uint32_t (*run)(nomath_kind kind, const nomath_streams *s, size_t begin, size_t end);
} nomath_way;

enum { NOMATH_WAYS = 5 };
/* List the implementations of this kind that this build has and this CPU can run, widest vectors last. Returns how many. */
unsigned nomath_ways(nomath_kind kind, nomath_way out[NOMATH_WAYS]);
/* The implementation with the widest vectors. */
nomath_way nomath_widest(void);

/* Run an implementation on all of `count` elements, a contiguous share for each thread, in its own parallel region. */
void nomath_run(const nomath_way *way, nomath_kind kind, const nomath_streams *s, size_t count, unsigned threads);

/* The calling thread's share of `count` elements in a region. It is schedule(static)'s share, but cut at lines. */
void nomath_share(size_t count, size_t *begin, size_t *end);

/* cpu_adam_plain.c: the rivals: AdamW as the author of a trainer writes it, and the passes that frameworks run before and after
 * it. Each call is a parallel region of its own. */

/* Step t of `n` elements. */
void plain_adam(size_t n, float *p, float *m, float *v, const float *g, const zoff_optimizer_hyper *h, int t, unsigned threads);
/* Compute plain_adam() without OpenMP. */
void plain_adam_serial(size_t n, float *p, float *m, float *v, const float *g, const zoff_optimizer_hyper *h, int t);

/* Other passes of the chain: a framework's casts and multiplication. */
void plain_widen(size_t n, float *wide, const uint16_t *g16, unsigned threads);
void plain_scale(size_t n, float *wide, float factor, unsigned threads);
void plain_round(size_t n, uint16_t *w16, const float *p, unsigned threads); /* rounds to nearest, ties away from zero */
/* Sum of squares of fp32 numbers, or of bf16 if `wide` is NULL: a fused step needs that of its gradients, too. */
double plain_norm(size_t n, const float *wide, const uint16_t *g16, unsigned threads);

extern struct adam_options {
    size_t sizes[MOST_SIZES], largest; /* sizes, ascending; ratios are those of the largest, with which the sweep ends */
    unsigned size_count, dtypes;
    uint64_t threads; /* threads; 0: one for each core in the affinity mask */
    const char *isa;  /* instruction set; NULL: the fastest */
} adam;

/* Arrays of `count` elements for compare and sweep; smaller sizes use their beginnings. */
extern struct adam_arrays {
    size_t count;
    nomath_streams s;        /* streams whose 16-bit numbers are bf16 */
    nomath_streams moved;    /* s for the no-math kernels, but 8-bit moments of their own: changed headers list outliers */
    nomath_streams apart;    /* the other place of p, m, v, w16 and low; split weights share the memory of p */
    uint16_t *g_f16, *w_f16; /* gradients and weights in fp16 */
} arrays;

/* cpu_adam_formats.c: step BENCH_T with bf16 gradients. FORMAT_MOMENTS has fp32 masters with a bf16 copy and moments in bf16.
 * The others have masters in two halves, with moments in fp32, in bf16, with m in 8 bits, or with both in 8 bits. */
typedef enum bench_format {
    FORMAT_COPY, /* the format is FORMAT_MOMENTS, but with moments in fp32 */
    FORMAT_MOMENTS,
    FORMAT_SPLIT,
    FORMAT_SPLIT_MOMENTS,
    FORMAT_SPLIT_M8V16,
    FORMAT_SPLIT_Q8
} bench_format;
/* Bytes of `count` moments in 8 bits. */
size_t bench_codes_bytes(size_t count);
/* New states go to the places of the old ones. Or they go to `apart`, but the new 16-bit weights of FORMAT_COPY to `s`; not
 * with moments in 16 or 8 bits. Or each thread repeats the step on its own 2,048 elements, which stay in its first cache, so
 * that the time is that of the instructions; not with moments in fp32. */
typedef enum bench_place { PLACE_SAME, PLACE_APART, PLACE_CACHED } bench_place;
void bench_step(bench_format format, bench_place place, const nomath_streams *s, const nomath_streams *apart, size_t count,
                unsigned threads, const zoff_optimizer_hyper *hyper);
/* Cycles of the time-stamp counter in a second, which does not change with the clock of the core; NAN if the CPU has none. */
double bench_cycles_a_second(void);

/* The hyper-parameters of every Adam here: zoff's and the rivals'. */
void bench_hyper_adam(zoff_optimizer_hyper *out);

/* cpu_adam_compare.c, cpu_adam_parts.c: each part adds races, or rounds to those that it has added. */
typedef enum bench_table { TABLE_STEP, TABLE_CHAIN, TABLE_OTHERS } bench_table;
void bench_arrays_open(size_t count);
void bench_compare(bench_table table, size_t count, double deadline);
void bench_sweep(double deadline);
void bench_lists(double deadline);
void bench_layout(double deadline);

#endif
