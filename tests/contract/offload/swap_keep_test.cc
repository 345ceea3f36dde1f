/* SPDX-License-Identifier: Apache-2.0 */
// swap_keep_test.cc: persistent files. A store that is opened again holds the content of the last commit, whatever happened
// after that.
#include "swap_commit.h"

#include <random>

using namespace zoff_test;

INSTANTIATE_TEST_SUITE_P(Paths, Commit, testing::Values(1, 2), [](const auto &p) { return std::to_string(p.param); });

TEST_P(Commit, ReopeningFindsTheLastCommit)
{
    log_catcher log;
    ASSERT_ZOFF_OK(open(options()));
    int64_t t;
    EXPECT_FALSE(zoff_offload_store_reopened(store.get(), &t));
    expect(0);
    for (int64_t k = 1; k <= 3; k++)
        step(k);
    ASSERT_ZOFF_OK(open(options()));
    expect_reopened(3);
    step(4);
    // Open with another budget: chunks that were resident are streamed now, and the reverse.
    zoff_store_opts opts = options();
    opts.residents = 9;
    opts.slots = 2;
    ASSERT_ZOFF_OK(open(opts));
    expect_reopened(4);
    step(5);
    opts.residents = 0;
    ASSERT_ZOFF_OK(open(opts));
    expect_reopened(5);
    EXPECT_TRUE(log.contains("are those after step 5 (generation 6)"));
}

TEST_P(Commit, AProcessThatDiesLosesNoMoreThanItsOpenStep)
{
    log_catcher log;
    std::mt19937 random(5);
    ASSERT_ZOFF_OK(open(options()));
    int64_t t = 0;
    for (int life = 0; life < 12; life++) {
        for (int k = random() % 3 + (life == 0); k > 0; k--)
            step(++t);
        // Begin a step that is never committed; some of its chunks are written.
        change([&](size_t) { return random() % 2 == 0; });
        die();
        ASSERT_ZOFF_OK(open(options()));
        ASSERT_NO_FATAL_FAILURE(expect_reopened(t)) << "life " << life;
    }
}

TEST_P(Commit, AStepMayChangeSomeChunksOnly)
{
    log_catcher log;
    ASSERT_ZOFF_OK(open(options()));
    step(1);
    for (int64_t t = 2; t < 8; t++) {
        change([&](size_t c) { return c % 3 == (size_t)t % 3; });
        ASSERT_ZOFF_OK(zoff_offload_store_commit(store.get(), t));
    }
    die();
    ASSERT_ZOFF_OK(open(options()));
    expect(0 + 3); // each chunk takes part in step 1 and in two of the six other steps
}

TEST_P(Commit, RollbackRestoresTheLastCommit)
{
    log_catcher log;
    ASSERT_ZOFF_OK(open(options()));
    step(1);
    change([](size_t c) { return c < 7; });
    EXPECT_TRUE(zoff_offload_store_can_rollback(store.get()));
    ASSERT_ZOFF_OK(zoff_offload_store_rollback(store.get()));
    expect(1);
    step(2);
    ASSERT_ZOFF_OK(open(options()));
    expect_reopened(2);
}

// Seal writes every byte of the files, so that no later step needs new space on the disk.
TEST_P(Commit, SealWritesEveryByteOfTheFiles)
{
    log_catcher log;
    ASSERT_ZOFF_OK(open(options()));
    for (size_t i = 0; i < GetParam(); i++) {
        int fd = ::open(file(i).c_str(), O_RDONLY);
        const off_t end = lseek(fd, 0, SEEK_END);
        EXPECT_EQ(end, lseek(fd, 0, SEEK_HOLE)) << "unwritten space in file " << i;
        close(fd);
    }
    uint64_t wanted = 0;
    for (const auto &c : chunks)
        wanted += 2 * c.bytes;
    step(1);
    zoff_store_stats stats;
    zoff_offload_store_stats(store.get(), &stats);
    EXPECT_EQ(wanted + wanted / 2, stats.lifetime_write_bytes);
}

