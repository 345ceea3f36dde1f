/* remove.c: removes files of checkpoints: those of one save, those that saves have left, and whole checkpoints. Files of a save
 * that is under way in any process stay (part.c). */
#include "archive_priv.h"

#include "array.h"
#include "log.h"
#include "try.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- files that are no longer needed ---- */

/* Remove files of a folder. Files that cannot be removed stay: nothing reads them. */
static void remove_files(const char *folder, bool (*is_old)(const char *name, void *ctx), void *ctx)
{
    char path[4096];
    const struct dirent *entry;
    DIR *entries = opendir(folder);
    while (entries && (entry = readdir(entries))) {
        if (is_old(entry->d_name, ctx) && zoff_archive_folder_join(folder, entry->d_name, path) == ZOFF_OK)
            (void)unlink(path);
    }
    if (entries)
        closedir(entries);
}

/* The save that a file belongs to: one of a rank, or a temporary one. */
static bool read_save(const char *name, char label[ZOFF_ARCHIVE_LABEL_MOST + 1], char id[ZOFF_ARCHIVE_ID_BYTES])
{
    const char *end;
    return zoff_archive_folder_is_part(name, label, id) ||
           (zoff_archive_folder_is_hidden(name, label, id, &end) && strcmp(end, ZOFF_ARCHIVE_REMOVED) != 0);
}

/* Files of this save. */
static bool is_own(const char *name, void *ctx)
{
    const zoff_archive_manifest *m = ctx;
    char label[ZOFF_ARCHIVE_LABEL_MOST + 1], id[ZOFF_ARCHIVE_ID_BYTES];
    return read_save(name, label, id) && strcmp(label, m->label) == 0 && strcmp(id, m->id) == 0;
}

/* Saves into a folder, and whether nobody needs their files. */
typedef struct known_save {
    char label[ZOFF_ARCHIVE_LABEL_MOST + 1], id[ZOFF_ARCHIVE_ID_BYTES];
    bool is_dead;
    int lock; /* keeps a save with this id from beginning, and others from removing it; -1: none */
} known_save;

typedef struct known_saves {
    const char *folder, *label; /* NULL: all labels */
    bool only_old;              /* those that are dead for a day */
    known_save *all;
    size_t count, room;
} known_saves;

/* Whether a manifest under this name has the id. One that cannot be read may have it. */
static bool names(const char *folder, const char *file, const char *id)
{
    char path[4096];
    zoff_archive_manifest m;
    if (zoff_archive_folder_join(folder, file, path) < 0)
        return true;
    const zoff_status status = zoff_archive_listing_read_facts(folder, file, &m);
    if (status < 0)
        return status != ZOFF_ERR_CORRUPT && access(path, F_OK) == 0;
    const bool has_id = strcmp(m.id, id) == 0;
    zoff_archive_manifest_free(&m);
    return has_id;
}

/* Manifests are read after the claim: a save has its manifest before it gives up its lock. A removal hides one. If the file of
 * rank 0 is gone by now, then another program has removed it, and the save may be about to make it anew; those of other ranks
 * are made later. */
static bool is_dead(const char *folder, const char *name, known_save *save)
{
    char file[512], hidden[512], first[512];
    zoff_archive_folder_manifest_name(save->label, file);
    zoff_archive_folder_hidden_name(save->label, ZOFF_ARCHIVE_MANIFEST, "", ZOFF_ARCHIVE_REMOVED, hidden);
    save->lock = -1;
    if (*save->id && !zoff_archive_part_claim(folder, save->label, save->id, &save->lock))
        return false;
    zoff_archive_folder_part_name(save->label, save->id, 0, first);
    if (save->lock < 0 && strcmp(name, first) == 0)
        return false;
    return !names(folder, file, save->id) && !names(folder, hidden, save->id);
}

/* Whether the file of rank 0, which is claimed, was written a day ago. */
static bool is_old(const known_save *save)
{
    struct stat about;
    return save->lock >= 0 && fstat(save->lock, &about) == 0 && time(NULL) - about.st_mtime >= ZOFF_ARCHIVE_LEASE_SECONDS;
}

/* Files of saves that were replaced, or have ended early. */
static bool is_left(const char *name, void *ctx)
{
    known_saves *k = ctx;
    known_save save;
    if (!read_save(name, save.label, save.id) || (k->label && strcmp(save.label, k->label) != 0))
        return false;
    for (size_t i = 0; i < k->count; i++) {
        if (strcmp(k->all[i].label, save.label) == 0 && strcmp(k->all[i].id, save.id) == 0)
            return k->all[i].is_dead;
    }
    if (zoff_base_array_reserve(&k->all, k->count, &k->room, k->count + 1, sizeof *k->all, "saves into a folder") < 0)
        return false;
    save.is_dead = is_dead(k->folder, name, &save) && (!k->only_old || is_old(&save));
    k->all[k->count++] = save;
    return save.is_dead;
}

/* Another save has the lock while it takes its name. If that fails, it puts back the manifest of the save that it replaces,
 * whose files no manifest names until then. */
