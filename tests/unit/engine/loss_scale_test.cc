/* SPDX-License-Identifier: Apache-2.0 */
// loss_scale_test.cc: the loss scale of fp16: its changes, against the rules implemented again; its effect on a step; its
// floor.
#include "fp16_engine.h"

#include <math.h>

#include <random>

using namespace zoff_test;

namespace
{
// DeepSpeed's scaler as documented, written down without a look at the engine. At the floor DeepSpeed gives up; here the
// overflow counts like any other.
struct model {
    double scale, min;
    int64_t window;
    uint64_t shift;
    bool consecutive;
    uint64_t left = shift;
    int64_t now = 0, last = -1;

    bool overflow()
    {
        bool gives_up = false;
        if (shift == 1 || left == 1) {
            gives_up = scale == min;
            scale = scale / 2 > min ? scale / 2 : min;
        } else {
            left = left - 1;
        }
        last = now++;
        return gives_up;
    }
    void good()
    {
        if (consecutive)
            left = shift;
        const int64_t quiet = now - last - 1;
        if (quiet > 0 && quiet % window == 0) {
            left = consecutive ? left : shift;
            scale *= 2;
        }
        now++;
    }
};

std::string keys_of(const model &m, int power)
{
    return "\"initial_scale_power\": " + std::to_string(power) + ", \"loss_scale_window\": " + std::to_string(m.window) +
           ", \"hysteresis\": " + std::to_string(m.shift) +
           ", \"consecutive_hysteresis\": " + (m.consecutive ? "true" : "false") +
           ", \"min_loss_scale\": " + std::to_string((int64_t)m.min);
}

TEST(LossScale, IsOneWithoutFp16)
{
    log_catcher log;
    trainer t(1);
    t.add(3, 1, ZOFF_F32, ZOFF_F32);
    engine e = seal_engine(t, "{}");
    double scale = 0;
    ASSERT_ZOFF_OK(zoff_loss_scale(e.get(), &scale));
    EXPECT_EQ(1, scale);
    auto info = new_info();
    ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, &info));
    EXPECT_EQ(1, info.numbers.loss_scale);
    // Without a scale there is no overflow.
    trainer::put(t.grad(0), ZOFF_F32, 0, NAN);
    log.expect("weights and states are unchanged");
    ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, &info));
    EXPECT_FALSE(log.contains("loss scale"));
    auto s = new_scaler();
    ASSERT_ZOFF_OK(zoff_loss_scaler_get(e.get(), &s));
    EXPECT_EQ(1, s.scale);
    EXPECT_EQ(0, s.iterations);
    EXPECT_EQ(-1, s.last_overflow);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "fp16.enabled is false", zoff_loss_scaler_set(e.get(), &s));
}

// Every combination of keys, with random overflows of every frequency: after each step all four numbers follow the rules.
TEST(LossScale, MovesByTheRules)
{
    log_catcher log;
    log.expect("skipped: the gradient of param0, slice 0, has an inf or nan");
    std::mt19937 random(7);
    unsigned floors = 0, doubled = 0;
    for (int power : {0, 3, 16}) {
        for (int64_t window : {1, 2, 5}) {
            for (uint64_t shift : {1, 2, 4}) {
                for (bool consecutive : {false, true}) {
                    for (double min : {1.0, 4.0}) {
                        model m = {ldexp(1, power), min, window, shift, consecutive};
                        tiny engine(fp16_text(keys_of(m, power)));
                        SCOPED_TRACE(keys_of(m, power));
                        for (int step = 0; step < 60; step++) {
                            // Rare overflows, mixed, and so many that the scale reaches the floor.
                            const unsigned odds = step < 20 ? 10 : step < 40 ? 50 : 90;
                            const bool overflow = random() % 100 < odds;
                            const double before = m.scale;
                            auto info = new_info();
                            ASSERT_EQ(before, engine.scale());
                            zoff_status status = engine.step(overflow, &info);
                            bool gives_up = false;
                            if (overflow)
                                gives_up = m.overflow();
                            else
                                m.good();
                            floors += gives_up;
                            doubled += m.scale > before;
                            ASSERT_EQ(gives_up ? ZOFF_ERR_OVERFLOW : ZOFF_OK, status) << "step " << step;
                            EXPECT_EQ(overflow, info.skipped);
                            EXPECT_EQ(before, info.numbers.loss_scale);
                            auto s = engine.scaler();
                            ASSERT_EQ(m.scale, s.scale) << "step " << step;
                            ASSERT_EQ(m.left, s.hysteresis) << "step " << step;
                            ASSERT_EQ(m.now, s.iterations);
                            ASSERT_EQ(m.last, s.last_overflow);
                        }
                    }
                }
            }
        }
    }
    EXPECT_GT(floors, 50u);
    EXPECT_GT(doubled, 500u);
}

