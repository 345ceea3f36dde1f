/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c: cuts parameters into pieces, and puts these into chunks. The same code runs twice: first to count, then to fill the
 * allocated arrays. */
#include "zero.h"

#include "bits.h"
#include "mem.h"
#include "try.h"

#include <string.h>

enum {
    PAGE = 4096,
    CLASSES = 8, /* the streams of a chunk start at different page numbers modulo 8: 32 KiB */
    STEP = 3     /* from the page number of one stream to that of the next, modulo 8 */
};

/* Parameters without matrices, or one round: a part of the list of blocks, which is cut into buckets of its own. */
typedef struct segment {
    size_t first_block, blocks, first_bucket, buckets;
} segment;

/* The state of the loop over all elements: where the next piece goes. */
typedef struct walk {
    const zoff_plan_opts *opts;
    zoff_plan *plan;       /* counts are always updated; pieces, runs and chunks only with `fill` */
    zoff_plan_chunk chunk; /* the chunk that is being filled */
    bool fill;
    size_t block;    /* index of the next block in the list of all parameters */
    segment segment; /* several ranks: the present segment */
    size_t most;     /* several ranks: most blocks of a bucket */
    size_t round;    /* number of the present round, from 1; 0: none */
} walk;

/* The next page at or after `byte` whose number is `place` modulo CLASSES. */
static size_t stream_start(size_t byte, size_t place)
{
    size_t page = zoff_base_bits_ceil_div(byte, PAGE);
    return (page + (place + CLASSES - page % CLASSES) % CLASSES) * PAGE;
}

/* Compute where the streams of a chunk start, and its size. */
static void lay_out(zoff_plan_chunk *c)
{
    size_t byte = 0, place = 0;
    for (size_t s = 0; s < ZOFF_STREAM_COUNT; s++) {
        if (c->lengths[s] == 0)
            continue;
        c->starts[s] = stream_start(byte, place);
        byte = c->starts[s] + c->lengths[s];
        place += STEP;
    }
    c->bytes = zoff_base_bits_align(byte, PAGE);
    c->weight_bytes = zoff_base_bits_align(c->weight_bytes, PAGE);
}

/* Extend a chunk by `count` elements of a tensor, in each stream that the tensor has. */
static void lengthen(zoff_plan_chunk *c, const zoff_plan_tensor *tensor, size_t count)
{
    for (unsigned s = 0; s < ZOFF_STREAM_COUNT; s++)
        c->lengths[s] += zoff_base_bits_align(zoff_zero_plan_bytes(tensor, s, count), ZOFF_PLAN_LINE);
    c->weight_bytes += zoff_base_bits_align(count * tensor->weight_bytes, ZOFF_PLAN_LINE);
}

size_t zoff_zero_plan_end(const zoff_plan_chunk *chunk, unsigned stream)
{
    while (++stream < ZOFF_STREAM_COUNT) {
        if (chunk->lengths[stream])
            return chunk->starts[stream];
    }
    return chunk->bytes;
}

size_t zoff_zero_plan_streams(const zoff_plan_tensor *tensor)
{
    size_t streams = 0;
    for (size_t s = 0; s < ZOFF_STREAM_COUNT; s++)
        streams += tensor->bytes[s] != 0;
    return streams;
}

size_t zoff_zero_plan_state_bytes(const zoff_plan_tensor *tensor, size_t count)
{
    size_t bytes = 0;
    for (unsigned s = 0; s < ZOFF_STREAM_COUNT; s++)
        bytes += zoff_zero_plan_bytes(tensor, s, count);
    return bytes;
}

/* The most elements whose states take no more than `bytes`, if `unit` of them take `unit_bytes`. */
static size_t elements_of(size_t bytes, size_t unit, size_t unit_bytes)
{
    return bytes / unit_bytes * unit + bytes % unit_bytes * unit / unit_bytes;
}

