// swap_move_test.cc: reads and writes of the arrays of a slot: the number of requests, the state of the slot, and the errors.
#include "ring_store.h"

using namespace zoff_test;

namespace
{
class SwapMove : public Ring
{
  protected:
    void place_arrays(size_t chunk, std::array<unsigned, 3> slots)
    {
        for (unsigned array = 0; array < 3; array++) {
            place(chunk).now.arrays[array].slot = slots[array];
            place(chunk).now.arrays[array].fresh = false;
        }
    }
    zoff_status read(zoff_swap_slot *slot, unsigned arrays = ALL)
    {
        return zoff_offload_swap_move_start_read(s(), slot, arrays);
    }
    zoff_status write(zoff_swap_slot *slot, unsigned arrays = ALL)
    {
        return zoff_offload_swap_move_start_write(s(), slot, arrays);
    }
    zoff_status finish(zoff_swap_slot *slot)
    {
        zoff_status status;
        while ((status = zoff_offload_swap_move_finish(s(), slot)) == ZOFF_PENDING)
            continue;
        return status;
    }
};
} // namespace

TEST_F(SwapMove, ArraysThatLieOneBehindTheOtherAreOneRequest)
{
    open_persistent();
    const struct {
        std::array<unsigned, 3> slots;
        unsigned arrays, requests;
    } cells[] = {{{0, 0, 0}, 7, 1}, {{1, 1, 1}, 7, 1}, {{0, 1, 1}, 7, 2}, {{1, 1, 0}, 7, 2},
                 {{0, 1, 0}, 7, 3}, {{0, 0, 0}, 5, 2}, {{0, 0, 0}, 6, 1}, {{0, 1, 0}, 2, 1}};
    for (const auto &cell : cells) {
        place_arrays(0, cell.slots);
        zoff_swap_slot *slot = take(0);
        ASSERT_ZOFF_OK(read(slot, cell.arrays));
        EXPECT_EQ(cell.requests, slot->request_count);
        size_t all = 0;
        for (unsigned i = 0; i < slot->request_count; i++)
            all += slot->requests[i].bytes;
        EXPECT_EQ(slot->moved_bytes, all);
        EXPECT_EQ((cell.arrays & 1 ? 4096u : 0) + (cell.arrays & 2 ? 8192 : 0) + (cell.arrays & 4 ? 8192 : 0), all);
        EXPECT_TRUE(zoff_offload_swap_move_abandon(s(), slot));
    }
}

TEST_F(SwapMove, FreshArraysAreReadInPart)
{
    open();
    zoff_swap_slot *slot = take(0);
    memset(slot->base, 9, 20480);
    ASSERT_ZOFF_OK(read(slot, 3));
    EXPECT_EQ(4096u, slot->moved_bytes);
    ASSERT_ZOFF_OK(finish(slot));
    EXPECT_EQ(3u, slot->holds);
    EXPECT_EQ(3u, slot->unchecked);
    EXPECT_EQ(1, value_at(slot->base, 0, 0));
    EXPECT_EQ(0, value_at(slot->base, 0, 1));
    EXPECT_EQ(9, value_at(slot->base, 0, 2)) << "nobody asked for it";
    ASSERT_ZOFF_OK(zoff_offload_swap_move_take_read(s(), slot));
    EXPECT_EQ(ZOFF_SLOT_LENT, slot->state);
    // Arrays that are known to be zero need no request.
    ASSERT_ZOFF_OK(read(slot, 4));
    EXPECT_EQ(0u, slot->request_count);
    EXPECT_EQ(0u, s()->flight.count);
    EXPECT_EQ(7u, slot->holds);
    EXPECT_EQ(0, value_at(slot->base, 0, 2));
    ASSERT_ZOFF_OK(zoff_offload_swap_move_take_read(s(), slot));
    withdraw(store, 0);
}

TEST_F(SwapMove, AReadCountsForTheStepThatTakesIt)
{
    open();
    for (const bool ahead : {false, true}) {
        zoff_swap_slot *slot = take(0);
        const zoff_store_stats before = store->stats;
        ASSERT_ZOFF_OK(read(slot));
        slot->ahead = ahead;
        EXPECT_EQ(1u, s()->flight.count);
        EXPECT_EQ(ZOFF_SLOT_READING, slot->state);
        ASSERT_ZOFF_OK(finish(slot));
        EXPECT_EQ(0u, s()->flight.count);
        EXPECT_EQ(before.read_bytes, store->stats.read_bytes) << "nobody has taken it";
        ASSERT_ZOFF_OK(zoff_offload_swap_move_take_read(s(), slot));
        EXPECT_EQ(before.read_bytes + 4096, store->stats.read_bytes);
        EXPECT_EQ(before.ahead_bytes + (ahead ? 4096 : 0), store->stats.ahead_bytes);
        withdraw(store, 0);
    }
}

