// host_test.cc: the tier in DRAM: each chunk has a fixed place, borrowing costs nothing, and nothing is ever in flight.
#include "ring_store.h"
#include "store_ptr.h"

using namespace zoff_test;

namespace
{
const std::vector<zoff_store_chunk> CHUNKS = {{8192, 4096}, {0, 0}, {4096, 4096}, {20480, 4096, {4096, 12288, 20480}}};

class Host : public testing::Test
{
  protected:
    ~Host() override { zoff_offload_store_close(store); }
    zoff_status open(size_t count = CHUNKS.size(), size_t spares = 0)
    {
        zoff_store_opts opts = {};
        opts.tier = ZOFF_TIER_HOST;
        opts.chunks = CHUNKS.data();
        opts.chunk_count = count;
        opts.fill = [](void *ctx, size_t chunk, void *base) { static_cast<Host *>(ctx)->fill(chunk, (char *)base); };
        opts.fill_ctx = this;
        opts.has_seconds = spares > 0;
        opts.spares = spares;
        filled.clear();
        return open_store(&opts, &store);
    }
    void fill(size_t chunk, char *base)
    {
        EXPECT_EQ(std::string(CHUNKS[chunk].bytes, 0), std::string(base, CHUNKS[chunk].bytes)) << "it holds zeros";
        memset(base, (int)chunk + 1, CHUNKS[chunk].first_bytes);
        filled.push_back(chunk);
    }
    char *fetch(size_t chunk)
    {
        void *base = nullptr;
        EXPECT_ZOFF_OK(borrow_chunk(store, chunk, &base));
        return static_cast<char *>(base);
    }
    std::vector<size_t> filled;
    zoff_store *store = nullptr;
};
} // namespace

TEST_F(Host, EachChunkHasItsPlaceForGood)
{
    ASSERT_ZOFF_OK(open());
    EXPECT_EQ((std::vector<size_t>{0, 1, 2, 3}), filled) << "also one without bytes";
    char *places[4];
    for (size_t c : {0, 2, 3}) {
        places[c] = fetch(c);
        EXPECT_EQ((char)(c + 1), places[c][0]);
        memset(places[c], (int)c + 10, CHUNKS[c].bytes);
    }
    for (size_t c : {0, 2, 3}) {
        void *again = nullptr;
        EXPECT_EQ(places[c], fetch(c)) << "borrowed twice";
        EXPECT_ZOFF_OK(borrow_arrays(store, c, 2, &again));
        EXPECT_EQ(places[c], again);
        EXPECT_ZOFF_OK(claim_chunk(store, c, &again));
        EXPECT_EQ(places[c], again);
        EXPECT_ZOFF_OK(flush_chunk(store, c));
        EXPECT_ZOFF_OK(keep_chunk(store, c, 1));
        withdraw(store, c);
        zoff_offload_store_settle(store, c, 0, CHUNKS[c].bytes);
        EXPECT_TRUE(zoff_offload_store_resident(store, c));
    }
    EXPECT_ZOFF_OK(zoff_offload_store_rollback(store));
    for (size_t c : {0, 2, 3})
        EXPECT_EQ(std::string(CHUNKS[c].bytes, (char)(c + 10)), std::string(places[c], CHUNKS[c].bytes));
}

TEST_F(Host, NothingIsEverInFlight)
{
    ASSERT_ZOFF_OK(open());
    hint(store, 0);
    fetch(0);
    EXPECT_FALSE(zoff_offload_store_busy(store, false));
    EXPECT_FALSE(zoff_offload_store_busy(store, true));
    EXPECT_ZOFF_OK(zoff_offload_store_pump(store));
    EXPECT_ZOFF_OK(zoff_offload_store_wait(store));
    EXPECT_ZOFF_OK(zoff_offload_store_drain(store));
    EXPECT_ZOFF_OK(zoff_offload_store_retry(store));
    EXPECT_FALSE(zoff_offload_store_overlaps(store));
    EXPECT_FALSE(zoff_offload_store_can_rollback(store));
    zoff_store_stats stats;
    zoff_offload_store_stats(store, &stats);
    EXPECT_EQ(0u, stats.read_bytes + stats.write_bytes + stats.lifetime_write_bytes);
}

