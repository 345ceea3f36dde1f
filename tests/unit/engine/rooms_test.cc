// rooms_test.cc: the objects that the rooms below borrow from an engine are the engine's own.
#include "on_tiers.h"

extern "C" {
#include "engine_priv.h"
}

using namespace zoff_test;

namespace
{
class Rooms : public on_tiers
{
  protected:
    Rooms() : t(1) { t.add(3000, 1, ZOFF_BF16, ZOFF_BF16); }
    trainer t;
};
INSTANTIATE_TEST_SUITE_P(Tiers, Rooms, testing::Bool(), tier_name);

TEST(RoomsConnect, EachContextBorrowsFieldsOfItsEngine)
{
    static zoff_engine e;
    zoff_engine_rooms_connect(&e);
    EXPECT_EQ(&e.settings.values, e.model.values);
    EXPECT_EQ(&e.model, e.lending.model);
    EXPECT_EQ(&e.plan, e.lending.plan);
    EXPECT_EQ(&e.settings.values.weights, e.lending.values);
    EXPECT_EQ(&e.channel, e.lending.channel);
    EXPECT_EQ(&e.progress, e.lending.progress);
    EXPECT_EQ(&e.io.weights, e.lending.pollers.reads);
    EXPECT_EQ(&e.transfer.pollers.ranks, e.lending.pollers.ranks);
    EXPECT_EQ(&e.model, e.transfer.model);
    EXPECT_EQ(&e.plan, e.transfer.plan);
    EXPECT_EQ(&e.lending, e.transfer.lending);
    EXPECT_EQ(&e.settings.values, e.transfer.values);
    EXPECT_EQ(&e.channel, e.transfer.channel);
    EXPECT_EQ(&e.progress, e.transfer.progress);
    EXPECT_EQ(&e.run.info, e.transfer.info);
    EXPECT_EQ(&e.model, e.agreement.model);
    EXPECT_EQ(&e.plan, e.agreement.plan);
    EXPECT_EQ(&e.channel, e.agreement.channel);
    EXPECT_EQ(&e.transfer, e.agreement.transfer);
}

TEST_P(Rooms, SurroundingsAreTheSameInAllOfThem)
{
    engine e = seal_engine(t, text(), 1024);
    EXPECT_EQ(e->comm, e->transfer.comm);
    EXPECT_EQ(e->comm, e->lending.comm);
    EXPECT_EQ(e->comm, e->agreement.comm);
    EXPECT_EQ(e->accel, e->transfer.accel);
    EXPECT_TRUE(e->model.in_place) << "the CPU reaches what is on the host";
    accel device;
    zoff_accel *made = nullptr;
    ASSERT_ZOFF_OK(zoff_accel_open("emulated", 0, &made));
    device.reset(made);
    trainer none(1);
    engine on_device = make_engine(none, text(), 0, 0, nullptr, made);
    EXPECT_EQ(made, on_device->transfer.accel);
    EXPECT_FALSE(on_device->model.in_place);
}
} // namespace
