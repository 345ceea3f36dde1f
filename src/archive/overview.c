/* SPDX-License-Identifier: Apache-2.0 */
/* overview.c: zoff_checkpoint_list(): all checkpoints of a folder, and what saves have left in it.
 *
 * Each one is judged as a load judges it. Saves and removals go on meanwhile. So if the folder has other checkpoints at the end
 * than at the begin, all are looked at again. */
#include "archive_priv.h"

#include "array.h"
#include "try.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct engine {
    char label[ZOFF_ARCHIVE_LABEL_MOST + 1];
    size_t ranks;
} engine;

/* The facts of one entry. */
typedef struct saved_entry {
    const char *name;
    bool is_pinned;
    uint64_t bytes, sequence;
    int64_t t; /* step of the newest manifest */
    time_t written;
    engine *engines;
    size_t engine_count, engine_room;
    zoff_text problem;
    zoff_status status;     /* ERR_NO_MEMORY: nothing can be said of the entry */
    const char *removed_by; /* what removes the entry; NULL: it is in use */
} saved_entry;

static void free_entry(saved_entry *e)
{
    zoff_base_mem_free(e->engines);
    zoff_base_mem_free(e->problem.words);
}

static int by_label(const void *a, const void *b)
{
    return strcmp(((const engine *)a)->label, ((const engine *)b)->label);
}

/* The end of ".replaced" names is theirs alone, see zoff_archive_publish_name(). */
static bool is_aside(const char *name)
{
    const size_t bytes = strlen(name), end = sizeof ZOFF_ARCHIVE_ASIDE - 1;
    return bytes > end && strcmp(name + bytes - end, ZOFF_ARCHIVE_ASIDE) == 0;
}

/* Keep the first problem: the last error. */
static void add_problem(saved_entry *e, zoff_status status)
{
    if (status == ZOFF_ERR_NO_MEMORY)
        e->status = status;
    else if (!e->problem.words)
        zoff_base_array_print(&e->problem, "%s", zoff_last_error());
}

/* Add the facts of one manifest. *newest is the label of the newest one so far. */
static void add_manifest(const char *path, const char *label, char newest[ZOFF_ARCHIVE_LABEL_MOST + 1], saved_entry *e)
{
    zoff_archive_manifest m;
    zoff_status status = zoff_archive_listing_read(path, label, &m, NULL, NULL);
    if (status < 0) {
        add_problem(e, status);
        return;
    }
    status = zoff_archive_listing_has_files(path, &m);
    if (status < 0)
        add_problem(e, status);
    status = zoff_base_array_reserve(&e->engines, e->engine_count, &e->engine_room, e->engine_count + 1, sizeof *e->engines,
                                     "engines");
    if (status < 0) {
        add_problem(e, status);
    } else {
        engine *added = &e->engines[e->engine_count++];
        strcpy(added->label, label);
        added->ranks = m.file_count;
    }
    if (m.sequence > e->sequence) {
        e->sequence = m.sequence;
        e->t = m.t;
        strcpy(newest, label);
    }
    zoff_archive_manifest_free(&m);
}

/* Read the manifests of a folder, and the sizes of its files. A hidden folder needs no name, and is not judged. */
static void look(const char *path, bool is_hidden, saved_entry *e)
{
    char label[ZOFF_ARCHIVE_LABEL_MOST + 1], newest[ZOFF_ARCHIVE_LABEL_MOST + 1] = "", file[4096];
    char id[ZOFF_ARCHIVE_ID_BYTES];
    const char *name = "";
    struct stat about;
    DIR *entries = opendir(path);
    e->written = stat(path, &about) == 0 ? about.st_mtime : 0;
    while (entries && zoff_archive_folder_next(entries, path, &name) == ZOFF_OK && name) {
        if (zoff_archive_folder_join(path, name, file) == ZOFF_OK && stat(file, &about) == 0 && S_ISREG(about.st_mode)) {
            e->bytes += (uint64_t)about.st_size;
            e->written = about.st_mtime > e->written ? about.st_mtime : e->written;
        }
        if (zoff_archive_folder_is_manifest(name, label))
            add_manifest(path, label, newest, e);
        e->is_pinned = e->is_pinned || zoff_archive_folder_is_pin(name, label, id);
    }
    if (entries)
        closedir(entries);
    const zoff_status status = is_hidden || e->problem.words ? ZOFF_OK : zoff_archive_listing_judge(path, newest);
    if (status < 0)
        add_problem(e, status);
}

