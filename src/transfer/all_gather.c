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

size_t zoff_transfer_all_gather_part_bytes(void *ctx, size_t bucket, unsigned rank)
{
    const zoff_transfer *t = ctx;
    return weight_bytes(t, zoff_zero_plan_part(t->plan, bucket, rank), t->ranks.spreads_all);
}

static zoff_comm_item about_weights(void *ctx, size_t bucket)
{
    (void)ctx;
    return (zoff_comm_item){.about = ZOFF_COMM_ABOUT_WEIGHTS, .index = bucket};
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

void zoff_transfer_all_gather_of_weights(const zoff_transfer *t, zoff_gather_opts *opts)
{
    opts->about = about_weights;
    opts->part_bytes = zoff_transfer_all_gather_part_bytes;
    opts->begin = t->route.wire->gather_begin;
    opts->end = t->route.wire->gather_end;
}

/* ---- sums of gradients ---- */

static size_t sums_part_bytes(void *ctx, size_t bucket, unsigned rank)
{
    const zoff_transfer *t = ctx;
    return sum_bytes(t, zoff_zero_plan_part(t->plan, bucket, rank));
}

static zoff_comm_item about_sums(void *ctx, size_t bucket)
{
    (void)ctx;
    return (zoff_comm_item){.about = ZOFF_COMM_ABOUT_SUMS, .index = bucket};
}

/* Sums are gathered in place, where they are used. */
static zoff_status begin_sums(void *ctx, size_t bucket, unsigned slot, char **out)
{
    const zoff_transfer *t = ctx;
    (void)slot;
    const zoff_plan_piece *first = &t->plan->pieces[t->plan->chunks[bucket].first_piece];
    const bool is_there = zoff_transfer_place_of(t, bucket) == ZOFF_USED_BY_DEVICE;
    *out = (char *)(is_there ? t->accumulator.there + first->owned_offset : zoff_transfer_pieces_sum(t, first));
    return ZOFF_OK;
}

static zoff_status end_sums(void *ctx, size_t bucket, unsigned slot, const char *parts)
{
    zoff_transfer *t = ctx;
    (void)slot;
    (void)parts;
    t->walk.runs[bucket].shared = true;
    return ZOFF_OK;
}

void zoff_transfer_all_gather_of_sums(const zoff_transfer *t, zoff_gather_opts *opts)
{
    (void)t;
    opts->about = about_sums;
    opts->part_bytes = sums_part_bytes;
    opts->begin = begin_sums;
    opts->end = end_sums;
}

/* ---- rows ---- */

/* Start a bucket. All ranks start buckets in the order of their walk. Buckets of the devices go last, because the CPU does not
 * wait for them. */
static zoff_status start(zoff_transfer *t, size_t bucket)
{
    if (zoff_transfer_walk_position(t, bucket) != t->batch.spread)
        return ZOFF_PENDING;
    zoff_status status = zoff_zero_gather_start(t->ranks.gather, bucket);
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
    zoff_status status = zoff_zero_gather_poll(t->ranks.gather);
    return status < 0 ? status : run->shared ? ZOFF_OK : ZOFF_PENDING;
}

zoff_status zoff_transfer_all_gather_weights(void *ctx, zoff_bucket_run *run)
{
    zoff_transfer *t = ctx;
    ZOFF_TRY(zoff_zero_gather_poll(t->ranks.gather));
    return start(t, run->chunk);
}

zoff_status zoff_transfer_all_gather_poll(const zoff_transfer *t)
{
    return t->ranks.gather ? zoff_zero_gather_poll(t->ranks.gather) : ZOFF_OK;
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
    const zoff_status status = zoff_zero_gather_start(w->transfer->ranks.gather, w->bucket);
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
