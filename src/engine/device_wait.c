/* device_wait.c: waiting for a device, and for how long. A device that has failed says so; one that neither moves nor fails, as
 * behind a collective of the trainer's whose peer is dead, is an error when the communicator's timeout_seconds are over. */
#include "engine_priv.h"

#include "clock.h"
#include "log.h"
#include "try.h"

#include <sched.h>
#include <stdio.h>
#include <time.h>

/* Only time that was slept counts: a thread that computes, or is stopped, is not waiting. */
zoff_status zoff_engine_device_wait_count(zoff_engine *e, double seconds)
{
    zoff_device *d = &e->device;
    const double most = e->comm->timeout_seconds;
    d->waited = e->run.idle <= 1 ? seconds : d->waited + seconds;
    d->is_stuck = most >= 0 && d->waited > most;
    if (!d->is_stuck)
        return ZOFF_OK;
    const zoff_fall *fall = d->first_fall != d->fall_end ? &d->falls[d->first_fall % e->slice_count] : NULL;
    char words[256] = "work of the engine";
    if (fall)
        snprintf(words, sizeof words, "gradient %zu of %.160s on its way down", fall->slice, e->params[fall->param].name);
    else if (zoff_engine_device_rises(e))
        snprintf(words, sizeof words, "weights on their way up");
    else if (d->norm.waits)
        snprintf(words, sizeof words, "gradients that are measured");
    return zoff_base_status_fail(
        ZOFF_ERR_DEVICE,
        "accelerator \"%s\" has neither moved nor failed for %g s (timeout_seconds), and is waited for: "
        "%s. Look at what is in the program's stream before it; try again when it moves, or destroy the "
        "engine",
        zoff_accel_name(e->accel), most, words);
}

static zoff_status let_time_pass(zoff_engine *e)
{
    enum { YIELDS = 200 };
    const double from = zoff_base_clock_seconds();
    if (e->run.idle++ < YIELDS)
        sched_yield();
    else
        zoff_base_clock_nap(e->run.idle - YIELDS - 1);
    const double seconds = zoff_base_clock_seconds() - from;
    e->run.info.device_wait_seconds += seconds;
    return zoff_engine_device_wait_count(e, seconds);
}

zoff_status zoff_engine_device_wait(zoff_engine *e)
{
    ZOFF_TRY(let_time_pass(e));
    return e->phase == ZOFF_PHASE_BUILDING ? ZOFF_OK : zoff_engine_stores_pump(e);
}

zoff_status zoff_engine_device_wait_on(zoff_engine *e)
{
    ZOFF_TRY(let_time_pass(e));
    if (e->phase != ZOFF_PHASE_BUILDING)
        (void)zoff_engine_stores_pump(e);
    return ZOFF_OK;
}

zoff_status zoff_engine_device_wait_for(zoff_engine *e, void *event)
{
    zoff_status status;
    e->run.idle = 0;
    while ((status = e->accel->ops->event_poll(e->accel, event)) == ZOFF_PENDING)
        ZOFF_TRY(zoff_engine_device_wait_on(e));
    return status;
}

/* ---- the end ---- */

/* Behind all that is in a stream. False: it does not come there in time. */
static bool is_through(zoff_engine *e, void *stream, double seconds)
{
    enum { NAP_NS = 200000 };
    const zoff_accel_ops *ops = e->accel->ops;
    const double until = zoff_base_clock_seconds() + seconds;
    zoff_status status = stream ? ops->event_record(e->accel, e->device.synced, stream) : ZOFF_OK;
    while (stream && status >= 0 && (status = ops->event_poll(e->accel, e->device.synced)) == ZOFF_PENDING) {
        if (zoff_base_clock_seconds() > until)
            return false;
        nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    }
    return true; /* also where the device has failed: nothing is done there any more */
}

bool zoff_engine_device_wait_end(zoff_engine *e)
{
    enum { PATIENCE_SECONDS = 10 };
    zoff_kept_error kept;
    const zoff_device *d = &e->device;
    if (!e->comm || !e->accel || !zoff_engine_device_is(e) || !d->synced)
        return true;
    const double most = e->comm->timeout_seconds;
    const double seconds = most >= 0 && most < PATIENCE_SECONDS ? most : PATIENCE_SECONDS;
    zoff_base_status_keep(&kept);
    const bool ends = is_through(e, d->down, seconds) && is_through(e, d->up, seconds) && is_through(e, d->compute, seconds);
    zoff_base_status_restore(&kept);
    return ends;
}
