/* SPDX-License-Identifier: Apache-2.0 */
// store_contract_test.cc: what every tier must do with chunks, on each tier, back-end and number of paths.
#include "device_link.h"
#include "shell.h"
#include "store_ptr.h"
#include "zoff_test.h"

#include <string.h>

#include <random>
#include <set>

using namespace zoff_test;

namespace
{
struct kind {
    const char *name;
    zoff_tier tier;
    const char *backend;
    size_t paths;
    unsigned slots;
    size_t residents = 0;
    bool persist = false;
    zoff_store_verify verify = ZOFF_VERIFY_FULL;
    bool on_device = false;
};

class Store : public testing::TestWithParam<kind>
{
  protected:
    void SetUp() override
    {
        if (!GetParam().on_device)
            return;
        ASSERT_ZOFF_OK(zoff_accel_open("emulated", 0, &accel));
        link = std::make_unique<device_link>(accel);
    }
    ~Store() override
    {
        if (link)
            link->close();
        store.reset();
        zoff_accel_close(accel);
    }
    void make(std::vector<zoff_store_chunk> list)
    {
        chunks = list;
        const char *paths[2] = {folders[0].path.c_str(), folders[1].path.c_str()};
        zoff_store_opts opts = {};
        opts.tier = GetParam().tier;
        opts.link = link.get();
        opts.chunks = chunks.data();
        opts.chunk_count = chunks.size();
        opts.fill = [](void *ctx, size_t chunk, void *base) { static_cast<Store *>(ctx)->fill(chunk, (char *)base); };
        opts.fill_ctx = this;
        opts.slots = GetParam().slots;
        opts.residents = std::min(GetParam().residents, chunks.size());
        opts.paths = paths;
        opts.path_count = GetParam().paths;
        opts.aio_backend = GetParam().backend;
        opts.threads = 2;
        opts.ranks = 1;
        opts.persist = GetParam().persist;
        opts.verify = GetParam().verify;
        zoff_store *made = nullptr;
        ASSERT_ZOFF_OK(open_store(&opts, &made));
        store.reset(made);
    }

    // The front of each chunk is filled with its number; the rest stays zero.
    void fill(size_t chunk, char *base)
    {
        ASSERT_TRUE(std::string(chunks[chunk].bytes, 0) == std::string(base, chunks[chunk].bytes)) << "chunk " << chunk;
        memset(base, (int)chunk + 1, chunks[chunk].first_bytes);
        filled.push_back(chunk);
    }
    void expect_fresh(size_t c, const char *base) const
    {
        std::string want(chunks[c].bytes, 0);
        std::fill_n(want.begin(), chunks[c].first_bytes, (char)(c + 1));
        ASSERT_TRUE(want == std::string(base, want.size())) << "chunk " << c;
    }

    char *borrow(size_t chunk)
    {
        void *base = nullptr;
        zoff_status status;
        while ((status = borrow_chunk(store.get(), chunk, &base)) == ZOFF_PENDING)
            EXPECT_ZOFF_OK(zoff_offload_store_wait(store.get()));
        EXPECT_ZOFF_OK(status);
        return (char *)base;
    }

    // The chunks that are stored in files.
    std::vector<size_t> in_files()
    {
        std::vector<size_t> list;
        for (size_t c = 0; c < chunks.size(); c++) {
            if (!zoff_offload_store_resident(store.get(), c))
                list.push_back(c);
        }
        return list;
    }

    // Bytes that were moved since the opening, by the disk or over the link.
    zoff_store_stats moved() const
    {
        zoff_store_stats stats;
        zoff_offload_store_stats(store.get(), &stats);
        if (link) {
            stats.read_bytes = link->read_bytes;
            stats.write_bytes = link->write_bytes;
            for (const zoff_store_chunk &chunk : chunks)
                stats.write_bytes -= chunk.bytes; // the first content
        }
        return stats;
    }

