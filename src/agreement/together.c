/* together.c: ranks open their stores at the same time. They compare the states that they found before any rank writes, and no
 * rank commits the first states before all ranks have written them. Writing takes as long as the drive takes, so a rank reports
 * between two writes that it is at work. Only a rank that is silent for timeout_seconds counts as stopped.
 *
 * The ranks communicate in rounds, in which every rank tells all others its phase. A rank that waits begins the next round at
 * once; a rank that works takes part when it has written a chunk. So all ranks learn of a failure in the same round, and no
 * rank begins another one. */
#include "agreement.h"

#include "bits.h"
#include "clock.h"
#include "try.h"

#include <string.h>

enum { WORKING, FOUND, VERIFIED, WRITTEN, DONE };

static zoff_status tell(const zoff_together *g)
{
    ZOFF_FAIL_IF(g->was_canceled, ZOFF_ERR_CANCELED, "the program of rank %u ended the opening (zoff_engine_opts.progress)",
                 g->failed);
    return zoff_base_status_fail(
        ZOFF_ERR_COMM, "rank %u has failed, and this one has not: see the message of that rank for the cause", g->failed);
}

static zoff_status judge_round(zoff_agreement *a)
{
    zoff_together *g = &a->together;
    const unsigned ranks = zoff_comm_size(a->comm);
    g->behind = false;
    for (unsigned rank = 0; rank < ranks; rank++) {
        g->behind = g->behind || g->all[rank].phase < g->own.phase;
        if (g->over || !g->all[rank].has_failed)
            continue;
        g->over = true;
        g->failed = rank;
        g->was_canceled = g->all[rank].was_canceled;
    }
    return g->over ? tell(g) : ZOFF_OK;
}

static zoff_status begin_round(zoff_agreement *a)
{
    zoff_together *g = &a->together;
    zoff_standing *own = &g->all[zoff_comm_rank(a->comm)];
    const zoff_comm_call call = {.kind = ZOFF_COMM_GATHER, .in = own, .out = g->all, .receive_bytes = g->each};
    *own = g->own;
    g->began = zoff_base_clock_seconds();
    return zoff_comm_start(a->comm, &call, &g->work);
}

/* Finish a round that is in progress, then run another: the former contains this rank's previous phase. */
static zoff_status finish_round(zoff_agreement *a)
{
    zoff_together *g = &a->together;
    if (g->work.active) {
        ZOFF_TRY(zoff_comm_wait(a->comm, &g->work));
        ZOFF_TRY(judge_round(a));
    }
    ZOFF_TRY(begin_round(a));
    ZOFF_TRY(zoff_comm_wait(a->comm, &g->work));
    return judge_round(a);
}

static zoff_status reach(zoff_agreement *a, uint32_t phase)
{
    zoff_together *g = &a->together;
    if (g->over)
        return tell(g);
    g->own.phase = phase;
    do
        ZOFF_TRY(finish_round(a));
    while (g->behind);
    return ZOFF_OK;
}

zoff_status zoff_agreement_together_open(zoff_agreement *a)
{
    zoff_together *g = &a->together;
    const unsigned ranks = zoff_comm_size(a->comm);
    ZOFF_TRY(zoff_base_mem_alloc(ranks, sizeof *g->all, "states found by ranks", &g->all));
    ZOFF_TRY(zoff_base_mem_alloc(ranks, sizeof *g->each, "states found by ranks", &g->each));
    for (unsigned rank = 0; rank < ranks; rank++)
        g->each[rank] = sizeof *g->all;
    return ZOFF_OK;
}

zoff_status zoff_agreement_together_pulse(zoff_agreement *a)
{
    const double PAUSE_SECONDS = 0.02;
    zoff_together *g = &a->together;
    zoff_saved_error saved;
    if (zoff_comm_size(a->comm) == 1 || !g->is_open)
        return ZOFF_OK;
    if (g->over)
        return tell(g);
    zoff_base_status_save(&saved);
    if (!g->work.active && zoff_base_clock_seconds() - g->began >= PAUSE_SECONDS)
        (void)begin_round(a); /* the next wait for a round reports an error */
    if (g->work.active && zoff_comm_poll(a->comm, &g->work) == ZOFF_OK)
        (void)judge_round(a);
    zoff_base_status_restore(&saved);
    return g->over ? tell(g) : ZOFF_OK;
}

/* Choose the commit that all ranks continue from, given what each has found; 0: all start anew. The result is the same on all
 * ranks. A rank that never committed a step starts with the program's weights; if others have committed only the very first
 * step, they start anew, too. If a rank died before it could commit what others have, those go back to the commit before. */
