// fill_test.cc: a slice is put together from its chunks, at once or with a prefetch that stops half way.
#include "small_lending.h"

using namespace zoff_test;

namespace
{
TEST(Fill, GoesOnWhereAPrefetchHasStopped)
{
    small_lending t;
    t.values.tier = ZOFF_TIER_NVME;
    t.values.slots = 4;
    t.add("w", 5000);
    ASSERT_NO_FATAL_FAILURE(t.open(1024));
    std::vector<char> place(5000 * 4);
    zoff_cached_slice s = t.slice(0);
    s.at = place.data();
    int pending = 0;
    while (zoff_lending_fill_ahead(&t.l, &s) == ZOFF_PENDING && pending++ < 3)
        EXPECT_ZOFF_OK(zoff_offload_store_wait(t.l.store));
    EXPECT_LT(0, pending) << "the files are not read yet";
    EXPECT_TRUE(s.filled == 5000 || s.filled % 1024 == 0) << "whole chunks";
    ASSERT_ZOFF_OK(zoff_lending_fill_slice(&t.l, &s));
    EXPECT_EQ(5000u, s.filled);
    EXPECT_TRUE(t.has(place.data(), 0, 0));
}

TEST(Fill, BringsASliceToADevice)
{
    for (bool stays : {false, true}) {
        small_lending t;
        t.put_on_device(stays);
        t.values.persistent_slice = 0;
        t.add("w", 2500, 3);
        ASSERT_NO_FATAL_FAILURE(t.open(1024));
        for (size_t slice : {1, 0, 2}) {
            t.fetch(0, slice);
            t.release(0, slice);
        }
        if (!stays) {
            EXPECT_EQ(3 * 2500 * 4u, t.l.there.write_bytes);
        }
    }
}
} // namespace
