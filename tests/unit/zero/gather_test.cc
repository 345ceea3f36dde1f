/* SPDX-License-Identifier: Apache-2.0 */
// gather_test.cc: items go to all ranks in one order, whenever their parts become available. A slot is in use until its item
// has ended.
#include "memory_fault.h"
#include "thread_ranks.h"

#include <map>

extern "C" {
#include "gather.h"
#include "try.h"
}

using namespace zoff_test;

namespace
{
enum { RANKS = 3 };
using list = std::vector<size_t>;

// One rank's end of a gather. Item i has size_of(i, r) bytes of rank r, each of them value_of(i, r).
struct member {
    member(zoff_comm *comm_, unsigned slots) : comm(comm_), memory(slots)
    {
        zoff_gather_opts opts = {};
        opts.comm = comm;
        opts.stream = ZOFF_COMM_WEIGHTS;
        opts.slots = slots;
        EXPECT_ZOFF_OK(zoff_zero_gather_open(&opts, &gather));
    }
    ~member() { zoff_zero_gather_close(gather); }
    member(const member &) = delete;

    // No rank has a part of item 4; only rank 1 has one of item 5.
    static size_t size_of(size_t item, unsigned rank)
    {
        return item == 4 ? 0 : item == 5 ? (rank == 1 ? 100 : 0) : 3000 * item + rank;
    }
    static char value_of(size_t item, unsigned rank) { return (char)(10 * item + rank + 1); }

    zoff_status start(size_t item)
    {
        zoff_gather_slot *slot = zoff_zero_gather_free(gather);
        if (!slot)
            return ZOFF_PENDING;
        slot->item = item;
        slot->about = {ZOFF_COMM_ABOUT_WEIGHTS, 0, item, 0};
        for (unsigned rank = 0; rank < RANKS; rank++)
            slot->bytes[rank] = size_of(item, rank);
        if (!zoff_zero_gather_take(gather, slot))
            return end(item, slot->number, nullptr);
        (void)send(slot);
        return ZOFF_OK;
    }
    zoff_status send(zoff_gather_slot *slot)
    {
        zoff_status status = begin(slot->item, slot->number, &slot->parts);
        status = status == ZOFF_OK ? zoff_zero_gather_send(gather, slot) : status;
        if (status == ZOFF_OK)
            started.push_back(slot->item);
        return status;
    }
    zoff_status poll()
    {
        zoff_status all = ZOFF_OK;
        for (zoff_gather_slot *slot = nullptr; (slot = zoff_zero_gather_next(gather, slot));) {
            zoff_status status = slot->is_sent ? ZOFF_OK : send(slot);
            status = status == ZOFF_OK ? zoff_zero_gather_poll(gather, slot) : status;
            status = status == ZOFF_OK ? end(slot->item, slot->number, slot->parts) : status;
            if (status < 0)
                return status;
            if (status == ZOFF_OK)
                zoff_zero_gather_end(slot);
            all = status == ZOFF_PENDING ? status : all;
        }
        return all;
    }
    bool has_room() const { return zoff_zero_gather_free(gather); }
    zoff_status begin(size_t item, unsigned slot, char **out)
    {
        begun.push_back(item);
        if (not_begun.count(item))
            return not_begun[item];
        size_t before = 0, all = 0;
        for (unsigned rank = 0; rank < RANKS; rank++) {
            before += rank < comm->rank ? size_of(item, rank) : 0;
            all += size_of(item, rank);
        }
        memory[slot].resize(all);
        std::fill_n(memory[slot].data() + before, size_of(item, comm->rank), value_of(item, comm->rank));
        *out = memory[slot].data();
        return ZOFF_OK;
    }
    zoff_status end(size_t item, unsigned slot, const char *parts)
    {
        asked.push_back(item);
        if (not_ended.count(item))
            return not_ended[item];
        ended.push_back(item);
        EXPECT_EQ(item == 4, parts == nullptr) << "nobody has a part of item 4";
        for (unsigned rank = 0; parts && rank < RANKS; rank++) {
            for (size_t i = 0; i < size_of(item, rank); i++)
                EXPECT_EQ(value_of(item, rank), *parts++) << "item " << item << ", rank " << rank << ", byte " << i;
        }
        EXPECT_TRUE(!parts || parts == memory[slot].data() + memory[slot].size());
        return ZOFF_OK;
    }

    zoff_comm *comm;
    zoff_gather *gather = nullptr;
    std::vector<std::vector<char>> memory;              // memory of the slots
    std::map<size_t, zoff_status> not_begun, not_ended; // results of begin or end for these items
    list begun, started, asked, ended;
};

class Gather : public testing::Test
{
  protected:
    void open(unsigned slots)
    {
        for (unsigned rank = 0; rank < RANKS; rank++)
            members.push_back(std::make_unique<member>(ranks[rank], slots));
    }
    void start(size_t item)
    {
        for (auto &m : members)
            ASSERT_ZOFF_OK(m->start(item));
    }
    // Poll all ranks until no more can be done.
    std::vector<zoff_status> poll()
    {
        std::vector<zoff_status> last(RANKS);
        for (int turn = 0; turn < 20; turn++) {
            for (unsigned rank = 0; rank < RANKS; rank++)
                last[rank] = members[rank]->poll();
        }
        return last;
    }
    thread_ranks ranks{RANKS};
    std::vector<std::unique_ptr<member>> members; // destroyed before the ranks
};
const std::vector<zoff_status> DONE(RANKS, ZOFF_OK), WAITING(RANKS, ZOFF_PENDING);
} // namespace

