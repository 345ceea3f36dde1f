/* SPDX-License-Identifier: Apache-2.0 */
/* overlap.c: while a step is open, the engine's work in calls before zoff_step_wait(). A wait for weights, or a call that
 * borrows them, updates buckets in the order of the walk, until those of the slice are new. A wait for a gradient ends when it
 * is read. zoff_engine_progress() updates what is ready, and the next loss scale needs the gate. */
#include "engine_priv.h"

#include "try.h"

static zoff_status check(const zoff_engine *e, zoff_param p, size_t slice, void *native_stream, const char *call)
{
    ZOFF_FAIL_IF(!e, ZOFF_ERR_INVALID, "%s: engine must not be NULL", call);
    ZOFF_FAIL_IF(p >= e->model.param_count || slice >= e->model.params[p].slices, ZOFF_ERR_INVALID,
                 "%s: there is no slice %zu of parameter %u", call, slice, p);
    ZOFF_FAIL_IF(native_stream && !e->transfer.route.link->has_streams, ZOFF_ERR_INVALID,
                 "%s: accelerator \"%s\" has no streams; pass NULL", call, zoff_accel_name(e->accel));
    return ZOFF_OK;
}

/* Note an error of the work on an open step, before zoff_step_wait(), so that the step has failed. */
static void fail(zoff_engine *e, zoff_status status)
{
    e->run.fault.status = zoff_engine_step_fail(e, status);
    zoff_base_status_save(&e->run.fault.words);
}

/* The error may be that of a write of the step, whose chunk keeps its slot until it is written again. If that cannot be
 * started, the next row returns its error. */
static void write_again(zoff_engine *e)
{
    zoff_saved_error first;
    zoff_base_status_save(&first);
    (void)zoff_engine_stores_drain(e);
    zoff_base_progress_keep(&e->io.states, zoff_engine_stores_retry(e));
    zoff_base_status_restore(&first);
}

/* Where ranks gather engine-owned weights they number their calls, so this rank must repeat the call in which the others wait
 * for it, and the step stays open. Only that call starts again what has failed, because other ranks may drop the step. An error
 * of the votes is that of all ranks, for which the step has failed, and once the group is broken nobody waits any more. */
static void note_failure(zoff_engine *e, zoff_status status)
{
    const bool is_of_all = e->run.talks.has_voted && e->run.gate == ZOFF_GATE_CLOSED;
    if (!e->walk.stays_open || is_of_all || zoff_comm_is_broken(e->comm)) {
        fail(e, status);
        return;
    }
    (void)zoff_base_status_prefix(status, "step %lld is open, and goes on when the call is repeated: ", (long long)e->run.t);
    write_again(e);
    zoff_base_status_save(&e->run.fault.words);
    e->run.fault.rests = true;
}

static zoff_status take_fault(zoff_engine *e)
{
    const zoff_status status = e->run.fault.status;
    e->run.fault.status = ZOFF_OK;
    e->run.fault.rests = false;
    if (status < 0)
        zoff_base_status_restore(&e->run.fault.words);
    return status;
}

/* Work on the open step, within a call that is counted already. */
static zoff_status work_within(zoff_engine *e, zoff_status (*run)(void *ctx), void *ctx)
{
    zoff_base_team_hold(e->threads.holds_team);
    const zoff_status status = run(ctx);
    zoff_base_team_hold(false);
    if (status < 0)
        note_failure(e, status);
    return status;
}

static zoff_status work(zoff_engine *e, zoff_status (*run)(void *ctx), void *ctx)
{
    zoff_engine_stats_come(e);
    const zoff_status status = work_within(e, run, ctx);
    zoff_engine_stats_leave(e);
    return status;
}

/* Work on the step as zoff_step_wait() does, because other ranks may be in that call. */
static zoff_status work_together(zoff_engine *e, zoff_status (*run)(void *ctx), void *ctx)
{
    ZOFF_TRY(take_fault(e));
    zoff_agreement_identity_enter(&e->agreement, ZOFF_COMM_IN_STEP_WAIT | ZOFF_COMM_IN_OPEN,
                                  (zoff_comm_item){.about = ZOFF_COMM_ABOUT_NOTHING});
    const zoff_status status = work(e, run, ctx);
    zoff_comm_exit(e->comm, false);
    return status;
}

