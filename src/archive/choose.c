/* SPDX-License-Identifier: Apache-2.0 */
/* choose.c: which checkpoint of a folder is loaded: the complete one with the greatest sequence. `latest` names it, too, unless
 * the save was killed between the renames of its folder and of `latest`. */
#include "archive_priv.h"

#include "log.h"
#include "try.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Name a folder that is not loaded, with the reason in the last error. */
static void warn(const char *path)
{
    ZOFF_WARN("'%s' is no complete checkpoint, and is ignored: %s", path, zoff_last_error());
}

/* The status of a judgement for callers of this room. */
static zoff_status outside(zoff_status status)
{
    return status == ZOFF_ERR_STATE ? ZOFF_ERR_IO : status;
}

/* Judge an error, so that the newest checkpoint is not passed over only because it cannot be read at the moment. */
static zoff_status judge(const char *path, const char *label, int error)
{
    static const char HINT[] = "make it readable, move it away, or load another checkpoint by its own folder";
    const zoff_status status = error ? ZOFF_ERR_IO : zoff_archive_listing_judge(path, label);
    ZOFF_FAIL_IF(status == ZOFF_ERR_IO, ZOFF_ERR_IO, "'%s' may be the newest checkpoint, and cannot be read: %s; %s", path,
                 error ? zoff_base_status_errno(error) : zoff_last_error(), HINT);
    return status;
}

/* Compare `latest` with the list, and warn of what it names if that cannot be loaded. `best` was chosen; those before it were
 * named already.  @return ERR_NO_MEMORY */
static zoff_status check_latest(const char *folder, const char *label, const zoff_archive_listing *l, size_t best)
{
    char name[ZOFF_ARCHIVE_NAME_MOST + 1], path[4096];
    size_t at = 0;
    const zoff_status status = zoff_archive_latest_read(folder, name);
    if (status == ZOFF_ERR_CORRUPT)
        ZOFF_WARN("%s: it is ignored. To load another checkpoint than the newest, give its own folder", zoff_last_error());
    if (status < 0)
        return status == ZOFF_ERR_NO_MEMORY ? status : ZOFF_OK;
    while (at < l->count && strcmp(l->all[at].name, name) != 0)
        at++;
    if (at == l->count)
        ZOFF_WARN("'%s/latest' names '%s', which is not there", folder, name);
    else if (at > best && l->all[at].sequence && zoff_archive_folder_join(folder, name, path) == ZOFF_OK &&
             zoff_archive_listing_judge(path, label) < 0)
        warn(path);
    return ZOFF_OK;
}

/* Find the newest complete one. *out is l->count if there is none; then `why` has the reason of the first that is not complete.
 * A checkpoint of a newer version is an error: a run must not go on from an older one because the library is old. The same
 * holds for one that cannot be read.
 * @return PENDING: a save or a removal came between the list and the look at a checkpoint, so the list is old */
static zoff_status find_newest(const char *folder, const char *label, const zoff_archive_listing *l, zoff_saved_error *why,
                               size_t *out)
{
    size_t best = l->count;
    char path[4096];
    for (size_t i = 0; i < l->count; i++) {
        if (best < l->count && l->all[i].sequence)
            continue; /* the checkpoint is an older one */
        if (zoff_archive_folder_join(folder, l->all[i].name, path) < 0)
            continue;
        const zoff_status status = judge(path, label, l->all[i].error);
        if (status == ZOFF_OK && (!l->all[i].sequence || l->all[i].sequence > ZOFF_ARCHIVE_SEQUENCE_MOST))
            return ZOFF_PENDING; /* the checkpoint was not complete a moment ago, and may be the newest */
        if (status == ZOFF_OK) {
            best = i;
            continue;
        }
        zoff_saved_error saved;
        zoff_base_status_save(&saved);
        if (zoff_archive_listing_has_moved(folder, label, &l->all[i]))
            return ZOFF_PENDING;
        zoff_base_status_restore(&saved);
        if (status != ZOFF_ERR_STATE && status != ZOFF_ERR_CORRUPT)
            return status;
        if (!l->all[i].is_foreign)
            warn(path);
        if (!*why->text)
            zoff_base_status_save(why);
    }
    *out = best;
    return ZOFF_OK;
}