static void print_entry(saved_entry *e, const char *latest, zoff_text *to)
{
    const uint64_t seconds = e->sequence ? e->sequence / 1000000000 : (uint64_t)e->written;
    zoff_base_array_print(to, "%s{\"name\": ", to->bytes && to->words[to->bytes - 1] == '}' ? ",\n" : "\n");
    zoff_base_array_print_json(to, e->name);
    zoff_base_array_print(to, ", \"complete\": %s, \"latest\": %s, \"pinned\": %s, \"time\": %" PRIu64 ", \"bytes\": %" PRIu64,
                          e->problem.words ? "false" : "true", strcmp(e->name, latest) == 0 ? "true" : "false",
                          e->is_pinned ? "true" : "false", seconds, e->bytes);
    if (e->sequence)
        zoff_base_array_print(to, ", \"step\": %" PRId64, e->t);
    zoff_base_array_print(to, ", \"engines\": [");
    if (e->engine_count)
        qsort(e->engines, e->engine_count, sizeof *e->engines, by_label);
    for (size_t i = 0; i < e->engine_count; i++)
        zoff_base_array_print(to, "%s{\"label\": \"%s\", \"ranks\": %zu}", i ? ", " : "", e->engines[i].label,
                              e->engines[i].ranks);
    zoff_base_array_print(to, "]");
    if (e->problem.words) {
        zoff_base_array_print(to, ", \"problem\": ");
        zoff_base_array_print_json(to, e->problem.words);
    }
    if (e->removed_by)
        zoff_base_array_print(to, ", \"removed_by\": \"%s\"", e->removed_by);
    zoff_base_array_print(to, "}");
    to->status = to->status < 0 ? to->status : e->problem.status < 0 ? e->problem.status : e->status;
}

static zoff_status print_listed(const char *folder, const zoff_archive_candidate *c, const char *latest, zoff_text *to)
{
    char path[4096];
    saved_entry e = {.name = c->name};
    ZOFF_TRY(zoff_archive_folder_join(folder, c->name, path));
    if (c->error)
        zoff_base_array_print(&e.problem, "%s", zoff_base_status_errno(c->error));
    else
        look(path, false, &e);
    if (e.problem.words)
        e.removed_by = "a save with the same name; others leave it, because it may be a copy under way";
    if (is_aside(c->name))
        e.removed_by = "the next save with the same name, because the one that moved it aside did not end";
    print_entry(&e, latest, to);
    free_entry(&e);
    return to->status;
}

static void print_hidden(const char *path, const char *name, bool is_removed, zoff_text *to)
{
    unsigned engines = 0, wanted = 0;
    saved_entry e = {.name = name};
    const bool is_alive = !is_removed && zoff_archive_remove_is_alive(path, &engines, &wanted);
    look(path, true, &e);
    e.problem.bytes = 0; /* the state of the save is the reason, and not what its files lack */
    if (is_removed)
        zoff_base_array_print(&e.problem, "its removal is under way, or was cut short");
    else if (is_alive)
        zoff_base_array_print(&e.problem, "its save is under way");
    else if (engines)
        zoff_base_array_print(&e.problem, "%u of %u engines have saved, and no other one is saving", engines, wanted);
    else
        zoff_base_array_print(&e.problem, "its save was cut short");
    if (is_removed)
        e.removed_by = "the next save into this folder";
    else if (!is_alive)
        e.removed_by = "the next save with the same name; or a save with `keep`, a day after the last write";
    print_entry(&e, "", to);
    free_entry(&e);
}