typedef struct wanted_slice {
    zoff_engine *engine;
    zoff_param param;
    size_t slice, number; /* slice of the parameter, and its number in the model */
    zoff_slice_buckets buckets;
    void *native_stream;
} wanted_slice;

static zoff_status update(void *ctx)
{
    const wanted_slice *w = ctx;
    zoff_transfer_walk_use(&w->engine->transfer, w->buckets);
    return zoff_engine_pipeline_until(w->engine, w->buckets);
}

static zoff_status make_new(void *ctx)
{
    const wanted_slice *w = ctx;
    zoff_engine *e = w->engine;
    ZOFF_TRY(update(ctx));
    zoff_traps_weights_lift(e->life.traps, w->number);
    return ZOFF_LINK(&e->transfer, let_read, (&e->transfer, w->buckets, w->native_stream));
}

/* Whether the weights of a slice are new. Where a background thread has made them new already, the call does not wait for its
 * lock. */
static bool is_slice_new(const zoff_engine *e, zoff_param p, size_t slice, const void *native_stream)
{
    if (!e || !e->walk.is_new || native_stream || p >= e->model.param_count || slice >= e->model.params[p].slices)
        return false;
    const size_t number = e->model.params[zoff_model_params_owner(&e->model, p)].first_flag + slice;
    const zoff_slice_buckets wanted = e->model.slice_buckets[number];
    return !e->model.params[p].engine_owned && wanted.first != UINT32_MAX && zoff_engine_pipeline_knows_new(e, wanted) &&
           zoff_engine_progress_thread_notes(e, wanted);
}

static zoff_status check_wait(const zoff_engine *e, zoff_param p, size_t slice, void *native_stream, const char *call)
{
    ZOFF_TRY(check(e, p, slice, native_stream, call));
    ZOFF_FAIL_IF(e->model.params[p].engine_owned, ZOFF_ERR_INVALID,
                 "%s: the weights of %s are the engine's; call zoff_param_fetch()", call, e->model.params[p].name);
    return ZOFF_OK;
}

/* A slice that was checked. */
static zoff_status wait_for(zoff_engine *e, zoff_param p, size_t slice, void *native_stream)
{
    if (e->life.phase == ZOFF_PHASE_IDLE || !e->run.last)
        return ZOFF_OK; /* the weights are those that the last step has made */
    const size_t number = e->model.params[zoff_model_params_owner(&e->model, p)].first_flag + slice;
    if (!zoff_model_slices_has(&e->model, number))
        return ZOFF_OK;
    return work_together(e, make_new, &(wanted_slice){e, p, slice, number, e->model.slice_buckets[number], native_stream});
}

zoff_status zoff_param_wait(zoff_engine *e, zoff_param p, size_t slice, void *native_stream)
{
    ZOFF_TRACED(e, false);
    if (is_slice_new(e, p, slice, native_stream))
        return ZOFF_OK;
    ZOFF_ENTER(e);
    ZOFF_TRY(check_wait(e, p, slice, native_stream, "zoff_param_wait"));
    ZOFF_TRY(zoff_engine_step_enter(e, ZOFF_CALL_PARAM_WAIT));
    return wait_for(e, p, slice, native_stream);
}

zoff_status zoff_params_wait(zoff_engine *e, zoff_param first, size_t count, size_t slice, void *native_stream)
{
    static const char CALL[] = "zoff_params_wait";
    ZOFF_TRACED(e, false);
    size_t known = 0;
    while (e && known < count && is_slice_new(e, first + (zoff_param)known, slice, native_stream))
        known++;
    if (known && known == count)
        return ZOFF_OK;
    ZOFF_ENTER(e);
    ZOFF_TRY(zoff_engine_step_enter(e, ZOFF_CALL_PARAMS_WAIT));
    ZOFF_FAIL_IF(first > e->model.param_count || count > e->model.param_count - first, ZOFF_ERR_INVALID,
                 "%s: there are no %zu parameters from %u on; the engine has %zu", CALL, count, first, e->model.param_count);
    for (size_t i = known; i < count; i++)
        ZOFF_TRY(check_wait(e, first + (zoff_param)i, slice, native_stream, CALL));
    for (size_t i = known; i < count; i++)
        ZOFF_TRY(wait_for(e, first + (zoff_param)i, slice, native_stream));
    return ZOFF_OK;
}

