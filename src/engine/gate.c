/* gate.c: nothing is updated before all gradients are measured: one norm, one clip factor, one decision to skip, the same on
 * every rank. */
#include "engine_priv.h"

#include "bits.h"
#include "log.h"
#include "try.h"

#include <float.h>
#include <math.h>

/* Block sums are added in the order of parameter, slice, element, in fp64: the same bits however the list is cut. Buckets are
 * measured one after the other from the first, so a running sum has that order. */
void zoff_engine_gate_add(zoff_engine *e, const zoff_plan_piece *pieces, size_t count)
{
    zoff_step_run *run = &e->run;
    const double *sum = e->block_sums;
    for (size_t i = 0; i < count; i++) {
        if (!*zoff_engine_params_flag(e, &pieces[i]))
            continue;
        for (size_t first = 0; first < pieces[i].count; first += ZOFF_NORM_BLOCK) {
            if (!run->poisoned && !isfinite(*sum)) {
                run->poisoned = true;
                run->poison_first = pieces[i].first + first;
                run->info.nonfinite_param = pieces[i].param;
                run->info.nonfinite_slice = pieces[i].slice;
            }
            run->sums[0] += *sum++;
        }
    }
    run->measured++;
}

/* A peer may have the gradient that is not finite: then none of ours is named. */
static void explain_skip(const zoff_engine *e)
{
    const zoff_step_run *run = &e->run;
    if (run->poisoned) {
        const zoff_engine_param *p = &e->params[run->info.nonfinite_param];
        ZOFF_WARN("step %lld skipped: the gradient of %s, slice %zu, has an inf or nan between its elements %zu and %zu; "
                  "weights and states are unchanged",
                  (long long)run->t, p->name, run->info.nonfinite_slice, run->poison_first,
                  zoff_base_bits_min(run->poison_first + ZOFF_NORM_BLOCK, p->count) - 1);
    } else {
        ZOFF_WARN("step %lld skipped: the norm of the gradients, %g, is beyond fp32; weights and states are unchanged",
                  (long long)run->t, run->info.grad_norm);
    }
}

/* The sum over all ranks is there: clip, or skip, and make the constants of each group. */
static void decide(zoff_engine *e)
{
    zoff_step_run *run = &e->run;
    double scale = run->grad_scale / e->settings.values.accumulation;
    double norm = sqrt(run->sums[0]) * fabs(scale);
    run->info.grad_norm = norm;
    /* The factor of DeepSpeed and torch.nn.utils.clip_grad_norm_. */
    double clip = run->clip_norm > 0 && norm > run->clip_norm ? run->clip_norm / (norm + 1e-6) : 1.0;
    /* No element is larger than the norm: below this none becomes infinite when it is scaled in fp32. */
    if (!isfinite(norm) || norm * clip > FLT_MAX) {
        run->info.skipped = true;
        run->gate = ZOFF_GATE_SKIP;
        explain_skip(e);
        return;
    }
    run->info.clip_factor = clip;
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
        ZOFF_TRY(zoff_comm_sum_scalars(e->comm, run->sums, 1, &run->vote));
        run->gate = ZOFF_GATE_VOTING;
    }
    if (run->gate == ZOFF_GATE_VOTING) {
        zoff_status status = zoff_comm_poll(e->comm, &run->vote);
        if (status < 0)
            run->gate = ZOFF_GATE_CLOSED; /* a retry asks the ranks again */
        if (status != ZOFF_OK)
            return status;
        decide(e);
    }
    return run->gate == ZOFF_GATE_OPEN ? ZOFF_OK : ZOFF_PENDING;
}
