/* sum_rules.c: who sums the gradients of all ranks. "ordered": the rank that owns the sum, term by term in rank order; the wire
 * carries each rank's gradients. "communicator" (zoff.reduce_scatter "nccl"): the communicator, during the exchange and in an
 * order of its own; the wire carries fp32 gradients multiplied by their weight. Gradients that the trainer has reduced
 * (zoff_param_desc.reduced) do not travel, whichever rule holds. */
#include "transfer.h"

#include "bits.h"

#include <math.h>

/* ---- ordered ---- */

static zoff_dtype ordered_dtype(const zoff_transfer *t, const zoff_model_param *p)
{
    return t->values->wire_dtype ? t->values->wire_dtype : p->grad_dtype;
}

/* The next part may have wider elements, and a device cannot read those unaligned. */
static size_t ordered_align(const zoff_transfer *t)
{
    return zoff_base_bits_max(t->ranks.widest_gradient, 1);
}

static void ordered_level(size_t *bytes, unsigned ranks)
{
    (void)bytes;
    (void)ranks;
}

static void ordered_most(const zoff_transfer *t, const zoff_plan *plan, size_t bucket, size_t *out_part, size_t *out_all)
{
    *out_part = zoff_transfer_wire_part_bytes(t, plan, bucket, plan->rank);
    *out_all = zoff_transfer_wire_bucket_most(t, plan, bucket);
}

static void ordered_list(zoff_transfer *t, const zoff_plan_piece *piece, char *to, size_t number)
{
    const zoff_model_param *p = &t->model->params[piece->param];
    t->ranks.moves[number] = (zoff_cast_piece){.count = piece->count,
                                               .dst = to,
                                               .src = t->route.place->gradient(t, piece),
                                               .dst_dtype = ordered_dtype(t, p),
                                               .src_dtype = p->grad_dtype};
}

static zoff_status ordered_put(zoff_transfer *t, size_t count)
{
    return t->accel->ops->kernels.cast(t->accel, t->device.compute, t->ranks.moves, count);
}

/* The padding behind a part is never read. */
static zoff_status ordered_pad(zoff_transfer *t, char *to, size_t bytes)
{
    (void)t;
    (void)to;
    (void)bytes;
    return ZOFF_OK;
}

static void ordered_terms(const zoff_transfer *t, const float *weights, zoff_accumulate_piece *out)
{
    out->sources = t->plan->ranks;
    out->weights = weights;
}

/* Whether one rank's gradient of a piece is finite in the block of an element. */
static bool is_finite_at(zoff_transfer *t, const zoff_plan_piece *piece, const char *wire, size_t first)
{
    const zoff_dtype dtype = t->route.rule->dtype(t, &t->model->params[piece->param]);
    const size_t from = first - piece->first;
    double sum;
    const size_t count = zoff_base_bits_min(piece->count - from, ZOFF_NORM_BLOCK);
    float copy[ZOFF_NORM_BLOCK];
    const void *grad = t->route.place->look(t, wire + from * zoff_adam_dtype_bytes(dtype), count, dtype, copy);
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
        if (!zoff_transfer_terms_of(p)->travels)
            continue;
        const size_t start = zoff_transfer_wire_place(&at, piece->count, zoff_adam_dtype_bytes(t->route.rule->dtype(t, p)));
        const bool is_it = piece->param == vote->param && piece->slice == vote->slice && vote->first >= piece->first &&
                           vote->first - piece->first < piece->count;
        for (unsigned rank = 0; is_it && rank < t->plan->ranks && !vote->rank_is_known; rank++) {
            vote->rank_is_known = weights[rank] != 0 && !is_finite_at(t, piece, parts + rank * part_bytes + start, vote->first);
            vote->rank = vote->rank_is_known ? rank : vote->rank;
        }
    }
}

const zoff_sum_rule zoff_transfer_sum_rules_ordered = {.name = "ordered",
                                                       .dtype = ordered_dtype,
                                                       .align = ordered_align,
                                                       .level = ordered_level,
                                                       .most = ordered_most,
                                                       .list = ordered_list,
                                                       .put = ordered_put,
                                                       .pad = ordered_pad,
                                                       .terms = ordered_terms,
                                                       .blame = find_culprit};

/* ---- by the communicator ---- */

static zoff_dtype added_dtype(const zoff_transfer *t, const zoff_model_param *p)
{
    (void)t;
    (void)p;
    return ZOFF_F32;
}

/* The communicator is fastest if parts start at multiples of 16 bytes. */
static size_t added_align(const zoff_transfer *t)
{
    (void)t;
    return 16;
}

/* The communicator needs parts of equal length: use that of the longest. */
static void added_level(size_t *bytes, unsigned ranks)
{
    size_t most = 0;
    for (unsigned rank = 0; rank < ranks; rank++)
        most = zoff_base_bits_max(most, bytes[rank]);
    for (unsigned rank = 0; rank < ranks; rank++)
        bytes[rank] = most;
}

