/* SPDX-License-Identifier: Apache-2.0 */
/* file.c: open the file of a queue, and find its alignment and whether there is space for it. Opening with O_DIRECT proves
 * nothing, so one transfer is tried. */
#include "file_priv.h"

#include "bits.h"
#include "files.h"
#include "log.h"
#include "mem.h"
#include "try.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* Kernel interface of statx for direct I/O (Linux 6.1), defined here so that older headers suffice. */
enum {
    DIOALIGN_MASK = 0x2000,
    DIOALIGN_MEMORY_AT = 152, /* u32 in struct statx */
    DIOALIGN_OFFSET_AT = 156,
    UNIT_DEFAULT = 4096,
    UNIT_LARGEST = 65536, /* largest unit to try, for file systems whose unit is the page of a machine with 64 KiB pages */
    INTERRUPTIONS = 100   /* most EINTR in a row that are accepted */
};

static const struct {
    unsigned magic;
    const char *name;
} FILE_SYSTEMS[] = {
    {0xEF53, "ext4"},          {0x58465342, "xfs"},  {0x9123683E, "btrfs"},  {0x01021994, "tmpfs"},    {0x858458F6, "ramfs"},
    {0x794C7630, "overlayfs"}, {0x65735546, "fuse"}, {0x6969, "nfs"},        {0x73717368, "squashfs"}, {0xF15F, "ecryptfs"},
    {0x2FC12FC1, "zfs"},       {0xFE534D42, "smb2"}, {0xFF534D42, "cifs"},   {0x01021997, "9p"},       {0x4D44, "vfat"},
    {0x2011BAB0, "exfat"},     {0xF2F52010, "f2fs"}, {0x0BD00BD0, "lustre"}, {0x00C36400, "ceph"},     {0x47504653, "gpfs"},
};

const char *zoff_aio_file_system(const zoff_aio_file *file, char buffer[32])
{
    struct statfs fs;
    if (fstatfs(file->fd, &fs) != 0)
        return "an unknown file system";
    for (unsigned i = 0; i < sizeof FILE_SYSTEMS / sizeof FILE_SYSTEMS[0]; i++) {
        if (FILE_SYSTEMS[i].magic == (unsigned)fs.f_type)
            return FILE_SYSTEMS[i].name;
    }
    snprintf(buffer, 32, "file system type 0x%x", (unsigned)fs.f_type);
    return buffer;
}

/* Accept only regular files and block devices: others have no offsets, and opening a pipe would wait for its other end. */
static zoff_status check_type(const char *path, const struct stat *st)
{
    ZOFF_FAIL_IF(S_ISDIR(st->st_mode), ZOFF_ERR_IO, "'%s' is a directory; name a file in it", path);
    ZOFF_FAIL_IF(!S_ISREG(st->st_mode) && !S_ISBLK(st->st_mode), ZOFF_ERR_IO,
                 "'%s' is neither a regular file nor a block device", path);
    return ZOFF_OK;
}

/* Ask the kernel for the units of direct I/O.  @return false: it reports no direct I/O on this file */
static bool ask_units(int fd, size_t *out_unit, size_t *out_memory_unit)
{
    struct statx sx;
    memset(&sx, 0, sizeof sx);
    uint32_t memory = 0, offset = 0;
    *out_unit = *out_memory_unit = UNIT_DEFAULT;
    if (statx(fd, "", AT_EMPTY_PATH, DIOALIGN_MASK, &sx) == 0 && (sx.stx_mask & DIOALIGN_MASK)) {
        memcpy(&memory, (const char *)&sx + DIOALIGN_MEMORY_AT, sizeof memory);
        memcpy(&offset, (const char *)&sx + DIOALIGN_OFFSET_AT, sizeof offset);
        if (!memory || !offset)
            return false;
        *out_unit = offset;
        *out_memory_unit = memory;
        return true;
    }
    int sector = 0;
    if (ioctl(fd, BLKSSZGET, &sector) == 0 && sector > 0)
        *out_unit = *out_memory_unit = (size_t)sector;
    return true;
}

/* Transfer one unit at offset 0.  @return 0, or the errno of the failure. An empty file of our own has nothing to read, so it
 * is written. An empty file of somebody else is only read, at its end. */
