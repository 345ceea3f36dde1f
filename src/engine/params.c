/* SPDX-License-Identifier: Apache-2.0 */
/* params.c: public calls about parameters, their groups and the loss scaler; about the number of updates and the program's own
 * bytes, which are recorded with the states; about weights and masters; and lending engine-owned weights. */
#include "engine_priv.h"

#include "bits.h"
#include "structs.h"
#include "try.h"

#include <stdio.h>
#include <string.h>

/* Names and sizes of the parameters tell two engines of one communicator apart. */
static void identify(zoff_engine *e, const zoff_model_param *p)
{
    zoff_comm_channel *channel = &e->channel;
    const uint64_t words[] = {channel->hash, zoff_offload_layout(p->name, strlen(p->name)), p->count * p->slices};
    zoff_comm_lock(e->comm);
    if (!channel->name[0])
        snprintf(channel->name, sizeof channel->name, "%s", p->name);
    channel->hash = zoff_offload_layout(words, sizeof words);
    zoff_comm_unlock(e->comm);
}

zoff_status zoff_engine_add_param(zoff_engine *e, const zoff_param_desc *desc, zoff_param *out)
{
    ZOFF_ENTER(e);
    ZOFF_FAIL_IF(!e || !desc, ZOFF_ERR_INVALID, "zoff_engine_add_param: engine and desc must not be NULL");
    ZOFF_TRY(zoff_engine_step_enter(e, ZOFF_CALL_ADD_PARAM));
    zoff_param_desc known = ZOFF_PARAM_DESC_INIT;
    ZOFF_TRY(zoff_base_structs_read("zoff_param_desc", "ZOFF_PARAM_DESC_INIT", desc, &known, sizeof known));
    known.grad = known.grad == ZOFF_NO_GRAD ? NULL : known.grad;
    ZOFF_TRY(zoff_model_params_add(&e->model, &known, out));
    identify(e, &e->model.params[e->model.param_count - 1]);
    return ZOFF_OK;
}

zoff_status zoff_engine_find_param(const zoff_engine *e, const char *name, zoff_param *out)
{
    ZOFF_ENTER(e);
    ZOFF_FAIL_IF(!e || !name || !out, ZOFF_ERR_INVALID, "zoff_engine_find_param: engine, name and out must not be NULL");
    const zoff_param *found = zoff_model_params_find(&e->model, name);
    ZOFF_FAIL_IF(!found, ZOFF_ERR_INVALID, "zoff_engine_find_param: none of the %zu parameters is named '%.200s'",
                 e->model.param_count, name);
    *out = *found;
    return ZOFF_OK;
}

zoff_status zoff_engine_set_group(zoff_engine *e, unsigned group, const zoff_optimizer_hyper *hyper)
{
    ZOFF_ENTER(e);
    ZOFF_FAIL_IF(!e || !hyper, ZOFF_ERR_INVALID, "zoff_engine_set_group: engine and hyper must not be NULL");
    ZOFF_TRY(zoff_engine_step_enter(e, ZOFF_CALL_SET_GROUP));
    return zoff_model_groups_set(&e->model, group, hyper, "zoff_engine_set_group");
}

zoff_status zoff_engine_set_lr(zoff_engine *e, unsigned group, double lr)
{
    ZOFF_ENTER(e);
    zoff_optimizer_hyper h;
    zoff_optimizer_hyper_init(&h, ZOFF_OPTIMIZER_KEEP);
    h.lr = lr;
    ZOFF_TRY(zoff_engine_step_enter(e, ZOFF_CALL_SET_LR));
    ZOFF_FAIL_IF(
        !zoff_model_lr_schedule_uses_lr(&e->settings.values.schedule), ZOFF_ERR_INVALID,
        "zoff_engine_set_lr: the scheduler computes the rate of each step from its own parameters. Set its warmup_max_lr to "
        "null, if it has one, or remove the scheduler, or give the rate with the step: zoff_step_args.hyper");
    return zoff_model_groups_set(&e->model, group, &h, "zoff_engine_set_lr");
}

