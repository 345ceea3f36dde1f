/* reduce_scatter.c: sends the gradients of all ranks to the rank that owns their sum. One rule holds for all stages, tiers and
 * numbers of micro-batches. Each gradient is multiplied by the weight of its micro-batch and added in fp32, micro-batch by
 * micro-batch and, within each, in rank order. A gradient that a rank does not have counts as zeros.
 *
 * On the wire, a bucket is the parts of the ranks in rank order. A part is its pieces, each aligned to its element.
 *
 * A gradient that the trainer has reduced is not sent: the owner of an element adds its own copy, with the weight of all.
 *
 * One case is different: where the communicator sums (sum_rules.c), ranks apply the weights before sending, and the
 * communicator adds in an order of its own. */
#include "transfer.h"

#include "bits.h"
#include "clock.h"
#include "try.h"

static const size_t *part_bytes(const zoff_transfer *t, size_t bucket)
{
    return zoff_transfer_wire_parts(t, bucket);
}

/* Release the engine memory of gradients that are packed now, or, those that stay on this rank, summed. */
static void forget(zoff_transfer *t, size_t bucket, bool stays)
{
    zoff_grads *g = t->route.place->pool(t);
    const zoff_plan_chunk *c = &t->plan->chunks[bucket];
    for (size_t i = c->first_run; i < c->first_run + c->run_count; i++) {
        const zoff_plan_piece *run = &t->plan->runs[i];
        const size_t number = t->model->params[run->param].first_flag + run->slice;
        const bool is_it = zoff_transfer_terms_of(&t->model->params[run->param])->stays == stays;
        if (is_it && t->model->flags[number] & ZOFF_SLICE_READY && zoff_transfer_arena_at(g, number))
            zoff_transfer_arena_packed(g, number);
    }
}

void zoff_transfer_reduce_scatter_packed(zoff_transfer *t, size_t bucket)
{
    forget(t, bucket, false);
}

zoff_status zoff_transfer_reduce_scatter_list_parts(zoff_transfer *t, size_t bucket, char *out, size_t *out_moves)
{
    size_t used = 0;
    *out_moves = 0;
    if (!out) /* all parts are empty */
        return ZOFF_OK;
    for (unsigned rank = 0; rank < t->plan->ranks; rank++) {
        zoff_plan_cursor part = zoff_zero_plan_part(t->plan, bucket, rank);
        zoff_plan_piece piece;
        size_t at = 0;
        while (zoff_zero_plan_next(&part, &piece)) {
            const zoff_model_param *p = &t->model->params[piece.param];
            if (!zoff_transfer_terms_of(p)->travels)
                continue;
            const size_t bytes = zoff_adam_dtype_bytes(t->route.rule->dtype(t, p));
            char *to = out + zoff_transfer_wire_place(&at, piece.count, bytes);
            if (*zoff_model_params_flag(t->model, &piece) & ZOFF_SLICE_READY)
                t->route.rule->list(t, &piece, to, used++);
            else /* it counts as zeros */
                ZOFF_TRY(t->route.place->zero(t, to, piece.count * bytes));
        }
        const size_t bytes = part_bytes(t, bucket)[rank];
        ZOFF_TRY(t->route.rule->pad(t, out + at, bytes - at));
        out += bytes;
    }
    *out_moves = used;
    return ZOFF_OK;
}

zoff_status zoff_transfer_reduce_scatter_pack(void *ctx, size_t bucket, unsigned slot, char *out)
{
    zoff_transfer *t = ctx;
    size_t moves;
    (void)slot;
    ZOFF_TRY(zoff_transfer_reduce_scatter_list_parts(t, bucket, out, &moves));
    zoff_adam_cast_run(t->threads.now, t->ranks.moves, moves);
    forget(t, bucket, false);
    return ZOFF_OK;
}

size_t zoff_transfer_reduce_scatter_list_sums(zoff_transfer *t, size_t bucket, const char *parts, const float *weights)
{
    const unsigned own = t->plan->rank;
    const zoff_plan_span part = zoff_zero_plan_own(t->plan, bucket);
    size_t used = 0, at = 0;
    for (size_t i = 0; i < part.piece_count; i++) {
        const zoff_plan_piece *piece = &t->plan->pieces[part.first_piece + i];
        const zoff_model_param *p = &t->model->params[piece->param];
        if (p->frozen)
            continue;
        zoff_accumulate_piece *sum = &t->scratch.accumulate_pieces[used++];
        *sum = (zoff_accumulate_piece){.count = piece->count,
                                       .sum = t->route.place->sum(t, piece),
                                       .first = t->batch.micro == 0,
                                       .stride = part_bytes(t, bucket)[own]};
        zoff_transfer_terms_of(p)->list(t, piece, parts, weights, &at, sum);
    }
    return used;
}

