/* SPDX-License-Identifier: Apache-2.0 */
// ranks_worlds_test.cc: trains the same twelve micro-batches of unequal size on 1, 2, 3 and 4 ranks. Dealt out in turns, the
// batches are added in the same order for every number of ranks, so the first step has the same bits. Dealt out in runs, as
// most trainers do, they are added in another order, and the gradients differ by rounding.
#include "rank_job.h"

#include <cfloat>

using namespace zoff_test;

namespace
{
enum { BATCHES = 12 };

struct result {
    std::vector<std::vector<float>> moments; // first moments of each tensor: (1 - beta1) * gradient
    double norm = 0;
};

double weight_of(unsigned batch)
{
    return 1 + (batch * 7) % 5;
}

void make_gradients(trainer &t, unsigned batch)
{
    t.random.seed(900 + batch);
    t.next_step();
    t.backward_all(0.5f);
}

// Take the first step with `world` ranks.
result first_step(unsigned world, bool in_turns, zoff_dtype dtype)
{
    result r;
    rank_job job(world);
    const unsigned steps = BATCHES / world;
    const std::string text = "{\"gradient_accumulation_steps\": " + std::to_string(steps) +
                             ", \"gradient_clipping\": 0, \"zero_optimization\": {\"stage\": 2}}";
    rank_trainers all(job, 5, [&](trainer &t) { add_awkward(t, dtype, dtype); });
    all.seal(text, 3000);
    for (unsigned micro = 0; micro < steps; micro++) {
        job.on_each([&](unsigned rank) {
            const unsigned batch = in_turns ? micro * world + rank : rank * steps + micro;
            zoff_step_info info = new_info();
            make_gradients(*all.trainers[rank], batch);
            EXPECT_ZOFF_OK(zoff_grad_weight(all.engines[rank].get(), weight_of(batch)));
            EXPECT_ZOFF_OK(zoff_step(all.engines[rank].get(), nullptr, &info));
            if (rank == 0)
                r.norm = info.numbers.grad_norm;
        });
    }
    r.moments.resize(all.want.tensors.size());
    job.on_each([&](unsigned rank) {
        for (size_t i = 0; i < r.moments.size(); i++) {
            std::vector<float> m(all.want.tensors[i].frozen ? 0 : all.want.tensors[i].total());
            if (!m.empty()) {
                EXPECT_ZOFF_OK(zoff_state_read(all.engines[rank].get(), (zoff_param)i, ZOFF_STATE_M, 0, m.size(), m.data()));
            }
            if (rank == 0)
                r.moments[i] = m;
        }
    });
    return r;
}

class RanksWorlds : public testing::TestWithParam<zoff_dtype>
{
};
INSTANTIATE_TEST_SUITE_P(Types, RanksWorlds, testing::Values(ZOFF_F32, ZOFF_BF16, ZOFF_F16));

TEST_P(RanksWorlds, InTurnsTheFirstStepHasTheSameBits)
{
    const result one = first_step(1, true, GetParam());
    for (unsigned world : {2u, 3u, 4u}) {
        const result several = first_step(world, true, GetParam());
        EXPECT_EQ(one.norm, several.norm) << world;
        for (size_t i = 0; i < one.moments.size(); i++) {
            const size_t bytes = 4 * one.moments[i].size();
            ASSERT_TRUE(bytes == 0 || memcmp(one.moments[i].data(), several.moments[i].data(), bytes) == 0)
                << world << " " << i;
        }
    }
}

// A sum in another order may differ by 4 eps * sum of |gradients|.
TEST_P(RanksWorlds, InRunsItDiffersByRounding)
{
    trainer sizes(5);
    add_awkward(sizes, GetParam(), GetParam());
    std::vector<std::vector<double>> magnitude;
    double weights = 0;
    for (const auto &t : sizes.tensors)
        magnitude.emplace_back(t.total(), 0.0);
    for (unsigned batch = 0; batch < BATCHES; batch++) {
        make_gradients(sizes, batch);
        weights += weight_of(batch);
        for (size_t i = 0; i < magnitude.size(); i++) {
            for (size_t k = 0; k < magnitude[i].size(); k++)
                magnitude[i][k] += weight_of(batch) * fabs((double)sizes.tensors[i].sum[k]);
        }
    }
    const result one = first_step(1, false, GetParam());
    for (unsigned world : {2u, 3u, 4u}) {
        const result several = first_step(world, false, GetParam());
        EXPECT_NEAR(one.norm, several.norm, 1e-6 * one.norm);
        size_t different = 0;
        for (size_t i = 0; i < one.moments.size(); i++) {
            for (size_t k = 0; k < one.moments[i].size(); k++) {
                const double apart = fabs((double)one.moments[i][k] - (double)several.moments[i][k]) / 0.1;
                ASSERT_LE(apart, 4 * (double)FLT_EPSILON * magnitude[i][k] / weights) << world << " " << i << " " << k;
                different += apart != 0;
            }
        }
        EXPECT_GT(different, 0u) << "the order of the sum should have differed";
    }
}
} // namespace
