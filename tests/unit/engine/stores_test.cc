// stores_test.cc: the store of the states and that of the weights as one: errors, counts, commits.
#include "on_tiers.h"
#include "store_ptr.h"

extern "C" {
#include "engine_priv.h"
}

using namespace zoff_test;

namespace
{
class Stores : public testing::Test
{
  protected:
    Stores() : t(1)
    {
        t.add(5000, 1, ZOFF_BF16, ZOFF_BF16);
        t.give_away(0);
    }
    void seal(const std::string &more = "")
    {
        e.reset();
        e = seal_engine(t, with_offloaded_weights(config_text(folder.path, 1, more), folder.path), 1024);
    }
    void step()
    {
        t.next_step();
        t.backward_all(0.1f);
        ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
        reference::step(t.tensors, config_groups(), e->t, 1, 1, 0);
    }
    scratch_folder folder;
    log_catcher log;
    trainer t;
    engine e;
};

TEST_F(Stores, StatsAreTheSumOfBoth)
{
    seal();
    ASSERT_NO_FATAL_FAILURE(step());
    ASSERT_ZOFF_OK(zoff_engine_stores_drain(e.get()));
    zoff_store_stats both, states, weights;
    zoff_engine_stores_stats(e.get(), &both);
    zoff_offload_store_stats(e->store, &states);
    zoff_offload_store_stats(e->lending.store, &weights);
    EXPECT_LT(0u, weights.write_bytes);
    EXPECT_EQ(states.write_bytes + weights.write_bytes, both.write_bytes);
    EXPECT_EQ(states.read_bytes + weights.read_bytes, both.read_bytes);
    EXPECT_EQ(states.ahead_bytes + weights.ahead_bytes, both.ahead_bytes);
}

// Fetches since the last step count in the next step: its trainer has read those weights.
TEST_F(Stores, AStepCountsTheWeightsThatWereFetchedBeforeIt)
{
    seal();
    ASSERT_NO_FATAL_FAILURE(step());
    zoff_store_stats from, now, weights_before, weights;
    zoff_engine_stores_end_count(e.get());
    zoff_offload_store_stats(e->lending.store, &weights_before);
    ASSERT_NO_FATAL_FAILURE(t.fetch_all(e.get()));
    zoff_offload_store_stats(e->lending.store, &weights);
    EXPECT_LE(5000u * 2, weights.read_bytes - weights_before.read_bytes);
    zoff_engine_stores_begin_count(e.get(), &from);
    zoff_engine_stores_stats(e.get(), &now);
    EXPECT_EQ(weights.read_bytes - weights_before.read_bytes, now.read_bytes - from.read_bytes);
    zoff_engine_stores_end_count(e.get());
    zoff_engine_stores_begin_count(e.get(), &from);
    EXPECT_EQ(now.read_bytes, from.read_bytes) << "no byte is counted twice";
}

TEST_F(Stores, AFaultOfEitherIsReportedOnceAndForgottenByARetry)
{
    seal();
    for (zoff_poller *poller : {&e->io.states, &e->io.weights}) {
        zoff_base_progress_keep(poller, zoff_base_status_fail(ZOFF_ERR_IO, "provoked"));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "provoked", zoff_engine_stores_take_fault(e.get()));
        EXPECT_ZOFF_OK(zoff_engine_stores_take_fault(e.get()));
        zoff_base_progress_keep(poller, zoff_base_status_fail(ZOFF_ERR_IO, "provoked"));
        ASSERT_ZOFF_OK(zoff_engine_stores_retry(e.get()));
        EXPECT_ZOFF_OK(zoff_engine_stores_take_fault(e.get()));
    }
}

TEST_F(Stores, BusyIsEither)
{
    seal();
    ASSERT_NO_FATAL_FAILURE(step());
    ASSERT_ZOFF_OK(zoff_engine_stores_drain(e.get()));
    EXPECT_FALSE(zoff_engine_stores_busy(e.get(), true)) << "all is written";
    while (zoff_engine_progress(e.get()) == ZOFF_PENDING)
        continue;
    EXPECT_FALSE(zoff_engine_stores_busy(e.get(), false)) << "what was read ahead is here";
    hint(e->lending.store, 0);
    EXPECT_TRUE(zoff_engine_stores_busy(e.get(), false)) << "of the weights alone";
    EXPECT_FALSE(zoff_engine_stores_busy(e.get(), true));
    ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get()));
}

TEST_F(Stores, ACommitIsWhatTheNextEngineFinds)
{
    seal(", \"zoff\": {\"persist\": true}");
    ASSERT_NO_FATAL_FAILURE(step());
    ASSERT_ZOFF_OK(zoff_engine_stores_drain(e.get()));
    e->t = 41;
    ASSERT_ZOFF_OK(zoff_engine_stores_commit_pass(e.get(), ZOFF_OK));
    seal(", \"zoff\": {\"persist\": true}");
    EXPECT_EQ(41, e->t);
    EXPECT_TRUE(e->life.awaits_weights) << "the files of the weights do not persist";
    ASSERT_ZOFF_OK(zoff_params_push(e.get()));
    ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get()));
    ASSERT_NO_FATAL_FAILURE(t.fetch_all(e.get()));
    ASSERT_NO_FATAL_FAILURE(t.expect_weights());
}

TEST_F(Stores, APassThatFailedRecordsNothing)
{
    seal(", \"zoff\": {\"persist\": true}");
    ASSERT_NO_FATAL_FAILURE(step());
    e->t = 7;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "provoked",
                      zoff_engine_stores_commit_pass(e.get(), zoff_base_status_fail(ZOFF_ERR_IO, "provoked")));
    seal(", \"zoff\": {\"persist\": true}");
    EXPECT_EQ(1, e->t);
    e->t = 7;
    ASSERT_ZOFF_OK(zoff_engine_stores_commit_pass(e.get(), ZOFF_OK));
    seal(", \"zoff\": {\"persist\": true}");
    EXPECT_EQ(7, e->t);
}

// The same elements in other slices are other states.
TEST_F(Stores, AnotherLayoutIsRefused)
{
    seal(", \"zoff\": {\"persist\": true}");
    ASSERT_NO_FATAL_FAILURE(step());
    e.reset();
    trainer other(1);
    other.add(2500, 2, ZOFF_BF16, ZOFF_BF16);
    engine refused = make_engine(other, config_text(folder.path, 1, ", \"zoff\": {\"persist\": true}"), 1024);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "holds the states of another model", zoff_engine_seal(refused.get()));
    refused.reset();
    seal(", \"zoff\": {\"persist\": true}"); // the files are unchanged
    EXPECT_EQ(1, e->t);
}

TEST_F(Stores, ClosedStoresAreGone)
{
    seal();
    zoff_engine_stores_close(e.get());
    EXPECT_EQ(nullptr, e->store);
    EXPECT_EQ(nullptr, e->lending.store);
    EXPECT_EQ(0u, state_files(folder.path).size());
    zoff_engine_stores_close(e.get()); // destroying the engine repeats this
}
} // namespace
