// room_test.cc: which slice is evicted: the one that was used longest ago, and never one that is lent.
#include "small_lending.h"

using namespace zoff_test;

namespace
{
class Room : public testing::Test
{
  protected:
    // Slices of 100 elements, and behind them a large one of 300 if that may be whole.
    void open(uint64_t live)
    {
        t.values.tier = ZOFF_TIER_NVME; // in DRAM a slice would be lent in place
        t.values.live_count = live;
        t.add("small", 100, LARGE);
        if (live >= 300)
            t.add("large", 300);
        ASSERT_NO_FATAL_FAILURE(t.open_cache(4096));
    }
    void place(uint32_t number, uint64_t used)
    {
        ASSERT_TRUE(zoff_lending_param_cache_place(&t.l.cache, number));
        t.slice(number).used = used;
    }
    std::vector<uint32_t> placed()
    {
        std::vector<uint32_t> found;
        for (uint32_t i = 0; i < t.parts.m.slice_count; i++) {
            if (t.slice(i).at)
                found.push_back(i);
        }
        return found;
    }
    zoff_status find(uint32_t number) { return zoff_lending_room_find(&t.l, number, "name"); }
    zoff_status place_ahead(uint32_t number) { return zoff_lending_room_place_ahead(&t.l, number); }

    static constexpr uint32_t LARGE = 7;
    using numbers = std::vector<uint32_t>;
    small_lending t;
};

TEST_F(Room, IsGivenUpByTheOneThatWasUsedLongestAgo)
{
    ASSERT_NO_FATAL_FAILURE(open(300));
    place(0, 3);
    place(1, 1);
    place(2, 2);
    ASSERT_ZOFF_OK(find(3));
    EXPECT_EQ((numbers{0, 2, 3}), placed());
    t.slice(3).used = 4;
    ASSERT_ZOFF_OK(find(4));
    EXPECT_EQ((numbers{0, 3, 4}), placed());
    EXPECT_EQ(300u, t.l.cache.elements);
}

// There are bytes for three slices, but the limit counts elements.
TEST_F(Room, IsForNoMoreElementsThanMayBeWhole)
{
    ASSERT_NO_FATAL_FAILURE(open(299));
    place(0, 1);
    place(1, 2);
    ASSERT_ZOFF_OK(find(2));
    EXPECT_EQ((numbers{1, 2}), placed());
    t.slice(2).used = 3;
    ASSERT_ZOFF_OK(place_ahead(3));
    EXPECT_EQ((numbers{2, 3}), placed());
}

TEST_F(Room, IsNotTakenFromAnyoneWhereThereIsSome)
{
    ASSERT_NO_FATAL_FAILURE(open(300));
    place(0, 1);
    place(1, 2);
    ASSERT_ZOFF_OK(find(2));
    EXPECT_EQ((numbers{0, 1, 2}), placed());
}

TEST_F(Room, LentSlicesAreNeverEvicted)
{
    ASSERT_NO_FATAL_FAILURE(open(300));
    for (uint32_t i = 0; i < 3; i++)
        place(i, i + 1);
    t.slice(0).lent = 1;
    t.slice(1).lent = 2;
    ASSERT_ZOFF_OK(find(3));
    EXPECT_EQ((numbers{0, 1, 3}), placed());
    t.slice(3).lent = 1;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_MEMORY,
                      "100 elements of name do not fit beside the 300 that are lent: release unused slices, or raise "
                      "stage3_max_live_parameters, which is 300",
                      find(4));
    EXPECT_EQ((numbers{0, 1, 3}), placed());
}

TEST_F(Room, ManySmallSlicesMakeRoomForALargeOne)
{
    ASSERT_NO_FATAL_FAILURE(open(400));
    for (uint32_t i = 0; i < 4; i++)
        place(i, i + 1);
    ASSERT_ZOFF_OK(find(LARGE));
    EXPECT_EQ((numbers{3, LARGE}), placed()) << "no more than are in the way";
}

// 100 elements lie in the middle of room for 400.
TEST_F(Room, MayBeInPieces)
{
    ASSERT_NO_FATAL_FAILURE(open(400));
    for (uint32_t i = 0; i < 4; i++)
        place(i, i + 1);
    t.slice(2).lent = 1;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_MEMORY, "300 elements of name do not fit in one piece beside the 100 that are lent",
                      find(LARGE));
    EXPECT_EQ((numbers{2}), placed());
}

TEST_F(Room, PrefetchedSlicesMakeRoomForRequestedOnes)
{
    ASSERT_NO_FATAL_FAILURE(open(200));
    place(0, 9);
    place(1, 1);
    t.slice(1).ahead = true;
    ASSERT_ZOFF_OK(find(2));
    EXPECT_EQ((numbers{0, 2}), placed());
    EXPECT_FALSE(t.slice(1).ahead);
}

TEST_F(Room, InAdvanceIsNotTakenFromWhatWaitsForItsUse)
{
    ASSERT_NO_FATAL_FAILURE(open(200));
    t.l.cache.clock = 50;
    place(0, 1);
    place(1, 9);
    t.slice(0).ahead = true;
    ASSERT_ZOFF_OK(place_ahead(2));
    EXPECT_EQ((numbers{0, 2}), placed());
    EXPECT_TRUE(t.slice(2).ahead);
    EXPECT_EQ(51u, t.slice(2).used);
    EXPECT_EQ(ZOFF_PENDING, place_ahead(3));
    EXPECT_EQ((numbers{0, 2}), placed());
    EXPECT_FALSE(t.slice(3).ahead);
    t.slice(2).ahead = false;
    t.slice(2).lent = 1;
    EXPECT_EQ(ZOFF_PENDING, place_ahead(3));
    EXPECT_EQ((numbers{0, 2}), placed());
}
} // namespace
