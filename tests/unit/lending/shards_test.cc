// shards_test.cc: weights that stay on a device, borrowed in slots of host memory.
#include "accel_fault.h"
#include "small_lending.h"

using namespace zoff_test;

namespace
{
class Shards : public testing::Test
{
  protected:
    Shards()
    {
        t.put_on_device(true, device.accel);
        t.add("w", 1024, 9);
    }
    char *fetch(size_t chunk)
    {
        void *base = nullptr;
        zoff_status status;
        while ((status = borrow_chunk(t.l.store, chunk, &base)) == ZOFF_PENDING)
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
    std::string there(size_t chunk) const { return {zoff_lending_shards_there(t.l.store, chunk), 4096}; }
    test_device device;
    small_lending t;
};

TEST_F(Shards, FlushedChunksAreOnTheDeviceAndComeBack)
{
    ASSERT_NO_FATAL_FAILURE(t.open(1024));
    char *base = fetch(3);
    EXPECT_EQ(t.bits(0, 3), std::string(base, 4096));
    memset(base, 7, 4096);
    EXPECT_ZOFF_OK(flush_chunk(t.l.store, 3));
    base = fetch(3); // also while it goes up
    EXPECT_EQ(std::string(4096, 7), std::string(base, 4096));
    withdraw(t.l.store, 3);
    EXPECT_ZOFF_OK(zoff_offload_store_drain(t.l.store));
    EXPECT_FALSE(zoff_offload_store_busy(t.l.store, false));
    EXPECT_EQ(std::string(4096, 7), std::string(zoff_lending_shards_there(t.l.store, 3), 4096));
}

TEST_F(Shards, ThereAreSoManySlots)
{
    ASSERT_NO_FATAL_FAILURE(t.open(1024));
    void *base = nullptr;
    for (size_t chunk = 0; chunk < t.l.slots; chunk++)
        EXPECT_ZOFF_OK(claim_chunk(t.l.store, chunk, &base));
    EXPECT_EQ(ZOFF_PENDING, claim_chunk(t.l.store, 8, &base));
    withdraw(t.l.store, 2);
    EXPECT_ZOFF_OK(claim_chunk(t.l.store, 8, &base));
    withdraw(t.l.store, 8);
    EXPECT_EQ(t.bits(0, 2), std::string(fetch(2), 4096)) << "a claim that was released has changed nothing";
}

TEST_F(Shards, WithdrawnChunksFreeTheirSlots)
{
    ASSERT_NO_FATAL_FAILURE(t.open(1024));
    void *base = nullptr;
    for (size_t chunk = 0; chunk < t.l.slots; chunk++)
        EXPECT_LE(0, borrow_chunk(t.l.store, chunk, &base)); // it may still be in its slot
    for (size_t chunk = 0; chunk < t.l.slots; chunk++)
        withdraw(t.l.store, chunk);
    EXPECT_EQ(t.bits(0, 8), std::string(fetch(8), 4096));
}

TEST_F(Shards, KeptChunksGoUpOnlyIfTheyHaveChanged)
{
    ASSERT_NO_FATAL_FAILURE(t.open(1024));
    char *base = fetch(1);
    const uint64_t before = t.l.there.write_bytes;
    EXPECT_ZOFF_OK(keep_chunk(t.l.store, 1, 0));
    EXPECT_EQ(before, t.l.there.write_bytes);
    base = fetch(1);
    memset(base, 7, 4096);
    EXPECT_ZOFF_OK(keep_chunk(t.l.store, 1, 1));
    EXPECT_ZOFF_OK(zoff_offload_store_drain(t.l.store));
    EXPECT_EQ(4096u, t.l.there.write_bytes - before);
    EXPECT_EQ(std::string(4096, 7), there(1));
}

TEST_F(Shards, AreBusyWhileCopiesAreInFlight)
{
    ASSERT_NO_FATAL_FAILURE(t.open(1024));
    std::atomic<bool> let_go{false};
    const auto hold = [](void *ctx) {
        while (!*static_cast<std::atomic<bool> *>(ctx))
            usleep(100);
    };
    ASSERT_ZOFF_OK(t.accel->ops->streams.call(t.accel, t.l.there.stream, hold, &let_go));
    void *base = nullptr;
    EXPECT_EQ(ZOFF_PENDING, borrow_chunk(t.l.store, 0, &base));
    EXPECT_TRUE(zoff_offload_store_busy(t.l.store, false));
    EXPECT_FALSE(zoff_offload_store_busy(t.l.store, true)) << "it comes down";
    EXPECT_ZOFF_OK(claim_chunk(t.l.store, 1, &base));
    memset(base, 7, 4096);
    EXPECT_ZOFF_OK(flush_chunk(t.l.store, 1));
    EXPECT_TRUE(zoff_offload_store_busy(t.l.store, true));
    EXPECT_EQ(t.bits(0, 1), there(1)) << "the stream is held";
    let_go = true;
    EXPECT_ZOFF_OK(zoff_offload_store_drain(t.l.store));
    EXPECT_FALSE(zoff_offload_store_busy(t.l.store, true));
    EXPECT_EQ(std::string(4096, 7), there(1));
}

// The device refuses the copy up, or the event behind it. The chunk stays in its slot, and the next calls say so.
TEST_F(Shards, ChunksThatCouldNotGoUpAreSentAgain)
{
    ASSERT_NO_FATAL_FAILURE(t.open(1024));
    for (int nth : {1, 2}) {
        for (bool borrowed : {false, true}) {
            const char value = (char)(10 * nth + borrowed);
            memset(fetch(3), value, 4096);
            fail(nth);
            EXPECT_EQ(ZOFF_ERR_DEVICE, flush_chunk(t.l.store, 3));
            device.fail = 0;
            EXPECT_EQ(ZOFF_ERR_DEVICE, zoff_offload_store_drain(t.l.store));
            EXPECT_NE(nullptr, strstr(zoff_last_error(), "retry")) << zoff_last_error();
            if (borrowed) {
                EXPECT_EQ(std::string(4096, value), std::string(fetch(3), 4096));
                withdraw(t.l.store, 3);
                EXPECT_EQ(ZOFF_ERR_DEVICE, zoff_offload_store_drain(t.l.store)) << "a release sends nothing";
            }
            EXPECT_ZOFF_OK(zoff_offload_store_retry(t.l.store));
            EXPECT_ZOFF_OK(zoff_offload_store_drain(t.l.store));
            EXPECT_EQ(std::string(4096, value), there(3));
        }
    }
}

// The copy down is enqueued, and the event behind it is not: the chunk is lent only when an event shows that it has come.
TEST_F(Shards, ChunksComeAlsoAfterAnEventThatFailed)
{
    ASSERT_NO_FATAL_FAILURE(t.open(1024));
    void *base = nullptr;
    fail(2);
    EXPECT_EQ(ZOFF_ERR_DEVICE, borrow_chunk(t.l.store, 5, &base));
    device.fail = 0;
    EXPECT_EQ(t.bits(0, 5), std::string(fetch(5), 4096));
}
} // namespace