/* How many of the `left` remaining elements of a slice fit into the current chunk: all, a multiple of the unit, or 0. */
static size_t room(const walk *w, size_t left, const zoff_plan_tensor *tensor)
{
    size_t unit = w->opts->unit;
    size_t count = left;
    const size_t unit_bytes = zoff_zero_plan_state_bytes(tensor, unit);
    size_t limit = w->opts->max_chunk_elements > w->chunk.elements ? w->opts->max_chunk_elements - w->chunk.elements : 0;
    if (unit_bytes)
        limit = zoff_base_bits_min(limit, elements_of(w->opts->max_chunk_bytes, unit, unit_bytes));
    if (count > limit)
        count = limit / unit * unit;
    /* This estimate leaves out the gaps between streams. Take away a few units until the chunk fits. */
    while (count && unit_bytes) {
        zoff_plan_chunk c = w->chunk;
        lengthen(&c, tensor, count);
        lay_out(&c);
        if (c.bytes <= w->opts->max_chunk_bytes)
            break;
        size_t excess = (c.bytes - w->opts->max_chunk_bytes) / unit_bytes * unit;
        count = count == left && left % unit ? left / unit * unit
                                             : count - zoff_base_bits_min(count, zoff_base_bits_max(unit, excess));
    }
    return count;
}

/* ---- chunks ---- */

static void close_chunk(walk *w)
{
    zoff_plan_chunk *c = &w->chunk;
    lay_out(c);
    c->round = w->round;
    zoff_plan *plan = w->plan;
    if (w->fill)
        plan->chunks[plan->chunk_count] = *c;
    plan->chunk_count++;
    plan->most.chunk_bytes = zoff_base_bits_max(plan->most.chunk_bytes, c->bytes);
    plan->most.chunk_weights = zoff_base_bits_max(plan->most.chunk_weights, c->weight_bytes);
    plan->most.blocks = zoff_base_bits_max(plan->most.blocks, c->blocks);
    plan->most.pieces = zoff_base_bits_max(plan->most.pieces, c->piece_count);
    plan->most.runs = zoff_base_bits_max(plan->most.runs, c->run_count);
}

/* Add a piece that this rank owns to the totals and to the current chunk. */
static void own_piece(walk *w, size_t count, const zoff_plan_tensor *tensor)
{
    zoff_plan *plan = w->plan;
    zoff_plan_chunk *c = &w->chunk;
    plan->state_bytes += zoff_zero_plan_state_bytes(tensor, count);
    plan->weight_bytes += count * tensor->weight_bytes;
    plan->elements += tensor->frozen ? 0 : count;
    plan->owned_elements += tensor->frozen ? 0 : zoff_base_bits_align(count, ZOFF_PLAN_PAD);
    c->blocks += zoff_base_bits_ceil_div(count, w->opts->unit);
    c->piece_count++;
    c->elements += count;
    lengthen(c, tensor, count);
}

static zoff_plan_piece make_piece(const walk *w, uint32_t param, size_t slice, size_t first, size_t count)
{
    return (zoff_plan_piece){.param = param,
                             .bucket = (uint32_t)w->plan->chunk_count,
                             .block = w->block,
                             .slice = slice,
                             .first = first,
                             .count = count};
}

static void add_piece(walk *w, zoff_plan_piece piece, const zoff_plan_tensor *tensor)
{
    zoff_plan *plan = w->plan;
    piece.weight_offset = w->chunk.weight_bytes;
    piece.owned_offset = plan->owned_elements;
    memcpy(piece.offsets, w->chunk.lengths, sizeof piece.offsets);
    if (w->fill)
        plan->pieces[plan->piece_count] = piece;
    plan->piece_count++;
    own_piece(w, piece.count, tensor);
}

/* ---- parts ---- */

/* How many units fit into a chunk if each of them has so many streams and bytes. */
static size_t blocks_of_chunk(const zoff_plan_opts *opts, size_t streams, size_t unit_bytes)
{
    const size_t gaps = (streams + 1) * CLASSES * PAGE;
    size_t blocks = opts->max_chunk_elements / opts->unit;
    if (streams)
        blocks =
            zoff_base_bits_min(blocks, (opts->max_chunk_bytes - zoff_base_bits_min(opts->max_chunk_bytes, gaps)) / unit_bytes);
    return zoff_base_bits_max(blocks, 1);
}

