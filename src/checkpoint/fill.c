/* SPDX-License-Identifier: Apache-2.0 */
/* fill.c: which bytes of a checkpoint go where, and brings them there. Pieces that lie in a region as they lie in memory become
 * one run of bytes. Many reads are in flight, and are verified in order. A unit that belongs to one place as a whole is read
 * there. Otherwise it is read into a buffer, and parts are copied from there. Buffers keep their unit as long as possible,
 * because the next chunk may need the rest of it. */
#include "checkpoint_priv.h"

#include "aio.h"
#include "array.h"
#include "bits.h"
#include "clock.h"
#include "try.h"

#include <string.h>

/* ---- units on their way ---- */

enum {
    FLYING_MOST = 128 << 20,  /* most bytes in flight: enough for the queue to have its 64 MiB while units are verified */
    BUFFERS_BYTES = 12 << 20, /* bytes of all buffers, unless units are large: as much as a chunk of three units */
    BUFFERS_LEAST = 3
};

static void open_bringer(const zoff_archive *a, unsigned threads, zoff_bringer *out)
{
    *out = (zoff_bringer){.archive = a, .threads = threads, .unit_room = zoff_archive_units_largest(a)};
}

/* A buffer is allocated when the first unit needs one. */
static zoff_status open_buffers(zoff_bringer *b)
{
    const size_t wanted = zoff_base_bits_max(BUFFERS_BYTES / b->unit_room, BUFFERS_LEAST);
    const unsigned count = (unsigned)zoff_base_bits_min(wanted, (size_t)ZOFF_BRING_BUFFERS);
    ZOFF_TRY(zoff_base_map_alloc(b->unit_room * count, "parts of a checkpoint", ZOFF_MAP_FIRST_TOUCH, &b->map));
    b->buffer_count = count;
    for (unsigned i = 0; i < count; i++)
        b->buffers[i] = (zoff_bring_buffer){.base = (char *)b->map.base + i * b->unit_room};
    return ZOFF_OK;
}

static zoff_status open_queue(zoff_bringer *b, uint32_t file)
{
    char path[4096];
    const zoff_aio_opts opts = ZOFF_AIO_OPTS_INIT;
    if (!b->queues)
        ZOFF_TRY(
            zoff_base_mem_alloc(b->archive->manifest.file_count + 1, sizeof(zoff_aio *), "files of a checkpoint", &b->queues));
    if (b->queues[file])
        return ZOFF_OK;
    int held; /* a save may have removed the name since the checkpoint was opened */
    zoff_archive_path(b->archive, file, path);
    ZOFF_TRY(zoff_archive_descriptor(b->archive, file, &held));
    return zoff_aio_queue_open(path, held, &opts, &b->queues[file]);
}

/* ---- what is to be brought ---- */

/* Add a part behind the others. Its memory must stay until it has ended. */
static zoff_status add_part(zoff_bringer *b, const zoff_bring_part *part)
{
    /* Parts that are done make room for others. */
    if (b->done == b->count) {
        b->first += b->count;
        b->done = b->begun = b->count = 0;
    }
    ZOFF_TRY(zoff_base_array_reserve(&b->parts, b->count, &b->room, b->count + 1, sizeof *b->parts, "parts of a checkpoint"));
    b->parts[b->count++] = *part;
    return ZOFF_OK;
}

/* the number of parts that were ever added */
static uint64_t end_of(const zoff_bringer *b)
{
    return b->first + b->count;
}

/* ---- begin reads ---- */

static zoff_status start(zoff_bringer *b, zoff_archive_unit unit, char *to, uint64_t *ticket)
{
    const size_t bytes = zoff_archive_units_bytes(b->archive, unit);
    ZOFF_TRY(open_queue(b, unit.file));
    ZOFF_TRY(zoff_aio_read(b->queues[unit.file], zoff_archive_units_offset(b->archive, unit), bytes, to, ticket));
    b->flying += bytes;
    return ZOFF_OK;
}

static bool is_same(zoff_archive_unit x, zoff_archive_unit y)
{
    return x.file == y.file && x.region == y.region && x.unit == y.unit;
}

