/* SPDX-License-Identifier: Apache-2.0 */
/* files.c: small files that appear whole. */
#include "files.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static const char *write_all(int fd, const char *bytes, size_t count, bool flushes)
{
    for (size_t done = 0; done < count;) {
        const ssize_t got = zoff_base_files_fits(count) ? write(fd, bytes + done, count - done) : -1;
        if (got < 0 && errno != EINTR)
            return "write";
        done += got > 0 ? (size_t)got : 0;
    }
    return !flushes || fsync(fd) == 0 ? NULL : "flush";
}

int zoff_base_files_replace(const char *early, const char *path, mode_t mode, const void *bytes, size_t count, bool flushes,
                            const char **out_failed)
{
    const int fd = open(early, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, mode);
    *out_failed = "create";
    if (fd < 0)
        return errno;
    zoff_base_files_own(fd);
    *out_failed = write_all(fd, bytes, count, flushes);
    int error = *out_failed ? errno : 0;
    if (close(fd) != 0 && !error) { /* network file systems may report a full disk here */
        error = errno;
        *out_failed = "close";
    }
    if (!error && rename(early, path) != 0) {
        error = errno;
        *out_failed = "rename";
    }
    if (error)
        (void)unlink(early);
    return error;
}
