/* stages.c: the work on a bucket in each row of the pipeline. A stage builds a list for the kernels, or calls the store. Parts
 * of the bucket without a gradient in this step are left out. */
#include "engine_priv.h"

#include "bits.h"
#include "clock.h"
#include "try.h"

static const zoff_plan_piece *pieces_of(const zoff_engine *e, const zoff_bucket_run *run, size_t *out_count)
{
    const zoff_plan_chunk *chunk = &e->plan.chunks[run->chunk];
    *out_count = chunk->piece_count;
    return &e->plan.pieces[chunk->first_piece];
}

/* The kernels call this between two pieces. */
static void between(void *ctx)
{
    zoff_engine_admit_feed(ctx);
}

zoff_status zoff_engine_stages_accumulate(void *ctx, zoff_bucket_run *run)
{
    zoff_engine *e = ctx;
    size_t count, used = 0;
    const zoff_plan_piece *pieces = pieces_of(e, run, &count);
    zoff_store_stats before;
    zoff_engine_stores_stats(e, &before);
    double from = zoff_base_clock_seconds();
    for (size_t i = 0; i < count; i++) {
        uint8_t flag = *zoff_model_params_flag(&e->model, &pieces[i]);
        if (!(flag & ZOFF_SLICE_READY))
            continue;
        const zoff_model_param *p = &e->model.params[pieces[i].param];
        bool first = !(flag & ZOFF_SLICE_PRESENT);
        e->transfer.scratch.accumulate_pieces[used++] =
            (zoff_accumulate_piece){.count = pieces[i].count,
                                    .sum = zoff_transfer_pieces_sum(&e->transfer, &pieces[i]),
                                    .grad = e->transfer.route.link->gradient(&e->transfer, &pieces[i]),
                                    .dtype = p->grad_dtype,
                                    .first = first,
                                    .weights = e->transfer.batch.weight == 1 ? NULL : &e->transfer.batch.weight};
        e->run.info.bytes.host_read += pieces[i].count * (zoff_adam_dtype_bytes(p->grad_dtype) + (first ? 0 : sizeof(float)));
        e->run.info.bytes.host_written += pieces[i].count * sizeof(float);
    }
    zoff_adam_accumulate_run(e->transfer.threads.now, e->transfer.scratch.accumulate_pieces, used, between, e);
    e->run.info.seconds.measure += zoff_engine_stores_worked(e, from, &before);
    return ZOFF_OK;
}

zoff_status zoff_engine_stages_measure(void *ctx, zoff_bucket_run *run)
{
    zoff_engine *e = ctx;
    zoff_step_info *info = &e->run.info;
    /* Before the step it is not known whether it looks. */
    if (!e->run.looks && e->life.phase != ZOFF_PHASE_IDLE) {
        e->transfer.measure.buckets++;
        return ZOFF_OK;
    }
    zoff_store_stats before;
    zoff_engine_stores_stats(e, &before);
    const double from = zoff_base_clock_seconds();
    zoff_transfer_measure_bucket(&e->transfer, run->chunk, between, e, &info->bytes.host_read);
    info->seconds.measure += zoff_engine_stores_worked(e, from, &before);
    return ZOFF_OK;
}

zoff_status zoff_engine_stages_agree(void *ctx, zoff_bucket_run *run)
{
    zoff_engine *e = ctx;
    (void)run;
    if (e->agreement.participation.agreed)
        return ZOFF_OK;
    const zoff_status status = zoff_agreement_participation_poll(&e->agreement);
    if (status != ZOFF_OK)
        return status;
    e->run.expected = zoff_agreement_participation_elements(&e->agreement);
    return ZOFF_OK;
}

zoff_status zoff_engine_stages_gate(void *ctx, zoff_bucket_run *run)
{
    zoff_engine *e = ctx;
    if (e->walk.speculation.in_step) /* buckets that are not updated yet must leave the rows ahead of the step first */
        return ZOFF_PENDING;
    zoff_status status = zoff_engine_gate_vote(e);
    /* After the gate, only buckets that can borrow may continue: one further back would take a slot from one that needs it
     * first. */
    return status == ZOFF_OK && !zoff_engine_admit_reaches(e, run) ? ZOFF_PENDING : status;
}

zoff_status zoff_engine_stages_fetch(void *ctx, zoff_bucket_run *run)
{
    zoff_engine *e = ctx;
    ZOFF_TRY(zoff_engine_stores_take_fault(e));
    /* A drive that does not answer is noticed before the device changes anything. */
    const bool is_first = zoff_transfer_place_of(&e->transfer, run->chunk) != ZOFF_USED_BY_HOST;
    return is_first && !zoff_engine_admit_has_first(e) ? ZOFF_PENDING : zoff_engine_admit_borrow(e, run);
}

/* All ranks send the buckets in the order of their walk. A bucket is through when its weights were read again: they take a slot
 * of the store that otherwise a later bucket would wait for. */
zoff_status zoff_engine_stages_share(void *ctx, zoff_bucket_run *run)
{
    zoff_engine *e = ctx;
    zoff_lending *l = &e->lending;
    ZOFF_TRY(zoff_lending_secondary_poll(l));
    const size_t position = zoff_transfer_walk_position(&e->transfer, run->chunk);
    if (position > l->secondary.next)
        return ZOFF_PENDING;
    if (position == l->secondary.next) {
        const zoff_status status = zoff_lending_secondary_start(l, run->chunk);
        if (status != ZOFF_OK)
            return status;
        l->secondary.next++;
    }
    return zoff_lending_secondary_has_read(l, run->chunk) ? ZOFF_OK : ZOFF_PENDING;
}