TEST_F(SwapMove, AFailedReadIsReturnedByTheNextFetch)
{
    open();
    for (const unsigned changed : {0, 2}) { // arrays that are newer in the slot than in the file
        aio_fault fault;
        fail_all(fault, false);
        zoff_swap_slot *slot = take(0);
        slot->holds = slot->changed = changed;
        ASSERT_ZOFF_OK(read(slot, 5));
        EXPECT_ZOFF_OK(finish(slot)) << "not to whoever pumps";
        (void)zoff_base_status_fail(ZOFF_ERR_STATE, "something else");
        EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "Input/output error", zoff_offload_swap_move_take_read(s(), slot));
        EXPECT_EQ(changed ? ZOFF_SLOT_DIRTY : ZOFF_SLOT_FREE, slot->state);
        EXPECT_EQ(changed, slot->holds);
        EXPECT_EQ(changed ? 1u : 0u, s()->put_off.count);
    }
    drain();
}

TEST_F(SwapMove, AWriteThatIsDoneLeavesTheSlotFreeOrKept)
{
    open();
    for (const bool stays : {false, true}) {
        zoff_swap_slot *slot = take(0);
        fill(0, 3);
        slot->stays = stays;
        place_arrays(0, {0, 0, 0});
        const uint64_t before = s()->files[0].write_bytes;
        EXPECT_EQ(traffic(0, 12288), moved([&] {
                      ASSERT_ZOFF_OK(write(slot, 3));
                      EXPECT_EQ(ZOFF_SLOT_WRITING, slot->state);
                      EXPECT_ZOFF_OK(finish(slot));
                  }));
        EXPECT_EQ(stays ? ZOFF_SLOT_KEPT : ZOFF_SLOT_FREE, slot->state);
        EXPECT_EQ(before + 12288, s()->files[0].write_bytes);
        EXPECT_EQ(3, value_in_file(0, 1));
        EXPECT_EQ(0, value_in_file(0, 2)) << "it was not written";
    }
}

// Both of two requests fail: the slot stays unchanged until both are over, and then the first error counts.
TEST_F(SwapMove, AWriteThatFailsIsKeptWithItsWords)
{
    open_persistent();
    place_arrays(0, {0, 1, 1});
    aio_fault fault;
    fault.result = [](int nth, int res, bool, uint64_t, size_t) { return nth == 1 ? -ENOSPC : nth == 2 ? -EIO : res; };
    zoff_swap_slot *slot = take(0);
    slot->holds = ALL;
    EXPECT_EQ(traffic(0, 0), moved([&] {
                  ASSERT_ZOFF_OK(write(slot));
                  EXPECT_EQ(2u, slot->request_count);
                  EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_SPACE, "No space left on device", finish(slot));
              }));
    EXPECT_EQ(2, fault.results);
    EXPECT_EQ(ZOFF_SLOT_DIRTY, slot->state);
    EXPECT_EQ(ZOFF_ERR_NO_SPACE, slot->result);
    EXPECT_NE(nullptr, strstr(slot->words.text, "No space left on device"));
    EXPECT_EQ(7u, slot->moving) << "what a retry will write";
    EXPECT_TRUE(s()->has_failed);
    ASSERT_ZOFF_OK(zoff_offload_store_rollback(store));
}

TEST_F(SwapMove, RepeatedWritesAreProven)
{
    open_persistent();
    flush(0, 7);
    drain();
    failing_flushes = 1;
    ASSERT_EQ(ZOFF_ERR_IO, zoff_offload_store_commit(store, 1));
    ASSERT_EQ(1u, store->unproven);
    ASSERT_EQ(7u, place(0).unproven);
    zoff_swap_slot *slot = take(0);
    fill(0, 7);
    ASSERT_ZOFF_OK(write(slot, 5));
    EXPECT_EQ(2u, place(0).unproven);
    EXPECT_EQ(1u, store->unproven) << "of the chunk an array is still in doubt";
    EXPECT_ZOFF_OK(finish(slot));
    slot = take(0);
    fill(0, 7);
    ASSERT_ZOFF_OK(write(slot, 2));
    EXPECT_EQ(0u, place(0).unproven);
    EXPECT_EQ(0u, store->unproven);
    EXPECT_ZOFF_OK(finish(slot));
}

TEST_F(SwapMove, AReadThatIsGivenUpLeavesNothingInFlight)
{
    open();
    aio_fault fault;
    for (const bool fails : {false, true}) { // with both results
        if (fails)
            fail_all(fault, false);
        for (const bool is_over : {false, true}) {
            zoff_swap_slot *slot = take(0);
            ASSERT_ZOFF_OK(read(slot));
            if (is_over) {
                ASSERT_ZOFF_OK(finish(slot));
            }
            EXPECT_TRUE(zoff_offload_swap_move_abandon(s(), slot));
            EXPECT_EQ(ZOFF_SLOT_FREE, slot->state);
            EXPECT_EQ(0u, s()->flight.count);
        }
    }
}
