/* SPDX-License-Identifier: Apache-2.0 */
/* reader.c: the public calls that read a checkpoint without an engine. */
#include "archive_priv.h"

#include "bits.h"
#include "cpu_adam.h"
#include "structs.h"
#include "try.h"

#include <string.h>

/* A unit that was read and verified. */
typedef struct cached {
    char *bytes;
    size_t room;
    zoff_archive_unit unit;
    bool holds;
} cached;

struct zoff_checkpoint_reader {
    zoff_archive *archive;
    cached units[ZOFF_ARCHIVE_PIECE_KINDS + 1]; /* units by kind; the last one is for verify */
    const zoff_archive_param **sorted;          /* parameters by name */
    uint64_t bytes;                             /* bytes of all files */
    size_t data_count;                          /* program data of all files */
};

static zoff_status open_archive(const char *folder, const char *label, zoff_checkpoint_reader *r)
{
    char *chosen;
    uint64_t least;
    bool has_gone = true;
    zoff_status status = ZOFF_OK;
    for (unsigned i = 0; i < ZOFF_ARCHIVE_OPEN_TRIES && has_gone; i++) {
        ZOFF_TRY(zoff_archive_choose(folder, label, &chosen, &least));
        status = zoff_archive_open(chosen, label, least, &r->archive);
        has_gone = status == ZOFF_ERR_STATE;
        zoff_base_mem_free(chosen);
    }
    if (status < 0)
        return status == ZOFF_ERR_STATE ? ZOFF_ERR_IO : status;
    const zoff_archive_manifest *m = &r->archive->manifest;
    r->bytes = r->archive->text_bytes;
    for (size_t i = 0; i < m->file_count; i++) {
        r->bytes += m->files[i].bytes;
        r->data_count += r->archive->tables[i].item_count;
    }
    return zoff_archive_names_sort(m->params, m->param_count, &r->sorted);
}

zoff_status zoff_checkpoint_reader_open(const char *folder, const char *label, zoff_checkpoint_reader **out)
{
    zoff_checkpoint_reader *r;
    ZOFF_FAIL_IF(!folder || !out, ZOFF_ERR_INVALID, "zoff_checkpoint_reader_open: folder and out must not be NULL");
    if (label && *label)
        ZOFF_TRY(zoff_archive_folder_check_label("zoff_checkpoint_reader_open: label", label));
    ZOFF_TRY(zoff_base_mem_alloc(1, sizeof *r, "a reader of checkpoints", &r));
    const zoff_status status = open_archive(folder, label ? label : "", r);
    if (status < 0)
        zoff_checkpoint_reader_close(r);
    else
        *out = r;
    return status;
}

void zoff_checkpoint_reader_close(zoff_checkpoint_reader *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < sizeof r->units / sizeof r->units[0]; i++)
        zoff_base_mem_free(r->units[i].bytes);
    zoff_base_mem_free(r->sorted);
    zoff_archive_close(r->archive);
    zoff_base_mem_free(r);
}

zoff_status zoff_checkpoint_reader_info(const zoff_checkpoint_reader *r, zoff_checkpoint_info *out)
{
    ZOFF_FAIL_IF(!r || !out, ZOFF_ERR_INVALID, "zoff_checkpoint_reader_info: reader and out must not be NULL");
    ZOFF_TRY(zoff_base_structs_check_out("zoff_checkpoint_info", "ZOFF_CHECKPOINT_INFO_INIT", out));
    const zoff_archive_manifest *m = &r->archive->manifest;
    const zoff_checkpoint_info info = {.struct_size = sizeof info,
                                       .folder = r->archive->folder,
                                       .id = m->id,
                                       .label = m->label,
                                       .t = m->t,
                                       .bytes = r->bytes,
                                       .param_count = m->param_count,
                                       .ranks = (unsigned)m->file_count,
                                       .has_loss_scaler = m->has_scaler,
                                       .loss_scaler = m->scaler,
                                       .data_count = r->data_count,
                                       .pinned = zoff_archive_pin_is_there(r->archive->folder)};
    zoff_base_structs_write(&info, sizeof info, out);
    return ZOFF_OK;
}

