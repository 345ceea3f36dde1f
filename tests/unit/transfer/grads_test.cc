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
        EXPECT_EQ(nullptr, self.t.grads.buffers);
        self.t.route.link = &zoff_transfer_links_in_place;
    }
    zoff_grad_buffer *make(size_t bytes)
    {
        zoff_grad_buffer *made = nullptr;
        EXPECT_ZOFF_OK(self.t.grads.memory->make(&self.t, &self.t.grads, bytes, &made));
        return made;
    }
    // A slice has memory of its own, as zoff_transfer_acquire_lend() gives it.
    char *lend(size_t number, size_t bytes)
    {
        zoff_grad_buffer *b = self.t.grads.memory->find(&self.t.grads, bytes);
        b = b ? b : make(bytes);
        b->used = true;
        self.t.grads.slots[number] = {(char *)b->map.base, (size_t)(b - self.t.grads.buffers), 0};
        return (char *)b->map.base;
    }
    size_t found(size_t bytes)
    {
        const zoff_grad_buffer *b = self.t.grads.memory->find(&self.t.grads, bytes);
        return b ? b->map.bytes : 0;
    }

    static std::set<void *> pinned;
    static bool fails_to_pin;
    zoff_link link = zoff_transfer_links_in_place;
    small_transfer self;
};
std::set<void *> Grads::pinned;
bool Grads::fails_to_pin;

TEST_F(Grads, GetTheSmallestFreeBufferThatIsNotMuchTooLarge)
{
    EXPECT_EQ(0u, found(1)) << "there is none";
    for (const size_t bytes : {400u, 1000u, 600u}) {
        make(bytes);
        self.t.grads.buffers[self.t.grads.count - 1].used = true; // otherwise the next one would take its place
    }
    for (size_t i = 0; i < 3; i++)
        self.t.grads.buffers[i].used = false;
    EXPECT_EQ(400u, found(400));
    EXPECT_EQ(600u, found(401));
    EXPECT_EQ(1000u, found(601));
    EXPECT_EQ(1000u, found(1000));
    EXPECT_EQ(0u, found(1001));
    EXPECT_EQ(400u, found(200));
    EXPECT_EQ(0u, found(199)) << "twice as large is too much";
    self.t.grads.buffers[0].used = true;
    EXPECT_EQ(600u, found(400));
}

TEST_F(Grads, FreeABufferThatNobodyUsesBeforeTheyTakeMoreThanEver)
{
    make(1000)->used = true;
    make(500)->used = true;
    EXPECT_EQ(1500u, self.t.grads.bytes);
    EXPECT_EQ(1500u, self.t.grads.most);
    self.t.grads.buffers[0].used = false;
    const zoff_grad_buffer *third = make(100); // 1600 would exceed the most that was ever needed
    EXPECT_EQ(&self.t.grads.buffers[0], third);
    EXPECT_EQ(2u, self.t.grads.count);
    EXPECT_EQ(600u, self.t.grads.bytes);
    EXPECT_EQ(1500u, self.t.grads.most);
    EXPECT_EQ(2u, pinned.size());
    self.t.grads.buffers[0].used = true;
    self.t.grads.buffers[1].used = false;
    make(900); // as many as before: none is freed
    EXPECT_EQ(1500u, self.t.grads.bytes);
    EXPECT_EQ(3u, self.t.grads.count);
    EXPECT_EQ(500u, self.t.grads.buffers[1].map.bytes);
    self.t.grads.buffers[1].used = self.t.grads.buffers[2].used = true;
    make(1);
    EXPECT_EQ(1501u, self.t.grads.most) << "none is free";
}

TEST_F(Grads, KeepNothingThatCannotBeHad)
{
    int made = 0;
    EXPECT_EQ(2, fail_each_allocation([&] {
                  zoff_grad_buffer *out = nullptr;
                  const zoff_status status = self.t.grads.memory->make(&self.t, &self.t.grads, 700, &out);
                  made += status == ZOFF_OK;
                  if (status != ZOFF_OK) {
                      EXPECT_EQ(ZOFF_ERR_NO_MEMORY, status);
                      EXPECT_EQ(nullptr, out);
                      EXPECT_EQ(0u, self.t.grads.bytes);
                  }
              }));
    EXPECT_EQ(1, made);
    EXPECT_EQ(700u, self.t.grads.bytes);
    self.t.grads.buffers[0].used = true;
    fails_to_pin = true;
    zoff_grad_buffer *out = nullptr;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_DEVICE, "cannot pin", self.t.grads.memory->make(&self.t, &self.t.grads, 700, &out));
    EXPECT_EQ(nullptr, out);
    EXPECT_EQ(700u, self.t.grads.bytes);
    EXPECT_EQ(nullptr, self.t.grads.buffers[1].map.base);
    pinned.erase(pinned.find(self.t.grads.buffers[0].map.base) == pinned.begin() ? std::prev(pinned.end()) : pinned.begin());
    fails_to_pin = false;
    EXPECT_EQ(&self.t.grads.buffers[1], make(700)) << "its place is used";
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
        EXPECT_EQ(0u, found(200));
    }
    zoff_transfer_grads_packed(&self.t.grads, 0);
    EXPECT_EQ(nullptr, zoff_transfer_grads_at(&self.t.grads, 0));
    EXPECT_EQ(200u, found(200));
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
    EXPECT_FALSE(self.t.grads.buffers[1].used);
    EXPECT_TRUE(self.t.grads.buffers[0].used);
    zoff_transfer_grads_forget(&self.t.grads);
    for (size_t i = 0; i < 3; i++) {
        EXPECT_EQ(nullptr, zoff_transfer_grads_at(&self.t.grads, i));
        EXPECT_FALSE(self.t.grads.buffers[i].used);
    }
    EXPECT_EQ(600u, self.t.grads.bytes) << "the memory stays for others";
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
