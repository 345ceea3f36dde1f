/* download.c: gradients on their way from a device. */
#include "engine_priv.h"

#include "try.h"

/* They come down in order, for they are all in one stream. */
zoff_status zoff_engine_download_poll(zoff_engine *e)
{
    zoff_device *d = &e->device;
    for (unsigned i = 0; i < ZOFF_STAGING_SLOTS; i++)
        d->staging.slots[i].uploads =
            d->staging.slots[i].uploads && e->accel->ops->event_poll(e->accel, d->staging.slots[i].uploaded) != ZOFF_OK;
    for (; d->downloads.first != d->downloads.end; d->downloads.first++) {
        const zoff_download download = d->downloads.queue[d->downloads.first % e->model.slice_count];
        zoff_status status = e->accel->ops->event_poll(e->accel, d->downloads.events[download.number]);
        if (status < 0)
            return zoff_base_status_prefix(status, "gradient %zu of %s, on its way from accelerator \"%s\": ", download.slice,
                                           e->model.params[download.param].name, zoff_accel_name(e->accel));
        if (status == ZOFF_PENDING)
            return ZOFF_PENDING;
        e->model.flags[download.number] |= ZOFF_SLICE_DOWN;
        zoff_engine_reduce_scatter_mark(e, download.param, download.slice);
    }
    return ZOFF_OK;
}

static zoff_status go_on(void *ctx)
{
    return zoff_engine_download_poll(ctx);
}

/* After a device failure no download can complete: drop them. */
zoff_status zoff_engine_download_finish(zoff_engine *e)
{
    zoff_saved_error saved;
    zoff_status status = zoff_engine_device_wait(e, go_on, e);
    if (e->pollers.device.is_overdue)
        return status; /* keep the downloads: they may still complete */
    e->device.downloads.first = e->device.downloads.end;
    if (status == ZOFF_OK)
        return zoff_engine_link_compute_settle(e);
    zoff_base_status_save(&saved);
    (void)zoff_engine_link_compute_settle(e);
    zoff_base_status_restore(&saved);
    return status;
}
