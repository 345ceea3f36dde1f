/* SPDX-License-Identifier: Apache-2.0 */
// accel_fault.h: wraps an engine's accelerator. Delays each stream by a random seed, makes calls fail, and can leave out waits.
// Uses the accelerator of accel_under_test.h.
#ifndef ZOFF_ACCEL_FAULT_H
#define ZOFF_ACCEL_FAULT_H

#include "accel_under_test.h"

#include <atomic>
#include <functional>
#include <memory>
#include <random>
#include <unistd.h>

extern "C" {
#include "try.h"
}

namespace zoff_test
{
// A test's accelerator, with a stream for its trainer. Like an engine, it may be used by one thread at a time.
class test_device
{
  public:
    // With seed 0 nothing is delayed.
    explicit test_device(unsigned seed_ = 0, int index = 0) : seed(seed_), random(seed_)
    {
        EXPECT_ZOFF_OK(zoff_accel_open(accel_under_test(), index, &accel));
        real = accel->ops;
        ops = {*real, this};
        ops.table.streams.open = stream_open;
        ops.table.copy = copy_of_engine;
        ops.table.zero = zero;
        ops.table.alloc = alloc;
        ops.table.kernels.update = update;
        ops.table.kernels.accumulate = accumulate;
        ops.table.kernels.square_sum = square_sum;
        ops.table.kernels.cast = cast;
        ops.table.event_open = event_open;
        ops.table.event_record = event_record;
        ops.table.event_await = event_await;
        ops.table.event_poll = event_poll;
        ops.table.pages.pin = pin;
        ops.table.pages.mapped = mapped;
        accel->ops = &ops.table;
        EXPECT_ZOFF_OK(real->streams.open(accel, &stream)); // calls of the trainer itself do not fail
    }
    ~test_device()
    {
        zoff_accel_stream_close(accel, stream);
        accel->ops = real;
        for (auto &weak : memories) {
            if (auto left = weak.lock())
                left->let_go();
        }
        zoff_accel_close(accel);
    }
    test_device(const test_device &) = delete;

    // Make the device's default stream that of the trainer.
    void use_default_stream()
    {
        zoff_accel_stream_close(accel, stream);
        stream = ZOFF_STREAM_DEFAULT;
    }

    // Device memory for the trainer, valid as long as this object and the returned one exist. Only the engine's allocations can
    // fail.
    std::shared_ptr<device_memory> memory()
    {
        auto made = std::make_shared<device_memory>(accel, real);
        memories.push_back(made);
        return made;
    }

    // Enqueue a delayed copy on the trainer's stream.
    void launch_copy(void *to, const void *from, size_t bytes)
    {
        dawdle(stream, random_of_trainer);
        EXPECT_ZOFF_OK(real->copy(accel, stream, to, from, bytes));
    }

    // Copy behind all work in the stream, and wait for it.
    void copy(void *to, const void *from, size_t bytes)
    {
        void *done = nullptr;
        zoff_status status;
        EXPECT_ZOFF_OK(real->event_open(accel, &done));
        EXPECT_ZOFF_OK(real->copy(accel, stream, to, from, bytes));
        EXPECT_ZOFF_OK(real->event_record(accel, done, stream));
        while ((status = real->event_poll(accel, done)) == ZOFF_PENDING)
            usleep(20);
        EXPECT_ZOFF_OK(status);
        real->event_close(accel, done);
    }

    zoff_accel *accel = nullptr;
    void *stream = nullptr;
    int fail = 0;                // The nth call from now on fails; 0: none.
    int calls = 0;               // Counts the calls that can fail.
    bool fails_polls = false;    // True: only event polls fail; false: only other calls.
    bool fails_for_ever = false; // All later calls fail, too, as on a device that is gone.
    bool forgets_await = false, forgets_poll = false;
    bool refuses_to_pin = false;                                    // Kernels cannot access memory of the host.
    std::function<void(void *stream, const void *dst)> before_copy; // called before a copy of the engine
    std::function<bool(const void *event)> is_late;                 // whether a poll of an event that has happened misses it
    std::atomic<int> polls{0};                                      // polls of events by the engine

  private:
    struct with_self {
        zoff_accel_ops table;
        test_device *self;
    };
    static test_device *of(zoff_accel *a) { return ((const with_self *)a->ops)->self; }

    zoff_status count(const char *call, bool is_poll = false)
    {
        const bool can = is_poll == fails_polls;
        calls += can;
        if (fail && ((can && calls == fail) || (fails_for_ever && calls >= fail)))
            return zoff_base_status_fail(ZOFF_ERR_DEVICE, "%s failed as the test asked for", call);
        return ZOFF_OK;
    }

