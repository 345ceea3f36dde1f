/* SPDX-License-Identifier: Apache-2.0 */
// cache_test.cc: which slices are always whole, where the others lie, which of them goes, the order of their uses, and copies.
#include "small_model.h"

extern "C" {
#include "lending.h"
}

#include <atomic>
#include <random>
#include <unistd.h>

using namespace zoff_test;

namespace
{
// The places of slices, without their weights.
class Cache : public testing::Test
{
  protected:
    Cache() : values(parts.values.weights), cache(l.cache)
    {
        values.tier = ZOFF_TIER_NVME;
        values.slots = 4;
        l.model = &parts.m;
        l.plan = &parts.plan;
        l.values = &values;
        l.progress = &progress;
        EXPECT_ZOFF_OK(zoff_accel_open("host", 0, &l.accel));
    }
    ~Cache() override
    {
        zoff_lending_copies_close(&l);
        zoff_lending_param_cache_close(&l);
        zoff_accel_close(l.accel);
    }
    zoff_param add(const char *name, size_t count, size_t slices = 1)
    {
        zoff_param_desc d = describe(name, count, slices);
        d.engine_owned = d.frozen = true;
        return parts.add(d);
    }
    void open(size_t chunk_elements = 65536)
    {
        parts.make_plan(chunk_elements);
        ASSERT_ZOFF_OK(zoff_model_slices_open(&parts.m, &parts.plan));
        zoff_lending_sources_choose(&l, false, false, false);
        ASSERT_ZOFF_OK(zoff_lending_copies_open(&l));
        ASSERT_ZOFF_OK(zoff_lending_param_cache_open(&l));
    }
    zoff_cached_slice &slice(size_t number) { return cache.slices[number]; }

