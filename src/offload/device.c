/* SPDX-License-Identifier: Apache-2.0 */
/* device.c: the tier that holds all chunks in the memory of a device. The CPU reads and changes them in slots of host memory. A
 * chunk is copied down when it is borrowed to be read, and up when it is flushed:
 *
 *      FREE -- fetch: copy down -- COMES -- LENT -- flush: copy up -- GOES -- FREE
 *           `- claim, nothing is copied ---------'  `- release ------------- FREE
 *
 * All copies are in one stream of the owner, so that its own work there finds what was flushed before. A copy up that the
 * device has refused leaves the chunk UNSENT in its slot, until it is retried or borrowed again. */
#include "tier.h"

#include "accel.h"
#include "bits.h"
#include "mem.h"
#include "progress.h"
#include "words.h"

#include <string.h>

typedef enum slot_state { FREE, COMES, LENT, GOES, UNSENT } slot_state;

typedef struct device_slot {
    slot_state state;
    bool is_new;      /* the device does not have this content yet, and no copy is enqueued */
    bool is_unmarked; /* the event is not recorded behind the latest copy, because the device refused it */
    size_t chunk;
    char *base;
    void *moved; /* event behind the latest copy of the slot */
} device_slot;

typedef struct device_place {
    char *there; /* address of the chunk in device memory */
    size_t bytes;
} device_place;

typedef struct device_store {
    zoff_store store;      /* the store's map has the slots */
    zoff_store_link *link; /* the link may be gone when the store is closed */
    zoff_accel *accel;
    const char *what;
    void *memory; /* device memory of all chunks */
    device_place *places;
    device_slot *slots;
    unsigned slot_count;
} device_store;

static device_store *of(zoff_store *store)
{
    return (device_store *)store;
}

char *zoff_offload_device_there(const zoff_store *store, size_t chunk)
{
    return ((const device_store *)store)->places[chunk].there;
}

/* ---- slots ---- */

static zoff_status mark(device_store *d, device_slot *slot)
{
    slot->is_unmarked = true;
    if (!slot->moved)
        ZOFF_TRY(d->accel->ops->event_open(d->accel, &slot->moved));
    ZOFF_TRY(d->accel->ops->event_record(d->accel, slot->moved, d->link->stream));
    slot->is_unmarked = false;
    return ZOFF_OK;
}

/* Start the copy of the chunk in a slot. */
static zoff_status copy_slot(device_store *d, const device_slot *slot, bool up)
{
    const device_place *place = &d->places[slot->chunk];
    d->link->moves = true;
    ZOFF_TRY(d->accel->ops->copy(d->accel, d->link->stream, up ? place->there : slot->base, up ? slot->base : place->there,
                                 place->bytes));
    *(up ? &d->link->write_bytes : &d->link->read_bytes) += place->bytes;
    return ZOFF_OK;
}

/* Find out whether the copy of a slot is done.  @return PENDING */
static zoff_status poll(device_store *d, device_slot *slot)
{
    if (slot->is_unmarked)
        ZOFF_TRY(mark(d, slot));
    const zoff_status status = slot->moved ? d->accel->ops->event_poll(d->accel, slot->moved) : ZOFF_OK;
    if (status == ZOFF_OK && slot->state == GOES) {
        slot->state = FREE;
        /* a demand that was refused may ask again, although nothing is in flight */
        zoff_base_progress_moved(d->link->progress);
    }
    return status;
}

static device_slot *slot_of(device_store *d, size_t chunk)
{
    for (unsigned i = 0; i < d->slot_count; i++) {
        if (d->slots[i].state != FREE && d->slots[i].chunk == chunk)
            return &d->slots[i];
    }
    return NULL;
}

/* Find a free slot.  @return PENDING: all are in use */
static zoff_status find_free(device_store *d, size_t chunk, device_slot **out)
{
    for (unsigned i = 0; i < d->slot_count; i++) {
        device_slot *slot = &d->slots[i];
        if (slot->state == GOES)
            ZOFF_TRY(poll(d, slot) == ZOFF_ERR_DEVICE ? ZOFF_ERR_DEVICE : ZOFF_OK);
        if (slot->state != FREE)
            continue;
        slot->chunk = chunk;
        *out = slot;
        return ZOFF_OK;
    }
    return ZOFF_PENDING;
}

static zoff_status lend(device_slot *slot, void **out)
{
    slot->state = LENT;
    *out = slot->base;
    return ZOFF_OK;
}

static zoff_status device_claim(zoff_store *store, size_t chunk, void **out)
{
    device_store *d = of(store);
    device_slot *slot = slot_of(d, chunk);
    zoff_status status = slot ? poll(d, slot) : ZOFF_OK;
    if (status == ZOFF_OK && (!slot || slot->state == FREE))
        status = find_free(d, chunk, &slot);
    return status == ZOFF_OK ? lend(slot, out) : status;
}

/* A chunk that goes up is still in its slot. After an error the copy down may be in flight, so the slot is not free before it
 * ends. */
