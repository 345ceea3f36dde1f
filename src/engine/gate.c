/* SPDX-License-Identifier: Apache-2.0 */
/* gate.c: updates wait until all gradients are measured: one norm, one clip factor, and one decision to skip, the same on every
 * rank. The votes also carry requests to stop, so that all ranks know of them in the same step. */
#include "engine_priv.h"

#include "bits.h"
#include "log.h"
#include "try.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const zoff_vote *first_poison(const zoff_engine *e)
{
    return e->gate.vote.poisoned ? &e->gate.vote : NULL;
}

/* Whether some rank of zoff_engine_opts.norm_comm has a gradient that is not finite. */
static bool is_poisoned_elsewhere(const zoff_engine *e)
{
    return e->run.looks && e->gate.norm.is_poisoned;
}

void zoff_engine_gate_explain(const zoff_engine *e, char *dst, size_t dst_bytes)
{
    const zoff_vote *poison = e->run.looks ? first_poison(e) : NULL;
    char whose[48] = "";
    if (!poison && is_poisoned_elsewhere(e) && e->run.has_sum) {
        snprintf(dst, dst_bytes, "another engine of zoff_step_args.norm_sum has a gradient that is not finite");
        return;
    }
    if (!poison && is_poisoned_elsewhere(e)) {
        snprintf(dst, dst_bytes, "rank %u of zoff_engine_opts.norm_comm says: %s", e->gate.norm.rank, e->gate.norm.why);
        return;
    }
    if (!poison && e->run.looks && !(e->run.info.numbers.grad_norm <= FLT_MAX)) {
        snprintf(dst, dst_bytes, "the norm of the gradients, %g, is beyond fp32", e->run.info.numbers.grad_norm);
        return;
    }
    if (!poison) {
        snprintf(dst, dst_bytes,
                 "the gradients have to be multiplied by %g, which is below the normal numbers of fp32 (their norm is %g, "
                 "clip_norm %g, grad_scale %g)",
                 e->run.factor, e->run.info.numbers.grad_norm, e->run.clip_norm, e->run.grad_scale);
        return;
    }
    const zoff_model_param *p = &e->model.params[poison->param];
    if (zoff_comm_size(e->comm) > 1)
        snprintf(whose, sizeof whose, poison->rank_is_known ? " on rank %u" : " in the sum of all ranks (by rank %u)",
                 poison->rank);
    snprintf(dst, dst_bytes, "the gradient of %.300s, slice %zu, has an inf or nan between its elements %zu and %zu%s", p->name,
             poison->slice, poison->first, zoff_base_bits_min(poison->first + ZOFF_NORM_BLOCK, p->count) - 1, whose);
}

static void log_skip(const zoff_engine *e)
{
    char why[512], scale[128];
    if (zoff_comm_rank(e->comm) != 0)
        return; /* all ranks would log the same */
    zoff_engine_gate_explain(e, why, sizeof why);
    zoff_model_loss_scale_describe(&e->model, scale, sizeof scale);
    ZOFF_WARN("step %lld skipped: %s; weights and states are unchanged%s", (long long)e->run.t, why, scale);
}

/* A wait of one rank goes on only while its vote is under way. */
static void set(zoff_engine *e, zoff_gate gate)
{
    e->run.gate = gate;
    e->transfer.measure.votes = gate == ZOFF_GATE_VOTING || gate == ZOFF_GATE_JOINING;
}

static void skip(zoff_engine *e)
{
    zoff_step_run *run = &e->run;
    const zoff_vote *poison = first_poison(e);
    run->info.skipped = true;
    set(e, ZOFF_GATE_SKIP);
    e->lending.is_updated = false;
    zoff_trace_instant(e->life.trace, "gate skip");
    if (poison) {
        run->info.culprit.param = poison->param;
        run->info.culprit.slice = poison->slice;
        run->info.culprit.rank = poison->rank;
    }
    log_skip(e);
}

/* Subnormal fp32 numbers have fewer bits. Powers of two, such as loss scales, are still exact. */
static bool loses_bits(double factor)
{
    return factor < FLT_MIN && (float)factor != factor;
}

