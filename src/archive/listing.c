/* SPDX-License-Identifier: Apache-2.0 */
/* listing.c: the checkpoints of a folder, the newest first, and whether one is complete.
 *
 * The order comes from a line near the begin of each manifest. So a folder of 1,000 checkpoints is listed without parsing their
 * manifests, and only those that may be loaded are checked. Times of files play no part: copies have others. */
#include "archive_priv.h"

#include "array.h"
#include "try.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

zoff_status zoff_archive_listing_read(const char *folder, const char *label, zoff_archive_manifest *out, char **out_text,
                                      size_t *out_bytes)
{
    char name[512], where[4096], *text;
    size_t bytes;
    zoff_archive_folder_manifest_name(label, name);
    ZOFF_TRY(zoff_archive_folder_join(folder, name, where));
    ZOFF_TRY(zoff_archive_folder_read_file(folder, name, ZOFF_ARCHIVE_MANIFEST_MOST, &text, &bytes));
    zoff_status status = out_text ? zoff_archive_manifest_read(where, text, bytes, out)
                                  : zoff_archive_manifest_read_facts(where, text, bytes, out);
    if (status == ZOFF_OK && strcmp(out->label, label) != 0) {
        zoff_archive_manifest_free(out);
        status = zoff_base_status_fail(ZOFF_ERR_CORRUPT, "the manifest '%s' is that of another engine", where);
    }
    if (status == ZOFF_OK && out_text) {
        *out_text = text;
        *out_bytes = bytes;
    } else {
        zoff_base_mem_free(text);
    }
    return status;
}

zoff_status zoff_archive_listing_read_facts(const char *folder, const char *file, zoff_archive_manifest *out)
{
    char path[4096], *text;
    size_t bytes;
    ZOFF_TRY(zoff_archive_folder_join(folder, file, path));
    ZOFF_TRY(zoff_archive_folder_read_file(folder, file, ZOFF_ARCHIVE_MANIFEST_MOST, &text, &bytes));
    const zoff_status status = zoff_archive_manifest_read_facts(path, text, bytes, out);
    zoff_base_mem_free(text);
    return status;
}

zoff_status zoff_archive_listing_has_files(const char *folder, const zoff_archive_manifest *m)
{
    char name[512], path[4096];
    struct stat about;
    for (unsigned rank = 0; rank < m->file_count; rank++) {
        zoff_archive_folder_part_name(m->label, m->id, rank, name);
        ZOFF_TRY(zoff_archive_folder_join(folder, name, path));
        int error = lstat(path, &about) == 0 ? 0 : errno;
        if (!error && S_ISLNK(about.st_mode)) /* follow links, as caches of models have them */
            error = stat(path, &about) == 0 ? 0 : errno;
        ZOFF_FAIL_IF(error == ENOENT, ZOFF_ERR_STATE, "the file '%s' of rank %u is not there", path, rank);
        ZOFF_FAIL_IF(error, ZOFF_ERR_IO, "cannot look at '%s': %s", path, zoff_base_status_errno(error));
        ZOFF_FAIL_IF(!S_ISREG(about.st_mode) || (uint64_t)about.st_size != m->files[rank].bytes, ZOFF_ERR_CORRUPT,
                     "'%s' has %llu bytes, and the manifest says %llu: it was cut, or belongs elsewhere", path,
                     (unsigned long long)about.st_size, (unsigned long long)m->files[rank].bytes);
    }
    return ZOFF_OK;
}

/* ---- several engines ---- */

/* One manifest of a checkpoint. */
typedef struct engine {
    uint64_t sequence, replaces;
} engine;

typedef struct engine_list {
    engine *all;
    size_t count, room;
} engine_list;

/* Add the manifest of a label, if it is of this step and its files are there. */
static zoff_status add_engine(const char *folder, const char *label, const zoff_archive_manifest *m, engine_list *list)
{
    zoff_archive_manifest other;
    zoff_status status = zoff_archive_listing_read(folder, label, &other, NULL, NULL);
    if (status < 0) /* skip it, because another engine may have removed it */
        return status == ZOFF_ERR_NO_MEMORY || status == ZOFF_ERR_IO ? status : ZOFF_OK;
    const engine e = {.sequence = other.sequence, .replaces = other.replaces};
    const bool is_same = other.t == m->t && other.engines == m->engines;
    status = is_same ? zoff_archive_listing_has_files(folder, &other) : ZOFF_ERR_STATE;
    zoff_archive_manifest_free(&other);
    if (status < 0)
        return status == ZOFF_ERR_IO ? status : ZOFF_OK;
    ZOFF_TRY(zoff_base_array_reserve(&list->all, list->count, &list->room, list->count + 1, sizeof *list->all, "engines"));
    list->all[list->count++] = e;
    return ZOFF_OK;
}

/* Count the engines that have saved. Manifests that belong to an earlier save under the same name do not count. */
static size_t count_new(const engine_list *list, uint64_t *out_last, uint64_t *out_replaced)
{
    uint64_t replaced = 0, last = 0;
    size_t count = 0;
    for (size_t i = 0; i < list->count; i++)
        replaced = list->all[i].replaces > replaced ? list->all[i].replaces : replaced;
    *out_replaced = replaced;
    for (size_t i = 0; i < list->count; i++) {
        count += list->all[i].sequence > replaced;
        last = list->all[i].sequence > last ? list->all[i].sequence : last;
    }
    *out_last = last;
    return count;
}

