/* SPDX-License-Identifier: Apache-2.0 */
// ranks_groups_faults_test.cc: weights stored once more in groups of ranks. A rank stops or leaves while its group gathers, or
// while new weights go to other groups; or a transfer of some rank fails. The others get an error that names the rank, or wait
// until it has tried again.
#include "aio_fault.h"
#include "comm_fault.h"
#include "covering.h"
#include "lost_rank.h"

using namespace zoff_test;

namespace
{
enum { RANKS = 4, FAULTY = 1 };
#if defined(ZOFF_TEST_SANITIZED)
enum { SECONDS = 5 }; // after which a rank gives up the others; sanitizers make all of them slow
#else
enum { SECONDS = 1 };
#endif

std::string config_text(const char *weights, const std::string &folder, const char *master = "auto")
{
    return std::string("{\"zoff\": {\"master\": \"") + master +
           "\"}, \"gradient_clipping\": 0, \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, "
           "\"zero_optimization\": {\"stage\": 3, \"reduce_bucket_size\": 6000, \"zero_hpz_partition_size\": 2, "
           "\"stage3_param_persistence_threshold\": 400, \"stage3_max_live_parameters\": 10000, "
           "\"stage3_prefetch_bucket_size\": 5000, \"offload_param\": {\"device\": \"" +
           std::string(weights) + "\", \"nvme_path\": \"" + folder + "\", \"max_in_cpu\": 0, \"buffer_count\": 3}}}";
}

void add(trainer &t)
{
    t.add(5000, 5, ZOFF_BF16, ZOFF_BF16);
    t.add(300, 2, ZOFF_BF16, ZOFF_BF16);
    t.give_away(0);
    t.give_away(1);
}

struct cell {
    zoff_comm_stream where; // stream of the operations that fail
    bool leaves;
};

std::string name(const cell &c)
{
    return std::string(c.leaves ? "Leaves" : "Stalls") + (c.where == ZOFF_COMM_GROUP ? "InAGather" : "WhileWeightsAreShared");
}

class RanksGroupsFaults : public testing::TestWithParam<cell>
{
  protected:
    RanksGroupsFaults() : job(RANKS), all(job, 11, add), lost(job, all, FAULTY, GetParam().leaves)
    {
        for (unsigned rank = 0; rank < RANKS; rank++)
            wrapped.push_back(std::make_unique<comm_fault>(job.comm_of(rank)));
        const unsigned nth = GetParam().where == ZOFF_COMM_GROUP ? 1 : 3;
        wrapped[FAULTY]->before = [this, nth](const zoff_comm_work &work) {
            if (!lost.is(FAULTY) || work.call.stream != GetParam().where || ++operations < nth)
                return ZOFF_OK;
            lost.strike();
            return zoff_base_status_fail(ZOFF_ERR_IO, "the test ends here");
        };
        all.seal(config_text("cpu", "/tmp"), 2000);
    }

    // All fetches of a pass, and the step. Returns the first error.
    zoff_status take(unsigned rank)
    {
        in_step[rank] = false;
        zoff_engine *e = all.engines[rank].get();
        for (size_t slice = 0; slice < 5; slice++) {
            const void *lent = nullptr;
            const zoff_status status = zoff_param_fetch(e, 0, slice, nullptr, &lent);
            if (status < 0)
                return status;
            EXPECT_ZOFF_OK(zoff_param_release(e, 0, slice, nullptr));
        }
        in_step[rank] = true;
        return zoff_step(e, nullptr, nullptr);
    }

    void check(unsigned rank, const std::string &words)
    {
        const bool gathers = GetParam().where == ZOFF_COMM_GROUP;
        // The other group may be in the step already, and waits there for rank 0 as well.
        EXPECT_TRUE(lost.is_named(words) || words.find("ranks 0, 1 of 4 did not arrive") != std::string::npos) << words;
        // Only rank 0 must notice it in a fetch: it waits there for its group. The others may, because rank 0 tells them.
        EXPECT_TRUE(in_step[rank] || gathers) << words;
        EXPECT_FALSE(in_step[rank] && rank == 0 && gathers) << words;
    }

