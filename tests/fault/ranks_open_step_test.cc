/* SPDX-License-Identifier: Apache-2.0 */
// ranks_open_step_test.cc: ranks that borrow weights of the engine in an open step. Each rank updates its part of a slice
// before the others get it. Ranks may be in different calls of the step.
#include "lost_rank.h"

#include <string.h>

using namespace zoff_test;

namespace
{
enum { SLICES = 12 };

struct cell {
    const char *weights; // offload_param.device
    bool background;     // a thread of the engine works, too
    unsigned groups = 1; // number of groups of two ranks, which have all weights each
};

std::string name(const cell &c)
{
    return std::string(c.weights[0] == 'c' ? "inDram" : "inFiles") + (c.background ? "_background" : "") +
           (c.groups > 1 ? "_groups" : "");
}

void add(trainer &t)
{
    t.add(5000, SLICES, ZOFF_BF16, ZOFF_BF16);
    t.add(3000, 1, ZOFF_BF16, ZOFF_BF16);
    t.add(300, 2, ZOFF_BF16, ZOFF_BF16);
    t.give_away(0);
    t.give_away(2); // small enough to be replicated
}

class RanksOpenStep : public testing::TestWithParam<cell>
{
  protected:
    RanksOpenStep() : job(2 * GetParam().groups), all(job, 11, add)
    {
        all.seal("{\"gradient_clipping\": 0, \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, "
                 "\"zero_optimization\": {\"stage\": 3, \"reduce_bucket_size\": 6000, \"zero_hpz_partition_size\": " +
                     std::to_string(GetParam().groups > 1 ? 2 : 1) +
                     ", \"stage3_param_persistence_threshold\": 400, \"stage3_max_live_parameters\": 16000, "
                     "\"stage3_prefetch_bucket_size\": 11000, \"offload_param\": {\"device\": \"" +
                     GetParam().weights + "\", \"nvme_path\": \"" + folder.path +
                     "\", \"max_in_cpu\": 0, \"buffer_count\": 2}, \"offload_optimizer\": {\"device\": \"nvme\", "
                     "\"nvme_path\": \"" +
                     folder.path +
                     "\", \"buffer_count\": 3}}, "
                     "\"zoff\": {\"background_threads\": " +
                     (GetParam().background ? "1" : "0") + "}}",
                 2000);
    }

    // Copy a slice as it is lent in the open step.
    void borrow(unsigned rank, zoff_param p, size_t slice)
    {
        trainer &t = *all.trainers[rank];
        zoff_engine *e = all.engines[rank].get();
        const void *lent = nullptr;
        ASSERT_ZOFF_OK(zoff_param_fetch(e, p, slice, nullptr, &lent));
        memcpy(t.value(p) + 2 * t.place(p, slice * t.tensors[p].count), lent, 2 * t.tensors[p].count);
        ASSERT_ZOFF_OK(zoff_param_release(e, p, slice, nullptr));
    }

    void borrow_all(unsigned rank, bool backwards)
    {
        for (size_t slice = 0; slice < SLICES && !HasFatalFailure(); slice++)
            borrow(rank, 0, backwards ? SLICES - 1 - slice : slice);
        for (size_t slice = 0; slice < 2 && !HasFatalFailure(); slice++)
            borrow(rank, 2, slice);
    }

    void begin(unsigned rank)
    {
        all.trainers[rank]->hand_over_all(all.engines[rank].get());
        ASSERT_ZOFF_OK(zoff_step_begin(all.engines[rank].get(), nullptr));
    }

    void expect_weights()
    {
        for (unsigned rank = 0; rank < job.size; rank++) {
            const auto own = all.trainers[rank]->tensors;
            all.trainers[rank]->tensors = all.want.tensors;
            all.trainers[rank]->expect_weights();
            all.trainers[rank]->tensors = own;
        }
    }