TEST(LossScale, DefaultsAreDeepSpeeds)
{
    log_catcher log;
    log.expect("loss scale");
    tiny engine(fp16_text(""));
    model m = {65536, 1, 1000, 2, false};
    for (int step = 0; step < 2100; step++) {
        const bool overflow = step < 3 || step == 1500;
        ASSERT_ZOFF_OK(engine.step(overflow));
        if (overflow)
            m.overflow();
        else
            m.good();
        ASSERT_EQ(m.scale, engine.scale()) << step;
    }
    EXPECT_EQ(32768, m.scale); // three overflows: the second and third halve; step 1003 doubles
}

TEST(LossScale, TheLogSaysOldAndNew)
{
    log_catcher log;
    tiny engine(fp16_text("\"initial_scale_power\": 1"));
    log.expect("step 1 skipped: the gradient of param0, slice 0, has an inf or nan between its elements 0 and 2; weights and "
               "states are unchanged; the loss scale stays 2 (fp16.hysteresis): overflows until it is halved: 1");
    ASSERT_ZOFF_OK(engine.step(true));
    log.expect("unchanged; the loss scale changes from 2 to 1");
    ASSERT_ZOFF_OK(engine.step(true));
    log.expect("unchanged; the loss scale stays 1: fp16.min_loss_scale");
    EXPECT_EQ(ZOFF_ERR_OVERFLOW, engine.step(true));
    tiny fixed(fp16_text("\"loss_scale\": 1024"));
    log.expect("unchanged; the loss scale stays 1024: it is static");
    ASSERT_ZOFF_OK(fixed.step(true));
}

TEST(LossScale, AtTheFloorTheTrainerDecides)
{
    log_catcher log;
    tiny engine(fp16_text("\"initial_scale_power\": 2, \"min_loss_scale\": 4, \"hysteresis\": 1, \"loss_scale_window\": 2"));
    log.expect("fp16.min_loss_scale");
    std::vector<char> weights(engine.t.value(0), engine.t.value(0) + 6);
    for (int i = 0; i < 3; i++) {
        auto info = new_info();
        trainer::put(engine.t.grad(0), ZOFF_F32, 1, NAN);
        ASSERT_ZOFF_OK(zoff_grad_ready(engine.e.get(), 0, 0, nullptr));
        ASSERT_ZOFF_OK(zoff_step_begin(engine.e.get(), nullptr));
        EXPECT_ZOFF_FAILS(
            ZOFF_ERR_OVERFLOW,
            "step 1 was skipped: the gradient of param0, slice 0, has an inf or nan between its elements 0 and 2, and "
            "the loss scale is 4, the minimum (fp16.min_loss_scale). Weights and states are unchanged",
            zoff_step_wait(engine.e.get(), &info));
        EXPECT_NE(std::string(zoff_last_error()).find("fp16.min_loss_scale may be as low as 1"), std::string::npos);
        EXPECT_TRUE(info.skipped);
        EXPECT_EQ(ZOFF_OUTCOME_BEFORE, info.outcome);
        EXPECT_EQ(0u, info.culprit.param);
        EXPECT_EQ(4, info.numbers.loss_scale);
        EXPECT_EQ(0, memcmp(weights.data(), engine.t.value(0), weights.size()));
        // The step is over: nothing to retry, nothing to drop.
        EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "no step has failed", zoff_step_retry(engine.e.get(), nullptr));
    }
    int64_t count = -1;
    ASSERT_ZOFF_OK(zoff_step_count(engine.e.get(), &count));
    EXPECT_EQ(0, count);
    // A trainer that continues: after a window the scale grows again.
    for (int i = 0; i < 3; i++) {
        EXPECT_EQ(4, engine.scale());
        ASSERT_ZOFF_OK(engine.step(false));
    }
    EXPECT_EQ(8, engine.scale());
    EXPECT_NE(0, memcmp(weights.data(), engine.t.value(0), weights.size()));
    EXPECT_STRNE("", zoff_status_text(ZOFF_ERR_OVERFLOW));
}

