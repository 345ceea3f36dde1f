/* plan.c: parameters to pieces to chunks. Walks the list twice with the same code: once to count, once to fill. */
#include "zero.h"

#include "bits.h"
#include "mem.h"
#include "try.h"

#include <string.h>

enum {
    PAGE = 4096,
    CLASSES = 8, /* streams of a chunk start at different pages of each 32 KiB */
    STEP = 3     /* from one stream's place to the next one's */
};

/* The walk: where the next piece goes. */
typedef struct walk {
    const zoff_plan_opts *opts;
    zoff_plan *plan; /* counts always; pieces, chunks and parts too where `fill` */
    zoff_plan_chunk chunk;
    bool fill;
    /* Of several ranks: */
    size_t blocks, buckets;   /* in all */
    size_t part, part_blocks; /* the open part, and how many blocks it still takes */
    size_t part_first;        /* its first piece */
    unsigned extra;           /* the rank whose turn it is to take one block more than others */
} walk;

/* The next page at or after `byte` whose number is `place` modulo CLASSES. */
static size_t stream_start(size_t byte, size_t place)
{
    size_t page = zoff_base_bits_ceil_div(byte, PAGE);
    return (page + (place + CLASSES - page % CLASSES) % CLASSES) * PAGE;
}

/* Where the streams of a chunk start, and how long it is. */
static void lay_out(zoff_plan_chunk *c)
{
    size_t byte = 0, place = 0;
    for (size_t s = 0; s < ZOFF_STREAM_COUNT; s++) {
        if (c->lengths[s] == 0)
            continue;
        c->starts[s] = stream_start(byte, place);
        byte = c->starts[s] + c->lengths[s] * sizeof(float);
        place += STEP;
    }
    c->bytes = zoff_base_bits_align(byte, PAGE);
    c->weight_bytes = zoff_base_bits_align(c->weight_bytes, PAGE);
}

/* Make room for so many elements of a tensor in the streams that it has. */
static void lengthen(zoff_plan_chunk *c, const zoff_plan_tensor *tensor, size_t count)
{
    for (size_t s = 0; s < ZOFF_STREAM_COUNT; s++)
        c->lengths[s] += tensor->has[s] ? zoff_base_bits_align(count, ZOFF_PLAN_PAD) : 0;
    c->weight_bytes += zoff_base_bits_align(count * tensor->weight_bytes, ZOFF_PLAN_PAD * sizeof(float));
}

size_t zoff_zero_plan_streams(const zoff_plan_tensor *tensor)
{
    size_t streams = 0;
    for (size_t s = 0; s < ZOFF_STREAM_COUNT; s++)
        streams += tensor->has[s];
    return streams;
}

