// download_test.cc: gradients are downloaded in order; complete ones are marked, failed ones reported and dropped.
#include "device_transfer.h"

using namespace zoff_test;

namespace
{
class Download : public testing::Test
{
  protected:
    void SetUp() override
    {
        self.add(40, 3, ZOFF_F32, ZOFF_BF16);
        ASSERT_NO_FATAL_FAILURE(self.open(32));
    }
    void take(size_t slice)
    {
        self.make_gradient(0, slice, 0);
        ASSERT_ZOFF_OK(zoff_transfer_device_download(&self.t, 0, slice, self.device.stream));
    }
    std::vector<bool> down()
    {
        std::vector<bool> marked;
        for (size_t slice = 0; slice < 3; slice++)
            marked.push_back(self.flag(0, slice) & ZOFF_SLICE_DOWN);
        return marked;
    }
    void expect_gradient(size_t slice)
    {
        const char *at = zoff_transfer_arena_at(&self.t.grads, slice);
        ASSERT_NE(nullptr, at);
        for (size_t k = 0; k < 40; k++)
            EXPECT_EQ(self.gradient(0, 0, slice, k, 0), get(ZOFF_BF16, at, k));
    }
    size_t under_way() const { return self.t.device.downloads.end - self.t.device.downloads.first; }
    using marks = std::vector<bool>;
    device_transfer self;
};

TEST_F(Download, MarksWhatHasCome)
{
    EXPECT_EQ(ZOFF_OK, zoff_transfer_download_poll(&self.t)) << "nothing is on its way";
    ASSERT_NO_FATAL_FAILURE(take(2));
    self.flag(0, 2) = ZOFF_SLICE_READY;
    ASSERT_NO_FATAL_FAILURE(self.settle(self.t.device.down));
    ASSERT_NO_FATAL_FAILURE(self.hold(self.device.stream));
    ASSERT_NO_FATAL_FAILURE(take(0));
    EXPECT_EQ(2u, under_way());
    EXPECT_EQ(ZOFF_PENDING, zoff_transfer_download_poll(&self.t));
    EXPECT_EQ((marks{false, false, true}), down());
    EXPECT_EQ(ZOFF_SLICE_READY | ZOFF_SLICE_DOWN, self.flag(0, 2));
    EXPECT_EQ(1u, under_way());
    self.let_go = true;
    ASSERT_ZOFF_OK(zoff_transfer_download_finish(&self.t));
    EXPECT_EQ((marks{true, false, true}), down());
    ASSERT_NO_FATAL_FAILURE(expect_gradient(0));
    ASSERT_NO_FATAL_FAILURE(expect_gradient(2));
}

// A turn of the walk asks the device once, and not once for each bucket that waits.
TEST_F(Download, IsAskedForOnceInATurn)
{
    self.device.fails_polls = true; // counts them
    ASSERT_NO_FATAL_FAILURE(self.hold(self.device.stream));
    ASSERT_NO_FATAL_FAILURE(take(0));
    self.flag(0, 0) = ZOFF_SLICE_READY;
    self.t.walk.runs[0].chunk = 0;
    for (int turn = 0; turn < 2; turn++) {
        self.device.calls = 0;
        self.t.device.downloads.was_asked = false;
        for (int i = 0; i < 100; i++)
            EXPECT_EQ(ZOFF_PENDING, zoff_transfer_device_unload(&self.t, &self.t.walk.runs[0]));
        EXPECT_EQ(1, self.device.calls);
    }
    self.let_go = true;
    ASSERT_NO_FATAL_FAILURE(self.settle(self.t.device.down));
    EXPECT_EQ(ZOFF_PENDING, zoff_transfer_device_unload(&self.t, &self.t.walk.runs[0])) << "the next turn asks again";
    self.t.device.downloads.was_asked = false;
    EXPECT_ZOFF_OK(zoff_transfer_device_unload(&self.t, &self.t.walk.runs[0]));
}

// More than the list has places, one after the other.
TEST_F(Download, ContinuesRoundAfterRound)
{
    for (int round = 0; round < 4; round++) {
        zoff_transfer_arena_forget(&self.t.grads);
        memset(self.parts.m.flags, 0, 3);
        for (const size_t slice : {1, 2})
            ASSERT_NO_FATAL_FAILURE(take(slice));
        ASSERT_ZOFF_OK(zoff_transfer_download_finish(&self.t));
        EXPECT_EQ((marks{false, true, true}), down());
        ASSERT_NO_FATAL_FAILURE(expect_gradient(1));
        ASSERT_NO_FATAL_FAILURE(expect_gradient(2));
        EXPECT_EQ(0u, under_way());
    }
}

TEST_F(Download, NamesTheGradientThatFails)
{
    ASSERT_NO_FATAL_FAILURE(take(0));
    ASSERT_NO_FATAL_FAILURE(take(1));
    ASSERT_NO_FATAL_FAILURE(self.settle(self.t.device.down));
    self.device.fails_polls = true;
    self.device.calls = 0;
    self.device.fail = 2;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_DEVICE, "download of gradient 1 of p from accelerator \"emulated\": event_poll failed",
                      zoff_transfer_download_poll(&self.t));
    EXPECT_EQ((marks{true, false, false}), down());
    EXPECT_EQ(1u, under_way()) << "it is asked again";
    ASSERT_ZOFF_OK(zoff_transfer_download_poll(&self.t));
    EXPECT_EQ((marks{true, true, false}), down());
}

TEST_F(Download, IsForgottenWhereTheDeviceHasFailed)
{
    ASSERT_NO_FATAL_FAILURE(take(0));
    ASSERT_NO_FATAL_FAILURE(take(1));
    self.device.fails_polls = self.device.fails_for_ever = true;
    self.device.fail = 1;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_DEVICE, "download of gradient 0 of p from", zoff_transfer_download_finish(&self.t));
    EXPECT_EQ(0u, under_way());
    EXPECT_EQ((marks{false, false, false}), down());
    self.device.fail = 0;
}

TEST_F(Download, StaysWhereTheDeviceStandsStill)
{
    ASSERT_NO_FATAL_FAILURE(self.hold(self.device.stream));
    ASSERT_NO_FATAL_FAILURE(take(1));
    self.t.pollers.device.timeout_seconds = 0.05;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_DEVICE, "The engine waits for the download of gradient 1 of p",
                      zoff_transfer_download_finish(&self.t));
    EXPECT_EQ(1u, under_way()) << "it may still come";
    self.let_go = true;
    self.t.pollers.device.timeout_seconds = 20;
    ASSERT_ZOFF_OK(zoff_transfer_download_finish(&self.t));
    EXPECT_EQ((marks{false, true, false}), down());
    ASSERT_NO_FATAL_FAILURE(expect_gradient(1));
}

TEST_F(Download, SeesUploadsThatAreDone)
{
    zoff_staging_slot &slot = self.t.device.staging.slots[1];
    ASSERT_NO_FATAL_FAILURE(self.hold(self.t.device.up));
    ASSERT_ZOFF_OK(self.t.accel->ops->event_record(self.t.accel, slot.copied, self.t.device.up));
    slot.in_flight = true;
    self.t.device.staging.in_flight = 1;
    ASSERT_ZOFF_OK(zoff_transfer_download_poll(&self.t));
    EXPECT_TRUE(slot.in_flight);
    self.let_go = true;
    ASSERT_NO_FATAL_FAILURE(self.settle(self.t.device.up));
    ASSERT_ZOFF_OK(zoff_transfer_download_poll(&self.t));
    EXPECT_FALSE(slot.in_flight);
}
} // namespace
