/* ranks_wait.c: waiting for other ranks, as a poller of the engine. */
#include "engine_priv.h"

/* Move bytes between ranks. Errors stay in the operations: their next poll returns them. */
static zoff_status pump(void *ctx)
{
    const zoff_engine *e = ctx;
    if (e->ranks.reduce)
        zoff_zero_reduce_pump(e->ranks.reduce);
    if (e->ranks.gather)
        zoff_zero_gather_pump(e->ranks.gather);
    return ZOFF_OK;
}

/* Other ranks may send at any time; a single rank waits only for its own vote. */
static bool is_busy(void *ctx)
{
    const zoff_engine *e = ctx;
    return zoff_engine_ranks_several(e) || e->run.gate == ZOFF_GATE_VOTING;
}

/* No deadline here: the communicator has one for each operation. */
void zoff_engine_ranks_wait_open(zoff_engine *e)
{
    e->pollers.ranks = (zoff_poller){
        .pump = pump, .is_busy = is_busy, .ctx = e, .timeout_seconds = -1, .waited = &e->run.info.comm_wait_seconds};
    zoff_base_progress_add(&e->progress, &e->pollers.ranks);
}

zoff_status zoff_engine_ranks_wait_until(zoff_engine *e, zoff_status (*until)(void *ctx), void *ctx)
{
    return zoff_base_progress_wait(&e->progress, &e->pollers.ranks, until, ctx);
}

void zoff_engine_ranks_wait_close(zoff_engine *e)
{
    zoff_base_progress_remove(&e->progress, &e->pollers.ranks);
}
