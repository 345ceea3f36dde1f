/* fill.c: fills the states of a chunk from a checkpoint. Where a region lies in the checkpoint as the array lies in the chunk,
 * its units are read into their final place. Otherwise each unit is read into a buffer, verified, and copied from there. */
#include "checkpoint_priv.h"

#include "bits.h"
#include "try.h"

#include <string.h>

zoff_status zoff_checkpoint_fill_open(const zoff_match *match, zoff_filler *out)
{
    zoff_filler f = {.match = match, .unit_room = zoff_archive_units_largest(match->archive)};
    ZOFF_TRY(
        zoff_base_mem_alloc(match->archive->manifest.file_count + 1, sizeof(zoff_aio *), "files of a checkpoint", &f.queues));
    *out = f;
    return ZOFF_OK;
}

void zoff_checkpoint_fill_close(zoff_filler *f)
{
    for (size_t i = 0; f->queues && i < f->match->archive->manifest.file_count; i++)
        zoff_aio_close(f->queues[i]);
    for (unsigned kind = 0; kind < ZOFF_ARCHIVE_KINDS; kind++)
        zoff_base_map_free(&f->units[kind].map);
    zoff_base_mem_free(f->queues);
    *f = (zoff_filler){.queues = NULL};
}

/* ---- unit by unit, through a buffer ---- */

static zoff_status bring(zoff_filler *f, zoff_fill_unit *cached, zoff_archive_unit unit)
{
    if (cached->holds && cached->unit.file == unit.file && cached->unit.region == unit.region && cached->unit.unit == unit.unit)
        return ZOFF_OK;
    if (!cached->map.base)
        ZOFF_TRY(zoff_base_map_alloc(f->unit_room, "a part of a checkpoint", ZOFF_MAP_FIRST_TOUCH, &cached->map));
    cached->holds = false;
    ZOFF_TRY(zoff_archive_units_read(f->match->archive, unit, cached->map.base, f->match->view->threads));
    cached->unit = unit;
    cached->holds = true;
    return ZOFF_OK;
}

/* Copy elements [first, first + count) of a slice to `dst`; NULL: only verify them. `param`: of the engine. */
static zoff_status read_range(zoff_filler *f, size_t param, unsigned kind, size_t slice, size_t first, size_t count, char *dst)
{
    const zoff_archive *a = f->match->archive;
    const uint32_t owner = zoff_archive_owner(a, f->match->to[param] - 1);
    zoff_fill_unit *cached = &f->units[kind];
    for (size_t at = first; at < first + count;) {
        const zoff_archive_ref *ref = zoff_archive_find(a, owner, kind, slice, at);
        ZOFF_FAIL_IF(!ref, ZOFF_ERR_CORRUPT, "the checkpoint '%s' lacks elements of '%.200s'", a->folder,
                     a->manifest.params[owner].name);
        const zoff_archive_piece *p = &ref->piece;
        const size_t size = zoff_archive_table_element_bytes(p->format);
        const uint64_t byte = p->at + (at - p->first) * size;
        const zoff_archive_unit unit = zoff_archive_units_of(a, ref->file, p->region, byte);
        const uint64_t skip = byte - unit.unit * a->tables[ref->file].regions[p->region].unit;
        ZOFF_TRY(bring(f, cached, unit));
        size_t now = zoff_base_bits_min(first + count - at, p->first + p->count - at);
        now = zoff_base_bits_min(now, (zoff_archive_units_bytes(a, unit) - skip) / size);
        if (dst)
            memcpy(dst + (at - first) * size, (char *)cached->map.base + skip, now * size);
        at += now;
    }
    return ZOFF_OK;
}

/* ---- a whole array, into its place ---- */

/* A region that lies like an array of a chunk. */
typedef struct placed {
    const zoff_archive_region *region;
    uint32_t file, number;
    char *to; /* the place of the region's first byte */
} placed;

static bool has_state(const zoff_filler *f, const zoff_plan_piece *piece, unsigned array)
{
    const zoff_model_param *p = &f->match->view->model->params[piece->param];
    return !p->frozen && zoff_model_params_tensor(f->match->view->model, p).has[array];
}

static size_t array_end(const zoff_plan_chunk *c, unsigned array)
{
    for (unsigned next = array + 1; next < ZOFF_STREAM_COUNT; next++) {
        if (c->lengths[next])
            return c->starts[next];
    }
    return c->bytes;
}

