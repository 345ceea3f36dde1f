/* publish.c: how a checkpoint gets its identity and its name, and how it becomes complete: its manifest is written, `latest`
 * names it, and old ones are removed, in this order. */
#include "archive_priv.h"

#include "log.h"
#include "try.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

zoff_status zoff_archive_publish_id(char out[ZOFF_ARCHIVE_ID_BYTES])
{
    uint64_t id;
    ZOFF_FAIL_IF(getrandom(&id, sizeof id, 0) != sizeof id, ZOFF_ERR_IO, "the system gives no random number");
    snprintf(out, ZOFF_ARCHIVE_ID_BYTES, "%016" PRIx64, id);
    return ZOFF_OK;
}

zoff_status zoff_archive_publish_name(const zoff_checkpoint_opts *opts, int64_t t, char out[ZOFF_ARCHIVE_NAME_MOST + 1])
{
    if (opts->label && *opts->label)
        ZOFF_TRY(zoff_archive_folder_check_label("zoff_checkpoint_opts.label", opts->label));
    if (opts->name) {
        ZOFF_TRY(zoff_archive_folder_check_name("zoff_checkpoint_opts.name", opts->name));
        ZOFF_FAIL_IF(strcmp(opts->name, "latest") == 0, ZOFF_ERR_INVALID,
                     "zoff_checkpoint_opts.name is \"latest\", which is the name of the file beside the checkpoints");
        char label[ZOFF_ARCHIVE_LABEL_MOST + 1], id[ZOFF_ARCHIVE_ID_BYTES];
        ZOFF_FAIL_IF(zoff_archive_folder_is_manifest(opts->name, label) || zoff_archive_folder_is_part(opts->name, label, id),
                     ZOFF_ERR_INVALID,
                     "zoff_checkpoint_opts.name is \"%s\", which is the name of a file in a checkpoint: a load would take the "
                     "folder around it for one",
                     opts->name);
        snprintf(out, ZOFF_ARCHIVE_NAME_MOST + 1, "%s", opts->name);
    } else {
        snprintf(out, ZOFF_ARCHIVE_NAME_MOST + 1, "step-%010" PRId64, t);
    }
    return ZOFF_OK;
}

/* ---- which ones are removed ---- */

/* A link leads to a checkpoint that is counted under its own name, or lies elsewhere. A folder that cannot be read stays. */
static bool is_folder(const char *path)
{
    struct stat about;
    return lstat(path, &about) == 0 && S_ISDIR(about.st_mode);
}

/* Whether prune() may remove a checkpoint. */
static bool is_old(const char *folder, const char *name, const zoff_archive_candidate *c, char path[4096])
{
    return strcmp(c->name, name) != 0 && c->sequence && !c->error &&
           zoff_archive_folder_join(folder, c->name, path) == ZOFF_OK && is_folder(path);
}

/* Remove complete checkpoints beyond the newest `keep`. Incomplete ones among the newest stay: engines may be at work there. An
 * engine that saves alone leaves the files of other labels: they are checkpoints of their own. */
static void prune(const char *folder, const char *name, const zoff_archive_manifest *m, unsigned keep)
{
    char path[4096];
    const char *label = m->label, *removes = m->engines > 1 ? NULL : label;
    unsigned kept = 0;
    uint64_t before = 0; /* the sequence of the last one that is kept */
    size_t count = 0;    /* the new one, and those that may be removed */
    zoff_archive_listing l;
    if (zoff_archive_listing_make(folder, label, &l) < 0) {
        ZOFF_WARN("old checkpoints stay: %s", zoff_last_error());
        return;
    }
    for (size_t i = 0; i < l.count; i++) {
        if (l.all[i].sequence == 0 && zoff_archive_folder_join(folder, l.all[i].name, path) == ZOFF_OK && is_folder(path)) {
            zoff_archive_remove_end(path);
            zoff_archive_remove_killed(path, removes);
        }
        count += strcmp(l.all[i].name, name) == 0 || is_old(folder, name, &l.all[i], path);
    }
    for (size_t i = 0; i < l.count && count > keep; i++) { /* with fewer, no manifest has to be read */
        const bool may_go = is_old(folder, name, &l.all[i], path);
        if (may_go && kept >= keep) {
            zoff_archive_remove_checkpoint(path, removes, before);
        } else if (may_go ? zoff_archive_listing_judge(path, label) == ZOFF_OK : strcmp(l.all[i].name, name) == 0) {
            kept++;
            before = l.all[i].sequence;
        }
    }
    zoff_archive_listing_free(&l);
}

