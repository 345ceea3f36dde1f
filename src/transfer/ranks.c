/* SPDX-License-Identifier: Apache-2.0 */
/* ranks.c: communication state of an engine with several ranks: slots for the exchange, and waiting for them. A single rank
 * needs none. */
#include "transfer.h"

#include "bits.h"
#include "try.h"

static size_t part_bytes_of(void *ctx, size_t bucket, unsigned rank)
{
    return zoff_transfer_wire_parts(ctx, bucket)[rank];
}

/* Bytes that one rank sends to this one: its part, or, over two levels, the parts of its rail. */
static size_t part_of(const zoff_transfer *t, const zoff_plan *plan, size_t bucket, size_t own)
{
    const zoff_comm_grid *g = &t->ranks.levels.sums;
    size_t bytes = 0;
    for (unsigned node = 0; g->node_ranks > 1 && node < g->nodes; node++)
        bytes += zoff_transfer_wire_part(t, plan, bucket, node * g->node_ranks + plan->rank % g->node_ranks);
    return g->node_ranks > 1 ? bytes : own;
}

/* Size of a slot: the largest bucket, and the largest part of this rank. Upper bounds, to avoid a loop over all parts of all
 * ranks. `levels`: memory for the second hop. */
static zoff_reduce_opts reduce_opts(const zoff_transfer *t, const zoff_plan *plan, zoff_reduce_levels *levels)
{
    const bool is_grid = t->ranks.levels.sums.node_ranks > 1;
    zoff_reduce_opts opts = {
        .plan = plan, .comm = t->comm, .channel = t->channel, .adds = t->route.adds, .ctx = (void *)(uintptr_t)t};
    for (size_t b = 0; b < plan->chunk_count; b++) {
        size_t part, all;
        zoff_transfer_wire_most(t, plan, b, &part, &all);
        opts.bucket_most = zoff_base_bits_max(opts.bucket_most, all);
        opts.part_most = zoff_base_bits_max(opts.part_most, part_of(t, plan, b, part));
    }
    opts.part_bytes = is_grid ? zoff_transfer_levels_part_bytes : part_bytes_of;
    if (is_grid) {
        zoff_transfer_levels_plan(t, plan, levels);
        opts.levels = levels;
    }
    return opts;
}

/* Bytes of the largest bucket that is gathered. Sums of gradients are gathered from accumulator to accumulator. */
static size_t gather_most(const zoff_transfer *t, const zoff_plan *plan)
{
    return zoff_transfer_ranks_have_parts(t) ? zoff_transfer_all_gather_most(t, plan) : 0;
}

static size_t staging_bytes(const zoff_transfer *t, const zoff_plan *plan)
{
    zoff_reduce_levels levels;
    const zoff_reduce_opts opts = reduce_opts(t, plan, &levels);
    return zoff_base_bits_max(ZOFF_REDUCE_SLOTS * zoff_zero_reduce_slot_bytes(&opts), ZOFF_GATHER_SLOTS * gather_most(t, plan));
}

uint64_t zoff_transfer_ranks_device_bytes(const zoff_transfer *t, const zoff_plan *plan)
{
    const zoff_wire *wire = t->route.wire;
    return wire && wire->device_bytes ? wire->device_bytes(t, plan, zoff_transfer_ranks_bytes(t, plan)) : 0;
}

uint64_t zoff_transfer_ranks_bytes(const zoff_transfer *t, const zoff_plan *plan)
{
    return t->route.wire ? staging_bytes(t, plan) + zoff_transfer_levels_kept_bytes(t, plan) : 0;
}

static zoff_status allocate_staging(zoff_transfer *t)
{
    const size_t bytes = staging_bytes(t, t->plan);
    return bytes ? zoff_base_map_alloc(bytes, "buffers for the exchange between ranks", ZOFF_MAP_INTERLEAVED, &t->ranks.staging)
                 : ZOFF_OK;
}

static zoff_status allocate_rows(zoff_transfer *t)
{
    zoff_ranks *r = &t->ranks;
    const size_t ranks = t->plan->ranks;
    ZOFF_TRY(zoff_base_mem_alloc(ZOFF_PART_ROWS * ranks, sizeof *r->part_bytes, "parts of the ranks", &r->part_bytes));
    ZOFF_TRY(zoff_base_mem_alloc(ZOFF_PART_ROWS, sizeof *r->part_rows, "parts of the ranks", &r->part_rows));
    for (size_t row = 0; row < ZOFF_PART_ROWS; row++)
        r->part_rows[row] = SIZE_MAX;
    return ZOFF_OK;
}

