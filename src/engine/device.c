/* device.c: weights and gradients in memory that the CPU does not reach. Gradients come down as they are handed over, slice by
 * slice, to memory of the engine's (grads.c); from there on they are like any others. Weights of a bucket are made new in a
 * staging slot, a piece of host memory that it has for that long, and go up from it.
 *
 *      trainer's stream   ... backward of 3 | of 2 | of 1 ...
 *                                       \ event \      \
 *      down                               copy 3 | copy 2 | copy 1
 *      CPU                                          measure, ..., update bucket 0 | update bucket 1 | ...
 *      up                                                                         copy 0 | copy 1 | ...
 *
 * Both streams are the engine's own: nothing is ever put into the trainer's but an event. */
#include "engine_priv.h"

#include "bits.h"
#include "clock.h"
#include "try.h"

#include <sched.h>
#include <stdio.h>
#include <time.h>

/* ---- memory ---- */

static bool is_sharded(const zoff_engine *e)
{
    return zoff_engine_ranks_several(e) && !e->plan.replicated;
}

/* Weights that go through staging slots: all that are trained. */
static size_t bytes_of(const zoff_engine *e, const zoff_plan_piece *piece)
{
    const zoff_model_param *p = &e->model.params[piece->param];
    return p->frozen ? 0 : piece->count * zoff_adam_dtype_bytes(p->dtype);
}

/* Bytes of the largest bucket, of all ranks; `offsets`, where it is not NULL, is where each run is in its staging slot. */
static size_t lay_out(const zoff_engine *e, const zoff_plan *plan, size_t *offsets)
{
    size_t most = 0;
    for (size_t b = 0; b < plan->chunk_count; b++) {
        const zoff_plan_chunk *c = &plan->chunks[b];
        size_t at = 0;
        for (size_t i = c->first_run; i < c->first_run + c->run_count; i++) {
            if (offsets)
                offsets[i] = at;
            at += zoff_base_bits_align(bytes_of(e, &plan->runs[i]), 64);
        }
        most = zoff_base_bits_max(most, at);
    }
    return most;
}

/* Of buckets whose states stay on the device, gradients do, too. */
static uint64_t gradients_that_stay(const zoff_engine *e, const zoff_plan *plan)
{
    const size_t buckets = zoff_engine_residents_kept(e, plan);
    const zoff_plan_chunk *end = buckets ? &plan->chunks[buckets - 1] : NULL;
    const zoff_plan_piece *last = end && end->piece_count ? &plan->pieces[end->first_piece + end->piece_count - 1] : NULL;
    const bool is_cut = last && last->first + last->count < e->model.params[last->param].count;
    uint64_t bytes = 0;
    for (size_t b = 0; b < buckets; b++) {
        for (size_t i = 0; i < plan->chunks[b].piece_count; i++) {
            const zoff_plan_piece *piece = &plan->pieces[plan->chunks[b].first_piece + i];
            const zoff_model_param *p = &e->model.params[piece->param];
            /* A slice that is cut between the two comes down as a whole. */
            const bool is_it = is_cut && piece->param == last->param && piece->slice == last->slice;
            bytes += p->frozen || is_it ? 0 : piece->count * zoff_adam_dtype_bytes(p->grad_dtype);
        }
    }
    return bytes;
}

uint64_t zoff_engine_device_bytes(const zoff_engine *e, const zoff_plan *plan)
{
    uint64_t bytes = 0;
    if (!zoff_engine_device_is(e))
        return 0;
    /* Gradients that leave early need no room of their own for long; how much that is depends on the trainer. */
    for (size_t i = 0;
         !(zoff_engine_reduce_scatter_leaves_early(e) || zoff_engine_device_direct_is(e)) && i < e->model.param_count; i++) {
        const zoff_model_param *p = &e->model.params[i];
        bytes += p->frozen ? 0 : (uint64_t)p->slices * p->count * zoff_adam_dtype_bytes(p->grad_dtype);
    }
    bytes -= zoff_base_bits_min(bytes, gradients_that_stay(e, plan));
    return bytes + (uint64_t)ZOFF_STAGING_SLOTS * lay_out(e, plan, NULL);
}

