/* shards.c: the store of weights that stay in the memory of a device. The CPU updates and reads chunks in slots of pinned host
 * memory. A chunk is copied down when it is borrowed to be read, and up when it is flushed:
 *
 *      FREE -- fetch: copy down -- COMES -- LENT -- flush: copy up -- GOES -- FREE
 *           `- claim, nothing is copied ---------'  `- release ------------- FREE
 *
 * All copies are in the stream of the lending, so copies of slices follow them in order. A copy up that the device has refused
 * leaves the chunk UNSENT in its slot, until it is retried or borrowed again. */
#include "lending.h"

#include "tier.h"
#include "try.h"
#include "words.h"

#include <string.h>

typedef enum slot_state { FREE, COMES, LENT, GOES, UNSENT } slot_state;

typedef struct shard_slot {
    slot_state state;
    bool is_new;      /* the device does not have this content yet, and no copy is enqueued */
    bool is_unmarked; /* the event is not recorded behind the latest copy: the device refused it */
    size_t chunk;
    char *base;
    void *moved; /* event behind its latest copy */
} shard_slot;

typedef struct shards {
    zoff_store store; /* its map: the slots */
    zoff_lending *lending;
    char *there;     /* device memory */
    size_t *offsets; /* by chunk */
    size_t *bytes;   /* by chunk */
    shard_slot *slots;
    unsigned slot_count;
} shards;

static shards *of(zoff_store *store)
{
    return (shards *)store;
}

char *zoff_lending_shards_there(const zoff_store *store, size_t chunk)
{
    const shards *s = (const shards *)store;
    return s->there + s->offsets[chunk];
}

static zoff_accel *accel_of(const shards *s)
{
    return s->lending->accel;
}

/* ---- slots ---- */

static zoff_status mark(shards *s, shard_slot *slot)
{
    slot->is_unmarked = true;
    ZOFF_TRY(zoff_lending_copies_record(s->lending, &slot->moved));
    slot->is_unmarked = false;
    return ZOFF_OK;
}

/* Find out whether the copy of a slot is done.  @return PENDING */
static zoff_status poll(shards *s, shard_slot *slot)
{
    if (slot->is_unmarked)
        ZOFF_TRY(mark(s, slot));
    const zoff_status status = slot->moved ? accel_of(s)->ops->event_poll(accel_of(s), slot->moved) : ZOFF_OK;
    if (status == ZOFF_OK && slot->state == GOES) {
        slot->state = FREE;
        zoff_base_progress_moved(s->lending->progress); /* one who asked before this may ask again, and nothing is in flight */
    }
    return status;
}

static shard_slot *slot_of(shards *s, size_t chunk)
{
    for (unsigned i = 0; i < s->slot_count; i++) {
        if (s->slots[i].state != FREE && s->slots[i].chunk == chunk)
            return &s->slots[i];
    }
    return NULL;
}

/* @return PENDING: all are in use */
static zoff_status find_free(shards *s, size_t chunk, shard_slot **out)
{
    for (unsigned i = 0; i < s->slot_count; i++) {
        shard_slot *slot = &s->slots[i];
        if (slot->state == GOES)
            ZOFF_TRY(poll(s, slot) == ZOFF_ERR_DEVICE ? ZOFF_ERR_DEVICE : ZOFF_OK);
        if (slot->state != FREE)
            continue;
        slot->chunk = chunk;
        *out = slot;
        return ZOFF_OK;
    }
    return ZOFF_PENDING;
}

static zoff_status lend(shard_slot *slot, void **out)
{
    slot->state = LENT;
    *out = slot->base;
    return ZOFF_OK;
}

static zoff_status shards_claim(zoff_store *store, size_t chunk, void **out)
{
    shards *s = of(store);
    shard_slot *slot = slot_of(s, chunk);
    zoff_status status = slot ? poll(s, slot) : ZOFF_OK;
    if (status == ZOFF_OK && (!slot || slot->state == FREE))
        status = find_free(s, chunk, &slot);
    return status == ZOFF_OK ? lend(slot, out) : status;
}

/* A chunk that goes up is still in its slot. After an error its copy down may be in flight: the slot is not free before. */
static zoff_status shards_fetch(zoff_store *store, size_t chunk, unsigned arrays, void **out)
{
    shards *s = of(store);
    shard_slot *slot = slot_of(s, chunk);
    (void)arrays;
    if (slot) {
        const zoff_status status = poll(s, slot);
        return status == ZOFF_OK ? lend(slot, out) : status;
    }
    const zoff_status status = find_free(s, chunk, &slot);
    if (status != ZOFF_OK)
        return status;
    ZOFF_TRY(zoff_lending_copies_down(s->lending, slot->base, zoff_lending_shards_there(store, chunk), s->bytes[chunk]));
    slot->state = COMES;
    ZOFF_TRY(mark(s, slot));
    return ZOFF_PENDING;
}

