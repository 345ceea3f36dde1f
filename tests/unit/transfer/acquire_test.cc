// acquire_test.cc: memory for the gradient of a slice: its own, that of a slice whose gradient is sent, or new memory.
#include "allocation_fault.h"
#include "batches.h"

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
    EXPECT_EQ(2u, self.t.grads.count);
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
} // namespace
