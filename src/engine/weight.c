/* weight.c: how much the gradients of a rank count in the sum over ranks and micro-batches. */
#include "engine_priv.h"

#include "try.h"

#include <float.h>

double zoff_engine_weight_total(const zoff_engine *e)
{
    if (e->ranks.reduce)
        return zoff_zero_reduce_total_weight(e->ranks.reduce);
    return zoff_engine_pieces_accumulates(e) ? e->weight : 1; /* the gradient of a single one is taken as it is */
}

zoff_status zoff_grad_weight(zoff_engine *e, double weight)
{
    ZOFF_ENTER(e);
    ZOFF_FAIL_IF(!e, ZOFF_ERR_INVALID, "zoff_grad_weight: engine must not be NULL");
    ZOFF_FAIL_IF(e->phase != ZOFF_PHASE_IDLE, ZOFF_ERR_STATE, "zoff_grad_weight: %s", zoff_engine_phase_words(e));
    ZOFF_FAIL_IF(!(weight >= 0 && weight <= FLT_MAX), ZOFF_ERR_INVALID,
                 "zoff_grad_weight: %g is not a finite fp32 number from 0 on", weight);
    ZOFF_FAIL_IF(e->handed_over, ZOFF_ERR_STATE,
                 "zoff_grad_weight: gradients of this micro-batch were handed over already; call it before zoff_grad_ready()");
    e->weight = (float)weight;
    if (e->ranks.reduce)
        zoff_zero_reduce_weigh(e->ranks.reduce, weight);
    return ZOFF_OK;
}