bool zoff_engine_overlap_lends(const zoff_engine *e)
{
    return e->walk.lends_always || (e->life.phase == ZOFF_PHASE_OPEN && e->run.last);
}

static zoff_status renew(zoff_engine *e, zoff_param p, size_t slice)
{
    const size_t number = e->model.params[zoff_model_params_owner(&e->model, p)].first_flag + slice;
    if (!zoff_model_slices_has(&e->model, number))
        return ZOFF_OK;
    return work_together(e, update, &(wanted_slice){e, p, slice, number, e->model.slice_buckets[number], NULL});
}

static zoff_status lend_in_step(zoff_engine *e, zoff_param p, size_t slice, void *native_stream, const void **out)
{
    ZOFF_TRY(renew(e, p, slice));
    zoff_engine_stats_come(e);
    /* a skipped step needs no chunk */
    zoff_status status = e->run.gate == ZOFF_GATE_SKIP ? zoff_engine_pipeline_release(e) : ZOFF_OK;
    if (status == ZOFF_OK)
        status = zoff_lending_fetch_slice(&e->lending, p, slice, native_stream, out);
    if (status < 0 && e->life.phase == ZOFF_PHASE_OPEN)
        write_again(e);
    zoff_engine_stats_leave(e);
    return status;
}

/* Several ranks finish a micro-step first. In a step that updates they work on it while they wait for each other's weights. */
zoff_status zoff_engine_overlap_fetch(zoff_engine *e, zoff_param p, size_t slice, void *native_stream, const void **out)
{
    static const char CALL[] = "zoff_param_fetch";
    if (!zoff_engine_overlap_lends(e))
        ZOFF_TRY(zoff_engine_step_idle(e, CALL));
    const bool in_step = e->life.phase == ZOFF_PHASE_OPEN && e->run.last;
    zoff_lending_fetch_enter(&e->lending, p, slice, in_step);
    const zoff_status status = in_step ? lend_in_step(e, p, slice, native_stream, out)
                                       : zoff_lending_fetch_slice(&e->lending, p, slice, native_stream, out);
    return zoff_lending_fetch_exit(&e->lending, p, slice, status);
}

/* An error of the clearing comes from the device, and fails the step, so a retry goes on behind it. */
static zoff_status let_reuse(void *ctx)
{
    const wanted_slice *w = ctx;
    zoff_engine *e = w->engine;
    size_t bytes;
    char *grad = zoff_model_params_grad_to_clear(&e->model, w->param, w->slice, &bytes);
    ZOFF_TRY(zoff_engine_pipeline_until_read(e, w->buckets));
    const bool clears = grad && e->run.flags & ZOFF_STEP_ZERO_GRADS;
    ZOFF_TRY(e->transfer.route.link->step.reuse(&e->transfer, grad, clears ? bytes : 0, w->native_stream));
    zoff_model_params_reuse(&e->model, w->param, w->slice);
    return ZOFF_OK;
}

/* A micro-step that adds gradients reads all of them at its end. */
zoff_status zoff_grad_reusable(zoff_engine *e, zoff_param p, size_t slice, void *native_stream)
{
    static const char CALL[] = "zoff_grad_reusable";
    ZOFF_TRACED(e, false);
    ZOFF_ENTER(e);
    zoff_dtype dtype;
    ZOFF_TRY(check(e, p, slice, native_stream, CALL));
    ZOFF_FAIL_IF(e->model.params[p].count && !zoff_model_params_own_grad(&e->model, p, slice, &dtype), ZOFF_ERR_INVALID,
                 "%s: %s has no gradient buffer of the program (zoff_param_desc.grad)", CALL, e->model.params[p].name);
    ZOFF_TRY(zoff_engine_step_enter(e, ZOFF_CALL_GRAD_REUSABLE));
    if (e->life.phase == ZOFF_PHASE_IDLE || !e->run.last)
        return zoff_engine_step_idle(e, CALL);
    const size_t number = e->model.params[zoff_model_params_owner(&e->model, p)].first_flag + slice;
    if (!zoff_model_slices_has(&e->model, number))
        return ZOFF_OK;
    return work_together(e, let_reuse, &(wanted_slice){e, p, slice, number, e->model.slice_buckets[number], native_stream});
}