/* The buffer with a unit; else the one that was not needed for the longest time; NULL: all are needed. */
static zoff_bring_buffer *find_buffer(zoff_bringer *b, zoff_archive_unit unit)
{
    zoff_bring_buffer *oldest = NULL;
    for (unsigned i = 0; i < b->buffer_count; i++) {
        zoff_bring_buffer *one = &b->buffers[i];
        if (one->state != ZOFF_BRING_EMPTY && is_same(one->unit, unit))
            return one;
        if (!one->users && (!oldest || one->used < oldest->used))
            oldest = one;
    }
    return oldest;
}

/* @return PENDING: no buffer is free */
static zoff_status begin_buffered(zoff_bringer *b, zoff_bring_part *part)
{
    if (!b->buffer_count)
        ZOFF_TRY(open_buffers(b));
    zoff_bring_buffer *buffer = find_buffer(b, part->unit);
    if (!buffer)
        return ZOFF_PENDING;
    if (buffer->state == ZOFF_BRING_EMPTY || !is_same(buffer->unit, part->unit)) {
        buffer->state = ZOFF_BRING_EMPTY;
        buffer->unit = part->unit;
        ZOFF_TRY(start(b, part->unit, buffer->base, &buffer->ticket));
        buffer->state = ZOFF_BRING_READING;
    }
    buffer->users++;
    buffer->used = ++b->uses;
    part->buffer = buffer;
    return ZOFF_OK;
}

/* Begin reads, as many as may be in flight. */
static zoff_status begin_reads(zoff_bringer *b)
{
    while (b->begun < b->count && b->flying < FLYING_MOST) {
        zoff_bring_part *part = &b->parts[b->begun];
        const zoff_status status = part->is_whole ? start(b, part->unit, part->to, &part->ticket) : begin_buffered(b, part);
        if (status == ZOFF_PENDING)
            return ZOFF_OK;
        ZOFF_TRY(status);
        b->begun++;
    }
    return ZOFF_OK;
}

/* ---- end them ---- */

static zoff_status land(zoff_bringer *b, zoff_archive_unit unit, uint64_t ticket)
{
    b->flying -= zoff_archive_units_bytes(b->archive, unit);
    return zoff_aio_wait(b->queues[unit.file], ticket);
}

/* Wait for a unit, and verify it. One thread is faster than most disks, so the team helps only where the disk does not let this
 * thread wait. To wake the team costs time, above all on a busy machine. */
static zoff_status land_verified(zoff_bringer *b, zoff_archive_unit unit, uint64_t ticket, const char *bytes)
{
    static const double AT_ONCE = 50e-6;
    const double from = zoff_base_clock_seconds();
    ZOFF_TRY(land(b, unit, ticket));
    const bool is_late = zoff_base_clock_seconds() - from < AT_ONCE;
    return zoff_archive_units_check(b->archive, unit, bytes, is_late ? b->threads : 1);
}

static void convert(const zoff_bringer *b, zoff_cast_piece cast, char *bytes)
{
    if (cast.src)
        cast.low = (uint16_t *)(void *)bytes;
    else
        cast.src = bytes;
    zoff_adam_cast_run(b->threads, &cast, 1);
}

/* After an error the buffer is empty: its unit may be asked for again. */
static zoff_status end_buffered(zoff_bringer *b, const zoff_bring_part *part)
{
    zoff_bring_buffer *buffer = part->buffer;
    buffer->users--;
    if (buffer->state == ZOFF_BRING_READING) {
        buffer->state = ZOFF_BRING_EMPTY;
        ZOFF_TRY(land_verified(b, part->unit, buffer->ticket, buffer->base));
        buffer->state = ZOFF_BRING_READY;
    }
    ZOFF_FAIL_IF(buffer->state != ZOFF_BRING_READY, ZOFF_ERR_STATE, "a part of a checkpoint was not read, after an error");
    if (part->feed)
        ZOFF_TRY(zoff_checkpoint_feed_take(part->feed, buffer->base + part->from, part->bytes));
    else if (part->cast.count)
        convert(b, part->cast, buffer->base + part->from);
    else if (part->to)
        memcpy(part->to, buffer->base + part->from, part->bytes);
    return ZOFF_OK;
}

