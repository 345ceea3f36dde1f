/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_kernels.h: launch the kernels of kernels.cu. A list lies in host memory, and is read before the function returns. Its
 * pointers refer to memory of the thread's current device. */
#ifndef ZOFF_CUDA_CUDA_KERNELS_H
#define ZOFF_CUDA_CUDA_KERNELS_H

#include "accel.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

cudaError_t zoff_cuda_kernels_load(void); /* load all kernels onto the current device */
cudaError_t zoff_cuda_kernels_update(cudaStream_t stream, const zoff_adam_piece *pieces, size_t count);
cudaError_t zoff_cuda_kernels_accumulate(cudaStream_t stream, const zoff_accumulate_piece *pieces, size_t count);
/* Pieces are checked by zoff_accel_bins_fit(). */
cudaError_t zoff_cuda_kernels_bins(cudaStream_t stream, const zoff_bins_piece *pieces, size_t count);
cudaError_t zoff_cuda_kernels_cast(cudaStream_t stream, const zoff_cast_piece *pieces, size_t count);
cudaError_t zoff_cuda_kernels_square_sum(cudaStream_t stream, const zoff_norm_piece *pieces, size_t count);

#ifdef __cplusplus
}
#endif
#endif
