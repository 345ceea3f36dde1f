/* SPDX-License-Identifier: Apache-2.0 */
// device.h: replaces, for g++, the device functions that nvcc provides. kernels.cu is compiled for the CPU with this file in
// front, and cudart.cc runs it. In kernels that shuffle, the threads of a warp are fibers of one thread. In other kernels they
// are iterations of a loop.
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
// Return the value given by thread lane + delta of the same group of `width` lanes, or the caller's own if there is no such
// lane.
double shuffle_down(double mine, unsigned delta, unsigned width);
// Return the value given by lane `from` of the warp.
double shuffle_from(double mine, unsigned from);
} // namespace zoff_test

#define threadIdx zoff_test::thread_index
#define blockIdx zoff_test::block_index
#define blockDim zoff_test::block_size
#define gridDim zoff_test::grid_size

static inline double __shfl_down_sync(unsigned, double mine, unsigned delta, int width)
{
    return zoff_test::shuffle_down(mine, delta, (unsigned)width);
}

static inline double __shfl_sync(unsigned, double mine, int from, int)
{
    return zoff_test::shuffle_from(mine, (unsigned)from);
}

#endif
