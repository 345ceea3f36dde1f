// fill_test.cc: a slice is put together from its chunks, at once or with a prefetch that stops half way.
#include "small_lending.h"

using namespace zoff_test;

namespace
{
// The store has two slots, and the slice five chunks. So a prefetch meets a chunk that is not there, unless the disk is faster
// than the copies: then the slice is put together once more.
TEST(Fill, GoesOnWhereAPrefetchHasStopped)
{
    small_lending t;
    t.values.tier = ZOFF_TIER_NVME;
    t.values.slots = 2;
    t.add("w", 5000);
    ASSERT_NO_FATAL_FAILURE(t.open(1024));
    std::vector<char> place(5000 * 4);
    zoff_cached_slice s = t.slice(0);
    s.at = place.data();
    for (zoff_status status = ZOFF_OK; status == ZOFF_OK || s.filled == 0;) {
        if (status == ZOFF_OK)
            s.filled = 0;
        else
            ASSERT_ZOFF_OK(zoff_offload_store_wait(t.l.store));
        status = zoff_lending_fill_ahead(&t.l, &s);
        ASSERT_LE(0, status) << zoff_last_error();
    }
    EXPECT_GT(5000u, s.filled);
    EXPECT_EQ(0u, s.filled % 1024) << "whole chunks";
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
            EXPECT_EQ(3 * 2500 * 4u, t.l.there.link.write_bytes);
        }
    }
}
} // namespace
