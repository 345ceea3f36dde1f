/* SPDX-License-Identifier: Apache-2.0 */
/* wire.c: which elements go over the wire between ranks, in which type, and where in a rank's part; and waiting for other
 * ranks. */
#include "transfer.h"

#include "bits.h"

size_t zoff_transfer_wire_place(size_t *at, size_t count, size_t element_bytes)
{
    const size_t start = zoff_base_bits_align(*at, element_bytes);
    *at = start + count * element_bytes;
    return start;
}

void zoff_transfer_wire_measure(zoff_transfer *t)
{
    t->ranks.widest_weight = t->ranks.widest_gradient = 0;
    for (size_t i = 0; i < t->model->param_count; i++) {
        const zoff_model_param *p = &t->model->params[i];
        const size_t gradient = p->frozen || p->reduced ? 0 : zoff_adam_dtype_bytes(zoff_transfer_wire_dtype(t, p));
        t->ranks.widest_weight = zoff_base_bits_max(t->ranks.widest_weight, zoff_adam_dtype_bytes(p->dtype));
        t->ranks.widest_gradient = zoff_base_bits_max(t->ranks.widest_gradient, gradient);
    }
}

/* The next part may have wider elements, and a device cannot read those unaligned. A communicator that sums is fastest if parts
 * start at multiples of 16 bytes. */
static size_t part_align(const zoff_transfer *t)
{
    return t->route.adds ? 16 : zoff_base_bits_max(t->ranks.widest_gradient, 1);
}

size_t zoff_transfer_wire_part(const zoff_transfer *t, const zoff_plan *plan, size_t bucket, unsigned rank)
{
    zoff_plan_cursor part = zoff_zero_plan_part(plan, bucket, rank);
    zoff_plan_piece piece;
    size_t at = 0;
    while (zoff_zero_plan_next(&part, &piece)) {
        const zoff_model_param *p = &t->model->params[piece.param];
        if (p->frozen || p->reduced)
            continue;
        (void)zoff_transfer_wire_place(&at, piece.count, zoff_adam_dtype_bytes(zoff_transfer_wire_dtype(t, p)));
    }
    return zoff_base_bits_align(at, part_align(t));
}

static size_t bucket_most(const zoff_transfer *t, const zoff_plan *plan, size_t bucket)
{
    const zoff_plan_chunk *c = &plan->chunks[bucket];
    size_t bytes = 0, gaps = 0;
    for (size_t i = c->first_run; i < c->first_run + c->run_count; i++) {
        const zoff_model_param *p = &t->model->params[plan->runs[i].param];
        if (p->frozen || p->reduced)
            continue;
        const size_t element = zoff_adam_dtype_bytes(zoff_transfer_wire_dtype(t, p));
        bytes += plan->runs[i].count * element;
        gaps += element < t->ranks.widest_gradient; /* the next run may need a wider alignment */
    }
    return bytes + (gaps ? gaps + plan->ranks : 0) * t->ranks.widest_gradient;
}

/* A communicator that sums needs parts of equal length, so all elements are fp32, and the ranks' numbers of blocks differ by at
 * most one. */
void zoff_transfer_wire_most(const zoff_transfer *t, const zoff_plan *plan, size_t bucket, size_t *out_part, size_t *out_all)
{
    const zoff_plan_chunk *c = &plan->chunks[bucket];
    size_t blocks = 0;
    for (size_t i = c->first_run; i < c->first_run + c->run_count; i++)
        blocks += zoff_base_bits_ceil_div(plan->runs[i].count, plan->unit);
    const size_t longest =
        zoff_base_bits_align(zoff_base_bits_ceil_div(blocks, plan->ranks) * plan->unit * sizeof(float), part_align(t));
    *out_part = t->route.adds ? longest : zoff_transfer_wire_part(t, plan, bucket, plan->rank);
    *out_all = t->route.adds ? plan->ranks * longest : bucket_most(t, plan, bucket);
}

/* Part boundaries cut the runs of a bucket. */
size_t zoff_transfer_wire_most_pieces(const zoff_plan *plan)
{
    return plan->most.runs + plan->ranks;
}

static void lay_parts(const zoff_transfer *t, size_t bucket, size_t *bytes)
{
    size_t most = 0;
    for (unsigned rank = 0; rank < t->plan->ranks; rank++)
        bytes[rank] = zoff_transfer_wire_part(t, t->plan, bucket, rank);
    for (unsigned rank = 0; t->route.adds && rank < t->plan->ranks; rank++)
        most = zoff_base_bits_max(most, bytes[rank]);
    for (unsigned rank = 0; t->route.adds && rank < t->plan->ranks; rank++)
        bytes[rank] = most;
}

const size_t *zoff_transfer_wire_parts(const zoff_transfer *t, size_t bucket)
{
    const zoff_ranks *r = &t->ranks;
    size_t *bytes = r->part_bytes + bucket % ZOFF_PART_ROWS * t->plan->ranks;
    size_t *whose = &r->part_rows[bucket % ZOFF_PART_ROWS];
    if (*whose != bucket)
        lay_parts(t, bucket, bytes);
    *whose = bucket;
    return bytes;
}

/* Outside of a step, `all` selects all weights. */
bool zoff_transfer_wire_takes(const zoff_transfer *t, const zoff_plan_piece *piece, bool all)
{
    const zoff_model_param *p = &t->model->params[piece->param];
    const uint8_t flag = t->model->flags[p->first_flag + piece->slice];
    const bool is_whole = !p->engine_owned || zoff_lending_param_cache_is_persistent(t->lending, piece->param, piece->slice);
    return is_whole && (all || (flag && !p->frozen));
}

bool zoff_transfer_wire_takes_now(const zoff_transfer *t, const zoff_plan_piece *piece)
{
    return zoff_transfer_wire_takes(t, piece, t->ranks.spreads_all);
}

/* ---- waiting for other ranks ---- */

/* Move bytes between ranks. Errors stay in the operations, whose next poll returns them. */
static zoff_status pump_wire(void *ctx)
{
    const zoff_transfer *t = ctx;
    if (t->ranks.reduce)
        zoff_zero_reduce_pump(t->ranks.reduce);
    if (t->ranks.gather)
        zoff_zero_gather_pump(t->ranks.gather);
    return ZOFF_OK;
}

static bool is_wire_busy(void *ctx)
{
    const zoff_transfer *t = ctx;
    return t->route.wire || t->measure.votes; /* a single rank waits only for its own vote */
}

/* No deadline here, because the communicator has a timeout for each operation. */
void zoff_transfer_wire_watch(zoff_transfer *t)
{
    t->pollers.ranks = (zoff_poller){
        .pump = pump_wire, .is_busy = is_wire_busy, .ctx = t, .timeout_seconds = -1, .waited = &t->info->seconds.comm_wait};
    zoff_base_progress_add(t->progress, &t->pollers.ranks);
}

void zoff_transfer_wire_give_up(zoff_transfer *t)
{
    if (t->route.wire->forget)
        t->route.wire->forget(t);
    zoff_zero_reduce_give_up(t->ranks.reduce);
}

zoff_status zoff_transfer_wire_wait_until(zoff_transfer *t, zoff_status (*until)(void *ctx), void *ctx)
{
    return zoff_base_progress_wait(t->progress, &t->pollers.ranks, until, ctx);
}

void zoff_transfer_wire_unwatch(zoff_transfer *t)
{
    zoff_base_progress_remove(t->progress, &t->pollers.ranks);
}
