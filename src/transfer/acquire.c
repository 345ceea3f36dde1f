/* acquire.c: gets memory for the gradient of a slice; may wait until another gradient has left its buffer. */
#include "transfer.h"

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

typedef struct buffer_wait {
    zoff_transfer *transfer;
    size_t bytes;
    double from;
    zoff_grad_buffer *found;
} buffer_wait;

static zoff_status find_or_make(void *ctx)
{
    buffer_wait *w = ctx;
    zoff_transfer *t = w->transfer;
    w->found = zoff_transfer_grads_find_free(&t->grads, w->bytes);
    if (w->found)
        return ZOFF_OK;
    const bool comes_down = t->route.peers->leaves_early(t) && zoff_transfer_download_poll(t) == ZOFF_PENDING;
    if (!(zoff_transfer_reduce_scatter_go_on(t) || comes_down) || zoff_comm_is_broken(t->comm) || is_enough(t, w->from))
        return zoff_transfer_grads_make(t, w->bytes, &w->found);
    /* Gather weights, too: another rank may need them before it hands its gradients over. The fetch reports errors. */
    (void)zoff_lending_param_gather_go_on(t->lending);
    w->found = zoff_transfer_grads_find_free(&t->grads, w->bytes);
    return w->found ? ZOFF_OK : ZOFF_PENDING;
}

/* Wait for a buffer in use rather than allocate more and more of them. */
static zoff_status get_buffer(zoff_transfer *t, size_t bytes, zoff_grad_buffer **out)
{
    buffer_wait w = {.transfer = t, .bytes = bytes, .from = zoff_base_clock_seconds()};
    ZOFF_TRY(zoff_transfer_wire_wait_until(t, find_or_make, &w));
    *out = w.found;
    return ZOFF_OK;
}

static zoff_grad_slot *slot_of(const zoff_transfer *t, size_t number)
{
    return &t->grads.slots[number];
}

zoff_status zoff_transfer_acquire_lend(zoff_transfer *t, size_t number, size_t bytes, char **out)
{
    zoff_grad_slot *slot = slot_of(t, number);
    if (!slot->at && bytes) {
        zoff_grad_buffer *buffer;
        ZOFF_TRY(get_buffer(t, bytes, &buffer));
        buffer->used = true;
        *slot = (zoff_grad_slot){.at = buffer->map.base, .buffer = (size_t)(buffer - t->grads.buffers)};
    }
    *out = slot->at;
    return ZOFF_OK;
}
