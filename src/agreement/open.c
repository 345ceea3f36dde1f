/* SPDX-License-Identifier: Apache-2.0 */
/* open.c: ranks open their stores side by side: the ranks of an engine, and beyond them those of engines with one norm. They
 * compare the states that they found before any rank writes. No rank commits the first states before all ranks have written
 * them, because otherwise a rank that is killed in between would begin anew where others continue. Writing takes as long as the
 * drive takes, so a rank reports between two chunks that it is at work. Only a rank that is silent for timeout_seconds counts
 * as stopped.
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

static zoff_status tell(const zoff_open_barrier *g)
{
    ZOFF_FAIL_IF(g->was_canceled, ZOFF_ERR_CANCELED, "the program of rank %u%s ended the opening (zoff_engine_opts.progress)",
                 g->failed, g->of->whose);
    return zoff_agreement_vote_tell(g->of, g->failed);
}

static zoff_status judge_round(zoff_open_barrier *g)
{
    const unsigned ranks = zoff_comm_size(g->of->comm);
    g->behind = false;
    for (unsigned rank = 0; rank < ranks; rank++) {
        g->behind = g->behind || g->all[rank].phase < g->own.phase;
        if (g->of->is_over || !g->all[rank].has_failed)
            continue;
        g->of->is_over = true;
        g->failed = rank;
        g->was_canceled = g->all[rank].was_canceled;
    }
    return g->of->is_over ? tell(g) : ZOFF_OK;
}

static zoff_status begin_round(zoff_open_barrier *g)
{
    zoff_standing *own = &g->all[zoff_comm_rank(g->of->comm)];
    const zoff_comm_call call = {
        .kind = ZOFF_COMM_GATHER, .channel = g->channel, .in = own, .out = g->all, .count = sizeof *own};
    *own = g->own;
    g->began = zoff_base_clock_seconds();
    return zoff_comm_start(g->of->comm, &call, &g->work);
}

/* Finish a round that is in progress, then run another, because the former contains this rank's previous phase. */
static zoff_status finish_round(zoff_open_barrier *g)
{
    if (g->work.active) {
        ZOFF_TRY(zoff_comm_wait(g->of->comm, &g->work));
        ZOFF_TRY(judge_round(g));
    }
    ZOFF_TRY(begin_round(g));
    ZOFF_TRY(zoff_comm_wait(g->of->comm, &g->work));
    return judge_round(g);
}

/* A round is a note from each rank to each other one. The more ranks, the longer the pause, so that a rank sends some 3,000
 * notes a second at most; but others must hear of it long before they give up. */
double zoff_agreement_open_pause(const zoff_comm *comm)
{
    const double seconds = 0.02 * (double)zoff_base_bits_max(1, comm->size / 64), most = comm->timeout_seconds / 10;
    return comm->timeout_seconds >= 0 && seconds > most ? most : seconds;
}

static zoff_status pulse(zoff_open_barrier *g)
{
    zoff_saved_error saved;
    if (!g->of || !g->is_open)
        return ZOFF_OK;
    if (g->of->is_over)
        return tell(g);
    zoff_base_status_save(&saved);
    if (!g->work.active && zoff_base_clock_seconds() - g->began >= zoff_agreement_open_pause(g->of->comm))
        (void)begin_round(g); /* the next wait for a round reports an error */
    if (g->work.active && zoff_comm_poll(g->of->comm, &g->work) == ZOFF_OK)
        (void)judge_round(g);
    zoff_base_status_restore(&saved);
    return g->of->is_over ? tell(g) : ZOFF_OK;
}

/* Wait in rounds until all ranks of a group are in this phase. Meanwhile tell those of `other`, which may wait for this one. */
static zoff_status reach_in(zoff_open_barrier *g, zoff_open_barrier *other, uint32_t phase)
{
    if (!g->of)
        return ZOFF_OK;
    if (g->of->is_over)
        return tell(g);
    g->own.phase = phase;
    do {
        ZOFF_TRY(finish_round(g));
        if (other)
            ZOFF_TRY(pulse(other));
    } while (g->behind);
    return ZOFF_OK;
}

