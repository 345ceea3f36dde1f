// grads_test.cc: memory for gradients is lent by slice, used again for others, and never larger than needed.
#include "allocation_fault.h"
#include "small_transfer.h"

using namespace zoff_test;

namespace
{
// Three slices of one parameter, and a link that counts pinned memory.
class Grads : public testing::Test
{
  protected:
    void SetUp() override
    {
        self.add(100, 3, ZOFF_F32, ZOFF_BF16, false, false);
        ASSERT_NO_FATAL_FAILURE(self.open_pieces(64));
        link.memory.pin = [](zoff_transfer *, const zoff_map *map) {
            pinned.insert(map->base);
            return fails_to_pin ? zoff_base_status_fail(ZOFF_ERR_DEVICE, "cannot pin") : ZOFF_OK;
        };
        link.memory.unpin = [](zoff_transfer *, const zoff_map *map) { EXPECT_EQ(1u, pinned.erase(map->base)); };
        self.t.route.link = &link;
        pinned.clear();
        fails_to_pin = false;
    }
    void TearDown() override
    {
        zoff_transfer_grads_close(&self.t, &self.t.grads);
        EXPECT_TRUE(pinned.empty());
        EXPECT_EQ(nullptr, self.t.grads.extents);
        self.t.route.link = &zoff_transfer_links_in_place;
    }
    void grow(size_t bytes) { EXPECT_ZOFF_OK(zoff_transfer_grads_grow(&self.t, &self.t.grads, bytes)); }
    int32_t take(size_t bytes)
    {
        int32_t block = -1;
        return zoff_transfer_grads_take(&self.t.grads.arena, bytes, &block) ? block : -1;
    }
    long free_bytes() const
    {
        long all = 0;
        for (const zoff_arena_block *b = self.t.grads.arena.blocks, *end = b + self.t.grads.arena.count; b < end; b++)
            all += b->at && !b->used ? (long)b->bytes : 0;
        return all;
    }
    // A slice has memory of its own, as zoff_transfer_acquire_lend() gives it.
    char *lend(size_t number, size_t bytes)
    {
        char *at = nullptr;
        EXPECT_ZOFF_OK(zoff_transfer_acquire_lend(&self.t, &self.t.grads, number, bytes, &at));
        return at;
    }

    static std::set<void *> pinned;
    static bool fails_to_pin;
    zoff_link link = zoff_transfer_links_in_place;
    small_transfer self;
};
std::set<void *> Grads::pinned;
bool Grads::fails_to_pin;

// The first extent has room for all slices (3 * 256 bytes); what is beyond them gets extents of its own.
TEST_F(Grads, TakeOneExtentForAllSlices)
{
    EXPECT_EQ(0u, self.t.grads.count) << "nothing is allocated at first";
    const char *first = lend(0, 200);
    EXPECT_EQ(first + 256, lend(1, 200));
    EXPECT_EQ(first + 512, lend(2, 200));
    EXPECT_EQ(1u, self.t.grads.count);
    EXPECT_EQ(768u, self.t.grads.bytes);
    EXPECT_EQ(1u, pinned.size());
    grow(100);
    EXPECT_EQ(2u, self.t.grads.count);
    EXPECT_EQ(768u + 128, self.t.grads.bytes);
}

TEST_F(Grads, FreeAnExtentThatNobodyUsesBeforeTheyTakeMoreThanEver)
{
    self.t.grads.lent_most = 0; // extents are as small as they can be
    grow(1024);
    const int32_t first = take(1024);
    grow(512);
    const int32_t second = take(512);
    EXPECT_EQ(1536u, self.t.grads.bytes);
    EXPECT_EQ(1536u, self.t.grads.most);
    zoff_transfer_grads_give(&self.t.grads.arena, first);
    grow(128); // 1664 would exceed the most that was ever needed
    EXPECT_EQ(2u, self.t.grads.count);
    EXPECT_EQ(640u, self.t.grads.bytes);
    EXPECT_EQ(1536u, self.t.grads.most);
    EXPECT_EQ(2u, pinned.size());
    const int32_t third = take(128);
    EXPECT_LE(0, third);
    zoff_transfer_grads_give(&self.t.grads.arena, second);
    grow(896); // as many as before: none is freed
    EXPECT_EQ(1536u, self.t.grads.bytes);
    EXPECT_EQ(3u, self.t.grads.count);
    EXPECT_LE(0, take(512));
    EXPECT_LE(0, take(896));
    grow(1);
    EXPECT_EQ(1600u, self.t.grads.most) << "none is free";
}

TEST_F(Grads, KeepNothingThatCannotBeHad)
{
    int made = 0;
    EXPECT_EQ(4, fail_each_allocation([&] {
                  zoff_transfer_grads_close(&self.t, &self.t.grads);
                  zoff_status status = zoff_transfer_grads_open(&self.t, &self.t.grads, &zoff_transfer_acquire_on_host, 0);
                  if (status == ZOFF_OK)
                      status = zoff_transfer_grads_grow(&self.t, &self.t.grads, 1000);
                  made += status == ZOFF_OK;
                  if (status != ZOFF_OK) {
                      EXPECT_EQ(ZOFF_ERR_NO_MEMORY, status);
                      EXPECT_EQ(0u, self.t.grads.bytes);
                      EXPECT_TRUE(pinned.empty());
                  }
              }));
    EXPECT_EQ(1, made);
    EXPECT_EQ(1024u, self.t.grads.bytes);
    EXPECT_LE(0, take(1000));
    fails_to_pin = true;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_DEVICE, "cannot pin", zoff_transfer_grads_grow(&self.t, &self.t.grads, 700));
    EXPECT_EQ(1024u, self.t.grads.bytes);
    EXPECT_EQ(1u, self.t.grads.count);
    EXPECT_EQ(-1, take(700));
    pinned.erase(pinned.find(self.t.grads.extents[0].map.base) == pinned.begin() ? std::prev(pinned.end()) : pinned.begin());
    fails_to_pin = false;
    grow(700);
    EXPECT_LE(0, take(700));
}