zoff_status zoff_engine_get_group(const zoff_engine *e, unsigned group, int64_t t, zoff_optimizer_hyper *out)
{
    ZOFF_ENTER(e);
    ZOFF_FAIL_IF(!e || !out, ZOFF_ERR_INVALID, "zoff_engine_get_group: engine and out must not be NULL");
    return zoff_model_groups_get(&e->model, group, t, out);
}

zoff_comm *zoff_engine_comm(const zoff_engine *e)
{
    return e ? e->comm : NULL;
}

zoff_status zoff_loss_scaler_get(const zoff_engine *e, zoff_loss_scaler *out)
{
    ZOFF_ENTER(e);
    ZOFF_FAIL_IF(!e || !out, ZOFF_ERR_INVALID, "zoff_loss_scaler_get: engine and out must not be NULL");
    ZOFF_TRY(zoff_engine_step_enter(e, ZOFF_CALL_LOSS_SCALER_GET));
    ZOFF_TRY(zoff_base_structs_check_out("zoff_loss_scaler", "ZOFF_LOSS_SCALER_INIT", out));
    zoff_base_structs_write(&e->model.scaler, sizeof e->model.scaler, out);
    return ZOFF_OK;
}

zoff_status zoff_loss_scaler_set(zoff_engine *e, const zoff_loss_scaler *scaler)
{
    ZOFF_ENTER(e);
    ZOFF_FAIL_IF(!e || !scaler, ZOFF_ERR_INVALID, "zoff_loss_scaler_set: engine and scaler must not be NULL");
    ZOFF_TRY(zoff_engine_step_enter(e, ZOFF_CALL_LOSS_SCALER_SET));
    return zoff_model_loss_scale_set(&e->model, scaler);
}

/* ---- the number of updates ---- */

zoff_status zoff_step_count(const zoff_engine *e, int64_t *out)
{
    ZOFF_ENTER(e);
    ZOFF_FAIL_IF(!e || !out, ZOFF_ERR_INVALID, "zoff_step_count: engine and out must not be NULL");
    ZOFF_TRY(zoff_engine_step_enter(e, ZOFF_CALL_STEP_COUNT));
    *out = e->t;
    return ZOFF_OK;
}

zoff_status zoff_step_count_set(zoff_engine *e, int64_t t)
{
    ZOFF_ENTER(e);
    ZOFF_FAIL_IF(!e, ZOFF_ERR_INVALID, "zoff_step_count_set: engine must not be NULL");
    ZOFF_FAIL_IF(t < 0 || t == INT64_MAX, ZOFF_ERR_INVALID,
                 "zoff_step_count_set: t is %lld; expected the number of updates made", (long long)t);
    ZOFF_TRY(zoff_engine_step_enter(e, ZOFF_CALL_STEP_COUNT_SET));
    const int64_t before = e->t;
    const bool is_recorded = e->store && (t != before || e->ranges.unsaved || e->model.program.count ||
                                          (e->settings.values.persist && e->settings.values.fp16.enabled));
    e->t = t;
    zoff_status status = is_recorded ? zoff_engine_stores_record_ranges(e, ZOFF_COMM_IN_COUNT_SET) : ZOFF_OK;
    if (status < 0)
        e->t = before;
    return status;
}

/* ---- the program's own bytes ---- */

/* The block of rank 0, for bytes that all ranks share. */
typedef struct shared_block {
    uint64_t bytes;
    char block[ZOFF_PROGRAM_BYTES_MOST];
} shared_block;

/* Ranks that have not found states have nothing to copy, and all of them know. */
static zoff_status get_shared(zoff_engine *e, shared_block *shared)
{
    const zoff_program_bytes *program = &e->model.program;
    shared->bytes = program->found_bytes;
    if (program->found_bytes)
        memcpy(shared->block, program->found, program->found_bytes);
    return zoff_agreement_vote_share(&e->agreement.ranks, 0, shared, sizeof *shared);
}

