/* SPDX-License-Identifier: Apache-2.0 */
/* archive.c: opens a checkpoint for reading: the manifest, the tables of all files, and an index of their pieces. */
#include "archive_priv.h"

#include "bits.h"
#include "digest.h"
#include "try.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void zoff_archive_path(const zoff_archive *a, uint32_t file, char dst[4096])
{
    char name[512];
    zoff_archive_folder_part_name(a->manifest.label, a->manifest.id, file, name);
    snprintf(dst, 4096, "%s/%s", a->folder, name);
}

uint32_t zoff_archive_owner(const zoff_archive *a, uint32_t param)
{
    const zoff_archive_param *p = &a->manifest.params[param];
    return p->tied_to ? p->tied_to - 1 : param;
}

/* ---- files ---- */

/* Descriptors of the files that were used last. */
typedef struct zoff_archive_descriptors {
    int fds[ZOFF_ARCHIVE_OPEN_MOST];
    uint32_t files[ZOFF_ARCHIVE_OPEN_MOST];
    unsigned count, oldest;
} zoff_archive_descriptors;

zoff_status zoff_archive_descriptor(const zoff_archive *a, uint32_t file, int *out)
{
    char path[4096];
    zoff_archive_descriptors *d = a->descriptors;
    for (unsigned i = 0; i < d->count; i++) {
        if (d->files[i] == file) {
            *out = d->fds[i];
            return ZOFF_OK;
        }
    }
    zoff_archive_path(a, file, path);
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* links are followed, because caches of models have them */
    ZOFF_FAIL_IF(fd < 0, ZOFF_ERR_IO, "cannot open '%s': %s", path, zoff_base_status_errno(errno));
    unsigned place = d->count;
    if (place < ZOFF_ARCHIVE_OPEN_MOST) {
        d->count++;
    } else {
        place = d->oldest;
        d->oldest = (d->oldest + 1) % ZOFF_ARCHIVE_OPEN_MOST;
        close(d->fds[place]);
    }
    d->fds[place] = fd;
    d->files[place] = file;
    *out = fd;
    return ZOFF_OK;
}

static zoff_status read_table(zoff_archive *a, uint32_t file)
{
    int fd;
    char path[4096], head[ZOFF_ARCHIVE_PAGE], *table;
    struct stat about;
    const zoff_archive_file *f = &a->manifest.files[file];
    zoff_archive_path(a, file, path);
    ZOFF_TRY(zoff_archive_descriptor(a, file, &fd));
    ZOFF_FAIL_IF(fstat(fd, &about) != 0 || !S_ISREG(about.st_mode), ZOFF_ERR_IO, "'%s' is no file", path);
    ZOFF_FAIL_IF((uint64_t)about.st_size != f->bytes, ZOFF_ERR_CORRUPT,
                 "'%s' has %llu bytes, and the manifest says %llu: it was cut, or belongs elsewhere", path,
                 (unsigned long long)about.st_size, (unsigned long long)f->bytes);
    ZOFF_TRY(zoff_archive_folder_pread(fd, path, 0, head, sizeof head));
    ZOFF_TRY(zoff_archive_part_check_head(path, head, a->manifest.id, file, f->table_offset, f->head_checksum));
    ZOFF_TRY(zoff_base_mem_alloc((size_t)f->table_bytes, 1, "the table of a checkpoint", &table));
    zoff_status status = zoff_archive_folder_pread(fd, path, f->table_offset, table, (size_t)f->table_bytes);
    if (status == ZOFF_OK && zoff_digest_blocks_small(table, (size_t)f->table_bytes) != f->table_checksum)
        status = zoff_base_status_fail(ZOFF_ERR_CORRUPT, "the table of '%s' (from byte %llu on) is damaged", path,
                                       (unsigned long long)f->table_offset);
    if (status == ZOFF_OK)
        status = zoff_archive_table_read(path, table, (size_t)f->table_bytes, f->table_offset, &a->tables[file]);
    zoff_base_mem_free(table);
    return status;
}

