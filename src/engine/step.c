/* SPDX-License-Identifier: Apache-2.0 */
/* step.c: one step as the caller sees it: begin, wait, and recovery after a failed wait. */
#include "engine_priv.h"

#include "bits.h"
#include "clock.h"
#include "log.h"
#include "structs.h"
#include "try.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* Copy the caller's struct, which may be shorter or longer than this version's. */
static zoff_status known_args(const zoff_step_args *args, zoff_step_args *out)
{
    *out = (zoff_step_args)ZOFF_STEP_ARGS_INIT;
    if (!args)
        return ZOFF_OK;
    ZOFF_TRY(zoff_base_structs_read("zoff_step_args", "ZOFF_STEP_ARGS_INIT", args, out, sizeof *out));
    /* The engine counts on from t, so the next step must have a number, too. */
    ZOFF_FAIL_IF(out->t < 0 || out->t == INT64_MAX, ZOFF_ERR_INVALID,
                 "zoff_step: t is %lld; expected a number from 1 to below 2^63 - 1, or 0 to let the engine count",
                 (long long)out->t);
    ZOFF_FAIL_IF(!(fabs(out->grad_scale) <= FLT_MAX), ZOFF_ERR_INVALID, "zoff_step: grad_scale %g is not a finite fp32 number",
                 out->grad_scale);
    ZOFF_FAIL_IF(!isfinite(out->clip_norm), ZOFF_ERR_INVALID, "zoff_step: clip_norm is not finite");
    ZOFF_FAIL_IF(out->flags & ~(unsigned)ZOFF_STEP_ZERO_GRADS, ZOFF_ERR_INVALID, "zoff_step: unknown flags 0x%x", out->flags);
    return ZOFF_OK;
}

/* A joined norm needs the measurement that it contains. */
static zoff_status check_sum(const zoff_engine *e, const zoff_step_args *args)
{
    ZOFF_FAIL_IF(args->norm_sum && e->life.phase != ZOFF_PHASE_MEASURED, ZOFF_ERR_STATE,
                 "zoff_step: zoff_step_args.norm_sum is given, but this step was not measured: call zoff_step_measure() first");
    ZOFF_FAIL_IF(
        !args->norm_sum && e->life.phase == ZOFF_PHASE_MEASURED, ZOFF_ERR_INVALID,
        "zoff_step: the step was measured by zoff_step_measure(): pass the joined sum in zoff_step_args.norm_sum, or call "
        "zoff_grads_drop()");
    return ZOFF_OK;
}

/* Elements that this step must update. They are counted from the list of parameters, and not from the plan: both must agree. */
static uint64_t count_expected(const zoff_engine *e)
{
    uint64_t expected = 0;
    for (size_t i = 0; i < e->model.param_count; i++) {
        const zoff_model_param *p = &e->model.params[i];
        for (size_t slice = 0; !p->frozen && slice < p->slices; slice++)
            expected += e->model.flags[p->first_flag + slice] ? p->count : 0;
    }
    return expected;
}

/* The cost of buckets that were updated ahead is a part of this step. */
static void carry_over(const zoff_step_run *ahead, zoff_step_run *run)
{
    const zoff_step_info *had = &ahead->info;
    run->before = ahead->before;
    run->info.bytes.host_read = had->bytes.host_read;
    run->info.bytes.host_written = had->bytes.host_written;
    run->info.seconds.measure = had->seconds.measure;
    run->info.seconds.update = had->seconds.update;
    run->info.buckets = had->buckets;
}