static zoff_status allocate(zoff_transfer *t)
{
    zoff_ranks *r = &t->ranks;
    const zoff_plan *plan = t->plan;
    ZOFF_TRY(allocate_rows(t));
    ZOFF_TRY(zoff_base_mem_alloc(zoff_transfer_wire_most_pieces(plan), sizeof *r->moves, "a bucket's pieces", &r->moves));
    r->spread_bytes = gather_most(t, plan);
    return allocate_staging(t);
}

static zoff_status open_reduce(zoff_transfer *t)
{
    zoff_ranks *r = &t->ranks;
    const zoff_wire *wire = t->route.wire;
    zoff_reduce_levels levels;
    zoff_reduce_opts reduce = reduce_opts(t, t->plan, &levels);
    reduce.slots = ZOFF_REDUCE_SLOTS;
    reduce.memory = r->wire.slots;
    reduce.factor = t->values->grad_factor;
    reduce.pack = wire->pack;
    reduce.sum = reduce.levels ? zoff_transfer_levels_take : wire->sum;
    return zoff_zero_reduce_open(&reduce, &r->reduce);
}

static zoff_gather_opts gather_opts(const zoff_transfer *t)
{
    const bool is_grid = t->ranks.levels.weights.node_ranks > 1;
    return (zoff_gather_opts){.comm = t->comm,
                              .channel = t->channel,
                              .stream = is_grid ? ZOFF_COMM_STEP_RAIL : ZOFF_COMM_STEP,
                              .node = ZOFF_COMM_STEP_NODE,
                              .grid = t->ranks.levels.weights,
                              .slots = ZOFF_GATHER_SLOTS};
}

static zoff_status open_exchanges(zoff_transfer *t)
{
    const zoff_gather_opts gather = gather_opts(t);
    ZOFF_TRY(open_reduce(t));
    return zoff_zero_gather_open(&gather, &t->ranks.gather);
}

zoff_status zoff_transfer_ranks_traffic(zoff_transfer *t, zoff_comm_traffic *reduce, zoff_comm_traffic *gather)
{
    zoff_status status;
    zoff_reduce_levels levels;
    size_t *bytes = NULL;
    const zoff_gather_opts spread = gather_opts(t);
    t->ranks.part_bytes = t->ranks.part_rows = NULL;
    ZOFF_TRY_OR(done, allocate_rows(t));
    ZOFF_TRY_OR(done, zoff_base_mem_alloc(2 * (size_t)t->plan->ranks, sizeof *bytes, "parts of the ranks", &bytes));
    const zoff_reduce_opts opts = reduce_opts(t, t->plan, &levels);
    for (unsigned batch = 1; batch <= t->values->accumulation; batch++)
        ZOFF_TRY_OR(done, zoff_zero_reduce_traffic(&opts, t->ranks.levels.keeps && batch < t->values->accumulation, reduce));
    for (size_t bucket = 0; bucket < t->plan->chunk_count; bucket++) {
        zoff_transfer_all_gather_size_up(t, bucket, bytes);
        zoff_zero_gather_traffic(&spread, bytes, bytes + t->plan->ranks, gather);
    }
    status = ZOFF_OK;
done:
    zoff_base_mem_free(bytes);
    zoff_base_mem_free(t->ranks.part_bytes);
    zoff_base_mem_free(t->ranks.part_rows);
    return status;
}

zoff_status zoff_transfer_ranks_open(zoff_transfer *t)
{
    const zoff_wire *wire = t->route.wire;
    uint32_t **missing = &t->walk.arrivals.missing;
    zoff_transfer_wire_watch(t);
    if (!wire) /* zoff_transfer_walk_close() frees it */
        return zoff_base_mem_alloc(t->plan->chunk_count, sizeof **missing, "the slices of buckets", missing);
    ZOFF_TRY(allocate(t));
    if (t->ranks.levels.sums.node_ranks > 1)
        ZOFF_TRY(zoff_transfer_levels_open(t));
    ZOFF_TRY(wire->open(t));
    return open_exchanges(t);
}

zoff_status zoff_transfer_ranks_connect(zoff_transfer *t)
{
    return t->route.wire && t->route.wire->connect ? t->route.wire->connect(t) : ZOFF_OK;
}

void zoff_transfer_ranks_close_wire(zoff_transfer *t)
{
    if (t->route.wire && t->route.wire->close)
        t->route.wire->close(t);
}

void zoff_transfer_ranks_abandon(zoff_transfer *t)
{
    zoff_transfer_wire_unwatch(t);
    zoff_zero_reduce_close(t->ranks.reduce);
    zoff_zero_gather_close(t->ranks.gather);
    t->ranks.reduce = NULL;
    t->ranks.gather = NULL;
}

