/* SPDX-License-Identifier: Apache-2.0 */
/* archive.h: the door of the room that knows the files of a checkpoint: docs/CHECKPOINT.md. It writes and reads them without an
 * engine.
 *
 * A checkpoint is a folder. Each rank writes one file: a head, regions, and a table. A region is a run of bytes with a checksum
 * for each of its units. A piece of the table says which elements of which parameter lie where in a region. The manifest lists
 * the parameters and the files, and is written last. */
#ifndef ZOFF_ARCHIVE_H
#define ZOFF_ARCHIVE_H

#include "fork.h"
#include "mem.h"

#include <zoff/aio.h>
#include <zoff/checkpoint.h>

enum {
    ZOFF_ARCHIVE_VERSION = 1,
    ZOFF_ARCHIVE_PAGE = 4096,    /* pages: regions and tables begin at multiples of this */
    ZOFF_ARCHIVE_PAD = 64,       /* padding in bytes: pieces begin at multiples of this in their region */
    ZOFF_ARCHIVE_BLOCK = 1024,   /* elements of a block: pieces begin at multiples of this in their slice */
    ZOFF_ARCHIVE_UNIT = 4 << 20, /* bytes with one checksum, if the writer may choose */
    ZOFF_ARCHIVE_KINDS = 4,      /* number of kinds of zoff_state_kind */
    ZOFF_ARCHIVE_UPPER = 4,      /* kind of a piece: the upper halves of masters that are split; see below */
    ZOFF_ARCHIVE_PIECE_KINDS = 5,
    ZOFF_ARCHIVE_NAME_MOST = 255,    /* most bytes of a checkpoint's name, and of the name of program data */
    ZOFF_ARCHIVE_LABEL_MOST = 200,   /* most bytes of a label, because names of files are longer, and have at most 255 */
    ZOFF_ARCHIVE_FOLDER_MOST = 3000, /* most bytes of the path of a folder of checkpoints */
    /* most bytes of the path of one checkpoint */
    ZOFF_ARCHIVE_CHECKPOINT_MOST = ZOFF_ARCHIVE_FOLDER_MOST + 1 + ZOFF_ARCHIVE_NAME_MOST,
    ZOFF_ARCHIVE_PARAM_NAME_MOST = 4095, /* most bytes of a name of a parameter or of its slices */
    ZOFF_ARCHIVE_DIMS_MOST = 64,
    ZOFF_ARCHIVE_RULE_MOST = 40, /* most bytes of the name of a rule */
    ZOFF_ARCHIVE_ENGINES_MOST = 1 << 24,
    ZOFF_ARCHIVE_ID_BYTES = 17 /* 16 hexadecimal digits and the final 0 */
};

/* How the elements of a piece are stored. Its number is in the files, so bytes that change their meaning get another one. 5 and
 * 6 were moments in 8 bits with other codes, or without outliers. SPLIT: the lower 16 bits of masters. Their upper halves,
 * which are the weights in bf16, are pieces of the kind UPPER. The lower half, as a signed integer, is added to the upper one.
 */
typedef enum zoff_archive_format {
    ZOFF_ARCHIVE_F32 = 1,
    ZOFF_ARCHIVE_F16 = 2,
    ZOFF_ARCHIVE_BF16 = 3,
    ZOFF_ARCHIVE_SPLIT = 4,
    ZOFF_ARCHIVE_M8 = 7,
    ZOFF_ARCHIVE_V8 = 8
} zoff_archive_format;

typedef struct zoff_archive_param {
    char *name, *slice_name; /* slice_name may be NULL */
    size_t *dims;
    size_t dim_count; /* number of dimensions, at least 1 */
    size_t count, slices;
    zoff_dtype dtype;
    unsigned states; /* states as in zoff_checkpoint_param */
    char *rule;      /* rule of its matrices, as in zoff_checkpoint_param; NULL: an element rule, which its group names */
    unsigned group;
    uint32_t tied_to; /* 1 + index of the owner of the states; 0: the parameter itself */
} zoff_archive_param;

