// secondary_test.cc: the secondary shard: its size, who has which part, and what a step sends. Ranks are threads.
#include "small_lending.h"

using namespace zoff_test;

namespace
{
struct Secondary : testing::TestWithParam<std::tuple<unsigned, unsigned, zoff_tier>> {
    unsigned ranks() const { return std::get<0>(GetParam()); }
    unsigned members() const { return std::get<1>(GetParam()); }

    void prepare(small_lending &t) const
    {
        t.values.tier = std::get<2>(GetParam());
        t.values.group_ranks = members();
        t.values.live_count = 4000;
        t.add("a", 100, 3);
        t.add("b", 3000, 1);
        t.add("c", 33, 5, ZOFF_BF16);
        t.add("empty", 0, 2);
    }

    static void use_all(small_lending &t)
    {
        for (zoff_param p = 0; p < 4; p++) {
            for (size_t slice = 0; slice < t.parts.m.params[p].slices; slice++)
                t.use(p, slice);
        }
    }
};

INSTANTIATE_TEST_SUITE_P(Ranks, Secondary,
                         testing::Values(std::tuple{4u, 2u, ZOFF_TIER_HOST}, std::tuple{6u, 2u, ZOFF_TIER_NVME},
                                         std::tuple{6u, 3u, ZOFF_TIER_HOST}, std::tuple{4u, 2u, ZOFF_TIER_NVME}),
                         [](const auto &p) {
                             return std::to_string(std::get<0>(p.param)) + "inGroupsOf" + std::to_string(std::get<1>(p.param)) +
                                    (std::get<2>(p.param) == ZOFF_TIER_NVME ? "_files" : "_host");
                         });

TEST_P(Secondary, IsFilledFromThePartsOfAllRanks)
{
    on_ranks(ranks(), [&](small_lending &t, unsigned) {
        prepare(t);
        ASSERT_NO_FATAL_FAILURE(t.open(48));
        for (int pass = 0; pass < 3; pass++) {
            ASSERT_ZOFF_OK(zoff_lending_secondary_fill(&t.l));
            use_all(t);
            ASSERT_NO_FATAL_FAILURE(t.turn());
            ASSERT_NO_FATAL_FAILURE(t.change());
            ASSERT_ZOFF_OK(zoff_lending_param_gather_finish(&t.l));
            zoff_lending_param_cache_clear(&t.l); // prefetched slices have the weights before the change
        }
    });
}

// Persistent slices are whole on every rank, so the shard has none of them.
TEST_P(Secondary, HasTheSizeOfThePlan)
{
    on_ranks(ranks(), [&](small_lending &t, unsigned) {
        prepare(t);
        t.values.persistent_slice = 40;
        t.values.persistent_count = 100000;
        ASSERT_NO_FATAL_FAILURE(t.open(48));
        zoff_plan_info info = ZOFF_PLAN_INFO_INIT;
        zoff_lending_secondary_plan(&t.l, &t.parts.plan, &info);
        uint64_t bytes = 0, most = 0, share = 0;
        for (size_t i = 0; i < t.parts.plan.chunk_count; i++) {
            bytes += t.l.secondary.bytes[i];
            most = std::max(most, (uint64_t)t.l.secondary.bytes[i]);
        }
        for (size_t i = 0; i < t.parts.plan.run_count; i++) {
            const zoff_plan_piece &run = t.parts.plan.runs[i];
            size_t first;
            share += run.param == 2 ? 0 : 4 * zoff_lending_group_share(&t.l, &t.parts.plan, &run, t.parts.plan.rank, &first);
        }
        EXPECT_LE(share, bytes);
        EXPECT_GE(share + (4096 + 64) * t.parts.plan.chunk_count, bytes) << "whole pages for each chunk";
        const bool files = t.values.tier == ZOFF_TIER_NVME;
        EXPECT_EQ(files ? bytes : 0, info.weight_nvme_bytes);
        EXPECT_EQ(t.l.secondary.staging.bytes, info.weight_host_bytes - (files ? t.l.slots * most : bytes));
    });
}

// offload_param.max_in_cpu keeps chunks of the shard in DRAM: those of whole buckets that fit.
TEST(SecondaryResidents, AreChunksOfTheShard)
{
    on_ranks(4, [](small_lending &t, unsigned) {
        t.values.tier = ZOFF_TIER_NVME;
        t.values.group_ranks = 2;
        t.values.cached_count = 3 * 96 + 5; // a member has two parts of 48 elements of each bucket
        t.add("a", 1920);
        ASSERT_NO_FATAL_FAILURE(t.open(48));
        EXPECT_EQ(3u, zoff_lending_secondary_residents(&t.l));
        zoff_plan_info info = ZOFF_PLAN_INFO_INIT;
        zoff_lending_secondary_plan(&t.l, &t.parts.plan, &info);
        EXPECT_EQ((t.parts.plan.chunk_count - 3) * 4096, info.weight_nvme_bytes);
        EXPECT_EQ((t.l.slots + 3) * 4096, info.weight_host_bytes - t.l.secondary.staging.bytes);
    });
}

// In a step only slices with a gradient are sent, and no frozen ones.
TEST_P(Secondary, AStepSendsWhatItChanges)
{
    on_ranks(ranks(), [&](small_lending &t, unsigned) {
        prepare(t);
        ASSERT_NO_FATAL_FAILURE(t.open(48));
        t.parts.m.params[0].frozen = t.parts.m.params[1].frozen = false;
        ASSERT_ZOFF_OK(zoff_lending_secondary_fill(&t.l));
        const uint64_t before = t.l.secondary.sent_bytes;
        const uint32_t changed = t.number_of(0, 1), frozen = t.number_of(2, 0);
        t.parts.m.flags[changed] = t.parts.m.flags[frozen] = ZOFF_SLICE_PRESENT;
        ASSERT_NO_FATAL_FAILURE(t.change());
        for (size_t bucket = 0; bucket < t.parts.plan.chunk_count; bucket++) {
            zoff_status status;
            while ((status = zoff_lending_secondary_start(&t.l, bucket)) == ZOFF_PENDING) {
                zoff_base_progress_pump(&t.progress);
                ASSERT_LE(ZOFF_OK, zoff_lending_secondary_poll(&t.l));
            }
            ASSERT_ZOFF_OK(status);
        }
        ASSERT_ZOFF_OK(zoff_lending_secondary_finish(&t.l));
        const void *lent = nullptr;
        ASSERT_ZOFF_OK(zoff_lending_fetch_slice(&t.l, 0, 1, nullptr, &lent));
        EXPECT_TRUE(t.has(lent, 0, 1)) << "it has changed";
        t.release(0, 1);
        ASSERT_ZOFF_OK(zoff_lending_fetch_slice(&t.l, 0, 2, nullptr, &lent));
        EXPECT_FALSE(t.has(lent, 0, 2)) << "it had no gradient";
        t.release(0, 2);
        ASSERT_ZOFF_OK(zoff_lending_fetch_slice(&t.l, 2, 0, nullptr, &lent));
        EXPECT_FALSE(t.has(lent, 2, 0)) << "it is frozen";
        t.release(2, 0);
        EXPECT_GE(4 * 100 * (uint64_t)(ranks() / members()), t.l.secondary.sent_bytes - before);
    });
}

// A bucket counts as read when its weights were packed; before, they take a slot of the store.
TEST(SecondaryOrder, BucketsAreSentInTheOrderOfTheirStart)
{
    on_ranks(4, [](small_lending &t, unsigned) {
        t.values.group_ranks = 2;
        t.add("a", 1000, 2);
        ASSERT_NO_FATAL_FAILURE(t.open(48));
        t.l.secondary.sends_all = true;
        for (size_t bucket = 0; bucket < ZOFF_SECONDARY_SLOTS; bucket++) {
            ASSERT_ZOFF_OK(zoff_lending_secondary_start(&t.l, bucket));
            EXPECT_FALSE(zoff_lending_secondary_has_read(&t.l, bucket));
        }
        EXPECT_EQ(ZOFF_PENDING, zoff_lending_secondary_start(&t.l, ZOFF_SECONDARY_SLOTS)) << "all slots are in use";
        ASSERT_LE(ZOFF_OK, zoff_lending_secondary_poll(&t.l));
        for (size_t bucket = 0; bucket < ZOFF_SECONDARY_SLOTS; bucket++)
            EXPECT_TRUE(zoff_lending_secondary_has_read(&t.l, bucket));
        EXPECT_EQ((uint64_t)ZOFF_SECONDARY_SLOTS, t.l.secondary.started);
        ASSERT_ZOFF_OK(zoff_lending_secondary_finish(&t.l));
    });
}

TEST(SecondaryOrder, ThereIsNoneWithoutGroups)
{
    for (unsigned members : {0u, 1u, 4u, 8u}) {
        on_ranks(4, [&](small_lending &t, unsigned) {
            t.values.group_ranks = members;
            t.add("a", 1000, 2);
            ASSERT_NO_FATAL_FAILURE(t.open(48));
            EXPECT_FALSE(zoff_lending_secondary_is(&t.l)) << members;
            zoff_plan_info info = ZOFF_PLAN_INFO_INIT;
            zoff_lending_secondary_plan(&t.l, &t.parts.plan, &info);
            EXPECT_EQ(0u, info.weight_host_bytes);
            EXPECT_ZOFF_OK(zoff_lending_secondary_fill(&t.l));
            t.use(0, 1);
        });
    }
}
} // namespace
