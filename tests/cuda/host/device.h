// device.h: what nvcc gives a kernel, for g++: kernels.cu is compiled for the CPU with this in front, and cudart.cc runs it.
// The threads of a warp that shuffle are fibers of one thread; those of other kernels are turns of a loop.
#ifndef ZOFF_TESTS_CUDA_DEVICE_H
#define ZOFF_TESTS_CUDA_DEVICE_H

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <vector_functions.h>

#undef __global__
#undef __device__
#undef __host__
#undef __forceinline__
#undef __launch_bounds__
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)

namespace zoff_test
{
extern thread_local dim3 thread_index, block_index, block_size, grid_size;
// What thread lane + delta of the same group of `width` lanes has given; of one that is not in the group: one's own.
double shuffle_down(double mine, unsigned delta, unsigned width);
} // namespace zoff_test

#define threadIdx zoff_test::thread_index
#define blockIdx zoff_test::block_index
#define blockDim zoff_test::block_size
#define gridDim zoff_test::grid_size

static inline double __shfl_down_sync(unsigned, double mine, unsigned delta, int width)
{
    return zoff_test::shuffle_down(mine, delta, (unsigned)width);
}

#endif
