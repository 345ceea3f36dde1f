/* nomath.h: kernels that move the bytes of a step and compute next to nothing. They are the roofline of a benchmark: what the
 * memory allows with these streams, whoever computes. Values stay finite and ordinary, so they may run on a contestant's
 * arrays; nothing else is meant by them. */
#ifndef ZOFF_BENCH_NOMATH_H
#define ZOFF_BENCH_NOMATH_H

#include <stddef.h>
#include <stdint.h>

/* The arrays of a kernel, as far as it has them. */
typedef struct nomath_streams {
    float *p, *m, *v, *g, *wide; /* wide: scratch */
    uint16_t *g16, *w16;         /* w16: 16-bit weights, or the copy of them */
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

/* A way to write all of them. */
typedef struct nomath_way {
    const char *name;
    /* Work on elements begin .. end-1. The value means nothing; it keeps what is only read from being left out. */
    uint32_t (*run)(nomath_kind kind, const nomath_streams *s, size_t begin, size_t end);
} nomath_way;

enum { NOMATH_WAYS = 5 };
/* The ways that this build has and this CPU can run that kind, the widest vectors last; the number of them. */
unsigned nomath_ways(nomath_kind kind, nomath_way out[NOMATH_WAYS]);
/* The one with the widest vectors. */
nomath_way nomath_widest(void);

/* Run one of them on all of `count` elements, a contiguous share for each thread, in a region of its own. */
void nomath_run(const nomath_way *way, nomath_kind kind, const nomath_streams *s, size_t count, unsigned threads);

/* The calling thread's share of `count` elements in a region; what trainers get from schedule(static), but cut at lines. */
void nomath_share(size_t count, size_t *begin, size_t *end);

#endif
