/* SPDX-License-Identifier: Apache-2.0 */
/* publish.c: how a checkpoint gets its identity and its name, and how it becomes complete.
 *
 * Where a save replaces a checkpoint of the same name, a reader must find the old one or the new one, whole, wherever the save
 * is killed. An error must bring the old one back. So a save writes into a hidden folder beside the checkpoints:
 *
 *      .NAME.ID/     files of ranks, then the manifest     of the only engine, ID is the id of the save
 *      .NAME.HASH/   files and manifests of several        of engines that save together; HASH is of name, step and number
 *
 * Once the manifests of all engines are there, the folder takes its name, while the folder of checkpoints is locked:
 *
 *      nothing has the name     rename
 *      a checkpoint has it      both exchange their names (RENAME_EXCHANGE)
 *      ... without exchange     NAME -> NAME.RANDOM.replaced, .NAME.ID -> NAME: two renames, between which nothing has the
 *                               name. The old one is aside, a checkpoint as any other: a choice of the newest one finds it,
 *                               and a reader of NAME looks for it (choose.c)
 *
 * Only a save that began later replaces another, and none replaces a checkpoint of an engine that has no part in it. A file
 * system without locks is one without exchange here, because what was moved aside is nobody else's: it is looked at again, and
 * goes back if it is newer. So each rename takes place of something older, whoever else renames, and what is removed later is
 * older than a checkpoint that had the name. Where the last flush fails, the renames are undone. Then `latest` names the new
 * checkpoint, and the old one and those beyond `keep` are removed, outside of the lock, since that takes long. */
#include "archive_priv.h"

#include "log.h"
#include "try.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

zoff_status zoff_archive_publish_name(const zoff_checkpoint_opts *opts, int64_t t, char out[ZOFF_ARCHIVE_NAME_MOST + 1])
{
    if (opts->label && *opts->label)
        ZOFF_TRY(zoff_archive_folder_check_label("zoff_checkpoint_opts.label", opts->label));
    if (opts->name) {
        ZOFF_TRY(zoff_archive_folder_check_name("zoff_checkpoint_opts.name", opts->name));
        ZOFF_FAIL_IF(strcmp(opts->name, "latest") == 0, ZOFF_ERR_INVALID,
                     "zoff_checkpoint_opts.name is \"latest\", which is the name of the file beside the checkpoints");
        char label[ZOFF_ARCHIVE_LABEL_MOST + 1], id[ZOFF_ARCHIVE_ID_BYTES];
        ZOFF_FAIL_IF(zoff_archive_folder_is_manifest(opts->name, label) || zoff_archive_folder_is_part(opts->name, label, id) ||
                         zoff_archive_folder_is_pin(opts->name, label, id),
                     ZOFF_ERR_INVALID,
                     "zoff_checkpoint_opts.name is \"%s\", which is the name of a file in a checkpoint: a load would take the "
                     "folder around it for one",
                     opts->name);
        const size_t bytes = strlen(opts->name), end = sizeof ZOFF_ARCHIVE_ASIDE - 1;
        ZOFF_FAIL_IF(bytes > end && strcmp(opts->name + bytes - end, ZOFF_ARCHIVE_ASIDE) == 0, ZOFF_ERR_INVALID,
                     "zoff_checkpoint_opts.name is \"%s\", and ends in \"%s\", as names of checkpoints that are being replaced",
                     opts->name, ZOFF_ARCHIVE_ASIDE);
    }
    /* Engines that save alone have folders of their own, so that one can be replaced without the others. */
    const bool is_alone = opts->label && *opts->label && opts->engines <= 1;
    char step[32];
    snprintf(step, sizeof step, "step-%010" PRId64, t);
    const int bytes = snprintf(out, ZOFF_ARCHIVE_NAME_MOST + 1, "%s%s%s", is_alone ? opts->label : "", is_alone ? "." : "",
                               opts->name ? opts->name : step);
    ZOFF_FAIL_IF(bytes > ZOFF_ARCHIVE_NAME_MOST, ZOFF_ERR_INVALID,
                 "zoff_checkpoint_opts.label and name have %d bytes together with the \".\" between them, and at most %d are "
                 "possible",
                 bytes, ZOFF_ARCHIVE_NAME_MOST);
    return ZOFF_OK;
}

