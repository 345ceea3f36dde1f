// sum_places_test.cc: where gradients are packed and added up: on the host, or on the device.
#include "device_transfer.h"

using namespace zoff_test;

namespace
{
const zoff_sum_place &HOST = zoff_transfer_sum_places_host, &DEVICE = zoff_transfer_sum_places_device;

TEST(SumPlacesHost, IsTheMemoryThatTheCpuReads)
{
    each_rank<small_transfer>(2, [](small_transfer &self, unsigned) {
        self.add(100, 1, ZOFF_F32, ZOFF_BF16);
        ASSERT_NO_FATAL_FAILURE(self.open(64));
        EXPECT_STREQ("host", HOST.name);
        EXPECT_EQ(self.t.ranks.staging.base, HOST.slots(&self.t));
        for (const zoff_plan_piece &piece : self.pieces()) {
            EXPECT_EQ(self.param(0).grad + 2 * piece.first, HOST.gradient(&self.t, &piece));
            EXPECT_EQ((float *)self.t.accumulator.map.base + piece.owned_offset, HOST.sum(&self.t, &piece));
        }
        char bytes[] = "abcdef";
        ASSERT_ZOFF_OK(HOST.zero(&self.t, bytes + 1, 3));
        EXPECT_EQ(std::string("a\0\0\0ef", 6), std::string(bytes, 6));
        float copy[1] = {5};
        EXPECT_EQ(bytes, HOST.look(&self.t, bytes, 1, ZOFF_F32, copy)) << "there is nothing to copy";
        EXPECT_EQ(5.0f, copy[0]);
    });
}

class SumPlacesDevice : public testing::Test
{
  protected:
    void SetUp() override
    {
        self.add(100, 2, ZOFF_F32, ZOFF_BF16);
        ASSERT_NO_FATAL_FAILURE(self.open(64));
    }
    device_transfer self;
};

TEST_F(SumPlacesDevice, IsMemoryOfTheDevice)
{
    EXPECT_STREQ("device", DEVICE.name);
    float sums[1];
    char slots[1];
    self.t.device.direct.sums = sums;
    self.t.device.direct.slots = slots;
    EXPECT_EQ(slots, DEVICE.slots(&self.t));
    for (const zoff_plan_piece &piece : self.pieces()) {
        EXPECT_EQ(self.param(0).grad + piece.slice * self.param(0).grad_stride + 2 * piece.first,
                  DEVICE.gradient(&self.t, &piece));
        EXPECT_EQ(sums + piece.owned_offset, DEVICE.sum(&self.t, &piece));
    }
    self.t.device.direct.sums = nullptr;
    self.t.device.direct.slots = nullptr;
}

// In the stream of what is computed: what is put there behind it finds zeros.
TEST_F(SumPlacesDevice, ZeroesInItsStream)
{
    char *there = self.there->alloc(100);
    memset(there, 'x', 100);
    ASSERT_NO_FATAL_FAILURE(self.hold(self.t.device.compute));
    ASSERT_ZOFF_OK(DEVICE.zero(&self.t, there + 10, 50));
    EXPECT_EQ(std::string(100, 'x'), std::string(there, 100)) << "the stream stands still";
    self.let_go = true;
    ASSERT_NO_FATAL_FAILURE(self.settle(self.t.device.compute));
    EXPECT_EQ(std::string(10, 'x') + std::string(50, 0) + std::string(40, 'x'), std::string(there, 100));
}

TEST_F(SumPlacesDevice, LooksAtACopy)
{
    char *there = self.there->alloc(200);
    for (size_t k = 0; k < 100; k++)
        put(ZOFF_BF16, there, k, (float)k);
    float copy[ZOFF_NORM_BLOCK] = {};
    copy[5] = 7;
    ASSERT_EQ(copy, DEVICE.look(&self.t, there + 20, 10, ZOFF_BF16, copy));
    for (size_t k = 0; k < 10; k++)
        EXPECT_EQ((float)(k + 10), get(ZOFF_BF16, (char *)copy, k));
    EXPECT_EQ(7.0f, copy[5]) << "no more than it was asked for";
    self.device.fail = self.device.calls + 1;
    EXPECT_EQ(nullptr, DEVICE.look(&self.t, there, 10, ZOFF_BF16, copy));
}
} // namespace
