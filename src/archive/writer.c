/* SPDX-License-Identifier: Apache-2.0 */
/* writer.c: the public calls that write a checkpoint without an engine: one file, with a region for each kind of state. */
#include "archive_priv.h"

#include "bits.h"
#include "cpu_adam.h"
#include "digest.h"
#include "structs.h"
#include "try.h"

#include <stdio.h>
#include <string.h>

/* The stream of one kind: parameters one behind the other, each slice at a multiple of ZOFF_ARCHIVE_PAD. */
typedef struct stream {
    uint32_t region;
    uint64_t bytes;   /* bytes of the region; 0: no parameter has this kind */
    uint64_t *starts; /* start of each parameter */
    uint64_t at;      /* end of the bytes that are written or left out */
    uint64_t unit_at; /* number of the unit in memory; those before it are in the file */
    char *unit;
    bool is_zero; /* nothing was put into the unit */
} stream;

struct zoff_checkpoint_writer {
    char *folder, *name, work[4096]; /* work: the hidden folder until commit; "": none was made */
    unsigned keep;
    zoff_archive_manifest manifest;
    zoff_archive_part part;
    stream streams[ZOFF_ARCHIVE_KINDS];
    uint64_t zero_checksum; /* checksum of a whole unit of zeros; 0: not known yet */
    bool is_broken;         /* a write or a flush failed, so bytes may be missing */
    bool is_ending, is_committed;
};

/* ---- open ---- */

static zoff_status copy_dims(const zoff_checkpoint_param *given, zoff_archive_param *p)
{
    size_t product = 1, all;
    ZOFF_FAIL_IF(given->dim_count > ZOFF_ARCHIVE_DIMS_MOST || (given->dim_count && !given->dims), ZOFF_ERR_INVALID,
                 "zoff_checkpoint_writer_open: '%.200s' has %zu dims; at most %d are possible, and dims must not be NULL",
                 given->name, given->dim_count, ZOFF_ARCHIVE_DIMS_MOST);
    p->dim_count = given->dim_count ? given->dim_count : 1;
    ZOFF_TRY(zoff_base_mem_alloc(p->dim_count, sizeof *p->dims, "dimensions", &p->dims));
    for (size_t i = 0; i < p->dim_count; i++) {
        p->dims[i] = given->dim_count ? given->dims[i] : given->count;
        ZOFF_FAIL_IF(!zoff_base_bits_mul(product, p->dims[i], &product) || product > ZOFF_ARCHIVE_ELEMENTS_MOST,
                     ZOFF_ERR_INVALID, "zoff_checkpoint_writer_open: '%.200s' has too many elements", given->name);
    }
    ZOFF_FAIL_IF(product != p->count, ZOFF_ERR_INVALID,
                 "zoff_checkpoint_writer_open: the product of the dims of '%.200s' is %zu, and count is %zu", given->name,
                 product, p->count);
    ZOFF_FAIL_IF(p->slices > INT64_MAX || !zoff_base_bits_mul(p->count, p->slices, &all) || all > ZOFF_ARCHIVE_ELEMENTS_MOST,
                 ZOFF_ERR_INVALID, "zoff_checkpoint_writer_open: '%.200s' has too many elements", given->name);
    return ZOFF_OK;
}

