/* SPDX-License-Identifier: Apache-2.0 */
/* fault_fs.c: a file system that passes all calls through to a folder and fails on demand. The nth read or write from now
 * on fails, is short, or has a bit flipped. Programs control it by writing to the file ".fault" in its root:
 *
 *      read 5 fail 5        the fifth read gives errno 5; "write 5 fail 28" likewise
 *      read 5 short         it moves half of the requested bytes
 *      read 5 flip          it moves all bytes and flips one bit; "write 5 flip" flips it on the way to the file
 *      read 5+ fail 5       so do all reads after it
 *      none                 nothing fails
 *
 * usage: fault_fs FOLDER MOUNTPOINT   stays in the foreground until it is unmounted */
#define FUSE_USE_VERSION 35
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

static const char CONTROL[] = "/.fault";

static const char *folder;

/* The fault, and the number of transfers of its kind until it happens. */
static struct {
    pthread_mutex_t lock;
    bool reads, for_ever, is_short, flips;
    long left; /* 0: no fault */
    int error;
} fault = {.lock = PTHREAD_MUTEX_INITIALIZER};

typedef struct verdict {
    int error;
    bool is_short, flips;
} verdict;

static int set_fault(const char *text)
{
    char kind[8] = "", what[8] = "", plus = 0;
    long nth = 0;
    int error = EIO;
    if (strncmp(text, "none", 4) != 0 && sscanf(text, "%7s %ld%c %7s %d", kind, &nth, &plus, what, &error) < 4)
        return -EINVAL;
    pthread_mutex_lock(&fault.lock);
    fault.reads = strcmp(kind, "read") == 0;
    fault.left = nth;
    fault.for_ever = plus == '+';
    fault.is_short = strcmp(what, "short") == 0;
    fault.flips = strcmp(what, "flip") == 0;
    fault.error = error;
    pthread_mutex_unlock(&fault.lock);
    return 0;
}

static verdict judge(bool reads)
{
    verdict v = {0};
    pthread_mutex_lock(&fault.lock);
    if (fault.left > 0 && fault.reads == reads && --fault.left == 0) {
        v = (verdict){fault.is_short || fault.flips ? 0 : fault.error, fault.is_short, fault.flips};
        fault.left = fault.for_ever;
    }
    pthread_mutex_unlock(&fault.lock);
    return v;
}

static const char *real_path(const char *path, char dst[4096])
{
    snprintf(dst, 4096, "%s%s", folder, path);
    return dst;
}

static bool is_control(const char *path)
{
    return path && strcmp(path, CONTROL) == 0; /* a file that was removed while open has no path */
}

static int fs_getattr(const char *path, struct stat *st, struct fuse_file_info *info)
{
    char real[4096];
    (void)info;
    if (is_control(path)) {
        *st = (struct stat){.st_mode = S_IFREG | 0600, .st_nlink = 1};
        return 0;
    }
    return lstat(real_path(path, real), st) == 0 ? 0 : -errno;
}

static int open_real(const char *path, mode_t mode, struct fuse_file_info *info, int more)
{
    char real[4096];
    info->direct_io = 1; /* no transfer of a program is served by the page cache: each one causes one or more calls here */
    if (is_control(path))
        return 0;
    int fd = open(real_path(path, real), (info->flags & ~O_DIRECT) | more | O_CLOEXEC, mode);
    info->fh = (uint64_t)fd;
    return fd >= 0 ? 0 : -errno;
}

static int fs_open(const char *path, struct fuse_file_info *info)
{
    return open_real(path, 0, info, 0);
}

static int fs_create(const char *path, mode_t mode, struct fuse_file_info *info)
{
    return open_real(path, mode, info, O_CREAT);
}

static int fs_read(const char *path, char *dst, size_t bytes, off_t offset, struct fuse_file_info *info)
{
    if (is_control(path))
        return 0;
    const verdict v = judge(true);
    if (v.error)
        return -v.error;
    ssize_t got = pread((int)info->fh, dst, v.is_short ? bytes / 2 : bytes, offset);
    if (got > 0 && v.flips)
        dst[got / 2] = (char)(dst[got / 2] ^ 1);
    return got < 0 ? -errno : (int)got;
}