static int transfer_once(const zoff_aio_file *file, bool blank, char *block)
{
    ssize_t ret = -1;
    errno = EINTR;
    for (unsigned i = 0; ret < 0 && (errno == EINTR || errno == EAGAIN) && i < INTERRUPTIONS; i++)
        ret = !blank                             ? pread(file->fd, block, file->unit, 0)
              : zoff_base_files_fits(file->unit) ? pwrite(file->fd, block, file->unit, 0)
                                                 : -1;
    int error = ret < 0 ? errno : 0;
    if (blank && ftruncate(file->fd, 0) != 0 && !error)
        error = errno;
    return error;
}

/* Find units that work. *out_direct: whether any does. */
static zoff_status probe(zoff_aio_file *file, bool blank, bool *out_direct)
{
    char *memory;
    if (!ask_units(file->fd, &file->unit, &file->memory_unit)) {
        *out_direct = false;
        return ZOFF_OK;
    }
    size_t largest = zoff_base_bits_max(UNIT_LARGEST, file->memory_unit);
    ZOFF_TRY(zoff_base_mem_alloc(1, file->unit + 2 * largest, "the first block of a file", &memory));
    char *block = (char *)zoff_base_bits_align((size_t)memory, largest);
    int error = transfer_once(file, blank, block);
    for (size_t unit = UNIT_DEFAULT; error == EINVAL && unit <= UNIT_LARGEST; unit *= UNIT_LARGEST / UNIT_DEFAULT) {
        if (unit <= file->unit)
            continue;
        file->unit = file->memory_unit = unit;
        error = transfer_once(file, blank, block);
    }
    zoff_base_mem_free(memory);
    /* An error of a full disk is left to the calls that write or reserve, because they report sizes. */
    bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
    ZOFF_FAIL_IF(error && error != EINVAL && error != EOPNOTSUPP && !full, ZOFF_ERR_IO, "cannot %s '%s': %s",
                 blank ? "write to" : "read from", file->path, zoff_base_status_errno(error));
    *out_direct = !error || full;
    return ZOFF_OK;
}

/* Create the file if it does not exist. This is separate from opening it, because only O_EXCL tells whether this call has
 * created it. */
static zoff_status make_file(const char *path, bool *out_created)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    ZOFF_FAIL_IF(fd < 0 && errno != EEXIST, errno == ENOSPC || errno == EDQUOT ? ZOFF_ERR_NO_SPACE : ZOFF_ERR_IO,
                 "cannot create '%s': %s", path, zoff_base_status_errno(errno));
    *out_created = fd >= 0;
    if (fd >= 0)
        close(fd);
    return ZOFF_OK;
}

static zoff_status fail_open(const char *path, int flags)
{
    return zoff_base_status_fail(ZOFF_ERR_IO, "cannot open '%s' for %s: %s", path,
                                 (flags & O_ACCMODE) == O_RDWR ? "reading and writing" : "reading",
                                 zoff_base_status_errno(errno));
}

/* Another file may have taken the name since `held` was opened. */
static zoff_status check_same(const zoff_aio_file *file, int held)
{
    struct stat ours, theirs;
    ZOFF_FAIL_IF(fstat(held, &ours) != 0 || fstat(file->fd, &theirs) != 0, ZOFF_ERR_IO, "cannot examine '%s': %s", file->path,
                 zoff_base_status_errno(errno));
    ZOFF_FAIL_IF(ours.st_dev != theirs.st_dev || ours.st_ino != theirs.st_ino, ZOFF_ERR_IO,
                 "'%s' was replaced by another file while it was opened; nothing was written to that one. Let only this user "
                 "write into the folder",
                 file->path);
    return ZOFF_OK;
}

/* A file that is only read may have lost its name since `held` was opened, because its content is still there. */
static int open_again(const zoff_aio_file *file, int held, int flags)
{
    char link[32];
    snprintf(link, sizeof link, "/proc/self/fd/%d", held);
    const int fd = held >= 0 && !file->writable ? open(link, flags) : -1;
    const bool needs_name = held < 0 || file->writable || (fd < 0 && errno == ENOENT); /* or the system has no /proc */
    return needs_name ? open(file->path, flags) : fd;
}

static bool is_empty(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == 0;
}

