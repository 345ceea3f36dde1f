// shards_test.cc: weights that stay on a device, borrowed in slots of host memory.
#include "small_lending.h"

using namespace zoff_test;

namespace
{
class Shards : public testing::Test
{
  protected:
    Shards()
    {
        t.put_on_device(true);
        t.add("w", 1024, 9);
    }
    char *fetch(size_t chunk)
    {
        void *base = nullptr;
        zoff_status status;
        while ((status = zoff_offload_store_fetch(t.l.store, chunk, &base)) == ZOFF_PENDING)
            ;
        EXPECT_ZOFF_OK(status);
        return (char *)base;
    }
    small_lending t;
};

TEST_F(Shards, FlushedChunksAreOnTheDeviceAndComeBack)
{
    ASSERT_NO_FATAL_FAILURE(t.open(1024));
    char *base = fetch(3);
    EXPECT_EQ(t.bits(0, 3), std::string(base, 4096));
    memset(base, 7, 4096);
    EXPECT_ZOFF_OK(zoff_offload_store_flush(t.l.store, 3));
    base = fetch(3); // also while it goes up
    EXPECT_EQ(std::string(4096, 7), std::string(base, 4096));
    zoff_offload_store_release(t.l.store, 3);
    EXPECT_ZOFF_OK(zoff_offload_store_drain(t.l.store));
    EXPECT_FALSE(zoff_offload_store_busy(t.l.store, false));
    EXPECT_EQ(std::string(4096, 7), std::string(zoff_lending_shards_there(t.l.store, 3), 4096));
}

TEST_F(Shards, ThereAreSoManySlots)
{
    ASSERT_NO_FATAL_FAILURE(t.open(1024));
    void *base = nullptr;
    for (size_t chunk = 0; chunk < t.l.slots; chunk++)
        EXPECT_ZOFF_OK(zoff_offload_store_claim(t.l.store, chunk, &base));
    EXPECT_EQ(ZOFF_PENDING, zoff_offload_store_claim(t.l.store, 8, &base));
    zoff_offload_store_release(t.l.store, 2);
    EXPECT_ZOFF_OK(zoff_offload_store_claim(t.l.store, 8, &base));
    zoff_offload_store_release(t.l.store, 8);
    EXPECT_EQ(t.bits(0, 2), std::string(fetch(2), 4096)) << "a claim that was released has changed nothing";
}

TEST_F(Shards, ForgottenChunksFreeTheirSlots)
{
    ASSERT_NO_FATAL_FAILURE(t.open(1024));
    void *base = nullptr;
    for (size_t chunk = 0; chunk < t.l.slots; chunk++)
        EXPECT_EQ(ZOFF_PENDING, zoff_offload_store_fetch(t.l.store, chunk, &base));
    zoff_offload_store_forget(t.l.store);
    EXPECT_EQ(t.bits(0, 8), std::string(fetch(8), 4096));
}
} // namespace
