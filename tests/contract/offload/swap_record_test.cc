// swap_record_test.cc: the record that a commit writes: what it says, and what is refused when it says something else.
#include "swap_commit.h"

using namespace zoff_test;

TEST_P(Commit, ATornRecordIsTheOneBefore)
{
    log_catcher log;
    log.expect("the commit record of step 2 in"); // both steps are named
    log.expect("the states after step 1,");
    ASSERT_ZOFF_OK(open(options()));
    for (int64_t t = 1; t <= 2; t++)
        step(t); // generation 1 is the first content: these are 2 and 3
    store.reset();
    // Died inside of the commit of step 2: the head, or its table, is half written; generation 2 is whole.
    spoil(file(0), 4096 + 60);
    ASSERT_ZOFF_OK(open(options()));
    expect_reopened(1);
    step(2);
    store.reset();
    spoil(file(0), 3 * 4096 + 8); // table 1
    ASSERT_ZOFF_OK(open(options()));
    expect_reopened(1);
}

// Writes head and table of file 0 anew after `change`, with checksums that hold: a record that somebody has forged.
static void forge(const std::string &name, const std::function<void(zoff_swap_head &, zoff_swap_entry *)> &change)
{
    int fd = open(name.c_str(), O_RDWR);
    for (unsigned which = 0; which < 2; which++) {
        zoff_swap_head head;
        ASSERT_EQ((ssize_t)sizeof head, pread(fd, &head, sizeof head, which * 4096));
        const off_t at = (off_t)(8192 + which * head.table_room);
        std::vector<zoff_swap_entry> table(head.entry_count);
        const size_t bytes = table.size() * sizeof table[0];
        ASSERT_EQ((ssize_t)bytes, pread(fd, table.data(), bytes, at));
        change(head, table.data());
        head.table_checksum = zoff_offload_layout(table.data(), bytes);
        head.checksum = zoff_offload_layout(&head, offsetof(zoff_swap_head, checksum));
        ASSERT_EQ((ssize_t)bytes, pwrite(fd, table.data(), bytes, at));
        ASSERT_EQ((ssize_t)sizeof head, pwrite(fd, &head, sizeof head, which * 4096));
    }
    close(fd);
}

TEST_P(Commit, ARecordThatIsForgedIsRefused)
{
    log_catcher log;
    ASSERT_ZOFF_OK(open(options()));
    step(1);
    step(2);
    store.reset();
    const std::string kept = file(0) + ".kept";
    ASSERT_EQ(0, system(("cp '" + file(0) + "' '" + kept + "'").c_str()));
    const std::function<void(zoff_swap_head &, zoff_swap_entry *)> lies[] = {
        [](zoff_swap_head &, zoff_swap_entry *e) { e[1] = e[0]; }, // one chunk twice
        [](zoff_swap_head &, zoff_swap_entry *e) { std::swap(e[0].chunk, e[1].chunk); },
        [](zoff_swap_head &, zoff_swap_entry *e) { e[1].offset = e[0].offset; }, // two chunks in one place
        [](zoff_swap_head &, zoff_swap_entry *e) { e[1].offset = 0; },
        [](zoff_swap_head &h, zoff_swap_entry *e) { e[1].offset = h.file_bytes; },
        [](zoff_swap_head &, zoff_swap_entry *e) { e[1].chunk = 4; }, // that is empty
        [](zoff_swap_head &, zoff_swap_entry *e) { e[0].arrays[0].slot = 2; },
        [](zoff_swap_head &, zoff_swap_entry *e) { e[0].arrays[1].slot = 2; },
        [](zoff_swap_head &, zoff_swap_entry *e) { e[0].arrays[2].flags = 8; },
        [](zoff_swap_head &, zoff_swap_entry *e) { e[0].arrays[0].end = 4096; },
        [](zoff_swap_head &, zoff_swap_entry *e) { e[0].arrays[2].end += 4096; },
        [](zoff_swap_head &, zoff_swap_entry *e) { e[0].first_bytes = 24576; },
        [](zoff_swap_head &, zoff_swap_entry *e) { e[0].first_bytes = 100; },
        [](zoff_swap_head &h, zoff_swap_entry *) { h.file_bytes += 4096; },
    };
    for (const auto &lie : lies) {
        ASSERT_EQ(0, system(("cp '" + kept + "' '" + file(0) + "'").c_str()));
        ASSERT_NO_FATAL_FAILURE(forge(file(0), lie));
        SCOPED_TRACE("lie " + std::to_string(&lie - lies));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "zoff-r0.states", open(options()));
    }
    ASSERT_EQ(0, system(("cp '" + kept + "' '" + file(0) + "'").c_str()));
    struct stat whole;
    ASSERT_EQ(0, stat(file(0).c_str(), &whole));
    ASSERT_EQ(0,
              truncate(file(0).c_str(), whole.st_size - 4096)); // busybox's program, in a guest, cannot take away from a size
    EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "it was cut", open(options()));
    ASSERT_EQ(0, rename(kept.c_str(), file(0).c_str()));
    ASSERT_ZOFF_OK(open(options()));
    expect_reopened(2);
}

