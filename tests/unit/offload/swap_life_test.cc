// swap_life_test.cc: opening the tier in files: places, memory, the first content, callbacks meanwhile. A failure leaves
// nothing behind.
#include "ring_store.h"

#include "shell.h"

using namespace zoff_test;

namespace
{
class SwapLife : public Ring
{
  protected:
    bool is_empty(size_t folder) { return shell("ls -A '" + folders[folder].path + "'").output.empty(); }
};
} // namespace

TEST_F(SwapLife, ChunksLieOneBehindTheOther)
{
    chunks[3] = {8192, 4096, {}};
    chunks[5] = {0, 0, {}};
    open();
    uint64_t end = 4096; // the head page
    for (size_t c = 0; c < chunks.size(); c++) {
        if (!chunks[c].bytes)
            continue;
        EXPECT_EQ(end, place(c).offset) << c;
        end += chunks[c].bytes;
    }
    EXPECT_EQ(end, s()->files[0].bytes);
    EXPECT_EQ(6u, s()->files[0].chunk_count) << "one without bytes is in no file";
    open_persistent();
    end = zoff_offload_swap_record_room(6);
    for (size_t c = 0; c < chunks.size(); c++) {
        if (!chunks[c].bytes)
            continue;
        EXPECT_EQ(end, place(c).offset) << c;
        end += 2 * chunks[c].bytes; // two places for each
    }
    EXPECT_EQ(end, s()->files[0].bytes);
}

TEST_F(SwapLife, AChunkOfNoKnownArraysIsOne)
{
    chunks[3] = {8192, 4096, {}};
    open();
    EXPECT_EQ(1u, zoff_offload_swap_place_arrays(s(), 3));
    EXPECT_EQ(7u, zoff_offload_swap_place_arrays(s(), 0));
}

TEST_F(SwapLife, ResidentsAreInAFileOnlyWhereItPersists)
{
    opts.residents = 3;
    open();
    size_t homes = 0;
    for (size_t c = 0; c < chunks.size(); c++)
        homes += zoff_offload_store_resident(store, c);
    EXPECT_EQ(3u, homes);
    EXPECT_EQ(4u, s()->files[0].chunk_count);
    EXPECT_EQ(4096u + 4 * 20480, s()->files[0].bytes);
    open_persistent();
    EXPECT_EQ(7u, s()->files[0].chunk_count);
    for (size_t c = 0; c < chunks.size(); c++)
        EXPECT_EQ((std::vector<int>{(int)c + 1, 0, 0}), values_of(c));
}

TEST_F(SwapLife, MemoryIsThatOfTheSlots)
{
    chunks[3] = {81920, 4096, {}};
    opts.residents = 2;
    open();
    EXPECT_LE(5u * 81920, store->map.bytes);
    EXPECT_GT(6u * 81920 + (2u << 20), store->map.bytes) << "but for a page";
    for (unsigned i = 0; i < 5; i++)
        EXPECT_EQ((char *)store->map.base + i * 81920, s()->slots[i].base);
    for (unsigned i = 0; i < 5; i++)
        EXPECT_EQ(i >= 3, s()->slots[i].is_home);
}

TEST_F(SwapLife, OptionsThatAreLeftOpenHaveDefaults)
{
    opts.threads = 0;
    opts.timeout_seconds = 0;
    opts.verify = ZOFF_VERIFY_OFF;
    open();
    EXPECT_EQ(1u, store->threads);
    EXPECT_GT(0, s()->timeout_seconds) << "for ever";
    EXPECT_FALSE(store->wants_settle);
    EXPECT_FALSE(zoff_offload_store_overlaps(store)) << "the caller moves the bytes";
    opts.aio_backend = "threads";
    opts.timeout_seconds = 7;
    open();
    EXPECT_EQ(7, s()->timeout_seconds);
    EXPECT_TRUE(zoff_offload_store_overlaps(store));
}

