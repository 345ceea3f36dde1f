/* SPDX-License-Identifier: Apache-2.0 */
// allocation_fault.h: makes the nth allocation of the library fail in a test that is linked with the static library. Add
// allocation_fault.cc to the sources of the test, and -Wl,--wrap=calloc -Wl,--wrap=mmap to its LINKS. Allocations of the test
// itself and of shared libraries never fail.
#ifndef ZOFF_ALLOCATION_FAULT_H
#define ZOFF_ALLOCATION_FAULT_H

#include <gtest/gtest.h>

namespace zoff_test
{
// Number of this thread's allocations until one fails; negative: none fails.
extern thread_local long allocations_left;

// Count an allocation. Returns true if it must fail.
bool allocation_fails();

// Call `live` again and again: its first allocation fails, then its second, and so on, until a call meets no failure.
//
// @return number of calls that met a failure
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