    std::vector<std::unique_ptr<comm_fault>> wrapped;
    rank_job job;
    rank_trainers all;
    lost_rank lost;
    bool in_step[RANKS] = {};
    unsigned operations = 0;
};
INSTANTIATE_TEST_SUITE_P(Phases, RanksGroupsFaults,
                         testing::Values(cell{ZOFF_COMM_GROUP, false}, cell{ZOFF_COMM_GROUP, true},
                                         cell{ZOFF_COMM_WEIGHTS, false}, cell{ZOFF_COMM_WEIGHTS, true}),
                         [](const auto &p) { return name(p.param); });

TEST_P(RanksGroupsFaults, OthersHearOfItAndCanGoAway)
{
    lost.run([&](unsigned rank) { return take(rank); }, [&](unsigned rank, const std::string &words) { check(rank, words); });
}

class RanksGroupsDisk : public testing::Test
{
  protected:
    struct opened {
        explicit opened(const std::string &folder, unsigned seed = 11, double timeout_seconds = 60, const char *master = "auto")
            : job(RANKS, timeout_seconds), all(job, seed, add)
        {
            all.seal(config_text("nvme", folder, master), 2000);
        }
        void expect_weights(const decltype(trainer::tensors) &want)
        {
            job.on_each([&](unsigned rank) {
                trainer &t = *all.trainers[rank];
                t.fetch_all(all.engines[rank].get());
                t.tensors = want;
                t.expect_weights();
            });
        }
        rank_job job;
        rank_trainers all;
    };

    // In each call another transfer of some rank fails. `check` is called after each.
    static void each_transfer_fails_once(const std::function<void(unsigned round)> &call, const std::function<void()> &check)
    {
        int transfers = 0, failed = 0;
        {
            aio_fault fault;
            call(1);
            transfers = fault.results;
        }
        ASSERT_LT(20, transfers);
        const int stride = is_full_run() ? 1 : 7;
        for (int nth = 0; nth < transfers && !HasFailure(); nth += stride) {
            SCOPED_TRACE("transfer " + std::to_string(nth));
            std::atomic<int> countdown{nth}, faults{0};
            {
                aio_fault fault;
                fault.result = [&](int, int res, bool, uint64_t, size_t) { return countdown-- == 0 ? faults++, -EIO : res; };
                call(2 + (unsigned)(nth / stride));
            }
            failed += faults;
            check();
        }
        EXPECT_LT(transfers / stride / 2, failed);
    }

