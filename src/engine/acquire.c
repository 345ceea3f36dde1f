/* acquire.c: memory for the gradient of a slice; it may wait until another gradient has left its own. */
#include "engine_priv.h"

#include "clock.h"
#include "try.h"

#include <string.h>

/* How long to wait for a buffer that is on its way, before another one is made: see is_enough(). */
static const double WAIT_SECONDS = 1, SHARED_WAIT_SECONDS = 0.05;

/* Another rank may hand its gradients over only after a call that waits for this rank: a range of states of the same engine, a
 * step of another one on the same communicator. To wait on would be to wait for ever. */
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
    w->found = zoff_engine_grads_find_free(&e->grads, w->bytes);
    if (w->found)
        return ZOFF_OK;
    const bool comes_down = zoff_engine_reduce_scatter_leaves_early(e) && zoff_engine_download_poll(e) == ZOFF_PENDING;
    if (!(zoff_engine_reduce_scatter_go_on(e) || comes_down) || zoff_comm_is_broken(e->comm) || is_enough(e, w->from))
        return zoff_engine_grads_make(e, w->bytes, &w->found);
    /* Another rank may hand its gradients over only after weights that it waits for; what fails is told by the fetch. */
    (void)zoff_lending_param_gather_go_on(&e->lending);
    w->found = zoff_engine_grads_find_free(&e->grads, w->bytes);
    return w->found ? ZOFF_OK : ZOFF_PENDING;
}

/* While others are on their way it is better to wait for one of them than to have ever more. */
static zoff_status get_buffer(zoff_engine *e, size_t bytes, zoff_grad_buffer **out)
{
    buffer_wait w = {.engine = e, .bytes = bytes, .from = zoff_base_clock_seconds()};
    ZOFF_TRY(zoff_engine_ranks_wait_until(e, find_or_make, &w));
    *out = w.found;
    return ZOFF_OK;
}

static zoff_grad_slot *slot_of(const zoff_engine *e, size_t number)
{
    return &e->grads.slots[number];
}

zoff_status zoff_engine_acquire_lend(zoff_engine *e, size_t number, size_t bytes, char **out)
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
    ZOFF_FAIL_IF(p >= e->model.param_count || slice >= e->model.params[p].slices, ZOFF_ERR_INVALID,
                 "zoff_grad_acquire: there is no slice %zu of parameter %u", slice, p);
    ZOFF_FAIL_IF(zoff_engine_device_is(e), ZOFF_ERR_UNSUPPORTED,
                 "zoff_grad_acquire: gradients on accelerator \"%s\" are the program's; name them in zoff_param_desc.grad",
                 zoff_accel_name(e->accel));
    ZOFF_FAIL_IF(native_stream, ZOFF_ERR_INVALID, "zoff_grad_acquire: accelerator \"%s\" has no streams; pass NULL",
                 zoff_accel_name(e->accel));
    const zoff_model_param *param = &e->model.params[p];
    const size_t number = param->first_flag + slice;
    zoff_dtype dtype;
    const bool is_frozen = param->frozen && !param->tie;
    ZOFF_FAIL_IF(is_frozen || zoff_model_params_own_grad(&e->model, p, slice, &dtype), ZOFF_ERR_INVALID,
                 "zoff_grad_acquire: %s %s", param->name,
                 is_frozen ? "is frozen and needs no gradient" : "has a gradient buffer of the program (zoff_param_desc.grad)");
    ZOFF_FAIL_IF(zoff_model_params_is_given(&e->model, p, slice), ZOFF_ERR_STATE,
                 "zoff_grad_acquire: slice %zu of %s was handed over in this step", slice, param->name);
    const size_t bytes = param->count * zoff_adam_dtype_bytes(dtype);
    const bool is_lent = zoff_engine_grads_at(e, number) != NULL;
    char *at;
    ZOFF_TRY(zoff_engine_acquire_lend(e, number, bytes, &at));
    if (!is_lent && bytes)
        memset(at, 0, bytes);
    *out = at;
    return ZOFF_OK;
}
