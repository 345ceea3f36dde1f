// sum_places_test.cc: where gradients are packed and summed: on the host, or on the device.
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

// In the compute stream: work that is enqueued behind it finds zeros.
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

// A gradient that is used in place takes no memory, and its weight does not matter.
TEST(SumPlacesForm, GradientsUsedInPlaceTakeNothing)
{
    small_transfer self;
    self.add(100, 1, ZOFF_F32, ZOFF_BF16);
    ASSERT_NO_FATAL_FAILURE(self.open(64));
    const zoff_gradient_form &given = zoff_transfer_sum_places_given;
    ASSERT_EQ(&given, self.t.route.gradients);
    self.t.batch.weight = 3;
    EXPECT_EQ(ZOFF_BF16, given.dtype(&self.param(0)));
    EXPECT_EQ(0u, given.bytes(100) + given.device_sums(&self.t, 100));
    EXPECT_EQ(self.parts.plan.chunk_count, given.measured_there(&self.t, &self.parts.plan)) << "before anything comes down";
    EXPECT_EQ(1.0, given.weight(&self.t));
}

// Sums of buckets whose states stay on a device have memory of their own, unless all sums are there.
TEST(SumPlacesForm, SumsTakeFourBytesEach)
{
    small_transfer self;
    self.add(100, 1, ZOFF_F32, ZOFF_BF16);
    self.values.accumulation = 2;
    ASSERT_NO_FATAL_FAILURE(self.open(64));
    const zoff_gradient_form &summed = zoff_transfer_sum_places_summed;
    ASSERT_EQ(&summed, self.t.route.gradients);
    self.t.batch.weight = 3;
    EXPECT_EQ(ZOFF_F32, summed.dtype(&self.param(0)));
    EXPECT_EQ(400u, summed.bytes(100));
    EXPECT_EQ(400u, summed.device_sums(&self.t, 100));
    EXPECT_EQ(0u, DEVICE.device_sums_apart(100));
    EXPECT_EQ(0u, summed.measured_there(&self.t, &self.parts.plan)) << "no states stay on a device";
    self.values.ratio = 0;
    EXPECT_EQ(self.parts.plan.chunk_count, summed.measured_there(&self.t, &self.parts.plan));
    EXPECT_EQ(3.0, summed.weight(&self.t));
}

TEST(SumPlacesUse, GoesByWhereTheStatesAre)
{
    small_transfer self;
    self.add(100);
    self.values.accumulation = 2;
    ASSERT_NO_FATAL_FAILURE(self.open(64));
    ASSERT_LT(1u, self.parts.plan.chunk_count);
    float there[100];
    self.t.device.tier.count = 1;
    self.t.device.tier.sums = there;
    self.t.device.tier.use = self.t.route.place->tier_use(&self.t);
    const zoff_sum_use *first = zoff_transfer_use_of(&self.t, 0), *second = zoff_transfer_use_of(&self.t, 1);
    EXPECT_EQ(&zoff_transfer_sum_places_used_by_device, first);
    EXPECT_EQ(&zoff_transfer_sum_places_used_by_host, second);
    EXPECT_FALSE(first->comes_down);
    EXPECT_TRUE(second->comes_down);
    const zoff_plan_piece &piece = self.parts.plan.pieces[0];
    EXPECT_EQ(there + piece.owned_offset, first->sum(&self.t, &piece));
    EXPECT_EQ(zoff_transfer_pieces_sum(&self.t, &piece), second->sum(&self.t, &piece));
    self.t.device.tier.sums = nullptr;
    self.t.device.tier.count = 0;
}

// Gradients of several ranks are summed on the host, unless their communicator accesses the devices.
TEST(SumPlacesUse, GoesByWhereGradientsAreSummed)
{
    small_transfer self;
    self.add(100);
    self.values.accumulation = 2;
    ASSERT_NO_FATAL_FAILURE(self.open(64));
    self.values.ratio = 0;
    const zoff_plan &plan = self.parts.plan;
    EXPECT_EQ(&zoff_transfer_sum_places_used_by_device, DEVICE.tier_use(&self.t));
    EXPECT_EQ(plan.chunk_count, zoff_transfer_device_tier_kept(&self.t, &plan));
    self.t.route.place = &zoff_transfer_sum_places_host;
    const zoff_sum_use *use = self.t.route.place->tier_use(&self.t);
    EXPECT_EQ(&zoff_transfer_sum_places_used_from_host, use);
    EXPECT_TRUE(use->comes_down);
    EXPECT_EQ(zoff_transfer_pieces_sum(&self.t, &plan.pieces[0]), use->sum(&self.t, &plan.pieces[0]));
    EXPECT_EQ(0u, zoff_transfer_device_tier_kept(&self.t, &plan));
    EXPECT_EQ(0u, self.t.route.gradients->measured_there(&self.t, &plan));
}

// One rank: memory that the engine lends for a gradient is reused before the step.
TEST(SumPlacesUse, GoesByWhoseGradientMemoryItIs)
{
    for (const bool owned : {false, true}) {
        for (const bool lent : {false, true}) {
            small_transfer self;
            self.add(100);
            zoff_model_param &p = self.parts.m.params[0];
            p.engine_owned = owned;
            p.grad = lent ? nullptr : p.grad;
            EXPECT_EQ(lent ? &zoff_transfer_sum_places_used_from_host : &zoff_transfer_sum_places_used_by_device,
                      zoff_transfer_sum_places_alone.tier_use(&self.t));
        }
    }
}
} // namespace
