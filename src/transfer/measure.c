/* SPDX-License-Identifier: Apache-2.0 */
/* measure.c: sums of squares of gradients, for the gradient norm, and checksums of gradients that are declared
 * equal. */
#include "transfer.h"

#include "bits.h"
#include "clock.h"
#include "try.h"

#include <math.h>
#include <string.h>

/* ---- gradients that are declared equal ---- */

zoff_status zoff_transfer_measure_open(zoff_transfer *t)
{
    bool is_declared = false;
    for (size_t i = 0; i < t->model->param_count; i++)
        is_declared = is_declared || t->model->params[i].norm_replicated || t->model->params[i].reduced;
    if (!is_declared)
        return ZOFF_OK;
    return zoff_base_mem_alloc(t->model->param_count, sizeof *t->measure.alike, "checksums of gradients", &t->measure.alike);
}

void zoff_transfer_measure_close(zoff_transfer *t)
{
    zoff_base_mem_free(t->measure.alike);
    t->measure.alike = NULL;
}

/* `batch`: the micro-batch of a copy, because copies that are equal but come in another one are summed with another weight. */
static uint64_t checksum_of(size_t slice, size_t block, uint64_t batch, uint64_t content)
{
    const uint64_t words[] = {slice, block, batch, content};
    return zoff_offload_layout(words, sizeof words);
}

void zoff_transfer_measure_begin_copies(zoff_transfer *t)
{
    for (size_t i = 0; t->measure.alike && i < t->model->param_count; i++)
        t->measure.alike[i].copies = 0;
}

static void add_copy(zoff_transfer *t, const zoff_plan_piece *run)
{
    enum { BLOCKS_MOST = 16 };
    const zoff_model_param *p = &t->model->params[run->param];
    const size_t element = zoff_adam_dtype_bytes(p->grad_dtype);
    const size_t blocks = zoff_base_bits_ceil_div(p->count, ZOFF_NORM_BLOCK);
    const size_t stride = zoff_base_bits_ceil_div(blocks, BLOCKS_MOST);
    const uint64_t batch = zoff_zero_reduce_batches(t->ranks.reduce);
    const char *grad = t->route.link->gradient(t, run);
    for (size_t first = 0; first < run->count; first += ZOFF_NORM_BLOCK) {
        const size_t block = (run->first + first) / ZOFF_NORM_BLOCK;
        const size_t bytes = zoff_base_bits_min(run->count - first, ZOFF_NORM_BLOCK) * element;
        if ((block + batch / t->values->accumulation) % stride == 0)
            t->measure.alike[run->param].copies +=
                checksum_of(run->slice, block, batch, zoff_offload_layout(grad + first * element, bytes));
    }
}

void zoff_transfer_measure_add_copies(zoff_transfer *t, size_t bucket)
{
    const zoff_plan_chunk *c = &t->plan->chunks[bucket];
    if (zoff_base_exact_value(zoff_zero_reduce_total_weight(t->ranks.reduce)) == 0)
        return; /* all weights are 0, so the micro-batch does not count */
    for (size_t i = c->first_run; t->measure.alike && i < c->first_run + c->run_count; i++) {
        const zoff_plan_piece *run = &t->plan->runs[i];
        const zoff_model_param *p = &t->model->params[run->param];
        if (p->reduced && !p->frozen && *zoff_model_params_flag(t->model, run) & ZOFF_SLICE_READY)
            add_copy(t, run);
    }
}

/* ---- sums of squares ---- */

void zoff_transfer_measure_begin(zoff_transfer *t)
{
    t->measure.vote = (zoff_vote){.rank = zoff_comm_rank(t->comm)};
    t->measure.buckets = 0;
    for (size_t i = 0; t->measure.alike && i < t->model->param_count; i++)
        t->measure.alike[i].replicas = 0;
}

/* Compare sums of squares instead of gradients, because engines of different parts may have them in different types, or on a
 * device. */
static void add_replica(zoff_transfer *t, const zoff_plan_piece *piece, const double *block_sums)
{
    for (size_t first = 0; first < piece->count; first += ZOFF_NORM_BLOCK, block_sums++) {
        uint64_t bits;
        memcpy(&bits, block_sums, sizeof bits);
        t->measure.alike[piece->param].replicas += checksum_of(piece->slice, (piece->first + first) / ZOFF_NORM_BLOCK, 0, bits);
    }
}

bool zoff_transfer_measure_is_before(const zoff_vote *a, const zoff_vote *b)
{
    if (a->param != b->param)
        return a->param < b->param;
    return a->slice != b->slice ? a->slice < b->slice : a->first < b->first;
}

static void join_range(uint64_t into[2], const uint64_t other[2])
{
    into[0] = zoff_base_bits_min(into[0], other[0]);
    into[1] = zoff_base_bits_max(into[1], other[1]);
}

