// sources_test.cc: who has a slice that is not whole, and what is left of a fetch that failed.
#include "allocation_fault.h"
#include "small_lending.h"

#include <fstream>

using namespace zoff_test;

namespace
{
// Damage everything that the store has in its file.
void damage(const small_lending &t)
{
    for (const std::string &name : state_files(t.folder.path)) {
        std::fstream file(name, std::ios::in | std::ios::out | std::ios::binary);
        file.seekg(0, std::ios::end);
        const std::streamoff end = file.tellg();
        for (std::streamoff at = 4096; at < end; at += 4096) {
            file.seekp(at);
            file.put('?');
        }
    }
}

TEST(Sources, OneRankHasItsOwnChunks)
{
    small_lending t;
    t.add("a", 100, 3);
    ASSERT_NO_FATAL_FAILURE(t.open(64));
    EXPECT_FALSE(zoff_lending_is_gathered(&t.l));
    EXPECT_STREQ("own chunks", t.l.source->name);
    EXPECT_FALSE(t.l.source->needs_order);
    EXPECT_EQ(nullptr, t.l.cache.assembly.gather);
}

// Ranks that each have all weights ask nobody.
TEST(Sources, ReplicatedWeightsAreFetchedByOneRankAlone)
{
    const rank_job job(2, 20);
    job.on_each([&](unsigned rank) {
        small_lending t(job.comm_of(rank));
        t.add("a", 100, 3);
        ASSERT_NO_FATAL_FAILURE(t.open(64, true));
        EXPECT_FALSE(zoff_lending_is_gathered(&t.l));
        EXPECT_STREQ("own chunks", t.l.source->name);
        for (size_t slice = 0; slice < 3 && rank == 1; slice++)
            t.use(0, slice);
    });
}

TEST(Sources, PartsOfSeveralRanksAreGathered)
{
    const rank_job job(2, 20);
    job.on_each([&](unsigned rank) {
        small_lending t(job.comm_of(rank));
        t.add("a", 100, 3);
        ASSERT_NO_FATAL_FAILURE(t.open(64));
        EXPECT_TRUE(zoff_lending_is_gathered(&t.l));
        EXPECT_STREQ("parts of all ranks", t.l.source->name);
        EXPECT_TRUE(t.l.source->needs_order);
        EXPECT_NE(nullptr, t.l.cache.assembly.gather);
    });
}

TEST(Sources, AFailedReadOfOwnChunksLeavesTheSliceAsItWas)
{
    small_lending t;
    t.values.tier = ZOFF_TIER_NVME;
    t.values.live_count = 200;
    t.add("wte", 100, 3);
    ASSERT_NO_FATAL_FAILURE(t.open(64));
    t.fetch(0, 1);
    zoff_lending_held_let_go(&t.l); // the rest of the chunk is read again
    damage(t);
    const void *lent = &t;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "zoff_param_fetch: wte: chunk ", zoff_lending_fetch_slice(&t.l, 0, 0, &lent));
    EXPECT_EQ(&t, lent);
    EXPECT_EQ(nullptr, t.slice(0).at);
    EXPECT_EQ(0u, t.slice(0).lent);
    EXPECT_EQ(1u, t.l.cache.lent);
    EXPECT_EQ(100u, t.l.cache.elements);
    EXPECT_EQ(1u, t.l.cache.now.count) << "it is no use";
    t.fetch(0, 1); // what is whole needs no file
}

// Of one rank's file is damaged, so all of them fail: that rank says why, the others that it has not come.
TEST(Sources, AFailedReadOfOneRankIsAnErrorOnAll)
{
    const rank_job job(2, 2);
    job.on_each([&](unsigned rank) {
        small_lending t(job.comm_of(rank));
        t.values.tier = ZOFF_TIER_NVME;
        t.add("wte", 100, 3);
        ASSERT_NO_FATAL_FAILURE(t.open(64));
        if (rank == 1)
            damage(t);
        const void *lent = &t;
        EXPECT_ZOFF_FAILS(rank == 1 ? ZOFF_ERR_CORRUPT : ZOFF_ERR_COMM,
                          "zoff_param_fetch: wte: ", zoff_lending_fetch_slice(&t.l, 0, 0, &lent));
        EXPECT_EQ(&t, lent);
        EXPECT_EQ(0u, t.l.cache.lent);
        EXPECT_NE(nullptr, t.slice(0).at) << "it keeps its place: all ranks have planned it";
    });
}

// Every rank must learn the same order of slices: a rank that cannot says so before anything is planned.
TEST(Sources, WithoutMemoryForTheOrderNothingIsPlanned)
{
    const rank_job job(2, 20);
    job.on_each([&](unsigned rank) {
        small_lending t(job.comm_of(rank));
        t.add("wte", 100, 3);
        ASSERT_NO_FATAL_FAILURE(t.open(64));
        const void *lent = nullptr;
        allocations_left = rank == 0 ? 0 : -1;
        if (rank == 0) {
            EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_MEMORY, "the order of weights", zoff_lending_fetch_slice(&t.l, 0, 0, &lent));
        }
        EXPECT_EQ(0u, t.l.cache.assembly.planned);
        EXPECT_EQ(nullptr, t.slice(0).at);
        for (size_t slice = 0; slice < 3; slice++)
            t.use(0, slice);
    });
}
} // namespace
