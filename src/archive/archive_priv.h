/* SPDX-License-Identifier: Apache-2.0 */
/* archive_priv.h: what the files of this room share. */
#ifndef ZOFF_ARCHIVE_PRIV_H
#define ZOFF_ARCHIVE_PRIV_H

#include "archive.h"

#include <dirent.h>

/* The end of a manifest, around the 16 digits of its checksum. */
#define ZOFF_ARCHIVE_CHECKSUM_BEFORE ",\n  \"checksum\": \""
#define ZOFF_ARCHIVE_CHECKSUM_AFTER "\"\n}\n"
/* The line of a manifest with its sequence, up to the number. No text in JSON has a line break, so it is found without parsing.
 */
#define ZOFF_ARCHIVE_SEQUENCE_LINE "\n  \"sequence\": "

/* The file that names the newest checkpoint, and the names of manifests without their labels. */
#define ZOFF_ARCHIVE_LATEST "latest"
#define ZOFF_ARCHIVE_MANIFEST "manifest.json"

/* The end of the hidden name of a folder that is being removed, and that of a checkpoint which gives up its name. */
#define ZOFF_ARCHIVE_REMOVED ".removed"
#define ZOFF_ARCHIVE_ASIDE ".replaced"
enum { ZOFF_ARCHIVE_WORK_MOST = 200 }; /* most bytes of a checkpoint's name in the name of the hidden folder of its save */

/* A save whose lock nobody can see counts as under way for so long after the last write of rank 0. */
enum { ZOFF_ARCHIVE_LEASE_SECONDS = 24 * 60 * 60 };

/* The most bytes of a manifest that are read. */
#define ZOFF_ARCHIVE_MANIFEST_MOST ((size_t)4 << 30)
/* Elements of one parameter, and the greatest sequence: products and sums of them fit 64 bits, and JSON's integers. */
#define ZOFF_ARCHIVE_ELEMENTS_MOST ((size_t)1 << 58)
#define ZOFF_ARCHIVE_SEQUENCE_MOST ((uint64_t)1 << 62)

/* ---- folder.c: files ---- */

/* Write a file that appears whole: write it under the name `early`, which no other writer uses, flush it, and rename it. The
 * folder is not flushed.  @blocks for the disk */
zoff_status zoff_archive_folder_write_file(const char *early, const char *path, const char *text, size_t bytes);
zoff_status zoff_archive_folder_fail_rename(const char *from, const char *to, int error); /* set the message of an errno */
/* Read a whole file of at most `most` bytes, with a 0 behind it. @owns caller: zoff_base_mem_free()
 * @return ERR_STATE: it is not there; ERR_IO: cannot be read; ERR_CORRUPT: too long, or no file */
zoff_status zoff_archive_folder_read_file(const char *folder, const char *name, size_t most, char **out, size_t *out_bytes);
/* Read all of these bytes.  @return ERR_IO; ERR_CORRUPT where the file ends before */
zoff_status zoff_archive_folder_pread(int fd, const char *path, uint64_t offset, void *dst, size_t bytes);
/* The label in the name of a manifest, of a rank's file or of a pin, whose id is set, too.  @return false: it is another file
 */
bool zoff_archive_folder_is_manifest(const char *name, char label[ZOFF_ARCHIVE_LABEL_MOST + 1]);
/* Whether an entry is the hidden folder of a save. `name`: the begin of its checkpoint's name. *out_removed: it is being
 * removed, so nobody needs it. */
bool zoff_archive_folder_is_work(const char *entry, char name[ZOFF_ARCHIVE_WORK_MOST + 1], bool *out_removed);
/* Whether an entry is the folder of a checkpoint that gives up its name: that of `name`. */
bool zoff_archive_folder_is_aside(const char *entry, const char *name);
bool zoff_archive_folder_is_part(const char *name, char label[ZOFF_ARCHIVE_LABEL_MOST + 1], char id[ZOFF_ARCHIVE_ID_BYTES]);
bool zoff_archive_folder_is_pin(const char *name, char label[ZOFF_ARCHIVE_LABEL_MOST + 1], char id[ZOFF_ARCHIVE_ID_BYTES]);
void zoff_archive_folder_pin_name(const char *label, const char *id, char dst[512]);
/* The next name in a folder; NULL: there is none.  @return ERR_IO */
zoff_status zoff_archive_folder_next(DIR *entries, const char *folder, const char **out);
/* Lock a folder of checkpoints while one in it takes a name or loses it: no other save does so then. *out_locked: false where
 * the file system has no locks on folders.  @owns out: zoff_archive_folder_unlock()
 * @return ERR_IO: a process keeps it locked, or it cannot be opened  @blocks for a minute at most */
zoff_status zoff_archive_folder_lock(const char *folder, int *out, bool *out_locked);
/* Lock an open file, once others have let go of it.  @return as above */
zoff_status zoff_archive_folder_wait(int fd, const char *path, bool *out_locked);
void zoff_archive_folder_unlock(int lock);
/* Join folder and name by "/".  @return ERR_INVALID: the path is too long */
zoff_status zoff_archive_folder_join(const char *folder, const char *name, char dst[4096]);

/* ---- manifest.c ---- */