/* Whether the list lacks the checkpoint that `latest` names, which is there. A save that has ended has named it, so the list
 * cannot pass by it unnoticed, however often its folder changes. */
static bool lacks_latest(const char *folder, const zoff_archive_listing *l)
{
    char name[ZOFF_ARCHIVE_NAME_MOST + 1], path[4096];
    if (zoff_archive_latest_read(folder, name) < 0)
        return false;
    for (size_t i = 0; i < l->count; i++) {
        if (strcmp(l->all[i].name, name) == 0)
            return false;
    }
    return zoff_archive_folder_join(folder, name, path) == ZOFF_OK && zoff_archive_listing_has_any(path);
}

/* Whether the list lacks a checkpoint that is newer than the one that was chosen (`newest`; 0: none was). A folder may take its
 * name, or another one, where the list has passed by already. */
static bool has_newer(const char *folder, const char *label, const zoff_archive_listing *l, uint64_t newest)
{
    bool has = false;
    zoff_archive_listing again = {.all = NULL};
    if (zoff_archive_listing_make(folder, label, &again) < 0)
        return false;
    for (size_t i = 0; i < again.count && again.all[i].sequence > newest && !has; i++) {
        has = true;
        for (size_t k = 0; k < l->count && has; k++)
            has = l->all[k].sequence != again.all[i].sequence || strcmp(l->all[k].name, again.all[i].name) != 0;
    }
    zoff_archive_listing_free(&again);
    return has;
}

static zoff_status choose(const char *folder, const char *label, const zoff_archive_listing *l, char **out, uint64_t *out_least)
{
    size_t best = l->count;
    char path[4096];
    zoff_saved_error before, why = {.text = ""};
    zoff_base_status_save(&before);
    ZOFF_TRY_DONE(find_newest(folder, label, l, &why, &best));
    if (has_newer(folder, label, l, best < l->count ? l->all[best].sequence : 0) || lacks_latest(folder, l))
        return ZOFF_PENDING;
    ZOFF_FAIL_IF(best == l->count, ZOFF_ERR_IO, "there is no complete checkpoint in '%s'%s%s", folder, *why.text ? ": " : "",
                 why.text);
    ZOFF_TRY(check_latest(folder, label, l, best));
    zoff_base_status_restore(&before);
    ZOFF_TRY(zoff_archive_folder_join(folder, l->all[best].name, path));
    *out_least = l->all[best].sequence;
    return zoff_base_mem_copy_text(path, out);
}

/* Whether a folder is a checkpoint itself, complete or not. */
static bool is_checkpoint(const char *folder, const char *label)
{
    char name[512], path[4096];
    struct stat about;
    zoff_archive_folder_manifest_name(label, name);
    return zoff_archive_folder_join(folder, name, path) == ZOFF_OK && (stat(path, &about) == 0 || errno != ENOENT);
}

/* @return PENDING: look again */
static zoff_status try_choose(const char *folder, const char *label, char **out, uint64_t *out_least)
{
    *out_least = 0;
    zoff_archive_listing l;
    zoff_saved_error why;
    const bool is_one = is_checkpoint(folder, label);
    zoff_status status = is_one ? zoff_archive_listing_judge(folder, label) : ZOFF_ERR_CORRUPT;
    if (status == ZOFF_OK)
        return zoff_base_mem_copy_text(folder, out);
    if (status != ZOFF_ERR_CORRUPT)
        return outside(status);
    zoff_base_status_save(&why);
    ZOFF_TRY(zoff_archive_listing_make(folder, label, &l));
    if (is_one && l.count) { /* the file may be another program's, because others use this name, too */
        zoff_base_status_restore(&why);
        ZOFF_WARN("%s: it is ignored, as there are checkpoints beside it", zoff_last_error());
    }
    if (l.count || (!is_one && !zoff_archive_listing_has_any(folder)))
        status = choose(folder, label, &l, out, out_least);
    else if (is_one)
        zoff_base_status_restore(&why);
    else if ((status = zoff_archive_listing_judge(folder, label)) == ZOFF_OK)
        status = ZOFF_PENDING; /* it got its name since */
    zoff_archive_listing_free(&l);
    return outside(status);
}