zoff_status zoff_archive_listing_ask(const char *folder, const zoff_archive_manifest *m, bool *out_complete, uint64_t *out_last)
{
    engine_list list = {.all = NULL};
    uint64_t replaced;
    zoff_saved_error why;
    zoff_status unread = ZOFF_OK; /* status of a manifest that cannot be read, which may be foreign */
    char label[ZOFF_ARCHIVE_LABEL_MOST + 1];
    const char *name = "";
    *out_complete = true;
    *out_last = m->sequence;
    if (m->engines <= 1)
        return ZOFF_OK;
    DIR *entries = opendir(folder);
    ZOFF_FAIL_IF(!entries, ZOFF_ERR_IO, "cannot open the folder '%s': %s", folder, zoff_base_status_errno(errno));
    zoff_status status = zoff_archive_folder_next(entries, folder, &name);
    while (status == ZOFF_OK && name) {
        if (zoff_archive_folder_is_manifest(name, label))
            status = add_engine(folder, label, m, &list);
        if (status == ZOFF_ERR_IO) {
            zoff_base_status_save(&why);
            unread = status;
            status = ZOFF_OK;
        }
        if (status == ZOFF_OK)
            status = zoff_archive_folder_next(entries, folder, &name);
    }
    closedir(entries);
    *out_complete = count_new(&list, out_last, &replaced) >= m->engines && m->sequence > replaced;
    zoff_base_mem_free(list.all);
    if (status < 0 || unread == ZOFF_OK || *out_complete)
        return status;
    zoff_base_status_restore(&why);
    return unread;
}

/* ---- one checkpoint ---- */

/* Say why a folder has no manifest of the label. */
static zoff_status fail_label(const char *path, const char *label)
{
    char other[ZOFF_ARCHIVE_LABEL_MOST + 1], known[256] = "";
    size_t used = 0;
    const struct dirent *entry;
    DIR *entries = opendir(path);
    while (entries && (entry = readdir(entries))) {
        if (zoff_archive_folder_is_manifest(entry->d_name, other) && used + strlen(other) + 6 < sizeof known)
            used += (size_t)snprintf(known + used, sizeof known - used, "%s'%s'", used ? ", " : "", other);
    }
    if (entries)
        closedir(entries);
    ZOFF_FAIL_IF(used, ZOFF_ERR_STATE, "'%s' has no manifest of the engine '%s', but of %s: name one as the label", path, label,
                 known);
    return zoff_base_status_fail(ZOFF_ERR_STATE, "'%s' has no manifest: its save ended early, or is under way", path);
}

zoff_status zoff_archive_listing_judge(const char *path, const char *label)
{
    zoff_archive_manifest m;
    bool is_complete = false;
    uint64_t last;
    zoff_status status = zoff_archive_listing_read(path, label, &m, NULL, NULL);
    if (status == ZOFF_ERR_STATE)
        return fail_label(path, label);
    ZOFF_TRY(status);
    status = zoff_archive_listing_has_files(path, &m);
    if (status == ZOFF_OK)
        status = zoff_archive_listing_ask(path, &m, &is_complete, &last);
    if (status == ZOFF_OK && !is_complete)
        status = zoff_base_status_fail(ZOFF_ERR_STATE, "'%s' is not complete: %u engines save into it, and not all have", path,
                                       m.engines);
    zoff_archive_manifest_free(&m);
    return status;
}

/* ---- the list ---- */

/* This is greater than every legal sequence, so that a manifest without a readable one is looked at first, and then named. */
#define UNREADABLE UINT64_MAX

/* Whether an error says that something is no folder or file of a checkpoint, or was removed, and not that it cannot be read. */
static bool is_foreign(int error)
{
    return error == ENOENT || error == ENOTDIR || error == ELOOP || error == EISDIR || error == ESPIPE || error == ENXIO;
}