    zoff_accel *accel = nullptr;
    std::unique_ptr<device_link> link;
    scratch_folder folders[2];
    std::vector<zoff_store_chunk> chunks;
    std::vector<size_t> filled;
    store_ptr store;
};

INSTANTIATE_TEST_SUITE_P(
    Tiers, Store,
    testing::Values(kind{"host", ZOFF_TIER_HOST, nullptr, 1, 0}, kind{"uring", ZOFF_TIER_NVME, "io_uring", 1, 3},
                    kind{"posix", ZOFF_TIER_NVME, "posix", 1, 3}, kind{"two_paths", ZOFF_TIER_NVME, "auto", 2, 4},
                    kind{"two_slots", ZOFF_TIER_NVME, "auto", 2, 2}, kind{"residents", ZOFF_TIER_NVME, "auto", 2, 2, 3},
                    kind{"all_resident", ZOFF_TIER_NVME, "posix", 1, 2, 99},
                    kind{"sample", ZOFF_TIER_NVME, "auto", 1, 3, 0, false, ZOFF_VERIFY_SAMPLE},
                    kind{"unverified", ZOFF_TIER_NVME, "auto", 1, 3, 0, false, ZOFF_VERIFY_OFF},
                    kind{"persist", ZOFF_TIER_NVME, "auto", 1, 3, 0, true},
                    kind{"persist_residents", ZOFF_TIER_NVME, "posix", 2, 2, 3, true},
                    kind{"persist_all_resident", ZOFF_TIER_NVME, "auto", 2, 2, 99, true},
                    kind{"device", ZOFF_TIER_HOST, nullptr, 1, 3, 0, false, ZOFF_VERIFY_FULL, true}),
    [](const auto &p) { return std::string(p.param.name); });

TEST_P(Store, AFreshChunkIsAsItWasFilled)
{
    log_catcher log;
    ASSERT_NO_FATAL_FAILURE(make({{8192, 4096}, {4096, 0}, {1 << 20, 1 << 20}, {12288, 8192}, {4096, 4096}}));
    EXPECT_EQ((std::vector<size_t>{0, 1, 2, 3, 4}), filled);
    for (size_t c : {4, 2, 0, 1, 3}) {
        char *base = borrow(c);
        ASSERT_NO_FATAL_FAILURE(expect_fresh(c, base));
        withdraw(store.get(), c);
    }
}

TEST_P(Store, FlushedChunksComeBack)
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
            ASSERT_ZOFF_OK(flush_chunk(store.get(), c));
        } else {
            withdraw(store.get(), c);
        }
        if (random() % 7 == 0) {
            ASSERT_ZOFF_OK(zoff_offload_store_drain(store.get()));
            ASSERT_ZOFF_OK(zoff_offload_store_commit(store.get(), round));
        }
        // Start a fetch, and then withdraw it, and a read ahead, which nobody may want.
        void *unused;
        size_t ahead = random() % list.size();
        (void)borrow_chunk(store.get(), ahead, &unused);
        withdraw(store.get(), ahead);
        if (random() % 2) {
            ahead = random() % list.size();
            hint(store.get(), ahead);
        }
    }
    ASSERT_ZOFF_OK(zoff_offload_store_drain(store.get()));
}

// A claimed chunk is not read. If it is released without a flush, its old content counts again.
TEST_P(Store, AClaimedChunkIsRewrittenOrUnchanged)
{
    log_catcher log;
    ASSERT_NO_FATAL_FAILURE(make(std::vector<zoff_store_chunk>(7, {65536, 65536})));
    std::vector<char> want(7);
    for (size_t c = 0; c < 7; c++)
        want[c] = (char)(c + 1);
    std::mt19937 random(5);
    for (int round = 0; round < 200; round++) {
        const size_t c = random() % 7;
        void *base = nullptr;
        zoff_status status;
        zoff_store_stats before, after;
        if (random() % 3 == 0) { // the chunk's read may already be in flight
            hint(store.get(), c);
        }
        zoff_offload_store_stats(store.get(), &before);
        while ((status = claim_chunk(store.get(), c, &base)) == ZOFF_PENDING)
            ASSERT_ZOFF_OK(zoff_offload_store_wait(store.get()));
        ASSERT_ZOFF_OK(status);
        zoff_offload_store_stats(store.get(), &after);
        ASSERT_EQ(after.ahead_bytes - before.ahead_bytes, after.read_bytes - before.read_bytes) << "a claimed chunk was read";
        const bool in_dram = zoff_offload_store_resident(store.get(), c);
        if (random() % 2) {
            want[c] = (char)random();
            memset(base, want[c], chunks[c].bytes);
            ASSERT_ZOFF_OK(flush_chunk(store.get(), c));
        } else {
            if (!in_dram)
                memset(base, 0x55, chunks[c].bytes);
            withdraw(store.get(), c);
        }
        const size_t other = random() % 7;
        const char *read = borrow(other);
        ASSERT_TRUE(std::all_of(read, read + chunks[other].bytes, [&](char x) { return x == want[other]; }))
            << "round " << round << " chunk " << other;
        withdraw(store.get(), other);
    }
    ASSERT_ZOFF_OK(zoff_offload_store_drain(store.get()));
}

