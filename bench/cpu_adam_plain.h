/* cpu_adam_plain.h: the rivals: AdamW as the author of a trainer writes it, and the passes that frameworks run before and after
 * it. Each call is a parallel region of its own. */
#ifndef ZOFF_BENCH_CPU_ADAM_PLAIN_H
#define ZOFF_BENCH_CPU_ADAM_PLAIN_H

#include <zoff/zoff.h>

/* Step t of `n` elements. */
void plain_adam(size_t n, float *p, float *m, float *v, const float *g, const zoff_optimizer_hyper *h, int t, unsigned threads);
/* The same without OpenMP. */
void plain_adam_serial(size_t n, float *p, float *m, float *v, const float *g, const zoff_optimizer_hyper *h, int t);

/* The other passes of the chain: a framework's casts and multiplication. */
void plain_widen(size_t n, float *wide, const uint16_t *g16, unsigned threads);
void plain_scale(size_t n, float *wide, float factor, unsigned threads);
void plain_round(size_t n, uint16_t *w16, const float *p, unsigned threads); /* to nearest, ties away from zero */
/* Sum of squares of fp32 numbers, or of bf16 if `wide` is NULL: a fused step needs that of its gradients, too. */
double plain_norm(size_t n, const float *wide, const uint16_t *g16, unsigned threads);

#endif
