/* SPDX-License-Identifier: Apache-2.0 */
// allocation_fault.cc: the functions that replace those of the system (see allocation_fault.h).
#include "allocation_fault.h"

#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/types.h>

extern "C" {
void *__real_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__real_mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset);
}

thread_local long zoff_test::allocations_left = -1;

bool zoff_test::allocation_fails()
{
    return allocations_left >= 0 && allocations_left-- == 0;
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    return zoff_test::allocation_fails() ? nullptr : __real_calloc(count, bytes);
}

void *__wrap_mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    if (zoff_test::allocation_fails()) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return __real_mmap(address, bytes, protection, flags, fd, offset);
}
