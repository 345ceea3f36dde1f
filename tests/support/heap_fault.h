// heap_fault.h: makes the nth allocation of a thread fail. Add heap_fault.cc to the sources of a test, and
// -Wl,--wrap=zoff_base_mem_alloc to its LINKS. Nothing fails until `left` is set.
#ifndef ZOFF_HEAP_FAULT_H
#define ZOFF_HEAP_FAULT_H

#include "zoff_test.h"

#include <functional>

namespace zoff_test
{
struct heap_fault {
    static thread_local int left;   // allocations until one fails; 0: none fails
    static thread_local int failed; // allocations that have failed
};

// Run `live` again and again; the first allocation fails, then the second, and so on, until none is left to fail. Each failure
// must come back as an error of memory. Returns how many failed.
inline int fail_each_allocation(const std::function<zoff_status()> &live)
{
    for (int n = 1;; n++) {
        SCOPED_TRACE("allocation " + std::to_string(n));
        heap_fault::left = n;
        heap_fault::failed = 0;
        const zoff_status status = live();
        heap_fault::left = 0;
        if (!heap_fault::failed) {
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
