/* SPDX-License-Identifier: Apache-2.0 */
/* arena.c: engine memory for gradients, slice by slice, for parameters without a gradient buffer of the program. A slice is
 * lent until its gradient is handed over. Its memory is reused once the gradient is sent to the ranks that sum it, is added to
 * the sum of micro-batches, or is downloaded from the device. Without any of them, the memory is reused after the update. The
 * host knows when, so the program's streams need not wait for it.
 *
 * A model may have hundreds of thousands of slices, and a process only 65,530 mappings. So the memory is an arena: a few large
 * extents, cut into blocks. Free blocks are in lists by size: exact sizes up to 31 units, above that 32 classes for each power
 * of two. A take looks at a few blocks, for any number of them. Only where no other block is large enough does it look at all
 * those of about its size. A block that is given back joins its free neighbours, so memory serves slices of all sizes. The
 * blocks are described beside the memory, because it may be that of a device.
 *
 * Several extents and not one reserved range, because no bound of that range would hold: blocks of different sizes leave gaps.
 */
#include "transfer.h"

#include "array.h"
#include "bits.h"
#include "try.h"

#include <string.h>

/* ---- the arena ---- */

enum { NONE = -1, CLASS_BITS = 5 };
_Static_assert(1 << CLASS_BITS == ZOFF_ARENA_CLASSES, "the bits of a class");

static size_t padded_bytes(size_t bytes)
{
    return zoff_base_bits_align(bytes ? bytes : 1, ZOFF_ARENA_UNIT);
}

static void class_of(size_t bytes, unsigned *out_level, unsigned *out_class)
{
    const uint64_t units = bytes / ZOFF_ARENA_UNIT;
    const unsigned top = 63 - (unsigned)__builtin_clzll(units);
    *out_level = top < CLASS_BITS ? 0 : top - CLASS_BITS + 1;
    *out_class = top < CLASS_BITS ? (unsigned)units : (unsigned)(units >> (top - CLASS_BITS)) & (ZOFF_ARENA_CLASSES - 1);
}

static void list(zoff_arena *a, int32_t number)
{
    unsigned level, class;
    zoff_arena_block *b = &a->blocks[number];
    class_of(b->bytes, &level, &class);
    b->next = a->classes[level] >> class & 1 ? a->heads[level][class] : NONE;
    b->previous = NONE;
    if (b->next != NONE)
        a->blocks[b->next].previous = number;
    a->heads[level][class] = number;
    a->classes[level] |= 1u << class;
    a->levels |= 1ull << level;
}

static void unlist(zoff_arena *a, int32_t number)
{
    unsigned level, class;
    const zoff_arena_block *b = &a->blocks[number];
    if (b->next != NONE)
        a->blocks[b->next].previous = b->previous;
    if (b->previous != NONE) {
        a->blocks[b->previous].next = b->next;
        return;
    }
    class_of(b->bytes, &level, &class);
    a->heads[level][class] = b->next;
    if (b->next != NONE)
        return;
    a->classes[level] &= ~(1u << class);
    a->levels &= ~((uint64_t)!a->classes[level] << level);
}

/* Find a description that is not in use. */
static zoff_status make_block(zoff_arena *a, int32_t *out)
{
    if (!a->spare_count) {
        ZOFF_TRY(
            zoff_base_array_reserve(&a->blocks, a->count, &a->capacity, a->count + 1, sizeof *a->blocks, "gradient buffers"));
        ZOFF_FAIL_IF(a->count == INT32_MAX, ZOFF_ERR_NO_MEMORY, "no memory for %zu gradient buffers", a->count);
        *out = (int32_t)a->count++;
        return ZOFF_OK;
    }
    *out = a->spare;
    a->spare = a->blocks[a->spare].next;
    a->spare_count--;
    return ZOFF_OK;
}

static void drop_block(zoff_arena *a, int32_t number)
{
    a->blocks[number] = (zoff_arena_block){.next = a->spare};
    a->spare = number;
    a->spare_count++;
}

zoff_status zoff_transfer_arena_add(zoff_arena *a, char *at, size_t bytes, int32_t *out)
{
    ZOFF_TRY(make_block(a, out));
    a->blocks[*out] = (zoff_arena_block){.at = at, .bytes = bytes, .before = NONE, .after = NONE};
    list(a, *out);
    return ZOFF_OK;
}

