// heap_fault.cc: the function that stands in front of the library's allocations (see heap_fault.h).
#include "heap_fault.h"

extern "C" {
#include "mem.h"
#include "try.h"

zoff_status __real_zoff_base_mem_alloc(size_t count, size_t bytes, const char *what, void *out_pointer);
zoff_status __wrap_zoff_base_mem_alloc(size_t count, size_t bytes, const char *what, void *out_pointer);
}

thread_local int zoff_test::heap_fault::left;
thread_local int zoff_test::heap_fault::failed;

zoff_status __wrap_zoff_base_mem_alloc(size_t count, size_t bytes, const char *what, void *out_pointer)
{
    using fault = zoff_test::heap_fault;
    if (fault::left && --fault::left == 0) {
        fault::failed++;
        return zoff_base_status_fail(ZOFF_ERR_NO_MEMORY, "out of memory: provoked, for %s", what);
    }
    return __real_zoff_base_mem_alloc(count, bytes, what, out_pointer);
}
