/* reduce_scatter.c: gradients of all ranks on their way to the rank that owns their sum. The rule is one for all stages, tiers
 * and numbers of micro-batches: each micro-batch of each rank is added in fp32, multiplied by its weight, micro-batch by
 * micro-batch and in the order of ranks. A gradient that a rank does not have counts as zeros.
 *
 * On the wire a bucket is the parts of the ranks, one after the other, and a part its pieces, each aligned to its element.
 *
 * Where the communicator adds them up (sum_rules.c) weights come before the wire and the order is its own; that is the one case
 * that the rule does not hold for. */
#include "engine_priv.h"

#include "bits.h"
#include "clock.h"
#include "try.h"

static const size_t *part_bytes(const zoff_engine *e, size_t bucket)
{
    return zoff_engine_wire_parts(e, bucket);
}

/* Gradients that lie in memory of the engine are packed now, so their memory is free for others. */
static void forget_packed(zoff_engine *e, size_t bucket)
{
    const zoff_plan_chunk *c = &e->plan.chunks[bucket];
    for (size_t i = c->first_run; i < c->first_run + c->run_count; i++) {
        const zoff_plan_piece *run = &e->plan.runs[i];
        const size_t number = e->model.params[run->param].first_flag + run->slice;
        if (e->model.flags[number] & ZOFF_SLICE_READY && zoff_engine_grads_at(e, number))
            zoff_engine_grads_packed(e, number);
    }
}

zoff_status zoff_engine_reduce_scatter_list_parts(zoff_engine *e, size_t bucket, char *out, size_t *out_moves)
{
    size_t used = 0;
    *out_moves = 0;
    if (!out) /* all parts are empty */
        return ZOFF_OK;
    for (unsigned rank = 0; rank < e->plan.ranks; rank++) {
        zoff_plan_cursor part = zoff_zero_plan_part(&e->plan, bucket, rank);
        zoff_plan_piece piece;
        size_t at = 0;
        while (zoff_zero_plan_next(&part, &piece)) {
            const zoff_model_param *p = &e->model.params[piece.param];
            if (p->frozen)
                continue;
            const size_t bytes = zoff_adam_dtype_bytes(e->sums.rule->dtype(e, p));
            char *to = out + zoff_engine_wire_place(&at, piece.count, bytes);
            if (*zoff_model_params_flag(&e->model, &piece) & ZOFF_SLICE_READY)
                e->sums.rule->list(e, &piece, to, used++);
            else /* it counts as zeros */
                ZOFF_TRY(e->sums.place->zero(e, to, piece.count * bytes));
        }
        const size_t bytes = part_bytes(e, bucket)[rank];
        ZOFF_TRY(e->sums.rule->pad(e, out + at, bytes - at));
        out += bytes;
    }
    *out_moves = used;
    return ZOFF_OK;
}

zoff_status zoff_engine_reduce_scatter_pack(void *ctx, size_t bucket, unsigned slot, char *out)
{
    zoff_engine *e = ctx;
    size_t moves;
    (void)slot;
    ZOFF_TRY(zoff_engine_reduce_scatter_list_parts(e, bucket, out, &moves));
    zoff_adam_cast_run(zoff_engine_progress_thread_threads(e), e->ranks.moves, moves);
    forget_packed(e, bucket);
    return ZOFF_OK;
}

size_t zoff_engine_reduce_scatter_list_sums(zoff_engine *e, size_t bucket, const char *parts, const float *weights)
{
    const unsigned own = e->plan.rank;
    const zoff_plan_span part = zoff_zero_plan_own(&e->plan, bucket);
    size_t used = 0, at = 0;
    for (size_t i = 0; i < part.piece_count; i++) {
        const zoff_plan_piece *piece = &e->plan.pieces[part.first_piece + i];
        const zoff_model_param *p = &e->model.params[piece->param];
        if (p->frozen)
            continue;
        const zoff_dtype dtype = e->sums.rule->dtype(e, p);
        zoff_accumulate_piece *sum = &e->accumulate_pieces[used++];
        *sum = (zoff_accumulate_piece){.count = piece->count,
                                       .sum = e->sums.place->sum(e, piece),
                                       .grad = parts + zoff_engine_wire_place(&at, piece->count, zoff_adam_dtype_bytes(dtype)),
                                       .dtype = dtype,
                                       .first = e->micro == 0,
                                       .stride = part_bytes(e, bucket)[own]};
        e->sums.rule->terms(e, weights, sum);
    }
    return used;
}

/* On the host, into the accumulator. */
static void add_up(zoff_engine *e, size_t bucket, const char *parts, const float *weights)
{
    const double from = zoff_base_clock_seconds();
    const size_t used = zoff_engine_reduce_scatter_list_sums(e, bucket, parts, weights);
    for (size_t i = 0; i < used; i++) {
        const zoff_accumulate_piece *a = &e->accumulate_pieces[i];
        e->early.read_bytes += a->count * (a->sources * zoff_adam_dtype_bytes(a->dtype) + (a->first ? 0 : sizeof(float)));
        e->early.write_bytes += a->count * sizeof(float);
    }
    zoff_adam_accumulate_run(zoff_engine_progress_thread_threads(e), e->accumulate_pieces, used, NULL, NULL);
    e->early.measure_seconds += zoff_base_clock_seconds() - from;
}

