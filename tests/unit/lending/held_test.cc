// held_test.cc: chunks that stay borrowed for a while, chunks that are read ahead, and reads that fail.
#include "small_lending.h"

#include <fstream>
#include <sstream>

using namespace zoff_test;

namespace
{
enum { CHUNK = 4096 }; // bytes, of 1024 elements

class Held : public testing::Test
{
  protected:
    void open(unsigned slots)
    {
        t.values.tier = ZOFF_TIER_NVME;
        t.values.slots = slots;
        ASSERT_NO_FATAL_FAILURE(t.open(1024));
    }
    // Copy a slice to a place of its own, and compare it.
    zoff_status copy(zoff_param p, size_t slice = 0)
    {
        zoff_cached_slice s = t.slice(t.number_of(p, slice));
        std::vector<char> place(s.bytes);
        s.at = place.data();
        const zoff_status status = zoff_lending_fill_slice(&t.l, &s);
        if (status == ZOFF_OK) {
            EXPECT_TRUE(t.has(s.at, p, slice)) << "slice " << slice << " of parameter " << p;
        }
        return status;
    }
    zoff_status borrow(size_t chunk, char **out)
    {
        zoff_status status;
        while ((status = zoff_lending_held_borrow(&t.l, chunk, out)) == ZOFF_PENDING) {
            EXPECT_ZOFF_OK(zoff_offload_store_wait(t.l.store));
        }
        return status;
    }
    std::vector<size_t> held() const
    {
        std::vector<size_t> list;
        for (unsigned i = 0; i < t.l.cache.held_count; i++)
            list.push_back(t.l.cache.held[i].chunk);
        return list;
    }
    // Change a byte of a slice in its file, or change it back.
    void flip_bit(zoff_param p)
    {
        const std::string name = state_files(t.folder.path).at(0), bits = t.bits(p, 0);
        std::stringstream all;
        all << std::ifstream(name, std::ios::binary).rdbuf();
        const size_t at = all.str().find(bits.substr(4));
        ASSERT_NE(std::string::npos, at);
        std::fstream file(name, std::ios::in | std::ios::out | std::ios::binary);
        file.seekp((std::streamoff)at - 4);
        file.put((char)(all.str()[at - 4] ^ 1));
    }

