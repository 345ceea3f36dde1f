/* SPDX-License-Identifier: Apache-2.0 */
// gate_test.cc: one norm, one clip factor, one decision to skip, and its message.
#include "rank_job.h"
#include "sgd_engine.h"

#include <float.h>
#include <math.h>

extern "C" {
#include "engine_priv.h"
}

using namespace zoff_test;

namespace
{
class Gate : public sgd_engine
{
};

// As torch.nn.utils.clip_grad_norm_: max_norm / (norm + 1e-6), and never more than 1.
TEST_F(Gate, TheClipFactorIsPyTorchsAlsoJustBelowTheLimit)
{
    for (float norm : {1e-6f, 5e-7f, 1.5e-6f, 0.0f, 1.0f - 0x1p-21f, 1.0f - 0x1p-20f, 1.0f - 0x1p-19f, 1.0f, 2.0f}) {
        for (double clip : {1e-6, 1.0}) {
            float w = 0, g = norm;
            auto info = new_info();
            make();
            add(&w, &g, 1, "w");
            ASSERT_ZOFF_OK(zoff_engine_seal(made.get()));
            ASSERT_ZOFF_OK(step(&info, clip));
            const double want = std::min(1.0, clip / ((double)norm + 1e-6));
            EXPECT_EQ(want, info.numbers.clip_factor) << norm << " clipped to " << clip;
            EXPECT_EQ(-(norm * (float)want), w) << norm << " clipped to " << clip;
        }
    }
}

// A norm that fp32 cannot hold leads to a skipped step, with or without clipping. So does a factor that fp32 holds only in
// part.
TEST_F(Gate, NormsBeyondFp32AreSkipped)
{
    const struct {
        float gradient;
        double clip, scale;
        const char *words; // NULL: not skipped
    } cases[] = {
        {3e38f, -1, 1, "is beyond fp32"},
        {3e38f, 1, 1, "is beyond fp32"},
        {1e35f, 1, 0.1, nullptr},
        {1e36f, 1, 1, nullptr},
        {1e37f, 1, 1, "below the normal numbers of fp32"},
        {1e34f, 1e-4, 1, "below the normal numbers of fp32"},
        {1e30f, -1, 1e-40, "below the normal numbers of fp32"},
    };
    for (const auto &c : cases) {
        std::vector<float> w(100, 0), g(100, c.gradient);
        auto info = new_info();
        make();
        add(w.data(), g.data(), w.size(), "w");
        ASSERT_ZOFF_OK(zoff_engine_seal(made.get()));
        if (c.words)
            log.expect(c.words);
        ASSERT_ZOFF_OK(step(&info, c.clip, c.scale));
        EXPECT_EQ(c.words != nullptr, info.skipped) << c.gradient << " " << c.clip << " " << c.scale;
        const float factor = (float)(c.scale * info.numbers.clip_factor);
        EXPECT_EQ(c.words ? 0 : -(c.gradient * factor), w[0]);
        EXPECT_TRUE(c.words || factor >= FLT_MIN);
    }
}

// With several gradients that are not finite, the first one in the list of parameters is named, with its block of 1024
// elements.
TEST_F(Gate, TheFirstPoisonOfTheListIsNamed)
{
    std::vector<float> w(2600, 0), g(2600, 1), v(10, 0), h(10, NAN);
    auto info = new_info();
    make();
    add(w.data(), g.data(), w.size(), "first");
    add(v.data(), h.data(), v.size(), "second");
    ASSERT_ZOFF_OK(zoff_engine_seal(made.get()));
    g[2500] = INFINITY;
    log.expect("the gradient of first, slice 0, has an inf or nan between its elements 2048 and 2599; weights");
    ASSERT_ZOFF_OK(step(&info));
    EXPECT_TRUE(info.skipped);
    EXPECT_EQ(0u, info.culprit.param);
    g[2500] = 1;
    log.expect("the gradient of second, slice 0, has an inf or nan between its elements 0 and 9; weights");
    ASSERT_ZOFF_OK(step(&info));
    EXPECT_EQ(1u, info.culprit.param);
    EXPECT_EQ(0, w[0]);
    EXPECT_EQ(0, info.numbers.elements_updated);
}

// The norm covers all parameters together, and the one factor multiplies each.
TEST_F(Gate, OneFactorForAllParameters)
{
    float w = 0, g = 3;
    std::vector<float> v(3000, 0), h(3000, 0);
    h[2999] = 4;
    auto info = new_info();
    make();
    add(&w, &g, 1, "w");
    add(v.data(), h.data(), v.size(), "v");
    ASSERT_ZOFF_OK(zoff_engine_seal(made.get()));
    ASSERT_ZOFF_OK(step(&info, 1));
    EXPECT_EQ(5, info.numbers.grad_norm);
    EXPECT_EQ(1 / (5 + 1e-6), info.numbers.clip_factor);
    EXPECT_EQ(-3 * (float)info.numbers.clip_factor, w);
    EXPECT_EQ(-4 * (float)info.numbers.clip_factor, v[2999]);
    ASSERT_ZOFF_OK(step(&info, ZOFF_OFF, 0.5));
    EXPECT_EQ(2.5, info.numbers.grad_norm) << "after scaling";
    EXPECT_EQ(1, info.numbers.clip_factor);
}

// Each rank votes with the first poison it has met. The first one in the list is named, from any rank.
TEST(GateOfRanks, TheFirstPoisonOfAllVotesIsNamed)
{
    log_catcher log;
    rank_job job(2);
    rank_trainers all(job, 1, [](trainer &t) {
        t.add(3000, 3, ZOFF_BF16, ZOFF_BF16);
        t.add(10, 1, ZOFF_BF16, ZOFF_BF16);
    });
    all.seal(config_text(""), 0);
    ASSERT_FALSE(testing::Test::HasFailure());
    zoff_engine *e = all.engines[0].get();
    zoff_vote votes[2] = {};
    const auto poison = [&](unsigned rank, uint32_t param, size_t slice, size_t first) {
        zoff_vote &vote = votes[rank];
        vote.poisoned = vote.rank_is_known = true;
        vote.rank = rank;
        vote.param = param;
        vote.slice = slice;
        vote.first = first;
    };
    const auto words = [&] {
        char why[512];
        zoff_vote other = votes[1];
        e->gate.vote = votes[0];
        zoff_transfer_measure_join(&e->gate.vote, &votes[1], sizeof other);
        zoff_transfer_measure_join(&other, &votes[0], sizeof other);
        EXPECT_EQ(0, memcmp(&other, &e->gate.vote, sizeof other)) << "votes join in any order";
        zoff_engine_gate_explain(e, why, sizeof why);
        return std::string(why);
    };
    e->run.looks = true;
    poison(0, 1, 0, 0);
    poison(1, 0, 2, 2048);
    EXPECT_EQ("the gradient of param0, slice 2, has an inf or nan between its elements 2048 and 2999 on rank 1", words());
    poison(0, 0, 1, 2048);
    EXPECT_EQ("the gradient of param0, slice 1, has an inf or nan between its elements 2048 and 2999 on rank 0", words());
    poison(1, 0, 1, 1024);
    EXPECT_EQ("the gradient of param0, slice 1, has an inf or nan between its elements 1024 and 2047 on rank 1", words());
    votes[1].rank_is_known = false;
    EXPECT_NE(std::string::npos, words().find("in the sum of all ranks (by rank 1)"));
    e->run.looks = false; // gradients were not examined
    EXPECT_EQ(0u, words().find("the gradients have to be multiplied by "));
}
} // namespace