/* On the same block, a vote that knows whose gradient it is comes first. */
static bool is_better(const zoff_vote *a, const zoff_vote *b)
{
    if (zoff_transfer_measure_is_before(a, b) || zoff_transfer_measure_is_before(b, a))
        return zoff_transfer_measure_is_before(a, b);
    return a->rank_is_known != b->rank_is_known ? a->rank_is_known : a->rank < b->rank;
}

void zoff_transfer_measure_join(void *into, const void *other, size_t bytes)
{
    zoff_vote *v = into;
    const zoff_vote *o = other;
    zoff_base_exact_join(&v->squares, &o->squares);
    if (o->poisoned && (!v->poisoned || is_better(o, v))) {
        v->poisoned = true;
        v->rank_is_known = o->rank_is_known;
        v->rank = o->rank;
        v->param = o->param;
        v->slice = o->slice;
        v->first = o->first;
    }
    v->stop_requested |= o->stop_requested;
    v->failed = o->failed < v->failed ? o->failed : v->failed;
    join_range(v->inputs, o->inputs);
    join_range(v->copies, o->copies);
    v->replicas += o->replicas;
    const uint32_t least = v->order.heard[0] < o->order.heard[0] ? v->order.heard[0] : o->order.heard[0];
    const uint32_t most = v->order.heard[1] > o->order.heard[1] ? v->order.heard[1] : o->order.heard[1];
    if (o->order.first != UINT32_MAX)
        v->order = o->order;
    v->order.heard[0] = least;
    v->order.heard[1] = most;
}

/* The culprit is the first one in the list of parameters, in whichever order gradients are measured. */
static void note_culprit(zoff_transfer *t, const zoff_plan_piece *piece, size_t first)
{
    zoff_vote *own = &t->measure.vote;
    const zoff_vote found = {.param = piece->param, .slice = piece->slice, .first = first};
    if (own->poisoned && !zoff_transfer_measure_is_before(&found, own))
        return;
    own->poisoned = true;
    own->rank_is_known = false;
    own->rank = zoff_comm_rank(t->comm);
    own->param = found.param;
    own->slice = found.slice;
    own->first = found.first;
}

void zoff_transfer_measure_blame(zoff_transfer *t, const zoff_plan_piece *piece, size_t first, unsigned rank)
{
    zoff_vote *own = &t->measure.vote;
    note_culprit(t, piece, first);
    if (own->param == piece->param && own->slice == piece->slice && own->first == first && !own->rank_is_known) {
        own->rank_is_known = true;
        own->rank = rank;
    }
}

/* Block sums are added exactly, so the result depends neither on the partition of the list nor on which rank adds what. */
void zoff_transfer_measure_add(zoff_transfer *t, const zoff_plan_piece *piece, const double *block_sums)
{
    zoff_vote *own = &t->measure.vote;
    if (t->model->params[piece->param].norm_replicated && t->measure.alike[piece->param].factor)
        add_replica(t, piece, block_sums);
    const bool counts = !t->model->params[piece->param].counts_elsewhere;
    for (size_t first = 0; first < piece->count; first += ZOFF_NORM_BLOCK, block_sums++) {
        if (isfinite(*block_sums))
            zoff_base_exact_add(&own->squares, counts ? *block_sums : 0);
        else
            note_culprit(t, piece, piece->first + first);
    }
}

void zoff_transfer_measure_bucket(zoff_transfer *t, size_t bucket, void (*between)(void *ctx), void *ctx, uint64_t *read_bytes)
{
    const zoff_plan_span part = zoff_zero_plan_own(t->plan, bucket);
    const zoff_plan_piece *pieces = &t->plan->pieces[part.first_piece];
    const zoff_transfer_threads *threads = &t->threads;
    size_t used = 0, blocks = 0;
    for (size_t i = 0; i < part.piece_count; i++) {
        if (!zoff_transfer_ranks_measure(t, &pieces[i]))
            continue;
        zoff_norm_piece *n = &t->scratch.norm_pieces[used];
        *n = (zoff_norm_piece){.count = pieces[i].count, .block_sums = t->scratch.block_sums + blocks};
        t->scratch.norm_index[used++] = i;
        blocks += zoff_base_bits_ceil_div(n->count, ZOFF_NORM_BLOCK);
        n->grad = zoff_transfer_pieces_gradient(t, &pieces[i], false, &n->dtype);
        *read_bytes += n->count * zoff_adam_dtype_bytes(n->dtype);
    }
    zoff_adam_norm_run(threads->measure && threads->measure < threads->now ? threads->measure : threads->now,
                       t->scratch.norm_pieces, used, between, ctx);
    for (size_t i = 0; i < used; i++)
        zoff_transfer_measure_add(t, &pieces[t->scratch.norm_index[i]], t->scratch.norm_pieces[i].block_sums);
    t->measure.buckets++;
}

void zoff_transfer_measure_early(zoff_transfer *t, size_t bucket)
{
    const double from = zoff_base_clock_seconds();
    zoff_transfer_measure_bucket(t, bucket, NULL, NULL, &t->batch.early.read_bytes);
    t->batch.early.measure_seconds += zoff_base_clock_seconds() - from;
}
