/* SPDX-License-Identifier: Apache-2.0 */
// accel_contract_test.cc: what every accelerator with streams must guarantee to an engine.
#include "accel_under_test.h"

#include <atomic>
#include <unistd.h>

using namespace zoff_test;

namespace
{
class AccelContract : public testing::Test
{
  protected:
    void SetUp() override
    {
        ASSERT_ZOFF_OK(zoff_accel_open(accel_under_test(), 0, &device));
        ops = device->ops;
        for (auto &s : streams)
            ASSERT_ZOFF_OK(zoff_accel_stream_open(device, &s));
        ASSERT_ZOFF_OK(ops->event_open(device, &event));
    }
    void TearDown() override
    {
        for (auto s : streams)
            zoff_accel_stream_close(device, s);
        ops->event_close(device, event);
        zoff_accel_close(device);
    }
    void call(void *stream, void (*run)(void *), void *ctx)
    {
        ASSERT_ZOFF_OK(zoff_accel_stream_call(device, stream, run, ctx));
    }
    // Block a stream until the test sets let_go.
    void hold(void *stream)
    {
        call(
            stream,
            [](void *ctx) {
                while (!*(std::atomic<bool> *)ctx)
                    usleep(100);
            },
            &let_go);
    }
    zoff_status wait(void *which)
    {
        zoff_status status;
        while ((status = ops->event_poll(device, which)) == ZOFF_PENDING)
            usleep(50);
        return status;
    }