static zoff_status read_tables(zoff_archive *a)
{
    const size_t count = a->manifest.file_count;
    ZOFF_TRY(zoff_base_mem_alloc(1, sizeof *a->descriptors, "files of a checkpoint", &a->descriptors));
    ZOFF_TRY(zoff_base_mem_alloc(count, sizeof *a->tables, "tables of a checkpoint", &a->tables));
    for (uint32_t i = 0; i < count; i++)
        ZOFF_TRY(read_table(a, i));
    return ZOFF_OK;
}

/* ---- the index ---- */

static int compare_places(const zoff_archive_piece *a, uint32_t param, unsigned kind, uint64_t slice, uint64_t first)
{
    if (a->param != param)
        return a->param < param ? -1 : 1;
    if (a->kind != kind)
        return a->kind < kind ? -1 : 1;
    if (a->slice != slice)
        return a->slice < slice ? -1 : 1;
    return a->first != first ? (a->first < first ? -1 : 1) : 0;
}

static int compare_refs(const void *a, const void *b)
{
    const zoff_archive_ref *x = a, *y = b;
    return compare_places(&x->piece, y->piece.param, y->piece.kind, y->piece.slice, y->piece.first);
}

/* Move the pieces from the tables into the index. */
static zoff_status make_index(zoff_archive *a)
{
    size_t count = 0;
    for (size_t i = 0; i < a->manifest.file_count; i++)
        count += a->tables[i].piece_count;
    ZOFF_TRY(zoff_base_mem_alloc(count, sizeof *a->refs, "the index of a checkpoint", &a->refs));
    for (uint32_t file = 0; file < a->manifest.file_count; file++) {
        zoff_archive_table *t = &a->tables[file];
        for (size_t i = 0; i < t->piece_count; i++)
            a->refs[a->ref_count++] = (zoff_archive_ref){.piece = t->pieces[i], .file = file};
        zoff_base_mem_free(t->pieces);
        t->pieces = NULL;
        t->piece_count = 0;
    }
    bool sorted = true;
    for (size_t i = 1; sorted && i < count; i++)
        sorted = compare_refs(&a->refs[i - 1], &a->refs[i]) < 0;
    if (!sorted)
        qsort(a->refs, count, sizeof *a->refs, compare_refs);
    return ZOFF_OK;
}

static zoff_status fail_cover(const zoff_archive *a, const zoff_archive_param *p, unsigned kind, uint64_t slice, uint64_t at)
{
    return zoff_base_status_fail(
        ZOFF_ERR_CORRUPT, "the checkpoint '%s' has no piece, or two, for element %llu of slice %llu of the %s of '%.200s'",
        a->folder, (unsigned long long)at, (unsigned long long)slice,
        kind == ZOFF_STATE_MASTER    ? "master"
        : kind == ZOFF_STATE_WEIGHTS ? "weights"
        : kind == ZOFF_STATE_M       ? "first moment"
        : kind == ZOFF_STATE_V       ? "second moment"
                                     : "upper half of the master",
        p->name);
}

bool zoff_archive_is_split(const zoff_archive *a, uint32_t param)
{
    const zoff_archive_ref *first = zoff_archive_find(a, param, ZOFF_STATE_MASTER, 0, 0);
    return first && first->piece.format == ZOFF_ARCHIVE_SPLIT;
}

/* Whether a moment can have the format. Moments may have other formats than fp32. */
static bool is_format_of_moment(unsigned kind, unsigned format)
{
    return format == ZOFF_ARCHIVE_BF16 || format == (kind == ZOFF_STATE_M ? ZOFF_ARCHIVE_M8 : ZOFF_ARCHIVE_V8);
}

