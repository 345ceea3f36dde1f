// prefetch_test.cc: the order of a pass is learned, and the next pass finds its slices read.
#include "allocation_fault.h"
#include "small_lending.h"

using namespace zoff_test;

namespace
{
enum { CHUNK = 4096 }; // bytes, of 1024 elements: a slice

class Prefetch : public testing::Test
{
  protected:
    void note(uint32_t number)
    {
        ASSERT_ZOFF_OK(zoff_lending_prefetch_reserve(&t.l));
        zoff_lending_prefetch_note(&t.l, number);
    }
    using order = std::vector<uint32_t>;
    static order list(const zoff_use_order &o) { return order(o.slices, o.slices + o.count); }
    // A pass in this order.
    void pass(const order &numbers)
    {
        for (uint32_t number : numbers)
            t.use(0, number);
    }

    small_lending t;
    zoff_param_cache &cache = t.l.cache;
};

class Files : public Prefetch
{
  protected:
    // Slices of one chunk each, two of which are whole at a time.
    void open(uint64_t ahead, unsigned slots = 4)
    {
        t.values.tier = ZOFF_TIER_NVME;
        t.values.live_count = 2048;
        t.values.ahead_count = ahead;
        t.values.slots = slots;
        t.add("a", 1024, 8);
        ASSERT_NO_FATAL_FAILURE(t.open(1024));
    }
};

TEST_F(Files, APassKnowsTheOrderOfTheOneBefore)
{
    ASSERT_NO_FATAL_FAILURE(open(0));
    pass({3, 1, 3, 0});
    EXPECT_EQ((order{3, 1, 3, 0}), list(cache.now)) << "every use, in order";
    ASSERT_NO_FATAL_FAILURE(t.turn());
    EXPECT_EQ((order{3, 1, 3, 0}), list(cache.before));
    EXPECT_EQ(order(), list(cache.now));
    ASSERT_NO_FATAL_FAILURE(t.turn());
    EXPECT_EQ((order{3, 1, 3, 0}), list(cache.before)) << "a pass without weights teaches nothing";
    pass({2});
    ASSERT_NO_FATAL_FAILURE(t.turn());
    EXPECT_EQ((order{2}), list(cache.before));
}

TEST_F(Files, TheNextUseIsLookedForFurtherOn)
{
    ASSERT_NO_FATAL_FAILURE(open(0));
    pass({3, 1, 3, 0});
    ASSERT_NO_FATAL_FAILURE(t.turn());
    EXPECT_EQ(0u, cache.next);
    pass({3});
    EXPECT_EQ(1u, cache.next);
    pass({7}); // the pass before did not use it
    EXPECT_EQ(1u, cache.next);
    pass({3}); // 1 was left out
    EXPECT_EQ(3u, cache.next);
    pass({1}); // slices before this point are not expected any more
    EXPECT_EQ(3u, cache.next);
    pass({0});
    EXPECT_EQ(4u, cache.next);
}

TEST_F(Files, ButNotForEver)
{
    ASSERT_NO_FATAL_FAILURE(open(0));
    for (int i = 0; i < 4096; i++) {
        ASSERT_NO_FATAL_FAILURE(note(1));
    }
    ASSERT_NO_FATAL_FAILURE(note(2));
    zoff_lending_prefetch_turn(&t.l);
    ASSERT_NO_FATAL_FAILURE(note(2));
    EXPECT_EQ(0u, cache.next) << "4096 uses are looked through";
    ASSERT_NO_FATAL_FAILURE(note(1));
    EXPECT_EQ(1u, cache.next);
    ASSERT_NO_FATAL_FAILURE(note(2));
    EXPECT_EQ(4097u, cache.next);
}

TEST_F(Files, AVeryLongPassIsKnownAsFarAsItFits)
{
    ASSERT_NO_FATAL_FAILURE(open(0));
    for (size_t i = 0; i < (1 << 20) + 5; i++) {
        ASSERT_EQ(ZOFF_OK, zoff_lending_prefetch_reserve(&t.l));
        zoff_lending_prefetch_note(&t.l, i < 1 << 20);
    }
    EXPECT_EQ(1u << 20, cache.now.count);
    EXPECT_EQ(1u << 20, cache.now.capacity);
    EXPECT_EQ(1u, cache.now.slices[(1 << 20) - 1]);
}

TEST_F(Files, MemoryForTheOrderIsNeededWhereOthersLearnTheSame)
{
    ASSERT_NO_FATAL_FAILURE(open(0));
    zoff_base_status_fail(ZOFF_ERR_IO, "said before");
    allocations_left = 0;
    EXPECT_EQ(ZOFF_OK, zoff_lending_prefetch_reserve(&t.l)) << "of one rank alone only time is lost";
    EXPECT_GT(0, allocations_left);
    EXPECT_STREQ("said before", zoff_last_error());
    zoff_lending_prefetch_note(&t.l, 3);
    EXPECT_EQ(0u, cache.now.count) << "it is left out";
    zoff_weight_source strict = *t.l.source;
    strict.needs_order = true;
    t.l.source = &strict;
    allocations_left = 0;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_MEMORY, "the order of weight fetches", zoff_lending_prefetch_reserve(&t.l));
    EXPECT_ZOFF_OK(zoff_lending_prefetch_reserve(&t.l));
}

