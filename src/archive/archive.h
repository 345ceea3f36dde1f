/* archive.h: the door of the room that knows the files of a checkpoint: docs/CHECKPOINT.md. It writes and reads them without an
 * engine.
 *
 * A checkpoint is a folder. Each rank writes one file: a head, regions, and a table. A region is a run of bytes with a checksum
 * for each of its units. A piece of the table says which elements of which parameter lie where in a region. The manifest lists
 * the parameters and the files, and is written last. */
#ifndef ZOFF_ARCHIVE_H
#define ZOFF_ARCHIVE_H

#include "mem.h"

#include <zoff/aio.h>
#include <zoff/checkpoint.h>

enum {
    ZOFF_ARCHIVE_VERSION = 1,
    ZOFF_ARCHIVE_PAGE = 4096,     /* regions and tables begin at multiples of this */
    ZOFF_ARCHIVE_PAD = 64,        /* bytes: pieces begin at multiples of this in their region */
    ZOFF_ARCHIVE_BLOCK = 1024,    /* elements: pieces begin at multiples of this in their slice */
    ZOFF_ARCHIVE_UNIT = 4 << 20,  /* bytes with one checksum, where the writer may choose */
    ZOFF_ARCHIVE_KINDS = 4,       /* of zoff_state_kind */
    ZOFF_ARCHIVE_NAME_MOST = 255, /* bytes of a label, of a checkpoint's name, and of the name of program data */
    ZOFF_ARCHIVE_ID_BYTES = 17    /* 16 hexadecimal digits and the final 0 */
};

/* How the elements of a piece are stored. Its number is in the files. */
typedef enum zoff_archive_format { ZOFF_ARCHIVE_F32 = 1, ZOFF_ARCHIVE_F16 = 2, ZOFF_ARCHIVE_BF16 = 3 } zoff_archive_format;
_Static_assert((int)ZOFF_ARCHIVE_F32 == (int)ZOFF_F32 && (int)ZOFF_ARCHIVE_F16 == (int)ZOFF_F16 &&
                   (int)ZOFF_ARCHIVE_BF16 == (int)ZOFF_BF16,
               "formats of one element are numbered as zoff_dtype");

typedef struct zoff_archive_param {
    char *name, *slice_name; /* slice_name may be NULL */
    size_t *dims;
    size_t dim_count; /* at least 1 */
    size_t count, slices;
    zoff_dtype dtype;
    unsigned states; /* as zoff_checkpoint_param */
    unsigned group;
    uint32_t tied_to; /* 1 + index of the owner of the states; 0: itself */
} zoff_archive_param;

/* One file as the manifest describes it. zoff_archive_part_finish() fills all fields. */
typedef struct zoff_archive_file {
    uint64_t bytes, head_checksum;
    uint64_t table_offset, table_bytes, table_checksum;
} zoff_archive_file;

typedef struct zoff_archive_manifest {
    char id[ZOFF_ARCHIVE_ID_BYTES];
    char *label;       /* "" for the only engine */
    unsigned engines;  /* that save into the checkpoint */
    uint64_t sequence; /* greater than that of every earlier checkpoint in the folder */
    int64_t t;
    bool has_scaler;
    zoff_loss_scaler scaler;
    zoff_archive_param *params;
    size_t param_count;
    zoff_archive_file *files; /* by rank */
    size_t file_count;
    char *about; /* a JSON object with facts for people: version, tier, stage, configuration; NULL: none */
} zoff_archive_manifest;

/* ---- folder.c: names, and what is complete ---- */

/* Whether a text is a legal label or name of a checkpoint: letters, digits, ".", "_", "-", not beginning with ".", at most 255.
 * `what` begins the message.  @return ERR_INVALID */
zoff_status zoff_archive_folder_check_name(const char *what, const char *name);
/* Names of files in a checkpoint. */
void zoff_archive_folder_manifest_name(const char *label, char dst[512]);
void zoff_archive_folder_part_name(const char *label, const char *id, unsigned rank, char dst[512]);
/* Make `folder` and folders above it. Existing ones are fine. */
zoff_status zoff_archive_folder_make(const char *folder);
/* Write a file under a temporary name, flush it, rename it, and flush the folder.  @blocks for the disk */
zoff_status zoff_archive_folder_write_file(const char *folder, const char *name, const char *text, size_t bytes);
zoff_status zoff_archive_folder_flush(const char *folder);
/* Read a whole file of at most `most` bytes, with a 0 behind it. @owns caller: zoff_base_mem_free() */
zoff_status zoff_archive_folder_read_file(const char *folder, const char *name, size_t most, char **out, size_t *out_bytes);

/* ---- choose.c: which checkpoint of a folder ---- */

/* Find the checkpoint to load: `folder` itself where it has a manifest of `label`, else the newest complete one in it. Others
 * are named in a warning.  @owns out: zoff_base_mem_free()  @return ERR_IO: there is none */