static zoff_status check_index(const zoff_checkpoint_reader *r, size_t index, const char *call)
{
    ZOFF_FAIL_IF(!r, ZOFF_ERR_INVALID, "%s: reader must not be NULL", call);
    ZOFF_FAIL_IF(index >= r->archive->manifest.param_count, ZOFF_ERR_INVALID,
                 "%s: there is no parameter %zu; the checkpoint has %zu", call, index, r->archive->manifest.param_count);
    return ZOFF_OK;
}

static zoff_status check_kind(const zoff_archive_param *p, zoff_state_kind kind, const char *call)
{
    ZOFF_FAIL_IF((unsigned)kind >= (unsigned)ZOFF_ARCHIVE_KINDS || !(p->states >> kind & 1), ZOFF_ERR_INVALID,
                 "%s: '%.200s' has no state of kind %d", call, p->name, (int)kind);
    return ZOFF_OK;
}

zoff_status zoff_checkpoint_reader_param(const zoff_checkpoint_reader *r, size_t index, zoff_checkpoint_param *out)
{
    ZOFF_TRY(check_index(r, index, "zoff_checkpoint_reader_param"));
    ZOFF_FAIL_IF(!out, ZOFF_ERR_INVALID, "zoff_checkpoint_reader_param: out must not be NULL");
    ZOFF_TRY(zoff_base_structs_check_out("zoff_checkpoint_param", "ZOFF_CHECKPOINT_PARAM_INIT", out));
    const zoff_archive_manifest *m = &r->archive->manifest;
    const zoff_archive_param *p = &m->params[index], *owner = &m->params[zoff_archive_owner(r->archive, (uint32_t)index)];
    const zoff_checkpoint_param param = {.struct_size = sizeof param,
                                         .name = p->name,
                                         .slice_name = p->slice_name,
                                         .tied_to = p->tied_to ? owner->name : NULL,
                                         .dims = p->dims,
                                         .dim_count = p->dim_count,
                                         .count = p->count,
                                         .slices = p->slices,
                                         .dtype = p->dtype,
                                         .states = owner->states,
                                         .rule = owner->rule};
    zoff_base_structs_write(&param, sizeof param, out);
    return ZOFF_OK;
}

zoff_status zoff_checkpoint_reader_find(const zoff_checkpoint_reader *r, const char *name, size_t *out_index)
{
    ZOFF_FAIL_IF(!r || !name || !out_index, ZOFF_ERR_INVALID,
                 "zoff_checkpoint_reader_find: reader, name and out_index must not be NULL");
    const zoff_archive_manifest *m = &r->archive->manifest;
    const zoff_archive_param *found = zoff_archive_names_find(r->sorted, m->param_count, name);
    ZOFF_FAIL_IF(!found, ZOFF_ERR_INVALID, "the checkpoint '%s' has no parameter '%.200s'", r->archive->folder, name);
    *out_index = (size_t)(found - m->params);
    return ZOFF_OK;
}

zoff_status zoff_checkpoint_reader_format(const zoff_checkpoint_reader *r, size_t index, zoff_state_kind kind, const char **out)
{
    static const char *const NAMES[] = {
        [ZOFF_ARCHIVE_F32] = "fp32",    [ZOFF_ARCHIVE_F16] = "fp16", [ZOFF_ARCHIVE_BF16] = "bf16",
        [ZOFF_ARCHIVE_SPLIT] = "split", [ZOFF_ARCHIVE_M8] = "q8",    [ZOFF_ARCHIVE_V8] = "q8"};
    ZOFF_TRY(check_index(r, index, "zoff_checkpoint_reader_format"));
    ZOFF_FAIL_IF(!out, ZOFF_ERR_INVALID, "zoff_checkpoint_reader_format: out must not be NULL");
    const zoff_archive *a = r->archive;
    const uint32_t owner = zoff_archive_owner(a, (uint32_t)index);
    const zoff_archive_param *p = &a->manifest.params[owner];
    ZOFF_TRY(check_kind(p, kind, "zoff_checkpoint_reader_format"));
    const zoff_archive_ref *ref = zoff_archive_find(a, owner, (unsigned)kind, 0, 0), *end = a->refs + a->ref_count;
    const unsigned format = ref ? ref->piece.format : kind == ZOFF_STATE_WEIGHTS ? (unsigned)p->dtype : ZOFF_ARCHIVE_F32;
    *out = NAMES[format];
    for (; ref && ref < end && ref->piece.param == owner && ref->piece.kind == (unsigned)kind; ref++) {
        if (ref->piece.format != format)
            *out = "mixed";
    }
    return ZOFF_OK;
}

