/* held.c: chunks of weights that stay borrowed for a while, so that many small slices of one chunk need only one read. */
#include "lending.h"

#include "bits.h"
#include "try.h"

#include <string.h>

void zoff_lending_held_read_chunk_ahead(zoff_lending *l, size_t chunk)
{
    if (!l->cache.in_step)
        (void)zoff_offload_store_ahead(l->group.store, chunk); /* fetch reports errors */
}

void zoff_lending_held_read_ahead(zoff_lending *l, size_t piece, size_t count)
{
    size_t chunk = l->plan->pieces[piece].bucket;
    for (size_t done = 0; done < count; done += l->plan->pieces[piece++].count) {
        while (piece >= l->plan->chunks[chunk].first_piece + l->plan->chunks[chunk].piece_count)
            chunk++;
        zoff_lending_held_read_chunk_ahead(l, chunk);
    }
}

/* How many chunks stay borrowed. The other half of the slots is for prefetches. */
static unsigned held_most(const zoff_lending *l)
{
    return (unsigned)zoff_base_bits_min(zoff_base_bits_max(l->slots / 2, 1), ZOFF_HELD_MAX);
}

unsigned zoff_lending_held_kept(const zoff_lending *l, bool always)
{
    const bool keeps = always || l->cache.in_step;
    return keeps && l->store && l->home->holds && l->group.store == l->store ? held_most(l) : 0;
}

/* All slots hold other chunks, and no transfer is in flight. Chunks whose write has failed are written again. Prefetched ones
 * are dropped, but not those of an open step: it goes on with them. */
static zoff_status make_room(zoff_lending *l)
{
    if (!l->cache.in_step)
        zoff_offload_store_forget(l->group.store);
    return zoff_offload_store_retry(l->group.store);
}

/* In an open step one chunk at a time is read for slices: a read that nobody waits for would keep a slot from the step. */
static void await(zoff_lending *l, size_t chunk)
{
    zoff_param_cache *cache = &l->cache;
    if (cache->in_step && cache->awaited && cache->awaited != chunk + 1)
        zoff_offload_store_drop(l->group.store, cache->awaited - 1);
    cache->awaited = chunk + 1;
}

/* The error of a prefetch is dropped, because the chunk is read again. In an open step it may be that of a write. */
zoff_status zoff_lending_held_start_anew(zoff_lending *l)
{
    if (l->cache.in_step)
        return zoff_base_progress_take(l->pollers.reads);
    zoff_base_progress_forget(l->pollers.reads);
    return ZOFF_OK;
}

typedef struct chunk_wait {
    zoff_lending *lending;
    size_t chunk, piece, count;
    void *base;
} chunk_wait;

static zoff_status fetch_chunk(void *ctx)
{
    chunk_wait *w = ctx;
    zoff_lending *l = w->lending;
    const zoff_status status = zoff_offload_store_fetch(l->group.store, w->chunk, &w->base);
    if (status != ZOFF_PENDING)
        return status;
    zoff_lending_held_read_ahead(l, w->piece, w->count); /* read the following chunks meanwhile */
    ZOFF_TRY(l->go_on(l->ctx));
    if (zoff_offload_store_busy(l->group.store, false))
        return ZOFF_PENDING;
    ZOFF_TRY(make_room(l));
    return zoff_offload_store_fetch(l->group.store, w->chunk, &w->base); /* the slot of what was dropped */
}

static zoff_status borrow_chunk(zoff_lending *l, size_t chunk, size_t piece, size_t count, char **out)
{
    chunk_wait w = {.lending = l, .chunk = chunk, .piece = piece, .count = count};
    ZOFF_TRY(zoff_lending_held_start_anew(l));
    await(l, chunk);
    ZOFF_TRY(zoff_base_progress_wait(l->progress, l->pollers.reads, fetch_chunk, &w));
    l->cache.awaited = 0;
    ZOFF_TRY(zoff_offload_store_check(l->group.store, chunk));
    *out = w.base;
    return ZOFF_OK;
}

/* ---- releasing ---- */

