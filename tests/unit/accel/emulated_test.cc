/* SPDX-License-Identifier: Apache-2.0 */
// emulated_test.cc: properties of the device made of threads beyond the contract of all accelerators: any number of devices,
// memory that is never zero, and cleanup after every failure.
#include "held_stream.h"
#include "memory_fault.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <functional>

using namespace zoff_test;

namespace
{
class AccelEmulated : public held_stream
{
  protected:
    void SetUp() override
    {
        held_stream::SetUp();
        ASSERT_ZOFF_OK(ops.event_open(device.get(), &event));
    }
    void TearDown() override
    {
        held_stream::TearDown();
        ops.event_close(device.get(), event);
    }
    void *event = nullptr;
};
} // namespace

TEST_F(AccelEmulated, HasAnyNumberOfDevices)
{
    zoff_accel *other = nullptr;
    for (int index : {-1, INT32_MIN})
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID,
                          "accelerator \"emulated\" numbers its devices from 0; " + std::to_string(index) + " was asked for",
                          zoff_accel_open("emulated", index, &other));
    EXPECT_EQ(nullptr, other);
    ASSERT_ZOFF_OK(zoff_accel_open("emulated", INT32_MAX, &other));
    const accel last(other);
    zoff_accel_info info = {};
    info.struct_size = sizeof info;
    ASSERT_ZOFF_OK(zoff_accel_get_info(other, &info));
    EXPECT_EQ(INT32_MAX, info.index);
    EXPECT_STREQ("threads of this process", info.name);
    EXPECT_EQ(-1, info.numa_node);
    EXPECT_FALSE(zoff_accel_in_place(other));
}

TEST_F(AccelEmulated, NobodyFindsZerosInItsMemory)
{
    for (size_t bytes : {(size_t)0, (size_t)1, (size_t)1000003}) {
        void *memory = nullptr;
        ASSERT_ZOFF_OK(ops.alloc(device.get(), bytes, &memory));
        EXPECT_NE(nullptr, memory);
        const auto first = static_cast<const unsigned char *>(memory);
        EXPECT_EQ(static_cast<ptrdiff_t>(bytes), std::count(first, first + bytes, 0xa5));
        ops.free(device.get(), memory);
    }
    void *none = nullptr;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_MEMORY, "an emulated device", ops.alloc(device.get(), SIZE_MAX, &none));
    EXPECT_EQ(nullptr, none);
}

TEST_F(AccelEmulated, MemoryThatIsNotThereIsAnError)
{
    zoff_accel *other = nullptr;
    void *handle = nullptr;
    const auto without_the = [](int nth, const char *what, const std::function<zoff_status()> &call) {
        memory_fault fault;
        fault.fail_allocation = nth;
        EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_MEMORY, what, call());
    };
    without_the(1, "an emulated accelerator", [&] { return zoff_accel_open("emulated", 0, &other); });
    without_the(1, "an event", [&] { return ops.event_open(device.get(), &handle); });
    without_the(1, "a stream", [&] { return ops.streams.open(device.get(), &handle); });
    without_the(2, "a stream's queue", [&] { return ops.streams.open(device.get(), &handle); });
    without_the(1, "a point in a stream", [&] { return ops.event_record(device.get(), event, stream); });
    EXPECT_ZOFF_OK(ops.event_poll(device.get(), event)) << "it was never recorded";
    EXPECT_EQ(nullptr, other);
    EXPECT_EQ(nullptr, handle);
}

// A queue that cannot grow accepts no more jobs, keeps its jobs in order, and can still be stopped.
TEST_F(AccelEmulated, AQueueThatCannotGrowRefusesAndContinues)
{
    int value = 0, taken = 0;
    hold();
    for (bool refused = false; !refused;) {
        memory_fault fault;
        fault.fail_allocation = 1;
        const zoff_status status = ops.streams.call(
            device.get(), stream, [](void *ctx) { ++*static_cast<int *>(ctx); }, &value);
        refused = status < 0;
        taken += !refused;
        ASSERT_LT(taken, 1000);
        if (refused) {
            EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_MEMORY, "a stream's queue", status);
            fault.fail_allocation = fault.allocations + 1;
            EXPECT_EQ(ZOFF_ERR_NO_MEMORY, ops.zero(device.get(), stream, &value, sizeof value));
        }
    }
    EXPECT_GT(taken, 2);
    memory_fault fault;
    fault.fail_allocation = 2; // the first one is for the point
    EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_MEMORY, "a stream's queue", ops.event_record(device.get(), event, stream));
    EXPECT_ZOFF_OK(ops.event_poll(device.get(), event)) << "a record that could not be put into the stream has never been";
    let_go = true;
    fault.fail_allocation = fault.allocations + 1;
    ops.streams.close(device.get(), stream);
    stream = nullptr;
    EXPECT_EQ(taken, value);
}

