/* SPDX-License-Identifier: Apache-2.0 */
/* download.c: gradients that are being downloaded from a device. */
#include "transfer.h"

#include "try.h"

static void trace(zoff_trace_transfer x)
{
    x.to = zoff_trace_now();
    zoff_trace_end_transfer(&x);
}

/* Whether the copies of a slot are in flight still. */
static bool is_in_flight(zoff_transfer *t, const zoff_staging_slot *slot)
{
    if (t->accel->ops->event_poll(t->accel, slot->copied) != ZOFF_OK)
        return true;
    trace(slot->traced);
    return false;
}

/* Downloads complete in order, because they share one stream. */
zoff_status zoff_transfer_download_poll(zoff_transfer *t)
{
    zoff_device *d = &t->device;
    for (size_t i = 0; d->staging.in_flight && i < d->staging.count; i++) {
        if (d->staging.slots[i].in_flight && !is_in_flight(t, &d->staging.slots[i]))
            zoff_transfer_staging_landed(t, &d->staging.slots[i]);
    }
    for (; d->downloads.first != d->downloads.end; d->downloads.first++) {
        const zoff_download download = d->downloads.queue[d->downloads.first % t->model->slice_count];
        zoff_status status = t->accel->ops->event_poll(t->accel, d->downloads.events[download.number]);
        if (status < 0)
            return zoff_base_status_prefix(status, "download of gradient %zu of %s from accelerator \"%s\": ", download.slice,
                                           t->model->params[download.param].name, zoff_accel_name(t->accel));
        if (status == ZOFF_PENDING)
            return ZOFF_PENDING;
        trace(download.traced);
        t->model->flags[download.number] |= ZOFF_SLICE_DOWN;
        zoff_transfer_arena_let_go(t->route.lent, download.number);
        zoff_transfer_reduce_scatter_mark(t, download.param, download.slice);
    }
    return ZOFF_OK;
}

zoff_status zoff_transfer_download_ask(zoff_transfer *t)
{
    if (!t->device.downloads.was_asked)
        ZOFF_TRY(zoff_transfer_download_poll(t));
    t->device.downloads.was_asked = true;
    return ZOFF_OK;
}

static zoff_status go_on(void *ctx)
{
    return zoff_transfer_download_poll(ctx);
}

/* After a device failure no download can complete: drop them. */
zoff_status zoff_transfer_download_finish(zoff_transfer *t)
{
    zoff_status status = zoff_transfer_streams_wait(t, go_on, t);
    if (t->pollers.device.is_overdue)
        return status; /* keep the downloads, because they may still complete */
    t->device.downloads.first = t->device.downloads.end;
    if (status == ZOFF_OK)
        return zoff_transfer_streams_compute_settle(t);
    ZOFF_KEEP_ERROR((void)zoff_transfer_streams_compute_settle(t));
    return status;
}
