/* SPDX-License-Identifier: Apache-2.0 */
// step_test.cc: the meaning of a step: which parameters take part, scale, skip, counting, zeroing, info.
#include "on_tiers.h"
#include "sgd_engine.h"

#include <math.h>

#include <random>

using namespace zoff_test;

namespace
{
class Step : public on_tiers
{
};
INSTANTIATE_TEST_SUITE_P(Tiers, Step, testing::Bool(), tier_name);

// zoff.skip_nonfinite as a number n: from the n-th skipped step in a row on, an error about a step that is over. Random runs of
// good and bad steps, counted again here.
TEST_P(Step, TooManySkippedStepsInARowAreAnError)
{
    log.expect("skipped: the gradient of param0, slice 0, has an inf or nan");
    for (const char *limit : {"true", "1", "2", "5"}) {
        trainer t(5);
        t.add(3000, 1, ZOFF_BF16, ZOFF_BF16);
        engine e = seal_engine(t, text(1, std::string(", \"zoff\": {\"skip_nonfinite\": ") + limit + "}"));
        const int most = atoi(limit); // 0: no limit
        int in_row = 0, good = 0, errors = 0;
        std::mt19937 random(9);
        for (int step = 0; step < 60; step++) {
            const bool bad = random() % 3 != 0;
            t.backward_all(0.1f);
            if (bad)
                trainer::put(t.grad(0), ZOFF_BF16, 7, NAN);
            in_row = bad ? in_row + 1 : 0;
            good += !bad;
            auto info = new_info();
            const bool is_error = most && in_row >= most;
            const zoff_status status = zoff_step(e.get(), nullptr, &info);
            ASSERT_EQ(is_error ? ZOFF_ERR_OVERFLOW : ZOFF_OK, status) << limit << ", step " << step;
            EXPECT_EQ(bad, info.skipped);
            errors += is_error;
            if (is_error) {
                const std::string words =
                    "It is skip " + std::to_string(in_row) + " in a row, and zoff.skip_nonfinite is " + limit;
                EXPECT_NE(nullptr, strstr(zoff_last_error(), words.c_str())) << zoff_last_error();
                EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "no step has failed", zoff_step_retry(e.get(), nullptr));
            }
            if (!bad)
                reference::step(t.tensors, config_groups(), good, 1, 1, 0);
            ASSERT_NO_FATAL_FAILURE(t.expect_weights());
            t.next_step();
        }
        EXPECT_EQ(most > 0, errors > 0);
    }
}

// zoff.skip_nonfinite false: the bits are the same, gradients are read once, and an inf is computed with.
TEST_P(Step, GradientsAreNotLookedAtWhereNobodyAsksForIt)
{
    const size_t elements = 5000 + 2 * 4000;
    const auto poisoned = [](trainer &t) { trainer::put(t.grad(1), ZOFF_BF16, t.place(1, 4000 + 2500), INFINITY); };
    std::vector<uint64_t> bytes;
    for (const char *more : {"", ", \"zoff\": {\"skip_nonfinite\": false}"}) {
        trainer t(3);
        t.add(5000, 1, ZOFF_F32, ZOFF_F32);
        t.add(4000, 2, ZOFF_BF16, ZOFF_BF16);
        engine e = seal_engine(t, text(1, more), 2048);
        auto info = new_info();
        for (int step = 1; step <= 2; step++) {
            t.backward_all(0.1f);
            ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, &info));
            EXPECT_EQ(elements, info.numbers.elements_updated);
            EXPECT_EQ(*more == 0, isfinite(info.numbers.grad_norm));
            reference::step(t.tensors, config_groups(), step, 1, 1, 0);
            ASSERT_NO_FATAL_FAILURE(t.expect_weights());
            t.next_step();
        }
        ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get()));
        bytes.push_back(info.bytes.host_read);
        // Clipping examines gradients, with any value of the key.
        zoff_step_args clip = {};
        clip.struct_size = sizeof clip;
        clip.clip_norm = 1;
        t.backward_all(0.1f);
        poisoned(t);
        log.expect("step 3 skipped: the gradient of param1, slice 1, has an inf or nan");
        ASSERT_ZOFF_OK(zoff_step(e.get(), &clip, &info));
        EXPECT_TRUE(info.skipped);
        EXPECT_EQ(1u, info.culprit.param);
        ASSERT_NO_FATAL_FAILURE(t.expect_weights());
        if (!*more)
            continue;
        t.next_step();
        t.backward_all(0.1f);
        poisoned(t);
        ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, &info));
        EXPECT_FALSE(info.skipped);
        EXPECT_EQ(1, info.numbers.clip_factor);
        EXPECT_EQ(ZOFF_OUTCOME_AFTER, info.outcome);
        size_t wrong = 0;
        for (size_t k = 0; k < 8000; k++)
            wrong += !isfinite(trainer::get(t.value(1), ZOFF_BF16, t.place(1, k)));
        EXPECT_EQ(1u, wrong);
        EXPECT_FALSE(isfinite(trainer::get(t.value(1), ZOFF_BF16, t.place(1, 4000 + 2500))));
    }
    EXPECT_EQ(bytes[0] - (5000 * 4 + 8000 * 2), bytes[1]) << "one reading of the gradients less";
}

