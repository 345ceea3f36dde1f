/* SPDX-License-Identifier: Apache-2.0 */
/* intake.c: gets memory for the gradient of a slice, and takes it when it is complete. Gradients of parameters that share
 * weights are first summed in fp32, in the order in which the parameters were registered. The sum is the gradient of the
 * parameter that owns the weights: see model/ties.c. */
#include "transfer.h"

#include "clock.h"
#include "try.h"

/* ---- memory ---- */

/* Seconds to wait for a buffer in use, before another one is allocated: see is_enough(). */
static const double WAIT_SECONDS = 1, SHARED_WAIT_SECONDS = 0.05;

/* Whether to stop waiting. Another rank may hand its gradients over only after a call that waits for this rank, so waiting
 * longer would deadlock. Such a call is a range of states of the same engine, or a step of another engine on the same
 * communicator. */
static bool is_enough(const zoff_transfer *t, double from)
{
    return zoff_base_clock_seconds() - from > (zoff_comm_channel_is_shared(t->comm) ? SHARED_WAIT_SECONDS : WAIT_SECONDS);
}

/* Advance what frees memory of a pool: downloads for that of a device; otherwise the exchange, because gradients that are kept
 * until the update free nothing before it.  @return OK: nothing is in flight; PENDING; an error, after which nothing is */
static zoff_status go_on(zoff_transfer *t, const zoff_grads *g)
{
    const zoff_status down = g->is_there || zoff_transfer_ranks_leave_early(t) ? zoff_transfer_download_poll(t) : ZOFF_OK;
    ZOFF_TRY(down);
    const zoff_status out = zoff_transfer_reduce_scatter_poll(t);
    return out == ZOFF_OK ? down : out;
}

typedef struct lend_wait {
    zoff_transfer *transfer;
    zoff_grads *pool;
    size_t number, bytes;
    double from;
} lend_wait;

static zoff_status find_or_make(void *ctx)
{
    const lend_wait *w = ctx;
    zoff_transfer *t = w->transfer;
    zoff_saved_error first;
    zoff_status status = zoff_transfer_arena_lend(t, w->pool, w->number, w->bytes, false);
    if (status != ZOFF_PENDING)
        return status;
    const zoff_status moves = go_on(t, w->pool);
    zoff_base_status_save(&first);
    const bool grows = moves != ZOFF_PENDING || zoff_comm_is_broken(t->comm) || is_enough(t, w->from);
    if (!grows) /* Gather weights, too: another rank may need them before it hands its gradients over. The fetch reports errors.
                 */
        (void)zoff_lending_param_gather_go_on(t->lending);
    status = zoff_transfer_arena_lend(t, w->pool, w->number, w->bytes, grows);
    if (status < 0 && moves < 0) { /* an error is the reason why no memory became free */
        zoff_base_status_restore(&first);
        return moves;
    }
    return status;
}

/* Wait for memory in use rather than allocate more and more of it. */
zoff_status zoff_transfer_intake_lend(zoff_transfer *t, zoff_grads *g, size_t number, size_t bytes, char **out)
{
    lend_wait w = {.transfer = t, .pool = g, .number = number, .bytes = bytes, .from = zoff_base_clock_seconds()};
    if (!g->slots[number].at && bytes)
        ZOFF_TRY(zoff_transfer_wire_wait_until(t, find_or_make, &w));
    *out = g->slots[number].at;
    return ZOFF_OK;
}

/* ---- complete gradients ---- */

zoff_status zoff_transfer_intake_take(zoff_transfer *t, zoff_param p, size_t slice, void *native_stream)
{
    ZOFF_TRY(ZOFF_LINK(t, take, (t, p, slice, native_stream)));
    t->model->flags[t->model->params[p].first_flag + slice] |= ZOFF_SLICE_READY;
    zoff_transfer_reduce_scatter_hand_over(t, p, slice);
    return ZOFF_OK;
}

/* ---- tied weights ---- */

zoff_status zoff_transfer_intake_open(zoff_transfer *t)
{
    const uint64_t bytes = zoff_model_ties_bytes(t->model);
    char *base;
    if (bytes == 0)
        return ZOFF_OK;
    const zoff_status status = t->route.link->sums.alloc(t, bytes, &base);
    if (status < 0)
        return zoff_base_status_prefix(status, "sums of the gradients of tied weights, %s: ", zoff_base_words_bytes(bytes));
    zoff_model_ties_place(t->model, base);
    return ZOFF_OK;
}