static zoff_status copy_param(const zoff_checkpoint_param *given, zoff_archive_param *p, const char **out_owner)
{
    zoff_checkpoint_param known = ZOFF_CHECKPOINT_PARAM_INIT;
    ZOFF_TRY(zoff_base_structs_read("zoff_checkpoint_param", "ZOFF_CHECKPOINT_PARAM_INIT", given, &known, sizeof known));
    ZOFF_FAIL_IF(!known.name, ZOFF_ERR_INVALID, "zoff_checkpoint_writer_open: a parameter has no name");
    ZOFF_FAIL_IF(strlen(known.name) > ZOFF_ARCHIVE_PARAM_NAME_MOST ||
                     (known.slice_name && strlen(known.slice_name) > ZOFF_ARCHIVE_PARAM_NAME_MOST),
                 ZOFF_ERR_INVALID, "zoff_checkpoint_writer_open: the name '%.100s...' is longer than %d bytes", known.name,
                 ZOFF_ARCHIVE_PARAM_NAME_MOST);
    ZOFF_FAIL_IF((unsigned)known.dtype > ZOFF_BF16, ZOFF_ERR_INVALID,
                 "zoff_checkpoint_writer_open: '%.200s' has the unknown dtype %d", known.name, (int)known.dtype);
    ZOFF_FAIL_IF(known.states >> ZOFF_ARCHIVE_KINDS, ZOFF_ERR_INVALID,
                 "zoff_checkpoint_writer_open: '%.200s' has unknown states", known.name);
    ZOFF_FAIL_IF(known.rule && !zoff_adam_matrix_rules_has(known.rule), ZOFF_ERR_INVALID,
                 "zoff_checkpoint_writer_open: '%.200s' has the unknown rule '%.40s'; use NULL or \"muon\"", known.name,
                 known.rule);
    *p = (zoff_archive_param){.count = known.count,
                              .slices = known.slices ? known.slices : 1,
                              .dtype = known.dtype ? known.dtype : ZOFF_F32,
                              .states = known.tied_to ? 0 : known.states};
    *out_owner = known.tied_to;
    ZOFF_TRY(zoff_base_mem_copy_text(known.name, &p->name));
    ZOFF_TRY(zoff_base_mem_copy_text(known.slice_name, &p->slice_name));
    ZOFF_TRY(zoff_base_mem_copy_text(known.tied_to ? NULL : known.rule, &p->rule));
    return copy_dims(&known, p);
}

/* Tie parameters. Names are unique, and owners are there, as a reader expects. */
static zoff_status tie_params(zoff_archive_manifest *m, const char *const *owners)
{
    const zoff_archive_param **sorted;
    ZOFF_TRY(zoff_archive_names_sort(m->params, m->param_count, &sorted));
    zoff_status status = ZOFF_OK;
    for (size_t i = 0; i < m->param_count && status == ZOFF_OK; i++)
        status = owners[i] ? zoff_archive_names_tie(m, sorted, owners[i], &m->params[i]) : ZOFF_OK;
    zoff_base_mem_free(sorted);
    return status;
}

static zoff_status copy_params(zoff_checkpoint_writer *w, const zoff_checkpoint_param *params, size_t count)
{
    zoff_archive_manifest *m = &w->manifest;
    const char **owners;
    zoff_status status = ZOFF_OK;
    ZOFF_FAIL_IF(count && !params, ZOFF_ERR_INVALID, "zoff_checkpoint_writer_open: params must not be NULL");
    ZOFF_FAIL_IF(count >= UINT32_MAX, ZOFF_ERR_INVALID, "zoff_checkpoint_writer_open: there are too many parameters");
    if (count)
        ZOFF_TRY(zoff_base_structs_check_out("zoff_checkpoint_param", "ZOFF_CHECKPOINT_PARAM_INIT", params));
    const size_t stride = count ? params->struct_size : 0;
    ZOFF_TRY(zoff_base_mem_alloc(count, sizeof *m->params, "parameters", &m->params));
    ZOFF_TRY(zoff_base_mem_alloc(count, sizeof *owners, "ties", &owners));
    for (size_t i = 0; i < count && status == ZOFF_OK; i++) {
        m->param_count = i + 1;
        status = copy_param((const void *)((const char *)params + i * stride), &m->params[i], &owners[i]);
    }
    if (status == ZOFF_OK)
        status = tie_params(m, owners);
    zoff_base_mem_free(owners);
    return status;
}

static size_t element_of(const zoff_archive_param *p, unsigned kind)
{
    return zoff_archive_table_element_bytes(kind == ZOFF_STATE_WEIGHTS ? (unsigned)p->dtype : (unsigned)ZOFF_ARCHIVE_F32);
}

static size_t slice_room(const zoff_archive_param *p, unsigned kind)
{
    return zoff_base_bits_align(p->count * element_of(p, kind), ZOFF_ARCHIVE_PAD);
}

/* Most bytes of one kind before its last parameter, so that no sum overflows. */
#define BYTES_MOST ((uint64_t)1 << 61)

