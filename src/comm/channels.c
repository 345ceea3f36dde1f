/* channels.c: who uses a communicator, and in which call the program waits for other ranks.
 *
 *      an engine comes --- all ranks have compared who it is: it gets an id ---> open --- closed: the id is gone for ever
 *
 * Operations of different channels never meet, whatever their timing. Calls that wait are another matter: two ranks that wait
 * in calls of different engines wait for ever. So ranks number these calls. One that has waited for a while tells the others
 * its number and its call, and each compares that with what it did, or does, under the same number. */
#include "comm.h"

#include "clock.h"
#include "mem.h"
#include "try.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static const double PATIENCE_SECONDS = 0.1; /* before others are told: most waits are shorter, and cost no message */
static const double FAILURE_SECONDS = 5;    /* for a call to fail on one rank after it has failed on another */

enum { VISITS = 256 }; /* of this rank, that are remembered */

typedef struct zoff_comm_book {
    pthread_mutex_t lock;
    zoff_comm_channel *come; /* without a channel yet */
    zoff_comm_channel *open;
    unsigned open_count;
    uint64_t births, slots;         /* a bit for each slot in use */
    uint32_t last;                  /* id */
    zoff_comm_visit visits[VISITS]; /* by number */
    uint64_t done;                  /* number of the last call that counted */
    unsigned depth;                 /* 0: the program is in no call that waits */
    double since;
    bool is_told;    /* that call, to the others */
    bool has_unseen; /* there may be something to compare */
    double failed;   /* when this call was first seen to have failed on one of two ranks only; 0: it was not */
    uint64_t chain;  /* checksum of all calls that counted */
    struct told {
        unsigned count;
        zoff_comm_visit visits[ZOFF_COMM_VISITS_TOLD];
    } * theirs; /* by rank: what it has told last */
} book;

/* ---- life, and the lock ---- */

zoff_status zoff_comm_prepare(zoff_comm *comm)
{
    book *b;
    pthread_mutexattr_t kind;
    ZOFF_TRY(zoff_base_mem_alloc(1, sizeof *b, "a communicator", &b));
    const zoff_status status = zoff_base_mem_alloc(comm->size, sizeof *b->theirs, "a communicator", &b->theirs);
    if (status < 0) {
        zoff_base_mem_free(b);
        return status;
    }
    /* A thread may end inside a call, where the ranks of a test are threads that die; others then go on. */
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&b->lock, &kind);
    pthread_mutexattr_destroy(&kind);
    b->slots = 1; /* that of the common channel */
    comm->book = b;
    comm->common.is_open = true;
    return ZOFF_OK;
}

void zoff_comm_forget(struct zoff_comm_book *b)
{
    if (!b)
        return;
    pthread_mutex_destroy(&b->lock);
    zoff_base_mem_free(b->theirs);
    zoff_base_mem_free(b);
}

void zoff_comm_lock(zoff_comm *comm)
{
    if (pthread_mutex_lock(&comm->book->lock) == EOWNERDEAD)
        pthread_mutex_consistent(&comm->book->lock);
}

void zoff_comm_unlock(zoff_comm *comm)
{
    pthread_mutex_unlock(&comm->book->lock);
}

/* ---- channels ---- */

/* All that are open: they are few. */
const zoff_comm_channel *zoff_comm_channel_find(const zoff_comm *comm, uint32_t id)
{
    const zoff_comm_channel *c = id ? comm->book->open : &comm->common;
    while (c && c->id != id)
        c = c->next;
    return c;
}

bool zoff_comm_channel_is_shared(zoff_comm *comm)
{
    zoff_comm_lock(comm);
    const bool is = comm->book->open_count > 1;
    zoff_comm_unlock(comm);
    return is;
}

/* In the order of their coming, also one that is closed after a seal that has failed. */
static void put_in(zoff_comm_channel **list, zoff_comm_channel *channel)
{
    while (*list && (*list)->birth < channel->birth)
        list = &(*list)->next;
    channel->next = *list;
    *list = channel;
}

static void take_out(zoff_comm_channel **list, const zoff_comm_channel *channel)
{
    while (*list && *list != channel)
        list = &(*list)->next;
    if (*list)
        *list = channel->next;
}

void zoff_comm_channel_come(zoff_comm *comm, zoff_comm_channel *channel)
{
    zoff_comm_lock(comm);
    channel->birth = ++comm->book->births;
    put_in(&comm->book->come, channel);
    zoff_comm_unlock(comm);
}

void zoff_comm_channel_leave(zoff_comm *comm, zoff_comm_channel *channel)
{
    if (!channel->birth)
        return;
    zoff_comm_channel_close(comm, channel);
    zoff_comm_lock(comm);
    take_out(&comm->book->come, channel);
    channel->birth = 0;
    zoff_comm_unlock(comm);
}

/* What a rank says of the channel that it opens. */
typedef struct record {
    int64_t status;
    uint64_t id, slots;
    uint64_t hash;
    uint64_t older, same; /* users that came before it and have no channel: in all, and of them those with its hash */
    char name[sizeof((zoff_comm_channel *)0)->name];
} record;

