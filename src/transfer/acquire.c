/* acquire.c: gets memory for the gradient of a slice; may wait until another gradient has left its buffer. Memory of a device
 * is an arena. A part of it is free as soon as its gradient is downloaded, or packed for other ranks, and the host knows. So
 * the program's streams need not wait for it. */
#include "transfer.h"

#include "bits.h"
#include "clock.h"
#include "try.h"

#include <string.h>

/* Seconds to wait for a buffer in use, before another one is allocated: see is_enough(). */
static const double WAIT_SECONDS = 1, SHARED_WAIT_SECONDS = 0.05;

/* Whether to stop waiting. Another rank may hand its gradients over only after a call that waits for this rank: a range of
 * states of the same engine, or a step of another engine on the same communicator. Waiting longer would deadlock. */
static bool is_enough(const zoff_transfer *t, double from)
{
    return zoff_base_clock_seconds() - from > (zoff_comm_channel_is_shared(t->comm) ? SHARED_WAIT_SECONDS : WAIT_SECONDS);
}

typedef struct block_wait {
    zoff_transfer *transfer;
    zoff_grads *pool;
    size_t bytes;
    double from;
    int32_t found;
} block_wait;

static bool finds(block_wait *w)
{
    return zoff_transfer_grads_take(&w->pool->arena, w->bytes, &w->found);
}

static zoff_status find_or_make(void *ctx)
{
    block_wait *w = ctx;
    zoff_transfer *t = w->transfer;
    if (finds(w))
        return ZOFF_OK;
    zoff_saved_error first;
    const zoff_status moves = w->pool->memory->go_on(t);
    zoff_base_status_save(&first);
    if (finds(w))
        return ZOFF_OK;
    if (moves != ZOFF_PENDING || zoff_comm_is_broken(t->comm) || is_enough(t, w->from)) {
        const zoff_status grown = zoff_transfer_grads_grow(t, w->pool, w->bytes); /* with room for it */
        if (grown < 0 && moves < 0) {                                             /* an error is why no memory became free */
            zoff_base_status_restore(&first);
            return moves;
        }
        ZOFF_TRY(grown);
    } else {
        /* Gather weights, too: another rank may need them before it hands its gradients over. The fetch reports errors. */
        (void)zoff_lending_param_gather_go_on(t->lending);
    }
    return finds(w) ? ZOFF_OK : ZOFF_PENDING;
}

/* Wait for memory in use rather than allocate more and more of it. */
zoff_status zoff_transfer_acquire_lend(zoff_transfer *t, zoff_grads *g, size_t number, size_t bytes, char **out)
{
    zoff_grad_slot *slot = &g->slots[number];
    if (!slot->at && bytes) {
        block_wait w = {.transfer = t, .pool = g, .bytes = bytes, .from = zoff_base_clock_seconds()};
        ZOFF_TRY(zoff_transfer_wire_wait_until(t, find_or_make, &w));
        *slot = (zoff_grad_slot){.at = g->arena.blocks[w.found].at, .block = w.found};
    }
    *out = slot->at;
    return ZOFF_OK;
}

/* ---- a pool in host memory ---- */

enum { EXTENT_BYTES = 64 << 20 };

static zoff_status go_on(zoff_transfer *t, bool comes_down)
{
    const zoff_status down = comes_down ? zoff_transfer_download_poll(t) : ZOFF_OK;
    ZOFF_TRY(down);
    const zoff_status out = zoff_transfer_reduce_scatter_poll(t);
    return out == ZOFF_OK ? down : out;
}

/* Memory of gradients that are kept until the update is freed by nothing before it. */
static zoff_status go_on_host(zoff_transfer *t)
{
    return go_on(t, t->route.peers->leaves_early(t));
}

/* Few mappings, although a device pins each of them whole: no larger than what is lent at most. */
static zoff_status make_on_host(zoff_transfer *t, zoff_grads *g, size_t bytes, zoff_map *out)
{
    const uint64_t rest = g->lent_most - zoff_base_bits_min(g->lent_most, g->bytes);
    const size_t all = zoff_base_bits_max(bytes, zoff_base_bits_min(rest, EXTENT_BYTES));
    ZOFF_TRY(zoff_base_map_alloc(all, "gradients", ZOFF_MAP_INTERLEAVED, out));
    const zoff_status status = t->route.link->memory.pin(t, out);
    if (status < 0)
        zoff_base_map_free(out);
    return status;
}

static void free_on_host(zoff_transfer *t, zoff_map *extent)
{
    t->route.link->memory.unpin(t, extent);
    zoff_base_map_free(extent);
}

const zoff_grad_memory zoff_transfer_acquire_on_host = {
    .shrinks = true, .make = make_on_host, .free = free_on_host, .go_on = go_on_host};

/* ---- a pool in device memory ---- */

/* Two buckets, so that the program fills one while the other leaves; and at least two slices of any size. */
uint64_t zoff_transfer_acquire_bytes(const zoff_transfer *t)
{
    uint64_t all = 0, largest = 0;
    size_t widest = 0;
    if (t->device.lent.slots) /* it is open: buffers that were bound since do not change it */
        return t->device.lent.first_bytes;
    for (size_t i = 0; i < t->model->param_count; i++) {
        const zoff_model_param *p = &t->model->params[i];
        if (p->grad || (p->frozen && !p->tie))
            continue;
        const uint64_t bytes = zoff_transfer_grads_padded(p->count * zoff_adam_dtype_bytes(p->grad_dtype));
        all += bytes * p->slices;
        largest = zoff_base_bits_max(largest, bytes);
        widest = zoff_base_bits_max(widest, zoff_adam_dtype_bytes(p->grad_dtype));
    }
    return zoff_base_bits_min(
        all,
        2 * zoff_base_bits_align(zoff_base_bits_max(largest, (uint64_t)t->values->bucket_elements * widest), ZOFF_ARENA_UNIT));
}

/* The first extent is planned. Others are for a program that holds more gradients than it has room for. */
static zoff_status make_on_device(zoff_transfer *t, zoff_grads *g, size_t bytes, zoff_map *out)
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

static void free_on_device(zoff_transfer *t, zoff_map *extent)
{
    t->accel->ops->free(t->accel, extent->base);
}

static zoff_status go_on_device(zoff_transfer *t)
{
    return go_on(t, true);
}

const zoff_grad_memory zoff_transfer_acquire_on_device = {
    .make = make_on_device, .free = free_on_device, .go_on = go_on_device};

zoff_status zoff_transfer_acquire_clear_here(zoff_transfer *t, char *at, size_t bytes, void *native_stream)
{
    (void)t;
    (void)native_stream;
    memset(at, 0, bytes);
    return ZOFF_OK;
}

zoff_status zoff_transfer_acquire_clear_there(zoff_transfer *t, char *at, size_t bytes, void *native_stream)
{
    void *stream = native_stream ? native_stream : t->device.down;
    ZOFF_TRY(t->accel->ops->zero(t->accel, stream, at, bytes));
    return native_stream ? ZOFF_OK : zoff_transfer_streams_sync(t, stream);
}
