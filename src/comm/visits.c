/* SPDX-License-Identifier: Apache-2.0 */
/* visits.c: detects ranks that wait for each other in different calls. Operations of different channels never match. So two
 * ranks that wait in calls of different engines would wait for ever. Ranks therefore number these calls. A rank that has waited
 * for a while reports the number and the call. Every other rank compares the report with its own call of the same number. */
#include "book_priv.h"

#include "clock.h"
#include "try.h"

#include <stdio.h>
#include <string.h>

static const double PATIENCE_SECONDS = 0.1; /* time until a wait is reported; most waits are shorter and cost no message */
static const double WORK_SECONDS = 10;      /* time between two messages of a rank that computes */
static const double FAILURE_SECONDS = 5;    /* time for a call to fail on this rank after it has failed on another */

enum { VISITS = ZOFF_COMM_VISITS };

/* FNV-1a over the fields of a call that ranks compare, seeded with the checksum of all earlier calls. */
static uint64_t chain_of(const zoff_comm_visit *v)
{
    const uint64_t words[] = {v->channel, v->call & 0xff, v->item.about, v->item.param, v->item.index, v->item.extra};
    uint64_t sum = v->before ^ 0xcbf29ce484222325;
    for (size_t i = 0; i < sizeof words; i++)
        sum = (sum ^ (words[i / 8] >> i % 8 * 8 & 0xff)) * 0x100000001b3;
    return sum;
}

void zoff_comm_enter(zoff_comm *comm, const zoff_comm_channel *channel, unsigned call, zoff_comm_item item)
{
    zoff_comm_book *b = comm->book;
    if (comm->size == 1)
        return;
    zoff_comm_lock(comm);
    if (b->depth++ == 0) {
        const uint64_t number = b->done + 1;
        zoff_comm_visit *visit = &b->visits[number % VISITS];
        const uint64_t failed = visit->number != number ? 0 : visit->failed ? visit->failed : chain_of(visit);
        *visit = (zoff_comm_visit){
            .number = number, .channel = channel->id, .call = call, .item = item, .before = b->chain, .failed = failed};
        b->since = zoff_base_clock_seconds();
        b->told = ZOFF_COMM_TOLD_NOBODY;
        b->has_unseen = true;
        b->failed = 0;
    }
    zoff_comm_unlock(comm);
}

void zoff_comm_exit(zoff_comm *comm, bool counts)
{
    if (comm->size == 1)
        return;
    zoff_comm_lock(comm);
    zoff_comm_book *b = comm->book;
    if (--b->depth == 0 && counts) {
        b->done++;
        b->chain = chain_of(&b->visits[b->done % VISITS]);
    }
    zoff_comm_unlock(comm);
}

void zoff_comm_uncount(zoff_comm *comm)
{
    if (comm->size == 1)
        return;
    zoff_comm_lock(comm);
    zoff_comm_book *b = comm->book;
    b->chain = b->visits[b->done % VISITS].before;
    b->done--;
    zoff_comm_unlock(comm);
}

void zoff_comm_heard(zoff_comm *comm, unsigned rank, const zoff_comm_visit *visits, unsigned count)
{
    comm->book->works_heard += count == 0;
    if (!count)
        return;
    comm->book->theirs[rank].count = count;
    memcpy(comm->book->theirs[rank].visits, visits, count * sizeof *visits);
    comm->book->has_unseen = true;
}

unsigned zoff_comm_get_visits(const zoff_comm *comm, zoff_comm_visit *out, unsigned most)
{
    const zoff_comm_book *b = comm->book;
    if (!b || !b->depth) /* no book: the ranks are still joining */
        return 0;
    const uint64_t last = b->done + 1, count = last < most ? last : most;
    for (uint64_t i = 0; i < count; i++)
        out[i] = b->visits[(last - count + 1 + i) % VISITS];
    return (unsigned)count;
}

/* In an open step a rank may fetch a weight that another rank need not wait for, so a fetch matches any call of the step. A
 * wait in an open step is not counted, and ends earlier on some ranks: these may be in a call for another open step by then. */
static bool follows_in_step(const zoff_comm_visit *a, const zoff_comm_visit *b)
{
    const uint32_t call = b->call & 0xff;
    return (a->call & ZOFF_COMM_IN_OPEN) &&
           (a->channel == b->channel ? call == ZOFF_COMM_IN_FETCH : call == ZOFF_COMM_IN_STEP_WAIT);
}

static bool are_same(const zoff_comm_visit *a, const zoff_comm_visit *b)
{
    if (follows_in_step(a, b) || follows_in_step(b, a))
        return true;
    return a->channel == b->channel && (a->call & 0xff) == (b->call & 0xff) && a->item.about == b->item.about &&
           a->item.param == b->item.param && a->item.index == b->item.index && a->item.extra == b->item.extra;
}

static const char ADVICE[] = "every rank must make the calls that wait for other ranks in the same order, also over "
                             "different engines";

/* The error for two different calls under one number: name the other rank's call and this rank's. */
static zoff_status name_both(const zoff_comm *comm, unsigned rank, const zoff_comm_visit *theirs, bool is_last,
                             const zoff_comm_visit *ours, bool is_now)
{
    char their_call[512], our_call[512];
    zoff_comm_names_visit(comm, theirs, their_call, sizeof their_call);
    zoff_comm_names_visit(comm, ours, our_call, sizeof our_call);
    return zoff_base_status_fail(ZOFF_ERR_COMM, "rank %u %s %s while rank %u %s %s: %s", rank, is_last ? "waits in" : "called",
                                 their_call, comm->rank, is_now ? "waits in" : "called", our_call, ADVICE);
}