/* Whether all pieces of an array lie in one region, at the same distances. */
static bool find_placed(const zoff_filler *f, const zoff_plan_chunk *c, unsigned array, char *states, placed *out)
{
    const zoff_engine_view *v = f->match->view;
    const zoff_archive *a = f->match->archive;
    const zoff_archive_ref *first = NULL;
    uint64_t shift = 0; /* from bytes of the region to bytes of the chunk; may wrap */
    for (size_t i = c->first_piece; i < c->first_piece + c->piece_count; i++) {
        const zoff_plan_piece *piece = &v->plan->pieces[i];
        if (!has_state(f, piece, array))
            continue;
        if (!f->match->to[piece->param])
            return false;
        const zoff_archive_ref *ref =
            zoff_archive_find(a, zoff_archive_owner(a, f->match->to[piece->param] - 1), array, piece->slice, piece->first);
        const uint64_t place = c->starts[array] + piece->offsets[array] * sizeof(float);
        if (!ref || ref->piece.first != piece->first || ref->piece.count != piece->count)
            return false;
        if (!first) {
            first = ref;
            shift = place - ref->piece.at;
        } else if (ref->file != first->file || ref->piece.region != first->piece.region || place - ref->piece.at != shift) {
            return false;
        }
    }
    if (!first)
        return false;
    const zoff_archive_region *r = &a->tables[first->file].regions[first->piece.region];
    if (shift < c->starts[array] || shift > array_end(c, array) || r->bytes > array_end(c, array) - shift)
        return false;
    *out = (placed){.region = r, .file = first->file, .number = first->piece.region, .to = states + shift};
    return true;
}

static zoff_status open_queue(zoff_filler *f, uint32_t file)
{
    char path[4096];
    const zoff_aio_opts opts = ZOFF_AIO_OPTS_INIT;
    if (f->queues[file])
        return ZOFF_OK;
    zoff_archive_path(f->match->archive, file, path);
    return zoff_aio_open(path, &opts, &f->queues[file]);
}

enum { IN_FLIGHT = 16 };

/* Read the units of a region, several at a time, and verify each once it has come. */
static zoff_status read_placed(zoff_filler *f, const placed *p)
{
    const zoff_archive *a = f->match->archive;
    const size_t count = zoff_archive_table_units(p->region);
    uint64_t tickets[IN_FLIGHT];
    size_t begun = 0, done = 0;
    zoff_status status = open_queue(f, p->file);
    while (done < begun || (status == ZOFF_OK && done < count)) {
        if (status == ZOFF_OK && begun < count && begun - done < IN_FLIGHT) {
            const zoff_archive_unit unit = {.file = p->file, .region = p->number, .unit = begun};
            status = zoff_aio_read(f->queues[p->file], zoff_archive_units_offset(a, unit), zoff_archive_units_bytes(a, unit),
                                   p->to + begun * p->region->unit, &tickets[begun % IN_FLIGHT]);
            begun += status == ZOFF_OK;
            continue;
        }
        const zoff_status landed = zoff_aio_wait(f->queues[p->file], tickets[done % IN_FLIGHT]);
        status = status == ZOFF_OK ? landed : status;
        if (status == ZOFF_OK)
            status = zoff_archive_units_check(a, (zoff_archive_unit){.file = p->file, .region = p->number, .unit = done},
                                              p->to + done * p->region->unit, f->match->view->threads);
        done++;
    }
    return status;
}

/* ---- a chunk ---- */

bool zoff_checkpoint_fill_is_whole(void *filler, size_t chunk)
{
    const zoff_filler *f = filler;
    const zoff_plan_chunk *c = &f->match->view->plan->chunks[chunk];
    for (size_t i = c->first_piece; i < c->first_piece + c->piece_count; i++) {
        if (!f->match->to[f->match->view->plan->pieces[i].param])
            return false;
    }
    return true;
}