/* Read a unit, unless the cache has it. */
static zoff_status fetch(zoff_checkpoint_reader *r, cached *c, zoff_archive_unit unit)
{
    if (c->holds && c->unit.file == unit.file && c->unit.region == unit.region && c->unit.unit == unit.unit)
        return ZOFF_OK;
    const size_t needed = zoff_archive_units_bytes(r->archive, unit);
    /* Ask for the next unit, so that the disk reads it while this one is compared. */
    if (c->holds && c->unit.file == unit.file && c->unit.region == unit.region && c->unit.unit + 1 == unit.unit)
        zoff_archive_units_expect(r->archive, (zoff_archive_unit){unit.file, unit.region, unit.unit + 1});
    c->holds = false;
    if (needed > c->room) {
        zoff_base_mem_free(c->bytes);
        c->bytes = NULL;
        c->room = 0;
        ZOFF_TRY(zoff_base_mem_alloc(needed, 1, "a part of a checkpoint", &c->bytes));
        c->room = needed;
    }
    ZOFF_TRY(zoff_archive_units_read(r->archive, unit, c->bytes, 1));
    c->unit = unit;
    c->holds = true;
    return ZOFF_OK;
}

/* Elements of a slice that are in memory: as many as follow in their unit and piece. */
typedef struct stretch {
    char *bytes;
    size_t count;
    unsigned format;
} stretch;

static zoff_status find_stretch(zoff_checkpoint_reader *r, uint32_t param, unsigned kind, size_t slice, size_t element,
                                stretch *out)
{
    const zoff_archive_ref *ref = zoff_archive_find(r->archive, param, kind, slice, element);
    ZOFF_FAIL_IF(!ref, ZOFF_ERR_CORRUPT, "the checkpoint '%s' lacks elements of '%.200s'", r->archive->folder,
                 r->archive->manifest.params[param].name);
    const zoff_archive_piece *p = &ref->piece;
    const size_t size = zoff_archive_table_element_bytes(p->format);
    const uint64_t byte = p->at + (element - p->first) * size;
    const zoff_archive_unit unit = zoff_archive_units_of(r->archive, ref->file, p->region, byte);
    const uint64_t skip = byte - unit.unit * r->archive->tables[ref->file].regions[p->region].unit;
    ZOFF_TRY(fetch(r, &r->units[kind], unit));
    *out = (stretch){.bytes = r->units[kind].bytes + skip, .format = p->format};
    out->count =
        zoff_base_bits_min(p->first + p->count - element, (size_t)((zoff_archive_units_bytes(r->archive, unit) - skip) / size));
    return ZOFF_OK;
}

/* Copy bytes of a region, which may lie in two units. */
static zoff_status copy_bytes(zoff_checkpoint_reader *r, const zoff_archive_ref *ref, uint64_t byte, size_t count, char *dst)
{
    const zoff_archive_piece *p = &ref->piece;
    for (size_t done = 0, now; done < count; done += now) {
        const zoff_archive_unit unit = zoff_archive_units_of(r->archive, ref->file, p->region, byte + done);
        const uint64_t skip = byte + done - unit.unit * r->archive->tables[ref->file].regions[p->region].unit;
        ZOFF_TRY(fetch(r, &r->units[p->kind], unit));
        now = zoff_base_bits_min(count - done, (size_t)(zoff_archive_units_bytes(r->archive, unit) - skip));
        memcpy(dst + done, r->units[p->kind].bytes + skip, now);
    }
    return ZOFF_OK;
}

