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

/* The end of the hidden name of a manifest whose checkpoint is being removed. */
#define ZOFF_ARCHIVE_REMOVED ".removed"

/* A save whose lock nobody can see counts as under way for so long after the last write of rank 0. */
enum { ZOFF_ARCHIVE_LEASE_SECONDS = 24 * 60 * 60 };

/* The most bytes of a manifest that are read. */
#define ZOFF_ARCHIVE_MANIFEST_MOST ((size_t)4 << 30)
/* Elements of one parameter, and the greatest sequence: products and sums of them fit 64 bits, and JSON's integers. */
#define ZOFF_ARCHIVE_ELEMENTS_MOST ((size_t)1 << 58)
#define ZOFF_ARCHIVE_SEQUENCE_MOST ((uint64_t)1 << 62)

/* ---- folder.c: files ---- */

/* Write a file and flush it. It has a hidden name, which no other writer uses, and is renamed then.  @blocks for the disk */
zoff_status zoff_archive_folder_write_file(const char *path, const char *text, size_t bytes);
zoff_status zoff_archive_folder_fail_rename(const char *from, const char *to, int error); /* the message of an errno */
/* Read a whole file of at most `most` bytes, with a 0 behind it. @owns caller: zoff_base_mem_free()
 * @return ERR_STATE: it is not there; ERR_IO: cannot be read; ERR_CORRUPT: too long, or no file */
zoff_status zoff_archive_folder_read_file(const char *folder, const char *name, size_t most, char **out, size_t *out_bytes);
/* Read all of these bytes.  @return ERR_IO; ERR_CORRUPT where the file ends before */
zoff_status zoff_archive_folder_pread(int fd, const char *path, uint64_t offset, void *dst, size_t bytes);
/* The label in the name of a manifest, or in that of a rank's file, whose id is set, too.  @return false: it is another file */
bool zoff_archive_folder_is_manifest(const char *name, char label[ZOFF_ARCHIVE_LABEL_MOST + 1]);
/* A hidden name of a manifest or of `latest`, with the id of the save that it belongs to, or "". */
void zoff_archive_folder_hidden_name(const char *label, const char *what, const char *id, const char *end, char dst[512]);
/* Whether a name is such a one. `id`: "" where it has none; *out_end: ".new", ".old" or ".removed". */
bool zoff_archive_folder_is_hidden(const char *name, char label[ZOFF_ARCHIVE_LABEL_MOST + 1], char id[ZOFF_ARCHIVE_ID_BYTES],
                                   const char **out_end);
bool zoff_archive_folder_is_part(const char *name, char label[ZOFF_ARCHIVE_LABEL_MOST + 1], char id[ZOFF_ARCHIVE_ID_BYTES]);
/* The next name in a folder; NULL: there is none.  @return ERR_IO */
zoff_status zoff_archive_folder_next(DIR *entries, const char *folder, const char **out);
/* Lock the folder of a checkpoint while a manifest is compared with the one that is there, and takes its place or is hidden: no
 * other save or removal does the same then. OK also where the file system has no locks on folders.
 * @return ERR_IO: a process keeps it locked, or it cannot be opened  @blocks for a minute at most */
zoff_status zoff_archive_folder_lock(const char *folder, int *out);
/* Lock an open file, once others have let go of it.  @return as above */
zoff_status zoff_archive_folder_wait(int fd, const char *path);
void zoff_archive_folder_unlock(int lock);
/* folder/name.  @return ERR_INVALID: it is too long */
zoff_status zoff_archive_folder_join(const char *folder, const char *name, char dst[4096]);

/* ---- manifest.c, manifest_read.c ---- */

/* Words in a manifest. */
const char *zoff_archive_manifest_kind(unsigned kind);
const char *zoff_archive_manifest_dtype(zoff_dtype dtype);
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
/* The same for a manifest under any name in the folder; only the facts are read. */
zoff_status zoff_archive_listing_read_facts(const char *folder, const char *file, zoff_archive_manifest *out);
/* Whether all files of a manifest are there, with their sizes.  @return ERR_STATE, ERR_CORRUPT and ERR_IO name a file */
zoff_status zoff_archive_listing_has_files(const char *folder, const zoff_archive_manifest *m);
/* Ask whether all engines have saved into a checkpoint. *out_last is the greatest sequence of their manifests. */
zoff_status zoff_archive_listing_ask(const char *folder, const zoff_archive_manifest *m, bool *out_complete,
                                     uint64_t *out_last);

/* A folder that may be a checkpoint. */
typedef struct zoff_archive_candidate {
    char *name;
    uint64_t sequence; /* as its manifest says, which is not checked yet; 0: it has none of the label */
    int error;         /* errno: it cannot be read, and stands before the others; 0: it can */
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

/* ---- remove.c ---- */

/* Remove the files of a label, or of all for NULL, that were saved before a sequence. */
void zoff_archive_remove_checkpoint(const char *path, const char *label, uint64_t before);
/* Remove the files of saves of a label, or of all for NULL, that have ended early a day ago or more. Other hosts may not see
 * the lock of one that is under way. The folder goes if nothing else is in it. */
void zoff_archive_remove_killed(const char *path, const char *label);
/* End removals of a checkpoint that were cut short. */
void zoff_archive_remove_end(const char *folder);

/* ---- latest.c: the file that names the newest checkpoint ---- */

/* Point it at the checkpoint `name`, which `m` describes. */
zoff_status zoff_archive_latest_write(const char *folder, const char *name, const zoff_archive_manifest *m);
/* @return ERR_STATE: there is none; ERR_IO, ERR_CORRUPT */
zoff_status zoff_archive_latest_read(const char *folder, char out[ZOFF_ARCHIVE_NAME_MOST + 1]);

#endif
