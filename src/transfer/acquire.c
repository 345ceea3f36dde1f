/* acquire.c: gets memory for the gradient of a slice; may wait until another gradient has left its buffer. Memory of a device
 * is an arena. A part of it is free as soon as its gradient is downloaded, or packed for other ranks, and the host knows. So
 * the program's streams need not wait for it. */
#include "transfer.h"

#include "bits.h"
#include "clock.h"
#include "try.h"

#include <string.h>

enum { ALIGN = 64 };

/* Seconds to wait for a buffer in use, before another one is allocated: see is_enough(). */
static const double WAIT_SECONDS = 1, SHARED_WAIT_SECONDS = 0.05;

/* Whether to stop waiting. Another rank may hand its gradients over only after a call that waits for this rank: a range of
 * states of the same engine, or a step of another engine on the same communicator. Waiting longer would deadlock. */
static bool is_enough(const zoff_transfer *t, double from)
{
    return zoff_base_clock_seconds() - from > (zoff_comm_channel_is_shared(t->comm) ? SHARED_WAIT_SECONDS : WAIT_SECONDS);
}

typedef struct buffer_wait {
    zoff_transfer *transfer;
    zoff_grads *pool;
    size_t bytes;
    double from;
    zoff_grad_buffer *found;
} buffer_wait;

static bool finds(buffer_wait *w)
{
    w->found = w->pool->memory->find(w->pool, w->bytes);
    return w->found;
}

static zoff_status find_or_make(void *ctx)
{
    buffer_wait *w = ctx;
    zoff_transfer *t = w->transfer;
    if (finds(w))
        return ZOFF_OK;
    const bool is_in_flight = w->pool->memory->go_on(t);
    if (finds(w))
        return ZOFF_OK;
    if (!is_in_flight || zoff_comm_is_broken(t->comm) || is_enough(t, w->from))
        return w->pool->memory->make(t, w->pool, w->bytes, &w->found);
    /* Gather weights, too: another rank may need them before it hands its gradients over. The fetch reports errors. */
    (void)zoff_lending_param_gather_go_on(t->lending);
    return finds(w) ? ZOFF_OK : ZOFF_PENDING;
}

/* Wait for a buffer in use rather than allocate more and more of them. */
static zoff_status get_buffer(zoff_transfer *t, zoff_grads *g, size_t bytes, zoff_grad_buffer **out)
{
    buffer_wait w = {.transfer = t, .pool = g, .bytes = bytes, .from = zoff_base_clock_seconds()};
    ZOFF_TRY(zoff_transfer_wire_wait_until(t, find_or_make, &w));
    *out = w.found;
    return ZOFF_OK;
}

zoff_status zoff_transfer_acquire_lend(zoff_transfer *t, zoff_grads *g, size_t number, size_t bytes, char **out)
{
    zoff_grad_slot *slot = &g->slots[number];
    if (!slot->at && bytes) {
        zoff_grad_buffer *buffer;
        ZOFF_TRY(get_buffer(t, g, bytes, &buffer));
        buffer->used = true;
        *slot = (zoff_grad_slot){.at = buffer->at, .buffer = (size_t)(buffer - g->buffers)};
    }
    *out = slot->at;
    return ZOFF_OK;
}

/* ---- a pool in host memory ---- */

/* Memory of gradients that are kept until the update is freed by nothing before it. */
static bool go_on_host(zoff_transfer *t)
{
    const bool comes_down = t->route.peers->leaves_early(t) && zoff_transfer_download_poll(t) == ZOFF_PENDING;
    return zoff_transfer_reduce_scatter_go_on(t) || comes_down;
}

const zoff_grad_memory zoff_transfer_acquire_on_host = {.name = "host",
                                                        .find = zoff_transfer_grads_find,
                                                        .make = zoff_transfer_grads_make,
                                                        .free = zoff_transfer_grads_free,
                                                        .go_on = go_on_host};

/* ---- a pool in device memory ---- */

