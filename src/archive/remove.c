/* SPDX-License-Identifier: Apache-2.0 */
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

/* The next entry, and its path; NULL: there is none, or it cannot be read. Files that cannot be removed stay, because nothing
 * reads them. */
static const char *next(DIR *entries, const char *folder, char path[4096])
{
    const char *name = NULL;
    do {
        if (!entries || zoff_archive_folder_next(entries, folder, &name) < 0 || !name)
            return NULL;
    } while (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || zoff_archive_folder_join(folder, name, path) < 0);
    return name;
}

static void end(DIR *entries)
{
    if (entries)
        closedir(entries);
}

/* ---- files of one save ---- */

/* The save that a file of a checkpoint belongs to, as its name says, or the manifest. */
static bool read_save(const char *folder, const char *name, char label[ZOFF_ARCHIVE_LABEL_MOST + 1],
                      char id[ZOFF_ARCHIVE_ID_BYTES])
{
    zoff_archive_manifest m;
    if (zoff_archive_folder_is_part(name, label, id) || zoff_archive_folder_is_pin(name, label, id))
        return true;
    if (!zoff_archive_folder_is_manifest(name, label) || zoff_archive_listing_read_facts(folder, name, &m) < 0)
        return false;
    memcpy(id, m.id, sizeof m.id);
    zoff_archive_manifest_free(&m);
    return true;
}

