/* SPDX-License-Identifier: Apache-2.0 */
/* levels.c: two levels of ranks. A rank talks to its node, and to its rail: the ranks with its place in the other nodes. With
 * exact sums, gradients go to the node first. Each of its ranks adds up the terms for one rail, and sends the sums, in 7 bytes
 * an element, to the owners there. Updated weights go the other way: to the rail, then to the node.
 *
 *      terms of a bucket, packed rail by rail -> node: partial sums -> rail: the sum of all nodes -> its owner
 *
 * Partial sums of a part are the digits of all its elements, hi and lo, and the bins, with zeros up to a multiple of 64 bytes.
 * With zoff.between_nodes "step" they stay on their rank until the last micro-batch, so the rail carries one sum in each step.
 */
#include "transfer.h"

#include "bits.h"
#include "budget.h"
#include "clock.h"
#include "try.h"

#include <math.h>
#include <string.h>

enum { ALIGN = 64, NARROWEST = 3, NARROWEST_TERMS = 15, NARROW = 4, NARROW_TERMS = 4095, WIDE = 8 };

/* ---- the layout ---- */

static unsigned place_of(const zoff_transfer *t)
{
    return zoff_comm_rank(t->comm) % t->ranks.levels.sums.node_ranks;
}

static unsigned width_of(const zoff_transfer *t)
{
    const uint64_t terms = (uint64_t)t->ranks.levels.sums.node_ranks * (t->ranks.levels.keeps ? t->values->accumulation : 1);
    return terms > NARROW_TERMS ? WIDE : t->ranks.levels.keeps || terms > NARROWEST_TERMS ? NARROW : NARROWEST;
}

/* Elements of a rank's part whose gradients are sent. */
static size_t elements_of(const zoff_transfer *t, const zoff_plan *plan, size_t bucket, unsigned rank)
{
    zoff_plan_cursor part = zoff_zero_plan_part(plan, bucket, rank);
    zoff_plan_piece piece;
    size_t elements = 0;
    while (zoff_zero_plan_next(&part, &piece)) {
        const zoff_model_param *p = &t->model->params[piece.param];
        elements += p->frozen || p->reduced ? 0 : piece.count;
    }
    return elements;
}

static size_t sums_of(const zoff_transfer *t, size_t elements)
{
    return zoff_base_bits_align(elements * (2 * width_of(t) + 1), ALIGN);
}

static size_t rail_sums(void *ctx, size_t bucket, unsigned node)
{
    const zoff_transfer *t = ctx;
    const unsigned rank = node * t->ranks.levels.sums.node_ranks + place_of(t);
    return sums_of(t, elements_of(t, t->plan, bucket, rank));
}

/* The partial sums of a bucket that this rank makes: those of its rail. */
static size_t partial_bytes(const zoff_transfer *t, const zoff_plan *plan, size_t bucket)
{
    size_t bytes = 0;
    for (unsigned node = 0; node < t->ranks.levels.sums.nodes; node++)
        bytes += sums_of(t, elements_of(t, plan, bucket, node * t->ranks.levels.sums.node_ranks + place_of(t)));
    return bytes;
}

size_t zoff_transfer_levels_part_bytes(void *ctx, size_t bucket, unsigned place)
{
    const zoff_transfer *t = ctx;
    const zoff_comm_grid *g = &t->ranks.levels.sums;
    const size_t *parts = zoff_transfer_wire_parts(t, bucket);
    size_t bytes = 0;
    for (unsigned node = 0; node < g->nodes; node++)
        bytes += parts[node * g->node_ranks + place];
    return bytes;
}

uint64_t zoff_transfer_levels_kept_bytes(const zoff_transfer *t, const zoff_plan *plan)
{
    uint64_t bytes = 0;
    for (size_t bucket = 0; t->ranks.levels.keeps && bucket < plan->chunk_count; bucket++)
        bytes += partial_bytes(t, plan, bucket);
    return bytes;
}

/* ---- the terms of a node ---- */

