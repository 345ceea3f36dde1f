/* SPDX-License-Identifier: Apache-2.0 */
// ranks_device_faults_test.cc: one of three ranks stops or leaves while weights of the engine are gathered on devices, or while
// lent gradients leave them. The other ranks get an error in time that names it, and can go away.
#include "covering.h"
#include "lost_rank.h"

using namespace zoff_test;

namespace
{
enum phase { IN_FETCHES, IN_GRADIENTS, BEFORE_STEP };
enum { RANKS = 3, FAULTY = 1 };

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
        : job(RANKS), all(job, 11,
                          [](trainer &t) {
                              t.add(5000, 5, ZOFF_BF16, ZOFF_BF16);
                              t.add(300, 2, ZOFF_BF16, ZOFF_BF16);
                              t.give_all_away();
                          }),
          lost(job, all, FAULTY, GetParam().leaves)
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
        const bool strikes = lost.is(rank);
        for (size_t slice = 0; slice < 5; slice++) {
            const void *lent = nullptr;
            if (strikes && slice == 2 && strikes_at(IN_FETCHES))
                return ZOFF_ERR_IO;
            const zoff_status status = zoff_param_fetch(e, 0, slice, stream, &lent);
            if (status < 0)
                return status;
            EXPECT_ZOFF_OK(zoff_param_release(e, 0, slice, stream));
        }
        for (size_t slice = 5; slice-- > 0;) {
            void *lent = nullptr;
            if (strikes && slice == 2 && strikes_at(IN_GRADIENTS))
                return ZOFF_ERR_IO;
            const zoff_status status = zoff_grad_acquire(e, 0, slice, stream, &lent);
            if (status < 0)
                return status;
            all.devices[rank]->launch_copy(lent, t.grad(0) + slice * 5000 * 2, 5000 * 2);
            EXPECT_ZOFF_OK(zoff_grad_ready(e, 0, slice, stream));
        }
        if (strikes && strikes_at(BEFORE_STEP))
            return ZOFF_ERR_IO;
        return zoff_step(e, nullptr, nullptr);
    }

    bool strikes_at(phase here)
    {
        const bool now = GetParam().when == here;
        if (now)
            lost.strike();
        return now;
    }

    rank_job job;
    rank_trainers all;
    lost_rank lost;
};
INSTANTIATE_TEST_SUITE_P(Phases, RanksDeviceFaults, testing::ValuesIn(cells()), [](const auto &p) { return name(p.param); });

TEST_P(RanksDeviceFaults, OthersHearOfItAndCanGoAway)
{
    lost.run([&](unsigned rank) { return take(rank); },
             [&](unsigned, const std::string &words) { EXPECT_TRUE(lost.is_named(words)) << words; });
}
} // namespace