/* First the ranks of this engine, then those of the others: all ranks of all engines have passed the first wait when one passes
 * the second. So nobody waits long in the second one, and no round is begun there that others would have to finish. */
static zoff_status reach(zoff_agreement *a, uint32_t phase)
{
    ZOFF_TRY(reach_in(&a->barrier, &a->norm.barrier, phase));
    return reach_in(&a->norm.barrier, NULL, phase);
}

static zoff_status allocate(zoff_open_barrier *g, zoff_voters *of, zoff_comm_channel *channel)
{
    *g = (zoff_open_barrier){.of = of, .channel = channel, .is_open = true};
    return zoff_base_mem_alloc(zoff_comm_size(of->comm), sizeof *g->all, "states found by ranks", &g->all);
}

zoff_status zoff_agreement_open_allocate(zoff_agreement *a)
{
    a->ranks.is_over = false;
    if (zoff_comm_size(a->comm) > 1)
        ZOFF_TRY(allocate(&a->barrier, &a->ranks, NULL));
    return a->norm.ranks.comm ? allocate(&a->norm.barrier, &a->norm.ranks, &a->norm.channel) : ZOFF_OK;
}

zoff_status zoff_agreement_open_pulse(zoff_agreement *a)
{
    ZOFF_TRY(pulse(&a->barrier));
    return pulse(&a->norm.barrier);
}

/* Choose the commit that all ranks of this engine continue from, given what each has found; 0: all start anew. The result is
 * the same on all ranks. A rank that never committed a step starts with the program's weights; if others have committed only
 * the very first step, they start anew, too. If a rank died before it could commit what others have, those go back to the
 * commit before.
 */
static zoff_status judge_found(const zoff_standing *all, unsigned ranks, uint64_t *out_generation)
{
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
    ZOFF_FAIL_IF(
        fresh < ranks && (first->reopened || ahead != 1), ZOFF_ERR_CORRUPT,
        "zoff_engine_seal: rank %u has the states after step %lld, but rank %u has none in its nvme_path%s%s. Give each "
        "rank its former folders, or remove the files and restart from a checkpoint",
        newest, (long long)last->t, fresh, all[fresh].found.other[0] ? ", which has those of another rank in " : "",
        all[fresh].found.other);
    ZOFF_FAIL_IF(
        ahead > 1, ZOFF_ERR_CORRUPT,
        "zoff_engine_seal: rank %u has the states after step %lld (generation %llu), and rank %u those after step %lld "
        "(generation %llu): no generation is on both. Remove the files and restart from a checkpoint",
        newest, (long long)last->t, (unsigned long long)last->generation, oldest, (long long)first->t,
        (unsigned long long)first->generation);
    for (unsigned rank = 0; rank < ranks && *out_generation; rank++) {
        const zoff_store_found *found = &all[rank].found;
        const bool is_ahead = found->generation > first->generation;
        ZOFF_FAIL_IF((!is_ahead || found->has_before) && (is_ahead ? found->t_before : found->t) != first->t, ZOFF_ERR_CORRUPT,
                     "zoff_engine_seal: the files of rank %u have the states after step %lld as generation %llu, and those of "
                     "rank %u the states after step %lld: they are of different runs. Give each rank its former folders, or "
                     "remove the files and restart from a checkpoint",
                     oldest, (long long)first->t, (unsigned long long)first->generation, rank,
                     (long long)(is_ahead ? found->t_before : found->t));
    }
    return ZOFF_OK;
}

/* Find the step of a commit, and whether all ranks have the commit before it as well. */
static zoff_store_found chosen_of(const zoff_standing *all, unsigned ranks, uint64_t generation)
{
    zoff_store_found chosen = {.generation = generation, .reopened = generation != 0, .has_before = generation != 0};
    for (unsigned rank = 0; !chosen.other[0] && rank < ranks; rank++)
        memcpy(chosen.other, all[rank].found.other, sizeof chosen.other);
    for (unsigned rank = 0; generation && rank < ranks; rank++) {
        const zoff_store_found *found = &all[rank].found;
        if (found->generation == generation) {
            chosen.t = found->t;
            chosen.t_before = found->t_before;
        }
        chosen.has_before = chosen.has_before && found->has_before && found->generation == generation;
    }
    return chosen;
}

