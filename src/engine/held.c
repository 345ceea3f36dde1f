/* held.c: chunks of weights that are borrowed for a while, so that many small slices of one chunk are one read. */
#include "engine_priv.h"

#include "bits.h"
#include "try.h"

#include <string.h>

void zoff_engine_held_read_ahead(zoff_engine *e, size_t piece, size_t count)
{
    size_t chunk = e->plan.pieces[piece].bucket;
    for (size_t done = 0; done < count; done += e->plan.pieces[piece++].count) {
        while (piece >= e->plan.chunks[chunk].first_piece + e->plan.chunks[chunk].piece_count)
            chunk++;
        (void)zoff_offload_store_ahead(e->weights, chunk); /* what fails is told by the fetch */
    }
}

/* Chunks that stay borrowed, so that many small slices of one are one read; the other half of the slots reads ahead. */
static unsigned held_most(const zoff_engine *e)
{
    return (unsigned)zoff_base_bits_min(zoff_base_bits_max(e->settings.values.weights.slots / 2, 1), ZOFF_HELD_MAX);
}

typedef struct chunk_wait {
    zoff_engine *engine;
    size_t chunk, piece, count;
    void *base;
} chunk_wait;

static zoff_status fetch_chunk(void *ctx)
{
    chunk_wait *w = ctx;
    zoff_engine *e = w->engine;
    const zoff_status status = zoff_offload_store_fetch(e->weights, w->chunk, &w->base);
    if (status != ZOFF_PENDING)
        return status;
    zoff_engine_held_read_ahead(e, w->piece, w->count); /* what comes after it, while it is on its way */
    if (zoff_offload_store_busy(e->weights, false))
        return ZOFF_PENDING;
    /* Slots are full of what was read ahead and is not what is asked for, or of what could not be written. */
    zoff_offload_store_forget(e->weights);
    ZOFF_TRY(zoff_offload_store_retry(e->weights));
    zoff_base_progress_moved(&e->progress);
    return ZOFF_PENDING;
}

static zoff_status borrow_chunk(zoff_engine *e, size_t chunk, size_t piece, size_t count, char **out)
{
    chunk_wait w = {.engine = e, .chunk = chunk, .piece = piece, .count = count};
    zoff_base_progress_forget(&e->pollers.weights); /* an error of a prefetch: the fetch reads again */
    ZOFF_TRY(zoff_base_progress_wait(&e->progress, &e->pollers.weights, fetch_chunk, &w));
    ZOFF_TRY(zoff_offload_store_check(e->weights, chunk));
    *out = w.base;
    return ZOFF_OK;
}

static void release_last(zoff_engine *e)
{
    zoff_param_cache *live = &e->param_cache;
    zoff_offload_store_release(e->weights, live->held[--live->held_count].chunk);
}

zoff_status zoff_engine_held_borrow(zoff_engine *e, size_t chunk, char **out)
{
    zoff_param_cache *live = &e->param_cache;
    void *base;
    for (unsigned i = 0; i < live->held_count; i++) {
        if (live->held[i].chunk == chunk) {
            *out = live->held[i].base;
            return ZOFF_OK;
        }
    }
    if (live->held_count == held_most(e))
        release_last(e);
    zoff_status status = zoff_offload_store_fetch(e->weights, chunk, &base);
    if (status == ZOFF_PENDING && !zoff_offload_store_busy(e->weights, false)) {
        /* Slots are full of what is not asked for, or could not be written. */
        zoff_offload_store_forget(e->weights);
        ZOFF_TRY(zoff_offload_store_retry(e->weights));
    }
    if (status != ZOFF_OK)
        return status;
    ZOFF_TRY(zoff_offload_store_check(e->weights, chunk));
    memmove(&live->held[1], &live->held[0], live->held_count++ * sizeof live->held[0]);
    live->held[0].chunk = chunk;
    live->held[0].base = base;
    *out = base;
    return ZOFF_OK;
}

/* Bring a chunk to the front of those that are held: the one of a piece, from which on `count` elements are wanted. */
static zoff_status hold(zoff_engine *e, size_t chunk, size_t piece, size_t count, char **out)
{
    zoff_param_cache *live = &e->param_cache;
    unsigned i = 0;
    char *base;
    while (i < live->held_count && live->held[i].chunk != chunk)
        i++;
    if (i == live->held_count) {
        if (live->held_count == held_most(e))
            release_last(e);
        ZOFF_TRY(borrow_chunk(e, chunk, piece, count, &base));
        i = live->held_count++;
    } else {
        base = live->held[i].base;
    }
    memmove(&live->held[1], &live->held[0], i * sizeof live->held[0]);
    live->held[0].chunk = chunk;
    live->held[0].base = base;
    *out = base;
    return ZOFF_OK;
}

zoff_status zoff_engine_held_copy(zoff_engine *e, const zoff_cached_slice *s, size_t element_bytes)
{
    size_t piece = s->first_piece, chunk = e->plan.pieces[piece].bucket;
    for (size_t done = 0; done < s->count; piece++) {
        const zoff_plan_piece *p = &e->plan.pieces[piece];
        char *base;
        while (piece >= e->plan.chunks[chunk].first_piece + e->plan.chunks[chunk].piece_count)
            chunk++;
        ZOFF_TRY(hold(e, chunk, piece, s->count - done, &base));
        memcpy(s->at + done * element_bytes, base + p->weight_offset, p->count * element_bytes);
        done += p->count;
    }
    return ZOFF_OK;
}

/* ---- for the rest of the room ---- */

void zoff_engine_held_let_go(zoff_engine *e)
{
    while (e->param_cache.held_count)
        release_last(e);
    if (e->weights)
        zoff_offload_store_forget(e->weights);
}