zoff_status zoff_archive_choose(const char *folder, const char *label, char **out);
/* The sequence of the next checkpoint in `folder`. */
uint64_t zoff_archive_choose_sequence(const char *folder, const char *label);
/* Remove files in a checkpoint that belong to another save of the label. */
void zoff_archive_choose_sweep(const char *folder, const char *label, const char *id);
/* Remove the files of a save that did not become complete. */
void zoff_archive_choose_remove(const char *folder, const char *label, const char *id);
/* Read the manifest in the folder of a checkpoint. `out_text` may be NULL; otherwise it is the caller's to free. */
zoff_status zoff_archive_choose_read(const char *folder, const char *label, zoff_archive_manifest *out, char **out_text,
                                     size_t *out_bytes);
/* After a manifest was written: if the checkpoint is complete, point `latest` at it, and remove old ones beyond `keep` (0: keep
 * all). Files in the checkpoint's folder that belong to an earlier save of the label are removed.  @blocks for the disk */
zoff_status zoff_archive_choose_publish(const char *folder, const char *name, const zoff_archive_manifest *m, unsigned keep);

/* ---- manifest.c, manifest_read.c ---- */

/* The manifest as JSON with its checksum. @owns out: zoff_base_mem_free() */
zoff_status zoff_archive_manifest_print(const zoff_archive_manifest *m, char **out, size_t *out_bytes);
/* Check and parse. `where` begins messages. @owns out: zoff_archive_manifest_free()  @return ERR_CORRUPT, ERR_UNSUPPORTED */
zoff_status zoff_archive_manifest_read(const char *where, const char *text, size_t bytes, zoff_archive_manifest *out);
void zoff_archive_manifest_free(zoff_archive_manifest *m); /* a zeroed one is allowed */

/* ---- escape.c: names of any bytes in JSON ---- */

/* "%" and bytes that are not valid UTF-8 or below 32 become %XX. @owns out: zoff_base_mem_free() */
zoff_status zoff_archive_escape_write(const char *name, char **out);
/* @return ERR_CORRUPT for a text that escape_write() does not produce */
zoff_status zoff_archive_escape_read(const char *text, char **out);

/* ---- table.c: regions, pieces and program data of one file ---- */

typedef struct zoff_archive_region {
    uint64_t offset;         /* in the file, a multiple of ZOFF_ARCHIVE_PAGE */
    uint64_t bytes;          /* a multiple of ZOFF_ARCHIVE_PAGE */
    uint64_t unit;           /* bytes of a unit, a multiple of ZOFF_ARCHIVE_PAGE; the last unit may be shorter */
    uint64_t first_checksum; /* index of the checksum of its first unit */
} zoff_archive_region;

typedef struct zoff_archive_piece {
    uint32_t param;
    uint8_t kind, format;
    uint16_t reserved;
    uint32_t block; /* elements that share a scale; 1: none do */
    uint32_t region;
    uint64_t slice, first, count;
    uint64_t at; /* byte in the region, a multiple of ZOFF_ARCHIVE_PAD */
} zoff_archive_piece;

/* Bytes of the program. */
typedef struct zoff_archive_item {
    char name[ZOFF_ARCHIVE_NAME_MOST + 1];
    uint64_t count;
    uint32_t region;
    uint32_t each_rank;
} zoff_archive_item;

typedef struct zoff_archive_table {
    zoff_archive_region *regions;
    uint64_t *checksums;
    zoff_archive_piece *pieces;
    zoff_archive_item *items;
    size_t region_count, checksum_count, piece_count, item_count;
    size_t region_room, checksum_room, piece_room, item_room;
} zoff_archive_table;

zoff_status zoff_archive_table_add_region(zoff_archive_table *t, const zoff_archive_region *region);
zoff_status zoff_archive_table_add_piece(zoff_archive_table *t, const zoff_archive_piece *piece);
zoff_status zoff_archive_table_add_item(zoff_archive_table *t, const zoff_archive_item *item);
size_t zoff_archive_table_units(const zoff_archive_region *region);
/* Bytes of one unit. */
size_t zoff_archive_table_unit_bytes(const zoff_archive_region *region, size_t unit);
size_t zoff_archive_table_bytes(const zoff_archive_table *t);
void zoff_archive_table_write(const zoff_archive_table *t, void *dst);
/* Check everything that can be checked without the manifest. `end`: where the table begins, and the regions end. */
zoff_status zoff_archive_table_read(const char *where, const void *src, size_t bytes, uint64_t end, zoff_archive_table *out);
void zoff_archive_table_free(zoff_archive_table *t);
size_t zoff_archive_table_element_bytes(unsigned format);

/* ---- part.c: write the file of one rank ---- */

