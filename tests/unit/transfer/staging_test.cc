// staging_test.cc: staging slots are lent to buckets, and used again only when the uploads from them are complete.
#include "device_transfer.h"

using namespace zoff_test;

namespace
{
TEST(StagingOffset, GivesEachPieceOfABucketAPlaceOfItsOwn)
{
    each_rank<device_transfer>(3, [](device_transfer &self, unsigned) {
        self.add(50, 3, ZOFF_BF16, ZOFF_F32);
        self.add(100, 1, ZOFF_F32, ZOFF_F32);
        self.add(9, 4, ZOFF_F16, ZOFF_F32);
        ASSERT_NO_FATAL_FAILURE(self.open(64));
        const size_t most = self.t.device.staging.slot_bytes;
        for (size_t b = 0; b < self.parts.plan.chunk_count; b++) {
            std::vector<bool> taken(most);
            for (unsigned rank = 0; rank < 3; rank++) { // also the pieces of others
                zoff_plan_cursor part = zoff_zero_plan_part(&self.parts.plan, b, rank);
                zoff_plan_piece piece;
                while (zoff_zero_plan_next(&part, &piece)) {
                    const size_t element = zoff_adam_dtype_bytes(self.param(piece.param).dtype);
                    const size_t at = zoff_transfer_staging_offset(&self.t, &piece);
                    EXPECT_EQ(0u, at % element);
                    ASSERT_LE(at + piece.count * element, most);
                    for (size_t i = at; i < at + piece.count * element; i++) {
                        EXPECT_FALSE(taken[i]) << "byte " << i << " of bucket " << b;
                        taken[i] = true;
                    }
                }
            }
        }
    });
}

class Staging : public testing::Test
{
  protected:
    void SetUp() override
    {
        self.add(160, 1, ZOFF_BF16, ZOFF_F32);
        ASSERT_NO_FATAL_FAILURE(self.open(16));
        ASSERT_LT((size_t)ZOFF_STAGING_SLOTS, self.parts.plan.chunk_count);
    }
    zoff_staging_slot *slot_of(size_t bucket) { return self.t.walk.runs[bucket].staging; }
    void lend_all()
    {
        for (size_t b = 0; b < ZOFF_STAGING_SLOTS; b++)
            ASSERT_ZOFF_OK(zoff_transfer_staging_lend(&self.t, b));
    }
    device_transfer self;
};

TEST_F(Staging, SlotsAreLentToOneBucketEach)
{
    ASSERT_NO_FATAL_FAILURE(lend_all());
    std::set<char *> bases;
    for (size_t b = 0; b < ZOFF_STAGING_SLOTS; b++)
        bases.insert(slot_of(b)->base);
    EXPECT_EQ((size_t)ZOFF_STAGING_SLOTS, bases.size());
    EXPECT_EQ(ZOFF_PENDING, zoff_transfer_staging_lend(&self.t, ZOFF_STAGING_SLOTS));
    EXPECT_EQ(nullptr, slot_of(ZOFF_STAGING_SLOTS));
    char *base = slot_of(3)->base;
    zoff_transfer_staging_release(&self.t, 3);
    zoff_transfer_staging_release(&self.t, 3); // it has no slot any more
    EXPECT_EQ(nullptr, slot_of(3));
    ASSERT_ZOFF_OK(zoff_transfer_staging_lend(&self.t, ZOFF_STAGING_SLOTS));
    EXPECT_EQ(base, slot_of(ZOFF_STAGING_SLOTS)->base);
}

TEST_F(Staging, SlotsAreInUseUntilWhatGoesUpIsThere)
{
    ASSERT_NO_FATAL_FAILURE(lend_all());
    zoff_staging_slot *slot = slot_of(2);
    ASSERT_NO_FATAL_FAILURE(self.hold(self.t.device.up));
    ASSERT_ZOFF_OK(self.t.accel->ops->event_record(self.t.accel, slot->copied, self.t.device.up));
    slot->in_flight = true;
    self.t.device.staging.in_flight = 1;
    zoff_transfer_staging_release(&self.t, 2);
    EXPECT_EQ(ZOFF_PENDING, zoff_transfer_staging_lend(&self.t, 7));
    EXPECT_TRUE(slot->in_flight);
    self.let_go = true;
    ASSERT_NO_FATAL_FAILURE(self.settle(self.t.device.up));
    ASSERT_ZOFF_OK(zoff_transfer_staging_lend(&self.t, 7));
    EXPECT_EQ(slot, slot_of(7));
    EXPECT_FALSE(slot->in_flight);
}

TEST_F(Staging, ASlotWhoseEventIsNotRecordedIsInUse)
{
    ASSERT_NO_FATAL_FAILURE(lend_all());
    zoff_staging_slot *slot = slot_of(2);
    ASSERT_NO_FATAL_FAILURE(self.hold(self.t.device.up));
    slot->stream = self.t.device.up; // the record failed behind the copies
    zoff_transfer_staging_release(&self.t, 2);
    self.device.fail = self.device.calls + 1;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_DEVICE, "event_record failed", zoff_transfer_staging_lend(&self.t, 7));
    EXPECT_EQ(ZOFF_PENDING, zoff_transfer_staging_lend(&self.t, 7));
    self.let_go = true;
    ASSERT_ZOFF_OK(zoff_transfer_staging_wait_all(&self.t));
    EXPECT_FALSE(slot->in_flight);
    ASSERT_ZOFF_OK(zoff_transfer_staging_lend(&self.t, 7));
    EXPECT_EQ(slot, slot_of(7));
}

TEST_F(Staging, SlotsOfADeviceThatHasFailedAreNotLent)
{
    self.t.device.staging.slots[0].in_flight = true;
    self.t.device.staging.in_flight = 1;
    self.device.fails_polls = true;
    self.device.fail = self.device.calls + 1;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_DEVICE, "event_poll failed", zoff_transfer_staging_lend(&self.t, 0));
    EXPECT_EQ(nullptr, slot_of(0));
    ASSERT_ZOFF_OK(zoff_transfer_staging_lend(&self.t, 0)) << "it failed once";
}

TEST_F(Staging, WeightsAreInTheSlotOfTheirBucket)
{
    for (const zoff_plan_piece &piece : self.pieces())
        EXPECT_EQ(nullptr, zoff_transfer_staging_weights(&self.t, &piece, nullptr)) << "it has none";
    ASSERT_ZOFF_OK(zoff_transfer_staging_lend(&self.t, 1));
    for (const zoff_plan_piece &piece : self.pieces()) {
        char *want = piece.bucket == 1 ? slot_of(1)->base + zoff_transfer_staging_offset(&self.t, &piece) : nullptr;
        EXPECT_EQ(want, zoff_transfer_staging_weights(&self.t, &piece, nullptr));
    }
}
} // namespace
