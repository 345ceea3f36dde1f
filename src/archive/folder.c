/* SPDX-License-Identifier: Apache-2.0 */
/* folder.c: names of checkpoints, of their files and of the hidden folders of saves; folders, their locks, and small files. */
#include "archive_priv.h"

#include "clock.h"
#include "digest.h"
#include "files.h"
#include "try.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

static const char LEGAL[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

static zoff_status check(const char *what, const char *name, size_t most)
{
    const size_t bytes = strlen(name);
    ZOFF_FAIL_IF(bytes == 0 || bytes > most || name[0] == '.' || strspn(name, LEGAL) != bytes, ZOFF_ERR_INVALID,
                 "%s is '%.300s'; expected 1 to %zu letters, digits, \".\", \"_\" and \"-\", not beginning with \".\"", what,
                 name, most);
    return ZOFF_OK;
}

zoff_status zoff_archive_folder_check_name(const char *what, const char *name)
{
    return check(what, name, ZOFF_ARCHIVE_NAME_MOST);
}

zoff_status zoff_archive_folder_check_label(const char *what, const char *label)
{
    return check(what, label, ZOFF_ARCHIVE_LABEL_MOST);
}

/* ---- names ---- */

static const char MANIFEST[] = ZOFF_ARCHIVE_MANIFEST, PINNED[] = ".pinned";

void zoff_archive_folder_manifest_name(const char *label, char dst[512])
{
    snprintf(dst, 512, "%.255s%s%s", label, *label ? "." : "", MANIFEST);
}

void zoff_archive_folder_part_name(const char *label, const char *id, unsigned rank, char dst[512])
{
    snprintf(dst, 512, "%.255s%s%.16s.rank-%05u.states", label, *label ? "." : "", id, rank);
}

/* Copy the label in the first `bytes` bytes of a name: nothing, or a label and a ".". */
static bool read_label(const char *name, size_t bytes, char label[ZOFF_ARCHIVE_LABEL_MOST + 1])
{
    label[0] = 0;
    if (bytes == 0)
        return true;
    if (bytes < 2 || bytes > ZOFF_ARCHIVE_LABEL_MOST + 1 || name[bytes - 1] != '.' || name[0] == '.' ||
        strspn(name, LEGAL) < bytes)
        return false;
    memcpy(label, name, bytes - 1);
    label[bytes - 1] = 0;
    return true;
}

bool zoff_archive_folder_is_manifest(const char *name, char label[ZOFF_ARCHIVE_LABEL_MOST + 1])
{
    const size_t bytes = strlen(name), end = sizeof MANIFEST - 1;
    return bytes >= end && strcmp(name + bytes - end, MANIFEST) == 0 && read_label(name, bytes - end, label);
}

void zoff_archive_folder_pin_name(const char *label, const char *id, char dst[512])
{
    snprintf(dst, 512, "%.255s%s%.16s%s", label, *label ? "." : "", id, PINNED);
}

/* Copy the label and the id in the first `bytes` bytes of a name. */
static bool read_save(const char *name, size_t bytes, char label[ZOFF_ARCHIVE_LABEL_MOST + 1], char id[ZOFF_ARCHIVE_ID_BYTES])
{
    enum { ID = ZOFF_ARCHIVE_ID_BYTES - 1 };
    if (bytes < ID || strspn(name + bytes - ID, "0123456789abcdef") != ID)
        return false;
    memcpy(id, name + bytes - ID, ID);
    id[ID] = 0;
    return read_label(name, bytes - ID, label);
}

bool zoff_archive_folder_is_pin(const char *name, char label[ZOFF_ARCHIVE_LABEL_MOST + 1], char id[ZOFF_ARCHIVE_ID_BYTES])
{
    const size_t bytes = strlen(name), end = sizeof PINNED - 1;
    return bytes > end && strcmp(name + bytes - end, PINNED) == 0 && read_save(name, bytes - end, label, id);
}

zoff_status zoff_archive_folder_id(char out[ZOFF_ARCHIVE_ID_BYTES])
{
    uint64_t id;
    ZOFF_FAIL_IF(getrandom(&id, sizeof id, 0) != sizeof id, ZOFF_ERR_IO, "the system gives no random number");
    snprintf(out, ZOFF_ARCHIVE_ID_BYTES, "%016" PRIx64, id);
    return ZOFF_OK;
}

/* A name of 255 bytes leaves no room for more, so only its begin is in the hidden name. */
void zoff_archive_folder_work(const char *folder, const char *name, const zoff_archive_manifest *m, char dst[4096])
{
    char id[ZOFF_ARCHIVE_ID_BYTES], what[ZOFF_ARCHIVE_NAME_MOST + 40];
    memcpy(id, m->id, sizeof id);
    if (m->engines > 1) {
        snprintf(what, sizeof what, "%.255s %u %" PRId64, name, m->engines, m->t);
        snprintf(id, sizeof id, "%016" PRIx64, zoff_digest_blocks_small(what, strlen(what)));
    }
    snprintf(dst, 4096, "%.3000s/.%.*s.%.16s", folder, ZOFF_ARCHIVE_WORK_MOST, name, id);
}

bool zoff_archive_folder_is_work(const char *entry, char name[ZOFF_ARCHIVE_WORK_MOST + 1], bool *out_removed)
{
    enum { ID = ZOFF_ARCHIVE_ID_BYTES - 1, END = sizeof ZOFF_ARCHIVE_REMOVED - 1 };
    size_t bytes = strlen(entry);
    *out_removed = bytes > END && strcmp(entry + bytes - END, ZOFF_ARCHIVE_REMOVED) == 0;
    bytes -= *out_removed ? END : 0;
    if (entry[0] != '.' || bytes < ID + 3 || bytes > ID + 2 + ZOFF_ARCHIVE_WORK_MOST || entry[bytes - ID - 1] != '.' ||
        strspn(entry + bytes - ID, "0123456789abcdef") != ID)
        return false;
    memcpy(name, entry + 1, bytes - ID - 2);
    name[bytes - ID - 2] = 0;
    return true;
}

bool zoff_archive_folder_is_aside(const char *entry, const char *name)
{
    const size_t bytes = strlen(name);
    return strncmp(entry, name, bytes) == 0 && entry[bytes] == '.' &&
           strspn(entry + bytes + 1, "0123456789abcdef") == ZOFF_ARCHIVE_ID_BYTES - 1 &&
           strcmp(entry + bytes + ZOFF_ARCHIVE_ID_BYTES, ZOFF_ARCHIVE_ASIDE) == 0;
}

bool zoff_archive_folder_is_part(const char *name, char label[ZOFF_ARCHIVE_LABEL_MOST + 1], char id[ZOFF_ARCHIVE_ID_BYTES])
{
    static const char END[] = ".states", MIDDLE[] = ".rank-";
    const size_t bytes = strlen(name), end = sizeof END - 1, middle = sizeof MIDDLE - 1;
    size_t at = bytes < end ? 0 : bytes - end;
    if (at == 0 || strcmp(name + at, END) != 0)
        return false;
    while (at > 0 && name[at - 1] >= '0' && name[at - 1] <= '9')
        at--;
    return bytes - end - at >= 5 && at >= middle && memcmp(name + at - middle, MIDDLE, middle) == 0 &&
           read_save(name, at - middle, label, id);
}

zoff_status zoff_archive_folder_join(const char *folder, const char *name, char dst[4096])
{
    ZOFF_FAIL_IF(snprintf(dst, 4096, "%s/%s", folder, name) >= 4096, ZOFF_ERR_INVALID, "the path '%.100s...' is too long",
                 folder);
    return ZOFF_OK;
}

/* ---- folders ---- */

zoff_status zoff_archive_folder_next(DIR *entries, const char *folder, const char **out)
{
    errno = 0; /* readdir() returns NULL at the end, and after an error */
    const struct dirent *entry = readdir(entries);
    ZOFF_FAIL_IF(!entry && errno, ZOFF_ERR_IO, "cannot read the folder '%s': %s", folder, zoff_base_status_errno(errno));
    *out = entry ? entry->d_name : NULL;
    return ZOFF_OK;
}

static zoff_status code_of(int error)
{
    return error == ENOSPC || error == EDQUOT || error == EFBIG ? ZOFF_ERR_NO_SPACE : ZOFF_ERR_IO;
}

zoff_status zoff_archive_folder_flush(const char *folder)
{
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ZOFF_FAIL_IF(fd < 0, ZOFF_ERR_IO, "cannot open the folder '%s': %s", folder, zoff_base_status_errno(errno));
    const int error = fsync(fd) ? errno : 0;
    close(fd);
    /* Some file systems cannot flush folders. */
    ZOFF_FAIL_IF(error && error != EINVAL, code_of(error), "cannot flush the folder '%s': %s", folder,
                 zoff_base_status_errno(error));
    return ZOFF_OK;
}

/* Make one folder. Flush the folder around it, so that a power cut does not take the new one with all that is in it. */
static zoff_status make_one(char *path, bool *out_made)
{
    struct stat about;
    if (stat(path, &about) == 0) {
        ZOFF_FAIL_IF(!S_ISDIR(about.st_mode), ZOFF_ERR_IO, "'%s' is no folder", path);
        return ZOFF_OK;
    }
    if (mkdir(path, 0777) != 0) {
        const int error = errno; /* another rank may have made it in the meantime */
        ZOFF_FAIL_IF(error != EEXIST, code_of(error), "cannot make the folder '%s': %s", path, zoff_base_status_errno(error));
    } else {
        *out_made = true;
        if (stat(path, &about) == 0 && (about.st_mode & 0700) != 0700)
            (void)chmod(path, (about.st_mode & 0777) | 0700); /* a umask must not lock the owner out, as with files */
    }
    char *slash = strrchr(path, '/');
    if (!slash)
        return zoff_archive_folder_flush(".");
    if (slash == path)
        return zoff_archive_folder_flush("/");
    *slash = 0;
    const zoff_status status = zoff_archive_folder_flush(path);
    *slash = '/';
    return status;
}

/* The current folder; without one, or where its path leads elsewhere for this process, a relative path has to stay as it is. */
static bool get_here(char here[PATH_MAX])
{
    struct stat there, current;
    return getcwd(here, PATH_MAX) && stat(here, &there) == 0 && stat(".", &current) == 0 && there.st_ino == current.st_ino &&
           there.st_dev == current.st_dev;
}

zoff_status zoff_archive_folder_absolute(const char *folder, size_t most, char dst[4096])
{
    const size_t bytes = strlen(folder);
    char here[PATH_MAX];
    const bool is_whole = folder[0] == '/' || !get_here(here);
    ZOFF_FAIL_IF(bytes > most || (!is_whole && strlen(here) + 1 + bytes > most), ZOFF_ERR_INVALID,
                 "the path '%.100s...' is too long", folder);
    snprintf(dst, 4096, "%s%s%s", is_whole ? "" : here, is_whole ? "" : "/", folder);
    return ZOFF_OK;
}

/* After an error: remove the `count` folders that were made, of which `path` is the last. Those that others have filled
 * meanwhile stay. */
static void remove_made(char *path, unsigned count)
{
    for (char *slash; count && rmdir(path) == 0; count--) {
        slash = strrchr(path, '/');
        if (!slash)
            return;
        while (slash > path && slash[-1] == '/')
            slash--;
        *slash = 0;
    }
}

zoff_status zoff_archive_folder_make(const char *folder)
{
    char path[PATH_MAX], last[PATH_MAX] = "";
    size_t bytes = strlen(folder);
    unsigned made = 0;
    zoff_status status = ZOFF_OK;
    ZOFF_FAIL_IF(bytes == 0 || bytes >= sizeof path, ZOFF_ERR_INVALID, "the folder of checkpoints is '%.100s'", folder);
    while (bytes > 1 && folder[bytes - 1] == '/')
        bytes--;
    for (size_t at = 1; at <= bytes && status == ZOFF_OK; at++) {
        bool is_new = false;
        if ((at < bytes && folder[at] != '/') || folder[at - 1] == '/')
            continue;
        memcpy(path, folder, at);
        path[at] = 0;
        status = make_one(path, &is_new);
        made += is_new;
        if (is_new)
            memcpy(last, path, at + 1);
    }
    if (status < 0)
        remove_made(last, made);
    return status;
}

/* Wait for a lock, long enough for 64 engines that publish one after another on a slow disk. */
zoff_status zoff_archive_folder_wait(int fd, const char *path, bool *out_locked)
{
    enum { SECONDS = 60 };
    const double until = zoff_base_clock_seconds() + SECONDS;
    *out_locked = true;
    for (unsigned naps = 0; flock(fd, LOCK_EX | LOCK_NB) != 0; naps++) {
        *out_locked = errno == EWOULDBLOCK;
        if (!*out_locked)
            return ZOFF_OK;
        ZOFF_FAIL_IF(zoff_base_clock_seconds() > until, ZOFF_ERR_IO,
                     "another program has locked '%s' for %d seconds: see whether it is stopped, and try again", path, SECONDS);
        zoff_base_clock_nap(naps);
    }
    return ZOFF_OK;
}

zoff_status zoff_archive_folder_lock(const char *folder, int *out, bool *out_locked)
{
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ZOFF_FAIL_IF(fd < 0, ZOFF_ERR_IO, "cannot open the folder '%s': %s", folder, zoff_base_status_errno(errno));
    const zoff_status status = zoff_archive_folder_wait(fd, folder, out_locked);
    if (status < 0)
        close(fd);
    else
        *out = fd;
    return status;
}

/* Unlock first, because close() alone would leave the lock to a child of fork(). */
void zoff_archive_folder_unlock(int lock)
{
    (void)flock(lock, LOCK_UN);
    close(lock);
}

/* ---- files ---- */

zoff_status zoff_archive_folder_fail_rename(const char *from, const char *to, int error)
{
    return zoff_base_status_fail(code_of(error), "cannot rename '%s' to '%s': %s", from, to, zoff_base_status_errno(error));
}

zoff_status zoff_archive_folder_write_file(const char *early, const char *path, const char *text, size_t bytes)
{
    const char *failed;
    const int error = zoff_base_files_replace(early, path, 0666, text, bytes, true, &failed);
    if (error && strcmp(failed, "rename") == 0)
        return zoff_archive_folder_fail_rename(early, path, error);
    ZOFF_FAIL_IF(error, code_of(error), "cannot %s '%s': %s", failed, early, zoff_base_status_errno(error));
    return ZOFF_OK;
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
    ZOFF_FAIL_IF(fstat(fd, &about) != 0, ZOFF_ERR_IO, "cannot look at '%s': %s", path, zoff_base_status_errno(errno));
    ZOFF_FAIL_IF(!S_ISREG(about.st_mode), ZOFF_ERR_CORRUPT, "'%s' is no file", path);
    ZOFF_FAIL_IF(about.st_size > 0 && (uint64_t)about.st_size > most, ZOFF_ERR_CORRUPT, "'%s' has %llu bytes, too many", path,
                 (unsigned long long)about.st_size);
    const size_t bytes = (size_t)about.st_size;
    char begin[ZOFF_ARCHIVE_PAGE];
    if (bytes > sizeof begin) { /* read no more, because the file may be gigabytes of something else */
        ZOFF_TRY(zoff_archive_folder_pread(fd, path, 0, begin, sizeof begin));
        ZOFF_FAIL_IF(!memmem(begin, sizeof begin, ZOFF_ARCHIVE_SEQUENCE_LINE, strlen(ZOFF_ARCHIVE_SEQUENCE_LINE)),
                     ZOFF_ERR_CORRUPT, "'%s' is no manifest: its first %zu bytes have no line of \"sequence\"", path,
                     sizeof begin);
    }
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
    ZOFF_TRY(zoff_archive_folder_join(folder, name, path));
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe of this name must not stop the program */
    ZOFF_FAIL_IF(fd < 0 && (errno == ELOOP || errno == ENXIO), ZOFF_ERR_CORRUPT, "'%s' is no file", path); /* or a socket */
    ZOFF_FAIL_IF(fd < 0, errno == ENOENT ? ZOFF_ERR_STATE : ZOFF_ERR_IO, "cannot open '%s': %s", path,
                 zoff_base_status_errno(errno));
    const zoff_status status = read_open(fd, path, most, out, out_bytes);
    close(fd);
    return status;
}
