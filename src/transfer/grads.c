/* grads.c: engine memory for gradients, slice by slice, for parameters without a gradient buffer of the program. A slice is
 * lent until its gradient is handed over. Its memory is reused once the gradient is sent to the ranks that sum it, or is added
 * to the sum of micro-batches. Without either, the memory is reused after the update. */
#include "transfer.h"

#include "array.h"
#include "bits.h"
#include "clock.h"
#include "try.h"

#include <string.h>

/* ---- buffers ---- */

/* The smallest free buffer that is at most twice as large as needed. */
zoff_grad_buffer *zoff_transfer_grads_find_free(zoff_grads *g, size_t bytes)
{
    zoff_grad_buffer *best = NULL;
    for (size_t i = 0; i < g->count; i++) {
        zoff_grad_buffer *b = &g->buffers[i];
        if (!b->used && b->map.bytes >= bytes && b->map.bytes / 2 <= bytes && (!best || b->map.bytes < best->map.bytes))
            best = b;
    }
    return best;
}

static void free_buffer(zoff_transfer *t, zoff_grad_buffer *buffer)
{
    if (buffer->map.base)
        t->route.link->memory.unpin(t, &buffer->map);
    zoff_base_map_free(&buffer->map);
}

/* Free an unused buffer: its size may never be needed again. */
static void free_one(zoff_transfer *t)
{
    zoff_grads *g = &t->grads;
    for (size_t i = 0; i < g->count; i++) {
        if (g->buffers[i].used || !g->buffers[i].map.base)
            continue;
        g->bytes -= g->buffers[i].map.bytes;
        free_buffer(t, &g->buffers[i]);
        return;
    }
}

zoff_status zoff_transfer_grads_make(zoff_transfer *t, size_t bytes, zoff_grad_buffer **out)
{
    zoff_grads *g = &t->grads;
    size_t i = 0;
    if (g->bytes + bytes > g->most)
        free_one(t);
    while (i < g->count && g->buffers[i].map.base)
        i++;
    if (i == g->count) {
        ZOFF_TRY(
            zoff_base_array_reserve(&g->buffers, g->count, &g->capacity, g->count + 1, sizeof *g->buffers, "gradient buffers"));
        g->buffers[g->count++] = (zoff_grad_buffer){.used = false};
    }
    zoff_map map;
    ZOFF_TRY(zoff_base_map_alloc(bytes, "a gradient", ZOFF_MAP_INTERLEAVED, &map));
    zoff_status status = t->route.link->memory.pin(t, &map);
    if (status < 0)
        zoff_base_map_free(&map);
    ZOFF_TRY(status);
    g->buffers[i].map = map;
    g->bytes += bytes;
    g->most = zoff_base_bits_max(g->most, g->bytes);
    *out = &g->buffers[i];
    return ZOFF_OK;
}

/* ---- slices ---- */

static zoff_grad_slot *slot_of(const zoff_transfer *t, size_t number)
{
    return &t->grads.slots[number];
}

static void let_go(zoff_transfer *t, zoff_grad_slot *slot)
{
    if (slot->at)
        t->grads.buffers[slot->buffer].used = false;
    *slot = (zoff_grad_slot){.at = NULL};
}

zoff_status zoff_transfer_grads_open(zoff_transfer *t)
{
    return zoff_base_mem_alloc(t->model->slice_count, sizeof *t->grads.slots, "gradient slices", &t->grads.slots);
}

void zoff_transfer_grads_close(zoff_transfer *t)
{
    zoff_grads *g = &t->grads;
    for (size_t i = 0; i < g->count; i++)
        free_buffer(t, &g->buffers[i]);
    zoff_base_mem_free(g->buffers);
    zoff_base_mem_free(g->slots);
    *g = (zoff_grads){.slots = NULL};
}

const char *zoff_transfer_grads_at(const zoff_transfer *t, size_t number)
{
    return t->grads.slots ? slot_of(t, number)->at : NULL;
}

const char *zoff_transfer_grads_of(const zoff_transfer *t, const zoff_plan_piece *piece)
{
    const zoff_model_param *p = &t->model->params[piece->param];
    return zoff_transfer_grads_at(t, p->first_flag + piece->slice) + piece->first * zoff_adam_dtype_bytes(p->grad_dtype);
}

void zoff_transfer_grads_hand_over(zoff_transfer *t, size_t number, size_t buckets)
{
    slot_of(t, number)->waits_for = buckets;
}

void zoff_transfer_grads_packed(zoff_transfer *t, size_t number)
{
    zoff_grad_slot *slot = slot_of(t, number);
    if (slot->at && --slot->waits_for == 0)
        let_go(t, slot);
}

void zoff_transfer_grads_let_go(zoff_transfer *t, size_t number)
{
    let_go(t, slot_of(t, number));
}

void zoff_transfer_grads_forget(zoff_transfer *t)
{
    for (size_t i = 0; t->grads.count && i < t->model->slice_count; i++)
        let_go(t, slot_of(t, i));
}
