/* SPDX-License-Identifier: Apache-2.0 */
/* swap_file.c: state files belong to one engine. A file that does not persist has a name only until it is open, so the kernel
 * removes it with its process. A lock (flock) on the file shows that its engine lives. A file with our head page and without a
 * lock is a leftover of a process that died in between, and is removed. A file that persists keeps its name, and is opened
 * again. */
#include "swap_file_priv.h"

#include "bits.h"
#include "clock.h"
#include "digest.h"
#include "files.h"
#include "log.h"
#include "map.h"
#include "mem.h"
#include "offload.h"
#include "try.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

static const char MAGIC[8] = "zoffswp";
enum { LOCK_SECONDS = 2, NAME_BYTES = 48 };

/* The head page, little-endian like the supported machines. */
typedef struct head {
    char magic[8];
    uint32_t version;
    uint32_t rank;
    uint64_t bytes; /* bytes of the file */
    uint64_t pid;
    char host[64];
    uint64_t checksum; /* XXH3 of all fields before it */
    char boot[40];     /* boot id of the host, from version 2 on (/proc/sys/kernel/random/boot_id) */
} head;

static uint64_t head_checksum(const head *h)
{
    return zoff_digest_blocks_small(h, offsetof(head, checksum));
}

/* Read the id of this boot of this host; "" if the kernel does not tell. */
static void read_boot(char out[40])
{
    memset(out, 0, 40);
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    if (read(fd, out, 36) != 36)
        out[0] = 0;
    close(fd);
}

/* Whether the file system belongs to a single host, so that every process that might hold the file sees its lock. */
static bool is_local(int fd)
{
    static const unsigned LOCAL[] = {EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC,  BTRFS_SUPER_MAGIC,     TMPFS_MAGIC,
                                     RAMFS_MAGIC,      F2FS_SUPER_MAGIC, OVERLAYFS_SUPER_MAGIC, 0x2FC12FC1 /* zfs */};
    struct statfs fs;
    bool local = false;
    if (fstatfs(fd, &fs) != 0)
        return false;
    for (size_t i = 0; i < sizeof LOCAL / sizeof LOCAL[0]; i++)
        local = local || (unsigned)fs.f_type == LOCAL[i];
    return local;
}

/* Whether this boot of this host made the file. A blank file has no head page yet. */
static bool is_of_this_boot(int fd)
{
    char page[ZOFF_SWAP_HEAD_BYTES], boot[40];
    head h;
    if (pread(fd, page, sizeof page, 0) != (ssize_t)sizeof page)
        return false;
    memcpy(&h, page, sizeof h);
    read_boot(boot);
    return boot[0] && h.version >= 2 && memcmp(h.boot, boot, sizeof boot) == 0;
}

/* Match exactly the names that create_locked() makes: zoff-<host>-<pid>-<16 hex digits>-r<rank>.swap */
static bool is_ours(const char *name)
{
    regex_t pattern;
    if (regcomp(&pattern, "^zoff-.*-[0-9]+-[0-9a-f]{16}-r[0-9]+[.]swap$", REG_EXTENDED | REG_NOSUB) != 0)
        return false; /* out of memory: clean up another time */
    bool ours = regexec(&pattern, name, 0, NULL, 0) == 0;
    regfree(&pattern);
    return ours;
}

/* Whether a file of this process would belong to the same user. Some mounts give all files one owner (NFS with root_squash,
 * CIFS, sshfs, folders of a virtual machine's host), which is not the user that this process runs as: a file that is made there
 * tells. */
static bool is_own(const char *folder, const struct stat *st)
{
    char name[PATH_MAX];
    struct stat made;
    uint64_t random = 0;
    if (st->st_uid == geteuid())
        return true;
    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random ||
        snprintf(name, sizeof name, "%s/zoff-owner-%016llx", folder, (unsigned long long)random) >= (int)sizeof name)
        return false;
    const int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return false;
    const bool is_same = fstat(fd, &made) == 0 && made.st_uid == st->st_uid && made.st_dev == st->st_dev;
    close(fd);
    unlink(name);
    return is_same;
}

