// trainer_cuda.h: kernels as loops. With it and trainer_cuda.cc sources for CUDA are compiled by a C++ compiler and run without
// a GPU: a stream is one of zoff's "emulated" device, so work in it runs beside the caller, in order, and a wait that is
// missing is a wrong number or a data race here, too.
#ifndef ZOFF_TESTS_TRAINER_CUDA_H
#define ZOFF_TESTS_TRAINER_CUDA_H

#include <cuda_runtime_api.h>

#include <functional>

// Where the thread of a kernel is; the threads of a stream are one thread that takes these values one after the other.
inline thread_local uint3 threadIdx, blockIdx;
inline thread_local dim3 blockDim, gridDim;

// Have the stream run it after all that was put into it before.
void cuda_host_put(cudaStream_t stream, std::function<void()> work);

// Put a kernel into a stream. Its arguments are those of now.
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