bool zoff_transfer_arena_is_idle(const zoff_arena *a, int32_t first)
{
    return !a->blocks[first].used && a->blocks[first].after == NONE;
}

void zoff_transfer_arena_remove(zoff_arena *a, int32_t first)
{
    unlist(a, first);
    drop_block(a, first);
}

/* The first free block of a higher class. */
static int32_t find_higher(const zoff_arena *a, unsigned level, unsigned class)
{
    const uint32_t wider = a->classes[level] & (uint32_t)(~1ull << class);
    if (wider)
        return a->heads[level][__builtin_ctz(wider)];
    const uint64_t higher = a->levels & (~1ull << level);
    if (!higher)
        return NONE;
    const unsigned next = (unsigned)__builtin_ctzll(higher);
    return a->heads[next][__builtin_ctz(a->classes[next])];
}

/* Blocks of the size's own class may be a little too small; those of any higher class are large enough. */
static int32_t find(const zoff_arena *a, size_t bytes)
{
    enum { LOOKS = 8 };
    unsigned level, class;
    class_of(bytes, &level, &class);
    int32_t k = a->classes[level] >> class & 1 ? a->heads[level][class] : NONE;
    for (unsigned looks = 0; k != NONE && a->blocks[k].bytes < bytes; looks++, k = a->blocks[k].next) {
        const int32_t higher = looks == LOOKS ? find_higher(a, level, class) : NONE;
        if (higher != NONE)
            return higher;
    }
    return k != NONE ? k : find_higher(a, level, class);
}

/* The rest of a larger block stays free. Without memory to describe it, it is lent with the block. */
static void split(zoff_arena *a, int32_t number, size_t bytes)
{
    int32_t rest = NONE;
    if (a->blocks[number].bytes == bytes || make_block(a, &rest) < 0)
        return;
    zoff_arena_block *b = &a->blocks[number];
    a->blocks[rest] = (zoff_arena_block){.at = b->at + bytes, .bytes = b->bytes - bytes, .before = number, .after = b->after};
    if (b->after != NONE)
        a->blocks[b->after].before = rest;
    b->after = rest;
    b->bytes = bytes;
    list(a, rest);
}

bool zoff_transfer_arena_take(zoff_arena *a, size_t bytes, int32_t *out)
{
    const size_t padded = padded_bytes(bytes);
    const int32_t number = find(a, padded);
    if (number == NONE)
        return false;
    unlist(a, number);
    split(a, number, padded);
    a->blocks[number].used = true;
    *out = number;
    return true;
}

/* Join a block with the one behind it. The first block of an extent stays the same one. */
static void join(zoff_arena *a, int32_t number)
{
    zoff_arena_block *b = &a->blocks[number];
    const int32_t gone = b->after;
    b->bytes += a->blocks[gone].bytes;
    b->after = a->blocks[gone].after;
    if (b->after != NONE)
        a->blocks[b->after].before = number;
    drop_block(a, gone);
}

void zoff_transfer_arena_give(zoff_arena *a, int32_t number)
{
    const int32_t after = a->blocks[number].after, before = a->blocks[number].before;
    a->blocks[number].used = false;
    if (after != NONE && !a->blocks[after].used) {
        unlist(a, after);
        join(a, number);
    }
    if (before != NONE && !a->blocks[before].used) {
        unlist(a, before);
        join(a, before);
        number = before;
    }
    list(a, number);
}

void zoff_transfer_arena_end(zoff_arena *a)
{
    zoff_base_mem_free(a->blocks);
    *a = (zoff_arena){.blocks = NULL};
}

/* ---- extents ---- */

enum { EXTENT_BYTES = 64 << 20 };

/* Make few and large mappings, but none larger than what is lent at most, because a device pins each of them whole. */
static zoff_status map_here(zoff_transfer *t, const zoff_grads *g, size_t bytes, zoff_map *out)
{
    const uint64_t rest = g->lent_most - zoff_base_bits_min(g->lent_most, g->bytes);
    const size_t all = zoff_base_bits_max(bytes, zoff_base_bits_min(rest, EXTENT_BYTES));
    ZOFF_TRY(zoff_base_map_alloc(all, "gradients", ZOFF_MAP_INTERLEAVED, out));
    const zoff_status status = t->route.link->has_streams ? zoff_transfer_streams_pin(t, out) : ZOFF_OK;
    if (status < 0)
        zoff_base_map_free(out);
    return status;
}

