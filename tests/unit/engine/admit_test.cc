// admit_test.cc: which buckets of the walk may borrow, by the slots of the stores and by the chunks that stay in DRAM.
#include "small_engine.h"

extern "C" {
#include "engine_priv.h"
}

using namespace zoff_test;

namespace
{
class Admit : public testing::Test
{
  protected:
    Admit() : t(1) { t.add(10000, 2, ZOFF_BF16, ZOFF_BF16); }

    // Twenty buckets, of which this many stay in DRAM.
    void seal_with_residents(size_t residents)
    {
        const zoff_plan_info plan = plan_of(make_engine(t, config_text(folder.path), 1024).get());
        e = seal_engine(t, config_text(folder.path), 1024, residents ? (3 + residents) * plan.chunk_bytes : 0);
        ASSERT_LE(20u, e->plan.chunk_count);
        const zoff_planning planning = zoff_engine_planning(e.get());
        ASSERT_EQ(residents, zoff_planning_budget_states(&planning, &e->plan));
    }

    // The rule, implemented again: buckets from `first` on, until the next one would need a slot too many.
    size_t until(size_t first, unsigned slots) const
    {
        unsigned taken = 0;
        for (size_t i = first; i < e->plan.chunk_count; i++) {
            taken += !zoff_offload_store_resident(e->store, i);
            if (taken > slots)
                return i;
        }
        return e->plan.chunk_count;
    }

    log_catcher log;
    scratch_folder folder;
    trainer t;
    engine e;
};

TEST_F(Admit, AsManyBorrowAsThereAreSlots)
{
    for (size_t residents : {size_t{0}, size_t{1}, size_t{7}, size_t{19}}) {
        ASSERT_NO_FATAL_FAILURE(seal_with_residents(residents));
        const unsigned slots_before = e->settings.values.slots;
        for (unsigned slots : {1u, 2u, 5u, 100u}) {
            e->settings.values.slots = slots;
            for (size_t first = 0; first <= e->plan.chunk_count; first++)
                EXPECT_EQ(until(first, slots), zoff_engine_admit_until(e.get(), first))
                    << slots << " slots, " << residents << " residents, from " << first;
        }
        e->settings.values.slots = slots_before;
    }
}

TEST_F(Admit, OnlyBucketsThatTakeASlotAreStreamed)
{
    ASSERT_NO_FATAL_FAILURE(seal_with_residents(7));
    ASSERT_EQ(e->plan.chunk_count - 7, e->walk.streamed_count);
    for (size_t k = 0; k < e->walk.streamed_count; k++) {
        EXPECT_FALSE(zoff_offload_store_resident(e->store, e->walk.streamed[k]));
        EXPECT_TRUE(k == 0 || e->walk.streamed[k - 1] < e->walk.streamed[k]) << "ascending";
    }
}

// States in DRAM need no slot, so no bucket waits for another. Ranks keep to one order.
TEST_F(Admit, InDramAllAtOnceOrOneAfterTheOther)
{
    e = seal_engine(t, config_text(""), 1024);
    const size_t count = e->plan.chunk_count;
    EXPECT_EQ(0u, e->walk.streamed_count);
    EXPECT_EQ(count, zoff_engine_admit_until(e.get(), 0));
    EXPECT_EQ(count, zoff_engine_admit_until(e.get(), count));
    e->walk.any_order = false;
    EXPECT_EQ(1u, zoff_engine_admit_until(e.get(), 0));
    EXPECT_EQ(count, zoff_engine_admit_until(e.get(), count - 1));
    EXPECT_EQ(count, zoff_engine_admit_until(e.get(), count));
}

// Weights on NVMe have slots of their own. A bucket needs one of each kind, so the smaller number counts.
TEST_F(Admit, WeightsHaveSlotsOfTheirOwn)
{
    t.give_away(0);
    e = seal_engine(t, with_offloaded_weights(config_text(folder.path), folder.path), 1024);
    ASSERT_EQ(3u, e->settings.values.slots);
    ASSERT_EQ(2u, e->settings.values.weights.slots);
    EXPECT_EQ(2u, zoff_engine_admit_until(e.get(), 0));
    EXPECT_EQ(7u, zoff_engine_admit_until(e.get(), 5));
}

TEST_F(Admit, BucketsWithoutGradientBorrowNothing)
{
    t.add(10000, 1, ZOFF_BF16, ZOFF_BF16);
    e = seal_engine(t, config_text(""), 1024);
    ASSERT_ZOFF_OK(zoff_grad_ready(e.get(), 1, 0, nullptr));
    ASSERT_ZOFF_OK(zoff_step_begin(e.get(), nullptr));
    zoff_bucket_run *first = &e->transfer.walk.runs[0], *last = &e->transfer.walk.runs[e->plan.chunk_count - 1];
    EXPECT_FALSE(zoff_engine_admit_needs_states(e.get(), first));
    EXPECT_TRUE(zoff_engine_admit_needs_states(e.get(), last));
    ASSERT_ZOFF_OK(zoff_engine_admit_borrow(e.get(), first));
    EXPECT_EQ(nullptr, first->states.base);
    ASSERT_ZOFF_OK(zoff_engine_admit_borrow(e.get(), last));
    EXPECT_NE(nullptr, last->states.base);
    EXPECT_TRUE(zoff_engine_admit_reaches(e.get(), last));
    e->walk.any_order = false;
    EXPECT_FALSE(zoff_engine_admit_reaches(e.get(), last)) << "its turn comes later";
    EXPECT_TRUE(zoff_engine_admit_reaches(e.get(), first));
    ASSERT_ZOFF_OK(zoff_step_wait(e.get(), nullptr));
}

// Between steps the slots hold the first buckets of the next one. A step that does not need them gives their slots to others.
TEST_F(Admit, ChunksReadAheadAndNotNeededAreDropped)
{
    t.add(10000, 1, ZOFF_BF16, ZOFF_BF16);
    e = seal_engine(t, config_text(folder.path), 1024);
    zoff_store_stats before, after;
    zoff_engine_stores_stats(e.get(), &before);
    t.backward(1, 0, 0.1f);
    ASSERT_ZOFF_OK(zoff_grad_ready(e.get(), 1, 0, nullptr));
    ASSERT_ZOFF_OK(zoff_step_begin(e.get(), nullptr));
    zoff_engine_stores_stats(e.get(), &after);
    EXPECT_EQ(before.read_bytes, after.read_bytes) << "no bucket that may borrow now has a gradient";
    auto info = new_info();
    ASSERT_ZOFF_OK(zoff_step_wait(e.get(), &info));
    reference::step(t.tensors, config_groups(), 1, 1, 1, 0);
    EXPECT_EQ(10000u, info.numbers.elements_updated);
    ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get()));
}
} // namespace