/* Two buckets, so that the program fills one while the other leaves; and at least two slices of any size. */
uint64_t zoff_transfer_acquire_bytes(const zoff_transfer *t)
{
    uint64_t all = 0, largest = 0;
    size_t widest = 0;
    if (t->device.lent.slots) /* it is open: buffers that were bound since do not change it */
        return t->device.lent.arena_bytes;
    for (size_t i = 0; i < t->model->param_count; i++) {
        const zoff_model_param *p = &t->model->params[i];
        if (p->grad || (p->frozen && !p->tie))
            continue;
        const uint64_t bytes = zoff_base_bits_align(p->count * zoff_adam_dtype_bytes(p->grad_dtype), ALIGN);
        all += bytes * p->slices;
        largest = zoff_base_bits_max(largest, bytes);
        widest = zoff_base_bits_max(widest, zoff_adam_dtype_bytes(p->grad_dtype));
    }
    return zoff_base_bits_min(all, 2 * zoff_base_bits_max(largest, (uint64_t)t->values->bucket_elements * widest));
}

static bool is_used(const zoff_grads *g, const char *from, const char *to)
{
    for (size_t i = 0; i < g->count; i++) {
        const zoff_grad_buffer *b = &g->buffers[i];
        if (b->used && !b->is_extra && b->at < to && from < b->at + b->bytes)
            return true;
    }
    return false;
}

/* The first gap of the arena that is large enough: at its start, or behind a buffer in use. */
static char *find_gap(const zoff_grads *g, size_t bytes)
{
    char *best = g->arena && bytes <= g->arena_bytes && !is_used(g, g->arena, g->arena + bytes) ? g->arena : NULL;
    for (size_t i = 0; i < g->count; i++) {
        const zoff_grad_buffer *b = &g->buffers[i];
        if (!b->used || b->is_extra)
            continue;
        char *at = b->at + b->bytes;
        const bool fits = bytes <= (size_t)(g->arena + g->arena_bytes - at);
        if (fits && (!best || at < best) && !is_used(g, at, at + bytes))
            best = at;
    }
    return best;
}

/* Entries of the arena are made anew each time; extra buffers keep their memory. */
static zoff_grad_buffer *find_on_device(zoff_grads *g, size_t bytes)
{
    const size_t padded = zoff_base_bits_align(bytes, ALIGN);
    zoff_grad_buffer *entry, *extra = NULL;
    for (size_t i = 0; i < g->count; i++) {
        zoff_grad_buffer *b = &g->buffers[i];
        if (!b->used && b->is_extra && b->bytes >= padded && (!extra || b->bytes < extra->bytes))
            extra = b;
        if (!b->used && !b->is_extra)
            b->at = NULL;
    }
    char *at = extra ? NULL : find_gap(g, padded);
    if (!at || zoff_transfer_grads_entry(g, &entry) < 0)
        return extra;
    *entry = (zoff_grad_buffer){.at = at, .bytes = padded};
    return entry;
}

/* The program holds more gradients than the arena has room for. */
static zoff_status make_on_device(zoff_transfer *t, zoff_grads *g, size_t bytes, zoff_grad_buffer **out)
{
    const size_t padded = zoff_base_bits_align(bytes, ALIGN);
    zoff_grad_buffer *entry;
    void *memory;
    ZOFF_FAIL_IF(
        t->values->device_memory, ZOFF_ERR_NO_MEMORY,
        "zoff_grad_acquire: the gradients that are lent now leave no room for another %s in %s, and zoff.device_memory "
        "allows no more: hand some over first (zoff_grad_ready()), or raise reduce_bucket_size",
        zoff_base_words_bytes(bytes), zoff_base_words_bytes(g->arena_bytes));
    ZOFF_TRY(zoff_transfer_grads_entry(g, &entry));
    const zoff_status status = t->accel->ops->alloc(t->accel, padded, &memory);
    if (status < 0)
        return zoff_base_status_prefix(
            status, "a gradient that zoff_grad_acquire() lends, %s of device memory: ", zoff_base_words_bytes(bytes));
    *entry = (zoff_grad_buffer){.at = memory, .bytes = padded, .is_extra = true};
    *out = entry;
    g->bytes += padded;
    return ZOFF_OK;
}

static void free_on_device(zoff_transfer *t, zoff_grad_buffer *buffer)
{
    if (buffer->is_extra)
        t->accel->ops->free(t->accel, buffer->at);
}

static bool go_on_device(zoff_transfer *t)
{
    const bool comes_down = zoff_transfer_download_poll(t) == ZOFF_PENDING;
    return zoff_transfer_reduce_scatter_go_on(t) || comes_down;
}

const zoff_grad_memory zoff_transfer_acquire_on_device = {
    .name = "device", .find = find_on_device, .make = make_on_device, .free = free_on_device, .go_on = go_on_device};

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
