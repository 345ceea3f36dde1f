/* SPDX-License-Identifier: Apache-2.0 */
// aio_fault.cc: the functions that replace those of the library and of the system (see aio_fault.h).
#include "aio_fault.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/types.h>

extern "C" {
#include "map.h"
#include "mem.h"
#include "try.h"

int __real_zoff_aio_result_check(int res, bool writes, uint64_t offset, size_t bytes);
int __wrap_zoff_aio_result_check(int res, bool writes, uint64_t offset, size_t bytes);
int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __real_sync_file_range(int fd, off_t offset, off_t bytes, unsigned how);
int __wrap_sync_file_range(int fd, off_t offset, off_t bytes, unsigned how);
int __real_fallocate(int fd, int mode, off_t offset, off_t bytes);
int __wrap_fallocate(int fd, int mode, off_t offset, off_t bytes);
zoff_status __real_zoff_base_mem_alloc(size_t count, size_t bytes, const char *what, void *out_pointer);
zoff_status __wrap_zoff_base_mem_alloc(size_t count, size_t bytes, const char *what, void *out_pointer);
zoff_status __real_zoff_base_map_alloc(size_t bytes, const char *what, zoff_map_nodes nodes, zoff_map *out);
zoff_status __wrap_zoff_base_map_alloc(size_t bytes, const char *what, zoff_map_nodes nodes, zoff_map *out);
}

static zoff_test::aio_fault *active;

// A save has a thread of its own.
static int count(int &calls)
{
    return __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
}

zoff_test::aio_fault::aio_fault()
{
    active = this;
}

zoff_test::aio_fault::~aio_fault()
{
    active = nullptr;
}

int __wrap_zoff_aio_result_check(int res, bool writes, uint64_t offset, size_t bytes)
{
    res = __real_zoff_aio_result_check(res, writes, offset, bytes);
    if (!active)
        return res;
    const int nth = count(active->results);
    return active->result ? active->result(nth, res, writes, offset, bytes) : res;
}

int __wrap_open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    if (active && active->refuse_o_direct && (flags & O_DIRECT)) {
        errno = EINVAL;
        return -1;
    }
    if (active && active->has_no_proc && strncmp(path, "/proc/", 6) == 0) {
        errno = ENOENT;
        return -1;
    }
    return __real_open(path, flags, mode);
}

int __wrap_fallocate(int fd, int mode, off_t offset, off_t bytes)
{
    if (active && active->refuse_fallocate) {
        // A file system that runs out of space has already reserved a part.
        if (active->refuse_fallocate == ENOSPC)
            __real_fallocate(fd, mode, offset, bytes / 2);
        errno = active->refuse_fallocate;
        return -1;
    }
    return __real_fallocate(fd, mode, offset, bytes);
}

int __wrap_sync_file_range(int fd, off_t offset, off_t bytes, unsigned how)
{
    int ret = __real_sync_file_range(fd, offset, bytes, how);
    if (active && how == SYNC_FILE_RANGE_WRITE)
        active->begun_bytes += static_cast<size_t>(bytes);
    if (active && active->lose_writes && (how & SYNC_FILE_RANGE_WAIT_AFTER)) {
        errno = active->lose_writes;
        return -1;
    }
    return ret;
}

static bool allocation_fails()
{
    return active && count(active->allocations) == active->fail_allocation;
}

zoff_status __wrap_zoff_base_mem_alloc(size_t count, size_t bytes, const char *what, void *out_pointer)
{
    if (allocation_fails())
        return zoff_base_status_fail(ZOFF_ERR_NO_MEMORY, "out of memory: provoked, for %s", what);
    return __real_zoff_base_mem_alloc(count, bytes, what, out_pointer);
}

zoff_status __wrap_zoff_base_map_alloc(size_t bytes, const char *what, zoff_map_nodes nodes, zoff_map *out)
{
    if (allocation_fails())
        return zoff_base_status_fail(ZOFF_ERR_NO_MEMORY, "cannot map: provoked, for %s", what);
    return __real_zoff_base_map_alloc(bytes, what, nodes, out);
}
