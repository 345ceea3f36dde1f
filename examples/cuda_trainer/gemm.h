/* gemm.h: the one matrix product that every layer and every gradient is made of, by cuBLAS. */
#ifndef CUDA_TRAINER_GEMM_H
#define CUDA_TRAINER_GEMM_H

#include <cublas_v2.h>
#include <stdbool.h>
#include <stddef.h>

/* A row-major bf16 matrix to read, or as many as there are products, one after the other. */
typedef struct gemm_matrix {
    const void *data;
    size_t columns;  /* as it lies in memory */
    bool transposed; /* it is read the other way round */
} gemm_matrix;

/* `products` times out[rows][columns] = scale * a[rows][inner] * b[inner][columns], each with matrices of its own. All sums are
 * in fp32, and out is rounded to bf16 unless it is fp32. */
typedef struct gemm_shape {
    size_t rows, columns, inner, products;
    float scale;
    bool fp32;
} gemm_shape;

void gemm(cublasHandle_t blas, gemm_shape shape, gemm_matrix a, gemm_matrix b, void *out);

#endif