static zoff_status fill_array(zoff_filler *f, const zoff_plan_chunk *c, unsigned array, char *states)
{
    placed p;
    const zoff_plan *plan = f->match->view->plan;
    if (find_placed(f, c, array, states, &p))
        return read_placed(f, &p);
    for (size_t i = c->first_piece; i < c->first_piece + c->piece_count; i++) {
        const zoff_plan_piece *piece = &plan->pieces[i];
        if (!has_state(f, piece, array) || !f->match->to[piece->param])
            continue;
        ZOFF_TRY(read_range(f, piece->param, array, piece->slice, piece->first, piece->count,
                            states + c->starts[array] + piece->offsets[array] * sizeof(float)));
    }
    return ZOFF_OK;
}

/* Weights that are their own masters, and frozen ones of the engine. */
static zoff_status fill_weights(zoff_filler *f, const zoff_plan_chunk *c, char *weights)
{
    const zoff_engine_view *v = f->match->view;
    for (size_t i = c->first_piece; i < c->first_piece + c->piece_count; i++) {
        const zoff_plan_piece *piece = &v->plan->pieces[i];
        const zoff_model_param *p = &v->model->params[piece->param];
        const uint32_t to = f->match->to[piece->param];
        const unsigned kind = p->frozen ? ZOFF_STATE_WEIGHTS : ZOFF_STATE_MASTER;
        if (!to || has_state(f, piece, ZOFF_STREAM_MASTER))
            continue;
        if (!(f->match->archive->manifest.params[zoff_archive_owner(f->match->archive, to - 1)].states >> kind & 1))
            continue; /* frozen weights were left out */
        ZOFF_TRY(read_range(f, piece->param, kind, piece->slice, piece->first, piece->count,
                            zoff_model_params_value(v->model, piece, weights)));
    }
    return ZOFF_OK;
}

zoff_status zoff_checkpoint_fill_chunk(void *filler, size_t chunk, zoff_chunk_memory memory)
{
    zoff_filler *f = filler;
    const zoff_plan_chunk *c = &f->match->view->plan->chunks[chunk];
    for (unsigned array = 0; array < ZOFF_STREAM_COUNT; array++) {
        if (c->lengths[array])
            ZOFF_TRY(fill_array(f, c, array, memory.states));
    }
    return fill_weights(f, c, memory.weights);
}

/* ---- frozen weights of the program ---- */

static zoff_status fill_slice(zoff_filler *f, size_t param, size_t slice, char *buffer, size_t room, bool verify_only)
{
    zoff_transfer *t = f->match->view->transfer;
    const zoff_model_param *p = &f->match->view->model->params[param];
    const size_t element = zoff_adam_dtype_bytes(p->dtype);
    char *value = p->value + slice * p->value_stride;
    for (size_t at = 0; at < p->count;) {
        const size_t count = zoff_base_bits_min(p->count - at, room / element);
        const zoff_cast_piece move = {
            .count = count, .dst = value + at * element, .src = buffer, .dst_dtype = p->dtype, .src_dtype = p->dtype};
        ZOFF_TRY(read_range(f, param, ZOFF_STATE_WEIGHTS, slice, at, count, verify_only ? NULL : buffer));
        if (!verify_only)
            ZOFF_TRY(t->route.link->move(t, &move, 1, true));
        at += count;
    }
    return ZOFF_OK;
}

static zoff_status fill_slices(zoff_filler *f, char *buffer, size_t room, bool verify_only)
{
    const zoff_model *m = f->match->view->model;
    const zoff_archive *a = f->match->archive;
    for (size_t i = 0; i < m->param_count; i++) {
        const zoff_model_param *p = &m->params[i];
        const uint32_t to = f->match->to[i];
        if (!p->frozen || p->engine_owned || !p->value || !to || zoff_model_params_owner(m, (zoff_param)i) != i ||
            !(a->manifest.params[zoff_archive_owner(a, to - 1)].states >> ZOFF_STATE_WEIGHTS & 1))
            continue;
        for (size_t slice = 0; slice < p->slices; slice++)
            ZOFF_TRY(fill_slice(f, i, slice, buffer, room, verify_only));
    }
    return ZOFF_OK;
}

zoff_status zoff_checkpoint_fill_frozen(zoff_filler *f, bool verify_only)
{
    char *buffer;
    ZOFF_TRY(zoff_base_mem_alloc(ZOFF_ARCHIVE_UNIT, 1, "frozen weights of a checkpoint", &buffer));
    const zoff_status status = fill_slices(f, buffer, ZOFF_ARCHIVE_UNIT, verify_only);
    zoff_base_mem_free(buffer);
    return status;
}