/* Open with O_DIRECT. If the file system has none, file->direct stays false and no descriptor stays open. */
static zoff_status open_direct(zoff_aio_file *file, int held, int flags, bool created)
{
    bool direct = false;
    file->fd = open_again(file, held, flags | O_DIRECT);
    if (file->fd < 0)
        return errno == EINVAL || errno == EOPNOTSUPP ? ZOFF_OK : fail_open(file->path, flags);
    /* Write no byte to a file before it is known to be the caller's. */
    zoff_status status = held >= 0 ? check_same(file, held) : ZOFF_OK;
    if (status == ZOFF_OK)
        status = probe(file, created || (held >= 0 && file->writable && is_empty(held)), &direct);
    if (status == ZOFF_OK && direct) {
        file->direct = true;
        return ZOFF_OK;
    }
    close(file->fd);
    file->fd = -1;
    return status;
}

static zoff_status open_buffered(zoff_aio_file *file, int held, int flags, zoff_aio_direct direct)
{
    char buffer[32];
    file->fd = open_again(file, held, flags);
    if (file->fd < 0)
        return fail_open(file->path, flags);
    file->unit = file->memory_unit = 1;
    if (direct == ZOFF_DIRECT_OFF)
        return ZOFF_OK;
    const char *system = zoff_aio_file_system(file, buffer);
    if (direct == ZOFF_DIRECT_REQUIRE) {
        close(file->fd);
        return zoff_base_status_fail(
            ZOFF_ERR_UNSUPPORTED,
            "'%s' is on %s, which refuses O_DIRECT, and direct I/O is required; choose a folder on ext4 or "
            "XFS of a local drive, or let direct be auto",
            file->path, system);
    }
    ZOFF_WARN(
        "'%s' is on %s, which refuses O_DIRECT: going through the page cache, of which %d MiB are used besides the transfers "
        "in "
        "flight. Every byte is copied once more, at about half a second of CPU time for each GB. A folder on ext4 or XFS of a "
        "local drive avoids this",
        file->path, system, ZOFF_AIO_BEHIND_BYTES >> 20);
    file->drops_cache = true;
    return ZOFF_OK;
}

