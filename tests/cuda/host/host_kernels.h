// host_kernels.h: the kernels of the plug-in as they were compiled for the CPU, by name.
#ifndef ZOFF_TESTS_CUDA_HOST_KERNELS_H
#define ZOFF_TESTS_CUDA_HOST_KERNELS_H

#include "grid.h"

namespace zoff_test
{
// A kernel with its arguments.
struct launched {
    dim3 grid, block;
    bool shuffles;
    std::function<void()> thread;
};
// NULL where there is none of that name. The arguments are copied.
launched *find_kernel(const char *name, void **arguments);
} // namespace zoff_test

#endif