/* ---- what has the name ---- */

/* A folder that may be a checkpoint. */
typedef struct holding {
    bool is_there;
    uint64_t sequence; /* greatest sequence of its manifests */
    bool is_pinned;    /* a pin is in the folder */
    bool has_own;      /* the folder has a manifest of this save's engine, whatever is in it */
    bool has_other;    /* the folder belongs to an engine that has no part in this save, and must stay */
    char other[ZOFF_ARCHIVE_LABEL_MOST + 1];
} holding;

/* A manifest that is damaged, or has just been removed, counts for nothing. */
static zoff_status add_manifest(const char *path, const char *file, const zoff_archive_manifest *m, holding *h)
{
    zoff_archive_manifest one;
    const zoff_status status = zoff_archive_listing_read_facts(path, file, &one);
    if (status < 0)
        return status == ZOFF_ERR_IO || status == ZOFF_ERR_NO_MEMORY ? status : ZOFF_OK;
    h->sequence = one.sequence > h->sequence ? one.sequence : h->sequence;
    if (strcmp(one.label, m->label) != 0 && (one.engines <= 1 || m->engines <= 1)) {
        h->has_other = true;
        snprintf(h->other, sizeof h->other, "%s", one.label);
    }
    zoff_archive_manifest_free(&one);
    return ZOFF_OK;
}

static zoff_status look(const char *path, const zoff_archive_manifest *m, holding *out)
{
    char label[ZOFF_ARCHIVE_LABEL_MOST + 1], id[ZOFF_ARCHIVE_ID_BYTES];
    const char *entry = "";
    struct stat about;
    *out = (holding){.is_there = lstat(path, &about) == 0};
    const int error = out->is_there ? 0 : errno;
    ZOFF_FAIL_IF(error && error != ENOENT && error != ENOTDIR, ZOFF_ERR_IO, "cannot look at '%s': %s", path,
                 zoff_base_status_errno(error));
    if (!out->is_there)
        return ZOFF_OK;
    ZOFF_FAIL_IF(!S_ISDIR(about.st_mode), ZOFF_ERR_IO,
                 "'%s' is no folder, and no checkpoint can have its name: give the checkpoint another one", path);
    zoff_saved_error saved;
    zoff_base_status_save(&saved);
    DIR *entries = opendir(path);
    out->is_there = entries || errno != ENOENT; /* the folder may have been removed since */
    if (!out->is_there)
        return ZOFF_OK;
    ZOFF_FAIL_IF(!entries, ZOFF_ERR_IO, "cannot open the folder '%s': %s", path, zoff_base_status_errno(errno));
    zoff_status status = zoff_archive_folder_next(entries, path, &entry);
    while (status == ZOFF_OK && entry) {
        if (zoff_archive_folder_is_manifest(entry, label)) {
            status = add_manifest(path, entry, m, out);
            out->has_own = out->has_own || strcmp(label, m->label) == 0;
        } else {
            out->is_pinned = out->is_pinned || zoff_archive_folder_is_pin(entry, label, id);
        }
        if (status == ZOFF_OK)
            status = zoff_archive_folder_next(entries, path, &entry);
    }
    closedir(entries);
    if (status == ZOFF_OK)
        zoff_base_status_restore(&saved);
    return status;
}

/* Whether this save may take the name from what is there. */
static zoff_status check(const char *path, const zoff_archive_manifest *m, bool is_new, holding *out)
{
    ZOFF_TRY(look(path, m, out));
    ZOFF_FAIL_IF(is_new && out->has_own, ZOFF_ERR_INVALID,
                 "'%s' is a checkpoint already, and is not replaced: give the new one another name, or remove that folder",
                 path);
    ZOFF_FAIL_IF(
        out->has_other, ZOFF_ERR_INVALID,
        "'%s' is a checkpoint of the engine '%s', and is not replaced: give this one another name, or remove that folder", path,
        out->other);
    return ZOFF_OK;
}

