// calls_test.cc: calls that come at the wrong time, and numbers at the edge of what a step computes with.
#include "small_engine.h"

#include <float.h>
#include <math.h>

using namespace zoff_test;

namespace
{
const char SGD[] = "{\"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 1.0}}, \"gradient_clipping\": 0";

// An engine of plain SGD over parameters of the test's, whose gradients have their type.
class Calls : public testing::Test
{
  protected:
    zoff_param add(float *value, float *grad, size_t count, const char *name)
    {
        zoff_param_desc d = {};
        zoff_param p = 0;
        d.struct_size = sizeof d;
        d.value = value;
        d.grad = grad;
        d.count = count;
        d.name = name;
        EXPECT_ZOFF_OK(zoff_engine_add_param(made.get(), &d, &p));
        return p;
    }
    void make(const std::string &more = "")
    {
        zoff_config *settings = nullptr;
        zoff_engine *e = nullptr;
        zoff_engine_opts opts = {};
        const std::string text = SGD + more + "}";
        ASSERT_ZOFF_OK(zoff_config_parse(text.data(), text.size(), "test.json", &settings));
        opts.struct_size = sizeof opts;
        opts.config = settings;
        opts.threads = 1;
        ASSERT_ZOFF_OK(zoff_engine_create(&opts, &e));
        zoff_config_close(settings);
        made = engine(e);
    }
    zoff_status step(zoff_step_info *info, double clip_norm = 0, double grad_scale = 0)
    {
        zoff_step_args args = {};
        args.struct_size = sizeof args;
        args.clip_norm = clip_norm;
        args.grad_scale = grad_scale;
        return zoff_step(made.get(), &args, info);
    }
    engine made;
    log_catcher log;
};

TEST_F(Calls, ABufferIsNotBoundAfterItsGradientWasHandedOver)
{
    std::vector<float> w(4096, 0), first(4096, 1), other(4096, 1000);
    make();
    const zoff_param p = add(w.data(), first.data(), w.size(), "w");
    ASSERT_ZOFF_OK(zoff_engine_seal(made.get()));
    ASSERT_ZOFF_OK(zoff_grad_ready(made.get(), p, 0, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "slice 0 of w was handed over", zoff_param_bind(made.get(), p, nullptr, other.data()));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "slice 0 of w was handed over", zoff_param_bind(made.get(), p, other.data(), nullptr));
    EXPECT_ZOFF_OK(zoff_param_bind(made.get(), p, w.data(), first.data())); // nothing moves
    ASSERT_ZOFF_OK(zoff_step_begin(made.get(), nullptr));
    ASSERT_ZOFF_OK(zoff_step_wait(made.get(), nullptr));
    EXPECT_EQ(-1, w[0]);
    // After the step, and after gradients were given up.
    ASSERT_ZOFF_OK(zoff_param_bind(made.get(), p, nullptr, other.data()));
    ASSERT_ZOFF_OK(zoff_grad_ready(made.get(), p, 0, nullptr));
    ASSERT_ZOFF_OK(zoff_grads_drop(made.get()));
    ASSERT_ZOFF_OK(zoff_param_bind(made.get(), p, nullptr, first.data()));
    ASSERT_ZOFF_OK(zoff_step(made.get(), nullptr, nullptr));
    EXPECT_EQ(-2, w[0]);
}

TEST_F(Calls, ABufferIsNotBoundWhileGradientMemoryIsLent)
{
    std::vector<float> w(64, 0), own(64, 1000);
    void *lent = nullptr;
    make();
    const zoff_param p = add(w.data(), nullptr, w.size(), "w");
    ASSERT_ZOFF_OK(zoff_engine_seal(made.get()));
    ASSERT_ZOFF_OK(zoff_grad_acquire(made.get(), p, 0, nullptr, &lent));
    std::fill_n((float *)lent, w.size(), 1.0f);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "zoff_grad_acquire() has lent", zoff_param_bind(made.get(), p, nullptr, own.data()));
    ASSERT_ZOFF_OK(zoff_grad_ready(made.get(), p, 0, nullptr));
    ASSERT_ZOFF_OK(zoff_step_begin(made.get(), nullptr));
    ASSERT_ZOFF_OK(zoff_step_wait(made.get(), nullptr));
    EXPECT_EQ(-1, w[0]);
}

