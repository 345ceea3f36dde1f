// sources_test.cc: the source of a slice that is not whole, and the state after a fetch that failed.
#include "allocation_fault.h"
#include "small_lending.h"

#include <fstream>

using namespace zoff_test;

namespace
{
// Damage everything in the store's file.
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

// Open three slices that are cut, and check the source that is chosen for them.
void open(small_lending &t, bool replicated, const char *name)
{
    const bool is_gathered = strcmp(name, "parts of all ranks") == 0;
    t.add("wte", 100, 3);
    ASSERT_NO_FATAL_FAILURE(t.open(64, replicated));
    EXPECT_STREQ(name, t.l.source->name);
    EXPECT_EQ(is_gathered, t.l.source->needs_order) << "all ranks learn the same one";
    EXPECT_EQ(is_gathered, t.l.source->takes_all);
    EXPECT_EQ(is_gathered, t.l.cache.assembly.gather != nullptr);
}

TEST(Sources, OneRankHasItsOwnChunks)
{
    small_lending t;
    ASSERT_NO_FATAL_FAILURE(open(t, false, "own chunks"));
    t.use(0, 1);
}

// Ranks that each have all weights ask nobody.
TEST(Sources, ReplicatedWeightsAreFetchedByOneRankAlone)
{
    on_ranks(2, [](small_lending &t, unsigned rank) {
        ASSERT_NO_FATAL_FAILURE(open(t, true, "own chunks"));
        for (size_t slice = 0; slice < 3 && rank == 1; slice++)
            t.use(0, slice);
    });
}

TEST(Sources, AFailedReadOfOwnChunksLeavesTheSliceAsItWas)
{
    small_lending t;
    t.values.tier = ZOFF_TIER_NVME;
    t.values.live_count = 200;
    t.add("wte", 100, 3);
    ASSERT_NO_FATAL_FAILURE(t.open(64));
    damage(t);
    const void *lent = &t;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "zoff_param_fetch: wte: chunk ", zoff_lending_fetch_slice(&t.l, 0, 0, nullptr, &lent));
    EXPECT_EQ(&t, lent);
    EXPECT_EQ(nullptr, t.slice(0).at);
    EXPECT_EQ(0u, t.slice(0).lent);
    EXPECT_EQ(0u, t.l.cache.lent);
    EXPECT_EQ(0u, t.l.cache.elements);
    EXPECT_EQ(0u, t.l.cache.now.count) << "it is no use";
}

// One rank's file is damaged, so all ranks fail. That rank gives the reason, the others report that its part has not come.
TEST(Sources, AFailedReadOfOneRankIsAnErrorOnAll)
{
    const auto fail = [](small_lending &t, unsigned rank) {
        t.values.tier = ZOFF_TIER_NVME;
        ASSERT_NO_FATAL_FAILURE(open(t, false, "parts of all ranks"));
        if (rank == 1)
            damage(t);
        const void *lent = &t;
        EXPECT_ZOFF_FAILS(rank == 1 ? ZOFF_ERR_CORRUPT : ZOFF_ERR_COMM,
                          "zoff_param_fetch: wte: ", zoff_lending_fetch_slice(&t.l, 0, 0, nullptr, &lent));
        EXPECT_EQ(&t, lent);
        EXPECT_EQ(0u, t.l.cache.lent);
        EXPECT_NE(nullptr, t.slice(0).at) << "it keeps its place: all ranks have planned it";
    };
    on_ranks(2, fail, 2);
}

// Every rank must learn the same order of slices: a rank that cannot fails before anything is planned.
TEST(Sources, WithoutMemoryForTheOrderNothingIsPlanned)
{
    on_ranks(2, [](small_lending &t, unsigned rank) {
        ASSERT_NO_FATAL_FAILURE(open(t, false, "parts of all ranks"));
        const void *lent = nullptr;
        allocations_left = rank == 0 ? 0 : -1;
        if (rank == 0) {
            EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_MEMORY, "the order of weight fetches",
                              zoff_lending_fetch_slice(&t.l, 0, 0, nullptr, &lent));
        }
        EXPECT_EQ(0u, t.l.cache.assembly.planned);
        EXPECT_EQ(nullptr, t.slice(0).at);
        for (size_t slice = 0; slice < 3; slice++)
            t.use(0, slice);
    });
}
} // namespace
