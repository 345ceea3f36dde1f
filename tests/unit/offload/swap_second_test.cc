// swap_second_test.cc: two contents of a chunk in the tier of files: which memory and which place each one has, its checksums,
// and a write that is in flight when its content is discarded.
#include "ring_store.h"

#include <mutex>

extern "C" {
#include "aio.h"
ssize_t __real_pwrite(int fd, const void *from, size_t bytes, off_t offset);
ssize_t __wrap_pwrite(int fd, const void *from, size_t bytes, off_t offset);
}

using namespace zoff_test;

// A write blocks while a test holds it.
static std::mutex disk;

ssize_t __wrap_pwrite(int fd, const void *from, size_t bytes, off_t offset)
{
    const std::lock_guard<std::mutex> answers(disk);
    return __real_pwrite(fd, from, bytes, offset);
}

namespace
{
class SwapSecond : public Ring
{
  protected:
    SwapSecond()
    {
        opts.has_seconds = true;
        opts.spares = 2;
    }
    char *begin(size_t chunk, char value)
    {
        void *out = nullptr;
        borrow(chunk);
        EXPECT_ZOFF_OK(zoff_offload_store_second(store, chunk, &out));
        EXPECT_EQ(slot_of(chunk)->base, out);
        fill(chunk, value);
        return (char *)out;
    }
    void put(size_t chunk, char value)
    {
        ASSERT_NE(nullptr, begin(chunk, value));
        ASSERT_ZOFF_OK(put_chunk(store, chunk));
    }
    std::vector<unsigned> places(const zoff_swap_version &version)
    {
        return {version.arrays[0].slot, version.arrays[1].slot, version.arrays[2].slot};
    }
    using list = std::vector<unsigned>;
};
} // namespace

TEST_F(SwapSecond, ItIsWrittenBesideTheFirst)
{
    for (const bool persist : {false, true}) {
        opts.persist = persist;
        open();
        put(0, 7);
        EXPECT_EQ((list{1, 1, 1}), places(place(0).now));
        EXPECT_EQ((list{0, 0, 0}), places(place(0).committed));
        EXPECT_TRUE(place(0).committed.arrays[1].fresh);
        EXPECT_FALSE(place(0).now.arrays[1].fresh);
        drain();
        ASSERT_ZOFF_OK(zoff_offload_store_discard(store, 0));
        EXPECT_EQ((list{0, 0, 0}), places(place(0).now));
        EXPECT_TRUE(place(0).now.arrays[1].fresh);
        EXPECT_EQ((std::vector<int>{1, 0, 0}), values_of(0));
        put(0, 8);
        drain();
        zoff_offload_store_adopt(store, 0);
        EXPECT_EQ((list{1, 1, 1}), places(place(0).now));
        EXPECT_EQ(8, value_in_file(0, 2));
        ASSERT_ZOFF_OK(zoff_offload_store_commit(store, 1));
        put(0, 9);
        EXPECT_EQ((list{0, 0, 0}), places(place(0).now)) << "each place is used in turn";
        zoff_offload_store_adopt(store, 0);
        drain();
        EXPECT_EQ((std::vector<int>{9, 9, 9}), values_of(0));
        flush(0, 10);
        EXPECT_EQ((list{0, 0, 0}), places(place(0).now)) << "a flush replaces what no commit has";
        drain();
        EXPECT_EQ((std::vector<int>{10, 10, 10}), values_of(0));
    }
}

TEST_F(SwapSecond, AResidentExchangesItsMemory)
{
    for (const bool persist : {false, true}) {
        opts.persist = persist;
        opts.residents = 7;
        open();
        const uint64_t before = store->stats.write_bytes;
        char *first = slot_of(0)->base, *second = begin(0, 7);
        EXPECT_NE(first, second);
        EXPECT_EQ(1, value_at(first, 0, 0)) << "it stays readable";
        EXPECT_EQ(1u, store->spares.count);
        ASSERT_ZOFF_OK(put_chunk(store, 0));
        drain();
        EXPECT_EQ(persist ? 20480u : 0u, store->stats.write_bytes - before);
        ASSERT_ZOFF_OK(zoff_offload_store_discard(store, 0));
        EXPECT_EQ(first, slot_of(0)->base);
        EXPECT_EQ(2u, store->spares.count);
        put(0, 8);
        zoff_offload_store_adopt(store, 0);
        EXPECT_EQ(second, slot_of(0)->base) << "the spare that was returned last";
        EXPECT_EQ(2u, store->spares.count);
        EXPECT_EQ(first, zoff_offload_spares_take(&store->spares)) << "the memory of the first content is a spare";
        zoff_offload_spares_give(&store->spares, first);
        drain();
        EXPECT_EQ((std::vector<int>{8, 8, 8}), values_of(0));
    }
}

TEST_F(SwapSecond, SparesAreForResidents)
{
    opts.spares = 5;
    open();
    EXPECT_EQ(0u, store->spares.count) << "the ring needs none";
    opts.residents = 3;
    open();
    EXPECT_EQ(3u, store->spares.count) << "no more than there are residents";
    EXPECT_EQ(3u * 20480, store->spares.map.bytes);
    opts.has_seconds = false;
    open();
    EXPECT_EQ(0u, store->spares.count);
}

