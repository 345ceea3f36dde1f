/* device_wait.c: waiting for a device, and for how long. A device that has failed says so; one that neither moves nor fails, as
 * behind a collective of the trainer's whose peer is dead, is an error when the communicator's timeout_seconds are over. */
#include "engine_priv.h"

#include "clock.h"
#include "try.h"

#include <stdio.h>

bool zoff_engine_device_wait_uploads(const zoff_engine *e)
{
    bool uploads = false;
    for (unsigned i = 0; i < ZOFF_STAGING_SLOTS; i++)
        uploads = uploads || e->device.staging.slots[i].uploads;
    return uploads;
}

bool zoff_engine_device_wait_busy(const zoff_engine *e)
{
    return e->device.downloads.first != e->device.downloads.end || zoff_engine_device_wait_uploads(e) || e->device.norm.waits ||
           e->device.direct.waits;
}

static bool is_busy(void *ctx)
{
    return zoff_engine_device_wait_busy(ctx);
}

static zoff_status say_what_stands(void *ctx, double seconds)
{
    const zoff_engine *e = ctx;
    const zoff_device *d = &e->device;
    const zoff_download *download =
        d->downloads.first != d->downloads.end ? &d->downloads.queue[d->downloads.first % e->model.slice_count] : NULL;
    char words[256] = "work of the engine";
    if (download)
        snprintf(words, sizeof words, "gradient %zu of %.160s on its way down", download->slice,
                 e->model.params[download->param].name);
    else if (zoff_engine_device_wait_uploads(e))
        snprintf(words, sizeof words, "weights on their way up");
    else if (d->norm.waits)
        snprintf(words, sizeof words, "gradients that are measured");
    return zoff_base_status_fail(
        ZOFF_ERR_DEVICE,
        "accelerator \"%s\" has neither moved nor failed for %g s (timeout_seconds), and is waited for: "
        "%s. Look at what is in the program's stream before it; try again when it moves, or destroy the "
        "engine",
        zoff_accel_name(e->accel), seconds, words);
}

void zoff_engine_device_wait_open(zoff_engine *e)
{
    e->pollers.device = (zoff_poller){.is_busy = is_busy,
                                      .overdue = say_what_stands,
                                      .ctx = e,
                                      .timeout_seconds = e->comm->timeout_seconds,
                                      .waited = &e->run.info.device_wait_seconds};
    zoff_base_progress_add(&e->progress, &e->pollers.device);
}

void zoff_engine_device_wait_close(zoff_engine *e)
{
    zoff_base_progress_remove(&e->progress, &e->pollers.device);
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

zoff_status zoff_engine_device_wait_for(zoff_engine *e, void *event)
{
    event_wait w = {.accel = e->accel, .event = event};
    return zoff_engine_device_wait(e, poll_event, &w);
}

zoff_status zoff_engine_device_wait(zoff_engine *e, zoff_status (*until)(void *ctx), void *ctx)
{
    return zoff_base_progress_wait(&e->progress, &e->pollers.device, until, ctx);
}

/* ---- the end ---- */

static zoff_status poll_event_in_time(void *ctx)
{
    const event_wait *w = ctx;
    const zoff_status status = poll_event(ctx);
    ZOFF_FAIL_IF(status == ZOFF_PENDING && zoff_base_clock_seconds() > w->until, ZOFF_ERR_DEVICE, "it is too late");
    return status;
}

/* Behind all that is in a stream. False: it does not come there in time. */
static bool is_through(zoff_engine *e, void *stream, double seconds)
{
    event_wait w = {.accel = e->accel, .event = e->device.synced, .until = zoff_base_clock_seconds() + seconds};
    if (!stream || w.accel->ops->event_record(w.accel, w.event, stream) < 0)
        return true;
    (void)zoff_engine_device_wait(e, poll_event_in_time, &w);
    return poll_event(&w) != ZOFF_PENDING; /* also where the device has failed: nothing is done there any more */
}

bool zoff_engine_device_wait_end(zoff_engine *e)
{
    enum { PATIENCE_SECONDS = 10 };
    zoff_saved_error saved;
    const zoff_device *d = &e->device;
    if (!e->comm || !e->accel || !zoff_engine_device_is(e) || !d->synced)
        return true;
    const double most = e->comm->timeout_seconds;
    const double seconds = most >= 0 && most < PATIENCE_SECONDS ? most : PATIENCE_SECONDS;
    zoff_base_status_save(&saved);
    const bool ends = is_through(e, d->down, seconds) && is_through(e, d->up, seconds) && is_through(e, d->compute, seconds);
    zoff_base_status_restore(&saved);
    return ends;
}
