/* SPDX-License-Identifier: Apache-2.0 */
// host_kernels.h: finds the plug-in's kernels, compiled for the CPU, by name.
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
// Return the kernel, or NULL if there is none of that name. Copies the arguments.
launched *find_kernel(const char *name, void **arguments);
} // namespace zoff_test

#endif
