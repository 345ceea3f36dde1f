/* SPDX-License-Identifier: Apache-2.0 */
/* oracle.h: the results that every kernel must compute, as plain loops over plain arrays. Written from the formulas of
 * <zoff/optimizer.h>, without any code of src/. Slow and simple on purpose. */
#ifndef ZOFF_TESTS_ORACLE_H
#define ZOFF_TESTS_ORACLE_H

#include <stddef.h>
#include <stdint.h>
#include <zoff/optimizer.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The value of a 16-bit pattern. A NaN keeps its sign and payload; an fp16 NaN becomes quiet. */
float oracle_from_bf16(uint16_t bits);
float oracle_from_f16(uint16_t bits);

/* The nearest value of a type, ties away from zero (bf16) or to the even pattern (fp16), found by comparing distances. NaN
 * gives 0x7fc0 or 0x7e00. */
uint16_t oracle_to_bf16(float x);
uint16_t oracle_to_f16(float x);

/* The random number of an element of a moment in a step, below 65536. `moment`: 0 for m, 1 for v; `block`: the number of its
 * block of 1024 elements; `lane`: its place there. */
unsigned oracle_dither(unsigned moment, uint64_t block, size_t lane, int64_t t);

/* A state rounded to bf16: up with the probability of its distance from the value below, by that random number. */
uint16_t oracle_dither_bf16(float x, unsigned moment, uint64_t block, size_t lane, int64_t t);

/* Element `i` of an array of a type; ZOFF_DTYPE_DEFAULT means fp32. */
float oracle_load(const void *array, zoff_dtype dtype, size_t i);
void oracle_store(void *array, zoff_dtype dtype, size_t i, float x);

/* Step `t` of any optimizer on one tensor, as zoff_optimizer_step() documents it. */
void oracle_step(const zoff_optimizer_hyper *hyper, int64_t t, double grad_scale, const zoff_optimizer_tensor *tensor);

/* A pass of Muon over a matrix, before its orthogonalization, which is in `master` then, or after it, with the result in
 * `grad`. `scale`: the factor of the learning rate. */
void oracle_muon_pass(const zoff_optimizer_hyper *hyper, int is_after, double scale, double grad_scale,
                      const zoff_optimizer_tensor *tensor);

/* A matrix in memory: element (i, k) is at[i * down + k * across]. */
typedef struct oracle_matrix {
    const float *at;
    size_t down, across;
} oracle_matrix;

/* Element (i, j) of the product of two matrices, by chains of 256 and their sum. */
float oracle_product(oracle_matrix a, oracle_matrix b, size_t i, size_t j, size_t depth);

/* The numbers a, b and c of an iteration, as they were published. */
void oracle_polynomial(zoff_muon_coefficients set, unsigned iteration, double out[3]);

/* Orthogonalize a matrix in place, over its Gram matrix or over itself. */
void oracle_orthogonal(size_t rows, size_t cols, float *x, zoff_muon_coefficients set, unsigned steps, int gram);
/* The same function in fp64, as the papers write it. */
void oracle_orthogonal_exact(size_t rows, size_t cols, double *x, zoff_muon_coefficients set, unsigned steps);

/* The sum of squares of a block of at most 1024 elements, from element `begin` on. */
double oracle_square_sum(const void *grad, zoff_dtype dtype, size_t begin, size_t count);

/* Gradients, `stride` bytes apart, each with a weight (1 if there are no weights). */
typedef struct oracle_gradients {
    const void *first;
    zoff_dtype dtype;
    size_t sources, stride;
    const float *weights;
    int starts_sum; /* the first gradient overwrites the old sum */
} oracle_gradients;

/* Add the gradients to a sum, one after the other. */
void oracle_accumulate(float *sum, size_t count, const oracle_gradients *gradients);

/* A sum by the rule "exact"; {0, 0, 1}: of nothing. */
typedef struct oracle_bins {
    int64_t hi, lo;
    unsigned top;
} oracle_bins;

/* Add another sum, or a gradient times its weight; a weight of 0 is no term. */
void oracle_bins_join(oracle_bins *sum, oracle_bins part);
void oracle_bins_add(oracle_bins *sum, float grad, float weight);
/* The nearest float. */
float oracle_bins_value(oracle_bins sum);

#ifdef __cplusplus
}
#endif
#endif
