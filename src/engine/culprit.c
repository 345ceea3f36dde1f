/* culprit.c: whose gradient it is that made a sum over ranks not finite. */
#include "engine_priv.h"

#include "bits.h"

#include <math.h>

/* Whether a piece's gradient of one rank is finite around an element. */
static bool is_finite_at(zoff_engine *e, const zoff_plan_piece *piece, const char *wire, size_t first)
{
    const zoff_dtype dtype = e->sums.rule->dtype(e, &e->model.params[piece->param]);
    const size_t from = first - piece->first;
    double sum;
    const size_t count = zoff_base_bits_min(piece->count - from, ZOFF_NORM_BLOCK);
    float copy[ZOFF_NORM_BLOCK];
    const void *grad = e->sums.place->look(e, wire + from * zoff_adam_dtype_bytes(dtype), count, dtype, copy);
    if (!grad)
        return true; /* then it is not known whose it was */
    const zoff_norm_piece block = {.count = count, .grad = grad, .dtype = dtype, .block_sums = &sum};
    zoff_adam_norm_run(1, &block, 1, NULL, NULL);
    return isfinite(sum);
}

void zoff_engine_culprit_find(zoff_engine *e, size_t bucket, const char *parts, const float *weights)
{
    zoff_vote *vote = &e->own_vote;
    const size_t part_bytes = zoff_engine_wire_parts(e, bucket)[e->plan.rank];
    const zoff_plan_span part = zoff_zero_plan_own(&e->plan, bucket);
    size_t at = 0;
    for (size_t i = 0; i < part.piece_count; i++) {
        const zoff_plan_piece *piece = &e->plan.pieces[part.first_piece + i];
        const zoff_model_param *p = &e->model.params[piece->param];
        if (p->frozen)
            continue;
        const size_t start = zoff_engine_wire_place(&at, piece->count, zoff_adam_dtype_bytes(e->sums.rule->dtype(e, p)));
        const bool is_it = piece->param == vote->param && piece->slice == vote->slice && vote->first >= piece->first &&
                           vote->first - piece->first < piece->count;
        for (unsigned rank = 0; is_it && rank < e->plan.ranks && !vote->rank_is_known; rank++) {
            vote->rank_is_known = weights[rank] != 0 && !is_finite_at(e, piece, parts + rank * part_bytes + start, vote->first);
            vote->rank = vote->rank_is_known ? rank : vote->rank;
        }
    }
}
