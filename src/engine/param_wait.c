/* param_wait.c: weights that are needed before a step is over. Buckets are updated inside the call, in the order of the walk,
 * until those of the slice are new; zoff_step_wait() takes the rest. */
#include "engine_priv.h"

#include "try.h"

static zoff_status check(const zoff_engine *e, zoff_param p, size_t slice, void *native_stream)
{
    ZOFF_FAIL_IF(!e, ZOFF_ERR_INVALID, "zoff_param_wait: engine must not be NULL");
    ZOFF_FAIL_IF(p >= e->model.param_count || slice >= e->model.params[p].slices, ZOFF_ERR_INVALID,
                 "zoff_param_wait: there is no slice %zu of parameter %u", slice, p);
    ZOFF_FAIL_IF(e->model.params[p].engine_owned, ZOFF_ERR_INVALID,
                 "zoff_param_wait: the weights of %s are the engine's; call zoff_step_wait(), then zoff_param_fetch()",
                 e->model.params[p].name);
    ZOFF_FAIL_IF(native_stream && !e->transfer.route.link->has_streams, ZOFF_ERR_INVALID,
                 "zoff_param_wait: accelerator \"%s\" has no streams; pass NULL", zoff_accel_name(e->accel));
    return ZOFF_OK;
}

/* Until zoff_step_wait() has returned it, every call returns the error. */
static zoff_status repeat_fault(zoff_engine *e)
{
    ZOFF_FAIL_IF(e->run.fault.status == ZOFF_OK, ZOFF_ERR_STATE, "zoff_param_wait: %s", zoff_engine_phase_words(e));
    zoff_base_status_restore(&e->run.fault.words);
    return e->run.fault.status;
}

static zoff_status advance(zoff_engine *e, zoff_slice_buckets wanted, void *native_stream)
{
    zoff_base_team_hold(e->threads.holds_team);
    const zoff_status status = zoff_engine_pipeline_until(e, wanted);
    zoff_base_team_hold(false);
    return status == ZOFF_OK ? e->transfer.route.link->let_read(&e->transfer, wanted, native_stream) : status;
}

zoff_status zoff_param_wait(zoff_engine *e, zoff_param p, size_t slice, void *native_stream)
{
    ZOFF_ENTER(e);
    ZOFF_TRY(check(e, p, slice, native_stream));
    if (e->life.phase == ZOFF_PHASE_FAILED)
        return repeat_fault(e);
    if (e->life.phase == ZOFF_PHASE_IDLE || (e->life.phase == ZOFF_PHASE_OPEN && !e->run.last))
        return ZOFF_OK; /* they are what the last step has made them */
    ZOFF_TRY(zoff_engine_phase_check(e, ZOFF_PHASE_OPEN, "zoff_param_wait"));
    const size_t number = e->model.params[zoff_model_params_owner(&e->model, p)].first_flag + slice;
    if (!zoff_model_slices_has(&e->model, number))
        return ZOFF_OK;
    /* Other ranks may be in zoff_step_wait(): the calls are one to them. */
    zoff_agreement_identity_enter(&e->agreement, ZOFF_COMM_IN_STEP_WAIT, (zoff_comm_item){.about = ZOFF_COMM_ABOUT_NOTHING});
    const zoff_status status = advance(e, e->model.slice_buckets[number], native_stream);
    zoff_comm_exit(e->comm, false);
    if (status < 0) {
        e->run.fault.status = zoff_engine_step_fail(e, status);
        zoff_base_status_save(&e->run.fault.words);
    }
    return status;
}