    using chunks = std::vector<size_t>;
    small_lending t;
};

TEST_F(Held, ASliceIsPutTogetherFromItsChunks)
{
    t.add("a", 1500, 4);
    t.add("half", 700, 3, ZOFF_BF16);
    ASSERT_NO_FATAL_FAILURE(open(4));
    ASSERT_LT(7u, t.parts.plan.chunk_count);
    for (size_t slice : {2, 0, 3, 1}) {
        EXPECT_ZOFF_OK(copy(0, slice));
    }
    for (size_t slice : {2, 0, 1}) {
        EXPECT_ZOFF_OK(copy(1, slice));
    }
}

TEST_F(Held, ManySmallSlicesOfAChunkAreOneRead)
{
    t.add("a", 96, 10);
    ASSERT_NO_FATAL_FAILURE(open(4));
    for (size_t slice = 0; slice < 10; slice++) {
        EXPECT_ZOFF_OK(copy(0, slice));
    }
    EXPECT_EQ((uint64_t)CHUNK, t.read_bytes());
}

TEST_F(Held, HalfOfTheSlotsAreAndTheOneUsedLongestAgoIsGivenBack)
{
    t.add("a", 1024, 4); // one chunk for each
    ASSERT_NO_FATAL_FAILURE(open(6));
    for (size_t slice : {0, 1, 2, 0})
        EXPECT_ZOFF_OK(copy(0, slice));
    EXPECT_EQ((chunks{0, 2, 1}), held());
    EXPECT_EQ(3u * CHUNK, t.read_bytes());
    EXPECT_ZOFF_OK(copy(0, 3));
    EXPECT_EQ((chunks{3, 0, 2}), held());
    EXPECT_ZOFF_OK(copy(0, 2));
    EXPECT_EQ(4u * CHUNK, t.read_bytes());
    EXPECT_ZOFF_OK(copy(0, 1));
    EXPECT_EQ(5u * CHUNK, t.read_bytes()) << "it is read again";
}

TEST_F(Held, AreOneAtLeastAndEightAtMost)
{
    for (const auto &[slots, most] : {std::pair<unsigned, size_t>{1, 1}, {3, 1}, {16, 8}, {40, 8}}) {
        small_lending own;
        own.add("a", 1024, 12);
        own.values.tier = ZOFF_TIER_NVME;
        own.values.slots = slots;
        ASSERT_NO_FATAL_FAILURE(own.open(1024));
        for (size_t slice = 0; slice < 12; slice++)
            own.use(0, slice);
        EXPECT_EQ(most, own.l.cache.held_count) << slots << " slots";
    }
}

TEST_F(Held, ABorrowedChunkIsTheSameUntilItIsGivenBack)
{
    t.add("a", 1024, 3);
    ASSERT_NO_FATAL_FAILURE(open(4));
    char *first = nullptr, *again = nullptr, *second = nullptr;
    ASSERT_ZOFF_OK(borrow(1, &first));
    ASSERT_ZOFF_OK(borrow(2, &second));
    ASSERT_ZOFF_OK(borrow(1, &again));
    EXPECT_EQ(first, again);
    EXPECT_TRUE(t.has(first, 0, 1) && t.has(second, 0, 2));
    EXPECT_EQ(2u * CHUNK, t.read_bytes());
    EXPECT_EQ((chunks{2, 1}), held());
}

// Chunks that are read ahead and not asked for must not occupy all slots for ever.
TEST_F(Held, SlotsFullOfSomethingElseAreMadeFree)
{
    t.add("a", 1024, 9);
    ASSERT_NO_FATAL_FAILURE(open(4));
    zoff_lending_held_read_ahead(&t.l, 4, 4 * 1024);
    ASSERT_NO_FATAL_FAILURE(t.settle());
    EXPECT_ZOFF_OK(copy(0, 0));
    zoff_lending_held_let_go(&t.l);
    zoff_lending_held_read_ahead(&t.l, 4, 4 * 1024);
    ASSERT_NO_FATAL_FAILURE(t.settle());
    char *base = nullptr;
    for (int tries = 0; tries < 1000 && !base; tries++) {
        ASSERT_LE(0, zoff_lending_held_borrow(&t.l, 0, &base)) << zoff_last_error();
        ASSERT_NO_FATAL_FAILURE(t.settle());
    }
    ASSERT_NE(nullptr, base);
    EXPECT_TRUE(t.has(base, 0, 0));
}

TEST_F(Held, LettingGoGivesEverySlotBack)
{
    t.add("a", 1024, 9);
    ASSERT_NO_FATAL_FAILURE(open(4));
    EXPECT_ZOFF_OK(copy(0, 0));
    EXPECT_ZOFF_OK(copy(0, 1));
    zoff_lending_held_read_ahead(&t.l, 2, 2 * 1024);
    zoff_lending_held_let_go(&t.l);
    EXPECT_EQ(chunks(), held());
    void *base;
    for (size_t chunk = 5; chunk < 9; chunk++) { // all four at once
        zoff_status status;
        while ((status = zoff_offload_store_fetch(t.l.store, chunk, &base)) == ZOFF_PENDING) {
            ASSERT_TRUE(zoff_offload_store_busy(t.l.store, false)) << "no slot is free";
            ASSERT_ZOFF_OK(zoff_offload_store_wait(t.l.store));
        }
        ASSERT_ZOFF_OK(status);
    }
}

TEST_F(Held, ReadAheadIsLimitedByElements)
{
    t.add("a", 1500, 4);
    ASSERT_NO_FATAL_FAILURE(open(8));
    const size_t piece = t.slice(1).first_piece;
    const size_t first = t.parts.plan.pieces[piece].bucket;
    ASSERT_EQ(1u, first) << "the second slice begins in the chunk in which the first one ends";
    for (size_t more : {1, 0}) {
        zoff_lending_held_read_ahead(&t.l, piece, t.parts.plan.pieces[piece].count + more);
        ASSERT_NO_FATAL_FAILURE(t.settle());
        EXPECT_TRUE(t.was_read_ahead(1));
        EXPECT_EQ(more, t.was_read_ahead(2));
        EXPECT_FALSE(t.was_read_ahead(0) || t.was_read_ahead(3));
        zoff_lending_held_let_go(&t.l);
    }
}

TEST_F(Held, ADamagedChunkIsNotHeld)
{
    t.add("good", 1024);
    t.add("bad", 1024);
    ASSERT_NO_FATAL_FAILURE(open(4));
    EXPECT_ZOFF_OK(copy(0));
    ASSERT_NO_FATAL_FAILURE(flip_bit(1));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "is not what was written there", copy(1));
    EXPECT_EQ((chunks{0}), held());
    char *base = nullptr;
    EXPECT_EQ(ZOFF_ERR_CORRUPT, borrow(1, &base));
    EXPECT_EQ((chunks{0}), held());
    ASSERT_NO_FATAL_FAILURE(flip_bit(1));
    EXPECT_ZOFF_OK(copy(1)) << "it is read again";
}

