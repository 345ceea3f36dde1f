/* stages.c: what happens to a bucket in each row of the pipeline. A stage makes a list for the kernels or asks the store;
 * whatever part of the bucket has no gradient in this step is left out. */
#include "engine_priv.h"

#include "bits.h"
#include "clock.h"
#include "try.h"

static const zoff_plan_piece *pieces_of(const zoff_bucket_run *run, size_t *out_count)
{
    const zoff_plan_chunk *chunk = &run->engine->plan.chunks[run->chunk];
    *out_count = chunk->piece_count;
    return &run->engine->plan.pieces[chunk->first_piece];
}

bool zoff_engine_stages_takes_part(const zoff_bucket_run *run)
{
    size_t count;
    const zoff_plan_piece *pieces = pieces_of(run, &count);
    for (size_t i = 0; i < count; i++) {
        if (*zoff_engine_params_flag(run->engine, &pieces[i]))
            return true;
    }
    return false;
}

bool zoff_engine_stages_borrows(const zoff_bucket_run *run)
{
    return run->engine->plan.chunks[run->chunk].bytes && !zoff_engine_kept_has(run->engine, run->chunk) &&
           zoff_engine_stages_takes_part(run);
}

double zoff_engine_stages_worked(const zoff_engine *e, double from, const zoff_store_stats *before)
{
    zoff_store_stats now;
    zoff_engine_stores_stats(e, &now);
    return zoff_base_clock_seconds() - from - (now.wait_seconds - before->wait_seconds) -
           (now.check_seconds - before->check_seconds);
}

const void *zoff_engine_stages_gradient(const zoff_engine *e, const zoff_plan_piece *piece, zoff_dtype *out_dtype)
{
    *out_dtype = zoff_engine_params_accumulates(e) ? ZOFF_F32 : e->params[piece->param].grad_dtype;
    return zoff_engine_params_accumulates(e) ? (const void *)zoff_engine_params_sum(e, piece)
                                             : zoff_engine_handover_grad(e, piece);
}

/* Called by the kernels in between. */
static void between(void *ctx)
{
    zoff_engine_pipeline_feed(ctx);
}

zoff_status zoff_engine_stages_accumulate(zoff_bucket_run *run)
{
    zoff_engine *e = run->engine;
    size_t count, used = 0;
    const zoff_plan_piece *pieces = pieces_of(run, &count);
    if (!zoff_engine_params_accumulates(e))
        return ZOFF_OK;
    if (zoff_engine_kept_has(e, run->chunk))
        return zoff_engine_kept_accumulate(run);
    zoff_store_stats before;
    zoff_engine_stores_stats(e, &before);
    double from = zoff_base_clock_seconds();
    for (size_t i = 0; i < count; i++) {
        uint8_t flag = *zoff_engine_params_flag(e, &pieces[i]);
        if (!(flag & ZOFF_SLICE_READY))
            continue;
        const zoff_engine_param *p = &e->params[pieces[i].param];
        bool first = !(flag & ZOFF_SLICE_PRESENT);
        e->accumulate_pieces[used++] = (zoff_accumulate_piece){.count = pieces[i].count,
                                                               .sum = zoff_engine_params_sum(e, &pieces[i]),
                                                               .grad = zoff_engine_handover_grad(e, &pieces[i]),
                                                               .dtype = p->grad_dtype,
                                                               .first = first,
                                                               .weights = e->weight == 1 ? NULL : &e->weight};
        e->run.info.host_read_bytes += pieces[i].count * (zoff_adam_dtype_bytes(p->grad_dtype) + (first ? 0 : sizeof(float)));
        e->run.info.host_write_bytes += pieces[i].count * sizeof(float);
    }
    zoff_adam_accumulate_run(e->settings.threads, e->accumulate_pieces, used, between, e);
    e->run.info.measure_seconds += zoff_engine_stages_worked(e, from, &before);
    return ZOFF_OK;
}

void zoff_engine_stages_square_sums(zoff_engine *e, size_t bucket, double *seconds, uint64_t *read_bytes)
{
    const bool alone = !zoff_engine_ranks_several(e);
    const zoff_plan_span part = zoff_zero_plan_own(&e->plan, bucket);
    const zoff_plan_piece *pieces = &e->plan.pieces[part.first_piece];
    size_t used = 0, blocks = 0;
    zoff_store_stats before;
    zoff_engine_stores_stats(e, &before);
    double from = zoff_base_clock_seconds();
    for (size_t i = 0; i < part.piece_count; i++) {
        /* Of several ranks another may have the gradient that this one has not. */
        if (e->params[pieces[i].param].frozen || (alone && !*zoff_engine_params_flag(e, &pieces[i])))
            continue;
        zoff_norm_piece *n = &e->norm_pieces[used];
        *n = (zoff_norm_piece){.count = pieces[i].count, .block_sums = e->block_sums + blocks};
        e->norm_index[used++] = i;
        blocks += zoff_base_bits_ceil_div(n->count, ZOFF_NORM_BLOCK);
        n->grad = zoff_engine_stages_gradient(e, &pieces[i], &n->dtype);
        *read_bytes += n->count * zoff_adam_dtype_bytes(n->dtype);
    }
    zoff_adam_norm_run(zoff_engine_update_measurers(e), e->norm_pieces, used, alone ? between : NULL, e);
    for (size_t i = 0; i < used; i++)
        zoff_engine_gate_add(e, &pieces[e->norm_index[i]], e->norm_pieces[i].block_sums);
    e->measured++;
    *seconds += zoff_engine_stages_worked(e, from, &before);
}

