/* SPDX-License-Identifier: Apache-2.0 */
/* pin.c: checkpoints that stay, whatever `keep` of later saves says. A file without bytes in the folder of a checkpoint pins
 * it:
 * `[LABEL.]ID.pinned`. It has the id of the save that made the checkpoint, so what is left of it never pins another save.
 * Readers pass over it. It comes and goes under the lock of the folder of checkpoints, so a save that removes old checkpoints
 * sees it, or has removed the checkpoint before. */
#include "archive_priv.h"

#include "bits.h"
#include "try.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

zoff_status zoff_archive_pin_write(const char *folder, const char *label, const char *id)
{
    char name[512], path[4096], early[4096];
    zoff_archive_folder_pin_name(label, id, name);
    ZOFF_TRY(zoff_archive_folder_join(folder, name, path));
    ZOFF_FAIL_IF(snprintf(early, sizeof early, "%s/.%s.new", folder, name) >= (int)sizeof early, ZOFF_ERR_INVALID,
                 "the path '%.100s...' is too long", folder);
    return zoff_archive_folder_write_file(early, path, "", 0);
}

/* Find pins, and remove them if asked to.  *out_found: whether there was one */
static zoff_status look(const char *folder, bool removes, bool *out_found)
{
    char path[4096], label[ZOFF_ARCHIVE_LABEL_MOST + 1], id[ZOFF_ARCHIVE_ID_BYTES];
    const char *name = "";
    *out_found = false;
    DIR *entries = opendir(folder);
    ZOFF_FAIL_IF(!entries, ZOFF_ERR_IO, "cannot open the folder '%s': %s", folder, zoff_base_status_errno(errno));
    zoff_status status = zoff_archive_folder_next(entries, folder, &name);
    while (status == ZOFF_OK && name) {
        const bool is_pin = zoff_archive_folder_is_pin(name, label, id);
        *out_found = *out_found || is_pin;
        if (is_pin && removes)
            status = zoff_archive_folder_join(folder, name, path);
        if (is_pin && removes && status == ZOFF_OK && unlink(path) != 0 && errno != ENOENT)
            status = zoff_base_status_fail(ZOFF_ERR_IO, "cannot remove '%s': %s", path, zoff_base_status_errno(errno));
        if (status == ZOFF_OK)
            status = zoff_archive_folder_next(entries, folder, &name);
    }
    closedir(entries);
    return status;
}

bool zoff_archive_pin_is_there(const char *folder)
{
    bool found;
    zoff_saved_error saved;
    zoff_base_status_save(&saved);
    const bool is_there = look(folder, false, &found) == ZOFF_OK && found;
    zoff_base_status_restore(&saved);
    return is_there;
}

/* ---- public calls ---- */

/* Under the lock. The checkpoint may have been removed or replaced since it was chosen. */
static zoff_status change(const char *path, const char *label, bool pins)
{
    bool found;
    zoff_archive_manifest m;
    ZOFF_TRY(zoff_archive_listing_read(path, label, &m, NULL, NULL));
    const zoff_status status = pins ? zoff_archive_pin_write(path, label, m.id) : look(path, true, &found);
    zoff_archive_manifest_free(&m);
    ZOFF_TRY(status);
    return zoff_archive_folder_flush(path);
}

/* A link to a checkpoint stands in another folder than the checkpoint, whose folder is the one to lock. */
static zoff_status change_chosen(const char *chosen, const char *label, bool pins)
{
    char path[PATH_MAX], around[PATH_MAX];
    int lock;
    bool is_locked;
    ZOFF_FAIL_IF(!realpath(chosen, path), ZOFF_ERR_IO, "cannot find '%s': %s", chosen, zoff_base_status_errno(errno));
    snprintf(around, sizeof around, "%.*s", (int)zoff_base_bits_max((size_t)(strrchr(path, '/') - path), (size_t)1), path);
    ZOFF_TRY(zoff_archive_folder_lock(around, &lock, &is_locked));
    const zoff_status status = change(path, label, pins);
    zoff_archive_folder_unlock(lock);
    return status == ZOFF_ERR_STATE ? ZOFF_ERR_IO : status;
}

static zoff_status choose_and_change(const char *folder, const char *label, bool pins, const char *call)
{
    char *chosen, what[64];
    uint64_t least;
    ZOFF_FAIL_IF(!folder || !*folder, ZOFF_ERR_INVALID, "%s: folder must not be NULL or empty", call);
    snprintf(what, sizeof what, "%s: label", call);
    if (label && *label)
        ZOFF_TRY(zoff_archive_folder_check_label(what, label));
    ZOFF_TRY(zoff_archive_choose(folder, label ? label : "", &chosen, &least));
    const zoff_status status = change_chosen(chosen, label ? label : "", pins);
    zoff_base_mem_free(chosen);
    return status;
}

zoff_status zoff_checkpoint_pin(const char *folder, const char *label)
{
    return choose_and_change(folder, label, true, "zoff_checkpoint_pin");
}

zoff_status zoff_checkpoint_unpin(const char *folder, const char *label)
{
    return choose_and_change(folder, label, false, "zoff_checkpoint_unpin");
}
