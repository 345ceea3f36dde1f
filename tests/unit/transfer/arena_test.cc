// arena_test.cc: blocks of extents are lent once, joined when they come back, and refused only where no gap is large enough. A
// slice gets memory of its own, that of a slice whose gradient is sent, or new memory.
#include "allocation_fault.h"
#include "batches.h"
#include "device_transfer.h"

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

char *lend(small_transfer &self, size_t number, size_t bytes)
{
    char *at = nullptr;
    EXPECT_ZOFF_OK(zoff_transfer_intake_lend(&self.t, self.t.route.lent, number, bytes, &at));
    return at;
}

TEST(Acquire, LendsEachSliceMemoryOfItsOwn)
{
    small_transfer self;
    self.add(100, 3, ZOFF_F32, ZOFF_F32, false, false);
    ASSERT_NO_FATAL_FAILURE(self.open(64));
    char *first = lend(self, 0, 400), *second = lend(self, 1, 400);
    EXPECT_NE(first, second);
    EXPECT_EQ(first, lend(self, 0, 400)) << "what it has already";
    EXPECT_EQ(first, lend(self, 0, 0));
    EXPECT_EQ(second, zoff_transfer_arena_at(&self.t.grads, 1));
    EXPECT_EQ(nullptr, lend(self, 2, 0)) << "a slice without elements";
    zoff_transfer_arena_let_go(&self.t.grads, 0);
    EXPECT_EQ(first, lend(self, 2, 400)) << "memory of another one";
    EXPECT_EQ(1u, self.t.grads.count) << "one mapping";
}

TEST(Acquire, LeavesTheSliceAsItWasWithoutMemory)
{
    small_transfer self;
    self.add(100, 3, ZOFF_F32, ZOFF_F32, false, false);
    ASSERT_NO_FATAL_FAILURE(self.open(64));
    char untouched, *at = &untouched;
    allocations_left = 0;
    EXPECT_EQ(ZOFF_ERR_NO_MEMORY, zoff_transfer_intake_lend(&self.t, self.t.route.lent, 1, 400, &at));
    allocations_left = -1;
    EXPECT_EQ(&untouched, at);
    EXPECT_EQ(nullptr, zoff_transfer_arena_at(&self.t.grads, 1));
    EXPECT_NE(nullptr, lend(self, 1, 400));
}

// Each slice is a bucket: more buckets than can be in flight.
void prepare(small_transfer &self)
{
    self.values.zero_stage = 2;
    self.add(64, 9, ZOFF_F32, ZOFF_F32, false, false);
    ASSERT_NO_FATAL_FAILURE(self.open(32));
    ASSERT_LE(9u, self.parts.plan.chunk_count);
    self.t.grads.lent_most = 0; // each extent has room for one slice
}

// Memory of gradients that were sent is lent again.
TEST(AcquireOfSeveralRanks, UsesMemoryAgainWhileGradientsLeave)
{
    each_rank<small_transfer>(2, [](small_transfer &self, unsigned) {
        ASSERT_NO_FATAL_FAILURE(prepare(self));
        batches all(self);
        all.begin();
        for (size_t slice = 9; slice-- > 0;)
            ASSERT_NO_FATAL_FAILURE(all.hand_over(0, slice, 0));
        ASSERT_NO_FATAL_FAILURE(all.end());
        EXPECT_GT(9u, self.t.grads.count);
        for (const zoff_plan_piece &piece : self.pieces()) {
            for (size_t k = 0; k < piece.count; k++)
                EXPECT_EQ(fmaf(1, self.gradient(1, 0, piece.slice, piece.first + k, 0),
                               self.gradient(0, 0, piece.slice, piece.first + k, 0)),
                          zoff_transfer_pieces_sum(&self.t, &piece)[k]);
        }
    });
}

// The other rank hands over its gradients only after this one got its memory: this one does not wait for ever.
TEST(AcquireOfSeveralRanks, MakesMoreWhereOthersDoNotCome)
{
    std::atomic<bool> has_all{false};
    each_rank<small_transfer>(2, [&has_all](small_transfer &self, unsigned rank) {
        ASSERT_NO_FATAL_FAILURE(prepare(self));
        batches all(self);
        all.begin();
        while (rank == 1 && !has_all)
            std::this_thread::yield();
        for (size_t slice = 9; slice-- > 4;) // three are packed, and the fourth waits
            ASSERT_NO_FATAL_FAILURE(all.hand_over(0, slice, 0));
        if (rank == 0) {
            EXPECT_LE(2u, self.t.grads.count);
        }
        has_all = true;
        ASSERT_NO_FATAL_FAILURE(all.end());
    });
}

// A pool of `UNITS` times 64 bytes on a device, for slices that are lent with any size.
class AcquireOnDevice : public testing::Test
{
  protected:
    enum { UNITS = 40, SLICES = 64 };
    void SetUp() override
    {
        self.add(16, SLICES, ZOFF_F32, ZOFF_F32, false, false);
        ASSERT_NO_FATAL_FAILURE(self.open(64));
        ASSERT_ZOFF_OK(zoff_transfer_arena_open(&self.t, &pool, true, 64 * UNITS));
    }
    void TearDown() override { zoff_transfer_arena_close(&self.t, &pool); }
    zoff_status lend(size_t number, size_t bytes, char **out)
    {
        return zoff_transfer_intake_lend(&self.t, &pool, number, bytes, out);
    }
    const char *planned() const { return (const char *)pool.extents[0].map.base; }
    bool is_planned(const char *at) const { return at >= planned() && at < planned() + 64 * UNITS; }
    device_transfer self;
    zoff_grads pool = {};
};

TEST_F(AcquireOnDevice, KeepsExtraMemoryAndUsesItAgain)
{
    char *whole = nullptr, *extra = nullptr, *again = nullptr, *more = nullptr;
    ASSERT_ZOFF_OK(lend(0, 64 * UNITS, &whole));
    EXPECT_EQ(planned(), whole);
    ASSERT_ZOFF_OK(lend(1, 1000, &extra));
    EXPECT_FALSE(is_planned(extra));
    EXPECT_EQ(64u * UNITS + 1024, pool.bytes);
    zoff_transfer_arena_let_go(&pool, 1);
    ASSERT_ZOFF_OK(lend(2, 1024, &again));
    EXPECT_EQ(extra, again);
    ASSERT_ZOFF_OK(lend(3, 64, &more));
    EXPECT_FALSE(is_planned(more));
    EXPECT_NE(extra, more);
    EXPECT_EQ(64u * UNITS + 1088, pool.bytes);
}

TEST_F(AcquireOnDevice, RefusesExtraMemoryBeyondDeviceMemory)
{
    char *whole = nullptr, untouched, *at = &untouched;
    self.values.device_memory = 1 << 20;
    ASSERT_ZOFF_OK(lend(0, 64 * UNITS, &whole));
    EXPECT_EQ(ZOFF_ERR_NO_MEMORY, lend(1, 100, &at));
    EXPECT_NE(nullptr, strstr(zoff_last_error(), "zoff.device_memory")) << zoff_last_error();
    EXPECT_EQ(&untouched, at);
    zoff_transfer_arena_let_go(&pool, 0);
    EXPECT_ZOFF_OK(lend(1, 100, &at));
}
} // namespace