/* Whether a file has a head page of ours, or belongs to this user, is private, and is empty or zero there, because its engine
 * died before it wrote the head page. */
static bool is_leftover(const char *folder, int fd)
{
    char page[ZOFF_SWAP_HEAD_BYTES];
    struct stat st;
    head h;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        return false;
    ssize_t got = pread(fd, page, sizeof page, 0);
    if (got >= (ssize_t)sizeof h) {
        memcpy(&h, page, sizeof h);
        if (memcmp(h.magic, MAGIC, sizeof MAGIC) == 0 && h.checksum == head_checksum(&h))
            return true;
    }
    for (ssize_t i = 0; i < got; i++) {
        if (page[i])
            return false;
    }
    return got >= 0 && is_own(folder, &st) && (st.st_mode & 0777) == 0600;
}

void zoff_offload_swap_file_clean(const char *folder)
{
    unsigned removed = 0;
    DIR *dir = opendir(folder);
    if (!dir)
        return; /* the error comes when our own file is created */
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (!is_ours(entry->d_name))
            continue;
        int fd = openat(dirfd(dir), entry->d_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (fd < 0)
            continue;
        if (flock(fd, LOCK_EX | LOCK_NB) != 0 || !is_leftover(folder, fd)) {
            close(fd);
            continue;
        }
        if (!is_local(fd) && !is_of_this_boot(fd))
            ZOFF_WARN("%s/%s may be in use by another host, whose lock is not seen on this file system: it stays. If no engine "
                      "runs on that host, remove it",
                      folder, entry->d_name);
        else if (unlinkat(dirfd(dir), entry->d_name, 0) == 0)
            removed++;
        close(fd);
    }
    closedir(dir);
    if (removed)
        ZOFF_INFO("removed %u state file%s that a dead run left in %s", removed, removed == 1 ? "" : "s", folder);
}

/* An error that names the folder, the reason, and the key to change. */
static zoff_status refuse(const char *folder, const char *what, int error)
{
    zoff_status code = error == ENOSPC || error == EDQUOT ? ZOFF_ERR_NO_SPACE : ZOFF_ERR_IO;
    return zoff_base_status_fail(
        code,
        "cannot %s in %s: %s; nvme_path (of offload_optimizer, or of offload_param) must be a folder that can be written%s",
        what, folder, zoff_base_status_errno(error),
        error != ENOENT                                   ? ""
        : folder[0] == '~' || strchr(folder, '$') != NULL ? " (~ and $ are taken as they stand; give the full path)"
                                                          : " (it is not created, for a disk may not be mounted there)");
}

/* Create a new file with a unique name, locked. A cleanup by another run may see it before it is locked, and remove it. Then it
 * has no name any more, and another one is created. */
static zoff_status create_locked(const char *folder, unsigned rank, zoff_swap_file *out)
{
    char host[64] = "";
    char name[4096];
    char full[PATH_MAX];
    (void)gethostname(host, sizeof host - 1);
    /* The program may change its working folder before the file is removed. */
    if (!realpath(folder, full))
        return refuse(folder, "create a state file", errno);
    for (;;) {
        uint64_t random = 0;
        struct stat st;
        if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
            random = (uint64_t)(size_t)out;
        int length = snprintf(name, sizeof name, "%s/zoff-%s-%ld-%016llx-r%u.swap", full, host, (long)getpid(),
                              (unsigned long long)random, rank);
        ZOFF_FAIL_IF(length < 0 || (size_t)length >= sizeof name, ZOFF_ERR_INVALID, "nvme_path is too long: %s", folder);
        int fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0 && errno == EEXIST)
            continue;
        if (fd < 0)
            return refuse(folder, "create a state file", errno);
        zoff_base_files_own(fd);
        bool locked = flock(fd, LOCK_EX) == 0;
        if (locked && fstat(fd, &st) == 0 && st.st_nlink == 0) {
            close(fd);
            continue;
        }
        if (!locked)
            ZOFF_WARN("%s cannot be locked (%s): if this run dies, its file stays until it is removed by hand", name,
                      zoff_base_status_errno(errno));
        zoff_status status = zoff_base_mem_copy_text(name, &out->name);
        if (status < 0) {
            unlink(name);
            close(fd);
            return status;
        }
        out->lock = fd;
        return ZOFF_OK;
    }
}

