// swap_reopen_test.cc: files of an earlier process: when they are reused, when they are started afresh, and when they are
// refused.
#include "swap_commit.h"

extern "C" {
#include "try.h"
}

using namespace zoff_test;

// A commit of two files is not atomic: one record is written before the other.
class CommitOfTwo : public Commit
{
};
INSTANTIATE_TEST_SUITE_P(Paths, CommitOfTwo, testing::Values(2), [](const auto &p) { return std::to_string(p.param); });

TEST_P(CommitOfTwo, ACrashInBetweenGoesBackToWhatBothHave)
{
    log_catcher log;
    ASSERT_ZOFF_OK(open(options()));
    step(1);
    ASSERT_EQ(0, system(("cp '" + file(1) + "' '" + file(1) + ".before'").c_str()));
    change([](size_t) { return true; });
    // Keep the files as they are when the data of both and only the record of the first are written.
    ASSERT_EQ(0, system(("cp '" + file(1) + "' '" + file(1) + ".dead'").c_str()));
    ASSERT_ZOFF_OK(zoff_offload_store_commit(store.get(), 2));
    store.reset();
    ASSERT_EQ(0, rename((file(1) + ".dead").c_str(), file(1).c_str()));
    ASSERT_ZOFF_OK(open(options()));
    expect_reopened(1);
    step(2);
    step(3);
    store.reset();
    // An old file does not match the other one.
    ASSERT_EQ(0, rename((file(1) + ".before").c_str(), file(1).c_str()));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "does not have generation 2 any more, which is the newest that all files have",
                      open(options()));
    ASSERT_EQ(0, unlink(file(1).c_str()));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "one of them has lost its state file", open(options()));
}

// Simulate a forged record: write head and table of file 0 again after `change`, with valid checksums.
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
        [](zoff_swap_head &, zoff_swap_entry *e) { e[1] = e[0]; }, // the same chunk twice
        [](zoff_swap_head &, zoff_swap_entry *e) { std::swap(e[0].chunk, e[1].chunk); },
        [](zoff_swap_head &, zoff_swap_entry *e) { e[1].offset = e[0].offset; }, // two chunks at the same offset
        [](zoff_swap_head &, zoff_swap_entry *e) { e[1].offset = 0; },
        [](zoff_swap_head &h, zoff_swap_entry *e) { e[1].offset = h.file_bytes; },
        [](zoff_swap_head &, zoff_swap_entry *e) { e[1].chunk = 4; }, // an empty chunk
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
    ASSERT_EQ(0, truncate(file(0).c_str(), whole.st_size - 4096)); // the truncate of busybox, used in a guest, cannot shrink a
                                                                   // file by an amount
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

// A chunk that was never flushed holds the fill of the run that created the file.
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

TEST_P(Commit, FilesThatDoNotFitAreRefusedWithTheReason)
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
    // The refusal has changed nothing in the files.
    ASSERT_ZOFF_OK(open(options()));
    expect_reopened(1);
    store.reset();
    // Damage both records.
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
    // Before the first step another model may replace this one.
    zoff_store_opts opts = options();
    opts.layout = 5;
    ASSERT_ZOFF_OK(open(opts));
    expect(0);
    step(1);
    store.reset();
    // A file whose creation was interrupted: torn in its very first record, or blank.
    for (size_t i = 0; i < GetParam(); i++) {
        ASSERT_EQ(0, truncate(file(i).c_str(), 0));
        ASSERT_EQ(0, truncate(file(i).c_str(), 1 << 16));
    }
    spoil(file(0), 4096 + 20, 300);
    ASSERT_ZOFF_OK(open(opts));
    expect(0);
}

TEST_P(Commit, ChunkLimitsAreKnownBeforeOpening)
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
    EXPECT_EQ(-1, fcntl(0, F_GETFD)) << "the file is still open";
    dup2(input, 0);
    close(input);
}

// Ranks resume with a generation that all of them have. For this rank that may be the one before its last.
TEST_P(Commit, ARankMayGoBackByOneGeneration)
{
    log_catcher log;
    ASSERT_ZOFF_OK(open(options()));
    step(1);
    step(2);
    zoff_store_opts opts = options();
    static zoff_store_found told;
    opts.decide = [](void *, const zoff_store_found *found, uint64_t *) {
        told = *found;
        return zoff_base_status_fail(ZOFF_ERR_COMM, "ranks do not agree");
    };
    EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, "ranks do not agree", open(opts));
    EXPECT_EQ(3u, told.generation);
    EXPECT_EQ(2, told.t);
    EXPECT_TRUE(told.reopened);
    opts.decide = [](void *, const zoff_store_found *, uint64_t *out) {
        *out = 2;
        return ZOFF_OK;
    };
    ASSERT_ZOFF_OK(open(opts)) << "the refusal has changed nothing";
    expect_reopened(1);
    ASSERT_ZOFF_OK(open(options()));
    expect_reopened(1); // later generations are discarded in the files, too
    step(2);
    opts.decide = [](void *, const zoff_store_found *found, uint64_t *out) {
        told = *found;
        *out = 0;
        return ZOFF_OK;
    };
    ASSERT_ZOFF_OK(open(opts));
    EXPECT_EQ(3u, told.generation);
    expect(0); // write all of it afresh
    ASSERT_ZOFF_OK(open(opts));
    EXPECT_FALSE(told.reopened) << "no step was ever committed to these files";
}
