/* staging.c: slots of host memory for updated weights, from which they are uploaded. A slot is free when its copies are
 * complete, also after an error. */
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
    const zoff_staging_slot *slot = t->walk.runs[piece->bucket].staging;
    if (t->model->params[piece->param].engine_owned)
        return zoff_model_params_value(t->model, piece, weights);
    return slot ? slot->base + zoff_transfer_staging_offset(t, piece) : NULL;
}

zoff_status zoff_transfer_staging_mark(zoff_transfer *t, zoff_staging_slot *slot)
{
    if (!slot->stream)
        return ZOFF_OK;
    ZOFF_TRY(t->accel->ops->event_record(t->accel, slot->copied, slot->stream));
    slot->stream = NULL;
    slot->in_flight = true;
    return ZOFF_OK;
}

zoff_status zoff_transfer_staging_wait(zoff_transfer *t, zoff_staging_slot *slot)
{
    ZOFF_TRY(zoff_transfer_staging_mark(t, slot));
    if (slot->in_flight)
        ZOFF_TRY(zoff_transfer_streams_wait_for(t, slot->copied));
    slot->in_flight = false;
    return ZOFF_OK;
}

zoff_status zoff_transfer_staging_wait_all(zoff_transfer *t)
{
    for (unsigned i = 0; i < ZOFF_STAGING_SLOTS; i++)
        ZOFF_TRY(zoff_transfer_staging_wait(t, &t->device.staging.slots[i]));
    return ZOFF_OK;
}

/* Find a slot that no bucket has, and whose copies are complete.  @return PENDING: all are in use */
static zoff_status find_free(zoff_transfer *t, zoff_staging_slot **out)
{
    for (unsigned i = 0; i < ZOFF_STAGING_SLOTS; i++) {
        zoff_staging_slot *w = &t->device.staging.slots[i];
        if (!w->lent)
            ZOFF_TRY(zoff_transfer_staging_mark(t, w)); /* an error had kept its bucket from that */
        if (w->in_flight) {
            zoff_status status = t->accel->ops->event_poll(t->accel, w->copied);
            ZOFF_TRY(status);
            w->in_flight = status == ZOFF_PENDING;
        }
        if (!w->in_flight && !w->lent) {
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
    t->walk.runs[bucket].staging = slot;
    return ZOFF_OK;
}

void zoff_transfer_staging_release(zoff_transfer *t, size_t bucket)
{
    if (t->walk.runs[bucket].staging)
        t->walk.runs[bucket].staging->lent = false;
    t->walk.runs[bucket].staging = NULL;
}
