/* fill.c: which bytes of a checkpoint go where. Pieces that lie in a region as they lie in memory become one run of bytes. The
 * bringer reads the whole units of a run into their final place. */
#include "checkpoint_priv.h"

#include "bits.h"
#include "try.h"

void zoff_checkpoint_fill_open(const zoff_match *match, zoff_filler *out)
{
    *out = (zoff_filler){.match = match};
    zoff_checkpoint_bring_open(match->archive, match->view->threads, &out->bringer);
}

static void free_casts(zoff_fill_chunk *chunk)
{
    while (chunk->casts) {
        zoff_fill_cast *one = chunk->casts;
        chunk->casts = one->next;
        zoff_base_mem_free(one);
    }
}

void zoff_checkpoint_fill_close(zoff_filler *f)
{
    if (f->match)
        zoff_checkpoint_bring_close(&f->bringer);
    for (unsigned i = 0; i < ZOFF_STATES_LOADING; i++)
        free_casts(&f->chunks[i]);
    *f = (zoff_filler){.match = NULL};
}

/* ---- runs ---- */

/* Hand the run over, unit by unit. */
static zoff_status end_run(zoff_filler *f)
{
    zoff_fill_run r = f->run;
    f->run = (zoff_fill_run){.to = NULL};
    f->run_count += r.begin < r.end;
    while (r.begin < r.end) {
        const zoff_archive_unit unit = zoff_archive_units_of(f->match->archive, r.file, r.region, r.begin);
        const uint64_t unit_begin = unit.unit * f->match->archive->tables[r.file].regions[r.region].unit;
        const size_t unit_bytes = zoff_archive_units_bytes(f->match->archive, unit);
        const size_t bytes = zoff_base_bits_min(r.end, unit_begin + unit_bytes) - r.begin;
        const zoff_bring_part part = {
            .unit = unit, .is_whole = r.to && bytes == unit_bytes, .from = r.begin - unit_begin, .bytes = bytes, .to = r.to};
        ZOFF_TRY(zoff_checkpoint_bring_add(&f->bringer, &part));
        r.begin += bytes;
        r.to = r.to ? r.to + bytes : NULL;
    }
    return ZOFF_OK;
}

/* Whether bytes of a region follow the run at the same distance in memory, with at most `gap` bytes between them. */
static bool follows(const zoff_fill_run *r, const zoff_archive_ref *ref, uint64_t byte, const char *to, size_t gap)
{
    return r->begin < r->end && r->file == ref->file && r->region == ref->piece.region && byte >= r->end &&
           byte - r->end <= gap && (r->to ? to == r->to + (byte - r->begin) : !to);
}

/* Elements that are in another format go to memory of their own first. */
static zoff_status add_cast(zoff_filler *f, const zoff_archive_ref *ref, uint64_t byte, size_t count, char *to,
                            zoff_dtype dtype)
{
    zoff_fill_cast *one;
    const size_t bytes = count * zoff_archive_table_element_bytes(ref->piece.format);
    ZOFF_TRY(end_run(f));
    ZOFF_TRY(zoff_base_mem_alloc(1, sizeof *one + bytes, "states in another format", &one));
    one->cast = (zoff_cast_piece){
        .count = count, .dst = to, .src = one->bytes, .dst_dtype = dtype, .src_dtype = (zoff_dtype)ref->piece.format};
    one->next = f->filling->casts;
    f->filling->casts = one;
    f->run =
        (zoff_fill_run){.file = ref->file, .region = ref->piece.region, .begin = byte, .end = byte + bytes, .to = one->bytes};
    return end_run(f);
}

/* Add elements [first, first + count) of a slice, which go to `to`; NULL: only verify them. `param`: of the engine. `dtype`: in
 * memory. `gap`: bytes between two pieces in memory that belong to nobody. */
static zoff_status add_range(zoff_filler *f, size_t param, unsigned kind, size_t slice, size_t first, size_t count, char *to,
                             zoff_dtype dtype, size_t gap)
{
    const zoff_archive *a = f->match->archive;
    const uint32_t owner = zoff_archive_owner(a, f->match->to[param] - 1);
    for (size_t at = first; at < first + count;) {
        const zoff_archive_ref *ref = zoff_archive_find(a, owner, kind, slice, at);
        ZOFF_FAIL_IF(!ref, ZOFF_ERR_CORRUPT, "the checkpoint '%s' lacks elements of '%.200s'", a->folder,
                     a->manifest.params[owner].name);
        const zoff_archive_piece *p = &ref->piece;
        const size_t size = zoff_archive_table_element_bytes(p->format);
        const uint64_t byte = p->at + (at - p->first) * size;
        const size_t now = zoff_base_bits_min(first + count - at, p->first + p->count - at);
        if (to && p->format != (unsigned)dtype) {
            ZOFF_TRY(add_cast(f, ref, byte, now, to, dtype));
            to += now * zoff_adam_dtype_bytes(dtype);
            at += now;
            continue;
        }
        if (!follows(&f->run, ref, byte, to, gap)) {
            ZOFF_TRY(end_run(f));
            f->run = (zoff_fill_run){.file = ref->file, .region = p->region, .begin = byte, .to = to};
        }
        f->run.end = byte + now * size;
        to = to ? to + now * size : NULL;
        at += now;
    }
    return ZOFF_OK;
}

