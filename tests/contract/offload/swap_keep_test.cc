// swap_keep_test.cc: files that persist: a store opened again holds what the last commit held, whatever happened after it.
#include "zoff_test.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <random>

extern "C" {
#include "offload.h"
#include "swap_record_priv.h"
}

using namespace zoff_test;

namespace
{
struct closer_store {
    void operator()(zoff_store *s) const { zoff_offload_store_close(s); }
};
using store_ptr = std::unique_ptr<zoff_store, closer_store>;

// The chunks of a small model and what should be in them: each byte of a chunk is a number that a step adds to.
class Commit : public testing::TestWithParam<size_t> // number of paths
{
  protected:
    // Every other chunk has three arrays, one of them none in front.
    Commit() : chunks(11, {20480, 4096})
    {
        for (size_t c = 1; c < chunks.size(); c += 2)
            chunks[c] = {20480, 4096, {4096, 12288, 20480}};
        chunks[4] = {0, 0};
        chunks[7] = {20480, 4096, {0, 12288, 20480}};
    }

    zoff_store_opts options()
    {
        zoff_store_opts opts = {};
        for (size_t i = 0; i < 2; i++)
            paths[i] = folders[i].path.c_str();
        opts.tier = ZOFF_TIER_NVME;
        opts.chunks = chunks.data();
        opts.chunk_count = chunks.size();
        opts.fill = [](void *, size_t chunk, void *base) { memset(base, (int)chunk + 1, chunk == 4 ? 0 : 4096); };
        opts.threads = 1;
        opts.slots = 3;
        opts.residents = 4;
        opts.paths = paths;
        opts.path_count = GetParam();
        opts.ranks = 1;
        opts.persist = opts.power_safe = true;
        opts.layout = 77;
        opts.limit_bytes = 20480;
        opts.limit_elements = 5120;
        return opts;
    }

    zoff_status open(zoff_store_opts opts)
    {
        zoff_store *made = nullptr;
        store.reset();
        zoff_status status = zoff_offload_store_open(&opts, &made);
        if (status == ZOFF_OK)
            store.reset(made);
        return status;
    }

    char *borrow(size_t chunk, zoff_status *out = nullptr)
    {
        void *base = nullptr;
        zoff_status status;
        while ((status = zoff_offload_store_fetch(store.get(), chunk, &base)) == ZOFF_PENDING)
            EXPECT_ZOFF_OK(zoff_offload_store_wait(store.get()));
        EXPECT_ZOFF_OK(status);
        status = zoff_offload_store_check(store.get(), chunk);
        if (out)
            *out = status;
        else
            EXPECT_ZOFF_OK(status);
        return (char *)base;
    }

    // Add 1 to each byte of some chunks (all for which `which` says so) and write them behind.
    void change(std::function<bool(size_t)> which)
    {
        for (size_t c = 0; c < chunks.size(); c++) {
            if (!chunks[c].bytes || !which(c))
                continue;
            char *base = borrow(c);
            for (size_t i = 0; i < chunks[c].bytes; i++)
                base[i]++;
            ASSERT_ZOFF_OK(zoff_offload_store_flush(store.get(), c));
        }
        ASSERT_ZOFF_OK(zoff_offload_store_drain(store.get()));
    }

    void step(int64_t t)
    {
        ASSERT_NO_FATAL_FAILURE(change([](size_t) { return true; }));
        ASSERT_ZOFF_OK(zoff_offload_store_commit(store.get(), t));
    }

    // All chunks are as after `steps` steps.
    void expect(int steps)
    {
        for (size_t c = 0; c < chunks.size(); c++) {
            if (!chunks[c].bytes)
                continue;
            const char *base = borrow(c);
            for (size_t i = 0; i < chunks[c].bytes; i++)
                ASSERT_EQ((char)((i < 4096 ? c + 1 : 0) + (unsigned)steps), base[i]) << "chunk " << c << ", byte " << i;
            zoff_offload_store_release(store.get(), c);
        }
    }

    // Opened again, at step t.
    void expect_reopened(int64_t t)
    {
        int64_t found = -1;
        EXPECT_TRUE(zoff_offload_store_reopened(store.get(), &found));
        EXPECT_EQ(t, found);
        expect((int)t);
    }

    std::string file(size_t i) const { return folders[i].path + "/zoff-r0.states"; }

    // As a process leaves its files that dies now: copies, put in place of the files once the store is closed.
    void die()
    {
        for (size_t i = 0; i < GetParam(); i++)
            ASSERT_EQ(0, system(("cp '" + file(i) + "' '" + file(i) + ".dead'").c_str()));
        store.reset();
        for (size_t i = 0; i < GetParam(); i++)
            ASSERT_EQ(0, rename((file(i) + ".dead").c_str(), file(i).c_str()));
    }

