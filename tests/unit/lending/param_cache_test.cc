// param_cache_test.cc: which slices are always whole, how much memory the others may take, and where they lie in it.
#include "allocation_fault.h"
#include "small_lending.h"

#include <random>

using namespace zoff_test;

namespace
{
class ParamCache : public testing::Test
{
  protected:
    small_lending t;
    zoff_param_cache &cache = t.l.cache;
};

TEST_F(ParamCache, TakesNothingWhereTheEngineKeepsNoWeights)
{
    t.parts.add(describe("the program's", 100));
    ASSERT_NO_FATAL_FAILURE(t.open_cache(64));
    EXPECT_EQ(nullptr, cache.slices);
    EXPECT_EQ(nullptr, cache.arena.base);
    EXPECT_EQ(0u, t.room());
    EXPECT_FALSE(zoff_lending_param_cache_is_persistent(&t.l, 0, 0));
    EXPECT_ZOFF_OK(zoff_lending_sources_open(&t.l)) << "there is no store";
}

TEST_F(ParamCache, SmallSlicesArePersistentInOrderUntilTheirSumIsReached)
{
    t.values.tier = ZOFF_TIER_NVME;
    t.values.persistent_slice = 50;
    t.values.persistent_count = 120;
    t.add("just small enough", 50);
    t.add("too large", 51);
    t.add("two of which one fits", 40, 2);
    t.add("fits in what is left", 30);
    t.add("does not", 1);
    t.add("empty", 0);
    t.parts.add(describe("the program's", 10));
    ASSERT_NO_FATAL_FAILURE(t.open_cache(4096));
    std::vector<bool> persistent;
    for (size_t i = 0; i < 6; i++) {
        for (size_t slice = 0; slice < t.parts.m.params[i].slices; slice++)
            persistent.push_back(zoff_lending_param_cache_is_persistent(&t.l, (zoff_param)i, slice));
    }
    EXPECT_EQ((std::vector<bool>{true, false, true, false, true, false, false}), persistent);
    EXPECT_FALSE(zoff_lending_param_cache_is_persistent(&t.l, 6, 0));
    // They lie at the front, one after the other, on cache lines.
    const char *base = (const char *)cache.arena.base;
    EXPECT_EQ(base, t.slice(0).at);
    EXPECT_EQ(base + 256, t.slice(2).at);
    EXPECT_EQ(base + 256 + 192, t.slice(4).at);
    EXPECT_EQ(256u + 192 + 128, cache.persistent_bytes);
    EXPECT_EQ(nullptr, t.slice(1).at);
    zoff_plan_piece piece = {};
    piece.param = 2;
    piece.first = 16;
    EXPECT_EQ(base + 256 + 64, zoff_lending_param_cache_persistent(&t.l, &piece));
}

TEST_F(ParamCache, OneSliceOfEachParameterIsWholeByDefault)
{
    t.add("a", 100, 3);
    t.add("b", 30, 5);
    t.parts.add(describe("the program's", 1000));
    EXPECT_EQ(130u, zoff_lending_param_cache_most(&t.l));
    t.values.live_count = 7;
    EXPECT_EQ(7u, zoff_lending_param_cache_most(&t.l));
}

TEST_F(ParamCache, ReservesWhatIsPlannedForIt)
{
    t.values.tier = ZOFF_TIER_NVME;
    t.values.persistent_slice = 20;
    t.values.persistent_count = 1000;
    t.add("large", 100, 10);         // 448 bytes a slice with padding
    t.add("half", 60, 1, ZOFF_BF16); // 128
    t.add("small", 16, 2);           // 64
    const struct {
        uint64_t live, bytes;
    } cases[] = {
        {100, 128 + 100 * 4 + 11 * 64}, // one padding for each slice
        {200, 128 + 200 * 4 + 11 * 64},
        {10000, 128 + 10 * 448 + 128}, // all slices
        {UINT64_MAX, 128 + 10 * 448 + 128},
    };
    for (const auto &c : cases) {
        t.values.live_count = c.live;
        ASSERT_NO_FATAL_FAILURE(t.open_cache(4096));
        EXPECT_EQ(c.bytes, cache.arena.bytes) << c.live;
        EXPECT_EQ(c.bytes, t.room());
        t.close();
    }
}

TEST_F(ParamCache, ASliceThatCouldNeverBeLentIsRefused)
{
    t.values.tier = ZOFF_TIER_NVME;
    t.values.live_count = 99;
    t.values.persistent_slice = 120;
    t.values.persistent_count = 120;
    t.add("always at hand", 120);
    t.add("wte", 100);
    t.parts.make_plan(4096);
    t.choose(false);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID,
                      "a slice of wte has 100 elements, and stage3_max_live_parameters is 99: it could never be fetched",
                      zoff_lending_param_cache_open(&t.l));
    zoff_lending_param_cache_close(&t.l);
    t.values.live_count = 100;
    ASSERT_NO_FATAL_FAILURE(t.open_cache(4096));
}

