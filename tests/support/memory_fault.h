/* SPDX-License-Identifier: Apache-2.0 */
// memory_fault.h: makes the nth allocation or the nth thread of the library fail, in a test that is linked with the static
// library. Add memory_fault.cc to the sources of the test, and ${MEMORY_FAULT_LINKS} of tests/CMakeLists.txt to its LINKS.
#ifndef ZOFF_MEMORY_FAULT_H
#define ZOFF_MEMORY_FAULT_H

#include "zoff_test.h"

#include <functional>

namespace zoff_test
{
// Counters of the thread that sets them. They apply to zoff_base_mem_alloc() while no memory_fault object exists.
struct memory_countdown {
    static thread_local int left;   // allocations until one fails; 0: none fails
    static thread_local int failed; // number of failed allocations
};

// Counts the calls of the thread that created it, until it is destroyed. Only one object may exist at a time.
struct memory_fault {
    memory_fault();
    ~memory_fault();
    memory_fault(const memory_fault &) = delete;

    int fail_allocation = 0; // the nth zoff_base_mem_alloc() fails; 0: none
    int allocations = 0;     // calls so far
    int fail_thread = 0;     // the nth pthread_create() and all later ones fail with EAGAIN; 0: none
    int threads = 0;         // calls so far
};
// Run `live` again and again: the first allocation fails, then the second, and so on, until none fails. Each failure must be
// returned as a memory error. Returns the number of failures.
inline int fail_each_allocation(const std::function<zoff_status()> &live)
{
    for (int n = 1;; n++) {
        SCOPED_TRACE("allocation " + std::to_string(n));
        memory_countdown::left = n;
        memory_countdown::failed = 0;
        const zoff_status status = live();
        memory_countdown::left = 0;
        if (!memory_countdown::failed) {
            EXPECT_ZOFF_OK(status);
            return n - 1;
        }
        EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_MEMORY, "provoked", status);
        if (status == ZOFF_OK)
            return n;
    }
}
} // namespace zoff_test

#endif