// Changed bits of either content are found, each with its own checksum.
TEST_F(SwapSecond, EachHasItsChecksums)
{
    for (const bool is_kept : {false, true}) {
        open();
        flush(0, 5);
        drain();
        begin(0, 7);
        zoff_offload_store_settle(store, 0, 0, 8192);
        ASSERT_ZOFF_OK(put_chunk(store, 0));
        drain();
        if (is_kept)
            zoff_offload_store_adopt(store, 0);
        EXPECT_ZOFF_OK(zoff_offload_store_discard(store, 0)) << "nothing, if it was adopted";
        const int value = is_kept ? 7 : 5;
        EXPECT_EQ((std::vector<int>{value, value, value}), values_of(0));
        flip(0, 1);
        char *base = nullptr;
        EXPECT_EQ(ZOFF_ERR_CORRUPT, try_borrow(0, ALL, &base));
        flip(0, 1);
        EXPECT_EQ((std::vector<int>{value, value, value}), values_of(0));
    }
}

// A checksum that was settled for a discarded content does not count for the next one.
TEST_F(SwapSecond, ADiscardForgetsWhatWasSettled)
{
    opts.residents = 7;
    open_persistent();
    begin(0, 7);
    zoff_offload_store_settle(store, 0, 0, 20480);
    EXPECT_EQ(0u, s()->sums.digested);
    ASSERT_ZOFF_OK(zoff_offload_store_discard(store, 0));
    EXPECT_EQ(SIZE_MAX, s()->sums.digested);
    fill(0, 9);
    ASSERT_ZOFF_OK(flush_chunk(store, 0));
    drain();
    EXPECT_ZOFF_OK(reload(0));
}

TEST_F(SwapSecond, ADiscardEndsTheWriteFirst)
{
    open();
    put(0, 7);
    const zoff_swap_slot *slot = slot_of(0);
    EXPECT_EQ(ZOFF_SLOT_WRITING, slot->state);
    flush(1, 8); // another write in the same queue
    ASSERT_ZOFF_OK(zoff_offload_store_discard(store, 0));
    EXPECT_EQ(ZOFF_SLOT_FREE, slot->state);
    EXPECT_EQ(ZOFF_SLOT_WRITING, state_of(1)) << "that of the other chunk goes on";
    EXPECT_EQ(1u, s()->flight.count);
    drain();
    EXPECT_EQ((std::vector<int>{8, 8, 8}), values_of(1));
    EXPECT_EQ((std::vector<int>{1, 0, 0}), values_of(0));
}

// The chunk stays undecided, and its slot is not given to another.
TEST_F(SwapSecond, AWriteThatDoesNotEndIsAnError)
{
    opts.aio_backend = "threads";
    for (const size_t residents : {0, 7}) {
        opts.persist = residents;
        opts.residents = residents;
        open();
        s()->timeout_seconds = 0.05; // not of the opening, which may take longer on a busy machine
        zoff_aio_queue_limit(s()->files[0].aio, 0.05);
        {
            const std::lock_guard<std::mutex> held(disk);
            put(0, 7);
            for (int again = 0; again < 2; again++) {
                EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "the write of chunk 0", zoff_offload_store_discard(store, 0));
                EXPECT_TRUE(zoff_offload_store_is_undecided(store));
            }
            EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "the write of chunk 0", zoff_offload_store_rollback(store));
            EXPECT_EQ(ZOFF_SLOT_WRITING, state_of(0));
        }
        s()->timeout_seconds = -1; // a machine may be busy
        zoff_aio_queue_limit(s()->files[0].aio, -1);
        ASSERT_ZOFF_OK(zoff_offload_store_discard(store, 0));
        EXPECT_EQ((std::vector<int>{1, 0, 0}), values_of(0));
    }
}

TEST_F(SwapSecond, OnlyABorrowedChunkGetsOne)
{
    open();
    void *out;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "chunk 0 gets a second content and is not borrowed",
                      zoff_offload_store_second(store, 0, &out));
    flush(0, 7);
    EXPECT_EQ(ZOFF_ERR_STATE, zoff_offload_store_second(store, 0, &out));
    EXPECT_FALSE(zoff_offload_store_is_undecided(store));
}

// Chunks that were written in part have arrays in both places.
TEST_F(SwapSecond, ArraysMayLieInDifferentPlaces)
{
    open_persistent();
    flush(0, 5, 2);
    drain();
    ASSERT_ZOFF_OK(zoff_offload_store_commit(store, 1));
    EXPECT_EQ((list{0, 1, 0}), places(place(0).now));
    put(0, 7);
    EXPECT_EQ((list{1, 0, 1}), places(place(0).now));
    drain();
    ASSERT_ZOFF_OK(zoff_offload_store_discard(store, 0));
    EXPECT_EQ((std::vector<int>{1, 5, 0}), values_of(0));
    put(0, 8);
    zoff_offload_store_adopt(store, 0);
    drain();
    ASSERT_ZOFF_OK(zoff_offload_store_commit(store, 2));
    open();
    EXPECT_EQ((std::vector<int>{8, 8, 8}), values_of(0));
}
