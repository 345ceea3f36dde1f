// store_contract_test.cc: what every tier must do with chunks, on each tier, back-end and number of paths.
#include "zoff_test.h"

#include <string.h>

#include <random>
#include <set>

extern "C" {
#include "offload.h"
}

using namespace zoff_test;

namespace
{
struct kind {
    const char *name;
    zoff_tier tier;
    const char *backend;
    size_t paths;
    unsigned slots;
};

struct closer_store {
    void operator()(zoff_store *s) const { zoff_offload_store_close(s); }
};

class Store : public testing::TestWithParam<kind>
{
  protected:
    void make(std::vector<zoff_store_chunk> list)
    {
        chunks = list;
        const char *paths[2] = {folders[0].path.c_str(), folders[1].path.c_str()};
        zoff_store_opts opts = {};
        opts.tier = GetParam().tier;
        opts.chunks = chunks.data();
        opts.chunk_count = chunks.size();
        opts.fill = [](void *ctx, size_t chunk, void *base) { static_cast<Store *>(ctx)->fill(chunk, (char *)base); };
        opts.fill_ctx = this;
        opts.slots = GetParam().slots;
        opts.paths = paths;
        opts.path_count = GetParam().paths;
        opts.aio_backend = GetParam().backend;
        zoff_store *made = nullptr;
        ASSERT_ZOFF_OK(zoff_offload_store_open(&opts, &made));
        store.reset(made);
    }

    // The front of each chunk holds its number; the rest stays zero.
    void fill(size_t chunk, char *base)
    {
        for (size_t i = 0; i < chunks[chunk].bytes; i++)
            ASSERT_EQ(0, base[i]);
        memset(base, (int)chunk + 1, chunks[chunk].first_bytes);
        filled.push_back(chunk);
    }

    char *borrow(size_t chunk)
    {
        void *base = nullptr;
        zoff_status status;
        while ((status = zoff_offload_store_fetch(store.get(), chunk, &base)) == ZOFF_PENDING)
            EXPECT_ZOFF_OK(zoff_offload_store_wait(store.get()));
        EXPECT_ZOFF_OK(status);
        return (char *)base;
    }

    scratch_folder folders[2];
    std::vector<zoff_store_chunk> chunks;
    std::vector<size_t> filled;
    std::unique_ptr<zoff_store, closer_store> store;
};

INSTANTIATE_TEST_SUITE_P(Tiers, Store,
                         testing::Values(kind{"host", ZOFF_TIER_HOST, nullptr, 1, 0},
                                         kind{"uring", ZOFF_TIER_NVME, "io_uring", 1, 3},
                                         kind{"posix", ZOFF_TIER_NVME, "posix", 1, 3},
                                         kind{"two_paths", ZOFF_TIER_NVME, "auto", 2, 4},
                                         kind{"two_slots", ZOFF_TIER_NVME, "auto", 2, 2}),
                         [](const auto &p) { return std::string(p.param.name); });

TEST_P(Store, AFreshChunkIsAsItWasFilled)
{
    log_catcher log;
    ASSERT_NO_FATAL_FAILURE(make({{8192, 4096}, {4096, 0}, {1 << 20, 1 << 20}, {12288, 8192}, {4096, 4096}}));
    EXPECT_EQ((std::vector<size_t>{0, 1, 2, 3, 4}), filled);
    for (size_t c : {4, 2, 0, 1, 3}) {
        char *base = borrow(c);
        for (size_t i = 0; i < chunks[c].bytes; i++)
            ASSERT_EQ(i < chunks[c].first_bytes ? (int)c + 1 : 0, base[i]) << "chunk " << c << " byte " << i;
        zoff_offload_store_release(store.get(), c);
    }
}

TEST_P(Store, WhatIsFlushedComesBack)
{
    log_catcher log;
    std::vector<zoff_store_chunk> list(17, {20480, 4096});
    list[3].bytes = 4096 * 300;
    ASSERT_NO_FATAL_FAILURE(make(list));
    std::vector<std::vector<char>> want(list.size());
    for (size_t c = 0; c < list.size(); c++) {
        want[c].assign(list[c].bytes, 0);
        std::fill_n(want[c].begin(), list[c].first_bytes, (char)(c + 1));
    }
    std::mt19937 random(3);
    for (int round = 0; round < 400; round++) {
        size_t c = random() % list.size();
        char *base = borrow(c);
        ASSERT_EQ(0, memcmp(want[c].data(), base, want[c].size())) << "round " << round << " chunk " << c;
        if (random() % 2) {
            size_t at = random() % want[c].size();
            want[c][at] = base[at] = (char)random();
            ASSERT_ZOFF_OK(zoff_offload_store_flush(store.get(), c));
        } else {
            zoff_offload_store_release(store.get(), c);
        }
        if (random() % 7 == 0) {
            ASSERT_ZOFF_OK(zoff_offload_store_drain(store.get()));
        }
        // Read ahead something that is then given up.
        void *unused;
        size_t ahead = random() % list.size();
        if (zoff_offload_store_fetch(store.get(), ahead, &unused) == ZOFF_OK)
            zoff_offload_store_release(store.get(), ahead);
        zoff_offload_store_forget(store.get());
    }
    ASSERT_ZOFF_OK(zoff_offload_store_drain(store.get()));
}

TEST_P(Store, SeveralAreInFlightAtATime)
{
    log_catcher log;
    ASSERT_NO_FATAL_FAILURE(make(std::vector<zoff_store_chunk>(9, {65536, 65536})));
    std::vector<void *> base(9);
    if (GetParam().tier == ZOFF_TIER_HOST) {
        // In DRAM nothing is ever in flight: all can be borrowed, each has its own place.
        for (size_t c = 0; c < 9; c++)
            base[c] = borrow(c);
        EXPECT_EQ(9u, std::set<void *>(base.begin(), base.end()).size());
        return;
    }
    unsigned slots = GetParam().slots;
    // All slots can be borrowed at once, and not one more.
    for (size_t c = 0; c < slots; c++)
        base[c] = borrow(c);
    void *more;
    EXPECT_EQ(ZOFF_PENDING, zoff_offload_store_fetch(store.get(), slots, &more));
    ASSERT_ZOFF_OK(zoff_offload_store_flush(store.get(), 0));
    EXPECT_NE(nullptr, borrow(slots));
    zoff_store_stats stats;
    ASSERT_ZOFF_OK(zoff_offload_store_drain(store.get()));
    zoff_offload_store_stats(store.get(), &stats);
    EXPECT_EQ(65536u, stats.write_bytes);
    EXPECT_EQ(65536u * (slots + 1), stats.read_bytes);
}

TEST_P(Store, NoChunksAtAll)
{
    log_catcher log;
    ASSERT_NO_FATAL_FAILURE(make({}));
    EXPECT_ZOFF_OK(zoff_offload_store_pump(store.get()));
    EXPECT_ZOFF_OK(zoff_offload_store_drain(store.get()));
    // Waiting for nothing is refused: it would be for ever.
    if (GetParam().tier == ZOFF_TIER_NVME) {
        EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "none is in flight", zoff_offload_store_wait(store.get()));
    }
}

