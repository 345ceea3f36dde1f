/* SPDX-License-Identifier: Apache-2.0 */
/* device_norm.c: gradients that the device measures, in a stream of the engine. The gate waits only for the sums of squares, 8
 * bytes per block of 1024 elements, so it opens as soon as the backward pass is over. After it, downloads, updates and uploads
 * run in parallel, bucket after bucket.
 *
 * The kernels write these sums to memory of the host. A copy of them could wait behind downloads of gradients, because the
 * copies of one direction share an engine of the GPU.
 *
 * The host measures micro-batches that it sums itself, when all have arrived. With several ranks it also measures the sums of
 * buckets that it updates. */
#include "transfer.h"

#include "bits.h"
#include "try.h"

bool zoff_transfer_device_norm_has(const zoff_transfer *t, size_t bucket)
{
    return bucket < t->device.norm.count;
}

/* How many buckets the device measures, from the first one of the plan. Memory of the device that the engine lends is used
 * again once the gradient is downloaded, so the host measures it. */
static size_t measured_there(const zoff_transfer *t, const zoff_plan *plan)
{
    const bool not_all = t->route.sums || zoff_transfer_arena_device_bytes(t);
    return not_all ? zoff_transfer_device_tier_kept(t, plan) : plan->chunk_count;
}

uint64_t zoff_transfer_device_norm_bytes(const zoff_transfer *t, const zoff_plan *plan)
{
    const size_t buckets = measured_there(t, plan);
    uint64_t blocks = 0;
    for (size_t b = 0; b < buckets; b++)
        blocks += plan->chunks[b].blocks;
    return blocks * sizeof(double);
}

/* Take memory of the device, because the host memory could not be pinned. */
static zoff_status take_there(zoff_transfer *t, size_t bytes)
{
    void *there;
    const zoff_status status = t->accel->ops->alloc(t->accel, bytes, &there);
    if (status < 0)
        return zoff_base_status_prefix(status,
                                       "sums of squares of gradients, %s of device memory: ", zoff_base_words_bytes(bytes));
    t->device.norm.sums = t->device.norm.there = there;
    return ZOFF_OK;
}

zoff_status zoff_transfer_device_norm_open(zoff_transfer *t)
{
    zoff_device_norm *n = &t->device.norm;
    const zoff_accel_ops *ops = t->accel->ops;
    const size_t bytes = zoff_transfer_device_norm_bytes(t, t->plan);
    const size_t count = measured_there(t, t->plan);
    size_t blocks = 0;
    ZOFF_TRY(ops->streams.open(t->accel, &t->device.compute));
    ZOFF_TRY(ops->event_open(t->accel, &n->settled));
    ZOFF_TRY(zoff_base_mem_alloc(count, sizeof *n->at, "sums of squares on the device", &n->at));
    ZOFF_TRY(zoff_base_mem_alloc(count, sizeof *n->measured, "sums of squares on the device", &n->measured));
    n->count = count;
    for (size_t b = 0; b < count; b++) {
        n->at[b] = blocks;
        blocks += t->plan->chunks[b].blocks;
        ZOFF_TRY(ops->event_open(t->accel, &n->measured[b]));
    }
    if (bytes == 0) /* a rank may own nothing of these buckets */
        return ZOFF_OK;
    ZOFF_TRY(zoff_base_map_alloc(bytes, "sums of squares of a device", ZOFF_MAP_INTERLEAVED, &n->landing));
    ZOFF_TRY(zoff_transfer_streams_pin(t, &n->landing));
    n->pinned = true;
    n->sums = ops->pages.mapped(t->accel, n->landing.base);
    return n->sums ? ZOFF_OK : take_there(t, bytes);
}

/* Call when no work is in a stream. */
void zoff_transfer_device_norm_close(zoff_transfer *t)
{
    zoff_device_norm *n = &t->device.norm;
    const zoff_accel_ops *ops = t->accel->ops;
    for (size_t b = 0; b < n->count; b++) {
        if (n->measured[b])
            ops->event_close(t->accel, n->measured[b]);
    }
    if (n->settled)
        ops->event_close(t->accel, n->settled);
    if (n->there)
        ops->free(t->accel, n->there);
    if (n->pinned)
        zoff_transfer_streams_unpin(t, &n->landing);
    zoff_base_map_free(&n->landing);
    zoff_base_mem_free(n->at);
    zoff_base_mem_free(n->measured);
    *n = (zoff_device_norm){.count = 0};
}

