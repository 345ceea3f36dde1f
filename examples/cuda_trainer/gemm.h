/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.h: the one matrix product that all layers and gradients use, by cuBLAS. */
#ifndef CUDA_TRAINER_GEMM_H
#define CUDA_TRAINER_GEMM_H

#include <cublas_v2.h>
#include <stdbool.h>
#include <stddef.h>

/* A row-major bf16 matrix to read, or one for each product, in a row. */
typedef struct gemm_matrix {
    const void *data;
    size_t columns;  /* columns in memory */
    bool transposed; /* read it transposed */
} gemm_matrix;

/* Shapes of `products` products, each with matrices of its own: out[rows][columns] = scale * a[rows][inner] *
 * b[inner][columns]. Sums are in fp32, and out is rounded to bf16 unless it is fp32. */
typedef struct gemm_shape {
    size_t rows, columns, inner, products;
    float scale;
    bool fp32;
} gemm_shape;

void gemm(cublasHandle_t blas, gemm_shape shape, gemm_matrix a, gemm_matrix b, void *out);

#endif