static zoff_status judge_found(const zoff_agreement *a, const zoff_standing *all, uint64_t *out_generation)
{
    const unsigned ranks = zoff_comm_size(a->comm);
    unsigned oldest = 0, newest = 0, fresh = ranks;
    for (unsigned rank = 0; rank < ranks; rank++) {
        oldest = all[rank].found.generation < all[oldest].found.generation ? rank : oldest;
        newest = all[rank].found.generation > all[newest].found.generation ? rank : newest;
        fresh = all[rank].found.reopened || fresh < ranks ? fresh : rank;
    }
    const zoff_store_found *first = &all[oldest].found, *last = &all[newest].found;
    const uint64_t ahead = last->generation - first->generation;
    *out_generation = first->reopened ? first->generation : 0;
    if (!last->reopened)
        return ZOFF_OK;
    ZOFF_FAIL_IF(fresh < ranks && (first->reopened || ahead != 1), ZOFF_ERR_CORRUPT,
                 "zoff_engine_seal: rank %u has the states after step %lld, but rank %u has none in its nvme_path. Give each "
                 "rank its former folders, or remove the files and restart from a checkpoint",
                 newest, (long long)last->t, fresh);
    ZOFF_FAIL_IF(
        ahead > 1, ZOFF_ERR_CORRUPT,
        "zoff_engine_seal: rank %u has the states after step %lld (generation %llu), and rank %u those after step %lld "
        "(generation %llu): no generation is on both. Remove the files and restart from a checkpoint",
        newest, (long long)last->t, (unsigned long long)last->generation, oldest, (long long)first->t,
        (unsigned long long)first->generation);
    return ZOFF_OK;
}

/* The program wants the states after a step. The files have those of the commit that all ranks have, and perhaps those of the
 * one before. */
static zoff_status choose_wanted(const zoff_standing *all, unsigned ranks, int64_t wanted_t, uint64_t *generation)
{
    const zoff_store_found *last = &all[0].found;
    bool has_before = true;
    if (!wanted_t)
        return ZOFF_OK;
    ZOFF_FAIL_IF(
        !*generation, ZOFF_ERR_INVALID,
        "zoff_engine_seal: zoff_engine_opts.persist_t is %lld, but nvme_path has no states of an earlier run. Mount the "
        "drives, give the folders of that run, or set persist_t to 0",
        (long long)wanted_t);
    for (unsigned rank = 0; rank < ranks; rank++) {
        last = all[rank].found.generation == *generation ? &all[rank].found : last;
        has_before = has_before && all[rank].found.has_before && all[rank].found.generation == *generation;
    }
    if (last->t == wanted_t)
        return ZOFF_OK;
    ZOFF_FAIL_IF(
        !has_before, ZOFF_ERR_INVALID,
        "zoff_engine_seal: zoff_engine_opts.persist_t is %lld, but the state files have the states after step %lld alone",
        (long long)wanted_t, (long long)last->t);
    ZOFF_FAIL_IF(
        last->t_before != wanted_t, ZOFF_ERR_INVALID,
        "zoff_engine_seal: zoff_engine_opts.persist_t is %lld, but the state files have the states after step %lld, and "
        "those after step %lld",
        (long long)wanted_t, (long long)last->t, (long long)last->t_before);
    --*generation;
    return ZOFF_OK;
}

zoff_status zoff_agreement_together_decide(zoff_agreement *a, const zoff_store_found *found, int64_t wanted_t,
                                           uint64_t *out_generation)
{
    zoff_together *g = &a->together;
    const unsigned ranks = zoff_comm_size(a->comm);
    g->own.found = *found;
    *out_generation = found->reopened ? found->generation : 0;
    if (ranks == 1)
        return choose_wanted(&g->own, 1, wanted_t, out_generation);
    ZOFF_TRY(reach(a, FOUND));
    /* From here to the end of this call all ranks do the same. */
    zoff_status status = judge_found(a, g->all, out_generation);
    if (status == ZOFF_OK)
        status = choose_wanted(g->all, ranks, wanted_t, out_generation);
    if (status == ZOFF_OK && *out_generation == 0)
        status = zoff_agreement_listed_compare_weights(a);
    g->over = status < 0; /* the same on every rank */
    return status;
}

zoff_status zoff_agreement_together_verified(zoff_agreement *a)
{
    return zoff_comm_size(a->comm) > 1 ? reach(a, VERIFIED) : ZOFF_OK;
}

zoff_status zoff_agreement_together_written(zoff_agreement *a)
{
    return zoff_comm_size(a->comm) > 1 ? reach(a, WRITTEN) : ZOFF_OK;
}

zoff_status zoff_agreement_together_run(zoff_agreement *a, zoff_status (*open)(void *ctx), void *ctx)
{
    zoff_together *g = &a->together;
    zoff_saved_error saved;
    if (zoff_comm_size(a->comm) == 1)
        return open(ctx);
    g->is_open = true;
    const zoff_status own = open(ctx);
    if (own == ZOFF_OK)
        return reach(a, DONE);
    zoff_base_status_save(&saved);
    g->own.has_failed = true;
    g->own.was_canceled = own == ZOFF_ERR_CANCELED;
    if (!g->over && !a->comm->is_broken)
        (void)finish_round(a);
    zoff_base_status_restore(&saved);
    return own;
}

void zoff_agreement_together_close(zoff_agreement *a)
{
    zoff_together *g = &a->together;
    zoff_base_mem_free(g->all);
    zoff_base_mem_free(g->each);
    *g = (zoff_together){.over = false};
}