/* All ranks start anew, but one of them is in the folder of another, which has states. */
static zoff_status check_others(const zoff_open_barrier *g)
{
    for (unsigned rank = 0; rank < zoff_comm_size(g->of->comm); rank++)
        ZOFF_FAIL_IF(
            g->all[rank].found.other[0], ZOFF_ERR_CORRUPT,
            "zoff_engine_seal: rank %u%s has no states of its own in its nvme_path, but another rank's in %s: the ranks "
            "have other folders than in the earlier run. Give each rank its former folders; to start a new run, remove "
            "the files, or choose other folders",
            rank, g->of->whose, g->all[rank].found.other);
    return ZOFF_OK;
}

static void go_back(zoff_store_found *io)
{
    *io = (zoff_store_found){.generation = io->generation - 1, .reopened = true, .t = io->t_before};
}

/* The program wants the states after a step. The files have those of the commit that all ranks have, and perhaps those of the
 * one before. */
static zoff_status choose_wanted(int64_t wanted_t, zoff_store_found *io)
{
    if (!wanted_t)
        return ZOFF_OK;
    ZOFF_FAIL_IF(
        !io->generation, ZOFF_ERR_INVALID,
        "zoff_engine_seal: zoff_engine_opts.persist_t is %lld, but nvme_path has no states of an earlier run. Mount the "
        "drives, give the folders of that run, or set persist_t to 0",
        (long long)wanted_t);
    if (io->t == wanted_t)
        return ZOFF_OK;
    ZOFF_FAIL_IF(
        !io->has_before, ZOFF_ERR_INVALID,
        "zoff_engine_seal: zoff_engine_opts.persist_t is %lld, but the state files have the states after step %lld alone",
        (long long)wanted_t, (long long)io->t);
    ZOFF_FAIL_IF(
        io->t_before != wanted_t, ZOFF_ERR_INVALID,
        "zoff_engine_seal: zoff_engine_opts.persist_t is %lld, but the state files have the states after step %lld, and "
        "those after step %lld",
        (long long)wanted_t, (long long)io->t, (long long)io->t_before);
    go_back(io);
    return ZOFF_OK;
}

/* Engines with one norm continue from the same step. Each has chosen a commit. If one ended before it could commit a step that
 * others have, those go back to the commit before; if that step was the very first one, they start anew, too. */
static zoff_status choose_step(const zoff_open_barrier *g, zoff_store_found *io)
{
    const unsigned ranks = zoff_comm_size(g->of->comm);
    unsigned oldest = 0;
    for (unsigned rank = 0; rank < ranks; rank++) {
        const zoff_store_found *one = &g->all[rank].found, *first = &g->all[oldest].found;
        const bool is_older = one->reopened == first->reopened ? one->t < first->t : !one->reopened;
        oldest = is_older ? rank : oldest;
    }
    const zoff_store_found first = g->all[oldest].found;
    for (unsigned rank = 0; rank < ranks; rank++) {
        const zoff_store_found *one = &g->all[rank].found;
        const bool is_there = one->reopened == first.reopened && one->t == first.t;
        ZOFF_FAIL_IF(!is_there && !(one->has_before && one->t_before == first.t), ZOFF_ERR_CORRUPT,
                     "zoff_engine_seal: rank %u%s has the states after step %lld, but rank %u has %s%lld. Give each rank its "
                     "former folders, or remove the files of all and restart from a checkpoint",
                     rank, g->of->whose, (long long)one->t, oldest,
                     first.reopened ? "those after step " : "none in its nvme_path, so it is at step ", (long long)first.t);
    }
    if (!first.reopened) {
        ZOFF_TRY(check_others(g));
        *io = (zoff_store_found){.reopened = false};
    } else if (io->t != first.t) {
        go_back(io);
    }
    return ZOFF_OK;
}

/* Note whether the decision has failed. It is the same on every rank that meets here, so nobody need be told. */
static void decided(const zoff_open_barrier *g, zoff_status status)
{
    if (g->of)
        g->of->is_over = status < 0;
}

