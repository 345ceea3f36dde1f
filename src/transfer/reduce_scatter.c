/* SPDX-License-Identifier: Apache-2.0 */
/* reduce_scatter.c: sends the gradients of all ranks to the rank that owns their sum. One rule holds for all stages, tiers and
 * numbers of micro-batches. Each gradient is multiplied by the weight of its micro-batch and added in fp32, micro-batch by
 * micro-batch and, within each, in rank order. A gradient that a rank does not have counts as zeros.
 *
 * On the wire, a bucket is the parts of the ranks in rank order, or, over two levels (levels.c), rail by rail. A part is its
 * pieces, each aligned to its element.
 *
 * A gradient that the trainer has reduced is not sent: the owner of an element adds its own copy, with the weight of all.
 *
 * One case is different: where the communicator sums (wire_device.c), ranks apply the weights before sending, and the
 * communicator adds in an order of its own. */
#include "transfer.h"

#include "bits.h"
#include "try.h"

#include <math.h>

static const size_t *part_bytes(const zoff_transfer *t, size_t bucket)
{
    return zoff_transfer_wire_parts(t, bucket);
}

void zoff_transfer_reduce_scatter_forget(zoff_transfer *t, size_t bucket, bool stays)
{
    zoff_grads *g = t->route.packed;
    const zoff_plan_chunk *c = &t->plan->chunks[bucket];
    for (size_t i = c->first_run; i < c->first_run + c->run_count; i++) {
        const zoff_plan_piece *run = &t->plan->runs[i];
        const zoff_model_param *p = &t->model->params[run->param];
        const size_t number = p->first_flag + run->slice;
        const bool is_it = (p->reduced && !p->frozen) == stays;
        if (is_it && t->model->flags[number] & ZOFF_SLICE_READY && zoff_transfer_arena_at(g, number))
            zoff_transfer_arena_packed(g, number);
    }
}

zoff_status zoff_transfer_reduce_scatter_list_parts(zoff_transfer *t, size_t bucket, char *out, size_t *out_moves)
{
    size_t used = 0;
    *out_moves = 0;
    if (!out) /* all parts are empty */
        return ZOFF_OK;
    for (unsigned position = 0; position < t->plan->ranks; position++) {
        const unsigned rank = zoff_comm_grid_rank(&t->ranks.levels.sums, position);
        zoff_plan_cursor part = zoff_zero_plan_part(t->plan, bucket, rank);
        zoff_plan_piece piece;
        size_t at = 0;
        while (zoff_zero_plan_next(&part, &piece)) {
            const zoff_model_param *p = &t->model->params[piece.param];
            if (p->frozen || p->reduced)
                continue;
            const zoff_dtype dtype = zoff_transfer_wire_dtype(t, p);
            const size_t bytes = zoff_adam_dtype_bytes(dtype);
            char *to = out + zoff_transfer_wire_place(&at, piece.count, bytes);
            if (*zoff_model_params_flag(t->model, &piece) & ZOFF_SLICE_READY)
                t->ranks.moves[used++] = (zoff_cast_piece){.count = piece.count,
                                                           .dst = to,
                                                           .src = t->route.link->gradient(t, &piece),
                                                           .dst_dtype = dtype,
                                                           .src_dtype = p->grad_dtype};
            else /* a gradient that a rank lacks counts as zeros */
                ZOFF_TRY(t->route.wire->zero(t, to, piece.count * bytes));
        }
        const size_t bytes = part_bytes(t, bucket)[rank];
        if (t->route.adds && bytes > at) /* the communicator also sums the padding; otherwise nobody reads it */
            ZOFF_TRY(t->route.wire->zero(t, out + at, bytes - at));
        out += bytes;
    }
    *out_moves = used;
    return ZOFF_OK;
}

/* The gradient stands for the mean of all ranks, or for their sum, so its weight is the one by which the gate divides. A slice
 * that was not handed over counts as zeros; agreement/vote.c sees to it that no rank has it then. */