static zoff_status end_one(zoff_bringer *b)
{
    const zoff_bring_part *part = &b->parts[b->done++];
    if (!part->is_whole)
        return end_buffered(b, part);
    return land_verified(b, part->unit, part->ticket, part->to);
}

/* Wait until the parts before number `end` are verified and in their places.  @return ERR_CORRUPT with file and place, ERR_IO;
 * then call stop_bringing() */
static zoff_status bring_until(zoff_bringer *b, uint64_t end)
{
    while (b->first + b->done < end) {
        ZOFF_TRY(begin_reads(b));
        ZOFF_TRY(end_one(b));
    }
    return begin_reads(b);
}

/* Wait for reads in flight, and drop all parts. */
static void stop_bringing(zoff_bringer *b)
{
    for (; b->done < b->begun; b->done++) {
        const zoff_bring_part *part = &b->parts[b->done];
        if (part->is_whole) {
            (void)land(b, part->unit, part->ticket);
            continue;
        }
        part->buffer->users--;
        if (part->buffer->state == ZOFF_BRING_READING)
            (void)land(b, part->unit, part->buffer->ticket);
        part->buffer->state = ZOFF_BRING_EMPTY;
    }
    b->first += b->count;
    b->done = b->begun = b->count = 0;
}

static void close_bringer(zoff_bringer *b)
{
    stop_bringing(b);
    for (size_t i = 0; b->queues && i < b->archive->manifest.file_count; i++)
        zoff_aio_close(b->queues[i]);
    zoff_base_map_free(&b->map);
    zoff_base_mem_free(b->queues);
    zoff_base_mem_free(b->parts);
    *b = (zoff_bringer){.queues = NULL};
}

/* ---- life ---- */

void zoff_checkpoint_fill_open(const zoff_match *match, zoff_filler *out)
{
    *out = (zoff_filler){.match = match};
    open_bringer(match->archive, match->view->threads, &out->bringer);
}

static void free_feeds(zoff_fill_chunk *chunk)
{
    while (chunk->feeds) {
        zoff_block_feed *one = chunk->feeds;
        chunk->feeds = one->next;
        zoff_base_mem_free(one);
    }
}