/* Whether two calls differ only because a call has failed on one of the two ranks so far. A call that fails on every rank fails
 * on one of them first. That rank may already be in its next call, which has the same number. */
static bool has_failed_on_one(const zoff_comm_visit *ours, bool is_now, const zoff_comm_visit *theirs, bool is_last)
{
    return (is_now && chain_of(ours) == theirs->failed) || (is_last && chain_of(theirs) == ours->failed);
}

/* Compare the calls that another rank has reported with this rank's calls of the same numbers. The error names the first pair
 * that differs, if this rank still remembers it.
 * @param may_fail accept a call that has failed on one of the two ranks only, and set *out_failed */
static zoff_status compare(const zoff_comm *comm, unsigned rank, const zoff_comm_visit *now, bool may_fail, bool *out_failed)
{
    const zoff_comm_book *b = comm->book;
    const struct told *t = &b->theirs[rank];
    for (unsigned i = 0; i < t->count; i++) {
        const zoff_comm_visit *theirs = &t->visits[i], *ours = &b->visits[theirs->number % VISITS];
        char call[512];
        if (theirs->number > now->number || ours->number != theirs->number)
            continue;
        zoff_comm_names_visit(comm, theirs, call, sizeof call);
        ZOFF_FAIL_IF(theirs->before != ours->before, ZOFF_ERR_COMM, "ranks %u and %u have made different calls before %s: %s",
                     rank, comm->rank, call, ADVICE);
        if (are_same(ours, theirs))
            continue;
        const bool is_now = ours == now, is_last = i + 1 == t->count;
        if (!may_fail || !has_failed_on_one(ours, is_now, theirs, is_last))
            return name_both(comm, rank, theirs, is_last, ours, is_now);
        *out_failed = true;
    }
    return ZOFF_OK;
}

static zoff_status tell_others(zoff_comm *comm, const zoff_comm_call *call)
{
    zoff_comm_visit visits[ZOFF_COMM_VISITS_TOLD];
    const unsigned count = zoff_comm_get_visits(comm, visits, ZOFF_COMM_VISITS_TOLD);
    return comm->ops->tell(comm, call, visits, count);
}

/* Tell only the group about a wait for the group. If the same call of the program waits for all ranks later, tell the others
 * then. */
zoff_status zoff_comm_watch(zoff_comm *comm, const zoff_comm_call *call, double now)
{
    zoff_comm_book *b = comm->book;
    const double quarter = comm->timeout_seconds / 4;
    const double patience = quarter >= 0 && quarter < PATIENCE_SECONDS ? quarter : PATIENCE_SECONDS;
    if (!b->depth)
        return ZOFF_OK;
    const double half = comm->timeout_seconds / 2, limit = half >= 0 && half < FAILURE_SECONDS ? half : FAILURE_SECONDS;
    const bool is_late = b->failed > 0 && now - b->failed > limit;
    if (b->has_unseen || is_late) {
        bool failed = false;
        b->has_unseen = false;
        for (unsigned rank = 0; rank < comm->size; rank++)
            ZOFF_TRY(compare(comm, rank, &b->visits[(b->done + 1) % VISITS], !is_late, &failed));
        b->failed = !failed ? 0 : b->failed > 0 ? b->failed : now;
    }
    const zoff_comm_told told = call->members ? ZOFF_COMM_TOLD_GROUP : ZOFF_COMM_TOLD_ALL;
    if (b->told >= told || now - b->since < patience)
        return ZOFF_OK;
    b->told = told;
    return tell_others(comm, call);
}

unsigned zoff_comm_waits_for(const zoff_comm *comm, unsigned rank)
{
    const unsigned next = comm->book->theirs[rank].waits_for;
    return next && next - 1 != comm->rank ? next - 1 : rank;
}

void zoff_comm_works(zoff_comm *comm)
{
    if (comm->size == 1)
        return;
    zoff_comm_lock(comm);
    zoff_comm_book *b = comm->book;
    const double now = zoff_base_clock_seconds(), last = b->worked > b->since ? b->worked : b->since;
    const double quarter = comm->timeout_seconds / 4;
    if (quarter >= 0 && now - last > (quarter < WORK_SECONDS ? quarter : WORK_SECONDS)) {
        const zoff_comm_call all = {.members = 0};
        b->worked = now;
        (void)comm->ops->tell(comm, &all, b->visits, 0); /* later calls report a transport that fails */
    }
    zoff_comm_unlock(comm);
}

bool zoff_comm_waits_too(const zoff_comm *comm, unsigned rank)
{
    const zoff_comm_book *b = comm->book;
    const struct told *t = &b->theirs[rank];
    const zoff_comm_visit *theirs = t->count ? &t->visits[t->count - 1] : NULL;
    return b->depth && theirs && theirs->number == b->done + 1 && are_same(&b->visits[theirs->number % VISITS], theirs);
}

void zoff_comm_describe_visit_of(const zoff_comm *comm, unsigned rank, char *dst, size_t dst_bytes)
{
    const zoff_comm_book *b = comm->book;
    const struct told *t = &b->theirs[rank];
    char call[512];
    const unsigned end = zoff_comm_waits_for(comm, rank);
    dst[0] = 0;
    if (end != rank)
        snprintf(dst, dst_bytes, "; rank %u waits for rank %u", rank, end);
    if (end != rank || !t->count || t->visits[t->count - 1].number <= b->done)
        return;
    zoff_comm_names_visit(comm, &t->visits[t->count - 1], call, sizeof call);
    snprintf(dst, dst_bytes, "; rank %u waits in %s", rank, call);
}
