/* cpu_adam_plain.h: AdamW as the author of a trainer writes it. The rival of zoff's step, and a pass of the unfused chain. */
#ifndef ZOFF_BENCH_CPU_ADAM_PLAIN_H
#define ZOFF_BENCH_CPU_ADAM_PLAIN_H

#include <stddef.h>
#include <stdint.h>

typedef struct plain_hyper {
    float lr, beta1, beta2, eps, weight_decay;
} plain_hyper;

/* Step t of `n` elements on `threads` threads, in a parallel region of its own. */
void plain_adam(size_t n, float *p, float *m, float *v, const float *g, const plain_hyper *h, int t, unsigned threads);

/* The same, but arrays of fewer elements than this are left to the calling thread. */
enum { PLAIN_SHARED_FROM = 32768 };
void plain_adam_if_large(size_t n, float *p, float *m, float *v, const float *g, const plain_hyper *h, int t, unsigned threads);

/* The same without a word of OpenMP. */
void plain_adam_serial(size_t n, float *p, float *m, float *v, const float *g, const plain_hyper *h, int t);

/* The other passes of the chain: a framework's casts, norm and multiplication, each a region of its own. */
void plain_widen(size_t n, float *wide, const uint16_t *g16, unsigned threads);
double plain_norm(size_t n, const float *wide, unsigned threads);
void plain_scale(size_t n, float *wide, float factor, unsigned threads);
void plain_round(size_t n, uint16_t *w16, const float *p, unsigned threads); /* to nearest even */

/* Sum of squares of bf16 gradients: what a fused step still needs in front of it. */
double plain_norm_bf16(size_t n, const uint16_t *g16, unsigned threads);

/* The casts with stores past the caches; 0 where this machine has no such store. */
int plain_has_streaming(void);
void plain_widen_streaming(size_t n, float *wide, const uint16_t *g16, unsigned threads);
void plain_round_streaming(size_t n, uint16_t *w16, const float *p, unsigned threads);

#endif