static zoff_status open_streams(zoff_engine *e)
{
    const zoff_accel_ops *ops = e->accel->ops;
    ZOFF_TRY(ops->stream_open(e->accel, &e->device.down));
    ZOFF_TRY(ops->stream_open(e->accel, &e->device.up));
    ZOFF_TRY(ops->event_open(e->accel, &e->device.handed_over));
    for (unsigned i = 0; i < ZOFF_STAGING_SLOTS; i++)
        ZOFF_TRY(ops->event_open(e->accel, &e->device.staging.slots[i].uploaded));
    return ops->event_open(e->accel, &e->device.synced);
}

static zoff_status pin(zoff_engine *e, const zoff_map *map, bool *out_pinned)
{
    if (map->base)
        ZOFF_TRY(zoff_engine_link_pin(e, map));
    *out_pinned = map->base != NULL;
    return ZOFF_OK;
}

static void close_event(zoff_engine *e, void *event)
{
    if (event)
        e->accel->ops->event_close(e->accel, event);
}

zoff_status zoff_engine_device_open(zoff_engine *e)
{
    zoff_device *d = &e->device;
    if (!zoff_engine_device_is(e))
        return ZOFF_OK;
    ZOFF_TRY(zoff_base_mem_alloc(e->plan.run_count, sizeof *d->staging.offsets, "the staging slots of a device",
                                 &d->staging.offsets));
    ZOFF_TRY(
        zoff_base_mem_alloc(e->model.slice_count, sizeof *d->downloads.queue, "gradients that come down", &d->downloads.queue));
    ZOFF_TRY(zoff_base_mem_alloc(e->model.slice_count, sizeof *d->downloads.events, "gradients that come down",
                                 &d->downloads.events));
    d->first_bucket = SIZE_MAX;
    d->staging.slot_bytes = lay_out(e, &e->plan, d->staging.offsets);
    if (d->staging.slot_bytes)
        ZOFF_TRY(zoff_base_map_alloc(ZOFF_STAGING_SLOTS * d->staging.slot_bytes, "weights that go up", ZOFF_MAP_INTERLEAVED,
                                     &d->staging.memory));
    for (unsigned i = 0; i < ZOFF_STAGING_SLOTS && d->staging.slot_bytes; i++)
        d->staging.slots[i].base = (char *)d->staging.memory.base + i * d->staging.slot_bytes;
    ZOFF_TRY(pin(e, &d->staging.memory, &d->staging.pinned));
    ZOFF_TRY(pin(e, &e->ranks.staging, &d->wire_pinned)); /* the first weights go to other ranks from there */
    ZOFF_TRY(open_streams(e));
    ZOFF_TRY(zoff_engine_device_norm_open(e));
    return zoff_engine_device_tier_open(e);
}

/* Streams first: what is in them uses the rest. */
void zoff_engine_device_close(zoff_engine *e)
{
    zoff_device *d = &e->device;
    if (!e->accel || !zoff_engine_device_is(e))
        return;
    const zoff_accel_ops *ops = e->accel->ops;
    void *streams[] = {d->down, d->up, d->compute};
    for (size_t i = 0; i < sizeof streams / sizeof streams[0]; i++) {
        if (streams[i])
            ops->stream_close(e->accel, streams[i]);
    }
    zoff_engine_device_norm_close(e);
    zoff_engine_device_tier_close(e);
    close_event(e, d->handed_over);
    close_event(e, d->synced);
    for (unsigned i = 0; i < ZOFF_STAGING_SLOTS; i++)
        close_event(e, d->staging.slots[i].uploaded);
    for (size_t i = 0; d->downloads.events && i < e->model.slice_count; i++)
        close_event(e, d->downloads.events[i]);
    if (d->staging.pinned)
        zoff_engine_link_unpin(e, &d->staging.memory);
    if (d->wire_pinned)
        zoff_engine_link_unpin(e, &e->ranks.staging);
    zoff_base_map_free(&d->staging.memory);
    zoff_base_mem_free(d->staging.offsets);
    zoff_base_mem_free(d->downloads.queue);
    zoff_base_mem_free(d->downloads.events);
    const zoff_device_direct direct = d->direct; /* what other ranks may still use is freed behind them */
    *d = (zoff_device){.direct = direct};
}

