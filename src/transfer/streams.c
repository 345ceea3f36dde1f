/* SPDX-License-Identifier: Apache-2.0 */
/* streams.c: pinned memory, copies, the order of a device's streams, and waiting for them. A device that fails reports it. A
 * device may also stop without failing, for example behind a collective of the trainer whose peer is dead. That is an error
 * after the communicator's timeout_seconds. */
#include "transfer.h"

#include "clock.h"
#include "try.h"

#include <stdio.h>

/* ---- waiting ---- */

bool zoff_transfer_streams_upload(const zoff_transfer *t)
{
    bool uploads = false;
    for (size_t i = 0; t->device.staging.in_flight && !uploads && i < t->device.staging.count; i++) {
        const zoff_staging_slot *slot = &t->device.staging.slots[i];
        uploads = slot->in_flight && !slot->lent; /* a bucket has its slot during a download */
    }
    return uploads;
}

static bool is_device_busy(void *ctx)
{
    const zoff_transfer *t = ctx;
    return t->device.downloads.first != t->device.downloads.end || zoff_transfer_streams_upload(t) || t->device.norm.waits ||
           t->device.tier.waits || t->ranks.wire.waits || zoff_lending_copies_are_busy(t->lending);
}

static zoff_status say_what_stands(void *ctx, double seconds)
{
    const zoff_transfer *t = ctx;
    const zoff_device *d = &t->device;
    const zoff_download *download =
        d->downloads.first != d->downloads.end ? &d->downloads.queue[d->downloads.first % t->model->slice_count] : NULL;
    char words[256] = "its own work on the device";
    if (download)
        snprintf(words, sizeof words, "the download of gradient %zu of %.160s", download->slice,
                 t->model->params[download->param].name);
    else if (zoff_transfer_streams_upload(t))
        snprintf(words, sizeof words, "the upload of weights");
    else if (d->norm.waits)
        snprintf(words, sizeof words, "the measurement of gradients");
    else if (d->tier.waits)
        snprintf(words, sizeof words, "the update of states on the device");
    else if (zoff_lending_copies_are_busy(t->lending))
        snprintf(words, sizeof words, "copies of stored weights");
    return zoff_base_status_fail(
        ZOFF_ERR_DEVICE,
        "accelerator \"%s\" made no progress and reported no error for %g s (timeout_seconds). The engine waits for "
        "%s. Check the work before it in the program's stream; retry when the device moves again, or destroy the "
        "engine",
        zoff_accel_name(t->accel), seconds, words);
}

void zoff_transfer_streams_watch(zoff_transfer *t)
{
    t->pollers.device = (zoff_poller){.is_busy = is_device_busy,
                                      .overdue = say_what_stands,
                                      .ctx = t,
                                      .timeout_seconds = t->comm->timeout_seconds,
                                      .waited = &t->info->seconds.device_wait};
    zoff_base_progress_add(t->progress, &t->pollers.device);
}

void zoff_transfer_streams_unwatch(zoff_transfer *t)
{
    zoff_base_progress_remove(t->progress, &t->pollers.device);
}

typedef struct event_wait {
    zoff_accel *accel;
    void *event;
    double until; /* see is_through() */
} event_wait;

static zoff_status poll_event(void *ctx)
{
    const event_wait *w = ctx;
    return w->accel->ops->event_poll(w->accel, w->event);
}

zoff_status zoff_transfer_streams_wait_for(zoff_transfer *t, void *event)
{
    event_wait w = {.accel = t->accel, .event = event};
    return zoff_transfer_streams_wait(t, poll_event, &w);
}

zoff_status zoff_transfer_streams_wait(zoff_transfer *t, zoff_status (*until)(void *ctx), void *ctx)
{
    return zoff_base_progress_wait(t->progress, &t->pollers.device, until, ctx);
}

/* ---- the end ---- */

static zoff_status poll_event_in_time(void *ctx)
{
    const event_wait *w = ctx;
    const zoff_status status = poll_event(ctx);
    ZOFF_FAIL_IF(status == ZOFF_PENDING && zoff_base_clock_seconds() > w->until, ZOFF_ERR_DEVICE, "it is too late");
    return status;
}

