/* nomath.h: kernels that move the bytes of a step and compute next to nothing. They are the roofline of a benchmark: what the
 * memory allows with these streams, whoever computes. Values stay finite and ordinary, so they may run on a contestant's
 * arrays; nothing else is meant by them. */
#ifndef ZOFF_BENCH_NOMATH_H
#define ZOFF_BENCH_NOMATH_H

#include <stddef.h>
#include <stdint.h>

/* The arrays of a kernel, as far as it has them. */
typedef struct nomath_streams {
    float *p, *m, *v;
    const float *g;
    const uint16_t *g16;
    uint16_t *w16; /* 16-bit weights, or the copy of them */
    float *wide;   /* scratch */
} nomath_streams;

typedef enum nomath_kind {
    NOMATH_FP32,      /* p m v read and written, g read: 28 bytes an element */
    NOMATH_HALF_OUT,  /* p m v read and written, g16 read, w16 written: 28 */
    NOMATH_HALF_KEEP, /* w16 m v read and written, g16 read: 22 */
    NOMATH_ONE_STATE, /* p m read and written, g read: 20 */
    NOMATH_NO_STATE,  /* p read and written, g read: 12 */
    NOMATH_WIDEN,     /* wide written, g16 read: 6 */
    NOMATH_READ32,    /* wide read: 4 */
    NOMATH_READ16,    /* g16 read: 2 */
    NOMATH_TOUCH,     /* wide read and written: 8 */
    NOMATH_NARROW,    /* w16 written, p read: 6 */
    NOMATH_TRIAD,     /* wide = g + s * p: 12 */
    NOMATH_COPY,      /* wide = g: 8 */
    NOMATH_KINDS
} nomath_kind;

/* Work on elements begin .. end-1; begin is a multiple of 64 and the 16-bit arrays are aligned to 64 bytes there. The value
 * means nothing; it keeps what is only read from being left out. */
typedef uint32_t (*nomath_fn)(const nomath_streams *s, size_t begin, size_t end);

/* One way to write all of them. */
typedef struct nomath_table {
    const char *name, *streaming_name;
    nomath_fn plain[NOMATH_KINDS];
    nomath_fn streaming[NOMATH_KINDS]; /* what is only written goes past the caches; NULL where there is no such kernel */
} nomath_table;

extern const nomath_table nomath_table_portable, nomath_table_avx2, nomath_table_avx512;

enum { NOMATH_TABLES = 3 };
/* The tables that this build has and this CPU can run; the number of them. */
unsigned nomath_tables(const nomath_table *out[NOMATH_TABLES]);

/* Run one of them on all of `count` elements, a contiguous share for each thread, in a region of its own. */
void nomath_run(nomath_fn fn, const nomath_streams *s, size_t count, unsigned threads);

/* The calling thread's share of `count` elements in a region; what trainers get from schedule(static), but cut at lines. */
void nomath_share(size_t count, size_t *begin, size_t *end);

#endif