static void list_reduced(zoff_transfer *t, const zoff_plan_piece *piece, zoff_accumulate_piece *out)
{
    static const float NOTHING = 0;
    const zoff_model_param *p = &t->model->params[piece->param];
    const bool is_there = *zoff_model_params_flag(t->model, piece) & ZOFF_SLICE_READY;
    const unsigned summed = t->values->sums_ranks ? t->plan->ranks : 1;
    t->ranks.reduced_weight = (float)(zoff_base_exact_value(zoff_zero_reduce_total_weight(t->ranks.reduce)) / summed);
    out->dtype = is_there ? p->grad_dtype : ZOFF_F32;
    out->grad = is_there ? (const void *)t->route.link->gradient(t, piece) : out->sum;
    out->sources = 1;
    out->weights = is_there ? &t->ranks.reduced_weight : &NOTHING;
}

size_t zoff_transfer_reduce_scatter_list_sums(zoff_transfer *t, size_t bucket, const char *parts, const float *weights)
{
    const unsigned own = t->plan->rank;
    const zoff_plan_span part = zoff_zero_plan_own(t->plan, bucket);
    size_t used = 0, at = 0;
    for (size_t i = 0; i < part.piece_count; i++) {
        const zoff_plan_piece *piece = &t->plan->pieces[part.first_piece + i];
        const zoff_model_param *p = &t->model->params[piece->param];
        if (p->frozen || (!parts && !p->reduced))
            continue;
        zoff_accumulate_piece *sum = &t->scratch.accumulate_pieces[used++];
        *sum = (zoff_accumulate_piece){.count = piece->count,
                                       .sum = t->ranks.wire.sums + piece->owned_offset,
                                       .first = t->batch.micro == 0,
                                       .stride = part_bytes(t, bucket)[own]};
        if (p->reduced) {
            list_reduced(t, piece, sum);
            continue;
        }
        sum->dtype = zoff_transfer_wire_dtype(t, p);
        sum->grad = parts + zoff_transfer_wire_place(&at, piece->count, zoff_adam_dtype_bytes(sum->dtype));
        sum->sources = t->plan->ranks;
        sum->weights = weights;
    }
    return used;
}

/* ---- the rank to blame ---- */

/* Whether one rank's gradient of a piece is finite in the block of an element. */
static bool is_finite_at(zoff_transfer *t, const zoff_plan_piece *piece, const char *wire, size_t first)
{
    const zoff_dtype dtype = zoff_transfer_wire_dtype(t, &t->model->params[piece->param]);
    const size_t from = first - piece->first;
    double sum;
    const size_t count = zoff_base_bits_min(piece->count - from, ZOFF_NORM_BLOCK);
    float copy[ZOFF_NORM_BLOCK];
    const void *grad = t->route.wire->look(t, wire + from * zoff_adam_dtype_bytes(dtype), count, dtype, copy);
    if (!grad)
        return true; /* the copy failed, so the rank stays unknown */
    const zoff_norm_piece block = {.count = count, .grad = grad, .dtype = dtype, .block_sums = &sum};
    zoff_adam_norm_run(1, &block, 1, NULL, NULL);
    return isfinite(sum);
}

/* Find the rank whose gradient made a sum over ranks not finite. */
static void find_culprit(zoff_transfer *t, size_t bucket, const char *parts, const float *weights)
{
    zoff_vote *vote = &t->measure.vote;
    const size_t part_bytes = zoff_transfer_wire_parts(t, bucket)[t->plan->rank];
    const zoff_plan_span part = zoff_zero_plan_own(t->plan, bucket);
    size_t at = 0;
    for (size_t i = 0; i < part.piece_count; i++) {
        const zoff_plan_piece *piece = &t->plan->pieces[part.first_piece + i];
        const zoff_model_param *p = &t->model->params[piece->param];
        if (p->frozen || p->reduced)
            continue;
        const size_t start = zoff_transfer_wire_place(&at, piece->count, zoff_adam_dtype_bytes(zoff_transfer_wire_dtype(t, p)));
        const bool is_it = piece->param == vote->param && piece->slice == vote->slice && vote->first >= piece->first &&
                           vote->first - piece->first < piece->count;
        for (unsigned rank = 0; is_it && rank < t->plan->ranks && !vote->rank_is_known; rank++) {
            vote->rank_is_known = weights[rank] != 0 && !is_finite_at(t, piece, parts + rank * part_bytes + start, vote->first);
            vote->rank = vote->rank_is_known ? rank : vote->rank;
        }
    }
}

/* A reduced gradient has this rank's terms alone. Where the communicator sums, it returns only the sum, so the rank stays
 * unknown. */
