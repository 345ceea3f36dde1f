/* SPDX-License-Identifier: Apache-2.0 */
// overlap_test.cc: weights that are asked for before a step is over: they are new, later ones need not be, and the step ends
// with the same bits.
#include "on_tiers.h"
#include "rank_job.h"
#include "small_engine.h"

extern "C" {
#include "engine_priv.h"
}

#include <future>
#include <math.h>
#include <string.h>
#include <thread>
#include <unistd.h>

using namespace zoff_test;

namespace
{
class ParamWait : public on_tiers
{
  protected:
    enum { TENSORS = 6, COUNT = 8192 };

    // A chunk for each parameter; on NVMe with slots for two.
    engine make(trainer &t, unsigned accumulation = 1)
    {
        for (int i = 0; i < TENSORS; i++)
            t.add(COUNT, 1, ZOFF_BF16, ZOFF_BF16);
        return seal_engine(t, text(accumulation, ", \"zoff\": {\"master\": \"split\"}"), COUNT);
    }

    // Whether all weights of a parameter are those of the reference.
    static bool is_new(trainer &t, size_t i)
    {
        bool same = true;
        for (size_t k = 0; k < t.tensors[i].total(); k++)
            same = same &&
                   trainer::get(t.value(i), ZOFF_BF16, t.place(i, k)) == reference::rounded(ZOFF_BF16, t.tensors[i].master[k]);
        return same;
    }

    static void begin(trainer &t, zoff_engine *e)
    {
        t.backward_all(0.1f);
        t.hand_over_all(e);
        ASSERT_ZOFF_OK(zoff_step_begin(e, nullptr));
    }
};
INSTANTIATE_TEST_SUITE_P(Tiers, ParamWait, testing::Bool(), tier_name);

TEST_P(ParamWait, ReturnsWhenTheSliceIsNewAndNotLater)
{
    trainer t(1);
    engine e = make(t);
    for (int64_t step = 1; step <= 3; step++) {
        t.next_step();
        begin(t, e.get());
        reference::step(t.tensors, config_groups(), step, 1, 1, 0);
        for (zoff_param p = 0; p < TENSORS / 2; p++) {
            EXPECT_TRUE(GetParam() || !is_new(t, p)) << p << ": in DRAM nothing is updated before its turn";
            ASSERT_ZOFF_OK(zoff_param_wait(e.get(), p, 0, nullptr));
            EXPECT_TRUE(is_new(t, p)) << p;
        }
        EXPECT_FALSE(is_new(t, TENSORS - 2)) << "the rest is not updated yet, but for the bucket that opened the gate";
        zoff_step_info info = new_info();
        ASSERT_ZOFF_OK(zoff_step_wait(e.get(), &info));
        EXPECT_EQ(ZOFF_OUTCOME_AFTER, info.outcome);
        EXPECT_EQ((uint64_t)TENSORS * COUNT, info.numbers.elements_updated);
        ASSERT_NO_FATAL_FAILURE(t.expect_weights());
        ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get()));
    }
}

// A stack of layers has its parameters in another order than the one in which a pass uses them.
TEST_P(ParamWait, UpdatesInTheOrderOfTheLastPass)
{
    const std::vector<zoff_param> order = {3, 5, 0}; // and then 1, 2, 4
    trainer t(5);
    engine e = make(t);
    for (int64_t step = 1; step <= 3; step++) {
        t.next_step();
        begin(t, e.get());
        reference::step(t.tensors, config_groups(), step, 1, 1, 0);
        for (const zoff_param p : order) {
            ASSERT_ZOFF_OK(zoff_param_wait(e.get(), p, 0, nullptr));
            EXPECT_TRUE(is_new(t, p)) << p;
            EXPECT_TRUE(step == 1 || p != order.front() || !is_new(t, 2)) << "it comes later, also where states stream";
        }
        ASSERT_ZOFF_OK(zoff_step_wait(e.get(), nullptr));
        ASSERT_NO_FATAL_FAILURE(t.expect_weights());
        std::vector<size_t> walk;
        for (size_t i = 0; i < TENSORS; i++)
            walk.push_back(zoff_transfer_walk_bucket(&e->transfer, i));
        EXPECT_EQ((std::vector<size_t>{3, 5, 0, 1, 2, 4}), walk);
    }
}

TEST_P(ParamWait, TheTimeBetweenCallsIsHidden)
{
    trainer t(8);
    engine e = make(t);
    zoff_step_info info = new_info();
    t.next_step();
    begin(t, e.get());
    usleep(30000);
    ASSERT_ZOFF_OK(zoff_param_wait(e.get(), 0, 0, nullptr));
    usleep(30000);
    ASSERT_ZOFF_OK(zoff_step_wait(e.get(), &info));
    EXPECT_LE(0.06, info.seconds.total - info.seconds.visible);
    EXPECT_LT(0, info.seconds.visible);
    t.next_step();
    t.backward_all(0.1f);
    t.hand_over_all(e.get());
    ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, &info));
    EXPECT_EQ(info.seconds.total, info.seconds.visible) << "the program was in one call";
}