/* ---- the manifest ---- */

/* The save whose name this one takes. */
typedef struct earlier {
    char id[ZOFF_ARCHIVE_ID_BYTES]; /* "": there is none */
    uint64_t sequence;
} earlier;

static zoff_status fail_later(const char *path)
{
    return zoff_base_status_fail(
        ZOFF_ERR_STATE,
        "'%s' was saved by a save that began later than this one: two programs save under this name. That save stays. End one "
        "of the programs, or give each its own folder or zoff_checkpoint_opts.label",
        path);
}

/* The manifest of the label that is there belongs to an earlier save under the same name. If that was complete, then manifests
 * of other engines up to *out belong to it, too. If not, those that it replaced stay replaced. */
static zoff_status find_own(const char *path, const char *label, uint64_t *out, earlier *out_earlier)
{
    zoff_archive_manifest old;
    bool is_complete = false;
    uint64_t last = 0;
    ZOFF_TRY(zoff_archive_listing_read(path, label, &old, NULL, NULL));
    const zoff_status status = zoff_archive_listing_ask(path, &old, &is_complete, &last);
    *out = is_complete ? last : old.replaces;
    out_earlier->sequence = old.sequence;
    memcpy(out_earlier->id, old.id, sizeof old.id);
    zoff_archive_manifest_free(&old);
    return status;
}

/* Set the greatest sequence of manifests that this save replaces. If all engines have saved this step without it, they belong
 * to an earlier save, perhaps with other labels. */
static zoff_status find_replaced(const char *path, zoff_archive_manifest *m, earlier *out_earlier)
{
    zoff_saved_error saved;
    bool is_complete = false;
    uint64_t last = 0;
    zoff_base_status_save(&saved);
    zoff_status status = find_own(path, m->label, &m->replaces, out_earlier);
    if (status == ZOFF_ERR_NO_MEMORY || status == ZOFF_ERR_IO)
        return status;
    zoff_base_status_restore(&saved); /* there is none, or one that cannot be loaded */
    /* A job that hung, and was started anew meanwhile, would put back an older state. */
    if (out_earlier->sequence > m->sequence)
        return fail_later(path);
    if (m->engines <= 1)
        return ZOFF_OK;
    ZOFF_TRY(zoff_archive_listing_ask(path, m, &is_complete, &last));
    m->replaces = is_complete && last > m->replaces ? last : m->replaces;
    return ZOFF_OK;
}

/* A save that began before those that it replaces were complete must not replace itself. */
static void raise_sequence(zoff_archive_manifest *m)
{
    if (m->sequence <= m->replaces && m->replaces < ZOFF_ARCHIVE_SEQUENCE_MOST)
        m->sequence = m->replaces + 1;
}

/* A manifest that takes its name. */
typedef struct taking {
    char own[4096];  /* the name that it takes */
    char early[512]; /* its hidden name before, in the same folder */
    char from[4096]; /* the path of that */
    char kept[4096]; /* the manifest that it replaces, until the new one is durable */
    bool has_old, has_taken;
    struct stat file, old; /* which files they are */
} taking;

/* Whether a path leads to this file. It is told without opening it: after an error that may be impossible. */
static bool is_file(const char *path, const struct stat *file)
{
    struct stat about;
    return lstat(path, &about) == 0 && about.st_dev == file->st_dev && about.st_ino == file->st_ino &&
           about.st_mtim.tv_sec == file->st_mtim.tv_sec && about.st_mtim.tv_nsec == file->st_mtim.tv_nsec;
}

