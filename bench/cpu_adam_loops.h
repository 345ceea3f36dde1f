/* cpu_adam_loops.h: what zoff's step is measured against. Yardsticks move the bytes of a step and compute next to nothing; the
 * plain loop and the chain of passes are what trainers do without a fused kernel. All of them are split over the threads as
 * the step is: one contiguous share each. */
#ifndef ZOFF_BENCH_CPU_ADAM_LOOPS_H
#define ZOFF_BENCH_CPU_ADAM_LOOPS_H

#include <stddef.h>
#include <stdint.h>

/* The arrays of a run, `count` elements each. */
typedef struct loops_arrays {
    size_t count;
    unsigned threads;
    float *p, *m, *v;
    const float *g;
    const uint16_t *g16; /* the gradient in bf16 */
    uint16_t *copy16;    /* the new weights in bf16 */
    float *wide;         /* scratch: the gradient as the chain unpacks it */
} loops_arrays;

typedef struct loops_adam {
    float beta1, beta2, eps, step_size, inv_sqrt_bias2, decay;
} loops_adam;

/* Give each array its first values, each share by the thread that will work on it. */
void loops_fill(const loops_arrays *a, float *g, uint16_t *g16);

/* The streams of an fp32 step, 28 bytes an element, three fused multiply-adds. */
void loops_nomath_fp32(const loops_arrays *a);
/* The streams of a step with bf16 gradient and copy, 28 bytes an element. */
void loops_nomath_bf16(const loops_arrays *a);
void loops_triad(const loops_arrays *a);  /* wide = g + s * p, 12 bytes */
void loops_memcpy(const loops_arrays *a); /* wide = g, 8 bytes */

/* AdamW as a careful author writes it: constants hoisted, vectorised by the compiler. `g` is a->g or a->wide. */
void loops_plain_adam(const loops_arrays *a, const loops_adam *h, const float *g);

/* The passes of the chain: wide = g16; sum of squares of wide; wide *= factor; the plain loop; copy16 = p. */
void loops_upcast(const loops_arrays *a);
double loops_norm(const loops_arrays *a);
void loops_scale(const loops_arrays *a, float factor);
void loops_downcast(const loops_arrays *a);

/* Sum of squares of the bf16 gradient: what a fused step still needs before it. */
double loops_norm_bf16(const loops_arrays *a);

#endif
