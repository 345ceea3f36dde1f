/* SPDX-License-Identifier: Apache-2.0 */
// save_fault.cc: the functions that replace those of the system and of the library (see save_fault.h).
#include "save_fault.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

extern "C" {
#include "view.h"

struct zoff_filler;
struct zoff_saver;
struct zoff_save_source;

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __real_mkdir(const char *path, mode_t mode);
int __wrap_mkdir(const char *path, mode_t mode);
int __real_fallocate(int fd, int mode, off_t offset, off_t bytes);
int __wrap_fallocate(int fd, int mode, off_t offset, off_t bytes);
ssize_t __real_pwrite(int fd, const void *src, size_t bytes, off_t offset);
ssize_t __wrap_pwrite(int fd, const void *src, size_t bytes, off_t offset);
ssize_t __real_write(int fd, const void *src, size_t bytes);
ssize_t __wrap_write(int fd, const void *src, size_t bytes);
ssize_t __real_pread(int fd, void *dst, size_t bytes, off_t offset);
ssize_t __wrap_pread(int fd, void *dst, size_t bytes, off_t offset);
int __wrap_fsync(int fd);
int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __real_renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags);
int __wrap_renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags);
int __real_ftruncate(int fd, off_t bytes);
int __wrap_ftruncate(int fd, off_t bytes);
int __real_pthread_cond_timedwait(pthread_cond_t *moved, pthread_mutex_t *lock, const timespec *until);
int __wrap_pthread_cond_timedwait(pthread_cond_t *moved, pthread_mutex_t *lock, const timespec *until);
int __real_ioctl(int fd, unsigned long request, ...);
int __wrap_ioctl(int fd, unsigned long request, ...);
int __real_zoff_aio_result_check(int res, bool writes, uint64_t offset, size_t bytes);
int __wrap_zoff_aio_result_check(int res, bool writes, uint64_t offset, size_t bytes);
zoff_status zoff_base_status_fail(zoff_status status, const char *format, ...);
zoff_status __real_zoff_checkpoint_fill_frozen(struct zoff_filler *f, bool verify_only);
zoff_status __wrap_zoff_checkpoint_fill_frozen(struct zoff_filler *f, bool verify_only);
void __real_zoff_checkpoint_source_copy(const struct zoff_saver *s, const struct zoff_save_source *source,
                                        zoff_chunk_memory memory, uint64_t from, size_t bytes, char *dst);
void __wrap_zoff_checkpoint_source_copy(const struct zoff_saver *s, const struct zoff_save_source *source,
                                        zoff_chunk_memory memory, uint64_t from, size_t bytes, char *dst);
}

static zoff_test::save_fault *active;

zoff_test::save_fault::save_fault()
{
    active = this;
}

zoff_test::save_fault::~save_fault()
{
    active = nullptr;
}

void zoff_test::save_fault::arm(disk_call kind, int nth_, int error_)
{
    count = 0;
    struck = false;
    nth = nth_;
    error = error_;
    here = false;
    armed = kind;
}

void zoff_test::save_fault::arm_here(disk_call kind, int nth_, int error_)
{
    thread = std::this_thread::get_id();
    arm(DISK_CALLS, nth_, error_);
    here = true;
    armed = kind;
}

void zoff_test::save_fault::disarm()
{
    armed = DISK_CALLS;
}

int zoff_test::save_fault::turn(disk_call kind)
{
    seen[kind]++;
    if (before)
        before(kind);
    if (kind != armed || (here && std::this_thread::get_id() != thread.load()) || ++count != nth)
        return 0;
    struck = true;
    return error;
}

// Whether the call fails, with errno set.
static bool fails(zoff_test::disk_call kind)
{
    const int error = active ? active->turn(kind) : 0;
    errno = error ? error : errno;
    return error != 0;
}

int __wrap_open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    return fails(zoff_test::CALL_OPEN) ? -1 : __real_open(path, flags, mode);
}

int __wrap_mkdir(const char *path, mode_t mode)
{
    return fails(zoff_test::CALL_MKDIR) ? -1 : __real_mkdir(path, mode);
}

int __wrap_fallocate(int fd, int mode, off_t offset, off_t bytes)
{
    return fails(zoff_test::CALL_FALLOCATE) ? -1 : __real_fallocate(fd, mode, offset, bytes);
}

ssize_t __wrap_pwrite(int fd, const void *src, size_t bytes, off_t offset)
{
    return fails(zoff_test::CALL_PWRITE) ? -1 : __real_pwrite(fd, src, bytes, offset);
}