TEST_F(Grads, LieWhereTheirSliceWasLent)
{
    char *at = lend(1, 200);
    EXPECT_EQ(nullptr, zoff_transfer_grads_at(&self.t.grads, 0));
    EXPECT_EQ(at, zoff_transfer_grads_at(&self.t.grads, 1));
    for (const zoff_plan_piece &piece : self.pieces()) {
        if (piece.slice == 1) {
            EXPECT_EQ(at + piece.first * 2, zoff_transfer_grads_of(&self.t, &piece));
        }
    }
    small_transfer none;
    none.add(4);
    EXPECT_EQ(nullptr, zoff_transfer_grads_at(&none.t.grads, 0)) << "nothing is open";
}

TEST_F(Grads, AreFreeAgainWhenEachBucketHasTakenItsPart)
{
    char *at = lend(0, 200);
    lend(2, 200);
    zoff_transfer_grads_hand_over(&self.t.grads, 0, 3);
    for (int i = 0; i < 2; i++) {
        zoff_transfer_grads_packed(&self.t.grads, 0);
        EXPECT_EQ(at, zoff_transfer_grads_at(&self.t.grads, 0));
        EXPECT_EQ(256, free_bytes());
    }
    zoff_transfer_grads_packed(&self.t.grads, 0);
    EXPECT_EQ(nullptr, zoff_transfer_grads_at(&self.t.grads, 0));
    EXPECT_EQ(512, free_bytes());
    zoff_transfer_grads_packed(&self.t.grads, 0); // it has no memory any more, and nothing waits
    EXPECT_EQ(at, lend(1, 200));
    EXPECT_NE(nullptr, zoff_transfer_grads_at(&self.t.grads, 2));
}

TEST_F(Grads, AreFreeAgainWhenTheyAreLetGoOrForgotten)
{
    zoff_transfer_grads_forget(&self.t.grads);
    lend(0, 200);
    lend(1, 200);
    lend(2, 200);
    zoff_transfer_grads_let_go(&self.t.grads, 1);
    zoff_transfer_grads_let_go(&self.t.grads, 1);
    EXPECT_EQ(nullptr, zoff_transfer_grads_at(&self.t.grads, 1));
    EXPECT_NE(nullptr, zoff_transfer_grads_at(&self.t.grads, 2));
    EXPECT_EQ(256, free_bytes());
    zoff_transfer_grads_forget(&self.t.grads);
    for (size_t i = 0; i < 3; i++)
        EXPECT_EQ(nullptr, zoff_transfer_grads_at(&self.t.grads, i));
    EXPECT_EQ(768, free_bytes());
    EXPECT_EQ(768u, self.t.grads.bytes) << "the memory stays for others";
}

TEST_F(Grads, NeedMemoryForTheirSlices)
{
    zoff_transfer_grads_close(&self.t, &self.t.grads);
    allocations_left = 0;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_MEMORY, "gradient slices",
                      zoff_transfer_grads_open(&self.t, &self.t.grads, &zoff_transfer_acquire_on_host, 0));
    allocations_left = -1;
    EXPECT_EQ(nullptr, self.t.grads.slots);
    ASSERT_ZOFF_OK(zoff_transfer_grads_open(&self.t, &self.t.grads, &zoff_transfer_acquire_on_host, 0));
}
} // namespace