TEST_F(Host, ACommitIsARememberedStep)
{
    ASSERT_ZOFF_OK(open());
    int64_t t = -1;
    EXPECT_FALSE(zoff_offload_store_reopened(store, &t));
    EXPECT_EQ(0, t);
    ASSERT_ZOFF_OK(zoff_offload_store_commit(store, 9));
    EXPECT_FALSE(zoff_offload_store_reopened(store, &t));
    EXPECT_EQ(9, t);
}

TEST_F(Host, ThereMayBeNoChunks)
{
    ASSERT_ZOFF_OK(open(0));
    EXPECT_ZOFF_OK(zoff_offload_store_commit(store, 1));
}

TEST_F(Host, SecondContentsAreInSpares)
{
    ASSERT_ZOFF_OK(open(CHUNKS.size(), 1));
    for (const size_t c : {3, 0, 2}) {
        // Only the memory of the largest chunk can be a spare. The content of others is copied.
        const bool moves = c == 3;
        void *second = nullptr, *other = nullptr;
        char *first = fetch(c);
        ASSERT_ZOFF_OK(zoff_offload_store_second(store, c, &second));
        EXPECT_NE(first, second);
        EXPECT_EQ(ZOFF_PENDING, zoff_offload_store_second(store, c == 3 ? 0 : 3, &other));
        memset(second, 77, CHUNKS[c].bytes);
        EXPECT_EQ((char)(c + 1), first[0]);
        ASSERT_ZOFF_OK(put_chunk(store, c));
        withdraw(store, c); // too late
        EXPECT_EQ(first, fetch(c));
        withdraw(store, c);
        zoff_offload_store_adopt(store, c);
        EXPECT_EQ(moves ? (char *)second : first, fetch(c));
        EXPECT_EQ(std::string(CHUNKS[c].bytes, 77), std::string(fetch(c), CHUNKS[c].bytes));
        ASSERT_ZOFF_OK(zoff_offload_store_second(store, 3, &other));
        EXPECT_EQ(moves ? (void *)first : second, other) << "each spare has room for the largest chunk";
        memset(other, 99, CHUNKS[3].bytes);
        ASSERT_ZOFF_OK(zoff_offload_store_discard(store, 3));
    }
    for (const size_t c : {3, 0, 2})
        EXPECT_EQ(std::string(CHUNKS[c].bytes, 77), std::string(fetch(c), CHUNKS[c].bytes));
}

// Chunks that are about as large as the largest have the same room, so that nothing is copied.
TEST_F(Host, SimilarChunksExchangeMemory)
{
    zoff_store_chunk chunks[2] = {{40 * 4096, 4096}, {39 * 4096, 4096}};
    zoff_store_opts opts = {};
    opts.tier = ZOFF_TIER_HOST;
    opts.chunks = chunks;
    opts.chunk_count = 2;
    opts.fill = [](void *, size_t, void *) {};
    opts.has_seconds = true;
    opts.spares = 9;
    ASSERT_ZOFF_OK(open_store(&opts, &store));
    EXPECT_EQ(2u * 40 * 4096, store->map.bytes);
    EXPECT_EQ(2u * 40 * 4096, store->spares.map.bytes) << "no more spares than chunks";
    void *second = nullptr;
    char *first = fetch(1);
    ASSERT_ZOFF_OK(zoff_offload_store_second(store, 1, &second));
    ASSERT_ZOFF_OK(put_chunk(store, 1));
    zoff_offload_store_adopt(store, 1);
    EXPECT_EQ(second, fetch(1));
    EXPECT_NE(first, fetch(1));
}

TEST_F(Host, WithoutMemoryNothingIsLeft)
{
    for (const size_t spares : {0, 2})
        EXPECT_EQ(spares ? 6 : 4, fail_each_allocation([&] {
                      zoff_offload_store_close(store);
                      store = nullptr;
                      const zoff_status status = open(CHUNKS.size(), spares);
                      EXPECT_EQ(status == ZOFF_OK, !filled.empty());
                      return status;
                  }));
}
