/* grads.c: gradients in memory of the engine, slice by slice, for parameters whose program has none for them. A slice is lent
 * until it is handed over, and its memory goes to another slice as soon as its gradient has gone where it is needed: over the
 * wire to the ranks that add it up, into the sum of micro-batches, or, where there is neither, into the update. */
#include "engine_priv.h"

#include "array.h"
#include "bits.h"
#include "clock.h"
#include "try.h"

#include <string.h>

/* How long to wait for a buffer that is on its way, before another one is made: see is_enough(). */
static const double WAIT_SECONDS = 1, SHARED_WAIT_SECONDS = 0.05;

/* ---- buffers ---- */

/* The smallest that is free and not much too large. */
static zoff_grad_buffer *find_free(zoff_grads *g, size_t bytes)
{
    zoff_grad_buffer *best = NULL;
    for (size_t i = 0; i < g->count; i++) {
        zoff_grad_buffer *b = &g->buffers[i];
        if (!b->used && b->map.bytes >= bytes && b->map.bytes / 2 <= bytes && (!best || b->map.bytes < best->map.bytes))
            best = b;
    }
    return best;
}

static void free_buffer(zoff_engine *e, zoff_grad_buffer *buffer)
{
    if (buffer->map.base)
        zoff_engine_device_unpin(e, &buffer->map);
    zoff_base_map_free(&buffer->map);
}

/* A buffer that nobody has used for long may be of a size that does not come again. */
static void free_one(zoff_engine *e)
{
    zoff_grads *g = &e->grads;
    for (size_t i = 0; i < g->count; i++) {
        if (g->buffers[i].used || !g->buffers[i].map.base)
            continue;
        g->bytes -= g->buffers[i].map.bytes;
        free_buffer(e, &g->buffers[i]);
        return;
    }
}

static zoff_status make_buffer(zoff_engine *e, size_t bytes, zoff_grad_buffer **out)
{
    zoff_grads *g = &e->grads;
    size_t i = 0;
    if (g->bytes + bytes > g->most)
        free_one(e);
    while (i < g->count && g->buffers[i].map.base)
        i++;
    if (i == g->count) {
        ZOFF_TRY(zoff_base_array_reserve(&g->buffers, g->count, &g->capacity, g->count + 1, sizeof *g->buffers,
                                         "the gradients' buffers"));
        g->buffers[g->count++] = (zoff_grad_buffer){.used = false};
    }
    zoff_map map;
    ZOFF_TRY(zoff_base_map_alloc(bytes, "a gradient", ZOFF_MAP_INTERLEAVED, &map));
    zoff_status status = zoff_engine_device_pin(e, &map);
    if (status < 0)
        zoff_base_map_free(&map);
    ZOFF_TRY(status);
    g->buffers[i].map = map;
    g->bytes += bytes;
    g->most = zoff_base_bits_max(g->most, g->bytes);
    *out = &g->buffers[i];
    return ZOFF_OK;
}

/* Another rank may hand its gradients over only after a call that waits for this rank: a window of the same engine, a step of
 * another one on the same communicator. To wait on would be to wait for ever. */
static bool is_enough(const zoff_engine *e, double from)
{
    return zoff_base_clock_seconds() - from > (zoff_comm_channel_is_shared(e->comm) ? SHARED_WAIT_SECONDS : WAIT_SECONDS);
}

typedef struct buffer_wait {
    zoff_engine *engine;
    size_t bytes;
    double from;
    zoff_grad_buffer *found;
} buffer_wait;

static zoff_status find_or_make(void *ctx)
{
    buffer_wait *w = ctx;
    zoff_engine *e = w->engine;
    w->found = find_free(&e->grads, w->bytes);
    if (w->found)
        return ZOFF_OK;
    const bool comes_down = zoff_engine_exchange_leaves_early(e) && zoff_engine_device_go_on(e) == ZOFF_PENDING;
    if (!(zoff_engine_exchange_go_on(e) || comes_down) || zoff_comm_is_broken(e->comm) || is_enough(e, w->from))
        return make_buffer(e, w->bytes, &w->found);
    /* Another rank may hand its gradients over only after weights that it waits for; what fails is told by the fetch. */
    (void)zoff_engine_assemble_go_on(e);
    w->found = find_free(&e->grads, w->bytes);
    return w->found ? ZOFF_OK : ZOFF_PENDING;
}

/* While others are on their way it is better to wait for one of them than to have ever more. */
static zoff_status get_buffer(zoff_engine *e, size_t bytes, zoff_grad_buffer **out)
{
    buffer_wait w = {.engine = e, .bytes = bytes, .from = zoff_base_clock_seconds()};
    ZOFF_TRY(zoff_engine_ranks_wait(e, find_or_make, &w));
    *out = w.found;
    return ZOFF_OK;
}