// What an optimizer without states has: chunks of no bytes, alone and between others. They are filled, never borrowed.
TEST_P(Store, ChunksWithoutBytes)
{
    log_catcher log;
    ASSERT_NO_FATAL_FAILURE(make({{0, 0}, {0, 0}, {0, 0}}));
    EXPECT_EQ((std::vector<size_t>{0, 1, 2}), filled);
    EXPECT_ZOFF_OK(zoff_offload_store_drain(store.get()));
    store.reset();
    filled.clear();
    ASSERT_NO_FATAL_FAILURE(make({{0, 0}, {8192, 4096}, {0, 0}, {4096, 4096}, {0, 0}}));
    EXPECT_EQ((std::vector<size_t>{0, 1, 2, 3, 4}), filled);
    for (size_t c : {3, 1}) {
        char *base = borrow(c);
        for (size_t i = 0; i < chunks[c].bytes; i++)
            ASSERT_EQ(i < chunks[c].first_bytes ? (int)c + 1 : 0, base[i]) << "chunk " << c << " byte " << i;
        ASSERT_ZOFF_OK(zoff_offload_store_flush(store.get(), c));
    }
    ASSERT_ZOFF_OK(zoff_offload_store_drain(store.get()));
    zoff_store_stats stats;
    zoff_offload_store_stats(store.get(), &stats);
    const bool files = GetParam().tier == ZOFF_TIER_NVME;
    EXPECT_EQ(files ? 8192u : 0, stats.read_bytes);
    EXPECT_EQ(files ? 12288u : 0, stats.write_bytes);
}

TEST_P(Store, FilesAreGoneInTheEnd)
{
    log_catcher log;
    ASSERT_NO_FATAL_FAILURE(make({{8192, 4096}, {8192, 4096}, {8192, 4096}}));
    std::string count = "test $(ls '" + folders[0].path + "' '" + folders[1].path + "' | grep -c '[.]swap$') = ";
    size_t files = GetParam().tier == ZOFF_TIER_HOST ? 0 : GetParam().paths;
    EXPECT_EQ(0, system((count + std::to_string(files)).c_str()));
    store.reset();
    EXPECT_EQ(0, system((count + "0").c_str()));
}

TEST(Placement, FromABudgetToChunks)
{
    zoff_placement p;
    zoff_offload_placement_nvme(0, 4, (uint64_t)100 << 30, &p); // no budget: large chunks
    EXPECT_EQ(48u << 20, p.chunk_bytes);
    zoff_offload_placement_nvme(64 << 20, 4, (uint64_t)100 << 30, &p); // the budget decides
    EXPECT_EQ(16u << 20, p.chunk_bytes);
    zoff_offload_placement_nvme((uint64_t)64 << 30, 4, (uint64_t)400 << 20, &p); // at least 40 chunks
    EXPECT_EQ(10u << 20, p.chunk_bytes);
    zoff_offload_placement_nvme(0, 4, 1 << 20, &p); // small models: not below 4 MiB
    EXPECT_EQ(4u << 20, p.chunk_bytes);
    zoff_offload_placement_nvme(1 << 20, 4, (uint64_t)100 << 30, &p); // unless the budget forces it
    EXPECT_EQ(1u << 18, p.chunk_bytes);
}
} // namespace
