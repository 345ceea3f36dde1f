/* SPDX-License-Identifier: Apache-2.0 */
/* files.h: files that zoff makes, and the largest one that the process may write. */
#ifndef ZOFF_BASE_FILES_H
#define ZOFF_BASE_FILES_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/stat.h>

/* Let the owner read and write a file that was just made. Under a umask that takes these rights away, the file could not be
 * opened again. */
static inline void zoff_base_files_own(int fd)
{
    struct stat st;
    if (fd >= 0 && fstat(fd, &st) == 0 && (st.st_mode & 0600) != 0600)
        (void)fchmod(fd, (st.st_mode & 0777) | 0600);
}

/* Whether a file may grow to this byte (RLIMIT_FSIZE). Ask before each write(), fallocate() and ftruncate(): beyond the limit
 * the kernel sends SIGXFSZ, which ends the process.  @return false, with errno EFBIG */
static inline bool zoff_base_files_fits(uint64_t end)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || end <= limit.rlim_cur)
        return true;
    errno = EFBIG;
    return false;
}

/* Write a file so that it is whole or not there: write it under the name `early`, which no other writer uses at the time, flush
 * it if `flushes`, and rename it to `path`. The folder is not flushed.
 * @return 0 or an errno: then *out_failed says which step has failed, such as "write", and `early` is gone */
int zoff_base_files_replace(const char *early, const char *path, mode_t mode, const void *bytes, size_t count, bool flushes,
                            const char **out_failed);

#endif