/* Find all errors of a call here, before anything is started. */
static zoff_status prepare(zoff_engine *e, const zoff_step_args *args)
{
    zoff_step_args known;
    ZOFF_TRY(zoff_engine_progress_thread_fault(e));
    ZOFF_TRY(known_args(args, &known));
    ZOFF_TRY(check_sum(e, &known));
    uint32_t micro_steps = e->settings.values.accumulation;
    zoff_step_run run = {.t = known.t ? known.t : e->t + 1,
                         .clip_norm = known.clip_norm == 0 ? e->settings.values.clip_norm : known.clip_norm,
                         .grad_scale = known.grad_scale == 0 ? 1.0 : known.grad_scale,
                         .flags = known.flags,
                         .last = e->transfer.batch.micro + 1 == micro_steps,
                         .clock.began = zoff_base_clock_seconds()};
    ZOFF_FAIL_IF(
        e->transfer.batch.micro && run.grad_scale != e->transfer.batch.micro_scale, ZOFF_ERR_INVALID,
        "zoff_step: grad_scale is %g, but %g in the micro-steps before it: all micro-steps of a step need the same scale",
        run.grad_scale, e->transfer.batch.micro_scale);
    ZOFF_TRY(zoff_model_loss_scale_check(&e->model, run.grad_scale));
    ZOFF_TRY(zoff_model_ties_check(&e->model));
    ZOFF_TRY(zoff_engine_states_check_left(e, "zoff_step"));
    for (size_t group = 0; group < e->model.group_count; group++)
        ZOFF_TRY(zoff_model_groups_of_step(&e->model, &known, group, run.t, &e->gate.hyper[group]));
    if (run.last) {
        ZOFF_TRY(zoff_lending_param_cache_check(&e->lending, 0, e->model.param_count, "zoff_step"));
        ZOFF_TRY(zoff_lending_param_gather_finish(&e->lending));
        ZOFF_TRY(zoff_lending_copies_settle(&e->lending));
    }
    ZOFF_TRY(zoff_transfer_device_tier_calm(&e->transfer));
    ZOFF_TRY(zoff_engine_stores_retry(e));
    zoff_engine_stores_begin_count(e, &run.before);
    run.info = (zoff_step_info){.micro_step = e->transfer.batch.micro + 1,
                                .micro_steps = micro_steps,
                                .t = run.t,
                                .stop_requested = e->gate.stop_agreed,
                                .numbers = {.lr = e->model.group_count ? e->gate.hyper[0].lr : 0,
                                            .clip_factor = 1,
                                            .loss_scale = e->model.scaler.scale,
                                            .elements_owned = e->plan.elements}};
    run.looks = run.clip_norm > 0 || e->settings.values.skip_nonfinite;
    if (e->walk.speculation.is_begun)
        carry_over(&e->run, &run);
    e->run = run;
    e->transfer.batch.updated = e->transfer.batch.spread = 0;
    e->transfer.batch.closed = false;
    zoff_agreement_participation_begin(&e->agreement);
    e->transfer.batch.micro_scale = run.grad_scale;
    return ZOFF_OK;
}

static void start(zoff_engine *e)
{
    zoff_trace_step_begin(e->life.trace, e->run.t);
    e->run.expected = count_expected(e); /* with several ranks, set again once they have agreed */
    zoff_transfer_reduce_scatter_end(&e->transfer);
    e->life.phase = ZOFF_PHASE_OPEN;
    zoff_engine_pipeline_begin(e);
}

zoff_status zoff_step_prepare(zoff_engine *e, const zoff_step_args *args)
{
    ZOFF_ENTER(e);
    zoff_step_args known;
    ZOFF_TRY(zoff_engine_phase_check(e, ZOFF_CALL_STEP_PREPARE));
    ZOFF_TRY(known_args(args, &known));
    ZOFF_FAIL_IF(known.norm_sum, ZOFF_ERR_INVALID, "zoff_step_prepare: norm_sum is for zoff_step() after zoff_step_measure()");
    zoff_speculation_terms *terms = &e->walk.speculation.terms;
    const int64_t t = known.t ? known.t : e->t + 1;
    terms->is_said = false;
    for (size_t group = 0; group < e->model.group_count; group++)
        ZOFF_TRY(zoff_model_groups_of_step(&e->model, &known, group, t, &terms->hyper[group]));
    terms->t = t;
    terms->grad_scale = known.grad_scale == 0 ? 1.0 : known.grad_scale;
    terms->is_said = true;
    return ZOFF_OK;
}

static void enter(zoff_engine *e, unsigned call)
{
    zoff_agreement_identity_enter(&e->agreement, call, (zoff_comm_item){.about = ZOFF_COMM_ABOUT_NOTHING});
}

/* ---- a step that was measured ---- */

