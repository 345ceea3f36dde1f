// streams_test.cc: the order of a device's streams, and waiting for them, also for a device that has failed or stands still.
#include "device_transfer.h"

using namespace zoff_test;

namespace
{
class Streams : public testing::Test
{
  protected:
    void SetUp() override
    {
        self.add(40, 2, ZOFF_BF16, ZOFF_F32);
        ASSERT_NO_FATAL_FAILURE(self.open(32));
    }
    const zoff_accel_ops &ops() const { return *self.t.accel->ops; }
    // Record where a stream is now.
    void *mark(void *stream)
    {
        EXPECT_ZOFF_OK(ops().event_record(self.t.accel, self.t.device.synced, stream));
        return self.t.device.synced;
    }
    // Whether the work in a stream cannot continue.
    bool stands(void *stream)
    {
        void *event = mark(stream);
        for (int i = 0; i < 50; i++, usleep(200)) {
            if (ops().event_poll(self.t.accel, event) != ZOFF_PENDING)
                return false;
        }
        return true;
    }
    device_transfer self;
};

TEST_F(Streams, AreBusyWithWhatIsOnItsWay)
{
    zoff_device &d = self.t.device;
    EXPECT_FALSE(zoff_transfer_streams_are_busy(&self.t));
    EXPECT_FALSE(zoff_transfer_streams_upload(&self.t));
    d.staging.slots[ZOFF_STAGING_SLOTS - 1].in_flight = true;
    d.staging.in_flight = 1;
    EXPECT_TRUE(zoff_transfer_streams_upload(&self.t));
    EXPECT_TRUE(zoff_transfer_streams_are_busy(&self.t));
    d.staging.slots[ZOFF_STAGING_SLOTS - 1].in_flight = false;
    d.staging.in_flight = 0;
    for (size_t *waits : {&d.norm.waits, &self.t.ranks.wire.waits, &d.downloads.end}) {
        ++*waits;
        EXPECT_TRUE(zoff_transfer_streams_are_busy(&self.t));
        EXPECT_FALSE(zoff_transfer_streams_upload(&self.t));
        EXPECT_TRUE(self.t.pollers.device.is_busy(&self.t));
        --*waits;
    }
    EXPECT_FALSE(zoff_transfer_streams_are_busy(&self.t));
}

TEST_F(Streams, SayWhatStandsStill)
{
    zoff_device &d = self.t.device;
    const auto said = [this] {
        EXPECT_EQ(ZOFF_ERR_DEVICE, self.t.pollers.device.overdue(&self.t, 2.5));
        return std::string(zoff_last_error());
    };
    const std::string begin =
        "accelerator \"emulated\" made no progress and reported no error for 2.5 s (timeout_seconds). The engine "
        "waits for ";
    EXPECT_EQ(0u, said().find(begin + "its own work on the device. Check the work before it in the program's stream"));
    d.norm.waits = 1;
    EXPECT_EQ(0u, said().find(begin + "the measurement of gradients."));
    d.staging.slots[2].in_flight = true;
    d.staging.in_flight = 1;
    EXPECT_EQ(0u, said().find(begin + "the upload of weights."));
    d.downloads.queue[0].slice = 1;
    d.downloads.end = 1;
    EXPECT_EQ(0u, said().find(begin + "the download of gradient 1 of p."));
    d.downloads.end = d.norm.waits = 0;
    d.staging.slots[2].in_flight = false;
    d.staging.in_flight = 0;
}

TEST_F(Streams, AreWaitedForUntilTheirWorkIsDone)
{
    char *there = self.there->alloc(8);
    for (int round = 0; round < 20; round++) {
        const std::string bytes = "round " + std::to_string(10 + round);
        ASSERT_ZOFF_OK(ops().copy(self.t.accel, self.t.device.up, there, bytes.data(), 8));
        if (round % 2) {
            ASSERT_ZOFF_OK(zoff_transfer_streams_sync(&self.t, self.t.device.up));
        } else {
            ASSERT_ZOFF_OK(zoff_transfer_streams_wait_for(&self.t, mark(self.t.device.up)));
        }
        EXPECT_EQ(bytes, std::string(there, 8));
    }
}

TEST_F(Streams, StreamsThatStandStillReachTheDeadline)
{
    EXPECT_EQ(self.wire.ranks->timeout_seconds, self.t.pollers.device.timeout_seconds);
    self.t.pollers.device.timeout_seconds = 0.05;
    self.t.device.norm.waits = 1;
    ASSERT_NO_FATAL_FAILURE(self.hold(self.t.device.compute));
    const int calls = self.device.calls;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_DEVICE, "made no progress and reported no error for 0.05 s",
                      zoff_transfer_streams_sync(&self.t, self.t.device.compute));
    EXPECT_EQ(calls + 1, self.device.calls) << "one record, and so one wait: the next would take as long again";
    EXPECT_TRUE(self.t.pollers.device.is_overdue);
    EXPECT_LT(0.0, self.info.seconds.device_wait);
    self.t.device.norm.waits = 0;
    self.let_go = true;
    self.t.pollers.device.timeout_seconds = 20;
    EXPECT_ZOFF_OK(zoff_transfer_streams_sync(&self.t, self.t.device.compute)) << "it moves again";
}