ssize_t __wrap_write(int fd, const void *src, size_t bytes)
{
    return fails(zoff_test::CALL_WRITE) ? -1 : __real_write(fd, src, bytes);
}

ssize_t __wrap_pread(int fd, void *dst, size_t bytes, off_t offset)
{
    return fails(zoff_test::CALL_PREAD) ? -1 : __real_pread(fd, dst, bytes, offset);
}

int __wrap_fsync(int)
{
    return fails(zoff_test::CALL_FSYNC) ? -1 : 0;
}

int __wrap_renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags)
{
    if (active && !active->has_exchange) {
        errno = EINVAL;
        return -1;
    }
    return fails(zoff_test::CALL_RENAME) ? -1 : __real_renameat2(from_folder, from, to_folder, to, flags);
}

int __wrap_rename(const char *from, const char *to)
{
    return fails(zoff_test::CALL_RENAME) ? -1 : __real_rename(from, to);
}

int __wrap_ftruncate(int fd, off_t bytes)
{
    return fails(zoff_test::CALL_FTRUNCATE) ? -1 : __real_ftruncate(fd, bytes);
}

void zoff_test::save_fault::share(int refused_from_, int error_)
{
    asked_to_share = shared = 0;
    share_error = error_;
    refused_from = refused_from_;
}

int zoff_test::save_fault::share_turn()
{
    return ++asked_to_share >= refused_from ? share_error.load() : 0;
}

// The files are opened again, because their descriptors may need aligned memory.
static int open_again(int fd, int flags)
{
    return __real_open(("/proc/self/fd/" + std::to_string(fd)).c_str(), flags | O_CLOEXEC);
}

// Copy the bytes that a file system would share. Refuse what it would refuse: a range that is no blocks of the file.
static int copy_range(int to, const file_clone_range &range)
{
    enum { BLOCK = 4096 };
    struct stat about;
    const int from = (int)range.src_fd;
    const uint64_t end = range.src_offset + range.src_length;
    if (fstat(from, &about) != 0 || range.src_offset % BLOCK || range.dest_offset % BLOCK || end > (uint64_t)about.st_size ||
        (range.src_length % BLOCK && end != (uint64_t)about.st_size))
        return EINVAL;
    std::vector<char> bytes(range.src_length);
    const int reader = open_again(from, O_RDONLY), writer = open_again(to, O_WRONLY);
    const bool done = __real_pread(reader, bytes.data(), bytes.size(), (off_t)range.src_offset) == (ssize_t)bytes.size() &&
                      __real_pwrite(writer, bytes.data(), bytes.size(), (off_t)range.dest_offset) == (ssize_t)bytes.size();
    close(reader);
    close(writer);
    return done ? 0 : EIO;
}

int __wrap_ioctl(int fd, unsigned long request, ...)
{
    va_list args;
    va_start(args, request);
    void *argument = va_arg(args, void *);
    va_end(args);
    if (request != FICLONERANGE || !active || !active->shares())
        return __real_ioctl(fd, request, argument);
    int error = active->share_turn();
    if (!error)
        error = copy_range(fd, *static_cast<const file_clone_range *>(argument));
    active->shared += !error;
    errno = error ? error : errno;
    return error ? -1 : 0;
}

int __wrap_zoff_aio_result_check(int res, bool writes, uint64_t offset, size_t bytes)
{
    const int error = active ? active->turn(writes ? zoff_test::CALL_TRANSFER : zoff_test::CALL_READ) : 0;
    return error ? -error : __real_zoff_aio_result_check(res, writes, offset, bytes);
}

// No thread that calls the library waits until a time, but a step that waits for a save.
int __wrap_pthread_cond_timedwait(pthread_cond_t *moved, pthread_mutex_t *lock, const timespec *until)
{
    if (active && !zoff_test::is_library_thread())
        active->waits++;
    return __real_pthread_cond_timedwait(moved, lock, until);
}

void __wrap_zoff_checkpoint_source_copy(const struct zoff_saver *s, const struct zoff_save_source *source,
                                        zoff_chunk_memory memory, uint64_t from, size_t bytes, char *dst)
{
    if (active)
        active->copies++;
    __real_zoff_checkpoint_source_copy(s, source, memory, from, bytes, dst);
}

zoff_status __wrap_zoff_checkpoint_fill_frozen(struct zoff_filler *f, bool verify_only)
{
    if (active && !verify_only && active->fail_frozen.exchange(false))
        return zoff_base_status_fail(ZOFF_ERR_IO, "provoked");
    return __real_zoff_checkpoint_fill_frozen(f, verify_only);
}
