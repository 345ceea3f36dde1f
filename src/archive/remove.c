/* remove.c: removes folders of checkpoints, and what saves and removals that were cut short have left.
 *
 * A folder that is no longer needed first gets a hidden name, by one rename. So it is whole for each reader, or gone, and a
 * removal that is killed leaves only what any later save knows by that name. A save under way has a lock on the file of its
 * rank 0 (part.c), and its hidden folder stays. */
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

/* Do something with each entry of a folder. Files that cannot be removed stay: nothing reads them. */
static void for_each(const char *folder, void (*visit)(const char *name, const char *path, const void *ctx), const void *ctx)
{
    char path[4096];
    const struct dirent *entry;
    DIR *entries = opendir(folder);
    while (entries && (entry = readdir(entries))) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            zoff_archive_folder_join(folder, entry->d_name, path) == ZOFF_OK)
            visit(entry->d_name, path, ctx);
    }
    if (entries)
        closedir(entries);
}

/* ---- files of one save ---- */

/* The save that a file of a checkpoint belongs to, as its name says, or the manifest. */
static bool read_save(const char *folder, const char *name, char label[ZOFF_ARCHIVE_LABEL_MOST + 1],
                      char id[ZOFF_ARCHIVE_ID_BYTES])
{
    zoff_archive_manifest m;
    if (zoff_archive_folder_is_part(name, label, id))
        return true;
    if (!zoff_archive_folder_is_manifest(name, label) || zoff_archive_listing_read_facts(folder, name, &m) < 0)
        return false;
    memcpy(id, m.id, sizeof m.id);
    zoff_archive_manifest_free(&m);
    return true;
}

typedef struct saver {
    const char *work, *label, *id; /* id NULL: those whose saves have ended */
} saver;

static void remove_if_own(const char *name, const char *path, const void *ctx)
{
    const saver *own = ctx;
    char label[ZOFF_ARCHIVE_LABEL_MOST + 1], id[ZOFF_ARCHIVE_ID_BYTES];
    int lock = -1;
    if (read_save(own->work, name, label, id) && strcmp(label, own->label) == 0 &&
        (own->id ? strcmp(id, own->id) == 0 : zoff_archive_part_claim(own->work, label, id, &lock)))
        (void)unlink(path);
    if (lock >= 0)
        close(lock);
}

static void remove_files(const char *work, const char *label, const char *id)
{
    const saver own = {.work = work, .label = label, .id = id};
    zoff_saved_error saved;
    zoff_base_status_save(&saved);
    for_each(work, remove_if_own, &own);
    (void)rmdir(work); /* fails where there is something else */
    zoff_base_status_restore(&saved);
}

void zoff_archive_remove_own(const char *work, const zoff_archive_manifest *m)
{
    remove_files(work, m->label, m->id);
}

void zoff_archive_remove_ended(const char *work, const char *label)
{
    remove_files(work, label, NULL);
}

/* ---- whole folders ---- */

bool zoff_archive_remove_hide(const char *folder, const char *name, const char *path)
{
    char id[ZOFF_ARCHIVE_ID_BYTES], hidden[4096];
    if (zoff_archive_folder_id(id) < 0)
        return false;
    snprintf(hidden, sizeof hidden, "%.3000s/.%.*s.%s%s", folder, ZOFF_ARCHIVE_WORK_MOST, name, id, ZOFF_ARCHIVE_REMOVED);
    return rename(path, hidden) == 0;
}

/* Manifests go first: where a folder gets its name back, because another file is in it, it is no checkpoint. */
static void remove_known(const char *name, const char *path, const void *ctx)
{
    char label[ZOFF_ARCHIVE_LABEL_MOST + 1], id[ZOFF_ARCHIVE_ID_BYTES];
    const bool *manifests = ctx;
    const size_t bytes = strlen(name);
    const bool is_early = name[0] == '.' && bytes > 4 && strcmp(name + bytes - 4, ".new") == 0;
    if (*manifests ? zoff_archive_folder_is_manifest(name, label) : is_early || zoff_archive_folder_is_part(name, label, id))
        (void)unlink(path);
}

static void move_into(const char *name, const char *path, const void *ctx)
{
    char to[4096];
    struct stat about;
    if (zoff_archive_folder_join(ctx, name, to) == ZOFF_OK && lstat(to, &about) != 0)
        (void)rename(path, to);
}