/* ---- a chunk ---- */

static bool has_state(const zoff_filler *f, const zoff_plan_piece *piece, unsigned array)
{
    const zoff_model_param *p = &f->match->view->model->params[piece->param];
    return !p->frozen && zoff_model_params_tensor(f->match->view->model, p).bytes[array] != 0;
}

static size_t array_end(const zoff_plan_chunk *c, unsigned array)
{
    for (unsigned next = array + 1; next < ZOFF_STREAM_COUNT; next++) {
        if (c->lengths[next])
            return c->starts[next];
    }
    return c->bytes;
}

/* If the whole array is one run of a region that fits into it, bytes between and behind pieces come with it. */
static void take_whole_region(zoff_filler *f, const zoff_plan_chunk *c, unsigned array, char *states)
{
    zoff_fill_run *r = &f->run;
    if (f->run_count || r->begin == r->end)
        return;
    const uint64_t bytes = f->match->archive->tables[r->file].regions[r->region].bytes;
    const char *array_begin = states + c->starts[array];
    const size_t before = (size_t)(r->to - array_begin), room = array_end(c, array) - c->starts[array];
    if (r->begin > before || bytes > room - (before - r->begin))
        return;
    r->to -= r->begin;
    r->begin = 0;
    r->end = bytes;
}

static zoff_status add_array(zoff_filler *f, const zoff_plan_chunk *c, unsigned array, char *states)
{
    const zoff_plan *plan = f->match->view->plan;
    bool is_whole = true;
    f->run_count = 0;
    for (size_t i = c->first_piece; i < c->first_piece + c->piece_count; i++) {
        const zoff_plan_piece *piece = &plan->pieces[i];
        if (!has_state(f, piece, array))
            continue;
        if (!f->match->to[piece->param]) { /* it stays as it is */
            is_whole = false;
            ZOFF_TRY(end_run(f));
            continue;
        }
        ZOFF_TRY(add_range(
            f, piece->param, array, piece->slice, piece->first, piece->count, states + c->starts[array] + piece->offsets[array],
            zoff_model_params_state_type(f->match->view->model, (zoff_plan_stream)array), ZOFF_ARCHIVE_PAGE - 1));
    }
    if (is_whole)
        take_whole_region(f, c, array, states);
    return end_run(f);
}

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

/* Weights that are their own masters, and frozen ones of the engine. */
static zoff_status add_weights(zoff_filler *f, const zoff_plan_chunk *c, char *weights)
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
        ZOFF_TRY(add_range(f, piece->param, kind, piece->slice, piece->first, piece->count,
                           zoff_model_params_value(v->model, piece, weights), p->dtype, 0));
    }
    return end_run(f);
}

/* Masters and weights go first: the caller computes with them while the moments are read. */
zoff_status zoff_checkpoint_fill_begin(void *filler, size_t chunk, zoff_chunk_memory memory)
{
    zoff_filler *f = filler;
    const zoff_plan_chunk *c = &f->match->view->plan->chunks[chunk];
    zoff_fill_chunk *filling = f->filling = &f->chunks[chunk % ZOFF_STATES_LOADING];
    ZOFF_TRY(add_weights(f, c, memory.weights));
    for (unsigned array = 0; array < ZOFF_STREAM_COUNT; array++) {
        if (c->lengths[array])
            ZOFF_TRY(add_array(f, c, array, memory.states));
        if (array == ZOFF_STREAM_MASTER)
            filling->masters_end = zoff_checkpoint_bring_end(&f->bringer);
    }
    filling->end = zoff_checkpoint_bring_end(&f->bringer);
    return zoff_checkpoint_bring_begin(&f->bringer);
}

zoff_status zoff_checkpoint_fill_masters(void *filler, size_t chunk)
{
    zoff_filler *f = filler;
    return zoff_checkpoint_bring_until(&f->bringer, f->chunks[chunk % ZOFF_STATES_LOADING].masters_end);
}

zoff_status zoff_checkpoint_fill_finish(void *filler, size_t chunk)
{
    zoff_filler *f = filler;
    zoff_fill_chunk *filling = &f->chunks[chunk % ZOFF_STATES_LOADING];
    ZOFF_TRY(zoff_checkpoint_bring_until(&f->bringer, filling->end));
    for (const zoff_fill_cast *one = filling->casts; one; one = one->next)
        zoff_adam_cast_run(f->match->view->threads, &one->cast, 1);
    free_casts(filling);
    return ZOFF_OK;
}

void zoff_checkpoint_fill_stop(void *filler)
{
    zoff_filler *f = filler;
    f->run = (zoff_fill_run){.to = NULL};
    zoff_checkpoint_bring_stop(&f->bringer);
    for (unsigned i = 0; i < ZOFF_STATES_LOADING; i++)
        free_casts(&f->chunks[i]);
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
        ZOFF_TRY(add_range(f, param, ZOFF_STATE_WEIGHTS, slice, at, count, verify_only ? NULL : buffer, p->dtype, 0));
        ZOFF_TRY(end_run(f));
        ZOFF_TRY(zoff_checkpoint_bring_until(&f->bringer, zoff_checkpoint_bring_end(&f->bringer)));
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
    zoff_checkpoint_fill_stop(f); /* after an error the disk may still write into the buffer */
    zoff_base_mem_free(buffer);
    return status;
}
