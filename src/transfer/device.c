/* SPDX-License-Identifier: Apache-2.0 */
/* device.c: weights and gradients in device memory. Each gradient slice is downloaded to engine memory (arena.c) when it is
 * handed over; from then on it is treated as any other. The weights of a bucket are updated in a staging slot of host memory,
 * and uploaded from there; the bucket has the slot only for that time.
 *
 *      trainer's stream   ... backward of 3 | of 2 | of 1 ...
 *                                       \ event \      \
 *      down                               copy 3 | copy 2 | copy 1
 *      CPU                                          measure, ..., update bucket 0 | update bucket 1 | ...
 *      up                                                                         copy 0 | copy 1 | ...
 *
 * The streams down and up belong to the engine. In the trainer's stream the engine only records an event. */
#include "transfer.h"

#include "bits.h"
#include "clock.h"
#include "try.h"

/* ---- memory ---- */

/* Bytes of gradients that stay on the device, because the states of their buckets do. */
static uint64_t gradients_that_stay(const zoff_transfer *t, const zoff_plan *plan)
{
    const size_t buckets = zoff_transfer_device_tier_kept(t, plan);
    const zoff_plan_chunk *end = buckets ? &plan->chunks[buckets - 1] : NULL;
    const zoff_plan_piece *last = end && end->piece_count ? &plan->pieces[end->first_piece + end->piece_count - 1] : NULL;
    const bool is_cut = last && last->first + last->count < t->model->params[last->param].count;
    uint64_t bytes = 0;
    for (size_t b = 0; b < buckets; b++) {
        for (size_t i = 0; i < plan->chunks[b].piece_count; i++) {
            const zoff_plan_piece *piece = &plan->pieces[plan->chunks[b].first_piece + i];
            const zoff_model_param *p = &t->model->params[piece->param];
            /* A slice that the boundary cuts is downloaded as a whole. */
            const bool is_it = is_cut && piece->param == last->param && piece->slice == last->slice;
            bytes += p->frozen || is_it ? 0 : piece->count * zoff_adam_dtype_bytes(p->grad_dtype);
        }
    }
    return bytes;
}

/* Bytes of DRAM for downloaded gradients. Gradients that are sent early are not counted, because they need memory only for a
 * short time, and how much depends on the trainer. */
static uint64_t gradients_here(const zoff_transfer *t, const zoff_plan *plan)
{
    uint64_t bytes = 0;
    if (!t->route.link->downloads || zoff_transfer_ranks_leave_early(t))
        return 0;
    for (size_t i = 0; i < t->model->param_count; i++) {
        const zoff_model_param *p = &t->model->params[i];
        bytes += p->frozen ? 0 : (uint64_t)p->slices * p->count * zoff_adam_dtype_bytes(p->grad_dtype);
    }
    return bytes - zoff_base_bits_min(bytes, gradients_that_stay(t, plan));
}

void zoff_transfer_device_plan(const zoff_transfer *t, const zoff_plan *plan, zoff_plan_info *info)
{
    uint64_t tier_bytes, tier_host_bytes;
    zoff_transfer_device_tier_plan(t, plan, &tier_bytes, &tier_host_bytes);
    info->device_bytes += zoff_model_ties_bytes(t->model) + tier_bytes + zoff_transfer_arena_device_bytes(t);
    info->device_host_bytes += gradients_here(t, plan) +
                               (uint64_t)ZOFF_STAGING_SLOTS * zoff_transfer_staging_slot_bytes(t, plan) + tier_host_bytes +
                               zoff_transfer_device_norm_bytes(t, plan);
}

static zoff_status open_streams(zoff_transfer *t)
{
    const zoff_accel_ops *ops = t->accel->ops;
    ZOFF_TRY(ops->streams.open(t->accel, &t->device.down));
    ZOFF_TRY(ops->streams.open(t->accel, &t->device.up));
    ZOFF_TRY(ops->event_open(t->accel, &t->device.handed_over));
    for (size_t i = 0; i < t->device.staging.count; i++)
        ZOFF_TRY(ops->event_open(t->accel, &t->device.staging.slots[i].copied));
    return ops->event_open(t->accel, &t->device.synced);
}