/* Find all errors of the call before anything changes. The gate votes again, with the joined norm. */
static zoff_status resume(zoff_engine *e, const zoff_step_args *args)
{
    zoff_step_args known;
    zoff_step_run *run = &e->run;
    zoff_norm_record sum;
    ZOFF_TRY(known_args(args, &known));
    ZOFF_TRY(check_sum(e, &known));
    ZOFF_TRY(zoff_agreement_norm_sum_take(known.norm_sum, &run->sum, &sum));
    const double scale = known.grad_scale == 0 ? 1.0 : known.grad_scale;
    ZOFF_FAIL_IF((known.t && known.t != run->t) || scale != run->grad_scale, ZOFF_ERR_INVALID,
                 "zoff_step: step %lld was measured with grad_scale %g, but now t is %lld and grad_scale %g", (long long)run->t,
                 run->grad_scale, (long long)known.t, scale);
    for (size_t group = 0; group < e->model.group_count; group++)
        ZOFF_TRY(zoff_model_groups_of_step(&e->model, &known, group, run->t, &e->gate.hyper[group]));
    run->clip_norm = known.clip_norm == 0 ? e->settings.values.clip_norm : known.clip_norm;
    run->flags = known.flags;
    run->looks = run->clip_norm > 0 || e->settings.values.skip_nonfinite;
    run->info.numbers.lr = e->model.group_count ? e->gate.hyper[0].lr : 0;
    run->sum = sum;
    run->has_sum = true;
    run->measures = false;
    run->gate = ZOFF_GATE_CLOSED;
    zoff_engine_stats_come(e);
    e->life.phase = ZOFF_PHASE_OPEN;
    return ZOFF_OK;
}

zoff_status zoff_step_measure(zoff_engine *e, const zoff_step_args *args, zoff_norm_sum *out)
{
    ZOFF_TRACED(e, false);
    ZOFF_ENTER(e);
    ZOFF_TRY(zoff_engine_phase_check(e, ZOFF_CALL_STEP_MEASURE));
    ZOFF_FAIL_IF(!out, ZOFF_ERR_INVALID, "zoff_step_measure: out must not be NULL");
    ZOFF_FAIL_IF(e->agreement.norm.ranks.comm, ZOFF_ERR_UNSUPPORTED,
                 "zoff_step_measure: this engine shares its norm by zoff_engine_opts.norm_comm, too: use one of the two");
    ZOFF_FAIL_IF(e->transfer.batch.micro + 1 < e->settings.values.accumulation, ZOFF_ERR_STATE,
                 "zoff_step_measure: micro-step %u of %u does not update; call zoff_step() for it, and measure the last one",
                 e->transfer.batch.micro + 1, e->settings.values.accumulation);
    ZOFF_TRY(zoff_engine_admit_close_ranges(e));
    enter(e, ZOFF_COMM_IN_STEP_BEGIN | ZOFF_COMM_IN_STEP);
    ZOFF_TRY(zoff_agreement_identity_exit(&e->agreement, prepare(e, args)));
    zoff_status status = zoff_engine_handover_all(e);
    if (status < 0)
        zoff_comm_uncount(e->comm); /* the program repeats the call */
    ZOFF_TRY(status);
    e->run.looks = e->run.measures = true;
    e->gate.measurements++; /* a sum of an attempt that was dropped must not serve this one */
    start(e);
    enter(e, ZOFF_COMM_IN_STEP_WAIT | ZOFF_COMM_IN_STEP);
    status = zoff_engine_pipeline_measure(e);
    if (status < 0)
        zoff_engine_gate_fail(e); /* nobody may wait for a retry, because there is none */
    e->life.phase = status < 0 ? ZOFF_PHASE_FAILED : ZOFF_PHASE_MEASURED;
    zoff_engine_stats_leave(e);
    if (status < 0)
        zoff_base_status_prefix(status, "measuring step %lld failed before anything was changed: ", (long long)e->run.t);
    ZOFF_TRY(zoff_agreement_identity_exit(&e->agreement, status));
    const zoff_norm_part *norm = &e->gate.norm;
    e->run.sum =
        (zoff_norm_record){.is_poisoned = norm->is_poisoned, .scale = norm->terms[ZOFF_NORM_SCALE], .squares = norm->squares};
    zoff_agreement_norm_sum_name(&e->agreement, e->gate.measurements, &e->run.sum);
    zoff_agreement_norm_sum_write(&e->run.sum, out);
    return ZOFF_OK;
}

