/* all_gather.c: from the owner to all ranks. Where states are sharded these are the weights that it has updated, of those that
 * every rank has whole: the caller's, and small ones of the engine. Where states are replicated nobody needs another's weights,
 * but everybody the sums of gradients that another has made: they go from accumulator to accumulator. */
#include "engine_priv.h"

#include "bits.h"
#include "clock.h"
#include "try.h"

static char *whole_weights(const zoff_engine *e, const zoff_plan_piece *piece)
{
    return e->model.params[piece->param].engine_owned ? zoff_lending_param_cache_persistent(&e->lending, piece)
                                                      : e->link->weights(e, piece, NULL);
}

static size_t align_of(const zoff_engine *e, const zoff_plan_piece *piece)
{
    return zoff_adam_dtype_bytes(e->model.params[piece->param].dtype);
}

size_t zoff_engine_all_gather_place(const zoff_engine *e, const zoff_plan_piece *piece, size_t *at)
{
    const size_t start = zoff_base_bits_align(*at, align_of(e, piece));
    *at = start + piece->count * align_of(e, piece);
    return start;
}

/* A part on the wire is its pieces, each aligned to its element. */
static size_t weight_bytes(const zoff_engine *e, zoff_plan_cursor part, bool all)
{
    zoff_plan_piece piece;
    size_t at = 0;
    while (zoff_zero_plan_next(&part, &piece)) {
        if (zoff_engine_wire_takes(e, &piece, all))
            (void)zoff_engine_all_gather_place(e, &piece, &at);
    }
    return zoff_base_bits_align(at, e->widest_weight); /* what follows may be wider */
}

/* Of the accumulator, with padding. */
static size_t sum_bytes(const zoff_engine *e, zoff_plan_cursor part)
{
    zoff_plan_piece piece;
    size_t elements = 0;
    while (zoff_zero_plan_next(&part, &piece))
        elements += e->model.params[piece.param].frozen ? 0 : zoff_base_bits_align(piece.count, ZOFF_PLAN_PAD);
    return elements * sizeof(float);
}

size_t zoff_engine_all_gather_part_bytes(void *ctx, size_t bucket, unsigned rank)
{
    const zoff_engine *e = ctx;
    const zoff_plan_cursor part = zoff_zero_plan_part(&e->plan, bucket, rank);
    return e->plan.replicated ? sum_bytes(e, part) : weight_bytes(e, part, e->ranks.spreads_all);
}

zoff_comm_item zoff_engine_all_gather_about(void *ctx, size_t bucket)
{
    const zoff_engine *e = ctx;
    return (zoff_comm_item){.about = e->plan.replicated ? ZOFF_COMM_ABOUT_SUMS : ZOFF_COMM_ABOUT_WEIGHTS, .index = bucket};
}

size_t zoff_engine_all_gather_most(const zoff_engine *e, const zoff_plan *plan)
{
    size_t most = 0;
    for (size_t b = 0; b < plan->chunk_count && !plan->replicated; b++) {
        const zoff_plan_chunk *c = &plan->chunks[b];
        size_t bytes = plan->ranks * sizeof(float); /* to align the pieces that parts cut */
        for (size_t i = c->first_run; i < c->first_run + c->run_count; i++) {
            const zoff_model_param *p = &e->model.params[plan->runs[i].param];
            bytes += p->frozen ? 0 : plan->runs[i].count * zoff_adam_dtype_bytes(p->dtype) + sizeof(float);
        }
        most = zoff_base_bits_max(most, bytes);
    }
    return zoff_base_bits_align(most, 64);
}

/* Weights between where they are whole and the wire, of one rank's part. */
static size_t move_part(zoff_engine *e, zoff_plan_cursor part, char *wire, bool from_wire, size_t used)
{
    zoff_plan_piece piece;
    size_t at = 0;
    while (zoff_zero_plan_next(&part, &piece)) {
        const zoff_dtype dtype = e->model.params[piece.param].dtype;
        if (!zoff_engine_wire_takes(e, &piece, e->ranks.spreads_all))
            continue;
        char *whole = whole_weights(e, &piece), *place = wire + zoff_engine_all_gather_place(e, &piece, &at);
        e->ranks.moves[used++] = (zoff_cast_piece){.count = piece.count,
                                                   .dst = from_wire ? whole : place,
                                                   .src = from_wire ? place : whole,
                                                   .dst_dtype = dtype,
                                                   .src_dtype = dtype};
    }
    return used;
}

