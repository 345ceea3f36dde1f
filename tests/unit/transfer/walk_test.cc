// walk_test.cc: a step visits each bucket once, in an order that depends on where states and gradients are.
#include "device_transfer.h"

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
} // namespace