/* The file of one rank, as the manifest describes it. All fields are filled by zoff_archive_part_finish(). */
typedef struct zoff_archive_file {
    uint64_t bytes, head_checksum;
    uint64_t table_offset, table_bytes, table_checksum;
} zoff_archive_file;

enum { ZOFF_ARCHIVE_GROUP_NUMBERS = 12 };

/* The hyper-parameters of a parameter group. */
typedef struct zoff_archive_group {
    char *type;                                 /* type of the optimizer, as in a configuration */
    double numbers[ZOFF_ARCHIVE_GROUP_NUMBERS]; /* numbers, see zoff_archive_manifest_number(); NAN: not known */
} zoff_archive_group;

typedef struct zoff_archive_manifest {
    char id[ZOFF_ARCHIVE_ID_BYTES];
    char *label;       /* "" for the only engine */
    unsigned engines;  /* number of engines that save into the checkpoint */
    uint64_t sequence; /* greater than that of every earlier checkpoint in the folder */
    uint64_t replaces; /* manifests of this checkpoint up to this sequence belong to an earlier save; 0 in what is written */
    int64_t t;
    bool has_scaler;
    zoff_loss_scaler scaler;
    bool exact_sums; /* the run added gradients up by the rule "exact" */
    zoff_archive_param *params;
    size_t param_count;
    zoff_archive_group *groups; /* groups, by zoff_archive_param.group; none where the writer does not know them */
    size_t group_count;
    zoff_archive_file *files; /* file of each rank */
    size_t file_count;
    bool pinned; /* written only: a file beside the manifest pins the checkpoint */
    char *about; /* written only: a JSON object with facts for people, such as the configuration; NULL: none */
} zoff_archive_manifest;

/* ---- folder.c: names ---- */

/* Whether a text is a legal name of a checkpoint: letters, digits, ".", "_", "-", not beginning with ".", at most 255 bytes.
 * `what` begins the message.  @return ERR_INVALID */
zoff_status zoff_archive_folder_check_name(const char *what, const char *name);
/* Whether a text is a legal label, which has at most 200 bytes; otherwise as a name. */
zoff_status zoff_archive_folder_check_label(const char *what, const char *label);
/* Names of files in a checkpoint. */
void zoff_archive_folder_manifest_name(const char *label, char dst[512]);
void zoff_archive_folder_part_name(const char *label, const char *id, unsigned rank, char dst[512]);
zoff_status zoff_archive_folder_id(char out[ZOFF_ARCHIVE_ID_BYTES]); /* make a random id */
/* The hidden folder into which a save writes: one of its own, or one for all engines that save this step together. */
void zoff_archive_folder_work(const char *folder, const char *name, const zoff_archive_manifest *m, char dst[4096]);
/* The folder under a path that also holds after chdir(), if there is one. `most`: FOLDER_MOST, or CHECKPOINT_MOST.
 * @return ERR_INVALID: it is too long for names of files below it */
zoff_status zoff_archive_folder_absolute(const char *folder, size_t most, char dst[4096]);
/* Make `folder` and folders above it, durably. Existing ones are fine.  @return ERR_NO_SPACE, ERR_IO */
zoff_status zoff_archive_folder_make(const char *folder);
zoff_status zoff_archive_folder_flush(const char *folder);

/* ---- choose.c: which checkpoint of a folder ---- */

/* Find the checkpoint to load: `folder` itself where it has a valid manifest of `label` or no checkpoints in it, else the
 * newest complete one in it. Newer ones that are not complete are named in a warning. *out_least is for zoff_archive_open():
 * the sequence of the newest one; 0: `folder` itself was chosen.  @owns out: zoff_base_mem_free()
 * @return ERR_IO: there is none, with the reason of the newest, or one cannot be read and may be the newest */
zoff_status zoff_archive_choose(const char *folder, const char *label, char **out, uint64_t *out_least);
/* The sequence of the next checkpoint in `folder`: greater than that of all that are there. */
uint64_t zoff_archive_choose_sequence(const char *folder);

/* ---- manifest.c ---- */