/* rename() by which no manifest is lost.  @return errno; ENOSYS: the file system, or a filter, does not have it */
static int rename_by(unsigned flags, const char *from, const char *to)
{
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, flags) == 0)
        return 0;
    return errno == EINVAL || errno == EPERM || errno == EOPNOTSUPP ? ENOSYS : errno;
}

/* The same by links. Without a second name the old manifest could not be put back, so a save that would replace it does not
 * begin to. */
static zoff_status take_by_links(taking *n, const zoff_archive_manifest *m, const char *path, int *out_error)
{
    char hidden[512];
    zoff_archive_folder_hidden_name(m->label, ZOFF_ARCHIVE_MANIFEST, m->id, ".old", hidden);
    ZOFF_TRY(zoff_archive_folder_join(path, hidden, n->kept));
    (void)unlink(n->kept); /* of an earlier try */
    const int error = link(n->has_old ? n->own : n->from, n->has_old ? n->kept : n->own) == 0 ? 0 : errno;
    ZOFF_FAIL_IF(error && error != ENOENT && n->has_old, ZOFF_ERR_IO,
                 "cannot keep '%s' as '%s' until it is replaced: %s; give the checkpoint another name", n->own, n->kept,
                 zoff_base_status_errno(error));
    *out_error = error;
    if (!error && !n->has_old)
        (void)unlink(n->from);                   /* it has both names */
    else if (error != EEXIST && error != ENOENT) /* a file system without links can only rename */
        *out_error = rename(n->from, n->own) == 0 ? 0 : errno;
    return ZOFF_OK;
}

/* The manifest that came out by an exchange.  @return ERR_STATE: it is gone, as a later save has replaced this one and removes
 * its files */
static zoff_status read_out(const taking *n, const char *path, earlier *out)
{
    zoff_archive_manifest m = {.sequence = 0};
    const zoff_status status = zoff_archive_listing_read_facts(path, n->early, &m);
    out->sequence = m.sequence;
    memcpy(out->id, m.id, sizeof out->id);
    zoff_archive_manifest_free(&m);
    return status == ZOFF_ERR_CORRUPT || status == ZOFF_ERR_UNSUPPORTED ? ZOFF_OK : status; /* it may be no manifest */
}

/* Without a lock another save may have come between the look at the old manifest and the exchange. The one that began last
 * gets the name. */
static zoff_status settle(taking *n, const zoff_archive_manifest *m, const char *path, earlier *out_earlier)
{
    uint64_t put = m->sequence; /* of the one that was given the name last */
    zoff_status status;
    if (is_file(n->from, &n->old))
        return ZOFF_OK;
    while ((status = read_out(n, path, out_earlier)) == ZOFF_OK && out_earlier->sequence > put) {
        put = out_earlier->sequence; /* it goes back */
        if (rename_by(RENAME_EXCHANGE, n->from, n->own) != 0 && rename(n->from, n->own) != 0 && errno != ENOENT)
            return zoff_archive_folder_fail_rename(n->from, n->own, errno);
    }
    if (status == ZOFF_OK ? put == m->sequence : status != ZOFF_ERR_STATE)
        return status;
    n->has_taken = false;
    return fail_later(path);
}

/* Give the new manifest its name.  @return PENDING: another save or a removal came between */
static zoff_status take(taking *n, const zoff_archive_manifest *m, const char *path, earlier *out_earlier)
{
    const bool is_folder = n->has_old && S_ISDIR(n->old.st_mode); /* another program's */
    int error = is_folder ? EISDIR : rename_by(n->has_old ? RENAME_EXCHANGE : RENAME_NOREPLACE, n->from, n->own);
    memcpy(n->kept, n->from, sizeof n->kept);
    const bool is_exchanged = !error && n->has_old;
    if (error == ENOSYS)
        ZOFF_TRY(take_by_links(n, m, path, &error));
    if (error == EEXIST || error == ENOENT)
        return ZOFF_PENDING;
    if (error)
        return zoff_archive_folder_fail_rename(n->from, n->own, error);
    n->has_taken = true;
    return is_exchanged ? settle(n, m, path, out_earlier) : ZOFF_OK;
}