// The program's view of an opening, and where it ends it.
struct watcher {
    std::vector<std::string> what;
    uint64_t done = 0, total = 0, stop = UINT64_MAX;
    int calls = 0;
    static bool report(const char *what, uint64_t done, uint64_t total, void *ctx)
    {
        auto w = static_cast<watcher *>(ctx);
        if (w->what.empty() || w->what.back() != what)
            w->what.push_back(what);
        EXPECT_LE(done, total);
        w->done = done;
        w->total = total;
        w->calls++;
        return done < w->stop;
    }
};

// One that the program ends leaves no new file, and files that were there as they were.
TEST_P(Commit, AnOpeningIsReportedUpToTheLastByte)
{
    log_catcher log;
    watcher w;
    zoff_store_opts opts = options();
    opts.progress = {watcher::report, &w, "write x", "read x", "verify x", 0};
    opts.aio_backend = "posix"; // which moves bytes when it is polled
    for (const uint64_t stop : {0u, 1u, 30000u, 100000u}) {
        w.stop = stop;
        EXPECT_ZOFF_FAILS(ZOFF_ERR_CANCELED, "the program ended \"write x\" after ", open(opts));
        EXPECT_TRUE(folders[0].is_empty() && folders[1].is_empty()) << stop;
    }
    w = watcher();
    ASSERT_ZOFF_OK(open(opts));
    EXPECT_EQ(std::vector<std::string>{"write x"}, w.what);
    EXPECT_EQ(2u * 10 * 20480, w.total) << "both places of all chunks";
    EXPECT_EQ(w.total, w.done);
    EXPECT_LE(20, w.calls) << "one for each";
    step(1);
    w = watcher();
    w.stop = 20000;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_CANCELED, "the program ended \"read x\"", open(opts));
    w = watcher();
    ASSERT_ZOFF_OK(open(opts));
    EXPECT_EQ(std::vector<std::string>{"read x"}, w.what) << "the chunks that stay in DRAM";
    EXPECT_EQ(w.total, w.done);
    expect_reopened(1);
}

TEST_P(Commit, AFlippedBitIsFoundAndNamed)
{
    log_catcher log;
    zoff_store_opts opts = options();
    opts.residents = 0;
    ASSERT_ZOFF_OK(open(opts));
    step(1);
    const uint64_t at = place(2, 2);
    store.reset();
    spoil(file(0), (off_t)at + 12345);
    ASSERT_ZOFF_OK(open(opts));
    zoff_status status;
    borrow(0);
    withdraw(store.get(), 0);
    borrow(2, &status);
    EXPECT_EQ(ZOFF_ERR_CORRUPT, status);
    const std::string words = zoff_last_error();
    EXPECT_NE(std::string::npos, words.find("chunk 2 (20480 bytes at offset " + std::to_string(at) + " of '" + file(0)));
    // The damaged chunk is not lent. The next request reads it again, and now it is intact.
    spoil(file(0), (off_t)at + 12345);
    expect(1);
    // A resident chunk is read when the store is opened.
    store.reset();
    spoil(file(0), (off_t)at + 12345);
    opts.residents = 11;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "is not what was written there", open(opts));
    // Without verification the damage is not detected.
    opts.verify = ZOFF_VERIFY_OFF;
    EXPECT_ZOFF_OK(open(opts));
}

TEST_P(Commit, ASampleComesRoundToEachChunk)
{
    log_catcher log;
    zoff_store_opts opts = options();
    opts.residents = 0;
    opts.verify = ZOFF_VERIFY_SAMPLE;
    ASSERT_ZOFF_OK(open(opts));
    std::vector<bool> found(chunks.size());
    for (int64_t t = 1; t <= ZOFF_VERIFY_SAMPLES; t++) {
        step(t);
        for (size_t c = 0; c < chunks.size(); c += 2) { // with two paths these are the chunks of the first file
            if (!chunks[c].bytes || c > 3)
                continue;
            const off_t at = (off_t)place((uint64_t)t + 1, c);
            zoff_status status;
            spoil(file(0), at + 99);
            borrow(c, &status);
            if (status == ZOFF_ERR_CORRUPT)
                found[c] = true;
            else
                withdraw(store.get(), c);
            spoil(file(0), at + 99);
        }
    }
    EXPECT_TRUE(found[0] && found[2]);
}
