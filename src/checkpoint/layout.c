/* SPDX-License-Identifier: Apache-2.0 */
/* layout.c: which bytes of this rank go into which regions of its file. An array of a chunk is a region as it lies, so that it
 * is written from where it is, and a state file can be cloned. Weights that are masters, or half of them, are copied into a
 * region. */
#include "checkpoint_priv.h"

#include "array.h"
#include "bits.h"
#include "digest.h"
#include "try.h"

#include <string.h>

/* The pieces of a chunk that this rank saves. Ranks that all have all states share them: by pieces in DRAM, and by whole chunks
 * in files, because an array of a file is verified as a whole. */
static zoff_plan_span own_pieces(const zoff_engine_view *v, size_t chunk)
{
    return v->tier == ZOFF_TIER_NVME ? zoff_zero_plan_own_whole(v->plan, chunk) : zoff_zero_plan_own(v->plan, chunk);
}

/* Bytes of a piece in an array; 0: the array has none of it. */
static size_t state_bytes(const zoff_engine_view *v, const zoff_plan_piece *piece, unsigned array)
{
    const zoff_plan_tensor tensor = zoff_model_params_tensor(v->model, &v->model->params[piece->param]);
    return zoff_zero_plan_bytes(&tensor, array, piece->count);
}

static const zoff_master_form *form_of(const zoff_engine_view *v, const zoff_plan_piece *piece)
{
    return zoff_model_masters_of(v->model, &v->model->params[piece->param]);
}

/* Whether the weights of a piece are saved themselves, because they are frozen, are the masters, or are half of them. */
static bool has_weights(const zoff_engine_view *v, const zoff_plan_piece *piece, bool skip_frozen)
{
    const bool is_copied = state_bytes(v, piece, ZOFF_STREAM_MASTER) && !form_of(v, piece)->is_split;
    return v->model->params[piece->param].frozen ? !skip_frozen : !is_copied;
}

/* The kind of state that these weights are. */
static unsigned weights_kind(const zoff_engine_view *v, const zoff_plan_piece *piece)
{
    const unsigned trained = form_of(v, piece)->is_split ? (unsigned)ZOFF_ARCHIVE_UPPER : (unsigned)ZOFF_STATE_MASTER;
    return v->model->params[piece->param].frozen ? (unsigned)ZOFF_STATE_WEIGHTS : trained;
}

static zoff_status add_source(zoff_saver *s, const zoff_save_source *source)
{
    ZOFF_TRY(zoff_base_array_reserve(&s->sources, s->source_count, &s->source_room, s->source_count + 1, sizeof *s->sources,
                                     "regions of a checkpoint"));
    s->sources[s->source_count++] = *source;
    s->by_chunk[source->chunk * (ZOFF_STORE_ARRAYS + 1) + source->array] = (uint32_t)s->source_count;
    return ZOFF_OK;
}

static zoff_status add_piece(zoff_saver *s, const zoff_plan_piece *piece, unsigned kind, unsigned format, uint32_t region,
                             uint64_t at)
{
    const zoff_archive_piece added = {.param = piece->param,
                                      .kind = (uint8_t)kind,
                                      .format = (uint8_t)format,
                                      .block = zoff_archive_table_block(format),
                                      .region = region,
                                      .slice = piece->slice,
                                      .first = piece->first,
                                      .count = piece->count,
                                      .at = at};
    return zoff_archive_table_add_piece(&s->part.table, &added);
}

/* ---- arrays of states ---- */

/* Bytes, in whole pages, of a chunk that holds this rank's pieces of one array. */
static void find_bytes(const zoff_engine_view *v, size_t chunk, zoff_plan_span own, unsigned array, size_t *from, size_t *to)
{
    const zoff_plan_chunk *c = &v->plan->chunks[chunk];
    *from = SIZE_MAX;
    *to = 0;
    for (size_t i = own.first_piece; i < own.first_piece + own.piece_count; i++) {
        const zoff_plan_piece *piece = &v->plan->pieces[i];
        const size_t bytes = state_bytes(v, piece, array);
        if (!bytes)
            continue;
        const size_t begin = c->starts[array] + piece->offsets[array];
        *from = zoff_base_bits_min(*from, begin / ZOFF_ARCHIVE_PAGE * ZOFF_ARCHIVE_PAGE);
        *to = zoff_base_bits_max(*to, zoff_base_bits_align(begin + bytes, ZOFF_ARCHIVE_PAGE));
    }
}