static void describe(zoff_comm *comm, const zoff_comm_channel *channel, record *out)
{
    const book *b = comm->book;
    *out = (record){.id = b->last + 1, .slots = b->slots, .hash = channel->hash};
    for (const zoff_comm_channel *c = b->come; c && c != channel; c = c->next) {
        out->older++;
        out->same += c->hash == channel->hash;
    }
    memcpy(out->name, channel->name, sizeof out->name);
}

static zoff_status judge(const zoff_comm *comm, const record *all, record *out)
{
    const record *first = &all[0];
    *out = *first;
    for (unsigned rank = 0; rank < comm->size; rank++) {
        const record *other = &all[rank];
        ZOFF_FAIL_IF(other->status < 0, ZOFF_ERR_COMM,
                     "zoff_engine_seal: rank %u has failed where this one has not: its own message says why", rank);
        const bool is_same = other->hash == first->hash;
        ZOFF_FAIL_IF(!is_same && other->older != first->older, ZOFF_ERR_COMM,
                     "zoff_engine_seal: rank 0 seals the engine whose first parameter is \"%.63s\" (number %llu of those that "
                     "are not sealed) where rank %u seals the engine whose first parameter is \"%.63s\" (number %llu): seal "
                     "engines in the same order on every rank",
                     first->name, (unsigned long long)first->older + 1, rank, other->name,
                     (unsigned long long)other->older + 1);
        ZOFF_FAIL_IF(is_same && other->same != first->same, ZOFF_ERR_COMM,
                     "zoff_engine_seal: rank 0 seals engine number %llu and rank %u engine number %llu of those with the same "
                     "parameters (the first is \"%.63s\") that are not sealed: create and seal them in the same order on every "
                     "rank, or tell them apart by the names of their parameters (zoff_param_desc.name)",
                     (unsigned long long)first->same + 1, rank, (unsigned long long)other->same + 1, first->name);
        out->id = other->id > out->id ? other->id : out->id;
        out->slots |= other->slots;
    }
    ZOFF_FAIL_IF(comm->has_slots && out->slots == UINT64_MAX, ZOFF_ERR_UNSUPPORTED,
                 "zoff_engine_seal: %d engines on one communicator \"%s\" are the most that it serves at a time; open another "
                 "communicator",
                 ZOFF_COMM_SLOTS - 1, comm->ops->name);
    return ZOFF_OK;
}

/* The records of all ranks, in their order. */
static zoff_status gather(zoff_comm *comm, record *all)
{
    size_t *bytes;
    zoff_comm_work work = {.active = false};
    ZOFF_TRY(zoff_base_mem_alloc(comm->size, sizeof *bytes, "what ranks must agree on", &bytes));
    for (unsigned rank = 0; rank < comm->size; rank++)
        bytes[rank] = sizeof *all;
    const zoff_comm_call call = {.kind = ZOFF_COMM_GATHER,
                                 .item = {.about = ZOFF_COMM_ABOUT_CHANNEL},
                                 .in = &all[comm->rank],
                                 .out = all,
                                 .receive_bytes = bytes};
    zoff_status status = zoff_comm_start(comm, &call, &work);
    if (status == ZOFF_OK)
        status = zoff_comm_wait(comm, &work);
    zoff_base_mem_free(bytes);
    return status;
}

/* With the lock. */
static void join(zoff_comm *comm, zoff_comm_channel *channel, const record *agreed)
{
    book *b = comm->book;
    b->last = channel->id = (uint32_t)agreed->id;
    channel->slot = (uint32_t)(agreed->slots == UINT64_MAX ? ZOFF_COMM_SLOTS : __builtin_ctzll(~agreed->slots));
    if (channel->slot < ZOFF_COMM_SLOTS)
        b->slots |= (uint64_t)1 << channel->slot;
    channel->is_open = true;
    take_out(&b->come, channel);
    put_in(&b->open, channel);
    b->open_count++;
    comm->ops->join_channel(comm, channel);
}

/* A rank without memory says so, rather than let the others wait. */
zoff_status zoff_comm_channel_open(zoff_comm *comm, zoff_comm_channel *channel)
{
    record *all = NULL, agreed = {.id = 0};
    zoff_kept_error kept;
    zoff_comm_lock(comm);
    zoff_status own = comm->ops->open_channel(comm, channel);
    zoff_comm_unlock(comm);
    zoff_base_status_keep(&kept);
    zoff_status status = zoff_base_mem_alloc(comm->size, sizeof *all, "what ranks must agree on", &all);
    if (status == ZOFF_OK) {
        zoff_comm_lock(comm);
        describe(comm, channel, &all[comm->rank]);
        zoff_comm_unlock(comm);
        all[comm->rank].status = own;
        status = gather(comm, all);
        if (status == ZOFF_OK && own >= 0)
            status = judge(comm, all, &agreed);
    }
    zoff_comm_lock(comm);
    if (status == ZOFF_OK && own >= 0)
        join(comm, channel, &agreed);
    else if (own >= 0)
        comm->ops->close_channel(comm, channel);
    zoff_comm_unlock(comm);
    zoff_base_mem_free(all);
    if (own < 0)
        zoff_base_status_restore(&kept);
    return own < 0 ? own : status;
}

