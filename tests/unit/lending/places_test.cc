// places_test.cc: slices that are made whole on a device, and the order of copies and of the program's work with them.
#include "accel_fault.h"
#include "small_lending.h"

using namespace zoff_test;

namespace
{
class Places : public testing::Test
{
  protected:
    void TearDown() override
    {
        for (void *each : {stream, other}) {
            if (each)
                zoff_accel_stream_close(t.accel, each);
        }
    }
    void open(size_t live)
    {
        t.put_on_device(false, device.accel);
        t.values.persistent_slice = 100;
        t.values.persistent_count = 100;
        t.values.live_count = live;
        t.add("small", 100);
        t.add("w", 1000, 3);
        ASSERT_NO_FATAL_FAILURE(t.open(1024));
        ASSERT_ZOFF_OK(zoff_accel_stream_open(t.accel, &stream));
        ASSERT_ZOFF_OK(zoff_accel_stream_open(t.accel, &other));
    }
    // Work of the program in a stream: it reads a slice slowly, and then says whether that was still whole.
    struct reader {
        const small_lending *t;
        const void *at;
        size_t slice;
        bool intact = false;
        static void run(void *ctx)
        {
            const auto r = static_cast<reader *>(ctx);
            usleep(30000);
            r->intact = r->t->has(r->at, 1, r->slice);
        }
    };
    void read_slowly(void *in, reader *r) { ASSERT_ZOFF_OK(zoff_accel_stream_call(t.accel, in, reader::run, r)); }
    const char *lend(zoff_param p, size_t slice)
    {
        const void *lent = nullptr;
        EXPECT_ZOFF_OK(zoff_lending_fetch_slice(&t.l, p, slice, stream, &lent));
        return (const char *)lent;
    }
    test_device device;
    small_lending t;
    void *stream = nullptr, *other = nullptr; // of the program
};

// The program's stream is held. A slice that takes the memory of another one must not arrive before the hold ends.
TEST_F(Places, MemoryIsOverwrittenOnlyBehindTheWorkThatReadsIt)
{
    static std::atomic<bool> let_go;
    ASSERT_NO_FATAL_FAILURE(open(1000));
    let_go = false;
    const char *first = lend(1, 0);
    ASSERT_ZOFF_OK(zoff_accel_stream_wait(t.accel, stream));
    ASSERT_ZOFF_OK(zoff_accel_stream_call(
        t.accel, stream,
        [](void *) {
            while (!let_go)
                usleep(100);
        },
        nullptr));
    ASSERT_ZOFF_OK(zoff_lending_fetch_release(&t.l, 1, 0, stream));
    const char *second = lend(1, 1);
    EXPECT_EQ(first, second) << "there is room for one";
    usleep(20000);
    EXPECT_TRUE(t.has(first, 1, 0)) << "the program may still read it";
    let_go = true;
    ASSERT_ZOFF_OK(zoff_accel_stream_wait(t.accel, stream));
    EXPECT_TRUE(t.has(second, 1, 1));
    ASSERT_ZOFF_OK(zoff_lending_fetch_release(&t.l, 1, 1, stream));
}

TEST_F(Places, SmallSlicesAreCopiedAgainOnlyAfterAChange)
{
    ASSERT_NO_FATAL_FAILURE(open(3000));
    const uint64_t before = t.l.there.link.write_bytes;
    const char *at = lend(0, 0);
    ASSERT_ZOFF_OK(zoff_accel_stream_wait(t.accel, stream));
    EXPECT_TRUE(t.has(at, 0, 0));
    const uint64_t once = t.l.there.link.write_bytes - before;
    EXPECT_LE(400u, once);
    ASSERT_ZOFF_OK(zoff_lending_fetch_release(&t.l, 0, 0, stream));
    lend(0, 0);
    EXPECT_EQ(once, t.l.there.link.write_bytes - before);
    ASSERT_ZOFF_OK(zoff_lending_fetch_release(&t.l, 0, 0, stream));
    ASSERT_ZOFF_OK(zoff_lending_copies_settle(&t.l));
    zoff_lending_param_cache_clear(&t.l); // weights change
    lend(0, 0);
    EXPECT_EQ(2 * once, t.l.there.link.write_bytes - before);
    ASSERT_ZOFF_OK(zoff_lending_fetch_release(&t.l, 0, 0, stream));
}

TEST_F(Places, MemoryIsOverwrittenOnlyBehindAllStreamsThatReleasedIt)
{
    ASSERT_NO_FATAL_FAILURE(open(1000));
    for (bool slow_first : {true, false}) {
        const char *at = lend(1, 0);
        EXPECT_EQ(at, lend(1, 0)) << "twice";
        ASSERT_ZOFF_OK(zoff_accel_stream_wait(t.accel, stream));
        reader slow = {&t, at, 0};
        ASSERT_NO_FATAL_FAILURE(read_slowly(stream, &slow));
        void *const order[] = {slow_first ? stream : other, slow_first ? other : stream};
        for (void *in : order)
            ASSERT_ZOFF_OK(zoff_lending_fetch_release(&t.l, 1, 0, in));
        const void *second = nullptr;
        ASSERT_ZOFF_OK(zoff_lending_fetch_slice(&t.l, 1, 1, other, &second));
        EXPECT_EQ(at, second) << "there is room for one";
        ASSERT_ZOFF_OK(zoff_accel_stream_wait(t.accel, stream));
        ASSERT_ZOFF_OK(zoff_accel_stream_wait(t.accel, other));
        EXPECT_TRUE(slow.intact);
        EXPECT_TRUE(t.has(second, 1, 1));
        ASSERT_ZOFF_OK(zoff_lending_fetch_release(&t.l, 1, 1, other));
    }
}

// Where copies cannot be made to wait in their stream, the call waits.
TEST_F(Places, MemoryIsNotOverwrittenWhereTheDeviceRefusesToWait)
{
    ASSERT_NO_FATAL_FAILURE(open(1000));
    const char *at = lend(1, 0);
    ASSERT_ZOFF_OK(zoff_accel_stream_wait(t.accel, stream));
    reader slow = {&t, at, 0};
    ASSERT_NO_FATAL_FAILURE(read_slowly(stream, &slow));
    ASSERT_ZOFF_OK(zoff_lending_fetch_release(&t.l, 1, 0, stream));
    device.calls = 0;
    device.fail = 1;
    const char *second = lend(1, 1);
    EXPECT_LE(1, device.calls);
    device.fail = 0;
    EXPECT_EQ(at, second);
    ASSERT_ZOFF_OK(zoff_accel_stream_wait(t.accel, stream));
    EXPECT_TRUE(slow.intact);
    EXPECT_TRUE(t.has(second, 1, 1));
    ASSERT_ZOFF_OK(zoff_lending_fetch_release(&t.l, 1, 1, stream));
}

// Weights that stay on the device are lent from there, behind copies up that are on their way.
TEST_F(Places, WeightsThatStayOnTheDeviceAreLentFromThere)
{
    t.put_on_device(true, device.accel);
    t.values.persistent_slice = 0;
    t.add("w", 1024, 3);
    ASSERT_NO_FATAL_FAILURE(t.open(1024));
    ASSERT_ZOFF_OK(zoff_accel_stream_open(t.accel, &stream));
    ASSERT_TRUE(t.slice(1).direct);
    void *base = nullptr;
    ASSERT_ZOFF_OK(claim_chunk(t.l.store, 1, &base));
    memset(base, 7, 4096);
    ASSERT_ZOFF_OK(t.accel->ops->streams.call(
        t.accel, t.l.there.link.stream, [](void *) { usleep(20000); }, nullptr));
    ASSERT_ZOFF_OK(flush_chunk(t.l.store, 1));
    const char *at = lend(0, 1);
    EXPECT_EQ(zoff_offload_device_there(t.l.store, 1), at);
    std::string seen(4096, 0);
    ASSERT_ZOFF_OK(t.accel->ops->copy(t.accel, stream, &seen[0], at, 4096));
    ASSERT_ZOFF_OK(zoff_accel_stream_wait(t.accel, stream));
    EXPECT_EQ(std::string(4096, 7), seen);
    ASSERT_ZOFF_OK(zoff_lending_fetch_release(&t.l, 0, 1, stream));
}
} // namespace