/* Where the bytes [from, to) of a chunk are. A file is read in whole arrays, so these become the range. */
static zoff_status find_place(const zoff_engine_view *v, zoff_save_source *source, size_t *from, size_t *to)
{
    if (zoff_transfer_device_tier_alone(v->transfer, source->chunk)) {
        source->place = ZOFF_SAVE_VISIT;
        return ZOFF_OK;
    }
    ZOFF_TRY(zoff_offload_store_source(v->store, source->chunk, source->array, &source->file));
    if (source->file.memory) {
        source->place = ZOFF_SAVE_MEMORY;
        source->memory = source->file.memory + (*from - source->file.begin);
        return ZOFF_OK;
    }
    source->place = ZOFF_SAVE_FILE;
    *from = source->file.begin;
    *to = *from + source->file.bytes;
    return ZOFF_OK;
}

static zoff_status add_array(zoff_saver *s, size_t chunk, zoff_plan_span own, unsigned array)
{
    const zoff_engine_view *v = &s->view;
    const zoff_plan_chunk *c = &v->plan->chunks[chunk];
    zoff_save_source source = {.chunk = chunk, .array = array};
    size_t from, to;
    find_bytes(v, chunk, own, array, &from, &to);
    if (from >= to)
        return ZOFF_OK;
    ZOFF_TRY(find_place(v, &source, &from, &to));
    source.begin = from;
    _Static_assert((int)ZOFF_SAVE_UNIT == (int)ZOFF_ARCHIVE_UNIT, "what the plan counts with");
    const uint64_t unit = source.place == ZOFF_SAVE_FILE ? 0 : ZOFF_ARCHIVE_UNIT;
    ZOFF_TRY(zoff_archive_part_region(&s->part, to - from, unit, &source.region));
    for (size_t i = own.first_piece; i < own.first_piece + own.piece_count; i++) {
        const zoff_plan_piece *piece = &v->plan->pieces[i];
        const unsigned format = zoff_planning_describe_format(v->model, &v->model->params[piece->param], array);
        if (state_bytes(v, piece, array))
            ZOFF_TRY(add_piece(s, piece, array, format, source.region, c->starts[array] + piece->offsets[array] - from));
    }
    return add_source(s, &source);
}

/* ---- weights that are saved as such ---- */

/* The engine's weights of a chunk are in DRAM as a whole, or show only while they are borrowed. */
static zoff_status find_weights(const zoff_engine_view *v, zoff_save_source *source)
{
    const zoff_plan_chunk *c = &v->plan->chunks[source->chunk];
    zoff_store_source weights;
    source->place = ZOFF_SAVE_PIECES;
    if (!c->weight_bytes)
        return ZOFF_OK;
    if (!v->lending->home->is_dram) {
        source->place = ZOFF_SAVE_VISIT;
        return ZOFF_OK;
    }
    ZOFF_TRY(zoff_offload_store_source(v->lending->store, source->chunk, 0, &weights));
    source->memory = weights.memory;
    return ZOFF_OK;
}

static zoff_status add_weights(zoff_saver *s, size_t chunk, zoff_plan_span own, bool skip_frozen)
{
    const zoff_engine_view *v = &s->view;
    const zoff_plan_chunk *c = &v->plan->chunks[chunk];
    zoff_save_source source = {.chunk = chunk, .array = ZOFF_STORE_ARRAYS};
    const uint32_t region = (uint32_t)s->part.table.region_count;
    uint64_t at = 0;
    for (size_t i = c->first_piece; i < c->first_piece + c->piece_count; i++) {
        const zoff_plan_piece *piece = &v->plan->pieces[i];
        const zoff_model_param *p = &v->model->params[piece->param];
        const bool is_own = i - own.first_piece < own.piece_count;
        s->weights_at[i] = at;
        if (!is_own || !has_weights(v, piece, skip_frozen))
            continue;
        s->weights_bytes[i] = piece->count * zoff_adam_dtype_bytes(p->dtype);
        ZOFF_TRY(add_piece(s, piece, weights_kind(v, piece), (unsigned)p->dtype, region, at));
        at = zoff_base_bits_align(at + s->weights_bytes[i], ZOFF_ARCHIVE_PAD);
    }
    if (at == 0)
        return ZOFF_OK;
    ZOFF_TRY(find_weights(v, &source));
    ZOFF_TRY(
        zoff_archive_part_region(&s->part, zoff_base_bits_align(at, ZOFF_ARCHIVE_PAGE), ZOFF_ARCHIVE_UNIT, &source.region));
    return add_source(s, &source);
}