zoff_status zoff_offload_swap_file_write_head(zoff_swap_file *file, unsigned rank)
{
    _Static_assert(sizeof(head) <= ZOFF_SWAP_HEAD_BYTES, "the head is one page");
    zoff_status status;
    uint64_t ticket;
    zoff_map page;
    ZOFF_TRY(zoff_base_map_alloc(ZOFF_SWAP_HEAD_BYTES, "a head page", ZOFF_MAP_FIRST_TOUCH, &page));
    head *h = page.base;
    memcpy(h->magic, MAGIC, sizeof MAGIC);
    h->version = 2;
    read_boot(h->boot);
    h->rank = rank;
    h->bytes = file->bytes;
    h->pid = (uint64_t)getpid();
    (void)gethostname(h->host, sizeof h->host - 1);
    h->checksum = head_checksum(h);
    ZOFF_TRY_OR(unmap_page, zoff_aio_write(file->aio, 0, ZOFF_SWAP_HEAD_BYTES, page.base, &ticket));
    status = zoff_aio_wait(file->aio, ticket);
    /* Until the write ends, the page belongs to the kernel. */
    ZOFF_FAIL_IF(status == ZOFF_PENDING, ZOFF_ERR_IO,
                 "the head page of '%s' is not written in time: the disk neither writes it "
                 "nor fails (timeout_seconds)",
                 file->name);
unmap_page:
    zoff_base_map_free(&page);
    return status;
}

static bool is_tmpfs(const char *path)
{
    struct statfs fs;
    return statfs(path, &fs) == 0 && (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC);
}

/* Whether files in the folder take DRAM: a tmpfs, or an overlay that writes to one. The mount of an overlay names the folder
 * that it writes to; in a container that folder may be out of sight. */
static bool is_in_memory(const char *folder)
{
    char *line = NULL, device[32];
    size_t size = 0;
    struct stat st;
    struct statfs fs;
    bool found = is_tmpfs(folder);
    if (found || statfs(folder, &fs) != 0 || fs.f_type != OVERLAYFS_SUPER_MAGIC || stat(folder, &st) != 0)
        return found;
    snprintf(device, sizeof device, " %u:%u ", major(st.st_dev), minor(st.st_dev));
    FILE *mounts = fopen("/proc/self/mountinfo", "re");
    while (mounts && !found && getline(&line, &size, mounts) > 0) {
        char *upper = strstr(line, ",upperdir=");
        if (!upper || !strstr(line, device))
            continue;
        upper += strlen(",upperdir=");
        upper[strcspn(upper, ",\n")] = 0;
        found = is_tmpfs(upper);
    }
    if (mounts)
        fclose(mounts);
    free(line);
    return found;
}

/* The name of a persistent file, without its folder. */
static const char *name_of(zoff_store_owner owner, char dst[NAME_BYTES])
{
    if (owner.part)
        snprintf(dst, NAME_BYTES, "zoff-p%u-r%u.states", owner.part - 1, owner.rank);
    else
        snprintf(dst, NAME_BYTES, "zoff-r%u.states", owner.rank);
    return dst;
}

bool zoff_offload_swap_file_is_kept(const char *name)
{
    unsigned part, rank;
    int end = 0;
    const bool is_one = (sscanf(name, "zoff-r%u.states%n", &rank, &end) == 1 && end > 0) ||
                        (sscanf(name, "zoff-p%u-r%u.states%n", &part, &rank, &end) == 2 && end > 0);
    return is_one && !name[end];
}