static zoff_status pin(zoff_transfer *t, const zoff_map *map, bool *out_pinned)
{
    if (map->base)
        ZOFF_TRY(zoff_transfer_streams_pin(t, map));
    *out_pinned = map->base != NULL;
    return ZOFF_OK;
}

static void close_event(zoff_transfer *t, void *event)
{
    if (event)
        t->accel->ops->event_close(t->accel, event);
}

zoff_status zoff_transfer_device_open(zoff_transfer *t)
{
    zoff_device *d = &t->device;
    ZOFF_TRY(zoff_base_mem_alloc(t->model->slice_count, sizeof *d->downloads.queue, "gradient downloads", &d->downloads.queue));
    ZOFF_TRY(
        zoff_base_mem_alloc(t->model->slice_count, sizeof *d->downloads.events, "gradient downloads", &d->downloads.events));
    d->first_bucket = SIZE_MAX;
    d->turns = d->descends = !t->route.wire;
    ZOFF_TRY(zoff_transfer_staging_open(t, ZOFF_STAGING_SLOTS));
    ZOFF_TRY(pin(t, &d->staging.memory, &d->staging.pinned));
    ZOFF_TRY(pin(t, &t->ranks.staging, &d->wire_pinned)); /* the initial weights are sent to other ranks from it */
    ZOFF_TRY(open_streams(t));
    ZOFF_TRY(zoff_transfer_arena_open(t, &d->lent, true, zoff_transfer_arena_device_bytes(t)));
    ZOFF_TRY(zoff_transfer_device_norm_open(t));
    return zoff_transfer_device_tier_open(t);
}

/* Close the streams first, because work in them uses the rest. */
void zoff_transfer_device_close(zoff_transfer *t)
{
    zoff_device *d = &t->device;
    if (!t->accel)
        return;
    const zoff_accel_ops *ops = t->accel->ops;
    void *streams[] = {d->down, d->up, d->compute};
    for (size_t i = 0; i < sizeof streams / sizeof streams[0]; i++) {
        if (streams[i])
            ops->streams.close(t->accel, streams[i]);
    }
    zoff_transfer_arena_close(t, &d->lent);
    zoff_transfer_device_norm_close(t);
    zoff_transfer_device_tier_close(t);
    close_event(t, d->handed_over);
    close_event(t, d->synced);
    for (size_t i = 0; i < d->staging.count; i++)
        close_event(t, d->staging.slots[i].copied);
    for (size_t i = 0; d->downloads.events && i < t->model->slice_count; i++)
        close_event(t, d->downloads.events[i]);
    if (d->staging.pinned)
        zoff_transfer_streams_unpin(t, &d->staging.memory);
    if (d->wire_pinned)
        zoff_transfer_streams_unpin(t, &t->ranks.staging);
    zoff_transfer_staging_close(t);
    zoff_base_mem_free(d->downloads.queue);
    zoff_base_mem_free(d->downloads.events);
    *d = (zoff_device){.down = NULL};
}

/* ---- downloads of gradients ---- */

static zoff_status landing(zoff_transfer *t, size_t number, void **out)
{
    void **event = &t->device.downloads.events[number];
    if (!*event)
        ZOFF_TRY(t->accel->ops->event_open(t->accel, event));
    *out = *event;
    return ZOFF_OK;
}

/* The bucket with the last element of a slice decides whether it is downloaded. */
static bool comes_down(const zoff_transfer *t, size_t number)
{
    return !zoff_model_slices_has(t->model, number) ||
           zoff_transfer_place_of(t, t->model->slice_buckets[number].last) != ZOFF_USED_BY_DEVICE;
}

/* Remember the order in which gradients arrive; the next walk follows it. */
static void note_order(zoff_transfer *t, size_t number)
{
    zoff_device *d = &t->device;
    if (!zoff_model_slices_has(t->model, number))
        return;
    d->last_bucket = t->model->slice_buckets[number].first;
    d->first_bucket = d->first_bucket == SIZE_MAX ? d->last_bucket : d->first_bucket;
}

