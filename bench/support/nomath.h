/* nomath.h: kernels that move the bytes of a step and compute next to nothing. They are the roofline of a benchmark: the most
 * that memory allows for these streams. Values stay finite and ordinary, so the kernels may run on a contestant's arrays, but
 * not on its 8-bit moments: a header that changes lists other outliers. */
#ifndef ZOFF_BENCH_NOMATH_H
#define ZOFF_BENCH_NOMATH_H

#include <stddef.h>
#include <stdint.h>

/* The arrays of a kernel; unused ones may be NULL. */
typedef struct nomath_streams {
    float *p, *m, *v, *g, *wide; /* wide: scratch */
    uint16_t *g16, *w16;         /* w16: 16-bit weights, or the copy of them */
    uint16_t *m16, *v16;         /* 16-bit moments */
    uint16_t *low;               /* lower halves of split weights, whose upper ones are w16 */
    uint8_t *m8, *v8;            /* 8-bit moments; a kernel moves as many bytes as there are elements, headers or not */
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
/* List the implementations of this kind that this build has and this CPU can run, the widest vectors last. Returns their
 * number. */
unsigned nomath_ways(nomath_kind kind, nomath_way out[NOMATH_WAYS]);
/* The implementation with the widest vectors. */
nomath_way nomath_widest(void);

/* Run one of them on all of `count` elements, a contiguous share for each thread, in its own parallel region. */
void nomath_run(const nomath_way *way, nomath_kind kind, const nomath_streams *s, size_t count, unsigned threads);

/* The calling thread's share of `count` elements in a region. It is schedule(static)'s share, but cut at lines. */
void nomath_share(size_t count, size_t *begin, size_t *end);

#endif