TEST_F(SwapLife, AFreshStoreHasMovedNothing)
{
    open_persistent();
    zoff_store_stats stats;
    zoff_offload_store_stats(store, &stats);
    EXPECT_EQ(0u, stats.read_bytes + stats.write_bytes);
    EXPECT_EQ(0, stats.wait_seconds);
    EXPECT_EQ(2u * 7 * 20480, stats.lifetime_write_bytes) << "both places of each chunk";
    int64_t t = -1;
    EXPECT_FALSE(zoff_offload_store_reopened(store, &t));
    flush(0, 7);
    drain();
    ASSERT_ZOFF_OK(zoff_offload_store_commit(store, 3));
    open();
    EXPECT_TRUE(zoff_offload_store_reopened(store, &t));
    EXPECT_EQ(3, t);
    EXPECT_EQ((std::vector<int>{7, 7, 7}), values_of(0));
}

// The caller can tell other ranks now and then that files are being written, and refuse when all is written.
TEST_F(SwapLife, AnOpeningIsDoneInParts)
{
    int between = 0, written = 0;
    zoff_status answer = ZOFF_OK;
    others.between = [&] {
        between++;
        return ZOFF_OK;
    };
    others.written = [&] {
        written++;
        return answer < 0 ? zoff_base_status_fail(answer, "another rank has failed") : ZOFF_OK;
    };
    open();
    EXPECT_LE(7, between);
    EXPECT_EQ(0, written) << "nothing is recorded";
    answer = ZOFF_ERR_COMM;
    opts.persist = true;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, "another rank has failed", try_open());
    EXPECT_EQ(1, written);
    EXPECT_TRUE(is_empty(0)) << "no file that was not there";
    answer = ZOFF_OK;
    open();
    EXPECT_EQ(2, written);
}

// The program's view of an opening: what is done, and how far.
struct watcher {
    std::vector<std::string> what;
    uint64_t done = 0, total = 0, most = 0; // most: bytes between two calls
    uint64_t stop = UINT64_MAX;
    static bool report(const char *what, uint64_t done, uint64_t total, void *ctx)
    {
        auto w = static_cast<watcher *>(ctx);
        if (w->what.empty() || w->what.back() != what) {
            w->what.push_back(what);
            w->done = 0;
        }
        EXPECT_LE(w->done, done);
        EXPECT_LE(done, total);
        w->most = std::max(w->most, done - w->done);
        w->done = done;
        w->total = total;
        return done < w->stop;
    }
};

TEST_F(SwapLife, ProgressIsReportedUpToTheLastByte)
{
    const std::vector<std::string> writes = {"write x"}, reads = {"read x"};
    for (const char *backend : {"posix", "threads", "io_uring"}) {
        watcher w;
        if (strcmp(backend, "posix") != 0 && zoff_feature(backend) < 0)
            continue;
        chunks.assign(7, {1 << 20, 4096, {4096, 1 << 19, 1 << 20}}); // each is one request of 256 pieces
        opts.aio_backend = backend;
        opts.aio_block_bytes = 4096;
        opts.aio_depth = 4;
        opts.residents = 3;
        opts.progress = {watcher::report, &w, "write x", "read x", "verify x", 0};
        opts.persist = false;
        open();
        EXPECT_EQ(writes, w.what);
        EXPECT_EQ(4u << 20, w.total) << "residents are in no file";
        EXPECT_EQ(w.total, w.done);
        opts.persist = true;
        w = watcher();
        open();
        EXPECT_EQ(writes, w.what);
        EXPECT_EQ(14u << 20, w.total) << "both places of all chunks";
        EXPECT_EQ(w.total, w.done);
        EXPECT_GE(1u << 20, w.most) << "less than a chunk, whatever its size";
        ASSERT_ZOFF_OK(zoff_offload_store_commit(store, 3));
        w = watcher();
        open();
        EXPECT_EQ(reads, w.what);
        EXPECT_EQ(3u << 20, w.total);
        EXPECT_EQ(w.total, w.done);
        close();
        ASSERT_EQ(0, unlink((folders[0].path + "/zoff-r0.states").c_str()));
    }
}