/* Print the manifest as JSON with its checksum. @owns out: zoff_base_mem_free()  @return ERR_INVALID for numbers JSON lacks */
zoff_status zoff_archive_manifest_print(const zoff_archive_manifest *m, char **out, size_t *out_bytes);
/* Check and parse a manifest. `where` begins messages. @owns out: zoff_archive_manifest_free()  @return ERR_CORRUPT,
 * ERR_UNSUPPORTED */
zoff_status zoff_archive_manifest_read(const char *where, const char *text, size_t bytes, zoff_archive_manifest *out);
void zoff_archive_manifest_free(zoff_archive_manifest *m); /* free a manifest, which may be zeroed */
/* Print the list of parameters alone. */
zoff_status zoff_archive_manifest_print_params(const zoff_archive_manifest *m, char **out, size_t *out_bytes);
zoff_status zoff_archive_manifest_read_params(const char *text, size_t bytes, zoff_archive_manifest *m);
/* The names of a group's numbers: "lr" and so on. */
const char *zoff_archive_manifest_number(unsigned index);

/* ---- names.c: parameters by name ---- */

/* The parameters, sorted by name. @owns out: zoff_base_mem_free()  @return ERR_INVALID where two have one name */
zoff_status zoff_archive_names_sort(const zoff_archive_param *params, size_t count, const zoff_archive_param ***out);
/* @return NULL: there is none */
const zoff_archive_param *zoff_archive_names_find(const zoff_archive_param *const *sorted, size_t count, const char *name);
/* Tie `p` to the parameter `owner`.  @return ERR_INVALID: it is not there, is tied itself, or has another size */
zoff_status zoff_archive_names_tie(const zoff_archive_manifest *m, const zoff_archive_param *const *sorted, const char *owner,
                                   zoff_archive_param *p);

/* ---- escape.c: names of any bytes in JSON ---- */

/* "%" and bytes that are below 32, 127 or not valid UTF-8 become %XX. @owns out: zoff_base_mem_free() */
zoff_status zoff_archive_escape_write(const char *name, char **out);
/* @return ERR_CORRUPT for a text that escape_write() does not produce */
zoff_status zoff_archive_escape_read(const char *text, char **out);

/* ---- table.c: regions, pieces and program data of one file ---- */

typedef struct zoff_archive_region {
    uint64_t offset;         /* offset in the file, a multiple of ZOFF_ARCHIVE_PAGE */
    uint64_t bytes;          /* bytes, a multiple of ZOFF_ARCHIVE_PAGE */
    uint64_t unit;           /* bytes of a unit, a multiple of ZOFF_ARCHIVE_PAGE; the last unit may be shorter */
    uint64_t first_checksum; /* index of the checksum of its first unit */
} zoff_archive_region;