/* The factor of all gradients before clipping. NAN: the gradients have no mean. */
static double scale_of(const zoff_engine *e, double grad_scale, double loss_scale)
{
    const double weight = zoff_transfer_reduce_scatter_total_weight(&e->transfer);
    const unsigned summed = e->settings.values.sums_ranks ? zoff_comm_size(e->comm) : 1;
    return weight > 0 ? grad_scale / loss_scale / (weight / summed) : (double)NAN;
}

/* All ranks of this engine have voted: join their votes. */
static zoff_status count_votes(zoff_engine *e)
{
    zoff_step_run *run = &e->run;
    zoff_norm_part *norm = &e->gate.norm;
    norm->squares = e->gate.vote.squares;
    const double scale = scale_of(e, run->grad_scale, run->info.numbers.loss_scale);
    ZOFF_FAIL_IF(e->plan.run_count && isnan(scale), ZOFF_ERR_INVALID,
                 "all micro-batches of this step have weight 0, so their gradients have no mean; see zoff_grad_weight()");
    if (run->has_sum) {
        norm->squares = run->sum.squares;
        norm->is_poisoned = run->sum.is_poisoned;
    }
    norm->terms[ZOFF_NORM_T] = (double)run->t;
    norm->terms[ZOFF_NORM_CLIP] = fmax(run->clip_norm, 0);
    /* An engine that trains nothing has no factor of its own, and decides by that of the others. */
    norm->terms[ZOFF_NORM_SCALE] = e->plan.run_count ? scale : run->has_sum ? run->sum.scale : 0;
    norm->terms[ZOFF_NORM_LOOKS] = run->looks;
    norm->replicas = e->gate.vote.replicas;
    norm->stop_requested = e->gate.stop_agreed;
    if (run->looks && first_poison(e)) {
        zoff_engine_gate_explain(e, norm->why, sizeof norm->why);
        norm->is_poisoned = true;
    }
    return ZOFF_OK;
}

/* Decide on clipping or skipping, and compute the constants of each group. */
static void decide(zoff_engine *e)
{
    zoff_step_run *run = &e->run;
    const double scale = e->gate.norm.terms[ZOFF_NORM_SCALE];
    const bool poisoned = first_poison(e) || e->gate.norm.is_poisoned;
    const double norm = poisoned ? NAN : sqrt(zoff_base_exact_value(&e->gate.norm.squares)) * fabs(scale);
    run->info.numbers.grad_norm = run->looks ? norm : NAN; /* without a look the norm is unknown, or incomplete */
    /* The factor of DeepSpeed and torch.nn.utils.clip_grad_norm_. Because of 1e-6 it is below 1 even for a norm just below the
     * limit. */
    const double clip = run->clip_norm > 0 ? fmin(run->clip_norm / (norm + 1e-6), 1.0) : 1.0;
    run->factor = fabs(scale * clip);
    /* No element is larger than the norm. So if the norm fits into fp32, every scaled element is finite. */
    if ((run->looks && !(norm <= FLT_MAX)) || loses_bits(run->factor)) {
        skip(e);
        return;
    }
    run->info.numbers.clip_factor = clip;
    zoff_model_groups_consts(&e->model, e->gate.hyper, run->t, scale * clip, e->transfer.scratch.consts);
    set(e, ZOFF_GATE_OPEN);
    zoff_trace_instant(e->life.trace, "gate open");
}

static void tell_inputs(zoff_engine *e)
{
    const zoff_step_run *run = &e->run;
    const double weight = zoff_transfer_reduce_scatter_total_weight(&e->transfer);
    const zoff_step_inputs inputs = {.t = run->t,
                                     .clip_norm = run->clip_norm,
                                     .grad_scale = run->grad_scale,
                                     .loss_scale = run->info.numbers.loss_scale,
                                     .flags = run->flags,
                                     .weight = e->plan.run_count ? weight : 0,
                                     .hyper = e->gate.hyper,
                                     .norm_sum = run->has_sum ? zoff_offload_layout(&run->sum, sizeof run->sum) : 0};
    zoff_agreement_listed_tell(&e->agreement, &inputs, &e->transfer.measure.vote);
}

