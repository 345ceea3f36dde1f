/* SPDX-License-Identifier: Apache-2.0 */
/* check.h: every call of CUDA and of cuBLAS goes through here. A failure ends the program, because it cannot continue. */
#ifndef CUDA_TRAINER_CHECK_H
#define CUDA_TRAINER_CHECK_H

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

static inline void check_cuda(cudaError_t status, const char *what)
{
    if (status == cudaSuccess)
        return;
    fprintf(stderr, "cuda_trainer: %s: %s\n", what, cudaGetErrorString(status));
    exit(1);
}

static inline void check_cublas(cublasStatus_t status, const char *what)
{
    if (status == CUBLAS_STATUS_SUCCESS)
        return;
    fprintf(stderr, "cuda_trainer: %s: %s\n", what, cublasGetStatusString(status));
    exit(1);
}

#define CUDA(call) check_cuda((call), #call)
#define CUBLAS(call) check_cublas((call), #call)

#endif
