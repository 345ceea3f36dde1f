/* oracle.h: what every kernel must compute, as plain loops over plain arrays, written from the formulas of <zoff/adam.h> and
 * shared with nothing in src/. Slow and obvious on purpose. */
#ifndef ZOFF_TESTS_ORACLE_H
#define ZOFF_TESTS_ORACLE_H

#include <stddef.h>
#include <stdint.h>
#include <zoff/adam.h>

#ifdef __cplusplus
extern "C" {
#endif

float oracle_from_bf16(uint16_t bits);
/* The nearest bf16, ties to the even one, found by comparing distances; 0x7fc0 for NaN. */
uint16_t oracle_to_bf16(float x);

/* Step `t`. The gradient is fp32 where g16 is NULL. No decay where weight_decay is 0. copy16 may be NULL. */
void oracle_adam(const zoff_adam_hyper *hyper, int64_t t, double grad_scale, size_t n, float *p, float *m, float *v,
                 const float *g, const uint16_t *g16, uint16_t *copy16);

/* Sum of squares of a block of at most 1024 elements. */
double oracle_square_sum(size_t n, const float *g, const uint16_t *g16);

void oracle_accumulate(size_t n, float *sum, const float *g, const uint16_t *g16, int first);

#ifdef __cplusplus
}
#endif
#endif
