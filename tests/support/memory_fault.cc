/* SPDX-License-Identifier: Apache-2.0 */
// memory_fault.cc: the functions that replace those of the library and of the system (see memory_fault.h).
#include "memory_fault.h"

#include <errno.h>
#include <pthread.h>

extern "C" {
#include "mem.h"
#include "try.h"

zoff_status __real_zoff_base_mem_alloc(size_t count, size_t bytes, const char *what, void *out_pointer);
zoff_status __wrap_zoff_base_mem_alloc(size_t count, size_t bytes, const char *what, void *out_pointer);
int __real_pthread_create(pthread_t *out, const pthread_attr_t *attributes, void *(*run)(void *), void *ctx);
int __wrap_pthread_create(pthread_t *out, const pthread_attr_t *attributes, void *(*run)(void *), void *ctx);
}

static thread_local zoff_test::memory_fault *active;
thread_local int zoff_test::memory_countdown::left;
thread_local int zoff_test::memory_countdown::failed;

zoff_test::memory_fault::memory_fault()
{
    active = this;
}

zoff_test::memory_fault::~memory_fault()
{
    active = nullptr;
}

zoff_status __wrap_zoff_base_mem_alloc(size_t count, size_t bytes, const char *what, void *out_pointer)
{
    using countdown = zoff_test::memory_countdown;
    const bool ends = !active && countdown::left && --countdown::left == 0;
    countdown::failed += ends;
    if (ends || (active && ++active->allocations == active->fail_allocation))
        return zoff_base_status_fail(ZOFF_ERR_NO_MEMORY, "out of memory: provoked, for %s", what);
    return __real_zoff_base_mem_alloc(count, bytes, what, out_pointer);
}

int __wrap_pthread_create(pthread_t *out, const pthread_attr_t *attributes, void *(*run)(void *), void *ctx)
{
    if (active && ++active->threads >= active->fail_thread && active->fail_thread)
        return EAGAIN;
    return __real_pthread_create(out, attributes, run, ctx);
}