static bool is_kept(const zoff_plan_tensor *tensor)
{
    return (!tensor->frozen || tensor->weight_bytes) && tensor->count;
}

static bool has_matrices(const zoff_plan_tensor *tensor)
{
    return tensor->matrix_ends && is_kept(tensor);
}

/* The most blocks of a bucket of several ranks. */
static size_t most_blocks(const walk *w, const zoff_plan_tensor *tensors, size_t count)
{
    size_t streams = 0, bytes = 0;
    for (size_t i = 0; i < count; i++) {
        if (!is_kept(&tensors[i]))
            continue;
        streams = zoff_base_bits_max(streams, zoff_zero_plan_streams(&tensors[i]));
        bytes = zoff_base_bits_max(bytes, zoff_zero_plan_state_bytes(&tensors[i], w->opts->unit));
    }
    size_t most = blocks_of_chunk(w->opts, streams, bytes);
    if (!w->plan->replicated && __builtin_mul_overflow(most, (size_t)w->plan->ranks, &most))
        most = SIZE_MAX;
    return w->opts->max_bucket_units ? zoff_base_bits_min(most, w->opts->max_bucket_units) : most;
}

/* The first block of a bucket. All buckets have the same number of blocks; the first ones get one more each, if the division
 * leaves a rest. */
static size_t bucket_start(size_t blocks, size_t buckets, size_t bucket)
{
    return bucket * (blocks / buckets) + zoff_base_bits_min(bucket, blocks % buckets);
}

/* The first block of a rank's part of the bucket [start, end). All parts have the same number of blocks, plus the rest of the
 * division, which goes to the ranks in turns, from bucket to bucket. So the totals of the ranks also differ by at most one
 * block. The number of blocks before the bucket gives the rank whose turn it is. */
static size_t part_start(size_t start, size_t end, unsigned ranks, unsigned rank)
{
    const size_t each = (end - start) / ranks, rest = (end - start) % ranks, turn = start % ranks;
    /* The ranks [turn, turn + rest) get one block more; behind the last rank this range wraps around to rank 0. */
    const size_t wrapped = turn + rest > ranks ? turn + rest - ranks : 0;
    const size_t before = rank > turn ? zoff_base_bits_min(rank - turn, rest - wrapped) : 0;
    return start + rank * each + zoff_base_bits_min(rank, wrapped) + before;
}

/* ---- several ranks ---- */

/* The piece of a run that consists of the blocks [first, end). */
static zoff_plan_piece cut(const zoff_plan_piece *run, size_t unit, size_t first, size_t end)
{
    zoff_plan_piece piece = *run;
    const size_t skip = (first - run->block) * unit;
    piece.block = first;
    piece.first += skip;
    piece.count = zoff_base_bits_min(run->count - skip, (end - first) * unit);
    return piece;
}

/* Add the pieces of a run that this rank owns, in the bucket [start, end): those in its own part, or in every part if states
 * are replicated. */
static void add_own(walk *w, const zoff_plan_piece *run, size_t run_end, size_t start, size_t end,
                    const zoff_plan_tensor *tensor)
{
    const zoff_plan *plan = w->plan;
    const unsigned from = plan->replicated ? 0 : plan->rank, to = plan->replicated ? plan->ranks : plan->rank + 1;
    for (unsigned rank = from; rank < to; rank++) {
        const size_t first = zoff_base_bits_max(run->block, part_start(start, end, plan->ranks, rank));
        const size_t stop = zoff_base_bits_min(run_end, part_start(start, end, plan->ranks, rank + 1));
        if (first < stop)
            add_piece(w, cut(run, w->opts->unit, first, stop), tensor);
    }
}

