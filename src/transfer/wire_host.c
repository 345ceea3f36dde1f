/* SPDX-License-Identifier: Apache-2.0 */
/* wire_host.c: several ranks whose gradients are packed and summed by the CPU. The wire carries gradients in their own type or
 * in communication_data_type; the rank that owns a sum adds its terms in rank order. Updated weights go from the staging slot,
 * or the place, of their owner to those of all ranks. */
#include "transfer.h"

#include "clock.h"
#include "try.h"

#include <string.h>

zoff_status zoff_transfer_wire_host_open(zoff_transfer *t)
{
    t->ranks.wire.slots = t->ranks.staging.base;
    t->ranks.wire.sums = t->accumulator.map.base;
    return ZOFF_OK;
}

zoff_status zoff_transfer_wire_host_zero(zoff_transfer *t, char *to, size_t bytes)
{
    memset(to, 0, bytes);
    return ZOFF_OK;
}

const void *zoff_transfer_wire_host_look(zoff_transfer *t, const void *grad, size_t count, zoff_dtype dtype, float *copy)
{
    return grad;
}

/* ---- gradients ---- */

zoff_status zoff_transfer_wire_host_pack(void *ctx, size_t bucket, unsigned slot, char *out)
{
    zoff_transfer *t = ctx;
    size_t moves;
    ZOFF_TRY(zoff_transfer_reduce_scatter_list_parts(t, bucket, out, &moves));
    zoff_adam_cast_run(t->threads.now, t->ranks.moves, moves);
    zoff_transfer_reduce_scatter_forget(t, bucket, false);
    return ZOFF_OK;
}

/* Add the received parts to the accumulator, on the host. */
static void add_up(zoff_transfer *t, size_t bucket, const char *parts, const float *weights)
{
    const double from = zoff_base_clock_seconds();
    const size_t used = zoff_transfer_reduce_scatter_list_sums(t, bucket, parts, weights);
    for (size_t i = 0; i < used; i++) {
        const zoff_accumulate_piece *a = &t->scratch.accumulate_pieces[i];
        t->batch.early.read_bytes += a->count * (a->sources * zoff_adam_dtype_bytes(a->dtype) + (a->first ? 0 : sizeof(float)));
        t->batch.early.write_bytes += a->count * sizeof(float);
    }
    t->route.rule->add(t, t->scratch.accumulate_pieces, used, NULL, NULL);
    t->batch.early.measure_seconds += zoff_base_clock_seconds() - from;
}

zoff_status zoff_transfer_wire_host_sum(void *ctx, size_t bucket, unsigned slot, const char *parts, const float *weights)
{
    zoff_transfer *t = ctx;
    zoff_transfer_measure_add_copies(t, bucket);
    add_up(t, bucket, parts, weights);
    zoff_transfer_reduce_scatter_summed(t, bucket, parts, weights);
    return ZOFF_OK;
}

/* ---- weights ---- */

static char *whole_weights(const zoff_transfer *t, const zoff_plan_piece *piece)
{
    return t->model->params[piece->param].engine_owned ? zoff_lending_param_cache_persistent(t->lending, piece)
                                                       : t->route.link->weights(t, piece, NULL);
}

/* List the copies between the weights and one rank's part on the wire. Appends to `used` entries; returns their new number. */
static size_t move_part(zoff_transfer *t, zoff_plan_cursor part, char *wire, bool from_wire, size_t used)
{
    zoff_plan_piece piece;
    size_t at = 0;
    while (zoff_zero_plan_next(&part, &piece)) {
        const zoff_dtype dtype = t->model->params[piece.param].dtype;
        if (!zoff_transfer_wire_takes(t, &piece, t->ranks.spreads_all))
            continue;
        char *whole = whole_weights(t, &piece), *place = wire + zoff_transfer_all_gather_place(t, &piece, &at);
        t->ranks.moves[used++] = (zoff_cast_piece){.count = piece.count,
                                                   .dst = from_wire ? whole : place,
                                                   .src = from_wire ? place : whole,
                                                   .dst_dtype = dtype,
                                                   .src_dtype = dtype};
    }
    return used;
}

zoff_status zoff_transfer_wire_host_gather_begin(zoff_transfer *t, size_t bucket, unsigned slot, char **out)
{
    const zoff_comm_grid *grid = &t->ranks.levels.weights;
    char *parts = t->ranks.wire.slots + slot * t->ranks.spread_bytes, *own = parts;
    for (unsigned position = 0; position < zoff_comm_grid_position(grid, t->plan->rank); position++)
        own += zoff_transfer_all_gather_part_bytes(t, bucket, zoff_comm_grid_rank(grid, position));
    const size_t used = move_part(t, zoff_zero_plan_part(t->plan, bucket, t->plan->rank), own, false, 0);
    zoff_adam_cast_run(t->threads.now, t->ranks.moves, used);
    *out = parts;
    return ZOFF_OK;
}

zoff_status zoff_transfer_wire_host_gather_end(zoff_transfer *t, size_t bucket, unsigned slot, const char *parts)
{
    t->walk.runs[bucket].gathered = true;
    if (!parts) { /* no rank has anything to send */
        zoff_transfer_staging_release(t, bucket);
        return ZOFF_OK;
    }
    char *wire = (char *)(uintptr_t)parts;
    size_t used = 0;
    for (unsigned position = 0; position < t->plan->ranks; position++) {
        const unsigned rank = zoff_comm_grid_rank(&t->ranks.levels.weights, position);
        if (rank != t->plan->rank)
            used = move_part(t, zoff_zero_plan_part(t->plan, bucket, rank), wire, true, used);
        wire += zoff_transfer_all_gather_part_bytes(t, bucket, rank);
    }
    zoff_adam_cast_run(t->threads.now, t->ranks.moves, used);
    (void)zoff_transfer_device_upload(t, bucket, false); /* the end of the step uploads it again, and reports the error */
    t->batch.updated++;                                  /* count the bucket, even if this rank owns nothing of it */
    return ZOFF_OK;
}

const zoff_wire zoff_transfer_wire_host = {.name = "host",
                                           .open = zoff_transfer_wire_host_open,
                                           .zero = zoff_transfer_wire_host_zero,
                                           .look = zoff_transfer_wire_host_look,
                                           .pack = zoff_transfer_wire_host_pack,
                                           .sum = zoff_transfer_wire_host_sum,
                                           .gather_begin = zoff_transfer_wire_host_gather_begin,
                                           .gather_end = zoff_transfer_wire_host_gather_end};
