// walk_test.cc: a step goes over each bucket once, in an order that follows from where states and gradients are.
#include "accel_fault.h"
#include "small_transfer.h"

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

TEST(Walk, AscendsOnTheHost)
{
    small_transfer self;
    self.add(80);
    ASSERT_NO_FATAL_FAILURE(self.open_pieces(16));
    EXPECT_EQ((order{0, 1, 2, 3, 4}), walk(self));
    EXPECT_EQ(5u, zoff_transfer_walk_host_count(&self.t));
    self.t.device.ascends = true;
    EXPECT_EQ((order{0, 1, 2, 3, 4}), walk(self));
}

// Gradients of the last layers come down first.
TEST(Walk, DescendsOverADeviceUnlessTheTrainerAscends)
{
    test_device device;
    small_transfer self(nullptr, device.accel);
    self.add(80);
    ASSERT_NO_FATAL_FAILURE(self.open_pieces(16));
    EXPECT_EQ((order{4, 3, 2, 1, 0}), walk(self));
    self.t.device.ascends = true;
    EXPECT_EQ((order{0, 1, 2, 3, 4}), walk(self));
}

TEST(Walk, EndsWithTheBucketsOfTheDevice)
{
    test_device device;
    small_transfer self(nullptr, device.accel);
    self.add(80);
    ASSERT_NO_FATAL_FAILURE(self.open_pieces(16));
    self.t.device.tier.count = 2;
    EXPECT_EQ(3u, zoff_transfer_walk_host_count(&self.t));
    EXPECT_EQ((order{4, 3, 2, 0, 1}), walk(self));
    self.t.device.ascends = true;
    EXPECT_EQ((order{2, 3, 4, 0, 1}), walk(self));
    self.t.device.tier.count = 5;
    EXPECT_EQ(0u, zoff_transfer_walk_host_count(&self.t));
    EXPECT_EQ((order{0, 1, 2, 3, 4}), walk(self));
    self.t.device.ascends = false;
    EXPECT_EQ((order{0, 1, 2, 3, 4}), walk(self));
}

// They send what they have updated in this order.
TEST(Walk, OfSeveralRanksAscends)
{
    each_rank<small_transfer>(2, [](small_transfer &self, unsigned) {
        self.add(160);
        ASSERT_NO_FATAL_FAILURE(self.open_pieces(16));
        ASSERT_EQ(5u, self.parts.plan.chunk_count);
        test_device device;
        self.t.accel = device.accel;
        EXPECT_EQ((order{0, 1, 2, 3, 4}), walk(self));
        self.t.device.tier.count = 1;
        EXPECT_EQ((order{1, 2, 3, 4, 0}), walk(self));
        self.t.device.tier.count = 0;
        self.t.accel = self.host.get();
    });
}
} // namespace
