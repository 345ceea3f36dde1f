// copies_test.cc: the stream that carries weights to a device, its events and counters.
#include "accel_fault.h"
#include "small_lending.h"

using namespace zoff_test;

namespace
{
TEST(Copies, AreCountedByDirectionAndDoneAfterSettling)
{
    small_lending t;
    t.put_on_device(false);
    t.add("w", 4000);
    ASSERT_NO_FATAL_FAILURE(t.open_cache(1024));
    ASSERT_LE(16000u, t.l.cache.bytes);
    std::vector<char> from(4000, 3), back(4000);
    const uint64_t before = t.l.there.link.write_bytes;
    ASSERT_ZOFF_OK(zoff_lending_copies_up(&t.l, t.l.cache.base, from.data(), 4000));
    ASSERT_ZOFF_OK(zoff_lending_copies_within(&t.l, t.l.cache.base + 8000, t.l.cache.base, 4000));
    ASSERT_ZOFF_OK(zoff_lending_copies_down(&t.l, back.data(), t.l.cache.base + 8000, 4000));
    EXPECT_TRUE(t.l.there.link.moves);
    ASSERT_ZOFF_OK(zoff_lending_copies_settle(&t.l));
    EXPECT_FALSE(t.l.there.link.moves);
    EXPECT_EQ(from, back);
    EXPECT_EQ(4000u, t.l.there.link.write_bytes - before);
    EXPECT_EQ(4000u, t.l.there.link.read_bytes);
}

TEST(Copies, NeedNoStreamOnTheHost)
{
    small_lending t;
    t.add("w", 4000);
    ASSERT_NO_FATAL_FAILURE(t.open_cache(1024));
    EXPECT_EQ(nullptr, t.l.there.link.stream);
    EXPECT_ZOFF_OK(zoff_lending_copies_settle(&t.l));
    EXPECT_FALSE(zoff_lending_copies_are_busy(&t.l));
}

TEST(Copies, AreOnlyDoneWhenTheStreamIs)
{
    small_lending t;
    t.put_on_device(false);
    t.add("w", 4000);
    ASSERT_NO_FATAL_FAILURE(t.open_cache(1024));
    const std::string from(4000, 3);
    memset(t.l.cache.base, 0, 4000);
    ASSERT_ZOFF_OK(t.accel->ops->streams.call(
        t.accel, t.l.there.link.stream, [](void *) { usleep(20000); }, nullptr));
    ASSERT_ZOFF_OK(zoff_lending_copies_up(&t.l, t.l.cache.base, from.data(), from.size()));
    ASSERT_ZOFF_OK(zoff_lending_copies_settle(&t.l));
    EXPECT_EQ(from, std::string(t.l.cache.base, from.size()));
}

// A device whose calls can fail.
class CopiesOfADevice : public testing::Test
{
  protected:
    void SetUp() override
    {
        t.put_on_device(false, device.accel);
        t.add("w", 4000);
        ASSERT_NO_FATAL_FAILURE(t.open_cache(1024));
    }
    test_device device;
    small_lending t;
};

TEST_F(CopiesOfADevice, AreNotCountedIfItRefusesThem)
{
    char from[64] = {};
    const uint64_t before = t.l.there.link.write_bytes;
    device.calls = 0;
    device.fail = 1;
    EXPECT_EQ(ZOFF_ERR_DEVICE, zoff_lending_copies_up(&t.l, t.l.cache.base, from, sizeof from));
    device.fail = 0;
    EXPECT_EQ(before, t.l.there.link.write_bytes);
    EXPECT_ZOFF_OK(zoff_lending_copies_settle(&t.l));
}

TEST_F(CopiesOfADevice, PinMemoryUntilItIsUnpinned)
{
    alignas(4096) static char memory[8192];
    void *const *pinned = t.l.there.pinned;
    EXPECT_ZOFF_OK(zoff_lending_copies_pin(&t.l, memory, 0, ZOFF_PINNED_STORE));
    EXPECT_EQ(nullptr, pinned[ZOFF_PINNED_STORE]) << "nothing to pin";
    device.calls = 0;
    device.fail = 1;
    EXPECT_EQ(ZOFF_ERR_DEVICE, zoff_lending_copies_pin(&t.l, memory, sizeof memory, ZOFF_PINNED_STORE));
    device.fail = 0;
    EXPECT_EQ(nullptr, pinned[ZOFF_PINNED_STORE]);
    zoff_lending_copies_unpin(&t.l, ZOFF_PINNED_STORE);
    EXPECT_ZOFF_OK(zoff_lending_copies_pin(&t.l, memory, sizeof memory, ZOFF_PINNED_STORE));
    EXPECT_EQ(memory, pinned[ZOFF_PINNED_STORE]);
    zoff_lending_copies_unpin(&t.l, ZOFF_PINNED_STORE);
    EXPECT_EQ(nullptr, pinned[ZOFF_PINNED_STORE]);
}
} // namespace
