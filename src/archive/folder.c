/* folder.c: names in a checkpoint, and files that appear whole: written under another name, flushed, renamed. */
#include "archive.h"

#include "archive_priv.h"
#include "try.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

zoff_status zoff_archive_folder_check_name(const char *what, const char *name)
{
    static const char LEGAL[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    const size_t bytes = strlen(name);
    ZOFF_FAIL_IF(bytes == 0 || bytes > ZOFF_ARCHIVE_NAME_MOST || name[0] == '.' || strspn(name, LEGAL) != bytes,
                 ZOFF_ERR_INVALID,
                 "%s is '%.300s'; expected 1 to %d letters, digits, \".\", \"_\" and \"-\", not beginning with \".\"", what,
                 name, ZOFF_ARCHIVE_NAME_MOST);
    return ZOFF_OK;
}

void zoff_archive_folder_manifest_name(const char *label, char dst[512])
{
    snprintf(dst, 512, "%.255s%smanifest.json", label, *label ? "." : "");
}

void zoff_archive_folder_part_name(const char *label, const char *id, unsigned rank, char dst[512])
{
    snprintf(dst, 512, "%.255s%s%.16s.rank-%05u.states", label, *label ? "." : "", id, rank);
}

static zoff_status make_one(const char *folder)
{
    struct stat about;
    if (mkdir(folder, 0777) == 0)
        return ZOFF_OK;
    const int error = errno;
    ZOFF_FAIL_IF(error != EEXIST, ZOFF_ERR_IO, "cannot make the folder '%s': %s", folder, zoff_base_status_errno(error));
    ZOFF_FAIL_IF(stat(folder, &about) == 0 && !S_ISDIR(about.st_mode), ZOFF_ERR_IO, "'%s' is no folder", folder);
    return ZOFF_OK;
}

zoff_status zoff_archive_folder_make(const char *folder)
{
    char path[PATH_MAX];
    ZOFF_FAIL_IF(!*folder || strlen(folder) >= sizeof path, ZOFF_ERR_INVALID, "the folder of checkpoints is '%.100s'", folder);
    for (const char *slash = strchr(folder + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        memcpy(path, folder, (size_t)(slash - folder));
        path[slash - folder] = 0;
        ZOFF_TRY(make_one(path));
    }
    return make_one(folder);
}

zoff_status zoff_archive_folder_flush(const char *folder)
{
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ZOFF_FAIL_IF(fd < 0, ZOFF_ERR_IO, "cannot open the folder '%s': %s", folder, zoff_base_status_errno(errno));
    const int error = fsync(fd) ? errno : 0;
    close(fd);
    /* Some file systems cannot flush folders. */
    ZOFF_FAIL_IF(error && error != EINVAL, ZOFF_ERR_IO, "cannot flush the folder '%s': %s", folder,
                 zoff_base_status_errno(error));
    return ZOFF_OK;
}

static zoff_status write_all(int fd, const char *path, const char *text, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        const ssize_t got = write(fd, text + done, bytes - done);
        if (got < 0 && errno == EINTR)
            continue;
        ZOFF_FAIL_IF(got < 0, errno == ENOSPC || errno == EDQUOT ? ZOFF_ERR_NO_SPACE : ZOFF_ERR_IO, "cannot write '%s': %s",
                     path, zoff_base_status_errno(errno));
        done += (size_t)got;
    }
    ZOFF_FAIL_IF(fsync(fd) != 0, errno == ENOSPC || errno == EDQUOT ? ZOFF_ERR_NO_SPACE : ZOFF_ERR_IO, "cannot flush '%s': %s",
                 path, zoff_base_status_errno(errno));
    return ZOFF_OK;
}

zoff_status zoff_archive_folder_write_file(const char *folder, const char *name, const char *text, size_t bytes)
{
    char path[PATH_MAX], early[PATH_MAX];
    const int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    const int early_length = snprintf(early, sizeof early, "%s/.%s.new", folder, name);
    ZOFF_FAIL_IF(length >= PATH_MAX || early_length >= PATH_MAX, ZOFF_ERR_INVALID, "the path '%.100s...' is too long", folder);
    const int fd = open(early, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    ZOFF_FAIL_IF(fd < 0, errno == ENOSPC || errno == EDQUOT ? ZOFF_ERR_NO_SPACE : ZOFF_ERR_IO, "cannot create '%s': %s", early,
                 zoff_base_status_errno(errno));
    zoff_status status = write_all(fd, early, text, bytes);
    close(fd);
    if (status == ZOFF_OK && rename(early, path) != 0)
        status =
            zoff_base_status_fail(ZOFF_ERR_IO, "cannot rename '%s' to '%s': %s", early, path, zoff_base_status_errno(errno));
    if (status < 0) {
        (void)unlink(early);
        return status;
    }
    return zoff_archive_folder_flush(folder);
}

zoff_status zoff_archive_folder_pread(int fd, const char *path, uint64_t offset, void *dst, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        const ssize_t got = pread(fd, (char *)dst + done, bytes - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        ZOFF_FAIL_IF(got < 0, ZOFF_ERR_IO, "cannot read '%s' at offset %llu: %s", path, (unsigned long long)(offset + done),
                     zoff_base_status_errno(errno));
        ZOFF_FAIL_IF(got == 0, ZOFF_ERR_CORRUPT, "'%s' ends at byte %llu, too early", path,
                     (unsigned long long)(offset + done));
        done += (size_t)got;
    }
    return ZOFF_OK;
}

static zoff_status read_open(int fd, const char *path, size_t most, char **out, size_t *out_bytes)
{
    struct stat about;
    char *text;
    ZOFF_FAIL_IF(fstat(fd, &about) != 0 || !S_ISREG(about.st_mode), ZOFF_ERR_IO, "'%s' is no file", path);
    ZOFF_FAIL_IF(about.st_size > 0 && (uint64_t)about.st_size > most, ZOFF_ERR_CORRUPT, "'%s' has %llu bytes, too many", path,
                 (unsigned long long)about.st_size);
    const size_t bytes = (size_t)about.st_size;
    ZOFF_TRY(zoff_base_mem_alloc(bytes + 1, 1, "a file of a checkpoint", &text));
    const zoff_status status = zoff_archive_folder_pread(fd, path, 0, text, bytes);
    if (status < 0) {
        zoff_base_mem_free(text);
        return status;
    }
    *out = text;
    *out_bytes = bytes;
    return ZOFF_OK;
}

zoff_status zoff_archive_folder_read_file(const char *folder, const char *name, size_t most, char **out, size_t *out_bytes)
{
    char path[PATH_MAX];
    const int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    ZOFF_FAIL_IF(length >= PATH_MAX, ZOFF_ERR_INVALID, "the path '%.100s...' is too long", folder);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    ZOFF_FAIL_IF(fd < 0, ZOFF_ERR_IO, "cannot open '%s': %s", path, zoff_base_status_errno(errno));
    const zoff_status status = read_open(fd, path, most, out, out_bytes);
    close(fd);
    return status;
}