TEST_P(Step, ArgumentsOfTheCallWin)
{
    trainer t(4);
    t.add(3000, 1, ZOFF_BF16, ZOFF_BF16, 0);
    t.add(2000, 1, ZOFF_BF16, ZOFF_BF16, 1);
    engine e = seal_engine(t, text(), 1024);
    auto groups = config_groups(2);
    groups[0].lr = 0.1;
    groups[0].decay = ZOFF_DECAY_L2;
    groups[0].weight_decay = 0.01;
    groups[1].lr = 0.02;
    groups[1].beta1 = 0.5;
    for (int64_t t_of_step : {5, 7, 100}) {
        t.next_step();
        t.backward_all(0.1f);
        zoff_step_args args = {};
        args.struct_size = sizeof args;
        args.t = t_of_step;
        args.hyper = groups.data();
        args.hyper_stride = sizeof groups[0];
        args.hyper_count = 2;
        args.clip_norm = 0.5;
        args.grad_scale = 0.125;
        auto info = new_info();
        ASSERT_ZOFF_OK(zoff_step(e.get(), &args, &info));
        auto r = reference::step(t.tensors, groups, t_of_step, 0.125, 1, 0.5);
        EXPECT_EQ(r.norm, info.numbers.grad_norm);
        EXPECT_EQ(r.clip, info.numbers.clip_factor);
        EXPECT_LT(r.clip, 1);
        EXPECT_EQ(0.1, info.numbers.lr);
        EXPECT_EQ(t_of_step, info.t);
        ASSERT_NO_FATAL_FAILURE(t.expect_weights());
    }
    ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get()));
    int64_t count = 0;
    ASSERT_ZOFF_OK(zoff_step_count(e.get(), &count));
    EXPECT_EQ(100, count);
}

TEST_P(Step, BuffersMayComeLateAndMove)
{
    trainer t(6);
    t.add(2500, 1, ZOFF_BF16, ZOFF_BF16);
    engine e;
    zoff_config *c = nullptr;
    std::string config = text();
    ASSERT_ZOFF_OK(zoff_test::config_from_text(config.data(), config.size(), "late.json", &c));
    zoff_engine_opts opts = {};
    opts.struct_size = sizeof opts;
    opts.config = c;
    zoff_engine *made = nullptr;
    ASSERT_ZOFF_OK(zoff_engine_create(&opts, &made));
    e.reset(made);
    zoff_config_close(c);
    zoff_param_desc d = t.desc(0);
    d.grad = nullptr;
    ASSERT_ZOFF_OK(zoff_engine_add_param(made, &d, nullptr));
    ASSERT_ZOFF_OK(zoff_engine_seal(made));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "no gradient buffer", zoff_grad_ready(made, 0, 0, nullptr));
    auto info = new_info();
    log.expect("step 1 updates nothing: no parameter has a gradient");
    ASSERT_ZOFF_OK(zoff_step(made, nullptr, &info)); // no parameter takes part
    EXPECT_EQ(0u, info.numbers.elements_updated);
    ASSERT_ZOFF_OK(zoff_param_bind(made, 0, nullptr, t.grad(0)));
    t.backward_all(0.1f);
    ASSERT_ZOFF_OK(zoff_step(made, nullptr, &info));
    reference::step(t.tensors, config_groups(), 2, 1, 1, 0);
    ASSERT_NO_FATAL_FAILURE(t.expect_weights());
    std::vector<char> elsewhere(t.value(0), t.value(0) + 5000);
    std::vector<char> stale = elsewhere;
    ASSERT_ZOFF_OK(zoff_param_bind(made, 0, elsewhere.data(), nullptr));
    t.next_step();
    t.backward_all(0.1f);
    ASSERT_ZOFF_OK(zoff_step(made, nullptr, &info));
    reference::step(t.tensors, config_groups(), 3, 1, 1, 0);
    EXPECT_EQ(0, memcmp(stale.data(), t.value(0), stale.size()));
    memcpy(t.value(0), elsewhere.data(), elsewhere.size());
    ASSERT_NO_FATAL_FAILURE(t.expect_weights());
}

class StepOfSgd : public sgd_engine
{
};

// ADR 0038: such a step counts, like one in which a single parameter has no gradient. It is logged once.
TEST_F(StepOfSgd, AStepWithoutAnyGradientCountsAndIsLogged)
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
    EXPECT_EQ(0u, info.numbers.elements_updated);
    ASSERT_ZOFF_OK(zoff_step_count(made.get(), &t));
    EXPECT_EQ(3, t);
    ASSERT_ZOFF_OK(zoff_param_bind(made.get(), p, nullptr, &g));
    ASSERT_ZOFF_OK(zoff_step(made.get(), nullptr, &info));
    EXPECT_EQ(0.5, info.numbers.lr); // the rate of step 4, with any parameters in the steps before
    EXPECT_EQ(-0.5f, w);
}

// Likewise one t for all: a first gradient that comes late gets no bias correction any more. The effect is at most (1 - beta1)
// / sqrt(1 - beta2) times lr.
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
    ASSERT_ZOFF_OK(zoff_engine_open(nullptr, d, 2, &e));
    engine owner(e);
    ASSERT_ZOFF_OK(zoff_step_count_set(e, 100000));
    ASSERT_ZOFF_OK(zoff_grad_ready(e, 1, 0, nullptr));
    ASSERT_ZOFF_OK(zoff_step_begin(e, nullptr));
    ASSERT_ZOFF_OK(zoff_step_wait(e, nullptr));
    EXPECT_EQ(0, w[0]);
    EXPECT_NEAR(-1e-3 * 0.1 / sqrt(0.001), w[1], 1e-5);
}
} // namespace
