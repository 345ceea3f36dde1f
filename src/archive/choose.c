/* choose.c: which checkpoint of a folder is loaded, what `latest` names, and which old ones are removed.
 *
 * The newest complete checkpoint has the greatest sequence. `latest` names it, except when a process was killed between the two
 * renames that complete a save: then a manifest is younger than `latest`. */
#include "archive_priv.h"

#include "array.h"
#include "log.h"
#include "try.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char LATEST[] = "latest";

/* One folder that may be a checkpoint. */
typedef struct candidate {
    char *name;
    uint64_t sequence;
    bool is_valid, is_complete;
} candidate;

typedef struct listing {
    candidate *all;
    size_t count, room;
} listing;

static bool exists(const char *folder, const char *name, struct stat *out)
{
    char path[PATH_MAX];
    struct stat about;
    const int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    return length < PATH_MAX && stat(path, out ? out : &about) == 0;
}

zoff_status zoff_archive_choose_read(const char *folder, const char *label, zoff_archive_manifest *out, char **out_text,
                                     size_t *out_bytes)
{
    char name[512], where[PATH_MAX + 512], *text;
    size_t bytes;
    zoff_archive_folder_manifest_name(label, name);
    ZOFF_TRY(zoff_archive_folder_read_file(folder, name, ZOFF_ARCHIVE_MANIFEST_MOST, &text, &bytes));
    snprintf(where, sizeof where, "%s/%s", folder, name);
    zoff_status status = zoff_archive_manifest_read(where, text, bytes, out);
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

/* The label in the name of a manifest; false: it is another file. */
static bool label_of(const char *name, char label[256])
{
    static const char END[] = "manifest.json";
    const size_t bytes = strlen(name), end = sizeof END - 1;
    if (bytes < end || bytes - end > 256 || strcmp(name + bytes - end, END) != 0)
        return false;
    if (bytes > end && (name[bytes - end - 1] != '.' || name[0] == '.'))
        return false;
    snprintf(label, 256, "%.*s", bytes > end ? (int)(bytes - end - 1) : 0, name);
    return true;
}

/* How many engines have saved step `t` into the checkpoint. */
static unsigned count_engines(const char *folder, int64_t t)
{
    unsigned count = 0;
    char label[256];
    const struct dirent *entry;
    DIR *list = opendir(folder);
    while (list && (entry = readdir(list))) {
        zoff_archive_manifest m;
        if (!label_of(entry->d_name, label) || zoff_archive_choose_read(folder, label, &m, NULL, NULL) < 0)
            continue;
        count += m.t == t;
        zoff_archive_manifest_free(&m);
    }
    if (list)
        closedir(list);
    return count;
}

static bool is_complete(const char *folder, const zoff_archive_manifest *m)
{
    return m->engines <= 1 || count_engines(folder, m->t) >= m->engines;
}

/* ---- a list of checkpoints ---- */

static void free_listing(listing *l)
{
    for (size_t i = 0; i < l->count; i++)
        zoff_base_mem_free(l->all[i].name);
    zoff_base_mem_free(l->all);
    *l = (listing){.all = NULL};
}

/* Whether a folder has files of a checkpoint. */
static bool has_files(const char *folder)
{
    bool has = false;
    const struct dirent *entry;
    DIR *list = opendir(folder);
    while (list && !has && (entry = readdir(list)))
        has = fnmatch("*.rank-[0-9]*.states", entry->d_name, 0) == 0 || fnmatch("*manifest.json", entry->d_name, 0) == 0;
    if (list)
        closedir(list);
    return has;
}

/* Read the manifest of one candidate. A folder without a valid one is named, and ignored. */
static void judge(const char *folder, const char *label, candidate *c)
{
    char path[PATH_MAX];
    zoff_archive_manifest m;
    zoff_saved_error saved;
    zoff_base_status_save(&saved);
    if (snprintf(path, sizeof path, "%s/%s", folder, c->name) < PATH_MAX) {
        if (zoff_archive_choose_read(path, label, &m, NULL, NULL) == ZOFF_OK) {
            c->is_valid = true;
            c->sequence = m.sequence;
            c->is_complete = is_complete(path, &m);
            zoff_archive_manifest_free(&m);
        }
        if (!c->is_valid)
            ZOFF_WARN("'%s' is no complete checkpoint, and is ignored: %s", path, zoff_last_error());
        else if (!c->is_complete)
            ZOFF_WARN("'%s' is ignored: not all engines have saved into it", path);
    }
    zoff_base_status_restore(&saved);
}

/* Add a folder that looks like a checkpoint. */
static zoff_status add(const char *folder, const char *name, listing *l)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= PATH_MAX || !has_files(path))
        return ZOFF_OK;
    ZOFF_TRY(zoff_base_array_reserve(&l->all, l->count, &l->room, l->count + 1, sizeof *l->all, "checkpoints"));
    ZOFF_TRY(zoff_base_mem_copy_text(name, &l->all[l->count].name));
    l->count++;
    return ZOFF_OK;
}