/* With several ranks, each measures its own part, no matter which rank has the gradients. */
static zoff_plan_span part_of(const zoff_transfer *t, size_t bucket)
{
    return zoff_zero_plan_own(t->plan, bucket);
}

zoff_status zoff_transfer_device_norm_put(zoff_transfer *t, size_t bucket, void *stream)
{
    zoff_device_norm *n = &t->device.norm;
    const zoff_accel_ops *ops = t->accel->ops;
    const zoff_plan_span part = part_of(t, bucket);
    const size_t at = n->at[bucket];
    size_t used = 0, blocks = 0;
    for (size_t i = part.first_piece; i < part.first_piece + part.piece_count; i++) {
        const zoff_plan_piece *piece = &t->plan->pieces[i];
        if (!zoff_transfer_ranks_measure(t, piece))
            continue;
        zoff_norm_piece *sums = &t->scratch.norm_pieces[used++];
        *sums = (zoff_norm_piece){.count = piece->count, .block_sums = n->sums + at + blocks};
        sums->grad = zoff_transfer_pieces_gradient(t, piece, true, &sums->dtype);
        blocks += zoff_base_bits_ceil_div(sums->count, ZOFF_NORM_BLOCK);
    }
    if (used == 0)
        return ZOFF_OK;
    ZOFF_TRY(ops->kernels.square_sum(t->accel, stream, t->scratch.norm_pieces, used));
    if (!n->there)
        return ZOFF_OK;
    return ops->copy(t->accel, stream, (double *)n->landing.base + at, n->there + at, blocks * sizeof(double));
}

void zoff_transfer_device_norm_take(zoff_transfer *t, size_t bucket)
{
    const zoff_device_norm *n = &t->device.norm;
    const zoff_plan_span part = part_of(t, bucket);
    const double *sums = n->landing.base ? (const double *)n->landing.base + n->at[bucket] : NULL;
    for (size_t i = part.first_piece; i < part.first_piece + part.piece_count; i++) {
        const zoff_plan_piece *piece = &t->plan->pieces[i];
        if (!zoff_transfer_ranks_measure(t, piece))
            continue;
        zoff_transfer_measure_add(t, piece, sums);
        sums += zoff_base_bits_ceil_div(piece->count, ZOFF_NORM_BLOCK);
    }
    t->measure.buckets++;
}

/* Gradients that the device measures wait only until they are computed. While none is on its way down, nothing is waited for,
 * because the work before the event may be that of a frozen parameter. */
zoff_status zoff_transfer_device_norm_waits(zoff_transfer *t)
{
    const zoff_status down = zoff_transfer_download_poll(t);
    const bool all_there = t->device.norm.count == t->plan->chunk_count;
    return down == ZOFF_PENDING && all_there ? t->accel->ops->event_poll(t->accel, t->device.handed_over) : down;
}

/* Enqueue the measurement of a bucket. */
static zoff_status start(zoff_transfer *t, zoff_bucket_run *run)
{
    zoff_device_norm *n = &t->device.norm;
    t->device.computes = true;
    ZOFF_TRY(zoff_transfer_device_norm_put(t, run->chunk, t->device.compute));
    ZOFF_TRY(t->accel->ops->event_record(t->accel, n->measured[run->chunk], t->device.compute));
    run->measures = true;
    n->waits++;
    return ZOFF_OK;
}

zoff_status zoff_transfer_device_norm_measure(void *ctx, zoff_bucket_run *run)
{
    zoff_transfer *t = ctx;
    zoff_device_norm *n = &t->device.norm;
    if (!run->measures)
        ZOFF_TRY(start(t, run));
    ZOFF_TRY_DONE(t->accel->ops->event_poll(t->accel, n->measured[run->chunk]));
    n->waits--;
    run->measures = false;
    zoff_transfer_device_norm_take(t, run->chunk);
    return ZOFF_OK;
}
