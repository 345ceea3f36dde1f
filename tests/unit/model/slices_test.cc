/* SPDX-License-Identifier: Apache-2.0 */
// slices_test.cc: the buckets of each slice, as the plan cuts them.
#include "allocation_fault.h"
#include "small_model.h"

using namespace zoff_test;

namespace
{
class Slices : public testing::Test
{
  protected:
    void open() { ASSERT_ZOFF_OK(zoff_model_slices_open(&parts.m, &parts.plan)); }
    std::pair<uint32_t, uint32_t> buckets_of(size_t number) const
    {
        return {parts.m.slice_buckets[number].first, parts.m.slice_buckets[number].last};
    }
    small_model parts;
};

using buckets = std::pair<uint32_t, uint32_t>;

// Chunks of 64 elements, cut at multiples of 16. The first has 40 of slice 0 and 24 of slice 1, the second 24 of slice 1 and 40
// of slice 2.
TEST_F(Slices, KnowTheirFirstAndLastBucket)
{
    parts.add(describe("a", 40, 3));
    parts.add(describe("b", 200));
    parts.make_plan(64);
    ASSERT_NO_FATAL_FAILURE(open());
    EXPECT_EQ(buckets(0, 0), buckets_of(0));
    EXPECT_EQ(buckets(0, 1), buckets_of(1));
    EXPECT_EQ(buckets(1, 1), buckets_of(2)) << "24 and 40 elements fill a chunk";
    EXPECT_EQ(buckets(2, 5), buckets_of(3));
    for (size_t i = 0; i < 4; i++) {
        EXPECT_EQ(0, parts.m.flags[i]);
        EXPECT_TRUE(zoff_model_slices_has(&parts.m, i));
    }
}

TEST_F(Slices, WithoutElementsInThePlanAreInNone)
{
    zoff_param_desc d = describe("frozen", 40, 2);
    d.frozen = true;
    parts.add(d);
    parts.add(describe("empty", 0));
    d.engine_owned = true;
    parts.add(d);
    parts.make_plan(64);
    ASSERT_NO_FATAL_FAILURE(open());
    for (size_t i = 0; i < 3; i++) {
        EXPECT_EQ(buckets(UINT32_MAX, UINT32_MAX), buckets_of(i));
        EXPECT_FALSE(zoff_model_slices_has(&parts.m, i));
    }
    EXPECT_EQ(buckets(0, 0), buckets_of(3)) << "its weights are the engine's";
    EXPECT_TRUE(zoff_model_slices_has(&parts.m, 4));
}

// A rank knows the buckets of slices of which it owns nothing.
TEST_F(Slices, AreInTheSameBucketsOnEveryRank)
{
    parts.add(describe("a", 40, 9));
    std::vector<buckets> first;
    for (unsigned rank = 0; rank < 3; rank++) {
        parts.make_plan(32, rank, 3);
        ASSERT_NO_FATAL_FAILURE(open());
        ASSERT_LT(parts.plan.piece_count, parts.plan.run_count);
        std::vector<buckets> all;
        for (size_t i = 0; i < 9; i++)
            all.push_back(buckets_of(i));
        zoff_model_slices_close(&parts.m);
        EXPECT_EQ(nullptr, parts.m.flags);
        if (rank == 0)
            first = all;
        EXPECT_EQ(first, all);
        EXPECT_EQ(0u, all.front().first);
        EXPECT_EQ(parts.plan.chunk_count - 1, all.back().second);
    }
}

TEST_F(Slices, WithoutMemoryAreClosedAndOpenedAgain)
{
    parts.add(describe("a", 40, 3));
    parts.make_plan(64);
    const int failures = fail_each_allocation([&] {
        const zoff_status status = zoff_model_slices_open(&parts.m, &parts.plan);
        EXPECT_EQ(allocations_left >= 0 ? ZOFF_OK : ZOFF_ERR_NO_MEMORY, status) << zoff_last_error();
        zoff_model_slices_close(&parts.m);
    });
    EXPECT_EQ(3, failures); // flags, list of gradients, buckets
    ASSERT_NO_FATAL_FAILURE(open());
    EXPECT_EQ(buckets(0, 1), buckets_of(1));
}
} // namespace