static void remove_hidden(const char *folder, const char *name, const char *hidden)
{
    char path[4096];
    for (int manifests = 1; manifests >= 0; manifests--)
        for_each(hidden, remove_known, &(bool){manifests});
    if (rmdir(hidden) == 0 || errno == ENOENT || zoff_archive_folder_join(folder, name, path) < 0)
        return;
    const int error = errno;
    for_each(hidden, move_into, path);
    if (rmdir(hidden) != 0 && rename(hidden, path) == 0)
        ZOFF_WARN("the old checkpoint '%s' is removed, but its folder is not: %s", path, zoff_base_status_errno(error));
}

/* ---- what was cut short ---- */

/* The hidden folder of a save, and claims of the saves that have ended there. Until they end, a save that has
 * just made its file finds that the file is gone, and makes another. */
typedef struct remains {
    const char *path;
    bool is_empty, is_alive;
    uint64_t sequence; /* the greatest of its manifests: engines that have ended wait for others */
    time_t written;
    int *claims;
    size_t count, room;
} remains;

static void look_at(const char *name, const char *path, const void *ctx)
{
    remains *r = *(remains *const *)ctx;
    char label[ZOFF_ARCHIVE_LABEL_MOST + 1], id[ZOFF_ARCHIVE_ID_BYTES];
    struct stat about;
    zoff_archive_manifest m;
    r->is_empty = false;
    if (stat(path, &about) == 0 && about.st_mtime > r->written)
        r->written = about.st_mtime;
    if (zoff_archive_folder_is_part(name, label, id)) {
        r->is_alive = r->is_alive || zoff_base_array_reserve(&r->claims, r->count, &r->room, r->count + 1, sizeof *r->claims,
                                                             "saves into a folder") < 0;
        if (!r->is_alive)
            r->is_alive = !zoff_archive_part_claim(r->path, label, id, &r->claims[r->count++]);
    } else if (zoff_archive_folder_is_manifest(name, label) && zoff_archive_listing_read_facts(r->path, name, &m) == ZOFF_OK) {
        r->sequence = m.sequence > r->sequence ? m.sequence : r->sequence;
        zoff_archive_manifest_free(&m);
    }
}

typedef struct sweep {
    const char *folder, *name;
    uint64_t sequence;
    bool others;
} sweep;

static void hide_if_left(const char *entry, const char *path, const void *ctx)
{
    const sweep *s = ctx;
    char name[ZOFF_ARCHIVE_WORK_MOST + 1];
    bool is_removed;
    struct stat about;
    remains r = {.path = path, .is_empty = true}, *found = &r;
    const bool is_aside = zoff_archive_folder_is_aside(entry, s->name);
    if (!is_aside && (!zoff_archive_folder_is_work(entry, name, &is_removed) || is_removed))
        return;
    const bool is_own = is_aside || strncmp(name, s->name, ZOFF_ARCHIVE_WORK_MOST) == 0;
    if (!is_own && !s->others)
        return;
    r.written = stat(path, &about) == 0 ? about.st_mtime : 0;
    for_each(path, look_at, &found);
    if (r.is_empty && is_own)
        (void)rmdir(path); /* fails where a save has made its file since */
    else if (!r.is_alive && (is_own ? r.sequence < s->sequence : time(NULL) - r.written >= ZOFF_ARCHIVE_LEASE_SECONDS))
        (void)zoff_archive_remove_hide(s->folder, is_own ? s->name : name, path);
    for (size_t i = 0; i < r.count; i++) {
        if (r.claims[i] >= 0)
            close(r.claims[i]);
    }
    zoff_base_mem_free(r.claims);
}

static void remove_if_hidden(const char *entry, const char *path, const void *ctx)
{
    char name[ZOFF_ARCHIVE_WORK_MOST + 1];
    bool is_removed;
    if (zoff_archive_folder_is_work(entry, name, &is_removed) && is_removed)
        remove_hidden(ctx, name, path);
}

void zoff_archive_remove_left(const char *folder, const char *name, uint64_t sequence, bool others)
{
    const sweep s = {.folder = folder, .name = name, .sequence = sequence, .others = others};
    zoff_saved_error saved;
    zoff_base_status_save(&saved);
    for_each(folder, hide_if_left, &s);
    zoff_base_status_restore(&saved);
}

void zoff_archive_remove_hidden(const char *folder)
{
    zoff_saved_error saved;
    zoff_base_status_save(&saved);
    for_each(folder, remove_if_hidden, folder);
    zoff_base_status_restore(&saved);
}