uint64_t zoff_offload_swap_file_memory(const char *const *folders, size_t count, uint64_t bytes, const zoff_store_owner *kept)
{
    uint64_t taken = 0;
    for (size_t i = 0; i < count; i++) {
        char name[PATH_MAX], own[NAME_BYTES];
        struct stat st;
        if (!is_in_memory(folders[i]))
            continue;
        taken += bytes / count;
        if (kept && snprintf(name, sizeof name, "%s/%s", folders[i], name_of(*kept, own)) < (int)sizeof name &&
            stat(name, &st) == 0)
            taken -= zoff_base_bits_min(taken, (uint64_t)st.st_blocks * 512);
    }
    return taken;
}

/* Open the queue, and warn if the folder is not what its name promises. */
static zoff_status open_queue(const char *folder, const zoff_aio_opts *aio, zoff_swap_file *file)
{
    ZOFF_TRY(zoff_base_fork_guard(file->lock, &file->guard));
    ZOFF_TRY(zoff_aio_queue_open(file->name, file->lock, aio, &file->aio));
    if (is_in_memory(folder))
        ZOFF_WARN("%s is not on a disk but in memory: states there take DRAM beside zoff.host_memory", folder);
    return ZOFF_OK;
}

zoff_status zoff_offload_swap_file_open(const char *folder, unsigned rank, const zoff_aio_opts *aio, zoff_swap_file *out)
{
    zoff_status status;
    zoff_swap_file file = {.lock = -1};
    ZOFF_TRY(create_locked(folder, rank, &file));
    ZOFF_TRY_OR(close_file, open_queue(folder, aio, &file));
    file.keep = unlink(file.name) == 0; /* close tries again if this fails */
    *out = file;
    return ZOFF_OK;
close_file:
    (void)zoff_offload_swap_file_close(&file); /* nothing is in flight yet */
    return status;
}

/* The full path of a rank's persistent file. */
static zoff_status name_kept(const char *folder, zoff_store_owner owner, char **out)
{
    char full[PATH_MAX], name[PATH_MAX + NAME_BYTES], own[NAME_BYTES];
    if (!realpath(folder, full))
        return refuse(folder, "open a state file", errno);
    snprintf(name, sizeof name, "%s/%s", full, name_of(owner, own));
    return zoff_base_mem_copy_text(name, out);
}

/* A process that was killed has its lock until its memory is freed and its transfers have ended, and `kill` does not wait for
 * that. Whoever starts it again at once need not try twice.  @return 0, or errno */
static int lock_in_time(int fd)
{
    const double until = zoff_base_clock_seconds() + LOCK_SECONDS;
    for (unsigned naps = 0; flock(fd, LOCK_EX | LOCK_NB) != 0; naps++) {
        if (errno != EWOULDBLOCK || zoff_base_clock_seconds() > until)
            return errno;
        zoff_base_clock_nap(naps);
    }
    return 0;
}

