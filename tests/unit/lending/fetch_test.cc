// fetch_test.cc: a slice is lent whole as often as it is fetched, and taken back as often.
#include "allocation_fault.h"
#include "small_lending.h"

#include <random>

using namespace zoff_test;

namespace
{
class Fetch : public testing::Test
{
  protected:
    void open(zoff_tier tier, size_t chunk_elements)
    {
        t.values.tier = tier;
        ASSERT_NO_FATAL_FAILURE(t.open(chunk_elements));
    }
    zoff_status fetch(zoff_param p, size_t slice = 0)
    {
        const void *lent = nullptr;
        return zoff_lending_fetch_slice(&t.l, p, slice, nullptr, &lent);
    }
    small_lending t;
};

TEST_F(Fetch, ASliceIsLentAsOftenAsItIsAskedFor)
{
    t.add("a", 100, 2);
    ASSERT_NO_FATAL_FAILURE(open(ZOFF_TIER_NVME, 1024));
    const char *lent = t.fetch(0, 1);
    EXPECT_EQ(lent, t.fetch(0, 1));
    EXPECT_EQ(2u, t.slice(1).lent);
    EXPECT_EQ(2u, t.l.cache.lent);
    t.release(0, 1);
    EXPECT_EQ(1u, t.slice(1).lent);
    t.release(0, 1);
    EXPECT_EQ(0u, t.l.cache.lent);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "zoff_param_release: slice 1 of a is not lent",
                      zoff_lending_fetch_release(&t.l, 0, 1, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "zoff_param_release: slice 0 of a is not lent",
                      zoff_lending_fetch_release(&t.l, 0, 0, nullptr));
    EXPECT_EQ(0u, t.l.cache.lent);
}

TEST_F(Fetch, ASliceThatWasGivenBackIsAtHandUntilItsRoomIsNeeded)
{
    t.values.live_count = 200;
    t.values.slots = 1;
    t.add("a", 100, 2);
    t.add("b", 1024); // separates the chunks
    t.values.live_count = 1200;
    ASSERT_NO_FATAL_FAILURE(open(ZOFF_TIER_NVME, 1024));
    const char *lent = t.fetch(0, 0);
    t.release(0, 0);
    t.use(0, 1);
    const uint64_t read = t.read_bytes();
    EXPECT_EQ(lent, t.fetch(0, 0));
    t.release(0, 0);
    EXPECT_EQ(read, t.read_bytes()) << "nothing is read for it";
    t.use(1); // 1224 elements do not fit: slice 1 was used longest ago
    EXPECT_NE(nullptr, t.slice(0).at);
    EXPECT_EQ(nullptr, t.slice(1).at);
}

TEST_F(Fetch, InOnePieceInDramIsLentWhereItLies)
{
    t.add("a", 48, 2);
    ASSERT_NO_FATAL_FAILURE(open(ZOFF_TIER_HOST, 64)); // | slice 0, a part of 1 | the rest |
    void *chunk = nullptr;
    ASSERT_ZOFF_OK(borrow_chunk(t.l.store, 0, &chunk));
    EXPECT_EQ((const char *)chunk, t.fetch(0, 0));
    EXPECT_EQ((const char *)t.l.cache.arena.base, t.fetch(0, 1)) << "of two pieces a copy is made";
    t.release(0, 0);
    zoff_lending_param_cache_clear(&t.l);
    EXPECT_EQ((const char *)chunk, t.slice(0).at) << "it stays there";
}

TEST_F(Fetch, ASliceWithoutElementsIsNowhere)
{
    t.add("a", 100);
    t.add("empty", 0, 2);
    ASSERT_NO_FATAL_FAILURE(open(ZOFF_TIER_NVME, 1024));
    EXPECT_EQ(nullptr, t.fetch(1, 1));
    EXPECT_EQ(0u, t.l.cache.now.count) << "nor in the order of slices";
    t.release(1, 1);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "slice 1 of empty is not lent", zoff_lending_fetch_release(&t.l, 1, 1, nullptr));
}

