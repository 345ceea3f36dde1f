/* out_file.c: writes under a temporary name, syncs the file, renames it, syncs its folder. */
#include "out_file.h"

#include "verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int cannot_write(const char *path)
{
    return failed("%s: cannot write: %s", path, strerror(errno));
}

int out_file_open(out_file *f, const char *path)
{
    const size_t bytes = strlen(path) + sizeof ".part";
    *f = (out_file){.path = strdup(path), .part = malloc(bytes)};
    if (!f->path || !f->part) {
        out_file_close(f);
        return failed("out of memory for the name %s", path);
    }
    snprintf(f->part, bytes, "%s.part", path);
    f->to = fopen(f->part, "wbxe"); /* a file of this name may be the user's own */
    if (f->to)
        return EXIT_DONE;
    const int result = errno == EEXIST ? failed("%s: is there already; a command that was killed may have left it. Remove it "
                                                "or give it another name",
                                                f->part)
                                       : cannot_write(f->part);
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
    while (bytes > 1 && path[bytes - 1] == '/') /* "a/b/" is in "a/" */
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
    f->part = NULL; /* out_file_close() has nothing to remove */
    return out_file_sync_name(f->path);
}

void out_file_close(out_file *f)
{
    if (f->to)
        fclose(f->to);
    if (f->to && f->part)
        unlink(f->part);
    free(f->path);
    free(f->part);
    *f = (out_file){0};
}
