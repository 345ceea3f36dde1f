/* SPDX-License-Identifier: Apache-2.0 */
// streams_test.cc: memory may be freed or used for something else where each stream was seen through.
#include "zoff_test.h"

#include <atomic>
#include <thread>
#include <unistd.h>

extern "C" {
#include "transfer.h"
}

using namespace zoff_test;

namespace
{
// The streams of a device. One of them is held until it is let go.
class Streams : public testing::Test
{
  protected:
    void SetUp() override
    {
        t.comm = &comm;
        t.lending = &lending;
        t.progress = &progress;
        t.info = &info;
        ASSERT_ZOFF_OK(zoff_accel_open("emulated", 0, &t.accel));
        for (void **stream : streams)
            ASSERT_ZOFF_OK(t.accel->ops->streams.open(t.accel, stream));
        ASSERT_ZOFF_OK(t.accel->ops->event_open(t.accel, &t.device.synced));
        zoff_transfer_streams_watch(&t);
        t.pollers.device.timeout_seconds = -1;
    }
    void TearDown() override
    {
        zoff_transfer_streams_unwatch(&t);
        t.accel->ops->event_close(t.accel, t.device.synced);
        for (void **stream : streams)
            t.accel->ops->streams.close(t.accel, *stream);
        zoff_accel_close(t.accel);
    }
    void hold(void *stream)
    {
        let_go = false;
        const auto wait = [](void *ctx) {
            while (!*static_cast<std::atomic<bool> *>(ctx))
                usleep(100);
        };
        ASSERT_ZOFF_OK(t.accel->ops->streams.call(t.accel, stream, wait, &let_go));
    }
    std::atomic<bool> let_go{true};
    zoff_transfer t = {};
    zoff_lending lending = {};
    zoff_comm comm = {};
    zoff_progress progress = {};
    zoff_step_info info = {};
    void **const streams[4] = {&t.device.down, &t.device.up, &t.device.compute, &lending.there.link.stream};
};

TEST_F(Streams, EndInTimeOrNot)
{
    (void)zoff_base_status_fail(ZOFF_ERR_IO, "words of before");
    for (void **stream : streams) {
        ASSERT_NO_FATAL_FAILURE(hold(*stream));
        comm.timeout_seconds = 0.02;
        EXPECT_FALSE(zoff_transfer_streams_end(&t));
        let_go = true;
        comm.timeout_seconds = 20;
        EXPECT_TRUE(zoff_transfer_streams_end(&t));
        EXPECT_STREQ("words of before", zoff_last_error());
    }
}

// After a copy that stood still, its slot is used again when all copies are done.
TEST_F(Streams, AreSettledTogether)
{
    t.device.tier.count = 1;
    for (void **stream : {&t.device.down, &t.device.up, &t.device.compute}) {
        t.device.tier.unsettled = true;
        ASSERT_NO_FATAL_FAILURE(hold(*stream));
        std::thread later([this] {
            usleep(50000);
            let_go = true;
        });
        EXPECT_ZOFF_OK(zoff_transfer_device_tier_calm(&t));
        EXPECT_TRUE(let_go);
        later.join();
        EXPECT_FALSE(t.device.tier.unsettled);
    }
    t.device.tier.count = 0;
}
} // namespace
