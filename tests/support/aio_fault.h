/* SPDX-License-Identifier: Apache-2.0 */
// aio_fault.h: makes I/O fail in a test that is linked with the static library. Add aio_fault.cc to the sources of the test,
// and ${AIO_FAULT_LINKS} of tests/unit/aio/CMakeLists.txt to its LINKS. Nothing fails until a fault is set.
#ifndef ZOFF_AIO_FAULT_H
#define ZOFF_AIO_FAULT_H

#include <functional>
#include <stddef.h>
#include <stdint.h>

namespace zoff_test
{
// All faults that can be set. The constructor and the destructor reset them. Only one object may exist at a time.
struct aio_fault {
    aio_fault();
    ~aio_fault();
    aio_fault(const aio_fault &) = delete;

    // Called for each result of each transfer, counted from 1. The queue sees the value that this function returns.
    std::function<int(int nth, int res, bool writes, uint64_t offset, size_t bytes)> result;
    int results = 0; // results seen so far

    bool refuse_o_direct = false; // open() with O_DIRECT fails with EINVAL.
    bool has_no_proc = false;     // open() finds no file under /proc.
    int fail_allocation = 0;      // The nth allocation or mapping of the library fails; 0: none fails.
    int allocations = 0;          // Number of allocations so far.
    int refuse_fallocate = 0;     // The errno of fallocate(); 0: no failure.
    int lose_writes = 0;          // The errno of writing the page cache back to the disk; 0: no failure.
    size_t begun_bytes = 0;       // Bytes of the page cache whose write-back was started without waiting.
};
} // namespace zoff_test

#endif
