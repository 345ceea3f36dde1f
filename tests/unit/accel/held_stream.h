/* SPDX-License-Identifier: Apache-2.0 */
// held_stream.h: an emulated device with a stream that a test can block.
#ifndef ZOFF_TESTS_HELD_STREAM_H
#define ZOFF_TESTS_HELD_STREAM_H

#include "zoff_test.h"

#include <atomic>

extern "C" {
#include "accel.h"
}

class held_stream : public testing::Test
{
  protected:
    void SetUp() override
    {
        zoff_accel *opened = nullptr;
        ASSERT_ZOFF_OK(zoff_accel_open("emulated", 0, &opened));
        device.reset(opened);
        ASSERT_ZOFF_OK(ops.streams.open(opened, &stream));
    }
    void TearDown() override
    {
        let_go = true;
        if (stream)
            ops.streams.close(device.get(), stream);
    }
    // Block it until the test releases it. On return the stream has taken the blocking call from its queue: from then on the
    // queue only fills.
    void hold()
    {
        let_go = held = false;
        ASSERT_ZOFF_OK(ops.streams.call(
            device.get(), stream,
            [](void *ctx) {
                const auto test = static_cast<held_stream *>(ctx);
                test->held = true;
                while (!test->let_go)
                    usleep(100);
            },
            this));
        while (!held)
            usleep(100);
    }
    const zoff_accel_ops &ops = zoff_accel_emulated_ops;
    zoff_test::accel device;
    void *stream = nullptr;
    std::atomic<bool> let_go{false}, held{false};
};

#endif
