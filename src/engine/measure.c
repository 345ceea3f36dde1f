/* measure.c: sums of squares of gradients, for the norm of the gate; and what the time of a step was spent on. */
#include "engine_priv.h"

#include "bits.h"
#include "clock.h"

/* Kernels call it between two pieces. */
static void between(void *ctx)
{
    zoff_engine_admit_feed(ctx);
}

double zoff_engine_measure_worked(const zoff_engine *e, double from, const zoff_store_stats *before)
{
    zoff_store_stats now;
    zoff_engine_stores_stats(e, &now);
    return zoff_base_clock_seconds() - from - (now.wait_seconds - before->wait_seconds) -
           (now.check_seconds - before->check_seconds);
}

void zoff_engine_measure_bucket(zoff_engine *e, size_t bucket, double *seconds, uint64_t *read_bytes)
{
    const bool alone = !zoff_engine_ranks_several(e);
    const zoff_plan_span part = zoff_zero_plan_own(&e->plan, bucket);
    const zoff_plan_piece *pieces = &e->plan.pieces[part.first_piece];
    size_t used = 0, blocks = 0;
    zoff_store_stats before;
    zoff_engine_stores_stats(e, &before);
    double from = zoff_base_clock_seconds();
    for (size_t i = 0; i < part.piece_count; i++) {
        /* With several ranks, another rank may have the gradient that this one lacks. */
        if (e->model.params[pieces[i].param].frozen || (alone && !*zoff_model_params_flag(&e->model, &pieces[i])))
            continue;
        zoff_norm_piece *n = &e->norm_pieces[used];
        *n = (zoff_norm_piece){.count = pieces[i].count, .block_sums = e->block_sums + blocks};
        e->norm_index[used++] = i;
        blocks += zoff_base_bits_ceil_div(n->count, ZOFF_NORM_BLOCK);
        n->grad = zoff_engine_pieces_gradient(e, &pieces[i], &n->dtype);
        *read_bytes += n->count * zoff_adam_dtype_bytes(n->dtype);
    }
    zoff_adam_norm_run(zoff_engine_threads_of_measure(e), e->norm_pieces, used, alone ? between : NULL, e);
    for (size_t i = 0; i < used; i++)
        zoff_engine_gate_add(e, &pieces[e->norm_index[i]], e->norm_pieces[i].block_sums);
    e->measured++;
    *seconds += zoff_engine_measure_worked(e, from, &before);
}