static int fs_write(const char *path, const char *src, size_t bytes, off_t offset, struct fuse_file_info *info)
{
    if (is_control(path)) {
        char text[64];
        snprintf(text, sizeof text, "%.*s", (int)bytes, src);
        int error = set_fault(text);
        return error ? error : (int)bytes;
    }
    const verdict v = judge(false);
    if (v.error)
        return -v.error;
    ssize_t put = pwrite((int)info->fh, src, v.is_short ? bytes / 2 : bytes, offset);
    if (put > 0 && v.flips) {
        const char wrong = (char)(src[put / 2] ^ 1);
        if (pwrite((int)info->fh, &wrong, 1, offset + put / 2) != 1)
            return -EIO;
    }
    return put < 0 ? -errno : (int)put;
}

static int fs_release(const char *path, struct fuse_file_info *info)
{
    if (!is_control(path))
        close((int)info->fh);
    return 0;
}

static int fs_truncate(const char *path, off_t bytes, struct fuse_file_info *info)
{
    char real[4096];
    (void)info;
    return is_control(path) || truncate(real_path(path, real), bytes) == 0 ? 0 : -errno;
}

static int fs_unlink(const char *path)
{
    char real[4096];
    return unlink(real_path(path, real)) == 0 ? 0 : -errno;
}

static int fs_rename(const char *from, const char *to, unsigned flags)
{
    char real_from[4096], real_to[4096];
    if (flags)
        return -EINVAL;
    return rename(real_path(from, real_from), real_path(to, real_to)) == 0 ? 0 : -errno;
}

static int fs_fsync(const char *path, int data_only, struct fuse_file_info *info)
{
    (void)path;
    return (data_only ? fdatasync((int)info->fh) : fsync((int)info->fh)) == 0 ? 0 : -errno;
}

static int fs_fallocate(const char *path, int mode, off_t offset, off_t bytes, struct fuse_file_info *info)
{
    (void)path;
    return fallocate((int)info->fh, mode, offset, bytes) == 0 ? 0 : -errno;
}

static int fs_statfs(const char *path, struct statvfs *out)
{
    (void)path;
    return statvfs(folder, out) == 0 ? 0 : -errno;
}

static int fs_readdir(const char *path, void *buffer, fuse_fill_dir_t fill, off_t offset, struct fuse_file_info *info,
                      enum fuse_readdir_flags flags)
{
    (void)path, (void)offset, (void)info, (void)flags;
    char command[4200], name[512];
    snprintf(command, sizeof command, "ls -A '%s'", folder); /* tests use one folder without subfolders */
    FILE *list = popen(command, "r");
    while (list && fgets(name, sizeof name, list)) {
        name[strcspn(name, "\n")] = 0;
        fill(buffer, name, NULL, 0, 0);
    }
    if (list)
        pclose(list);
    return 0;
}

int main(int argc, char **argv)
{
    static const struct fuse_operations OPERATIONS = {.getattr = fs_getattr,
                                                      .open = fs_open,
                                                      .create = fs_create,
                                                      .read = fs_read,
                                                      .write = fs_write,
                                                      .release = fs_release,
                                                      .truncate = fs_truncate,
                                                      .unlink = fs_unlink,
                                                      .rename =
                                                          fs_rename, /* libfuse renames a file that is removed while open */
                                                      .fsync = fs_fsync,
                                                      .fallocate = fs_fallocate,
                                                      .statfs = fs_statfs,
                                                      .readdir = fs_readdir};
    if (argc != 3) {
        fprintf(stderr, "usage: fault_fs FOLDER MOUNTPOINT\n");
        return 2;
    }
    folder = argv[1];
    char *arguments[] = {argv[0], argv[2], "-f", NULL};
    return fuse_main(3, arguments, &OPERATIONS, NULL);
}