/* Leave a step open, because its call returns to the program. */
static void leave_open(zoff_engine *e)
{
    if (e->run.last && !e->io.guard) /* a save reads weights beside the step */
        zoff_traps_weights_set(e->life.traps);
    zoff_engine_stats_leave(e);
}

zoff_status zoff_step_begin(zoff_engine *e, const zoff_step_args *args)
{
    ZOFF_TRACED(e, false);
    ZOFF_ENTER(e);
    ZOFF_TRY(zoff_engine_phase_check(e, ZOFF_CALL_STEP_BEGIN));
    if (e->life.phase == ZOFF_PHASE_MEASURED) {
        ZOFF_TRY(resume(e, args));
        leave_open(e);
        return ZOFF_OK;
    }
    /* Undoing a step goes back to the last commit, so ranges are committed before it. */
    ZOFF_TRY(zoff_engine_admit_close_ranges(e));
    enter(e, ZOFF_COMM_IN_STEP_BEGIN);
    ZOFF_TRY(zoff_agreement_identity_exit(&e->agreement, prepare(e, args)));
    const zoff_status status = zoff_transfer_intake_settle(&e->transfer, false);
    if (status < 0)
        zoff_comm_uncount(e->comm); /* the program repeats the call */
    ZOFF_TRY(status);
    start(e);
    leave_open(e);
    return ZOFF_OK;
}

/* The statistics that are known when the walk ends, with or without an error. */
static void complete_info(zoff_engine *e)
{
    zoff_step_info *info = &e->run.info;
    zoff_store_stats now;
    zoff_engine_stores_stats(e, &now);
    info->bytes.nvme_read = now.read_bytes - e->run.before.read_bytes;
    info->bytes.nvme_written = now.write_bytes - e->run.before.write_bytes;
    info->bytes.nvme_read_ahead = now.ahead_bytes - e->run.before.ahead_bytes;
    info->seconds.io_wait = now.wait_seconds - e->run.before.wait_seconds;
    info->seconds.checksum = now.check_seconds - e->run.before.check_seconds;
    info->seconds.total = zoff_base_clock_seconds() - e->run.clock.began;
    info->seconds.visible = info->seconds.total - e->run.clock.hidden;
    info->seconds.save_wait = e->run.save_wait_seconds;
    zoff_transfer_ranks_count(&e->transfer, info);
    info->bytes.device_read = e->transfer.device.read_bytes + e->lending.there.link.read_bytes;
    info->bytes.device_written = e->transfer.device.write_bytes + e->lending.there.link.write_bytes;
    info->seconds.measure += e->transfer.batch.early.measure_seconds;
    info->bytes.host_read += e->transfer.batch.early.read_bytes;
    info->bytes.host_written += e->transfer.batch.early.write_bytes;
    e->transfer.batch.early = (zoff_early){.read_bytes = 0};
}

static void give_info(const zoff_step_info *info, zoff_step_info *out)
{
    if (out)
        zoff_base_structs_write(info, sizeof *info, out);
}

/* Set the flags after a micro-step: gradients that were handed over are in the accumulator. After the last micro-step all flags
 * are cleared. */
static void turn_flags(zoff_engine *e)
{
    for (size_t i = 0; i < e->model.slice_count; i++)
        e->model.flags[i] = e->run.last || !e->model.flags[i] ? 0 : ZOFF_SLICE_PRESENT;
}

/* An update without any gradient is usually a mistake in the trainer. Warn only once, because it would repeat in each step. */
static void warn_of_nothing(zoff_engine *e)
{
    bool trains = false, present = false;
    for (size_t i = 0; i < e->model.param_count; i++)
        trains = trains || (!e->model.params[i].frozen && e->model.params[i].count);
    for (size_t i = 0; i < e->model.slice_count; i++)
        present = present || e->model.flags[i];
    if (!trains || present || e->totals.warned_of_nothing || zoff_comm_rank(e->comm) != 0)
        return;
    e->totals.warned_of_nothing = true;
    ZOFF_WARN(
        "step %lld updates nothing: no parameter has a gradient. Set gradient buffers in zoff_param_desc.grad or with "
        "zoff_param_bind(), or hand gradients over with zoff_grad_ready(). The step is counted, and the schedule advances",
        (long long)e->run.t);
}