void zoff_transfer_ranks_close(zoff_transfer *t)
{
    zoff_ranks *r = &t->ranks;
    zoff_base_map_free(&r->staging);
    zoff_transfer_levels_close(t);
    void *blocks[] = {r->part_bytes, r->moves, r->wire.own, r->part_rows};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
        zoff_base_mem_free(blocks[i]);
    const zoff_comm_grid nodes = r->levels.nodes;
    *r = (zoff_ranks){.levels = {.nodes = nodes, .sums = nodes, .weights = nodes}};
}

/* ---- another rule of sums ---- */

static void free_route(zoff_transfer *t)
{
    zoff_zero_reduce_close(t->ranks.reduce);
    zoff_transfer_levels_close(t);
    zoff_base_map_free(&t->ranks.staging);
}

/* Open what differs in t->ranks; all else stays. */
static zoff_status open_route(zoff_transfer *t)
{
    zoff_levels *l = &t->ranks.levels;
    *l = (zoff_levels){.nodes = l->nodes, .sums = l->sums, .weights = l->weights, .may_keep = l->may_keep, .keeps = l->keeps};
    t->ranks.staging = (zoff_map){.base = NULL};
    t->ranks.reduce = NULL;
    if (l->sums.node_ranks > 1)
        ZOFF_TRY(zoff_transfer_levels_open(t));
    ZOFF_TRY(allocate_staging(t));
    t->ranks.wire.slots = t->ranks.staging.base;
    return open_reduce(t);
}

zoff_status zoff_transfer_ranks_prepare_sums(zoff_transfer *t, bool exact, zoff_sums_change *out)
{
    const bool was_exact = t->model->exact_sums;
    const zoff_ranks was = t->ranks;
    *out = (zoff_sums_change){.exact = exact};
    t->model->exact_sums = exact;
    zoff_transfer_levels_choose(t);
    out->is_other_route =
        t->ranks.levels.sums.node_ranks != was.levels.sums.node_ranks || t->ranks.levels.keeps != was.levels.keeps;
    zoff_status status = zoff_transfer_sums_prepare(t, exact, &out->bins);
    if (status == ZOFF_OK && out->is_other_route) {
        status = open_route(t);
        if (status < 0)
            free_route(t);
        out->ranks = t->ranks;
    }
    t->ranks = was;
    t->model->exact_sums = was_exact;
    if (status < 0) {
        zoff_base_map_free(&out->bins);
        *out = (zoff_sums_change){.exact = exact};
    }
    return status;
}

void zoff_transfer_ranks_use_sums(zoff_transfer *t, zoff_sums_change *change)
{
    if (change->is_other_route) {
        free_route(t);
        t->ranks = change->ranks;
        zoff_transfer_ranks_count_anew(t);
        zoff_transfer_reduce_scatter_begin(t);
    }
    zoff_transfer_sums_use(t, change->exact, &change->bins);
}

void zoff_transfer_ranks_discard_sums(zoff_transfer *t, zoff_sums_change *change)
{
    const zoff_ranks was = t->ranks;
    if (change->is_other_route) {
        t->ranks = change->ranks;
        free_route(t);
        t->ranks = was;
    }
    zoff_base_map_free(&change->bins);
}

/* ---- counters ---- */

static uint64_t sent_weights(const zoff_transfer *t)
{
    const uint64_t spread = !zoff_transfer_ranks_have_parts(t) ? 0 : zoff_zero_gather_sent_bytes(t->ranks.gather);
    return spread + zoff_zero_gather_sent_bytes(t->lending->cache.assembly.gather) + t->lending->secondary.sent_bytes;
}

/* With replicated states, the sums of gradients are sent a second time. */
static uint64_t sent_gradients(const zoff_transfer *t)
{
    const uint64_t sums = !zoff_transfer_ranks_have_parts(t) ? zoff_zero_gather_sent_bytes(t->ranks.gather) : 0;
    return t->ranks.reduce ? sums + zoff_zero_reduce_sent_bytes(t->ranks.reduce) : 0;
}

void zoff_transfer_ranks_count(const zoff_transfer *t, zoff_step_info *info)
{
    info->bytes.sent = t->channel->sent_bytes - t->ranks.before.sent;
    info->bytes.received = t->channel->received_bytes - t->ranks.before.received;
    info->bytes.sent_gradients = sent_gradients(t) - t->ranks.before.gradients;
    info->bytes.sent_weights = sent_weights(t) - t->ranks.before.weights;
}

void zoff_transfer_ranks_count_anew(zoff_transfer *t)
{
    t->ranks.before.sent = t->channel->sent_bytes;
    t->ranks.before.received = t->channel->received_bytes;
    t->ranks.before.gradients = sent_gradients(t);
    t->ranks.before.weights = sent_weights(t);
}