/* ---- frozen weights of the program ---- */

/* Call `visit` for each slice that this rank saves. They are in no chunk. */
static zoff_status visit_frozen(const zoff_engine_view *v, zoff_status (*visit)(void *ctx, uint32_t param, size_t slice),
                                void *ctx)
{
    size_t number = 0;
    for (uint32_t i = 0; i < v->model->param_count; i++) {
        const zoff_model_param *p = &v->model->params[i];
        const bool is_own = p->frozen && !p->engine_owned && p->count && p->value && zoff_model_params_owner(v->model, i) == i;
        for (size_t slice = 0; is_own && slice < p->slices; slice++, number++) {
            if (number % zoff_comm_size(v->comm) == zoff_comm_rank(v->comm))
                ZOFF_TRY(visit(ctx, i, slice));
        }
    }
    return ZOFF_OK;
}

static zoff_status add_frozen_slice(void *ctx, uint32_t param, size_t slice)
{
    zoff_saver *s = ctx;
    const zoff_model_param *p = &s->view.model->params[param];
    const zoff_plan_piece piece = {.param = param, .slice = slice, .count = p->count};
    ZOFF_TRY(
        add_piece(s, &piece, ZOFF_STATE_WEIGHTS, (unsigned)p->dtype, (uint32_t)s->part.table.region_count, s->frozen.bytes));
    s->frozen.bytes += zoff_base_bits_align(p->count * zoff_adam_dtype_bytes(p->dtype), ZOFF_ARCHIVE_PAD);
    return ZOFF_OK;
}

static zoff_status add_frozen(zoff_saver *s)
{
    ZOFF_TRY(visit_frozen(&s->view, add_frozen_slice, s));
    s->frozen.has = s->frozen.bytes > 0;
    if (!s->frozen.has)
        return ZOFF_OK;
    s->frozen.bytes = zoff_base_bits_align(s->frozen.bytes, ZOFF_ARCHIVE_PAGE);
    return zoff_archive_part_region(&s->part, s->frozen.bytes, ZOFF_ARCHIVE_UNIT, &s->frozen.region);
}

/* ---- all ---- */

static zoff_status add_units(zoff_saver *s)
{
    for (size_t i = 0; i < s->source_count; i++) {
        zoff_save_source *source = &s->sources[i];
        const zoff_archive_region *r = &s->part.table.regions[source->region];
        source->first_unit = s->unit_count;
        source->unit_count = zoff_archive_table_units(r);
        ZOFF_TRY(zoff_base_array_reserve(&s->units, s->unit_count, &s->unit_room, s->unit_count + source->unit_count,
                                         sizeof *s->units, "units of a checkpoint"));
        for (size_t k = 0; k < source->unit_count; k++)
            s->units[s->unit_count++] = (zoff_save_unit){.source = (uint32_t)i, .number = (uint32_t)k};
    }
    return ZOFF_OK;
}