TEST(LossScale, AStaticOneNeverMoves)
{
    log_catcher log;
    log.expect("it is static");
    // The keys of a dynamic scale are not read.
    tiny engine(fp16_text("\"loss_scale\": 3, \"loss_scale_window\": 0, \"hysteresis\": 0, \"min_loss_scale\": 0"));
    for (int step = 0; step < 50; step++) {
        auto info = new_info();
        ASSERT_ZOFF_OK(engine.step(step % 3 != 0, &info));
        EXPECT_EQ(step % 3 != 0, info.skipped);
        EXPECT_EQ(3, info.numbers.loss_scale);
        EXPECT_EQ(3, engine.scale());
    }
    EXPECT_EQ(50, engine.scaler().iterations);
    EXPECT_EQ(49, engine.scaler().last_overflow);
}

// A larger one does not fit into fp32: nobody could multiply by it.
TEST(LossScale, StopsAtTheLargestPowerOfTwo)
{
    log_catcher log;
    tiny engine(fp16_text("\"initial_scale_power\": 125, \"loss_scale_window\": 1"));
    for (int step = 0; step < 10; step++)
        ASSERT_ZOFF_OK(engine.step(false));
    EXPECT_EQ(0x1p127, engine.scale());
}

// A scale by a power of two cancels exactly. Norm, clip factor, weights and states are bit for bit those of a run without it.
// This holds with one micro-step and with three, for fp32 and fp16 weights, with a grad_scale of the caller on top.
TEST(LossScale, LeavesNoTraceInTheNumbers)
{
    log_catcher log;
    for (unsigned accumulation : {1, 3}) {
        for (zoff_dtype dtype : {ZOFF_F16, ZOFF_F32}) {
            if (dtype == ZOFF_F32)
                log.expect("fp16.enabled is true (test.json:1:");
            const char *const clipping = ", \"gradient_clipping\": 0.5";
            auto with_clip = [&](std::string text) {
                const std::string off = ", \"gradient_clipping\": 0";
                return text.replace(text.find(off), off.size(), clipping);
            };
            trainer plain(3), scaled(3);
            plain.add(3000, 2, dtype, ZOFF_F32);
            scaled.add(3000, 2, dtype, ZOFF_F32);
            engine a = seal_engine(plain, with_clip(config_text("", accumulation)), 1024);
            engine b = seal_engine(
                scaled, with_clip(fp16_text("\"initial_scale_power\": 10, \"loss_scale_window\": 2", accumulation)), 1024);
            for (int step = 1; step <= 6; step++) {
                plain.next_step();
                scaled.next_step();
                auto x = new_info(), y = new_info();
                double of_step = 0;
                for (unsigned micro = 0; micro < accumulation; micro++) {
                    double scale = 0;
                    ASSERT_ZOFF_OK(zoff_loss_scale(b.get(), &scale));
                    of_step = micro ? of_step : scale;
                    EXPECT_EQ(of_step, scale) << "one scale in all micro-steps";
                    plain.backward_all(0.1f);
                    scaled.random = plain.random;
                    for (size_t k = 0; k < 6000; k++) {
                        float g = trainer::get(plain.grad(0), ZOFF_F32, k);
                        trainer::put(scaled.grad(0), ZOFF_F32, k, (float)(scale * (double)g));
                    }
                    zoff_step_args args = {};
                    args.struct_size = sizeof args;
                    args.grad_scale = 0.75;
                    ASSERT_ZOFF_OK(zoff_step(a.get(), &args, &x));
                    ASSERT_ZOFF_OK(zoff_step(b.get(), &args, &y));
                    EXPECT_EQ(micro + 1 < accumulation, y.accumulated);
                    EXPECT_EQ(of_step, y.numbers.loss_scale);
                }
                EXPECT_EQ(x.numbers.grad_norm, y.numbers.grad_norm);
                EXPECT_EQ(x.numbers.clip_factor, y.numbers.clip_factor);
                EXPECT_LT(y.numbers.clip_factor, 1);
                auto r = reference::step(plain.tensors, config_groups(), step, 0.75, accumulation, 0.5);
                EXPECT_EQ(r.norm, y.numbers.grad_norm);
                scaled.tensors[0].master = plain.tensors[0].master;
                scaled.tensors[0].m = plain.tensors[0].m;
                scaled.tensors[0].v = plain.tensors[0].v;
                ASSERT_NO_FATAL_FAILURE(plain.expect_weights());
                ASSERT_NO_FATAL_FAILURE(scaled.expect_weights());
                ASSERT_NO_FATAL_FAILURE(scaled.expect_states(b.get()));
            }
            double grown = 0;
            ASSERT_ZOFF_OK(zoff_loss_scale(b.get(), &grown));
            EXPECT_EQ(4096, grown); // the scale has grown after updates 3 and 5
        }
    }
}