TEST_F(AccelEmulated, AStreamIsAThreadThatTakesNoSignals)
{
    struct seen {
        char name[16] = "";
        bool blocked = false;
    } thread;
    ASSERT_ZOFF_OK(ops.streams.call(
        device.get(), stream,
        [](void *ctx) {
            sigset_t mask;
            const auto s = static_cast<seen *>(ctx);
            pthread_sigmask(SIG_SETMASK, nullptr, &mask);
            s->blocked = sigismember(&mask, SIGUSR1) == 1 && sigismember(&mask, SIGINT) == 1;
            pthread_getname_np(pthread_self(), s->name, sizeof s->name);
        },
        &thread));
    ASSERT_ZOFF_OK(zoff_accel_stream_wait(device.get(), stream));
    EXPECT_STREQ("zoff-stream", thread.name);
    EXPECT_TRUE(thread.blocked);
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    EXPECT_EQ(0, sigismember(&mask, SIGUSR1)) << "the caller's own mask was changed";
}

TEST_F(AccelEmulated, AThreadThatIsNotToBeHadIsAnError)
{
    void *none = nullptr;
    memory_fault fault;
    fault.fail_thread = 1;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_DEVICE,
                      "cannot start the thread of a stream of accelerator \"emulated\": Resource temporarily unavailable",
                      ops.streams.open(device.get(), &none));
    EXPECT_EQ(nullptr, none);
}

// A stream waits in the middle of its queue, and more jobs come than there is room for. Jobs that were taken make room, then
// the queue grows. Nothing is lost, and the order stays.
TEST_F(AccelEmulated, AQueueMovesUpAndGrowsWhileItsStreamWaits)
{
    struct place {
        std::atomic<bool> reached{false}, left{false};
    } first, second;
    struct item {
        std::vector<int> *seen;
        int number;
    };
    std::vector<int> seen, want;
    std::vector<item> items;
    for (int i = 0; i < 300; i++) {
        items.push_back({&seen, i});
        want.push_back(i);
    }
    size_t next = 0;
    const auto call = [&](void (*run)(void *), void *ctx) { ASSERT_ZOFF_OK(ops.streams.call(device.get(), stream, run, ctx)); };
    const auto stop_at = [&](place *p) {
        call(
            [](void *ctx) {
                const auto here = static_cast<place *>(ctx);
                here->reached = true;
                while (!here->left)
                    usleep(100);
            },
            p);
    };
    const auto add = [&](size_t count) {
        for (size_t i = 0; i < count; i++) {
            call(
                [](void *ctx) {
                    const auto it = static_cast<const item *>(ctx);
                    it->seen->push_back(it->number);
                },
                &items[next++]);
        }
    };
    stop_at(&first);
    add(6);
    stop_at(&second);
    add(6);
    first.left = true;
    while (!second.reached)
        usleep(100);
    add(items.size() - next);
    second.left = true;
    ASSERT_ZOFF_OK(zoff_accel_stream_wait(device.get(), stream));
    EXPECT_EQ(want, seen);
}

// The child has a copy of the queue and no thread: closing waits for nobody, and the parent does not notice.
TEST_F(AccelEmulated, AChildOfForkClosesWithoutWaiting)
{
    for (bool is_busy : {false, true}) {
        if (is_busy)
            hold();
        usleep(20000); // now the stream's thread waits
        const pid_t child = fork();
        ASSERT_GE(child, 0);
        if (child == 0) {
            alarm(20); // end the child if it waits for ever
            ops.streams.close(device.get(), stream);
            _exit(0);
        }
        int status = 0;
        ASSERT_EQ(child, waitpid(child, &status, 0));
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "wait status " << status;
    }
    let_go = true;
    EXPECT_ZOFF_OK(zoff_accel_stream_wait(device.get(), stream));
}