zoff_status zoff_transfer_device_download(zoff_transfer *t, zoff_param p, size_t slice, void *native_stream)
{
    const zoff_accel_ops *ops = t->accel->ops;
    zoff_device *d = &t->device;
    const zoff_model_param *param = &t->model->params[p];
    const size_t number = param->first_flag + slice, bytes = param->count * zoff_adam_dtype_bytes(param->grad_dtype);
    const bool moves = !bytes || comes_down(t, number);
    const char *from = param->grad ? param->grad + slice * param->grad_stride : zoff_transfer_arena_at(t->route.lent, number);
    char *to = NULL;
    void *event = NULL;
    if (moves) {
        ZOFF_TRY(zoff_transfer_intake_lend(t, &t->grads, number, bytes, &to));
        ZOFF_TRY(landing(t, number, &event));
    }
    ZOFF_TRY(zoff_transfer_streams_follow(t, native_stream));
    if (d->norm.count)
        ZOFF_TRY(zoff_transfer_streams_compute_follow(t));
    note_order(t, number);
    if (!moves)
        return ZOFF_OK;
    ZOFF_TRY(ops->event_await(t->accel, d->down, d->handed_over));
    zoff_status status = ops->copy(t->accel, d->down, to, from, bytes);
    if (status == ZOFF_OK)
        status = ops->event_record(t->accel, event, d->down);
    if (status < 0) {
        /* The gradient belongs to the program again, so no copy may read it any more. */
        ZOFF_KEEP_ERROR((void)zoff_transfer_streams_sync(t, d->down));
        return status;
    }
    d->downloads.queue[d->downloads.end++ % t->model->slice_count] = (zoff_download){
        .number = number,
        .param = p,
        .slice = slice,
        .traced = {.kind = "download", .item = number, .item_kind = "slice", .bytes = bytes, .from = zoff_trace_now()}};
    d->read_bytes += bytes;
    return ZOFF_OK;
}

zoff_status zoff_transfer_device_stay(zoff_transfer *t, zoff_param p, size_t slice, void *native_stream)
{
    ZOFF_TRY(zoff_transfer_streams_follow(t, native_stream));
    ZOFF_TRY(zoff_transfer_streams_compute_follow(t));
    note_order(t, t->model->params[p].first_flag + slice);
    return ZOFF_OK;
}

/* With a single rank, a bucket needs only its own gradients. */
static bool is_down(const zoff_transfer *t, const zoff_bucket_run *run)
{
    const zoff_plan_chunk *chunk = &t->plan->chunks[run->chunk];
    for (size_t i = 0; i < chunk->piece_count; i++) {
        const uint8_t flag = *zoff_model_params_flag(t->model, &t->plan->pieces[chunk->first_piece + i]);
        if ((flag & ZOFF_SLICE_READY) && !(flag & ZOFF_SLICE_DOWN))
            return false;
    }
    return true;
}

zoff_status zoff_transfer_device_unload(void *ctx, zoff_bucket_run *run)
{
    ZOFF_TRY(zoff_transfer_download_ask(ctx));
    return is_down(ctx, run) ? ZOFF_OK : ZOFF_PENDING;
}

zoff_status zoff_transfer_device_unload_none(void *ctx, zoff_bucket_run *run)
{
    return zoff_transfer_download_ask(ctx);
}

zoff_status zoff_transfer_device_unload_all(void *ctx, zoff_bucket_run *run)
{
    zoff_transfer *t = ctx;
    const zoff_status status = zoff_transfer_download_poll(t);
    if (status == ZOFF_OK && !t->batch.closed) {
        zoff_transfer_reduce_scatter_close(t);
        t->batch.closed = true;
    }
    return status;
}

/* ---- staging slots ---- */