zoff_status zoff_aio_file_open(const char *path, int held, zoff_aio_direct direct, bool writable, bool create,
                               zoff_aio_file *out)
{
    struct stat st;
    bool created = false;
    /* A link is allowed to a file that is only read, because the file itself is compared with `held`. */
    int flags = (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | (held >= 0 && writable ? O_NOFOLLOW : 0);
    zoff_aio_file file = {.fd = -1, .writable = writable};
    if (stat(path, &st) == 0)
        ZOFF_TRY(check_type(path, &st));
    ZOFF_TRY(zoff_base_mem_copy_text(path, &file.path));
    zoff_status status = ZOFF_OK;
    if (create)
        ZOFF_TRY_OR(free_path, make_file(path, &created));
    if (direct != ZOFF_DIRECT_OFF)
        ZOFF_TRY_OR(remove_file, open_direct(&file, held, flags, created));
    if (!file.direct)
        ZOFF_TRY_OR(remove_file, open_buffered(&file, held, flags, direct));
    if (held >= 0)
        ZOFF_TRY_OR(close_file, check_same(&file, held));
    *out = file;
    return ZOFF_OK;

close_file:
    close(file.fd);
remove_file:
    if (created)
        unlink(path);
free_path:
    zoff_base_mem_free(file.path);
    return status;
}

zoff_status zoff_aio_file_share(const zoff_aio_file *file, zoff_aio_file *out)
{
    zoff_aio_file shared = {
        .direct = file->direct, .drops_cache = file->drops_cache, .unit = file->unit, .memory_unit = file->memory_unit};
    ZOFF_TRY(zoff_base_mem_copy_text(file->path, &shared.path));
    shared.fd = fcntl(file->fd, F_DUPFD_CLOEXEC, 0);
    const int error = errno;
    if (shared.fd < 0)
        zoff_base_mem_free(shared.path);
    ZOFF_FAIL_IF(shared.fd < 0, ZOFF_ERR_IO, "cannot open '%s' again: %s", file->path, zoff_base_status_errno(error));
    *out = shared;
    return ZOFF_OK;
}

void zoff_aio_file_close(zoff_aio_file *file)
{
    close(file->fd);
    zoff_base_mem_free(file->path);
    *file = (zoff_aio_file){.fd = -1};
}

uint64_t zoff_aio_file_end(const zoff_aio_file *file)
{
    struct stat st;
    uint64_t capacity = 0;
    if (fstat(file->fd, &st) != 0)
        return 0;
    if (S_ISBLK(st.st_mode))
        return ioctl(file->fd, BLKGETSIZE64, &capacity) == 0 ? capacity : 0;
    return (uint64_t)st.st_size;
}

static zoff_status no_space(const zoff_aio_file *file, uint64_t need, uint64_t have, const char *where)
{
    return zoff_base_status_fail(ZOFF_ERR_NO_SPACE,
                                 "'%s' needs %" PRIu64 " more bytes (%.1f MiB) and %s has %" PRIu64
                                 " (%.1f MiB); free some space or choose another folder",
                                 file->path, need, (double)need / (1 << 20), where, have, (double)have / (1 << 20));
}

/* Measure the bytes that the file still needs, and those that the file system has free. */
static void measure(const zoff_aio_file *file, const struct stat *st, uint64_t bytes, uint64_t *out_need, uint64_t *out_have)
{
    struct statvfs fs;
    uint64_t held = (uint64_t)st->st_blocks * 512;
    *out_need = bytes > held ? bytes - held : 0;
    *out_have = UINT64_MAX; /* no limit, also for a file system that reports no blocks */
    if (fstatvfs(file->fd, &fs) == 0 && fs.f_blocks)
        *out_have = (uint64_t)fs.f_bavail * fs.f_frsize;
}

zoff_status zoff_aio_file_reserve(const zoff_aio_file *file, uint64_t bytes)
{
    struct stat st;
    char buffer[32];
    uint64_t need, have;
    ZOFF_FAIL_IF(fstat(file->fd, &st) != 0, ZOFF_ERR_IO, "cannot examine '%s': %s", file->path, zoff_base_status_errno(errno));
    if (S_ISBLK(st.st_mode)) {
        have = zoff_aio_file_end(file);
        return have >= bytes ? ZOFF_OK : no_space(file, bytes - have, 0, "the device");
    }
    /* Check this first, because a file that is too large must not fill the disk before it fails. */
    measure(file, &st, bytes, &need, &have);
    if (need > have)
        return no_space(file, need, have, zoff_aio_file_system(file, buffer));
    if (!bytes)
        return ZOFF_OK;
    struct rlimit limit = {.rlim_cur = RLIM_INFINITY};
    (void)getrlimit(RLIMIT_FSIZE, &limit);
    ZOFF_FAIL_IF(!zoff_base_files_fits(bytes), ZOFF_ERR_NO_SPACE,
                 "'%s' must have %" PRIu64 " bytes, but RLIMIT_FSIZE of this process is %" PRIu64
                 "; raise it (ulimit -f) or spread the file over more folders",
                 file->path, bytes, (uint64_t)limit.rlim_cur);
    int ret = -1;
    errno = EINTR;
    for (unsigned i = 0; ret != 0 && errno == EINTR && i < INTERRUPTIONS; i++)
        ret = fallocate(file->fd, 0, 0, (off_t)bytes);
    /* This file system cannot reserve. There was enough space a moment ago, and more cannot be known. */
    if (ret != 0 && errno == EOPNOTSUPP)
        ret = (uint64_t)st.st_size >= bytes ? 0 : ftruncate(file->fd, (off_t)bytes);
    if (ret == 0)
        return ZOFF_OK;
    int error = errno;
    if ((uint64_t)st.st_size < bytes && ftruncate(file->fd, st.st_size) != 0)
        ZOFF_WARN("cannot give back what was reserved of '%s': %s", file->path, zoff_base_status_errno(errno));
    if (error == ENOSPC || error == EDQUOT) {
        measure(file, &st, bytes, &need, &have);
        return no_space(file, need, have,
                        error == EDQUOT ? "the quota, which is exceeded, on a file system that"
                                        : zoff_aio_file_system(file, buffer));
    }
    return zoff_base_status_fail(ZOFF_ERR_IO, "cannot reserve %" PRIu64 " bytes for '%s': %s", bytes, file->path,
                                 zoff_base_status_errno(error));
}
