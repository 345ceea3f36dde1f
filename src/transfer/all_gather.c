/* SPDX-License-Identifier: Apache-2.0 */
/* all_gather.c: sends data from its owner to all ranks. With partitioned states, each owner sends its updated weights, if every
 * rank has the whole of them: the caller's weights, and small engine-owned ones. With replicated states no rank needs weights
 * from another; the owners send sums of gradients, from accumulator to accumulator. */
#include "transfer.h"

#include "bits.h"
#include "clock.h"
#include "try.h"

static size_t align_of(const zoff_transfer *t, const zoff_plan_piece *piece)
{
    return zoff_adam_dtype_bytes(t->model->params[piece->param].dtype);
}

size_t zoff_transfer_all_gather_place(const zoff_transfer *t, const zoff_plan_piece *piece, size_t *at)
{
    const size_t start = zoff_base_bits_align(*at, align_of(t, piece));
    *at = start + piece->count * align_of(t, piece);
    return start;
}

/* Bytes of a part on the wire: its pieces, each aligned to its element. */
static size_t weight_bytes(const zoff_transfer *t, zoff_plan_cursor part, bool all)
{
    zoff_plan_piece piece;
    size_t at = 0;
    while (zoff_zero_plan_next(&part, &piece)) {
        if (zoff_transfer_wire_takes(t, &piece, all))
            (void)zoff_transfer_all_gather_place(t, &piece, &at);
    }
    return zoff_base_bits_align(at, t->ranks.widest_weight); /* the next part may have wider elements */
}

/* Bytes of a part of the accumulator, with padding. */
static size_t sum_bytes(const zoff_transfer *t, zoff_plan_cursor part)
{
    zoff_plan_piece piece;
    size_t elements = 0;
    while (zoff_zero_plan_next(&part, &piece))
        elements += t->model->params[piece.param].frozen ? 0 : zoff_base_bits_align(piece.count, ZOFF_PLAN_PAD);
    return elements * sizeof(float);
}

size_t zoff_transfer_all_gather_part_bytes(const zoff_transfer *t, size_t bucket, unsigned rank)
{
    return weight_bytes(t, zoff_zero_plan_part(t->plan, bucket, rank), t->ranks.spreads_all);
}

size_t zoff_transfer_all_gather_most(const zoff_transfer *t, const zoff_plan *plan)
{
    size_t most = 0;
    for (size_t b = 0; b < plan->chunk_count; b++) {
        const zoff_plan_chunk *c = &plan->chunks[b];
        size_t bytes = plan->ranks * sizeof(float); /* room for the alignment of pieces that a part boundary cuts */
        for (size_t i = c->first_run; i < c->first_run + c->run_count; i++) {
            const zoff_model_param *p = &t->model->params[plan->runs[i].param];
            /* A push also sends frozen weights: small ones of the engine, which every rank has whole. */
            bytes += plan->runs[i].count * zoff_adam_dtype_bytes(p->dtype) + sizeof(float);
        }
        most = zoff_base_bits_max(most, bytes);
    }
    return zoff_base_bits_align(most, 64);
}

/* ---- a bucket on its way: its weights, or, with replicated states, its sums of gradients ---- */

void zoff_transfer_all_gather_size_up(const zoff_transfer *t, size_t bucket, size_t *bytes)
{
    const bool is_weights = zoff_transfer_ranks_have_parts(t);
    for (unsigned position = 0; position < t->plan->ranks; position++) {
        const unsigned rank = zoff_comm_grid_rank(&t->ranks.levels.weights, position);
        bytes[position] = is_weights ? zoff_transfer_all_gather_part_bytes(t, bucket, rank)
                                     : sum_bytes(t, zoff_zero_plan_part(t->plan, bucket, rank));
    }
}

static void describe(const zoff_transfer *t, size_t bucket, zoff_gather_slot *s)
{
    const bool is_weights = zoff_transfer_ranks_have_parts(t);
    s->item = bucket;
    s->about = (zoff_comm_item){.about = is_weights ? ZOFF_COMM_ABOUT_WEIGHTS : ZOFF_COMM_ABOUT_SUMS, .index = bucket};
    zoff_transfer_all_gather_size_up(t, bucket, s->bytes);
}

/* Sums are gathered in place, where they are used. */
static char *place_of_sums(const zoff_transfer *t, size_t bucket)
{
    const zoff_plan_piece *first = &t->plan->pieces[t->plan->chunks[bucket].first_piece];
    const bool is_there = zoff_transfer_place_of(t, bucket) == ZOFF_USED_BY_DEVICE;
    return (char *)(is_there ? t->accumulator.there + first->owned_offset : zoff_transfer_pieces_sum(t, first));
}

/* Put this rank's part in place, and send it. */
static zoff_status send_own(zoff_transfer *t, zoff_gather_slot *s)
{
    zoff_status status = ZOFF_OK;
    if (zoff_transfer_ranks_have_parts(t))
        status = t->route.wire->gather_begin(t, s->item, s->number, &s->parts);
    else
        s->parts = place_of_sums(t, s->item);
    return status == ZOFF_OK ? zoff_zero_gather_send(t->ranks.gather, s) : status;
}

