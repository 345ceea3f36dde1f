// places_test.cc: slices that are made whole on a device, and the order of copies and of the program's work with them.
#include "small_lending.h"

using namespace zoff_test;

namespace
{
class Places : public testing::Test
{
  protected:
    void TearDown() override { zoff_accel_stream_close(t.accel, stream); }
    void open(size_t live)
    {
        t.put_on_device(false);
        t.values.persistent_slice = 100;
        t.values.persistent_count = 100;
        t.values.live_count = live;
        t.add("small", 100);
        t.add("w", 1000, 3);
        ASSERT_NO_FATAL_FAILURE(t.open(1024));
        ASSERT_ZOFF_OK(zoff_accel_stream_open(t.accel, &stream));
    }
    const char *lend(zoff_param p, size_t slice)
    {
        const void *lent = nullptr;
        EXPECT_ZOFF_OK(zoff_lending_fetch_slice(&t.l, p, slice, stream, &lent));
        return (const char *)lent;
    }
    small_lending t;
    void *stream = nullptr;
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
    const uint64_t before = t.l.there.write_bytes;
    const char *at = lend(0, 0);
    ASSERT_ZOFF_OK(zoff_accel_stream_wait(t.accel, stream));
    EXPECT_TRUE(t.has(at, 0, 0));
    const uint64_t once = t.l.there.write_bytes - before;
    EXPECT_LE(400u, once);
    ASSERT_ZOFF_OK(zoff_lending_fetch_release(&t.l, 0, 0, stream));
    lend(0, 0);
    EXPECT_EQ(once, t.l.there.write_bytes - before);
    ASSERT_ZOFF_OK(zoff_lending_fetch_release(&t.l, 0, 0, stream));
    ASSERT_ZOFF_OK(zoff_lending_copies_settle(&t.l));
    zoff_lending_param_cache_clear(&t.l); // weights change
    lend(0, 0);
    EXPECT_EQ(2 * once, t.l.there.write_bytes - before);
    ASSERT_ZOFF_OK(zoff_lending_fetch_release(&t.l, 0, 0, stream));
}
} // namespace