// An overflow in any micro-step is one of the update. It changes the scale once, when the update is over.
TEST(LossScale, AnUpdateIsOneStepOfTheScale)
{
    log_catcher log;
    log.expect("the loss scale changes from 65536 to 32768");
    tiny engine(fp16_text("\"hysteresis\": 1", 3));
    for (int micro = 0; micro < 3; micro++) {
        EXPECT_EQ(65536, engine.scale());
        auto info = new_info();
        ASSERT_ZOFF_OK(engine.step(micro == 0, &info));
        EXPECT_EQ(micro == 2, info.skipped);
    }
    EXPECT_EQ(32768, engine.scale());
    EXPECT_EQ(1, engine.scaler().iterations);
    // A dropped step has not been a step.
    ASSERT_ZOFF_OK(engine.step(true));
    ASSERT_ZOFF_OK(zoff_grads_drop(engine.e.get()));
    EXPECT_EQ(1, engine.scaler().iterations);
    EXPECT_EQ(32768, engine.scale());
    for (int micro = 0; micro < 3; micro++)
        ASSERT_ZOFF_OK(engine.step(false));
    EXPECT_EQ(2, engine.scaler().iterations);
    EXPECT_EQ(0, engine.scaler().last_overflow);
}

// An overflow in fp16 alone is found, and the scale falls until there is none.
TEST(LossScale, HalfPrecisionGradientsFindTheirScale)
{
    log_catcher log;
    log.expect("skipped: the gradient of param0");
    trainer t(9);
    t.add(5000, 1, ZOFF_F16, ZOFF_F16);
    engine e = seal_engine(t, fp16_text("\"hysteresis\": 1"), 2048);
    int64_t updates = 0;
    double scale = 0;
    for (int i = 0; i < 8; i++) {
        ASSERT_ZOFF_OK(zoff_loss_scale(e.get(), &scale));
        auto info = new_info();
        t.next_step();
        t.backward_all((float)(scale * 0.5)); // some of 5000 gradients exceed 65504 at the first scales
        ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, &info));
        auto want = reference::step(t.tensors, config_groups(), updates + 1, 1 / scale, 1, 0);
        EXPECT_EQ(want.skipped, info.skipped) << i;
        updates += !want.skipped;
        ASSERT_NO_FATAL_FAILURE(t.expect_weights());
        ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get()));
    }
    EXPECT_GT(updates, 2);
    EXPECT_LT(updates, 8);
}

TEST(LossScale, BothScalesTogetherMustBeAnFp32Number)
{
    log_catcher log;
    tiny engine(fp16_text("\"loss_scale\": 1e-20"));
    zoff_step_args args = {};
    args.struct_size = sizeof args;
    args.grad_scale = 1e20;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "grad_scale 1e+20 divided by the loss scale 1e-20 is not a finite fp32 number",
                      zoff_step(engine.e.get(), &args, nullptr));
    EXPECT_ZOFF_OK(zoff_step(engine.e.get(), nullptr, nullptr));
}

TEST(LossScale, WeightsOfAnotherTypeAreReported)
{
    log_catcher log;
    trainer t(10);
    t.add(10, 1, ZOFF_F16, ZOFF_F16);
    t.add(10, 1, ZOFF_F32, ZOFF_F32, 0, true); // a frozen parameter takes no part
    t.add(10, 1, ZOFF_BF16, ZOFF_F16);
    log.expect("fp16.enabled is true (test.json:1:");
    log.expect("), but param2 is bf16: the program sets the type of weights in zoff_param_desc.dtype");
    engine e = seal_engine(t, fp16_text(""));
    EXPECT_EQ(1u, log.warnings.size());
}
} // namespace