static zoff_status list_all(const char *folder, listing *out)
{
    zoff_status status = ZOFF_OK;
    const struct dirent *entry;
    listing l = {.all = NULL};
    DIR *list = opendir(folder);
    ZOFF_FAIL_IF(!list, ZOFF_ERR_IO, "cannot open the folder '%s': %s", folder, zoff_base_status_errno(errno));
    while (status == ZOFF_OK && (entry = readdir(list))) {
        if (entry->d_name[0] != '.')
            status = add(folder, entry->d_name, &l);
    }
    closedir(list);
    if (status < 0)
        free_listing(&l);
    else
        *out = l;
    return status;
}

static const candidate *newest(const listing *l)
{
    const candidate *best = NULL;
    for (size_t i = 0; i < l->count; i++) {
        if (l->all[i].is_complete && (!best || l->all[i].sequence > best->sequence))
            best = &l->all[i];
    }
    return best;
}

/* ---- choosing ---- */

static bool read_latest(const char *folder, char name[ZOFF_ARCHIVE_NAME_MOST + 1], struct stat *out)
{
    char *text;
    size_t bytes;
    zoff_saved_error saved;
    zoff_base_status_save(&saved);
    bool holds = exists(folder, LATEST, out) && zoff_archive_folder_read_file(folder, LATEST, 4096, &text, &bytes) == ZOFF_OK;
    if (holds) {
        text[strcspn(text, "\n")] = 0;
        holds = zoff_archive_folder_check_name("latest", text) == ZOFF_OK;
        snprintf(name, ZOFF_ARCHIVE_NAME_MOST + 1, "%s", text);
        zoff_base_mem_free(text);
    }
    zoff_base_status_restore(&saved);
    return holds;
}

static bool is_after(struct timespec a, struct timespec b)
{
    return a.tv_sec != b.tv_sec ? a.tv_sec > b.tv_sec : a.tv_nsec > b.tv_nsec;
}

/* Judge what may be the newest: the checkpoint that `latest` names, and those with a younger manifest. */
static bool judge_some(const char *folder, const char *label, listing *l)
{
    char manifest[512], latest[ZOFF_ARCHIVE_NAME_MOST + 1], path[PATH_MAX];
    struct stat when, of_latest;
    if (!read_latest(folder, latest, &of_latest))
        return false;
    bool holds = false;
    zoff_archive_folder_manifest_name(label, manifest);
    for (size_t i = 0; i < l->count; i++) {
        const bool is_named = strcmp(l->all[i].name, latest) == 0;
        if (snprintf(path, sizeof path, "%s/%s", folder, l->all[i].name) >= PATH_MAX)
            continue;
        const bool has_manifest = exists(path, manifest, &when);
        if (is_named || !has_manifest || is_after(when.st_mtim, of_latest.st_mtim))
            judge(folder, label, &l->all[i]);
        holds = holds || (is_named && l->all[i].is_complete);
    }
    return holds;
}

static zoff_status choose(const char *folder, const char *label, listing *l, char **out)
{
    char path[PATH_MAX];
    ZOFF_TRY(list_all(folder, l));
    if (!judge_some(folder, label, l)) {
        for (size_t i = 0; i < l->count; i++)
            judge(folder, label, &l->all[i]);
    }
    const candidate *best = newest(l);
    ZOFF_FAIL_IF(!best, ZOFF_ERR_IO, "there is no complete checkpoint%s%s in '%s'", *label ? " of " : "", label, folder);
    snprintf(path, sizeof path, "%s/%s", folder, best->name);
    return zoff_base_mem_copy_text(path, out);
}

zoff_status zoff_archive_choose(const char *folder, const char *label, char **out)
{
    char manifest[512];
    listing l = {.all = NULL};
    zoff_archive_manifest m;
    zoff_archive_folder_manifest_name(label, manifest);
    if (!exists(folder, manifest, NULL)) {
        const zoff_status status = choose(folder, label, &l, out);
        free_listing(&l);
        return status;
    }
    ZOFF_TRY(zoff_archive_choose_read(folder, label, &m, NULL, NULL));
    const bool complete = is_complete(folder, &m);
    const unsigned engines = m.engines;
    zoff_archive_manifest_free(&m);
    ZOFF_FAIL_IF(!complete, ZOFF_ERR_IO, "the checkpoint '%s' is not complete: %u engines save into it, and not all have",
                 folder, engines);
    return zoff_base_mem_copy_text(folder, out);
}

