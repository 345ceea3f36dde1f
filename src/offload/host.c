/* SPDX-License-Identifier: Apache-2.0 */
/* host.c: the tier that holds all chunks in DRAM, in one mapping. Borrowing costs nothing. A chunk moves only when its second
 * content is adopted: then its memory and a spare change roles. */
#include "tier.h"

#include "bits.h"
#include "mem.h"
#include "try.h"

#include <string.h>

typedef struct host_place {
    char *base;
    char *second; /* memory of its second content; NULL: there is none */
    bool is_put;  /* the second content is complete */
    bool is_full; /* the memory has room for any chunk, so it can be a spare */
} host_place;

typedef struct host_store {
    zoff_store store;
    host_place *places;
    zoff_store_chunk *chunks; /* chunks, with all ends set */
    size_t chunk_count;
} host_store;

static size_t largest_of(const zoff_store_opts *opts)
{
    size_t largest = 0;
    for (size_t i = 0; i < opts->chunk_count; i++)
        largest = zoff_base_bits_max(largest, opts->chunks[i].bytes);
    return largest;
}

static size_t room_of(const zoff_store_opts *opts, size_t bytes, size_t largest)
{
    return opts->has_seconds ? zoff_offload_placement_room(bytes, largest) : bytes;
}

static zoff_status host_find(const zoff_store_opts *opts, zoff_store **out, zoff_store_found *out_found)
{
    zoff_status status;
    host_store *h;
    const size_t largest = largest_of(opts);
    size_t total = 0;
    ZOFF_TRY(zoff_base_mem_alloc(1, sizeof *h, "the host tier", &h));
    h->store.ops = &zoff_offload_host_ops;
    h->store.has_seconds = opts->has_seconds;
    h->chunk_count = opts->chunk_count;
    ZOFF_TRY_OR(free_store, zoff_base_mem_alloc(opts->chunk_count, sizeof *h->places, "the host tier's table", &h->places));
    ZOFF_TRY_OR(free_store, zoff_base_mem_alloc(opts->chunk_count, sizeof *h->chunks, "the host tier's table", &h->chunks));
    for (size_t i = 0; i < opts->chunk_count; i++) {
        h->chunks[i] = opts->chunks[i];
        zoff_offload_store_complete_ends(&h->chunks[i]);
        total += room_of(opts, opts->chunks[i].bytes, largest);
    }
    if (opts->has_seconds)
        ZOFF_TRY_OR(free_store, zoff_offload_spares_open(&h->store.spares, zoff_base_bits_min(opts->spares, opts->chunk_count),
                                                         largest, ZOFF_MAP_FIRST_TOUCH, opts->threads));
    /* Pages belong to the node of the thread that touches them first. fill() touches them with the shares of the update. */
    ZOFF_TRY_OR(free_store,
                zoff_base_map_alloc(total, opts->what ? opts->what : "the chunks", ZOFF_MAP_FIRST_TOUCH, &h->store.map));
    char *next = h->store.map.base;
    for (size_t i = 0; i < opts->chunk_count; i++) {
        const size_t room = room_of(opts, opts->chunks[i].bytes, largest);
        h->places[i] = (host_place){.base = next, .is_full = room == largest};
        opts->fill(opts->fill_ctx, i, next);
        next += room;
    }
    *out = &h->store;
    return ZOFF_OK;
free_store:
    zoff_offload_store_close(&h->store);
    return status;
}

static void host_close(zoff_store *store)
{
    host_store *h = (host_store *)store;
    zoff_base_map_free(&h->store.map);
    zoff_offload_spares_close(&h->store.spares, true);
    zoff_base_mem_free(h->places);
    zoff_base_mem_free(h->chunks);
    zoff_base_mem_free(h);
}

static zoff_status host_claim(zoff_store *store, size_t chunk, void **out)
{
    *out = ((host_store *)store)->places[chunk].base;
    return ZOFF_OK;
}

static zoff_status host_fetch(zoff_store *store, size_t chunk, unsigned arrays, void **out)
{
    return host_claim(store, chunk, out);
}

/* ---- second contents ---- */

static zoff_status host_second(zoff_store *store, size_t chunk, void **out)
{
    host_place *place = &((host_store *)store)->places[chunk];
    ZOFF_FAIL_IF(place->second, ZOFF_ERR_STATE,
                 "chunk %zu has a second content already; this is a defect of the library, please report it", chunk);
    place->second = zoff_offload_spares_take(&store->spares);
    if (!place->second)
        return ZOFF_PENDING;
    place->is_put = false;
    store->undecided++;
    *out = place->second;
    return ZOFF_OK;
}

static zoff_status host_put(zoff_store *store, size_t chunk)
{
    host_place *place = &((host_store *)store)->places[chunk];
    ZOFF_FAIL_IF(!place->second || place->is_put, ZOFF_ERR_STATE,
                 "chunk %zu is put and has no second content that is borrowed; this is a defect of the library, please report "
                 "it",
                 chunk);
    place->is_put = true;
    return ZOFF_OK;
}

static void decide(zoff_store *store, host_place *place, char *unused)
{
    zoff_offload_spares_give(&store->spares, unused);
    place->second = NULL;
    store->undecided--;
}

/* Spares must stay large enough for any chunk. So a small chunk stays where it is. */
static void host_adopt(zoff_store *store, size_t chunk)
{
    host_store *h = (host_store *)store;
    host_place *place = &h->places[chunk];
    if (!place->second)
        return;
    char *unused = place->is_full ? place->base : place->second;
    if (place->is_full)
        place->base = place->second;
    else
        memcpy(place->base, place->second, h->chunks[chunk].bytes);
    decide(store, place, unused);
}

static zoff_status host_discard(zoff_store *store, size_t chunk)
{
    host_place *place = &((host_store *)store)->places[chunk];
    if (place->second)
        decide(store, place, place->second);
    return ZOFF_OK;
}

static void host_release(zoff_store *store, size_t chunk)
{
    if (!((host_store *)store)->places[chunk].is_put)
        (void)host_discard(store, chunk);
}

static zoff_status host_rollback(zoff_store *store)
{
    for (size_t chunk = 0; chunk < ((host_store *)store)->chunk_count; chunk++)
        (void)host_discard(store, chunk);
    return ZOFF_OK;
}

static zoff_status host_source(const zoff_store *store, size_t chunk, unsigned array, zoff_store_source *out)
{
    const host_store *h = (const host_store *)store;
    const size_t begin = array ? h->chunks[chunk].ends[array - 1] : 0, end = h->chunks[chunk].ends[array];
    *out = (zoff_store_source){
        .memory = h->places[chunk].base + begin, .fd = -1, .begin = begin, .bytes = end - begin, .written = end - begin};
    return ZOFF_OK;
}

/* Chunks in DRAM are never written, compared or in flight. */
const zoff_store_ops zoff_offload_host_ops = {
    .opening = {.find = host_find},
    .close = host_close,
    .fetch = host_fetch,
    .claim = host_claim,
    .release = host_release,
    .commits = {.rollback = host_rollback},
    .seconds = {.begin = host_second, .put = host_put, .adopt = host_adopt, .discard = host_discard},
    .source = host_source};
