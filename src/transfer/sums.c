/* SPDX-License-Identifier: Apache-2.0 */
/* sums.c: the rules by which gradients are added up, over micro-batches and ranks (zoff.reduce_scatter).
 *
 * "ordered" adds in fp32, micro-batch by micro-batch and in rank order, so the number of ranks, and the deal of micro-batches
 * among them, decide the last bits. "exact" adds integers in bins (see cpu_adam/body/body_bins.h), so they do not. Its bins
 * take memory beside the fp32 sums only where a sum is made in several calls. The fp32 sums are then made with the last
 * micro-batch, and lie where those of "ordered" lie. So measurement, gate and update do not know the rule. */
#include "transfer.h"

#include "try.h"

/* ---- ordered ---- */

static uint64_t no_bytes(const zoff_transfer *t, size_t elements)
{
    return 0;
}

static void add_ordered(zoff_transfer *t, const zoff_accumulate_piece *pieces, size_t count, zoff_adam_between between,
                        void *ctx)
{
    zoff_adam_accumulate_run(t->threads.now, pieces, count, between, ctx);
}

const zoff_sum_rule zoff_transfer_sums_ordered = {.name = "ordered", .bytes = no_bytes, .add = add_ordered};

/* ---- exact ---- */

/* A digit is at most 2^19, so a number of 32 bits holds the sum of 4,095. */
enum { NARROW = 4, WIDE = 8, NARROW_TERMS = 4095 };

static unsigned width_of(const zoff_transfer *t)
{
    return (uint64_t)zoff_comm_size(t->comm) * t->values->accumulation > NARROW_TERMS ? WIDE : NARROW;
}

/* The upper digits of narrow bins lie where the fp32 sums are made. */
static uint64_t exact_bytes(const zoff_transfer *t, size_t elements)
{
    const uint64_t digits = width_of(t) == NARROW ? NARROW : 2 * WIDE;
    return t->values->accumulation > 1 && !t->ranks.levels.keeps ? elements * (digits + 1) : 0;
}

static size_t elements_of(const zoff_transfer *t)
{
    return t->plan->owned_elements - t->accumulator.device_sums;
}

static zoff_bins bins_of(const zoff_transfer *t, const float *sum)
{
    const zoff_accumulator *a = &t->accumulator;
    const size_t elements = elements_of(t), at = (size_t)(sum - (const float *)a->map.base);
    char *more = a->bins.base;
    const unsigned width = width_of(t);
    if (!more)
        return (zoff_bins){.hi = NULL, .width = width};
    return (zoff_bins){.hi = width == NARROW ? (char *)a->map.base + at * width : more + (elements + at) * width,
                       .lo = more + at * width,
                       .top = (uint8_t *)more + (width == NARROW ? 1 : 2) * elements * width + at,
                       .width = width};
}

static void add_exact(zoff_transfer *t, const zoff_accumulate_piece *pieces, size_t count, zoff_adam_between between, void *ctx)
{
    zoff_bins_piece *bins = t->scratch.bins_pieces;
    for (size_t i = 0; i < count; i++)
        bins[i] = (zoff_bins_piece){.count = pieces[i].count,
                                    .to = bins_of(t, pieces[i].sum),
                                    .first = pieces[i].first,
                                    .terms = pieces[i].grad,
                                    .dtype = pieces[i].dtype,
                                    .sources = pieces[i].sources ? pieces[i].sources : 1,
                                    .stride = pieces[i].stride,
                                    .weights = pieces[i].weights,
                                    .out = zoff_transfer_sums_ends(t) ? pieces[i].sum : NULL};
    zoff_adam_bins_run(t->threads.now, bins, count, between, ctx);
}

zoff_bins_piece zoff_transfer_sums_join(const zoff_transfer *t, const zoff_plan_piece *piece, const zoff_bins *parts,
                                        size_t count)
{
    float *sum = zoff_transfer_pieces_sum(t, piece);
    return (zoff_bins_piece){.count = piece->count,
                             .to = bins_of(t, sum),
                             .first = t->batch.micro == 0 || t->ranks.levels.keeps,
                             .parts = parts,
                             .part_count = count,
                             .out = zoff_transfer_sums_ends(t) ? sum : NULL};
}

const zoff_sum_rule zoff_transfer_sums_exact = {.name = "exact", .ends_all = true, .bytes = exact_bytes, .add = add_exact};

/* ---- the rule of an engine ---- */

bool zoff_transfer_sums_ends(const zoff_transfer *t)
{
    return t->batch.micro + 1 == t->values->accumulation;
}

static const zoff_sum_rule *rule_of(bool exact)
{
    return exact ? &zoff_transfer_sums_exact : &zoff_transfer_sums_ordered;
}

zoff_status zoff_transfer_sums_prepare(const zoff_transfer *t, bool exact, zoff_map *out)
{
    const uint64_t bytes = t->route.sums ? rule_of(exact)->bytes(t, elements_of(t)) : 0;
    *out = (zoff_map){.base = NULL};
    return bytes ? zoff_base_map_alloc(bytes, "exact sums of gradients", ZOFF_MAP_FIRST_TOUCH, out) : ZOFF_OK;
}

void zoff_transfer_sums_use(zoff_transfer *t, bool exact, zoff_map *memory)
{
    zoff_base_map_free(&t->accumulator.bins);
    t->accumulator.bins = *memory;
    *memory = (zoff_map){.base = NULL};
    t->route.rule = rule_of(exact);
    t->model->exact_sums = exact;
}