static zoff_status finish(zoff_engine *e)
{
    zoff_step_info *info = &e->run.info;
    ZOFF_FAIL_IF(
        e->run.last && !info->skipped && info->numbers.elements_updated != e->run.expected, ZOFF_ERR_STATE,
        "coverage: %llu elements were updated where %llu have gradients; this is a defect of the library, please report it",
        (unsigned long long)info->numbers.elements_updated, (unsigned long long)e->run.expected);
    if (e->run.last && !info->skipped)
        warn_of_nothing(e);
    if (e->transfer.route.link->step.recorded)
        e->transfer.route.link->step.recorded(&e->transfer, e->run.flags & ZOFF_STEP_ZERO_GRADS);
    turn_flags(e);
    if (e->run.last)
        e->transfer.batch.weights = (zoff_exact){.terms = 0};
    else
        zoff_transfer_reduce_scatter_add_weight(&e->transfer, &e->transfer.batch.weights);
    zoff_transfer_ranks_count_anew(&e->transfer);
    zoff_engine_stats_count_device_anew(e);
    info->accumulated = !e->run.last;
    info->outcome = e->run.last && !info->skipped ? ZOFF_OUTCOME_AFTER : ZOFF_OUTCOME_BEFORE;
    e->transfer.batch.micro = e->run.last ? 0 : e->transfer.batch.micro + 1;
    if (info->outcome == ZOFF_OUTCOME_AFTER)
        e->t = e->run.t;
    e->life.phase = ZOFF_PHASE_IDLE;
    zoff_trace_step_end(e->life.trace);
    zoff_transfer_reduce_scatter_begin(&e->transfer);
    if (e->run.last) {
        zoff_speculation_note_step(&e->walk.speculation, info->numbers.clip_factor != 1, info->skipped);
        zoff_engine_pipeline_end(e);
    }
    zoff_engine_stats_add(e, info);
    zoff_engine_stores_end_count(e);
    zoff_engine_update_threads_learn(e);
    zoff_engine_admit_ahead(e);
    zoff_lending_prefetch_turn(&e->lending);
    return ZOFF_OK;
}

static zoff_status check_info(const zoff_step_info *info)
{
    return info ? zoff_base_structs_check_out("zoff_step_info", "ZOFF_STEP_INFO_INIT", info) : ZOFF_OK;
}

static zoff_status turn_scale(zoff_engine *e)
{
    char why[512] = "";
    if (e->run.info.skipped)
        zoff_engine_gate_explain(e, why, sizeof why);
    return zoff_model_loss_scale_turn(&e->model, e->run.t, e->run.info.skipped, why);
}

zoff_status zoff_engine_step_fail(zoff_engine *e, zoff_status status)
{
    zoff_saved_error first;
    zoff_base_status_save(&first);
    (void)zoff_engine_stores_drain(e); /* other errors stay in the store until a retry */
    zoff_base_status_restore(&first);
    const bool torn = e->transfer.batch.updated > 0;
    zoff_traps_weights_lift_all(e->life.traps);
    __atomic_store_n(&e->walk.tells_now, false, __ATOMIC_RELEASE);
    e->life.phase = ZOFF_PHASE_FAILED;
    e->run.info.outcome = torn ? ZOFF_OUTCOME_TORN : ZOFF_OUTCOME_BEFORE;
    return zoff_base_status_prefix(status, "step %lld failed %s: ", (long long)e->run.t, zoff_engine_phase_failure(e, torn));
}