TEST_F(Held, AnErrorOfAReadAheadIsNoErrorOfTheFetch)
{
    t.add("a", 1024, 2);
    ASSERT_NO_FATAL_FAILURE(open(4));
    zoff_base_progress_keep(&t.reads, zoff_base_status_fail(ZOFF_ERR_IO, "of another chunk"));
    EXPECT_ZOFF_OK(copy(0, 1));
    EXPECT_ZOFF_OK(zoff_base_progress_take(&t.reads)) << "it was forgotten";
}

// A copy of the third slice would need memory that copies of others may still read.
TEST_F(Held, AChunkStaysBorrowedWhileADeviceStandsStill)
{
    t.put_on_device(false);
    t.device.timeout_seconds = 0.02;
    t.device.overdue = [](void *, double) { return zoff_base_status_fail(ZOFF_ERR_DEVICE, "it stands still"); };
    t.add("a", 1024, 4);
    ASSERT_NO_FATAL_FAILURE(open(4));
    std::vector<char> places[4];
    const auto fill = [&](size_t slice) {
        zoff_cached_slice s = t.slice(slice);
        places[slice].resize(s.bytes);
        s.at = places[slice].data();
        const zoff_status status = zoff_lending_fill_slice(&t.l, &s);
        t.slice(slice).arrived = s.arrived; // so that it is closed
        return status;
    };
    std::atomic<bool> goes_on{false};
    ASSERT_ZOFF_OK(t.accel->ops->streams.call(
        t.accel, t.l.there.stream,
        [](void *ctx) {
            while (!*(std::atomic<bool> *)ctx)
                usleep(1000);
        },
        &goes_on));
    ASSERT_ZOFF_OK(fill(0));
    ASSERT_ZOFF_OK(fill(1));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_DEVICE, "it stands still", fill(2));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_DEVICE, "it stands still", zoff_lending_held_let_go(&t.l));
    EXPECT_EQ((chunks{1, 0}), held());
    goes_on = true;
    t.device.timeout_seconds = -1;
    EXPECT_ZOFF_OK(fill(2));
    EXPECT_ZOFF_OK(fill(3));
    EXPECT_EQ((chunks{3, 2}), held());
    EXPECT_ZOFF_OK(zoff_lending_held_let_go(&t.l));
    EXPECT_EQ(chunks(), held());
    ASSERT_ZOFF_OK(zoff_lending_copies_settle(&t.l));
    for (size_t slice = 0; slice < 4; slice++)
        EXPECT_TRUE(t.has(places[slice].data(), 0, slice)) << slice;
}
} // namespace