/* Where the sums of a piece are in those of its part, which has `elements`. */
static zoff_bins bins_at(const zoff_transfer *t, const char *part, size_t elements, size_t first)
{
    const unsigned width = width_of(t);
    char *base = (char *)(uintptr_t)part;
    return (zoff_bins){.hi = base + first * width,
                       .lo = base + (elements + first) * width,
                       .top = (uint8_t *)base + 2 * elements * width + first,
                       .width = width};
}

/* List the additions for one part of the rail, and clear what lies behind its sums. `terms`: of the first rank of the node;
 * those of the next are `stride` bytes behind.  @return number of entries of the list */
static size_t list_part(zoff_transfer *t, size_t bucket, unsigned owner, const char *terms, size_t stride, char *sums,
                        size_t used)
{
    zoff_levels *l = &t->ranks.levels;
    zoff_plan_cursor cursor = zoff_zero_plan_part(t->plan, bucket, owner);
    zoff_plan_piece *piece = &l->whose[used];
    const size_t elements = elements_of(t, t->plan, bucket, owner), end = elements * (2 * width_of(t) + 1);
    size_t at = 0, done = 0;
    while (zoff_zero_plan_next(&cursor, piece)) {
        const zoff_model_param *p = &t->model->params[piece->param];
        if (p->frozen || p->reduced)
            continue;
        const zoff_dtype dtype = zoff_transfer_wire_dtype(t, p);
        l->pieces[used++] =
            (zoff_bins_piece){.count = piece->count,
                              .to = bins_at(t, sums, elements, done),
                              .first = !l->keeps || t->batch.micro == 0,
                              .terms = terms + zoff_transfer_wire_place(&at, piece->count, zoff_adam_dtype_bytes(dtype)),
                              .dtype = dtype,
                              .sources = t->ranks.levels.sums.node_ranks,
                              .stride = stride};
        done += piece->count;
        piece = &l->whose[used];
    }
    memset(sums + end, 0, sums_of(t, elements) - end);
    return used;
}

/* The member of this node whose terms of a block are not finite. SIZE_MAX: none, because those of an earlier micro-batch were
 * not. */
static size_t find_source(const zoff_bins_piece *sums, size_t element)
{
    const size_t count = zoff_base_bits_min(sums->count - element, ZOFF_NORM_BLOCK);
    for (size_t i = 0; i < sums->sources; i++) {
        double sum;
        const zoff_norm_piece block = {.count = count,
                                       .grad = (const char *)sums->terms + i * sums->stride +
                                               element * zoff_adam_dtype_bytes(sums->dtype),
                                       .dtype = sums->dtype,
                                       .block_sums = &sum};
        zoff_adam_norm_run(1, &block, 1, NULL, NULL);
        if (sums->weights[i] != 0 && !isfinite(sum))
            return i;
    }
    return SIZE_MAX;
}

/* The owner of a sum that is not finite has no terms, so the rank that has them names it, too. */
static void look_for_culprit(zoff_transfer *t, const zoff_bins_piece *sums, const zoff_plan_piece *piece)
{
    enum { NOT_FINITE = 15 };
    const unsigned first = zoff_comm_rank(t->comm) - place_of(t);
    const uint8_t *bad = memchr(sums->to.top, NOT_FINITE, sums->count);
    const size_t element = bad ? (size_t)(bad - sums->to.top) / ZOFF_NORM_BLOCK * ZOFF_NORM_BLOCK : 0;
    const size_t source = bad ? find_source(sums, element) : SIZE_MAX;
    if (source != SIZE_MAX)
        zoff_transfer_measure_blame(t, piece, piece->first + element, first + (unsigned)source);
}

