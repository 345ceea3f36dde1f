/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.c: the matrix product in the terms of cuBLAS. */
#include "gemm.h"
#include "check.h"

/* cuBLAS reads matrices by columns, so each of our matrices is transposed to it. It is asked for the transposed product, b' *
 * a', so that it writes our rows. */
void gemm(cublasHandle_t blas, gemm_shape s, gemm_matrix a, gemm_matrix b, void *out)
{
    const float none = 0.0f;
    const int m = (int)s.columns, n = (int)s.rows, k = (int)s.inner;
    const cublasOperation_t first = b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N, second = a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cudaDataType type = s.fp32 ? CUDA_R_32F : CUDA_R_16BF;
    if (s.products == 1)
        CUBLAS(cublasGemmEx(blas, first, second, m, n, k, &s.scale, b.data, CUDA_R_16BF, (int)b.columns, a.data, CUDA_R_16BF,
                            (int)a.columns, &none, out, type, m, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
    else
        CUBLAS(cublasGemmStridedBatchedEx(blas, first, second, m, n, k, &s.scale, b.data, CUDA_R_16BF, (int)b.columns,
                                          (long long)(s.inner * s.columns), a.data, CUDA_R_16BF, (int)a.columns,
                                          (long long)(s.rows * s.inner), &none, out, type, m, (long long)(s.rows * s.columns),
                                          (int)s.products, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
}