static unsigned format_of(const zoff_archive *a, uint32_t param, unsigned kind)
{
    switch (kind) {
    case ZOFF_STATE_WEIGHTS:
        return (unsigned)a->manifest.params[param].dtype;
    case ZOFF_ARCHIVE_UPPER:
        return ZOFF_ARCHIVE_BF16;
    case ZOFF_STATE_MASTER:
        return zoff_archive_is_split(a, param) ? ZOFF_ARCHIVE_SPLIT : ZOFF_ARCHIVE_F32;
    default:
        return ZOFF_ARCHIVE_F32;
    }
}

/* Check the pieces of one state of one slice, from *at on in the index. */
static zoff_status check_slice(const zoff_archive *a, uint32_t param, unsigned kind, uint64_t slice, size_t *at)
{
    const zoff_archive_param *p = &a->manifest.params[param];
    const unsigned format = format_of(a, param, kind);
    const bool is_moment = kind == ZOFF_STATE_M || kind == ZOFF_STATE_V;
    for (uint64_t first = 0; first < p->count;) {
        const zoff_archive_piece *piece = *at < a->ref_count ? &a->refs[*at].piece : NULL;
        if (!piece || compare_places(piece, param, kind, slice, first) != 0 || piece->count > p->count - first)
            return fail_cover(a, p, kind, slice, first);
        ZOFF_FAIL_IF(piece->format != format && !(is_moment && is_format_of_moment(kind, piece->format)), ZOFF_ERR_CORRUPT,
                     "a piece of '%.200s' has format %u, expected %u", p->name, piece->format, format);
        first += piece->count;
        (*at)++;
    }
    return ZOFF_OK;
}

/* Check that each element of each state is in exactly one piece, and that no piece is of something else. */
static zoff_status check_cover(const zoff_archive *a)
{
    size_t at = 0;
    for (uint32_t param = 0; param < a->manifest.param_count; param++) {
        const zoff_archive_param *p = &a->manifest.params[param];
        const unsigned upper = zoff_archive_is_split(a, param) ? 1u << ZOFF_ARCHIVE_UPPER : 0;
        for (unsigned kind = 0; kind < ZOFF_ARCHIVE_PIECE_KINDS; kind++) {
            for (uint64_t slice = 0; p->count && ((p->states | upper) >> kind & 1) && slice < p->slices; slice++)
                ZOFF_TRY(check_slice(a, param, kind, slice, &at));
        }
    }
    ZOFF_FAIL_IF(at != a->ref_count, ZOFF_ERR_CORRUPT, "the checkpoint '%s' has pieces that belong to no state", a->folder);
    return ZOFF_OK;
}

/* ---- open and close ---- */

static zoff_status open_files(zoff_archive *a)
{
    ZOFF_TRY(read_tables(a));
    ZOFF_TRY(make_index(a));
    return check_cover(a);
}

bool zoff_archive_is_current(const char *folder, const char *label, const char *id)
{
    zoff_archive_manifest m;
    if (zoff_archive_listing_read(folder, label, &m, NULL, NULL) < 0)
        return false;
    const bool is_same = strcmp(m.id, id) == 0;
    zoff_archive_manifest_free(&m);
    return is_same;
}

/* *out_moved: the files are those of a save that was replaced since its manifest was read. */
static zoff_status try_open(const char *folder, const char *label, uint64_t least, zoff_archive **out, bool *out_moved)
{
    zoff_archive *a;
    char whole[4096];
    zoff_saved_error saved;
    *out_moved = false;
    ZOFF_TRY(zoff_archive_folder_absolute(folder, ZOFF_ARCHIVE_CHECKPOINT_MOST, whole));
    ZOFF_TRY(zoff_base_mem_alloc(1, sizeof *a, "a checkpoint", &a));
    zoff_status status = zoff_base_mem_copy_text(whole, &a->folder);
    if (status == ZOFF_OK)
        status = zoff_archive_listing_read(a->folder, label, &a->manifest, &a->text, &a->text_bytes);
    if (status == ZOFF_OK && a->manifest.sequence < least)
        status = zoff_base_status_fail(ZOFF_ERR_STATE, "'%s' was removed, and is an older checkpoint now", a->folder);
    else if (status == ZOFF_OK) {
        status = open_files(a);
        zoff_base_status_save(&saved);
        *out_moved = status < 0 && !zoff_archive_is_current(a->folder, label, a->manifest.id);
        zoff_base_status_restore(&saved);
    }
    if (status < 0)
        zoff_archive_close(a);
    else
        *out = a;
    return status;
}