zoff_status zoff_archive_publish_begin(const char *folder, const char *name, zoff_archive_manifest *m, bool is_new,
                                       char work[4096], zoff_archive_part *out)
{
    char path[4096];
    holding found;
    ZOFF_TRY(zoff_archive_folder_join(folder, name, path));
    ZOFF_TRY(check(path, m, is_new, &found));
    ZOFF_TRY(zoff_archive_folder_id(m->id));
    zoff_archive_folder_work(folder, name, m, work);
    ZOFF_TRY(zoff_archive_part_open(work, m->label, m->id, 0, out));
    if (m->engines > 1)
        zoff_archive_remove_ended(work, m->label);
    m->sequence = zoff_archive_choose_sequence(folder);
    return ZOFF_OK;
}

/* ---- the name ---- */

/* A folder that takes its name. */
typedef struct naming {
    const char *folder, *name;
    char work[4096], path[4096]; /* hidden path of the folder, and the path that it takes */
    char old[4096];              /* place of the checkpoint that it replaces; "": there is none */
    uint64_t sequence;           /* greatest sequence of its manifests */
    struct stat own;             /* identity of the folder */
    bool is_locked, is_exchanged;
    bool was_pinned; /* it replaces a checkpoint that is pinned */
} naming;

static zoff_status fail_later(const char *path)
{
    return zoff_base_status_fail(
        ZOFF_ERR_STATE,
        "'%s' was saved by a save that began later than this one: two programs save under this name. That save stays. End one "
        "of the programs, or give each its own folder or zoff_checkpoint_opts.label",
        path);
}

/* @return PENDING: another save has come between, or has just removed what was to be renamed */
static zoff_status rename_folder(const char *from, const char *to)
{
    if (rename(from, to) == 0)
        return ZOFF_OK;
    const int error = errno;
    return error == ENOENT || error == ENOTEMPTY || error == EEXIST ? ZOFF_PENDING
                                                                    : zoff_archive_folder_fail_rename(from, to, error);
}

/* Replace by two renames. The place aside has a new name for each try, so that nobody else moves what is there. */
static zoff_status replace_aside(naming *n, const zoff_archive_manifest *m)
{
    char id[ZOFF_ARCHIVE_ID_BYTES];
    holding old;
    ZOFF_TRY(zoff_archive_folder_id(id));
    ZOFF_FAIL_IF(snprintf(n->old, sizeof n->old, "%s.%s%s", n->path, id, ZOFF_ARCHIVE_ASIDE) >= (int)sizeof n->old,
                 ZOFF_ERR_INVALID, "the path '%.100s...' is too long", n->path);
    ZOFF_TRY(rename_folder(n->path, n->old));
    zoff_status status = look(n->old, m, &old);
    if (status == ZOFF_OK && old.sequence > n->sequence)
        status = fail_later(n->path);
    if (status == ZOFF_OK)
        status = rename_folder(n->work, n->path);
    if (status != ZOFF_OK)
        (void)rename(n->old, n->path); /* this fails if another save has the name, which removes what is older */
    return status;
}

/* Give the folder its name.  @return PENDING: another save or a removal came between */
static zoff_status take(naming *n, const zoff_archive_manifest *m, bool is_new)
{
    holding found;
    n->old[0] = 0;
    ZOFF_TRY(check(n->path, m, is_new, &found));
    n->was_pinned = found.is_pinned;
    if (found.sequence > n->sequence)
        return fail_later(n->path);
    if (!found.is_there)
        return rename_folder(n->work, n->path);
    n->is_exchanged = n->is_locked && renameat2(AT_FDCWD, n->work, AT_FDCWD, n->path, RENAME_EXCHANGE) == 0;
    if (!n->is_exchanged)
        return replace_aside(n, m);
    memcpy(n->old, n->work, sizeof n->old);
    return ZOFF_OK;
}

/* After an error: undo the renames, unless another save has replaced this one since. */
static void put_back(const naming *n)
{
    struct stat about;
    zoff_saved_error saved;
    zoff_base_status_save(&saved);
    if (lstat(n->path, &about) == 0 && about.st_dev == n->own.st_dev && about.st_ino == n->own.st_ino) {
        const bool is_back = n->is_exchanged ? renameat2(AT_FDCWD, n->work, AT_FDCWD, n->path, RENAME_EXCHANGE) == 0
                                             : rename(n->path, n->work) == 0 && (!*n->old || rename(n->old, n->path) == 0);
        if (!is_back)
            ZOFF_WARN(
                "'%s' is of a save that failed, and cannot be taken back: %s. If files of it are missing, loads ignore it",
                n->path, zoff_base_status_errno(errno));
        (void)zoff_archive_folder_flush(n->folder);
    }
    zoff_base_status_restore(&saved);
}

