/* SPDX-License-Identifier: Apache-2.0 */
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
        [](zoff_swap_head &, zoff_swap_entry *e) { e[1] = e[0]; }, // the table has the same chunk twice
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

// States with moments in 8 bits have a number of their own, because the meaning of their bytes has changed.
TEST_P(Commit, MomentsIn8BitsOfAnOlderFileAreRefusedByName)
{
    log_catcher log;
    zoff_store_opts opts = options();
    opts.has_blocks = true;
    ASSERT_ZOFF_OK(open(opts));
    step(1);
    store.reset();
    ASSERT_ZOFF_OK(open(opts));
    store.reset();
    ASSERT_NO_FATAL_FAILURE(forge(file(0), [](zoff_swap_head &h, zoff_swap_entry *) { h.version = 4; }));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "is a state file of format 4, whose moments in 8 bits mean other numbers now",
                      open(opts));
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
            withdraw(store.get(), c);
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
        return open_store(&opts, &second);
    }());
    store.reset();
    opts.layout = 78;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "holds the states of another model", open(opts));
    opts = options();
    opts.cut = 78;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID,
                      "holds the states of this model in another cut: 11 chunks, and here they are 11. Set "
                      "zero_optimization.stage and reduce_bucket_size as they were",
                      open(opts));
    opts = options();
    opts.ranks = 2;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID,
                      "holds the states of rank 0 of 1, and this is rank 0 of 2; start as many ranks as then, or choose "
                      "another nvme_path. The command `zoff checkpoint reshard` makes a checkpoint for any number of ranks",
                      open(opts));
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

// The commit before the last can be opened, until the next step writes. Then the newer one is gone.
TEST_P(Commit, TheOneBeforeTheLastCanBeOpened)
{
    log_catcher log;
    for (const auto verify : {ZOFF_VERIFY_FULL, ZOFF_VERIFY_OFF}) { // check at opening; both cases have checksums
        ASSERT_ZOFF_OK(open(options()));
        ASSERT_ZOFF_OK(zoff_offload_store_commit(store.get(), 0));
        for (int64_t t = 1; t <= 3; t++)
            step(t);
        zoff_store_opts opts = options();
        opts.verify = verify;
        opts.wanted_t = 2;
        zoff_store_found told;
        int verified = 0;
        other_ranks others;
        others.decide = [&told](const zoff_store_found &found, uint64_t *out) {
            told = found;
            *out = found.generation - 1;
            return ZOFF_OK;
        };
        others.verified = [&verified] {
            return verified++ ? ZOFF_OK : zoff_base_status_fail(ZOFF_ERR_COMM, "rank 1 has failed");
        };
        EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, "rank 1 has failed", open(opts, others));
        EXPECT_EQ(3, told.t);
        EXPECT_TRUE(told.has_before);
        EXPECT_EQ(2, told.t_before);
        ASSERT_ZOFF_OK(open(options())) << "the other rank's failure has changed nothing";
        expect_reopened(3);
        ASSERT_ZOFF_OK(open(opts, others));
        expect_reopened(2);
        ASSERT_ZOFF_OK(open(options()));
        expect_reopened(2);
        others.decide = [&told](const zoff_store_found &found, uint64_t *) {
            told = found;
            return ZOFF_OK;
        };
        ASSERT_ZOFF_OK(open(opts, others));
        EXPECT_FALSE(told.has_before) << "the record of step 1 was overwritten by that of step 3";
        step(3);
        expect(3);
        for (size_t i = 0; i < GetParam(); i++)
            ASSERT_EQ(0, unlink(file(i).c_str()));
    }
}

// A step that has begun to write has overwritten arrays of the older commit. The newer one must stay.
TEST_P(Commit, AnOverwrittenOneIsRefusedAndTheLastOneStays)
{
    log_catcher log;
    ASSERT_ZOFF_OK(open(options()));
    for (int64_t t = 1; t <= 2; t++)
        step(t);
    zoff_store_opts opts = options();
    opts.wanted_t = 1;
    for (const size_t chunk : {10, 0, 7}) { // chunks of the ring, and residents
        ASSERT_ZOFF_OK(open(options()));
        expect_reopened(2);
        ASSERT_NO_FATAL_FAILURE(change([&](size_t c) { return c == chunk; }));
        die();
        EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "zoff_engine_opts.persist_t is 1, but that commit is not whole any more",
                          open(opts, goes_back));
        EXPECT_NE(nullptr, strstr(zoff_last_error(), "chunk "));
    }
    ASSERT_ZOFF_OK(open(options()));
    expect_reopened(2);
}

// Without checksums nothing shows whether a step has begun. Only arrays that both commits share need none.
TEST_P(Commit, AnOlderOneWithoutChecksumsIsRefused)
{
    log_catcher log;
    for (const auto verify : {ZOFF_VERIFY_OFF, ZOFF_VERIFY_SAMPLE}) {
        zoff_store_opts opts = options(), older = options();
        opts.verify = verify;
        older.wanted_t = 1;
        ASSERT_ZOFF_OK(open(opts));
        step(1);
        step(2);
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "have no checksum (zoff.verify was not \"full\")", open(older, goes_back));
        ASSERT_ZOFF_OK(open(opts));
        expect_reopened(2);
        ASSERT_ZOFF_OK(zoff_offload_store_commit(store.get(), 3)); // no array has changed since step 2
        older.wanted_t = 2;
        ASSERT_ZOFF_OK(open(older, goes_back));
        expect_reopened(2);
        store.reset();
        for (size_t i = 0; i < GetParam(); i++)
            ASSERT_EQ(0, unlink(file(i).c_str()));
    }
}

