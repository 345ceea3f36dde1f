// streams_test.cc: memory may be freed where the end has seen each stream through.
#include "zoff_test.h"

#include <atomic>
#include <unistd.h>

extern "C" {
#include "transfer.h"
}

using namespace zoff_test;

TEST(Streams, EndInTimeOrNot)
{
    static std::atomic<bool> let_go;
    zoff_transfer t = {};
    zoff_lending lending = {};
    zoff_comm comm = {};
    zoff_progress progress = {};
    zoff_step_info info = {};
    t.comm = &comm;
    t.lending = &lending;
    t.progress = &progress;
    t.info = &info;
    ASSERT_ZOFF_OK(zoff_accel_open("emulated", 0, &t.accel));
    const zoff_accel_ops &ops = *t.accel->ops;
    void **const streams[] = {&t.device.down, &t.device.up, &t.device.compute, &lending.there.link.stream};
    for (void **stream : streams)
        ASSERT_ZOFF_OK(ops.streams.open(t.accel, stream));
    ASSERT_ZOFF_OK(ops.event_open(t.accel, &t.device.synced));
    zoff_transfer_streams_watch(&t);
    t.pollers.device.timeout_seconds = -1;
    (void)zoff_base_status_fail(ZOFF_ERR_IO, "words of before");
    for (void **stream : streams) {
        let_go = false;
        const auto hold = [](void *) {
            while (!let_go)
                usleep(100);
        };
        ASSERT_ZOFF_OK(ops.streams.call(t.accel, *stream, hold, nullptr));
        comm.timeout_seconds = 0.02;
        EXPECT_FALSE(zoff_transfer_streams_end(&t));
        let_go = true;
        comm.timeout_seconds = 20;
        EXPECT_TRUE(zoff_transfer_streams_end(&t));
        EXPECT_STREQ("words of before", zoff_last_error());
    }
    zoff_transfer_streams_unwatch(&t);
    ops.event_close(t.accel, t.device.synced);
    for (void **stream : streams)
        ops.streams.close(t.accel, *stream);
    zoff_accel_close(t.accel);
}