TEST_F(Streams, FailedStreamsReportTheError)
{
    self.device.fail = self.device.calls + 1;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_DEVICE, "event_record failed", zoff_transfer_streams_sync(&self.t, self.t.device.up));
    self.device.fails_polls = true;
    self.device.calls = 0;
    self.device.fail = 1;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_DEVICE, "event_poll failed", zoff_transfer_streams_sync(&self.t, self.t.device.up));
}

TEST_F(Streams, CopiesEndWithTheFirstThatFails)
{
    char *there = self.there->alloc(8);
    const zoff_cast_piece moves[] = {{4, there, "abcdefgh", ZOFF_BF16, ZOFF_BF16}, {1, there, "ijkl", ZOFF_F32, ZOFF_F32}};
    ASSERT_ZOFF_OK(zoff_transfer_streams_copy(&self.t, moves, 1, true));
    EXPECT_EQ("abcdefgh", std::string(there, 8));
    for (int n = 1; n <= 3; n++) { // two copies, and the event behind them
        self.device.calls = 0;
        self.device.fail = n;
        EXPECT_EQ(ZOFF_ERR_DEVICE, zoff_transfer_streams_copy(&self.t, moves, 2, true)) << "call " << n;
    }
    ASSERT_ZOFF_OK(zoff_transfer_streams_copy(&self.t, moves, 2, true));
    EXPECT_EQ("ijklefgh", std::string(there, 8));
}

// An upload overwrites weights that the trainer's stream may still read.
TEST_F(Streams, FollowTheTrainers)
{
    ASSERT_NO_FATAL_FAILURE(self.hold(self.device.stream));
    ASSERT_ZOFF_OK(zoff_transfer_streams_follow(&self.t, self.device.stream));
    EXPECT_TRUE(stands(self.t.device.up));
    ASSERT_NO_FATAL_FAILURE(self.settle(self.t.device.down)); // these continue
    ASSERT_NO_FATAL_FAILURE(self.settle(self.t.device.compute));
    ASSERT_ZOFF_OK(zoff_transfer_streams_compute_follow(&self.t));
    EXPECT_TRUE(stands(self.t.device.compute));
    EXPECT_TRUE(self.t.device.computes);
    self.let_go = true;
    ASSERT_ZOFF_OK(zoff_transfer_streams_compute_settle(&self.t));
    EXPECT_FALSE(self.t.device.computes);
}

TEST_F(Streams, SettleOnlyWhereSomethingIsComputed)
{
    self.device.calls = 0;
    ASSERT_ZOFF_OK(zoff_transfer_streams_compute_settle(&self.t));
    EXPECT_EQ(0, self.device.calls);
    self.t.device.computes = true;
    self.device.fail = 1;
    EXPECT_EQ(ZOFF_ERR_DEVICE, zoff_transfer_streams_compute_settle(&self.t));
    EXPECT_TRUE(self.t.device.computes) << "it is not known to be done";
    self.device.fails_polls = true;
    self.device.calls = 0;
    EXPECT_EQ(ZOFF_ERR_DEVICE, zoff_transfer_streams_compute_settle(&self.t)) << "it is waited for";
    EXPECT_TRUE(self.t.device.computes);
    ASSERT_ZOFF_OK(zoff_transfer_streams_compute_settle(&self.t));
    EXPECT_FALSE(self.t.device.computes);
}

TEST_F(Streams, PinMemory)
{
    zoff_map map = {};
    std::vector<char> memory(4096);
    map.base = memory.data();
    map.bytes = memory.size();
    ASSERT_ZOFF_OK(zoff_transfer_streams_pin(&self.t, &map));
    zoff_transfer_streams_unpin(&self.t, &map);
    self.device.fail = self.device.calls + 1;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_DEVICE, "pin failed", zoff_transfer_streams_pin(&self.t, &map));
}

TEST_F(Streams, EndInTimeOrNot)
{
    (void)zoff_base_status_fail(ZOFF_ERR_IO, "words of before");
    EXPECT_TRUE(zoff_transfer_streams_end(&self.t));
    EXPECT_STREQ("words of before", zoff_last_error());
    for (void *stream : {self.t.device.down, self.t.device.up, self.t.device.compute}) {
        self.wire.ranks->timeout_seconds = 0.02;
        ASSERT_NO_FATAL_FAILURE(self.hold(stream));
        EXPECT_FALSE(zoff_transfer_streams_end(&self.t));
        EXPECT_STREQ("words of before", zoff_last_error());
        self.let_go = true;
        self.wire.ranks->timeout_seconds = 20;
        EXPECT_TRUE(zoff_transfer_streams_end(&self.t));
    }
    ASSERT_NO_FATAL_FAILURE(self.hold(self.t.device.down));
    self.device.calls = 0;
    self.device.fail = 1;
    self.device.fails_for_ever = true;
    EXPECT_TRUE(zoff_transfer_streams_end(&self.t)) << "nothing is done any more on a device that has failed";
    self.device.fail = 0;
    self.let_go = true;
}

TEST(StreamsOfTheHost, End)
{
    small_transfer self;
    EXPECT_TRUE(zoff_transfer_streams_end(&self.t));
}
} // namespace