    log_catcher log;
    scratch_folder folder;
    rank_job job;
    rank_trainers all;
};
INSTANTIATE_TEST_SUITE_P(Weights, RanksOpenStep,
                         testing::Values(cell{"cpu", false}, cell{"cpu", true}, cell{"nvme", false}, cell{"nvme", true},
                                         cell{"cpu", false, 2}, cell{"nvme", false, 2}, cell{"nvme", true, 2}),
                         [](const auto &one) { return name(one.param); });

// Weights of the program need a call on one rank only. The others are in the next call that all of them make, and wait there
// for longer than ranks wait before they compare their calls.
TEST_P(RanksOpenStep, RanksMayBeInDifferentCalls)
{
    for (unsigned round = 1; round <= 4; round++) {
        SCOPED_TRACE(round);
        all.backward(round, 0.5f);
        job.on_each([&](unsigned rank) {
            zoff_engine *e = all.engines[rank].get();
            ASSERT_NO_FATAL_FAILURE(begin(rank));
            if (rank % 2 == round % 2)
                ASSERT_ZOFF_OK(zoff_param_wait(e, 1, 0, nullptr));
            else
                std::this_thread::sleep_for(std::chrono::milliseconds(round < 3 ? 300 : 0));
            ASSERT_NO_FATAL_FAILURE(borrow_all(rank, round % 2));
            EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "a step is open", zoff_grad_ready(e, 0, 0, nullptr)); // no call has finished it
            ASSERT_ZOFF_OK(zoff_step_wait(e, nullptr));
        });
        (void)all.step(config_groups(), round, 0);
        ASSERT_NO_FATAL_FAILURE(expect_weights());
    }
}

// A pass may end before it has used what it used last time, and use slices in another order: what was prefetched for it keeps
// no slot from the step.
TEST_P(RanksOpenStep, APassMayDifferFromTheLastOne)
{
    for (unsigned round = 1; round <= 8; round++) {
        SCOPED_TRACE(round);
        all.backward(round, 0.5f);
        job.on_each([&](unsigned rank) {
            ASSERT_NO_FATAL_FAILURE(begin(rank));
            for (size_t k = 0; k < round % (SLICES + 1); k++)
                ASSERT_NO_FATAL_FAILURE(borrow(rank, 0, k * round % SLICES));
            ASSERT_ZOFF_OK(zoff_step_wait(all.engines[rank].get(), nullptr));
            ASSERT_NO_FATAL_FAILURE(borrow_all(rank, round % 2));
        });
        (void)all.step(config_groups(), round, 0);
        ASSERT_NO_FATAL_FAILURE(expect_weights());
    }
}

TEST_P(RanksOpenStep, ASkippedStepLendsTheWeightsBeforeIt)
{
    log.expect("skipped");
    for (unsigned round = 1, done = 0; round <= 4; round++) {
        SCOPED_TRACE(round);
        const bool skips = round % 2 == 0;
        all.backward(round, 0.5f);
        job.on_each([&](unsigned rank) {
            zoff_step_info info = new_info();
            if (skips && rank == 1)
                trainer::put(all.trainers[rank]->grad(1), ZOFF_BF16, 5, INFINITY);
            ASSERT_NO_FATAL_FAILURE(begin(rank));
            ASSERT_NO_FATAL_FAILURE(borrow_all(rank, false));
            ASSERT_ZOFF_OK(zoff_step_wait(all.engines[rank].get(), &info));
            EXPECT_EQ(skips, info.skipped);
        });
        if (skips)
            all.forget();
        else
            (void)all.step(config_groups(), ++done, 0);
        ASSERT_NO_FATAL_FAILURE(expect_weights());
    }
}

// All ranks meet the error of the vote in a fetch, and drop the step, each at its own moment. No thread votes again before.
TEST_P(RanksOpenStep, StepsThatDifferAreDropped)
{
    all.backward(0, 0.5f);
    job.on_each([&](unsigned rank) {
        zoff_engine *e = all.engines[rank].get();
        zoff_step_args args = ZOFF_STEP_ARGS_INIT;
        const void *lent = nullptr;
        args.clip_norm = 1 + rank;
        all.trainers[rank]->hand_over_all(e);
        ASSERT_ZOFF_OK(zoff_step_begin(e, &args));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "clip_norm", zoff_param_fetch(e, 0, 0, nullptr, &lent));
        std::this_thread::sleep_for(std::chrono::milliseconds(100 * rank));
        EXPECT_LE(ZOFF_OK, zoff_engine_progress(e));
        ASSERT_ZOFF_OK(zoff_grads_drop(e));
    });
    all.forget();
    all.backward(1, 0.5f);
    job.on_each([&](unsigned rank) {
        ASSERT_NO_FATAL_FAILURE(begin(rank));
        ASSERT_NO_FATAL_FAILURE(borrow_all(rank, false));
        ASSERT_ZOFF_OK(zoff_step_wait(all.engines[rank].get(), nullptr));
    });
    (void)all.step(config_groups(), 1, 0);
    ASSERT_NO_FATAL_FAILURE(expect_weights());
}
} // namespace
