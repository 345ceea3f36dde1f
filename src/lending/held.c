/* SPDX-License-Identifier: Apache-2.0 */
/* held.c: chunks of weights in files, borrowed while slices are copied from them. In host memory a copy is done when the call
 * returns, so the chunk goes back at once. It stays in its slot as a clean copy, and many small slices of one chunk need only
 * one read. Copies to a device are enqueued, so the chunk stays borrowed until the event behind them: otherwise the slot would
 * be filled anew while the device reads it. */
#include "lending.h"

#include "bits.h"
#include "try.h"

/* ---- reading ahead ---- */

enum { HINTS_MOST = 32 }; /* most chunks read ahead of one fetch, because more would not make a drive faster */

typedef struct hints {
    size_t chunks[HINTS_MOST], count;
} hints;

/* @return false: the list is full */
static bool add_hint(const zoff_lending *l, hints *list, size_t chunk)
{
    if (list->count && list->chunks[list->count - 1] == chunk)
        return true;
    if (list->count == HINTS_MOST || list->count == l->slots)
        return false;
    list->chunks[list->count++] = chunk;
    return true;
}

static bool add_hints(const zoff_lending *l, hints *list, size_t piece, size_t count)
{
    size_t chunk = l->plan->pieces[piece].bucket;
    for (size_t done = 0; done < count; done += l->plan->pieces[piece++].count) {
        while (piece >= l->plan->chunks[chunk].first_piece + l->plan->chunks[chunk].piece_count)
            chunk++;
        if (!add_hint(l, list, chunk))
            return false;
    }
    return true;
}

/* The buckets of an open step need the slots, so nothing is read ahead beside them. */
static void hint(const zoff_lending *l, const hints *list)
{
    if (!l->cache.in_step)
        zoff_offload_broker_hint(l->group.store, list->chunks, NULL, list->count);
}

void zoff_lending_held_read_ahead(zoff_lending *l, size_t piece, size_t count)
{
    hints list = {.count = 0};
    (void)add_hints(l, &list, piece, count);
    hint(l, &list);
}

void zoff_lending_held_read_slices_ahead(zoff_lending *l)
{
    const zoff_param_cache *cache = &l->cache;
    hints list = {.count = 0};
    uint64_t left = l->values->ahead_count;
    bool has_room = true;
    for (size_t i = cache->next; left && has_room && i < cache->before.count; i++) {
        const zoff_cached_slice *s = &cache->slices[cache->before.slices[i]];
        has_room = s->at || add_hints(l, &list, s->first_piece, s->count);
        left -= zoff_base_bits_min(left, s->count);
    }
    hint(l, &list);
}

void zoff_lending_held_read_parts_ahead(zoff_lending *l, size_t from)
{
    enum { FURTHEST = 8 };
    const zoff_assembly *a = &l->cache.assembly;
    hints list = {.count = 0};
    for (size_t i = from; i < zoff_base_bits_min(a->planned, from + FURTHEST); i++) {
        const zoff_plan_piece *run = &l->plan->runs[a->parts[i % a->capacity].run];
        size_t first;
        if (zoff_lending_group_share(l, l->plan, run, l->plan->rank, &first) && !add_hint(l, &list, run->bucket))
            break;
    }
    hint(l, &list);
}

/* ---- borrowing ---- */

/* The error of a prefetch is dropped, because the chunk is read again. In an open step it may be that of a write. */
static zoff_status start_anew(zoff_lending *l)
{
    if (l->cache.in_step)
        return zoff_base_progress_take(l->pollers.reads);
    zoff_base_progress_forget(l->pollers.reads);
    return ZOFF_OK;
}

/* How many chunks copies to a device may read at a time. Others are read from files meanwhile, or belong to a step. */
static unsigned held_most(const zoff_lending *l)
{
    return (unsigned)zoff_base_bits_min(zoff_base_bits_max(l->slots / 2, 1), ZOFF_HELD_MAX);
}

static zoff_held_chunk *find(zoff_lending *l, size_t chunk)
{
    for (unsigned i = 0; i < ZOFF_HELD_MAX; i++) {
        if (l->cache.held[i].is_used && l->cache.held[i].demand.chunk == chunk)
            return &l->cache.held[i];
    }
    return NULL;
}

static void give_back(zoff_held_chunk *held)
{
    /* the chunk is unchanged, so nothing can fail */
    (void)zoff_offload_broker_give(&held->demand, &held->demand.weights, 0, false);
    held->is_used = false;
}

/* Give the chunk back if no copy reads it any more.  @return PENDING; an error of the device, which may still read it */
static zoff_status release(zoff_lending *l, zoff_held_chunk *held)
{
    const zoff_status status = l->place->is_read(l, held);
    if (status == ZOFF_OK)
        give_back(held);
    return status;
}

zoff_status zoff_lending_held_poll(zoff_lending *l)
{
    zoff_status status = ZOFF_OK;
    for (unsigned i = 0; i < ZOFF_HELD_MAX; i++) {
        zoff_held_chunk *held = &l->cache.held[i];
        const zoff_status one = held->is_used && held->demand.weights.base ? release(l, held) : ZOFF_OK;
        status = status < 0 || one == ZOFF_OK ? status : one;
    }
    return status;
}