static zoff_status print_all_hidden(const char *folder, zoff_text *to)
{
    char path[4096], of[ZOFF_ARCHIVE_WORK_MOST + 1];
    const char *name = "";
    bool is_removed;
    struct stat about;
    DIR *entries = opendir(folder);
    ZOFF_FAIL_IF(!entries, ZOFF_ERR_IO, "cannot open the folder '%s': %s", folder, zoff_base_status_errno(errno));
    zoff_status status = zoff_archive_folder_next(entries, folder, &name);
    while (status == ZOFF_OK && name) {
        if (zoff_archive_folder_is_work(name, of, &is_removed) && zoff_archive_folder_join(folder, name, path) == ZOFF_OK &&
            stat(path, &about) == 0 && S_ISDIR(about.st_mode))
            print_hidden(path, name, is_removed, to);
        status = zoff_archive_folder_next(entries, folder, &name);
    }
    closedir(entries);
    return status;
}

/* Whether the folder has the same checkpoints as when it was listed. */
static zoff_status check_list(const char *folder, const zoff_archive_listing *l)
{
    zoff_archive_listing again;
    ZOFF_TRY(zoff_archive_listing_make(folder, NULL, &again));
    bool is_same = again.count == l->count;
    for (size_t i = 0; i < l->count && is_same; i++)
        is_same = again.all[i].sequence == l->all[i].sequence && strcmp(again.all[i].name, l->all[i].name) == 0;
    zoff_archive_listing_free(&again);
    return is_same ? ZOFF_OK : ZOFF_PENDING;
}

/* @return PENDING: look again */
static zoff_status print(const char *folder, zoff_text *to)
{
    char latest[ZOFF_ARCHIVE_NAME_MOST + 1] = "";
    zoff_archive_listing l;
    to->bytes = 0;
    ZOFF_TRY(zoff_archive_listing_make(folder, NULL, &l));
    if (l.count == 0 && zoff_archive_listing_has_any(folder)) {
        zoff_archive_listing_free(&l);
        return zoff_base_status_fail(
            ZOFF_ERR_INVALID, "'%s' is a checkpoint itself: name the folder around it, or use zoff checkpoint inspect", folder);
    }
    zoff_status status = zoff_archive_latest_read(folder, latest);
    status = status == ZOFF_ERR_NO_MEMORY ? status : ZOFF_OK;
    zoff_base_array_print(to, "{\"folder\": ");
    zoff_base_array_print_json(to, folder);
    zoff_base_array_print(to, *latest ? ", \"latest\": \"%s\", \"checkpoints\": [" : ", \"latest\": null, \"checkpoints\": [",
                          latest);
    for (size_t i = 0; i < l.count && status == ZOFF_OK; i++)
        status = print_listed(folder, &l.all[i], latest, to);
    if (status == ZOFF_OK)
        status = print_all_hidden(folder, to);
    if (status == ZOFF_OK)
        status = check_list(folder, &l);
    zoff_archive_listing_free(&l);
    zoff_base_array_print(to, "]}");
    return status != ZOFF_OK ? status : to->status;
}

zoff_status zoff_checkpoint_list(const char *folder, char *dst, size_t dst_bytes, size_t *out_bytes)
{
    enum { TRIES = 100 };
    zoff_text text = {.words = NULL};
    zoff_saved_error before;
    ZOFF_FAIL_IF(!folder || (dst_bytes && !dst), ZOFF_ERR_INVALID, "zoff_checkpoint_list: folder and dst must not be NULL");
    zoff_base_status_save(&before);
    zoff_status status = ZOFF_PENDING;
    for (unsigned i = 0; i < TRIES && status == ZOFF_PENDING; i++)
        status = print(folder, &text);
    if (status == ZOFF_PENDING)
        status = zoff_base_status_fail(ZOFF_ERR_IO, "the checkpoints in '%s' change faster than they can be looked at", folder);
    if (status == ZOFF_OK) {
        zoff_base_status_restore(&before);
        if (dst_bytes)
            snprintf(dst, dst_bytes, "%s", text.words);
        if (out_bytes)
            *out_bytes = text.bytes;
    }
    zoff_base_mem_free(text.words);
    return status;
}