/* This rank's pieces of a bucket, or the runs of all ranks. */
static const zoff_plan_piece *pieces_of(const zoff_transfer *t, size_t bucket, bool own, size_t *out_count)
{
    const zoff_plan_chunk *chunk = &t->plan->chunks[bucket];
    *out_count = own ? chunk->piece_count : chunk->run_count;
    return own ? &t->plan->pieces[chunk->first_piece] : &t->plan->runs[chunk->first_run];
}

/* Enqueue copies of the weights of a bucket, up or down. */
static zoff_status put_copies(zoff_transfer *t, size_t bucket, bool own, bool up)
{
    size_t count;
    const zoff_plan_piece *pieces = pieces_of(t, bucket, own, &count);
    zoff_staging_slot *slot = t->walk.runs[bucket].staging;
    void *stream = up ? t->device.up : t->device.down;
    slot->traced = (zoff_trace_transfer){
        .kind = up ? "upload" : "download", .item = bucket, .item_kind = "bucket", .from = zoff_trace_now()};
    for (size_t i = 0; i < count; i++) {
        const zoff_plan_piece *piece = &pieces[i];
        const size_t bytes = zoff_transfer_staging_bytes_of(t, piece);
        if (!bytes || (up && !own && !zoff_transfer_wire_takes_now(t, piece)))
            continue;
        char *host = slot->base + zoff_transfer_staging_offset(t, piece),
             *device = zoff_model_params_value(t->model, piece, NULL);
        ZOFF_TRY(t->accel->ops->copy(t->accel, stream, up ? device : host, up ? host : device, bytes));
        slot->stream = stream;
        slot->traced.bytes += bytes;
        *(up ? &t->device.write_bytes : &t->device.read_bytes) += bytes;
    }
    return zoff_transfer_staging_mark(t, slot);
}

typedef struct lend_wait {
    zoff_transfer *transfer;
    size_t bucket;
} lend_wait;

static zoff_status try_to_lend(void *ctx)
{
    const lend_wait *w = ctx;
    return zoff_transfer_staging_lend(w->transfer, w->bucket);
}

zoff_status zoff_transfer_device_lend(zoff_transfer *t, size_t bucket, bool load)
{
    if (t->walk.runs[bucket].staging)
        return ZOFF_OK;
    zoff_status status = zoff_transfer_streams_wait(t, try_to_lend, &(lend_wait){t, bucket});
    ZOFF_TRY(status);
    if (load && (status = put_copies(t, bucket, true, false)) == ZOFF_OK)
        status = zoff_transfer_staging_wait(t, t->walk.runs[bucket].staging);
    if (status < 0)
        zoff_transfer_staging_release(t, bucket);
    return status;
}

/* `up` waits for the stream of every gradient that was handed over, so no work reads the old weights any more. */
zoff_status zoff_transfer_device_upload(zoff_transfer *t, size_t bucket, bool own)
{
    if (!t->walk.runs[bucket].staging || t->walk.runs[bucket].ahead.states) /* weights updated ahead do not count yet */
        return ZOFF_OK;
    ZOFF_TRY(put_copies(t, bucket, own, true));
    zoff_transfer_staging_release(t, bucket);
    return ZOFF_OK;
}

/* ---- rows ---- */

/* Whether this step updates any weights of the bucket on this rank's device. */
static bool wants_slot(const zoff_transfer *t, const zoff_bucket_run *run)
{
    size_t count;
    const zoff_plan_piece *pieces = pieces_of(t, run->chunk, false, &count);
    for (size_t i = 0; i < count; i++) {
        if (zoff_transfer_staging_bytes_of(t, &pieces[i]) && zoff_transfer_wire_takes_now(t, &pieces[i]))
            return true;
    }
    return false;
}

/* Retry buckets whose weights have arrived from all ranks, and whose upload failed. */
static zoff_status upload_again(zoff_transfer *t)
{
    for (size_t b = 0; b < t->plan->chunk_count; b++) {
        if (t->walk.runs[b].staging && t->walk.runs[b].gathered)
            ZOFF_TRY(zoff_transfer_device_upload(t, b, false));
    }
    return ZOFF_OK;
}

