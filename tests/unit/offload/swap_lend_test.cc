// swap_lend_test.cc: chunks are lent and given back: when one must wait, the reads and writes for it, and refusals.
#include "ring_store.h"

using namespace zoff_test;

namespace
{
class SwapLend : public Ring
{
  protected:
    zoff_status fetch(size_t chunk, unsigned arrays = ALL)
    {
        void *base = nullptr;
        return zoff_offload_store_fetch_arrays(store, chunk, arrays, &base);
    }
};
} // namespace

TEST_F(SwapLend, AChunkWaitsForASlotAndForItsBorrower)
{
    open();
    for (size_t c : {0, 1, 2})
        borrow(c);
    EXPECT_EQ(ZOFF_PENDING, fetch(3)) << "all slots are lent";
    EXPECT_EQ(ZOFF_PENDING, fetch(0)) << "it is lent already";
    zoff_offload_store_release(store, 1);
    ASSERT_NE(nullptr, borrow(3));
    ASSERT_ZOFF_OK(zoff_offload_store_flush(store, 0));
    EXPECT_EQ(ZOFF_PENDING, fetch(0)) << "it is being written";
    drain();
    EXPECT_NE(nullptr, borrow(0));
}

TEST_F(SwapLend, OnlyTheArraysThatAreMissingAreRead)
{
    open();
    flush(0, 7);
    drain();
    EXPECT_EQ(traffic(8192, 0), moved([&] { borrow(0, 2); }));
    EXPECT_EQ(7, value_at(slot_of(0)->base, 0, 1));
    ASSERT_ZOFF_OK(zoff_offload_store_keep(store, 0, 0));
    EXPECT_EQ(traffic(12288, 0), moved([&] { borrow(0); }));
    EXPECT_EQ(7, value_at(slot_of(0)->base, 0, 0));
    EXPECT_EQ(7, value_at(slot_of(0)->base, 0, 2));
    zoff_offload_store_release(store, 0);
    EXPECT_EQ(traffic(20480, 0), moved([&] { borrow(0); })) << "after a release nothing is at hand";
}

TEST_F(SwapLend, AFlushWritesWhatWasBorrowed)
{
    open();
    EXPECT_EQ(traffic(0, 8192), moved([&] {
                  flush(0, 7, 4);
                  drain();
              }));
    EXPECT_EQ((std::vector<int>{1, 0, 7}), values_of(0));
    opts.residents = 7;
    open();
    EXPECT_EQ(traffic(0, 0), moved([&] {
                  flush(0, 7);
                  drain();
              }))
        << "a resident is in no file";
    EXPECT_EQ((std::vector<int>{7, 7, 7}), values_of(0));
    open_persistent();
    EXPECT_EQ(traffic(0, 20480), moved([&] {
                  flush(0, 7);
                  EXPECT_EQ(ZOFF_PENDING, fetch(0)) << "it must not change while it is written";
                  drain();
              }));
    EXPECT_EQ((std::vector<int>{7, 7, 7}), values_of(0));
}

TEST_F(SwapLend, ClaimedChunksAreNotRead)
{
    open();
    flush(0, 7);
    drain();
    void *base = nullptr;
    EXPECT_EQ(traffic(0, 0), moved([&] { ASSERT_ZOFF_OK(zoff_offload_store_claim(store, 0, &base)); }));
    fill(0, 8);
    zoff_offload_store_release(store, 0);
    EXPECT_EQ((std::vector<int>{7, 7, 7}), values_of(0)) << "given back as it was";
    ASSERT_ZOFF_OK(zoff_offload_store_claim(store, 0, &base));
    fill(0, 9);
    ASSERT_ZOFF_OK(zoff_offload_store_flush(store, 0));
    EXPECT_EQ(ZOFF_PENDING, zoff_offload_store_claim(store, 0, &base));
    drain();
    EXPECT_EQ((std::vector<int>{9, 9, 9}), values_of(0));
    for (size_t c : {0, 1, 2})
        ASSERT_ZOFF_OK(zoff_offload_store_claim(store, c, &base));
    EXPECT_EQ(ZOFF_PENDING, zoff_offload_store_claim(store, 3, &base)) << "all slots are lent";
}

TEST_F(SwapLend, ChangedBytesAreNotLent)
{
    open();
    flush(0, 7);
    drain();
    flip(0, 1);
    char *base = nullptr;
    EXPECT_EQ(ZOFF_ERR_CORRUPT, try_borrow(0, ALL, &base));
    const std::string words = zoff_last_error(), place_of = "chunk 0 (8192 bytes at offset " +
                                                            std::to_string(zoff_offload_swap_place_offset(s(), 0, 1)) +
                                                            " of '" + s()->files[0].name + "')";
    EXPECT_NE(std::string::npos, words.find(place_of)) << words;
    EXPECT_EQ(ZOFF_SLOT_FREE, state_of(0));
    EXPECT_EQ(ZOFF_OK, try_borrow(0, 5, &base)) << "the other arrays are as they were written";
    zoff_offload_store_release(store, 0);
    flip(0, 1);
    EXPECT_EQ((std::vector<int>{7, 7, 7}), values_of(0));
}