/* Write the manifest, and the pin before it. A job that hung, and was started anew meanwhile, must not replace that of the new
 * one. */
static zoff_status write_manifest(const naming *n, const zoff_archive_manifest *m)
{
    char *text, file[512], path[4096], early[4096];
    size_t bytes;
    zoff_archive_manifest written = *m, other;
    zoff_saved_error saved;
    zoff_base_status_save(&saved);
    if (m->engines > 1 && zoff_archive_listing_read(n->work, m->label, &other, NULL, NULL) == ZOFF_OK) {
        const bool is_later = other.sequence > m->sequence;
        zoff_archive_manifest_free(&other);
        if (is_later)
            return fail_later(n->path);
    }
    zoff_base_status_restore(&saved);
    if (m->pinned)
        ZOFF_TRY(zoff_archive_pin_write(n->work, m->label, m->id));
    zoff_archive_folder_manifest_name(m->label, file);
    ZOFF_TRY(zoff_archive_folder_join(n->work, file, path));
    ZOFF_FAIL_IF(snprintf(early, sizeof early, "%s/.%s.%s.new", n->work, file, m->id) >= (int)sizeof early, ZOFF_ERR_INVALID,
                 "the path '%.100s...' is too long", n->work);
    written.replaces = 0;
    ZOFF_TRY(zoff_archive_manifest_print(&written, &text, &bytes));
    const zoff_status status = zoff_archive_folder_write_file(early, path, text, bytes);
    zoff_base_mem_free(text);
    ZOFF_TRY(status);
    return zoff_archive_folder_flush(n->work);
}

/* Publish under the lock. Another engine that sees that all have saved gives the folder its name before this one comes to
 * it. */
static zoff_status publish(naming *n, const zoff_archive_manifest *m, bool is_new, bool *out_complete)
{
    enum { TRIES = 100 };
    *out_complete = true;
    if (lstat(n->work, &n->own) != 0 && errno == ENOENT && zoff_archive_is_current(n->path, m->label, m->id))
        return ZOFF_OK;
    zoff_status status = zoff_archive_listing_has_files(n->work, m);
    if (status < 0)
        return status == ZOFF_ERR_STATE ? ZOFF_ERR_IO : status;
    ZOFF_TRY(write_manifest(n, m));
    ZOFF_TRY(zoff_archive_listing_ask(n->work, m, out_complete, &n->sequence));
    if (!*out_complete)
        return ZOFF_OK;
    status = ZOFF_PENDING;
    for (unsigned i = 0; i < TRIES && status == ZOFF_PENDING; i++)
        status = take(n, m, is_new);
    ZOFF_FAIL_IF(status == ZOFF_PENDING, ZOFF_ERR_IO,
                 "other programs change '%s' again and again, or have removed this save before it was complete", n->path);
    ZOFF_TRY(status);
    status = zoff_archive_folder_flush(n->folder);
    if (status < 0)
        put_back(n);
    return status;
}

/* ---- once it is complete ---- */

/* Point `latest` at a complete checkpoint, unless it names one that was begun later. The checkpoint is durable, so an error no
 * longer undoes the save: loads do not need `latest`. */
static bool point(const naming *n, const zoff_archive_manifest *m)
{
    char latest[ZOFF_ARCHIVE_NAME_MOST + 1], path[4096];
    zoff_archive_manifest other = {.label = NULL};
    zoff_saved_error saved;
    zoff_base_status_save(&saved);
    const bool is_later = zoff_archive_latest_read(n->folder, latest) == ZOFF_OK &&
                          zoff_archive_folder_join(n->folder, latest, path) == ZOFF_OK &&
                          zoff_archive_listing_read(path, m->label, &other, NULL, NULL) == ZOFF_OK &&
                          other.sequence > m->sequence;
    zoff_archive_manifest_free(&other);
    const zoff_status status = is_later ? ZOFF_OK : zoff_archive_latest_write(n->folder, n->name, m);
    if (status < 0)
        ZOFF_WARN("'%s' is saved, but '%s/latest' may not name it, and old checkpoints stay: %s", n->path, n->folder,
                  zoff_last_error());
    zoff_base_status_restore(&saved);
    return status == ZOFF_OK;
}

