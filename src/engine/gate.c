/* gate.c: nothing is updated before all gradients are measured: one norm, one clip factor, one decision to skip, the same on
 * every rank. */
#include "engine_priv.h"

#include "bits.h"
#include "log.h"
#include "try.h"

#include <math.h>

/* Block sums are added in the order of parameter, slice, element, in fp64: the same bits however the list is cut. */
static double total(const zoff_engine *e)
{
    double sum = 0;
    for (size_t i = 0; i < e->plan.block_count; i++)
        sum += e->block_sums[i];
    return sum;
}

/* Name the first gradient that is not finite. A peer may have it: then none of ours is named. */
static void explain_skip(zoff_engine *e)
{
    zoff_step_info *info = &e->run.info;
    for (size_t i = 0; i < e->plan.piece_count; i++) {
        const zoff_plan_piece *piece = &e->plan.pieces[i];
        size_t blocks = zoff_base_bits_ceil_div(piece->count, ZOFF_NORM_BLOCK);
        for (size_t b = 0; b < blocks; b++) {
            if (isfinite(e->block_sums[piece->block_offset + b]))
                continue;
            info->nonfinite_param = piece->param;
            info->nonfinite_slice = piece->slice;
            ZOFF_WARN("step %lld skipped: the gradient of %s, slice %zu, has an inf or nan between its elements %zu and %zu; "
                      "weights and states are unchanged",
                      (long long)e->run.t, e->params[piece->param].name, piece->slice, piece->first + b * ZOFF_NORM_BLOCK,
                      zoff_base_bits_min(piece->first + (b + 1) * ZOFF_NORM_BLOCK, e->params[piece->param].count) - 1);
            return;
        }
    }
}

/* The sum over all ranks is there: clip, or skip, and make the constants of each group. */
static void decide(zoff_engine *e)
{
    zoff_step_run *run = &e->run;
    double scale = run->grad_scale / e->settings.values.accumulation;
    double norm = sqrt(run->sums[0]) * fabs(scale);
    run->info.grad_norm = norm;
    if (!isfinite(run->sums[0])) {
        run->info.skipped = true;
        run->gate = ZOFF_GATE_SKIP;
        explain_skip(e);
        return;
    }
    /* The factor of DeepSpeed and torch.nn.utils.clip_grad_norm_. */
    run->info.clip_factor = run->clip_norm > 0 && norm > run->clip_norm ? run->clip_norm / (norm + 1e-6) : 1.0;
    for (size_t g = 0; g < e->group_count; g++)
        zoff_adam_hyper_consts(&e->hyper[g], run->t, scale * run->info.clip_factor, &e->consts[g]);
    run->gate = ZOFF_GATE_OPEN;
}

zoff_status zoff_engine_gate_vote(zoff_engine *e)
{
    zoff_step_run *run = &e->run;
    if (run->gate == ZOFF_GATE_CLOSED) {
        if (run->measured < e->plan.chunk_count)
            return ZOFF_PENDING;
        run->sums[0] = total(e);
        ZOFF_TRY(zoff_comm_sum_scalars(e->comm, run->sums, 1, &run->vote));
        run->gate = ZOFF_GATE_VOTING;
    }
    if (run->gate == ZOFF_GATE_VOTING) {
        zoff_status status = zoff_comm_poll(e->comm, &run->vote);
        if (status != ZOFF_OK)
            return status;
        decide(e);
    }
    return run->gate == ZOFF_GATE_OPEN ? ZOFF_OK : ZOFF_PENDING;
}