TEST_P(Store, SeveralAreInFlightAtATime)
{
    log_catcher log;
    ASSERT_NO_FATAL_FAILURE(make(std::vector<zoff_store_chunk>(9, {65536, 65536})));
    std::vector<void *> base(9);
    if (GetParam().tier == ZOFF_TIER_HOST && !link) {
        // In DRAM nothing is ever in flight: all chunks can be borrowed, each at its own address.
        for (size_t c = 0; c < 9; c++)
            base[c] = borrow(c);
        EXPECT_EQ(9u, std::set<void *>(base.begin(), base.end()).size());
        return;
    }
    const std::vector<size_t> files = in_files();
    EXPECT_EQ(9 - std::min<size_t>(9, GetParam().residents), files.size());
    // Resident chunks can be borrowed at any time.
    for (size_t c = 0; c < 9; c++) {
        if (zoff_offload_store_resident(store.get(), c)) {
            ASSERT_ZOFF_OK(borrow_chunk(store.get(), c, &base[c]));
            EXPECT_EQ((char)(c + 1), *(char *)base[c]);
        }
    }
    const unsigned slots = GetParam().slots;
    if (files.size() > slots) {
        // All slots can be borrowed at once, but not one more.
        for (size_t i = 0; i < slots; i++)
            base[files[i]] = borrow(files[i]);
        void *more;
        EXPECT_EQ(ZOFF_PENDING, borrow_chunk(store.get(), files[slots], &more));
        ASSERT_ZOFF_OK(flush_chunk(store.get(), files[0]));
        EXPECT_NE(nullptr, borrow(files[slots]));
    }
    std::set<void *> places(base.begin(), base.end());
    places.erase(nullptr);
    EXPECT_EQ(9 - files.size() + std::min<size_t>(slots, files.size()), places.size()) << "each chunk has its own address";
    for (size_t c = 0; c < 9; c++) {
        if (zoff_offload_store_resident(store.get(), c)) {
            ASSERT_ZOFF_OK(flush_chunk(store.get(), c));
        }
    }
    ASSERT_ZOFF_OK(zoff_offload_store_drain(store.get()));
    const zoff_store_stats stats = moved();
    const size_t through = GetParam().persist ? 9 - files.size() : 0;
    EXPECT_EQ((files.empty() ? 0 : 65536u) + 65536u * through, stats.write_bytes)
        << "a resident chunk is not written, unless it persists";
    EXPECT_EQ(files.empty() ? 0u : 65536u * (slots + 1), stats.read_bytes);
}

TEST_P(Store, NoChunksAtAll)
{
    log_catcher log;
    ASSERT_NO_FATAL_FAILURE(make({}));
    EXPECT_ZOFF_OK(zoff_offload_store_pump(store.get()));
    EXPECT_ZOFF_OK(zoff_offload_store_drain(store.get()));
    // Waiting is refused when nothing is in flight: the wait would never end.
    if (GetParam().tier == ZOFF_TIER_NVME) {
        EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "none is in flight", zoff_offload_store_wait(store.get()));
    }
}

// An optimizer without states has chunks of no bytes, alone or between others. They are filled, but never borrowed.
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
        ASSERT_NO_FATAL_FAILURE(expect_fresh(c, base));
        ASSERT_ZOFF_OK(flush_chunk(store.get(), c));
    }
    ASSERT_ZOFF_OK(zoff_offload_store_drain(store.get()));
    const zoff_store_stats stats = moved();
    uint64_t read = 0, written = 0;
    for (size_t c : in_files()) {
        read += link ? chunks[c].bytes : chunks[c].first_bytes;
        written += chunks[c].bytes;
    }
    EXPECT_EQ(read, stats.read_bytes);
    for (size_t c = 0; GetParam().persist && c < chunks.size(); c++)
        written += zoff_offload_store_resident(store.get(), c) ? chunks[c].bytes : 0;
    EXPECT_EQ(written, stats.write_bytes);
}

TEST_P(Store, FilesAreGoneInTheEndUnlessTheyPersist)
{
    log_catcher log;
    ASSERT_NO_FATAL_FAILURE(make({{8192, 4096}, {8192, 4096}, {8192, 4096}}));
    auto count = [&](const char *ending) {
        std::string command = "ls '" + folders[0].path + "' '" + folders[1].path + "' | grep -c '[.]" + ending + "$'";
        return atoi(shell(command).output.c_str());
    };
    const int files = GetParam().tier == ZOFF_TIER_HOST ? 0 : (int)GetParam().paths;
    EXPECT_EQ(0, count("swap")) << "a file that does not persist has no name once it is open";
    EXPECT_EQ(GetParam().persist ? files : 0, count("states"));
    store.reset();
    EXPECT_EQ(0, count("swap"));
    EXPECT_EQ(GetParam().persist ? files : 0, count("states"));
}
} // namespace