/* ---- gradients, down ---- */

static zoff_status landing(zoff_engine *e, size_t number, void **out)
{
    void **event = &e->device.downloads.events[number];
    if (!*event)
        ZOFF_TRY(e->accel->ops->event_open(e->accel, event));
    *out = *event;
    return ZOFF_OK;
}

/* Whether the last element of a slice is in a bucket whose states stay on the device. */
static bool ends_on_device(const zoff_engine *e, size_t number)
{
    return e->device.tier.count && zoff_model_slices_has(&e->model, number) &&
           zoff_engine_device_tier_has(e, e->model.slice_buckets[number].last);
}

/* Remember from which end of the list gradients come: the walk starts there. */
static void note_order(zoff_engine *e, size_t number)
{
    zoff_device *d = &e->device;
    if (!zoff_model_slices_has(&e->model, number))
        return;
    d->last_bucket = e->model.slice_buckets[number].first;
    d->first_bucket = d->first_bucket == SIZE_MAX ? d->last_bucket : d->first_bucket;
}

zoff_status zoff_engine_device_download(zoff_engine *e, zoff_param p, size_t slice, void *native_stream)
{
    const zoff_accel_ops *ops = e->accel->ops;
    zoff_device *d = &e->device;
    const zoff_model_param *param = &e->model.params[p];
    const size_t number = param->first_flag + slice, bytes = param->count * zoff_adam_dtype_bytes(param->grad_dtype);
    const bool comes_down = !bytes || !ends_on_device(e, number);
    char *to;
    void *event;
    if (comes_down) {
        ZOFF_TRY(zoff_engine_acquire_lend(e, number, bytes, &to));
        ZOFF_TRY(landing(e, number, &event));
    }
    ZOFF_TRY(zoff_engine_link_follow(e, native_stream));
    if (d->norm.count)
        ZOFF_TRY(zoff_engine_link_compute_follow(e));
    note_order(e, number);
    if (!comes_down)
        return ZOFF_OK;
    ZOFF_TRY(ops->event_await(e->accel, d->down, d->handed_over));
    zoff_status status = ops->copy(e->accel, d->down, to, param->grad + slice * param->grad_stride, bytes);
    if (status == ZOFF_OK)
        status = ops->event_record(e->accel, event, d->down);
    if (status < 0) {
        /* It is the program's again: nothing may read it any more. */
        zoff_saved_error saved;
        zoff_base_status_save(&saved);
        (void)zoff_engine_link_sync(e, d->down);
        zoff_base_status_restore(&saved);
        return status;
    }
    d->downloads.queue[d->downloads.end++ % e->model.slice_count] =
        (zoff_download){.number = number, .param = p, .slice = slice};
    d->read_bytes += bytes;
    return ZOFF_OK;
}

zoff_status zoff_engine_device_stay(zoff_engine *e, zoff_param p, size_t slice, void *native_stream)
{
    ZOFF_TRY(zoff_engine_link_follow(e, native_stream));
    ZOFF_TRY(zoff_engine_link_compute_follow(e));
    note_order(e, e->model.params[p].first_flag + slice);
    return ZOFF_OK;
}

