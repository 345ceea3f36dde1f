/* SPDX-License-Identifier: Apache-2.0 */
/* swap_layout.c: the description beside a persistent state file, <file>.layout.
 *
 * The records of a state file name chunks by number. The engine computes from its model and its plan which elements are in a
 * chunk, so a program that has neither (zoff_state_files_checkpoint()) must read it from a file. All files of a rank have the
 * same description, so a scrub can check each of them alone.
 *
 *     0  8   "zofflayt"
 *     8  u32 2, the version. Version 1 was JSON in <file>.json, without a checksum
 *     12 u32 rank, 16 u32 ranks, 20 u32 zero
 *     24 u64 layout, 32 u64 cut: of the model, and of its cut into chunks, as in the records of the file
 *     40 u64 bytes of the content
 *     48 u64 checksum: XXH3 of all bytes of the file, with zero here
 *     56     the content, which the engine gives and the archive room reads (archive/described.c)
 *
 * It is written and renamed before the first record. So a file with a record has it, whenever the process ends or the power
 * fails. An engine that opens the files again writes what differs, because its own model and plan have just been compared with
 * the records. So it mends a description that was lost or damaged. Readers refuse one that is damaged, of another version, or
 * of other states: its numbers would put states into the wrong parameters. */
#include "swap_file_priv.h"

#include "digest.h"
#include "files.h"
#include "log.h"
#include "mem.h"
#include "try.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char MAGIC[8] = "zofflayt";
enum { VERSION = 2 };

typedef struct head {
    char magic[8];
    uint32_t version, rank, ranks, reserved;
    uint64_t layout, cut, bytes, checksum;
} head;

_Static_assert(sizeof(head) == 56, "no padding in what is written");

static void name_file(const char *state_file, const char *end, char out[PATH_MAX])
{
    snprintf(out, PATH_MAX, "%s%s", state_file, end);
}

/* The checksum of a whole file, whose field for it is overwritten. */
static uint64_t sum(char *file, size_t bytes)
{
    memset(file + offsetof(head, checksum), 0, sizeof(uint64_t));
    return zoff_digest_blocks_small(file, bytes);
}

/* ---- files ---- */

/* Read a whole file.  @return 0 or an errno */
static int read_file(const char *name, char **out, size_t *out_bytes)
{
    struct stat st;
    size_t at = 0;
    int fd = open(name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return errno;
    int error = fstat(fd, &st) != 0 ? errno : S_ISREG(st.st_mode) ? 0 : EINVAL;
    *out = NULL;
    if (!error && zoff_base_mem_alloc((size_t)st.st_size + sizeof(head), 1, "the description of states", out) < 0)
        error = ENOMEM;
    while (!error && at < (size_t)st.st_size) {
        const ssize_t got = read(fd, *out + at, (size_t)st.st_size - at);
        if (got == 0)
            break;
        error = got < 0 && errno != EINTR ? errno : 0;
        at += got > 0 ? (size_t)got : 0;
    }
    close(fd);
    if (error)
        zoff_base_mem_free(*out);
    *out_bytes = at;
    return error;
}

static bool is_same(const char *name, const char *data, size_t bytes)
{
    char *there;
    size_t there_bytes;
    if (read_file(name, &there, &there_bytes) != 0)
        return false;
    const bool same = there_bytes == bytes && memcmp(there, data, bytes) == 0;
    zoff_base_mem_free(there);
    return same;
}

void zoff_offload_swap_layout_sync_folder(const char *folder)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) != 0)
        ZOFF_WARN("%s cannot be flushed to its drive (%s): a power cut soon may lose the new file in it", folder,
                  zoff_base_status_errno(errno));
    if (fd >= 0)
        close(fd);
}

/* Replace the description by these bytes.  @return 0 or an errno */
static int replace(const char *state_file, const char *data, size_t bytes)
{
    char name[PATH_MAX], made[PATH_MAX], folder[PATH_MAX];
    name_file(state_file, ".layout", name);
    name_file(state_file, ".layout.new", made);
    if (is_same(name, data, bytes))
        return 0;
    const char *failed;
    const int error = zoff_base_files_replace(made, name, 0600, data, bytes, true, &failed);
    if (error)
        return error;
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(name, '/') - name), name);
    zoff_offload_swap_layout_sync_folder(folder);
    return 0;
}