    void spoil(const std::string &name, off_t at, size_t bytes = 1)
    {
        int fd = ::open(name.c_str(), O_RDWR);
        std::vector<char> was(bytes);
        ASSERT_EQ((ssize_t)bytes, pread(fd, was.data(), bytes, at));
        for (char &x : was)
            x = (char)~x;
        ASSERT_EQ((ssize_t)bytes, pwrite(fd, was.data(), bytes, at));
        close(fd);
    }

    // Where the first array of a chunk lies now, by the record of generation g of file 0: offset of its content.
    uint64_t place(uint64_t generation, size_t chunk)
    {
        zoff_swap_found found;
        uint64_t offset = 0;
        int fd = ::open(file(0).c_str(), O_RDONLY);
        EXPECT_ZOFF_OK(zoff_offload_swap_record_read(fd, "file", &found));
        close(fd);
        const unsigned which = generation & 1;
        EXPECT_TRUE(found.is_whole[which]);
        EXPECT_EQ(generation, found.heads[which].generation);
        for (size_t i = 0; i < found.heads[which].entry_count; i++) {
            const zoff_swap_entry &entry = found.tables[which][i];
            if (entry.chunk == chunk)
                offset = entry.offset + entry.arrays[0].slot * entry.arrays[2].end;
        }
        zoff_offload_swap_record_free(&found);
        EXPECT_NE(0u, offset);
        return offset;
    }

    scratch_folder folders[2];
    const char *paths[2];
    std::vector<zoff_store_chunk> chunks;
    store_ptr store;
};

INSTANTIATE_TEST_SUITE_P(Paths, Commit, testing::Values(1, 2), [](const auto &p) { return std::to_string(p.param); });

TEST_P(Commit, WhatWasCommittedIsThereAgain)
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
    // With another budget: what was resident is streamed now, and the other way round.
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
        // Part of a step that is never committed, some chunks of it written.
        change([&](size_t) { return random() % 2 == 0; });
        die();
        ASSERT_ZOFF_OK(open(options()));
        ASSERT_NO_FATAL_FAILURE(expect_reopened(t)) << "life " << life;
    }
}

TEST_P(Commit, PartOfTheChunksMayTakePart)
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
    expect(0 + 3); // each chunk in step 1 and in two of the six others
}

TEST_P(Commit, RolledBackIsAsCommitted)
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
    ASSERT_EQ(0, system(("cp '" + kept + "' '" + file(0) + "' && truncate -s -4096 '" + file(0) + "'").c_str()));
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

// No step needs room that the file does not have since it was made: no hole is left in it.
TEST_P(Commit, SealWritesEveryByteOfTheFiles)
{
    log_catcher log;
    ASSERT_ZOFF_OK(open(options()));
    for (size_t i = 0; i < GetParam(); i++) {
        int fd = ::open(file(i).c_str(), O_RDONLY);
        const off_t end = lseek(fd, 0, SEEK_END);
        EXPECT_EQ(end, lseek(fd, 0, SEEK_HOLE)) << "a hole in file " << i;
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

// One file is committed as a whole; of two, one comes first.
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
    // The data of both is written, and the record of the first one.
    ASSERT_EQ(0, system(("cp '" + file(1) + "' '" + file(1) + ".dead'").c_str()));
    ASSERT_ZOFF_OK(zoff_offload_store_commit(store.get(), 2));
    store.reset();
    ASSERT_EQ(0, rename((file(1) + ".dead").c_str(), file(1).c_str()));
    ASSERT_ZOFF_OK(open(options()));
    expect_reopened(1);
    step(2);
    step(3);
    store.reset();
    // A file of long ago does not belong to the other one.
    ASSERT_EQ(0, rename((file(1) + ".before").c_str(), file(1).c_str()));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "does not have generation 2 any more, which is the newest that all files have",
                      open(options()));
    ASSERT_EQ(0, unlink(file(1).c_str()));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "one of them has lost its state file", open(options()));
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
    zoff_offload_store_release(store.get(), 0);
    borrow(2, &status);
    EXPECT_EQ(ZOFF_ERR_CORRUPT, status);
    const std::string words = zoff_last_error();
    EXPECT_NE(std::string::npos, words.find("chunk 2 (20480 bytes at offset " + std::to_string(at) + " of '" + file(0)));
    // It is not borrowed; asked again it is read again, and now it is right.
    spoil(file(0), (off_t)at + 12345);
    expect(1);
    // A resident is read when the store is opened.
    store.reset();
    spoil(file(0), (off_t)at + 12345);
    opts.residents = 11;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "is not what was written there", open(opts));
    // Who does not look does not see.
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
        for (size_t c = 0; c < chunks.size(); c += 2) { // with two paths those of the first file
            if (!chunks[c].bytes || c > 3)
                continue;
            const off_t at = (off_t)place((uint64_t)t + 1, c);
            zoff_status status;
            spoil(file(0), at + 99);
            borrow(c, &status);
            if (status == ZOFF_ERR_CORRUPT)
                found[c] = true;
            else
                zoff_offload_store_release(store.get(), c);
            spoil(file(0), at + 99);
        }
    }
    EXPECT_TRUE(found[0] && found[2]);
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
} // namespace