static zoff_status keep_list(zoff_engine *e, const zoff_checkpoint_data *data, size_t count)
{
    const zoff_program_bytes *program = &e->model.program;
    shared_block *shared = NULL;
    zoff_status status = zoff_model_program_bytes_check(data, count);
    if (status == ZOFF_OK)
        status = zoff_base_mem_alloc(1, sizeof *shared, "the program's bytes of rank 0", &shared);
    status = zoff_agreement_vote_success(&e->agreement.ranks, status);
    if (status == ZOFF_OK)
        status = get_shared(e, shared);
    if (status == ZOFF_OK)
        status = zoff_model_program_bytes_restore(program, shared->block, (size_t)shared->bytes, true, data, count);
    if (status == ZOFF_OK)
        status = zoff_model_program_bytes_set(&e->model.program, data, count);
    status = zoff_agreement_vote_success(&e->agreement.ranks, status);
    if (status == ZOFF_OK)
        status = zoff_model_program_bytes_restore(program, shared->block, (size_t)shared->bytes, false, data, count);
    zoff_base_mem_free(shared);
    return status;
}

zoff_status zoff_persist_data(zoff_engine *e, const zoff_checkpoint_data *data, size_t count)
{
    ZOFF_ENTER(e);
    ZOFF_FAIL_IF(!e || (!data && count), ZOFF_ERR_INVALID, "zoff_persist_data: engine and data must not be NULL");
    ZOFF_TRY(zoff_engine_step_enter(e, ZOFF_CALL_PERSIST_DATA));
    ZOFF_FAIL_IF(
        !e->settings.values.persist, ZOFF_ERR_INVALID,
        "zoff_persist_data: no file of this engine stays. Set zoff.persist to true, which needs states on NVMe, or save "
        "the bytes in checkpoints: zoff_checkpoint_opts.data");
    zoff_agreement_identity_enter(&e->agreement, ZOFF_COMM_IN_PERSIST_DATA, (zoff_comm_item){.about = ZOFF_COMM_ABOUT_NOTHING});
    return zoff_agreement_identity_exit(&e->agreement, keep_list(e, data, count));
}

/* ---- weights from masters, and masters from weights ---- */

zoff_status zoff_params_pull(zoff_engine *e)
{
    ZOFF_ENTER(e);
    ZOFF_TRY(zoff_engine_step_enter(e, ZOFF_CALL_PARAMS_PULL));
    ZOFF_FAIL_IF(e->life.awaits_weights == ZOFF_AWAITS_ALL && e->lending.store, ZOFF_ERR_STATE,
                 "zoff_params_pull: the states are those after step %lld, but the engine-owned weights do not exist "
                 "yet; call zoff_params_push(), which computes them from the states",
                 (long long)e->t);
    if (e->settings.values.persist)
        zoff_agreement_identity_enter(&e->agreement, ZOFF_COMM_IN_PULL, (zoff_comm_item){.about = ZOFF_COMM_ABOUT_NOTHING});
    (void)zoff_engine_states_check_left(e, "zoff_params_pull"); /* this is for a save that is under way */
    zoff_status status = zoff_engine_states_pull(e);
    if (e->settings.values.persist)
        (void)zoff_agreement_identity_exit(&e->agreement, status);
    /* After an error, some masters are new and others are not. Steps are refused until a pull or push makes all of them
     * consistent. */
    e->life.awaits_weights = status < 0 && (e->life.awaits_weights || !e->lending.store);
    zoff_traps_weights_note(e->life.traps);
    return status;
}

/* Masters are committed as a range of states is. */
static zoff_status pull_param(zoff_engine *e, zoff_param p)
{
    (void)zoff_engine_states_check_left(e, "zoff_param_pull"); /* this is for a save that is under way */
    if (!zoff_engine_stores_commit_together(e))
        return zoff_engine_states_pull_param(e, p);
    zoff_agreement_identity_enter(&e->agreement, ZOFF_COMM_IN_PULL,
                                  (zoff_comm_item){.about = ZOFF_COMM_ABOUT_MASTER,
                                                   .param = p,
                                                   .extra = e->model.params[p].count * e->model.params[p].slices});
    return zoff_agreement_identity_exit(&e->agreement, zoff_engine_states_pull_param(e, p));
}