/* Copies to a device may still read the chunk that was used least recently.  @return PENDING */
static zoff_status release_last(zoff_lending *l)
{
    zoff_param_cache *cache = &l->cache;
    const zoff_status status = l->place->is_read(l, &cache->held[cache->held_count - 1]);
    if (status == ZOFF_OK)
        zoff_offload_store_release(l->group.store, cache->held[--cache->held_count].chunk);
    return status;
}

static zoff_status try_to_release(void *ctx)
{
    return release_last(ctx);
}

/* A device that has failed runs no copies any more, so its error does not keep the chunk.  @return an error that ended the
 * wait while a copy may still read the chunk */
static zoff_status wait_and_release(zoff_lending *l)
{
    zoff_saved_error saved;
    zoff_param_cache *cache = &l->cache;
    const zoff_status status = zoff_base_progress_wait(l->progress, l->pollers.device, try_to_release, l);
    if (status == ZOFF_OK)
        return ZOFF_OK;
    zoff_base_status_save(&saved);
    const zoff_status now = release_last(l);
    zoff_base_status_restore(&saved);
    if (now == ZOFF_PENDING)
        return status;
    if (now < 0)
        zoff_offload_store_release(l->group.store, cache->held[--cache->held_count].chunk);
    return ZOFF_OK;
}

/* Put an entry in front; `at`: its present position, or the end. */
static void to_front(zoff_param_cache *cache, unsigned at, size_t chunk, char *base)
{
    const zoff_held_chunk entry = cache->held[at]; /* keeps the event */
    memmove(&cache->held[1], &cache->held[0], at * sizeof cache->held[0]);
    cache->held[0] = entry;
    cache->held[0].chunk = chunk;
    cache->held[0].base = base;
}

zoff_status zoff_lending_held_borrow(zoff_lending *l, size_t chunk, char **out)
{
    zoff_param_cache *cache = &l->cache;
    void *base;
    for (unsigned i = 0; i < cache->held_count; i++) {
        if (cache->held[i].chunk == chunk) {
            *out = cache->held[i].base;
            return ZOFF_OK;
        }
    }
    if (cache->held_count == held_most(l)) {
        const zoff_status status = release_last(l);
        if (status != ZOFF_OK)
            return status;
    }
    await(l, chunk);
    zoff_status status = zoff_offload_store_fetch(l->group.store, chunk, &base);
    if (status == ZOFF_PENDING && !zoff_offload_store_busy(l->group.store, false))
        ZOFF_TRY(make_room(l));
    if (status != ZOFF_OK)
        return status;
    cache->awaited = 0;
    ZOFF_TRY(zoff_offload_store_check(l->group.store, chunk));
    to_front(cache, cache->held_count++, chunk, base);
    *out = base;
    return ZOFF_OK;
}

zoff_status zoff_lending_held_hold(zoff_lending *l, size_t chunk, size_t piece, size_t count, char **out)
{
    zoff_param_cache *cache = &l->cache;
    unsigned i = 0;
    char *base;
    while (i < cache->held_count && cache->held[i].chunk != chunk)
        i++;
    if (i == cache->held_count) {
        if (cache->held_count == held_most(l))
            ZOFF_TRY(wait_and_release(l));
        i = cache->held_count; /* the new entry takes the place behind the last one */
        ZOFF_TRY(borrow_chunk(l, chunk, piece, count, &base));
        cache->held_count++;
    } else {
        base = cache->held[i].base;
    }
    to_front(cache, i, chunk, base);
    *out = base;
    return ZOFF_OK;
}

zoff_status zoff_lending_held_mark(zoff_lending *l, size_t chunk)
{
    zoff_param_cache *cache = &l->cache;
    for (unsigned i = 0; i < cache->held_count; i++) {
        if (cache->held[i].chunk == chunk)
            return l->place->read(l, &cache->held[i]);
    }
    return ZOFF_OK;
}

zoff_status zoff_lending_held_let_go(zoff_lending *l)
{
    while (l->cache.held_count)
        ZOFF_TRY(wait_and_release(l));
    if (l->group.store)
        zoff_offload_store_forget(l->group.store);
    l->cache.awaited = 0;
    return ZOFF_OK;
}