    // Runs most calls at once and some after a delay, so that all orders occur that no wait forbids.
    void dawdle(void *where) { dawdle(where, random); }
    void dawdle(void *where, std::mt19937 &source)
    {
        if (!seed || source() % 3)
            return;
        (void)real->streams.call(
            accel, where, [](void *us) { usleep((useconds_t)(size_t)us); }, (void *)(size_t)(source() % 150));
    }

#define ZOFF_FORWARD_TO(member, name, ...)                                                                                     \
    const zoff_status status = of(a)->count(#name);                                                                            \
    return status < 0 ? status : of(a)->real->member(a, __VA_ARGS__)
#define ZOFF_FORWARD(name, ...) ZOFF_FORWARD_TO(name, name, __VA_ARGS__)

    static zoff_status stream_open(zoff_accel *a, void **out)
    {
        ZOFF_FORWARD_TO(streams.open, stream_open, out);
    }
    static zoff_status event_open(zoff_accel *a, void **out)
    {
        ZOFF_FORWARD(event_open, out);
    }
    static zoff_status pin(zoff_accel *a, void *memory, size_t bytes)
    {
        ZOFF_FORWARD_TO(pages.pin, pin, memory, bytes);
    }
    static void *mapped(zoff_accel *a, void *memory)
    {
        return of(a)->refuses_to_pin ? nullptr : of(a)->real->pages.mapped(a, memory);
    }
    static zoff_status copy_of_engine(zoff_accel *a, void *s, void *dst, const void *src, size_t bytes)
    {
        of(a)->dawdle(s);
        if (of(a)->before_copy)
            of(a)->before_copy(s, dst);
        ZOFF_FORWARD(copy, s, dst, src, bytes);
    }
    static zoff_status zero(zoff_accel *a, void *s, void *dst, size_t bytes)
    {
        of(a)->dawdle(s);
        ZOFF_FORWARD(zero, s, dst, bytes);
    }
    static zoff_status alloc(zoff_accel *a, size_t bytes, void **out)
    {
        ZOFF_FORWARD(alloc, bytes, out);
    }
    static zoff_status update(zoff_accel *a, void *s, const zoff_adam_piece *pieces, size_t count)
    {
        of(a)->dawdle(s);
        ZOFF_FORWARD_TO(kernels.update, update, s, pieces, count);
    }
    static zoff_status accumulate(zoff_accel *a, void *s, const zoff_accumulate_piece *pieces, size_t count)
    {
        of(a)->dawdle(s);
        ZOFF_FORWARD_TO(kernels.accumulate, accumulate, s, pieces, count);
    }
    static zoff_status cast(zoff_accel *a, void *s, const zoff_cast_piece *pieces, size_t count)
    {
        of(a)->dawdle(s);
        ZOFF_FORWARD_TO(kernels.cast, cast, s, pieces, count);
    }
    static zoff_status square_sum(zoff_accel *a, void *s, const zoff_norm_piece *pieces, size_t count)
    {
        of(a)->dawdle(s);
        ZOFF_FORWARD_TO(kernels.square_sum, square_sum, s, pieces, count);
    }
    static zoff_status event_record(zoff_accel *a, void *event, void *s)
    {
        if (s)
            of(a)->dawdle(s);
        ZOFF_FORWARD(event_record, event, s);
    }
    static zoff_status event_await(zoff_accel *a, void *s, void *event)
    {
        if (of(a)->forgets_await)
            return ZOFF_OK;
        ZOFF_FORWARD(event_await, s, event);
    }
    static zoff_status event_poll(zoff_accel *a, void *event)
    {
        if (of(a)->forgets_poll)
            return ZOFF_OK;
        of(a)->polls++;
        zoff_status status = of(a)->count("event_poll", true);
        if (status == ZOFF_OK)
            status = of(a)->real->event_poll(a, event);
        return status == ZOFF_OK && of(a)->is_late && of(a)->is_late(event) ? ZOFF_PENDING : status;
    }
#undef ZOFF_FORWARD
#undef ZOFF_FORWARD_TO

    const unsigned seed;
    std::mt19937 random;
    std::mt19937 random_of_trainer{random}; // separate, because the trainer's calls run beside those of an engine's thread
    std::vector<std::weak_ptr<device_memory>> memories;
    const zoff_accel_ops *real = nullptr;
    with_self ops = {};
};
} // namespace zoff_test

#endif