/* ---- slices ---- */

static zoff_grad_slot *slot_of(const zoff_engine *e, size_t number)
{
    return &e->grads.slots[number];
}

static void let_go(zoff_engine *e, zoff_grad_slot *slot)
{
    if (slot->at)
        e->grads.buffers[slot->buffer].used = false;
    *slot = (zoff_grad_slot){.at = NULL};
}

zoff_status zoff_engine_grads_open(zoff_engine *e)
{
    return zoff_base_mem_alloc(e->slice_count, sizeof *e->grads.slots, "the gradients' slices", &e->grads.slots);
}

void zoff_engine_grads_close(zoff_engine *e)
{
    zoff_grads *g = &e->grads;
    for (size_t i = 0; i < g->count; i++)
        free_buffer(e, &g->buffers[i]);
    zoff_base_mem_free(g->buffers);
    zoff_base_mem_free(g->slots);
    *g = (zoff_grads){.slots = NULL};
}

const char *zoff_engine_grads_at(const zoff_engine *e, size_t number)
{
    return e->grads.slots ? slot_of(e, number)->at : NULL;
}

void zoff_engine_grads_hand_over(zoff_engine *e, size_t number, size_t buckets)
{
    slot_of(e, number)->waits_for = buckets;
}

void zoff_engine_grads_packed(zoff_engine *e, size_t number)
{
    zoff_grad_slot *slot = slot_of(e, number);
    if (slot->at && --slot->waits_for == 0)
        let_go(e, slot);
}

void zoff_engine_grads_let_go(zoff_engine *e, size_t number)
{
    let_go(e, slot_of(e, number));
}

void zoff_engine_grads_forget(zoff_engine *e)
{
    for (size_t i = 0; e->grads.count && i < e->slice_count; i++)
        let_go(e, slot_of(e, i));
}

zoff_status zoff_engine_grads_lend(zoff_engine *e, size_t number, size_t bytes, char **out)
{
    zoff_grad_slot *slot = slot_of(e, number);
    if (!slot->at && bytes) {
        zoff_grad_buffer *buffer;
        ZOFF_TRY(get_buffer(e, bytes, &buffer));
        buffer->used = true;
        *slot = (zoff_grad_slot){.at = buffer->map.base, .buffer = (size_t)(buffer - e->grads.buffers)};
    }
    *out = slot->at;
    return ZOFF_OK;
}

zoff_status zoff_grad_acquire(zoff_engine *e, zoff_param p, size_t slice, void *native_stream, void **out)
{
    ZOFF_ENTER(e);
    ZOFF_FAIL_IF(!e || !out, ZOFF_ERR_INVALID, "zoff_grad_acquire: engine and out must not be NULL");
    ZOFF_FAIL_IF(e->phase != ZOFF_PHASE_IDLE, ZOFF_ERR_STATE, "zoff_grad_acquire: %s", zoff_engine_phase_words(e));
    ZOFF_FAIL_IF(p >= e->param_count || slice >= e->params[p].slices, ZOFF_ERR_INVALID,
                 "zoff_grad_acquire: there is no slice %zu of parameter %u", slice, p);
    ZOFF_FAIL_IF(zoff_engine_device_is(e), ZOFF_ERR_UNSUPPORTED,
                 "zoff_grad_acquire: gradients on accelerator \"%s\" are the program's; name them in zoff_param_desc.grad",
                 zoff_accel_name(e->accel));
    ZOFF_FAIL_IF(native_stream, ZOFF_ERR_INVALID, "zoff_grad_acquire: accelerator \"%s\" has no streams; pass NULL",
                 zoff_accel_name(e->accel));
    const zoff_engine_param *param = &e->params[p];
    const size_t number = param->first_flag + slice;
    zoff_dtype dtype;
    const bool is_frozen = param->frozen && !param->tie;
    ZOFF_FAIL_IF(is_frozen || zoff_engine_handover_own(e, p, slice, &dtype), ZOFF_ERR_INVALID, "zoff_grad_acquire: %s %s",
                 param->name,
                 is_frozen ? "is frozen and needs no gradient" : "has a gradient buffer of the program (zoff_param_desc.grad)");
    ZOFF_FAIL_IF(zoff_engine_handover_is_given(e, p, slice), ZOFF_ERR_STATE,
                 "zoff_grad_acquire: slice %zu of %s was handed over in this step", slice, param->name);
    const size_t bytes = param->count * zoff_adam_dtype_bytes(dtype);
    const bool is_lent = zoff_engine_grads_at(e, number) != NULL;
    char *at;
    ZOFF_TRY(zoff_engine_grads_lend(e, number, bytes, &at));
    if (!is_lent && bytes)
        memset(at, 0, bytes);
    *out = at;
    return ZOFF_OK;
}