static zoff_status decide(void *ctx)
{
    zoff_engine *e = ctx;
    e->transfer.walk.is_used = true; /* this rank votes, so ranks can no longer drop the step at moments of their own */
    return zoff_engine_pipeline_decide(e);
}

/* An open step decides about the next scale at its gate. */
zoff_status zoff_loss_scale(const zoff_engine *e, double *out)
{
    ZOFF_TRACED(e, false);
    ZOFF_ENTER(e);
    ZOFF_FAIL_IF(!e || !out, ZOFF_ERR_INVALID, "zoff_loss_scale: engine and out must not be NULL");
    ZOFF_TRY(zoff_engine_step_enter(e, ZOFF_CALL_LOSS_SCALE));
    zoff_engine *own = (zoff_engine *)(uintptr_t)e;
    const bool is_open = e->life.phase == ZOFF_PHASE_OPEN && e->run.last,
               changes = e->settings.values.fp16.enabled && e->settings.values.fp16.dynamic;
    if (is_open && changes && e->run.gate < ZOFF_GATE_OPEN)
        ZOFF_TRY(work_together(own, decide, own));
    *out = is_open ? zoff_model_loss_scale_next(&e->model, e->run.gate == ZOFF_GATE_SKIP) : e->model.scaler.scale;
    return ZOFF_OK;
}

static zoff_status turn(void *ctx)
{
    return zoff_engine_pipeline_turn(ctx);
}

/* An error of this engine's part ends the wait; the other ranks' weights are waited for on and on. */
zoff_status zoff_engine_overlap_go_on(zoff_engine *e)
{
    if (e->life.phase != ZOFF_PHASE_OPEN || !e->run.last)
        return ZOFF_OK;
    e->transfer.walk.is_used = true;
    const zoff_status status = work_within(e, turn, e);
    return status < 0 ? status : ZOFF_OK;
}

/* A step that nobody has waited for may still be dropped, on each rank at its own moment: nothing is updated, and no rank
 * votes. This is no visit of a call, because the progress thread works beside the calls of other engines of the communicator.
 * It updates only with threads of its own, because otherwise it would take a core from the program for long. */
static zoff_status go_on(zoff_engine *e)
{
    const bool works = !e->threads.in_progress || e->settings.values.background_threads;
    if (works && e->transfer.walk.is_used && !e->run.fault.rests) {
        const zoff_status status = work(e, turn, e);
        e->run.fault.status = status < 0 ? status : e->run.fault.status; /* the next call returns the error */
        return status;
    }
    zoff_engine_admit_feed(e);
    return zoff_engine_stores_busy(e, false) ? ZOFF_PENDING : ZOFF_OK;
}

zoff_status zoff_engine_progress(zoff_engine *e)
{
    ZOFF_TRACED(e, true);
    ZOFF_ENTER(e);
    ZOFF_TRY(zoff_engine_step_enter(e, ZOFF_CALL_PROGRESS));
    zoff_base_progress_pump(&e->progress); /* the step reports errors */
    /* If the device failed, nothing is in flight, and the step reports the error. */
    const bool moves = zoff_transfer_download_poll(&e->transfer) == ZOFF_PENDING || zoff_transfer_streams_upload(&e->transfer);
    const bool exchanges = zoff_transfer_reduce_scatter_go_on(&e->transfer);
    const bool assembles = zoff_lending_param_gather_go_on(&e->lending) != ZOFF_OK;
    const bool steps = e->life.phase == ZOFF_PHASE_OPEN && go_on(e) == ZOFF_PENDING;
    const bool works = !e->threads.in_progress || e->settings.values.background_threads;
    const bool precedes = works && zoff_engine_pipeline_precede(e) == ZOFF_PENDING;
    return moves || exchanges || assembles || steps || precedes || zoff_engine_stores_busy(e, false) ? ZOFF_PENDING : ZOFF_OK;
}