/* The elements [first, stop) of a slice. */
static void add_to_several(walk *w, uint32_t param, size_t slice, const zoff_plan_tensor *tensor, size_t first, size_t stop)
{
    zoff_plan *plan = w->plan;
    const segment *s = &w->segment;
    while (first < stop) {
        const size_t number = plan->chunk_count - s->first_bucket;
        const size_t start = s->first_block + bucket_start(s->blocks, s->buckets, number);
        const size_t end = s->first_block + bucket_start(s->blocks, s->buckets, number + 1);
        const size_t count = zoff_base_bits_min(stop - first, (end - w->block) * w->opts->unit);
        const zoff_plan_piece run = make_piece(w, param, slice, first, count);
        if (w->fill)
            plan->runs[plan->run_count] = run;
        plan->run_count++;
        w->chunk.run_count++;
        w->block += zoff_base_bits_ceil_div(count, w->opts->unit);
        add_own(w, &run, w->block, start, end, tensor);
        first += count;
        if (w->block == end) {
            close_chunk(w);
            w->chunk = (zoff_plan_chunk){.first_piece = plan->piece_count, .first_run = plan->run_count};
        }
    }
}

/* ---- one rank ---- */

/* Close the chunk of a single rank. Its runs are its pieces. */
static void close_alone(walk *w)
{
    if (w->chunk.piece_count == 0)
        return;
    w->chunk.run_count = w->chunk.piece_count;
    close_chunk(w);
    w->chunk = (zoff_plan_chunk){.first_piece = w->plan->piece_count, .first_run = w->plan->piece_count};
}

static void add_alone(walk *w, uint32_t param, size_t slice, const zoff_plan_tensor *tensor, size_t first, size_t stop)
{
    while (first < stop) {
        size_t left = stop - first;
        size_t count = room(w, left, tensor);
        if (count == 0 && w->chunk.piece_count) {
            close_alone(w);
            continue;
        }
        count = count ? count : zoff_base_bits_min(w->opts->unit, left);
        add_piece(w, make_piece(w, param, slice, first, count), tensor);
        w->block += zoff_base_bits_ceil_div(count, w->opts->unit);
        first += count;
    }
}

/* ---- segments ---- */

static void begin_segment(walk *w, size_t blocks)
{
    const zoff_plan *plan = w->plan;
    if (plan->ranks > 1)
        w->segment = (segment){w->block, blocks, plan->chunk_count, zoff_base_bits_ceil_div(blocks, w->most)};
}

static void add_elements(walk *w, size_t param, size_t slice, const zoff_plan_tensor *tensor, size_t first, size_t stop)
{
    if (w->plan->ranks == 1)
        add_alone(w, (uint32_t)param, slice, tensor, first, stop);
    else
        add_to_several(w, (uint32_t)param, slice, tensor, first, stop);
}

static void end_segment(walk *w)
{
    if (w->plan->ranks == 1)
        close_alone(w);
    else
        w->plan->blocks = w->block;
}

static void add_plain(walk *w, const zoff_plan_tensor *tensors, size_t count)
{
    size_t blocks = 0;
    for (size_t i = 0; i < count; i++) {
        if (is_kept(&tensors[i]) && !has_matrices(&tensors[i]))
            blocks += tensors[i].slices * zoff_base_bits_ceil_div(tensors[i].count, w->opts->unit);
    }
    begin_segment(w, blocks);
    for (size_t i = 0; i < count; i++) {
        for (size_t slice = 0; is_kept(&tensors[i]) && !has_matrices(&tensors[i]) && slice < tensors[i].slices; slice++)
            add_elements(w, i, slice, &tensors[i], 0, tensors[i].count);
    }
    end_segment(w);
}

/* ---- rounds ---- */

/* The next matrix of a list of tensors, and its first element. */
typedef struct matrix_place {
    size_t param, slice, matrix, first;
} matrix_place;