// In DRAM a slice that lies in one chunk takes no memory of the arena.
TEST_F(ParamCache, ContiguousSlicesInDramAreLentInPlace)
{
    t.add("a", 40, 3);
    t.values.live_count = 50;
    ASSERT_NO_FATAL_FAILURE(t.open(64)); // | slice 0, a part of 1 | the rest of it, slice 2 |
    EXPECT_TRUE(t.slice(0).direct && t.slice(0).persistent);
    EXPECT_FALSE(t.slice(1).direct || t.slice(1).persistent);
    EXPECT_TRUE(t.slice(2).direct);
    EXPECT_EQ(40u * 4 + 32, cache.arena.bytes);
    void *chunks[2];
    for (size_t i = 0; i < 2; i++) {
        ASSERT_ZOFF_OK(borrow_chunk(t.l.store, i, &chunks[i]));
    }
    EXPECT_EQ((char *)chunks[0], t.slice(0).at);
    EXPECT_EQ((char *)chunks[1] + 24 * 4 + 32, t.slice(2).at) << "behind the rest of slice 1, at a line of the cache";
    EXPECT_EQ(nullptr, t.slice(1).at);
    EXPECT_TRUE(t.has(t.slice(2).at, 0, 2));
}

TEST_F(ParamCache, SlicesLentInPlaceDoNotCount)
{
    t.values.persistent_slice = t.values.persistent_count = 40;
    t.add("a", 40, 3);
    ASSERT_NO_FATAL_FAILURE(t.open_cache(64));
    EXPECT_TRUE(t.slice(1).persistent && !t.slice(1).direct);
    EXPECT_EQ(192u, cache.persistent_bytes);
}

TEST_F(ParamCache, WithoutMemoryIsClosedAndOpenedAgain)
{
    t.values.tier = ZOFF_TIER_NVME;
    t.add("a", 100, 3);
    t.parts.make_plan(4096);
    t.choose(false);
    const int failures = fail_each_allocation([&] {
        const zoff_status status = zoff_lending_param_cache_open(&t.l);
        EXPECT_EQ(allocations_left >= 0 ? ZOFF_OK : ZOFF_ERR_NO_MEMORY, status) << zoff_last_error();
        zoff_lending_param_cache_close(&t.l);
        EXPECT_EQ(nullptr, cache.slices);
        EXPECT_EQ(nullptr, cache.arena.base);
    });
    EXPECT_EQ(2, failures) << "the table, the arena";
}

TEST_F(ParamCache, NothingThatIsLentMayChange)
{
    t.values.tier = ZOFF_TIER_NVME;
    t.add("a", 10, 3);
    t.add("b", 10, 3);
    t.parts.add(describe("the program's", 10));
    ASSERT_NO_FATAL_FAILURE(t.open(4096));
    t.fetch(1, 2);
    const auto check = [&](zoff_param first, size_t count) {
        return zoff_lending_param_cache_check(&t.l, first, count, "the call");
    };
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "the call: slice 2 of b is still lent (zoff_param_fetch()); call zoff_param_release()",
                      check(0, 3));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "slice 2 of b", check(1, 1));
    EXPECT_ZOFF_OK(check(0, 1));
    EXPECT_ZOFF_OK(check(2, 1));
    t.release(1, 2);
    EXPECT_ZOFF_OK(check(0, 3));
}