void zoff_transfer_intake_close(zoff_transfer *t)
{
    if (t->accumulator.tied.device)
        t->accel->ops->free(t->accel, t->accumulator.tied.device);
    zoff_base_map_free(&t->accumulator.tied.host);
    t->accumulator.tied.device = NULL;
    zoff_model_ties_dissolve(t->model);
}

static bool is_given(const zoff_model *m, uint32_t member, size_t slice)
{
    return m->flags[m->params[member].first_flag + slice] & ZOFF_SLICE_GIVEN;
}

/* Several tied parameters may name the same gradient buffer: count it once. */
static bool is_counted(const zoff_model *m, const zoff_tie *one, size_t end, size_t slice, const char *grad)
{
    zoff_dtype dtype;
    for (size_t k = 0; k < end; k++) {
        const uint32_t member = m->ties.members[one->first + k];
        if (is_given(m, member, slice) && zoff_model_params_given_grad(m, member, slice, &dtype) == grad)
            return true;
    }
    return false;
}

/* Sum the gradients of a slice that were handed over; the result is the owner's gradient from here on. */
static zoff_status add_up(zoff_transfer *t, const zoff_tie *one, size_t slice)
{
    const zoff_model *m = t->model;
    const zoff_model_param *owner = &m->params[one->owner];
    bool first = true;
    for (size_t k = 0; k < one->count; k++) {
        const uint32_t member = m->ties.members[one->first + k];
        const size_t number = m->params[member].first_flag + slice;
        zoff_accumulate_piece piece = {.count = owner->count, .first = first};
        const char *own = zoff_model_params_given_grad(m, member, slice, &piece.dtype);
        if (!is_given(m, member, slice) || (own && is_counted(m, one, k, slice, own)))
            continue;
        piece.grad = own ? own : zoff_transfer_arena_at(t->route.lent, number);
        piece.sum = (float *)(void *)(owner->grad + slice * owner->grad_stride);
        ZOFF_TRY(t->route.link->sums.add(t, &piece)); /* runs where the memory is: on the CPU, or in a device stream */
        first = false;
    }
    for (size_t k = 0; t->route.link->sums.added && k < one->count; k++)
        t->route.link->sums.added(t, m->params[m->ties.members[one->first + k]].first_flag + slice);
    return zoff_transfer_intake_take(t, one->owner, slice, t->device.compute);
}

static size_t count_given(const zoff_model *m, const zoff_tie *one, size_t slice)
{
    size_t count = 0;
    for (size_t k = 0; k < one->count; k++)
        count += is_given(m, m->ties.members[one->first + k], slice);
    return count;
}

zoff_status zoff_transfer_intake_take_tied(zoff_transfer *t, zoff_param p, size_t slice, void *native_stream)
{
    const zoff_model *m = t->model;
    const zoff_tie *one = &m->ties.all[m->params[p].tie - 1];
    uint8_t *flag = &m->flags[m->params[p].first_flag + slice];
    ZOFF_TRY(ZOFF_LINK(t, follow, (t, native_stream)));
    ZOFF_TRY(ZOFF_LINK(t, sums.follow, (t)));
    *flag |= ZOFF_SLICE_GIVEN;
    if (count_given(m, one, slice) < one->count)
        return ZOFF_OK; /* other tied gradients may still be handed over */
    zoff_status status = add_up(t, one, slice);
    if (status < 0)
        *flag = (uint8_t)(*flag & ~ZOFF_SLICE_GIVEN);
    ZOFF_TRY(status);
    t->route.link->taken(t, one->owner, slice);
    return ZOFF_OK;
}

zoff_status zoff_transfer_intake_settle(zoff_transfer *t, bool all)
{
    const zoff_model *m = t->model;
    for (size_t i = 0; i < m->ties.count; i++) {
        const zoff_tie *one = &m->ties.all[i];
        const zoff_model_param *owner = &m->params[one->owner];
        for (size_t slice = 0; slice < owner->slices; slice++) {
            for (size_t k = 0; all && k < one->count; k++) {
                const uint32_t member = m->ties.members[one->first + k];
                zoff_dtype dtype;
                const bool has = zoff_model_params_given_grad(m, member, slice, &dtype) ||
                                 zoff_transfer_arena_at(t->route.lent, m->params[member].first_flag + slice);
                if (has && !is_given(m, member, slice))
                    ZOFF_TRY(zoff_transfer_intake_take_tied(t, member, slice, NULL));
            }
            if (!(m->flags[owner->first_flag + slice] & ZOFF_SLICE_READY) && count_given(m, one, slice))
                ZOFF_TRY(add_up(t, one, slice));
        }
    }
    return ZOFF_OK;
}
