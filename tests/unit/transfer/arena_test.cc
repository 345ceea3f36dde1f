/* SPDX-License-Identifier: Apache-2.0 */
// arena_test.cc: blocks of extents are lent once, joined when they come back, and refused only where no gap is large enough.
#include "zoff_test.h"

extern "C" {
#include "transfer.h"
}

#include <algorithm>
#include <map>
#include <random>

using namespace zoff_test;

namespace
{
enum { UNIT = ZOFF_ARENA_UNIT };

// Two extents, described by the units that are in use. The arena never reads or writes the memory itself.
class Arena : public testing::Test
{
  protected:
    enum { EXTENTS = 2, UNITS = 40000 };
    void SetUp() override
    {
        for (int i = 0; i < EXTENTS; i++)
            ASSERT_ZOFF_OK(zoff_transfer_arena_add(&arena, at(i, 0), (size_t)UNITS * UNIT, &first[i]));
    }
    void TearDown() override { zoff_transfer_arena_end(&arena); }
    static char *at(int extent, size_t unit) { return (char *)(uintptr_t)((size_t)(extent + 1) << 40) + unit * UNIT; }
    // The widest gap, in units.
    size_t widest() const
    {
        size_t most = 0;
        for (int i = 0; i < EXTENTS; i++) {
            size_t end = 0;
            for (const auto &[from, units] : used[i]) {
                most = std::max(most, from - end);
                end = from + units;
            }
            most = std::max(most, UNITS - end);
        }
        return most;
    }
    // Take so many units, and compare the block with all others.
    bool take(size_t units, size_t bytes)
    {
        int32_t block = -1;
        if (!zoff_transfer_arena_take(&arena, bytes, &block))
            return false;
        const char *begin = arena.blocks[block].at;
        const int extent = (int)((uintptr_t)begin >> 40) - 1;
        const size_t from = (size_t)(begin - at(extent, 0)) / UNIT;
        EXPECT_EQ(begin, at(extent, from));
        EXPECT_LE(from + units, (size_t)UNITS);
        const auto next = used[extent].lower_bound(from);
        EXPECT_TRUE(next == used[extent].end() || from + units <= next->first) << "lent twice";
        EXPECT_TRUE(next == used[extent].begin() || std::prev(next)->first + std::prev(next)->second <= from) << "lent twice";
        used[extent][from] = units;
        taken.push_back({block, extent, from});
        return true;
    }
    void give(size_t i)
    {
        const lent one = taken[i];
        zoff_transfer_arena_give(&arena, one.block);
        used[one.extent].erase(one.from);
        taken[i] = taken.back();
        taken.pop_back();
    }
    struct lent {
        int32_t block;
        int extent;
        size_t from;
    };
    zoff_arena arena = {};
    int32_t first[EXTENTS];
    std::map<size_t, size_t> used[EXTENTS]; // first unit: units
    std::vector<lent> taken;
};

TEST_F(Arena, RefusesOnlyWhereNoGapIsLargeEnough)
{
    std::mt19937_64 random(11);
    size_t refused = 0, most = 0;
    for (int round = 0; round < 30000; round++) {
        if (!taken.empty() && random() % 100 < 48) {
            give(random() % taken.size());
            continue;
        }
        const size_t units = 1 + random() % ((size_t)1 << random() % 14), bytes = units * UNIT - random() % UNIT;
        const bool fits = units <= widest();
        ASSERT_EQ(fits, take(units, bytes)) << units << " units in round " << round;
        ASSERT_FALSE(HasFailure());
        refused += !fits;
        most = std::max(most, taken.size());
    }
    EXPECT_LT(50u, refused);
    EXPECT_LT(50u, most);
    while (!taken.empty())
        give(random() % taken.size());
    for (const int32_t one : first)
        EXPECT_TRUE(zoff_transfer_arena_is_idle(&arena, one)) << "all gaps are joined";
    EXPECT_EQ(arena.count, arena.spare_count + EXTENTS);
    EXPECT_TRUE(take(UNITS, (size_t)UNITS * UNIT));
    EXPECT_TRUE(take(UNITS, (size_t)UNITS * UNIT));
    EXPECT_FALSE(take(1, 1));
}

TEST_F(Arena, LendsNothingOfAnExtentThatIsGone)
{
    EXPECT_TRUE(take(1, UNIT));
    const int busy = taken[0].extent, idle = 1 - busy;
    EXPECT_FALSE(zoff_transfer_arena_is_idle(&arena, first[busy]));
    ASSERT_TRUE(zoff_transfer_arena_is_idle(&arena, first[idle]));
    zoff_transfer_arena_remove(&arena, first[idle]);
    EXPECT_FALSE(take(UNITS, (size_t)UNITS * UNIT));
    EXPECT_TRUE(take(UNITS - 1, (size_t)(UNITS - 1) * UNIT));
    EXPECT_EQ(busy, taken[1].extent);
}
} // namespace