// All calls that read states, or change states, weights or counts, by one rule.
TEST_F(Calls, StatesAreLeftAloneInTheMiddleOfAnUpdate)
{
    std::vector<float> w(64, 0), g(64, 1), x(64, 5);
    int64_t t = -1;
    make(", \"gradient_accumulation_steps\": 2, \"fp16\": {\"enabled\": true, \"loss_scale\": 1}");
    const zoff_param p = add(w.data(), g.data(), w.size(), "w");
    zoff_loss_scaler scaler = {};
    scaler.struct_size = sizeof scaler;
    log.expect("w is fp32");
    ASSERT_ZOFF_OK(zoff_engine_seal(made.get()));
    ASSERT_ZOFF_OK(zoff_loss_scaler_get(made.get(), &scaler));
    const auto refused = [&](const char *why) {
        EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, why, zoff_state_read(made.get(), p, ZOFF_STATE_MASTER, 0, 64, x.data()));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, why, zoff_state_write(made.get(), p, ZOFF_STATE_MASTER, 0, 64, x.data()));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, why, zoff_step_count_set(made.get(), 7));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, why, zoff_params_pull(made.get()));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, why, zoff_params_push(made.get()));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, why, zoff_loss_scaler_set(made.get(), &scaler));
    };
    const auto allowed = [&] {
        EXPECT_ZOFF_OK(zoff_state_read(made.get(), p, ZOFF_STATE_MASTER, 0, 64, x.data()));
        EXPECT_ZOFF_OK(zoff_state_write(made.get(), p, ZOFF_STATE_MASTER, 0, 64, x.data()));
        EXPECT_ZOFF_OK(zoff_params_pull(made.get()));
        EXPECT_ZOFF_OK(zoff_params_push(made.get()));
        EXPECT_ZOFF_OK(zoff_loss_scaler_set(made.get(), &scaler));
        EXPECT_ZOFF_OK(zoff_step_count(made.get(), &t));
        EXPECT_ZOFF_OK(zoff_step_count_set(made.get(), t));
    };
    allowed();
    ASSERT_ZOFF_OK(zoff_grad_ready(made.get(), p, 0, nullptr));
    refused("gradients of the next step were handed over");
    ASSERT_ZOFF_OK(zoff_step_begin(made.get(), nullptr));
    ASSERT_ZOFF_OK(zoff_step_wait(made.get(), nullptr));
    refused("1 of 2 micro-steps of the next update are done");
    ASSERT_ZOFF_OK(zoff_grads_drop(made.get()));
    allowed();
    ASSERT_ZOFF_OK(zoff_step(made.get(), nullptr, nullptr));
    refused("zoff_grads_drop()");
    ASSERT_ZOFF_OK(zoff_step(made.get(), nullptr, nullptr));
    EXPECT_EQ(-1, w[0]);
    allowed();
}

