/* SPDX-License-Identifier: Apache-2.0 */
/* landings.c: where the parts of all ranks arrive that make a slice whole. In host memory, and where the communicator reaches
 * the device, that is the place of the slice itself. Otherwise it is a slot of host memory, from which the parts are copied to
 * the device.
 *
 * This rank's share is copied to where the parts arrive. On a device the exchange starts when that copy is done, and with it
 * all work that still read what was there before. */
#include "lending.h"

#include "bits.h"
#include "try.h"

#include <string.h>

typedef struct share {
    size_t at, bytes; /* range within the parts of all ranks */
    size_t chunk;     /* chunk that has the share, at `offset` */
    size_t offset;
} share;

/* This rank's share of a part. `bytes` is 0 if it has none. */
static share share_of(const zoff_lending *l, size_t item)
{
    const zoff_assembly *a = &l->cache.assembly;
    const zoff_plan_piece *run = &l->plan->runs[a->parts[item % a->capacity].run];
    const size_t element = zoff_adam_dtype_bytes(l->model->params[run->param].dtype);
    size_t first;
    const size_t count = zoff_lending_group_share(l, l->plan, run, l->plan->rank, &first);
    if (!count)
        return (share){.bytes = 0};
    return (share){.at = (first - run->first) * element,
                   .bytes = count * element,
                   .chunk = run->bucket,
                   .offset = l->source->offset(l, (size_t)(run - l->plan->runs), first)};
}

/* ---- host memory: the place of the slice ---- */

static zoff_status place_begin(zoff_lending *l, size_t item, unsigned slot, char *at, char **out)
{
    const share own = share_of(l, item);
    char *base;
    *out = at;
    if (l->cache.assembly.has_own[slot] || !own.bytes)
        return ZOFF_OK;
    ZOFF_TRY_DONE(l->home->try_to_borrow(l, own.chunk, &base));
    memcpy(at + own.at, base + own.offset, own.bytes);
    l->cache.assembly.has_own[slot] = true;
    return zoff_lending_held_done(l, own.chunk);
}

static zoff_status place_end(zoff_lending *l, unsigned slot, char *at, size_t bytes)
{
    return ZOFF_OK;
}

const zoff_part_landing zoff_lending_landings_place = {.name = "place", .begin = place_begin, .end = place_end};

/* ---- events of a slot ---- */

static zoff_status mark(zoff_lending *l, unsigned slot)
{
    ZOFF_TRY(zoff_lending_copies_record(l, &l->there.landed[slot]));
    l->there.lands[slot] = true;
    return ZOFF_OK;
}

static zoff_status poll(zoff_lending *l, unsigned slot)
{
    const zoff_status status = l->there.lands[slot] ? l->accel->ops->event_poll(l->accel, l->there.landed[slot]) : ZOFF_OK;
    l->there.lands[slot] = l->there.lands[slot] && status != ZOFF_OK;
    return status;
}

/* ---- slots of host memory ---- */

/* Weights that are stored on the device come down; others are copied by the CPU. */
static zoff_status bring_share(zoff_lending *l, const share *own, char *to, unsigned slot)
{
    char *base;
    ZOFF_TRY_DONE(l->home->try_to_borrow(l, own->chunk, &base));
    if (!l->home->is_there) {
        memcpy(to, base + own->offset, own->bytes);
        return zoff_lending_held_done(l, own->chunk);
    }
    ZOFF_TRY(zoff_lending_copies_down(l, to, base + own->offset, own->bytes));
    return mark(l, slot);
}

static zoff_status bounce_begin(zoff_lending *l, size_t item, unsigned slot, char *at, char **out)
{
    const share own = share_of(l, item);
    char *parts = (char *)l->there.bounce.base + slot * l->there.bounce_bytes;
    *out = parts;
    if (!l->cache.assembly.has_own[slot] && own.bytes) {
        ZOFF_TRY_DONE(bring_share(l, &own, parts + own.at, slot));
        l->cache.assembly.has_own[slot] = true;
    }
    return poll(l, slot);
}

static zoff_status bounce_end(zoff_lending *l, unsigned slot, char *at, size_t bytes)
{
    if (!l->there.lands[slot]) {
        ZOFF_TRY(zoff_lending_copies_up(l, at, (char *)l->there.bounce.base + slot * l->there.bounce_bytes, bytes));
        ZOFF_TRY(mark(l, slot));
    }
    return poll(l, slot);
}

const zoff_part_landing zoff_lending_landings_bounce = {.name = "bounce", .begin = bounce_begin, .end = bounce_end};

size_t zoff_lending_landings_most(const zoff_lending *l, const zoff_plan *plan)
{
    size_t most = 0;
    for (size_t i = 0; i < plan->run_count; i++) {
        const zoff_model_param *p = &l->model->params[plan->runs[i].param];
        if (p->engine_owned)
            most = zoff_base_bits_max(most, plan->runs[i].count * zoff_adam_dtype_bytes(p->dtype));
    }
    return zoff_base_bits_align(most, 64);
}

/* ---- device memory that the communicator reaches ---- */

static zoff_status put_share(zoff_lending *l, const share *own, char *at, unsigned slot)
{
    char *base;
    if (own->bytes) {
        ZOFF_TRY_DONE(l->home->try_to_borrow(l, own->chunk, &base));
        ZOFF_TRY(l->place->put(l, at + own->at, base + own->offset, own->bytes));
        ZOFF_TRY(zoff_lending_held_mark(l, own->chunk));
    }
    return mark(l, slot);
}

/* A rank without a share of its own waits, too, for the work that read what was there before. */
static zoff_status reached_begin(zoff_lending *l, size_t item, unsigned slot, char *at, char **out)
{
    *out = at;
    if (!l->cache.assembly.has_own[slot]) {
        const share own = share_of(l, item);
        ZOFF_TRY_DONE(put_share(l, &own, at, slot));
        l->cache.assembly.has_own[slot] = true;
    }
    return poll(l, slot);
}

const zoff_part_landing zoff_lending_landings_reached = {.name = "reached", .begin = reached_begin, .end = place_end};