static zoff_status shards_nothing(zoff_store *store, size_t chunk)
{
    (void)store;
    (void)chunk;
    return ZOFF_OK;
}

static zoff_status send(shards *s, shard_slot *slot)
{
    slot->state = UNSENT;
    slot->is_new = true;
    ZOFF_TRY(zoff_lending_copies_up(s->lending, zoff_lending_shards_there(&s->store, slot->chunk), slot->base,
                                    s->bytes[slot->chunk]));
    ZOFF_TRY(mark(s, slot));
    slot->state = GOES;
    slot->is_new = false;
    return ZOFF_OK;
}

static zoff_status shards_flush(zoff_store *store, size_t chunk)
{
    return send(of(store), slot_of(of(store), chunk));
}

/* A copy down may be in flight: the slot is free when it is done. */
static void shards_release(zoff_store *store, size_t chunk)
{
    shard_slot *slot = slot_of(of(store), chunk);
    if (slot && slot->state == COMES)
        slot->state = GOES;
    else if (slot && slot->state == LENT)
        slot->state = slot->is_new ? UNSENT : FREE;
}

static zoff_status shards_keep(zoff_store *store, size_t chunk, unsigned changed)
{
    if (changed)
        return shards_flush(store, chunk);
    shards_release(store, chunk);
    return ZOFF_OK;
}

/* ---- what is in flight ---- */

static zoff_status shards_settled(const zoff_store *store)
{
    const shards *s = (const shards *)store;
    for (unsigned i = 0; i < s->slot_count; i++)
        ZOFF_FAIL_IF(s->slots[i].state == UNSENT, ZOFF_ERR_DEVICE,
                     "weights could not be copied to accelerator \"%s\": retry, or destroy the engine",
                     zoff_accel_name(s->lending->accel));
    return ZOFF_OK;
}

static zoff_status shards_retry(zoff_store *store)
{
    shards *s = of(store);
    for (unsigned i = 0; i < s->slot_count; i++) {
        if (s->slots[i].state == UNSENT)
            ZOFF_TRY(send(s, &s->slots[i]));
    }
    return ZOFF_OK;
}

static zoff_status shards_pump(zoff_store *store)
{
    shards *s = of(store);
    for (unsigned i = 0; i < s->slot_count; i++) {
        if (s->slots[i].state == GOES && poll(s, &s->slots[i]) == ZOFF_ERR_DEVICE)
            return ZOFF_ERR_DEVICE;
    }
    return ZOFF_OK;
}

static bool shards_busy(const zoff_store *store, bool writes_only)
{
    const shards *s = (const shards *)store;
    for (unsigned i = 0; i < s->slot_count; i++) {
        if (s->slots[i].state == GOES || (!writes_only && s->slots[i].state == COMES))
            return true;
    }
    return false;
}

static zoff_status all_gone(void *ctx)
{
    zoff_store *store = ctx;
    ZOFF_TRY(shards_pump(store));
    return shards_busy(store, true) ? ZOFF_PENDING : shards_settled(store);
}

static zoff_status shards_drain(zoff_store *store)
{
    return zoff_base_progress_wait(of(store)->lending->progress, of(store)->lending->pollers.device, all_gone, store);
}

/* ---- places for demands ---- */

/* An error of the device is that of the fetch. */
static bool shards_has_place(zoff_store *store, size_t chunk, unsigned reserved)
{
    shards *s = of(store);
    const shard_slot *own = slot_of(s, chunk);
    unsigned count = own != NULL;
    if (own && own->state == LENT)
        return false;
    for (unsigned i = 0; i < s->slot_count; i++) {
        shard_slot *slot = &s->slots[i];
        const bool fails = slot->state == GOES && poll(s, slot) < 0;
        count += slot != own && (slot->state == FREE || fails);
    }
    return count > reserved;
}

/* Copies end by themselves. A chunk that the device has refused keeps its slot until it is sent. */
static zoff_status shards_clear(zoff_store *store, size_t chunk, bool *repeated)
{
    shards *s = of(store);
    (void)chunk;
    for (unsigned i = 0; i < s->slot_count; i++) {
        if (s->slots[i].state != UNSENT)
            return ZOFF_PENDING;
    }
    if (*repeated)
        return shards_settled(store);
    *repeated = true;
    ZOFF_TRY(shards_retry(store));
    return ZOFF_PENDING;
}

static zoff_status shards_idle(zoff_store *store)
{
    (void)store;
    return ZOFF_OK;
}