/* A signal handler may call this in the middle of any other call, so it takes no lock and uses nothing but one atomic. */
void zoff_engine_request_stop(zoff_engine *e)
{
    _Static_assert(__atomic_always_lock_free(sizeof e->gate.stop_asked, 0), "a signal handler must not wait for a lock");
    if (e)
        __atomic_store_n(&e->gate.stop_asked, true, __ATOMIC_RELEASE);
}

/* The request stays set, so a step that is dropped or retried does not lose it. */
static void agree_on_stop(zoff_engine *e, bool is_requested)
{
    e->gate.stop_agreed = e->gate.stop_agreed || is_requested;
    e->run.info.stop_requested = e->gate.stop_agreed;
}

zoff_status zoff_engine_gate_assume(zoff_engine *e)
{
    const zoff_step_args args = ZOFF_STEP_ARGS_INIT;
    zoff_speculation_terms *terms = &e->walk.speculation.terms;
    if (!terms->is_said)
        *terms = (zoff_speculation_terms){.t = e->t + 1, .grad_scale = 1, .hyper = terms->hyper};
    const double scale = scale_of(e, terms->grad_scale, e->model.scaler.scale);
    if (isnan(scale))
        return ZOFF_PENDING;
    for (size_t g = 0; g < e->model.group_count && !terms->is_said; g++)
        ZOFF_TRY(zoff_model_groups_of_step(&e->model, &args, g, terms->t, &terms->hyper[g]));
    zoff_model_groups_consts(&e->model, terms->hyper, terms->t, scale, e->transfer.scratch.consts);
    zoff_speculation_assume(&e->walk.speculation, e->transfer.scratch.consts);
    e->run = (zoff_step_run){.t = terms->t, .grad_scale = terms->grad_scale, .last = true, .looks = true};
    zoff_engine_stores_begin_count(e, &e->run.before);
    return ZOFF_OK;
}

bool zoff_engine_gate_still_assumes(zoff_engine *e)
{
    zoff_adam_consts *consts = e->transfer.scratch.consts;
    const double scale = scale_of(e, e->run.grad_scale, e->run.info.numbers.loss_scale);
    zoff_model_groups_consts(&e->model, e->gate.hyper, e->run.t, scale, consts);
    if (!e->walk.speculation.is_begun)
        zoff_speculation_assume(&e->walk.speculation, consts);
    return !isnan(scale) && zoff_speculation_holds(&e->walk.speculation, consts);
}

/* Send this rank's vote to all, and receive theirs. */
static zoff_status ask(zoff_engine *e, bool has_failed)
{
    tell_inputs(e);
    e->transfer.measure.vote.stop_requested = __atomic_load_n(&e->gate.stop_asked, __ATOMIC_ACQUIRE);
    zoff_transfer_walk_tell(&e->transfer, &e->transfer.measure.vote.order);
    e->transfer.measure.vote.replicas = zoff_agreement_norm_replicas(&e->agreement);
    e->transfer.measure.vote.failed = has_failed ? zoff_comm_rank(e->comm) : UINT32_MAX;
    memcpy(e->gate.votes.all, &e->transfer.measure.vote, sizeof e->transfer.measure.vote);
    return zoff_agreement_report_start(e->comm, &e->channel, &e->gate.votes);
}

/* Read the votes of this engine, which have arrived.  @return an error on every rank, if one has failed */
static zoff_status hear(zoff_engine *e)
{
    const zoff_vote *vote = &e->gate.vote;
    memcpy(&e->gate.vote, e->gate.votes.all, sizeof *vote);
    agree_on_stop(e, vote->stop_requested);
    zoff_transfer_walk_hear(&e->transfer, vote);
    e->run.talks.has_voted = true;
    return vote->failed == UINT32_MAX ? ZOFF_OK : zoff_agreement_vote_tell(&e->agreement.ranks, vote->failed);
}