TEST_P(Commit, FilesOfAnotherFormatAreRefusedByName)
{
    log_catcher log;
    ASSERT_ZOFF_OK(open(options()));
    step(1);
    store.reset();
    ASSERT_NO_FATAL_FAILURE(forge(file(0), [](zoff_swap_head &h, zoff_swap_entry *) { h.version = 2; }));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "is a state file of format 2", open(options()));
}

// What a chunk that was never flushed holds is what the run filled that made the file.
TEST_P(Commit, FreshChunksAreReadAsTheyWereFilled)
{
    log_catcher log;
    ASSERT_ZOFF_OK(open(options()));
    ASSERT_NO_FATAL_FAILURE(change([](size_t c) { return c == 0; }));
    ASSERT_ZOFF_OK(zoff_offload_store_commit(store.get(), 1));
    zoff_store_opts opts = options();
    opts.residents = 0;
    for (const size_t first : {0, 8192, 20480}) {
        for (auto &c : chunks)
            c.first_bytes = c.bytes ? first : 0;
        ASSERT_ZOFF_OK(open(opts));
        for (const size_t c : {1, 5, 10}) {
            const char *base = borrow(c);
            for (size_t i = 0; i < chunks[c].bytes; i++)
                ASSERT_EQ((char)(i < 4096 ? c + 1 : 0), base[i]) << "chunk " << c << ", byte " << i;
            zoff_offload_store_release(store.get(), c);
        }
    }
}

// A count of steps that is 0 again does not make the states those of a run that never began.
TEST_P(Commit, TheCountOfStepsDoesNotSayWhetherThereWasOne)
{
    log_catcher log;
    ASSERT_ZOFF_OK(open(options()));
    ASSERT_ZOFF_OK(zoff_offload_store_commit(store.get(), 0)); // still before the first step
    ASSERT_ZOFF_OK(open(options()));
    int64_t t = -1;
    EXPECT_FALSE(zoff_offload_store_reopened(store.get(), &t));
    step(1);
    ASSERT_ZOFF_OK(zoff_offload_store_commit(store.get(), 0));
    for (int again = 0; again < 2; again++) {
        ASSERT_ZOFF_OK(open(options()));
        EXPECT_TRUE(zoff_offload_store_reopened(store.get(), &t));
        EXPECT_EQ(0, t);
        expect(1);
        ASSERT_ZOFF_OK(zoff_offload_store_commit(store.get(), 0));
    }
    size_t bytes, elements;
    EXPECT_TRUE(zoff_offload_persisted_limits(folders[0].path.c_str(), 0, &bytes, &elements));
}

// Nothing is recorded while a write is on its way, or a chunk is lent, also where a caller forgets to drain.
TEST_P(Commit, NothingIsRecordedThatIsNotWritten)
{
    log_catcher log;
    ASSERT_ZOFF_OK(open(options()));
    step(1);
    char *base = borrow(1);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "is borrowed while", zoff_offload_store_commit(store.get(), 2));
    base[0]++;
    ASSERT_ZOFF_OK(zoff_offload_store_flush(store.get(), 1));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "is being written while", zoff_offload_store_commit(store.get(), 2));
    ASSERT_ZOFF_OK(zoff_offload_store_drain(store.get()));
    ASSERT_ZOFF_OK(zoff_offload_store_rollback(store.get()));
    expect(1);
}

