/* SPDX-License-Identifier: Apache-2.0 */
// device_test.cc: chunks in the memory of a device, whose calls may fail. store_contract_test.cc has the tests of all tiers.
#include "accel_fault.h"
#include "device_link.h"
#include "store_ptr.h"

#include <string.h>

using namespace zoff_test;

namespace
{
enum { BYTES = 4096, SLOTS = 3 };

// Chunk c is filled with c + 1.
class DeviceTier : public testing::Test
{
  protected:
    DeviceTier()
    {
        opts.link = &link;
        opts.what = "the weights";
        opts.chunks = chunks.data();
        opts.chunk_count = chunks.size();
        opts.slots = SLOTS;
        opts.fill = [](void *, size_t chunk, void *base) { memset(base, (int)chunk + 1, BYTES); };
        zoff_store *made = nullptr;
        EXPECT_ZOFF_OK(open_store(&opts, &made));
        store.reset(made);
    }
    ~DeviceTier() override
    {
        let_go = true;
        link.close();
        store.reset();
    }
    char *fetch(size_t chunk)
    {
        void *base = nullptr;
        zoff_status status;
        while ((status = borrow_chunk(store.get(), chunk, &base)) == ZOFF_PENDING)
            ;
        EXPECT_ZOFF_OK(status);
        return (char *)base;
    }
    // The nth call of the device from now on fails.
    void fail(int nth)
    {
        device.calls = 0;
        device.fail = nth;
    }
    // Nothing in the stream goes on before `let_go`.
    void hold()
    {
        const auto wait = [](void *ctx) {
            while (!*static_cast<std::atomic<bool> *>(ctx))
                usleep(100);
        };
        let_go = false;
        EXPECT_ZOFF_OK(device.accel->ops->streams.call(device.accel, link.stream, wait, &let_go));
    }
    std::string there(size_t chunk) const { return {zoff_offload_device_there(store.get(), chunk), BYTES}; }
    static std::string all(int value) { return std::string(BYTES, (char)value); }