/* After an error: put the old manifest back, if the new one has taken its place and is still there. This reads nothing and
 * opens no file, since the disk or the process may just have failed at that.  @return whether it was there */
static bool put_back(const char *path, const taking *n)
{
    zoff_saved_error saved;
    zoff_base_status_save(&saved);
    const bool is_there = n->has_taken && is_file(n->own, &n->file);
    if (is_there && (n->has_old ? rename(n->kept, n->own) : unlink(n->own)) != 0)
        ZOFF_WARN("'%s' is of a save that failed, and cannot be taken back: %s. If files of it are missing, loads ignore it",
                  n->own, zoff_base_status_errno(errno));
    if (n->has_taken && !is_there)
        (void)unlink(n->kept); /* a later save has replaced it, too */
    if (n->has_taken)
        (void)zoff_archive_folder_flush(path);
    zoff_base_status_restore(&saved);
    return is_there;
}

/* Point `latest` at a complete checkpoint, unless it names one that was begun later. */
static zoff_status point(const char *folder, const char *name, const zoff_archive_manifest *m)
{
    char latest[ZOFF_ARCHIVE_NAME_MOST + 1], path[4096];
    zoff_archive_manifest other = {.label = NULL};
    zoff_saved_error saved;
    zoff_base_status_save(&saved);
    const bool is_later =
        zoff_archive_latest_read(folder, latest) == ZOFF_OK && zoff_archive_folder_join(folder, latest, path) == ZOFF_OK &&
        zoff_archive_listing_read(path, m->label, &other, NULL, NULL) == ZOFF_OK && other.sequence > m->sequence;
    zoff_archive_manifest_free(&other);
    zoff_base_status_restore(&saved);
    return is_later ? ZOFF_OK : zoff_archive_latest_write(folder, name, m);
}

/* Another host that does not see the lock of this save may have removed files of it just before. A save that has replaced it
 * since may do so, too. */
static zoff_status check_files(const char *path, const zoff_archive_manifest *m, const taking *n)
{
    zoff_saved_error before;
    zoff_base_status_save(&before);
    if (zoff_archive_listing_has_files(path, m) == ZOFF_ERR_STATE && put_back(path, n))
        return zoff_base_status_prefix(ZOFF_ERR_IO, "another program has removed this save before it was complete: ");
    zoff_base_status_restore(&before);
    return ZOFF_OK;
}

static zoff_status write_manifest(const char *path, const char *file, const zoff_archive_manifest *m, taking *out)
{
    char *text;
    size_t bytes;
    zoff_archive_folder_hidden_name(m->label, ZOFF_ARCHIVE_MANIFEST, m->id, ".new", out->early);
    ZOFF_TRY(zoff_archive_folder_join(path, file, out->own));
    ZOFF_TRY(zoff_archive_folder_join(path, out->early, out->from));
    ZOFF_TRY(zoff_archive_manifest_print(m, &text, &bytes));
    const zoff_status status = zoff_archive_folder_write_file(out->from, text, bytes);
    zoff_base_mem_free(text);
    ZOFF_TRY(status);
    ZOFF_FAIL_IF(lstat(out->from, &out->file) != 0, ZOFF_ERR_IO, "cannot look at '%s': %s", out->from,
                 zoff_base_status_errno(errno));
    return ZOFF_OK;
}

/* Write `latest` if all engines have saved. The manifest is durable, so an error no longer undoes the save: loads do not need
 * `latest`.  @return the checkpoint is complete, and `latest` names it or a newer one */
