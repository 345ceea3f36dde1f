/* SPDX-License-Identifier: Apache-2.0 */
// channels_test.cc: users of a communicator: their ids and slots, the order of their arrival, and a channel that one rank
// cannot open.
#include "comm_fault.h"
#include "memory_fault.h"
#include "thread_ranks.h"

extern "C" {
#include "book_priv.h"
#include "try.h"
}

using namespace zoff_test;

namespace
{
// A user that arrives; its name is its parameters' hash, too.
struct user {
    user(zoff_comm *comm_, uint64_t hash) : comm(comm_)
    {
        channel.hash = hash;
        snprintf(channel.name, sizeof channel.name, "layer%llu", (unsigned long long)hash);
        zoff_comm_channel_come(comm, &channel);
    }
    ~user() { zoff_comm_channel_leave(comm, &channel); }
    user(const user &) = delete;
    zoff_status open() { return zoff_comm_channel_open(comm, &channel); }
    void close() { zoff_comm_channel_close(comm, &channel); }
    zoff_comm *comm;
    zoff_comm_channel channel = {};
};
} // namespace

TEST(CommChannels, AnIdIsGivenOnceAndASlotAgain)
{
    const thread_ranks ranks(1);
    user first(ranks[0], 1), second(ranks[0], 2);
    ASSERT_ZOFF_OK(first.open());
    ASSERT_ZOFF_OK(second.open());
    EXPECT_EQ(1u, first.channel.id);
    EXPECT_EQ(2u, second.channel.id);
    EXPECT_EQ(1u, first.channel.slot) << "slot 0 is the communicator's own";
    EXPECT_EQ(2u, second.channel.slot);
    EXPECT_TRUE(zoff_comm_channel_is_shared(ranks[0]));
    first.channel.started[ZOFF_COMM_REDUCE] = 5;
    first.close();
    EXPECT_FALSE(first.channel.is_open);
    EXPECT_EQ(0u, first.channel.id);
    EXPECT_FALSE(zoff_comm_channel_is_shared(ranks[0]));
    ASSERT_ZOFF_OK(first.open());
    EXPECT_EQ(3u, first.channel.id);
    EXPECT_EQ(1u, first.channel.slot);
    EXPECT_EQ(0u, first.channel.started[ZOFF_COMM_REDUCE]) << "operations are counted from the start";
    first.close();
    first.close();
    EXPECT_FALSE(zoff_comm_channel_is_shared(ranks[0])) << "the second close does nothing";
}

TEST(CommChannels, UsersThatHaveNotJoinedMayLeave)
{
    const thread_ranks ranks(1);
    zoff_comm_channel never = {};
    zoff_comm_channel_leave(ranks[0], &never);
    zoff_comm_channel_come(ranks[0], &never);
    zoff_comm_channel_leave(ranks[0], &never);
    zoff_comm_channel_leave(ranks[0], &never);
    EXPECT_EQ(nullptr, ranks[0]->book->come);
}

// The order of arrival distinguishes users with the same parameters.
TEST(CommChannels, UsersWithTheSameParametersOpenInTheOrderOfTheirComing)
{
    const thread_ranks ranks(2);
    ranks.on_each([](zoff_comm *comm, unsigned rank) {
        user other(comm, 1), first(comm, 7), second(comm, 7);
        const char *words = "rank 0 seals engine number 1 and rank 1 seals engine number 2 of the unsealed ones with the same "
                            "parameters (the first is \"layer7\")";
        EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, words, (rank ? second : first).open());
        EXPECT_FALSE(first.channel.is_open || second.channel.is_open);
        ASSERT_ZOFF_OK(first.open());
        ASSERT_ZOFF_OK(second.open());
        // A channel that was closed comes before those that were opened after it.
        first.close();
        second.close();
        EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, words, (rank ? second : first).open());
        ASSERT_ZOFF_OK(first.open());
    });
}

TEST(CommChannels, AnotherOrderOfUsersIsNamed)
{
    const thread_ranks ranks(2);
    ranks.on_each([](zoff_comm *comm, unsigned rank) {
        user first(comm, 1), second(comm, 2);
        static thread_local int closed;
        passing_comm_fault count(comm);
        count.ops.close_channel = [](zoff_comm *of, zoff_comm_channel *channel) {
            closed++;
            reinterpret_cast<const comm_fault *>(of->ops)->real->close_channel(of, channel);
        };
        EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM,
                          "rank 0 seals the engine whose first parameter is \"layer1\" (number 1 of the unsealed ones). "
                          "Rank 1 seals the engine whose first parameter is \"layer2\" (number 2",
                          (rank ? second : first).open());
        ASSERT_ZOFF_OK(second.open());
        EXPECT_EQ(1u, second.channel.id) << "a refusal takes no id";
        EXPECT_EQ(1, closed) << "and leaves nothing open at the back-end";
    });
}

// A channel that rank 1 cannot open is open on no rank, and every rank can open it later.
TEST(CommChannels, ARankThatCannotOpenOneTellsTheOthers)
{
    const thread_ranks ranks(2);
    ranks.on_each([](zoff_comm *comm, unsigned rank) {
        user one(comm, 1);
        {
            passing_comm_fault fault(comm);
            if (rank == 1)
                fault.ops.open_channel = [](zoff_comm *, zoff_comm_channel *) {
                    return zoff_base_status_fail(ZOFF_ERR_NO_MEMORY, "no memory for a channel");
                };
            const zoff_status status = one.open();
            EXPECT_EQ(rank ? ZOFF_ERR_NO_MEMORY : ZOFF_ERR_COMM, status);
            EXPECT_NE(nullptr,
                      strstr(zoff_last_error(), rank ? "no memory for a channel" : "rank 1 has failed, and this one has not"))
                << zoff_last_error();
        }
        EXPECT_FALSE(one.channel.is_open);
        EXPECT_ZOFF_OK(one.open());
    });
}

TEST(CommChannels, WithoutMemoryNothingIsOpen)
{
    const thread_ranks ranks(1);
    user one(ranks[0], 1);
    const int failed = fail_each_allocation([&] {
        const zoff_status status = one.open();
        EXPECT_EQ(status == ZOFF_OK, one.channel.is_open);
        return status;
    });
    EXPECT_LE(3, failed) << "the port, the records, and their sizes";
}

TEST(CommChannels, ACommunicatorWithSlotsServesSoManyEngines)
{
    const thread_ranks ranks(1);
    std::vector<std::unique_ptr<user>> users;
    ranks[0]->has_slots = true;
    for (unsigned i = 1; i < ZOFF_COMM_SLOTS; i++) {
        users.push_back(std::make_unique<user>(ranks[0], i));
        ASSERT_ZOFF_OK(users.back()->open());
        EXPECT_EQ(i, users.back()->channel.slot);
    }
    user more(ranks[0], 100);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "63 engines on one communicator \"threads\" are the most", more.open());
    users[40]->close();
    ASSERT_ZOFF_OK(more.open());
    EXPECT_EQ(41u, more.channel.slot) << "the one that is free";
    ranks[0]->has_slots = false;
    user without(ranks[0], 101);
    ASSERT_ZOFF_OK(without.open()) << "where slots are of no use, there may be more";
    EXPECT_EQ((uint32_t)ZOFF_COMM_SLOTS, without.channel.slot);
    without.close();
    users[0]->close();
    ASSERT_ZOFF_OK(users[0]->open());
    EXPECT_EQ(1u, users[0]->channel.slot);
}