    std::atomic<bool> let_go{true};
    test_device device;
    device_link link{device.accel};
    std::vector<zoff_store_chunk> chunks = std::vector<zoff_store_chunk>(9, zoff_store_chunk{BYTES, BYTES});
    zoff_store_opts opts = {};
    store_ptr store;
};

TEST_F(DeviceTier, FlushedChunksAreThereAndComeBack)
{
    memset(fetch(3), 7, BYTES);
    EXPECT_ZOFF_OK(flush_chunk(store.get(), 3));
    EXPECT_EQ(all(7), std::string(fetch(3), BYTES)) << "also while it goes up";
    withdraw(store.get(), 3);
    EXPECT_ZOFF_OK(zoff_offload_store_drain(store.get()));
    EXPECT_FALSE(zoff_offload_store_busy(store.get(), false));
    EXPECT_EQ(all(7), there(3));
    EXPECT_EQ(all(9), there(8)) << "as it was filled";
}

TEST_F(DeviceTier, KeptChunksGoUpOnlyIfTheyHaveChanged)
{
    fetch(1);
    const uint64_t before = link.write_bytes;
    EXPECT_ZOFF_OK(keep_chunk(store.get(), 1, 0));
    EXPECT_EQ(before, link.write_bytes);
    memset(fetch(1), 7, BYTES);
    EXPECT_ZOFF_OK(keep_chunk(store.get(), 1, 1));
    EXPECT_ZOFF_OK(zoff_offload_store_drain(store.get()));
    EXPECT_EQ((uint64_t)BYTES, link.write_bytes - before);
    EXPECT_EQ(all(7), there(1));
}

TEST_F(DeviceTier, IsBusyWhileCopiesAreInFlight)
{
    hold();
    void *base = nullptr;
    EXPECT_EQ(ZOFF_PENDING, borrow_chunk(store.get(), 0, &base));
    EXPECT_TRUE(zoff_offload_store_busy(store.get(), false));
    EXPECT_FALSE(zoff_offload_store_busy(store.get(), true)) << "it comes down";
    EXPECT_ZOFF_OK(claim_chunk(store.get(), 1, &base));
    memset(base, 7, BYTES);
    EXPECT_ZOFF_OK(flush_chunk(store.get(), 1));
    EXPECT_TRUE(zoff_offload_store_busy(store.get(), true));
    EXPECT_EQ(all(2), there(1)) << "the stream is held";
    let_go = true;
    EXPECT_ZOFF_OK(zoff_offload_store_drain(store.get()));
    EXPECT_FALSE(zoff_offload_store_busy(store.get(), true));
    EXPECT_EQ(all(7), there(1));
}

// The copy down of a chunk that nobody wants any more still writes its slot.
TEST_F(DeviceTier, AWithdrawnChunkKeepsItsSlotUntilItHasCome)
{
    hold();
    void *base = nullptr;
    EXPECT_EQ(ZOFF_PENDING, borrow_chunk(store.get(), 0, &base));
    withdraw(store.get(), 0);
    for (size_t chunk = 1; chunk < SLOTS; chunk++)
        EXPECT_ZOFF_OK(claim_chunk(store.get(), chunk, &base));
    EXPECT_EQ(ZOFF_PENDING, claim_chunk(store.get(), SLOTS, &base));
    let_go = true;
    EXPECT_ZOFF_OK(zoff_offload_store_drain(store.get()));
    EXPECT_ZOFF_OK(claim_chunk(store.get(), SLOTS, &base));
}

// The wait for a copy has the deadline of the device, and may be repeated.
TEST_F(DeviceTier, ADeviceThatStandsStillEndsTheWait)
{
    hold();
    void *base = nullptr;
    EXPECT_ZOFF_OK(zoff_offload_store_wait(store.get())) << "nothing is in flight";
    EXPECT_EQ(ZOFF_PENDING, borrow_chunk(store.get(), 0, &base));
    link.poller->timeout_seconds = 0.05;
    link.poller->overdue = [](void *, double) { return zoff_base_status_fail(ZOFF_ERR_DEVICE, "it stands still"); };
    EXPECT_ZOFF_FAILS(ZOFF_ERR_DEVICE, "it stands still", zoff_offload_store_wait(store.get()));
    let_go = true;
    link.poller->timeout_seconds = -1;
    EXPECT_ZOFF_OK(zoff_offload_store_wait(store.get()));
    EXPECT_ZOFF_OK(borrow_chunk(store.get(), 0, &base));
    EXPECT_EQ(all(1), std::string((char *)base, BYTES));
}

// The device refuses the copy up, or the event behind it. The chunk stays in its slot, and the next calls say so.
TEST_F(DeviceTier, ChunksThatCouldNotGoUpAreSentAgain)
{
    for (int nth : {1, 2}) {
        for (bool borrowed : {false, true}) {
            const char value = (char)(10 * nth + borrowed);
            memset(fetch(3), value, BYTES);
            fail(nth);
            EXPECT_EQ(ZOFF_ERR_DEVICE, flush_chunk(store.get(), 3));
            device.fail = 0;
            EXPECT_ZOFF_FAILS(ZOFF_ERR_DEVICE, "the weights could not be copied to accelerator \"emulated\": retry",
                              zoff_offload_store_drain(store.get()));
            if (borrowed) {
                EXPECT_EQ(all(value), std::string(fetch(3), BYTES));
                withdraw(store.get(), 3);
                EXPECT_EQ(ZOFF_ERR_DEVICE, zoff_offload_store_drain(store.get())) << "a release sends nothing";
            }
            EXPECT_ZOFF_OK(zoff_offload_store_retry(store.get()));
            EXPECT_ZOFF_OK(zoff_offload_store_drain(store.get()));
            EXPECT_EQ(all(value), there(3));
        }
    }
}

// The copy down is enqueued, and the event behind it is not: the chunk is lent only when an event shows that it has come.
TEST_F(DeviceTier, ChunksComeAlsoAfterAnEventThatFailed)
{
    void *base = nullptr;
    fail(2);
    EXPECT_EQ(ZOFF_ERR_DEVICE, borrow_chunk(store.get(), 5, &base));
    device.fail = 0;
    EXPECT_EQ(all(6), std::string(fetch(5), BYTES));
}

TEST_F(DeviceTier, MemoryThatTheDeviceDoesNotHaveIsAnErrorWithAdvice)
{
    zoff_store *other = nullptr;
    zoff_store_found found;
    fail(1);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_DEVICE,
                      "the weights that stay on the device, 36.0 KiB (a test has no other place): alloc failed",
                      zoff_offload_store_find(&opts, &other, &found));
    EXPECT_EQ(nullptr, other);
}
} // namespace
