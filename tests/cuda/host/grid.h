/* SPDX-License-Identifier: Apache-2.0 */
// grid.h: runs all threads of a grid, one after the other.
#ifndef ZOFF_TESTS_CUDA_GRID_H
#define ZOFF_TESTS_CUDA_GRID_H

#include "device.h"

#include <functional>

namespace zoff_test
{
// `shuffles`: the threads of a warp exchange values, so they run as fibers.
void run_grid(dim3 grid, dim3 block, bool shuffles, const std::function<void()> &thread);
} // namespace zoff_test

#endif
