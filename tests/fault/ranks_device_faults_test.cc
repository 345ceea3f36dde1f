// ranks_device_faults_test.cc: one of three ranks stops or leaves while weights of the engine are gathered on devices, or while
// lent gradients leave them. The other ranks get an error in time that names it, and can go away.
#include "covering.h"
#include "rank_job.h"

#include <atomic>
#include <chrono>
#include <cmath>

using namespace zoff_test;

namespace
{
enum phase { IN_FETCHES, IN_GRADIENTS, BEFORE_STEP };
enum { RANKS = 3, FAULTY = 1 };
const double DEADLINE = 1;

struct cell {
    phase when;
    bool leaves, reached;
    const char *weights; // offload_param.device
};

std::string name(const cell &c)
{
    const char *const phases[] = {"InFetches", "InGradients", "BeforeTheStep"};
    return std::string(c.leaves ? "Leaves" : "Stalls") + phases[c.when] + (c.reached ? "_reached_" : "_bounced_") + c.weights;
}

std::vector<cell> cells()
{
    std::vector<cell> all;
    for (phase when : {IN_FETCHES, IN_GRADIENTS, BEFORE_STEP})
        for (bool leaves : {false, true})
            for (bool reached : {false, true})
                all.push_back({when, leaves, reached, when == IN_FETCHES && reached ? "none" : "cpu"});
    return all;
}

class RanksDeviceFaults : public testing::TestWithParam<cell>
{
  protected:
    RanksDeviceFaults()
        : job(RANKS), all(job, 11, [](trainer &t) {
              t.add(5000, 5, ZOFF_BF16, ZOFF_BF16);
              t.add(300, 2, ZOFF_BF16, ZOFF_BF16);
              t.give_all_away();
          })
    {
        all.use_devices(3);
        if (GetParam().reached)
            job.reach_devices();
        all.seal("{\"gradient_clipping\": 0, \"zero_optimization\": {\"stage\": 3, \"reduce_bucket_size\": 3000, "
                 "\"stage3_max_live_parameters\": 10000, \"stage3_prefetch_bucket_size\": 5000, "
                 "\"stage3_param_persistence_threshold\": 400, \"offload_param\": {\"device\": \"" +
                     std::string(GetParam().weights) + "\"}}}",
                 2000);
    }

    // A step; the faulty rank strikes in it once it is armed. Returns the first error.
    zoff_status take(unsigned rank)
    {
        zoff_engine *e = all.engines[rank].get();
        trainer &t = *all.trainers[rank];
        void *const stream = all.devices[rank]->stream;
        const bool strikes = is_armed && rank == FAULTY;
        for (size_t slice = 0; slice < 5; slice++) {
            const void *lent = nullptr;
            if (strikes && slice == 2 && strike(IN_FETCHES))
                return ZOFF_ERR_IO;
            const zoff_status status = zoff_param_fetch(e, 0, slice, stream, &lent);
            if (status < 0)
                return status;
            EXPECT_ZOFF_OK(zoff_param_release(e, 0, slice, stream));
        }
        for (size_t slice = 5; slice-- > 0;) {
            void *lent = nullptr;
            if (strikes && slice == 2 && strike(IN_GRADIENTS))
                return ZOFF_ERR_IO;
            const zoff_status status = zoff_grad_acquire(e, 0, slice, stream, &lent);
            if (status < 0)
                return status;
            all.devices[rank]->launch_copy(lent, t.grad(0) + slice * 5000 * 2, 5000 * 2);
            EXPECT_ZOFF_OK(zoff_grad_ready(e, 0, slice, stream));
        }
        if (strikes && strike(BEFORE_STEP))
            return ZOFF_ERR_IO;
        return zoff_step(e, nullptr, nullptr);
    }

    bool strike(phase here)
    {
        if (GetParam().when != here)
            return false;
        has_struck = true;
        while (!GetParam().leaves && gone < RANKS - 1)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return true;
    }

    void survive(unsigned rank)
    {
        const auto from = std::chrono::steady_clock::now();
        EXPECT_EQ(ZOFF_ERR_COMM, take(rank)) << zoff_last_error();
        const std::string words = zoff_last_error(), who = "rank " + std::to_string(FAULTY);
        EXPECT_TRUE(words.find(who + " of 3 did not arrive") != std::string::npos ||
                    words.find(who + " of 3 stopped before it was done") != std::string::npos ||
                    words.find(who + " has left the group") != std::string::npos ||
                    words.find(who + " has destroyed engine") != std::string::npos)
            << words;
        const zoff_status again = zoff_step(all.engines[rank].get(), nullptr, nullptr);
        EXPECT_TRUE(again == ZOFF_ERR_COMM || again == ZOFF_ERR_STATE) << zoff_last_error();
        all.engines[rank].reset();
        EXPECT_GT(10 * DEADLINE + 15, std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count());
        gone++;
        job.leave(rank);
    }

    rank_job job;
    rank_trainers all;
    bool is_armed = false;
    std::atomic<bool> has_struck{false};
    std::atomic<unsigned> gone{0};
};
INSTANTIATE_TEST_SUITE_P(Phases, RanksDeviceFaults, testing::ValuesIn(cells()), [](const auto &p) { return name(p.param); });

TEST_P(RanksDeviceFaults, OthersHearOfItAndCanGoAway)
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
} // namespace