zoff_status zoff_engine_stages_measure(zoff_bucket_run *run)
{
    zoff_step_info *info = &run->engine->run.info;
    if (zoff_engine_device_norm_has(run->engine, run->chunk))
        return zoff_engine_device_norm_measure(run);
    if (!run->engine->run.looks) {
        run->engine->measured++;
        return ZOFF_OK;
    }
    zoff_engine_stages_square_sums(run->engine, run->chunk, &info->measure_seconds, &info->host_read_bytes);
    return ZOFF_OK;
}

zoff_status zoff_engine_stages_gate(zoff_bucket_run *run)
{
    zoff_status status = zoff_engine_gate_vote(run->engine);
    /* Behind the gate is what can be borrowed: a bucket further back would take a slot from one that needs it first. */
    return status == ZOFF_OK && !zoff_engine_pipeline_reaches(run) ? ZOFF_PENDING : status;
}

static bool borrows_weights(const zoff_bucket_run *run)
{
    return run->engine->plan.chunks[run->chunk].weight_bytes && zoff_engine_stages_takes_part(run);
}

/* Whether the step writes all the weights of the bucket and reads none: each has a master, and a gradient. */
static bool writes_all_weights(const zoff_bucket_run *run)
{
    const zoff_engine *e = run->engine;
    size_t count;
    const zoff_plan_piece *pieces = pieces_of(run, &count);
    for (size_t i = 0; i < count; i++) {
        const zoff_engine_param *p = &e->params[pieces[i].param];
        if (p->engine_owned && !(zoff_engine_params_remade(p) && *zoff_engine_params_flag(run->engine, &pieces[i])))
            return false;
    }
    return true;
}

static bool is_wanted(const zoff_loan *loan)
{
    return !loan->base && !loan->done;
}

/* An error leaves nothing borrowed. */
static zoff_status ask(zoff_store *store, size_t chunk, bool as_a_whole, zoff_loan *loan)
{
    void *base;
    zoff_status status =
        as_a_whole ? zoff_offload_store_claim(store, chunk, &base) : zoff_offload_store_fetch(store, chunk, &base);
    loan->base = status == ZOFF_OK ? base : NULL;
    return status;
}

/* Both are asked for before either is waited for. */
zoff_status zoff_engine_stages_borrow(zoff_bucket_run *run)
{
    zoff_engine *e = run->engine;
    zoff_status states = ZOFF_OK, weights = ZOFF_OK;
    if (is_wanted(&run->states) && zoff_engine_stages_borrows(run))
        states = ask(e->store, run->chunk, false, &run->states);
    if (states >= 0 && is_wanted(&run->weights) && borrows_weights(run))
        weights = ask(e->weights, run->chunk, writes_all_weights(run), &run->weights);
    return states != ZOFF_OK ? states : weights;
}

/* Nothing of a chunk is used before all of it is known to be what was written. */
static zoff_status check(zoff_store *store, size_t chunk, zoff_loan *loan)
{
    if (loan->checked || !loan->base)
        return ZOFF_OK;
    zoff_status status = zoff_offload_store_check(store, chunk);
    loan->checked = status == ZOFF_OK;
    loan->base = loan->checked ? loan->base : NULL;
    return status;
}

zoff_status zoff_engine_stages_fetch(zoff_bucket_run *run)
{
    zoff_engine *e = run->engine;
    ZOFF_TRY(zoff_engine_stores_take_fault(e));
    zoff_status status = zoff_engine_stages_borrow(run);
    if (status != ZOFF_OK)
        return status;
    ZOFF_TRY(check(e->weights, run->chunk, &run->weights));
    return check(e->store, run->chunk, &run->states);
}

static zoff_status give(zoff_store *store, size_t chunk, zoff_loan *loan)
{
    if (!loan->base)
        return ZOFF_OK;
    loan->base = NULL;
    loan->done = true;
    return zoff_offload_store_flush(store, chunk);
}

zoff_status zoff_engine_stages_flush(zoff_bucket_run *run)
{
    zoff_engine *e = run->engine;
    ZOFF_TRY(zoff_engine_stores_take_fault(e));
    ZOFF_TRY(give(e->store, run->chunk, &run->states));
    return give(e->weights, run->chunk, &run->weights);
}