/* A bucket that has its slot is updated at once. */
zoff_status zoff_transfer_device_stage(void *ctx, zoff_bucket_run *run)
{
    zoff_transfer *t = ctx;
    if (run->staging || !wants_slot(t, run))
        return ZOFF_OK;
    const zoff_status status = zoff_transfer_staging_lend(t, run->chunk);
    if (status == ZOFF_PENDING)
        ZOFF_TRY(upload_again(t));
    return status;
}

/* Among several ranks a bucket with a slot may wait for another one. Slots are given in walk order, because otherwise such
 * buckets could hold all slots while that one has none. */
zoff_status zoff_transfer_device_stage_in_turn(void *ctx, zoff_bucket_run *run)
{
    zoff_transfer *t = ctx;
    if (zoff_transfer_walk_position(t, run->chunk) != t->device.staging.next)
        return ZOFF_PENDING;
    const zoff_status status = zoff_transfer_device_stage(ctx, run);
    t->device.staging.next += status == ZOFF_OK;
    return status;
}

zoff_status zoff_transfer_device_upload_bucket(void *ctx, zoff_bucket_run *run)
{
    return zoff_transfer_device_upload(ctx, run->chunk, false);
}

static zoff_status zero_gradients(zoff_transfer *t)
{
    for (size_t i = 0; i < t->model->param_count; i++) {
        const zoff_model_param *p = &t->model->params[i];
        for (size_t slice = 0; slice < p->slices; slice++) {
            size_t bytes;
            char *grad = zoff_model_params_grad_to_clear(t->model, (zoff_param)i, slice, &bytes);
            if (grad)
                ZOFF_TRY(t->accel->ops->zero(t->accel, t->device.down, grad, bytes));
        }
    }
    return zoff_transfer_streams_sync(t, t->device.down);
}

zoff_status zoff_transfer_device_finish(zoff_transfer *t, bool zeroes_gradients)
{
    /* Downloads may be in flight after a skipped step, and kernels also read gradients: wait for both before clearing them. */
    if (t->device.downloads.first != t->device.downloads.end)
        ZOFF_TRY(zoff_transfer_download_finish(t));
    ZOFF_TRY(zoff_transfer_streams_compute_settle(t));
    if (zeroes_gradients)
        ZOFF_TRY(zero_gradients(t));
    return zoff_transfer_device_settle(t);
}

/* The waiting stream remembers where the event was, so one event serves both streams. */
static zoff_status follow(zoff_transfer *t, void *stream, void *native_stream)
{
    if (!native_stream)
        return zoff_transfer_streams_sync(t, stream);
    ZOFF_TRY(t->accel->ops->event_record(t->accel, t->device.synced, stream));
    return t->accel->ops->event_await(t->accel, native_stream, t->device.synced);
}

zoff_status zoff_transfer_device_let_read(zoff_transfer *t, zoff_slice_buckets buckets, void *native_stream)
{
    for (size_t b = buckets.first; b <= buckets.last; b++)
        ZOFF_TRY(zoff_transfer_device_upload(t, b, false));
    ZOFF_TRY(follow(t, t->device.up, native_stream));
    return t->device.computes ? follow(t, t->device.compute, native_stream) : ZOFF_OK;
}

zoff_status zoff_transfer_device_reuse(zoff_transfer *t, char *grad, size_t bytes, void *native_stream)
{
    ZOFF_TRY(zoff_transfer_streams_compute_settle(t)); /* kernels read gradients, too */
    if (bytes)
        ZOFF_TRY(t->accel->ops->zero(t->accel, t->device.down, grad, bytes));
    return follow(t, t->device.down, native_stream);
}

zoff_status zoff_transfer_device_settle(zoff_transfer *t)
{
    /* Retry uploads that failed in their turn. */
    for (size_t b = 0; b < t->plan->chunk_count; b++)
        ZOFF_TRY(zoff_transfer_device_upload(t, b, false));
    return zoff_transfer_staging_wait_all(t);
}