TEST_F(Calls, WeightsOfTheEngineAreNotSetInTheMiddleOfAnUpdate)
{
    std::vector<float> x(64, 5);
    make(", \"gradient_accumulation_steps\": 2");
    zoff_param_desc d = {};
    zoff_param p = 0;
    d.struct_size = sizeof d;
    d.count = x.size();
    d.grad = x.data();
    d.engine_owned = true;
    ASSERT_ZOFF_OK(zoff_engine_add_param(made.get(), &d, &p));
    ASSERT_ZOFF_OK(zoff_engine_seal(made.get()));
    ASSERT_ZOFF_OK(zoff_step(made.get(), nullptr, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "zoff_param_write: 1 of 2 micro-steps", zoff_param_write(made.get(), p, 0, 64, x.data()));
    EXPECT_ZOFF_OK(zoff_param_read(made.get(), p, 0, 64, x.data())); // weights alone are whole
}

// 0 * NaN is NaN: what has no weight must not be read into the sum, be it the first of it or a later one.
TEST_F(Calls, AGradientOfWeight0CountsAsZerosAlsoWhereItIsNotFinite)
{
    for (float poison : {NAN, INFINITY}) {
        for (int which : {0, 1, 2}) {
            std::vector<float> w(40, 0), g(40);
            auto info = new_info();
            make(", \"gradient_accumulation_steps\": 3");
            add(w.data(), g.data(), w.size(), "w");
            ASSERT_ZOFF_OK(zoff_engine_seal(made.get()));
            for (int micro = 0; micro < 3; micro++) {
                std::fill(g.begin(), g.end(), micro == which ? poison : 1.0f + (float)micro);
                ASSERT_ZOFF_OK(zoff_grad_weight(made.get(), micro == which ? 0 : 1));
                ASSERT_ZOFF_OK(zoff_step(made.get(), nullptr, &info));
            }
            EXPECT_FALSE(info.skipped);
            const float want = -(6.0f - (1.0f + (float)which)) / 2.0f;
            for (float x : w)
                ASSERT_EQ(want, x) << "micro-step " << which << " of weight 0";
        }
    }
}

// As torch.nn.utils.clip_grad_norm_: max_norm / (norm + 1e-6), and never more than 1.
TEST_F(Calls, TheClipFactorIsPyTorchsAlsoJustBelowTheLimit)
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
TEST_F(Calls, WhatFp32DoesNotHoldIsSkipped)
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

// docs/adr/0038: such a step counts, like one in which a single parameter has no gradient; and it is said, once.
TEST_F(Calls, AStepWithoutAnyGradientCountsAndIsSaid)
{
    float w = 0, g = 1;
    int64_t t = 0;
    auto info = new_info();
    make(", \"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_min_lr\": 0, \"warmup_max_lr\": 1, "
         "\"warmup_num_steps\": 4, \"warmup_type\": \"linear\"}}");
    const zoff_param p = add(&w, nullptr, 1, "forgotten");
    ASSERT_ZOFF_OK(zoff_engine_seal(made.get()));
    log.expect("step 1 updates nothing: no parameter has a gradient");
    for (int i = 0; i < 3; i++)
        ASSERT_ZOFF_OK(zoff_step(made.get(), nullptr, &info));
    EXPECT_EQ(ZOFF_OUTCOME_AFTER, info.outcome);
    EXPECT_EQ(0u, info.elements_updated);
    ASSERT_ZOFF_OK(zoff_step_count(made.get(), &t));
    EXPECT_EQ(3, t);
    ASSERT_ZOFF_OK(zoff_param_bind(made.get(), p, nullptr, &g));
    ASSERT_ZOFF_OK(zoff_step(made.get(), nullptr, &info));
    EXPECT_EQ(0.5, info.lr); // of step 4, whoever took part in those before it
    EXPECT_EQ(-0.5f, w);
}

// Likewise: one t for all, so a first gradient that comes late meets no bias correction any more. At most
// (1 - beta1) / sqrt(1 - beta2) times lr.
TEST(LateGradient, MovesByTheRatioOfTheBetas)
{
    float w[2] = {0, 0}, g[2] = {1, 1};
    zoff_engine *e = nullptr;
    zoff_param_desc d[2] = {};
    for (int i = 0; i < 2; i++) {
        d[i].value = &w[i];
        d[i].grad = &g[i];
        d[i].count = 1;
    }
    ASSERT_ZOFF_OK(zoff_engine_open(nullptr, d, sizeof d[0], 2, &e));
    engine owner(e);
    ASSERT_ZOFF_OK(zoff_step_count_set(e, 100000));
    ASSERT_ZOFF_OK(zoff_grad_ready(e, 1, 0, nullptr));
    ASSERT_ZOFF_OK(zoff_step_begin(e, nullptr));
    ASSERT_ZOFF_OK(zoff_step_wait(e, nullptr));
    EXPECT_EQ(0, w[0]);
    EXPECT_NEAR(-1e-3 * 0.1 / sqrt(0.001), w[1], 1e-5);
}
} // namespace