/* Continue the walk from the present rows of the buckets. */
static zoff_status go_on(zoff_engine *e, zoff_step_info *out)
{
    zoff_engine_stats_come(e);
    zoff_base_team_hold(e->threads.holds_team); /* released at the end of the step: threads do not spin between steps */
    zoff_status status = zoff_engine_pipeline_run(e);
    zoff_base_team_hold(false);
    if (status == ZOFF_OK && e->run.last && e->run.gate != ZOFF_GATE_SKIP)
        status = zoff_engine_stores_commit_step(e);
    complete_info(e);
    if (status == ZOFF_OK) {
        if (e->run.gate == ZOFF_GATE_SKIP)
            status = zoff_engine_pipeline_release(e);
        if (status == ZOFF_OK)
            status = finish(e);
    }
    if (status < 0)
        (void)zoff_engine_step_fail(e, status);
    give_info(&e->run.info, out);
    if (status == ZOFF_OK) {
        zoff_engine_stats_log_step(e, &e->run.info);
        zoff_trace_metrics_step(e->life.metrics, &e->run.info);
    }
    zoff_traps_weights_lift_all(e->life.traps);
    if (status == ZOFF_OK)
        zoff_traps_weights_note(e->life.traps);
    /* Update the scale last: its error is about a step that is over, as is that of the traps. */
    if (status == ZOFF_OK && e->run.last)
        status = turn_scale(e);
    return status == ZOFF_OK ? zoff_traps_weights_check(e->life.traps) : status;
}

/* Return an error that zoff_param_wait() has met. The step has failed, as if this call had met it. */
static zoff_status tell_fault(zoff_engine *e, zoff_step_info *info)
{
    const zoff_status status = e->run.fault.status;
    ZOFF_TRY(check_info(info));
    e->run.fault.status = ZOFF_OK;
    zoff_engine_stats_come(e);
    complete_info(e);
    give_info(&e->run.info, info);
    zoff_base_status_restore(&e->run.fault.words);
    return status;
}

/* Finish the open step for a call that needs whole states or weights. zoff_step_wait() returns its result, and until then no
 * gradient of the next step is accepted. */
static zoff_status finish_for(zoff_engine *e, const char *call)
{
    enter(e, ZOFF_COMM_IN_STEP_WAIT);
    const zoff_status status = zoff_agreement_identity_exit(&e->agreement, go_on(e, NULL));
    e->life.is_untold = e->life.phase == ZOFF_PHASE_IDLE;
    e->run.fault.status = status;
    if (status < 0)
        zoff_base_status_save(&e->run.fault.words);
    return e->life.is_untold ? ZOFF_OK : zoff_base_status_prefix(status, "%s: ", call);
}

zoff_status zoff_engine_step_enter(const zoff_engine *e, zoff_call call)
{
    const char *finishing = e ? zoff_engine_phase_finishes(e, call) : NULL;
    if (finishing)
        ZOFF_TRY(finish_for((zoff_engine *)(uintptr_t)e, finishing));
    return zoff_engine_phase_check(e, call);
}

zoff_status zoff_engine_step_idle(zoff_engine *e, const char *call)
{
    if (e->life.phase == ZOFF_PHASE_OPEN)
        ZOFF_TRY(finish_for(e, call));
    return zoff_engine_phase_idle(e, call);
}

/* Return the result of a step that another call has finished. */
static zoff_status tell_result(zoff_engine *e, zoff_step_info *info)
{
    const zoff_status status = e->run.fault.status;
    ZOFF_TRY(check_info(info));
    e->life.is_untold = false;
    e->run.fault.status = ZOFF_OK;
    give_info(&e->run.info, info);
    if (status < 0)
        zoff_base_status_restore(&e->run.fault.words);
    return status;
}

zoff_status zoff_step_wait(zoff_engine *e, zoff_step_info *info)
{
    ZOFF_TRACED(e, false);
    ZOFF_ENTER(e);
    if (e && e->life.phase == ZOFF_PHASE_FAILED && e->run.fault.status < 0)
        return tell_fault(e, info);
    if (e && e->life.is_untold)
        return tell_result(e, info);
    ZOFF_TRY(zoff_engine_phase_check(e, ZOFF_CALL_STEP_WAIT));
    ZOFF_TRY(check_info(info));
    e->run.fault.status = ZOFF_OK; /* the step goes on where the background thread has left it open */
    enter(e, ZOFF_COMM_IN_STEP_WAIT);
    return zoff_agreement_identity_exit(&e->agreement, go_on(e, info));
}