/* @return NULL: copies to the device read as many chunks as they may */
static zoff_held_chunk *find_unused(zoff_lending *l)
{
    zoff_held_chunk *unused = NULL;
    unsigned count = 0;
    for (unsigned i = 0; i < ZOFF_HELD_MAX; i++) {
        zoff_held_chunk *held = &l->cache.held[i];
        count += held->is_used;
        unused = held->is_used ? unused : held;
    }
    return count < held_most(l) ? unused : NULL;
}

static void withdraw(zoff_held_chunk *held)
{
    zoff_offload_broker_withdraw(&held->demand);
    held->is_used = false;
}

/* The demand of a call that waits comes before others in its store, and is asked again until it ends. A demand of a prefetch
 * may never be asked again, so it keeps no slot, and its read goes on as a read ahead. */
zoff_status zoff_lending_held_borrow(zoff_lending *l, size_t chunk, char **out)
{
    zoff_held_chunk *held = find(l, chunk);
    if (!held) {
        const zoff_status status = zoff_lending_held_poll(l);
        held = find_unused(l);
        if (!held)
            return status < 0 ? status : ZOFF_PENDING;
        held->demand = (zoff_demand){.chunk = chunk, .weights = {.store = l->group.store, .arrays = ZOFF_STORE_ALL}};
        held->is_used = true;
    }
    held->demand.kind = l->cache.is_awaited ? ZOFF_DEMAND_LEND : ZOFF_DEMAND_PASS;
    const zoff_status status = zoff_offload_broker_ask(&held->demand);
    *out = held->demand.weights.base;
    if (status < 0 || (status == ZOFF_PENDING && !l->cache.is_awaited))
        withdraw(held);
    return status;
}

/* Stop waiting, or end with an error. Memory that the call has not got yet is asked for anew. */
static void stop_waiting(zoff_lending *l)
{
    l->cache.is_awaited = false;
    for (unsigned i = 0; i < ZOFF_HELD_MAX; i++) {
        if (l->cache.held[i].is_used && !l->cache.held[i].demand.weights.base)
            withdraw(&l->cache.held[i]);
    }
}

zoff_status zoff_lending_held_wait(zoff_lending *l, zoff_poller *poller, zoff_status (*poll)(void *ctx), void *ctx)
{
    ZOFF_TRY(start_anew(l));
    l->cache.is_awaited = true;
    const zoff_status status = zoff_base_progress_wait(l->progress, poller, poll, ctx);
    ZOFF_KEEP_ERROR(stop_waiting(l));
    return status;
}

typedef struct chunk_wait {
    zoff_lending *lending;
    size_t chunk, piece, count;
    char *base;
} chunk_wait;

static zoff_status fetch_chunk(void *ctx)
{
    chunk_wait *w = ctx;
    zoff_lending *l = w->lending;
    const zoff_status status = zoff_lending_held_borrow(l, w->chunk, &w->base);
    if (status != ZOFF_PENDING)
        return status;
    zoff_lending_held_read_ahead(l, w->piece, w->count); /* read the following chunks meanwhile */
    ZOFF_TRY(l->pollers.step->pump(l->pollers.step->ctx));
    return ZOFF_PENDING;
}

zoff_status zoff_lending_held_hold(zoff_lending *l, size_t chunk, size_t piece, size_t count, char **out)
{
    chunk_wait w = {.lending = l, .chunk = chunk, .piece = piece, .count = count};
    ZOFF_TRY(zoff_lending_held_wait(l, l->pollers.reads, fetch_chunk, &w));
    *out = w.base;
    return ZOFF_OK;
}

/* ---- giving back ---- */

zoff_status zoff_lending_held_done(zoff_lending *l, size_t chunk)
{
    zoff_held_chunk *held = find(l, chunk);
    const zoff_status status = held && held->demand.weights.base ? release(l, held) : ZOFF_OK;
    return status < 0 ? status : ZOFF_OK;
}

zoff_status zoff_lending_held_mark(zoff_lending *l, size_t chunk)
{
    zoff_held_chunk *held = find(l, chunk);
    if (!held)
        return ZOFF_OK;
    ZOFF_TRY(l->place->read(l, held));
    return zoff_lending_held_done(l, chunk);
}

static zoff_status poll_all(void *ctx)
{
    return zoff_lending_held_poll(ctx);
}

/* A device that has failed runs no copies any more, so its error does not keep the chunks. */
zoff_status zoff_lending_held_let_go(zoff_lending *l)
{
    zoff_saved_error saved;
    stop_waiting(l);
    const zoff_status status = zoff_base_progress_wait(l->progress, l->pollers.device, poll_all, l);
    if (status == ZOFF_OK)
        return ZOFF_OK;
    zoff_base_status_save(&saved);
    bool is_read = false;
    for (unsigned i = 0; i < ZOFF_HELD_MAX; i++) {
        zoff_held_chunk *held = &l->cache.held[i];
        const zoff_status now = held->is_used && held->demand.weights.base ? release(l, held) : ZOFF_OK;
        if (now < 0)
            give_back(held);
        is_read = is_read || now == ZOFF_PENDING;
    }
    zoff_base_status_restore(&saved);
    return is_read ? status : ZOFF_OK;
}