/* Wait until all work in a stream is done. False: it is not done within `seconds`. */
static bool is_through(zoff_transfer *t, void *stream, double seconds)
{
    event_wait w = {.accel = t->accel, .event = t->device.synced, .until = zoff_base_clock_seconds() + seconds};
    if (!stream || w.accel->ops->event_record(w.accel, w.event, stream) < 0)
        return true;
    (void)zoff_transfer_streams_wait(t, poll_event_in_time, &w);
    return poll_event(&w) != ZOFF_PENDING; /* a device that has failed counts as done, because it runs no work any more */
}

bool zoff_transfer_streams_end(zoff_transfer *t)
{
    enum { PATIENCE_SECONDS = 10 };
    zoff_saved_error saved;
    const zoff_device *d = &t->device;
    if (!t->comm || !t->accel || !d->synced)
        return true;
    const double most = t->comm->timeout_seconds;
    const double seconds = most >= 0 && most < PATIENCE_SECONDS ? most : PATIENCE_SECONDS;
    zoff_base_status_save(&saved);
    const bool ends = is_through(t, d->down, seconds) && is_through(t, d->up, seconds) && is_through(t, d->compute, seconds) &&
                      is_through(t, t->lending->there.link.stream, seconds);
    zoff_base_status_restore(&saved);
    return ends;
}

/* ---- memory, copies, order ---- */

static zoff_status sync_once(zoff_transfer *t, void *stream)
{
    ZOFF_TRY(t->accel->ops->event_record(t->accel, t->device.synced, stream));
    return zoff_transfer_streams_wait_for(t, t->device.synced);
}

zoff_status zoff_transfer_streams_sync(zoff_transfer *t, void *stream)
{
    const zoff_status status = sync_once(t, stream);
    if (status < 0 && !t->pollers.device.is_overdue) { /* an overdue device would stand still for another timeout */
        ZOFF_KEEP_ERROR((void)sync_once(t, stream));
    }
    return status;
}

zoff_status zoff_transfer_streams_pin(zoff_transfer *t, const zoff_map *map)
{
    return t->accel->ops->pages.pin(t->accel, map->base, map->bytes);
}

void zoff_transfer_streams_unpin(zoff_transfer *t, const zoff_map *map)
{
    t->accel->ops->pages.unpin(t->accel, map->base);
}

zoff_status zoff_transfer_streams_copy(zoff_transfer *t, const zoff_cast_piece *moves, size_t count, bool up)
{
    void *stream = up ? t->device.up : t->device.down;
    zoff_status status = ZOFF_OK;
    for (size_t i = 0; status == ZOFF_OK && i < count; i++)
        status = t->accel->ops->copy(t->accel, stream, moves[i].dst, moves[i].src,
                                     moves[i].count * zoff_adam_dtype_bytes(moves[i].src_dtype));
    if (status == ZOFF_OK)
        return zoff_transfer_streams_sync(t, stream);
    /* The caller may free the memory of the copies that were enqueued. */
    ZOFF_KEEP_ERROR((void)zoff_transfer_streams_sync(t, stream));
    return status;
}

/* Every waiting stream must await the event now, because the next call records it again, perhaps in another stream. Uploads,
 * and updates on the device, overwrite weights that the work in each of these streams may still read. */
zoff_status zoff_transfer_streams_follow(zoff_transfer *t, void *native_stream)
{
    ZOFF_TRY(t->accel->ops->event_record(t->accel, t->device.handed_over, native_stream));
    ZOFF_TRY(t->accel->ops->event_await(t->accel, t->device.up, t->device.handed_over));
    return t->device.tier.count ? zoff_transfer_streams_compute_follow(t) : ZOFF_OK;
}

zoff_status zoff_transfer_streams_compute_follow(zoff_transfer *t)
{
    t->device.computes = true;
    return t->accel->ops->event_await(t->accel, t->device.compute, t->device.handed_over);
}

zoff_status zoff_transfer_streams_compute_settle(zoff_transfer *t)
{
    if (!t->device.computes)
        return ZOFF_OK;
    ZOFF_TRY(t->accel->ops->event_record(t->accel, t->device.norm.settled, t->device.compute));
    ZOFF_TRY(zoff_transfer_streams_wait_for(t, t->device.norm.settled));
    t->device.computes = false;
    return ZOFF_OK;
}