zoff_status zoff_archive_open(const char *folder, const char *label, uint64_t least, zoff_archive **out)
{
    enum { TRIES = 100 };
    bool has_moved = true;
    zoff_status status = ZOFF_OK;
    for (unsigned i = 0; i < TRIES && has_moved; i++)
        status = try_open(folder, label, least, out, &has_moved);
    return status;
}

zoff_status zoff_archive_check(const char *folder, const zoff_archive_manifest *m)
{
    zoff_archive *a;
    ZOFF_TRY(zoff_base_mem_alloc(1, sizeof *a, "a checkpoint", &a));
    zoff_status status = zoff_base_mem_copy_text(folder, &a->folder);
    if (status == ZOFF_OK)
        status = zoff_archive_manifest_print(m, &a->text, &a->text_bytes);
    if (status == ZOFF_OK)
        status = zoff_archive_manifest_read(folder, a->text, a->text_bytes, &a->manifest);
    if (status == ZOFF_OK)
        status = open_files(a);
    zoff_archive_close(a);
    return status;
}

void zoff_archive_close(zoff_archive *a)
{
    if (!a)
        return;
    for (size_t i = 0; a->tables && i < a->manifest.file_count; i++)
        zoff_archive_table_free(&a->tables[i]);
    for (unsigned i = 0; a->descriptors && i < a->descriptors->count; i++)
        close(a->descriptors->fds[i]);
    zoff_base_mem_free(a->tables);
    zoff_base_mem_free(a->descriptors);
    zoff_base_mem_free(a->refs);
    zoff_base_mem_free(a->text);
    zoff_base_mem_free(a->folder);
    zoff_archive_manifest_free(&a->manifest);
    zoff_base_mem_free(a);
}

const zoff_archive_ref *zoff_archive_find(const zoff_archive *a, uint32_t param, unsigned kind, size_t slice, size_t element)
{
    size_t low = 0, high = a->ref_count;
    while (low < high) { /* the last piece that begins at or before the element */
        const size_t middle = low + (high - low) / 2;
        if (compare_places(&a->refs[middle].piece, param, kind, slice, element) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0)
        return NULL;
    const zoff_archive_piece *p = &a->refs[low - 1].piece;
    const bool holds = p->param == param && p->kind == kind && p->slice == slice && element - p->first < p->count;
    return holds ? &a->refs[low - 1] : NULL;
}

static const zoff_archive_item *find_in(const zoff_archive *a, const char *name, unsigned rank, uint32_t file)
{
    for (size_t i = 0; i < a->tables[file].item_count; i++) {
        const zoff_archive_item *item = &a->tables[file].items[i];
        if (strcmp(item->name, name) == 0 && (!item->each_rank || file == rank))
            return item;
    }
    return NULL;
}

/* Rank 0 has the data that all ranks share. Search the other ranks last, because there may be many of them. */
const zoff_archive_item *zoff_archive_item_find(const zoff_archive *a, const char *name, unsigned rank, uint32_t *out_file)
{
    const zoff_archive_item *item = NULL;
    const uint32_t count = (uint32_t)a->manifest.file_count;
    for (uint32_t i = 0; i < count + 2 && !item; i++) {
        *out_file = i == 0 ? 0 : i == 1 ? rank : i - 2;
        item = *out_file < count ? find_in(a, name, rank, *out_file) : NULL;
    }
    return item;
}