/* The sequence in a manifest, which is not verified here. */
static uint64_t sequence_of(DIR *folder, const char *name, int *out_error)
{
    char text[4097];
    const int fd = openat(dirfd(folder), name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const ssize_t bytes = fd < 0 ? -1 : pread(fd, text, sizeof text - 1, 0);
    if (bytes < 0 && !is_foreign(errno))
        *out_error = errno;
    if (fd >= 0)
        close(fd);
    text[bytes > 0 ? bytes : 0] = 0;
    const char *line = strstr(text, ZOFF_ARCHIVE_SEQUENCE_LINE);
    const uint64_t sequence = line ? strtoull(line + strlen(ZOFF_ARCHIVE_SEQUENCE_LINE), NULL, 10) : 0;
    return sequence > 0 && sequence <= ZOFF_ARCHIVE_SEQUENCE_MOST ? sequence : UNREADABLE;
}

static const struct dirent *next(DIR *entries, int *out_error)
{
    errno = 0; /* readdir() returns NULL at the end, and after an error */
    const struct dirent *entry = readdir(entries);
    if (!entry && errno && !is_foreign(errno))
        *out_error = errno;
    return entry;
}

/* Whether an open folder has files of a checkpoint. */
static bool look_at(DIR *entries, const char *label, zoff_archive_candidate *out)
{
    bool has = false;
    char other[ZOFF_ARCHIVE_LABEL_MOST + 1], id[ZOFF_ARCHIVE_ID_BYTES];
    const struct dirent *entry;
    while ((entry = next(entries, &out->error))) {
        if (!zoff_archive_folder_is_manifest(entry->d_name, other)) {
            has = has || zoff_archive_folder_is_part(entry->d_name, other, id);
            out->is_pinned = out->is_pinned || zoff_archive_folder_is_pin(entry->d_name, other, id);
            continue;
        }
        has = out->is_foreign = true;
        const uint64_t sequence = !label || strcmp(label, other) == 0 ? sequence_of(entries, entry->d_name, &out->error) : 0;
        out->sequence = sequence > out->sequence ? sequence : out->sequence;
    }
    return has;
}

/* Whether an open folder still has its name. Those that have lost it are emptied. */
static bool has_name(DIR *entries, const char *path)
{
    struct stat own, about;
    return fstat(dirfd(entries), &own) != 0 || stat(path, &about) != 0 ||
           (own.st_dev == about.st_dev && own.st_ino == about.st_ino);
}

/* Whether a folder has files of a checkpoint; then out->sequence is that of a label, or the greatest one for label NULL. A
 * folder that cannot be read may have some. If a save takes the name meanwhile, its folder is looked at instead, because
 * what is seen of the other one may be what its removal has left. */
static bool look_into(const char *folder, const char *label, zoff_archive_candidate *out)
{
    enum { TRIES = 1000 };
    char *const name = out->name;
    bool has = false, is_whole = false;
    for (unsigned i = 0; i < TRIES && !is_whole; i++) {
        DIR *entries = opendir(folder);
        *out = (zoff_archive_candidate){.name = name, .error = entries || is_foreign(errno) ? 0 : errno};
        has = entries && look_at(entries, label, out);
        is_whole = !entries || has_name(entries, folder);
        if (entries)
            closedir(entries);
    }
    out->is_foreign = out->is_foreign && !out->sequence;
    out->sequence = out->error ? UNREADABLE : out->sequence;
    return has || out->error;
}

bool zoff_archive_listing_has_moved(const char *folder, const char *label, const zoff_archive_candidate *c)
{
    char path[4096];
    zoff_archive_candidate now = {.name = NULL};
    return zoff_archive_folder_join(folder, c->name, path) == ZOFF_OK &&
           (!look_into(path, label, &now) || now.sequence != c->sequence);
}

bool zoff_archive_listing_has_any(const char *path)
{
    zoff_archive_candidate c = {.name = NULL};
    return look_into(path, NULL, &c);
}

static zoff_status add(const char *folder, const char *label, const char *name, zoff_archive_listing *l)
{
    char path[4096];
    zoff_archive_candidate c = {.name = NULL};
    if (name[0] == '.' || zoff_archive_folder_join(folder, name, path) < 0 || !look_into(path, label, &c))
        return ZOFF_OK;
    if (c.error && zoff_archive_folder_check_name("name", name) < 0)
        return ZOFF_OK; /* a folder such as lost+found, which no save makes */
    ZOFF_TRY(zoff_base_array_reserve(&l->all, l->count, &l->room, l->count + 1, sizeof *l->all, "checkpoints"));
    ZOFF_TRY(zoff_base_mem_copy_text(name, &c.name));
    l->all[l->count++] = c;
    return ZOFF_OK;
}

static int by_age(const void *a, const void *b)
{
    const zoff_archive_candidate *x = a, *y = b;
    return x->sequence != y->sequence ? (x->sequence < y->sequence ? 1 : -1) : strcmp(y->name, x->name);
}

zoff_status zoff_archive_listing_make(const char *folder, const char *label, zoff_archive_listing *out)
{
    const char *name = "";
    zoff_archive_listing l = {.all = NULL};
    DIR *entries = opendir(folder);
    ZOFF_FAIL_IF(!entries, ZOFF_ERR_IO, "cannot open the folder '%s': %s", folder, zoff_base_status_errno(errno));
    zoff_status status = zoff_archive_folder_next(entries, folder, &name);
    while (status == ZOFF_OK && name) {
        status = add(folder, label, name, &l);
        if (status == ZOFF_OK)
            status = zoff_archive_folder_next(entries, folder, &name);
    }
    closedir(entries);
    if (status < 0) {
        zoff_archive_listing_free(&l);
        return status;
    }
    if (l.count)
        qsort(l.all, l.count, sizeof *l.all, by_age);
    *out = l;
    return ZOFF_OK;
}

void zoff_archive_listing_free(zoff_archive_listing *l)
{
    for (size_t i = 0; i < l->count; i++)
        zoff_base_mem_free(l->all[i].name);
    zoff_base_mem_free(l->all);
    *l = (zoff_archive_listing){.all = NULL};
}