/* Lay out one kind: where each parameter begins, and its pieces. */
static zoff_status lay_out(zoff_checkpoint_writer *w, unsigned kind)
{
    stream *s = &w->streams[kind];
    const uint32_t region = (uint32_t)w->part.table.region_count;
    uint64_t at = 0;
    ZOFF_TRY(zoff_base_mem_alloc(w->manifest.param_count + 1, sizeof *s->starts, "places of parameters", &s->starts));
    for (uint32_t i = 0; i < w->manifest.param_count; i++) {
        const zoff_archive_param *p = &w->manifest.params[i];
        s->starts[i] = at;
        ZOFF_FAIL_IF(at > BYTES_MOST, ZOFF_ERR_INVALID, "zoff_checkpoint_writer_open: the parameters have too many elements");
        for (size_t slice = 0; (p->states >> kind & 1) && p->count && slice < p->slices; slice++) {
            const zoff_archive_piece piece = {.param = i,
                                              .kind = (uint8_t)kind,
                                              .format = kind == ZOFF_STATE_WEIGHTS ? (uint8_t)p->dtype : ZOFF_ARCHIVE_F32,
                                              .block = 1,
                                              .region = region,
                                              .slice = slice,
                                              .count = p->count,
                                              .at = at};
            ZOFF_TRY(zoff_archive_table_add_piece(&w->part.table, &piece));
            at += slice_room(p, kind);
        }
    }
    if (at == 0)
        return ZOFF_OK;
    s->bytes = zoff_base_bits_align(at, ZOFF_ARCHIVE_PAGE);
    s->is_zero = true;
    ZOFF_TRY(zoff_base_mem_alloc(ZOFF_ARCHIVE_UNIT, 1, "a part of a checkpoint", &s->unit));
    return zoff_archive_part_region(&w->part, s->bytes, ZOFF_ARCHIVE_UNIT, &s->region);
}

static zoff_status open_part(zoff_checkpoint_writer *w, const char *folder, const zoff_checkpoint_opts *opts)
{
    char name[ZOFF_ARCHIVE_NAME_MOST + 1], whole[4096];
    zoff_archive_manifest *m = &w->manifest;
    ZOFF_TRY(zoff_archive_folder_absolute(folder, ZOFF_ARCHIVE_FOLDER_MOST, whole));
    ZOFF_TRY(zoff_archive_publish_name(opts, m->t, name));
    ZOFF_FAIL_IF(opts->engines > ZOFF_ARCHIVE_ENGINES_MOST, ZOFF_ERR_INVALID, "zoff_checkpoint_opts.engines is %u; at most %d",
                 opts->engines, ZOFF_ARCHIVE_ENGINES_MOST);
    ZOFF_TRY(zoff_base_mem_copy_text(whole, &w->folder));
    ZOFF_TRY(zoff_base_mem_copy_text(name, &w->name));
    ZOFF_TRY(zoff_base_mem_copy_text(opts->label ? opts->label : "", &m->label));
    m->engines = opts->engines ? opts->engines : 1;
    m->pinned = opts->pinned;
    ZOFF_TRY(zoff_base_mem_alloc(1, sizeof *m->files, "files of a checkpoint", &m->files));
    m->file_count = 1;
    ZOFF_TRY(zoff_archive_publish_begin(whole, name, m, true, w->work, &w->part));
    for (unsigned kind = 0; kind < ZOFF_ARCHIVE_KINDS; kind++)
        ZOFF_TRY(lay_out(w, kind));
    return ZOFF_OK;
}

zoff_status zoff_checkpoint_writer_open(const char *folder, const zoff_checkpoint_opts *opts, int64_t t,
                                        const zoff_checkpoint_param *params, size_t count, const zoff_loss_scaler *scaler,
                                        zoff_checkpoint_writer **out)
{
    zoff_status status;
    zoff_checkpoint_writer *w;
    zoff_checkpoint_opts known = ZOFF_CHECKPOINT_OPTS_INIT;
    ZOFF_FAIL_IF(!folder || !out || t < 0, ZOFF_ERR_INVALID,
                 "zoff_checkpoint_writer_open: folder and out must not be NULL, and t must not be negative");
    if (opts)
        ZOFF_TRY(zoff_base_structs_read("zoff_checkpoint_opts", "ZOFF_CHECKPOINT_OPTS_INIT", opts, &known, sizeof known));
    ZOFF_TRY(zoff_base_mem_alloc(1, sizeof *w, "a writer of checkpoints", &w));
    w->part.fd = -1;
    w->keep = known.keep;
    w->manifest.t = t;
    if (scaler) {
        w->manifest.has_scaler = true;
        w->manifest.scaler = (zoff_loss_scaler)ZOFF_LOSS_SCALER_INIT;
        ZOFF_TRY_OR(close_writer, zoff_base_structs_read("zoff_loss_scaler", "ZOFF_LOSS_SCALER_INIT", scaler,
                                                         &w->manifest.scaler, sizeof w->manifest.scaler));
    }
    ZOFF_TRY_OR(close_writer, copy_params(w, params, count));
    ZOFF_TRY_OR(close_writer, open_part(w, folder, &known));
    *out = w;
    return ZOFF_OK;
close_writer:
    zoff_checkpoint_writer_close(w);
    return status;
}