/* Go to the next matrix, from a place that may be behind the last one of a slice.  @return false: there are no more */
static bool find_matrix(const zoff_plan_tensor *tensors, size_t count, matrix_place *at)
{
    while (at->param < count) {
        const zoff_plan_tensor *t = &tensors[at->param];
        if (has_matrices(t) && at->slice < t->slices && at->matrix < t->matrices)
            return true;
        const bool is_last = !has_matrices(t) || at->slice + 1 >= t->slices;
        *at = (matrix_place){.param = at->param + is_last, .slice = is_last ? 0 : at->slice + 1};
    }
    return false;
}

/* Take the matrices of one slice that are in a round.  @return the element behind them */
static size_t take_part(const walk *w, const zoff_plan_tensor *tensors, matrix_place *at, size_t *matrices, size_t *elements,
                        bool *is_full)
{
    const zoff_plan_tensor *t = &tensors[at->param];
    size_t end = at->first;
    while (at->matrix < t->matrices && !*is_full) {
        *elements += t->matrix_ends[at->matrix] - end;
        end = t->matrix_ends[at->matrix++];
        *is_full = ++*matrices >= w->plan->ranks && *elements >= w->opts->round_elements &&
                   (end % w->opts->unit == 0 || end == t->count);
    }
    at->first = end;
    return end;
}

/* Go over the matrices of a round from `at` on, and count their blocks, or add them. */
static zoff_plan_round scan_round(walk *w, const zoff_plan_tensor *tensors, size_t count, matrix_place *at, bool adds,
                                  size_t *blocks)
{
    zoff_plan_round round = {.first_chunk = w->plan->chunk_count};
    size_t matrices = 0;
    bool is_full = false;
    while (!is_full && find_matrix(tensors, count, at)) {
        const matrix_place from = *at;
        const size_t end = take_part(w, tensors, at, &matrices, &round.elements, &is_full);
        *blocks += zoff_base_bits_ceil_div(end - from.first, w->opts->unit);
        if (adds)
            add_elements(w, from.param, from.slice, &tensors[from.param], from.first, end);
    }
    return round;
}

static void add_rounds(walk *w, const zoff_plan_tensor *tensors, size_t count)
{
    zoff_plan *plan = w->plan;
    for (matrix_place at = {.param = 0}, from = at; find_matrix(tensors, count, &at); from = at) {
        size_t blocks = 0, again = 0;
        from = at;
        (void)scan_round(w, tensors, count, &from, false, &blocks);
        w->round = plan->rounds.count + 1;
        begin_segment(w, blocks);
        zoff_plan_round round = scan_round(w, tensors, count, &at, true, &again);
        end_segment(w);
        round.chunk_count = plan->chunk_count - round.first_chunk;
        if (w->fill)
            plan->rounds.all[plan->rounds.count] = round;
        plan->rounds.count++;
    }
    w->round = 0;
}

static void run_walk(walk *w, const zoff_plan_tensor *tensors, size_t count)
{
    if (w->plan->ranks > 1)
        w->most = most_blocks(w, tensors, count);
    add_plain(w, tensors, count);
    add_rounds(w, tensors, count);
}

/* Note which parameters have matrices, for lookups. */
static zoff_status note_matrices(zoff_plan *plan, const zoff_plan_tensor *tensors, size_t count)
{
    if (!plan->rounds.count)
        return ZOFF_OK;
    ZOFF_TRY(zoff_base_mem_alloc(count, sizeof *plan->rounds.has_param, "the plan", &plan->rounds.has_param));
    for (size_t i = 0; i < count; i++)
        plan->rounds.has_param[i] = has_matrices(&tensors[i]);
    return ZOFF_OK;
}

/* Limit the total to 2^58 elements, so that with padding and three streams of floats all sizes stay far below 2^64 bytes. */
static zoff_status check_sizes(const zoff_plan_tensor *tensors, size_t count)
{
    size_t total = 0;
    for (size_t i = 0; i < count; i++) {
        size_t elements;
        bool fits = zoff_base_bits_mul(tensors[i].count, tensors[i].slices, &elements) &&
                    !__builtin_add_overflow(total, elements, &total) && total < (size_t)1 << 58;
        ZOFF_FAIL_IF(!fits, ZOFF_ERR_INVALID, "parameter %zu: %zu slices of %zu elements do not fit in memory", i,
                     tensors[i].slices, tensors[i].count);
    }
    return ZOFF_OK;
}