zoff_status zoff_agreement_open_decide(zoff_agreement *a, const zoff_store_found *found, int64_t wanted_t,
                                       uint64_t *out_generation)
{
    zoff_open_barrier *g = &a->barrier, *norm = &a->norm.barrier;
    zoff_status status = ZOFF_OK;
    zoff_store_found chosen = *found;
    g->own.found = *found;
    *out_generation = found->reopened ? found->generation : 0;
    ZOFF_TRY(reach_in(g, norm, FOUND));
    /* All ranks of the engine do the same from here to the end of this call. */
    if (g->of)
        status = judge_found(g->all, zoff_comm_size(g->of->comm), out_generation);
    if (g->of && !norm->of && status == ZOFF_OK && *out_generation == 0)
        status = check_others(g);
    chosen = chosen_of(g->of ? g->all : &g->own, g->of ? zoff_comm_size(g->of->comm) : 1, *out_generation);
    if (status == ZOFF_OK)
        status = choose_wanted(wanted_t, &chosen);
    if (status == ZOFF_OK && norm->of) {
        norm->own.found = chosen;
        ZOFF_TRY(reach_in(norm, NULL, FOUND)); /* other ranks of the engine may not know of a failure yet */
        status = choose_step(norm, &chosen);
        decided(norm, status);
    }
    *out_generation = chosen.generation;
    if (status == ZOFF_OK && chosen.generation == 0) {
        status = zoff_agreement_norm_first_weights(a);
        decided(norm, status);
    }
    decided(g, status);
    return status;
}

zoff_status zoff_agreement_open_fill(zoff_agreement *a, zoff_store *store, const zoff_store_opts *opts)
{
    zoff_status status;
    while ((status = zoff_offload_store_fill(store, opts)) == ZOFF_PENDING)
        ZOFF_TRY(zoff_agreement_open_pulse(a));
    ZOFF_TRY(status);
    int64_t t;
    if (opts->persist && !zoff_offload_store_reopened(store, &t))
        ZOFF_TRY(reach(a, WRITTEN));
    return zoff_offload_store_ready(store);
}

zoff_status zoff_agreement_open_store(zoff_agreement *a, const zoff_store_opts *opts, zoff_store **out)
{
    zoff_store_found found;
    uint64_t generation = 0;
    zoff_status status;
    ZOFF_TRY(zoff_offload_store_find(opts, out, &found));
    if (opts->persist)
        ZOFF_TRY(zoff_agreement_open_decide(a, &found, opts->wanted_t, &generation));
    while ((status = zoff_offload_store_verify(*out, opts, generation)) == ZOFF_PENDING)
        ZOFF_TRY(zoff_agreement_open_pulse(a));
    ZOFF_TRY(status);
    if (generation != found.generation && opts->wanted_t)
        ZOFF_TRY(reach(a, VERIFIED));
    return zoff_agreement_open_fill(a, *out, opts);
}

/* Tell the ranks of a group that do not know it that this one has failed. */
static void fail(zoff_open_barrier *g, zoff_status own)
{
    if (!g->of)
        return;
    g->own.has_failed = true;
    g->own.was_canceled = own == ZOFF_ERR_CANCELED;
    if (!g->of->is_over && !zoff_comm_is_broken(g->of->comm))
        (void)finish_round(g);
    g->of->is_over = true;
}

zoff_status zoff_agreement_open_end(zoff_agreement *a, zoff_status own)
{
    zoff_saved_error saved;
    if (own == ZOFF_OK)
        own = reach(a, DONE);
    a->barrier.is_open = a->norm.barrier.is_open = false;
    if (own == ZOFF_OK)
        return ZOFF_OK;
    zoff_base_status_save(&saved);
    fail(&a->barrier, own);
    fail(&a->norm.barrier, own);
    zoff_base_status_restore(&saved);
    return own;
}

void zoff_agreement_open_free(zoff_agreement *a)
{
    zoff_base_mem_free(a->barrier.all);
    zoff_base_mem_free(a->norm.barrier.all);
    a->barrier = a->norm.barrier = (zoff_open_barrier){.of = NULL};
}