/* Remove files of saves; id NULL: of saves of the label that have ended. */
static void remove_files(const char *work, const char *wanted, const char *wanted_id)
{
    char path[4096], label[ZOFF_ARCHIVE_LABEL_MOST + 1], id[ZOFF_ARCHIVE_ID_BYTES];
    const char *name;
    zoff_saved_error saved;
    zoff_base_status_save(&saved);
    DIR *entries = opendir(work);
    while ((name = next(entries, work, path))) {
        int lock = -1;
        if (read_save(work, name, label, id) && strcmp(label, wanted) == 0 &&
            (wanted_id ? strcmp(id, wanted_id) == 0 : zoff_archive_part_claim(work, label, id, &lock)))
            (void)unlink(path);
        if (lock >= 0)
            close(lock);
    }
    end(entries);
    (void)rmdir(work); /* this fails if something else is in the folder */
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

static bool is_temporary(const char *name)
{
    const size_t bytes = strlen(name);
    return name[0] == '.' && bytes > 4 && strcmp(name + bytes - 4, ".new") == 0;
}

/* Remove manifests first, so that a folder which gets its name back, because another file is in it, is no checkpoint. */
static void empty(const char *hidden, bool manifests)
{
    char path[4096], label[ZOFF_ARCHIVE_LABEL_MOST + 1], id[ZOFF_ARCHIVE_ID_BYTES];
    const char *name;
    DIR *entries = opendir(hidden);
    while ((name = next(entries, hidden, path))) {
        if (manifests ? zoff_archive_folder_is_manifest(name, label)
                      : is_temporary(name) || zoff_archive_folder_is_part(name, label, id) ||
                            zoff_archive_folder_is_pin(name, label, id))
            (void)unlink(path);
    }
    end(entries);
}

/* Move the files of others. */
static void move_rest(const char *hidden, const char *to)
{
    char path[4096], there[4096];
    const char *name;
    struct stat about;
    DIR *entries = opendir(hidden);
    while ((name = next(entries, hidden, path))) {
        if (zoff_archive_folder_join(to, name, there) == ZOFF_OK && lstat(there, &about) != 0)
            (void)rename(path, there);
    }
    end(entries);
}

static void remove_hidden(const char *folder, const char *name, const char *hidden)
{
    char path[4096];
    empty(hidden, true);
    empty(hidden, false);
    if (rmdir(hidden) == 0 || errno == ENOENT || zoff_archive_folder_join(folder, name, path) < 0)
        return;
    const int error = errno;
    move_rest(hidden, path);
    if (rmdir(hidden) != 0 && rename(hidden, path) == 0)
        ZOFF_WARN("the old checkpoint '%s' is removed, but its folder is not: %s", path, zoff_base_status_errno(error));
}

void zoff_archive_remove_hidden(const char *folder)
{
    char path[4096], name[ZOFF_ARCHIVE_WORK_MOST + 1];
    const char *entry;
    bool is_removed;
    zoff_saved_error saved;
    zoff_base_status_save(&saved);
    DIR *entries = opendir(folder);
    while ((entry = next(entries, folder, path))) {
        if (zoff_archive_folder_is_work(entry, name, &is_removed) && is_removed)
            remove_hidden(folder, name, path);
    }
    end(entries);
    zoff_base_status_restore(&saved);
}

/* ---- what was cut short ---- */

/* The hidden folder of a save, and claims of the saves that have ended there. Until they end, a save that has just made its
 * file finds that the file is gone, and makes another. */
typedef struct remains {
    bool is_empty, is_alive;
    unsigned engines, wanted; /* engines that have ended, and those that the checkpoint is of; 0: not known */
    uint64_t sequence;        /* greatest sequence of its manifests, because engines that have ended wait for others */
    time_t written;
    int *claims;
    size_t count, room;
} remains;

static remains look_at(const char *work)
{
    char path[4096], first[512], label[ZOFF_ARCHIVE_LABEL_MOST + 1], id[ZOFF_ARCHIVE_ID_BYTES];
    const char *name;
    struct stat about;
    zoff_archive_manifest m;
    remains r = {.is_empty = true, .written = stat(work, &about) == 0 ? about.st_mtime : 0};
    DIR *entries = opendir(work);
    while ((name = next(entries, work, path)) && !r.is_alive) {
        r.is_empty = false;
        if (stat(path, &about) == 0 && about.st_mtime > r.written)
            r.written = about.st_mtime;
        if (zoff_archive_folder_is_part(name, label, id)) {
            zoff_archive_folder_part_name(label, id, 0, first);
            if (strcmp(name, first) == 0) /* rank 0's alone, because there may be more ranks than a process can open files */
                r.is_alive =
                    zoff_base_array_reserve(&r.claims, r.count, &r.room, r.count + 1, sizeof *r.claims, "claims") < 0 ||
                    !zoff_archive_part_claim(work, label, id, &r.claims[r.count++]);
        } else if (zoff_archive_folder_is_manifest(name, label) && zoff_archive_listing_read_facts(work, name, &m) == ZOFF_OK) {
            r.sequence = m.sequence > r.sequence ? m.sequence : r.sequence;
            r.engines++;
            r.wanted = m.engines;
            zoff_archive_manifest_free(&m);
        }
    }
    end(entries);
    return r;
}

static void end_claims(remains *r)
{
    for (size_t i = 0; i < r->count; i++) {
        if (r->claims[i] >= 0)
            close(r->claims[i]);
    }
    zoff_base_mem_free(r->claims);
}

bool zoff_archive_remove_is_alive(const char *work, unsigned *out_engines, unsigned *out_wanted)
{
    remains r = look_at(work);
    end_claims(&r);
    *out_engines = r.engines;
    *out_wanted = r.wanted;
    return r.is_alive;
}

static void hide_if_left(const char *folder, const char *name, const char *path, bool is_own, uint64_t sequence)
{
    remains r = look_at(path);
    if (r.is_empty && is_own)
        (void)rmdir(path); /* this fails if a save has made its file since */
    else if (!r.is_alive && (is_own ? r.sequence < sequence : time(NULL) - r.written >= ZOFF_ARCHIVE_LEASE_SECONDS))
        (void)zoff_archive_remove_hide(folder, name, path);
    end_claims(&r);
}

void zoff_archive_remove_left(const char *folder, const char *name, uint64_t sequence, bool others)
{
    char path[4096], of[ZOFF_ARCHIVE_WORK_MOST + 1];
    const char *entry;
    bool is_removed;
    zoff_saved_error saved;
    zoff_base_status_save(&saved);
    DIR *entries = opendir(folder);
    while ((entry = next(entries, folder, path))) {
        if (zoff_archive_folder_is_aside(entry, name))
            hide_if_left(folder, name, path, true, sequence);
        else if (zoff_archive_folder_is_work(entry, of, &is_removed) && !is_removed) {
            const bool is_own = strncmp(of, name, ZOFF_ARCHIVE_WORK_MOST) == 0;
            if (is_own || others)
                hide_if_left(folder, of, path, is_own, sequence);
        }
    }
    end(entries);
    zoff_base_status_restore(&saved);
}
