// swap_wait_test.cc: transfers in flight: their list, which of several errors is returned, the state after a drain, when all is
// done, and a disk that does not answer.
#include "ring_store.h"

#include <mutex>

extern "C" {
ssize_t __real_pread(int fd, void *dst, size_t bytes, off_t offset);
ssize_t __wrap_pread(int fd, void *dst, size_t bytes, off_t offset);
}

using namespace zoff_test;

// A read blocks while a test holds it.
static std::mutex disk;

ssize_t __wrap_pread(int fd, void *dst, size_t bytes, off_t offset)
{
    const std::lock_guard<std::mutex> answers(disk);
    return __real_pread(fd, dst, bytes, offset);
}

namespace
{
class SwapWait : public Ring
{
};
} // namespace

TEST_F(SwapWait, AWaitForNothingIsRefused)
{
    open();
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "a wait for I/O while none is in flight", zoff_offload_store_wait(store));
    EXPECT_ZOFF_OK(zoff_offload_store_pump(store));
}

TEST_F(SwapWait, TransfersInFlightAreBusy)
{
    open();
    EXPECT_FALSE(zoff_offload_store_busy(store, false));
    hint(store, 0);
    EXPECT_TRUE(zoff_offload_store_busy(store, false));
    EXPECT_FALSE(zoff_offload_store_busy(store, true)) << "it is a read";
    ASSERT_NO_FATAL_FAILURE(flush(1, 7));
    EXPECT_TRUE(zoff_offload_store_busy(store, true));
    drain();
    EXPECT_FALSE(zoff_offload_store_busy(store, true));
    zoff_offload_swap_lend_forget(s());
    EXPECT_FALSE(zoff_offload_store_busy(store, false));
}

TEST_F(SwapWait, TheFirstErrorOfSeveralIsReported)
{
    open();
    for (size_t c : {0, 1, 2})
        borrow(c);
    for (size_t c : {0, 1, 2})
        ASSERT_ZOFF_OK(flush_chunk(store, c));
    aio_fault fault;
    fault.result = [](int nth, int res, bool, uint64_t, size_t) { return nth == 1 ? -ENOSPC : nth == 2 ? -EIO : res; };
    zoff_status status;
    while ((status = zoff_offload_store_pump(store)) == ZOFF_OK && zoff_offload_store_busy(store, true))
        continue;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_SPACE, "No space left on device", status);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_SPACE, "No space left on device", zoff_offload_store_drain(store));
    EXPECT_EQ(ZOFF_SLOT_DIRTY, state_of(0));
    EXPECT_EQ(ZOFF_SLOT_DIRTY, state_of(1));
    EXPECT_EQ(ZOFF_SLOT_FREE, state_of(2)) << "the others are written all the same";
}

TEST_F(SwapWait, ADrainWritesWhatWasPutOff)
{
    open();
    ASSERT_ZOFF_OK(keep(0, 5, 2));
    ASSERT_ZOFF_OK(keep(1, 6, 4));
    drain();
    EXPECT_EQ(5, value_in_file(0, 1));
    EXPECT_EQ(6, value_in_file(1, 2));
    EXPECT_EQ(0u, s()->put_off.count);
}

// The caller that asked for the read has got an error, and does not ask again.
TEST_F(SwapWait, ADrainEndsReadsIntoWhatWasPutOff)
{
    open();
    ASSERT_ZOFF_OK(keep(0, 5, 2));
    zoff_swap_slot *slot = slot_of(0);
    zoff_offload_swap_slot_take_out(&s()->put_off, slot);
    ASSERT_ZOFF_OK(zoff_offload_swap_move_start_read(s(), slot, 1));
    drain();
    EXPECT_FALSE(zoff_offload_store_busy(store, false));
    EXPECT_EQ(5, value_in_file(0, 1));
}

TEST_F(SwapWait, SettledIsWhatMayBeRecorded)
{
    open();
    borrow(0);
    EXPECT_ZOFF_OK(zoff_offload_swap_wait_settled(store)) << "where nothing is recorded a chunk may be lent";
    open_persistent();
    EXPECT_ZOFF_OK(zoff_offload_swap_wait_settled(store));
    borrow(0);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "chunk 0 is borrowed while its states", zoff_offload_swap_wait_settled(store));
    ASSERT_ZOFF_OK(flush_chunk(store, 0));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "chunk 0 is being written while its states", zoff_offload_swap_wait_settled(store));
    drain();
    ASSERT_ZOFF_OK(keep(1, 6, 4));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "chunk 1 was changed and not written", zoff_offload_swap_wait_settled(store));
    drain();
    EXPECT_ZOFF_OK(zoff_offload_swap_wait_settled(store));
    store->unproven = 2;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "2 chunk(s) were written before a flush to the drive failed",
                      zoff_offload_swap_wait_settled(store));
    store->unproven = 0;
    aio_fault fault;
    fail_all(fault, true);
    flush(2, 7);
    EXPECT_EQ(ZOFF_ERR_IO, zoff_offload_store_drain(store));
    (void)zoff_base_status_fail(ZOFF_ERR_STATE, "something else");
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "Input/output error", zoff_offload_swap_wait_settled(store));
}

// It stays in flight, and can be waited for again.
TEST_F(SwapWait, ADiskThatDoesNotAnswerIsAnError)
{
    opts.aio_backend = "threads";
    open();
    s()->timeout_seconds = 0.05; // not of the opening, which may take longer on a busy machine
    zoff_aio_queue_limit(s()->files[0].aio, 0.05);
    {
        const std::lock_guard<std::mutex> held(disk);
        hint(store, 3);
        for (int again = 0; again < 2; again++)
            EXPECT_ZOFF_FAILS(ZOFF_ERR_IO,
                              "the read of chunk 3 (4096 bytes at offset " +
                                  std::to_string(zoff_offload_swap_place_offset(s(), 3, 0)) + " of '" + s()->files[0].name +
                                  "') has not ended for 0.05 s (timeout_seconds)",
                              zoff_offload_store_wait(store));
        EXPECT_TRUE(zoff_offload_store_busy(store, false));
    }
    s()->timeout_seconds = -1; // a machine may be busy
    zoff_aio_queue_limit(s()->files[0].aio, -1);
    EXPECT_EQ((std::vector<int>{4, 0, 0}), values_of(3));
}
