/* grads.c: engine memory for gradients, slice by slice, for parameters without a gradient buffer of the program. A slice is
 * lent until its gradient is handed over. Its memory is reused once the gradient is sent to the ranks that sum it, or is added
 * to the sum of micro-batches. Without either, the memory is reused after the update. */
#include "transfer.h"

#include "array.h"
#include "bits.h"
#include "clock.h"
#include "try.h"

#include <string.h>

/* ---- buffers in host memory ---- */

/* The smallest free buffer that is at most twice as large as needed. */
zoff_grad_buffer *zoff_transfer_grads_find(zoff_grads *g, size_t bytes)
{
    zoff_grad_buffer *best = NULL;
    for (size_t i = 0; i < g->count; i++) {
        zoff_grad_buffer *b = &g->buffers[i];
        if (!b->used && b->bytes >= bytes && b->bytes / 2 <= bytes && (!best || b->bytes < best->bytes))
            best = b;
    }
    return best;
}

void zoff_transfer_grads_free(zoff_transfer *t, zoff_grad_buffer *buffer)
{
    t->route.link->memory.unpin(t, &buffer->map);
    zoff_base_map_free(&buffer->map);
}

static void free_buffer(zoff_transfer *t, zoff_grads *g, zoff_grad_buffer *buffer)
{
    if (buffer->at)
        g->memory->free(t, buffer);
    *buffer = (zoff_grad_buffer){.used = false};
}

/* Free an unused buffer: its size may never be needed again. */
static void free_one(zoff_transfer *t, zoff_grads *g)
{
    for (size_t i = 0; i < g->count; i++) {
        if (g->buffers[i].used || !g->buffers[i].at)
            continue;
        g->bytes -= g->buffers[i].bytes;
        free_buffer(t, g, &g->buffers[i]);
        return;
    }
}

zoff_status zoff_transfer_grads_entry(zoff_grads *g, zoff_grad_buffer **out)
{
    size_t i = 0;
    while (i < g->count && g->buffers[i].at)
        i++;
    if (i == g->count) {
        ZOFF_TRY(
            zoff_base_array_reserve(&g->buffers, g->count, &g->capacity, g->count + 1, sizeof *g->buffers, "gradient buffers"));
        g->buffers[g->count++] = (zoff_grad_buffer){.used = false};
    }
    *out = &g->buffers[i];
    return ZOFF_OK;
}

zoff_status zoff_transfer_grads_make(zoff_transfer *t, zoff_grads *g, size_t bytes, zoff_grad_buffer **out)
{
    zoff_grad_buffer *entry;
    if (g->bytes + bytes > g->most)
        free_one(t, g);
    ZOFF_TRY(zoff_transfer_grads_entry(g, &entry));
    zoff_map map;
    ZOFF_TRY(zoff_base_map_alloc(bytes, "a gradient", ZOFF_MAP_INTERLEAVED, &map));
    zoff_status status = t->route.link->memory.pin(t, &map);
    if (status < 0)
        zoff_base_map_free(&map);
    ZOFF_TRY(status);
    *entry = (zoff_grad_buffer){.at = map.base, .bytes = map.bytes, .map = map};
    *out = entry;
    g->bytes += bytes;
    g->most = zoff_base_bits_max(g->most, g->bytes);
    return ZOFF_OK;
}

/* ---- slices ---- */

static zoff_grad_slot *slot_of(const zoff_grads *g, size_t number)
{
    return &g->slots[number];
}

static void let_go(zoff_grads *g, zoff_grad_slot *slot)
{
    if (slot->at)
        g->buffers[slot->buffer].used = false;
    *slot = (zoff_grad_slot){.at = NULL};
}

zoff_status zoff_transfer_grads_open(zoff_transfer *t, zoff_grads *g, const zoff_grad_memory *memory, size_t arena_bytes)
{
    void *arena = NULL;
    g->memory = memory;
    g->slot_count = t->model->slice_count;
    ZOFF_TRY(zoff_base_mem_alloc(g->slot_count, sizeof *g->slots, "gradient slices", &g->slots));
    const zoff_status status = arena_bytes ? t->accel->ops->alloc(t->accel, arena_bytes, &arena) : ZOFF_OK;
    if (status < 0)
        return zoff_base_status_prefix(
            status, "gradients that zoff_grad_acquire() lends, %s of device memory: ", zoff_base_words_bytes(arena_bytes));
    g->arena = arena;
    g->arena_bytes = arena_bytes;
    return ZOFF_OK;
}

void zoff_transfer_grads_close(zoff_transfer *t, zoff_grads *g)
{
    for (size_t i = 0; i < g->count; i++)
        free_buffer(t, g, &g->buffers[i]);
    if (g->arena)
        t->accel->ops->free(t->accel, g->arena);
    zoff_base_mem_free(g->buffers);
    zoff_base_mem_free(g->slots);
    *g = (zoff_grads){.slots = NULL};
}

const char *zoff_transfer_grads_at(const zoff_grads *g, size_t number)
{
    return g->slots ? slot_of(g, number)->at : NULL;
}

static const char *in_pool(const zoff_transfer *t, const zoff_grads *g, const zoff_plan_piece *piece)
{
    const zoff_model_param *p = &t->model->params[piece->param];
    return zoff_transfer_grads_at(g, p->first_flag + piece->slice) + piece->first * zoff_adam_dtype_bytes(p->grad_dtype);
}

const char *zoff_transfer_grads_of(const zoff_transfer *t, const zoff_plan_piece *piece)
{
    return in_pool(t, &t->grads, piece);
}

const char *zoff_transfer_grads_there(const zoff_transfer *t, const zoff_plan_piece *piece)
{
    return t->model->params[piece->param].grad ? zoff_model_params_there(t->model, piece) : in_pool(t, t->route.lent, piece);
}

void zoff_transfer_grads_hand_over(zoff_grads *g, size_t number, size_t buckets)
{
    slot_of(g, number)->waits_for = buckets;
}

void zoff_transfer_grads_packed(zoff_grads *g, size_t number)
{
    zoff_grad_slot *slot = slot_of(g, number);
    if (slot->at && --slot->waits_for == 0)
        let_go(g, slot);
}

void zoff_transfer_grads_let_go(zoff_grads *g, size_t number)
{
    let_go(g, slot_of(g, number));
}

void zoff_transfer_grads_forget(zoff_grads *g)
{
    for (size_t i = 0; g->count && i < g->slot_count; i++)
        let_go(g, slot_of(g, i));
}