// With second contents each chunk of the ring has two places without a record, too, and every byte of both is written.
TEST_F(SwapLife, SecondContentsHaveAPlace)
{
    watcher w;
    opts.has_seconds = true;
    opts.residents = 3;
    opts.spares = 2;
    opts.progress = {watcher::report, &w, "write x", "read x", "verify x", 0};
    open();
    EXPECT_EQ(4096u + 2 * 4 * 20480, s()->files[0].bytes);
    EXPECT_EQ(2u * 4 * 20480, w.total);
    EXPECT_EQ(w.total, w.done);
    EXPECT_EQ(2u * 4 * 20480, s()->files[0].write_bytes);
    uint64_t end = 4096;
    for (size_t c = 0; c < chunks.size(); c++) {
        EXPECT_EQ((std::vector<int>{(int)c + 1, 0, 0}), values_of(c));
        if (place(c).home)
            continue;
        EXPECT_EQ(end, place(c).offset) << c;
        end += 2 * chunks[c].bytes;
    }
    EXPECT_EQ((off_t)end, lseek(s()->files[0].lock, 0, SEEK_HOLE)) << "there is no unwritten space";
    w = watcher();
    open_persistent();
    EXPECT_EQ(zoff_offload_swap_record_room(7) + 2 * 7 * 20480, s()->files[0].bytes) << "there were two already";
}

// An opening that the program ends leaves no new file, and files that were there as they were. Then it may be tried again.
TEST_F(SwapLife, TheProgramMayEndAnOpening)
{
    for (const bool persist : {false, true}) {
        watcher w;
        opts.persist = persist;
        opts.residents = 2;
        opts.progress = {watcher::report, &w, "write x", "read x", "verify x", 0};
        for (const uint64_t stop : {0u, 1u, 30000u, 100000u}) {
            w.what.clear();
            w.stop = stop;
            EXPECT_ZOFF_FAILS(ZOFF_ERR_CANCELED, "the program ended \"write x\" after ", try_open());
            EXPECT_TRUE(is_empty(0)) << stop;
        }
        w = watcher();
        open();
        if (!persist)
            continue;
        flush(0, 7);
        drain();
        ASSERT_ZOFF_OK(zoff_offload_store_commit(store, 3));
        w.what.clear();
        w.stop = 20000;
        EXPECT_ZOFF_FAILS(ZOFF_ERR_CANCELED, "the program ended \"read x\"", try_open());
        w = watcher();
        open();
        EXPECT_EQ((std::vector<int>{7, 7, 7}), values_of(0));
    }
}

TEST_F(SwapLife, WithoutACallProgressIsInTheLog)
{
    opts.progress.write = "write x";
    open();
    EXPECT_FALSE(log.contains("write x")) << "it took less than five seconds";
    opts.progress.log_seconds = 1e-9;
    open();
    EXPECT_TRUE(log.contains("write x: 20.0 KiB of 140.0 KiB, "));
    EXPECT_TRUE(log.contains(" s left"));
}

TEST_F(SwapLife, WithoutMemoryNothingIsLeft)
{
    opts.residents = opts.spares = 2;
    for (const bool persist : {false, true}) {
        opts.persist = opts.has_seconds = persist;
        EXPECT_LT(10, fail_each_allocation([&] {
                      const zoff_status status = try_open();
                      EXPECT_TRUE(status == ZOFF_OK || (store == nullptr && is_empty(0)));
                      return status;
                  }));
        close();
    }
}

TEST_F(SwapLife, WithoutRoomNothingIsLeft)
{
    aio_fault fault;
    fault.refuse_fallocate = ENOSPC;
    for (const bool persist : {false, true}) {
        opts.persist = persist;
        opts.path_count = 2;
        EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_SPACE, "no room for the states", try_open());
        EXPECT_EQ(nullptr, store);
        EXPECT_TRUE(is_empty(0) && is_empty(1));
    }
}

TEST_F(SwapLife, AWriteThatFailsEndsTheOpening)
{
    aio_fault fault;
    fail_all(fault, true);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "Input/output error", try_open());
    EXPECT_TRUE(is_empty(0));
    paths[1] = "/nonexistent";
    opts.path_count = 2;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "/nonexistent", try_open());
    EXPECT_TRUE(is_empty(0));
}