zoff_status zoff_step_retry(zoff_engine *e, zoff_step_info *info)
{
    ZOFF_TRACED(e, false);
    ZOFF_ENTER(e);
    ZOFF_TRY(zoff_engine_phase_check(e, ZOFF_CALL_STEP_RETRY));
    ZOFF_FAIL_IF(e->run.measures, ZOFF_ERR_STATE,
                 "zoff_step_retry: zoff_step_measure() has failed; call zoff_grads_drop(), and hand the gradients over again");
    ZOFF_FAIL_IF(e->run.undone, ZOFF_ERR_STATE,
                 "zoff_step_retry: step %lld is being undone and cannot be retried; call zoff_grads_drop() again",
                 (long long)e->run.t);
    ZOFF_TRY(check_info(info));
    e->run.fault.status = ZOFF_OK;
    zoff_status status = zoff_engine_stores_retry(e);
    if (status < 0) {
        give_info(&e->run.info, info);
        return status;
    }
    enter(e, ZOFF_COMM_IN_STEP_WAIT | ZOFF_COMM_IN_RETRY);
    return zoff_agreement_identity_exit(&e->agreement, go_on(e, info));
}

zoff_status zoff_step(zoff_engine *e, const zoff_step_args *args, zoff_step_info *info)
{
    ZOFF_TRACED(e, false);
    ZOFF_ENTER(e);
    ZOFF_TRY(zoff_engine_phase_check(e, ZOFF_CALL_STEP));
    if (e->life.phase == ZOFF_PHASE_MEASURED) {
        ZOFF_TRY(check_info(info));
        ZOFF_TRY(resume(e, args));
        enter(e, ZOFF_COMM_IN_STEP_WAIT | ZOFF_COMM_IN_STEP);
        return zoff_agreement_identity_exit(&e->agreement, go_on(e, info));
    }
    ZOFF_TRY(check_info(info));
    ZOFF_TRY(zoff_engine_admit_close_ranges(e));
    enter(e, ZOFF_COMM_IN_STEP_BEGIN | ZOFF_COMM_IN_STEP);
    ZOFF_TRY(zoff_agreement_identity_exit(&e->agreement, prepare(e, args)));
    const zoff_status status = zoff_engine_handover_all(e);
    if (status < 0)
        zoff_comm_uncount(e->comm); /* the program repeats the call */
    ZOFF_TRY(status);
    start(e);
    enter(e, ZOFF_COMM_IN_STEP_WAIT | ZOFF_COMM_IN_STEP);
    return zoff_agreement_identity_exit(&e->agreement, go_on(e, info));
}

/* Restore states and weights from before a step that is half done. */
static zoff_status undo(zoff_engine *e)
{
    e->run.undone = true;
    if (e->io.guard)
        e->io.guard->before_all(e->io.guard->ctx);
    ZOFF_TRY(zoff_engine_states_rollback(e));
    e->life.awaits_weights = true;
    ZOFF_TRY(zoff_engine_states_push(e));
    e->life.awaits_weights = false;
    zoff_traps_weights_note(e->life.traps);
    return ZOFF_OK;
}

/* The call that finishes a step which cannot be dropped. */
static const char *finishing_call(const zoff_engine *e)
{
    return e->life.phase == ZOFF_PHASE_OPEN ? "zoff_step_wait" : "zoff_step_retry";
}

/* Other ranks may be receiving gradients and votes of this rank, so complete the operations that have begun. */
static zoff_status drop_together(zoff_engine *e)
{
    zoff_transfer *t = &e->transfer;
    ZOFF_TRY(zoff_agreement_norm_finish(&e->agreement));
    if (!t->ranks.reduce || zoff_comm_is_broken(e->comm))
        return ZOFF_OK;
    ZOFF_FAIL_IF(e->life.phase != ZOFF_PHASE_IDLE && e->run.gate == ZOFF_GATE_OPEN, ZOFF_ERR_STATE,
                 "zoff_grads_drop: other ranks are updating in step %lld and wait for this one; %s() can finish it",
                 (long long)e->run.t, finishing_call(e));
    if (e->life.phase == ZOFF_PHASE_IDLE && !zoff_transfer_ranks_leave_early(t))
        return ZOFF_OK;
    zoff_transfer_reduce_scatter_close(t);
    ZOFF_TRY(zoff_transfer_reduce_scatter_finish(t));
    if (e->life.phase == ZOFF_PHASE_IDLE)
        return ZOFF_OK;
    ZOFF_TRY(zoff_agreement_participation_finish(&e->agreement));
    ZOFF_TRY(zoff_agreement_report_wait(e->comm, &e->channel, &e->gate.votes));
    /* Ranks that skip this step learn from its votes: so must this one. */
    if (e->run.gate == ZOFF_GATE_VOTING) {
        memcpy(&e->gate.vote, e->gate.votes.all, sizeof e->gate.vote);
        zoff_transfer_walk_hear(t, &e->gate.vote);
        (void)zoff_transfer_walk_learn(t);
    }
    return ZOFF_OK;
}

