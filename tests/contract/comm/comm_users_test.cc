/* SPDX-License-Identifier: Apache-2.0 */
// comm_users_test.cc: several users of one communicator: separate channels, the item of an operation, and calls in which ranks
// wait for each other.
#include "ranks.h"

#include <chrono>
#include <random>
#include <thread>

using namespace zoff_test;

namespace
{
// Registers a user of the communicator, named by its number.
void come_as(zoff_comm *comm, unsigned number, zoff_comm_channel *channel)
{
    snprintf(channel->name, sizeof channel->name, "user%u", number);
    channel->hash = number;
    zoff_comm_channel_come(comm, channel);
}

// Opens numbered users of a communicator; the destructor leaves their channels. sum() adds one scalar over the ranks for one of
// them. The memory of the sum lives as long as the channels, because other ranks may still use it after it has failed here.
struct users {
    users(zoff_comm *comm_, unsigned count) : comm(comm_), channels(count)
    {
        for (unsigned i = 0; i < count; i++) {
            come_as(comm, i, &channels[i]);
            EXPECT_ZOFF_OK(zoff_comm_channel_open(comm, &channels[i]));
        }
    }
    ~users()
    {
        for (auto &channel : channels)
            zoff_comm_channel_leave(comm, &channel);
    }
    zoff_status sum(unsigned user)
    {
        zoff_comm_call call = {};
        call.kind = ZOFF_COMM_SUM;
        call.channel = &channels[user];
        call.out = &x;
        call.count = 1;
        const zoff_status status = zoff_comm_start(comm, &call, &work);
        return status < 0 ? status : zoff_comm_wait(comm, &work);
    }
    zoff_comm *comm;
    std::vector<zoff_comm_channel> channels;
    double x = 1;
    zoff_comm_work work = {};
};

// Three users share one communicator. A rank may start their operations in any order, if each stream of each user keeps its
// order.
TEST_P(Several, ChannelsAreIndependentOfOneAnother)
{
    on_each([&](zoff_comm *comm, unsigned rank) {
        enum { CHANNELS = 3, EACH = 4, ALL = CHANNELS * ZOFF_COMM_GROUP };
        zoff_comm_channel channels[CHANNELS] = {};
        double sums[ALL][EACH];
        zoff_comm_work works[ALL][EACH] = {};
        unsigned next[ALL] = {};
        for (auto &channel : channels) {
            zoff_comm_channel_come(comm, &channel);
            ASSERT_ZOFF_OK(zoff_comm_channel_open(comm, &channel));
        }
        EXPECT_TRUE(channels[0].id < channels[1].id && channels[1].id < channels[2].id);
        std::mt19937 random(rank); // a different order on each rank
        for (unsigned done = 0; done < ALL * EACH;) {
            const unsigned at = random() % ALL, k = next[at];
            if (k == EACH)
                continue;
            sums[at][k] = at * 100 + k + rank;
            zoff_comm_call call = {};
            call.kind = ZOFF_COMM_SUM;
            call.stream = (zoff_comm_stream)(at % ZOFF_COMM_GROUP);
            call.channel = &channels[at / ZOFF_COMM_GROUP];
            call.out = &sums[at][k];
            call.count = 1;
            EXPECT_ZOFF_OK(zoff_comm_start(comm, &call, &works[at][k]));
            next[at]++;
            done++;
        }
        for (unsigned i = 0; i < ALL * EACH; i++) {
            const unsigned at = i / EACH, k = i % EACH;
            EXPECT_ZOFF_OK(zoff_comm_wait(comm, &works[at][k]));
            EXPECT_EQ(size * (at * 100 + k) + size * (size - 1) / 2, sums[at][k]);
        }
        for (auto &channel : channels)
            zoff_comm_channel_leave(comm, &channel);
        EXPECT_ZOFF_OK(run_barrier(comm));
    });
}

// The ranks gather the same kind and number of bytes, but for another slice.
TEST_P(Several, AnotherItemIsNamed)
{
    on_each([&](zoff_comm *comm, unsigned rank) {
        double x = 1;
        zoff_comm_channel channel = {};
        snprintf(channel.name, sizeof channel.name, "user");
        channel.param_name = [](const void *, uint32_t param) { return param == 3 ? "layer3" : "layer4"; };
        zoff_comm_channel_come(comm, &channel);
        EXPECT_ZOFF_OK(zoff_comm_channel_open(comm, &channel));
        meet(); // otherwise the message of the first rank to notice could arrive before the rest of channel_open
        zoff_comm_call call = {};
        call.kind = ZOFF_COMM_SUM;
        call.channel = &channel;
        call.item = {ZOFF_COMM_ABOUT_SLICE, rank == 1 ? 4u : 3u, 2, ZOFF_COMM_ALL};
        call.out = &x;
        call.count = 1;
        zoff_comm_work work = {};
        EXPECT_ZOFF_OK(zoff_comm_start(comm, &call, &work));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, "slice 2 of layer3", zoff_comm_wait(comm, &work));
        EXPECT_NE(std::string::npos, std::string(zoff_last_error()).find("slice 2 of layer4")) << zoff_last_error();
        EXPECT_NE(std::string::npos, std::string(zoff_last_error()).find("engine 1 (\"user\")")) << zoff_last_error();
        zoff_comm_channel_leave(comm, &channel);
    });
}

