/* SPDX-License-Identifier: Apache-2.0 */
// call_fault.cc: the functions that replace those of the system (see call_fault.h).
#include "call_fault.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include <regex>
#include <utility>

bool zoff_test::has_locks = true;

static zoff_test::call_fault *active;

zoff_test::call_fault::call_fault(int nth_, int error_) : nth(nth_), error(error_)
{
    active = this;
}

zoff_test::call_fault::~call_fault()
{
    active = nullptr;
}

// Whether this call fails. It may not return.
static bool fails(const char *call, const char *path)
{
    if (!active)
        return false;
    const char *slash = strrchr(path, '/');
    // Hidden names have the id of their save, which is another one each time.
    static const std::regex ID("\\.[0-9a-f]{16}(\\.new|\\.removed|)$");
    active->calls.push_back(std::string(call) + " " + std::regex_replace(slash ? slash + 1 : path, ID, "$1"));
    const bool is_nth = ++active->count == active->nth;
    const bool follows = active->has_struck() && !active->also.empty() && active->calls.back().find(active->also) == 0;
    if (is_nth && active->before) {
        zoff_test::call_fault *const paused = std::exchange(active, nullptr);
        paused->before();
        active = paused;
        return false;
    }
    if (!is_nth && !follows)
        return false;
    if (!active->error && !active->before)
        kill(getpid(), SIGKILL);
    errno = active->before ? EIO : active->error;
    return true;
}

static bool fails(const char *call, int fd)
{
    char path[PATH_MAX] = "";
    const ssize_t length = readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof path - 1);
    path[length > 0 ? length : 0] = 0;
    return fails(call, path);
}

extern "C" {
int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __real_openat(int folder, const char *path, int flags, ...);
int __wrap_openat(int folder, const char *path, int flags, ...);
int __real_mkdir(const char *path, mode_t mode);
int __wrap_mkdir(const char *path, mode_t mode);
int __wrap_fsync(int fd);
int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __real_renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags);
int __wrap_renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags);
int __real_flock(int fd, int operation);
int __wrap_flock(int fd, int operation);
int __real_clock_gettime(clockid_t clock, timespec *out);
int __wrap_clock_gettime(clockid_t clock, timespec *out);
int __real_unlink(const char *path);
int __wrap_unlink(const char *path);
int __real_rmdir(const char *path);
int __wrap_rmdir(const char *path);
ssize_t __real_pwrite(int fd, const void *src, size_t bytes, off_t offset);
ssize_t __wrap_pwrite(int fd, const void *src, size_t bytes, off_t offset);
ssize_t __real_write(int fd, const void *src, size_t bytes);
ssize_t __wrap_write(int fd, const void *src, size_t bytes);
ssize_t __real_pread(int fd, void *dst, size_t bytes, off_t offset);
ssize_t __wrap_pread(int fd, void *dst, size_t bytes, off_t offset);
int __real_lstat(const char *path, struct stat *out);
int __wrap_lstat(const char *path, struct stat *out);
DIR *__real_opendir(const char *path);
DIR *__wrap_opendir(const char *path);
dirent *__real_readdir(DIR *entries);
dirent *__wrap_readdir(DIR *entries);
int __real_ftruncate(int fd, off_t bytes);
int __wrap_ftruncate(int fd, off_t bytes);
int __real_zoff_aio_result_check(int res, bool writes, uint64_t offset, size_t bytes);
int __wrap_zoff_aio_result_check(int res, bool writes, uint64_t offset, size_t bytes);
}

int __wrap_open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    return fails("open", path) ? -1 : __real_open(path, flags, mode);
}

int __wrap_openat(int folder, const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    return fails("open", path) ? -1 : __real_openat(folder, path, flags, mode);
}

int __wrap_mkdir(const char *path, mode_t mode)
{
    return fails("mkdir", path) ? -1 : __real_mkdir(path, mode);
}

int __wrap_fsync(int fd)
{
    return fails("fsync", fd) ? -1 : 0;
}

int __wrap_rename(const char *from, const char *to)
{
    return fails("rename", to) ? -1 : __real_rename(from, to);
}

int __wrap_renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags)
{
    return fails("renameat2", to) ? -1 : __real_renameat2(from_folder, from, to_folder, to, flags);
}

int __wrap_flock(int fd, int operation)
{
    if (zoff_test::has_locks)
        return __real_flock(fd, operation);
    errno = ENOLCK;
    return -1;
}

int __wrap_clock_gettime(clockid_t clock, timespec *out)
{
    const int result = __real_clock_gettime(clock, out);
    if (active && clock == CLOCK_MONOTONIC)
        out->tv_sec += active->late += active->clock_step;
    return result;
}

int __wrap_unlink(const char *path)
{
    return fails("unlink", path) ? -1 : __real_unlink(path);
}

int __wrap_rmdir(const char *path)
{
    return fails("rmdir", path) ? -1 : __real_rmdir(path);
}

// A part of the bytes is written before a call fails.
ssize_t __wrap_pwrite(int fd, const void *src, size_t bytes, off_t offset)
{
    if (!fails("pwrite", fd))
        return __real_pwrite(fd, src, bytes, offset);
    const int error = errno;
    (void)!__real_pwrite(fd, src, bytes / 2, offset);
    errno = error;
    return -1;
}

ssize_t __wrap_write(int fd, const void *src, size_t bytes)
{
    if (!fails("write", fd))
        return __real_write(fd, src, bytes);
    const int error = errno;
    (void)!__real_write(fd, src, bytes / 2);
    errno = error;
    return -1;
}

ssize_t __wrap_pread(int fd, void *dst, size_t bytes, off_t offset)
{
    return fails("pread", fd) ? -1 : __real_pread(fd, dst, bytes, offset);
}

int __wrap_lstat(const char *path, struct stat *out)
{
    return fails("lstat", path) ? -1 : __real_lstat(path, out);
}

DIR *__wrap_opendir(const char *path)
{
    return fails("opendir", path) ? nullptr : __real_opendir(path);
}

dirent *__wrap_readdir(DIR *entries)
{
    return fails("readdir", dirfd(entries)) ? nullptr : __real_readdir(entries);
}

int __wrap_ftruncate(int fd, off_t bytes)
{
    return fails("ftruncate", fd) ? -1 : __real_ftruncate(fd, bytes);
}

int __wrap_zoff_aio_result_check(int res, bool writes, uint64_t offset, size_t bytes)
{
    res = __real_zoff_aio_result_check(res, writes, offset, bytes);
    return fails("aio", "states") ? -errno : res;
}