/* All elements are fp32, and the ranks' numbers of blocks differ by at most one. */
static void added_most(const zoff_transfer *t, const zoff_plan *plan, size_t bucket, size_t *out_part, size_t *out_all)
{
    const zoff_plan_chunk *c = &plan->chunks[bucket];
    size_t blocks = 0;
    for (size_t i = c->first_run; i < c->first_run + c->run_count; i++)
        blocks += zoff_base_bits_ceil_div(plan->runs[i].count, plan->unit);
    *out_part = zoff_base_bits_align(zoff_base_bits_ceil_div(blocks, plan->ranks) * plan->unit * sizeof(float), added_align(t));
    *out_all = plan->ranks * *out_part;
}

static void added_list(zoff_transfer *t, const zoff_plan_piece *piece, char *to, size_t number)
{
    t->ranks.terms[number] = (zoff_accumulate_piece){.count = piece->count,
                                                     .sum = (float *)(void *)to,
                                                     .grad = t->route.place->gradient(t, piece),
                                                     .dtype = t->model->params[piece->param].grad_dtype,
                                                     .first = true,
                                                     .weights = zoff_zero_reduce_own_weight(t->ranks.reduce)};
}

static zoff_status added_put(zoff_transfer *t, size_t count)
{
    return t->accel->ops->kernels.accumulate(t->accel, t->device.compute, t->ranks.terms, count);
}

/* The communicator also sums the padding: clear it. */
static zoff_status added_pad(zoff_transfer *t, char *to, size_t bytes)
{
    return bytes ? t->route.place->zero(t, to, bytes) : ZOFF_OK;
}

static void added_terms(const zoff_transfer *t, const float *weights, zoff_accumulate_piece *out)
{
    (void)t;
    (void)weights;
    out->sources = 1;
    out->weights = NULL;
}

/* The communicator returns only the sum, so the rank stays unknown. */
static void added_blame(zoff_transfer *t, size_t bucket, const char *parts, const float *weights)
{
    (void)t;
    (void)bucket;
    (void)parts;
    (void)weights;
}

const zoff_sum_rule zoff_transfer_sum_rules_added = {.name = "communicator",
                                                     .adds = true,
                                                     .dtype = added_dtype,
                                                     .align = added_align,
                                                     .level = added_level,
                                                     .most = added_most,
                                                     .list = added_list,
                                                     .put = added_put,
                                                     .pad = added_pad,
                                                     .terms = added_terms,
                                                     .blame = added_blame};

/* ---- the terms of a parameter ---- */

static void travels_list(zoff_transfer *t, const zoff_plan_piece *piece, const char *parts, const float *weights, size_t *at,
                         zoff_accumulate_piece *out)
{
    out->dtype = t->route.rule->dtype(t, &t->model->params[piece->param]);
    out->grad = parts + zoff_transfer_wire_place(at, piece->count, zoff_adam_dtype_bytes(out->dtype));
    t->route.rule->terms(t, weights, out);
}

static void travels_blame(zoff_transfer *t, size_t bucket, const char *parts, const float *weights)
{
    t->route.rule->blame(t, bucket, parts, weights);
}

/* The gradient stands for the mean of all ranks, or for their sum: its weight is the one by which the gate divides. A slice
 * that was not handed over counts as zeros; agreement/vote.c sees to it that no rank has it then. */
static void reduced_list(zoff_transfer *t, const zoff_plan_piece *piece, const char *parts, const float *weights, size_t *at,
                         zoff_accumulate_piece *out)
{
    static const float NOTHING = 0;
    const zoff_model_param *p = &t->model->params[piece->param];
    const bool is_there = *zoff_model_params_flag(t->model, piece) & ZOFF_SLICE_READY;
    const unsigned summed = t->values->sums_ranks ? t->plan->ranks : 1;
    (void)parts;
    (void)weights;
    (void)at;
    t->ranks.reduced_weight = (float)(zoff_zero_reduce_total_weight(t->ranks.reduce) / summed);
    out->dtype = is_there ? p->grad_dtype : ZOFF_F32;
    out->grad = is_there ? t->route.place->gradient(t, piece) : out->sum;
    out->sources = 1;
    out->weights = is_there ? &t->ranks.reduced_weight : &NOTHING;
}

/* No other rank has contributed. */
static void reduced_blame(zoff_transfer *t, size_t bucket, const char *parts, const float *weights)
{
    (void)bucket;
    (void)parts;
    (void)weights;
    t->measure.vote.rank_is_known = true;
}

const zoff_sum_terms zoff_transfer_sum_rules_of_all = {
    .name = "all ranks", .travels = true, .list = travels_list, .blame = travels_blame};
const zoff_sum_terms zoff_transfer_sum_rules_of_one = {
    .name = "reduced", .stays = true, .list = reduced_list, .blame = reduced_blame};
const zoff_sum_terms zoff_transfer_sum_rules_of_none = {.name = "none"};