static zoff_status device_fetch(zoff_store *store, size_t chunk, unsigned arrays, void **out)
{
    device_store *d = of(store);
    device_slot *slot = slot_of(d, chunk);
    if (slot) {
        const zoff_status status = poll(d, slot);
        return status == ZOFF_OK ? lend(slot, out) : status;
    }
    ZOFF_TRY_DONE(find_free(d, chunk, &slot));
    ZOFF_TRY(copy_slot(d, slot, false));
    slot->state = COMES;
    ZOFF_TRY(mark(d, slot));
    return ZOFF_PENDING;
}

static zoff_status send(device_store *d, device_slot *slot)
{
    slot->state = UNSENT;
    slot->is_new = true;
    ZOFF_TRY(copy_slot(d, slot, true));
    ZOFF_TRY(mark(d, slot));
    slot->state = GOES;
    slot->is_new = false;
    return ZOFF_OK;
}

static zoff_status device_flush(zoff_store *store, size_t chunk)
{
    return send(of(store), slot_of(of(store), chunk));
}

/* A copy down may be in flight, so the slot is free when that copy is done. */
static void device_release(zoff_store *store, size_t chunk)
{
    device_slot *slot = slot_of(of(store), chunk);
    if (slot && slot->state == COMES)
        slot->state = GOES;
    else if (slot && slot->state == LENT)
        slot->state = slot->is_new ? UNSENT : FREE;
}

static zoff_status device_keep(zoff_store *store, size_t chunk, unsigned changed)
{
    if (changed)
        return device_flush(store, chunk);
    device_release(store, chunk);
    return ZOFF_OK;
}

/* ---- what is in flight ---- */

static zoff_status device_settled(const zoff_store *store)
{
    const device_store *d = (const device_store *)store;
    for (unsigned i = 0; i < d->slot_count; i++)
        ZOFF_FAIL_IF(d->slots[i].state == UNSENT, ZOFF_ERR_DEVICE,
                     "%s could not be copied to accelerator \"%s\": retry, or destroy the engine", d->what,
                     zoff_accel_name(d->accel));
    return ZOFF_OK;
}

static zoff_status device_retry(zoff_store *store)
{
    device_store *d = of(store);
    for (unsigned i = 0; i < d->slot_count; i++) {
        if (d->slots[i].state == UNSENT)
            ZOFF_TRY(send(d, &d->slots[i]));
    }
    return ZOFF_OK;
}

static zoff_status device_pump(zoff_store *store)
{
    device_store *d = of(store);
    for (unsigned i = 0; i < d->slot_count; i++) {
        if (d->slots[i].state == GOES && poll(d, &d->slots[i]) == ZOFF_ERR_DEVICE)
            return ZOFF_ERR_DEVICE;
    }
    return ZOFF_OK;
}

static bool device_busy(const zoff_store *store, bool writes_only)
{
    const device_store *d = (const device_store *)store;
    for (unsigned i = 0; i < d->slot_count; i++) {
        if (d->slots[i].state == GOES || (!writes_only && d->slots[i].state == COMES))
            return true;
    }
    return false;
}

static zoff_status wait_until(device_store *d, zoff_status (*until)(void *ctx), void *ctx)
{
    return zoff_base_progress_wait(d->link->progress, d->link->poller, until, ctx);
}

static zoff_status all_gone(void *ctx)
{
    zoff_store *store = ctx;
    ZOFF_TRY(device_pump(store));
    return device_busy(store, true) ? ZOFF_PENDING : device_settled(store);
}

static zoff_status device_drain(zoff_store *store)
{
    return wait_until(of(store), all_gone, store);
}

typedef struct copies_wait {
    device_store *d;
    unsigned before; /* copies in flight when the wait began; 0: not counted yet */
} copies_wait;

static zoff_status one_is_done(void *ctx)
{
    copies_wait *w = ctx;
    unsigned count = 0;
    bool is_done = false;
    for (unsigned i = 0; i < w->d->slot_count; i++) {
        device_slot *slot = &w->d->slots[i];
        const bool goes = slot->state == GOES;
        const zoff_status status = slot->state == COMES || goes ? poll(w->d, slot) : ZOFF_OK;
        if (status < 0)
            return status;
        count += status == ZOFF_PENDING;
        is_done = is_done || (goes && status == ZOFF_OK);
    }
    is_done = is_done || count < w->before || !count;
    w->before = count;
    return is_done ? ZOFF_OK : ZOFF_PENDING;
}

static zoff_status device_wait(zoff_store *store)
{
    return wait_until(of(store), one_is_done, &(copies_wait){.d = of(store)});
}

/* ---- places for demands ---- */

/* A slot whose device fails counts as a place, so that the fetch returns the error. */
static bool device_has_place(zoff_store *store, size_t chunk, unsigned reserved)
{
    device_store *d = of(store);
    const device_slot *own = slot_of(d, chunk);
    unsigned count = own != NULL;
    if (own && own->state == LENT)
        return false;
    for (unsigned i = 0; i < d->slot_count; i++) {
        device_slot *slot = &d->slots[i];
        const bool fails = slot->state == GOES && poll(d, slot) < 0;
        count += slot != own && (slot->state == FREE || fails);
    }
    return count > reserved;
}