/* ---- write ---- */

/* Write the unit in memory, unless it is zero: then the file has a hole there. Go on to the next one. */
static zoff_status end_unit(zoff_checkpoint_writer *w, stream *s)
{
    const zoff_archive_region *r = &w->part.table.regions[s->region];
    const size_t bytes = zoff_archive_table_unit_bytes(r, (size_t)s->unit_at);
    const bool is_hole = s->is_zero && bytes == ZOFF_ARCHIVE_UNIT;
    uint64_t checksum = is_hole ? w->zero_checksum : 0, ticket;
    if (!checksum)
        checksum = zoff_digest_blocks_whole(s->unit, bytes, 1);
    if (is_hole)
        w->zero_checksum = checksum;
    if (!s->is_zero) {
        ZOFF_TRY(zoff_aio_write(w->part.aio, r->offset + s->unit_at * ZOFF_ARCHIVE_UNIT, bytes, s->unit, &ticket));
        ZOFF_TRY(zoff_aio_wait(w->part.aio, ticket));
        memset(s->unit, 0, bytes);
    }
    w->part.table.checksums[r->first_checksum + s->unit_at] = checksum;
    s->is_zero = true;
    s->unit_at++;
    return ZOFF_OK;
}

/* End the units before number `unit`. */
static zoff_status end_units(zoff_checkpoint_writer *w, stream *s, uint64_t unit)
{
    while (s->unit_at < unit)
        ZOFF_TRY(end_unit(w, s));
    return ZOFF_OK;
}

/* Copy elements, or round them to 16 bits as the library rounds weights. */
static void put(char *dst, const float *src, size_t count, size_t element, zoff_dtype dtype)
{
    const zoff_cast_piece cast = {.count = count, .dst = dst, .src = src, .dst_dtype = dtype, .src_dtype = ZOFF_F32};
    if (element == sizeof(float))
        memcpy(dst, src, count * sizeof *src);
    else
        zoff_adam_cast_run(1, &cast, 1);
}

/* Where an element lies in its stream. */
static uint64_t byte_of(const zoff_checkpoint_writer *w, size_t index, unsigned kind, size_t element)
{
    const zoff_archive_param *p = &w->manifest.params[index];
    return w->streams[kind].starts[index] + element / p->count * slice_room(p, kind) + element % p->count * element_of(p, kind);
}

static zoff_status write_slice(zoff_checkpoint_writer *w, size_t index, unsigned kind, size_t at, size_t count,
                               const float *src)
{
    stream *s = &w->streams[kind];
    const zoff_archive_param *p = &w->manifest.params[index];
    const size_t size = element_of(p, kind);
    uint64_t byte = byte_of(w, index, kind, at);
    while (count) {
        ZOFF_TRY(end_units(w, s, byte / ZOFF_ARCHIVE_UNIT));
        const size_t skip = (size_t)(byte % ZOFF_ARCHIVE_UNIT);
        const size_t now = zoff_base_bits_min(count, (ZOFF_ARCHIVE_UNIT - skip) / size);
        put(s->unit + skip, src, now, size, p->dtype);
        s->is_zero = false;
        src += now;
        count -= now;
        byte += now * size;
        s->at = byte;
    }
    return ZOFF_OK;
}

static zoff_status write_slices(zoff_checkpoint_writer *w, size_t index, unsigned kind, size_t first, size_t count,
                                const float *src)
{
    const zoff_archive_param *p = &w->manifest.params[index];
    for (size_t at = first; at < first + count;) {
        const size_t now = zoff_base_bits_min(first + count - at, p->count - at % p->count);
        ZOFF_TRY(write_slice(w, index, kind, at, now, src + (at - first)));
        at += now;
    }
    return ZOFF_OK;
}

