// store_test.cc: the functions through which every tier is called: which tier it is, when a commit is made, and what is passed
// on.
#include "ring_store.h"
#include "store_ptr.h"

using namespace zoff_test;

namespace
{
class OffloadStore : public Ring
{
};
} // namespace

TEST_F(OffloadStore, TheTierIsTheOneThatWasAskedFor)
{
    open();
    EXPECT_FALSE(zoff_offload_store_resident(store, 0));
    opts.tier = ZOFF_TIER_HOST;
    open();
    EXPECT_TRUE(zoff_offload_store_resident(store, 0));
}

TEST_F(OffloadStore, ACloseKeepsTheWordsOfTheErrorBeforeIt)
{
    zoff_offload_store_close(nullptr);
    open();
    // The write fails when the store is closed, with a message of its own.
    flush(0, 7);
    aio_fault fault;
    fail_all(fault, true);
    log.expect("");
    (void)zoff_base_status_fail(ZOFF_ERR_INVALID, "what had gone wrong");
    close();
    EXPECT_STREQ("what had gone wrong", zoff_last_error());
}

TEST_F(OffloadStore, NothingIsRecordedThatIsNotThere)
{
    open_persistent();
    const uint64_t generation = s()->record.generation;
    flush(0, 7);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "is being written while", zoff_offload_store_commit(store, 1));
    EXPECT_EQ(generation, s()->record.generation);
    drain();
    ASSERT_ZOFF_OK(zoff_offload_store_commit(store, 1));
    EXPECT_EQ(generation + 1, s()->record.generation);
    int64_t t = -1;
    EXPECT_FALSE(zoff_offload_store_reopened(store, &t));
    EXPECT_EQ(1, t);
}

TEST_F(OffloadStore, DoubtIsReportedUntilTheChunksAreWrittenAgain)
{
    open();
    EXPECT_FALSE(zoff_offload_store_can_rollback(store));
    open_persistent();
    EXPECT_TRUE(zoff_offload_store_can_rollback(store));
    flush(0, 7);
    drain();
    EXPECT_FALSE(zoff_offload_store_is_in_doubt(store));
    failing_flushes = 1;
    EXPECT_EQ(ZOFF_ERR_IO, zoff_offload_store_commit(store, 1));
    EXPECT_TRUE(zoff_offload_store_is_in_doubt(store));
    ASSERT_ZOFF_OK(zoff_offload_store_retry(store));
    drain();
    EXPECT_FALSE(zoff_offload_store_is_in_doubt(store));
}

TEST_F(OffloadStore, ChecksumsAreSettledOnlyWhereTheyAreWanted)
{
    for (const zoff_store_verify verify : {ZOFF_VERIFY_FULL, ZOFF_VERIFY_OFF}) {
        opts.verify = verify;
        open();
        EXPECT_EQ(verify == ZOFF_VERIFY_FULL, zoff_offload_store_wants_settle(store));
        borrow(3);
        zoff_offload_store_settle(store, 3, 0, 20480);
        EXPECT_EQ(verify == ZOFF_VERIFY_FULL ? 3 : SIZE_MAX, s()->sums.digested);
        withdraw(store, 3);
    }
}

TEST_F(OffloadStore, SecondContentsMustBeAskedFor)
{
    for (const zoff_tier tier : {ZOFF_TIER_HOST, ZOFF_TIER_NVME}) {
        opts.tier = tier;
        open();
        void *out = nullptr;
        borrow(0);
        EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "opened without has_seconds", zoff_offload_store_second(store, 0, &out));
        EXPECT_EQ(nullptr, out);
        EXPECT_FALSE(zoff_offload_store_is_undecided(store));
        EXPECT_EQ(ZOFF_ERR_STATE, put_chunk(store, 0));
        zoff_offload_store_adopt(store, 0);
        EXPECT_ZOFF_OK(zoff_offload_store_discard(store, 0));
        withdraw(store, 0);
    }
}

TEST_F(OffloadStore, ThreadsAreThoseThatWereSetLast)
{
    opts.threads = 0;
    open();
    EXPECT_EQ(1u, store->threads) << "one at least";
    zoff_offload_store_set_threads(store, 3);
    EXPECT_EQ(3u, store->threads);
    flush(0, 7);
    drain();
    zoff_offload_store_set_threads(store, 1);
    EXPECT_EQ((std::vector<int>{7, 7, 7}), values_of(0)) << "no checksum depends on it";
}