static void shards_confirm(zoff_store *store, int64_t t)
{
    store->t = t;
}

static bool shards_resident(const zoff_store *store, size_t chunk)
{
    (void)store;
    (void)chunk;
    return false;
}

static zoff_status shards_source(const zoff_store *store, size_t chunk, unsigned array, zoff_store_source *out)
{
    (void)store;
    (void)chunk;
    (void)array;
    (void)out;
    return zoff_base_status_fail(ZOFF_ERR_UNSUPPORTED, "weights on a device are read by borrowing their chunk");
}

/* ---- opening ---- */

static void shards_close(zoff_store *store)
{
    shards *s = of(store);
    zoff_accel *accel = accel_of(s);
    for (unsigned i = 0; i < s->slot_count; i++) {
        if (s->slots[i].moved)
            accel->ops->event_close(accel, s->slots[i].moved);
    }
    if (s->there)
        accel->ops->free(accel, s->there);
    zoff_base_map_free(&s->store.map);
    zoff_base_mem_free(s->offsets);
    zoff_base_mem_free(s->bytes);
    zoff_base_mem_free(s->slots);
    zoff_base_mem_free(s);
}

static const zoff_store_ops OPS = {
    .close = shards_close,
    .has_place = shards_has_place,
    .clear = shards_clear,
    .fetch = shards_fetch,
    .claim = shards_claim,
    .check = shards_nothing,
    .flush = shards_flush,
    .keep = shards_keep,
    .release = shards_release,
    .pump = shards_pump,
    .wait = shards_idle,
    .drain = shards_drain,
    .busy = shards_busy,
    .commits = {.settled = shards_settled, .confirm = shards_confirm, .rollback = shards_idle, .retry = shards_retry},
    .resident = shards_resident,
    .source = shards_source};

static zoff_status reserve(shards *s, const zoff_store_opts *opts, zoff_lending_pinned which)
{
    size_t total = 0, most = 0;
    void *there = NULL;
    for (size_t i = 0; i < opts->chunk_count; i++) {
        s->offsets[i] = total;
        s->bytes[i] = opts->chunks[i].bytes;
        total += s->bytes[i];
        most = s->bytes[i] > most ? s->bytes[i] : most;
    }
    const zoff_status status = total ? accel_of(s)->ops->alloc(accel_of(s), total, &there) : ZOFF_OK;
    if (status < 0)
        return zoff_base_status_prefix(
            status, "weights that stay on the device, %s (offload_param can move them): ", zoff_base_words_bytes(total));
    s->there = there;
    if (!most)
        return ZOFF_OK;
    ZOFF_TRY(
        zoff_base_map_alloc(s->slot_count * most, "weights on their way to a device", ZOFF_MAP_INTERLEAVED, &s->store.map));
    for (unsigned i = 0; i < s->slot_count; i++)
        s->slots[i].base = (char *)s->store.map.base + i * most;
    return zoff_lending_copies_pin(s->lending, s->store.map.base, s->store.map.bytes, which);
}

/* Bring the first content of each chunk to the device. A chunk without bytes is filled all the same. */
static zoff_status fill_all(shards *s, const zoff_store_opts *opts)
{
    for (size_t i = 0; i < opts->chunk_count; i++) {
        void *base = NULL;
        if (!s->bytes[i]) {
            opts->fill(opts->fill_ctx, i, NULL);
            continue;
        }
        ZOFF_TRY(shards_drain(&s->store));
        ZOFF_TRY(shards_claim(&s->store, i, &base));
        memset(base, 0, s->bytes[i]);
        opts->fill(opts->fill_ctx, i, base);
        ZOFF_TRY(shards_flush(&s->store, i));
    }
    return shards_drain(&s->store);
}

zoff_status zoff_lending_shards_open(zoff_lending *l, const zoff_store_opts *opts, zoff_lending_pinned which, zoff_store **out)
{
    shards *s;
    ZOFF_TRY(zoff_base_mem_alloc(1, sizeof *s, "weights on a device", &s));
    s->store.ops = &OPS;
    s->lending = l;
    *out = &s->store;
    ZOFF_TRY(zoff_base_mem_alloc(opts->chunk_count, sizeof *s->offsets, "weights on a device", &s->offsets));
    ZOFF_TRY(zoff_base_mem_alloc(opts->chunk_count, sizeof *s->bytes, "weights on a device", &s->bytes));
    ZOFF_TRY(zoff_base_mem_alloc(l->slots, sizeof *s->slots, "weights on a device", &s->slots));
    s->slot_count = l->slots;
    ZOFF_TRY(reserve(s, opts, which));
    return fill_all(s, opts);
}