    small_model parts;
    zoff_weight_values &values;
    zoff_progress progress = {};
    zoff_lending l = {};
    zoff_param_cache &cache;
};

TEST_F(Cache, SmallSlicesArePersistentInOrderUntilTheirSumIsReached)
{
    values.persistent_slice = 50;
    values.persistent_count = 120;
    add("just small enough", 50);
    add("too large", 51);
    add("two of which one fits", 40, 2);
    add("fits in what is left", 30);
    add("does not", 1);
    add("empty", 0);
    parts.add(describe("the program's", 10));
    ASSERT_NO_FATAL_FAILURE(open(4096));
    std::vector<bool> persistent;
    for (size_t i = 0; i < 6; i++) {
        for (size_t slice = 0; slice < parts.m.params[i].slices; slice++)
            persistent.push_back(zoff_lending_param_cache_is_persistent(&l, (zoff_param)i, slice));
    }
    EXPECT_EQ((std::vector<bool>{true, false, true, false, true, false, false}), persistent);
    EXPECT_FALSE(zoff_lending_param_cache_is_persistent(&l, 6, 0));
    // Persistent slices lie at the front, one after the other, on cache lines.
    const char *base = (const char *)cache.arena.base;
    EXPECT_EQ(base, slice(0).at);
    EXPECT_EQ(base + 256, slice(2).at);
    EXPECT_EQ(base + 256 + 192, slice(4).at);
    EXPECT_EQ(256u + 192 + 128, cache.persistent_bytes);
    EXPECT_EQ(nullptr, slice(1).at);
    zoff_plan_piece piece = {};
    piece.param = 2;
    piece.first = 16;
    EXPECT_EQ(base + 256 + 64, zoff_lending_param_cache_persistent(&l, &piece));
}

// Random slices come and go. None overlap, and one is refused only if no gap is large enough.
TEST_F(Cache, SlicesNeverOverlapAndFillEveryGap)
{
    std::mt19937 random(11);
    values.persistent_slice = values.persistent_count = 10;
    values.live_count = 2000;
    add("persistent", 10);
    for (size_t count : {20, 90, 200, 330, 700})
        add("p", count, 8);
    ASSERT_NO_FATAL_FAILURE(open(65536));
    std::map<const char *, size_t> taken; // address and size
    size_t elements = 0, refused = 0, count = parts.m.slice_count;
    for (int turn = 0; turn < 4000; turn++) {
        const uint32_t number = 1 + random() % (count - 1);
        zoff_cached_slice &s = slice(number);
        if (s.at) {
            taken.erase(s.at);
            elements -= s.count;
            zoff_lending_param_cache_remove(&l, &s);
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

// 100 elements lie in the middle of room for 400. Slices that are lent stay, and of the others the oldest goes.
TEST_F(Cache, RoomIsGivenUpByTheOneThatWasUsedLongestAgo)
{
    values.live_count = 400;
    add("small", 100, 7);
    const zoff_param large = add("large", 300);
    ASSERT_NO_FATAL_FAILURE(open());
    const auto placed = [&] {
        std::vector<uint32_t> found;
        for (uint32_t i = 0; i < parts.m.slice_count; i++) {
            if (slice(i).at)
                found.push_back(i);
        }
        return found;
    };
    using numbers = std::vector<uint32_t>;
    for (uint32_t i = 0; i < 4; i++) {
        ASSERT_TRUE(zoff_lending_param_cache_place(&cache, i));
        slice(i).used = 10 + (i + 2) % 4; // 2 is the oldest
    }
    slice(2).lent = 1;
    ASSERT_ZOFF_OK(zoff_lending_room_find(&l, 4, "name"));
    EXPECT_EQ((numbers{0, 1, 2, 4}), placed()) << "3 goes";
    slice(4).used = 20;
    cache.clock = 50;
    slice(1).ahead = true;
    ASSERT_ZOFF_OK(zoff_lending_room_place_ahead(&l, 5));
    EXPECT_EQ((numbers{1, 2, 4, 5}), placed()) << "what waits for its use stays";
    slice(4).lent = 1;
    EXPECT_EQ(ZOFF_PENDING, zoff_lending_room_place_ahead(&l, 6));
    ASSERT_ZOFF_OK(zoff_lending_room_find(&l, 6, "name"));
    EXPECT_EQ((numbers{2, 4, 5, 6}), placed()) << "unless a call asks";
    EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_MEMORY, "300 elements of name do not fit beside the 200 that are lent: release unused slices",
                      zoff_lending_room_find(&l, parts.m.params[large].first_flag, "name"));
    slice(4).lent = 0;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_MEMORY, "300 elements of name do not fit in one piece beside the 100 that are lent",
                      zoff_lending_room_find(&l, parts.m.params[large].first_flag, "name"));
    slice(2).lent = 0;
    EXPECT_ZOFF_OK(zoff_lending_room_find(&l, parts.m.params[large].first_flag, "name"));
}

// The use of a slice is looked for in the order of the pass before, from the last use on, and 4096 uses far.
TEST_F(Cache, TheNextUseIsLookedForFurtherOn)
{
    add("a", 100, 8);
    ASSERT_NO_FATAL_FAILURE(open());
    const auto use = [&](uint32_t number) {
        EXPECT_ZOFF_OK(zoff_lending_prefetch_reserve(&l));
        zoff_lending_prefetch_note(&l, number);
        return cache.next;
    };
    const auto turn = [&] { // as zoff_lending_prefetch_turn() does where there is a store
        std::swap(cache.before, cache.now);
        cache.now.count = cache.next = 0;
    };
    for (const uint32_t number : {3, 1, 3, 0})
        use(number);
    turn();
    EXPECT_EQ(0u, cache.next);
    EXPECT_EQ(1u, use(3));
    EXPECT_EQ(1u, use(7)) << "the pass before did not use it";
    EXPECT_EQ(3u, use(3)) << "1 was left out";
    EXPECT_EQ(3u, use(1)) << "what comes before is not expected any more";
    EXPECT_EQ(4u, use(0));
    turn();
    for (int i = 0; i < 4096; i++)
        use(1);
    use(2);
    turn();
    EXPECT_EQ(0u, use(2));
    EXPECT_EQ(1u, use(1));
    EXPECT_EQ(4097u, use(2));
}

// Memory of a device is used for something else when the copies in flight are done.
TEST_F(Cache, CopiesAreDoneWhenTheirStreamIs)
{
    static std::atomic<bool> let_go;
    zoff_poller device = {};
    zoff_accel_close(l.accel);
    ASSERT_ZOFF_OK(zoff_accel_open("emulated", 0, &l.accel));
    device.timeout_seconds = -1;
    l.pollers.device = &device;
    add("w", 4000);
    parts.make_plan(65536);
    ASSERT_ZOFF_OK(zoff_model_slices_open(&parts.m, &parts.plan));
    zoff_lending_sources_choose(&l, false, true, false);
    ASSERT_ZOFF_OK(zoff_lending_copies_open(&l));
    const auto wait = [](void *) {
        usleep(50000);
        let_go = true;
    };
    ASSERT_ZOFF_OK(l.accel->ops->streams.call(l.accel, l.there.link.stream, wait, nullptr));
    l.there.link.moves = true;
    EXPECT_ZOFF_OK(zoff_lending_copies_settle(&l));
    EXPECT_TRUE(let_go);
    EXPECT_FALSE(l.there.link.moves);
}
} // namespace
