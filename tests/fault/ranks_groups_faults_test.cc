// ranks_groups_faults_test.cc: weights stored once more in groups of ranks. A rank stops or leaves while its group gathers, or
// while new weights go to other groups; or a transfer of some rank fails. The others get an error that names the rank, or wait
// until it has tried again.
#include "aio_fault.h"
#include "comm_fault.h"
#include "covering.h"
#include "rank_job.h"

#include <atomic>
#include <chrono>

using namespace zoff_test;

namespace
{
enum { RANKS = 4, FAULTY = 1 };
const double DEADLINE = 1;

std::string config_text(const char *weights, const std::string &folder)
{
    return "{\"gradient_clipping\": 0, \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, "
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
    zoff_comm_stream where; // its operations
    bool leaves;
};

std::string name(const cell &c)
{
    return std::string(c.leaves ? "Leaves" : "Stalls") + (c.where == ZOFF_COMM_GROUP ? "InAGather" : "WhileWeightsAreShared");
}

class RanksGroupsFaults : public testing::TestWithParam<cell>
{
  protected:
    RanksGroupsFaults() : job(RANKS), all(job, 11, add)
    {
        for (unsigned rank = 0; rank < RANKS; rank++)
            wrapped.push_back(std::make_unique<comm_fault>(job.comm_of(rank)));
        const unsigned nth = GetParam().where == ZOFF_COMM_GROUP ? 1 : 3;
        wrapped[FAULTY]->before = [this, nth](const zoff_comm_work &work) {
            const bool counts = is_armed && work.call.stream == GetParam().where;
            return counts && ++operations >= nth ? strike() : ZOFF_OK;
        };
        all.seal(config_text("cpu", "/tmp"), 2000);
    }

    zoff_status strike()
    {
        has_struck = true;
        while (!GetParam().leaves && gone < RANKS - 1)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return zoff_base_status_fail(ZOFF_ERR_IO, "the test ends here");
    }

    // All fetches of a pass, and the step. Returns the first error.
    zoff_status take(unsigned rank, bool *in_step = nullptr)
    {
        zoff_engine *e = all.engines[rank].get();
        for (size_t slice = 0; slice < 5; slice++) {
            const void *lent = nullptr;
            const zoff_status status = zoff_param_fetch(e, 0, slice, nullptr, &lent);
            if (status < 0)
                return status;
            EXPECT_ZOFF_OK(zoff_param_release(e, 0, slice, nullptr));
        }
        if (in_step)
            *in_step = true;
        return zoff_step(e, nullptr, nullptr);
    }

    void survive(unsigned rank)
    {
        const auto from = std::chrono::steady_clock::now();
        bool in_step = false;
        EXPECT_EQ(ZOFF_ERR_COMM, take(rank, &in_step)) << zoff_last_error();
        // The other group may be in the step already, and waits there for rank 0 as well.
        const std::string words = zoff_last_error(), who = "rank " + std::to_string(FAULTY);
        EXPECT_TRUE(words.find(who + " of 4 did not arrive") != std::string::npos ||
                    words.find("ranks 0, 1 of 4 did not arrive") != std::string::npos ||
                    words.find(who + " of 4 stopped before it was done") != std::string::npos ||
                    words.find(who + " has left the group") != std::string::npos ||
                    words.find(who + " has destroyed engine") != std::string::npos)
            << words;
        // Only rank 0 must notice it in a fetch: it waits there for its group. The others may, because rank 0 tells them.
        EXPECT_TRUE(in_step || GetParam().where == ZOFF_COMM_GROUP) << words;
        EXPECT_FALSE(in_step && rank == 0 && GetParam().where == ZOFF_COMM_GROUP) << words;
        const zoff_status again = zoff_step(all.engines[rank].get(), nullptr, nullptr);
        EXPECT_TRUE(again == ZOFF_ERR_COMM || again == ZOFF_ERR_STATE) << zoff_last_error();
        all.engines[rank].reset();
        EXPECT_GT(10 * DEADLINE + 15, std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count());
        gone++;
        job.leave(rank);
    }

