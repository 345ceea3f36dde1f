/* SPDX-License-Identifier: Apache-2.0 */
/* phase.c: the check of every public call against the phase of its engine, by the table ZOFF_CALLS of view.h. */
#include "engine_priv.h"

#include "try.h"

enum { UNTOLD = ZOFF_PHASE_UNSENT + 1, PHASES }; /* the last column of the table */

static const char *const WORDS[PHASES] = {
    "the engine is not sealed yet",
    "no step is open",
    "a step is open; wait for it",
    "a step has failed; retry it, drop it, or destroy the engine",
    "zoff_step_measure() was called; take the step with zoff_step_args.norm_sum, or call zoff_grads_drop()",
    "zoff_checkpoint_load() has failed and left no states; load a checkpoint, or destroy the engine",
    "zoff_checkpoint_load() has failed while ranks sent each other the weights; destroy the engine on all ranks",
    "zoff_params_push() has failed while ranks sent each other weights; call it again, or destroy the engine",
    "the step is complete; zoff_step_wait() returns its result"};

typedef struct call_rule {
    const char *name;
    char phases[PHASES + 1];
    unsigned needs;
} call_rule;

#define RULE(call, name, phases, needs) {name, phases, needs},
static const call_rule RULES[ZOFF_CALL_COUNT] = {ZOFF_CALLS(RULE)};

static unsigned phase_of(const zoff_engine *e)
{
    return e->life.is_untold && e->life.phase == ZOFF_PHASE_IDLE ? UNTOLD : e->life.phase;
}

#define WAY_OUT                                                                                                                \
    "the group of ranks is over, so no call can finish it: end the program, and start all ranks again from the last "          \
    "checkpoint, or with zoff.persist from the state files"

bool zoff_engine_phase_is_over(const zoff_engine *e)
{
    zoff_comm *norm = e->agreement.norm.ranks.comm;
    return zoff_comm_is_broken(e->comm) || (norm && zoff_comm_is_broken(norm));
}

const char *zoff_engine_phase_failure(const zoff_engine *e, bool torn)
{
    const bool can_undo = zoff_offload_store_can_rollback(e->store) && !e->transfer.ranks.reduce;
    if (zoff_engine_phase_is_over(e))
        return torn ? "half way, and " WAY_OUT : "before anything was changed, and " WAY_OUT;
    if (!torn)
        return "before anything was changed";
    return can_undo ? "half way (zoff_step_retry() can finish it, zoff_grads_drop() undo it)"
                    : "half way (zoff_step_retry() can finish it)";
}

static const char *phase_words(const zoff_engine *e)
{
    const bool needs_ranks =
        e->life.phase == ZOFF_PHASE_FAILED || e->life.phase == ZOFF_PHASE_MEASURED || e->life.phase == ZOFF_PHASE_UNSENT;
    return needs_ranks && zoff_engine_phase_is_over(e) ? WAY_OUT : WORDS[phase_of(e)];
}

/* Why a call is refused. Some say more than the phase does. */
static const char *words_of(const zoff_engine *e, zoff_call call)
{
    const bool is_loaded = e->life.phase != ZOFF_PHASE_UNLOADED && e->life.phase != ZOFF_PHASE_LOST;
    if (call == ZOFF_CALL_ADD_PARAM)
        return "the engine is sealed; add all parameters before zoff_engine_seal()";
    if (call == ZOFF_CALL_SEAL)
        return "the engine is sealed already";
    return call == ZOFF_CALL_STEP_RETRY && is_loaded ? "no step has failed" : phase_words(e);
}

const char *zoff_engine_phase_finishes(const zoff_engine *e, zoff_call call)
{
    return e->life.phase == ZOFF_PHASE_OPEN && RULES[call].phases[ZOFF_PHASE_OPEN] == 'f' ? RULES[call].name : NULL;
}

zoff_status zoff_engine_phase_idle(const zoff_engine *e, const char *call)
{
    ZOFF_FAIL_IF(e->life.phase != ZOFF_PHASE_IDLE, ZOFF_ERR_STATE, "%s: %s", call, phase_words(e));
    return ZOFF_OK;
}

/* One rule for every call that reads states, or changes states, weights or the step number. No state contains the gradients of
 * an update in progress, so a checkpoint saved or loaded then would lose them. */
zoff_status zoff_engine_phase_check_whole(const zoff_engine *e, const char *call)
{
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

zoff_status zoff_engine_phase_check_weights(const zoff_engine *e, const char *call)
{
    ZOFF_FAIL_IF(e->life.awaits_weights >= ZOFF_AWAITS_PULL_OF, ZOFF_ERR_STATE,
                 "%s: zoff_param_pull() of %s has failed, and has set only a part of its masters; call it again", call,
                 e->model.params[e->life.awaits_weights - ZOFF_AWAITS_PULL_OF].name);
    ZOFF_FAIL_IF(e->life.awaits_weights, ZOFF_ERR_STATE,
                 "%s: the states are those after step %lld, but the weights may be others; call zoff_params_push() to compute "
                 "the weights from the states%s",
                 call, (long long)e->t, e->lending.store ? "" : ", or zoff_params_pull() to set the masters from the weights");
    return ZOFF_OK;
}

/* Return the error of a step from every call, until zoff_step_wait() has returned it. */
static zoff_status repeat_fault(const zoff_engine *e, const char *call)
{
    ZOFF_FAIL_IF(e->run.fault.status == ZOFF_OK, ZOFF_ERR_STATE, "%s: %s", call, phase_words(e));
    zoff_base_status_restore(&e->run.fault.words);
    return e->run.fault.status;
}

zoff_status zoff_engine_phase_check(const zoff_engine *e, zoff_call call)
{
    const call_rule *rule = &RULES[call];
    ZOFF_FAIL_IF(!e, ZOFF_ERR_INVALID, "%s: engine must not be NULL", rule->name);
    if (rule->phases[phase_of(e)] == 'e')
        return repeat_fault(e, rule->name);
    ZOFF_FAIL_IF(rule->phases[phase_of(e)] == '-', ZOFF_ERR_STATE, "%s: %s", rule->name, words_of(e, call));
    if (rule->needs & ZOFF_NEEDS_WHOLE && e->life.phase == ZOFF_PHASE_IDLE)
        ZOFF_TRY(zoff_engine_phase_check_whole(e, rule->name));
    if (rule->needs & ZOFF_NEEDS_WEIGHTS)
        ZOFF_TRY(zoff_engine_phase_check_weights(e, rule->name));
    return rule->needs & ZOFF_NEEDS_RETURNED ? zoff_lending_param_cache_check(&e->lending, 0, e->model.param_count, rule->name)
                                             : ZOFF_OK;
}
