/* SPDX-License-Identifier: Apache-2.0 */
/* channels.c: gives each engine on a communicator a channel of its own.
 *
 *      registered --- all ranks have compared the engine, and agreed on an id ---> open --- closed: the id is never reused
 *
 * Operations of different channels never match each other, in whatever order they start. */
#include "book_priv.h"

#include "mem.h"
#include "try.h"

#include <string.h>

bool zoff_comm_channel_is_shared(zoff_comm *comm)
{
    zoff_comm_lock(comm);
    const bool is = comm->book->open_count > 1;
    zoff_comm_unlock(comm);
    return is;
}

/* Insert a channel in order of registration. A channel that is closed after a failed seal goes back to its old place. */
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

/* The data that ranks compare when they open a channel. */
typedef struct record {
    int64_t status;
    uint64_t id, slots;
    uint64_t hash;
    uint64_t older, same; /* engines registered earlier and not open: all of them, and those with the same hash */
    char name[sizeof((zoff_comm_channel *)0)->name];
} record;

static void describe(zoff_comm *comm, const zoff_comm_channel *channel, record *out)
{
    const zoff_comm_book *b = comm->book;
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
                     "zoff_engine_seal: rank %u has failed, and this one has not: see the message of that rank for the cause",
                     rank);
        const bool is_same = other->hash == first->hash;
        ZOFF_FAIL_IF(
            !is_same && other->older != first->older, ZOFF_ERR_COMM,
            "zoff_engine_seal: rank 0 seals the engine whose first parameter is \"%.63s\" (number %llu of the unsealed "
            "ones). Rank %u seals the engine whose first parameter is \"%.63s\" (number %llu). Seal engines in the "
            "same order on every rank",
            first->name, (unsigned long long)first->older + 1, rank, other->name, (unsigned long long)other->older + 1);
        ZOFF_FAIL_IF(is_same && other->same != first->same, ZOFF_ERR_COMM,
                     "zoff_engine_seal: rank 0 seals engine number %llu and rank %u seals engine number %llu of the unsealed "
                     "ones with the same parameters (the first is \"%.63s\"). Create and seal engines in the same order on "
                     "every rank, or give their parameters different names (zoff_param_desc.name)",
                     (unsigned long long)first->same + 1, rank, (unsigned long long)other->same + 1, first->name);
        out->id = other->id > out->id ? other->id : out->id;
        out->slots |= other->slots;
    }
    ZOFF_FAIL_IF(comm->has_slots && out->slots == UINT64_MAX, ZOFF_ERR_UNSUPPORTED,
                 "zoff_engine_seal: %d engines on one communicator \"%s\" are the most at a time; open another communicator",
                 ZOFF_COMM_SLOTS - 1, comm->info.backend);
    return ZOFF_OK;
}

/* Collect the records of all ranks, in rank order. */
static zoff_status gather(zoff_comm *comm, record *all)
{
    zoff_comm_work work = {.active = false};
    const zoff_comm_call call = {.kind = ZOFF_COMM_GATHER,
                                 .item = {.about = ZOFF_COMM_ABOUT_CHANNEL},
                                 .in = &all[comm->rank],
                                 .out = all,
                                 .count = sizeof *all};
    ZOFF_TRY(zoff_comm_start(comm, &call, &work));
    return zoff_comm_wait(comm, &work);
}

/* With the lock: give the channel the agreed id and the lowest free slot, and open it. */
static void join(zoff_comm *comm, zoff_comm_channel *channel, const record *agreed)
{
    zoff_comm_book *b = comm->book;
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

/* A rank that runs out of memory still takes part in the gather and reports its error, so that the others do not wait for it.
 */
zoff_status zoff_comm_channel_open(zoff_comm *comm, zoff_comm_channel *channel)
{
    record *all = NULL, agreed = {.id = 0};
    zoff_saved_error saved;
    zoff_comm_lock(comm);
    zoff_status own = comm->ops->open_channel(comm, channel);
    zoff_comm_unlock(comm);
    zoff_base_status_save(&saved);
    zoff_status status = zoff_base_mem_alloc(comm->size, sizeof *all, "the values that ranks compare", &all);
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
        zoff_base_status_restore(&saved);
    return own < 0 ? own : status;
}

void zoff_comm_channel_close(zoff_comm *comm, zoff_comm_channel *channel)
{
    zoff_comm_book *b = comm->book;
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