zoff_status zoff_offload_swap_layout_write(const char *state_file, const zoff_swap_identity *id, const void *content,
                                           size_t bytes)
{
    char *data;
    ZOFF_TRY(zoff_base_mem_alloc(sizeof(head) + bytes, 1, "the description of states", &data));
    head h = {.version = VERSION, .rank = id->rank, .ranks = id->ranks, .layout = id->layout, .cut = id->cut, .bytes = bytes};
    memcpy(h.magic, MAGIC, sizeof MAGIC);
    memcpy(data, &h, sizeof h);
    if (bytes)
        memcpy(data + sizeof h, content, bytes);
    h.checksum = sum(data, sizeof h + bytes);
    memcpy(data, &h, sizeof h);
    const int error = replace(state_file, data, sizeof h + bytes);
    zoff_base_mem_free(data);
    ZOFF_FAIL_IF(error, error == ENOSPC || error == EDQUOT ? ZOFF_ERR_NO_SPACE : ZOFF_ERR_IO,
                 "cannot write the description of a state file, '%s.layout': %s; nvme_path must be a folder that can be "
                 "written",
                 state_file, zoff_base_status_errno(error));
    return ZOFF_OK;
}

void zoff_offload_swap_layout_remove(const char *state_file)
{
    char name[PATH_MAX];
    name_file(state_file, ".layout", name);
    if (unlink(name) != 0 && errno != ENOENT && errno != EISDIR) /* a folder is not ours */
        ZOFF_WARN("cannot remove %s: %s", name, zoff_base_status_errno(errno));
}

/* ---- reading ---- */

zoff_status zoff_offload_swap_layout_check(const char *state_file)
{
    char name[PATH_MAX];
    struct stat st;
    name_file(state_file, ".layout", name);
    if (lstat(name, &st) == 0)
        return ZOFF_OK;
    name_file(state_file, ".json", name);
    ZOFF_FAIL_IF(lstat(name, &st) == 0, ZOFF_ERR_UNSUPPORTED,
                 "'%s' has its description in a former format, in '%s', and this library has it in '%s.layout'. With the "
                 "version of zoff that wrote it make a checkpoint (zoff checkpoint reshard, or zoff_checkpoint_save()), which "
                 "this one loads, and remove the state files and their descriptions",
                 state_file, name, state_file);
    return ZOFF_OK;
}

static zoff_status check(const char *name, char *data, size_t bytes, const zoff_swap_identity *id)
{
    static const char ADVICE[] = "An engine that opens the state files writes it anew";
    head h;
    memcpy(&h, data, sizeof h);
    ZOFF_FAIL_IF(bytes < sizeof h || memcmp(h.magic, MAGIC, sizeof MAGIC) != 0, ZOFF_ERR_CORRUPT,
                 "'%s' is not a description of state files: it was cut or damaged. %s", name, ADVICE);
    ZOFF_FAIL_IF(h.version != VERSION, ZOFF_ERR_UNSUPPORTED,
                 "'%s' has version %u, and this library reads version %d: use the version of zoff that wrote it. %s", name,
                 h.version, VERSION, ADVICE);
    ZOFF_FAIL_IF(h.bytes != bytes - sizeof h || h.checksum != sum(data, bytes) || h.reserved, ZOFF_ERR_CORRUPT,
                 "'%s' is damaged: its checksum does not hold. %s", name, ADVICE);
    ZOFF_FAIL_IF(h.layout != id->layout || h.cut != id->cut || h.rank != id->rank || h.ranks != id->ranks, ZOFF_ERR_CORRUPT,
                 "'%s' describes other states than the file beside it has: it is of rank %u of %u. %s", name, h.rank, h.ranks,
                 ADVICE);
    return ZOFF_OK;
}

zoff_status zoff_offload_swap_layout_read(const char *state_file, const zoff_swap_identity *id, char **out, size_t *out_bytes)
{
    char name[PATH_MAX], *data;
    size_t bytes;
    name_file(state_file, ".layout", name);
    ZOFF_TRY(zoff_offload_swap_layout_check(state_file));
    const int error = read_file(name, &data, &bytes);
    ZOFF_FAIL_IF(error == ENOMEM, ZOFF_ERR_NO_MEMORY, "no memory to read '%s'", name);
    ZOFF_FAIL_IF(
        error, ZOFF_ERR_IO,
        "cannot read '%s', which says where states are in the file beside it: %s. An engine that opens the state files "
        "writes it",
        name, zoff_base_status_errno(error));
    const zoff_status status = check(name, data, bytes, id);
    if (status < 0) {
        zoff_base_mem_free(data);
        return status;
    }
    *out_bytes = bytes - sizeof(head);
    memmove(data, data + sizeof(head), *out_bytes);
    *out = data;
    return ZOFF_OK;
}