void zoff_comm_channel_close(zoff_comm *comm, zoff_comm_channel *channel)
{
    book *b = comm->book;
    zoff_comm_lock(comm);
    if (channel->is_open) {
        comm->ops->close_channel(comm, channel);
        take_out(&b->open, channel);
        put_in(&b->come, channel);
        b->open_count--;
        if (channel->slot < ZOFF_COMM_SLOTS)
            b->slots &= ~((uint64_t)1 << channel->slot);
        channel->is_open = false;
        channel->id = 0;
        memset(channel->started, 0, sizeof channel->started);
    }
    zoff_comm_unlock(comm);
}

/* ---- calls that wait ---- */

/* FNV-1a over all that ranks compare of a call, going on from those before it. */
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
    book *b = comm->book;
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
        b->is_told = false;
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
    book *b = comm->book;
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
    book *b = comm->book;
    b->chain = b->visits[b->done % VISITS].before;
    b->done--;
    zoff_comm_unlock(comm);
}

void zoff_comm_heard(zoff_comm *comm, unsigned rank, const zoff_comm_visit *visits, unsigned count)
{
    comm->book->theirs[rank].count = count;
    memcpy(comm->book->theirs[rank].visits, visits, count * sizeof *visits);
    comm->book->has_unseen = true;
}

unsigned zoff_comm_get_visits(const zoff_comm *comm, zoff_comm_visit *out, unsigned most)
{
    const book *b = comm->book;
    if (!b || !b->depth) /* while ranks join there is no book yet */
        return 0;
    const uint64_t last = b->done + 1, count = last < most ? last : most;
    for (uint64_t i = 0; i < count; i++)
        out[i] = b->visits[(last - count + 1 + i) % VISITS];
    return (unsigned)count;
}

static bool are_same(const zoff_comm_visit *a, const zoff_comm_visit *b)
{
    return a->channel == b->channel && (a->call & 0xff) == (b->call & 0xff) && a->item.about == b->item.about &&
           a->item.param == b->item.param && a->item.index == b->item.index && a->item.extra == b->item.extra;
}

static const char ADVICE[] = "calls that wait for other ranks must be made in the same order on every rank, also those of "
                             "different engines";

/* A call of another rank, which is not that of this one under the same number. */
static zoff_status name_both(const zoff_comm *comm, unsigned rank, const zoff_comm_visit *theirs, bool is_last,
                             const zoff_comm_visit *ours, bool is_now)
{
    char their_call[512], our_call[512];
    zoff_comm_names_visit(comm, theirs, their_call, sizeof their_call);
    zoff_comm_names_visit(comm, ours, our_call, sizeof our_call);
    return zoff_base_status_fail(ZOFF_ERR_COMM, "rank %u %s %s where rank %u %s %s: %s", rank, is_last ? "waits in" : "called",
                                 their_call, comm->rank, is_now ? "waits in" : "called", our_call, ADVICE);
}

/* A call that fails on every rank fails on one of them first. That rank may be in its next call already, under the same number.
 */
static bool has_failed_on_one(const zoff_comm_visit *ours, bool is_now, const zoff_comm_visit *theirs, bool is_last)
{
    return (is_now && chain_of(ours) == theirs->failed) || (is_last && chain_of(theirs) == ours->failed);
}

/* What another rank has told, with what this one did under those numbers; or does. The first that differs is named, where it is
 * among them. */
static zoff_status compare(const zoff_comm *comm, unsigned rank, const zoff_comm_visit *now, bool may_fail, bool *out_failed)
{
    const book *b = comm->book;
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

static zoff_status tell(zoff_comm *comm)
{
    zoff_comm_visit visits[ZOFF_COMM_VISITS_TOLD];
    const unsigned count = zoff_comm_get_visits(comm, visits, ZOFF_COMM_VISITS_TOLD);
    return comm->ops->tell(comm, visits, count);
}

zoff_status zoff_comm_watch(zoff_comm *comm, double now)
{
    book *b = comm->book;
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
    if (b->is_told || now - b->since < patience)
        return ZOFF_OK;
    b->is_told = true;
    return tell(comm);
}

void zoff_comm_describe_visit_of(const zoff_comm *comm, unsigned rank, char *dst, size_t dst_bytes)
{
    const book *b = comm->book;
    const struct told *t = &b->theirs[rank];
    char call[512];
    dst[0] = 0;
    if (!t->count || t->visits[t->count - 1].number <= b->done)
        return;
    zoff_comm_names_visit(comm, &t->visits[t->count - 1], call, sizeof call);
    snprintf(dst, dst_bytes, "; rank %u waits in %s", rank, call);
}