zoff_status zoff_param_pull(zoff_engine *e, zoff_param p)
{
    ZOFF_ENTER(e);
    ZOFF_TRY(zoff_engine_step_enter(e, ZOFF_CALL_PARAM_PULL));
    ZOFF_FAIL_IF(p >= e->model.param_count, ZOFF_ERR_INVALID, "zoff_param_pull: there is no parameter %u; the engine has %zu",
                 p, e->model.param_count);
    const zoff_param owner = zoff_model_params_owner(&e->model, p);
    const uint64_t before = e->life.awaits_weights, own_failure = ZOFF_AWAITS_PULL_OF + (uint64_t)owner;
    if (before != own_failure && (before != ZOFF_AWAITS_ALL || e->model.params[p].engine_owned))
        ZOFF_TRY(zoff_engine_phase_check_weights(e, "zoff_param_pull"));
    ZOFF_TRY(zoff_lending_param_cache_check(&e->lending, p, 1, "zoff_param_pull"));
    const zoff_status status = pull_param(e, owner);
    if (before != ZOFF_AWAITS_ALL)
        e->life.awaits_weights = status < 0 ? own_failure : ZOFF_AWAITS_NOTHING;
    if (status == ZOFF_OK)
        zoff_traps_weights_note_param(e->life.traps, owner);
    return status;
}

zoff_status zoff_params_push(zoff_engine *e)
{
    ZOFF_ENTER(e);
    ZOFF_TRY(zoff_engine_step_enter(e, ZOFF_CALL_PARAMS_PUSH));
    zoff_agreement_identity_enter(&e->agreement, ZOFF_COMM_IN_PUSH, (zoff_comm_item){.about = ZOFF_COMM_ABOUT_NOTHING});
    zoff_status status = zoff_agreement_identity_exit(&e->agreement, zoff_engine_states_push(e));
    e->life.awaits_weights = e->life.awaits_weights && status < 0;
    zoff_traps_weights_note(e->life.traps);
    /* Refuse other states, because they would make the rest of the weights differ from those that were sent. */
    const bool is_unsent = zoff_engine_stores_is_spreading(e) && !zoff_comm_is_broken(e->comm);
    e->life.phase = is_unsent ? ZOFF_PHASE_UNSENT : ZOFF_PHASE_IDLE;
    return status;
}

/* ---- engine-owned weights ---- */

static zoff_status check_slice(const zoff_engine *e, zoff_param p, size_t slice, const void *native_stream, const char *call)
{
    ZOFF_FAIL_IF(p >= e->model.param_count || slice >= e->model.params[p].slices, ZOFF_ERR_INVALID,
                 "%s: there is no slice %zu of parameter %u", call, slice, p);
    ZOFF_FAIL_IF(!e->model.params[p].engine_owned, ZOFF_ERR_INVALID,
                 "%s: the weights of %s are in the caller's memory (zoff_param_desc.engine_owned is false)", call,
                 e->model.params[p].name);
    ZOFF_FAIL_IF(native_stream && !e->transfer.route.link->has_streams, ZOFF_ERR_INVALID,
                 "%s: accelerator \"%s\" has no streams; pass NULL", call, zoff_accel_name(e->accel));
    return ZOFF_OK;
}

zoff_status zoff_param_fetch(zoff_engine *e, zoff_param p, size_t slice, void *native_stream, const void **out)
{
    ZOFF_TRACED(e, false);
    ZOFF_ENTER(e);
    ZOFF_TRY(zoff_engine_step_enter(e, ZOFF_CALL_PARAM_FETCH));
    ZOFF_TRY(check_slice(e, p, slice, native_stream, "zoff_param_fetch"));
    ZOFF_FAIL_IF(!out, ZOFF_ERR_INVALID, "zoff_param_fetch: out must not be NULL");
    return zoff_engine_overlap_fetch(e, p, slice, native_stream, out);
}

zoff_status zoff_param_release(zoff_engine *e, zoff_param p, size_t slice, void *native_stream)
{
    ZOFF_ENTER(e);
    ZOFF_TRY(zoff_engine_step_enter(e, ZOFF_CALL_PARAM_RELEASE));
    ZOFF_TRY(check_slice(e, p, slice, native_stream, "zoff_param_release"));
    if (!zoff_engine_overlap_lends(e))
        ZOFF_TRY(zoff_engine_step_idle(e, "zoff_param_release"));
    /* First, because a release that has failed must not have released. */
    ZOFF_TRY(native_stream ? ZOFF_LINK(&e->transfer, follow, (&e->transfer, native_stream)) : ZOFF_OK);
    return zoff_lending_fetch_release(&e->lending, p, slice, native_stream);
}