/* The first extent is planned. Others are for a program that holds more gradients than it has room for. */
static zoff_status alloc_there(zoff_transfer *t, const zoff_grads *g, size_t bytes, zoff_map *out)
{
    void *memory;
    ZOFF_FAIL_IF(
        (g->count || !g->first_bytes) && t->values->device_memory, ZOFF_ERR_NO_MEMORY,
        "zoff_grad_acquire: the gradients that are lent now leave no room for another %s in %s, and zoff.device_memory "
        "allows no more: hand some over first (zoff_grad_ready()), or raise reduce_bucket_size",
        zoff_base_words_bytes(bytes), zoff_base_words_bytes(g->first_bytes));
    const zoff_status status = t->accel->ops->alloc(t->accel, bytes, &memory);
    if (status < 0)
        return zoff_base_status_prefix(
            status, "gradients that zoff_grad_acquire() lends, %s of device memory: ", zoff_base_words_bytes(bytes));
    *out = (zoff_map){.base = memory, .bytes = bytes};
    return ZOFF_OK;
}

static void free_extent(zoff_transfer *t, const zoff_grads *g, zoff_map *extent)
{
    if (g->is_there) {
        t->accel->ops->free(t->accel, extent->base);
        return;
    }
    if (t->route.link->has_streams)
        zoff_transfer_streams_unpin(t, extent);
    zoff_base_map_free(extent);
}

/* Free an extent that nobody uses, if one is found soon, because its size may never be needed again. */
static void free_one(zoff_transfer *t, zoff_grads *g)
{
    enum { LOOKS = 8 };
    for (size_t i = 0; i < zoff_base_bits_min(g->count, LOOKS); i++) {
        g->looked = (g->looked + 1) % g->count;
        zoff_grad_extent *x = &g->extents[g->looked];
        if (!zoff_transfer_arena_is_idle(&g->arena, x->first))
            continue;
        zoff_transfer_arena_remove(&g->arena, x->first);
        g->bytes -= x->map.bytes;
        free_extent(t, g, &x->map);
        *x = g->extents[--g->count];
        return;
    }
}

static zoff_status add(zoff_transfer *t, zoff_grads *g, size_t bytes)
{
    zoff_grad_extent x;
    ZOFF_TRY(
        zoff_base_array_reserve(&g->extents, g->count, &g->capacity, g->count + 1, sizeof *g->extents, "gradient buffers"));
    ZOFF_TRY(g->is_there ? alloc_there(t, g, bytes, &x.map) : map_here(t, g, bytes, &x.map));
    const zoff_status status = zoff_transfer_arena_add(&g->arena, x.map.base, x.map.bytes, &x.first);
    if (status < 0)
        free_extent(t, g, &x.map);
    ZOFF_TRY(status);
    g->extents[g->count++] = x;
    g->bytes += x.map.bytes;
    g->most = zoff_base_bits_max(g->most, g->bytes);
    return ZOFF_OK;
}

/* Memory of a device is never freed here, because freeing stops the device. */
static zoff_status grow(zoff_transfer *t, zoff_grads *g, size_t bytes)
{
    const size_t padded = padded_bytes(bytes);
    if (!g->is_there && g->bytes + padded > g->most)
        free_one(t, g);
    return add(t, g, padded);
}

/* ---- slices ---- */

void zoff_transfer_arena_let_go(zoff_grads *g, size_t number)
{
    zoff_grad_slot *slot = &g->slots[number];
    if (slot->at)
        zoff_transfer_arena_give(&g->arena, slot->block);
    *slot = (zoff_grad_slot){.at = NULL};
}

/* Bytes of all gradients that engine memory may have to hold. */
static uint64_t lent_most(const zoff_model *m)
{
    uint64_t all = 0;
    for (size_t i = 0; i < m->param_count; i++) {
        const zoff_model_param *p = &m->params[i];
        if (p->count && (!p->frozen || p->tie))
            all += (uint64_t)p->slices * padded_bytes(p->count * zoff_adam_dtype_bytes(p->grad_dtype));
    }
    return all;
}

zoff_status zoff_transfer_arena_open(zoff_transfer *t, zoff_grads *g, bool is_there, size_t first_bytes)
{
    g->is_there = is_there;
    g->slot_count = t->model->slice_count;
    g->lent_most = lent_most(t->model);
    ZOFF_TRY(zoff_base_mem_alloc(g->slot_count, sizeof *g->slots, "gradient slices", &g->slots));
    g->first_bytes = first_bytes;
    return first_bytes ? add(t, g, first_bytes) : ZOFF_OK;
}