zoff_status zoff_checkpoint_writer_write(zoff_checkpoint_writer *w, size_t index, zoff_state_kind kind, size_t first,
                                         size_t count, const float *src)
{
    ZOFF_FAIL_IF(!w || (count && !src), ZOFF_ERR_INVALID, "zoff_checkpoint_writer_write: writer and src must not be NULL");
    ZOFF_FAIL_IF(index >= w->manifest.param_count, ZOFF_ERR_INVALID, "zoff_checkpoint_writer_write: there is no parameter %zu",
                 index);
    const zoff_archive_param *p = &w->manifest.params[index];
    ZOFF_FAIL_IF((unsigned)kind >= (unsigned)ZOFF_ARCHIVE_KINDS || !(p->states >> kind & 1), ZOFF_ERR_INVALID,
                 "zoff_checkpoint_writer_write: '%.200s' has no state of kind %d", p->name, (int)kind);
    ZOFF_FAIL_IF(first > p->count * p->slices || count > p->count * p->slices - first, ZOFF_ERR_INVALID,
                 "zoff_checkpoint_writer_write: '%.200s' has %zu elements; a range of %zu from %zu is outside", p->name,
                 p->count * p->slices, count, first);
    ZOFF_FAIL_IF(w->is_ending, ZOFF_ERR_STATE, "zoff_checkpoint_writer_write: zoff_checkpoint_writer_commit() was called");
    if (count == 0)
        return ZOFF_OK;
    ZOFF_FAIL_IF(byte_of(w, index, (unsigned)kind, first) < w->streams[kind].at, ZOFF_ERR_INVALID,
                 "zoff_checkpoint_writer_write: elements of '%.200s' come after later ones; write each kind of state in the "
                 "order of parameters and elements",
                 p->name);
    const zoff_status status = write_slices(w, index, (unsigned)kind, first, count, src);
    w->is_broken = w->is_broken || status < 0;
    return status;
}

zoff_status zoff_checkpoint_writer_data(zoff_checkpoint_writer *w, const char *name, const void *bytes, size_t count)
{
    ZOFF_FAIL_IF(!w || !name || (count && !bytes), ZOFF_ERR_INVALID,
                 "zoff_checkpoint_writer_data: writer, name and bytes must not be NULL");
    ZOFF_FAIL_IF(w->is_ending, ZOFF_ERR_STATE, "zoff_checkpoint_writer_data: zoff_checkpoint_writer_commit() was called");
    return zoff_archive_part_item(&w->part, name, false, bytes, count);
}

/* ---- commit ---- */

zoff_status zoff_checkpoint_writer_commit(zoff_checkpoint_writer *w)
{
    ZOFF_FAIL_IF(!w, ZOFF_ERR_INVALID, "zoff_checkpoint_writer_commit: writer must not be NULL");
    ZOFF_FAIL_IF(w->is_broken, ZOFF_ERR_STATE,
                 "zoff_checkpoint_writer_commit: an earlier zoff_checkpoint_writer_write() or a flush failed, so bytes may be "
                 "missing; close the writer and begin again");
    if (w->is_committed)
        return ZOFF_OK;
    w->is_ending = true;
    for (unsigned kind = 0; kind < ZOFF_ARCHIVE_KINDS; kind++)
        ZOFF_TRY(end_units(w, &w->streams[kind], zoff_base_bits_ceil_div(w->streams[kind].bytes, ZOFF_ARCHIVE_UNIT)));
    zoff_status status = zoff_archive_part_finish(&w->part, &w->manifest.files[0]);
    w->is_broken = w->part.is_lost;
    ZOFF_TRY(status);
    status = zoff_archive_part_flush_name(&w->part);
    w->is_broken = status < 0;
    ZOFF_TRY(status);
    ZOFF_TRY(zoff_archive_publish_manifest(w->folder, w->name, &w->manifest, true, w->keep));
    w->part.keeps = true;
    w->is_committed = true;
    return ZOFF_OK;
}

void zoff_checkpoint_writer_close(zoff_checkpoint_writer *w)
{
    if (!w)
        return;
    zoff_archive_part_close(&w->part);
    if (!w->is_committed && *w->work)
        zoff_archive_remove_own(w->work, &w->manifest);
    for (unsigned kind = 0; kind < ZOFF_ARCHIVE_KINDS; kind++) {
        zoff_base_mem_free(w->streams[kind].starts);
        zoff_base_mem_free(w->streams[kind].unit);
    }
    zoff_archive_manifest_free(&w->manifest);
    zoff_base_mem_free(w->folder);
    zoff_base_mem_free(w->name);
    zoff_base_mem_free(w);
}
