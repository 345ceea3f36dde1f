// host_test.cc: the tier in DRAM: each chunk has a fixed place, borrowing costs nothing, and nothing is ever in flight.
#include "ring_store.h"

using namespace zoff_test;

namespace
{
const std::vector<zoff_store_chunk> CHUNKS = {{8192, 4096}, {0, 0}, {4096, 4096}, {20480, 4096, {4096, 12288, 20480}}};

class Host : public testing::Test
{
  protected:
    ~Host() override { zoff_offload_store_close(store); }
    zoff_status open(size_t count = CHUNKS.size())
    {
        zoff_store_opts opts = {};
        opts.tier = ZOFF_TIER_HOST;
        opts.chunks = CHUNKS.data();
        opts.chunk_count = count;
        opts.fill = [](void *ctx, size_t chunk, void *base) { static_cast<Host *>(ctx)->fill(chunk, (char *)base); };
        opts.fill_ctx = this;
        filled.clear();
        return zoff_offload_store_open(&opts, &store);
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
        EXPECT_ZOFF_OK(zoff_offload_store_fetch(store, chunk, &base));
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
        EXPECT_ZOFF_OK(zoff_offload_store_fetch_arrays(store, c, 2, &again));
        EXPECT_EQ(places[c], again);
        EXPECT_ZOFF_OK(zoff_offload_store_claim(store, c, &again));
        EXPECT_EQ(places[c], again);
        EXPECT_ZOFF_OK(zoff_offload_store_check(store, c));
        EXPECT_ZOFF_OK(zoff_offload_store_flush(store, c));
        EXPECT_ZOFF_OK(zoff_offload_store_keep(store, c, 1));
        zoff_offload_store_release(store, c);
        zoff_offload_store_drop(store, c);
        zoff_offload_store_settle(store, c, 0, CHUNKS[c].bytes);
        EXPECT_TRUE(zoff_offload_store_resident(store, c));
    }
    zoff_offload_store_forget(store);
    EXPECT_ZOFF_OK(zoff_offload_store_rollback(store));
    for (size_t c : {0, 2, 3})
        EXPECT_EQ(std::string(CHUNKS[c].bytes, (char)(c + 10)), std::string(places[c], CHUNKS[c].bytes));
}

TEST_F(Host, NothingIsEverInFlight)
{
    ASSERT_ZOFF_OK(open());
    EXPECT_ZOFF_OK(zoff_offload_store_ahead(store, 0));
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

TEST_F(Host, WithoutMemoryNothingIsLeft)
{
    EXPECT_EQ(4, fail_each_allocation([&] {
                  const zoff_status status = open();
                  EXPECT_EQ(status == ZOFF_OK, !filled.empty());
                  return status;
              }));
}