/* Add the received parts to the accumulator, on the host. */
static void add_up(zoff_transfer *t, size_t bucket, const char *parts, const float *weights)
{
    const double from = zoff_base_clock_seconds();
    const size_t used = zoff_transfer_reduce_scatter_list_sums(t, bucket, parts, weights);
    for (size_t i = 0; i < used; i++) {
        const zoff_accumulate_piece *a = &t->scratch.accumulate_pieces[i];
        t->batch.early.read_bytes += a->count * (a->sources * zoff_adam_dtype_bytes(a->dtype) + (a->first ? 0 : sizeof(float)));
        t->batch.early.write_bytes += a->count * sizeof(float);
    }
    zoff_adam_accumulate_run(t->threads.now, t->scratch.accumulate_pieces, used, NULL, NULL);
    t->batch.early.measure_seconds += zoff_base_clock_seconds() - from;
}

zoff_status zoff_transfer_reduce_scatter_summed(zoff_transfer *t, size_t bucket, const char *parts, const float *weights)
{
    if (t->batch.micro + 1 < t->values->accumulation)
        return ZOFF_OK;
    const zoff_vote before = t->measure.vote;
    zoff_transfer_use_of(t, bucket)->measure(t, bucket);
    if (t->measure.vote.poisoned && (!before.poisoned || zoff_transfer_measure_is_before(&t->measure.vote, &before)))
        zoff_transfer_terms_of(&t->model->params[t->measure.vote.param])->blame(t, bucket, parts, weights);
    zoff_transfer_walk_complete(t, bucket);
    return ZOFF_OK;
}

zoff_status zoff_transfer_reduce_scatter_sum(void *ctx, size_t bucket, unsigned slot, const char *parts, const float *weights)
{
    zoff_transfer *t = ctx;
    (void)slot;
    zoff_transfer_measure_add_copies(t, bucket);
    add_up(t, bucket, parts, weights);
    forget(t, bucket, true);
    return zoff_transfer_reduce_scatter_summed(t, bucket, parts, weights);
}

/* ---- a micro-batch ---- */

void zoff_transfer_reduce_scatter_begin(zoff_transfer *t)
{
    t->batch.weight = 1;
    t->batch.handed_over = false;
    t->measure.votes = false;
    zoff_transfer_arena_forget(&t->grads);
    zoff_transfer_arena_forget(t->route.lent);
    zoff_transfer_walk_begin_batch(t);
    if (t->ranks.reduce)
        zoff_zero_reduce_begin(t->ranks.reduce, t->walk.arrivals.slices);
    if (t->batch.micro == 0)
        zoff_transfer_measure_begin_copies(t);
    if (t->batch.micro + 1 == t->values->accumulation)
        zoff_transfer_measure_begin(t);
}

void zoff_transfer_reduce_scatter_hand_over(zoff_transfer *t, zoff_param p, size_t slice)
{
    const size_t number = t->model->params[p].first_flag + slice;
    zoff_grads *g = t->route.place->pool(t);
    if (zoff_transfer_arena_at(g, number))
        zoff_transfer_arena_hand_over(g, number,
                                      1 + t->model->slice_buckets[number].last - t->model->slice_buckets[number].first);
}

void zoff_transfer_reduce_scatter_mark(zoff_transfer *t, zoff_param p, size_t slice)
{
    const zoff_model_param *param = &t->model->params[p];
    if (param->frozen || !param->count)
        return;
    t->route.peers->mark(t, t->model->slice_buckets[param->first_flag + slice]);
    if (t->route.peers->leaves_early(t))
        (void)zoff_transfer_reduce_scatter_go_on(t);
}

/* Errors are stored; the step returns them. After one nothing is in flight. */
bool zoff_transfer_reduce_scatter_go_on(zoff_transfer *t)
{
    return t->ranks.reduce && zoff_zero_reduce_poll(t->ranks.reduce) == ZOFF_PENDING;
}

void zoff_transfer_reduce_scatter_close(zoff_transfer *t)
{
    if (t->ranks.reduce)
        zoff_zero_reduce_close_batch(t->ranks.reduce);
}

zoff_status zoff_transfer_reduce_scatter_bucket(void *ctx, zoff_bucket_run *run)
{
    zoff_transfer *t = ctx;
    if (zoff_zero_reduce_is_done(t->ranks.reduce, run->chunk))
        return ZOFF_OK;
    ZOFF_TRY(zoff_zero_reduce_poll(t->ranks.reduce));
    return zoff_zero_reduce_is_done(t->ranks.reduce, run->chunk) ? ZOFF_OK : ZOFF_PENDING;
}

zoff_status zoff_transfer_reduce_scatter_poll(const zoff_transfer *t)
{
    return t->ranks.reduce ? zoff_zero_reduce_poll(t->ranks.reduce) : ZOFF_OK;
}

static zoff_status poll(void *ctx)
{
    return zoff_transfer_reduce_scatter_poll(ctx);
}

zoff_status zoff_transfer_reduce_scatter_finish(zoff_transfer *t)
{
    if (!t->ranks.reduce)
        return ZOFF_OK;
    return zoff_transfer_wire_wait_until(t, poll, t);
}

double zoff_transfer_reduce_scatter_total_weight(const zoff_transfer *t)
{
    return t->ranks.reduce ? zoff_zero_reduce_total_weight(t->ranks.reduce) : t->route.gradients->weight(t);
}

void zoff_transfer_reduce_scatter_weigh(zoff_transfer *t, double weight)
{
    t->batch.weight = (float)weight;
    if (t->ranks.reduce)
        zoff_zero_reduce_weigh(t->ranks.reduce, weight);
}