/* Which folder has a name; 0: none, or it cannot be looked at. */
static ino_t folder_of(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0 ? about.st_ino : 0;
}

/* Find a checkpoint that was moved aside by a save that replaces it, or was killed then (publish.c). */
static bool find_aside(const char *path, const char *label, char out[4096])
{
    size_t bytes = strlen(path);
    while (bytes > 1 && path[bytes - 1] == '/')
        bytes--;
    snprintf(out, 4096, "%.*s", (int)bytes, path);
    char name[ZOFF_ARCHIVE_NAME_MOST + 1], *slash = strrchr(out, '/');
    zoff_archive_listing l;
    bool is_there = false;
    if (!slash || slash == out || strlen(slash + 1) > ZOFF_ARCHIVE_NAME_MOST)
        return false;
    strcpy(name, slash + 1);
    *slash = 0;
    if (zoff_archive_listing_make(out, label, &l) < 0)
        return false;
    for (size_t i = 0; i < l.count && !is_there; i++) {
        is_there = zoff_archive_folder_is_aside(l.all[i].name, name);
        if (is_there)
            snprintf(slash, 4096 - (size_t)(slash - out), "/%s", l.all[i].name);
    }
    zoff_archive_listing_free(&l);
    return is_there;
}

/* @return PENDING: another folder has the name since */
static zoff_status try_name(const char *path, const char *label, char **out, uint64_t *out_least)
{
    char aside[4096];
    zoff_saved_error saved;
    const ino_t before = folder_of(path);
    if (!before && errno == ENOENT) {
        zoff_base_status_save(&saved);
        const bool is_aside = find_aside(path, label, aside);
        zoff_base_status_restore(&saved);
        if (is_aside && try_choose(aside, label, out, out_least) == ZOFF_OK)
            return ZOFF_OK;
        zoff_base_status_restore(&saved);
        return folder_of(path) || is_aside ? ZOFF_PENDING : try_choose(path, label, out, out_least);
    }
    const zoff_status status = try_choose(path, label, out, out_least);
    return status < 0 && folder_of(path) != before ? ZOFF_PENDING : status;
}

zoff_status zoff_archive_choose(const char *folder, const char *label, char **out, uint64_t *out_least)
{
    enum { TRIES = 1000 };
    zoff_status status = ZOFF_PENDING;
    for (unsigned i = 0; i < TRIES && status == ZOFF_PENDING; i++)
        status = try_name(folder, label, out, out_least);
    ZOFF_FAIL_IF(status == ZOFF_PENDING, ZOFF_ERR_IO, "the checkpoints in '%s' change faster than they can be looked at",
                 folder);
    return status;
}

/* The clock, unless a checkpoint is from the future. */
uint64_t zoff_archive_choose_sequence(const char *folder)
{
    struct timespec now;
    zoff_saved_error saved;
    zoff_archive_listing l;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t sequence = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    zoff_base_status_save(&saved);
    if (zoff_archive_listing_make(folder, NULL, &l) == ZOFF_OK) {
        for (size_t i = 0; i < l.count; i++) {
            const uint64_t other = l.all[i].sequence;
            sequence = other >= sequence && other < ZOFF_ARCHIVE_SEQUENCE_MOST ? other + 1 : sequence;
        }
        zoff_archive_listing_free(&l);
    }
    zoff_base_status_restore(&saved);
    return sequence;
}
