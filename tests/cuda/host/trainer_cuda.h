/* SPDX-License-Identifier: Apache-2.0 */
// trainer_cuda.h: kernels as loops. With this file and trainer_cuda.cc a C++ compiler can compile CUDA sources, which then run
// without a GPU. A stream is one of zoff's "emulated" device, so its work runs beside the caller and in order. A missing wait
// shows as a wrong number or a data race here, too.
#ifndef ZOFF_TESTS_TRAINER_CUDA_H
#define ZOFF_TESTS_TRAINER_CUDA_H

#include <cuda_runtime_api.h>

#include <functional>

// The position of a kernel's thread. All threads of a stream run on one host thread, which sets these values one after the
// other.
inline thread_local uint3 threadIdx, blockIdx;
inline thread_local dim3 blockDim, gridDim;

// Enqueue work on the stream.
void cuda_host_put(cudaStream_t stream, std::function<void()> work);

// Enqueue a kernel on a stream. Its arguments are copied now.
template <typename... Parameters, typename... Arguments>
void cuda_host_launch(dim3 grid, dim3 block, cudaStream_t stream, void (*kernel)(Parameters...), Arguments... arguments)
{
    const std::function<void()> thread = [=] { kernel(static_cast<Parameters>(arguments)...); };
    cuda_host_put(stream, [=] {
        gridDim = grid;
        blockDim = block;
        for (blockIdx = {0, 0, 0}; blockIdx.x < grid.x; blockIdx.x++)
            for (threadIdx = {0, 0, 0}; threadIdx.x < block.x; threadIdx.x++)
                thread();
    });
}

#endif
