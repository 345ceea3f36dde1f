/* phase.c: the phase of an engine in which a call is allowed, and the text of the error if it is not. Calls that need whole
 * states or weights finish an open step first. */
#include "engine_priv.h"

#include "try.h"

const char *zoff_engine_phase_words(const zoff_engine *e)
{
    static const char *const WORDS[] = {
        "the engine is not sealed yet",
        "no step is open",
        "a step is open; wait for it",
        "a step has failed; retry it, drop it, or destroy the engine",
        "zoff_step_measure() was called; take the step with zoff_step_args.norm_sum, or call zoff_grads_drop()",
        "zoff_checkpoint_load() has failed and left no states; load a checkpoint, or destroy the engine",
        "zoff_checkpoint_load() has failed while ranks sent each other the weights; destroy the engine on all ranks",
        "zoff_params_push() has failed while ranks sent each other weights; call it again, or destroy the engine"};
    return e->life.is_untold && e->life.phase == ZOFF_PHASE_IDLE ? "the step is complete; zoff_step_wait() returns its result"
                                                                 : WORDS[e->life.phase];
}

zoff_status zoff_engine_phase_check(const zoff_engine *e, zoff_phase wanted, const char *call)
{
    ZOFF_FAIL_IF(!e, ZOFF_ERR_INVALID, "%s: engine must not be NULL", call);
    ZOFF_FAIL_IF(e->life.phase != wanted || e->life.is_untold, ZOFF_ERR_STATE, "%s: %s", call, zoff_engine_phase_words(e));
    return ZOFF_OK;
}

zoff_status zoff_engine_phase_finish(zoff_engine *e, const char *call)
{
    ZOFF_FAIL_IF(!e, ZOFF_ERR_INVALID, "%s: engine must not be NULL", call);
    if (e->life.phase != ZOFF_PHASE_OPEN)
        return ZOFF_OK;
    const zoff_status status = e->life.finish_step(e);
    return status < 0 ? zoff_base_status_prefix(status, "%s: ", call) : ZOFF_OK;
}

zoff_status zoff_engine_phase_idle(zoff_engine *e, const char *call)
{
    ZOFF_TRY(zoff_engine_phase_finish(e, call));
    ZOFF_FAIL_IF(e->life.phase != ZOFF_PHASE_IDLE, ZOFF_ERR_STATE, "%s: %s", call, zoff_engine_phase_words(e));
    return ZOFF_OK;
}

zoff_status zoff_engine_phase_check_loaded(const zoff_engine *e, const char *call)
{
    const bool is_loaded = e->life.phase != ZOFF_PHASE_UNLOADED && e->life.phase != ZOFF_PHASE_LOST;
    ZOFF_FAIL_IF(!is_loaded, ZOFF_ERR_STATE, "%s: %s", call, zoff_engine_phase_words(e));
    return ZOFF_OK;
}

/* One rule for every call that reads states, or changes states, weights or the step number. No state contains the gradients of
 * an update in progress, so a checkpoint saved or loaded then would lose them. */
zoff_status zoff_engine_phase_whole(zoff_engine *e, const char *call)
{
    ZOFF_TRY(zoff_engine_phase_idle(e, call));
    ZOFF_FAIL_IF(
        e->transfer.batch.micro, ZOFF_ERR_STATE,
        "%s: %u of %u micro-steps of the next update are done, and no state contains the sum of their gradients; finish "
        "the update, or discard its gradients with zoff_grads_drop()",
        call, e->transfer.batch.micro, e->settings.values.accumulation);
    ZOFF_FAIL_IF(
        e->transfer.batch.handed_over, ZOFF_ERR_STATE,
        "%s: gradients of the next step were handed over (zoff_grad_ready()), and no state contains them; finish the step, "
        "or discard them with zoff_grads_drop()",
        call);
    return ZOFF_OK;
}

zoff_status zoff_engine_phase_whole_or_unsent(zoff_engine *e, const char *call)
{
    return e && e->life.phase == ZOFF_PHASE_UNSENT ? ZOFF_OK : zoff_engine_phase_whole(e, call);
}

zoff_status zoff_engine_phase_whole_or_unloaded(zoff_engine *e, const char *call)
{
    return e && e->life.phase == ZOFF_PHASE_UNLOADED ? ZOFF_OK : zoff_engine_phase_whole(e, call);
}

zoff_status zoff_engine_phase_check_weights(const zoff_engine *e, const char *call)
{
    ZOFF_FAIL_IF(e->life.awaits_weights, ZOFF_ERR_STATE,
                 "%s: the states are those after step %lld, but the weights are not; call zoff_params_push() first", call,
                 (long long)e->t);
    return ZOFF_OK;
}
