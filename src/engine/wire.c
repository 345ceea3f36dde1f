/* wire.c: what goes over the wire between ranks: which elements, in which type, and where in the part of a rank. */
#include "engine_priv.h"

#include "bits.h"

/* Where a piece goes in its part; `at` is where the one before it has ended. */
size_t zoff_engine_wire_place(size_t *at, size_t count, size_t element_bytes)
{
    const size_t start = zoff_base_bits_align(*at, element_bytes);
    *at = start + count * element_bytes;
    return start;
}

void zoff_engine_wire_measure(zoff_engine *e)
{
    e->widest_weight = e->widest_gradient = 0;
    for (size_t i = 0; i < e->model.param_count; i++) {
        const zoff_model_param *p = &e->model.params[i];
        const size_t gradient = p->frozen ? 0 : zoff_adam_dtype_bytes(e->sums.rule->dtype(e, p));
        e->widest_weight = zoff_base_bits_max(e->widest_weight, zoff_adam_dtype_bytes(p->dtype));
        e->widest_gradient = zoff_base_bits_max(e->widest_gradient, gradient);
    }
}

size_t zoff_engine_wire_part_bytes(const zoff_engine *e, const zoff_plan *plan, size_t bucket, unsigned rank)
{
    zoff_plan_cursor part = zoff_zero_plan_part(plan, bucket, rank);
    zoff_plan_piece piece;
    size_t at = 0;
    while (zoff_zero_plan_next(&part, &piece)) {
        const zoff_model_param *p = &e->model.params[piece.param];
        if (p->frozen)
            continue;
        (void)zoff_engine_wire_place(&at, piece.count, zoff_adam_dtype_bytes(e->sums.rule->dtype(e, p)));
    }
    return zoff_base_bits_align(at, e->sums.rule->align(e));
}

size_t zoff_engine_wire_bucket_most(const zoff_engine *e, const zoff_plan *plan, size_t bucket)
{
    const zoff_plan_chunk *c = &plan->chunks[bucket];
    size_t bytes = 0, gaps = 0;
    for (size_t i = c->first_run; i < c->first_run + c->run_count; i++) {
        const zoff_model_param *p = &e->model.params[plan->runs[i].param];
        if (p->frozen)
            continue;
        const size_t element = zoff_adam_dtype_bytes(e->sums.rule->dtype(e, p));
        bytes += plan->runs[i].count * element;
        gaps += element < e->widest_gradient; /* what comes next may be aligned to more */
    }
    return bytes + (gaps ? gaps + plan->ranks : 0) * e->widest_gradient;
}

static void lay_parts(const zoff_engine *e, size_t bucket, size_t *bytes)
{
    for (unsigned rank = 0; rank < e->plan.ranks; rank++)
        bytes[rank] = zoff_engine_wire_part_bytes(e, &e->plan, bucket, rank);
    e->sums.rule->level(bytes, e->plan.ranks);
}

const size_t *zoff_engine_wire_parts(const zoff_engine *e, size_t bucket)
{
    const zoff_ranks *r = &e->ranks;
    size_t *bytes = r->part_bytes + bucket % ZOFF_PART_ROWS * e->plan.ranks;
    size_t *whose = &r->part_rows[bucket % ZOFF_PART_ROWS];
    if (*whose != bucket)
        lay_parts(e, bucket, bytes);
    *whose = bucket;
    return bytes;
}

/* The same of all weights, outside of a step. */
bool zoff_engine_wire_takes(const zoff_engine *e, const zoff_plan_piece *piece, bool all)
{
    const zoff_model_param *p = &e->model.params[piece->param];
    const uint8_t flag = e->model.flags[p->first_flag + piece->slice];
    const bool is_whole = !p->engine_owned || zoff_lending_param_cache_is_persistent(&e->lending, piece->param, piece->slice);
    return is_whole && (all || (flag && !p->frozen));
}

bool zoff_engine_wire_takes_now(const zoff_engine *e, const zoff_plan_piece *piece)
{
    return zoff_engine_wire_takes(e, piece, e->ranks.spreads_all);
}