/* Words in a manifest. */
const char *zoff_archive_manifest_kind(unsigned kind);
/* As zoff_archive_manifest_read(), without the parameters. */
zoff_status zoff_archive_manifest_read_facts(const char *where, const char *text, size_t bytes, zoff_archive_manifest *out);

/* ---- listing.c: the checkpoints of a folder ----
 *
 * ERR_STATE and ERR_CORRUPT say that a checkpoint is not complete: loads take another one. ERR_IO says that it cannot be read,
 * and may be complete. */

/* Read the manifest of a checkpoint; ERR_STATE: there is none. `out_text` is the caller's to free; NULL: only the facts are
 * read, without parameters. */
zoff_status zoff_archive_listing_read(const char *folder, const char *label, zoff_archive_manifest *out, char **out_text,
                                      size_t *out_bytes);
/* Read the facts of a manifest under any name in the folder. */
zoff_status zoff_archive_listing_read_facts(const char *folder, const char *file, zoff_archive_manifest *out);
/* Whether all files of a manifest are there, with their sizes.  @return ERR_STATE, ERR_CORRUPT and ERR_IO name a file */
zoff_status zoff_archive_listing_has_files(const char *folder, const zoff_archive_manifest *m);
/* Ask whether all engines have saved into a checkpoint. *out_last is the greatest sequence of their manifests. */
zoff_status zoff_archive_listing_ask(const char *folder, const zoff_archive_manifest *m, bool *out_complete,
                                     uint64_t *out_last);

/* A folder that may be a checkpoint. */
typedef struct zoff_archive_candidate {
    char *name;
    uint64_t sequence; /* sequence in its manifest, which is not checked yet; 0: there is no manifest of the label */
    int error;         /* errno of a checkpoint that cannot be read, which stands before the others; 0: it can be read */
    bool is_foreign;   /* the folder has manifests, but none of the label */
    bool is_pinned;    /* a pin is in the folder */
} zoff_archive_candidate;

typedef struct zoff_archive_listing {
    zoff_archive_candidate *all;
    size_t count, room;
} zoff_archive_listing;

/* List the folders with files of checkpoints, the newest first. */
zoff_status zoff_archive_listing_make(const char *folder, const char *label, zoff_archive_listing *out);
void zoff_archive_listing_free(zoff_archive_listing *l);
/* Whether a folder has files of a checkpoint. */
bool zoff_archive_listing_has_any(const char *path);
/* Whether a checkpoint was replaced, removed or made since it was listed. */
bool zoff_archive_listing_has_moved(const char *folder, const char *label, const zoff_archive_candidate *c);
/* Check manifest and files of one checkpoint.  @return OK: it is complete; an error says why not */
zoff_status zoff_archive_listing_judge(const char *path, const char *label);

/* ---- pin.c ---- */

/* Pin the save that made the checkpoint in `folder`. The folder is not flushed.  @blocks for the disk */
zoff_status zoff_archive_pin_write(const char *folder, const char *label, const char *id);
/* Whether a checkpoint is pinned. */
bool zoff_archive_pin_is_there(const char *folder);

/* ---- part.c ---- */

/* Claim the files of a save that has ended. While a save is under way, in any process, the file of its rank 0 is locked. Where
 * the file system has no locks, it counts as under way for a day after its last write.
 * @owns out_lock: close() ends the claim; -1: there is nothing to close  @return false: it is under way */
bool zoff_archive_part_claim(const char *folder, const char *label, const char *id, int *out_lock);

/* ---- remove.c ---- */

/* Remove the files that earlier saves of this engine have left in the hidden folder that it shares with others. */
void zoff_archive_remove_ended(const char *work, const char *label);
/* Whether a save writes into a hidden folder. If none does, *out_engines of *out_wanted engines have saved there. */
bool zoff_archive_remove_is_alive(const char *work, unsigned *out_engines, unsigned *out_wanted);
/* Give the folder `path` of a checkpoint `name` a hidden name, under which no reader and no save needs it. Call it under the
 * lock of the folder of checkpoints, as an error may bring a folder back.  @return false: it stays */
bool zoff_archive_remove_hide(const char *folder, const char *name, const char *path);
/* Give a hidden name, under the same lock, to hidden folders of saves that were cut short: those of the checkpoint `name` that
 * are older than `sequence`. With `others` it hides those of other names, too, if nobody has written them for a day. */
void zoff_archive_remove_left(const char *folder, const char *name, uint64_t sequence, bool others);
/* Remove the checkpoints in all folders with such names. The names must be durable, since a manifest without its files is worse
 * than none. Files of others stay: in the checkpoint of that name, if it is there, else in a folder of that name. */
void zoff_archive_remove_hidden(const char *folder);

/* ---- latest.c: the file that names the newest checkpoint ---- */

/* Point `latest` at the checkpoint `name`, which `m` describes. */
zoff_status zoff_archive_latest_write(const char *folder, const char *name, const zoff_archive_manifest *m);
/* @return ERR_STATE: there is none; ERR_IO, ERR_CORRUPT */
zoff_status zoff_archive_latest_read(const char *folder, char out[ZOFF_ARCHIVE_NAME_MOST + 1]);

#endif