TEST_F(Files, APassThatIsLikeTheOneBeforeReadsNothingForItself)
{
    ASSERT_NO_FATAL_FAILURE(open(2 * 1024));
    const order way = {5, 2, 7, 0, 1, 6, 4, 3};
    pass(way);
    ASSERT_NO_FATAL_FAILURE(t.turn());
    const uint64_t read = t.read_bytes();
    pass(way);
    ASSERT_NO_FATAL_FAILURE(t.settle());
    EXPECT_EQ(8u * CHUNK, t.ahead_bytes());
    EXPECT_EQ(read + 8 * CHUNK, t.read_bytes()) << "and nothing twice";
}

TEST_F(Files, WithoutAnAllowanceNothingIsReadAhead)
{
    ASSERT_NO_FATAL_FAILURE(open(0));
    pass({5, 2, 7, 0});
    ASSERT_NO_FATAL_FAILURE(t.turn());
    pass({5, 2, 7, 0});
    EXPECT_EQ(0u, t.ahead_bytes());
}

// Ranks gather the same slices in advance into the arena, and keep them there for their use.
TEST(GatheredPrefetch, BringsWhatThePassBeforeUsedNext)
{
    on_ranks(2, [](small_lending &t, unsigned) {
        t.values.live_count = 500;
        t.values.ahead_count = 150; // two slices of 100
        t.add("a", 100, 8);
        ASSERT_NO_FATAL_FAILURE(t.open(64));
        const std::vector<uint32_t> way = {5, 2, 7, 0, 1, 6, 4, 3};
        for (int pass = 0; pass < 3; pass++) {
            for (size_t i = 0; i < way.size(); i++) {
                const bool was_placed = t.slice(way[i]).at;
                EXPECT_EQ(pass > 0, was_placed) << "use " << i << " of pass " << pass;
                EXPECT_EQ(pass > 0, t.slice(way[i]).ahead);
                t.fetch(0, way[i]);
                EXPECT_FALSE(t.slice(way[i]).ahead);
                if (pass && i + 2 < way.size()) {
                    EXPECT_TRUE(t.slice(way[i + 1]).ahead && t.slice(way[i + 2]).ahead);
                }
                if (i + 3 < way.size()) {
                    EXPECT_EQ(nullptr, t.slice(way[i + 3]).at) << "no more than is allowed";
                }
                t.release(0, way[i]);
                EXPECT_LE(t.l.cache.elements, 500u);
            }
            ASSERT_NO_FATAL_FAILURE(t.turn());
        }
    });
}

// A whole slice that comes next is evicted after one that does not come.
TEST(GatheredPrefetch, GivesUpLastWhatComesNext)
{
    on_ranks(2, [](small_lending &t, unsigned) {
        t.values.live_count = 300;
        t.values.ahead_count = 200;
        t.add("a", 100, 4);
        ASSERT_NO_FATAL_FAILURE(t.open(64));
        for (size_t slice : {0, 1, 2, 0, 3})
            t.use(0, slice);
        ASSERT_NO_FATAL_FAILURE(t.turn());
        t.use(0, 0);
        t.use(0, 1);
        t.fetch(0, 2); // next are 0 and 3
        EXPECT_NE(nullptr, t.slice(0).at);
        EXPECT_EQ(nullptr, t.slice(1).at);
        EXPECT_TRUE(t.slice(3).ahead);
        t.release(0, 2);
    });
}
} // namespace