TEST_F(ParamCache, SlicesThatAreNotLentAreDropped)
{
    t.values.tier = ZOFF_TIER_NVME;
    t.values.persistent_slice = t.values.persistent_count = 10;
    t.add("a", 100, 4);
    t.add("small", 10);
    t.values.live_count = 400;
    ASSERT_NO_FATAL_FAILURE(t.open(4096));
    for (size_t slice = 0; slice < 4; slice++)
        t.fetch(0, slice);
    t.release(0, 0);
    t.release(0, 3);
    zoff_lending_param_cache_clear(&t.l);
    EXPECT_EQ(nullptr, t.slice(0).at);
    EXPECT_NE(nullptr, t.slice(1).at);
    EXPECT_NE(nullptr, t.slice(2).at);
    EXPECT_EQ(nullptr, t.slice(3).at);
    EXPECT_NE(nullptr, t.slice(4).at) << "a persistent one stays";
    EXPECT_EQ(200u, cache.elements);
    for (const zoff_held_chunk &held : cache.held)
        EXPECT_FALSE(held.is_used) << "chunks are given back, for a step needs them";
}

TEST_F(ParamCache, PersistentSlicesFollowTheirWeights)
{
    t.values.tier = ZOFF_TIER_NVME;
    t.values.persistent_slice = t.values.persistent_count = 100;
    zoff_param_desc d = describe("trained", 40, 2);
    d.engine_owned = true;
    t.parts.add(d);
    t.add("large", 101);
    ASSERT_NO_FATAL_FAILURE(t.open(64)); // | slice 0, a part of 1 | the rest of it ... |
    EXPECT_TRUE(t.has(t.slice(0).at, 0, 0) && t.has(t.slice(1).at, 0, 1)) << "from the beginning";
    const std::string old_rest = t.bits(0, 1, 16, 24);
    t.version = 1;
    const zoff_plan_chunk &c = t.parts.plan.chunks[0];
    std::string weights(c.weight_bytes, 0);
    for (size_t i = 0; i < c.piece_count; i++) {
        const zoff_plan_piece &piece = t.parts.plan.pieces[i];
        const std::string bits = t.bits(piece.param, piece.slice, piece.first, piece.count);
        weights.replace(piece.weight_offset, bits.size(), bits);
    }
    const auto refresh = [&](bool all) { zoff_lending_param_cache_refresh(&t.l, 0, weights.data(), all); };
    refresh(false);
    EXPECT_FALSE(t.has(t.slice(0).at, 0, 0)) << "it had no gradient";
    t.parts.m.flags[0] = ZOFF_SLICE_PRESENT;
    refresh(false);
    EXPECT_TRUE(t.has(t.slice(0).at, 0, 0));
    const std::string now = t.bits(0, 1, 0, 16);
    EXPECT_NE(now, std::string(t.slice(1).at, now.size()));
    refresh(true);
    EXPECT_EQ(now, std::string(t.slice(1).at, now.size()));
    EXPECT_EQ(old_rest, std::string(t.slice(1).at + now.size(), old_rest.size())) << "it lies in another chunk";
    EXPECT_EQ(nullptr, t.slice(2).at);
    zoff_lending_param_cache_refresh(&t.l, 0, nullptr, true); // a chunk without weights
    EXPECT_TRUE(t.has(t.slice(0).at, 0, 0));
}