// Every rank waits in another order, and all update in that of rank 0 once its votes have told it.
TEST_P(ParamWait, SeveralRanksUpdateInTheOrderOfTheFirst)
{
    enum { RANKS = 2, BUCKETS = 2 * ZOFF_WALK_NEWS + 5, STEPS = 6 };
    rank_job job(RANKS);
    std::vector<std::vector<size_t>> walks(RANKS);
    const std::string config =
        GetParam() ? text()
                   : config_text("", 1, ", \"zero_optimization\": {\"stage\": 1}"); // a part of each bucket on each rank
    job.on_each([&](unsigned rank) {
        trainer t(9);
        for (int i = 0; i < BUCKETS; i++)
            t.add(RANKS * 1024, 1, ZOFF_BF16, ZOFF_BF16);
        engine e = make_engine(t, config, 1024, 0, job.comm_of(rank));
        ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
        ASSERT_EQ((size_t)BUCKETS, e->plan.chunk_count);
        for (int64_t step = 1; step <= STEPS; step++) {
            t.next_step();
            t.backward_all(0.1f);
            t.hand_over_all(e.get());
            ASSERT_ZOFF_OK(zoff_step_begin(e.get(), nullptr));
            for (size_t i = 0; i < BUCKETS; i += 1 + rank) {
                ASSERT_ZOFF_OK(zoff_param_wait(e.get(), (zoff_param)(rank == 0 ? BUCKETS - 1 - i : i), 0, nullptr));
            }
            ASSERT_ZOFF_OK(zoff_step_wait(e.get(), nullptr));
            reference::step(t.tensors, config_groups(), step, 1, 1, 0);
            ASSERT_NO_FATAL_FAILURE(t.expect_weights()) << "step " << step;
        }
        for (size_t i = 0; i < BUCKETS; i++)
            walks[rank].push_back(zoff_transfer_walk_bucket(&e->transfer, i));
    });
    for (const std::vector<size_t> &walk : walks) {
        ASSERT_EQ((size_t)BUCKETS, walk.size());
        for (size_t i = 0; i < BUCKETS; i++)
            EXPECT_EQ(BUCKETS - 1 - i, walk[i]) << i;
    }
}

// A thread that is busy with other buckets does not keep the program from weights that are new. Their use still counts.
TEST_P(ParamWait, NewWeightsNeedNoLock)
{
    trainer t(13);
    for (int i = 0; i < TENSORS; i++)
        t.add(COUNT, 1, ZOFF_BF16, ZOFF_BF16);
    engine e = seal_engine(t, text(1, ", \"zoff\": {\"background_threads\": 1}"), COUNT);
    for (int64_t step = 1; step <= 3; step++) {
        t.next_step();
        begin(t, e.get());
        reference::step(t.tensors, config_groups(), step, 1, 1, 0);
        ASSERT_ZOFF_OK(zoff_param_wait(e.get(), TENSORS - 1, 0, nullptr)); // the thread updates the others
        for (int ms = 0; ms < 30000 && !zoff_engine_pipeline_knows_new(e.get(), {0, TENSORS - 1}); ms++)
            usleep(1000);
        std::promise<void> is_held, returned;
        std::thread holder([&] {
            const zoff_entered entered = zoff_engine_progress_thread_enter(e.get());
            is_held.set_value();
            EXPECT_EQ(std::future_status::ready, returned.get_future().wait_for(std::chrono::seconds(20)))
                << "it waits for the lock";
            zoff_engine_progress_thread_leave(&entered);
        });
        is_held.get_future().wait();
        for (zoff_param p = TENSORS - 1; p-- > 0;) {
            EXPECT_ZOFF_OK(zoff_param_wait(e.get(), p, 0, nullptr));
            EXPECT_TRUE(is_new(t, p));
        }
        returned.set_value();
        holder.join();
        ASSERT_ZOFF_OK(zoff_step_wait(e.get(), nullptr));
        ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get()));
        for (size_t i = 0; i < TENSORS; i++)
            EXPECT_EQ(TENSORS - 1 - i, zoff_transfer_walk_bucket(&e->transfer, i)) << "the order of use";
        EXPECT_ZOFF_OK(zoff_param_wait(e.get(), 0, 0, nullptr)); // a wait between steps says nothing about the order
    }
}

// Until a program waits for weights it may drop the step, whatever works beside it: with several ranks, each at its own moment.
TEST_P(ParamWait, AStepThatNobodyHasWaitedForCanBeDropped)
{
    enum { RANKS = 2 };
    rank_job job(RANKS, 20);
    const std::string own = ", \"zoff\": {\"background_threads\": 1}";
    const std::string config = GetParam() ? text(1, own) : config_text("", 1, own + ", \"zero_optimization\": {\"stage\": 1}");
    job.on_each([&](unsigned rank) {
        trainer t(12);
        for (int i = 0; i < TENSORS; i++)
            t.add(COUNT, 1, ZOFF_BF16, ZOFF_BF16);
        engine e = make_engine(t, config, COUNT, 0, job.comm_of(rank));
        ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
        for (int64_t step = 1; step <= 3; step++) {
            for (const bool drops : {true, false}) {
                t.next_step();
                begin(t, e.get());
                if (drops) {
                    usleep(20000 * (1 - rank)); // the thread of rank 0 has time to vote
                    (void)zoff_engine_progress(e.get());
                    ASSERT_ZOFF_OK(zoff_grads_drop(e.get()));
                    continue;
                }
                ASSERT_ZOFF_OK(zoff_param_wait(e.get(), (zoff_param)rank, 0, nullptr));
                ASSERT_ZOFF_OK(zoff_step_wait(e.get(), nullptr));
                reference::step(t.tensors, config_groups(), step, 1, 1, 0);
                ASSERT_NO_FATAL_FAILURE(t.expect_weights());
            }
        }
    });
}
} // namespace
