// swap_put_off_test.cc: chunks that were given back and keep their slot: how many are put off, which arrays are written, and
// whose slot another chunk gets.
#include "ring_store.h"

using namespace zoff_test;

namespace
{
using list = std::vector<size_t>;

class SwapPutOff : public Ring
{
  protected:
    // Chunks, the oldest first.
    list put_off()
    {
        list chunks_of;
        for (const zoff_swap_slot *slot = s()->put_off.oldest; slot; slot = slot->newer)
            chunks_of.push_back(slot->chunk);
        return chunks_of;
    }
};
} // namespace

TEST_F(SwapPutOff, KeptChunksAreNotReadAgain)
{
    open();
    borrow(0, 1);
    ASSERT_ZOFF_OK(zoff_offload_store_keep(store, 0, 0));
    EXPECT_EQ(ZOFF_SLOT_KEPT, state_of(0));
    EXPECT_EQ(list{}, put_off());
    EXPECT_EQ(traffic(0, 0), moved([&] { borrow(0, 1); }));
    zoff_offload_store_release(store, 0);
}

TEST_F(SwapPutOff, ChangedArraysAreWrittenOnceAndNoOthers)
{
    open();
    EXPECT_EQ(traffic(4096, 0), moved([&] {
                  for (const char value : {5, 6, 7})
                      ASSERT_ZOFF_OK(keep(0, value, 1));
                  borrow(0, 2);
                  fill(0, 8, 2);
                  ASSERT_ZOFF_OK(zoff_offload_store_keep(store, 0, 2));
                  EXPECT_EQ(list{0}, put_off());
                  EXPECT_EQ(3u, slot_of(0)->changed) << "those of before, too";
                  borrow(0, 4);
                  EXPECT_EQ(list{}, put_off()) << "in somebody's hands";
                  ASSERT_ZOFF_OK(zoff_offload_store_keep(store, 0, 0));
                  EXPECT_EQ(list{0}, put_off()) << "it was not changed now, but before";
              }));
    EXPECT_EQ(traffic(0, 12288), moved([&] { drain(); }));
    EXPECT_EQ(7, value_in_file(0, 0));
    EXPECT_EQ(8, value_in_file(0, 1));
    EXPECT_EQ(ZOFF_SLOT_KEPT, state_of(0)) << "its slot is not needed yet";
}

TEST_F(SwapPutOff, ArraysThatAChunkDoesNotHaveAreNotChanged)
{
    chunks[0] = {16384, 0, {0, 8192, 16384}};
    open();
    borrow(0);
    ASSERT_ZOFF_OK(zoff_offload_store_keep(store, 0, 1));
    EXPECT_EQ(ZOFF_SLOT_KEPT, state_of(0));
    EXPECT_EQ(list{}, put_off());
}

// When one more is put off, the oldest is written.
TEST_F(SwapPutOff, AtMostHalfOfTheSlotsHoldWhatIsPutOff)
{
    const std::pair<unsigned, size_t> cells[] = {{2, 2}, {3, 2}, {5, 2}, {6, 3}, {7, 3}};
    for (const auto &cell : cells) {
        opts.slots = cell.first;
        open();
        list want;
        for (size_t c = 0; c < cell.second; c++) {
            ASSERT_ZOFF_OK(keep(c, (char)(c + 5), 2));
            want.push_back(c);
        }
        EXPECT_EQ(want, put_off()) << cell.first << " slots";
        EXPECT_FALSE(zoff_offload_store_busy(store, true));
        if (cell.first == 2)
            continue;
        ASSERT_ZOFF_OK(keep(cell.second, 9, 2));
        want.push_back(cell.second);
        want.erase(want.begin());
        EXPECT_EQ(want, put_off()) << cell.first << " slots";
        EXPECT_EQ(ZOFF_SLOT_WRITING, state_of(0));
        drain();
        EXPECT_EQ(5, value_in_file(0, 1));
    }
}

TEST_F(SwapPutOff, AnotherChunkGetsTheSlotThatCostsLeast)
{
    open();
    zoff_swap_slot *room = nullptr;
    ASSERT_ZOFF_OK(keep(0, 5, 2));
    borrow(1);
    ASSERT_ZOFF_OK(zoff_offload_store_keep(store, 1, 0));
    ASSERT_ZOFF_OK(zoff_offload_swap_put_off_find_room(s(), &room));
    EXPECT_EQ(&s()->slots[2], room) << "a free one";
    zoff_offload_swap_slot_assign(s(), room, 2);
    ASSERT_ZOFF_OK(zoff_offload_swap_put_off_find_room(s(), &room));
    EXPECT_EQ(&s()->slots[1], room) << "one that is kept as it is in its file";
    zoff_offload_swap_slot_assign(s(), room, 3);
    ASSERT_ZOFF_OK(zoff_offload_swap_put_off_find_room(s(), &room));
    EXPECT_EQ(nullptr, room);
    EXPECT_EQ(ZOFF_SLOT_WRITING, state_of(0)) << "the write is on its way";
    ASSERT_ZOFF_OK(zoff_offload_store_pump(store));
    ASSERT_ZOFF_OK(zoff_offload_swap_put_off_find_room(s(), &room));
    EXPECT_EQ(&s()->slots[0], room);
    zoff_offload_swap_slot_assign(s(), room, 4);
    ASSERT_ZOFF_OK(zoff_offload_swap_put_off_find_room(s(), &room));
    EXPECT_EQ(nullptr, room) << "all are lent";
    for (size_t c : {2, 3, 4})
        zoff_offload_store_release(store, c);
}

TEST_F(SwapPutOff, AResidentIsPutOffWhereItIsInAFile)
{
    opts.residents = 7;
    open();
    ASSERT_ZOFF_OK(keep(0, 5, 2));
    EXPECT_EQ(list{}, put_off());
    open_persistent();
    ASSERT_ZOFF_OK(keep(0, 5, 2));
    EXPECT_EQ(list{0}, put_off());
    borrow(1);
    ASSERT_ZOFF_OK(zoff_offload_store_keep(store, 1, 0));
    EXPECT_EQ(list{0}, put_off());
    for (unsigned i = 0; i < s()->ring_count; i++)
        zoff_offload_swap_slot_assign(s(), &s()->slots[i], 5);
    zoff_swap_slot *room = nullptr;
    ASSERT_ZOFF_OK(zoff_offload_swap_put_off_find_room(s(), &room));
    EXPECT_EQ(nullptr, room);
    EXPECT_EQ(list{0}, put_off()) << "the home of a resident is nobody else's";
    for (unsigned i = 0; i < s()->ring_count; i++)
        s()->slots[i].state = ZOFF_SLOT_FREE;
    drain();
    EXPECT_EQ(5, value_in_file(0, 1));
    EXPECT_EQ(ZOFF_SLOT_FREE, state_of(0)) << "in nobody's hands";
}

TEST_F(SwapPutOff, AFailedWriteIsReturnedByTheDrain)
{
    open();
    ASSERT_ZOFF_OK(keep(0, 5, 2));
    aio_fault fault;
    fail_all(fault, true);
    EXPECT_EQ(ZOFF_ERR_IO, zoff_offload_store_drain(store));
    fault.result = nullptr;
    ASSERT_ZOFF_OK(zoff_offload_store_retry(store));
    drain();
    EXPECT_EQ(5, value_in_file(0, 1));
}
