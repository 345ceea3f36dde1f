/* oracle.h: what every kernel must compute, as plain loops over plain arrays, written from the formulas of <zoff/optimizer.h>
 * and shared with nothing in src/. Slow and obvious on purpose. */
#ifndef ZOFF_TESTS_ORACLE_H
#define ZOFF_TESTS_ORACLE_H

#include <stddef.h>
#include <stdint.h>
#include <zoff/optimizer.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The value of a 16-bit pattern. A NaN keeps sign and payload; that of fp16 becomes a quiet one. */
float oracle_from_bf16(uint16_t bits);
float oracle_from_f16(uint16_t bits);

/* The nearest value of a type, ties to the even pattern, found by comparing distances; 0x7fc0 and 0x7e00 for NaN. */
uint16_t oracle_to_bf16(float x);
uint16_t oracle_to_f16(float x);

/* Element `i` of an array of a type; ZOFF_DTYPE_DEFAULT is fp32. */
float oracle_load(const void *array, zoff_dtype dtype, size_t i);
void oracle_store(void *array, zoff_dtype dtype, size_t i, float x);

/* Step `t` of any optimizer on one tensor, as zoff_optimizer_step() promises it. */
void oracle_step(const zoff_optimizer_hyper *hyper, int64_t t, double grad_scale, const zoff_optimizer_tensor *tensor);

/* Sum of squares of a block of at most 1024 elements, from element `begin` on. */
double oracle_square_sum(const void *grad, zoff_dtype dtype, size_t begin, size_t count);

/* Gradients, `stride` bytes apart, each with its weight (none given: 1). */
typedef struct oracle_gradients {
    const void *first;
    zoff_dtype dtype;
    size_t sources, stride;
    const float *weights;
    int starts_sum; /* the first is not added to what is there */
} oracle_gradients;

/* Add them to a sum, one after the other. */
void oracle_accumulate(float *sum, size_t count, const oracle_gradients *gradients);

#ifdef __cplusplus
}
#endif
#endif