    std::vector<std::unique_ptr<comm_fault>> wrapped;
    rank_job job;
    rank_trainers all;
    std::atomic<bool> is_armed{false}, has_struck{false};
    std::atomic<unsigned> gone{0};
    unsigned operations = 0;
};
INSTANTIATE_TEST_SUITE_P(Phases, RanksGroupsFaults,
                         testing::Values(cell{ZOFF_COMM_GROUP, false}, cell{ZOFF_COMM_GROUP, true},
                                         cell{ZOFF_COMM_WEIGHTS, false}, cell{ZOFF_COMM_WEIGHTS, true}),
                         [](const auto &p) { return name(p.param); });

TEST_P(RanksGroupsFaults, OthersHearOfItAndCanGoAway)
{
    log_catcher log;
    for (int step = 0; step < 2; step++) { // the second one prefetches
        all.backward((unsigned)step, 0.5f);
        job.on_each([&](unsigned rank) { EXPECT_ZOFF_OK(take(rank)); });
    }
    for (unsigned rank = 0; rank < RANKS; rank++)
        job.comm_of(rank)->timeout_seconds = DEADLINE;
    is_armed = true;
    if (HasFailure())
        return;
    job.on_each([&](unsigned rank) {
        if (rank != FAULTY)
            return survive(rank);
        (void)take(rank);
        all.engines[rank].reset();
        job.leave(rank);
    });
    EXPECT_TRUE(has_struck) << "the fault did not happen";
    EXPECT_EQ((unsigned)RANKS - 1, gone);
}

// One transfer of some rank fails, in each step another one. That rank tries again, and the others wait for it.
TEST(RanksGroupsDisk, EveryTransferOfAStepMayFailOnce)
{
    log_catcher log;
    scratch_folder folder;
    rank_job job(RANKS);
    rank_trainers all(job, 11, add);
    all.seal(config_text("nvme", folder.path), 2000);
    const auto step = [&](unsigned round) {
        all.backward(round, 0.5f);
        job.on_each([&](unsigned rank) {
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
    int transfers = 0, failed = 0;
    {
        aio_fault fault;
        std::atomic<int> seen{0};
        fault.result = [&](int, int res, bool, uint64_t, size_t) { return seen++, res; };
        step(1);
        transfers = seen;
    }
    ASSERT_LT(20, transfers);
    const int stride = is_full_run() ? 1 : 7;
    for (int nth = 0; nth < transfers && !testing::Test::HasFailure(); nth += stride) {
        SCOPED_TRACE("transfer " + std::to_string(nth));
        aio_fault fault;
        std::atomic<int> countdown{nth};
        std::atomic<int> faults{0};
        fault.result = [&](int, int res, bool, uint64_t, size_t) { return countdown-- == 0 ? faults++, -EIO : res; };
        step(2 + (unsigned)(nth / stride));
        failed += faults;
    }
    EXPECT_LT(transfers / stride / 2, failed);
    job.on_each([&](unsigned rank) {
        trainer &t = *all.trainers[rank];
        t.fetch_all(all.engines[rank].get());
        t.tensors = all.want.tensors;
        t.expect_weights();
        t.expect_states(all.engines[rank].get());
    });
}

TEST(RanksGroupsDisk, EveryTransferOfAPushMayFailOnce)
{
    log_catcher log;
    scratch_folder folder;
    rank_job job(RANKS);
    rank_trainers all(job, 11, add);
    all.seal(config_text("nvme", folder.path), 2000);
    std::atomic<int> refused{0};
    const auto push = [&](float value) {
        std::fill(all.want.tensors[0].master.begin(), all.want.tensors[0].master.end(), value);
        job.on_each([&](unsigned rank) {
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
    std::atomic<int> countdown{1 << 30}, faults{0};
    int transfers = 0;
    {
        aio_fault fault;
        fault.result = [&](int, int res, bool, uint64_t, size_t) { return countdown--, res; };
        push(1);
        transfers = (1 << 30) - countdown;
    }
    ASSERT_LT(20, transfers);
    const int stride = is_full_run() ? 1 : 7;
    for (int nth = 0; nth < transfers && !testing::Test::HasFailure(); nth += stride) {
        SCOPED_TRACE("transfer " + std::to_string(nth));
        {
            aio_fault fault;
            countdown = nth;
            fault.result = [&](int, int res, bool, uint64_t, size_t) { return countdown-- == 0 ? faults++, -EIO : res; };
            push((float)(nth % 64));
        }
        job.on_each([&](unsigned rank) {
            trainer &t = *all.trainers[rank];
            t.fetch_all(all.engines[rank].get());
            t.tensors = all.want.tensors;
            t.expect_weights();
        });
    }
    EXPECT_LT(transfers / stride / 2, faults);
    EXPECT_LT(0, refused);
}

// All transfers fail from some moment of a load on. Afterwards the engines load again and have all weights, or refuse it
// because weights were on their way.
TEST(RanksGroupsDisk, ALoadThatFailedIsRepeatedOrRefused)
{
    log_catcher log;
    scratch_folder saved, folder;
    decltype(trainer::tensors) first;
    unsigned refused = 0, repeated = 0;
    int transfers = 1;
    for (int nth = 0; nth < transfers && !HasFailure(); nth += is_full_run() ? 1 : 9) {
        SCOPED_TRACE("transfer " + std::to_string(nth));
        rank_job job(RANKS, 1);
        rank_trainers all(job, nth == 0 ? 11 : 12, add); // the weights are not those of the checkpoint
        all.seal(config_text("nvme", folder.path), 2000);
        const auto on_each = [&](auto call) {
            std::vector<zoff_status> out(RANKS);
            job.on_each([&](unsigned rank) { out[rank] = call(all.engines[rank].get(), saved.path.c_str(), nullptr); });
            return out;
        };
        if (nth == 0) {
            first = all.want.tensors;
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
        if (again[0] == ZOFF_OK) {
            repeated++;
            job.on_each([&](unsigned rank) {
                trainer &t = *all.trainers[rank];
                t.fetch_all(all.engines[rank].get());
                t.tensors = first;
                t.expect_weights();
            });
        }
        refused += again[0] == ZOFF_ERR_STATE;
        EXPECT_EQ(std::vector<zoff_status>(RANKS, again[0]), again);
    }
    EXPECT_LT(0u, repeated);
    EXPECT_LT(0u, refused);
}
} // namespace
