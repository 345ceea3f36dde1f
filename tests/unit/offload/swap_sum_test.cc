// swap_sum_test.cc: checksums of arrays: which are computed, which parts settle has computed already, and changed bytes are
// found.
#include "ring_store.h"

using namespace zoff_test;

namespace
{
using sums = std::array<uint64_t, ZOFF_STORE_ARRAYS>;

class SwapSum : public Ring
{
  protected:
    // Chunk 2 has arrays of several blocks.
    SwapSum() { chunks[2] = {237568, 4096, {69632, 102400, 237568}}; }
    sums stamp(size_t chunk, unsigned arrays = ALL)
    {
        zoff_swap_version version = {};
        zoff_offload_swap_sum_stamp(s(), chunk, slot_of(chunk)->base, arrays, &version);
        return {version.arrays[0].checksum, version.arrays[1].checksum, version.arrays[2].checksum};
    }
    // The arrays of a stamp that have a checksum.
    unsigned stamped(size_t chunk, unsigned arrays = ALL)
    {
        zoff_swap_version version = {};
        unsigned has = 0;
        zoff_offload_swap_sum_stamp(s(), chunk, slot_of(chunk)->base, arrays, &version);
        for (unsigned array = 0; array < ZOFF_STORE_ARRAYS; array++)
            has |= (unsigned)version.arrays[array].has_checksum << array;
        return has;
    }
    void settle(size_t chunk, size_t from, size_t to) { zoff_offload_swap_sum_settle(store, chunk, from, to); }
};
} // namespace

TEST_F(SwapSum, VerifiedArraysHaveChecksums)
{
    open();
    borrow(2);
    EXPECT_EQ(7u, stamped(2));
    EXPECT_EQ(5u, stamped(2, 5)) << "of the arrays that were asked for";
    s()->sums.verify = ZOFF_VERIFY_OFF;
    EXPECT_EQ(0u, stamped(2));
    s()->sums.verify = ZOFF_VERIFY_SAMPLE;
    for (uint64_t generation = 0; generation < 2 * ZOFF_VERIFY_SAMPLES; generation++) {
        s()->record.generation = generation;
        EXPECT_EQ((2 + generation) % ZOFF_VERIFY_SAMPLES ? 0u : 7u, stamped(2)) << generation;
    }
}

TEST_F(SwapSum, OtherArraysKeepTheirs)
{
    open();
    borrow(2);
    zoff_swap_version version = {};
    version.arrays[0] = version.arrays[2] = {99, 0, false, true};
    zoff_offload_swap_sum_stamp(s(), 2, slot_of(2)->base, 2, &version);
    EXPECT_EQ(99u, version.arrays[0].checksum);
    EXPECT_EQ(99u, version.arrays[2].checksum);
    EXPECT_EQ(stamp(2)[1], version.arrays[1].checksum);
}

TEST_F(SwapSum, APartThatWasSettledIsNotComputedAgain)
{
    open();
    char *base = borrow(2);
    for (size_t i = 0; i < chunks[2].bytes; i++)
        base[i] = (char)(i * 7 + (i >> 9));
    const sums whole = stamp(2);
    for (unsigned threads : {1, 2, 3}) {
        store->threads = threads;
        settle(2, 0, 4096);
        settle(2, 4096, 140000); // in the middle of an array
        settle(2, 100000, 237568);
        EXPECT_EQ(2u, s()->sums.digested);
        EXPECT_EQ(whole, stamp(2)) << threads;
        EXPECT_EQ(SIZE_MAX, s()->sums.digested) << "that is over with the stamp";
    }
    settle(2, 0, 69632);
    base[0]++; // a change that is not allowed
    EXPECT_EQ(whole, stamp(2)) << "what was settled counts";
    EXPECT_NE(whole[0], stamp(2)[0]);
    settle(2, 0, 69632);
    borrow(3);
    settle(3, 0, 20480); // another chunk starts again
    base[0]--;
    EXPECT_EQ(whole, stamp(2));
}

TEST_F(SwapSum, NothingIsSettledThatNobodyCompares)
{
    opts.residents = 3;
    open();
    size_t home = 0, streamed = 0;
    for (size_t c = 0; c < chunks.size(); c++)
        *(place(c).home ? &home : &streamed) = c;
    borrow(streamed);
    settle(home, 0, chunks[home].bytes);
    EXPECT_EQ(SIZE_MAX, s()->sums.digested) << "a resident is in no file";
    s()->sums.verify = ZOFF_VERIFY_OFF;
    settle(streamed, 0, chunks[streamed].bytes);
    EXPECT_EQ(SIZE_MAX, s()->sums.digested);
    s()->sums.verify = ZOFF_VERIFY_FULL;
    settle(streamed, 0, chunks[streamed].bytes);
    EXPECT_EQ(streamed, s()->sums.digested);
}

TEST_F(SwapSum, AnArrayWhoseBytesHaveChangedIsFound)
{
    open();
    zoff_swap_slot *slot = take(2);
    fill(2, 5);
    zoff_offload_swap_sum_stamp(s(), 2, slot->base, ALL, &place(2).now);
    slot->unchecked = ALL;
    EXPECT_EQ(0u, zoff_offload_swap_sum_find_corrupt(s(), slot));
    slot->base[69632]++;  // the first byte of array 1
    slot->base[237567]++; // the last one of array 2
    EXPECT_EQ(6u, zoff_offload_swap_sum_find_corrupt(s(), slot));
    slot->unchecked = 3;
    EXPECT_EQ(2u, zoff_offload_swap_sum_find_corrupt(s(), slot)) << "those that were compared are not compared again";
    place(2).now.arrays[1].has_checksum = false;
    EXPECT_EQ(0u, zoff_offload_swap_sum_find_corrupt(s(), slot)) << "there is nothing to compare it with";
    slot->unchecked = ALL;
    s()->sums.verify = ZOFF_VERIFY_OFF;
    EXPECT_EQ(0u, zoff_offload_swap_sum_find_corrupt(s(), slot));
}

// Committed bytes stay where they are: new bytes go to the other place.
TEST_F(SwapSum, NewBytesGoWhereNothingIsCommitted)
{
    open();
    zoff_swap_slot *slot = take(0);
    zoff_offload_swap_sum_renew(s(), 0, slot->base, ALL);
    EXPECT_EQ(0u, place(0).now.arrays[1].slot) << "without a record there is one place";
    open_persistent();
    slot = take(0);
    for (const unsigned committed : {0, 1}) {
        for (unsigned array = 0; array < ZOFF_STORE_ARRAYS; array++)
            place(0).now.arrays[array] = place(0).committed.arrays[array] = {0, committed, true, false};
        zoff_offload_swap_sum_renew(s(), 0, slot->base, 2);
        zoff_offload_swap_sum_renew(s(), 0, slot->base, 2); // written twice: still the other place
        EXPECT_EQ(!committed, place(0).now.arrays[1].slot);
        EXPECT_FALSE(place(0).now.arrays[1].fresh);
        EXPECT_TRUE(place(0).now.arrays[1].has_checksum);
        for (const unsigned array : {0, 2}) {
            EXPECT_EQ(committed, place(0).now.arrays[array].slot) << "and only that of the arrays that were changed";
            EXPECT_TRUE(place(0).now.arrays[array].fresh);
        }
    }
}