static zoff_status open_locked(const char *folder, zoff_swap_file *file)
{
    struct stat st;
    file->lock = open(file->name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (file->lock < 0)
        return refuse(folder, "open a state file", errno);
    file->keep = true; /* keep the file until it is known to be new */
    ZOFF_FAIL_IF(fstat(file->lock, &st) != 0 || !S_ISREG(st.st_mode), ZOFF_ERR_IO, "'%s' is not a regular file", file->name);
    /* Refuse a file of another user, who could have put it into the folder. */
    ZOFF_FAIL_IF(!is_own(folder, &st), ZOFF_ERR_IO,
                 "'%s' belongs to user %u, and this process runs as user %u; run as that user, or give this one another "
                 "nvme_path",
                 file->name, (unsigned)st.st_uid, (unsigned)geteuid());
    const int refused = lock_in_time(file->lock);
    ZOFF_FAIL_IF(refused == EWOULDBLOCK, ZOFF_ERR_STATE,
                 "'%s' is in use by another engine, in this process or another; give each its own nvme_path", file->name);
    if (refused)
        ZOFF_WARN("%s cannot be locked (%s): nothing keeps a second run from using it at the same time", file->name,
                  zoff_base_status_errno(refused));
    /* A first run that failed may have removed the file between the two calls. */
    ZOFF_FAIL_IF(fstat(file->lock, &st) != 0 || st.st_nlink == 0, ZOFF_ERR_STATE,
                 "'%s' was removed by another engine a moment ago; try again", file->name);
    file->keep = st.st_size != 0;
    if (file->keep)
        ZOFF_TRY(zoff_offload_swap_layout_check(file->name));
    else {
        zoff_base_files_own(file->lock);
        zoff_offload_swap_layout_sync_folder(folder);
    }
    return ZOFF_OK;
}

zoff_status zoff_offload_swap_file_open_kept(const char *folder, zoff_store_owner owner, const zoff_aio_opts *aio,
                                             zoff_swap_file *out)
{
    zoff_status status;
    zoff_swap_file file = {.lock = -1};
    ZOFF_TRY(name_kept(folder, owner, &file.name));
    ZOFF_TRY_OR(close_file, open_locked(folder, &file));
    ZOFF_TRY_OR(close_file, open_queue(folder, aio, &file));
    *out = file;
    return ZOFF_OK;
close_file:
    (void)zoff_offload_swap_file_close(&file); /* nothing is in flight yet */
    return status;
}

int zoff_offload_swap_file_peek(const char *folder, zoff_store_owner owner, char **out_name)
{
    zoff_saved_error saved;
    zoff_base_status_save(&saved);
    const bool is_named = name_kept(folder, owner, out_name) == ZOFF_OK;
    zoff_base_status_restore(&saved);
    if (!is_named)
        return -1;
    struct stat st;
    int fd = open(*out_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    /* A file of another user counts as none here; opening it for use reports why it is refused. */
    if (fd >= 0 && (fstat(fd, &st) != 0 || !is_own(folder, &st))) {
        close(fd);
        fd = -1;
    }
    if (fd < 0)
        zoff_base_mem_free(*out_name);
    return fd;
}

zoff_status zoff_offload_swap_file_check_name(zoff_swap_file *file)
{
    struct stat open, named;
    if (fstat(file->lock, &open) != 0)
        return ZOFF_OK; /* a child of fork() */
    const bool is_named = lstat(file->name, &named) == 0;
    ZOFF_FAIL_IF(open.st_nlink == 0 || (is_named && (named.st_dev != open.st_dev || named.st_ino != open.st_ino)), ZOFF_ERR_IO,
                 "'%s' was removed%s while its engine trains: what it holds would end with this process. Call "
                 "zoff_grads_drop(), and save what there is with zoff_checkpoint_save() into another folder",
                 file->name, is_named ? " and replaced" : "");
    if (!is_named && !file->is_moved)
        ZOFF_WARN("'%s' is not there any more: it was moved, or removed on a network file system. Move it back before the "
                  "next run, which looks for it there",
                  file->name);
    file->is_moved = !is_named;
    return ZOFF_OK;
}

zoff_status zoff_offload_swap_file_reserve(zoff_swap_file *file)
{
    zoff_status status = zoff_aio_reserve(file->aio, file->bytes);
    if (status == ZOFF_ERR_NO_SPACE)
        zoff_base_status_prefix(status, "no room for the states or weights of this engine: nvme_path (of offload_optimizer, or "
                                        "of offload_param) must have it: ");
    return status;
}

bool zoff_offload_swap_file_close(zoff_swap_file *file)
{
    const bool is_idle = zoff_aio_queue_close(file->aio);
    if (file->guard)
        file->lock = zoff_base_fork_descriptor(file->guard); /* a child has no lock */
    if (file->lock >= 0 && !file->keep) {
        zoff_offload_swap_layout_remove(file->name);
        if (unlink(file->name) != 0)
            ZOFF_WARN("cannot remove %s: %s", file->name, zoff_base_status_errno(errno));
    }
    if (!is_idle)
        ZOFF_WARN("'%s': a transfer does not end; the file stays open and locked as long as this process lives", file->name);
    else if (file->guard)
        zoff_base_fork_close(file->guard);
    else if (file->lock >= 0)
        close(file->lock);
    zoff_base_mem_free(file->name);
    *file = (zoff_swap_file){.lock = -1};
    return is_idle;
}