void zoff_transfer_reduce_scatter_measured(zoff_transfer *t, size_t bucket, const zoff_vote *before, const char *parts,
                                           const float *weights)
{
    zoff_vote *vote = &t->measure.vote;
    const bool is_new = vote->poisoned && (!before->poisoned || zoff_transfer_measure_is_before(vote, before));
    if (is_new && t->model->params[vote->param].reduced)
        vote->rank_is_known = true;
    else if (is_new && parts && !t->route.adds)
        find_culprit(t, bucket, parts, weights);
    zoff_transfer_walk_complete(t, bucket);
}

void zoff_transfer_reduce_scatter_summed(zoff_transfer *t, size_t bucket, const char *parts, const float *weights)
{
    zoff_transfer_reduce_scatter_forget(t, bucket, true);
    if (!zoff_transfer_sums_ends(t))
        return;
    const zoff_vote before = t->measure.vote;
    zoff_transfer_measure_early(t, bucket);
    zoff_transfer_reduce_scatter_measured(t, bucket, &before, parts, weights);
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
        zoff_zero_reduce_begin(t->ranks.reduce, t->walk.arrivals.slices, t->ranks.levels.keeps && !zoff_transfer_sums_ends(t));
    if (t->batch.micro == 0)
        zoff_transfer_measure_begin_copies(t);
    if (t->batch.micro + 1 == t->values->accumulation)
        zoff_transfer_measure_begin(t);
}

void zoff_transfer_reduce_scatter_hand_over(zoff_transfer *t, zoff_param p, size_t slice)
{
    const size_t number = t->model->params[p].first_flag + slice;
    zoff_grads *g = t->route.packed;
    if (zoff_transfer_arena_at(g, number))
        zoff_transfer_arena_hand_over(g, number,
                                      1 + t->model->slice_buckets[number].last - t->model->slice_buckets[number].first);
}

void zoff_transfer_reduce_scatter_mark(zoff_transfer *t, zoff_param p, size_t slice)
{
    const zoff_model_param *param = &t->model->params[p];
    if (param->frozen || !param->count)
        return;
    const zoff_slice_buckets in = t->model->slice_buckets[param->first_flag + slice];
    uint32_t *missing = t->walk.arrivals.missing;
    for (size_t b = in.first; missing && b <= in.last; b++) {
        if (--missing[b] == 0)
            zoff_transfer_walk_complete(t, b);
    }
    if (!zoff_transfer_ranks_leave_early(t))
        return;
    /* A bucket is sent when all its slices are here, so no rank leaves one of them out. It is complete when it is summed. */
    zoff_zero_reduce_mark(t->ranks.reduce, in.first, in.last);
    (void)zoff_transfer_reduce_scatter_go_on(t);
}

/* Errors are stored; the step returns them. After one nothing is in flight. */
bool zoff_transfer_reduce_scatter_go_on(zoff_transfer *t)
{
    return t->ranks.reduce && zoff_zero_reduce_poll(t->ranks.reduce) == ZOFF_PENDING;
}

/* With streams, downloads may still be in flight, so a row closes the micro-batch when all are complete. Without buckets there
 * is no such row. */
void zoff_transfer_reduce_scatter_end(zoff_transfer *t)
{
    if (!t->route.link->has_streams || t->plan->chunk_count == 0)
        zoff_transfer_reduce_scatter_close(t);
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

void zoff_transfer_reduce_scatter_add_weight(const zoff_transfer *t, zoff_exact *sum)
{
    if (t->ranks.reduce)
        zoff_base_exact_join(sum, zoff_zero_reduce_total_weight(t->ranks.reduce));
    else
        zoff_base_exact_add(sum, t->route.sums ? t->batch.weight : 1);
}

double zoff_transfer_reduce_scatter_total_weight(const zoff_transfer *t)
{
    zoff_exact sum = t->batch.weights;
    zoff_transfer_reduce_scatter_add_weight(t, &sum);
    return zoff_base_exact_value(&sum);
}

void zoff_transfer_reduce_scatter_weigh(zoff_transfer *t, double weight)
{
    t->batch.weight = (float)weight;
    if (t->ranks.reduce)
        zoff_zero_reduce_weigh(t->ranks.reduce, weight);
}
