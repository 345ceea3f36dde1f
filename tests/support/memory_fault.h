// memory_fault.h: makes the nth allocation or the nth thread of the library fail, for a test that is linked with the static
// library. Add memory_fault.cc to the sources of the test and ${MEMORY_FAULT_LINKS} of tests/CMakeLists.txt to its LINKS.
#ifndef ZOFF_MEMORY_FAULT_H
#define ZOFF_MEMORY_FAULT_H

namespace zoff_test
{
// Counts the calls of the thread that has made it, from its constructor to its destructor; one at a time.
struct memory_fault {
    memory_fault();
    ~memory_fault();
    memory_fault(const memory_fault &) = delete;

    int fail_allocation = 0; // the nth zoff_base_mem_alloc() fails; 0: none
    int allocations = 0;     // seen so far
    int fail_thread = 0;     // the nth pthread_create() gives EAGAIN, and so does each after it; 0: none
    int threads = 0;         // seen so far
};
} // namespace zoff_test

#endif