// Beside an array that was put off: only arrays that were read are dropped.
TEST_F(SwapLend, WritesPutOffSurviveAFailedCheck)
{
    open();
    flush(0, 7);
    drain();
    ASSERT_ZOFF_OK(keep(0, 8, 1));
    flip(0, 1);
    char *base = nullptr;
    EXPECT_EQ(ZOFF_ERR_CORRUPT, try_borrow(0, 2, &base));
    EXPECT_TRUE(zoff_offload_swap_slot_is_put_off(slot_of(0)));
    EXPECT_EQ(1u, slot_of(0)->holds);
    flip(0, 1);
    drain();
    EXPECT_EQ(8, value_in_file(0, 0));
}

TEST_F(SwapLend, ACheckIsMadeOnce)
{
    open();
    flush(0, 7);
    drain();
    borrow(0);
    slot_of(0)->base[0]++; // the borrower's own change
    EXPECT_ZOFF_OK(zoff_offload_store_check(store, 0));
}

TEST_F(SwapLend, AReadThatFailsLeavesNothingBorrowed)
{
    open();
    {
        aio_fault fault;
        fail_all(fault, false);
        char *base = nullptr;
        EXPECT_EQ(ZOFF_ERR_IO, try_borrow(0, ALL, &base));
        EXPECT_EQ(ZOFF_SLOT_FREE, state_of(0));
    }
    EXPECT_EQ((std::vector<int>{1, 0, 0}), values_of(0)) << "asked again";
}

TEST_F(SwapLend, ChunksAreReadAheadIntoFreeSlots)
{
    chunks[6] = {0, 0, {}};
    open();
    ASSERT_ZOFF_OK(zoff_offload_store_ahead(store, 0));
    EXPECT_EQ(ZOFF_SLOT_READING, state_of(0));
    ASSERT_ZOFF_OK(zoff_offload_store_ahead(store, 0)) << "it is on its way";
    ASSERT_ZOFF_OK(zoff_offload_store_ahead(store, 6)) << "there is nothing to read";
    EXPECT_EQ(1u, s()->flight.count);
    const uint64_t before = store->stats.ahead_bytes;
    EXPECT_EQ(traffic(4096, 0), moved([&] { borrow(0); }));
    EXPECT_EQ(before + 4096, store->stats.ahead_bytes);
    ASSERT_ZOFF_OK(zoff_offload_store_ahead(store, 0)) << "it is lent";
    EXPECT_EQ(ZOFF_SLOT_LENT, state_of(0));
    borrow(1);
    borrow(2);
    ASSERT_ZOFF_OK(zoff_offload_store_ahead(store, 3)) << "no slot is free";
    EXPECT_EQ(nullptr, slot_of(3));
    // A chunk of which the slot has a part is completed in its slot.
    zoff_offload_store_release(store, 2);
    borrow(3, 2);
    ASSERT_ZOFF_OK(zoff_offload_store_keep(store, 3, 0));
    ASSERT_ZOFF_OK(zoff_offload_store_ahead(store, 3));
    EXPECT_EQ(ZOFF_SLOT_READING, state_of(3));
    EXPECT_EQ(5u, slot_of(3)->moving);
}

TEST_F(SwapLend, ChunksReadAheadCanBeDropped)
{
    open();
    for (size_t c : {0, 1, 2})
        ASSERT_ZOFF_OK(zoff_offload_store_ahead(store, c));
    zoff_offload_store_drop(store, 1);
    zoff_offload_store_drop(store, 5); // no transfer has read it
    EXPECT_EQ(nullptr, slot_of(1));
    EXPECT_EQ(2u, s()->flight.count);
    borrow(2);
    zoff_offload_store_forget(store);
    EXPECT_EQ(nullptr, slot_of(0));
    EXPECT_EQ(ZOFF_SLOT_LENT, state_of(2)) << "it was not read ahead any more";
    EXPECT_EQ(0u, s()->flight.count);
}

TEST_F(SwapLend, AResidentIsReadAnewAndChecked)
{
    opts.residents = 7;
    open_persistent();
    EXPECT_TRUE(zoff_offload_store_resident(store, 0));
    flush(0, 7);
    drain();
    fill(0, 9);
    ASSERT_ZOFF_OK(reload(0));
    EXPECT_EQ((std::vector<int>{7, 7, 7}), values_of(0));
    flip(0, 2);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "is not what was written there", reload(0));
    EXPECT_EQ(ZOFF_SLOT_FREE, state_of(0)) << "in nobody's hands";
    flip(0, 2);
    EXPECT_ZOFF_OK(reload(0));
}
