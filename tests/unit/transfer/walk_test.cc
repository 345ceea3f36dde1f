// walk_test.cc: a step visits each bucket once, in an order that depends on where states and gradients are.
#include "device_transfer.h"

#include <pthread.h>

using namespace zoff_test;

namespace
{
std::vector<size_t> walk(const small_transfer &self)
{
    std::vector<size_t> order;
    for (size_t position = 0; position < self.parts.plan.chunk_count; position++) {
        order.push_back(zoff_transfer_walk_bucket(&self.t, position));
        EXPECT_EQ(position, zoff_transfer_walk_position(&self.t, order.back()));
    }
    return order;
}

using order = std::vector<size_t>;

// The next step, after one in which gradients came from one bucket to another.
void begin(small_transfer &self, size_t first, size_t last, bool reads_ahead = false)
{
    self.t.device.first_bucket = first;
    self.t.device.last_bucket = last;
    zoff_transfer_walk_begin(&self.t, reads_ahead);
    EXPECT_EQ(SIZE_MAX, self.t.device.first_bucket) << "none has come yet";
}

TEST(Walk, AscendsOnTheHost)
{
    small_transfer self;
    self.add(80);
    ASSERT_NO_FATAL_FAILURE(self.open(16));
    EXPECT_EQ((order{0, 1, 2, 3, 4}), walk(self));
    EXPECT_EQ(5u, zoff_transfer_walk_host_count(&self.t));
    begin(self, 4, 0);
    EXPECT_EQ((order{0, 1, 2, 3, 4}), walk(self));
}

// Gradients of the last layers come first.
TEST(Walk, DescendsOverADeviceUnlessTheTrainerAscends)
{
    device_transfer self;
    self.add(80);
    ASSERT_NO_FATAL_FAILURE(self.open(16));
    EXPECT_EQ((order{4, 3, 2, 1, 0}), walk(self)) << "before the first step";
    begin(self, 0, 4);
    EXPECT_EQ((order{0, 1, 2, 3, 4}), walk(self));
    begin(self, 4, 0);
    EXPECT_EQ((order{4, 3, 2, 1, 0}), walk(self));
    begin(self, 0, 4, true);
    EXPECT_EQ((order{4, 3, 2, 1, 0}), walk(self)) << "files were read ahead in this order";
}

TEST(Walk, EndsWithTheBucketsOfTheDevice)
{
    device_transfer self;
    self.add(80);
    ASSERT_NO_FATAL_FAILURE(self.open(16));
    self.t.device.tier.count = 2;
    EXPECT_EQ(3u, zoff_transfer_walk_host_count(&self.t));
    EXPECT_EQ((order{4, 3, 2, 0, 1}), walk(self));
    begin(self, 0, 4);
    EXPECT_EQ((order{2, 3, 4, 0, 1}), walk(self));
    self.t.device.tier.count = 5;
    EXPECT_EQ(0u, zoff_transfer_walk_host_count(&self.t));
    EXPECT_EQ((order{0, 1, 2, 3, 4}), walk(self));
    begin(self, 4, 0);
    EXPECT_EQ((order{0, 1, 2, 3, 4}), walk(self));
    self.t.device.tier.count = 0;
}

// Ranks send updated weights in this order.
TEST(Walk, SeveralRanksWalkInAscendingOrder)
{
    each_rank<device_transfer>(2, [](device_transfer &self, unsigned) {
        self.add(160);
        ASSERT_NO_FATAL_FAILURE(self.open(16));
        ASSERT_EQ(5u, self.parts.plan.chunk_count);
        EXPECT_EQ((order{0, 1, 2, 3, 4}), walk(self));
        begin(self, 4, 0);
        EXPECT_EQ((order{0, 1, 2, 3, 4}), walk(self));
        self.t.device.tier.count = 1;
        EXPECT_EQ((order{1, 2, 3, 4, 0}), walk(self));
        self.t.device.tier.count = 0;
    });
}

// The program's uses of one step, in descending order.
void use_all(small_transfer &self)
{
    const size_t count = self.parts.plan.chunk_count;
    for (size_t b = 0; b < count; b++)
        self.t.walk.runs[b] = {};
    zoff_transfer_walk_begin(&self.t, false);
    for (size_t b = count; b-- > 0;)
        zoff_transfer_walk_use(&self.t, {(uint32_t)b, (uint32_t)b});
}

TEST(Walk, LearnsTheOrderOfUses)
{
    small_transfer self;
    self.add(80);
    ASSERT_NO_FATAL_FAILURE(self.open(16));
    EXPECT_FALSE(zoff_transfer_walk_learn(&self.t)) << "without uses";
    zoff_transfer_walk_use(&self.t, {3, 4});
    zoff_transfer_walk_use(&self.t, {2, 3});
    EXPECT_TRUE(zoff_transfer_walk_learn(&self.t));
    EXPECT_EQ((order{3, 4, 2, 0, 1}), walk(self));
    use_all(self);
    EXPECT_TRUE(zoff_transfer_walk_learn(&self.t));
    EXPECT_EQ((order{4, 3, 2, 1, 0}), walk(self));
    use_all(self);
    EXPECT_FALSE(zoff_transfer_walk_learn(&self.t)) << "the same again";
}

// An order takes three votes. All ranks change it in the same step, also when one of them has missed a vote.
TEST(Walk, SeveralRanksLearnFromTheVotesOfTheFirst)
{
    enum { RANKS = 2, STEPS = 12, MISSED = 2 };
    zoff_vote votes[RANKS] = {};
    order walks[RANKS];
    size_t changed_in = 0;
    pthread_barrier_t together;
    pthread_barrier_init(&together, nullptr, RANKS);
    each_rank<small_transfer>(RANKS, [&](small_transfer &self, unsigned rank) {
        self.add(RANKS * 16 * (2 * ZOFF_WALK_NEWS + 6));
        self.open(16);
        EXPECT_EQ(2u * ZOFF_WALK_NEWS + 6, self.parts.plan.chunk_count);
        for (size_t step = 1; step <= STEPS; step++) {
            use_all(self);
            zoff_transfer_walk_tell(&self.t, &votes[rank].order);
            pthread_barrier_wait(&together);
            if (step != MISSED || rank == 0)
                zoff_transfer_walk_hear(&self.t, votes);
            const bool changed = zoff_transfer_walk_learn(&self.t);
            walks[rank] = walk(self);
            pthread_barrier_wait(&together);
            EXPECT_EQ(walks[0], walks[1]) << "step " << step;
            changed_in = rank == 0 && changed ? step : changed_in;
            pthread_barrier_wait(&together);
        }
        EXPECT_EQ(self.parts.plan.chunk_count - 1, walks[rank][0]);
    });
    pthread_barrier_destroy(&together);
    EXPECT_LE((size_t)MISSED + 3, changed_in) << "the order was told anew";
    EXPECT_GT((size_t)STEPS, changed_in);
}
} // namespace