// Ranks open the channels of two users in different orders. The error names the users.
TEST_P(Several, ChannelsOfOtherUsersAreNamed)
{
    on_each([&](zoff_comm *comm, unsigned rank) {
        zoff_comm_channel channels[2] = {};
        for (unsigned i = 0; i < 2; i++)
            come_as(comm, i, &channels[i]);
        EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, "rank 0 seals the engine whose first parameter is \"user0\"",
                          zoff_comm_channel_open(comm, &channels[rank == 1]));
        EXPECT_NE(std::string::npos, std::string(zoff_last_error()).find("Rank 1 seals")) << zoff_last_error();
        for (auto &channel : channels) // the channels still work
            EXPECT_ZOFF_OK(zoff_comm_channel_open(comm, &channel));
        for (auto &channel : channels)
            zoff_comm_channel_leave(comm, &channel);
    });
}

// A call that fails on every rank fails on one rank first. That rank may already be in its next call when it hears from the
// others.
TEST_P(Several, ACallThatFailedElsewhereIsNoOtherCall)
{
    on_each([&](zoff_comm *comm, unsigned rank) {
        double x = 1;
        zoff_comm_channel channel = {};
        snprintf(channel.name, sizeof channel.name, "user");
        zoff_comm_channel_come(comm, &channel);
        ASSERT_ZOFF_OK(zoff_comm_channel_open(comm, &channel));
        meet();
        zoff_comm_enter(comm, &channel, ZOFF_COMM_IN_STEP_WAIT, {ZOFF_COMM_ABOUT_NOTHING, 0, 0, 0});
        if (rank == 1) {
            zoff_comm_exit(comm, false);
            zoff_comm_enter(comm, &channel, ZOFF_COMM_IN_DROP, {ZOFF_COMM_ABOUT_NOTHING, 0, 0, 0});
        }
        if (rank == 0) // wait longer than the others do before they report their call
            std::this_thread::sleep_for(std::chrono::milliseconds(300));
        zoff_comm_work work = {};
        EXPECT_ZOFF_OK(zoff_comm_sum_scalars(comm, &x, 1, &work));
        EXPECT_ZOFF_OK(zoff_comm_wait(comm, &work));
        zoff_comm_exit(comm, false);
        zoff_comm_channel_leave(comm, &channel);
    });
}