static zoff_status add_partial(void *ctx, size_t bucket, unsigned slot, const char *terms, const float *weights, char **sums)
{
    zoff_transfer *t = ctx;
    const zoff_comm_grid *g = &t->ranks.levels.sums;
    zoff_levels *l = &t->ranks.levels;
    const double from = zoff_base_clock_seconds();
    const size_t *parts = zoff_transfer_wire_parts(t, bucket);
    const size_t stride = zoff_transfer_levels_part_bytes(t, bucket, place_of(t));
    *sums = l->keeps ? (char *)l->kept.base + l->kept_at[bucket] : *sums;
    size_t used = 0, at = 0, out = 0;
    for (unsigned node = 0; node < g->nodes; node++) {
        const unsigned owner = node * g->node_ranks + place_of(t);
        used = list_part(t, bucket, owner, terms + at, stride, *sums + out, used);
        at += parts[owner];
        out += rail_sums(t, bucket, node);
    }
    for (size_t i = 0; i < used; i++)
        l->pieces[i].weights = weights;
    zoff_adam_bins_run(t->threads.now, l->pieces, used, NULL, NULL);
    for (size_t i = 0; i < used && zoff_transfer_sums_ends(t); i++)
        look_for_culprit(t, &l->pieces[i], &l->whose[i]);
    t->batch.early.read_bytes += stride * g->node_ranks;
    t->batch.early.write_bytes += out;
    t->batch.early.measure_seconds += zoff_base_clock_seconds() - from;
    return ZOFF_OK;
}

/* ---- the sums of all nodes, at their owner ---- */

/* List the additions of the partial sums of all nodes, and of gradients that the trainer has reduced. */
static void add_sums(zoff_transfer *t, size_t bucket, const char *sums)
{
    const zoff_comm_grid *g = &t->ranks.levels.sums;
    zoff_levels *l = &t->ranks.levels;
    const zoff_plan_span part = zoff_zero_plan_own(t->plan, bucket);
    const size_t elements = elements_of(t, t->plan, bucket, t->plan->rank), bytes = sums_of(t, elements);
    size_t used = 0, done = 0;
    for (size_t i = 0; i < part.piece_count; i++) {
        const zoff_plan_piece *piece = &t->plan->pieces[part.first_piece + i];
        const zoff_model_param *p = &t->model->params[piece->param];
        if (p->frozen || p->reduced)
            continue;
        zoff_bins *parts = &l->parts[used * g->nodes];
        for (unsigned node = 0; node < g->nodes; node++)
            parts[node] = bins_at(t, sums + node * bytes, elements, done);
        done += piece->count;
        t->scratch.bins_pieces[used++] = zoff_transfer_sums_join(t, piece, parts, g->nodes);
    }
    zoff_adam_bins_run(t->threads.now, t->scratch.bins_pieces, used, NULL, NULL);
    used = zoff_transfer_reduce_scatter_list_sums(t, bucket, NULL, NULL);
    t->route.rule->add(t, t->scratch.accumulate_pieces, used, NULL, NULL);
    t->batch.early.read_bytes += bytes * g->nodes;
    t->batch.early.write_bytes += elements * sizeof(float);
}

zoff_status zoff_transfer_levels_take(void *ctx, size_t bucket, unsigned slot, const char *sums, const float *weights)
{
    zoff_transfer *t = ctx;
    zoff_transfer_measure_add_copies(t, bucket);
    const double from = zoff_base_clock_seconds();
    add_sums(t, bucket, sums);
    t->batch.early.measure_seconds += zoff_base_clock_seconds() - from;
    zoff_transfer_reduce_scatter_summed(t, bucket, NULL, weights);
    return ZOFF_OK;
}

/* ---- life ---- */

/* The elements whose gradients are sent. */
static uint64_t sent_elements(const zoff_model *m)
{
    uint64_t elements = 0;
    for (size_t i = 0; i < m->param_count; i++)
        elements += m->params[i].frozen || m->params[i].reduced ? 0 : (uint64_t)m->params[i].count * m->params[i].slices;
    return elements;
}

/* Gradients that the trainer has reduced are added by their owner in each micro-batch. */
bool zoff_transfer_levels_can_keep(const zoff_transfer *t)
{
    bool any = false;
    for (size_t i = 0; i < t->model->param_count; i++)
        any = any || (t->model->params[i].reduced && !t->model->params[i].frozen);
    return t->values->accumulation > 1 && !any;
}

