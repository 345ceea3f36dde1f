// counted.h: the work of a call as a number of basic blocks, and the exponent with which it grows. Only rooms that the program
// links from zoff_counted_* objects are counted; see CMakeLists.txt.
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

// How a cost grows from one size to a larger one: 1 is linear, 2 quadratic.
inline double exponent(uint64_t small_cost, uint64_t large_cost, size_t small, size_t large)
{
    return std::log((double)large_cost / (double)small_cost) / std::log((double)large / (double)small);
}
} // namespace zoff_test

// The compiler calls it at each basic block of what is counted.
extern "C" void __sanitizer_cov_trace_pc(void)
{
    zoff_test::blocks_counted++;
}

#endif
