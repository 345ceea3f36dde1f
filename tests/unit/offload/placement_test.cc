/* SPDX-License-Identifier: Apache-2.0 */
// placement_test.cc: which chunks stay in DRAM and how many, how folders share the states, and the size of chunks for a budget.
#include "zoff_test.h"

#include <numeric>
#include <set>

extern "C" {
#include "offload.h"
}

TEST(Placement, TheRestOfTheBudgetIsForResidents)
{
    const uint64_t MIB = 1 << 20;
    EXPECT_EQ(0u, zoff_offload_placement_residents(0, 4, 8 << 20, 100)) << "no budget";
    EXPECT_EQ(0u, zoff_offload_placement_residents(39 * MIB, 4, 8 << 20, 100)) << "four slots, and not a fifth chunk";
    EXPECT_EQ(1u, zoff_offload_placement_residents(40 * MIB, 4, 8 << 20, 100));
    EXPECT_EQ(50u, zoff_offload_placement_residents((4 + 50) * 8 * MIB, 4, 8 << 20, 100));
    EXPECT_EQ(100u, zoff_offload_placement_residents(UINT64_MAX, 4, 8 << 20, 100)) << "all of them";
    EXPECT_EQ(0u, zoff_offload_placement_residents(1 << 30, 4, 0, 100)) << "there are no states";
    EXPECT_EQ(0u, zoff_offload_placement_residents(1 << 30, 4, 8 << 20, 0));
}

TEST(Placement, ResidentsAreSpreadEvenly)
{
    for (size_t count : {1, 2, 7, 40, 1000}) {
        for (size_t residents = 0; residents <= count; residents += 1 + count / 40) {
            size_t seen = 0;
            for (size_t c = 0; c < count; c++) {
                seen += zoff_offload_placement_resident(c, residents, count);
                // The chunks up to here have their share of residents, up to one chunk.
                ASSERT_LE(seen * count, (c + 1) * residents);
                ASSERT_GT((seen + 1) * count, (c + 1) * residents);
            }
            EXPECT_EQ(residents, seen);
        }
    }
}

TEST(Placement, SharesFollowMeasuredRates)
{
    std::vector<double> r = {2e9, 1e9, 1e9};
    zoff_offload_placement_shares(r.data(), 3);
    EXPECT_DOUBLE_EQ(0.5, r[0]);
    EXPECT_DOUBLE_EQ(0.25, r[2]);
    r = {2e9, 1.8e9};
    zoff_offload_placement_shares(r.data(), 2);
    EXPECT_DOUBLE_EQ(0.5, r[0]) << "about the same is the same";
    r = {3e9, 0, 1e9};
    zoff_offload_placement_shares(r.data(), 3);
    EXPECT_DOUBLE_EQ(1.0 / 3, r[0]) << "nothing is known of one";
}

TEST(Placement, FromABudgetToChunks)
{
    zoff_placement p;
    zoff_offload_placement_nvme(0, 4, (uint64_t)100 << 30, &p); // no budget, so chunks are large
    EXPECT_EQ(48u << 20, p.chunk_bytes);
    zoff_offload_placement_nvme(64 << 20, 4, (uint64_t)100 << 30, &p); // the budget decides
    EXPECT_EQ(16u << 20, p.chunk_bytes);
    // the states are cut into at least 40 chunks
    zoff_offload_placement_nvme((uint64_t)64 << 30, 4, (uint64_t)400 << 20, &p);
    EXPECT_EQ(10u << 20, p.chunk_bytes);
    zoff_offload_placement_nvme(0, 4, 1 << 20, &p); // small models: not below 4 MiB
    EXPECT_EQ(4u << 20, p.chunk_bytes);
    zoff_offload_placement_nvme(1 << 20, 4, (uint64_t)100 << 30, &p); // unless the budget forces it
    EXPECT_EQ(1u << 18, p.chunk_bytes);
}