/* Of one rank alone a bucket needs no more than its own. */
static bool is_down(const zoff_bucket_run *run)
{
    zoff_engine *e = run->engine;
    const zoff_plan_chunk *chunk = &e->plan.chunks[run->chunk];
    for (size_t i = 0; i < chunk->piece_count; i++) {
        const uint8_t flag = *zoff_model_params_flag(&e->model, &e->plan.pieces[chunk->first_piece + i]);
        if ((flag & ZOFF_SLICE_READY) && !(flag & ZOFF_SLICE_DOWN))
            return false;
    }
    return true;
}

zoff_status zoff_engine_device_unload(zoff_bucket_run *run)
{
    const zoff_status status = zoff_engine_download_poll(run->engine);
    return status < 0 ? status : is_down(run) ? ZOFF_OK : ZOFF_PENDING;
}

zoff_status zoff_engine_device_unload_none(zoff_bucket_run *run)
{
    const zoff_status status = zoff_engine_download_poll(run->engine);
    return status < 0 ? status : ZOFF_OK;
}

zoff_status zoff_engine_device_unload_all(zoff_bucket_run *run)
{
    zoff_engine *e = run->engine;
    const zoff_status status = zoff_engine_download_poll(e);
    if (status == ZOFF_OK && !e->run.closed) {
        zoff_engine_reduce_scatter_close(e);
        e->run.closed = true;
    }
    return status;
}

/* ---- staging slots ---- */

/* Of a bucket this rank's pieces, or the runs of all ranks. */
static const zoff_plan_piece *pieces_of(const zoff_engine *e, size_t bucket, bool own, size_t *out_count)
{
    const zoff_plan_chunk *chunk = &e->plan.chunks[bucket];
    *out_count = own ? chunk->piece_count : chunk->run_count;
    return own ? &e->plan.pieces[chunk->first_piece] : &e->plan.runs[chunk->first_run];
}

/* Copies of the weights of a bucket, in one direction. */
static zoff_status put_copies(zoff_engine *e, size_t bucket, bool own, bool up)
{
    size_t count;
    const zoff_plan_piece *pieces = pieces_of(e, bucket, own, &count);
    for (size_t i = 0; i < count; i++) {
        const zoff_plan_piece *piece = &pieces[i];
        const size_t bytes = bytes_of(e, piece);
        if (!bytes || (up && !own && !zoff_engine_wire_takes_now(e, piece)))
            continue;
        char *host = e->runs[bucket].staging->base + zoff_engine_staging_offset(e, piece),
             *device = zoff_model_params_value(&e->model, piece, NULL);
        ZOFF_TRY(
            e->accel->ops->copy(e->accel, up ? e->device.up : e->device.down, up ? device : host, up ? host : device, bytes));
        *(up ? &e->device.write_bytes : &e->device.read_bytes) += bytes;
    }
    return ZOFF_OK;
}

typedef struct lend_wait {
    zoff_engine *engine;
    size_t bucket;
} lend_wait;

static zoff_status try_to_lend(void *ctx)
{
    const lend_wait *w = ctx;
    return zoff_engine_staging_lend(w->engine, w->bucket);
}

zoff_status zoff_engine_device_lend(zoff_engine *e, size_t bucket, bool load)
{
    if (e->runs[bucket].staging)
        return ZOFF_OK;
    zoff_status status = zoff_engine_device_wait(e, try_to_lend, &(lend_wait){e, bucket});
    ZOFF_TRY(status);
    if (load && (status = put_copies(e, bucket, true, false)) == ZOFF_OK)
        status = zoff_engine_link_sync(e, e->device.down);
    if (status < 0)
        zoff_engine_staging_release(e, bucket);
    return status;
}

/* Nobody reads the old weights any more: `up` waits for each stream that was handed over (see above). */
zoff_status zoff_engine_device_upload(zoff_engine *e, size_t bucket, bool own)
{
    const zoff_accel_ops *ops = e->accel->ops;
    zoff_staging_slot *slot = e->runs[bucket].staging;
    if (!slot)
        return ZOFF_OK;
    ZOFF_TRY(put_copies(e, bucket, own, true));
    ZOFF_TRY(ops->event_record(e->accel, slot->uploaded, e->device.up));
    slot->uploads = true;
    zoff_engine_staging_release(e, bucket);
    return ZOFF_OK;
}