void zoff_checkpoint_fill_close(zoff_filler *f)
{
    if (f->match)
        close_bringer(&f->bringer);
    for (unsigned i = 0; i < ZOFF_STATES_LOADING; i++)
        free_feeds(&f->chunks[i]);
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
        ZOFF_TRY(add_part(&f->bringer, &part));
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

/* Elements of a slice that a piece of memory is to have. `param`: of the engine. */
typedef struct wanted {
    size_t param, slice, first;
    size_t count; /* elements that the checkpoint has */
    size_t room;  /* elements of the piece, of which the others stay as they are */
    unsigned kind;
    unsigned format; /* format in memory */
    char *to;        /* address; NULL: only verify the elements */
    uint16_t *low;   /* masters are split: `to` gets their upper halves, and `low` their lower ones; else NULL */
    size_t gap;      /* bytes between two pieces in memory that belong to nobody */
} wanted;

/* How elements of a piece become those in memory, from the element number `at` of the wanted ones on. Lower halves are added to
 * the upper ones, which are there as fp32 numbers. */
static zoff_cast_piece cast_of(const wanted *w, unsigned format, size_t at)
{
    char *to = w->to + zoff_archive_table_bytes_of(w->format, at);
    const zoff_cast_piece add = {.dst = to, .src = to, .dst_dtype = ZOFF_F32, .src_dtype = ZOFF_F32};
    const zoff_cast_piece cast = {
        .dst = to, .dst_dtype = (zoff_dtype)w->format, .src_dtype = (zoff_dtype)format, .low = w->low ? w->low + at : NULL};
    return format == ZOFF_ARCHIVE_SPLIT ? add : cast;
}

/* Elements in another format are converted as soon as their unit is verified. */
static zoff_status add_casts(zoff_filler *f, const wanted *w, const zoff_archive_ref *ref, size_t at, size_t count)
{
    const zoff_archive *a = f->match->archive;
    const zoff_archive_piece *p = &ref->piece;
    const size_t size = zoff_archive_table_element_bytes(p->format);
    ZOFF_TRY(end_run(f));
    f->run_count++;
    for (size_t done = 0, now; done < count; done += now) {
        const uint64_t byte = p->at + (at + done - p->first) * size;
        const zoff_archive_unit unit = zoff_archive_units_of(a, ref->file, p->region, byte);
        const uint64_t from = byte - unit.unit * a->tables[ref->file].regions[p->region].unit;
        now = zoff_base_bits_min(count - done, (size_t)(zoff_archive_units_bytes(a, unit) - from) / size);
        zoff_bring_part part = {
            .unit = unit, .from = from, .bytes = now * size, .cast = cast_of(w, p->format, at + done - w->first)};
        part.cast.count = now;
        ZOFF_TRY(add_part(&f->bringer, &part));
    }
    return ZOFF_OK;
}

/* Add moments where one of the two formats has blocks, or a block of which only a part is there. */
static zoff_status add_blocks(zoff_filler *f, const wanted *w, const zoff_archive_ref *ref, size_t at, size_t count)
{
    const zoff_archive *a = f->match->archive;
    const zoff_archive_piece *p = &ref->piece;
    zoff_block_feed *feed;
    ZOFF_TRY(end_run(f));
    f->run_count++;
    ZOFF_TRY(zoff_base_mem_alloc(1, sizeof *feed, "a block of moments", &feed));
    *feed = (zoff_block_feed){.next = f->filling->feeds,
                              .name = f->match->view->model->params[w->param].name,
                              .from = p->format,
                              .to = w->format,
                              .count = count,
                              .room = w->room - (at - w->first),
                              .dst = w->to + zoff_archive_table_bytes_of(w->format, at - w->first)};
    f->filling->feeds = feed;
    uint64_t byte = p->at + zoff_archive_table_bytes_of(p->format, at - p->first);
    const uint64_t end = byte + zoff_archive_table_bytes_of(p->format, count);
    while (byte < end) {
        const zoff_archive_unit unit = zoff_archive_units_of(a, ref->file, p->region, byte);
        const uint64_t from = byte - unit.unit * a->tables[ref->file].regions[p->region].unit;
        const size_t now = (size_t)zoff_base_bits_min(end - byte, zoff_archive_units_bytes(a, unit) - from);
        const zoff_bring_part part = {.unit = unit, .from = from, .bytes = now, .feed = feed};
        ZOFF_TRY(add_part(&f->bringer, &part));
        byte += now;
    }
    return ZOFF_OK;
}

static bool has_blocks(unsigned format)
{
    return zoff_archive_table_block(format) != 1;
}

/* The element from which on a block also has elements that stay; the end of the wanted ones: there is no such block. */
static size_t cut_of(const wanted *w)
{
    const bool is_cut = w->count < w->room && has_blocks(w->format);
    return w->first + w->count - (is_cut ? w->count % ZOFF_ARCHIVE_BLOCK : 0);
}

static zoff_status add_range(zoff_filler *f, const wanted *w)
{
    const zoff_archive *a = f->match->archive;
    const uint32_t owner = zoff_archive_owner(a, f->match->to[w->param] - 1);
    const size_t cut = cut_of(w);
    for (size_t at = w->first, now; at < w->first + w->count; at += now) {
        const zoff_archive_ref *ref = zoff_archive_find(a, owner, w->kind, w->slice, at);
        ZOFF_FAIL_IF(!ref, ZOFF_ERR_CORRUPT, "the checkpoint '%s' lacks elements of '%.200s'", a->folder,
                     a->manifest.params[owner].name);
        const zoff_archive_piece *p = &ref->piece;
        const uint64_t byte = p->at + zoff_archive_table_bytes_of(p->format, at - p->first);
        char *to = w->to ? w->to + zoff_archive_table_bytes_of(p->format, at - w->first) : NULL;
        now = zoff_base_bits_min((at < cut ? cut : w->first + w->count) - at, p->first + p->count - at);
        if (to && (w->low || p->format != w->format || at == cut)) {
            const bool in_blocks = has_blocks(p->format) || has_blocks(w->format);
            ZOFF_TRY((in_blocks ? add_blocks : add_casts)(f, w, ref, at, now));
            continue;
        }
        if (!follows(&f->run, ref, byte, to, w->gap)) {
            ZOFF_TRY(end_run(f));
            f->run = (zoff_fill_run){.file = ref->file, .region = p->region, .begin = byte, .to = to};
        }
        f->run.end = byte + zoff_archive_table_bytes_of(p->format, now);
    }
    return ZOFF_OK;
}

/* The parameter of the checkpoint that has the states; NULL: none, so the states here stay as they are. */
static const zoff_archive_param *there(const zoff_filler *f, size_t param)
{
    const zoff_archive *a = f->match->archive;
    const uint32_t to = f->match->to[param];
    return to ? &a->manifest.params[zoff_archive_owner(a, to - 1)] : NULL;
}

/* Elements of a piece that the checkpoint has: a parameter may have grown. */
static size_t count_there(const zoff_filler *f, const zoff_plan_piece *piece)
{
    const zoff_archive_param *p = there(f, piece->param);
    return !p || piece->slice >= p->slices || piece->first >= p->count
               ? 0
               : zoff_base_bits_min(piece->count, p->count - piece->first);
}

static wanted want(const zoff_filler *f, const zoff_plan_piece *piece, unsigned kind, char *to, unsigned format)
{
    return (wanted){.param = piece->param,
                    .slice = piece->slice,
                    .first = piece->first,
                    .count = count_there(f, piece),
                    .room = piece->count,
                    .kind = kind,
                    .format = format,
                    .to = to};
}

/* ---- masters ---- */

static const zoff_master_form *form_of(const zoff_filler *f, const zoff_plan_piece *piece)
{
    return zoff_model_masters_of(f->match->view->model, &f->match->view->model->params[piece->param]);
}

/* Whether the checkpoint has the masters of a piece in two halves. */
static bool is_split_there(const zoff_filler *f, const zoff_plan_piece *piece)
{
    const zoff_archive *a = f->match->archive;
    return zoff_archive_is_split(a, zoff_archive_owner(a, f->match->to[piece->param] - 1));
}

/* The kind that has the numbers of a parameter: it may have been frozen. */
static unsigned kind_there(const zoff_filler *f, const zoff_plan_piece *piece)
{
    return there(f, piece->param)->states >> ZOFF_STATE_WEIGHTS & 1 ? ZOFF_STATE_WEIGHTS : ZOFF_STATE_MASTER;
}

/* Masters that are fp32 numbers, or weights that are these, rounded. Where the checkpoint has two halves, the upper one is the
 * weight in 16 bits. */
static zoff_status add_numbers(zoff_filler *f, const zoff_plan_piece *piece, char *to, unsigned format, size_t gap)
{
    wanted w = want(f, piece, kind_there(f, piece), to, format);
    w.gap = gap;
    if (is_split_there(f, piece)) {
        const wanted upper = want(f, piece, ZOFF_ARCHIVE_UPPER, to, format);
        ZOFF_TRY(add_range(f, &upper));
        if (format != ZOFF_ARCHIVE_F32)
            return ZOFF_OK;
    }
    return add_range(f, &w);
}

/* Masters with their lower halves at `low`, and the weights as the upper ones, which add_weights() adds if they are stored as
 * such. */
static zoff_status add_split_master(zoff_filler *f, const zoff_plan_piece *piece, char *low, char *weights, size_t gap)
{
    wanted halves = want(f, piece, ZOFF_STATE_MASTER, low, ZOFF_ARCHIVE_SPLIT);
    wanted numbers = want(f, piece, kind_there(f, piece), weights, ZOFF_ARCHIVE_BF16);
    halves.gap = gap;
    numbers.low = (uint16_t *)(void *)low;
    return add_range(f, is_split_there(f, piece) ? &halves : &numbers);
}

/* ---- a chunk ---- */

/* Whether a piece has a state that a load brings. */
static bool has_state(const zoff_filler *f, const zoff_plan_piece *piece, unsigned array)
{
    const zoff_model_param *p = &f->match->view->model->params[piece->param];
    return !p->frozen && (array == ZOFF_STREAM_MASTER || !f->match->weights_only) &&
           zoff_model_params_tensor(f->match->view->model, p).bytes[array] != 0;
}

/* Elements of a state of a piece that the checkpoint has. */
static size_t state_there(const zoff_filler *f, const zoff_plan_piece *piece, unsigned array)
{
    const zoff_archive_param *p = there(f, piece->param);
    const unsigned kinds = 1u << array | (array == ZOFF_STREAM_MASTER ? 1u << ZOFF_STATE_WEIGHTS : 0);
    return p && p->states & kinds ? count_there(f, piece) : 0;
}

/* If the whole array is one run of a region that fits into it, bytes between and behind pieces come with it. */
static void take_whole_region(zoff_filler *f, const zoff_plan_chunk *c, unsigned array, char *states)
{
    zoff_fill_run *r = &f->run;
    if (f->run_count || r->begin == r->end)
        return;
    const uint64_t bytes = f->match->archive->tables[r->file].regions[r->region].bytes;
    const char *array_begin = states + c->starts[array];
    const size_t before = (size_t)(r->to - array_begin), room = zoff_zero_plan_end(c, array) - c->starts[array];
    if (r->begin > before || bytes > room - (before - r->begin))
        return;
    r->to -= r->begin;
    r->begin = 0;
    r->end = bytes;
}

static zoff_status add_state(zoff_filler *f, const zoff_plan_piece *piece, unsigned array, char *to, char *weights)
{
    const zoff_model *m = f->match->view->model;
    enum { GAP = ZOFF_ARCHIVE_PAGE - 1 };
    wanted w = want(f, piece, array, to, zoff_planning_describe_format(m, &m->params[piece->param], array));
    w.gap = GAP;
    if (array != ZOFF_STREAM_MASTER)
        return add_range(f, &w);
    if (form_of(f, piece)->is_split)
        return add_split_master(f, piece, to, zoff_model_params_value(m, piece, weights), GAP);
    return add_numbers(f, piece, to, ZOFF_ARCHIVE_F32, GAP);
}

static zoff_status add_array(zoff_filler *f, const zoff_plan_chunk *c, unsigned array, zoff_chunk_memory memory)
{
    const zoff_plan *plan = f->match->view->plan;
    char *states = memory.states;
    bool is_whole = true;
    f->run_count = 0;
    for (size_t i = c->first_piece; i < c->first_piece + c->piece_count; i++) {
        const zoff_plan_piece *piece = &plan->pieces[i];
        if (!has_state(f, piece, array))
            continue;
        const size_t count = state_there(f, piece, array);
        if (count)
            ZOFF_TRY(add_state(f, piece, array, states + c->starts[array] + piece->offsets[array], memory.weights));
        if (count < piece->count) { /* the others stay as they are */
            is_whole = false;
            ZOFF_TRY(end_run(f));
        }
    }
    if (is_whole)
        take_whole_region(f, c, array, states);
    return end_run(f);
}

bool zoff_checkpoint_fill_is_whole(const zoff_filler *f, size_t chunk)
{
    const zoff_plan_chunk *c = &f->match->view->plan->chunks[chunk];
    for (size_t i = c->first_piece; i < c->first_piece + c->piece_count; i++) {
        const zoff_plan_piece *piece = &f->match->view->plan->pieces[i];
        for (unsigned array = 0; array < ZOFF_STREAM_COUNT; array++) {
            if (has_state(f, piece, array) && state_there(f, piece, array) < piece->count)
                return false;
        }
    }
    return true;
}

/* Weights that are masters or half of them, and frozen ones of the engine. */
static zoff_status add_weights(zoff_filler *f, const zoff_plan_chunk *c, char *weights)
{
    const zoff_engine_view *v = f->match->view;
    for (size_t i = c->first_piece; i < c->first_piece + c->piece_count; i++) {
        const zoff_plan_piece *piece = &v->plan->pieces[i];
        const zoff_model_param *p = &v->model->params[piece->param];
        char *value = zoff_model_params_value(v->model, piece, weights);
        const wanted upper = want(f, piece, ZOFF_ARCHIVE_UPPER, value, ZOFF_ARCHIVE_BF16);
        if (!state_there(f, piece, ZOFF_STREAM_MASTER)) /* frozen weights may have been left out of the checkpoint */
            continue;
        if (p->frozen)
            ZOFF_TRY(add_numbers(f, piece, value, (unsigned)p->dtype, 0));
        else if (form_of(f, piece)->is_split && is_split_there(f, piece))
            ZOFF_TRY(add_range(f, &upper));
        else if (!has_state(f, piece, ZOFF_STREAM_MASTER))
            ZOFF_TRY(add_numbers(f, piece, value, ZOFF_ARCHIVE_F32, 0));
    }
    return end_run(f);
}

/* Masters and weights go first: the caller computes with them while the moments are read. */
zoff_status zoff_checkpoint_fill_begin(zoff_filler *f, size_t chunk, zoff_chunk_memory memory)
{
    const zoff_plan_chunk *c = &f->match->view->plan->chunks[chunk];
    zoff_fill_chunk *filling = f->filling = &f->chunks[chunk % ZOFF_STATES_LOADING];
    ZOFF_TRY(add_weights(f, c, memory.weights));
    for (unsigned array = 0; array < ZOFF_STREAM_COUNT; array++) {
        if (c->lengths[array])
            ZOFF_TRY(add_array(f, c, array, memory));
        if (array == ZOFF_STREAM_MASTER)
            filling->masters_end = end_of(&f->bringer);
    }
    filling->end = end_of(&f->bringer);
    return begin_reads(&f->bringer);
}

zoff_status zoff_checkpoint_fill_masters(zoff_filler *f, size_t chunk)
{
    return bring_until(&f->bringer, f->chunks[chunk % ZOFF_STATES_LOADING].masters_end);
}

zoff_status zoff_checkpoint_fill_finish(zoff_filler *f, size_t chunk)
{
    zoff_fill_chunk *filling = &f->chunks[chunk % ZOFF_STATES_LOADING];
    ZOFF_TRY(bring_until(&f->bringer, filling->end));
    free_feeds(filling);
    return ZOFF_OK;
}

void zoff_checkpoint_fill_stop(zoff_filler *f)
{
    f->run = (zoff_fill_run){.to = NULL};
    stop_bringing(&f->bringer);
    for (unsigned i = 0; i < ZOFF_STATES_LOADING; i++)
        free_feeds(&f->chunks[i]);
}

/* ---- frozen weights of the program ---- */

static zoff_status fill_slice(zoff_filler *f, zoff_plan_piece *piece, char *buffer, size_t room, bool verify_only)
{
    zoff_transfer *t = f->match->view->transfer;
    const zoff_model_param *p = &f->match->view->model->params[piece->param];
    const size_t element = zoff_adam_dtype_bytes(p->dtype), count = count_there(f, piece);
    for (size_t now; piece->first < count; piece->first += now) {
        char *value = p->value + piece->slice * p->value_stride + piece->first * element;
        now = piece->count = zoff_base_bits_min(count - piece->first, room / element);
        const zoff_cast_piece move = {.count = now, .dst = value, .src = buffer, .dst_dtype = p->dtype, .src_dtype = p->dtype};
        ZOFF_TRY(add_numbers(f, piece, verify_only ? NULL : buffer, (unsigned)p->dtype, 0));
        ZOFF_TRY(end_run(f));
        ZOFF_TRY(bring_until(&f->bringer, end_of(&f->bringer)));
        if (!verify_only)
            ZOFF_TRY(t->route.link->move(t, &move, 1, true));
    }
    return ZOFF_OK;
}

static zoff_status fill_slices(zoff_filler *f, char *buffer, size_t room, bool verify_only)
{
    const zoff_model *m = f->match->view->model;
    for (uint32_t i = 0; i < m->param_count; i++) {
        const zoff_model_param *p = &m->params[i];
        const bool is_own = p->frozen && !p->engine_owned && p->value && zoff_model_params_owner(m, i) == i;
        for (size_t slice = 0; is_own && there(f, i) && there(f, i)->states && slice < p->slices; slice++) {
            zoff_plan_piece piece = {.param = i, .slice = slice, .count = p->count};
            ZOFF_TRY(fill_slice(f, &piece, buffer, room, verify_only));
        }
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
