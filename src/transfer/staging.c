/* staging.c: slots of host memory for updated weights, from which they are uploaded. */
#include "transfer.h"

#include "try.h"

/* Slots are laid out by runs, and a piece is a part of a run. */
size_t zoff_transfer_staging_offset(const zoff_transfer *t, const zoff_plan_piece *piece)
{
    const size_t run = zoff_zero_plan_find_run(t->plan, piece->param, piece->slice, piece->first);
    const size_t skip = piece->first - t->plan->runs[run].first;
    return t->device.staging.offsets[run] + skip * zoff_adam_dtype_bytes(t->model->params[piece->param].dtype);
}

char *zoff_transfer_staging_weights(const zoff_transfer *t, const zoff_plan_piece *piece, char *weights)
{
    const zoff_staging_slot *slot = t->runs[piece->bucket].staging;
    if (t->model->params[piece->param].engine_owned)
        return zoff_model_params_value(t->model, piece, weights);
    return slot ? slot->base + zoff_transfer_staging_offset(t, piece) : NULL;
}

/* Find a slot that no bucket has, and whose upload is complete.  @return PENDING: all are in use */
static zoff_status find_free(zoff_transfer *t, zoff_staging_slot **out)
{
    for (unsigned i = 0; i < ZOFF_STAGING_SLOTS; i++) {
        zoff_staging_slot *w = &t->device.staging.slots[i];
        if (w->uploads) {
            zoff_status status = t->accel->ops->event_poll(t->accel, w->uploaded);
            ZOFF_TRY(status);
            w->uploads = status == ZOFF_PENDING;
        }
        if (!w->uploads && !w->lent) {
            *out = w;
            return ZOFF_OK;
        }
    }
    return ZOFF_PENDING;
}

zoff_status zoff_transfer_staging_lend(zoff_transfer *t, size_t bucket)
{
    zoff_staging_slot *slot;
    zoff_status status = find_free(t, &slot);
    if (status != ZOFF_OK)
        return status;
    slot->lent = true;
    t->runs[bucket].staging = slot;
    return ZOFF_OK;
}

void zoff_transfer_staging_release(zoff_transfer *t, size_t bucket)
{
    if (t->runs[bucket].staging)
        t->runs[bucket].staging->lent = false;
    t->runs[bucket].staging = NULL;
}