    zoff_accel *device = nullptr;
    const zoff_accel_ops *ops = nullptr;
    void *streams[2] = {}, *event = nullptr;
    std::atomic<bool> let_go{false};
};
TEST_F(AccelContract, AStreamDoesOneThingAfterTheOther)
{
    std::vector<int> seen;
    struct item {
        std::vector<int> *seen;
        int number;
    };
    std::vector<item> items;
    for (int i = 0; i < 1000; i++)
        items.push_back({&seen, i});
    for (auto &i : items) {
        call(
            streams[0], [](void *ctx) { ((item *)ctx)->seen->push_back(((item *)ctx)->number); }, &i);
    }
    ASSERT_ZOFF_OK(zoff_accel_stream_wait(device, streams[0]));
    ASSERT_EQ(1000u, seen.size());
    for (int i = 0; i < 1000; i++)
        EXPECT_EQ(i, seen[(size_t)i]);
}

TEST_F(AccelContract, CopiesAreInOrderAndExact)
{
    std::vector<char> from(100001), back(100001), zeroed(100001);
    void *there;
    for (size_t i = 0; i < from.size(); i++)
        from[i] = (char)(i * 7);
    ASSERT_ZOFF_OK(ops->alloc(device, from.size(), &there));
    ASSERT_ZOFF_OK(ops->pages.pin(device, from.data(), from.size()));
    ASSERT_ZOFF_OK(ops->copy(device, streams[0], there, from.data(), from.size()));
    ASSERT_ZOFF_OK(ops->copy(device, streams[0], back.data(), there, from.size()));
    ASSERT_ZOFF_OK(ops->zero(device, streams[0], (char *)there + 1, from.size() - 2));
    ASSERT_ZOFF_OK(ops->copy(device, streams[0], zeroed.data(), there, from.size()));
    ASSERT_ZOFF_OK(zoff_accel_stream_wait(device, streams[0]));
    EXPECT_EQ(from, back);
    for (size_t i = 0; i < zeroed.size(); i++)
        ASSERT_EQ(i == 0 || i + 1 == zeroed.size() ? from[i] : 0, zeroed[i]) << i;
    ops->pages.unpin(device, from.data());
    ops->free(device, there);
}

TEST_F(AccelContract, OnlyWaitingBlocks)
{
    int value = 0, copied = 0;
    hold(streams[0]);
    call(
        streams[0], [](void *ctx) { *(int *)ctx = 7; }, &value);
    ASSERT_ZOFF_OK(ops->event_record(device, event, streams[0]));
    ASSERT_ZOFF_OK(ops->event_await(device, streams[1], event));
    ASSERT_ZOFF_OK(ops->copy(device, streams[1], &copied, &value, sizeof value));
    for (int i = 0; i < 100; i++)
        EXPECT_EQ(ZOFF_PENDING, ops->event_poll(device, event));
    let_go = true;
    ASSERT_ZOFF_OK(zoff_accel_stream_wait(device, streams[1]));
    EXPECT_ZOFF_OK(ops->event_poll(device, event));
    EXPECT_EQ(7, copied) << "the other stream did not wait for the event";
}

TEST_F(AccelContract, TheDefaultStreamIsOneToWaitForAndToLetWait)
{
    int value = 0;
    hold(ZOFF_STREAM_DEFAULT);
    call(
        ZOFF_STREAM_DEFAULT, [](void *ctx) { *(int *)ctx = 7; }, &value);
    ASSERT_ZOFF_OK(ops->event_record(device, event, ZOFF_STREAM_DEFAULT));
    EXPECT_EQ(ZOFF_PENDING, ops->event_poll(device, event));
    EXPECT_ZOFF_OK(zoff_accel_stream_wait(device, streams[1])) << "no other stream waits for it";
    let_go = true;
    zoff_accel_stream_close(device, ZOFF_STREAM_DEFAULT);
    EXPECT_EQ(7, value) << "closing it waits";
    let_go = false;
    hold(streams[0]);
    call(
        streams[0], [](void *ctx) { *(int *)ctx = 8; }, &value);
    ASSERT_ZOFF_OK(ops->event_record(device, event, streams[0]));
    ASSERT_ZOFF_OK(ops->event_await(device, ZOFF_STREAM_DEFAULT, event));
    call(
        ZOFF_STREAM_DEFAULT, [](void *ctx) { *(int *)ctx *= 10; }, &value);
    let_go = true;
    ASSERT_ZOFF_OK(zoff_accel_stream_wait(device, ZOFF_STREAM_DEFAULT));
    EXPECT_EQ(80, value) << "it did not wait for the event";
}

TEST_F(AccelContract, AnEventThatWasNeverRecordedIsReached)
{
    EXPECT_ZOFF_OK(ops->event_poll(device, event));
    ASSERT_ZOFF_OK(ops->event_await(device, streams[0], event));
    EXPECT_ZOFF_OK(zoff_accel_stream_wait(device, streams[0]));
    ASSERT_ZOFF_OK(ops->event_record(device, event, nullptr));
    EXPECT_ZOFF_OK(wait(event)) << "recorded on the host: complete at once";
}

TEST_F(AccelContract, AwaitUsesTheLastRecordBeforeIt)
{
    ASSERT_ZOFF_OK(ops->event_record(device, event, streams[1]));
    ASSERT_ZOFF_OK(wait(event));
    ASSERT_ZOFF_OK(ops->event_await(device, streams[1], event)); /* the first record, which is complete */
    hold(streams[0]);
    ASSERT_ZOFF_OK(ops->event_record(device, event, streams[0]));
    EXPECT_EQ(ZOFF_PENDING, ops->event_poll(device, event)) << "the second record";
    EXPECT_ZOFF_OK(zoff_accel_stream_wait(device, streams[1]));
    let_go = true;
    EXPECT_ZOFF_OK(wait(event));
}

// Recording an event again must not release a stream that waits for its earlier record. The second record is on a faster stream
// or on the host.
TEST_F(AccelContract, RecordingAgainReleasesNoWaiter)
{
    for (void *then : {(void *)nullptr, streams[1]}) {
        int value = 0, copied = 0;
        void *third;
        let_go = false;
        ASSERT_ZOFF_OK(zoff_accel_stream_open(device, &third));
        hold(streams[0]);
        call(
            streams[0], [](void *ctx) { *(int *)ctx = 7; }, &value);
        ASSERT_ZOFF_OK(ops->event_record(device, event, streams[0]));
        ASSERT_ZOFF_OK(ops->event_await(device, third, event));
        ASSERT_ZOFF_OK(ops->copy(device, third, &copied, &value, sizeof value));
        ASSERT_ZOFF_OK(ops->event_record(device, event, then));
        ASSERT_ZOFF_OK(wait(event));
        usleep(20000);
        let_go = true;
        ASSERT_ZOFF_OK(zoff_accel_stream_wait(device, third));
        EXPECT_EQ(7, copied);
        zoff_accel_stream_close(device, third);
    }
}

TEST_F(AccelContract, AnEventMayBeClosedWhileStreamsStillUseIt)
{
    void *other;
    ASSERT_ZOFF_OK(ops->event_open(device, &other));
    hold(streams[0]);
    ASSERT_ZOFF_OK(ops->event_record(device, other, streams[0]));
    ASSERT_ZOFF_OK(ops->event_await(device, streams[1], other));
    ops->event_close(device, other);
    let_go = true;
    EXPECT_ZOFF_OK(zoff_accel_stream_wait(device, streams[1]));
}

TEST_F(AccelContract, ClosingAStreamWaitsForWhatIsInIt)
{
    void *stream;
    int sum = 0;
    ASSERT_ZOFF_OK(zoff_accel_stream_open(device, &stream));
    for (int i = 0; i < 100; i++) {
        call(
            stream,
            [](void *ctx) {
                usleep(50);
                ++*(int *)ctx;
            },
            &sum);
    }
    zoff_accel_stream_close(device, stream);
    EXPECT_EQ(100, sum);
}

/* The stream is never empty for long, so finished work must be freed while it runs. */
TEST_F(AccelContract, AStreamThatIsNeverIdleContinues)
{
    int64_t sum = 0;
    for (int i = 0; i < 50000; i++) {
        call(
            streams[0], [](void *ctx) { ++*(int64_t *)ctx; }, &sum);
        if (i % 64 == 63) {
            ASSERT_ZOFF_OK(ops->event_record(device, event, streams[0]));
            ASSERT_ZOFF_OK(wait(event));
        }
    }
    ASSERT_ZOFF_OK(zoff_accel_stream_wait(device, streams[0]));
    EXPECT_EQ(50000, sum);
}

TEST_F(AccelContract, ADeviceTellsWhatItIs)
{
    zoff_accel_info info = {};
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "struct_size is 0", zoff_accel_get_info(device, &info));
    info.struct_size = sizeof info;
    ASSERT_ZOFF_OK(zoff_accel_get_info(device, &info));
    EXPECT_STREQ(accel_under_test(), info.backend);
    EXPECT_NE(nullptr, info.name);
    EXPECT_EQ(0, info.index);
    EXPECT_EQ(0u, info.pageable_copies);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "must not be NULL", zoff_accel_get_info(nullptr, &info));
}
} // namespace