// The call failed on one rank only. The others would wait forever for an operation that this rank does not start.
TEST_P(Several, ACallThatFailedOnOneRankOnlyIsNamed)
{
    const double deadline = 3;
    ASSERT_NO_FATAL_FAILURE(open(deadline));
    on_each([&](zoff_comm *comm, unsigned rank) {
        users two(comm, 2);
        meet();
        zoff_comm_enter(comm, &two.channels[0], ZOFF_COMM_IN_STEP_WAIT, {ZOFF_COMM_ABOUT_NOTHING, 0, 0, 0});
        if (rank == 1) {
            zoff_comm_exit(comm, false);
            zoff_comm_enter(comm, &two.channels[0], ZOFF_COMM_IN_DROP, {ZOFF_COMM_ABOUT_NOTHING, 0, 0, 0});
        }
        const auto from = std::chrono::steady_clock::now();
        EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, "zoff_grads_drop()", two.sum(rank == 1));
        EXPECT_NE(std::string::npos, std::string(zoff_last_error()).find("zoff_step_wait()")) << zoff_last_error();
        EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count(), deadline);
        zoff_comm_exit(comm, false);
    });
}

// The missing rank waits in another call. The error of the other ranks names that call.
TEST_P(Several, WhereAMissingRankWaitsIsNamed)
{
    const double deadline = 1.5;
    ASSERT_NO_FATAL_FAILURE(open(deadline));
    on_each([&](zoff_comm *comm, unsigned rank) {
        users two(comm, 2);
        meet();
        if (rank == 1) {
            zoff_comm_enter(comm, &two.channels[1], ZOFF_COMM_IN_STEP_WAIT, {ZOFF_COMM_ABOUT_NOTHING, 0, 0, 0});
            std::this_thread::sleep_for(std::chrono::milliseconds(500)); // wait, so that the others are the first to give up
        }
        EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, tells_who() ? "; rank 1 waits in zoff_step_wait()" : "did not arrive",
                          two.sum(rank == 1));
        if (rank == 1)
            zoff_comm_exit(comm, false);
    });
}

// An operation of a channel that another rank has left can never complete. The error names that rank and the rank that reports
// it.
TEST_P(Several, ARankThatLeavesAChannelIsNamed)
{
    const double deadline = tells_who() ? 3 : 1; // a communicator that does not name ranks fails at its deadline
    ASSERT_NO_FATAL_FAILURE(open(deadline));
    on_each([&](zoff_comm *comm, unsigned rank) {
        users one(comm, 1);
        meet();
        if (rank != 1) {
            EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, tells_who() ? "rank 1 has destroyed engine 1 (\"user0\")" : "did not arrive",
                              one.sum(0));
            if (size == 2) { // another rank may report the loss first if there are more
                EXPECT_EQ(0u, std::string(zoff_last_error()).find("rank 0: ")) << zoff_last_error();
            }
        }
    });
}

// The calls differed so long ago that no rank reports them any more. Each call carries a digest of all calls before it.
TEST_P(Several, CallsThatDifferedLongAgoAreNoticed)
{
    const double deadline = 3;
    ASSERT_NO_FATAL_FAILURE(open(deadline));
    on_each([&](zoff_comm *comm, unsigned rank) {
        enum { CALLS = 2 * ZOFF_COMM_VISITS_TOLD };
        users two(comm, 2);
        meet();
        for (unsigned i = 0; i < CALLS; i++) {
            const unsigned call = i == 0 && rank == 1 ? ZOFF_COMM_IN_DROP : ZOFF_COMM_IN_STEP_WAIT;
            zoff_comm_enter(comm, &two.channels[0], call, {ZOFF_COMM_ABOUT_NOTHING, 0, 0, 0});
            zoff_comm_exit(comm, true);
        }
        zoff_comm_enter(comm, &two.channels[0], ZOFF_COMM_IN_STEP_WAIT, {ZOFF_COMM_ABOUT_NOTHING, 0, 0, 0});
        EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, " have made different calls before zoff_step_wait()", two.sum(rank == 1));
        if (size == 2) {
            const std::string words = zoff_last_error();
            EXPECT_TRUE(words.find("ranks 0 and 1") != std::string::npos || words.find("ranks 1 and 0") != std::string::npos)
                << words;
        }
        zoff_comm_exit(comm, false);
    });
}
} // namespace