/* Read elements of one block. */
static zoff_status read_block(zoff_checkpoint_reader *r, const zoff_archive_ref *ref, size_t element, float *dst,
                              size_t *in_out_count)
{
    const zoff_archive_piece *p = &ref->piece;
    const size_t begin = (element - p->first) / ZOFF_ARCHIVE_BLOCK * ZOFF_ARCHIVE_BLOCK, skip = element - p->first - begin;
    const size_t length = zoff_base_bits_min(p->count - begin, (size_t)ZOFF_ARCHIVE_BLOCK);
    const size_t count = zoff_base_bits_min(*in_out_count, length - skip);
    char block[2 * ZOFF_ARCHIVE_BLOCK];
    ZOFF_TRY(copy_bytes(r, ref, p->at + zoff_archive_table_bytes_of(p->format, begin),
                        zoff_archive_table_bytes_of(p->format, length), block));
    zoff_archive_table_load(p->format, block, skip, count, dst);
    *in_out_count = count;
    return ZOFF_OK;
}

/* Read elements of a slice.  @return in *out_count how many: until the end of a unit or a piece */
static zoff_status read_some(zoff_checkpoint_reader *r, uint32_t param, unsigned kind, size_t slice, size_t element, float *dst,
                             size_t *in_out_count)
{
    stretch s, upper = {.count = SIZE_MAX};
    const zoff_archive_ref *ref = zoff_archive_find(r->archive, param, kind, slice, element);
    if (ref && zoff_archive_table_block(ref->piece.format) != 1)
        return read_block(r, ref, element, dst, in_out_count);
    ZOFF_TRY(find_stretch(r, param, kind, slice, element, &s));
    if (s.format == ZOFF_ARCHIVE_SPLIT)
        ZOFF_TRY(find_stretch(r, param, ZOFF_ARCHIVE_UPPER, slice, element, &upper));
    const size_t count = zoff_base_bits_min(*in_out_count, zoff_base_bits_min(s.count, upper.count));
    const bool is_split = upper.bytes != NULL;
    const zoff_cast_piece cast = {.count = count,
                                  .dst = dst,
                                  .src = is_split ? upper.bytes : s.bytes,
                                  .dst_dtype = ZOFF_F32,
                                  .src_dtype = (zoff_dtype)(is_split ? upper.format : s.format),
                                  .low = is_split ? (uint16_t *)(void *)s.bytes : NULL};
    zoff_adam_cast_run(1, &cast, 1);
    *in_out_count = count;
    return ZOFF_OK;
}

zoff_status zoff_checkpoint_reader_read(zoff_checkpoint_reader *r, size_t index, zoff_state_kind kind, size_t first,
                                        size_t count, float *dst)
{
    ZOFF_TRY(check_index(r, index, "zoff_checkpoint_reader_read"));
    const uint32_t owner = zoff_archive_owner(r->archive, (uint32_t)index);
    const zoff_archive_param *p = &r->archive->manifest.params[owner];
    ZOFF_TRY(check_kind(p, kind, "zoff_checkpoint_reader_read"));
    ZOFF_FAIL_IF(first > p->count * p->slices || count > p->count * p->slices - first, ZOFF_ERR_INVALID,
                 "zoff_checkpoint_reader_read: '%.200s' has %zu elements; a range of %zu from %zu is outside", p->name,
                 p->count * p->slices, count, first);
    ZOFF_FAIL_IF(count && !dst, ZOFF_ERR_INVALID, "zoff_checkpoint_reader_read: dst must not be NULL");
    for (size_t at = first; at < first + count;) {
        size_t got = first + count - at;
        ZOFF_TRY(read_some(r, owner, (unsigned)kind, at / p->count, at % p->count, dst + (at - first), &got));
        at += got;
    }
    return ZOFF_OK;
}

