/* step_own_loop.h: Adam as the author of a trainer writes it, compiled as such an author compiles it: -Ofast, OpenMP. */
#ifndef ZOFF_BENCH_STEP_OWN_LOOP_H
#define ZOFF_BENCH_STEP_OWN_LOOP_H

#include <stddef.h>

/* Step t of AdamW: lr 1e-3, betas 0.9 and 0.999, eps 1e-8, weight_decay 0.01. Below 32 Ki elements by the calling thread. */
void step_own_loop(size_t n, float *restrict p, float *restrict m, float *restrict v, const float *restrict g, int t);

/* A piece of work of one thread. */
double step_own_compute(size_t turns);

/* The trainer's work between two steps: each thread of its runtime does a fixed piece of work `turns` times. */
double step_own_backward(size_t turns);

#endif