typedef struct zoff_archive_part {
    char *path;
    char id[ZOFF_ARCHIVE_ID_BYTES];
    unsigned rank;
    zoff_aio *aio;
    int fd;
    uint64_t end; /* of the regions so far */
    zoff_archive_table table;
    bool keeps; /* the file stays after close */
} zoff_archive_part;

/* Create the file.  @return ERR_IO */
zoff_status zoff_archive_part_open(const char *folder, const char *label, const char *id, unsigned rank,
                                   zoff_archive_part *out);
/* Append a region. `unit` 0: one unit.  @return its index in *out */
zoff_status zoff_archive_part_region(zoff_archive_part *p, uint64_t bytes, uint64_t unit, uint32_t *out);
/* Reserve the disk space of all regions and of the table.  @return ERR_NO_SPACE with the bytes needed and free */
zoff_status zoff_archive_part_reserve(zoff_archive_part *p);
/* Program data: a region with a copy of the bytes, written at once. */
zoff_status zoff_archive_part_item(zoff_archive_part *p, const char *name, bool each_rank, const void *bytes, size_t count);
/* Write head and table, and flush the file.  @blocks for the disk */
zoff_status zoff_archive_part_finish(zoff_archive_part *p, zoff_archive_file *out);
/* Close the file; remove it unless `keeps` is set. */
void zoff_archive_part_close(zoff_archive_part *p);

/* Check the head of a file. `end`: where its table begins. */
zoff_status zoff_archive_part_check_head(const char *path, const char head[ZOFF_ARCHIVE_PAGE], const char *id, unsigned rank,
                                         uint64_t end, uint64_t checksum);

/* ---- publish.c: identity, name, and completion ---- */

zoff_status zoff_archive_publish_id(char out[ZOFF_ARCHIVE_ID_BYTES]); /* a random one */
/* Check label and name of the options, and make a name from step `t` where they have none.  @return ERR_INVALID */
zoff_status zoff_archive_publish_name(const zoff_checkpoint_opts *opts, int64_t t, char out[ZOFF_ARCHIVE_NAME_MOST + 1]);
/* Write the manifest of the checkpoint `name` in `folder`, once all files are flushed, and publish it.  @blocks for the disk */
zoff_status zoff_archive_publish_manifest(const char *folder, const char *name, const zoff_archive_manifest *m, unsigned keep);

/* ---- archive.c: open a checkpoint for reading ---- */

/* One piece in the index, and its file. */
typedef struct zoff_archive_ref {
    zoff_archive_piece piece;
    uint32_t file;
} zoff_archive_ref;

typedef struct zoff_archive {
    char *folder; /* of the checkpoint */
    char *text;   /* the manifest */
    size_t text_bytes;
    zoff_archive_manifest manifest;
    zoff_archive_table *tables; /* by file */
    int *fds;
    zoff_archive_ref *refs; /* of all files, by parameter, kind, slice, first element */
    size_t ref_count;
} zoff_archive;

/* Open the checkpoint in its own folder, and check that its pieces cover each state of each parameter once. */
zoff_status zoff_archive_open(const char *folder, const char *label, zoff_archive **out);
void zoff_archive_close(zoff_archive *a);
/* The piece with an element of a slice; NULL: the state is not in the checkpoint. */
const zoff_archive_ref *zoff_archive_find(const zoff_archive *a, uint32_t param, unsigned kind, size_t slice, size_t element);
/* The parameter whose states `param` uses: itself, or its owner. */
uint32_t zoff_archive_owner(const zoff_archive *a, uint32_t param);
/* Path of a file, for messages. */
void zoff_archive_path(const zoff_archive *a, uint32_t file, char dst[4096]);
/* Find program data of a rank.  @return NULL: there is none */
const zoff_archive_item *zoff_archive_item_find(const zoff_archive *a, const char *name, unsigned rank, uint32_t *out_file);

/* ---- units.c: read and verify units ---- */

typedef struct zoff_archive_unit {
    uint32_t file, region;
    uint64_t unit;
} zoff_archive_unit;

/* Compare a unit that was read with its checksum.  @return ERR_CORRUPT with file, place, and the parameters there */
zoff_status zoff_archive_units_check(const zoff_archive *a, zoff_archive_unit unit, const void *bytes, unsigned threads);
/* Read a unit into `dst` and check it.  @blocks for the disk */
zoff_status zoff_archive_units_read(const zoff_archive *a, zoff_archive_unit unit, void *dst, unsigned threads);
/* The unit with a byte of a region. */
zoff_archive_unit zoff_archive_units_of(const zoff_archive *a, uint32_t file, uint32_t region, uint64_t byte);
size_t zoff_archive_units_bytes(const zoff_archive *a, zoff_archive_unit unit);
uint64_t zoff_archive_units_offset(const zoff_archive *a, zoff_archive_unit unit); /* in its file */
/* The largest unit of the checkpoint. */
size_t zoff_archive_units_largest(const zoff_archive *a);

#endif
