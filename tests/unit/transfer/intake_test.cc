// intake_test.cc: a complete gradient of a slice is packed. Gradients of parameters that share their weights are added first,
// in fp32, in the order of registration.
#include "allocation_fault.h"
#include "small_transfer.h"

using namespace zoff_test;

namespace
{
TEST(IntakeTake, MarksTheSliceThatHasStarted)
{
    small_transfer self;
    self.add(40, 2, ZOFF_F32, ZOFF_F32, false, false);
    ASSERT_NO_FATAL_FAILURE(self.open(16));
    char *at;
    ASSERT_ZOFF_OK(zoff_transfer_intake_lend(&self.t, self.t.route.lent, 1, 160, &at));
    self.flag(0, 1) = ZOFF_SLICE_PRESENT;
    ASSERT_ZOFF_OK(zoff_transfer_intake_take(&self.t, 0, 1, nullptr));
    EXPECT_EQ(ZOFF_SLICE_PRESENT | ZOFF_SLICE_READY, self.flag(0, 1));
    EXPECT_EQ(0, self.flag(0, 0));
    EXPECT_EQ(3u, self.t.grads.slots[1].waits_for) << "buckets that take their part";
}

TEST(IntakeTake, DoesNotMarkWhatCannotStart)
{
    small_transfer self;
    self.add(40);
    ASSERT_NO_FATAL_FAILURE(self.open(16));
    zoff_link broken = zoff_transfer_route_in_place;
    broken.take = [](zoff_transfer *, zoff_param, size_t, void *) { return zoff_base_status_fail(ZOFF_ERR_DEVICE, "gone"); };
    self.t.route.link = &broken;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_DEVICE, "gone", zoff_transfer_intake_take(&self.t, 0, 0, nullptr));
    EXPECT_EQ(0, self.flag(0));
    self.t.route.link = &zoff_transfer_route_in_place;
}

// Three names for one parameter of two slices. The second name's gradients are lent by the engine.
class Intake : public testing::Test
{
  protected:
    void SetUp() override
    {
        self.add(33, 2, ZOFF_F32, ZOFF_BF16);
        for (const zoff_dtype dtype : {ZOFF_F32, ZOFF_F16}) {
            zoff_param_desc d = describe("again", 33, 2);
            d.value = self.param(0).value;
            d.value_stride = d.grad_stride = 36;
            d.grad_dtype = dtype;
            d.grad = dtype == ZOFF_F32 ? nullptr : self.make_memory(400);
            self.parts.add(d);
        }
        self.add(10);
        given = self.param(0).grad;
        ASSERT_ZOFF_OK(zoff_model_ties_find(&self.parts.m));
        ASSERT_NO_FATAL_FAILURE(self.open(16));
    }
    // The program's gradient of a name.
    void make(size_t p, size_t slice)
    {
        zoff_dtype dtype;
        char *at = zoff_model_params_given_grad(&self.parts.m, (zoff_param)p, slice, &dtype);
        if (p == 1) {
            dtype = ZOFF_F32;
            ASSERT_ZOFF_OK(zoff_transfer_intake_lend(&self.t, self.t.route.lent, self.number_of(p, slice), 132, &at));
        }
        for (size_t k = 0; k < 33; k++)
            put(dtype, at, k, number(0, p, slice, k, 0));
    }
    zoff_status take(size_t p, size_t slice) { return zoff_transfer_intake_take_tied(&self.t, (zoff_param)p, slice, nullptr); }
    // The owner's gradient is the sum of these, in this order.
    void expect_sum(size_t slice, const std::vector<size_t> &names)
    {
        const zoff_dtype dtypes[] = {ZOFF_BF16, ZOFF_F32, ZOFF_F16};
        EXPECT_TRUE(self.flag(0, slice) & ZOFF_SLICE_READY);
        EXPECT_EQ(ZOFF_F32, self.param(0).grad_dtype);
        for (size_t k = 0; k < 33; k++) {
            float sum = 0;
            for (size_t i = 0; i < names.size(); i++) {
                const float g = reference::rounded(dtypes[names[i]], number(0, names[i], slice, k, 0));
                sum = i ? sum + g : g;
            }
            EXPECT_EQ(sum, get(ZOFF_F32, self.param(0).grad + slice * self.param(0).grad_stride, k)) << "element " << k;
        }
    }
    small_transfer self;
    char *given = nullptr;
};

TEST_F(Intake, AddsUpWhenAllNamesHaveTheirs)
{
    for (const size_t p : {2, 0, 1})
        ASSERT_NO_FATAL_FAILURE(make(p, 1));
    ASSERT_ZOFF_OK(take(2, 1));
    ASSERT_ZOFF_OK(take(1, 1));
    EXPECT_EQ(ZOFF_SLICE_GIVEN, self.flag(1, 1));
    EXPECT_EQ(0, self.flag(0, 1)) << "the others may still come";
    EXPECT_NE(nullptr, zoff_transfer_arena_at(&self.t.grads, self.number_of(1, 1)));
    ASSERT_ZOFF_OK(take(0, 1));
    expect_sum(1, {0, 1, 2});
    EXPECT_EQ(0, self.flag(0, 0)) << "that is another slice";
    EXPECT_EQ(nullptr, zoff_transfer_arena_at(&self.t.grads, self.number_of(1, 1))) << "it is in the sum";
    const uint64_t before = self.t.batch.early.write_bytes;
    ASSERT_ZOFF_OK(zoff_transfer_intake_settle(&self.t, false));
    EXPECT_EQ(before, self.t.batch.early.write_bytes) << "once";
}

