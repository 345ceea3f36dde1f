/* device_norm.c: gradients measured where they are: by the device, in a stream of the engine's. The gate waits for nothing but
 * the sums of their squares, 8 bytes for each block of 1024, and so opens as soon as the backward pass is over: what comes
 * down, what is updated and what goes up then run side by side, bucket behind bucket.
 *
 * Micro-batches that are added up on the host are measured there, when all have come; of several ranks so are sums of which the
 * update is the host's. */
#include "engine_priv.h"

#include "bits.h"
#include "try.h"

/* Buckets that the device measures: all, or those whose sums of gradients are there. */
static size_t buckets_of(const zoff_engine *e, const zoff_plan *plan)
{
    if (!zoff_engine_device_is(e) || (zoff_engine_ranks_several(e) && !zoff_engine_device_direct_is(e)))
        return 0;
    return zoff_engine_pieces_accumulates(e) ? zoff_engine_residents_kept(e, plan) : plan->chunk_count;
}

bool zoff_engine_device_norm_has(const zoff_engine *e, size_t bucket)
{
    return bucket < e->device.norm.count;
}

uint64_t zoff_engine_device_norm_bytes(const zoff_engine *e, const zoff_plan *plan)
{
    const size_t buckets = buckets_of(e, plan);
    uint64_t blocks = 0;
    for (size_t b = 0; b < buckets; b++)
        blocks += plan->chunks[b].blocks;
    return blocks * sizeof(double);
}

zoff_status zoff_engine_device_norm_open(zoff_engine *e)
{
    zoff_device_norm *n = &e->device.norm;
    const zoff_accel_ops *ops = e->accel->ops;
    const size_t bytes = zoff_engine_device_norm_bytes(e, &e->plan);
    size_t blocks = 0;
    void *there;
    ZOFF_TRY(ops->stream_open(e->accel, &e->device.compute));
    ZOFF_TRY(ops->event_open(e->accel, &n->settled));
    if (bytes == 0)
        return ZOFF_OK;
    const size_t count = buckets_of(e, &e->plan);
    ZOFF_TRY(zoff_base_mem_alloc(count, sizeof *n->at, "sums of squares of a device", &n->at));
    ZOFF_TRY(zoff_base_mem_alloc(count, sizeof *n->measured, "sums of squares of a device", &n->measured));
    n->count = count;
    ZOFF_TRY(zoff_base_map_alloc(bytes, "sums of squares that come from the device", ZOFF_MAP_INTERLEAVED, &n->landing));
    ZOFF_TRY(zoff_engine_link_pin(e, &n->landing));
    n->pinned = true;
    const zoff_status status = ops->alloc(e->accel, bytes, &there);
    if (status < 0)
        return zoff_base_status_prefix(status,
                                       "sums of squares of gradients, %s of the device: ", zoff_base_words_bytes(bytes));
    n->there = there;
    for (size_t b = 0; b < count; b++) {
        n->at[b] = blocks;
        blocks += e->plan.chunks[b].blocks;
        ZOFF_TRY(ops->event_open(e->accel, &n->measured[b]));
    }
    return ZOFF_OK;
}

/* Nothing is in a stream any more. */
void zoff_engine_device_norm_close(zoff_engine *e)
{
    zoff_device_norm *n = &e->device.norm;
    const zoff_accel_ops *ops = e->accel->ops;
    for (size_t b = 0; b < n->count; b++) {
        if (n->measured[b])
            ops->event_close(e->accel, n->measured[b]);
    }
    if (n->settled)
        ops->event_close(e->accel, n->settled);
    if (n->there)
        ops->free(e->accel, n->there);
    if (n->pinned)
        zoff_engine_link_unpin(e, &n->landing);
    zoff_base_map_free(&n->landing);
    zoff_base_mem_free(n->at);
    zoff_base_mem_free(n->measured);
    *n = (zoff_device_norm){.count = 0};
}

/* Of several ranks each measures its part, whoever of them has the gradients. */
static zoff_plan_span part_of(const zoff_engine *e, size_t bucket)
{
    return zoff_zero_plan_own(&e->plan, bucket);
}

static bool counts(zoff_engine *e, const zoff_plan_piece *piece)
{
    return zoff_engine_ranks_several(e) ? !e->model.params[piece->param].frozen
                                        : *zoff_model_params_flag(&e->model, piece) != 0;
}

zoff_status zoff_engine_device_norm_put(zoff_engine *e, size_t bucket, void *stream)
{
    zoff_device_norm *n = &e->device.norm;
    const zoff_accel_ops *ops = e->accel->ops;
    const zoff_plan_span part = part_of(e, bucket);
    const size_t at = n->at[bucket];
    size_t used = 0, blocks = 0;
    for (size_t i = part.first_piece; i < part.first_piece + part.piece_count; i++) {
        const zoff_plan_piece *piece = &e->plan.pieces[i];
        if (!counts(e, piece))
            continue;
        zoff_norm_piece *sums = &e->norm_pieces[used++];
        *sums = (zoff_norm_piece){.count = piece->count, .block_sums = n->there + at + blocks};
        sums->grad = zoff_engine_pieces_kept_gradient(e, piece, &sums->dtype);
        blocks += zoff_base_bits_ceil_div(sums->count, ZOFF_NORM_BLOCK);
    }
    ZOFF_TRY(ops->square_sum(e->accel, stream, e->norm_pieces, used));
    return ops->copy(e->accel, stream, (double *)n->landing.base + at, n->there + at, blocks * sizeof(double));
}

void zoff_engine_device_norm_take(zoff_engine *e, size_t bucket)
{
    const zoff_device_norm *n = &e->device.norm;
    const zoff_plan_span part = part_of(e, bucket);
    const double *sums = (const double *)n->landing.base + n->at[bucket];
    for (size_t i = part.first_piece; i < part.first_piece + part.piece_count; i++) {
        const zoff_plan_piece *piece = &e->plan.pieces[i];
        if (!counts(e, piece))
            continue;
        zoff_engine_gate_add(e, piece, sums);
        sums += zoff_base_bits_ceil_div(piece->count, ZOFF_NORM_BLOCK);
    }
    e->measured++;
}

/* The sums of a bucket, on their way. */
static zoff_status start(zoff_bucket_run *run)
{
    zoff_engine *e = run->engine;
    zoff_device_norm *n = &e->device.norm;
    e->device.computes = true;
    ZOFF_TRY(zoff_engine_device_norm_put(e, run->chunk, e->device.compute));
    ZOFF_TRY(e->accel->ops->event_record(e->accel, n->measured[run->chunk], e->device.compute));
    run->measures = true;
    n->waits++;
    return ZOFF_OK;
}

zoff_status zoff_engine_device_norm_measure(zoff_bucket_run *run)
{
    zoff_engine *e = run->engine;
    zoff_device_norm *n = &e->device.norm;
    if (!run->measures)
        ZOFF_TRY(start(run));
    zoff_status status = e->accel->ops->event_poll(e->accel, n->measured[run->chunk]);
    if (status != ZOFF_OK)
        return status;
    n->waits--;
    run->measures = false;
    zoff_engine_device_norm_take(e, run->chunk);
    return ZOFF_OK;
}