    log_catcher log;
    scratch_folder folder;
};

// The rank tries again, and the others wait for it.
TEST_F(RanksGroupsDisk, EveryTransferOfAStepMayFailOnce)
{
    opened run(folder.path);
    rank_trainers &all = run.all;
    const auto step = [&](unsigned round) {
        all.backward(round, 0.5f);
        run.job.on_each([&](unsigned rank) {
            zoff_engine *e = all.engines[rank].get();
            for (size_t slice = 0; slice < 5; slice++) {
                const void *lent = nullptr;
                zoff_status status;
                while ((status = zoff_param_fetch(e, 0, slice, nullptr, &lent)) == ZOFF_ERR_IO)
                    ;
                ASSERT_ZOFF_OK(status);
                ASSERT_ZOFF_OK(zoff_param_release(e, 0, slice, nullptr));
            }
            zoff_status status = zoff_step(e, nullptr, nullptr);
            for (int tries = 0; status == ZOFF_ERR_IO && tries < 20; tries++)
                status = zoff_step_retry(e, nullptr);
            ASSERT_ZOFF_OK(status);
        });
        (void)all.step(config_groups(), round, 0);
    };
    each_transfer_fails_once(step, [] {});
    run.expect_weights(all.want.tensors);
    run.job.on_each([&](unsigned rank) { all.trainers[rank]->expect_states(all.engines[rank].get()); });
}

// Masters are numbers of their own, so that a push makes weights, and writing masters moves none.
TEST_F(RanksGroupsDisk, EveryTransferOfAPushMayFailOnce)
{
    opened run(folder.path, 11, 60, "fp32");
    rank_trainers &all = run.all;
    std::atomic<int> refused{0};
    const auto push = [&](unsigned round) {
        const float value = (float)(round % 64);
        std::fill(all.want.tensors[0].master.begin(), all.want.tensors[0].master.end(), value);
        run.job.on_each([&](unsigned rank) {
            zoff_engine *e = all.engines[rank].get();
            const std::vector<float> masters(25000, value);
            ASSERT_ZOFF_OK(zoff_state_write(e, 0, ZOFF_STATE_MASTER, 0, masters.size(), masters.data()));
            zoff_status status = zoff_params_push(e);
            for (int tries = 0; status == ZOFF_ERR_IO && tries < 20; tries++) {
                const zoff_status other = zoff_state_write(e, 0, ZOFF_STATE_MASTER, 0, masters.size(), masters.data());
                EXPECT_TRUE(other == ZOFF_OK || other == ZOFF_ERR_STATE) << zoff_last_error();
                refused += other < 0; // some weights were sent
                status = zoff_params_push(e);
            }
            ASSERT_ZOFF_OK(status);
        });
    };
    each_transfer_fails_once(push, [&] { run.expect_weights(all.want.tensors); });
    EXPECT_LT(0, refused);
}

// All transfers fail from some moment of a load on. Afterwards the engines load again and have all weights, or refuse it
// because weights were on their way.
TEST_F(RanksGroupsDisk, ALoadThatFailedIsRepeatedOrRefused)
{
    scratch_folder saved;
    decltype(trainer::tensors) first;
    unsigned refused = 0, repeated = 0;
    int transfers = 1;
    for (int nth = 0; nth < transfers && !HasFailure(); nth += is_full_run() ? 1 : 9) {
        SCOPED_TRACE("transfer " + std::to_string(nth));
        opened run(folder.path, nth == 0 ? 11 : 12, SECONDS); // later weights are not those of the checkpoint
        const auto on_each = [&](auto call) {
            std::vector<zoff_status> out(RANKS);
            run.job.on_each([&](unsigned rank) { out[rank] = call(run.all.engines[rank].get(), saved.path.c_str(), nullptr); });
            return out;
        };
        if (nth == 0) {
            first = run.all.want.tensors;
            EXPECT_EQ(std::vector<zoff_status>(RANKS, ZOFF_OK), on_each(zoff_checkpoint_save));
            aio_fault fault;
            EXPECT_EQ(std::vector<zoff_status>(RANKS, ZOFF_OK), on_each(zoff_checkpoint_load));
            transfers = fault.results;
        }
        {
            aio_fault fault;
            std::atomic<int> countdown{nth};
            fault.result = [&](int, int res, bool, uint64_t, size_t) { return countdown-- <= 0 ? -EIO : res; };
            for (zoff_status status : on_each(zoff_checkpoint_load))
                EXPECT_TRUE(status == ZOFF_ERR_IO || status == ZOFF_ERR_COMM) << status;
        }
        const std::vector<zoff_status> again = on_each(zoff_checkpoint_load);
        if (again[0] == ZOFF_OK)
            run.expect_weights(first);
        repeated += again[0] == ZOFF_OK;
        refused += again[0] == ZOFF_ERR_STATE;
        EXPECT_EQ(std::vector<zoff_status>(RANKS, again[0]), again);
    }
    EXPECT_LT(0u, repeated);
    EXPECT_LT(0u, refused);
}
} // namespace