static void remove_dead(const char *folder, const char *label, bool only_old)
{
    int lock;
    zoff_saved_error saved;
    known_saves k = {.folder = folder, .label = label, .only_old = only_old};
    zoff_base_status_save(&saved);
    if (zoff_archive_folder_lock(folder, &lock) == ZOFF_OK) {
        remove_files(folder, is_left, &k);
        zoff_archive_folder_unlock(lock);
    }
    for (size_t i = 0; i < k.count; i++) {
        if (k.all[i].lock >= 0)
            close(k.all[i].lock);
    }
    zoff_base_mem_free(k.all);
    zoff_base_status_restore(&saved);
}

void zoff_archive_remove_left(const char *folder, const char *label)
{
    remove_dead(folder, label, false);
}

void zoff_archive_remove_killed(const char *path, const char *label)
{
    remove_dead(path, label, true);
    (void)rmdir(path); /* fails where there is something else */
}

void zoff_archive_remove_own(const char *path, const zoff_archive_manifest *m)
{
    zoff_archive_manifest own = *m;
    remove_files(path, is_own, &own);
}

/* ---- removal of a checkpoint ----
 *
 * Its manifests get hidden names first, so it no longer counts. They stay until its other files are gone: a removal that was
 * cut short is told by them from a save that is under way, and the next one ends it. */

/* Whether a manifest, or one that cannot be read, may be of a save since this sequence. */
static bool is_newer(const char *folder, const char *label, uint64_t before)
{
    zoff_archive_manifest m;
    const zoff_status status = zoff_archive_listing_read(folder, label, &m, NULL, NULL);
    if (status < 0)
        return status == ZOFF_ERR_IO;
    const uint64_t sequence = m.sequence;
    zoff_archive_manifest_free(&m);
    return sequence >= before;
}

/* Hide the manifests of a label, or all of them for NULL.  @return false: one could not be, or was saved since `before` */
static bool hide_each(const char *folder, const char *label, uint64_t before)
{
    char path[4096], hidden[4096], name[512], other[ZOFF_ARCHIVE_LABEL_MOST + 1];
    bool is_done = true;
    const struct dirent *entry;
    DIR *entries = opendir(folder);
    if (!entries)
        return false;
    while (is_done && (entry = readdir(entries))) {
        if (!zoff_archive_folder_is_manifest(entry->d_name, other) || (label && strcmp(label, other) != 0))
            continue;
        zoff_archive_folder_hidden_name(other, ZOFF_ARCHIVE_MANIFEST, "", ZOFF_ARCHIVE_REMOVED, name);
        is_done = !is_newer(folder, other, before) && zoff_archive_folder_join(folder, entry->d_name, path) == ZOFF_OK &&
                  zoff_archive_folder_join(folder, name, hidden) == ZOFF_OK && rename(path, hidden) == 0;
    }
    closedir(entries);
    return is_done;
}

static bool hide_manifests(const char *folder, const char *label, uint64_t before)
{
    int lock;
    if (zoff_archive_folder_lock(folder, &lock) < 0)
        return false;
    const bool is_done = hide_each(folder, label, before);
    zoff_archive_folder_unlock(lock);
    return is_done;
}

/* Remove the files that a hidden manifest names, and then itself. */
static bool end_manifest(const char *folder, const char *name)
{
    char path[4096], label[ZOFF_ARCHIVE_LABEL_MOST + 1], id[ZOFF_ARCHIVE_ID_BYTES];
    const char *end;
    zoff_archive_manifest m;
    if (!zoff_archive_folder_is_hidden(name, label, id, &end) || strcmp(end, ZOFF_ARCHIVE_REMOVED) != 0 ||
        zoff_archive_folder_join(folder, name, path) < 0 || zoff_archive_listing_read_facts(folder, name, &m) < 0)
        return false;
    const bool is_whole = strcmp(m.label, label) == 0;
    if (is_whole) {
        remove_files(folder, is_own, &m);
        (void)unlink(path);
    }
    zoff_archive_manifest_free(&m);
    return is_whole;
}

/* End removals that were cut short. */
void zoff_archive_remove_end(const char *folder)
{
    bool has_ended = false;
    const struct dirent *entry;
    zoff_saved_error saved;
    DIR *entries = opendir(folder);
    zoff_base_status_save(&saved);
    while (entries && (entry = readdir(entries)))
        has_ended = end_manifest(folder, entry->d_name) || has_ended;
    if (entries)
        closedir(entries);
    if (has_ended)
        (void)rmdir(folder); /* fails where there is something else */
    zoff_base_status_restore(&saved);
}

/* Remove the files of a label, or of all for NULL, that were saved before a sequence. */
void zoff_archive_remove_checkpoint(const char *path, const char *label, uint64_t before)
{
    if (!hide_manifests(path, label, before) || zoff_archive_folder_flush(path) < 0)
        return; /* another save tries again */
    zoff_archive_remove_end(path);
    zoff_archive_remove_left(path, label);
    const int error = rmdir(path) == 0 ? 0 : errno;
    if (error && error != ENOENT && !zoff_archive_listing_has_any(path)) /* another engine may have removed it, or needs it */
        ZOFF_WARN("the old checkpoint '%s' is removed, but its folder is not: %s", path, zoff_base_status_errno(error));
}