TEST_P(Commit, WhatDoesNotFitIsRefusedWithTheReason)
{
    log_catcher log;
    ASSERT_ZOFF_OK(open(options()));
    step(1);
    zoff_store_opts opts = options();
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "is in use by another engine", [&] {
        zoff_store *second = nullptr;
        return zoff_offload_store_open(&opts, &second);
    }());
    store.reset();
    opts.layout = 78;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "holds the states of another model", open(opts));
    opts = options();
    opts.ranks = 2;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "holds the states of rank 0 of 1, and this is rank 0 of 2", open(opts));
    if (GetParam() == 2) {
        opts = options();
        std::swap(paths[0], paths[1]);
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "give the same folders in the same order as then", open(opts));
    }
    // All of it is still there.
    ASSERT_ZOFF_OK(open(options()));
    expect_reopened(1);
    store.reset();
    // Both records damaged.
    spoil(file(0), 8, 8);
    spoil(file(0), 4096 + 8, 8);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "both of its commit records are damaged", open(options()));
    ASSERT_EQ(0, truncate(file(0).c_str(), 0));
    ASSERT_EQ(0, system(("echo my thesis > '" + file(0) + "'").c_str()));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "is not a state file of this version", open(options()));
    EXPECT_EQ(0, system(("grep -q 'my thesis' '" + file(0) + "'").c_str()));
}

TEST_P(Commit, BeforeTheFirstStepThereIsNothingToKeep)
{
    log_catcher log;
    ASSERT_ZOFF_OK(open(options()));
    store.reset();
    // Another model may take its place.
    zoff_store_opts opts = options();
    opts.layout = 5;
    ASSERT_ZOFF_OK(open(opts));
    expect(0);
    step(1);
    store.reset();
    // A file that was begun: torn in the very first record, or blank.
    for (size_t i = 0; i < GetParam(); i++) {
        ASSERT_EQ(0, truncate(file(i).c_str(), 0));
        ASSERT_EQ(0, truncate(file(i).c_str(), 1 << 16));
    }
    spoil(file(0), 4096 + 20, 300);
    ASSERT_ZOFF_OK(open(opts));
    expect(0);
}

TEST_P(Commit, HowItWasCutIsKnownBeforeItIsOpened)
{
    log_catcher log;
    size_t bytes, elements;
    EXPECT_FALSE(zoff_offload_persisted_limits(folders[0].path.c_str(), 0, &bytes, &elements));
    ASSERT_ZOFF_OK(open(options()));
    EXPECT_FALSE(zoff_offload_persisted_limits(folders[0].path.c_str(), 0, &bytes, &elements));
    step(1);
    ASSERT_TRUE(zoff_offload_persisted_limits(folders[0].path.c_str(), 0, &bytes, &elements));
    EXPECT_EQ(20480u, bytes);
    EXPECT_EQ(5120u, elements);
    EXPECT_FALSE(zoff_offload_persisted_limits(folders[0].path.c_str(), 1, &bytes, &elements));
    EXPECT_FALSE(zoff_offload_persisted_limits("/nonexistent", 0, &bytes, &elements));
    const int input = dup(0);
    close(0); // a program without standard input: the file becomes descriptor 0
    EXPECT_TRUE(zoff_offload_persisted_limits(folders[0].path.c_str(), 0, &bytes, &elements));
    EXPECT_EQ(-1, fcntl(0, F_GETFD)) << "the file is open still";
    dup2(input, 0);
    close(input);
}

TEST_P(Commit, BytesWrittenAreCountedOverAllRuns)
{
    log_catcher log;
    zoff_store_stats stats;
    ASSERT_ZOFF_OK(open(options()));
    step(1);
    step(2);
    zoff_offload_store_stats(store.get(), &stats);
    EXPECT_EQ(4u * 10 * 20480, stats.lifetime_write_bytes) << "both places of the first content, and two steps";
    EXPECT_EQ(2u * 10 * 20480, stats.write_bytes);
    ASSERT_ZOFF_OK(open(options()));
    step(3);
    zoff_offload_store_stats(store.get(), &stats);
    EXPECT_EQ(5u * 10 * 20480, stats.lifetime_write_bytes);
    EXPECT_EQ(1u * 10 * 20480, stats.write_bytes);
}