TEST_F(Gather, PartsOfAllRanksComeInTheirOrder)
{
    open(2);
    EXPECT_EQ(DONE, poll()) << "nothing is in flight";
    uint64_t sent[RANKS] = {};
    for (const size_t item : {0, 1, 2, 5}) {
        start(item);
        EXPECT_EQ(DONE, poll()) << item;
        for (unsigned rank = 0; rank < RANKS; rank++) {
            sent[rank] += (RANKS - 1) * member::size_of(item, rank);
            EXPECT_EQ(item, members[rank]->ended.back());
            EXPECT_EQ(sent[rank], zoff_zero_gather_sent_bytes(members[rank]->gather));
        }
    }
    EXPECT_EQ(0u, zoff_zero_gather_sent_bytes(nullptr));
}

TEST_F(Gather, AnItemThatNobodyHasEndsAtOnce)
{
    open(1);
    start(1);
    EXPECT_EQ(DONE, poll());
    start(4);
    for (auto &m : members) {
        EXPECT_EQ((list{1, 4}), m->ended);
        EXPECT_EQ((list{1}), m->begun);
        EXPECT_TRUE(m->has_room());
    }
    members[0]->not_ended[4] = zoff_base_status_fail(ZOFF_ERR_IO, "no end");
    EXPECT_EQ(ZOFF_ERR_IO, members[0]->start(4)) << "its error is that of the start";
}

TEST_F(Gather, WithoutAFreeSlotAnItemIsAskedForAgain)
{
    open(2);
    start(1);
    start(2);
    for (auto &m : members) {
        EXPECT_FALSE(m->has_room());
        EXPECT_EQ(ZOFF_PENDING, m->start(5));
        EXPECT_EQ((list{1, 2}), m->begun);
    }
    EXPECT_EQ(DONE, poll());
    start(5);
    EXPECT_EQ(DONE, poll());
    for (auto &m : members)
        EXPECT_EQ((list{1, 2, 5}), m->ended);
}

// On rank 1, item 1 is available after item 2; no rank starts them in another order.
TEST_F(Gather, ItemsStartInTheOrderInWhichTheyWereTaken)
{
    open(3);
    members[1]->not_begun[1] = ZOFF_PENDING;
    start(1);
    start(2);
    EXPECT_EQ(WAITING, poll());
    EXPECT_EQ((list{}), members[1]->started);
    EXPECT_LT(1, std::count(members[1]->begun.begin(), members[1]->begun.end(), 1u)) << "it is asked again";
    members[1]->not_begun.clear();
    EXPECT_EQ(DONE, poll());
    for (auto &m : members)
        EXPECT_EQ((list{1, 2}), m->started);
}

TEST_F(Gather, AnErrorOfABeginComesFromThePollUntilItIsOver)
{
    open(1);
    members[2]->not_begun[1] = zoff_base_status_fail(ZOFF_ERR_IO, "no part");
    start(1);
    for (int again = 0; again < 2; again++)
        EXPECT_EQ(ZOFF_ERR_IO, members[2]->poll());
    members[2]->not_begun.clear();
    EXPECT_EQ(DONE, poll());
}

TEST_F(Gather, ASlotIsInUseUntilItsItemHasEnded)
{
    open(1);
    members[0]->not_ended[1] = ZOFF_PENDING;
    start(1);
    EXPECT_EQ((std::vector<zoff_status>{ZOFF_PENDING, ZOFF_OK, ZOFF_OK}), poll());
    EXPECT_FALSE(members[0]->has_room());
    EXPECT_LT(1u, members[0]->asked.size());
    members[0]->not_ended[1] = ZOFF_ERR_IO;
    EXPECT_EQ(ZOFF_ERR_IO, members[0]->poll());
    EXPECT_FALSE(members[0]->has_room());
    members[0]->not_ended.clear();
    EXPECT_EQ(ZOFF_OK, members[0]->poll());
    EXPECT_EQ((list{1}), members[0]->ended);
}

TEST_F(Gather, APumpEndsNothing)
{
    open(1);
    start(1);
    for (int turn = 0; turn < 20; turn++) {
        for (auto &m : members)
            zoff_zero_gather_pump(m->gather);
    }
    for (unsigned rank = 0; rank < RANKS; rank++) {
        EXPECT_EQ((list{}), members[rank]->asked);
        EXPECT_EQ(1u, ranks[rank]->info.operations) << "but what is in flight has gone on";
    }
    EXPECT_EQ(DONE, poll());
}

TEST_F(Gather, ClosingAbandonsOperationsInFlight)
{
    open(1);
    zoff_zero_gather_close(nullptr);
    start(1);
    members[0].reset();
    EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, "rank 0 has left the group with an operation in flight", members[1]->poll());
    EXPECT_EQ((list{}), members[1]->ended);
}

TEST_F(Gather, WithoutMemoryNoneIsOpened)
{
    zoff_gather_opts opts = {};
    opts.comm = ranks[0];
    opts.slots = 2;
    EXPECT_EQ(3, fail_each_allocation([&] {
                  zoff_gather *made = nullptr;
                  const zoff_status status = zoff_zero_gather_open(&opts, &made);
                  zoff_zero_gather_close(made);
                  return status;
              }));
    EXPECT_FALSE(zoff_comm_is_broken(ranks[0]));
}