zoff_status zoff_engine_all_gather_begin(void *ctx, size_t bucket, unsigned slot, char **out)
{
    zoff_engine *e = ctx;
    if (e->plan.replicated) {
        const zoff_plan_piece *first = &e->plan.pieces[e->plan.chunks[bucket].first_piece];
        *out = (char *)(zoff_engine_device_tier_has(e, bucket) ? zoff_engine_pieces_kept_sum(e, first)
                                                               : zoff_engine_pieces_sum(e, first));
        return ZOFF_OK;
    }
    char *parts = (char *)e->ranks.staging.base + slot * e->ranks.spread_bytes, *own = parts;
    for (unsigned rank = 0; rank < e->plan.rank; rank++)
        own += zoff_engine_all_gather_part_bytes(e, bucket, rank);
    const size_t used = move_part(e, zoff_zero_plan_part(&e->plan, bucket, e->plan.rank), own, false, 0);
    zoff_adam_cast_run(zoff_engine_progress_thread_threads(e), e->ranks.moves, used);
    *out = parts;
    return ZOFF_OK;
}

zoff_status zoff_engine_all_gather_end(void *ctx, size_t bucket, unsigned slot, const char *parts)
{
    zoff_engine *e = ctx;
    (void)slot;
    e->runs[bucket].shared = true;
    if (e->plan.replicated || !parts)
        return ZOFF_OK;
    char *wire = (char *)(uintptr_t)parts;
    size_t used = 0;
    for (unsigned rank = 0; rank < e->plan.ranks; rank++) {
        if (rank != e->plan.rank)
            used = move_part(e, zoff_zero_plan_part(&e->plan, bucket, rank), wire, true, used);
        wire += zoff_engine_all_gather_part_bytes(e, bucket, rank);
    }
    zoff_adam_cast_run(zoff_engine_progress_thread_threads(e), e->ranks.moves, used);
    (void)zoff_engine_device_upload(e, bucket, false); /* what fails is done, and told, by the end of the step */
    e->run.updated++;                                  /* also where nothing of it is this rank's */
    return ZOFF_OK;
}

/* All ranks start buckets in the order of their walk. What stays on the devices goes last: the CPU does not wait for it. */
static zoff_status start(zoff_engine *e, size_t bucket)
{
    if (zoff_engine_walk_position(e, bucket) != e->run.spread)
        return ZOFF_PENDING;
    zoff_status status = zoff_zero_gather_start(e->ranks.gather, bucket);
    if (status == ZOFF_OK)
        e->run.spread++;
    return status;
}

zoff_status zoff_engine_all_gather_sums(zoff_bucket_run *run)
{
    zoff_engine *e = run->engine;
    if (run->shared)
        return ZOFF_OK;
    if (zoff_engine_walk_position(e, run->chunk) >= e->run.spread) {
        zoff_status status = start(e, run->chunk);
        if (status < 0)
            return status;
    }
    zoff_status status = zoff_zero_gather_poll(e->ranks.gather);
    return status < 0 ? status : run->shared ? ZOFF_OK : ZOFF_PENDING;
}

zoff_status zoff_engine_all_gather_weights(zoff_bucket_run *run)
{
    zoff_engine *e = run->engine;
    ZOFF_TRY(zoff_zero_gather_poll(e->ranks.gather));
    return start(e, run->chunk);
}

static zoff_status poll(void *ctx)
{
    const zoff_engine *e = ctx;
    return zoff_zero_gather_poll(e->ranks.gather);
}

zoff_status zoff_engine_all_gather_finish(zoff_engine *e)
{
    return zoff_engine_ranks_wait_until(e, poll, e);
}

typedef struct start_wait {
    zoff_engine *engine;
    size_t bucket;
} start_wait;

static zoff_status try_to_start(void *ctx)
{
    const start_wait *w = ctx;
    const zoff_status status = zoff_zero_gather_start(w->engine->ranks.gather, w->bucket);
    if (status == ZOFF_PENDING)
        ZOFF_TRY(poll(w->engine)); /* others leave their slots */
    return status;
}

static zoff_status start_all(zoff_engine *e)
{
    for (size_t b = 0; b < e->plan.chunk_count; b++) {
        ZOFF_TRY(e->link->lend(e, b, true));
        ZOFF_TRY(zoff_engine_ranks_wait_until(e, try_to_start, &(start_wait){e, b}));
    }
    ZOFF_TRY(zoff_engine_all_gather_finish(e));
    return e->link->settle(e);
}

zoff_status zoff_engine_all_gather_all(zoff_engine *e)
{
    if (!e->ranks.gather || e->plan.replicated)
        return ZOFF_OK;
    e->ranks.spreads_all = true;
    zoff_status status = start_all(e);
    e->ranks.spreads_all = false;
    return status;
}