/* How many elements of a slice with `left` to go the open chunk takes: all, or a multiple of the unit, or 0. */
static size_t room(const walk *w, size_t left, const zoff_plan_tensor *tensor)
{
    size_t unit = w->opts->unit;
    size_t count = left;
    size_t element_bytes = sizeof(float) * zoff_zero_plan_streams(tensor);
    size_t limit = w->opts->max_chunk_elements > w->chunk.elements ? w->opts->max_chunk_elements - w->chunk.elements : 0;
    if (element_bytes)
        limit = zoff_base_bits_min(limit, w->opts->max_chunk_bytes / element_bytes);
    if (count > limit)
        count = limit / unit * unit;
    /* The gaps between the streams are what the estimate leaves out: a few units at most. */
    while (count && element_bytes) {
        zoff_plan_chunk c = w->chunk;
        lengthen(&c, tensor, count);
        lay_out(&c);
        if (c.bytes <= w->opts->max_chunk_bytes)
            break;
        size_t excess = (c.bytes - w->opts->max_chunk_bytes) / element_bytes / unit * unit;
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
    zoff_plan *plan = w->plan;
    if (w->fill)
        plan->chunks[plan->chunk_count] = *c;
    plan->chunk_count++;
    plan->chunk_bytes_max = zoff_base_bits_max(plan->chunk_bytes_max, c->bytes);
    plan->chunk_weights_max = zoff_base_bits_max(plan->chunk_weights_max, c->weight_bytes);
    plan->blocks_max = zoff_base_bits_max(plan->blocks_max, c->blocks);
    plan->pieces_max = zoff_base_bits_max(plan->pieces_max, c->piece_count);
}

/* The piece is this rank's. */
static void own_piece(walk *w, size_t count, const zoff_plan_tensor *tensor)
{
    zoff_plan *plan = w->plan;
    zoff_plan_chunk *c = &w->chunk;
    plan->state_bytes += count * sizeof(float) * zoff_zero_plan_streams(tensor);
    plan->weight_bytes += count * tensor->weight_bytes;
    plan->elements += tensor->frozen ? 0 : count;
    plan->owned_elements += tensor->frozen ? 0 : zoff_base_bits_align(count, ZOFF_PLAN_PAD);
    c->blocks += zoff_base_bits_ceil_div(count, w->opts->unit);
    c->piece_count++;
    c->elements += count;
    lengthen(c, tensor, count);
}

static bool is_own(const walk *w)
{
    return w->plan->replicated || w->part % w->plan->ranks == w->plan->rank;
}

static void add_piece(walk *w, uint32_t param, size_t slice, size_t first, size_t count, const zoff_plan_tensor *tensor)
{
    zoff_plan *plan = w->plan;
    zoff_plan_chunk *c = &w->chunk;
    if (w->fill) {
        zoff_plan_piece *piece = &plan->pieces[plan->piece_count];
        *piece = (zoff_plan_piece){.param = param,
                                   .slice = slice,
                                   .first = first,
                                   .count = count,
                                   .weight_offset = c->weight_bytes,
                                   .owned_offset = plan->owned_elements};
        memcpy(piece->offsets, c->lengths, sizeof piece->offsets);
    }
    plan->piece_count++;
    if (is_own(w))
        own_piece(w, count, tensor);
}

/* ---- parts ---- */

/* How many blocks a chunk takes, whatever states its elements have. */
static size_t blocks_of_chunk(const zoff_plan_opts *opts, size_t streams)
{
    const size_t gaps = (streams + 1) * CLASSES * PAGE;
    size_t blocks = opts->max_chunk_elements / opts->unit;
    if (streams)
        blocks = zoff_base_bits_min(blocks, (opts->max_chunk_bytes - zoff_base_bits_min(opts->max_chunk_bytes, gaps)) /
                                                (streams * sizeof(float) * opts->unit));
    return zoff_base_bits_max(blocks, 1);
}

static bool is_kept(const zoff_plan_tensor *tensor)
{
    return (!tensor->frozen || tensor->weight_bytes) && tensor->count;
}

/* How many blocks there are, and into how many buckets they go. */
static void count_buckets(walk *w, const zoff_plan_tensor *tensors, size_t count)
{
    size_t streams = 0;
    for (size_t i = 0; i < count; i++) {
        if (!is_kept(&tensors[i]))
            continue;
        w->blocks += tensors[i].slices * zoff_base_bits_ceil_div(tensors[i].count, w->opts->unit);
        streams = zoff_base_bits_max(streams, zoff_zero_plan_streams(&tensors[i]));
    }
    size_t most = blocks_of_chunk(w->opts, streams);
    if (!w->plan->replicated && __builtin_mul_overflow(most, (size_t)w->plan->ranks, &most))
        most = SIZE_MAX;
    if (w->opts->max_bucket_units)
        most = zoff_base_bits_min(most, w->opts->max_bucket_units);
    w->buckets = zoff_base_bits_ceil_div(w->blocks, most);
}

/* Parts of a bucket have the same number of blocks, and the rest of the division is given out in turns, from bucket to bucket:
 * so the ranks' sums differ by one block at most, too. */
static void open_part(walk *w)
{
    const unsigned ranks = w->plan->ranks, rank = (unsigned)(w->part % ranks);
    const size_t bucket = w->part / ranks;
    const size_t blocks = w->blocks / w->buckets + (bucket < w->blocks % w->buckets);
    const unsigned rest = (unsigned)(blocks % ranks);
    w->part_blocks = blocks / ranks + ((rank + ranks - w->extra) % ranks < rest);
    w->part_first = w->plan->piece_count;
    if (rank == (w->plan->replicated ? 0 : w->plan->rank))
        w->chunk = (zoff_plan_chunk){.first_piece = w->part_first};
}

static void close_part(walk *w)
{
    const unsigned ranks = w->plan->ranks, rank = (unsigned)(w->part % ranks);
    if (w->fill)
        w->plan->parts[w->part] =
            (zoff_plan_part){.first_piece = w->part_first, .piece_count = w->plan->piece_count - w->part_first};
    if (rank == (w->plan->replicated ? ranks - 1 : w->plan->rank))
        close_chunk(w);
    if (rank == ranks - 1) {
        const size_t blocks = w->blocks / w->buckets + (w->part / ranks < w->blocks % w->buckets);
        w->extra = (unsigned)((w->extra + blocks) % ranks);
    }
    if (++w->part < w->buckets * ranks)
        open_part(w);
}

/* ---- the walk ---- */

static void add_slice_of_several(walk *w, uint32_t param, size_t slice, const zoff_plan_tensor *tensor)
{
    for (size_t first = 0; first < tensor->count;) {
        while (w->part_blocks == 0)
            close_part(w);
        size_t count = tensor->count - first;
        if (zoff_base_bits_ceil_div(count, w->opts->unit) > w->part_blocks)
            count = w->part_blocks * w->opts->unit;
        add_piece(w, param, slice, first, count, tensor);
        w->part_blocks -= zoff_base_bits_ceil_div(count, w->opts->unit);
        first += count;
    }
}

/* One rank: a part is a chunk, and ends where a limit says so. */
static void close_alone(walk *w)
{
    if (w->chunk.piece_count == 0)
        return;
    if (w->fill)
        w->plan->parts[w->plan->chunk_count] =
            (zoff_plan_part){.first_piece = w->chunk.first_piece, .piece_count = w->chunk.piece_count};
    close_chunk(w);
    w->chunk = (zoff_plan_chunk){.first_piece = w->plan->piece_count};
}

static void add_slice(walk *w, uint32_t param, size_t slice, const zoff_plan_tensor *tensor)
{
    for (size_t first = 0; first < tensor->count;) {
        size_t left = tensor->count - first;
        size_t count = room(w, left, tensor);
        if (count == 0 && w->chunk.piece_count) {
            close_alone(w);
            continue;
        }
        count = count ? count : zoff_base_bits_min(w->opts->unit, left);
        add_piece(w, param, slice, first, count, tensor);
        first += count;
    }
}

static void run(walk *w, const zoff_plan_tensor *tensors, size_t count)
{
    const bool alone = w->plan->ranks == 1;
    if (!alone)
        count_buckets(w, tensors, count);
    if (w->buckets)
        open_part(w);
    for (size_t i = 0; i < count; i++) {
        for (size_t slice = 0; is_kept(&tensors[i]) && slice < tensors[i].slices; slice++)
            (alone ? add_slice : add_slice_of_several)(w, (uint32_t)i, slice, &tensors[i]);
    }
    if (alone)
        close_alone(w);
    while (w->part < w->buckets * w->plan->ranks)
        close_part(w);
}

/* With padding and three streams of floats, 2^58 elements are still far below 2^64 bytes. */
static zoff_status check_sizes(const zoff_plan_tensor *tensors, size_t count)
{
    size_t total = 0;
    for (size_t i = 0; i < count; i++) {
        size_t elements;
        bool fits = zoff_base_bits_mul(tensors[i].count, tensors[i].slices, &elements) &&
                    !__builtin_add_overflow(total, elements, &total) && total < (size_t)1 << 58;
        ZOFF_FAIL_IF(!fits, ZOFF_ERR_INVALID, "parameter %zu: %zu slices of %zu elements are more than fits in memory", i,
                     tensors[i].slices, tensors[i].count);
    }
    return ZOFF_OK;
}

zoff_status zoff_zero_plan_make(const zoff_plan_tensor *tensors, size_t count, const zoff_plan_opts *opts, zoff_plan *out)
{
    zoff_status status;
    const zoff_plan empty = {.rank = opts->rank, .ranks = opts->ranks ? opts->ranks : 1, .replicated = opts->replicated};
    zoff_plan plan = empty;
    ZOFF_TRY(check_sizes(tensors, count));
    walk w = {.opts = opts, .plan = &plan};
    run(&w, tensors, count);
    const size_t parts = plan.chunk_count * plan.ranks;
    ZOFF_TRY(zoff_base_mem_alloc(plan.piece_count, sizeof *plan.pieces, "the plan's pieces", &plan.pieces));
    ZOFF_TRY_OR(free_plan, zoff_base_mem_alloc(plan.chunk_count, sizeof *plan.chunks, "the plan's chunks", &plan.chunks));
    ZOFF_TRY_OR(free_plan, zoff_base_mem_alloc(parts, sizeof *plan.parts, "the plan's parts", &plan.parts));
    const zoff_plan counted = plan;
    plan = empty;
    plan.pieces = counted.pieces;
    plan.chunks = counted.chunks;
    plan.parts = counted.parts;
    w = (walk){.opts = opts, .plan = &plan, .fill = true};
    run(&w, tensors, count);
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
    zoff_base_mem_free(plan->pieces);
    zoff_base_mem_free(plan->chunks);
    zoff_base_mem_free(plan->parts);
    *plan = (zoff_plan){0};
}

/* -1, 0, 1: piece lies before, holds, lies after the element. */
static int compare(const zoff_plan_piece *piece, uint32_t param, size_t slice, size_t first)
{
    if (piece->param != param)
        return piece->param < param ? -1 : 1;
    if (piece->slice != slice)
        return piece->slice < slice ? -1 : 1;
    if (piece->first > first)
        return 1;
    return first - piece->first >= piece->count ? -1 : 0;
}

size_t zoff_zero_plan_find(const zoff_plan *plan, uint32_t param, size_t slice, size_t first)
{
    size_t low = 0, high = plan->piece_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int where = compare(&plan->pieces[middle], param, slice, first);
        if (where == 0)
            return middle;
        if (where < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return SIZE_MAX;
}

/* The last part that starts at or before it: those before it that start there are empty. */
static size_t part_of(const zoff_plan *plan, size_t piece)
{
    size_t low = 0, high = plan->chunk_count * plan->ranks;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (plan->parts[middle].first_piece <= piece)
            low = middle;
        else
            high = middle;
    }
    return low;
}

size_t zoff_zero_plan_chunk_of(const zoff_plan *plan, size_t piece)
{
    return part_of(plan, piece) / plan->ranks;
}

unsigned zoff_zero_plan_rank_of(const zoff_plan *plan, size_t piece)
{
    return (unsigned)(part_of(plan, piece) % plan->ranks);
}
