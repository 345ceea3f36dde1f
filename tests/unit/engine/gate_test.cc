// gate_test.cc: one norm, one clip factor, one decision to skip, and the words for it.
#include "sgd_engine.h"

#include <float.h>
#include <math.h>

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
            EXPECT_EQ(want, info.clip_factor) << norm << " clipped to " << clip;
            EXPECT_EQ(-(norm * (float)want), w) << norm << " clipped to " << clip;
        }
    }
}

// A norm that fp32 does not hold is skipped, clipped or not; so is a factor that it holds no more than in part.
TEST_F(Gate, WhatFp32DoesNotHoldIsSkipped)
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
        const float factor = (float)(c.scale * info.clip_factor);
        EXPECT_EQ(c.words ? 0 : -(c.gradient * factor), w[0]);
        EXPECT_TRUE(c.words || factor >= FLT_MIN);
    }
}
} // namespace