TEST_F(Intake, AddsUpWhatHasComeWhenTheStepBegins)
{
    for (const size_t p : {0, 1, 2})
        ASSERT_NO_FATAL_FAILURE(make(p, 0));
    ASSERT_ZOFF_OK(take(2, 0));
    ASSERT_ZOFF_OK(take(1, 0));
    ASSERT_ZOFF_OK(zoff_transfer_intake_settle(&self.t, false));
    expect_sum(0, {1, 2});
    EXPECT_EQ(0, self.flag(0, 1)) << "nobody has anything of it";
    const uint64_t before = self.t.batch.early.write_bytes;
    ASSERT_ZOFF_OK(zoff_transfer_intake_settle(&self.t, false));
    EXPECT_EQ(before, self.t.batch.early.write_bytes) << "once";
}

// The program calls for a step without declaring any gradient ready: it means all of them.
TEST_F(Intake, TakesWhatNobodyHasHandedOver)
{
    for (const size_t slice : {0, 1}) {
        ASSERT_NO_FATAL_FAILURE(make(0, slice));
        ASSERT_NO_FATAL_FAILURE(make(2, slice));
    }
    ASSERT_NO_FATAL_FAILURE(make(1, 1));
    ASSERT_ZOFF_OK(take(0, 1));
    ASSERT_ZOFF_OK(zoff_transfer_intake_settle(&self.t, true));
    expect_sum(0, {0, 2});
    expect_sum(1, {0, 1, 2});
    const uint64_t before = self.t.batch.early.write_bytes;
    ASSERT_ZOFF_OK(zoff_transfer_intake_settle(&self.t, true));
    EXPECT_EQ(before, self.t.batch.early.write_bytes) << "once";
}

TEST_F(Intake, CountsABufferThatTwoNamesShareOnce)
{
    ASSERT_NO_FATAL_FAILURE(make(0, 0));
    zoff_model_ties_bind(&self.parts.m, 2, self.param(0).value, given);
    self.parts.m.params[2].grad_dtype = ZOFF_BF16;
    ASSERT_ZOFF_OK(take(2, 0));
    ASSERT_ZOFF_OK(take(0, 0));
    ASSERT_ZOFF_OK(zoff_transfer_intake_settle(&self.t, false));
    expect_sum(0, {0});
}

TEST_F(Intake, CanBeTriedAgainWhereTheSumFails)
{
    for (const size_t p : {0, 1, 2})
        ASSERT_NO_FATAL_FAILURE(make(p, 0));
    zoff_link broken = zoff_transfer_route_in_place;
    broken.sums.add = [](zoff_transfer *, const zoff_accumulate_piece *) {
        return zoff_base_status_fail(ZOFF_ERR_DEVICE, "gone");
    };
    ASSERT_ZOFF_OK(take(0, 0));
    ASSERT_ZOFF_OK(take(1, 0));
    self.t.route.link = &broken;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_DEVICE, "gone", take(2, 0));
    self.t.route.link = &zoff_transfer_route_in_place;
    EXPECT_EQ(0, self.flag(2, 0)) << "it is the program's again";
    EXPECT_EQ(ZOFF_SLICE_GIVEN, self.flag(1, 0));
    ASSERT_ZOFF_OK(take(2, 0));
    expect_sum(0, {0, 1, 2});
}

TEST_F(Intake, GivesTheNamesTheirGradientsBackInTheEnd)
{
    EXPECT_NE(given, self.param(0).grad) << "it has the sum's";
    EXPECT_EQ(self.t.accumulator.tied.host.base, self.param(0).grad);
    zoff_transfer_intake_close(&self.t);
    EXPECT_EQ(nullptr, self.t.accumulator.tied.host.base);
    EXPECT_EQ(given, self.param(0).grad);
    EXPECT_EQ(ZOFF_BF16, self.param(0).grad_dtype);
    EXPECT_EQ(0u, self.parts.m.ties.count);
}

TEST_F(Intake, SaysForWhatThereIsNoMemory)
{
    zoff_transfer_intake_close(&self.t);
    ASSERT_ZOFF_OK(zoff_model_ties_find(&self.parts.m));
    allocations_left = 0;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_MEMORY, "sums of the gradients of tied weights, ", zoff_transfer_intake_open(&self.t));
    allocations_left = -1;
    EXPECT_EQ(nullptr, self.t.accumulator.tied.host.base);
    ASSERT_ZOFF_OK(zoff_transfer_intake_open(&self.t));
}

TEST(IntakeOpen, ReservesNothingWhereNothingIsTied)
{
    small_transfer self;
    self.add(40);
    ASSERT_NO_FATAL_FAILURE(self.open(16));
    EXPECT_EQ(nullptr, self.t.accumulator.tied.host.base);
    EXPECT_ZOFF_OK(zoff_transfer_intake_settle(&self.t, true));
    EXPECT_EQ(0, self.flag(0));
}
} // namespace
