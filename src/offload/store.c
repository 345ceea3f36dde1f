/* SPDX-License-Identifier: Apache-2.0 */
/* store.c: calls on a store of any tier. */
#include "tier.h"

#include "try.h"

#include <string.h>

/* If the store's user defines no arrays, a chunk is one array. */
void zoff_offload_store_complete_ends(zoff_store_chunk *chunk)
{
    if (chunk->ends[ZOFF_STORE_ARRAYS - 1])
        return;
    for (unsigned array = 0; array < ZOFF_STORE_ARRAYS; array++)
        chunk->ends[array] = chunk->bytes;
}

zoff_status zoff_offload_store_find(const zoff_store_opts *opts, zoff_store **out, zoff_store_found *out_found)
{
    const zoff_store_ops *of_tier = opts->tier == ZOFF_TIER_NVME ? &zoff_offload_swap_ops : &zoff_offload_host_ops;
    const zoff_store_ops *ops = opts->link ? &zoff_offload_device_ops : of_tier;
    *out_found = (zoff_store_found){.generation = 0};
    return ops->opening.find(opts, out, out_found);
}

zoff_status zoff_offload_store_verify(zoff_store *store, const zoff_store_opts *opts, uint64_t generation)
{
    return ZOFF_OF_TIER(store, opening.verify, store, opts, generation);
}

zoff_status zoff_offload_store_fill(zoff_store *store, const zoff_store_opts *opts)
{
    return ZOFF_OF_TIER(store, opening.fill, store, opts);
}

zoff_status zoff_offload_store_ready(zoff_store *store)
{
    if (!store->reopened)
        ZOFF_TRY(zoff_offload_store_commit(store, 0));
    const uint64_t lifetime = store->stats.lifetime_write_bytes;
    store->stats = (zoff_store_stats){.lifetime_write_bytes = lifetime};
    store->is_open = true;
    return ZOFF_OK;
}

void zoff_offload_store_close(zoff_store *store)
{
    if (!store)
        return;
    ZOFF_KEEP_ERROR(store->ops->close(store));
}

bool zoff_offload_store_wants_settle(const zoff_store *store)
{
    return store->wants_settle;
}

void zoff_offload_store_settle(zoff_store *store, size_t chunk, size_t from, size_t to)
{
    if (store->wants_settle)
        store->ops->settle(store, chunk, from, to);
}

zoff_status zoff_offload_store_second(zoff_store *store, size_t chunk, void **out)
{
    ZOFF_FAIL_IF(!store->has_seconds, ZOFF_ERR_STATE,
                 "chunk %zu cannot get a second content, because its store was opened without has_seconds; this is a defect of "
                 "the library, please report it",
                 chunk);
    return store->ops->seconds.begin(store, chunk, out);
}

void zoff_offload_store_adopt(zoff_store *store, size_t chunk)
{
    if (store->undecided)
        store->ops->seconds.adopt(store, chunk);
}

zoff_status zoff_offload_store_discard(zoff_store *store, size_t chunk)
{
    return store->undecided ? store->ops->seconds.discard(store, chunk) : ZOFF_OK;
}

bool zoff_offload_store_is_undecided(const zoff_store *store)
{
    return store->undecided;
}

zoff_status zoff_offload_store_pump(zoff_store *store)
{
    return ZOFF_OF_TIER(store, pump, store);
}

zoff_status zoff_offload_store_wait(zoff_store *store)
{
    return ZOFF_OF_TIER(store, wait, store);
}

zoff_status zoff_offload_store_drain(zoff_store *store)
{
    return ZOFF_OF_TIER(store, drain, store);
}

bool zoff_offload_store_busy(const zoff_store *store, bool writes_only)
{
    return store->ops->busy && store->ops->busy(store, writes_only);
}

zoff_status zoff_offload_store_record(zoff_store *store, int64_t t)
{
    ZOFF_FAIL_IF(
        store->undecided, ZOFF_ERR_STATE,
        "%zu chunk(s) have two contents while their states are to be recorded; this is a defect of the library, please "
        "report it",
        store->undecided);
    /* The only check of files before a record: nothing may be recorded that is not in them. */
    ZOFF_TRY(ZOFF_OF_TIER(store, commits.settled, store));
    return ZOFF_OF_TIER(store, commits.record, store, t);
}

void zoff_offload_store_confirm(zoff_store *store, int64_t t)
{
    store->t = t;
    if (store->ops->commits.confirm)
        store->ops->commits.confirm(store);
}

zoff_status zoff_offload_store_commit(zoff_store *store, int64_t t)
{
    ZOFF_TRY(zoff_offload_store_record(store, t));
    zoff_offload_store_confirm(store, t);
    return ZOFF_OK;
}

void zoff_offload_store_attach(zoff_store *store, const void *bytes, size_t count)
{
    if (store->attached && count)
        memcpy(store->attached, bytes, count);
    store->attached_count = store->attached ? count : 0;
}

const void *zoff_offload_store_attached(const zoff_store *store, size_t *out_count)
{
    *out_count = store->attached_count;
    return store->attached;
}

bool zoff_offload_store_is_in_doubt(const zoff_store *store)
{
    return store->unproven;
}

bool zoff_offload_store_can_rollback(const zoff_store *store)
{
    return store->can_rollback;
}

zoff_status zoff_offload_store_rollback(zoff_store *store)
{
    return ZOFF_OF_TIER(store, commits.rollback, store);
}

bool zoff_offload_store_reopened(const zoff_store *store, int64_t *out_t)
{
    *out_t = store->t;
    return store->reopened;
}

zoff_status zoff_offload_store_retry(zoff_store *store)
{
    return ZOFF_OF_TIER(store, commits.retry, store);
}

bool zoff_offload_store_resident(const zoff_store *store, size_t chunk)
{
    return store->ops->resident ? store->ops->resident(store, chunk) : !store->ops->has_place;
}

bool zoff_offload_store_overlaps(const zoff_store *store)
{
    return store->overlaps;
}

void zoff_offload_store_set_threads(zoff_store *store, unsigned threads)
{
    store->threads = threads;
}

void zoff_offload_store_stats(const zoff_store *store, zoff_store_stats *out)
{
    *out = store->stats;
}

uint64_t zoff_offload_store_huge_bytes(const zoff_store *store)
{
    return zoff_base_map_huge_bytes(&store->map) + zoff_base_map_huge_bytes(&store->spares.map);
}

void zoff_offload_store_memory(const zoff_store *store, const void **out_base, size_t *out_bytes)
{
    *out_base = store->map.base;
    *out_bytes = store->map.bytes;
}

zoff_status zoff_offload_store_source(const zoff_store *store, size_t chunk, unsigned array, zoff_store_source *out)
{
    return store->ops->source(store, chunk, array, out);
}