/* The norm of this engine is that of the step, or a part of it. */
static zoff_status take_votes(zoff_engine *e)
{
    ZOFF_TRY(hear(e));
    e->gate.norm = (zoff_norm_part){.is_poisoned = false};
    zoff_status status = zoff_agreement_listed_compare_inputs(&e->agreement, &e->gate.vote);
    if (status == ZOFF_OK && !(e->run.looks && first_poison(e))) /* otherwise the step is skipped */
        status = zoff_agreement_listed_compare_copies(&e->agreement, &e->gate.vote);
    if (status == ZOFF_OK)
        status = count_votes(e);
    if (e->agreement.norm.ranks.comm) {
        e->gate.norm.status = status; /* the others must know that this engine cannot take the step */
        if (status < 0)
            zoff_base_status_save(&e->gate.words);
        ZOFF_TRY(zoff_agreement_norm_ask(&e->agreement, &e->gate.norm));
        set(e, ZOFF_GATE_JOINING);
        return ZOFF_PENDING;
    }
    ZOFF_TRY(status);
    if (e->run.measures) {
        set(e, ZOFF_GATE_MEASURED);
        return ZOFF_PENDING;
    }
    decide(e);
    return ZOFF_OK;
}

static zoff_status join(zoff_engine *e)
{
    const zoff_status own = e->gate.norm.status;
    zoff_norm_part joined;
    const zoff_status status = zoff_agreement_norm_poll(&e->agreement, &joined);
    if (own < 0 && status != ZOFF_PENDING) {
        zoff_base_status_restore(&e->gate.words);
        return own;
    }
    if (status != ZOFF_OK)
        return status;
    if (joined.replicas && e->run.looks && !joined.is_poisoned)
        ZOFF_TRY(zoff_agreement_norm_explain(&e->agreement));
    e->gate.norm = joined;
    agree_on_stop(e, e->gate.norm.stop_requested);
    decide(e);
    return ZOFF_OK;
}

zoff_status zoff_engine_gate_vote(zoff_engine *e)
{
    zoff_step_run *run = &e->run;
    if (run->gate == ZOFF_GATE_CLOSED) {
        if (e->transfer.measure.buckets < e->plan.chunk_count)
            return ZOFF_PENDING;
        ZOFF_TRY(ask(e, false));
        set(e, ZOFF_GATE_VOTING);
    }
    zoff_status status = ZOFF_OK;
    if (run->gate == ZOFF_GATE_VOTING) {
        status = zoff_agreement_report_poll(e->comm, &e->channel, &e->gate.votes);
        if (status == ZOFF_OK)
            status = take_votes(e);
    }
    if (run->gate == ZOFF_GATE_JOINING)
        status = join(e);
    if (status < 0)
        set(e, ZOFF_GATE_CLOSED); /* a retry asks the ranks again */
    ZOFF_TRY(status);
    return run->gate == ZOFF_GATE_OPEN ? ZOFF_OK : ZOFF_PENDING;
}

static zoff_status participate(void *ctx)
{
    zoff_engine *e = ctx;
    return zoff_agreement_participation_poll(&e->agreement);
}

/* Send gradients without content, because other ranks wait for them before they vote, and nobody uses them. An error of
 * participation is that of all, and they vote it, too. */
static zoff_status vote_failure(zoff_engine *e)
{
    if (e->run.gate == ZOFF_GATE_CLOSED && e->plan.chunk_count) {
        zoff_transfer_wire_give_up(&e->transfer);
        ZOFF_TRY(zoff_transfer_reduce_scatter_finish(&e->transfer));
        (void)zoff_transfer_wire_wait_until(&e->transfer, participate, e);
    }
    if (e->run.gate == ZOFF_GATE_CLOSED)
        ZOFF_TRY(ask(e, true));
    e->run.gate = ZOFF_GATE_CLOSED;
    ZOFF_TRY(zoff_agreement_report_wait(e->comm, &e->channel, &e->gate.votes));
    return hear(e);
}

void zoff_engine_gate_fail(zoff_engine *e)
{
    zoff_saved_error saved;
    if (e->run.talks.has_voted || zoff_comm_size(e->comm) == 1 || zoff_comm_is_broken(e->comm))
        return;
    zoff_base_status_save(&saved);
    (void)vote_failure(e); /* if that fails, too, others name this rank when their deadline passes */
    zoff_base_status_restore(&saved);
}