bool zoff_transfer_levels_has_room(const zoff_transfer *t)
{
    enum { SHARE = 8, DIGITS = 2 * NARROW + 1 };
    const char *source;
    const uint64_t bytes = sent_elements(t->model) * DIGITS; /* of all ranks of this node */
    return bytes <= zoff_base_budget_memory("", &source) / SHARE;
}

/* Bytes of an element that a rank sends to other nodes in each step, times node_ranks of the grid; terms that go to their owner
 * are `widest_gradient` bytes. */
static bool saves_bytes(const zoff_transfer *t)
{
    const unsigned node_ranks = t->ranks.levels.sums.node_ranks, batches = t->values->accumulation;
    const uint64_t terms = (uint64_t)t->ranks.widest_gradient * batches * node_ranks;
    return (uint64_t)(2 * width_of(t) + 1) * (t->ranks.levels.keeps ? 1 : batches) < terms;
}

void zoff_transfer_levels_choose(zoff_transfer *t)
{
    const zoff_comm_grid flat = {.node_ranks = 1, .nodes = zoff_comm_size(t->comm)}, *nodes = &t->ranks.levels.nodes;
    const bool is_host = t->route.wire && !t->route.wire->is_there;
    zoff_levels *l = &t->ranks.levels;
    t->ranks.levels.weights = is_host && nodes->nodes > 1 && zoff_transfer_ranks_have_parts(t) ? *nodes : flat;
    l->sums = is_host && nodes->nodes > 1 && t->model->exact_sums ? *nodes : flat;
    l->keeps = l->may_keep && l->sums.node_ranks > 1;
    if (l->sums.node_ranks > 1 && !saves_bytes(t)) {
        l->sums = flat;
        l->keeps = false;
    }
}

void zoff_transfer_levels_plan(const zoff_transfer *t, const zoff_plan *plan, zoff_reduce_levels *out)
{
    *out = (zoff_reduce_levels){.grid = t->ranks.levels.sums};
    out->sum_bytes = rail_sums;
    out->partial = add_partial;
    for (size_t bucket = 0; bucket < plan->chunk_count; bucket++) {
        const size_t partial = t->ranks.levels.keeps ? 0 : partial_bytes(t, plan, bucket);
        out->partial_most = zoff_base_bits_max(out->partial_most, partial);
        out->sum_most = zoff_base_bits_max(out->sum_most, sums_of(t, elements_of(t, plan, bucket, plan->rank)));
    }
}

zoff_status zoff_transfer_levels_open(zoff_transfer *t)
{
    zoff_levels *l = &t->ranks.levels;
    const size_t pieces = t->plan->most.runs + t->ranks.levels.sums.nodes, buckets = t->plan->chunk_count;
    const uint64_t kept = zoff_transfer_levels_kept_bytes(t, t->plan);
    ZOFF_TRY(zoff_base_mem_alloc(pieces, sizeof *l->pieces, "a bucket's pieces", &l->pieces));
    ZOFF_TRY(zoff_base_mem_alloc(pieces + 1, sizeof *l->whose, "a bucket's pieces", &l->whose));
    ZOFF_TRY(zoff_base_mem_alloc(t->plan->most.pieces * t->ranks.levels.sums.nodes, sizeof *l->parts, "a bucket's pieces",
                                 &l->parts));
    ZOFF_TRY(zoff_base_mem_alloc(buckets + 1, sizeof *l->kept_at, "sums of this node", &l->kept_at));
    for (size_t bucket = 0; l->keeps && bucket < buckets; bucket++)
        l->kept_at[bucket + 1] = l->kept_at[bucket] + partial_bytes(t, t->plan, bucket);
    return kept ? zoff_base_map_alloc(kept, "sums of this node", ZOFF_MAP_FIRST_TOUCH, &l->kept) : ZOFF_OK;
}

void zoff_transfer_levels_close(zoff_transfer *t)
{
    zoff_levels *l = &t->ranks.levels;
    void *blocks[] = {l->pieces, l->whose, l->parts, l->kept_at};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
        zoff_base_mem_free(blocks[i]);
    zoff_base_map_free(&l->kept);
}