/* Wait for copies, which end by themselves. A chunk that the device has refused keeps its slot until it is sent. */
static zoff_status device_clear(zoff_store *store, size_t chunk, bool *repeated)
{
    device_store *d = of(store);
    for (unsigned i = 0; i < d->slot_count; i++) {
        if (d->slots[i].state != UNSENT)
            return ZOFF_PENDING;
    }
    if (*repeated)
        return device_settled(store);
    *repeated = true;
    ZOFF_TRY(device_retry(store));
    return ZOFF_PENDING;
}

static zoff_status device_source(const zoff_store *store, size_t chunk, unsigned array, zoff_store_source *out)
{
    return zoff_base_status_fail(ZOFF_ERR_UNSUPPORTED, "what is stored on a device is read by borrowing its chunk");
}

/* ---- opening ---- */

static void device_close(zoff_store *store)
{
    device_store *d = of(store);
    for (unsigned i = 0; d->slots && i < d->slot_count; i++) {
        if (d->slots[i].moved)
            d->accel->ops->event_close(d->accel, d->slots[i].moved);
    }
    if (d->memory)
        d->accel->ops->free(d->accel, d->memory);
    zoff_base_map_free(&d->store.map);
    zoff_base_mem_free(d->places);
    zoff_base_mem_free(d->slots);
    zoff_base_mem_free(d);
}

static zoff_status reserve(device_store *d, const zoff_store_opts *opts)
{
    size_t total = 0, most = 0;
    for (size_t i = 0; i < opts->chunk_count; i++) {
        total += opts->chunks[i].bytes;
        most = zoff_base_bits_max(most, opts->chunks[i].bytes);
    }
    const zoff_status status = total ? d->accel->ops->alloc(d->accel, total, &d->memory) : ZOFF_OK;
    if (status < 0)
        return zoff_base_status_prefix(status, "%s that stay on the device, %s (%s): ", d->what, zoff_base_words_bytes(total),
                                       d->link->advice);
    char *next = d->memory;
    for (size_t i = 0; i < opts->chunk_count; i++) {
        d->places[i] = (device_place){.there = next, .bytes = opts->chunks[i].bytes};
        next = next ? next + d->places[i].bytes : NULL;
    }
    if (most)
        ZOFF_TRY(
            zoff_base_map_alloc(d->slot_count * most, "chunks on their way to a device", ZOFF_MAP_INTERLEAVED, &d->store.map));
    for (unsigned i = 0; most && i < d->slot_count; i++)
        d->slots[i].base = (char *)d->store.map.base + i * most;
    return ZOFF_OK;
}

static zoff_status device_find(const zoff_store_opts *opts, zoff_store **out, zoff_store_found *out_found)
{
    zoff_status status;
    device_store *d;
    ZOFF_TRY(zoff_base_mem_alloc(1, sizeof *d, "the device tier", &d));
    d->store.ops = &zoff_offload_device_ops;
    d->link = opts->link;
    d->accel = opts->link->accel;
    d->what = opts->what ? opts->what : "the chunks";
    d->slot_count = opts->slots;
    ZOFF_TRY_OR(free_store, zoff_base_mem_alloc(opts->chunk_count, sizeof *d->places, "the device tier's table", &d->places));
    ZOFF_TRY_OR(free_store, zoff_base_mem_alloc(d->slot_count, sizeof *d->slots, "the device tier's table", &d->slots));
    ZOFF_TRY_OR(free_store, reserve(d, opts));
    *out = &d->store;
    return ZOFF_OK;
free_store:
    zoff_offload_store_close(&d->store);
    return status;
}

/* Fill all chunks, also those without bytes. */
static zoff_status device_fill(zoff_store *store, const zoff_store_opts *opts)
{
    for (size_t i = 0; i < opts->chunk_count; i++) {
        const size_t bytes = of(store)->places[i].bytes;
        void *base = NULL;
        if (!bytes) {
            opts->fill(opts->fill_ctx, i, NULL);
            continue;
        }
        ZOFF_TRY(device_drain(store));
        ZOFF_TRY(device_claim(store, i, &base));
        memset(base, 0, bytes);
        opts->fill(opts->fill_ctx, i, base);
        ZOFF_TRY(device_flush(store, i));
    }
    return device_drain(store);
}

const zoff_store_ops zoff_offload_device_ops = {.opening = {.find = device_find, .fill = device_fill},
                                                .close = device_close,
                                                .has_place = device_has_place,
                                                .clear = device_clear,
                                                .fetch = device_fetch,
                                                .claim = device_claim,
                                                .flush = device_flush,
                                                .keep = device_keep,
                                                .release = device_release,
                                                .pump = device_pump,
                                                .wait = device_wait,
                                                .drain = device_drain,
                                                .busy = device_busy,
                                                .commits = {.settled = device_settled, .retry = device_retry},
                                                .source = device_source};
