/* SPDX-License-Identifier: Apache-2.0 */
// counted.h: the cost of a call as a number of basic blocks, and the exponent with which it grows. Counts only rooms that the
// program links from zoff_counted_* objects; see CMakeLists.txt.
#ifndef ZOFF_COUNTED_H
#define ZOFF_COUNTED_H

#include <cmath>
#include <cstdint>
#include <functional>

namespace zoff_test
{
inline uint64_t blocks_counted;

inline uint64_t count_blocks(const std::function<void()> &work)
{
    const uint64_t before = blocks_counted;
    work();
    return blocks_counted - before;
}

// The exponent of a cost between two sizes: 1 is linear, 2 quadratic.
inline double exponent(uint64_t small_cost, uint64_t large_cost, size_t small, size_t large)
{
    return std::log((double)large_cost / (double)small_cost) / std::log((double)large / (double)small);
}
} // namespace zoff_test

// The compiler inserts a call of this function into each basic block that is counted.
extern "C" __attribute__((weak)) void __sanitizer_cov_trace_pc(void)
{
    zoff_test::blocks_counted++;
}

#endif
