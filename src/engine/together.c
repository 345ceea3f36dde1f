/* together.c: ranks open their stores side by side. Each compares what it found before any of them writes, and nobody commits
 * the first states before all have written them. Writing takes as long as the drive takes, so a rank says between two chunks
 * that it is at work: only a rank that says nothing for timeout_seconds has stopped.
 *
 * All of it goes in rounds: every rank tells every other one how far it is. A rank that waits begins the next round at once;
 * one that works takes part when it has written a chunk. So whoever fails is known to all in the same round, and then nobody
 * begins another one. */
#include "engine_priv.h"

#include "bits.h"
#include "clock.h"
#include "try.h"

#include <string.h>

enum { WORKING, FOUND, WRITTEN, DONE };

static zoff_status tell(const zoff_together *g)
{
    return zoff_base_status_fail(ZOFF_ERR_COMM, "rank %u has failed where this one has not: its own message says why",
                                 g->failed);
}

static zoff_status judge_round(zoff_engine *e)
{
    zoff_together *g = &e->agreement.together;
    const unsigned ranks = zoff_comm_size(e->comm);
    g->behind = false;
    for (unsigned rank = 0; rank < ranks; rank++) {
        g->behind = g->behind || g->all[rank].phase < g->own.phase;
        if (g->over || !g->all[rank].has_failed)
            continue;
        g->over = true;
        g->failed = rank;
    }
    return g->over ? tell(g) : ZOFF_OK;
}

static zoff_status begin_round(zoff_engine *e)
{
    zoff_together *g = &e->agreement.together;
    zoff_standing *own = &g->all[zoff_comm_rank(e->comm)];
    const zoff_comm_call call = {.kind = ZOFF_COMM_GATHER, .in = own, .out = g->all, .receive_bytes = g->each};
    *own = g->own;
    g->began = zoff_base_clock_seconds();
    return zoff_comm_start(e->comm, &call, &g->work);
}

/* To the end, beginning with one that is under way: that one tells of where this rank was before. */
static zoff_status finish_round(zoff_engine *e)
{
    zoff_together *g = &e->agreement.together;
    if (g->work.active) {
        ZOFF_TRY(zoff_comm_wait(e->comm, &g->work));
        ZOFF_TRY(judge_round(e));
    }
    ZOFF_TRY(begin_round(e));
    ZOFF_TRY(zoff_comm_wait(e->comm, &g->work));
    return judge_round(e);
}

static zoff_status reach(zoff_engine *e, uint32_t phase)
{
    zoff_together *g = &e->agreement.together;
    if (g->over)
        return tell(g);
    g->own.phase = phase;
    do
        ZOFF_TRY(finish_round(e));
    while (g->behind);
    return ZOFF_OK;
}

zoff_status zoff_engine_together_open(zoff_engine *e)
{
    zoff_together *g = &e->agreement.together;
    const unsigned ranks = zoff_comm_size(e->comm);
    ZOFF_TRY(zoff_base_mem_alloc(ranks, sizeof *g->all, "what ranks have found", &g->all));
    ZOFF_TRY(zoff_base_mem_alloc(ranks, sizeof *g->each, "what ranks have found", &g->each));
    for (unsigned rank = 0; rank < ranks; rank++)
        g->each[rank] = sizeof *g->all;
    return ZOFF_OK;
}

void zoff_engine_together_pulse(void *ctx)
{
    const double PAUSE_SECONDS = 0.02;
    zoff_engine *e = ctx;
    zoff_together *g = &e->agreement.together;
    zoff_saved_error saved;
    if (!zoff_transfer_ranks_several(&e->transfer) || g->over || !g->is_open)
        return;
    zoff_base_status_save(&saved);
    if (!g->work.active && zoff_base_clock_seconds() - g->began >= PAUSE_SECONDS)
        (void)begin_round(e); /* what fails is met again by whoever waits for the round */
    if (g->work.active && zoff_comm_poll(e->comm, &g->work) == ZOFF_OK)
        (void)judge_round(e);
    zoff_base_status_restore(&saved);
}

zoff_status zoff_engine_together_decide(void *ctx, const zoff_store_found *found, uint64_t *out_generation)
{
    zoff_engine *e = ctx;
    zoff_together *g = &e->agreement.together;
    g->own.found = *found;
    *out_generation = found->reopened ? found->generation : 0;
    if (!zoff_transfer_ranks_several(&e->transfer))
        return ZOFF_OK;
    ZOFF_TRY(reach(e, FOUND));
    /* From here to the end of this call all ranks do the same. */
    zoff_status status = zoff_engine_persist_judge(e, g->all, out_generation);
    if (status == ZOFF_OK && *out_generation == 0)
        status = zoff_engine_first_weights_compare(e);
    g->over = status < 0; /* on every rank */
    return status;
}

zoff_status zoff_engine_together_written(void *ctx)
{
    zoff_engine *e = ctx;
    return zoff_transfer_ranks_several(&e->transfer) ? reach(e, WRITTEN) : ZOFF_OK;
}

zoff_status zoff_engine_together_run(zoff_engine *e, zoff_status (*open)(zoff_engine *e))
{
    zoff_together *g = &e->agreement.together;
    zoff_saved_error saved;
    if (!zoff_transfer_ranks_several(&e->transfer))
        return open(e);
    g->is_open = true;
    const zoff_status own = open(e);
    if (own == ZOFF_OK)
        return reach(e, DONE);
    zoff_base_status_save(&saved);
    g->own.has_failed = true;
    if (!g->over && !e->comm->is_broken)
        (void)finish_round(e);
    zoff_base_status_restore(&saved);
    return own;
}

void zoff_engine_together_close(zoff_engine *e)
{
    zoff_together *g = &e->agreement.together;
    zoff_base_mem_free(g->all);
    zoff_base_mem_free(g->each);
    *g = (zoff_together){.over = false};
}