/* ---- rows ---- */

/* Whether weights of a bucket become new on this rank's device in this step. */
static bool wants_slot(const zoff_bucket_run *run)
{
    const zoff_engine *e = run->engine;
    size_t count;
    const zoff_plan_piece *pieces = pieces_of(e, run->chunk, !is_sharded(e), &count);
    for (size_t i = 0; i < count; i++) {
        if (bytes_of(e, &pieces[i]) && zoff_engine_wire_takes_now(e, &pieces[i]))
            return true;
    }
    return false;
}

/* Windows whose weights have come from all ranks, and could not be sent up then. */
static zoff_status upload_again(zoff_engine *e)
{
    for (size_t b = 0; is_sharded(e) && b < e->plan.chunk_count; b++) {
        if (e->runs[b].staging && e->runs[b].shared)
            ZOFF_TRY(zoff_engine_device_upload(e, b, false));
    }
    return ZOFF_OK;
}

/* In order: with all staging slots at buckets that wait for one without, nothing would ever move. */
zoff_status zoff_engine_device_stage(zoff_bucket_run *run)
{
    zoff_engine *e = run->engine;
    if (zoff_engine_walk_position(e, run->chunk) != e->device.staging.next)
        return ZOFF_PENDING;
    if (wants_slot(run)) {
        zoff_status status = zoff_engine_staging_lend(e, run->chunk);
        if (status == ZOFF_PENDING)
            ZOFF_TRY(upload_again(e));
        if (status != ZOFF_OK)
            return status;
    }
    e->device.staging.next++;
    return ZOFF_OK;
}

zoff_status zoff_engine_device_upload_bucket(zoff_bucket_run *run)
{
    return zoff_engine_device_upload(run->engine, run->chunk, false);
}

static zoff_status zero_gradients(zoff_engine *e)
{
    for (size_t i = 0; i < e->model.param_count; i++) {
        const zoff_model_param *p = &e->model.params[i];
        for (size_t slice = 0; slice < p->slices; slice++) {
            zoff_dtype dtype;
            char *grad = zoff_model_params_own_grad(&e->model, (zoff_param)i, slice, &dtype);
            if (grad && zoff_model_params_is_given(&e->model, (zoff_param)i, slice))
                ZOFF_TRY(e->accel->ops->zero(e->accel, e->device.down, grad, p->count * zoff_adam_dtype_bytes(dtype)));
        }
    }
    return zoff_engine_link_sync(e, e->device.down);
}

zoff_status zoff_engine_device_finish(zoff_engine *e)
{
    /* Of a step that is skipped they may still come down; and what is computed reads gradients, too. */
    if (e->device.downloads.first != e->device.downloads.end)
        ZOFF_TRY(zoff_engine_download_finish(e));
    ZOFF_TRY(zoff_engine_link_compute_settle(e));
    if (zoff_engine_device_is(e) && e->run.flags & ZOFF_STEP_ZERO_GRADS)
        ZOFF_TRY(zero_gradients(e));
    return e->link->settle(e);
}

zoff_status zoff_engine_device_settle(zoff_engine *e)
{
    /* What could not be sent up when it was its turn. */
    for (size_t b = 0; b < e->plan.chunk_count; b++)
        ZOFF_TRY(zoff_engine_device_upload(e, b, false));
    for (unsigned i = 0; i < ZOFF_STAGING_SLOTS; i++) {
        zoff_staging_slot *w = &e->device.staging.slots[i];
        if (w->uploads)
            ZOFF_TRY(zoff_engine_device_wait_for(e, w->uploaded));
        w->uploads = false;
    }
    return ZOFF_OK;
}
