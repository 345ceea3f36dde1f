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

/* Size of a slot: the largest bucket, and the largest part of this rank. Upper bounds, to avoid a loop over all parts of all
 * ranks. */
static zoff_reduce_opts reduce_opts(const zoff_transfer *t, const zoff_plan *plan)
{
    zoff_reduce_opts opts = {.plan = plan, .adds = t->route.adds};
    for (size_t b = 0; b < plan->chunk_count; b++) {
        size_t part, all;
        zoff_transfer_wire_most(t, plan, b, &part, &all);
        opts.bucket_most = zoff_base_bits_max(opts.bucket_most, all);
        opts.part_most = zoff_base_bits_max(opts.part_most, part);
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
    const zoff_reduce_opts opts = reduce_opts(t, plan);
    return zoff_base_bits_max(ZOFF_REDUCE_SLOTS * zoff_zero_reduce_slot_bytes(&opts), ZOFF_GATHER_SLOTS * gather_most(t, plan));
}

uint64_t zoff_transfer_ranks_device_bytes(const zoff_transfer *t, const zoff_plan *plan)
{
    const zoff_wire *wire = t->route.wire;
    return wire && wire->device_bytes ? wire->device_bytes(t, plan, zoff_transfer_ranks_bytes(t, plan)) : 0;
}

uint64_t zoff_transfer_ranks_bytes(const zoff_transfer *t, const zoff_plan *plan)
{
    return t->route.wire ? staging_bytes(t, plan) : 0;
}

static zoff_status allocate(zoff_transfer *t)
{
    zoff_ranks *r = &t->ranks;
    const zoff_plan *plan = t->plan;
    ZOFF_TRY(zoff_base_mem_alloc(ZOFF_PART_ROWS * plan->ranks, sizeof *r->part_bytes, "parts of the ranks", &r->part_bytes));
    ZOFF_TRY(zoff_base_mem_alloc(ZOFF_PART_ROWS, sizeof *r->part_rows, "parts of the ranks", &r->part_rows));
    ZOFF_TRY(zoff_base_mem_alloc(zoff_transfer_wire_most_pieces(plan), sizeof *r->moves, "a bucket's pieces", &r->moves));
    for (size_t row = 0; row < ZOFF_PART_ROWS; row++)
        r->part_rows[row] = SIZE_MAX;
    r->spread_bytes = gather_most(t, plan);
    const size_t bytes = staging_bytes(t, plan);
    return bytes ? zoff_base_map_alloc(bytes, "buffers for the exchange between ranks", ZOFF_MAP_INTERLEAVED, &r->staging)
                 : ZOFF_OK;
}

static zoff_status open_exchanges(zoff_transfer *t)
{
    zoff_ranks *r = &t->ranks;
    const zoff_wire *wire = t->route.wire;
    zoff_reduce_opts reduce = reduce_opts(t, t->plan);
    reduce.comm = t->comm;
    reduce.channel = t->channel;
    reduce.slots = ZOFF_REDUCE_SLOTS;
    reduce.memory = r->wire.slots;
    reduce.factor = t->values->grad_factor;
    reduce.part_bytes = part_bytes_of;
    reduce.pack = wire->pack;
    reduce.sum = wire->sum;
    reduce.ctx = t;
    ZOFF_TRY(zoff_zero_reduce_open(&reduce, &r->reduce));
    const zoff_gather_opts gather = {
        .comm = t->comm, .channel = t->channel, .stream = ZOFF_COMM_STEP, .slots = ZOFF_GATHER_SLOTS};
    return zoff_zero_gather_open(&gather, &r->gather);
}

zoff_status zoff_transfer_ranks_open(zoff_transfer *t)
{
    const zoff_wire *wire = t->route.wire;
    uint32_t **missing = &t->walk.arrivals.missing;
    zoff_transfer_wire_watch(t);
    if (!wire) /* zoff_transfer_walk_close() frees it */
        return zoff_base_mem_alloc(t->plan->chunk_count, sizeof **missing, "the slices of buckets", missing);
    ZOFF_TRY(allocate(t));
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
    void *blocks[] = {r->part_bytes, r->moves, r->wire.own, r->part_rows};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
        zoff_base_mem_free(blocks[i]);
    *r = (zoff_ranks){.reduce = NULL};
}

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
