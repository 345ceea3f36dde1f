/* SPDX-License-Identifier: Apache-2.0 */
/* part.c: writes the file of one rank: its head, its regions, and its table behind them. The caller writes the regions through
 * the queue and sets their checksums in the table. */
#include "archive_priv.h"

#include "aio.h"
#include "bits.h"
#include "digest.h"
#include "files.h"
#include "log.h"
#include "try.h"
#include "words.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

static const char MAGIC[8] = "zoffpart";

/* The first page of a file; the rest of the page is zero. It says whose file it is. */
typedef struct head {
    char magic[8];
    uint32_t version, rank;
    char id[ZOFF_ARCHIVE_ID_BYTES + 7];
    uint64_t end; /* end of the regions, where the table begins */
} head;
_Static_assert(sizeof(head) == 48, "no padding in what is written");

static zoff_status fail_write(const zoff_archive_part *p, const char *what, int error)
{
    return zoff_base_status_fail(error == ENOSPC || error == EDQUOT || error == EFBIG ? ZOFF_ERR_NO_SPACE : ZOFF_ERR_IO,
                                 "cannot %s '%s': %s", what, p->path, zoff_base_status_errno(error));
}

/* ---- whose save is under way ---- */

/* Lock the new file.  @return false: another save has taken it, or its folder, for one that nobody needs */
static bool lock_part(zoff_archive_part *p, zoff_status *out_status)
{
    struct stat about, there;
    bool is_locked;
    const int fd = open(p->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    *out_status = ZOFF_OK;
    if (fd < 0 && errno != ENOENT)
        *out_status = fail_write(p, "open", errno);
    if (fd < 0)
        return *out_status < 0;
    /* Another program may be about to remove the file. Where there are no locks, the time of the last write counts. */
    *out_status = zoff_archive_folder_wait(fd, p->path, &is_locked);
    const bool is_gone = *out_status == ZOFF_OK && (fstat(fd, &about) != 0 || lstat(p->path, &there) != 0 ||
                                                    about.st_ino != there.st_ino || about.st_dev != there.st_dev);
    if (*out_status == ZOFF_OK && !is_gone)
        *out_status = zoff_base_fork_guard(fd, &p->lock);
    if (*out_status < 0 || is_gone)
        close(fd);
    return !is_gone;
}

/* Between the folder, the file and its lock there are moments in which another save may remove them. */
static zoff_status create_locked(const char *folder, zoff_archive_part *p)
{
    enum { TRIES = 100 };
    for (unsigned i = 0;; i++) {
        zoff_status status;
        ZOFF_TRY(zoff_archive_folder_make(folder));
        p->fd = open(p->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (p->fd < 0 && (errno != ENOENT || i == TRIES))
            return fail_write(p, "create", errno);
        if (p->fd < 0)
            continue;
        zoff_base_files_own(p->fd);
        if (lock_part(p, &status))
            return status;
        close(p->fd);
        p->fd = -1;
        ZOFF_FAIL_IF(i == TRIES, ZOFF_ERR_IO, "'%s' is removed by other programs again and again", p->path);
    }
}

static zoff_status create(const char *folder, zoff_archive_part *p)
{
    if (p->rank == 0)
        return create_locked(folder, p);
    p->fd = open(p->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (p->fd < 0)
        return fail_write(p, "create", errno);
    zoff_base_files_own(p->fd);
    return ZOFF_OK;
}

bool zoff_archive_part_claim(const char *folder, const char *label, const char *id, int *out_lock)
{
    char name[512], path[4096];
    struct stat about;
    *out_lock = -1;
    zoff_archive_folder_part_name(label, id, 0, name);
    if (zoff_archive_folder_join(folder, name, path) < 0)
        return false;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return errno == ENOENT;
    bool is_free = flock(fd, LOCK_SH | LOCK_NB) == 0;
    if (!is_free && errno != EWOULDBLOCK)
        is_free = fstat(fd, &about) == 0 && time(NULL) - about.st_mtime >= ZOFF_ARCHIVE_LEASE_SECONDS;
    if (is_free)
        *out_lock = fd;
    else
        close(fd);
    return is_free;
}

/* ---- the file ---- */

zoff_status zoff_archive_part_open(const char *folder, const char *label, const char *id, unsigned rank, zoff_archive_part *out)
{
    zoff_status status;
    char name[512], path[4096];
    zoff_archive_part p = {.rank = rank, .fd = -1, .end = ZOFF_ARCHIVE_PAGE};
    const zoff_aio_opts aio = {.struct_size = sizeof aio, .writable = true};
    memcpy(p.id, id, sizeof p.id);
    zoff_archive_folder_part_name(label, id, rank, name);
    ZOFF_TRY(zoff_archive_folder_join(folder, name, path));
    ZOFF_TRY(zoff_base_mem_copy_text(path, &p.path));
    status = create(folder, &p);
    if (status == ZOFF_OK)
        status = zoff_aio_open(path, &aio, &p.aio);
    if (status < 0) {
        zoff_archive_part_close(&p);
        return status;
    }
    *out = p;
    return ZOFF_OK;
}

zoff_status zoff_archive_part_region(zoff_archive_part *p, uint64_t bytes, uint64_t unit, uint32_t *out)
{
    const zoff_archive_region region = {.offset = p->end, .bytes = bytes, .unit = unit ? unit : bytes};
    ZOFF_FAIL_IF(p->table.region_count >= UINT32_MAX, ZOFF_ERR_INVALID, "a file of a checkpoint has too many regions");
    ZOFF_TRY(zoff_archive_table_add_region(&p->table, &region));
    p->end += bytes;
    *out = (uint32_t)(p->table.region_count - 1);
    return ZOFF_OK;
}

zoff_status zoff_archive_part_reserve(zoff_archive_part *p)
{
    struct statvfs about;
    const uint64_t bytes = p->end + zoff_archive_table_bytes(&p->table);
    int error;
    do
        error = !zoff_base_files_fits(bytes) || fallocate(p->fd, 0, 0, (off_t)bytes) ? errno : 0;
    while (error == EINTR);
    if (error == EOPNOTSUPP || error == ENOSYS) /* the file system reserves nothing: compare with what is free */
        error = statvfs(p->path, &about) == 0 && (uint64_t)about.f_bavail * about.f_frsize < bytes ? ENOSPC : 0;
    if (error == 0)
        return ZOFF_OK;
    const bool known = statvfs(p->path, &about) == 0;
    ZOFF_FAIL_IF(error == ENOSPC || error == EDQUOT, ZOFF_ERR_NO_SPACE,
                 "the checkpoint needs %s for '%s', and %s are free: remove files, or lower zoff_checkpoint_opts.keep",
                 zoff_base_words_bytes(bytes), p->path,
                 known ? zoff_base_words_bytes((uint64_t)about.f_bavail * about.f_frsize) : "less");
    return fail_write(p, "reserve", error);
}

/* Write through the page cache: heads, tables and program data are small, and not aligned for O_DIRECT. */
static zoff_status write_plain(const zoff_archive_part *p, uint64_t offset, const void *bytes, size_t count)
{
    for (size_t done = 0; done < count;) {
        const bool fits = zoff_base_files_fits(offset + count);
        const ssize_t got = fits ? pwrite(p->fd, (const char *)bytes + done, count - done, (off_t)(offset + done)) : -1;
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return fail_write(p, "write", errno);
        done += (size_t)got;
    }
    return ZOFF_OK;
}

/* Write before the region is in the table, so that after an error the file has no region whose bytes were not written. */
static zoff_status write_item(zoff_archive_part *p, const char *page, size_t room, uint32_t *out_region)
{
    ZOFF_TRY(write_plain(p, p->end, page, room));
    ZOFF_TRY(zoff_archive_part_region(p, room, ZOFF_ARCHIVE_UNIT, out_region));
    const zoff_archive_region *region = &p->table.regions[*out_region];
    for (size_t unit = 0; unit < zoff_archive_table_units(region); unit++)
        p->table.checksums[region->first_checksum + unit] =
            zoff_digest_blocks_whole(page + unit * ZOFF_ARCHIVE_UNIT, zoff_archive_table_unit_bytes(region, unit), 1);
    return ZOFF_OK;
}

zoff_status zoff_archive_part_item(zoff_archive_part *p, const char *name, bool each_rank, const void *bytes, size_t count)
{
    zoff_archive_item item = {.count = count, .each_rank = each_rank};
    char *page;
    ZOFF_FAIL_IF(strlen(name) > ZOFF_ARCHIVE_NAME_MOST, ZOFF_ERR_INVALID,
                 "the name of program data has %zu bytes, and at most %d are possible", strlen(name), ZOFF_ARCHIVE_NAME_MOST);
    for (size_t i = 0; i < p->table.item_count; i++)
        ZOFF_FAIL_IF(strcmp(p->table.items[i].name, name) == 0, ZOFF_ERR_INVALID, "there are program data '%s' already", name);
    const size_t room = zoff_base_bits_align(count, ZOFF_ARCHIVE_PAGE);
    memcpy(item.name, name, strlen(name));
    if (count) {
        ZOFF_TRY(zoff_base_mem_alloc(room, 1, "the program's data", &page));
        memcpy(page, bytes, count);
        const zoff_status status = write_item(p, page, room, &item.region);
        zoff_base_mem_free(page);
        ZOFF_TRY(status);
    }
    return zoff_archive_table_add_item(&p->table, &item);
}

zoff_status zoff_archive_part_flush_name(const zoff_archive_part *p)
{
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%s", p->path);
    *strrchr(folder, '/') = 0;
    return zoff_archive_folder_flush(folder);
}

static void make_head(const char *id, unsigned rank, uint64_t end, char page[ZOFF_ARCHIVE_PAGE])
{
    head h = {.version = ZOFF_ARCHIVE_VERSION, .rank = rank, .end = end};
    memcpy(h.magic, MAGIC, sizeof MAGIC);
    memcpy(h.id, id, ZOFF_ARCHIVE_ID_BYTES - 1);
    memset(page, 0, ZOFF_ARCHIVE_PAGE);
    memcpy(page, &h, sizeof h);
}

zoff_status zoff_archive_part_finish(zoff_archive_part *p, zoff_archive_file *out)
{
    char page[ZOFF_ARCHIVE_PAGE], *table;
    zoff_archive_file f = {.table_offset = p->end, .table_bytes = zoff_archive_table_bytes(&p->table)};
    make_head(p->id, p->rank, p->end, page);
    f.bytes = f.table_offset + f.table_bytes;
    f.head_checksum = zoff_digest_blocks_small(page, sizeof page);
    ZOFF_TRY(write_plain(p, 0, page, sizeof page));
    ZOFF_TRY(zoff_base_mem_alloc((size_t)f.table_bytes, 1, "the table of a checkpoint", &table));
    zoff_archive_table_write(&p->table, table);
    f.table_checksum = zoff_digest_blocks_small(table, (size_t)f.table_bytes);
    const zoff_status status = write_plain(p, f.table_offset, table, (size_t)f.table_bytes);
    zoff_base_mem_free(table);
    ZOFF_TRY(status);
    if (ftruncate(p->fd, (off_t)f.bytes) != 0)
        return fail_write(p, "set the length of", errno);
    p->is_lost = fsync(p->fd) != 0;
    if (p->is_lost)
        return fail_write(p, "flush", errno);
    *out = f;
    return ZOFF_OK;
}

void zoff_archive_part_close(zoff_archive_part *p)
{
    if (!zoff_aio_queue_close(p->aio))
        ZOFF_WARN("'%s' stays open: the disk does not finish its writes", p->path);
    if (p->fd >= 0) {
        if (!p->keeps)
            (void)unlink(p->path);
        close(p->fd);
    }
    zoff_base_fork_close(p->lock);
    zoff_archive_table_free(&p->table);
    zoff_base_mem_free(p->path);
    *p = (zoff_archive_part){.fd = -1};
}

zoff_status zoff_archive_part_check_head(const char *path, const char page[ZOFF_ARCHIVE_PAGE], const char *id, unsigned rank,
                                         uint64_t end, uint64_t checksum)
{
    char wanted[ZOFF_ARCHIVE_PAGE];
    head h;
    memcpy(&h, page, sizeof h);
    ZOFF_FAIL_IF(memcmp(h.magic, MAGIC, sizeof MAGIC) == 0 && h.version != ZOFF_ARCHIVE_VERSION &&
                     zoff_digest_blocks_small(page, ZOFF_ARCHIVE_PAGE) == checksum,
                 ZOFF_ERR_UNSUPPORTED, "'%s' has version %u, and this library reads version %d: use a newer one", path,
                 h.version, ZOFF_ARCHIVE_VERSION);
    make_head(id, rank, end, wanted);
    ZOFF_FAIL_IF(zoff_digest_blocks_small(page, ZOFF_ARCHIVE_PAGE) != checksum || memcmp(page, wanted, sizeof wanted) != 0,
                 ZOFF_ERR_CORRUPT, "the head of '%s' is damaged, or it is the file of another checkpoint or rank", path);
    return ZOFF_OK;
}