zoff_status zoff_checkpoint_layout_make(zoff_saver *s, bool skip_frozen)
{
    const zoff_plan *plan = s->view.plan;
    ZOFF_TRY(zoff_base_mem_alloc(plan->chunk_count * (ZOFF_STORE_ARRAYS + 1) + 1, sizeof *s->by_chunk,
                                 "regions of a checkpoint", &s->by_chunk));
    ZOFF_TRY(zoff_base_mem_alloc(plan->piece_count + 1, sizeof *s->weights_at, "pieces of a checkpoint", &s->weights_at));
    ZOFF_TRY(zoff_base_mem_alloc(plan->piece_count + 1, sizeof *s->weights_bytes, "pieces of a checkpoint", &s->weights_bytes));
    for (size_t chunk = 0; chunk < plan->chunk_count; chunk++) {
        const zoff_plan_span own = own_pieces(&s->view, chunk);
        for (unsigned array = 0; array < ZOFF_STORE_ARRAYS; array++)
            ZOFF_TRY(add_array(s, chunk, own, array));
        ZOFF_TRY(add_weights(s, chunk, own, skip_frozen));
    }
    if (!skip_frozen)
        ZOFF_TRY(add_frozen(s));
    return add_units(s);
}

/* ---- writing frozen weights of the program, on the host or on a device ---- */

/* The region as it is written: one unit after the other. */
typedef struct stream {
    zoff_saver *saver;
    const zoff_archive_region *region;
    char *unit;
    uint64_t at;  /* bytes before it are written, or in the unit */
    bool is_used; /* after an error the device or the disk may still access the unit */
} stream;

static zoff_status end_unit(stream *w)
{
    const zoff_archive_region *r = w->region;
    zoff_saver *s = w->saver;
    const uint64_t number = (w->at - 1) / r->unit;
    const size_t bytes = zoff_archive_table_unit_bytes(r, (size_t)number);
    uint64_t ticket;
    s->part.table.checksums[r->first_checksum + number] = zoff_digest_blocks_whole(w->unit, bytes, s->view.threads);
    ZOFF_TRY(zoff_aio_write(s->part.aio, r->offset + number * r->unit, bytes, w->unit, &ticket));
    const zoff_status status = zoff_aio_wait(s->part.aio, ticket);
    w->is_used = status == ZOFF_PENDING;
    ZOFF_FAIL_IF(w->is_used, ZOFF_ERR_IO, "'%s' is not written in time (timeout_seconds)", s->part.path);
    memset(w->unit, 0, r->unit);
    return status;
}

static zoff_status add_slice(void *ctx, uint32_t param, size_t slice)
{
    stream *w = ctx;
    zoff_transfer *t = w->saver->view.transfer;
    const zoff_model_param *p = &w->saver->view.model->params[param];
    const size_t element = zoff_adam_dtype_bytes(p->dtype);
    const uint64_t end = w->at + zoff_base_bits_align(p->count * element, ZOFF_ARCHIVE_PAD);
    const char *value = p->value + slice * p->value_stride;
    for (size_t left = p->count; left;) {
        const size_t skip = (size_t)(w->at % w->region->unit);
        const size_t count = zoff_base_bits_min(left, (w->region->unit - skip) / element);
        const zoff_cast_piece move = {
            .count = count, .dst = w->unit + skip, .src = value, .dst_dtype = p->dtype, .src_dtype = p->dtype};
        const zoff_status status = t->route.link->move(t, &move, 1, false);
        w->is_used = status < 0 && !zoff_transfer_streams_end(t);
        ZOFF_TRY(status);
        value += count * element;
        left -= count;
        w->at += count * element;
        if (w->at % w->region->unit == 0)
            ZOFF_TRY(end_unit(w));
    }
    if (w->at / w->region->unit != end / w->region->unit && w->at % w->region->unit) {
        w->at = end / w->region->unit * w->region->unit;
        ZOFF_TRY(end_unit(w));
    }
    w->at = end;
    return ZOFF_OK;
}

zoff_status zoff_checkpoint_layout_write_frozen(zoff_saver *s)
{
    stream w = {.saver = s};
    if (!s->frozen.has)
        return ZOFF_OK;
    w.region = &s->part.table.regions[s->frozen.region];
    ZOFF_TRY(zoff_base_mem_alloc(w.region->unit, 1, "frozen weights for a checkpoint", &w.unit));
    zoff_status status = visit_frozen(&s->view, add_slice, &w);
    const bool is_begun = w.at % w.region->unit != 0;
    if (status == ZOFF_OK && is_begun)
        status = end_unit(&w);
    if (!w.is_used)
        zoff_base_mem_free(w.unit);
    return status;
}