TEST_F(Fetch, LentSlicesThatTakeAllRoomAreAnError)
{
    t.values.live_count = 250;
    t.add("a", 100, 3);
    ASSERT_NO_FATAL_FAILURE(open(ZOFF_TIER_NVME, 1024));
    t.fetch(0, 0);
    t.fetch(0, 1);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_MEMORY, "100 elements of a do not fit beside the 200 that are lent", fetch(0, 2));
    EXPECT_EQ(0u, t.slice(2).lent);
    EXPECT_EQ(2u, t.l.cache.lent);
    EXPECT_TRUE(t.has(t.slice(0).at, 0, 0) && t.has(t.slice(1).at, 0, 1));
    t.release(0, 0);
    t.fetch(0, 2);
    EXPECT_TRUE(t.has(t.slice(1).at, 0, 1)) << "what is lent does not move";
}

// The order of slices only affects speed: a single rank may fetch in any order.
TEST_F(Fetch, NeedsNoMemoryOfItsOwn)
{
    t.add("a", 100, 3);
    ASSERT_NO_FATAL_FAILURE(open(ZOFF_TIER_HOST, 128));
    allocations_left = 0;
    t.use(0, 1);
    EXPECT_GT(0, allocations_left) << "an allocation has failed";
    EXPECT_EQ(0u, t.l.cache.now.count);
    t.use(0, 1);
    EXPECT_EQ(1u, t.l.cache.now.count);
}

// Random fetches, releases and passes on both tiers: a lent slice is right and stays in place, and the limit on whole slices
// holds.
TEST_F(Fetch, LentSlicesAreRightInAnyOrder)
{
    std::mt19937 random(5);
    for (const zoff_tier tier : {ZOFF_TIER_HOST, ZOFF_TIER_NVME}) {
        small_lending own;
        own.values.tier = tier;
        own.values.live_count = 1500;
        own.values.ahead_count = 600;
        own.values.persistent_slice = 30;
        own.values.persistent_count = 100;
        const std::pair<size_t, size_t> list[] = {{300, 6}, {30, 5}, {700, 2}, {1, 3}, {0, 2}, {129, 9}};
        for (const auto &[count, slices] : list)
            own.add("p", count, slices, count % 2 ? ZOFF_BF16 : ZOFF_F32);
        ASSERT_NO_FATAL_FAILURE(own.open(512));
        std::vector<std::pair<zoff_param, size_t>> lent;
        std::map<std::pair<zoff_param, size_t>, const char *> where;
        int refused = 0;
        for (int turn = 0; turn < 3000 && !HasFailure(); turn++) {
            const zoff_param p = random() % 6;
            const size_t slice = random() % list[p].second;
            if (!lent.empty() && random() % 2) {
                std::swap(lent[random() % lent.size()], lent.back());
                ASSERT_TRUE(!where[lent.back()] || own.has(where[lent.back()], lent.back().first, lent.back().second));
                own.release(lent.back().first, lent.back().second);
                lent.pop_back();
            } else if (random() % 40 == 0) {
                ASSERT_NO_FATAL_FAILURE(own.turn());
            } else {
                const void *at = nullptr;
                const zoff_status status = zoff_lending_fetch_slice(&own.l, p, slice, nullptr, &at);
                refused += status == ZOFF_ERR_NO_MEMORY;
                ASSERT_TRUE(status == ZOFF_OK || status == ZOFF_ERR_NO_MEMORY) << zoff_last_error();
                if (status < 0)
                    continue;
                ASSERT_TRUE(!at || own.has(at, p, slice));
                const bool is_lent = std::count(lent.begin(), lent.end(), std::make_pair(p, slice));
                ASSERT_TRUE(!is_lent || (where[{p, slice}]) == at);
                where[{p, slice}] = (const char *)at;
                lent.emplace_back(p, slice);
            }
            ASSERT_EQ(lent.size(), own.l.cache.lent);
            ASSERT_LE(own.l.cache.elements, 1500u);
        }
        EXPECT_LT(0, refused);
    }
}
} // namespace