zoff_status zoff_engine_stages_land(void *ctx, zoff_bucket_run *run)
{
    zoff_engine *e = ctx;
    const zoff_status status = zoff_transfer_device_tier_poll(&e->transfer, run);
    if (status == ZOFF_OK)
        zoff_lending_param_cache_refresh(&e->lending, run->chunk, run->lent.weights.base, false);
    return status;
}

/* The update is done, so the slot does not wait for it. The bucket has no other slot by now: otherwise one that has a slot of
 * states could wait for this one's weights, and this one for that slot. A save that is under way cannot copy the old states
 * from the slot, which never has them. */
zoff_status zoff_engine_stages_save(void *ctx, zoff_bucket_run *run)
{
    zoff_engine *e = ctx;
    if (run->lent.states.done || !e->plan.chunks[run->chunk].bytes || !zoff_transfer_pieces_take_part(&e->transfer, run->chunk))
        return ZOFF_OK;
    ZOFF_TRY(zoff_engine_stores_take_fault(e));
    zoff_status status = run->lent.states.base ? ZOFF_OK : zoff_transfer_device_tier_poll(&e->transfer, run);
    if (status == ZOFF_OK)
        status = zoff_engine_admit_claim(e, run);
    return status == ZOFF_OK ? zoff_transfer_device_tier_save(&e->transfer, run) : status;
}

zoff_status zoff_engine_stages_flush(void *ctx, zoff_bucket_run *run)
{
    zoff_engine *e = ctx;
    ZOFF_TRY(zoff_engine_stores_take_fault(e));
    if (run->saves && run->lent.states.base)
        zoff_engine_update_guard(e, run, NULL);
    ZOFF_TRY(zoff_offload_broker_give(&run->lent, &run->lent.states, ZOFF_STORE_ALL, false));
    return zoff_offload_broker_give(&run->lent, &run->lent.weights, ZOFF_STORE_ALL, false);
}

/* ---- ahead of the step ---- */

zoff_status zoff_engine_stages_precede(void *ctx, zoff_bucket_run *run)
{
    zoff_engine *e = ctx;
    void *states = run->ahead.states;
    if (!states) {
        const zoff_status status = zoff_offload_store_second(e->store, run->chunk, &states);
        run->ahead.is_refused = status == ZOFF_PENDING; /* there is no memory for it */
        if (status != ZOFF_OK)
            return status;
    }
    run->ahead.states = states;
    return zoff_engine_update_apart(e, run);
}

zoff_status zoff_engine_stages_put(void *ctx, zoff_bucket_run *run)
{
    zoff_engine *e = ctx;
    ZOFF_TRY(zoff_offload_broker_put(&run->lent, &run->lent.states));
    run->ahead.is_put = true;
    e->run.info.buckets.speculated++;
    return ZOFF_OK;
}

zoff_status zoff_engine_stages_leave(zoff_engine *e, zoff_bucket_run *run)
{
    zoff_offload_broker_withdraw(&run->lent); /* with a second content that was not put */
    if (run->ahead.states)
        ZOFF_TRY(zoff_offload_store_discard(e->store, run->chunk));
    e->run.info.buckets.redone += run->ahead.is_put;
    run->ahead = (zoff_bucket_ahead){.is_refused = true};
    run->lent = (zoff_demand){.chunk = run->chunk};
    run->cursor = (zoff_update_cursor){.piece = 0};
    zoff_transfer_staging_release(&e->transfer, run->chunk);
    return ZOFF_OK;
}

/* The step clips, or differs in another way from what was assumed: the bucket is updated from its old states, in the next row
 * behind the gate. */
static zoff_status redo(zoff_engine *e, zoff_bucket_run *run)
{
    ZOFF_TRY(zoff_engine_stages_leave(e, run));
    run->passed |= (2u << e->walk.rows[ZOFF_USED_BY_HOST].gate) - 1; /* the gate, and all rows before it */
    zoff_engine_admit_ask_anew(e, run->chunk);
    return ZOFF_OK;
}

zoff_status zoff_engine_stages_adopt(void *ctx, zoff_bucket_run *run)
{
    zoff_engine *e = ctx;
    zoff_step_info *info = &e->run.info;
    if (!zoff_speculation_holds(&e->walk.speculation, e->transfer.scratch.consts))
        return redo(e, run);
    const double from = zoff_base_clock_seconds();
    zoff_offload_store_adopt(e->store, run->chunk);
    run->ahead.states = NULL;
    run->ahead.is_put = false;
    zoff_traps_weights_enter(e->life.traps, run->chunk);
    const zoff_link *link = e->transfer.route.link;
    const size_t bytes = link->adopt ? link->adopt(&e->transfer, run->chunk, zoff_engine_update_threads_of_update(e)) : 0;
    zoff_traps_weights_leave(e->life.traps, run->chunk);
    info->bytes.host_read += bytes;
    info->bytes.host_written += bytes;
    info->buckets.committed++;
    e->transfer.batch.updated++;
    zoff_engine_update_count(e, run);
    info->seconds.update += zoff_base_clock_seconds() - from;
    return ZOFF_OK;
}