zoff_status zoff_checkpoint_reader_data(zoff_checkpoint_reader *r, const char *name, unsigned rank, void *dst, size_t room,
                                        size_t *out_count)
{
    uint32_t file;
    ZOFF_FAIL_IF(!r || !name || (room && !dst), ZOFF_ERR_INVALID,
                 "zoff_checkpoint_reader_data: reader, name and dst must not be NULL");
    const zoff_archive_item *item = zoff_archive_item_find(r->archive, name, rank, &file);
    ZOFF_FAIL_IF(!item, ZOFF_ERR_INVALID, "the checkpoint '%s' has no data '%.200s' of rank %u", r->archive->folder, name,
                 rank);
    ZOFF_TRY(zoff_archive_units_read_item(r->archive, file, item, dst, room));
    if (out_count)
        *out_count = item->count;
    return ZOFF_OK;
}

zoff_status zoff_checkpoint_reader_data_at(const zoff_checkpoint_reader *r, size_t index, zoff_checkpoint_data *out,
                                           unsigned *out_rank)
{
    ZOFF_FAIL_IF(!r || !out, ZOFF_ERR_INVALID, "zoff_checkpoint_reader_data_at: reader and out must not be NULL");
    ZOFF_FAIL_IF(index >= r->data_count, ZOFF_ERR_INVALID,
                 "zoff_checkpoint_reader_data_at: there are no data %zu; the checkpoint has %zu", index, r->data_count);
    const zoff_archive_table *file = r->archive->tables;
    for (; index >= file->item_count; file++)
        index -= file->item_count;
    const zoff_archive_item *item = &file->items[index];
    *out = (zoff_checkpoint_data){.name = item->name, .count = item->count, .each_rank = item->each_rank};
    if (out_rank)
        *out_rank = item->each_rank ? (unsigned)(file - r->archive->tables) : 0;
    return ZOFF_OK;
}

zoff_status zoff_checkpoint_reader_manifest(const zoff_checkpoint_reader *r, char *dst, size_t dst_bytes, size_t *out_bytes)
{
    ZOFF_FAIL_IF(!r || (dst_bytes && !dst), ZOFF_ERR_INVALID,
                 "zoff_checkpoint_reader_manifest: reader and dst must not be NULL");
    if (dst_bytes) {
        const size_t bytes = zoff_base_bits_min(dst_bytes - 1, r->archive->text_bytes);
        memcpy(dst, r->archive->text, bytes);
        dst[bytes] = 0;
    }
    if (out_bytes)
        *out_bytes = r->archive->text_bytes;
    return ZOFF_OK;
}

/* ---- verify ---- */

zoff_status zoff_checkpoint_reader_verify(zoff_checkpoint_reader *r, zoff_progress_fn progress, void *ctx)
{
    ZOFF_FAIL_IF(!r, ZOFF_ERR_INVALID, "zoff_checkpoint_reader_verify: reader must not be NULL");
    /* manifest, heads and tables count as done, because they were verified when the checkpoint was opened */
    uint64_t done = r->bytes;
    for (uint32_t file = 0; file < r->archive->manifest.file_count; file++)
        done -= r->archive->manifest.files[file].table_offset - ZOFF_ARCHIVE_PAGE;
    cached *c = &r->units[ZOFF_ARCHIVE_PIECE_KINDS];
    for (uint32_t file = 0; file < r->archive->manifest.file_count; file++) {
        const zoff_archive_table *t = &r->archive->tables[file];
        for (uint32_t region = 0; region < t->region_count; region++) {
            for (uint64_t unit = 0; unit < zoff_archive_table_units(&t->regions[region]); unit++) {
                const zoff_archive_unit u = {.file = file, .region = region, .unit = unit};
                ZOFF_TRY(fetch(r, c, u));
                done += zoff_archive_units_bytes(r->archive, u);
                ZOFF_FAIL_IF(progress && !progress("verify", done, r->bytes, ctx), ZOFF_ERR_CANCELED,
                             "zoff_checkpoint_reader_verify: canceled");
            }
        }
    }
    return ZOFF_OK;
}