/* A link leads to a checkpoint that is counted under its own name, or lies elsewhere. A folder that cannot be read stays. */
static bool is_old(const naming *n, const zoff_archive_candidate *c, char path[4096])
{
    struct stat about;
    return strcmp(c->name, n->name) != 0 && c->sequence && !c->error &&
           zoff_archive_folder_join(n->folder, c->name, path) == ZOFF_OK && lstat(path, &about) == 0 && S_ISDIR(about.st_mode);
}

/* Hide complete checkpoints beyond the newest `keep`, of which pinned ones are none. Incomplete ones among the newest stay,
 * because they may be copies under way. */
static void prune(const naming *n, const zoff_archive_manifest *m, unsigned keep)
{
    char path[4096];
    unsigned kept = 0;
    uint64_t before = 0; /* sequence of the last checkpoint that is kept */
    size_t count = 0;    /* number of checkpoints that are not pinned: the new one, and those that may be removed */
    holding found;
    zoff_archive_listing l;
    if (zoff_archive_listing_make(n->folder, m->label, &l) < 0) {
        ZOFF_WARN("old checkpoints stay: %s", zoff_last_error());
        return;
    }
    for (size_t i = 0; i < l.count; i++)
        count += !l.all[i].is_pinned && (strcmp(l.all[i].name, n->name) == 0 || is_old(n, &l.all[i], path));
    for (size_t i = 0; i < l.count && count > keep; i++) { /* no manifest has to be read if there are fewer */
        const bool may_go = is_old(n, &l.all[i], path);
        if (l.all[i].is_pinned)
            continue;
        if (may_go && kept >= keep) {
            if (look(path, m, &found) == ZOFF_OK && !found.has_other && found.sequence < before)
                (void)zoff_archive_remove_hide(n->folder, l.all[i].name, path);
        } else if (may_go ? zoff_archive_listing_judge(path, m->label) == ZOFF_OK : strcmp(l.all[i].name, n->name) == 0) {
            kept++;
            before = l.all[i].sequence;
        }
    }
    zoff_archive_listing_free(&l);
}

/* Hide what is no longer needed, under the lock. */
static void clean(const naming *n, const zoff_archive_manifest *m, unsigned keep, bool is_pointed)
{
    zoff_saved_error saved;
    zoff_base_status_save(&saved);
    if (n->was_pinned && !zoff_archive_pin_is_there(n->path))
        ZOFF_WARN("'%s' was pinned, and is replaced by a checkpoint that is not: to keep both, give the new one another "
                  "zoff_checkpoint_opts.name",
                  n->path);
    if (*n->old)
        (void)zoff_archive_remove_hide(n->folder, n->name, n->old);
    zoff_archive_remove_left(n->folder, n->name, n->sequence, keep != 0);
    if (is_pointed && keep)
        prune(n, m, keep);
    zoff_base_status_restore(&saved);
}

zoff_status zoff_archive_publish_manifest(const char *folder, const char *name, const zoff_archive_manifest *m, bool is_new,
                                          unsigned keep)
{
    int lock;
    naming n = {.folder = folder, .name = name};
    bool is_complete = false;
    ZOFF_TRY(zoff_archive_folder_join(folder, name, n.path));
    zoff_archive_folder_work(folder, name, m, n.work);
    ZOFF_TRY(zoff_archive_folder_lock(folder, &lock, &n.is_locked));
    const zoff_status status = publish(&n, m, is_new, &is_complete);
    if (status == ZOFF_OK && is_complete)
        clean(&n, m, keep, point(&n, m));
    zoff_archive_folder_unlock(lock);
    ZOFF_TRY(status);
    zoff_saved_error saved;
    zoff_base_status_save(&saved);
    if (is_complete && zoff_archive_folder_flush(folder) == ZOFF_OK)
        zoff_archive_remove_hidden(folder);
    zoff_base_status_restore(&saved);
    return ZOFF_OK;
}
