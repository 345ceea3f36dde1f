/* SPDX-License-Identifier: Apache-2.0 */
/* staging.c: slots of host memory for updated weights, from which they are uploaded, or copied to the program. A slot is free
 * when its copies are complete, also after an error. */
#include "transfer.h"

#include "bits.h"
#include "try.h"

#include <string.h>

size_t zoff_transfer_staging_bytes_of(const zoff_transfer *t, const zoff_plan_piece *piece)
{
    const zoff_model_param *p = &t->model->params[piece->param];
    return p->frozen || p->engine_owned ? 0 : piece->count * zoff_adam_dtype_bytes(p->dtype);
}

/* Bytes of the largest bucket, over all ranks. `offsets`, unless NULL, receives the offset of each run in its staging slot. */
static size_t lay_out(const zoff_transfer *t, const zoff_plan *plan, size_t *offsets)
{
    size_t most = 0;
    for (size_t b = 0; b < plan->chunk_count; b++) {
        const zoff_plan_chunk *c = &plan->chunks[b];
        size_t at = 0;
        for (size_t i = c->first_run; i < c->first_run + c->run_count; i++) {
            if (offsets)
                offsets[i] = at;
            at += zoff_base_bits_align(zoff_transfer_staging_bytes_of(t, &plan->runs[i]), 64);
        }
        most = zoff_base_bits_max(most, at);
    }
    return most;
}

size_t zoff_transfer_staging_slot_bytes(const zoff_transfer *t, const zoff_plan *plan)
{
    return lay_out(t, plan, NULL);
}

zoff_status zoff_transfer_staging_open(zoff_transfer *t, size_t of_walk)
{
    zoff_staging *s = &t->device.staging;
    const size_t count = of_walk + s->ahead;
    ZOFF_TRY(zoff_base_mem_alloc(t->plan->run_count, sizeof *s->offsets, "staging slots of weights", &s->offsets));
    ZOFF_TRY(zoff_base_mem_alloc(count, sizeof *s->slots, "staging slots of weights", &s->slots));
    if (s->ahead)
        ZOFF_TRY(zoff_base_mem_alloc(s->ahead, sizeof *s->free, "staging slots of weights", &s->free));
    for (s->free_count = 0; s->free_count < s->ahead; s->free_count++)
        s->free[s->free_count] = (uint32_t)(of_walk + s->free_count);
    s->count = count;
    s->slot_bytes = lay_out(t, t->plan, s->offsets);
    if (s->slot_bytes && count)
        ZOFF_TRY(zoff_base_map_alloc(count * s->slot_bytes, "new weights", ZOFF_MAP_INTERLEAVED, &s->memory));
    if (s->ahead && s->slot_bytes) /* allocate the pages, because otherwise the first steps would wait for them */
        memset((char *)s->memory.base + of_walk * s->slot_bytes, 0, s->ahead * s->slot_bytes);
    for (size_t i = 0; i < count && s->slot_bytes; i++)
        s->slots[i].base = (char *)s->memory.base + i * s->slot_bytes;
    return ZOFF_OK;
}

void zoff_transfer_staging_close(zoff_transfer *t)
{
    zoff_base_map_free(&t->device.staging.memory);
    zoff_base_mem_free(t->device.staging.offsets);
    zoff_base_mem_free(t->device.staging.slots);
    zoff_base_mem_free(t->device.staging.free);
    t->device.staging = (zoff_staging){.ahead = t->device.staging.ahead};
}

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
    t->device.staging.in_flight += !slot->in_flight;
    slot->in_flight = true;
    return ZOFF_OK;
}

void zoff_transfer_staging_landed(zoff_transfer *t, zoff_staging_slot *slot)
{
    t->device.staging.in_flight -= slot->in_flight;
    slot->in_flight = false;
}

static void land(zoff_transfer *t, zoff_staging_slot *slot)
{
    if (slot->in_flight && zoff_trace_on()) {
        slot->traced.to = zoff_trace_now();
        zoff_trace_end_transfer(&slot->traced);
    }
    zoff_transfer_staging_landed(t, slot);
}

zoff_status zoff_transfer_staging_wait(zoff_transfer *t, zoff_staging_slot *slot)
{
    ZOFF_TRY(zoff_transfer_staging_mark(t, slot));
    if (slot->in_flight)
        ZOFF_TRY(zoff_transfer_streams_wait_for(t, slot->copied));
    land(t, slot);
    return ZOFF_OK;
}

zoff_status zoff_transfer_staging_wait_all(zoff_transfer *t)
{
    for (size_t i = 0; i < t->device.staging.count; i++)
        ZOFF_TRY(zoff_transfer_staging_wait(t, &t->device.staging.slots[i]));
    return ZOFF_OK;
}

/* Lend a slot, if no bucket has it and its copies are complete.  @return PENDING: it is in use */
static zoff_status lend(zoff_transfer *t, size_t bucket, zoff_staging_slot *slot)
{
    if (!slot->lent)
        ZOFF_TRY(zoff_transfer_staging_mark(t, slot)); /* mark the copies, because an error had kept the bucket from that */
    if (slot->in_flight) {
        zoff_status status = t->accel->ops->event_poll(t->accel, slot->copied);
        ZOFF_TRY(status);
        if (status == ZOFF_OK)
            land(t, slot);
    }
    if (slot->in_flight || slot->lent)
        return ZOFF_PENDING;
    slot->lent = true;
    t->walk.runs[bucket].staging = slot;
    return ZOFF_OK;
}

zoff_status zoff_transfer_staging_lend(zoff_transfer *t, size_t bucket)
{
    zoff_status status = ZOFF_PENDING;
    for (size_t i = 0; i < t->device.staging.count - t->device.staging.ahead && status == ZOFF_PENDING; i++)
        status = lend(t, bucket, &t->device.staging.slots[i]);
    return status;
}

/* There may be as many of these as buckets. The one that was free first is the first whose copies are complete. */
zoff_status zoff_transfer_staging_lend_ahead(zoff_transfer *t, size_t bucket)
{
    zoff_staging *s = &t->device.staging;
    const zoff_status status = s->free_count ? lend(t, bucket, &s->slots[s->free[s->free_first]]) : ZOFF_PENDING;
    if (status == ZOFF_OK) {
        s->free_first = (s->free_first + 1) % s->ahead;
        s->free_count--;
    }
    return status;
}

void zoff_transfer_staging_release(zoff_transfer *t, size_t bucket)
{
    zoff_staging *s = &t->device.staging;
    zoff_staging_slot *slot = t->walk.runs[bucket].staging;
    const size_t of_walk = s->count - s->ahead;
    if (slot && (size_t)(slot - s->slots) >= of_walk)
        s->free[(s->free_first + s->free_count++) % s->ahead] = (uint32_t)(slot - s->slots);
    if (slot)
        slot->lent = false;
    t->walk.runs[bucket].staging = NULL;
}