static bool complete(const char *folder, const char *path, const char *name, const zoff_archive_manifest *m)
{
    uint64_t last;
    bool is_complete = false;
    zoff_saved_error saved;
    zoff_base_status_save(&saved);
    zoff_status status = zoff_archive_listing_ask(path, m, &is_complete, &last);
    if (status == ZOFF_OK && is_complete)
        status = point(folder, name, m);
    if (status < 0)
        ZOFF_WARN("'%s' is saved, but '%s/latest' may not name it, and old checkpoints stay: %s", path, folder,
                  zoff_last_error());
    zoff_base_status_restore(&saved);
    return status == ZOFF_OK && is_complete;
}

/* @return PENDING: another save or a removal came between */
static zoff_status try_take(const char *path, const char *file, zoff_archive_manifest *m, bool is_new, taking *n,
                            earlier *out_earlier)
{
    if (is_new)
        ZOFF_TRY(zoff_archive_listing_check_free(path, m->label));
    ZOFF_TRY(zoff_archive_folder_join(path, file, n->own));
    n->has_old = lstat(n->own, &n->old) == 0;
    ZOFF_TRY(find_replaced(path, m, out_earlier));
    raise_sequence(m);
    ZOFF_TRY(write_manifest(path, file, m, n));
    const zoff_status status = take(n, m, path, out_earlier);
    if (status != ZOFF_OK && !n->has_taken) {
        (void)unlink(n->from);
        (void)unlink(n->kept);
    }
    return status;
}

/* Give the manifest its name, in place of that of an earlier save. */
static zoff_status replace(const char *path, zoff_archive_manifest *m, bool is_new, earlier *out_earlier)
{
    enum { TRIES = 100 };
    char file[512];
    taking n = {.has_taken = false};
    zoff_status status = ZOFF_PENDING;
    zoff_archive_folder_manifest_name(m->label, file);
    for (unsigned i = 0; i < TRIES && status == ZOFF_PENDING; i++) {
        *out_earlier = (earlier){.sequence = 0};
        status = try_take(path, file, m, is_new, &n, out_earlier);
    }
    ZOFF_FAIL_IF(status == ZOFF_PENDING, ZOFF_ERR_IO, "other programs change '%s' again and again", n.own);
    if (status == ZOFF_OK)
        status = zoff_archive_folder_flush(path);
    if (status == ZOFF_OK)
        ZOFF_TRY(check_files(path, m, &n));
    if (status < 0)
        put_back(path, &n);
    else if (n.has_old)
        (void)unlink(n.kept);
    return status;
}

zoff_status zoff_archive_publish_manifest(const char *folder, const char *name, const zoff_archive_manifest *m, bool is_new,
                                          unsigned keep)
{
    int lock;
    char path[4096];
    zoff_archive_manifest written = *m, replaced = *m;
    earlier before = {.sequence = 0};
    written.replaces = 0;
    ZOFF_TRY(zoff_archive_folder_join(folder, name, path));
    zoff_status status = zoff_archive_listing_has_files(path, m);
    if (status < 0)
        return status == ZOFF_ERR_STATE ? ZOFF_ERR_IO : status;
    /* The files must have their names on the disk before a manifest names them. */
    ZOFF_TRY(zoff_archive_folder_flush(path));
    ZOFF_TRY(zoff_archive_folder_flush(folder));
    ZOFF_TRY(zoff_archive_folder_lock(path, &lock));
    status = replace(path, &written, is_new, &before);
    zoff_archive_folder_unlock(lock);
    ZOFF_TRY(status);
    const bool is_complete = complete(folder, path, name, &written);
    memcpy(replaced.id, before.id, sizeof replaced.id);
    if (strcmp(replaced.id, m->id) != 0) /* an earlier try of this save may have come as far */
        zoff_archive_remove_own(path, &replaced);
    zoff_archive_remove_end(path);
    zoff_archive_remove_left(path, m->label);
    if (is_complete && keep)
        prune(folder, name, m, keep);
    return ZOFF_OK;
}