// "require": a new run is an error that says for each file what was found. It leaves no new file.
TEST_P(Commit, ANewRunIsRefusedIfStatesAreRequired)
{
    log_catcher log;
    zoff_store_opts opts = options();
    opts.required = true;
    const std::string refused = "zoff.persist is \"require\", but nvme_path has no states to continue with: '" + file(0) + "' ";
    for (int again = 0; again < 2; again++) {
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, refused + "does not exist", open(opts));
        for (size_t i = 0; i < GetParam(); i++) {
            EXPECT_NE(nullptr, strstr(zoff_last_error(), file(i).c_str()));
            EXPECT_EQ(-1, access(file(i).c_str(), F_OK));
        }
    }
    ASSERT_ZOFF_OK(open(options()));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, refused + "begins a run that has not taken a step", open(opts));
    // Ranks that start anew, because another one has lost its states.
    ASSERT_ZOFF_OK(open(options()));
    step(1);
    other_ranks anew;
    anew.decide = [](const zoff_store_found &, uint64_t *out) {
        *out = 0;
        return ZOFF_OK;
    };
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, refused + "has the states after step 1, which other files or ranks do not have",
                      open(opts, anew));
    ASSERT_ZOFF_OK(open(opts));
    expect_reopened(1);
}

// Folders that differ from those of the run that made the files: the message names them.
TEST_P(Commit, FoldersThatChangedAreNamed)
{
    log_catcher log;
    zoff_store_opts opts = options();
    opts.path_count = 2;
    paths[1] = paths[0];
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "nvme_path names one folder twice: '" + folders[0].path + "' and '", open(opts));
    const std::string link = folders[1].file("link");
    ASSERT_EQ(0, symlink(folders[0].path.c_str(), link.c_str()));
    paths[1] = link.c_str();
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "' and '" + link + "'", open(opts));
    ASSERT_EQ(0, unlink(link.c_str()));
    ASSERT_ZOFF_OK(open(options()));
    step(1);
    store.reset();
    const std::string other = folders[1].file("zoff-r0.states");
    opts = options();
    if (GetParam() == 1) { // a folder was added
        opts.path_count = 2;
        EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT,
                          "nvme_path names 2 folders, but '" + file(0) + "' is file 1 of 1 of its run, and '" + other +
                              "' has no states; give the same folders",
                          open(opts));
        EXPECT_EQ(-1, access(other.c_str(), F_OK));
    } else { // one was removed, or its drive is not mounted
        opts.path_count = 1;
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "'" + file(0) + "' is file 1 of 2, and nvme_path names it as 1 of 1", open(opts));
        opts = options();
        ASSERT_EQ(0, rename(other.c_str(), folders[1].file("aside").c_str()));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT,
                          "'" + other + "' has no states, and '" + file(0) + "' has those after step 1. Is its drive mounted?",
                          open(opts));
        ASSERT_EQ(0, rename(folders[1].file("aside").c_str(), other.c_str()));
    }
    ASSERT_ZOFF_OK(open(options()));
    expect_reopened(1);
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
    EXPECT_FALSE(zoff_offload_persisted_limits(folders[0].path.c_str(), {0, 0}, &bytes, &elements));
    ASSERT_ZOFF_OK(open(options()));
    EXPECT_FALSE(zoff_offload_persisted_limits(folders[0].path.c_str(), {0, 0}, &bytes, &elements));
    step(1);
    ASSERT_TRUE(zoff_offload_persisted_limits(folders[0].path.c_str(), {0, 0}, &bytes, &elements));
    EXPECT_EQ(20480u, bytes);
    EXPECT_EQ(5120u, elements);
    EXPECT_FALSE(zoff_offload_persisted_limits(folders[0].path.c_str(), {1, 0}, &bytes, &elements));
    EXPECT_FALSE(zoff_offload_persisted_limits("/nonexistent", {0, 0}, &bytes, &elements));
    const int input = dup(0);
    close(0); // a program without standard input: the file becomes descriptor 0
    EXPECT_TRUE(zoff_offload_persisted_limits(folders[0].path.c_str(), {0, 0}, &bytes, &elements));
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
    zoff_store_found told;
    other_ranks others;
    others.decide = [&told](const zoff_store_found &found, uint64_t *) {
        told = found;
        return zoff_base_status_fail(ZOFF_ERR_COMM, "ranks do not agree");
    };
    EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, "ranks do not agree", open(opts, others));
    EXPECT_EQ(3u, told.generation);
    EXPECT_EQ(2, told.t);
    EXPECT_TRUE(told.reopened);
    ASSERT_ZOFF_OK(open(opts, goes_back)) << "the refusal has changed nothing";
    expect_reopened(1);
    ASSERT_ZOFF_OK(open(options()));
    expect_reopened(1); // later generations are discarded in the files, too
    step(2);
    others.decide = [&told](const zoff_store_found &found, uint64_t *out) {
        told = found;
        *out = 0;
        return ZOFF_OK;
    };
    ASSERT_ZOFF_OK(open(opts, others));
    EXPECT_EQ(3u, told.generation);
    expect(0); // write all of it afresh
    ASSERT_ZOFF_OK(open(opts, others));
    EXPECT_FALSE(told.reopened) << "no step was ever committed to these files";
}
