/* SPDX-License-Identifier: Apache-2.0 */
/* broker.c: the only giver of slots. A step, a pass over the states, a fetch of weights and an update ahead of its step all
 * need memory for chunks, and a store of files has only a few slots for them. Before one place decided, four rules did, and two
 * callers could each hold the slot that the other waited for.
 *
 * A caller describes what it needs as a demand: one chunk of one store, or the same chunk of two, such as the states and the
 * weights of a bucket. A slot is one of:
 *
 *      free
 *      granted     to a demand, which reads, changes or copies
 *      clean       equal to its file: read ahead, or given back and left there because somebody may want it again
 *      deferred    newer than its file: its write was put off
 *      reading, writing
 *      failed      a write has failed, and the slot keeps its bytes and the error
 *
 * Five invariants make a demand that waits come to an end:
 *
 * 1. All at once: a demand gets a place in every store or in none, and a granted one asks for nothing more. So nobody holds a
 *    slot while it waits for another, and a granted slot becomes free by computing or copying alone.
 * 2. Clean slots are taken back, the least recently used first. So what was read ahead never keeps a demand waiting, but for
 *    the time of a read that is in flight.
 * 3. Who waits clears the way: it writes the oldest deferred slot. If its own chunk has failed, or only failed slots are left,
 *    it starts that write again, once. A second failure ends the demand with the error, and the slot keeps both.
 * 4. A fetch of weights comes first: while one waits, the others leave a place of its store to it. So a program that waits for
 *    weights is not behind all buckets of an open step. Otherwise the order of grants is the order of asking. The walk asks in
 *    its own order, which is the same on all ranks, because a bucket may keep its memory until all ranks have sent theirs.
 * 5. An honest PENDING: while the memory of a wanted store is granted, reading or writing. Otherwise ask grants, or returns an
 *    error that says what is in the slots, because a wait would never end.
 *
 * tests/model/broker_model_test.cc explores all interleavings of these rules with one and two slots. Without the first, second
 * or third there are states from which a demand cannot end. */
#include "tier.h"

#include "try.h"

#include <string.h>

static bool is_missing(const zoff_demand_part *part)
{
    return part->store && !part->base && !part->done;
}

/* Other demands than the fetch that waits leave it a place. */
static unsigned reserved(const zoff_demand *d, const zoff_store *store)
{
    return store->first && store->first != d;
}

static bool has_places(const zoff_demand *d)
{
    for (unsigned i = 0; i < ZOFF_DEMAND_PARTS; i++) {
        const zoff_demand_part *part = &d->part[i];
        if (is_missing(part) && part->store->ops->has_place &&
            !part->store->ops->has_place(part->store, d->chunk, reserved(d, part->store)))
            return false;
    }
    return true;
}

/* ---- who comes first ---- */

static void stand_first(zoff_demand *d)
{
    for (unsigned i = 0; i < ZOFF_DEMAND_PARTS && d->kind == ZOFF_DEMAND_LEND; i++) {
        if (is_missing(&d->part[i]) && !d->part[i].store->first)
            d->part[i].store->first = d;
    }
}

static void step_back(zoff_demand *d)
{
    for (unsigned i = 0; i < ZOFF_DEMAND_PARTS; i++) {
        if (d->part[i].store && d->part[i].store->first == d)
            d->part[i].store->first = NULL;
    }
}

/* ---- asking ---- */

/* A demand that finds no place. */
static zoff_status wait_for_places(zoff_demand *d)
{
    if (d->kind == ZOFF_DEMAND_AHEAD)
        return ZOFF_PENDING;
    stand_first(d);
    for (unsigned i = 0; i < ZOFF_DEMAND_PARTS; i++) {
        zoff_demand_part *part = &d->part[i];
        if (!is_missing(part) || !part->store->ops->has_place || part->store->ops->has_place(part->store, d->chunk, 0))
            continue;
        ZOFF_TRY(part->store->ops->clear(part->store, d->chunk, &part->has_repeated));
    }
    return ZOFF_PENDING;
}

static zoff_status bring(const zoff_demand *d, zoff_demand_part *part)
{
    void *base;
    const zoff_store_ops *ops = part->store->ops;
    ZOFF_TRY_DONE(part->overwrites ? ops->claim(part->store, d->chunk, &base)
                                   : ops->fetch(part->store, d->chunk, part->arrays, &base));
    part->base = base; /* the memory counts even if the checksum is wrong, because withdraw then gives it back */
    return ZOFF_OF_TIER(part->store, check, part->store, d->chunk);
}

static zoff_status bring_all(zoff_demand *d)
{
    zoff_status status = ZOFF_OK;
    for (unsigned i = 0; i < ZOFF_DEMAND_PARTS; i++) {
        if (!is_missing(&d->part[i]))
            continue;
        const zoff_status one = bring(d, &d->part[i]);
        if (one < 0)
            return one;
        status = one == ZOFF_PENDING ? one : status;
    }
    return status;
}

zoff_status zoff_offload_broker_ask(zoff_demand *d)
{
    zoff_status status;
    if (!d->is_granted && !has_places(d)) {
        status = wait_for_places(d);
    } else {
        step_back(d);
        d->is_granted = true;
        status = bring_all(d);
    }
    if (status >= 0)
        return status;
    ZOFF_KEEP_ERROR(zoff_offload_broker_withdraw(d));
    return status;
}

/* ---- giving back ---- */

/* The demand has nothing more of this part. */
static void end(zoff_demand *d, zoff_demand_part *part)
{
    bool has_more = false;
    part->base = NULL;
    part->done = true;
    for (unsigned i = 0; i < ZOFF_DEMAND_PARTS; i++)
        has_more = has_more || is_missing(&d->part[i]) || d->part[i].base;
    d->is_granted = has_more && d->is_granted;
}

zoff_status zoff_offload_broker_give(zoff_demand *d, zoff_demand_part *part, unsigned changed, bool may_wait)
{
    if (!part->base)
        return ZOFF_OK;
    end(d, part);
    if (!changed && part->overwrites) /* the content of this memory is not that of the store */
        part->store->ops->release(part->store, d->chunk);
    else if (!changed || may_wait)
        return ZOFF_OF_TIER(part->store, keep, part->store, d->chunk, changed);
    return changed ? ZOFF_OF_TIER(part->store, flush, part->store, d->chunk) : ZOFF_OK;
}

zoff_status zoff_offload_broker_put(zoff_demand *d, zoff_demand_part *part)
{
    ZOFF_FAIL_IF(!part->store->undecided, ZOFF_ERR_STATE,
                 "chunk %zu is put and has no second content; this is a defect of the library, please report it", d->chunk);
    end(d, part);
    return part->store->ops->seconds.put(part->store, d->chunk);
}

void zoff_offload_broker_withdraw(zoff_demand *d)
{
    step_back(d);
    for (unsigned i = 0; i < ZOFF_DEMAND_PARTS; i++) {
        zoff_demand_part *part = &d->part[i];
        if (d->is_granted && part->store && !part->done)
            part->store->ops->release(part->store, d->chunk);
        part->base = NULL;
        part->has_repeated = false;
    }
    d->is_granted = false;
}

/* ---- reading ahead ---- */

/* A read that nobody waits for must not take the place of a demand that waits. */
void zoff_offload_broker_hint(zoff_store *store, const size_t *chunks, const unsigned *arrays, size_t count)
{
    if (!store->first && store->ops->hint)
        store->ops->hint(store, chunks, arrays, count);
}