zoff_status zoff_zero_plan_make(const zoff_plan_tensor *tensors, size_t count, const zoff_plan_opts *opts, zoff_plan *out)
{
    zoff_status status;
    const zoff_plan empty = {
        .rank = opts->rank, .ranks = opts->ranks ? opts->ranks : 1, .replicated = opts->replicated, .unit = opts->unit};
    zoff_plan plan = empty;
    ZOFF_TRY(check_sizes(tensors, count));
    walk w = {.opts = opts, .plan = &plan};
    run_walk(&w, tensors, count);
    const zoff_plan counted = plan;
    plan = empty;
    ZOFF_TRY(zoff_base_mem_alloc(counted.piece_count, sizeof *plan.pieces, "the plan's pieces", &plan.pieces));
    plan.runs = plan.pieces;
    if (plan.ranks > 1)
        ZOFF_TRY_OR(free_plan, zoff_base_mem_alloc(counted.run_count, sizeof *plan.runs, "the plan's runs", &plan.runs));
    ZOFF_TRY_OR(free_plan, zoff_base_mem_alloc(counted.chunk_count, sizeof *plan.chunks, "the plan's chunks", &plan.chunks));
    ZOFF_TRY_OR(free_plan,
                zoff_base_mem_alloc(counted.rounds.count, sizeof *plan.rounds.all, "the plan's rounds", &plan.rounds.all));
    w = (walk){.opts = opts, .plan = &plan, .fill = true};
    run_walk(&w, tensors, count);
    ZOFF_TRY_OR(free_plan, note_matrices(&plan, tensors, count));
    if (plan.ranks == 1)
        plan.run_count = plan.piece_count;
    plan.max_chunk_elements = opts->max_chunk_elements;
    plan.max_chunk_bytes = opts->max_chunk_bytes;
    *out = plan;
    return ZOFF_OK;
free_plan:
    zoff_zero_plan_free(&plan);
    return status;
}

void zoff_zero_plan_free(zoff_plan *plan)
{
    if (plan->runs != plan->pieces)
        zoff_base_mem_free(plan->runs);
    zoff_base_mem_free(plan->pieces);
    zoff_base_mem_free(plan->chunks);
    zoff_base_mem_free(plan->rounds.all);
    zoff_base_mem_free(plan->rounds.has_param);
    *plan = (zoff_plan){0};
}

/* ---- lookup ---- */

/* -1, 0 or 1 if the piece lies before the element, contains it, or lies after it. */
static int compare(const bool *later, const zoff_plan_piece *piece, uint32_t param, size_t slice, size_t first)
{
    if (piece->param != param && later && later[piece->param] != later[param])
        return later[param] ? -1 : 1;
    if (piece->param != param)
        return piece->param < param ? -1 : 1;
    if (piece->slice != slice)
        return piece->slice < slice ? -1 : 1;
    if (piece->first > first)
        return 1;
    return first - piece->first >= piece->count ? -1 : 0;
}

static size_t find(const bool *later, const zoff_plan_piece *pieces, size_t count, uint32_t param, size_t slice, size_t first)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int where = compare(later, &pieces[middle], param, slice, first);
        if (where == 0)
            return middle;
        if (where < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return SIZE_MAX;
}

size_t zoff_zero_plan_find(const zoff_plan *plan, uint32_t param, size_t slice, size_t first)
{
    return find(plan->rounds.has_param, plan->pieces, plan->piece_count, param, slice, first);
}

size_t zoff_zero_plan_find_run(const zoff_plan *plan, uint32_t param, size_t slice, size_t first)
{
    return find(plan->rounds.has_param, plan->runs, plan->run_count, param, slice, first);
}

