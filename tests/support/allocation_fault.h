// allocation_fault.h: makes the nth allocation of the library fail in a test that is linked with the static library. Add
// allocation_fault.cc to the sources of the test, and -Wl,--wrap=calloc -Wl,--wrap=mmap to its LINKS. Allocations of the test
// itself and of shared libraries never fail.
#ifndef ZOFF_ALLOCATION_FAULT_H
#define ZOFF_ALLOCATION_FAULT_H

#include <gtest/gtest.h>

namespace zoff_test
{
// Of this thread: allocations until one fails; negative: none fails.
extern thread_local long allocations_left;

// Counts an allocation, and tells whether it fails.
bool allocation_fails();

// Call `live` while its first allocation fails, then its second, and so on, until one call ends without a failure.
// @return how many calls had a failure
template <typename Live> int fail_each_allocation(const Live &live)
{
    for (int n = 0;; n++) {
        SCOPED_TRACE(testing::Message() << "allocation " << n + 1 << " fails");
        allocations_left = n;
        live();
        const bool is_done = allocations_left >= 0;
        allocations_left = -1;
        if (is_done)
            return n;
    }
}
} // namespace zoff_test

#endif
