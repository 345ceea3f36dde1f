// acquire_test.cc: memory for the gradient of a slice: its own, that of a slice whose gradient is sent, or new memory.
#include "allocation_fault.h"
#include "batches.h"
#include "device_transfer.h"

#include <map>
#include <random>

using namespace zoff_test;

namespace
{
char *lend(small_transfer &self, size_t number, size_t bytes)
{
    char *at = nullptr;
    EXPECT_ZOFF_OK(zoff_transfer_acquire_lend(&self.t, self.t.route.lent, number, bytes, &at));
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
    EXPECT_EQ(second, zoff_transfer_grads_at(&self.t.grads, 1));
    EXPECT_EQ(nullptr, lend(self, 2, 0)) << "a slice without elements";
    zoff_transfer_grads_let_go(&self.t.grads, 0);
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
    EXPECT_EQ(ZOFF_ERR_NO_MEMORY, zoff_transfer_acquire_lend(&self.t, self.t.route.lent, 1, 400, &at));
    allocations_left = -1;
    EXPECT_EQ(&untouched, at);
    EXPECT_EQ(nullptr, zoff_transfer_grads_at(&self.t.grads, 1));
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

// An exchange that has failed frees nothing, so nobody waits for it. Where there is no more memory, its error is the cause.
TEST(AcquireOfSeveralRanks, TellsWhyNothingLeaves)
{
    std::atomic<unsigned> prepared{0};
    each_rank<small_transfer>(2, [&prepared](small_transfer &self, unsigned) {
        ASSERT_NO_FATAL_FAILURE(prepare(self));
        for (prepared++; prepared < 2;) // a rank that fails leaves the group, where the other one may still open its channel
            std::this_thread::yield();
        zoff_sum_place place = *self.t.route.place;
        place.zero = [](zoff_transfer *, char *, size_t) {
            return zoff_base_status_fail(ZOFF_ERR_DEVICE, "it cannot be packed");
        };
        const zoff_grad_memory *whole = self.t.grads.memory;
        zoff_grad_memory memory = *whole;
        self.t.route.place = &place;
        self.t.grads.memory = &memory;
        zoff_transfer_reduce_scatter_begin(&self.t);
        zoff_transfer_reduce_scatter_close(&self.t); // gradients that did not come count as zeros
        EXPECT_FALSE(zoff_transfer_reduce_scatter_go_on(&self.t));
        EXPECT_NE(nullptr, lend(self, 0, 256));
        memory.make = [](zoff_transfer *, zoff_grads *, size_t, zoff_map *) {
            return zoff_base_status_fail(ZOFF_ERR_NO_MEMORY, "no room");
        };
        char *at;
        EXPECT_ZOFF_FAILS(ZOFF_ERR_DEVICE, "it cannot be packed",
                          zoff_transfer_acquire_lend(&self.t, self.t.route.lent, 1, 256, &at));
        self.t.grads.memory = whole;
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
        ASSERT_ZOFF_OK(zoff_transfer_grads_open(&self.t, &pool, &zoff_transfer_acquire_on_device, 64 * UNITS));
    }
    void TearDown() override { zoff_transfer_grads_close(&self.t, &pool); }
    zoff_status lend(size_t number, size_t bytes, char **out)
    {
        return zoff_transfer_acquire_lend(&self.t, &pool, number, bytes, out);
    }
    const char *planned() const { return (const char *)pool.extents[0].map.base; }
    bool is_planned(const char *at) const { return at >= planned() && at < planned() + 64 * UNITS; }
    device_transfer self;
    zoff_grads pool = {};
};

// A slice is refused only where no gap is large enough.
TEST_F(AcquireOnDevice, LendsEveryGapAndNothingTwice)
{
    std::mt19937 random(7);
    std::map<size_t, std::pair<size_t, size_t>> lent; // slice: first unit, and units
    std::vector<bool> used(UNITS, false);
    size_t refused = 0;
    self.values.device_memory = 1;
    for (int round = 0; round < 4000; round++) {
        const size_t number = random() % SLICES;
        if (const auto old = lent.find(number); old != lent.end()) {
            zoff_transfer_grads_let_go(&pool, number);
            std::fill_n(used.begin() + (long)old->second.first, old->second.second, false);
            lent.erase(old);
            continue;
        }
        const size_t bytes = 1 + random() % 600, units = (bytes + 63) / 64;
        size_t free = 0, widest = 0;
        for (bool unit : used) {
            free = unit ? 0 : free + 1;
            widest = std::max(widest, free);
        }
        char *at = nullptr;
        const zoff_status status = lend(number, bytes, &at);
        ASSERT_EQ(units <= widest ? ZOFF_OK : ZOFF_ERR_NO_MEMORY, status) << units << " of " << widest;
        refused += status != ZOFF_OK;
        if (status != ZOFF_OK)
            continue;
        ASSERT_TRUE(is_planned(at) && is_planned(at + bytes - 1));
        const size_t first = (size_t)(at - planned()) / 64;
        for (size_t i = first; i < first + units; i++) {
            ASSERT_FALSE(used[i]) << "lent twice";
            used[i] = true;
        }
        lent[number] = {first, units};
    }
    EXPECT_LT(0u, refused);
    EXPECT_EQ(64u * UNITS, pool.bytes) << "no extra memory";
}

TEST_F(AcquireOnDevice, KeepsExtraMemoryAndUsesItAgain)
{
    char *whole = nullptr, *extra = nullptr, *again = nullptr, *more = nullptr;
    ASSERT_ZOFF_OK(lend(0, 64 * UNITS, &whole));
    EXPECT_EQ(planned(), whole);
    ASSERT_ZOFF_OK(lend(1, 1000, &extra));
    EXPECT_FALSE(is_planned(extra));
    EXPECT_EQ(64u * UNITS + 1024, pool.bytes);
    zoff_transfer_grads_let_go(&pool, 1);
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
    zoff_transfer_grads_let_go(&pool, 0);
    EXPECT_ZOFF_OK(lend(1, 100, &at));
}
} // namespace
