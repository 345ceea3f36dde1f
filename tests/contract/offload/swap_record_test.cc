/* SPDX-License-Identifier: Apache-2.0 */
// swap_record_test.cc: the record that a commit writes: when it is written, what it counts, and how a torn one is handled.
#include "swap_commit.h"

using namespace zoff_test;

TEST_P(Commit, ATornRecordFallsBackToThePreviousOne)
{
    log_catcher log;
    log.expect("the commit record of step 2 in"); // the message names both steps
    log.expect("the states after step 1,");
    ASSERT_ZOFF_OK(open(options()));
    for (int64_t t = 1; t <= 2; t++)
        step(t); // generation 1 is the first content: these are generations 2 and 3
    store.reset();
    // Simulate a process that died during the commit of step 2. The head or its table is half written; generation 2 is intact.
    spoil(file(0), 4096 + 60);
    ASSERT_ZOFF_OK(open(options()));
    expect_reopened(1);
    step(2);
    store.reset();
    spoil(file(0), (off_t)(zoff_offload_swap_record_room(chunks.size()) + 8192) / 2 + 8); // table 1
    ASSERT_ZOFF_OK(open(options()));
    expect_reopened(1);
}

// Bytes of the store's user belong to the commit that was made after them, with one file and with several. A torn attachment is
// a torn record.
TEST_P(Commit, AnAttachmentIsThatOfTheCommit)
{
    log_catcher log;
    log.expect("the commit record of step 2 in");
    const auto attached = [this] {
        size_t count = 12345;
        const auto *bytes = (const char *)zoff_offload_store_attached(store.get(), &count);
        return std::string(bytes, count);
    };
    ASSERT_ZOFF_OK(open(options()));
    EXPECT_EQ("", attached());
    const std::string first = "after one step", second(ZOFF_STORE_ATTACHED_MOST, '2');
    zoff_offload_store_attach(store.get(), first.data(), first.size());
    step(1);
    ASSERT_ZOFF_OK(open(options()));
    EXPECT_EQ(first, attached());
    zoff_offload_store_attach(store.get(), second.data(), second.size());
    ASSERT_NO_FATAL_FAILURE(change([](size_t) { return true; }));
    die(); // the process dies before the commit
    ASSERT_ZOFF_OK(open(options()));
    EXPECT_EQ(first, attached());
    expect_reopened(1);
    zoff_offload_store_attach(store.get(), second.data(), second.size());
    step(2);
    ASSERT_ZOFF_OK(open(options()));
    EXPECT_EQ(second, attached());
    store.reset();
    zoff_swap_found found;
    int fd = ::open(file(0).c_str(), O_RDONLY);
    ASSERT_ZOFF_OK(zoff_offload_swap_record_read(fd, "file", &found));
    close(fd);
    const zoff_swap_head &head = found.heads[1]; // generation 3
    EXPECT_EQ((uint64_t)ZOFF_STORE_ATTACHED_MOST, head.attached_bytes);
    const off_t at = (off_t)(8192 + head.table_room + head.entry_count * sizeof(zoff_swap_entry) + 777);
    zoff_offload_swap_record_free(&found);
    spoil(file(0), at);
    ASSERT_ZOFF_OK(open(options()));
    EXPECT_EQ(first, attached());
    expect_reopened(1);
    zoff_offload_store_attach(store.get(), nullptr, 0);
    step(2);
    ASSERT_ZOFF_OK(open(options()));
    EXPECT_EQ("", attached());
}

// A step count of 0 must not make states that were recorded look like those of a run that has recorded nothing.
TEST_P(Commit, AStepCountOf0IsNoFreshRun)
{
    log_catcher log;
    ASSERT_ZOFF_OK(open(options()));
    int64_t t = -1;
    ASSERT_ZOFF_OK(open(options()));
    EXPECT_FALSE(zoff_offload_store_reopened(store.get(), &t)) << "the first content alone";
    ASSERT_ZOFF_OK(zoff_offload_store_commit(store.get(), 0)); // ranges before the first step
    ASSERT_ZOFF_OK(open(options()));
    EXPECT_TRUE(zoff_offload_store_reopened(store.get(), &t));
    EXPECT_EQ(0, t);
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
    EXPECT_TRUE(zoff_offload_persisted_limits(folders[0].path.c_str(), {0, 0}, &bytes, &elements));
}

// No record is written while a write is in flight or a chunk is borrowed, even if the caller forgets to drain.
TEST_P(Commit, NothingIsRecordedThatIsNotWritten)
{
    log_catcher log;
    ASSERT_ZOFF_OK(open(options()));
    step(1);
    char *base = borrow(1);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "is borrowed while", zoff_offload_store_commit(store.get(), 2));
    base[0]++;
    ASSERT_ZOFF_OK(flush_chunk(store.get(), 1));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "is being written while", zoff_offload_store_commit(store.get(), 2));
    ASSERT_ZOFF_OK(zoff_offload_store_drain(store.get()));
    borrow(1)[0]++;
    ASSERT_ZOFF_OK(keep_chunk(store.get(), 1, ZOFF_STORE_ALL)); // its write is put off
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "chunk 1 was changed and not written", zoff_offload_store_commit(store.get(), 2));
    ASSERT_ZOFF_OK(zoff_offload_store_drain(store.get()));
    ASSERT_ZOFF_OK(zoff_offload_store_rollback(store.get()));
    expect(1);
}

TEST_P(Commit, BytesWrittenAreCountedOverAllRuns)
{
    log_catcher log;
    zoff_store_stats stats;
    ASSERT_ZOFF_OK(open(options()));
    step(1);
    step(2);
    zoff_offload_store_stats(store.get(), &stats);
    EXPECT_EQ(4u * 10 * 20480, stats.lifetime_write_bytes) << "the first content in both copies, and two steps";
    EXPECT_EQ(2u * 10 * 20480, stats.write_bytes);
    ASSERT_ZOFF_OK(open(options()));
    step(3);
    zoff_offload_store_stats(store.get(), &stats);
    EXPECT_EQ(5u * 10 * 20480, stats.lifetime_write_bytes);
    EXPECT_EQ(1u * 10 * 20480, stats.write_bytes);
}