static zoff_status drop(zoff_engine *e, bool torn)
{
    e->walk.speculation.is_over = true; /* the batch is closed, and some gradients may be missing in it */
    ZOFF_TRY(drop_together(e));
    if (torn)
        e->life.phase = ZOFF_PHASE_FAILED; /* nobody goes on with the step until it is undone */
    if (e->life.phase != ZOFF_PHASE_IDLE || e->walk.speculation.is_begun) {
        /* wait for the device, because it copies to borrowed memory */
        ZOFF_TRY(zoff_transfer_device_tier_settle(&e->transfer));
        ZOFF_TRY(zoff_engine_pipeline_release(e));
    }
    zoff_engine_pipeline_end(e);
    /* A flush of ranges has failed, and no step has changed anything: what can be written again stays. */
    const bool is_lost = !torn && zoff_offload_store_is_in_doubt(e->store) &&
                         (zoff_engine_stores_retry(e) < 0 || zoff_engine_stores_drain(e) < 0);
    if (torn || is_lost)
        ZOFF_TRY(undo(e));
    zoff_engine_progress_thread_forget(e); /* last, because after an error the program may still take the step */
    memset(e->model.flags, 0, e->model.slice_count);
    e->transfer.batch.micro = 0;
    e->transfer.batch.weights = (zoff_exact){.terms = 0};
    e->life.phase = ZOFF_PHASE_IDLE;
    zoff_trace_step_end(e->life.trace);
    zoff_transfer_reduce_scatter_begin(&e->transfer);
    zoff_engine_admit_ahead(e);
    return ZOFF_OK;
}

zoff_status zoff_grads_drop(zoff_engine *e)
{
    ZOFF_TRACED(e, false);
    ZOFF_ENTER(e);
    ZOFF_TRY(zoff_engine_phase_check(e, ZOFF_CALL_GRADS_DROP));
    /* An open step is half done, too, once zoff_param_wait() or a background thread has updated a bucket. */
    const bool has_step = e->life.phase == ZOFF_PHASE_FAILED || e->life.phase == ZOFF_PHASE_OPEN;
    const bool torn = has_step && e->transfer.batch.updated > 0;
    ZOFF_FAIL_IF(torn && zoff_engine_phase_is_over(e), ZOFF_ERR_STATE, "zoff_grads_drop: step %lld failed %s",
                 (long long)e->run.t, zoff_engine_phase_failure(e, true));
    ZOFF_FAIL_IF(torn && !zoff_offload_store_can_rollback(e->store), ZOFF_ERR_STATE,
                 "zoff_grads_drop: step %lld is half done; %s() can finish it", (long long)e->run.t, finishing_call(e));
    if (torn)
        ZOFF_TRY(zoff_lending_param_cache_check(&e->lending, 0, e->model.param_count, "zoff_grads_drop"));
    zoff_traps_weights_lift_all(e->life.traps);
    /* Errors of these downloads do not matter, because the gradients are dropped. But no download may stay in flight. */
    zoff_status ended = zoff_transfer_download_finish(&e->transfer);
    if (ended < 0 && e->transfer.pollers.device.is_overdue)
        return ended;
    if (torn)
        (void)zoff_engine_stores_drain(e); /* what the step has written is undone */
    enter(e, ZOFF_COMM_IN_DROP);
    return zoff_agreement_identity_exit(&e->agreement, drop(e, torn));
}