void zoff_transfer_arena_close(zoff_transfer *t, zoff_grads *g)
{
    for (size_t i = 0; i < g->count; i++)
        free_extent(t, g, &g->extents[i].map);
    zoff_transfer_arena_end(&g->arena);
    zoff_base_mem_free(g->extents);
    zoff_base_mem_free(g->slots);
    *g = (zoff_grads){.slots = NULL};
}

const char *zoff_transfer_arena_at(const zoff_grads *g, size_t number)
{
    return g->slots ? g->slots[number].at : NULL;
}

static const char *in_pool(const zoff_transfer *t, const zoff_grads *g, const zoff_plan_piece *piece)
{
    const zoff_model_param *p = &t->model->params[piece->param];
    return zoff_transfer_arena_at(g, p->first_flag + piece->slice) + piece->first * zoff_adam_dtype_bytes(p->grad_dtype);
}

const char *zoff_transfer_arena_of(const zoff_transfer *t, const zoff_plan_piece *piece)
{
    return in_pool(t, &t->grads, piece);
}

const char *zoff_transfer_arena_there(const zoff_transfer *t, const zoff_plan_piece *piece)
{
    return t->model->params[piece->param].grad ? zoff_model_params_there(t->model, piece) : in_pool(t, t->route.lent, piece);
}

void zoff_transfer_arena_hand_over(zoff_grads *g, size_t number, size_t buckets)
{
    g->slots[number].waits_for = buckets;
}

void zoff_transfer_arena_packed(zoff_grads *g, size_t number)
{
    if (g->slots[number].at && --g->slots[number].waits_for == 0)
        zoff_transfer_arena_let_go(g, number);
}

void zoff_transfer_arena_forget(zoff_grads *g)
{
    for (size_t i = 0; g->count && i < g->slot_count; i++)
        zoff_transfer_arena_let_go(g, i);
}

/* ---- lending ---- */

zoff_status zoff_transfer_arena_lend(zoff_transfer *t, zoff_grads *g, size_t number, size_t bytes, bool grows)
{
    zoff_grad_slot *slot = &g->slots[number];
    int32_t block;
    bool found = zoff_transfer_arena_take(&g->arena, bytes, &block);
    if (!found && grows) {
        ZOFF_TRY(grow(t, g, bytes)); /* give the arena room for these bytes */
        found = zoff_transfer_arena_take(&g->arena, bytes, &block);
    }
    if (!found)
        return ZOFF_PENDING;
    *slot = (zoff_grad_slot){.at = g->arena.blocks[block].at, .block = block};
    return ZOFF_OK;
}

/* Bytes for two buckets, so that the program fills one while the other leaves, and for at least two slices of any size. */
uint64_t zoff_transfer_arena_device_bytes(const zoff_transfer *t)
{
    uint64_t all = 0, largest = 0;
    size_t widest = 0;
    if (t->device.lent.slots) /* the memory is open, so buffers that were bound since do not change it */
        return t->device.lent.first_bytes;
    for (size_t i = 0; i < t->model->param_count; i++) {
        const zoff_model_param *p = &t->model->params[i];
        if (p->grad || (p->frozen && !p->tie))
            continue;
        const uint64_t bytes = padded_bytes(p->count * zoff_adam_dtype_bytes(p->grad_dtype));
        all += bytes * p->slices;
        largest = zoff_base_bits_max(largest, bytes);
        widest = zoff_base_bits_max(widest, zoff_adam_dtype_bytes(p->grad_dtype));
    }
    return zoff_base_bits_min(
        all,
        2 * zoff_base_bits_align(zoff_base_bits_max(largest, (uint64_t)t->values->bucket_elements * widest), ZOFF_ARENA_UNIT));
}

zoff_status zoff_transfer_arena_clear(zoff_transfer *t, char *at, size_t bytes, void *native_stream)
{
    void *stream = native_stream ? native_stream : t->device.down;
    if (!t->route.lent->is_there) {
        memset(at, 0, bytes);
        return ZOFF_OK;
    }
    ZOFF_TRY(t->accel->ops->zero(t->accel, stream, at, bytes));
    return native_stream ? ZOFF_OK : zoff_transfer_streams_sync(t, stream);
}
