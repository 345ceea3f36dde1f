/* SPDX-License-Identifier: Apache-2.0 */
/* out_file.c: writes under a temporary name, syncs the file, renames it, syncs its folder. */
#include "out_file.h"

#include "verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static int cannot_write(const char *path)
{
    return failed("%s: cannot write: %s", path, strerror(errno));
}

/* Open the temporary file, even one that a killed command has left. A command holds a lock on it while it writes.  @return -1:
 * another command writes it (EWOULDBLOCK), or another errno */
static int open_part(const char *part, int create)
{
    struct stat ours, named;
    const int fd = open(part, O_WRONLY | create | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0)
        return -1;
    bool works = flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK; /* the file is locked, or there are no locks */
    if (works && (fstat(fd, &ours) != 0 || stat(part, &named) != 0 || ours.st_ino != named.st_ino)) {
        works = false; /* the other command has just renamed the file */
        errno = EWOULDBLOCK;
    }
    if (works && ftruncate(fd, 0) == 0)
        return fd;
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
}

static int cannot_open(const char *part)
{
    return errno == EWOULDBLOCK ? failed("%s: another command writes this file", part) : cannot_write(part);
}

int out_file_remove_left(const char *part)
{
    const int fd = open_part(part, 0);
    if (fd < 0)
        return cannot_open(part);
    const int result = unlink(part) == 0 ? EXIT_DONE : failed("%s: cannot remove this file: %s", part, strerror(errno));
    close(fd);
    return result;
}

int out_file_open(out_file *f, const char *path)
{
    const size_t bytes = strlen(path) + sizeof OUT_FILE_PART;
    *f = (out_file){.path = strdup(path), .part = malloc(bytes)};
    if (!f->path || !f->part) {
        out_file_close(f);
        return failed("out of memory for the name %s", path);
    }
    snprintf(f->part, bytes, "%s" OUT_FILE_PART, path);
    const int fd = open_part(f->part, O_CREAT);
    f->to = fd >= 0 ? fdopen(fd, "wb") : NULL;
    if (f->to)
        return EXIT_DONE;
    const int result = cannot_open(f->part);
    if (fd >= 0)
        close(fd);
    out_file_close(f);
    return result;
}

int out_file_write(out_file *f, const void *bytes, size_t count)
{
    return fwrite(bytes, 1, count, f->to) == count ? EXIT_DONE : cannot_write(f->part);
}

int out_file_sync_name(const char *path)
{
    size_t bytes = strlen(path);
    while (bytes > 1 && path[bytes - 1] == '/') /* "a/b/" is in "a/", so the last "/" does not count */
        bytes--;
    while (bytes > 0 && path[bytes - 1] != '/')
        bytes--;
    char *folder = bytes > 0 ? strndup(path, bytes) : strdup(".");
    const int fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    const bool works = fd >= 0 && (fsync(fd) == 0 || errno == EINVAL); /* some file systems cannot flush folders */
    const int result = works ? EXIT_DONE : failed("%s: cannot make its folder durable: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    free(folder);
    return result;
}

int out_file_commit(out_file *f)
{
    if (ferror(f->to) || fflush(f->to) != 0 || fsync(fileno(f->to)) != 0)
        return cannot_write(f->part);
    if (rename(f->part, f->path) != 0)
        return failed("%s: cannot rename it to %s: %s", f->part, f->path, strerror(errno));
    free(f->part);
    f->part = NULL; /* so out_file_close() has nothing to remove */
    return out_file_sync_name(f->path);
}

void out_file_close(out_file *f)
{
    if (f->to && f->part)
        unlink(f->part); /* remove it before its lock ends, because another command may begin to write it then */
    if (f->to)
        fclose(f->to);
    free(f->path);
    free(f->part);
    *f = (out_file){0};
}
