// aio_fault.h: makes I/O fail at will in a test that is linked with the static library. Add aio_fault.cc to the sources of the
// test and ${AIO_FAULT_LINKS} of tests/unit/aio/CMakeLists.txt to its LINKS. Nothing fails until a fault is set.
#ifndef ZOFF_AIO_FAULT_H
#define ZOFF_AIO_FAULT_H

#include <functional>
#include <stddef.h>
#include <stdint.h>

namespace zoff_test
{
// Everything that can be provoked, reset by the constructor and the destructor; one at a time.
struct aio_fault {
    aio_fault();
    ~aio_fault();
    aio_fault(const aio_fault &) = delete;

    // Called for each result of each transfer, counted from 1; what it returns is what the queue sees.
    std::function<int(int nth, int res, bool writes, uint64_t offset, size_t bytes)> result;
    int results = 0; // seen so far

    bool refuse_o_direct = false; // open() with O_DIRECT gives EINVAL
    int fail_allocation = 0;      // the nth allocation or mapping of the library fails; 0: none
    int allocations = 0;          // seen so far
    int refuse_fallocate = 0;     // errno that fallocate() gives
    int lose_writes = 0;          // errno with which what is in the page cache fails on its way to the disk
    size_t begun_bytes = 0;       // of the page cache: were sent to the disk without waiting
};
} // namespace zoff_test

#endif
