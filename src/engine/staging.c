/* staging.c: windows of host memory for the weights of a bucket on their way to a device. */
#include "engine_priv.h"

#include "try.h"

/* Where a piece is in the window of its bucket: windows are laid out by runs, and a piece is a part of one. */
size_t zoff_engine_staging_offset(const zoff_engine *e, const zoff_plan_piece *piece)
{
    const size_t run = zoff_zero_plan_find_run(&e->plan, piece->param, piece->slice, piece->first);
    const size_t skip = piece->first - e->plan.runs[run].first;
    return e->device.staging.offsets[run] + skip * zoff_adam_dtype_bytes(e->params[piece->param].dtype);
}

char *zoff_engine_staging_weights(const zoff_engine *e, const zoff_plan_piece *piece, char *weights)
{
    const zoff_device_window *window;
    (void)weights; /* none are the engine's */
    window = e->runs[piece->bucket].window;
    return window ? window->base + zoff_engine_staging_offset(e, piece) : NULL;
}

/* One that nobody has, and nothing leaves any more.  @return PENDING when all are in use */
static zoff_status find_free(zoff_engine *e, zoff_device_window **out)
{
    for (unsigned i = 0; i < ZOFF_DEVICE_WINDOWS; i++) {
        zoff_device_window *w = &e->device.staging.windows[i];
        if (w->rises) {
            zoff_status status = e->accel->ops->event_poll(e->accel, w->risen);
            ZOFF_TRY(status);
            w->rises = status == ZOFF_PENDING;
        }
        if (!w->rises && !w->lent) {
            *out = w;
            return ZOFF_OK;
        }
    }
    return ZOFF_PENDING;
}

zoff_status zoff_engine_staging_lend(zoff_engine *e, size_t bucket)
{
    zoff_device_window *window;
    zoff_status status = find_free(e, &window);
    if (status != ZOFF_OK)
        return status;
    window->lent = true;
    e->runs[bucket].window = window;
    return ZOFF_OK;
}

void zoff_engine_staging_release(zoff_engine *e, size_t bucket)
{
    if (e->runs[bucket].window)
        e->runs[bucket].window->lent = false;
    e->runs[bucket].window = NULL;
}