typedef struct zoff_archive_piece {
    uint32_t param;
    uint8_t kind, format;
    uint16_t reserved;
    uint32_t block; /* number of elements that share a scale; 1: none do */
    uint32_t region;
    uint64_t slice, first, count;
    uint64_t at; /* byte in the region where the piece begins, a multiple of ZOFF_ARCHIVE_PAD */
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
/* Check everything that can be checked without the manifest. `end`: where the table begins, and the regions end; 0: it is that
 * of described.c. */
zoff_status zoff_archive_table_read(const char *where, const void *src, size_t bytes, uint64_t end, zoff_archive_table *out);
void zoff_archive_table_free(zoff_archive_table *t);
size_t zoff_archive_table_element_bytes(unsigned format); /* bytes of an element; not for formats in blocks */
/* Elements of a block that has a header; 1: there are no blocks. */
unsigned zoff_archive_table_block(unsigned format);
/* Bytes of the first `count` elements of a piece. For a multiple of the block that is also the place of the next element. */
size_t zoff_archive_table_bytes_of(unsigned format, size_t count);
/* Elements [first, first + count) as fp32 numbers; `piece`: the bytes of the first element of a block. For formats of moments.
 */
void zoff_archive_table_load(unsigned format, const void *piece, size_t first, size_t count, float *out);
/* Store fp32 numbers in a piece of `size` elements, rounded to the nearest. Whole blocks, where there are any. */
void zoff_archive_table_store(unsigned format, void *piece, size_t size, size_t first, size_t count, const float *in);
/* See zoff_adam_moments_unfit(). */
size_t zoff_archive_table_unfit(unsigned format, size_t count, const float *in);

/* ---- described.c: the description beside a state file ---- */

/* @owns out: zoff_base_mem_free() */
zoff_status zoff_archive_described_write(const zoff_archive_manifest *m, const zoff_archive_table *t, char **out,
                                         size_t *out_bytes);
/* `where` begins messages. `m`: NULL, or gets the parameters. Free both also after an error.  @return ERR_CORRUPT */
zoff_status zoff_archive_described_read(const char *where, const char *src, size_t bytes, zoff_archive_manifest *m,
                                        zoff_archive_table *out);

/* ---- part.c: write the file of one rank ---- */

typedef struct zoff_archive_part {
    char *path;
    char id[ZOFF_ARCHIVE_ID_BYTES];
    unsigned rank;
    zoff_aio *aio;
    int fd;
    zoff_fork_guard *lock; /* rank 0: a descriptor with a lock, which tells others that the save is under way */
    uint64_t end;          /* end of the regions so far */
    zoff_archive_table table;
    bool keeps;   /* the file stays after close */
    bool is_lost; /* a flush failed, and the system reports lost bytes only once, so another flush proves nothing */
} zoff_archive_part;

/* Create the file. Rank 0 also makes the folder.  @return ERR_IO, ERR_NO_SPACE */
zoff_status zoff_archive_part_open(const char *folder, const char *label, const char *id, unsigned rank,
                                   zoff_archive_part *out);
/* Append a region. `unit` 0: one unit.  @return its index in *out */
zoff_status zoff_archive_part_region(zoff_archive_part *p, uint64_t bytes, uint64_t unit, uint32_t *out);
/* Reserve the disk space of all regions and of the table.  @return ERR_NO_SPACE with the bytes needed and free */
zoff_status zoff_archive_part_reserve(zoff_archive_part *p);
/* Program data: a region with a copy of the bytes, written at once.  @return ERR_INVALID for a name that is too long or used */
zoff_status zoff_archive_part_item(zoff_archive_part *p, const char *name, bool each_rank, const void *bytes, size_t count);
/* Make the name of the file durable. The manifest may name it afterwards.  @blocks for the disk */
zoff_status zoff_archive_part_flush_name(const zoff_archive_part *p);
/* Write head and table, and flush the file. May be tried again unless `is_lost` is set.  @blocks for the disk */
zoff_status zoff_archive_part_finish(zoff_archive_part *p, zoff_archive_file *out);
/* Close the file; remove it unless `keeps` is set. */
void zoff_archive_part_close(zoff_archive_part *p);

/* Check the head of a file. `end`: where its table begins. */
zoff_status zoff_archive_part_check_head(const char *path, const char head[ZOFF_ARCHIVE_PAGE], const char *id, unsigned rank,
                                         uint64_t end, uint64_t checksum);

/* ---- remove.c ---- */

/* Remove the files that a save has written so far into its hidden folder, and the folder if nothing else is in it. */
void zoff_archive_remove_own(const char *work, const zoff_archive_manifest *m);

/* ---- publish.c: a save from its name to its completion ---- */

/* Check label and name of the options, and make the name of the folder: that of the options, or one from step `t`; behind the
 * label where an engine with a label saves alone.  @return ERR_INVALID */
zoff_status zoff_archive_publish_name(const zoff_checkpoint_opts *opts, int64_t t, char out[ZOFF_ARCHIVE_NAME_MOST + 1]);
/* Begin a save, on rank 0: make its id, its sequence, its hidden folder `work` and its first file. `m` has label, engines and
 * step. With `is_new` it replaces no checkpoint: nobody expects an import to replace one of a run.
 * @return ERR_INVALID: the name is that of a checkpoint that must stay; ERR_IO, ERR_NO_SPACE */
zoff_status zoff_archive_publish_begin(const char *folder, const char *name, zoff_archive_manifest *m, bool is_new,
                                       char work[4096], zoff_archive_part *out);
/* Write the manifest into the hidden folder of the save, once all files are flushed. If all engines have saved then, give the
 * folder its name, in place of an earlier one, point `latest` at it, and remove old checkpoints beyond `keep` (0: keep all).
 * After an error everything is as before, and the call may be repeated. If only `latest` cannot be written, that is a warning.
 * @blocks for the disk  @return ERR_STATE: a save that began later has the name; ERR_INVALID as zoff_archive_publish_begin();
 * ERR_IO also for a file of a rank that is not there: then the ranks do not share the folder */
zoff_status zoff_archive_publish_manifest(const char *folder, const char *name, const zoff_archive_manifest *m, bool is_new,
                                          unsigned keep);

/* ---- archive.c: open a checkpoint for reading ---- */

/* most tries to open the newest checkpoint of a folder where others remove the newest one */
enum { ZOFF_ARCHIVE_OPEN_TRIES = 100 };
/* most files that are open at a time, because a process may open 1024, and there may be more ranks */
enum { ZOFF_ARCHIVE_OPEN_MOST = 64 };

/* A piece in the index, and its file. */
typedef struct zoff_archive_ref {
    zoff_archive_piece piece;
    uint32_t file;
} zoff_archive_ref;

typedef struct zoff_archive {
    char *folder; /* folder of the checkpoint */
    char *text;   /* text of the manifest */
    size_t text_bytes;
    zoff_archive_manifest manifest;
    zoff_archive_table *tables; /* tables by file; their pieces are in refs */
    zoff_archive_ref *refs;     /* pieces of all files, by parameter, kind, slice, first element */
    size_t ref_count;
    struct zoff_archive_descriptors *descriptors; /* descriptors of the files that were read last */
} zoff_archive;

/* Open the checkpoint in its own folder, and check that its pieces cover each state of each parameter once.
 * The one that was chosen may be gone, and its name be that of an older save, so `least` is of zoff_archive_choose().
 * @return ERR_STATE: there is none, or an older one; it was removed since it was chosen */
zoff_status zoff_archive_open(const char *folder, const char *label, uint64_t least, zoff_archive **out);
void zoff_archive_close(zoff_archive *a);
/* Whether the folder of a checkpoint still has the manifest with this id. */
bool zoff_archive_is_current(const char *folder, const char *label, const char *id);
/* Check manifest and files as zoff_archive_open() does, before the manifest is published. `folder`: of the checkpoint. */
zoff_status zoff_archive_check(const char *folder, const zoff_archive_manifest *m);
/* The piece with an element of a slice; NULL: the state is not in the checkpoint. */
const zoff_archive_ref *zoff_archive_find(const zoff_archive *a, uint32_t param, unsigned kind, size_t slice, size_t element);
/* Whether the masters of a parameter are in two halves. */
bool zoff_archive_is_split(const zoff_archive *a, uint32_t param);
/* The parameter whose states `param` uses: itself, or its owner. */
uint32_t zoff_archive_owner(const zoff_archive *a, uint32_t param);
/* Path of a file. */
void zoff_archive_path(const zoff_archive *a, uint32_t file, char dst[4096]);
/* A descriptor of a file, valid until the next call. */
zoff_status zoff_archive_descriptor(const zoff_archive *a, uint32_t file, int *out);
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
/* Read the first `room` bytes of program data, or all of them where they are fewer. Each unit is checked before it is copied to
 * `dst`.  @blocks for the disk */
zoff_status zoff_archive_units_read_item(const zoff_archive *a, uint32_t file, const zoff_archive_item *item, void *dst,
                                         size_t room);
/* Have the system read the begin of a unit, which is read soon. Behind the last unit of a region this does nothing. */
void zoff_archive_units_expect(const zoff_archive *a, zoff_archive_unit unit);
/* The unit with a byte of a region. */
zoff_archive_unit zoff_archive_units_of(const zoff_archive *a, uint32_t file, uint32_t region, uint64_t byte);
size_t zoff_archive_units_bytes(const zoff_archive *a, zoff_archive_unit unit);
uint64_t zoff_archive_units_offset(const zoff_archive *a, zoff_archive_unit unit); /* offset of a unit in its file */
/* The largest unit of the checkpoint. */
size_t zoff_archive_units_largest(const zoff_archive *a);

#endif
