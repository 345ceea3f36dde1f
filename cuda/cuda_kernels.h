/* cuda_kernels.h: what the device computes; filled in by kernels.cu. Lists are in host memory and read before a function
 * returns, what they point to is memory of the device, which must be the thread's current one. */
#ifndef ZOFF_CUDA_CUDA_KERNELS_H
#define ZOFF_CUDA_CUDA_KERNELS_H

#include "cpu_adam.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

cudaError_t zoff_cuda_kernels_load(void); /* all of them, onto the current device */
cudaError_t zoff_cuda_kernels_update(cudaStream_t stream, const zoff_adam_piece *pieces, size_t count);
cudaError_t zoff_cuda_kernels_accumulate(cudaStream_t stream, const zoff_accumulate_piece *pieces, size_t count);
cudaError_t zoff_cuda_kernels_cast(cudaStream_t stream, const zoff_cast_piece *pieces, size_t count);
cudaError_t zoff_cuda_kernels_square_sum(cudaStream_t stream, const zoff_norm_piece *pieces, size_t count);

#ifdef __cplusplus
}
#endif
#endif