TEST_F(ParamCache, TheOldestIsIdleAndNotInAdvance)
{
    t.values.tier = ZOFF_TIER_NVME;
    t.values.live_count = 400;
    t.add("a", 100, 4);
    ASSERT_NO_FATAL_FAILURE(t.open_cache(4096));
    EXPECT_EQ(nullptr, zoff_lending_param_cache_oldest_idle(&cache, true));
    for (uint32_t i = 0; i < 4; i++) {
        ASSERT_TRUE(zoff_lending_param_cache_place(&cache, i));
        t.slice(i).used = 10 - i;
    }
    EXPECT_EQ(&t.slice(3), zoff_lending_param_cache_oldest_idle(&cache, false));
    t.slice(3).lent = 1;
    t.slice(2).ahead = true;
    EXPECT_EQ(&t.slice(2), zoff_lending_param_cache_oldest_idle(&cache, true));
    EXPECT_EQ(&t.slice(1), zoff_lending_param_cache_oldest_idle(&cache, false));
    t.slice(0).lent = t.slice(1).lent = 1;
    EXPECT_EQ(nullptr, zoff_lending_param_cache_oldest_idle(&cache, false));
}

// A pass fills the arena from one end to the other.
TEST_F(ParamCache, RoomIsLookedForBehindWhatWasPlacedLast)
{
    t.values.tier = ZOFF_TIER_NVME;
    t.values.live_count = 500;
    t.add("a", 100, 8);
    ASSERT_NO_FATAL_FAILURE(t.open_cache(4096));
    const auto place = [&](uint32_t number) {
        return zoff_lending_param_cache_place(&cache, number) ? t.slice(number).at : nullptr;
    };
    char *const first = place(0);
    place(1);
    char *const third = place(2);
    zoff_lending_param_cache_remove(&t.l, &t.slice(0));
    EXPECT_LT(third, place(3)) << "not where 0 was";
    zoff_lending_param_cache_remove(&t.l, &t.slice(3));
    zoff_lending_param_cache_remove(&t.l, &t.slice(2));
    EXPECT_EQ(1u, cache.latest);
    EXPECT_EQ(third, place(4)) << "behind its neighbour below";
    place(5);
    place(6);
    EXPECT_EQ(first, place(7)) << "and from the front where there is none behind it";
}

// Random slices come and go. None overlap, and one is refused only if no gap is large enough.
TEST_F(ParamCache, SlicesNeverOverlapAndFillEveryGap)
{
    std::mt19937 random(11);
    t.values.tier = ZOFF_TIER_NVME;
    t.values.persistent_slice = t.values.persistent_count = 10;
    t.values.live_count = 2000;
    t.add("persistent", 10);
    for (size_t count : {20, 90, 200, 330, 700})
        t.add("p", count, 8);
    ASSERT_NO_FATAL_FAILURE(t.open_cache(65536));
    std::map<const char *, size_t> taken; // address and size
    size_t elements = 0, refused = 0, count = t.parts.m.slice_count;
    for (int turn = 0; turn < 4000; turn++) {
        const uint32_t number = 1 + random() % (count - 1);
        zoff_cached_slice &s = t.slice(number);
        if (s.at) {
            taken.erase(s.at);
            elements -= s.count;
            zoff_lending_param_cache_remove(&t.l, &s);
            ASSERT_EQ(nullptr, s.at);
            ASSERT_EQ(elements, cache.elements);
            continue;
        }
        const char *end = (const char *)cache.arena.base + cache.persistent_bytes;
        size_t gap = 0;
        for (const auto &one : taken) {
            gap = std::max(gap, (size_t)(one.first - end));
            end = one.first + one.second;
        }
        gap = std::max(gap, (size_t)((const char *)cache.arena.base + cache.arena.bytes - end));
        ASSERT_EQ(gap >= s.bytes, zoff_lending_param_cache_place(&cache, number));
        refused += gap < s.bytes;
        if (!s.at)
            continue;
        elements += s.count;
        const auto above = taken.upper_bound(s.at);
        ASSERT_TRUE(above == taken.end() || s.at + s.bytes <= above->first);
        ASSERT_TRUE(above == taken.begin() || std::prev(above)->first + std::prev(above)->second <= s.at);
        ASSERT_LE((const char *)cache.arena.base + cache.persistent_bytes, s.at);
        ASSERT_LE(s.at + s.bytes, (const char *)cache.arena.base + cache.arena.bytes);
        taken[s.at] = s.bytes;
        ASSERT_EQ(elements, cache.elements);
    }
    EXPECT_LT(100u, refused);
}
} // namespace
