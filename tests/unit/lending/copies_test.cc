// copies_test.cc: the stream that carries weights to a device, its events and counters.
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
    const uint64_t before = t.l.there.write_bytes;
    ASSERT_ZOFF_OK(zoff_lending_copies_up(&t.l, t.l.cache.base, from.data(), 4000));
    ASSERT_ZOFF_OK(zoff_lending_copies_within(&t.l, t.l.cache.base + 8000, t.l.cache.base, 4000));
    ASSERT_ZOFF_OK(zoff_lending_copies_down(&t.l, back.data(), t.l.cache.base + 8000, 4000));
    EXPECT_TRUE(t.l.there.moves);
    ASSERT_ZOFF_OK(zoff_lending_copies_settle(&t.l));
    EXPECT_FALSE(t.l.there.moves);
    EXPECT_EQ(from, back);
    EXPECT_EQ(4000u, t.l.there.write_bytes - before);
    EXPECT_EQ(4000u, t.l.there.read_bytes);
}

TEST(Copies, NeedNoStreamOnTheHost)
{
    small_lending t;
    t.add("w", 4000);
    ASSERT_NO_FATAL_FAILURE(t.open_cache(1024));
    EXPECT_EQ(nullptr, t.l.there.stream);
    EXPECT_ZOFF_OK(zoff_lending_copies_settle(&t.l));
    EXPECT_FALSE(zoff_lending_copies_are_busy(&t.l));
}
} // namespace