static size_t blocks_of(const zoff_plan *plan, const zoff_plan_piece *piece)
{
    return zoff_base_bits_ceil_div(piece->count, plan->unit);
}

/* The first block of a rank's part of a bucket. */
static size_t part_block(const zoff_plan *plan, size_t bucket, unsigned rank)
{
    const zoff_plan_chunk *c = &plan->chunks[bucket];
    const zoff_plan_piece *first = &plan->runs[c->first_run], *last = first + c->run_count - 1;
    return part_start(first->block, last->block + blocks_of(plan, last), plan->ranks, rank);
}

zoff_plan_cursor zoff_zero_plan_part(const zoff_plan *plan, size_t bucket, unsigned rank)
{
    const zoff_plan_chunk *c = &plan->chunks[bucket];
    zoff_plan_cursor cursor = {
        .plan = plan, .block = part_block(plan, bucket, rank), .end = part_block(plan, bucket, rank + 1)};
    size_t low = c->first_run, high = c->first_run + c->run_count;
    while (high - low > 1) { /* find the last run that starts at or before the part */
        const size_t middle = low + (high - low) / 2;
        if (plan->runs[middle].block <= cursor.block)
            low = middle;
        else
            high = middle;
    }
    cursor.run = low;
    return cursor;
}

bool zoff_zero_plan_next(zoff_plan_cursor *cursor, zoff_plan_piece *out)
{
    if (cursor->block >= cursor->end)
        return false;
    const zoff_plan_piece *run = &cursor->plan->runs[cursor->run];
    const size_t run_end = run->block + blocks_of(cursor->plan, run), end = zoff_base_bits_min(cursor->end, run_end);
    *out = cut(run, cursor->plan->unit, cursor->block, end);
    cursor->block = end;
    cursor->run += end == run_end;
    return true;
}

/* Index of the first piece of a chunk that starts at or after a block. */
static size_t piece_from(const zoff_plan *plan, const zoff_plan_chunk *c, size_t block)
{
    size_t low = c->first_piece, high = c->first_piece + c->piece_count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (plan->pieces[middle].block < block)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

zoff_plan_span zoff_zero_plan_own(const zoff_plan *plan, size_t bucket)
{
    const zoff_plan_chunk *c = &plan->chunks[bucket];
    if (!plan->replicated)
        return (zoff_plan_span){c->first_piece, c->piece_count};
    const size_t first = piece_from(plan, c, part_block(plan, bucket, plan->rank));
    return (zoff_plan_span){first, piece_from(plan, c, part_block(plan, bucket, plan->rank + 1)) - first};
}

zoff_plan_span zoff_zero_plan_own_whole(const zoff_plan *plan, size_t bucket)
{
    const zoff_plan_chunk *c = &plan->chunks[bucket];
    const bool is_other = plan->replicated && bucket % plan->ranks != plan->rank;
    return (zoff_plan_span){c->first_piece, is_other ? 0 : c->piece_count};
}

size_t zoff_zero_plan_share(const zoff_plan *plan, const zoff_plan_piece *run, unsigned rank, size_t *out_first)
{
    const size_t first = zoff_base_bits_max(run->block, part_block(plan, run->bucket, rank));
    const size_t end = zoff_base_bits_min(run->block + blocks_of(plan, run), part_block(plan, run->bucket, rank + 1));
    if (first >= end)
        return 0;
    const zoff_plan_piece piece = cut(run, plan->unit, first, end);
    *out_first = piece.first;
    return piece.count;
}

/* Finds the last part that starts at or before the element's block. Earlier parts with the same start are empty. */
unsigned zoff_zero_plan_rank_of(const zoff_plan *plan, const zoff_plan_piece *run, size_t element)
{
    const size_t block = run->block + (element - run->first) / plan->unit;
    unsigned low = 0, high = plan->ranks;
    while (high - low > 1) {
        const unsigned middle = low + (high - low) / 2;
        if (part_block(plan, run->bucket, middle) <= block)
            low = middle;
        else
            high = middle;
    }
    return low;
}