/* The parts of all ranks have come, or none has any. */
static zoff_status end(zoff_transfer *t, zoff_gather_slot *s)
{
    zoff_status status = ZOFF_OK;
    if (zoff_transfer_ranks_have_parts(t))
        status = t->route.wire->gather_end(t, s->item, s->number, s->is_used ? s->parts : NULL);
    else
        t->walk.runs[s->item].shared = true;
    if (status == ZOFF_OK)
        zoff_zero_gather_end(s);
    return status;
}

/* An error of this rank's part comes from the poll, which repeats it.  @return PENDING: no slot is free */
static zoff_status start_bucket(zoff_transfer *t, size_t bucket)
{
    zoff_gather_slot *s = zoff_zero_gather_free(t->ranks.gather);
    if (!s)
        return ZOFF_PENDING;
    describe(t, bucket, s);
    if (!zoff_zero_gather_take(t->ranks.gather, s))
        return end(t, s);
    (void)send_own(t, s);
    return ZOFF_OK;
}

zoff_status zoff_transfer_all_gather_poll(zoff_transfer *t)
{
    bool is_pending = false;
    for (zoff_gather_slot *s = NULL; t->ranks.gather && (s = zoff_zero_gather_next(t->ranks.gather, s));) {
        zoff_status status = s->is_sent ? ZOFF_OK : send_own(t, s);
        status = status == ZOFF_OK ? zoff_zero_gather_poll(t->ranks.gather, s) : status;
        status = status == ZOFF_OK ? end(t, s) : status;
        ZOFF_TRY(status);
        is_pending = is_pending || status == ZOFF_PENDING;
    }
    return is_pending ? ZOFF_PENDING : ZOFF_OK;
}

/* ---- rows ---- */

/* Start a bucket. All ranks start buckets in the order of their walk. Buckets of the devices go last, because the CPU does not
 * wait for them. */
static zoff_status start(zoff_transfer *t, size_t bucket)
{
    if (zoff_transfer_walk_position(t, bucket) != t->batch.spread)
        return ZOFF_PENDING;
    zoff_status status = start_bucket(t, bucket);
    if (status == ZOFF_OK)
        t->batch.spread++;
    return status;
}

zoff_status zoff_transfer_all_gather_sums(void *ctx, zoff_bucket_run *run)
{
    zoff_transfer *t = ctx;
    if (run->shared)
        return ZOFF_OK;
    if (zoff_transfer_walk_position(t, run->chunk) >= t->batch.spread) {
        zoff_status status = start(t, run->chunk);
        if (status < 0)
            return status;
    }
    zoff_status status = zoff_transfer_all_gather_poll(t);
    return status < 0 ? status : run->shared ? ZOFF_OK : ZOFF_PENDING;
}

zoff_status zoff_transfer_all_gather_weights(void *ctx, zoff_bucket_run *run)
{
    zoff_transfer *t = ctx;
    ZOFF_TRY(zoff_transfer_all_gather_poll(t));
    return start(t, run->chunk);
}

static zoff_status poll(void *ctx)
{
    return zoff_transfer_all_gather_poll(ctx);
}

zoff_status zoff_transfer_all_gather_finish(zoff_transfer *t)
{
    if (!t->ranks.gather)
        return ZOFF_OK;
    return zoff_transfer_wire_wait_until(t, poll, t);
}

typedef struct start_wait {
    zoff_transfer *transfer;
    size_t bucket;
} start_wait;

static zoff_status try_to_start(void *ctx)
{
    const start_wait *w = ctx;
    const zoff_status status = start_bucket(w->transfer, w->bucket);
    if (status == ZOFF_PENDING)
        ZOFF_TRY(poll(w->transfer)); /* others release their slots */
    return status;
}

/* After an error of this rank's device the call is repeated, while other ranks wait in theirs, so it goes on where it was. */
static zoff_status start_all(zoff_transfer *t)
{
    for (size_t *b = &t->ranks.spread_next; *b < t->plan->chunk_count; (*b)++) {
        ZOFF_TRY(ZOFF_LINK(t, lend, (t, *b, true)));
        ZOFF_TRY(zoff_transfer_wire_wait_until(t, try_to_start, &(start_wait){t, *b}));
    }
    ZOFF_TRY(zoff_transfer_all_gather_finish(t));
    ZOFF_TRY(ZOFF_LINK(t, settle, (t)));
    t->ranks.spread_next = 0;
    return ZOFF_OK;
}

zoff_status zoff_transfer_all_gather_all(zoff_transfer *t)
{
    if (!zoff_transfer_ranks_have_parts(t))
        return ZOFF_OK;
    t->ranks.spreads_all = true;
    const zoff_status status = start_all(t);
    if (status < 0) { /* let nothing stay in flight, because the next call may use the staging slots, and writes the weights */
        zoff_saved_error saved;
        zoff_base_status_save(&saved);
        (void)zoff_transfer_all_gather_finish(t);
        if (!t->pollers.device.is_overdue)
            (void)zoff_transfer_staging_wait_all(t);
        zoff_base_status_restore(&saved);
    }
    t->ranks.spreads_all = false;
    return status;
}
