// homes_test.cc: where weights are stored, the memory that a plan counts for it, and what is borrowed from there.
#include "small_lending.h"

using namespace zoff_test;

namespace
{
zoff_plan_info planned(const small_lending &t, const zoff_weight_home &home)
{
    zoff_plan_info info = ZOFF_PLAN_INFO_INIT;
    const zoff_weight_sizes sizes = {100000, 30000, 2, t.parts.plan.most.chunk_weights};
    home.plan(&t.l, &sizes, &info);
    return info;
}

TEST(Homes, EachCountsItsMemory)
{
    small_lending t;
    t.add("w", 1000, 5);
    ASSERT_NO_FATAL_FAILURE(t.open_cache(1024));
    const uint64_t chunk = t.parts.plan.most.chunk_weights;
    EXPECT_EQ(100000u, planned(t, zoff_lending_homes_dram).weight_host_bytes);
    const zoff_plan_info files = planned(t, zoff_lending_homes_files), device = planned(t, zoff_lending_homes_device);
    EXPECT_EQ((t.l.slots + 2) * chunk, files.weight_host_bytes);
    EXPECT_EQ(70000u, files.weight_nvme_bytes);
    EXPECT_EQ(t.l.slots * chunk, device.weight_host_bytes);
    EXPECT_EQ(100000u, device.device_bytes);
}

// In DRAM nothing is held: chunks stay where they are.
TEST(Homes, ChunksInDramAreFoundWithoutHoldingThem)
{
    small_lending t;
    t.add("w", 1500, 3);
    ASSERT_NO_FATAL_FAILURE(t.open(1024));
    char *once = nullptr, *again = nullptr;
    EXPECT_ZOFF_OK(t.l.home->try_to_borrow(&t.l, 1, &once));
    EXPECT_ZOFF_OK(t.l.home->try_to_borrow(&t.l, 1, &again));
    EXPECT_EQ(once, again);
    EXPECT_FALSE(t.l.cache.held[0].is_used);
}

TEST(Homes, ChunksOfADeviceAreFoundInItsMemory)
{
    small_lending t;
    t.put_on_device(true);
    t.add("w", 1500, 3);
    ASSERT_NO_FATAL_FAILURE(t.open(1024));
    char *there = nullptr;
    EXPECT_ZOFF_OK(t.l.home->try_to_borrow(&t.l, 2, &there));
    EXPECT_EQ(zoff_offload_device_there(t.l.store, 2), there);
}
} // namespace