zoff_status zoff_engine_reduce_scatter_summed(zoff_engine *e, size_t bucket, const char *parts, const float *weights)
{
    if (e->micro + 1 < e->settings.values.accumulation)
        return ZOFF_OK;
    const bool was_poisoned = e->own_vote.poisoned;
    if (zoff_engine_device_tier_has(e, bucket))
        zoff_engine_device_norm_take(e, bucket);
    else
        zoff_engine_measure_bucket(e, bucket, &e->early.measure_seconds, &e->early.read_bytes);
    if (e->own_vote.poisoned && !was_poisoned)
        e->sums.rule->blame(e, bucket, parts, weights);
    return ZOFF_OK;
}

zoff_status zoff_engine_reduce_scatter_sum(void *ctx, size_t bucket, unsigned slot, const char *parts, const float *weights)
{
    zoff_engine *e = ctx;
    (void)slot;
    add_up(e, bucket, parts, weights);
    return zoff_engine_reduce_scatter_summed(e, bucket, parts, weights);
}

/* ---- a micro-batch ---- */

bool zoff_engine_reduce_scatter_leaves_early(const zoff_engine *e)
{
    return zoff_engine_ranks_several(e) && e->settings.values.zero_stage >= 2;
}

void zoff_engine_reduce_scatter_begin(zoff_engine *e)
{
    e->weight = 1;
    e->handed_over = false;
    zoff_engine_grads_forget(e);
    if (e->ranks.reduce)
        zoff_zero_reduce_begin(e->ranks.reduce, e->ranks.missing);
    if (e->ranks.reduce && e->micro + 1 == e->settings.values.accumulation)
        zoff_engine_gate_begin(e);
}

void zoff_engine_reduce_scatter_hand_over(zoff_engine *e, zoff_param p, size_t slice)
{
    const size_t number = e->model.params[p].first_flag + slice;
    if (zoff_engine_grads_at(e, number))
        zoff_engine_grads_hand_over(e, number, 1 + e->model.slice_buckets[number].last - e->model.slice_buckets[number].first);
}

void zoff_engine_reduce_scatter_mark(zoff_engine *e, zoff_param p, size_t slice)
{
    const zoff_model_param *param = &e->model.params[p];
    if (!e->ranks.reduce || !zoff_engine_reduce_scatter_leaves_early(e) || param->frozen || !param->count)
        return;
    const zoff_slice_buckets *buckets = &e->model.slice_buckets[param->first_flag + slice];
    zoff_zero_reduce_mark(e->ranks.reduce, buckets->first, buckets->last);
    (void)zoff_engine_reduce_scatter_go_on(e);
}

/* Errors are kept; the step returns them. */
bool zoff_engine_reduce_scatter_go_on(zoff_engine *e)
{
    return e->ranks.reduce && zoff_zero_reduce_poll(e->ranks.reduce) != ZOFF_OK;
}

void zoff_engine_reduce_scatter_close(zoff_engine *e)
{
    if (e->ranks.reduce)
        zoff_zero_reduce_close_batch(e->ranks.reduce);
}

zoff_status zoff_engine_reduce_scatter_bucket(zoff_bucket_run *run)
{
    zoff_engine *e = run->engine;
    if (zoff_zero_reduce_is_done(e->ranks.reduce, run->chunk))
        return ZOFF_OK;
    ZOFF_TRY(zoff_zero_reduce_poll(e->ranks.reduce));
    return zoff_zero_reduce_is_done(e->ranks.reduce, run->chunk) ? ZOFF_OK : ZOFF_PENDING;
}

static zoff_status poll(void *ctx)
{
    const zoff_engine *e = ctx;
    return zoff_zero_reduce_poll(e->ranks.reduce);
}

zoff_status zoff_engine_reduce_scatter_finish(zoff_engine *e)
{
    return zoff_engine_ranks_wait_until(e, poll, e);
}

/* Other ranks may have gradients of this rank under way, and votes: what has begun is brought to its end. */
zoff_status zoff_engine_reduce_scatter_drop(zoff_engine *e)
{
    if (!e->ranks.reduce || zoff_comm_is_broken(e->comm))
        return ZOFF_OK;
    ZOFF_FAIL_IF(e->phase == ZOFF_PHASE_FAILED && e->run.gate == ZOFF_GATE_OPEN, ZOFF_ERR_STATE,
                 "zoff_grads_drop: other ranks have taken step %lld and wait for this one; zoff_step_retry() can finish it",
                 (long long)e->run.t);
    if (e->phase == ZOFF_PHASE_IDLE && !zoff_engine_reduce_scatter_leaves_early(e))
        return ZOFF_OK;
    zoff_zero_reduce_close_batch(e->ranks.reduce);
    ZOFF_TRY(zoff_engine_reduce_scatter_finish(e));
    if (e->phase == ZOFF_PHASE_IDLE)
        return ZOFF_OK;
    ZOFF_TRY(zoff_comm_wait(e->comm, &e->run.talks.agreement));
    return zoff_comm_wait(e->comm, &e->run.talks.vote);
}