/* The clock, unless the newest checkpoint is from the future. */
uint64_t zoff_archive_choose_sequence(const char *folder, const char *label)
{
    struct timespec now;
    uint64_t sequence;
    zoff_saved_error saved;
    clock_gettime(CLOCK_REALTIME, &now);
    sequence = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    zoff_base_status_save(&saved);
    char latest[ZOFF_ARCHIVE_NAME_MOST + 1], path[PATH_MAX];
    struct stat when;
    zoff_archive_manifest m;
    if (read_latest(folder, latest, &when) && snprintf(path, sizeof path, "%s/%s", folder, latest) < PATH_MAX &&
        zoff_archive_choose_read(path, label, &m, NULL, NULL) == ZOFF_OK) {
        sequence = m.sequence >= sequence ? m.sequence + 1 : sequence;
        zoff_archive_manifest_free(&m);
    }
    zoff_base_status_restore(&saved);
    return sequence;
}

/* ---- publishing ---- */

/* Remove files of a folder that match a pattern, but not those that begin with `except`. */
static void remove_files(const char *folder, const char *pattern, const char *except)
{
    char path[PATH_MAX];
    const struct dirent *entry;
    DIR *list = opendir(folder);
    while (list && (entry = readdir(list))) {
        if (fnmatch(pattern, entry->d_name, 0) == 0 && !(except && strncmp(entry->d_name, except, strlen(except)) == 0) &&
            snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) < PATH_MAX)
            (void)unlink(path);
    }
    if (list)
        closedir(list);
}

void zoff_archive_choose_sweep(const char *folder, const char *label, const char *id)
{
    char pattern[512], except[512];
    snprintf(pattern, sizeof pattern, "%s%s????????????????.rank-*.states", label, *label ? "." : "");
    snprintf(except, sizeof except, "%s%s%s.", label, *label ? "." : "", id);
    remove_files(folder, pattern, except);
}

void zoff_archive_choose_remove(const char *folder, const char *label, const char *id)
{
    char pattern[512];
    snprintf(pattern, sizeof pattern, "%s%s%s.rank-*.states", label, *label ? "." : "", id);
    remove_files(folder, pattern, NULL);
}

/* The manifests go first: a checkpoint whose removal is interrupted does not count. */
static void remove_checkpoint(const char *folder, const char *name)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= PATH_MAX)
        return;
    remove_files(path, "*manifest.json", NULL);
    zoff_saved_error saved;
    zoff_base_status_save(&saved);
    (void)zoff_archive_folder_flush(path);
    zoff_base_status_restore(&saved);
    remove_files(path, "*.rank-*.states", NULL);
    remove_files(path, ".*manifest.json.new", NULL);
    if (rmdir(path) != 0)
        ZOFF_WARN("the old checkpoint '%s' is removed, but its folder is not: %s", path, zoff_base_status_errno(errno));
}

static int by_age(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    return x->sequence < y->sequence ? 1 : x->sequence > y->sequence ? -1 : 0;
}

static zoff_status prune(const char *folder, const char *name, const char *label, unsigned keep)
{
    listing l = {.all = NULL};
    unsigned kept = 0;
    ZOFF_TRY(list_all(folder, &l));
    for (size_t i = 0; i < l.count; i++)
        judge(folder, label, &l.all[i]);
    qsort(l.all, l.count, sizeof *l.all, by_age);
    for (size_t i = 0; i < l.count; i++) {
        const bool is_new = strcmp(l.all[i].name, name) == 0;
        if (!l.all[i].is_complete || is_new || ++kept < keep)
            continue;
        remove_checkpoint(folder, l.all[i].name);
    }
    free_listing(&l);
    return ZOFF_OK;
}

zoff_status zoff_archive_choose_publish(const char *folder, const char *name, const zoff_archive_manifest *m, unsigned keep)
{
    char path[PATH_MAX], line[ZOFF_ARCHIVE_NAME_MOST + 2];
    ZOFF_FAIL_IF(snprintf(path, sizeof path, "%s/%s", folder, name) >= PATH_MAX, ZOFF_ERR_INVALID,
                 "the path '%.100s...' is too long", folder);
    zoff_archive_choose_sweep(path, m->label, m->id);
    if (!is_complete(path, m))
        return ZOFF_OK;
    snprintf(line, sizeof line, "%s\n", name);
    ZOFF_TRY(zoff_archive_folder_write_file(folder, LATEST, line, strlen(line)));
    return keep ? prune(folder, name, m->label, keep) : ZOFF_OK;
}
