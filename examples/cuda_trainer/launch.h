/* SPDX-License-Identifier: Apache-2.0 */
/* launch.h: how a kernel is launched, and how its threads share the work.
 *
 * Kernels use no shared memory and no synchronization, and no sum depends on the number of threads. So they give the same bits
 * with every grid. A compiler without CUDA can turn them into loops: tests/cuda/host runs the trainer in that way. */
#ifndef CUDA_TRAINER_LAUNCH_H
#define CUDA_TRAINER_LAUNCH_H

#include "check.h"

#ifdef __CUDACC__
#define LAUNCH(kernel, grid, block, stream, ...)                                                                               \
    do {                                                                                                                       \
        kernel<<<(grid), (block), 0, (stream)>>>(__VA_ARGS__);                                                                 \
        check_cuda(cudaGetLastError(), #kernel);                                                                               \
    } while (0)
#else
#include "trainer_cuda.h"
#define LAUNCH(kernel, grid, block, stream, ...) cuda_host_launch((grid), (block), (stream), kernel, __VA_ARGS__)
#endif

/* Blocks are small: if each thread has a whole row, there are few threads, and they should use all multiprocessors. */
#define BLOCK dim3(64)

static inline dim3 grid_for(size_t work)
{
    const size_t blocks = (work + 63) / 64, most = 65536;
    return dim3((unsigned)(blocks < 1 ? 1 : blocks < most ? blocks : most));
}

/* All i below count, divided among the threads of the grid. */
#define FOR_EACH(i, count)                                                                                                     \
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < (count); i += (size_t)gridDim.x * blockDim.x)

#endif
